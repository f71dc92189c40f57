// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The checks behind ValidateLayout, one partition at a time.

#include <cstddef>
#include <cstdint>

#include "flagstone/partition.h"
#include "flagstone/status.h"

namespace flagstone::partition {

inline constexpr uint32_t kMaxWorldSize = uint32_t{1} << 20;
inline constexpr size_t kMaxTensorNameBytes = 4096;
inline constexpr size_t kMaxIdBytes = 256;
inline constexpr size_t kMaxDimensions = 64;
/// Bounds what a small file can ask for: work is members x roles in many places.
inline constexpr size_t kMaxRoles = 256;
/// Of a tensor, and of a role of a partition over all its members: what a file offset can tell.
inline constexpr uint64_t kMaxBytes = (uint64_t{1} << 63) - 1;

/// Check what layout.partitions[index] says by itself: afterwards its geometry can be computed.
/// Nothing of the layout needs to have been checked before. `ranks_are_known`: its rank and replica
/// lists equal those of a partition that was checked (many partitions of a model share theirs).
Status ValidatePartition(const Layout& layout, uint32_t index, bool ranks_are_known = false);

}  // namespace flagstone::partition
