// SPDX-License-Identifier: Apache-2.0
#include "flagstone/partition.h"

#include <array>
#include <cstddef>

#include "base/macros.h"
#include "base/text.h"
#include "partition/geometry.h"
#include "partition/validate.h"

namespace flagstone {
namespace {

using base::Join;
using base::Quote;

// Members only; what a rank holds is asked for by people as well, so a layout that was never
// checked must not lead outside of it.
Result<uint32_t> FindPartition(const Layout& layout, std::string_view id, uint32_t rank) {
  if (rank >= layout.world_size) {
    return Status(StatusCode::kInvalidArgument,
                  Join("rank ", rank, " is not in the layout's world of ", layout.world_size));
  }
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    if (layout.partitions[p].id != id) continue;
    FLAGSTONE_RETURN_IF_ERROR(partition::ValidatePartition(layout, p));
    return p;
  }
  std::vector<std::string> names;
  for (const Partition& other : layout.partitions) names.push_back(other.id);
  return Status(StatusCode::kNotFound,
                Join("there is no partition ", Quote(id), base::NearestNames(id, names)));
}

}  // namespace

RankList RankList::World(uint32_t world_size) {
  RankList list;
  if (world_size > 0) list.ranges.push_back({0, world_size, 1});
  return list;
}

// Every part of a progression is one, so that taking each range as long as it goes gives the fewest
// ranges.
RankList RankList::Of(const std::vector<uint32_t>& ranks) {
  RankList list;
  for (size_t i = 0; i < ranks.size();) {
    RankRange range{ranks[i], 1, 1};
    size_t next = i + 1;
    if (next < ranks.size() && ranks[next] > ranks[i]) {
      range.stride = ranks[next] - ranks[i];
      while (next < ranks.size() && ranks[next] > ranks[next - 1] &&
             ranks[next] - ranks[next - 1] == range.stride) {
        ++next;
      }
      range.count = static_cast<uint32_t>(next - i);
    }
    list.ranges.push_back(range);
    i = next;
  }
  return list;
}

uint32_t RankList::size() const {
  uint32_t size = 0;
  for (const RankRange& range : ranges) size += range.count;
  return size;
}

uint32_t RankList::at(uint32_t index) const {
  for (const RankRange& range : ranges) {
    if (index < range.count) return range.first + index * range.stride;
    index -= range.count;
  }
  return 0;
}

std::optional<uint32_t> RankList::IndexOf(uint32_t rank) const {
  uint32_t before = 0;
  for (const RankRange& range : ranges) {
    if (rank == range.first && range.count > 0) return before;
    if (rank > range.first && range.stride > 0 && (rank - range.first) % range.stride == 0) {
      const uint32_t steps = (rank - range.first) / range.stride;
      if (steps < range.count) return before + steps;
    }
    before += range.count;
  }
  return std::nullopt;
}

std::string_view RuleName(const CutRule& rule) {
  static constexpr std::array<std::string_view, std::variant_size_v<CutRule>> kNames = {
      "flat", "per_tensor", "mesh", "whole", "replicated", "explicit"};
  return rule.index() < kNames.size() ? kNames[rule.index()] : "unknown";
}

Result<std::vector<Slice>> HeldSlices(const Layout& layout, std::string_view partition,
                                      uint32_t rank) {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindPartition(layout, partition, rank));
  const partition::Geometry geometry(layout, index);
  const auto holder = geometry.HolderIndex(rank);
  return holder ? geometry.Held(*holder) : std::vector<Slice>();
}

Result<std::vector<Slice>> StoredSlices(const Layout& layout, std::string_view partition,
                                        uint32_t rank) {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindPartition(layout, partition, rank));
  const partition::Geometry geometry(layout, index);
  const auto position = layout.partitions[index].ranks.IndexOf(rank);
  return position ? geometry.Stored(*position) : std::vector<Slice>();
}

Result<LocalTensor> HeldTensor(const Layout& layout, std::string_view partition, uint32_t rank,
                               uint32_t member) {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindPartition(layout, partition, rank));
  const partition::Geometry geometry(layout, index);
  const Partition& self = geometry.partition();
  const auto holder = geometry.HolderIndex(rank);
  if (geometry.mesh() == nullptr || member >= self.members.size() || !holder) {
    return Status(StatusCode::kInvalidArgument,
                  Join("partition ", Quote(partition), " (rule ", RuleName(self.cut), ", ",
                       self.members.size(), " members) has no local tensor of member ", member,
                       " on rank ", rank));
  }
  return geometry.Local(member, *holder);
}

std::string_view Name(RoleForm form) {
  switch (form) {
    case RoleForm::kAligned:
      return "aligned";
    case RoleForm::kAttached:
      return "attached";
    case RoleForm::kPlain:
      return "plain";
  }
  return "unknown";
}

}  // namespace flagstone
