// SPDX-License-Identifier: Apache-2.0
#include "train_zero/trainer.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "train_zero/adam.h"
#include "train_zero/bfloat16.h"
#include "train_zero/training_state.h"

namespace train_zero {
namespace {

constexpr double kWarmUpSteps = 5;

double RateFactor(int64_t step) { return std::min(1.0, static_cast<double>(step) / kWarmUpSteps); }

class RankTrainer {
 public:
  RankTrainer(const RunPlan& plan, const Text& text, uint32_t rank, RankExchange& exchange)
      : plan_(plan),
        exchange_(exchange),
        state_(plan.shape, rank, exchange.world_size(), plan.seed),
        // Each rank draws its own dropout masks and reads its own part of the text.
        model_(plan.shape, state_.weights, plan.seed + rank),
        loader_(text, plan.shape.context, rank, exchange.world_size(), plan.seed) {
    if (!plan.resume) return;
    LoadCheckpoint(*plan.resume, state_);
    loader_.Restore(state_.loader);
    model_.SetRandomState(state_.random_state);
  }

  void Run() {
    while (state_.step < plan_.steps) {
      Step();
      if (plan_.save_every > 0 && state_.step % plan_.save_every == 0) Save();
    }
  }

 private:
  bool first() const { return state_.rank == 0; }
  bool last() const { return state_.rank + 1 == state_.world_size; }

  void Step() {
    const float loss = model_.ForwardBackward(loader_.Next(plan_.batch));
    exchange_.losses()[state_.rank] = loss;
    ShareGradients();
    exchange_.Barrier();

    ++state_.step;
    double mean_loss = 0;
    for (const float rank_loss : exchange_.losses()) mean_loss += rank_loss;
    mean_loss /= state_.world_size;
    for (OptimizerGroup& group : state_.groups) UpdateOwnPart(group);
    exchange_.Barrier();

    std::copy(exchange_.weights().begin(), exchange_.weights().end(),
              state_.flat_weights.span().begin());
    if (first()) Report(mean_loss);
  }

  void ShareGradients() {
    const std::span<BFloat16Bits> slot = exchange_.gradients(state_.rank);
    for (const OptimizerGroup& group : state_.groups) {
      uint64_t begin = group.flat_begin;
      for (const uint32_t tensor : group.tensors) {
        const uint64_t elements = state_.tensors[tensor].elements();
        model_.CopyGradient(tensor, slot.subspan(begin, elements));
        begin += elements;
      }
    }
  }

  void UpdateOwnPart(OptimizerGroup& group) {
    const uint64_t begin = group.flat_begin + group.own_begin;
    gradient_.assign(group.own_elements(), 0.0F);
    // Float addition is not associative: rank 0 first, always, whatever rank comes here first.
    for (uint32_t rank = 0; rank < state_.world_size; ++rank) {
      const auto theirs = exchange_.gradients(rank).subspan(begin, gradient_.size());
      for (uint64_t i = 0; i < gradient_.size(); ++i) gradient_[i] += FloatFromBFloat16(theirs[i]);
    }
    const float scale = 1.0F / static_cast<float>(state_.world_size);
    for (float& element : gradient_) element *= scale;

    AdamStep(group.adam, state_.step, RateFactor(state_.step), gradient_, group.master.span(),
             group.exp_avg.span(), group.exp_avg_sq.span());
    const std::span<const float> master = group.master.span();
    std::transform(master.begin(), master.end(),
                   exchange_.weights().begin() + static_cast<std::ptrdiff_t>(begin),
                   BFloat16FromFloat);
  }

  // Nothing but what follows from the state is printed, so that the output of two runs can be
  // compared byte by byte.
  void Report(double mean_loss) const {
    const auto weights = std::as_bytes(state_.flat_weights.span());
    std::printf("{\"step\":%" PRId64 ",\"loss\":\"%a\",\"loss_decimal\":%.6f,\"weights\":\"%s\"}\n",
                state_.step, mean_loss, mean_loss, Digest(weights.data(), weights.size()).c_str());
    std::fflush(stdout);
  }

  void Save() {
    ++saves_;
    state_.loader = loader_.state();
    state_.random_state = model_.RandomState();
    std::optional<SuddenDeath> death;
    if (last() && plan_.death && plan_.death->save == saves_) death.emplace(plan_.death->bytes);

    const flagstone::SaveReport report =
        SaveCheckpoint(plan_.job, state_, death ? &*death : nullptr);
    if (death) {
      throw std::runtime_error("--kill-at-bytes " + std::to_string(death->after_bytes()) +
                               " was not reached: this rank saved " +
                               std::to_string(death->taken_bytes()) + " bytes");
    }
    if (!first()) return;
    std::fprintf(stderr, "train_zero: saved step %" PRId64 " in %.2f s\n", state_.step,
                 report.seconds);
    for (const std::string& warning : report.warnings)
      std::fprintf(stderr, "train_zero: %s\n", warning.c_str());
  }

  const RunPlan& plan_;
  RankExchange& exchange_;
  TrainingState state_;
  Model model_;
  TextLoader loader_;
  std::vector<float> gradient_;
  uint64_t saves_ = 0;
};

}  // namespace

void RunRank(const RunPlan& plan, const Text& text, uint32_t rank, RankExchange& exchange) {
  RankTrainer(plan, text, rank, exchange).Run();
}

}  // namespace train_zero
