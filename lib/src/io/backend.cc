// SPDX-License-Identifier: Apache-2.0
#include "flagstone/backend.h"

#include <array>
#include <utility>

namespace flagstone {
namespace {

constexpr std::array<std::pair<Backend, std::string_view>, 5> kNames = {{
    {Backend::kAuto, "auto"},
    {Backend::kUringDirect, "uring-direct"},
    {Backend::kUring, "uring"},
    {Backend::kPread, "pread"},
    {Backend::kMmap, "mmap"},
}};

}  // namespace

std::string_view Name(Backend backend) {
  for (const auto& [value, name] : kNames) {
    if (value == backend) return name;
  }
  return "unknown";
}

std::optional<Backend> BackendFromName(std::string_view name) {
  for (const auto& [value, known] : kNames) {
    if (known == name) return value;
  }
  return std::nullopt;
}

}  // namespace flagstone
