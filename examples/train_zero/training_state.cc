// SPDX-License-Identifier: Apache-2.0
#include "train_zero/training_state.h"

#include <algorithm>

namespace train_zero {
namespace {

constexpr double kWeightDecay = 0.1;

// The two groups with their tensors and flat buffers, but without a rank's part.
std::vector<OptimizerGroup> MakeGroups(const std::vector<ModelTensor>& tensors,
                                       uint32_t world_size) {
  std::vector<OptimizerGroup> groups(2);
  groups[0].name = "decay";
  groups[0].adam.weight_decay = kWeightDecay;
  groups[1].name = "no_decay";
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].use != TensorUse::kTrained) continue;
    OptimizerGroup& group = groups[tensors[i].weight_decay ? 0 : 1];
    group.tensors.push_back(i);
    group.elements += tensors[i].elements();
  }
  uint64_t flat_begin = 0;
  for (OptimizerGroup& group : groups) {
    const uint64_t unit = uint64_t{2} * world_size;
    group.padded_elements = (group.elements + unit - 1) / unit * unit;
    group.flat_begin = flat_begin;
    flat_begin += group.padded_elements;
  }
  return groups;
}

uint64_t FlatElements(const std::vector<OptimizerGroup>& groups) {
  return groups.back().flat_begin + groups.back().padded_elements;
}

void CutForRank(OptimizerGroup& group, uint32_t rank, uint32_t world_size) {
  const uint64_t share = group.padded_elements / world_size;
  group.own_begin = std::min(group.elements, rank * share);
  const uint64_t own_elements = std::min(group.elements, (rank + 1) * share) - group.own_begin;
  group.master = PageBuffer<float>(own_elements);
  group.exp_avg = PageBuffer<float>(own_elements);
  group.exp_avg_sq = PageBuffer<float>(own_elements);
}

// Writes a tensor's first values to its bfloat16 weights and, where this rank owns them, to the
// masters.
void Initialise(std::span<const float> values, uint64_t begin_in_group, OptimizerGroup& group,
                std::span<BFloat16Bits> weights) {
  std::transform(values.begin(), values.end(), weights.begin(), BFloat16FromFloat);
  const uint64_t begin = std::max(begin_in_group, group.own_begin);
  const uint64_t end =
      std::min(begin_in_group + values.size(), group.own_begin + group.own_elements());
  if (begin >= end) return;
  const auto owned = values.subspan(begin - begin_in_group, end - begin);
  std::copy(owned.begin(), owned.end(), group.master.span().begin() + (begin - group.own_begin));
}

}  // namespace

uint64_t FlatElements(const ModelShape& shape, uint32_t world_size) {
  return FlatElements(MakeGroups(ModelTensors(shape), world_size));
}

TrainingState::TrainingState(const ModelShape& model_shape, uint32_t own_rank, uint32_t ranks,
                             uint64_t seed)
    : shape(model_shape),
      rank(own_rank),
      world_size(ranks),
      tensors(ModelTensors(model_shape)),
      weights(tensors.size()),
      groups(MakeGroups(tensors, ranks)),
      flat_weights(FlatElements(groups)) {
  for (OptimizerGroup& group : groups) {
    CutForRank(group, rank, world_size);
    uint64_t begin = 0;
    for (const uint32_t index : group.tensors) {
      const uint64_t elements = tensors[index].elements();
      const std::span<BFloat16Bits> place =
          flat_weights.span().subspan(group.flat_begin + begin, elements);
      weights[index] = std::as_writable_bytes(place);
      Initialise(InitialValues(shape, tensors[index], seed), begin, group, place);
      begin += elements;
    }
  }
  for (uint32_t index = 0; index < tensors.size(); ++index) {
    const ModelTensor& tensor = tensors[index];
    if (tensor.use == TensorUse::kTrained) continue;
    const std::vector<float> values = InitialValues(shape, tensor, seed);
    fixed_weights_.emplace_back(values.size() * tensor.element_bytes());
    weights[index] = fixed_weights_.back().span();
    for (uint64_t i = 0; i < values.size(); ++i) {
      if (tensor.use == TensorUse::kBuffer) {
        weights[index][i] = static_cast<std::byte>(values[i] != 0);
      } else {
        const BFloat16Bits bits = BFloat16FromFloat(values[i]);
        weights[index][2 * i] = static_cast<std::byte>(bits & 0xff);
        weights[index][2 * i + 1] = static_cast<std::byte>(bits >> 8);
      }
    }
  }
}

}  // namespace train_zero
