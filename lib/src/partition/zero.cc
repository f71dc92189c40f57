// SPDX-License-Identifier: Apache-2.0
#include "flagstone/zero.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "partition/validate.h"

namespace flagstone {
namespace {

using base::Join;
using base::Quote;

constexpr uint64_t kZero12Alignment = 2;                        // elements a rank
constexpr uint64_t kReplicatedShareBytes = uint64_t{64} << 20;  // worth another storing rank

std::vector<Member> Members(const std::vector<uint32_t>& tensors) {
  std::vector<Member> members;
  members.reserve(tensors.size());
  for (const uint32_t tensor : tensors) members.push_back({tensor, std::nullopt});
  return members;
}

Partition Make(PartitionId id, const std::vector<uint32_t>& tensors, RankList ranks,
               std::vector<Role> roles, CutRule cut) {
  Partition partition;
  partition.id = std::move(id);
  partition.ranks = std::move(ranks);
  partition.members = Members(tensors);
  partition.roles = std::move(roles);
  partition.cut = std::move(cut);
  return partition;
}

// Sizes of tensors in units of `unit_bytes` bytes an element, with a sum that fits 64 bits.
Result<std::vector<uint64_t>> Sizes(const Layout& layout, const std::vector<uint32_t>& tensors,
                                    uint64_t unit_bytes, std::string_view what) {
  std::vector<uint64_t> sizes;
  sizes.reserve(tensors.size());
  std::optional<uint64_t> total = 0;
  for (const uint32_t tensor : tensors) {
    if (tensor >= layout.tensors.size()) {
      return Status(StatusCode::kInvalidArgument,
                    Join(what, ": tensor index ", tensor, " is given, but the layout has ",
                         layout.tensors.size(), " tensors"));
    }
    const auto elements = ElementCount(layout.tensors[tensor].shape);
    const auto size = elements ? base::CheckedMultiply(*elements, unit_bytes) : std::nullopt;
    total = size ? base::CheckedAdd(*total, *size) : std::nullopt;
    if (!total) {
      return Status(StatusCode::kInvalidArgument,
                    Join(what, ": with tensor ", Quote(layout.tensors[tensor].name), " of shape ",
                         base::ShapeText(layout.tensors[tensor].shape),
                         " the sizes add up to more than 2^64 - 1"));
    }
    sizes.push_back(*size);
  }
  return sizes;
}

// Give each item, largest first, to the rank with the least so far. Of equal items the first goes
// first, of equal ranks the lowest takes it.
class Greedy {
 public:
  explicit Greedy(uint32_t ranks) {
    for (uint32_t rank = 0; rank < ranks; ++rank) loads_.emplace(0, rank);
  }

  std::vector<uint32_t> Assign(const std::vector<uint64_t>& sizes) {
    std::vector<size_t> order(sizes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
    std::vector<uint32_t> owners(sizes.size());
    for (const size_t item : order) {
      const auto [load, rank] = loads_.top();
      loads_.pop();
      owners[item] = rank;
      // A sum of different groups may reach the end of the numbers; it then only stops to tell
      // ranks apart.
      loads_.emplace(
          base::CheckedAdd(load, sizes[item]).value_or(std::numeric_limits<uint64_t>::max()), rank);
    }
    return owners;
  }

 private:
  using Load = std::pair<uint64_t, uint32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads_;
};

Status RequireRanks(uint32_t ranks, std::string_view what) {
  if (ranks > 0 && ranks <= partition::kMaxWorldSize) return {};
  return Status(StatusCode::kInvalidArgument,
                Join(what, ": it is for ", ranks, " ranks; give 1 to ", partition::kMaxWorldSize));
}

}  // namespace

// ceil(ceil(e / r) / a) * a = ceil(e / (r * a)) * a, without the product that may not fit.
std::vector<uint64_t> EvenCuts(uint64_t elements, uint32_t ranks, uint64_t alignment) {
  std::vector<uint64_t> cuts(size_t{ranks} + 1, 0);
  if (ranks == 0) return cuts;
  const uint64_t share =
      base::CheckedAlignUp(base::DivideUp(elements, ranks), std::max<uint64_t>(alignment, 1))
          .value_or(elements);
  for (uint32_t r = 1; r <= ranks; ++r) {
    cuts[r] = std::min(elements, base::CheckedMultiply(r, share).value_or(elements));
  }
  return cuts;
}

Result<Partition> MakeZero12(const Layout& layout, PartitionId id, std::vector<uint32_t> tensors,
                             RankList ranks, std::vector<Role> roles) {
  const std::string what = Join("partition ", Quote(id));
  FLAGSTONE_RETURN_IF_ERROR(RequireRanks(ranks.size(), what));
  FLAGSTONE_ASSIGN_OR_RETURN(const auto sizes, Sizes(layout, tensors, 1, what));
  const uint64_t elements = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  FlatCut cut{EvenCuts(elements, ranks.size(), kZero12Alignment)};
  return Make(std::move(id), tensors, std::move(ranks), std::move(roles), std::move(cut));
}

Partition MakeZero3(PartitionId id, std::vector<uint32_t> tensors, RankList ranks,
                    std::vector<Role> roles) {
  return Make(std::move(id), tensors, std::move(ranks), std::move(roles),
              PerTensorCut{CutUnit::kElement});
}

Partition MakeFsdp2(PartitionId id, std::vector<uint32_t> tensors, RankList ranks,
                    std::vector<Role> roles) {
  return Make(std::move(id), tensors, std::move(ranks), std::move(roles),
              PerTensorCut{CutUnit::kRow});
}

Result<std::vector<std::vector<uint32_t>>> ZeroRedundancyOwners(
    const Layout& layout, const std::vector<std::vector<uint32_t>>& groups, uint32_t ranks) {
  FLAGSTONE_RETURN_IF_ERROR(RequireRanks(ranks, "ZeroRedundancyOptimizer's owners"));
  Greedy greedy(ranks);
  std::vector<std::vector<uint32_t>> owners;
  for (size_t g = 0; g < groups.size(); ++g) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto sizes,
                               Sizes(layout, groups[g], 1, Join("parameter group ", g)));
    owners.push_back(greedy.Assign(sizes));
  }
  return owners;
}

Partition MakeWhole(PartitionId id, std::vector<uint32_t> tensors, RankList ranks,
                    std::vector<Role> roles, std::vector<uint32_t> owners) {
  return Make(std::move(id), tensors, std::move(ranks), std::move(roles),
              WholeCut{std::move(owners)});
}

Result<Partition> MakeReplicated(const Layout& layout, PartitionId id,
                                 std::vector<uint32_t> tensors, RankList ranks,
                                 std::vector<Role> roles) {
  const std::string what = Join("partition ", Quote(id));
  FLAGSTONE_RETURN_IF_ERROR(RequireRanks(ranks.size(), what));
  uint64_t element_bytes = 0;  // of all roles together
  for (const Role& role : roles) {
    if (role.form == RoleForm::kAligned) element_bytes += SizeOf(role.dtype);
  }
  FLAGSTONE_ASSIGN_OR_RETURN(const auto sizes, Sizes(layout, tensors, element_bytes, what));
  const uint64_t bytes = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  const uint64_t storing = std::clamp<uint64_t>(bytes / kReplicatedShareBytes, 1, ranks.size());
  ReplicatedCut cut{Greedy(static_cast<uint32_t>(storing)).Assign(sizes)};
  return Make(std::move(id), tensors, std::move(ranks), std::move(roles), std::move(cut));
}

}  // namespace flagstone
