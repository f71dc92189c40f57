// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The index of a rank file: where its segments are, one digest a digest page, plain values, this
/// rank's own state.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "flagstone/dtype.h"
#include "flagstone/status.h"
#include "flagstone/value.h"
#include "format/header.h"
#include "format/placement.h"

namespace flagstone::format {

/// Arrays of more bytes than this have a segment of their own; smaller ones lie in the index or
/// manifest.
inline constexpr uint64_t kInlineArrayBytes = 4096;

/// One plain role's value of one member that this rank owns a part of: null, bool, int or float.
struct PlainValue {
  std::string partition;  ///< Id.
  std::string role;       ///< Name.
  uint32_t member = 0;    ///< Position in the partition's members.
  Value value;

  bool operator==(const PlainValue&) const = default;
};

struct RankIndex {
  SaveId save_id{};
  uint32_t rank = 0;
  uint32_t world_size = 0;
  /// Repeats what PlaceRankFile gives; disagreement with the manifest is kCorruption.
  RankPlacement placement;
  std::vector<uint64_t> page_digests;  ///< XXH3-64 of each digest page.
  std::vector<PlainValue> plain;  ///< By partition, role and member; EncodeRankIndex sorts them so.
  Value rank_state;  ///< Arrays above 4 KiB: shape here, bytes in array segments of `placement`;
                     ///< decoded, `bytes` is empty.

  bool operator==(const RankIndex&) const = default;
};

/// Errors: kInvalidArgument for what DecodeRankIndex would refuse, kResourceExhausted above
/// kMaxIndexBytes.
Result<std::vector<std::byte>> EncodeRankIndex(const RankIndex& index);
/// Decode the index's bytes (length and digest already checked against the header and the
/// manifest).
Result<RankIndex> DecodeRankIndex(std::span<const std::byte> bytes);

/// Bytes of an array by its shape, whether or not `bytes` holds them; the shape must be valid.
uint64_t ArraySizeBytes(const Array& array);

/// Each array of `value` above kInlineArrayBytes, in preorder: those that live in array segments.
std::vector<Array*> SegmentArrays(Value& value);
std::vector<const Array*> SegmentArrays(const Value& value);

}  // namespace flagstone::format
