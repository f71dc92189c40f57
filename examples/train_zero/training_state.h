// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// All that one rank keeps from step to step, partitioned as ZeRO-2 does it: whole weights, a part
/// of everything else.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train_zero/adam.h"
#include "train_zero/bfloat16.h"
#include "train_zero/model.h"
#include "train_zero/page_buffer.h"
#include "train_zero/text_loader.h"

namespace train_zero {

/// One parameter group, and this rank's part of its optimizer state.
///
/// The group's tensors are concatenated into a flat buffer that is padded to a multiple of 2 x
/// ranks and cut evenly; a cut takes no notice of where a tensor begins. The padding is never part
/// of the state.
struct OptimizerGroup {
  std::string name;
  AdamParameters adam;
  std::vector<uint32_t> tensors;  ///< Indexes in TrainingState::tensors, in flat order.
  uint64_t elements = 0;          ///< Of all tensors together.
  uint64_t padded_elements = 0;
  uint64_t flat_begin = 0;   ///< Where this group begins among the flat buffers of all groups.
  uint64_t own_begin = 0;    ///< This rank's first element in the group.
  PageBuffer<float> master;  ///< This rank's elements, as all three.
  PageBuffer<float> exp_avg;
  PageBuffer<float> exp_avg_sq;

  uint64_t own_elements() const { return master.size(); }
};

/// The whole state of one rank. Neither copied nor moved: the model reads the weights in place.
struct TrainingState {
  /// The state before the first step.
  TrainingState(const ModelShape& shape, uint32_t rank, uint32_t world_size, uint64_t seed);
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  ModelShape shape;
  uint32_t rank;
  uint32_t world_size;
  int64_t step = 0;  ///< Steps done.
  std::vector<ModelTensor> tensors;
  std::vector<std::span<std::byte>>
      weights;  ///< The bytes of each tensor: whole, the same on every rank.
  std::vector<OptimizerGroup> groups;
  PageBuffer<BFloat16Bits>
      flat_weights;    ///< The flat buffers of all groups; trained weights lie in it.
  LoaderState loader;  ///< Unlike on every rank, as is the next.
  std::vector<std::byte> random_state;

 private:
  std::vector<PageBuffer<std::byte>> fixed_weights_;  // frozen parameters and buffers
};

/// Elements of the flat buffers of all groups together, padding included.
uint64_t FlatElements(const ModelShape& shape, uint32_t world_size);

}  // namespace train_zero
