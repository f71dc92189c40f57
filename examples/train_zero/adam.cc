// SPDX-License-Identifier: Apache-2.0
#include "train_zero/adam.h"

#include <cmath>

namespace train_zero {

void AdamStep(const AdamParameters& parameters, int64_t step, double rate_factor,
              std::span<const float> gradient, std::span<float> master, std::span<float> exp_avg,
              std::span<float> exp_avg_sq) {
  const auto steps = static_cast<double>(step);
  const double rate = parameters.learning_rate * rate_factor;
  const double correction1 = 1 - std::pow(parameters.beta1, steps);
  const double correction2 = 1 - std::pow(parameters.beta2, steps);
  const auto beta1 = static_cast<float>(parameters.beta1);
  const auto beta2 = static_cast<float>(parameters.beta2);
  const auto step_size = static_cast<float>(rate / correction1);
  const auto root_correction = static_cast<float>(std::sqrt(correction2));
  const auto epsilon = static_cast<float>(parameters.epsilon);
  const auto kept = static_cast<float>(1 - rate * parameters.weight_decay);

  for (uint64_t i = 0; i < gradient.size(); ++i) {
    exp_avg[i] = beta1 * exp_avg[i] + (1 - beta1) * gradient[i];
    exp_avg_sq[i] = beta2 * exp_avg_sq[i] + (1 - beta2) * gradient[i] * gradient[i];
    const float denominator = std::sqrt(exp_avg_sq[i]) / root_correction + epsilon;
    master[i] = kept * master[i] - step_size * exp_avg[i] / denominator;
  }
}

}  // namespace train_zero
