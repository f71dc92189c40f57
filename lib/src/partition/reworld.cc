// SPDX-License-Identifier: Apache-2.0
// Layouts of the same model over other ranks.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "flagstone/zero.h"
#include "partition/validate.h"

namespace flagstone {
namespace {

using base::Join;
using base::Quote;

Status CheckWorld(uint32_t world_size) {
  if (world_size >= 1 && world_size <= partition::kMaxWorldSize) return {};
  return Status(StatusCode::kInvalidArgument, Join("a world of ", world_size, " ranks is wanted; it ",
                                                   "must have 1 to ", partition::kMaxWorldSize));
}

bool IsWorld(const RankList& ranks, uint32_t world_size) {
  return ranks.size() == world_size && ranks.ranges.size() == 1 && ranks.at(0) == 0 &&
         ranks.at(world_size - 1) == world_size - 1;
}

std::vector<uint32_t> TensorsOf(const Partition& partition) {
  std::vector<uint32_t> tensors;
  for (const Member& member : partition.members) tensors.push_back(member.tensor);
  return tensors;
}

uint64_t ElementsOf(const Layout& layout, const Member& member) {
  const auto& shape = member.box ? member.box->sizes : layout.tensors[member.tensor].shape;
  return ElementCount(shape).value_or(0);
}

bool HasBoxes(const Partition& partition) {
  return std::ranges::any_of(partition.members,
                             [](const Member& member) { return member.box.has_value(); });
}

// The cut of a valid partition over the whole of another world.
class Recut {
 public:
  Recut(const Layout& layout, const Partition& partition, uint32_t ranks)
      : layout_(layout), partition_(partition), ranks_(ranks) {}

  Result<CutRule> operator()(const FlatCut&) const {
    uint64_t elements = 0;
    for (const Member& member : partition_.members) elements += ElementsOf(layout_, member);
    return CutRule(FlatCut{EvenCuts(elements, ranks_, 2)});
  }
  Result<CutRule> operator()(const PerTensorCut& cut) const { return CutRule(cut); }
  Result<CutRule> operator()(const MeshCut& cut) const {
    MeshCut result = cut;
    uint64_t others = 1;
    for (size_t i = 1; i < cut.axes.size(); ++i) others *= cut.axes[i].size;
    if (cut.axes.empty() || ranks_ % others != 0) {
      return Refuse(Join("its mesh has ", others, " positions beside its first axis, of which ",
                         ranks_, " ranks are no multiple"));
    }
    result.axes[0].size = static_cast<uint32_t>(ranks_ / others);
    return CutRule(std::move(result));
  }
  Result<CutRule> operator()(const WholeCut&) const {
    if (HasBoxes(partition_)) return Refuse("it is of boxes, whose owners are stated");
    FLAGSTONE_ASSIGN_OR_RETURN(auto owners,
                               ZeroRedundancyOwners(layout_, {TensorsOf(partition_)}, ranks_));
    return CutRule(WholeCut{std::move(owners[0])});
  }
  Result<CutRule> operator()(const ReplicatedCut&) const {
    if (HasBoxes(partition_)) return Refuse("it is of boxes, whose storing ranks are stated");
    FLAGSTONE_ASSIGN_OR_RETURN(Partition made,
                               MakeReplicated(layout_, partition_.id, TensorsOf(partition_),
                                              RankList::World(ranks_), partition_.roles));
    return std::move(made.cut);
  }
  Result<CutRule> operator()(const ExplicitCut&) const { return Refuse("its pieces are stated"); }

 private:
  Status Refuse(std::string_view why) const {
    return Status(StatusCode::kInvalidArgument,
                  Join("which of ", ranks_, " ranks hold what of partition ",
                       Quote(partition_.id), " (rule ", RuleName(partition_.cut),
                       ") cannot be told: ", why, "; say a ZeRO stage, or give a layout"));
  }

  const Layout& layout_;
  const Partition& partition_;
  const uint32_t ranks_;
};

// Roles and tensors of one kind, to become one partition.
struct Bundle {
  PartitionId id;
  std::vector<uint32_t> tensors;
  std::vector<Role> roles;
};

class Restage {
 public:
  Restage(const Layout& layout, uint32_t stage, uint32_t world_size)
      : layout_(layout), stage_(stage), world_(RankList::World(world_size)) {
    result_.world_size = world_size;
    result_.tensors = layout.tensors;
    result_.groups = layout.groups;
  }

  Result<Layout> Run() {
    for (const Partition& partition : layout_.partitions) {
      FLAGSTONE_RETURN_IF_ERROR(Add(partition));
    }
    return std::move(result_);
  }

 private:
  Status Add(const Partition& partition) {
    std::vector<Role> weights;
    std::vector<Role> others;
    for (size_t r = 0; r < partition.roles.size(); ++r) {
      Role role = partition.roles[r];
      role.chunk_bytes = 0;
      if (role.form == RoleForm::kAttached) {
        FLAGSTONE_RETURN_IF_ERROR(AddAttached(partition, r));
      } else {
        (role.name == "weight" ? weights : others).push_back(std::move(role));
      }
    }
    // A plain role beside weights alone stays with them.
    const bool apart = (stage_ == 1 || stage_ == 2) &&
                       std::ranges::any_of(others, [](const Role& role) {
                         return role.form == RoleForm::kAligned;
                       });
    if (!apart) {
      weights.insert(weights.end(), others.begin(), others.end());
      others.clear();
    }
    const bool both = !weights.empty() && !others.empty();
    FLAGSTONE_RETURN_IF_ERROR(
        AddKinds({partition.id + (both ? ".weight" : ""), {}, weights}, partition));
    return AddKinds({partition.id, {}, others}, partition);
  }

  // Of each tensor the roles that no partition before has given (as boxes of it do); parameters and
  // buffers apart.
  Status AddKinds(const Bundle& bundle, const Partition& partition) {
    if (bundle.roles.empty()) return {};
    std::map<std::pair<TensorKind, std::vector<size_t>>, std::vector<uint32_t>> kinds;
    for (const Member& member : partition.members) {
      std::vector<size_t> missing;
      for (size_t r = 0; r < bundle.roles.size(); ++r) {
        if (given_.insert({member.tensor, bundle.roles[r].name}).second) missing.push_back(r);
      }
      if (missing.empty()) continue;
      kinds[{layout_.tensors[member.tensor].kind, missing}].push_back(member.tensor);
    }
    std::map<TensorKind, uint32_t> made;
    for (const auto& [kind, tensors] : kinds) {
      Bundle part{bundle.id, tensors, {}};
      for (const size_t r : kind.second) part.roles.push_back(bundle.roles[r]);
      if (kind.first == TensorKind::kBuffer) part.id += ".buffers";
      // Two sorts of tensors of a kind are rare: their partitions are numbered.
      if (const uint32_t number = ++made[kind.first]; number > 1) part.id += Join(".", number);
      if (kind.first == TensorKind::kParameter) {
        FLAGSTONE_RETURN_IF_ERROR(AddParameters(std::move(part)));
      } else {
        FLAGSTONE_RETURN_IF_ERROR(
            Append(MakeReplicated(result_, part.id, part.tensors, world_, part.roles)));
      }
    }
    return {};
  }

  Status AddParameters(Bundle bundle) {
    const bool weights = std::ranges::any_of(
        bundle.roles, [](const Role& role) { return role.name == "weight"; });
    if (stage_ == 3) {
      result_.partitions.push_back(MakeZero3(bundle.id, bundle.tensors, world_, bundle.roles));
      return {};
    }
    if (stage_ == 0 || weights) {
      return Append(MakeReplicated(result_, bundle.id, bundle.tensors, world_, bundle.roles));
    }
    return Append(MakeZero12(result_, bundle.id, bundle.tensors, world_, bundle.roles));
  }

  Status AddAttached(const Partition& partition, size_t role) {
    const uint32_t ranks = result_.world_size;
    Partition whole = partition;
    whole.id = Join(partition.id, ".", partition.roles[role].name);
    whole.ranks = world_;
    whole.replicas.clear();
    whole.roles = {partition.roles[role]};
    whole.roles[0].chunk_bytes = 0;
    FLAGSTONE_ASSIGN_OR_RETURN(auto owners,
                               ZeroRedundancyOwners(layout_, {TensorsOf(partition)}, ranks));
    whole.cut = WholeCut{std::move(owners[0])};
    result_.partitions.push_back(std::move(whole));
    return {};
  }

  Status Append(Result<Partition> partition) {
    if (!partition.ok()) return partition.status();
    result_.partitions.push_back(*std::move(partition));
    return {};
  }

  const Layout& layout_;
  const uint32_t stage_;
  const RankList world_;
  Layout result_;
  std::set<std::pair<uint32_t, std::string>> given_;  // tensor and role
};

}  // namespace

Result<Layout> LayoutForWorld(const Layout& layout, uint32_t world_size) {
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(layout));
  FLAGSTONE_RETURN_IF_ERROR(CheckWorld(world_size));
  if (world_size == layout.world_size) return layout;
  Layout result = layout;
  result.world_size = world_size;
  for (Partition& partition : result.partitions) {
    if (!IsWorld(partition.ranks, layout.world_size) || !partition.replicas.empty()) {
      return Status(StatusCode::kInvalidArgument,
                    Join("which of ", world_size, " ranks hold partition ", Quote(partition.id),
                         " cannot be told: its rank list is not the whole world of ",
                         layout.world_size, " in order; say a ZeRO stage, or give a layout"));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(partition.cut,
                               std::visit(Recut(layout, partition, world_size), partition.cut));
    partition.ranks = RankList::World(world_size);
  }
  return result;
}

Result<Layout> LayoutForStage(const Layout& layout, uint32_t stage, uint32_t world_size) {
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(layout));
  FLAGSTONE_RETURN_IF_ERROR(CheckWorld(world_size));
  if (stage > 3) {
    return Status(StatusCode::kInvalidArgument,
                  Join("ZeRO has the stages 0 to 3, not ", stage));
  }
  return Restage(layout, stage, world_size).Run();
}

namespace {

// The partition of a segment, if its rule fits.
template <typename Fits>
Result<const Partition*> PartitionOf(const Layout& layout, const SegmentInfo& segment,
                                     std::string_view wanted, const Fits& fits) {
  for (const Partition& candidate : layout.partitions) {
    if (candidate.id != segment.partition) continue;
    if (fits(candidate.cut)) return &candidate;
    return Status(StatusCode::kInvalidArgument,
                  Join("partition ", Quote(candidate.id), " has the rule ",
                       RuleName(candidate.cut), "; this buffer is for ", wanted));
  }
  return Status(StatusCode::kNotFound, Join("there is no partition ", Quote(segment.partition)));
}

}  // namespace

Result<BufferShape> Zero12Buffer(const Layout& layout, const SegmentInfo& segment) {
  FLAGSTONE_ASSIGN_OR_RETURN(
      const Partition* part,
      PartitionOf(layout, segment, "flat ones",
                  [](const CutRule& cut) { return std::holds_alternative<FlatCut>(cut); }));
  const uint64_t elements = std::get<FlatCut>(part->cut).cuts.back();
  BufferShape shape;
  uint64_t held = 0;
  for (const Slice& slice : segment.slices) {
    shape.offsets.push_back(held);
    held += slice.end - slice.begin;
  }
  shape.elements = base::DivideUp(elements, 2 * uint64_t{part->ranks.size()}) * 2;
  if (held <= shape.elements) return shape;
  return Status(StatusCode::kInvalidArgument,
                Join("partition ", Quote(part->id), " gives a rank ", held,
                     " elements, more than an even share of ", shape.elements));
}

Result<BufferShape> Zero3Buffer(const Layout& layout, const SegmentInfo& segment) {
  FLAGSTONE_ASSIGN_OR_RETURN(
      const Partition* part,
      PartitionOf(layout, segment, "per-tensor ones, cut by element", [](const CutRule& cut) {
        const auto* even = std::get_if<PerTensorCut>(&cut);
        return even != nullptr && even->unit == CutUnit::kElement;
      }));
  BufferShape shape;
  auto slice = segment.slices.begin();
  for (uint32_t m = 0; m < part->members.size(); ++m) {
    if (slice != segment.slices.end() && slice->member == m) {
      shape.offsets.push_back(shape.elements);
      ++slice;
    }
    shape.elements += base::DivideUp(ElementsOf(layout, part->members[m]), part->ranks.size());
  }
  return shape;
}

}  // namespace flagstone
