// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "flagstone/partition.h"

namespace flagstone::load {

/// The tensors of a layout, which is borrowed, by name and by alias. Thread-safe; made when first
/// asked.
class TensorNames {
 public:
  explicit TensorNames(const Layout& layout) : layout_(layout) {}
  std::optional<uint32_t> Find(std::string_view name) const;

 private:
  const Layout& layout_;
  mutable std::once_flag made_;
  mutable std::unordered_map<std::string_view, uint32_t> by_name_;
};

}  // namespace flagstone::load
