// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The logical tensors of a model, and the parameter groups of its optimizer.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "flagstone/dtype.h"
#include "flagstone/value.h"

namespace flagstone {

/// These values are frozen in the file format.
enum class TensorKind : uint8_t { kParameter = 0, kBuffer = 1 };

/// A logical tensor of the model: what it is called and what it looks like, not where its bytes
/// are.
struct Tensor {
  std::string name;  ///< 1 to 4096 bytes of valid UTF-8 without NUL; unique among names and aliases
                     ///< of a layout.
  DType dtype = DType::kFloat32;  ///< Model dtype: that of the role "weight".
  std::vector<uint64_t> shape;  ///< Empty for a 0-dim tensor (one element). At most 64 dimensions.
  TensorKind kind = TensorKind::kParameter;
  std::optional<uint32_t> group =
      {};  ///< Index in Layout::groups of the optimizer's parameter group, if in one.
  bool trainable =
      true;  ///< False for a frozen parameter and for a buffer that no gradient reaches.
  std::vector<std::string> aliases =
      {};  ///< Tied names: same storage, offset, shape and strides. Stored once.

  bool operator==(const Tensor&) const = default;
};

/// One parameter group of the optimizer.
struct ParameterGroup {
  Value hyper_parameters;  ///< A dict, for example {"lr": 1e-4, "betas": [0.9, 0.999]}; null when
                           ///< there are none.

  bool operator==(const ParameterGroup&) const = default;
};

/// Number of elements of a shape (1 for an empty shape), or nullopt when the product exceeds 2^64
/// - 1.
FLAGSTONE_EXPORT std::optional<uint64_t> ElementCount(const std::vector<uint64_t>& shape);

}  // namespace flagstone
