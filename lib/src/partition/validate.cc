// SPDX-License-Identifier: Apache-2.0
#include "partition/validate.h"

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

Status CheckAll(const Layout& layout, bool complete) {
  FLAGSTONE_RETURN_IF_ERROR(CheckWorldSize(layout));
  FLAGSTONE_RETURN_IF_ERROR(CheckGroups(layout));
  FLAGSTONE_RETURN_IF_ERROR(CheckTensors(layout));
  std::unordered_set<std::string_view> ids;
  ids.reserve(layout.partitions.size());
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    const Partition& self = layout.partitions[p];
    const Partition* before = p > 0 ? &layout.partitions[p - 1] : nullptr;
    const bool ranks_are_known =
        before && self.ranks == before->ranks && self.replicas == before->replicas;
    FLAGSTONE_RETURN_IF_ERROR(ValidatePartition(layout, p, ranks_are_known));
    if (!ids.insert(self.id).second) {
      return Invalid(Join("two partitions have the id ", Quote(self.id)));
    }
  }
  return CheckCoverage(layout, complete);
}

}  // namespace

Status ValidateDeclaration(const Layout& layout) { return CheckAll(layout, /*complete=*/false); }

}  // namespace partition

Status ValidateLayout(const Layout& layout) {
  return partition::CheckAll(layout, /*complete=*/true);
}

}  // namespace flagstone
