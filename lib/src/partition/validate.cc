// SPDX-License-Identifier: Apache-2.0
#include "partition/validate.h"

#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/macros.h"
#include "base/text.h"
#include "partition/checks.h"

namespace flagstone {
namespace partition {
namespace {

using base::Join;
using base::Quote;

Status CheckTensor(const Layout& layout, uint32_t index) {
  const Tensor& tensor = layout.tensors[index];
  if (const auto problem = NameProblem(tensor.name, kMaxTensorNameBytes, true); !problem.empty()) {
    return Invalid(
        Join("tensor ", index, " has the name ", Quote(tensor.name), ", which ", problem));
  }
  for (const std::string& alias : tensor.aliases) {
    if (const auto problem = NameProblem(alias, kMaxTensorNameBytes, true); !problem.empty()) {
      return Invalid(Join("tensor ", Quote(tensor.name), " has the alias ", Quote(alias),
                          ", which ", problem));
    }
  }
  if (const auto size = SizeOfValue(tensor.shape, tensor.dtype); !size.problem.empty()) {
    return Invalid(Join("tensor ", Quote(tensor.name), " ", size.problem));
  }
  if (tensor.kind != TensorKind::kParameter && tensor.kind != TensorKind::kBuffer) {
    return Invalid(Join("tensor ", Quote(tensor.name), " has kind value ",
                        static_cast<unsigned>(tensor.kind), ", which is no kind"));
  }
  if (tensor.group && *tensor.group >= layout.groups.size()) {
    return Invalid(Join("tensor ", Quote(tensor.name), " is in parameter group ", *tensor.group,
                        ", but the layout has ", layout.groups.size()));
  }
  return {};
}

Status CheckTensors(const Layout& layout) {
  std::unordered_map<std::string_view, uint32_t> owners;
  owners.reserve(layout.tensors.size());
  for (uint32_t t = 0; t < layout.tensors.size(); ++t) {
    FLAGSTONE_RETURN_IF_ERROR(CheckTensor(layout, t));
    const Tensor& tensor = layout.tensors[t];
    for (size_t i = 0; i <= tensor.aliases.size(); ++i) {
      const std::string& name = i == 0 ? tensor.name : tensor.aliases[i - 1];
      const auto [at, added] = owners.try_emplace(name, t);
      if (added) continue;
      return Invalid(Join("duplicate name ", Quote(name), ": tensor ", at->second, " (",
                          Quote(layout.tensors[at->second].name), ") and tensor ", t, " (",
                          Quote(tensor.name), ") both have it as name or alias"));
    }
  }
  return {};
}

Status CheckGroups(const Layout& layout) {
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const Value& value = layout.groups[g].hyper_parameters;
    const std::string what = Join("the hyper-parameters of parameter group ", g);
    if (!value.is_null() && !value.get_if<Value::Dict>()) {
      return Invalid(Join(what, " are neither a dict nor null"));
    }
    FLAGSTONE_RETURN_IF_ERROR(ValidateValue(value, what));
  }
  return {};
}

// Ownership is per (tensor, role, element), and a member is a whole tensor: two partitions that
// share a tensor may not share a role. Cost: O(members), and roles where a tensor is in several
// partitions.
Status CheckOwnersOfRoles(const Layout& layout) {
  std::unordered_map<std::string_view, uint32_t> role_ids;
  std::vector<std::vector<uint32_t>> roles(layout.partitions.size());
  std::vector<uint32_t> firsts(layout.tensors.size() + 1);  // counting sort of members by tensor
  for (size_t p = 0; p < layout.partitions.size(); ++p) {
    for (const Role& role : layout.partitions[p].roles) {
      const auto next = static_cast<uint32_t>(role_ids.size());
      roles[p].push_back(role_ids.try_emplace(role.name, next).first->second);
    }
    for (const Member& member : layout.partitions[p].members) ++firsts[member.tensor + 1];
  }
  std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
  std::vector<uint32_t> users(firsts.back());
  std::vector<uint32_t> free_slots = firsts;
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    for (const Member& member : layout.partitions[p].members) {
      users[free_slots[member.tensor]++] = p;
    }
  }
  struct Giver {
    uint32_t tensor = std::numeric_limits<uint32_t>::max();
    uint32_t partition = 0;
  };
  std::vector<Giver> givers(role_ids.size());
  for (uint32_t t = 0; t < layout.tensors.size(); ++t) {
    if (firsts[t + 1] - firsts[t] < 2) continue;
    for (uint32_t i = firsts[t]; i < firsts[t + 1]; ++i) {
      for (size_t r = 0; r < roles[users[i]].size(); ++r) {
        Giver& giver = givers[roles[users[i]][r]];
        if (giver.tensor == t) {
          return Invalid(Join("the role ", Quote(layout.partitions[users[i]].roles[r].name),
                              " of tensor ", Quote(layout.tensors[t].name),
                              " is given by partition ",
                              Quote(layout.partitions[giver.partition].id), " and by partition ",
                              Quote(layout.partitions[users[i]].id),
                              "; a role of a tensor belongs to one partition"));
        }
        giver = {t, users[i]};
      }
    }
  }
  return {};
}

}  // namespace

}  // namespace partition

Status ValidateLayout(const Layout& layout) {
  FLAGSTONE_RETURN_IF_ERROR(partition::CheckWorldSize(layout));
  FLAGSTONE_RETURN_IF_ERROR(partition::CheckGroups(layout));
  FLAGSTONE_RETURN_IF_ERROR(partition::CheckTensors(layout));
  std::unordered_set<std::string_view> ids;
  ids.reserve(layout.partitions.size());
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    const Partition& self = layout.partitions[p];
    const Partition* before = p > 0 ? &layout.partitions[p - 1] : nullptr;
    const bool ranks_are_known =
        before && self.ranks == before->ranks && self.replicas == before->replicas;
    FLAGSTONE_RETURN_IF_ERROR(partition::ValidatePartition(layout, p, ranks_are_known));
    if (!ids.insert(self.id).second) {
      return partition::Invalid(base::Join("two partitions have the id ", base::Quote(self.id)));
    }
  }
  return partition::CheckOwnersOfRoles(layout);
}

}  // namespace flagstone
