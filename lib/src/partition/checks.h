// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What the checks of tensors and of partitions share.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/range.h"
#include "base/text.h"
#include "flagstone/dtype.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/tensor.h"
#include "partition/validate.h"

namespace flagstone::partition {

inline Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

inline Status CheckWorldSize(const Layout& layout) {
  if (layout.world_size >= 1 && layout.world_size <= kMaxWorldSize) return {};
  return Invalid(
      base::Join("world_size is ", layout.world_size, "; it must be 1 to ", kMaxWorldSize));
}

// What is wrong with a name, to stand after "which"; empty when nothing is.
inline std::string NameProblem(std::string_view name, size_t max_bytes, bool slash_allowed) {
  if (name.empty()) return "is empty";
  if (name.size() > max_bytes) {
    return base::Join("has ", name.size(), " bytes, more than ", max_bytes);
  }
  if (name.find('\0') != std::string_view::npos) return "contains NUL";
  if (!base::IsUtf8(name)) return "is not valid UTF-8";
  if (!slash_allowed && name.find('/') != std::string_view::npos) return "contains '/'";
  return "";
}

// Bytes of a value of this shape, or why it cannot have any.
struct ValueSize {
  uint64_t elements = 0;
  std::string problem;
};

inline ValueSize SizeOfValue(const std::vector<uint64_t>& shape, DType dtype) {
  if (SizeOf(dtype) == 0) {
    return {0, base::Join("has dtype value ", static_cast<unsigned>(dtype), ", which is no dtype")};
  }
  if (shape.size() > kMaxDimensions) {
    return {0, base::Join("has ", shape.size(), " dimensions, more than ", kMaxDimensions)};
  }
  const auto elements = ElementCount(shape);
  const auto bytes = elements ? base::CheckedMultiply(*elements, SizeOf(dtype)) : std::nullopt;
  if (!bytes || *bytes > kMaxBytes) {
    return {0, base::Join("has shape ", base::ShapeText(shape), " of ", Name(dtype),
                          ", which is more than 2^63 - 1 bytes")};
  }
  return {*elements, ""};
}

}  // namespace flagstone::partition
