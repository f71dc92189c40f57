// SPDX-License-Identifier: Apache-2.0
#include "load/tensor_names.h"

namespace flagstone::load {

std::optional<uint32_t> TensorNames::Find(std::string_view name) const {
  std::call_once(made_, [this] {
    by_name_.reserve(layout_.tensors.size());
    for (uint32_t t = 0; t < layout_.tensors.size(); ++t) {
      by_name_.emplace(layout_.tensors[t].name, t);
      for (const std::string& alias : layout_.tensors[t].aliases) by_name_.emplace(alias, t);
    }
  });
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace flagstone::load
