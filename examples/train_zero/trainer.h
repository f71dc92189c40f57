// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The training loop of one rank.

#include <cstdint>
#include <optional>

#include "train_zero/checkpoint.h"
#include "train_zero/model.h"
#include "train_zero/shared_memory.h"
#include "train_zero/text_loader.h"

namespace train_zero {

/// When the last rank kills itself.
struct PlannedDeath {
  uint64_t save = 1;   ///< In which save of this run, counted from 1.
  uint64_t bytes = 0;  ///< After how many bytes of its rank file.
};

/// What the ranks of a run have in common.
struct RunPlan {
  ModelShape shape;
  Job job;
  int64_t steps = 0;       ///< Train until so many steps are done, those before a resume included.
  int64_t save_every = 0;  ///< Save after each step divisible by it; 0: never.
  uint64_t batch = 4;      ///< Windows of text a rank and step.
  uint64_t seed = 1;
  std::optional<ResumePoint> resume;
  std::optional<PlannedDeath> death;
};

/// Train as rank `rank` of `exchange.world_size()`. Rank 0 prints a line of JSON a step on stdout,
/// and a line a save on stderr. Equal plans and texts print equal lines, whether or not the run was
/// cut by saves and resumes. Throws std::exception.
void RunRank(const RunPlan& plan, const Text& text, uint32_t rank, RankExchange& exchange);

}  // namespace train_zero
