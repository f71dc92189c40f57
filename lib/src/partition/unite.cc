// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/macros.h"
#include "base/text.h"
#include "partition/normalize.h"

namespace flagstone::partition {
namespace {

using base::Join;
using base::Quote;

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

std::string Describe(const Tensor& tensor) {
  return Join(Name(tensor.dtype), " ", base::ShapeText(tensor.shape));
}

// The first field in which two declarations of a tensor differ; they do differ.
std::string_view DifferingField(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype) return "dtype";
  if (a.shape != b.shape) return "shape";
  if (a.kind != b.kind) return "kind";
  if (a.group != b.group) return "parameter group";
  if (a.trainable != b.trainable) return "trainable flag";
  return "aliases";
}

std::string_view DifferingField(const Partition& a, const Partition& b) {
  if (a.ranks != b.ranks) return "rank list";
  if (a.replicas != b.replicas) return "replica lists";
  if (a.members != b.members) return "members";
  if (a.roles != b.roles) return "roles";
  return "cut rule";
}

class Union {
 public:
  Status Add(const Declaration& declaration) {
    const Layout& layout = *declaration.layout;
    if (!first_rank_) {
      first_rank_ = declaration.rank;
      result_.world_size = layout.world_size;
    } else if (layout.world_size != result_.world_size) {
      return Invalid(Join("rank ", *first_rank_, " declares a world of ", result_.world_size,
                          " ranks, rank ", declaration.rank, " one of ", layout.world_size));
    }
    FLAGSTONE_RETURN_IF_ERROR(AddGroups(declaration));
    FLAGSTONE_RETURN_IF_ERROR(AddTensors(declaration));
    return AddPartitions(declaration);
  }

  Result<Layout> Finish() {
    FLAGSTONE_RETURN_IF_ERROR(CheckRoles());
    for (auto& [id, declared] : partitions_) {
      result_.partitions.push_back(std::move(declared.partition));
    }
    return std::move(result_);
  }

 private:
  struct DeclaredTensor {
    uint32_t index = 0;  // in the union
    uint32_t rank = 0;   // that declared it first
  };
  struct DeclaredPartition {
    Partition partition;
    uint32_t rank = 0;
  };

  Status AddGroups(const Declaration& declaration) {
    const auto& groups = declaration.layout->groups;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (g == result_.groups.size()) {
        result_.groups.push_back(groups[g]);
        group_ranks_.push_back(declaration.rank);
      } else if (result_.groups[g] != groups[g]) {
        return Invalid(Join("rank ", group_ranks_[g], " and rank ", declaration.rank,
                            " declare unlike hyper-parameters for parameter group ", g));
      }
    }
    return {};
  }

  // Leaves in to_union_ where each tensor of the declaration stands in the union.
  Status AddTensors(const Declaration& declaration) {
    to_union_.clear();
    for (const Tensor& tensor : declaration.layout->tensors) {
      const auto next = static_cast<uint32_t>(result_.tensors.size());
      const auto [at, added] =
          names_.try_emplace(tensor.name, DeclaredTensor{next, declaration.rank});
      const DeclaredTensor& known = at->second;
      to_union_.push_back(known.index);
      if (!added) {
        FLAGSTONE_RETURN_IF_ERROR(CheckSame(known, tensor, declaration.rank));
        continue;
      }
      result_.tensors.push_back(tensor);
      for (const std::string& alias : tensor.aliases) {
        const auto [other, fresh] = names_.try_emplace(alias, known);
        if (!fresh) return NameTaken(alias, other->second, tensor, declaration.rank);
      }
    }
    return {};
  }

  Status CheckSame(const DeclaredTensor& known, const Tensor& tensor, uint32_t rank) const {
    const Tensor& first = result_.tensors[known.index];
    if (first.name != tensor.name) return NameTaken(tensor.name, known, tensor, rank);
    if (first == tensor) return {};
    return Invalid(Join("tensor ", Quote(tensor.name), " is ", Describe(first), " on rank ",
                        known.rank, " and ", Describe(tensor), " on rank ", rank,
                        "; they differ in ", DifferingField(first, tensor),
                        ", but ranks that declare a tensor must declare it alike"));
  }

  Status NameTaken(std::string_view name, const DeclaredTensor& known, const Tensor& tensor,
                   uint32_t rank) const {
    return Invalid(Join("duplicate name ", Quote(name), ": rank ", known.rank,
                        " declares it as name or alias of tensor ",
                        Quote(result_.tensors[known.index].name), ", rank ", rank, " of tensor ",
                        Quote(tensor.name)));
  }

  Status AddPartitions(const Declaration& declaration) {
    for (const Partition& declared : declaration.layout->partitions) {
      Partition partition = declared;
      for (Member& member : partition.members) member.tensor = to_union_[member.tensor];
      const auto known = partitions_.find(partition.id);
      if (known == partitions_.end()) {
        PartitionId id = partition.id;
        partitions_.emplace(std::move(id),
                            DeclaredPartition{std::move(partition), declaration.rank});
      } else if (known->second.partition != partition) {
        return Invalid(Join("partition ", Quote(partition.id), " differs in its ",
                            DifferingField(known->second.partition, partition), " between rank ",
                            known->second.rank, " and rank ", declaration.rank,
                            "; all ranks that declare a partition must declare it alike"));
      }
    }
    return {};
  }

  // Ranks that number their own experts from 0 declare the same tensor, each in a partition of its
  // own.
  Status CheckRoles() const {
    std::unordered_map<std::string_view, std::vector<const DeclaredPartition*>> by_role;
    for (const auto& [id, declared] : partitions_) {
      for (const Role& role : declared.partition.roles) by_role[role.name].push_back(&declared);
    }
    std::vector<const DeclaredPartition*> givers(result_.tensors.size());
    for (const auto& [role, users] : by_role) {
      if (users.size() < 2) continue;
      std::fill(givers.begin(), givers.end(), nullptr);
      for (const DeclaredPartition* user : users) {
        for (const Member& member : user->partition.members) {
          const DeclaredPartition* other = std::exchange(givers[member.tensor], user);
          if (!other || member.box) continue;  // boxes of one tensor are told by those who have them
          return Invalid(Join(
              "the role ", Quote(role), " of tensor ", Quote(result_.tensors[member.tensor].name),
              " is given by partition ", Quote(other->partition.id), " of rank ", other->rank,
              " and by partition ", Quote(user->partition.id), " of rank ", user->rank,
              "; ranks whose tensors are not the same name them unlike"));
        }
      }
    }
    return {};
  }

  Layout result_;
  std::optional<uint32_t> first_rank_;
  std::vector<uint32_t> group_ranks_;  // that declared each group first
  std::unordered_map<std::string, DeclaredTensor> names_;
  std::vector<uint32_t> to_union_;
  std::map<PartitionId, DeclaredPartition> partitions_;
};

}  // namespace

Result<Layout> Unite(std::span<const Declaration> declarations) {
  std::vector<Declaration> ordered(declarations.begin(), declarations.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Declaration& a, const Declaration& b) { return a.rank < b.rank; });
  Union united;
  for (const Declaration& declaration : ordered) {
    FLAGSTONE_RETURN_IF_ERROR(united.Add(declaration));
  }
  return united.Finish();
}

}  // namespace flagstone::partition
