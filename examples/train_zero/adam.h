// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Adam with decoupled weight decay, over a part of a flat buffer.

#include <cstdint>
#include <span>

namespace train_zero {

struct AdamParameters {
  double learning_rate = 6e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// Update `master`, `exp_avg` and `exp_avg_sq` in place from `gradient`; all four have one size.
///
/// `step` counts from 1. `rate_factor` scales the learning rate of this step (the schedule).
/// Elements do not depend on each other, so that any cut of the buffer gives the same result.
void AdamStep(const AdamParameters& parameters, int64_t step, double rate_factor,
              std::span<const float> gradient, std::span<float> master, std::span<float> exp_avg,
              std::span<float> exp_avg_sq);

}  // namespace train_zero
