// SPDX-License-Identifier: Apache-2.0
#include "partition/normalize.h"

#include <algorithm>
#include <variant>

namespace flagstone::partition {
namespace {

// Larger chunks cost a partial read more, smaller ones cost more digests: pieces of per-tensor
// rules are the smallest, members that stand alone the largest.
uint32_t DefaultChunkBytes(const CutRule& rule) {
  constexpr uint32_t kKib = 1024;
  if (std::holds_alternative<PerTensorCut>(rule)) return 16 * kKib;
  if (std::holds_alternative<WholeCut>(rule)) return 1024 * kKib;
  if (std::holds_alternative<ReplicatedCut>(rule)) return 1024 * kKib;
  return 64 * kKib;
}

void Shorten(RankList& list) {
  if (list.ranges.size() == 1) {  // any stride means the same for a lone rank
    if (list.ranges[0].count == 1) list.ranges[0].stride = 1;
    return;
  }
  std::vector<uint32_t> ranks;
  for (const RankRange& range : list.ranges) {
    for (uint32_t i = 0; i < range.count; ++i) ranks.push_back(range.first + i * range.stride);
  }
  list = RankList::Of(ranks);
}

}  // namespace

Layout Normalize(Layout layout) {
  std::stable_sort(layout.partitions.begin(), layout.partitions.end(),
                   [](const Partition& a, const Partition& b) { return a.id < b.id; });
  for (Partition& partition : layout.partitions) {
    Shorten(partition.ranks);
    for (RankList& replica : partition.replicas) Shorten(replica);
    for (Role& role : partition.roles) {
      if (role.chunk_bytes == 0) role.chunk_bytes = DefaultChunkBytes(partition.cut);
    }
  }
  return layout;
}

const Partition* FindPartition(const Layout& layout, std::string_view id) {
  const auto found = std::lower_bound(
      layout.partitions.begin(), layout.partitions.end(), id,
      [](const Partition& candidate, std::string_view wanted) { return candidate.id < wanted; });
  return found == layout.partitions.end() || found->id != id ? nullptr : &*found;
}

std::optional<uint32_t> FindRole(const Partition& partition, std::string_view name) {
  for (uint32_t r = 0; r < partition.roles.size(); ++r) {
    if (partition.roles[r].name == name) return r;
  }
  return std::nullopt;
}

}  // namespace flagstone::partition
