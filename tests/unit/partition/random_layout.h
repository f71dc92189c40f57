// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Random models and random layouts of them: all rules, odd sizes, tensors without elements or
/// dimensions, more ranks than elements, rank lists that are not the world, replica lists.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "flagstone/partition.h"

namespace flagstone::partition_tests {

/// A number below `bound` (not 0). RapidCheck's draws shrink, seeded ones are fast.
using Draw = std::function<uint64_t(uint64_t bound)>;

Draw SeededDraw(uint64_t seed);
/// To be used in a property of RapidCheck.
Draw RapidCheckDraw();

struct ModelTensor {
  std::vector<uint64_t> shape;
  DType dtype = DType::kFloat32;
  std::vector<std::string> names;  // tied ones
  std::vector<uint64_t> attached;  // shape of its value of the attached role
  std::vector<Box> attached_boxes;  // that have such a value each; none: the whole tensor has
};

/// Up to `most_tensors` tensors of up to `most_elements` elements. The id of a tensor is its index.
std::vector<ModelTensor> RandomModel(const Draw& draw, uint64_t most_tensors,
                                     uint64_t most_elements);

struct LayoutChoice {
  uint64_t most_ranks = 64;
  bool subset = false;  // leave tensors out
  /// Give all roles to each tensor, so that whatever another layout of the model wants is there.
  bool all_roles = true;
  bool boxes = true;   // give tensors in boxes, too
  /// Name a tensor by any of its tied names, the others as aliases or not at all.
  bool rename = false;
};

/// A valid layout of some of the tensors, in an order of its own.
Layout RandomLayout(const Draw& draw, const std::vector<ModelTensor>& model,
                    const LayoutChoice& choice);

/// Boxes that together are a tensor of this shape: it is cut in two, then perhaps a part of it again.
std::vector<Box> RandomBoxes(const Draw& draw, const std::vector<uint64_t>& shape);

/// The index in the model of a tensor of such a layout.
uint64_t ModelId(const Tensor& tensor);

}  // namespace flagstone::partition_tests
