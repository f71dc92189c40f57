// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Where everything in a rank file lies: a function of the layout, the rank and the sizes of its
/// arrays alone, so that a plan needs no rank file and a rank can write before it has heard of any
/// other (spec/format.md, "Rank file").

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/dtype.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"

namespace flagstone::partition {
class Geometry;
}

namespace flagstone::format {

/// One page-aligned run of bytes: a role of a partition, or an array of rank or client state.
struct PlacedSegment {
  std::string partition;     ///< Id; "" for an array.
  std::string role;          ///< Name; "rank_state" or "client_state" for an array.
  uint64_t offset = 0;       ///< In the file; a multiple of 4096.
  uint64_t bytes = 0;        ///< Logical length; the rest up to the 4096 boundary is zero.
  uint32_t chunk_bytes = 0;  ///< Bytes under one digest; the last chunk reaches the 4096 boundary.
  uint64_t first_chunk = 0;  ///< Index of its first digest among all digests of the file.

  uint64_t padded_bytes() const;  ///< `bytes` rounded up to 4096.
  uint64_t chunks() const;        ///< ceil(padded_bytes / chunk_bytes).

  bool operator==(const PlacedSegment&) const = default;
};

/// Digests a digest page: 4096 / 8.
inline constexpr uint64_t kDigestsPerPage = 512;
/// Chunk size of array segments.
inline constexpr uint32_t kArrayChunkBytes = uint32_t{64} << 10;
/// PlacedSegment::role of arrays.
inline constexpr std::string_view kRankStateRole = "rank_state";
inline constexpr std::string_view kClientStateRole = "client_state";

/// Size of an array that gets a segment of its own.
struct ArraySize {
  bool client = false;  ///< Of client state (coordinator's file only), else of rank state.
  uint64_t bytes = 0;
};

/// The order in a file: header page; segments of partitions by id, roles in their order (plain
/// roles have none; a rank that stores nothing of a segment has none); arrays of rank state, then
/// of client state, in preorder; digest pages; index.
struct RankPlacement {
  std::vector<PlacedSegment> segments;  ///< Partition segments, then arrays.
  uint64_t digests_offset = 0;          ///< First digest page; a multiple of 4096.
  uint64_t digest_count = 0;            ///< Chunk digests of the file, 512 a page.
  uint64_t index_offset = 0;            ///< After the digest pages.

  uint64_t digest_pages() const;

  bool operator==(const RankPlacement&) const = default;
};

/// Places the files of many ranks of one layout, valid and normal, which is borrowed. Sums over
/// members are made once for all ranks. Not thread-safe.
class RankPlacer {
 public:
  explicit RankPlacer(const Layout& layout);
  ~RankPlacer();
  /// As PlaceRankFile. Cost: O(own members), for per tensor O(members); the first time more.
  Result<RankPlacement> Place(uint32_t rank, std::span<const ArraySize> arrays);

 private:
  const Layout& layout_;
  std::vector<std::unique_ptr<partition::Geometry>> geometries_;  // by partition, once met
};

/// The layout must be valid and normal. Cost: O(members of the partitions in which the rank
/// stands). Errors: kInvalidArgument when the file would exceed 2^63 bytes.
Result<RankPlacement> PlaceRankFile(const Layout& layout, uint32_t rank,
                                    std::span<const ArraySize> arrays);

/// Check a placement by itself: pages, order, no gap, no overlap, the sums. Errors: kCorruption
/// names the segment.
Status CheckPlacement(const RankPlacement& placement);

/// Length of the file whose index has `index_length` bytes: padded to a multiple of 4096.
uint64_t RankFileLength(const RankPlacement& placement, uint64_t index_length);

}  // namespace flagstone::format
