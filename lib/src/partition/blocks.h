// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Rectangular parts of a tensor and where their elements lie in a buffer: what a plan intersects
/// when the two sides do not cut a tensor along the same line.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flagstone/partition.h"
#include "partition/validate.h"

namespace flagstone::partition {

/// Dimensions that nobody cuts are counted with the one before them, so that a tensor of any number
/// of dimensions has at most one more than are cut on both sides.
inline constexpr uint32_t kMaxGroups = 2 * kMaxCutDimensions + 1;

/// A number for each group of dimensions.
using Groups = std::array<uint64_t, kMaxGroups>;

/// The dimensions of one tensor, in groups.
class Grouping {
 public:
  /// A group begins at dimension 0 and at each dimension of `cut`, which holds at most
  /// 2 * kMaxCutDimensions, in any order and repeated at will. The shape is borrowed.
  Grouping(const std::vector<uint64_t>& shape, std::span<const uint32_t> cut);

  uint32_t count() const { return count_; }
  /// The group that dimension `dimension` begins.
  uint32_t GroupAt(uint32_t dimension) const;
  /// Elements of one index of that dimension of the group: the product of the dimensions behind it.
  uint64_t unit(uint32_t group) const { return units_[group]; }
  /// Offsets and sizes of a box, or of the whole tensor, that cuts none but the dimensions of `cut`
  /// (and dimension 0).
  void Place(const std::optional<Box>& box, Groups& offsets, Groups& sizes) const;

 private:
  const std::vector<uint64_t>& shape_;
  uint32_t count_ = 0;
  std::array<uint32_t, kMaxGroups> first_{};  // dimension at which each group begins
  Groups units_{};
};

/// A box of a tensor whose elements lie in a buffer at regular distances. All in elements.
struct Patch {
  Groups offsets;     ///< In the tensor.
  Groups sizes;       ///< None is 0.
  Groups strides;     ///< In the buffer, from one index to the next.
  uint64_t base = 0;  ///< Place in the buffer of the first element.
};

/// Elements [begin, end) of a box that lies packed and row-major in a buffer, as patches in rising
/// order: at most 2 * groups - 1. `base`: place of element `begin`.
void AppendLinear(uint32_t groups, const Groups& box_offsets, const Groups& box_sizes,
                  uint64_t begin, uint64_t end, uint64_t base, std::vector<Patch>& out);

/// The common elements of two patches: `length` that follow each other in both buffers, repeated by
/// levels, the outermost first.
struct Overlap {
  struct Level {
    uint64_t count = 0;
    uint64_t source_stride = 0;
    uint64_t target_stride = 0;
  };
  uint64_t source = 0;  ///< In the buffer of the first patch.
  uint64_t target = 0;
  uint64_t length = 0;
  uint32_t level_count = 0;
  std::array<Level, kMaxGroups> levels;

  uint64_t elements() const;
};
/// False when they have no element in common.
bool Intersect(uint32_t groups, const Patch& source, const Patch& target, Overlap& overlap);

/// A range [begin, end) of a packed row-major box in which all elements of a part of it lie: the
/// least one of whole rows, where the part has something of several, so that what is cut off at its
/// ends does not make a rectangle of rows three. `offsets`: of the part, in the box; `sizes`: none is
/// 0.
struct LinearRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};
LinearRange BoundingRange(uint32_t groups, const Groups& box_sizes, const Groups& offsets,
                          const Groups& sizes);

}  // namespace flagstone::partition
