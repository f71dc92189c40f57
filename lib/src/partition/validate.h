// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The checks behind ValidateLayout, one partition at a time.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "flagstone/partition.h"
#include "flagstone/status.h"

namespace flagstone::partition {

inline constexpr uint32_t kMaxWorldSize = uint32_t{1} << 20;
inline constexpr size_t kMaxTensorNameBytes = 4096;
inline constexpr size_t kMaxIdBytes = 256;
inline constexpr size_t kMaxDimensions = 64;
/// Dimensions of one tensor that boxes and meshes of a layout may cut: the work of comparing boxes
/// doubles with each. Row, column and expert parallelism cut three at most.
inline constexpr uint32_t kMaxCutDimensions = 5;
/// Pieces into which the strided shards of one dimension may cut it first, all together: as a rule the
/// product of the other axes' sizes.
inline constexpr uint32_t kMaxSplitFactor = 4096;
/// Axes of a mesh.
inline constexpr size_t kMaxMeshAxes = 16;
/// Bounds what a small file can ask for: work is members x roles in many places.
inline constexpr size_t kMaxRoles = 256;
/// Of a tensor, and of a role of a partition over all its members: what a file offset can tell.
inline constexpr uint64_t kMaxBytes = (uint64_t{1} << 63) - 1;

/// Check what layout.partitions[index] says by itself: afterwards its geometry can be computed.
/// Nothing of the layout needs to have been checked before. `ranks_are_known`: its rank and replica
/// lists equal those of a partition that was checked (many partitions of a model share theirs).
Status ValidatePartition(const Layout& layout, uint32_t index, bool ranks_are_known = false);

/// As ValidateLayout, for what one rank declares of a layout: a tensor of which boxes are declared may
/// have others that this rank does not know of.
Status ValidateDeclaration(const Layout& layout);

/// Check that each element of a tensor is in one member of all that have a role of it: one member is
/// the whole tensor, or boxes cover it without a gap and without an overlap. Unless `complete` boxes
/// are not compared: others may be missing. The partitions are valid. Errors: kInvalidArgument names role, tensor, range and partitions; kUnsupported for more
/// boxes than can be compared. Cost: O(members), and for a tensor that is in several members also
/// their roles; for n boxes that cut k dimensions O(2^k n log n).
Status CheckCoverage(const Layout& layout, bool complete);

/// The dimensions in which a box is less than its tensor, rising, appended to `out`.
void AppendCutDimensions(const Tensor& tensor, const Box& box, std::vector<uint32_t>& out);

}  // namespace flagstone::partition
