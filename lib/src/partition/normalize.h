// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The normal form of a layout, and the union of what several ranks declare.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "flagstone/partition.h"
#include "flagstone/status.h"

namespace flagstone::partition {

/// Partitions sorted by id (byte-wise), chunk sizes filled in by rule (per tensor 16 KiB, flat 64
/// KiB, mesh 64 KiB, explicit 64 KiB, whole and replicated 1 MiB), rank lists in their shortest
/// form. What a rank writes depends on the normal form of its own declaration alone, so the order
/// is by id and not by declaration.
Layout Normalize(Layout layout);

/// The partition with this id, or null. The layout must be normal. Cost: O(log partitions).
const Partition* FindPartition(const Layout& layout, std::string_view id);
/// Position of the role with this name. Cost: O(roles), of which there are at most 256.
std::optional<uint32_t> FindRole(const Partition& partition, std::string_view name);

/// One declaration and the first rank that made it.
struct Declaration {
  uint32_t rank = 0;
  const Layout* layout = nullptr;
};

/// The union of normal layouts: tensors and groups and partitions by name, index or id, in the
/// order of first appearance by rising rank (partitions by id). What two declare under one name
/// must be equal. Errors: kInvalidArgument names the tensor, partition or group, both ranks and
/// what differs.
Result<Layout> Unite(std::span<const Declaration> declarations);

}  // namespace flagstone::partition
