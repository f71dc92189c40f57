// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The brute-force model of a partition: an array in which each element knows its owner. Slow and
/// plain on purpose; it shares nothing with the code that it judges but the types of the public
/// headers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "flagstone/partition.h"

namespace flagstone::partition_tests {

/// One element of a segment.
struct ModelElement {
  uint32_t member = 0;
  uint64_t index = 0;  // in the member, row-major; under a mesh rule in the rank's local tensor
  uint64_t byte_offset = 0;
  uint64_t in_tensor = 0;  // index in the tensor, row-major; of an attached role in its value
};

struct ModelSegment {
  std::vector<ModelElement> elements;
  std::vector<uint32_t> empty_members;  // that stand in it without an element
  uint64_t bytes = 0;
};

class Model {
 public:
  /// Borrows the layout. Every element gets a record, so that tensors must be small.
  Model(const Layout& layout, uint32_t partition);

  const Partition& partition() const { return *partition_; }
  uint64_t elements(uint32_t member) const { return owners_[member].size(); }
  /// Position in the rank list that stores an element of an aligned role.
  uint32_t owner(uint32_t member, uint64_t index) const { return owners_[member][index]; }
  /// Whether blocks of so many elements of a tensor, row-major, are each on one rank.
  bool IsOnGrid(uint64_t block) const;

  ModelSegment Stored(uint32_t role, uint32_t position) const {
    return Make(&partition_->roles[role], position, false);
  }
  ModelSegment Held(uint32_t role, uint32_t position) const {
    return Make(&partition_->roles[role], position, true);
  }
  /// The elements of the tensors themselves, whatever the roles.
  ModelSegment StoredSlices(uint32_t position) const { return Make(nullptr, position, false); }
  ModelSegment HeldSlices(uint32_t position) const { return Make(nullptr, position, true); }

 private:
  ModelSegment Make(const Role* role, uint32_t position, bool held) const;
  std::vector<uint64_t> Local(uint32_t member, uint32_t position) const;
  void OwnByMesh(uint32_t member);

  const Layout* layout_;
  const Partition* partition_;
  std::vector<std::vector<uint64_t>> shapes_;    // [member]: of the tensor or the box
  std::vector<std::vector<uint32_t>> owners_;    // [member][element]
  std::vector<std::vector<uint64_t>> in_tensor_;  // [member][element]: index in the tensor
};

/// The index in a tensor of each element of a box of it (of all of it where there is none).
std::vector<uint64_t> IndexesOf(const std::vector<uint64_t>& shape, const std::optional<Box>& box);

/// All ranks of a list, one by one.
std::vector<uint32_t> Expand(const RankList& list);

/// Eight bytes that tell one element from every other: of which tensor, which role, which index.
uint64_t ElementMark(uint64_t tensor, std::string_view role, uint64_t index);
/// Write the `size` bytes of an element.
void WriteElement(std::byte* at, uint64_t size, uint64_t mark);

/// The bytes of a segment as a rank would hold them, `padding` between the members.
std::vector<std::byte> SegmentBytes(const Layout& layout, const Model& model, uint32_t role,
                                    const ModelSegment& segment, std::byte padding,
                                    const std::function<uint64_t(const Tensor&)>& id);

}  // namespace flagstone::partition_tests
