// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A small GPT that predicts the next character. The one part of the program that uses LibTorch;
/// its header does not.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train_zero/bfloat16.h"
#include "train_zero/text_loader.h"

namespace train_zero {

/// About 3.2 million parameters.
struct ModelShape {
  uint64_t layers = 4;
  uint64_t heads = 4;
  uint64_t width = 256;
  uint64_t context = 64;
};

enum class TensorUse : uint8_t {
  kTrained,  ///< A parameter, bfloat16.
  kFrozen,   ///< A parameter that no gradient changes, bfloat16.
  kBuffer,   ///< Not a parameter: the causal mask, bool.
};

/// A tensor of the model.
struct ModelTensor {
  std::string name;
  std::vector<uint64_t> shape;
  TensorUse use = TensorUse::kTrained;
  bool weight_decay = false;           ///< Matrices are decayed, biases and norms are not.
  std::vector<std::string> tied = {};  ///< Other names of the same tensor.

  uint64_t elements() const;
  uint64_t element_bytes() const { return use == TensorUse::kBuffer ? 1 : sizeof(BFloat16Bits); }
};

/// Every tensor of the model, in the order of its modules.
std::vector<ModelTensor> ModelTensors(const ModelShape& shape);

/// The values that training starts from, row-major; the same in every process that passes the same
/// seed. For a buffer and a frozen tensor they are its values for good.
std::vector<float> InitialValues(const ModelShape& shape, const ModelTensor& tensor, uint64_t seed);

/// Computes loss and gradients of weights that lie in the caller's memory.
///
/// Weights and gradients are bfloat16; what is between them is computed in float, so that the speed
/// does not hang on the processor's bfloat16 instructions. One thread: sums have one order, and
/// equal runs give equal bits.
class Model {
 public:
  /// `weights`: for each of ModelTensors(shape) its bytes, which the model reads in place at every
  /// step. They must outlive it. `seed` is that of the dropout masks.
  Model(const ModelShape& shape, const std::vector<std::span<std::byte>>& weights, uint64_t seed);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();

  /// The mean loss over the batch; the gradients replace those of the last call.
  float ForwardBackward(const Batch& batch);
  /// Copy the gradient of a trained tensor (index in ModelTensors) as bfloat16.
  void CopyGradient(uint64_t tensor, std::span<BFloat16Bits> out) const;

  /// The state of torch's CPU generator, from which the dropout masks come.
  std::vector<std::byte> RandomState() const;
  /// Throws std::exception when torch refuses the bytes.
  void SetRandomState(std::span<const std::byte> state);

 private:
  class Network;
  std::unique_ptr<Network> network_;
};

}  // namespace train_zero
