// SPDX-License-Identifier: Apache-2.0
#include "train_zero/model.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>

// The headers of single operators, and methods instead of + and *, whose header includes all of
// them: torch/torch.h would make this file several times as slow to compile.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

namespace train_zero {
namespace {

constexpr double kDropout = 0.1;
constexpr float kInitialDeviation = 0.02F;

std::string BlockName(uint64_t layer, const char* rest) {
  return "transformer.h." + std::to_string(layer) + "." + rest;
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Sines and cosines of falling frequency, scaled to the size of the embeddings to which they are
// added.
std::vector<float> PositionTable(const ModelShape& shape) {
  std::vector<float> table(shape.context * shape.width);
  for (uint64_t position = 0; position < shape.context; ++position) {
    for (uint64_t column = 0; column < shape.width; ++column) {
      const double exponent =
          static_cast<double>(column / 2 * 2) / static_cast<double>(shape.width);
      const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
      const double value = column % 2 == 0 ? std::sin(angle) : std::cos(angle);
      table[position * shape.width + column] = kInitialDeviation * static_cast<float>(value);
    }
  }
  return table;
}

std::vector<float> CausalMask(const ModelShape& shape) {
  std::vector<float> mask(shape.context * shape.context);
  for (uint64_t row = 0; row < shape.context; ++row) {
    for (uint64_t column = 0; column <= row; ++column) mask[row * shape.context + column] = 1;
  }
  return mask;
}

}  // namespace

uint64_t ModelTensor::elements() const {
  uint64_t product = 1;
  for (const uint64_t size : shape) product *= size;
  return product;
}

std::vector<ModelTensor> ModelTensors(const ModelShape& shape) {
  const uint64_t width = shape.width;
  std::vector<ModelTensor> tensors;
  const auto trained = [&](std::string name, std::vector<uint64_t> sizes) {
    const bool matrix = sizes.size() > 1;
    tensors.push_back({.name = std::move(name), .shape = std::move(sizes), .weight_decay = matrix});
  };
  trained("transformer.wte.weight", {static_cast<uint64_t>(kVocabulary), width});
  tensors.back().tied = {"lm_head.weight"};
  tensors.push_back({.name = "transformer.wpe.weight",
                     .shape = {shape.context, width},
                     .use = TensorUse::kFrozen});
  tensors.push_back({.name = "transformer.causal_mask",
                     .shape = {shape.context, shape.context},
                     .use = TensorUse::kBuffer});
  for (uint64_t layer = 0; layer < shape.layers; ++layer) {
    trained(BlockName(layer, "ln_1.weight"), {width});
    trained(BlockName(layer, "ln_1.bias"), {width});
    trained(BlockName(layer, "attn.c_attn.weight"), {3 * width, width});
    trained(BlockName(layer, "attn.c_attn.bias"), {3 * width});
    trained(BlockName(layer, "attn.c_proj.weight"), {width, width});
    trained(BlockName(layer, "attn.c_proj.bias"), {width});
    trained(BlockName(layer, "ln_2.weight"), {width});
    trained(BlockName(layer, "ln_2.bias"), {width});
    trained(BlockName(layer, "mlp.c_fc.weight"), {4 * width, width});
    trained(BlockName(layer, "mlp.c_fc.bias"), {4 * width});
    trained(BlockName(layer, "mlp.c_proj.weight"), {width, 4 * width});
    trained(BlockName(layer, "mlp.c_proj.bias"), {width});
  }
  trained("transformer.ln_f.weight", {width});
  trained("transformer.ln_f.bias", {width});
  return tensors;
}

std::vector<float> InitialValues(const ModelShape& shape, const ModelTensor& tensor,
                                 uint64_t seed) {
  if (tensor.use == TensorUse::kFrozen) return PositionTable(shape);
  if (tensor.use == TensorUse::kBuffer) return CausalMask(shape);
  std::vector<float> values(tensor.elements());
  if (EndsWith(tensor.name, ".bias")) return values;
  if (tensor.shape.size() == 1) {
    values.assign(values.size(), 1.0F);
    return values;
  }
  // Projections into the residual stream are made smaller, so that its variance does not grow with
  // depth.
  const float deviation =
      EndsWith(tensor.name, "c_proj.weight")
          ? kInitialDeviation / std::sqrt(2.0F * static_cast<float>(shape.layers))
          : kInitialDeviation;
  // Seeded by the name: a tensor's values do not depend on which others there are.
  std::seed_seq sequence(tensor.name.begin(), tensor.name.end());
  std::mt19937_64 generator(sequence);
  generator.discard(1);
  generator.seed(generator() ^ seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  for (float& value : values) value = normal(generator);
  return values;
}

class Model::Network {
 public:
  Network(const ModelShape& shape, const std::vector<std::span<std::byte>>& weights)
      : shape_(shape) {
    const std::vector<ModelTensor> tensors = ModelTensors(shape);
    if (weights.size() != tensors.size())
      throw std::invalid_argument("one span a tensor is needed");
    for (uint64_t i = 0; i < tensors.size(); ++i) {
      const ModelTensor& tensor = tensors[i];
      if (weights[i].size() != tensor.elements() * tensor.element_bytes()) {
        throw std::invalid_argument("the memory of " + tensor.name + " has the wrong size");
      }
      const std::vector<int64_t> sizes(tensor.shape.begin(), tensor.shape.end());
      const at::ScalarType type = tensor.use == TensorUse::kBuffer ? at::kBool : at::kBFloat16;
      at::Tensor leaf = at::from_blob(weights[i].data(), sizes, at::TensorOptions(type));
      leaf.requires_grad_(tensor.use == TensorUse::kTrained);
      leaves_.push_back(std::move(leaf));
    }
  }

  float ForwardBackward(const Batch& batch) {
    for (at::Tensor& leaf : leaves_) leaf.mutable_grad().reset();
    const at::Tensor loss = Loss(Tokens(batch.inputs), Tokens(batch.targets));
    loss.backward();
    return loss.item<float>();
  }

  const at::Tensor& Gradient(uint64_t tensor) const { return leaves_.at(tensor).grad(); }

 private:
  // Takes the tensors one after the other as ModelTensors lists them, in float.
  class Weights {
   public:
    explicit Weights(const std::vector<at::Tensor>& leaves) : leaves_(leaves) {}
    at::Tensor Next() { return leaves_.at(next_++).to(at::kFloat); }
    at::Tensor NextAsIs() { return leaves_.at(next_++); }

   private:
    const std::vector<at::Tensor>& leaves_;
    uint64_t next_ = 0;
  };

  at::Tensor Tokens(const std::vector<int64_t>& tokens) const {
    const auto context = static_cast<int64_t>(shape_.context);
    // from_blob wants a pointer to mutable memory; nothing writes through it.
    return at::from_blob(const_cast<int64_t*>(tokens.data()),
                         {static_cast<int64_t>(tokens.size()) / context, context},
                         at::TensorOptions(at::kLong));
  }

  static at::Tensor Drop(const at::Tensor& input) {
    return at::dropout(input, kDropout, /*train=*/true);
  }

  at::Tensor Normalise(const at::Tensor& input, Weights& weights) const {
    const at::Tensor scale = weights.Next();
    const at::Tensor shift = weights.Next();
    return at::layer_norm(input, {static_cast<int64_t>(shape_.width)}, scale, shift);
  }

  static at::Tensor Project(const at::Tensor& input, Weights& weights) {
    const at::Tensor matrix = weights.Next();
    const at::Tensor bias = weights.Next();
    return at::linear(input, matrix, bias);
  }

  at::Tensor Attend(const at::Tensor& input, const at::Tensor& mask, Weights& weights) const {
    const auto heads = static_cast<int64_t>(shape_.heads);
    const auto width = static_cast<int64_t>(shape_.width);
    const int64_t head_width = width / heads;
    const int64_t batch = input.size(0);
    const int64_t context = input.size(1);
    // [batch, context, 3 * width] to three of [batch, heads, context, head width].
    const at::Tensor joined = Project(input, weights)
                                  .view({batch, context, 3, heads, head_width})
                                  .permute({2, 0, 3, 1, 4});
    const at::Tensor scores = at::matmul(joined.select(0, 0), joined.select(0, 1).transpose(-2, -1))
                                  .div(std::sqrt(static_cast<double>(head_width)));
    const at::Tensor masked =
        scores.masked_fill(mask.logical_not(), -std::numeric_limits<float>::infinity());
    const at::Tensor attention = Drop(at::softmax(masked, -1));
    const at::Tensor mixed = at::matmul(attention, joined.select(0, 2));
    return Project(mixed.transpose(1, 2).reshape({batch, context, width}), weights);
  }

  at::Tensor Loss(const at::Tensor& inputs, const at::Tensor& targets) const {
    Weights weights(leaves_);
    // Used twice, at the entrance and as the output matrix: the tied weight, whose two gradients
    // autograd adds.
    const at::Tensor embedding = weights.Next();
    const at::Tensor positions = weights.Next();
    const at::Tensor mask = weights.NextAsIs();
    at::Tensor hidden = Drop(at::embedding(embedding, inputs).add(positions));
    for (uint64_t layer = 0; layer < shape_.layers; ++layer) {
      hidden = hidden.add(Drop(Attend(Normalise(hidden, weights), mask, weights)));
      const at::Tensor inner = at::gelu(Project(Normalise(hidden, weights), weights), "tanh");
      hidden = hidden.add(Drop(Project(inner, weights)));
    }
    const at::Tensor logits = at::linear(Normalise(hidden, weights), embedding);
    return at::cross_entropy_loss(logits.view({-1, kVocabulary}), targets.view({-1}));
  }

  ModelShape shape_;
  std::vector<at::Tensor> leaves_;
};

Model::Model(const ModelShape& shape, const std::vector<std::span<std::byte>>& weights,
             uint64_t seed) {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(seed);
  }
  network_ = std::make_unique<Network>(shape, weights);
}

Model::~Model() = default;

float Model::ForwardBackward(const Batch& batch) { return network_->ForwardBackward(batch); }

void Model::CopyGradient(uint64_t tensor, std::span<BFloat16Bits> out) const {
  const at::Tensor gradient = network_->Gradient(tensor).contiguous();
  if (gradient.scalar_type() != at::kBFloat16 || gradient.nbytes() != out.size_bytes()) {
    throw std::logic_error("the gradient of tensor " + std::to_string(tensor) +
                           " has the wrong type or size");
  }
  std::memcpy(out.data(), gradient.const_data_ptr(), out.size_bytes());
}

std::vector<std::byte> Model::RandomState() const {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  const auto* const bytes = static_cast<const std::byte*>(state.const_data_ptr());
  return {bytes, bytes + state.nbytes()};
}

void Model::SetRandomState(std::span<const std::byte> state) {
  // A copy, because torch keeps no reference to it but wants a tensor.
  std::vector<std::byte> bytes(state.begin(), state.end());
  const at::Tensor tensor = at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())},
                                          at::TensorOptions(at::kByte));
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(tensor);
}

}  // namespace train_zero
