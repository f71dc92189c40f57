// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Small layouts, spelled out.

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "flagstone/partition.h"

namespace flagstone::partition_tests {

/// Tensors "t0", "t1", ... of these shapes, in no partition yet.
inline Layout LayoutOf(uint32_t world, const std::vector<std::vector<uint64_t>>& shapes,
                       DType dtype = DType::kFloat32) {
  Layout layout;
  layout.world_size = world;
  for (const auto& shape : shapes) {
    Tensor tensor;
    tensor.name = base::Join("t", layout.tensors.size());
    tensor.dtype = dtype;
    tensor.shape = shape;
    layout.tensors.push_back(tensor);
  }
  return layout;
}

/// The indexes of all tensors.
inline std::vector<uint32_t> All(const Layout& layout) {
  std::vector<uint32_t> tensors(layout.tensors.size());
  std::iota(tensors.begin(), tensors.end(), 0);
  return tensors;
}

}  // namespace flagstone::partition_tests
