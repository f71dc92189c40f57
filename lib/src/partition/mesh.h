// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The mesh rule: which indexes of a dimension each coordinate of a device mesh has. The axes are
/// taken in order, each cuts what the axes before it left over (spec/format.md, "Mesh").

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "flagstone/partition.h"

namespace flagstone::partition {

/// Indexes [begin, end) of a dimension, not empty.
struct Interval {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  bool operator==(const Interval&) const = default;
};

/// The indexes that one coordinate has, in their order in the local tensor.
using Intervals = std::vector<Interval>;

uint64_t TotalSize(std::span<const Interval> intervals);

/// The axes of a mesh by what they do to each dimension, and the position of a rank as coordinates.
class Mesh {
 public:
  /// `cut` is valid.
  explicit Mesh(const MeshCut& cut);

  /// The dimensions that some axis shards, rising.
  std::span<const uint32_t> dimensions() const { return dimensions_; }

  /// The position that stores what `position` holds: with every replicating axis at 0.
  uint32_t StoringPosition(uint32_t position) const;

  /// What `position` has of a dimension of `size` indexes. Cost: O(axes + intervals).
  Intervals Held(uint32_t position, uint32_t dimension, uint64_t size) const;
  /// As many as Held gives. Cost: O(axes).
  uint64_t HeldSize(uint32_t position, uint32_t dimension, uint64_t size) const;

  /// Some indexes of a dimension that storing positions have: `offset` is what the coordinates of
  /// the axes that shard it add to a position.
  using Visitor = std::function<void(uint32_t offset, const Intervals& held)>;
  /// Visit all coordinates that have indexes in [begin, end) of a dimension. Cost: O(axes +
  /// intervals) a coordinate visited.
  void ForEachMeeting(uint32_t dimension, uint64_t size, Interval wanted,
                      const Visitor& visit) const;

 private:
  struct Axis {
    uint32_t dimension = 0;
    bool shards = false;
    uint32_t size = 1;
    uint32_t split_factor = 1;
    uint32_t step = 1;  // of a position, for one more of the coordinate
  };

  static Intervals Take(const Intervals& held, const Axis& axis, uint32_t coordinate);
  void Visit(size_t axis, uint32_t dimension, const Intervals& held, Interval wanted,
             uint32_t offset, const Visitor& visit) const;

  std::vector<Axis> axes_;
  std::vector<uint32_t> dimensions_;
};

}  // namespace flagstone::partition
