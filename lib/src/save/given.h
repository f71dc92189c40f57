// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What a caller gave a Writer, checked against what the layout says this rank holds.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "flagstone/memory.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"
#include "format/rank_index.h"
#include "partition/geometry.h"
#include "save/rank_file.h"

namespace flagstone::save {

class Given {
 public:
  /// `layout` is valid and normal, and outlives this.
  Given(const Layout& layout, uint32_t rank);

  Status AddSegment(std::string_view partition, std::string_view role, Source& source);
  Status AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                   Source& source);
  Status AddPlain(std::string_view partition, std::string_view role, std::string_view tensor,
                  Value value);

  /// The parts of a placed segment. Errors: kInvalidArgument names what was not given.
  Result<std::vector<SegmentPart>> PartsOf(const format::PlacedSegment& segment) const;
  /// All plain values that this rank must keep. Errors: kInvalidArgument names what was not given.
  Result<std::vector<format::PlainValue>> PlainValues() const;

 private:
  // Where one held piece of a segment comes from.
  struct PieceSource {
    Source* source = nullptr;
    uint64_t offset = 0;
  };
  struct Place {
    uint32_t partition = 0;
    uint32_t role = 0;
  };
  // One role of one partition in which this rank stands.
  struct HeldRole {
    partition::Segment held;
    std::vector<PieceSource> sources;                               // as held.pieces
    std::unordered_map<uint32_t, std::vector<uint32_t>> of_member;  // indexes of a member's pieces
  };

  Result<Place> Find(std::string_view partition, std::string_view role, bool plain) const;
  Result<uint32_t> FindMember(uint32_t partition, std::string_view tensor);
  Result<HeldRole*> Held(const Place& place);
  std::string NameOf(const Place& place) const;
  std::vector<uint32_t> PlainMembers(uint32_t partition) const;

  const Layout& layout_;
  const uint32_t rank_;
  std::vector<partition::Geometry> geometries_;
  std::map<std::pair<uint32_t, uint32_t>, HeldRole> held_;
  std::map<uint32_t, std::unordered_map<std::string_view, uint32_t>>
      members_;  // by partition: names and aliases
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, Value>> plain_;  // value by member
};

}  // namespace flagstone::save
