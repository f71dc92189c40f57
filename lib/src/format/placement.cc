// SPDX-License-Identifier: Apache-2.0
#include "format/placement.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "format/header.h"
#include "format/rank_index.h"
#include "partition/geometry.h"

namespace flagstone::format {
namespace {

using base::Join;
using base::kPageBytes;
using base::Quote;

constexpr uint32_t kMaxChunkBytes = uint32_t{4} << 20;

std::string Label(const PlacedSegment& segment) {
  return segment.partition.empty() ? segment.role : Join(segment.partition, "/", segment.role);
}

// Puts segments one behind the other.
class Placer {
 public:
  Placer() { end_ = kPageBytes; }

  Status Add(PlacedSegment segment) {
    if (segment.bytes == 0) return {};
    segment.offset = end_;
    segment.first_chunk = placement_.digest_count;
    // One addition may not pass 2^63; the pages behind cannot then wrap.
    if (!base::InBounds(end_, segment.bytes, kMaxFileBytes)) return TooLong();
    end_ += segment.padded_bytes();
    placement_.digest_count += segment.chunks();
    placement_.segments.push_back(std::move(segment));
    return {};
  }

  Result<RankPlacement> Finish() {
    placement_.digests_offset = end_;
    const uint64_t pages = placement_.digest_pages() * kPageBytes;
    if (!base::InBounds(end_, pages, kMaxFileBytes)) return TooLong();
    placement_.index_offset = end_ + pages;
    if (!base::InBounds(placement_.index_offset, kMaxIndexBytes, kMaxFileBytes)) return TooLong();
    return std::move(placement_);
  }

 private:
  static Status TooLong() {
    return Status(StatusCode::kInvalidArgument,
                  Join("a rank file would exceed ", kMaxFileBytes, " bytes"));
  }

  RankPlacement placement_;
  uint64_t end_ = 0;
};

Status AddPartition(const partition::Geometry& geometry, uint32_t position, Placer& placer) {
  const Partition& partition = geometry.partition();
  for (uint32_t i = 0; i < partition.roles.size(); ++i) {
    const Role& role = partition.roles[i];
    if (role.form == RoleForm::kPlain) continue;
    const uint64_t bytes = geometry.StoredBytes(i, position);
    PlacedSegment segment{partition.id, role.name, 0, bytes, role.chunk_bytes, 0};
    FLAGSTONE_RETURN_IF_ERROR(placer.Add(std::move(segment)));
  }
  return {};
}

Status AddArrays(std::span<const ArraySize> arrays, bool client, Placer& placer) {
  for (const ArraySize& array : arrays) {
    if (array.client != client) continue;
    const auto role = client ? kClientStateRole : kRankStateRole;
    FLAGSTONE_RETURN_IF_ERROR(
        placer.Add({{}, std::string(role), 0, array.bytes, kArrayChunkBytes, 0}));
  }
  return {};
}

// Rules for one segment by itself.
Status CheckSegment(const PlacedSegment& segment) {
  const auto fail = [&](std::string_view problem) {
    return Status(StatusCode::kCorruption,
                  Join("segment ", Quote(Label(segment)), " ", problem, " (offset ", segment.offset,
                       ", ", segment.bytes, " bytes, chunks of ", segment.chunk_bytes, ")"));
  };
  if (segment.chunk_bytes < kPageBytes || segment.chunk_bytes > kMaxChunkBytes ||
      segment.chunk_bytes % kPageBytes != 0) {
    return fail("has a chunk size that is not a multiple of 4 KiB from 4 KiB to 4 MiB");
  }
  if (segment.bytes == 0 || segment.bytes > kMaxFileBytes) return fail("has an impossible length");
  if (!segment.partition.empty()) return {};
  if (segment.role != kRankStateRole && segment.role != kClientStateRole) {
    return fail("belongs to no partition and is no array");
  }
  if (segment.bytes <= kInlineArrayBytes || segment.chunk_bytes != kArrayChunkBytes) {
    return fail("has a length or chunk size that arrays do not have");
  }
  return {};
}

// Partitions by id, then arrays of rank state, then of client state.
int OrderOf(const PlacedSegment& segment) {
  if (!segment.partition.empty()) return 0;
  return segment.role == kRankStateRole ? 1 : 2;
}

Status CheckOrder(std::span<const PlacedSegment> segments) {
  std::unordered_set<std::string_view> roles;  // Of the partition at hand.
  for (size_t i = 0; i < segments.size(); ++i) {
    const PlacedSegment& segment = segments[i];
    const bool same = i > 0 && segment.partition == segments[i - 1].partition;
    if (i > 0) {
      const int before = OrderOf(segments[i - 1]);
      const int here = OrderOf(segment);
      const bool descends = here == 0 && segment.partition < segments[i - 1].partition;
      if (here < before || (before == 0 && descends)) {
        return Status(StatusCode::kCorruption,
                      Join("segment ", Quote(Label(segment)), " is out of order"));
      }
    }
    if (segment.partition.empty()) continue;
    if (!same) roles.clear();
    if (!roles.insert(segment.role).second) {
      return Status(StatusCode::kCorruption, Join("segment ", Quote(Label(segment)), " is twice"));
    }
  }
  return {};
}

}  // namespace

uint64_t PlacedSegment::padded_bytes() const { return base::AlignUp(bytes, kPageBytes); }

uint64_t PlacedSegment::chunks() const { return base::DivideUp(padded_bytes(), chunk_bytes); }

uint64_t RankPlacement::digest_pages() const {
  return base::DivideUp(digest_count, kDigestsPerPage);
}

RankPlacer::RankPlacer(const Layout& layout)
    : layout_(layout), geometries_(layout.partitions.size()) {}
RankPlacer::~RankPlacer() = default;

Result<RankPlacement> RankPlacer::Place(uint32_t rank, std::span<const ArraySize> arrays) {
  Placer placer;
  for (uint32_t i = 0; i < layout_.partitions.size(); ++i) {
    // A rank that stands in a replica list alone stores nothing.
    const auto position = layout_.partitions[i].ranks.IndexOf(rank);
    if (!position) continue;
    if (!geometries_[i]) geometries_[i] = std::make_unique<partition::Geometry>(layout_, i);
    FLAGSTONE_RETURN_IF_ERROR(AddPartition(*geometries_[i], *position, placer));
  }
  FLAGSTONE_RETURN_IF_ERROR(AddArrays(arrays, false, placer));
  FLAGSTONE_RETURN_IF_ERROR(AddArrays(arrays, true, placer));
  return placer.Finish();
}

Result<RankPlacement> PlaceRankFile(const Layout& layout, uint32_t rank,
                                    std::span<const ArraySize> arrays) {
  return RankPlacer(layout).Place(rank, arrays);
}

Status CheckPlacement(const RankPlacement& placement) {
  // The places follow from lengths and order: made anew, they must come out the same.
  FLAGSTONE_RETURN_IF_ERROR(CheckOrder(placement.segments));
  Placer placer;
  for (const PlacedSegment& segment : placement.segments) {
    FLAGSTONE_RETURN_IF_ERROR(CheckSegment(segment));
    if (Status status = placer.Add(segment); !status.ok()) {
      return Status(StatusCode::kCorruption, status.message());
    }
  }
  auto expected = placer.Finish();
  if (!expected.ok()) return Status(StatusCode::kCorruption, expected.status().message());
  for (size_t i = 0; i < placement.segments.size(); ++i) {
    const PlacedSegment& found = placement.segments[i];
    const PlacedSegment& right = expected->segments[i];
    if (found == right) continue;
    return Status(StatusCode::kCorruption,
                  Join("segment ", Quote(Label(found)), " is said to lie at ", found.offset,
                       " with chunk ", found.first_chunk, "; it follows at ", right.offset,
                       " with chunk ", right.first_chunk));
  }
  if (placement == *expected) return {};
  return Status(StatusCode::kCorruption,
                Join("digests and index are said to lie at ", placement.digests_offset, " (",
                     placement.digest_count, ") and ", placement.index_offset, "; they follow at ",
                     expected->digests_offset, " (", expected->digest_count, ") and ",
                     expected->index_offset));
}

uint64_t RankFileLength(const RankPlacement& placement, uint64_t index_length) {
  return base::AlignUp(placement.index_offset + index_length, kPageBytes);
}

}  // namespace flagstone::format
