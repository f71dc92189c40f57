// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Saving and resuming ZeRO-2 training through Flagstone: all that this program has to do with it.

#include <flagstone/flagstone.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "train_zero/sudden_death.h"
#include "train_zero/training_state.h"

namespace train_zero {

/// What belongs to the run as a whole.
struct Job {
  std::filesystem::path root;  ///< Checkpoints are root/step-<number>.
  std::string run;             ///< Equal on all ranks of this run, unlike that of any other.
  std::string text_digest;     ///< A checkpoint of another text is not resumed.
};

/// Save the state of one rank; every rank calls it after the same step. `death` is null but for a
/// demonstration. Throws std::runtime_error: what Flagstone says.
flagstone::SaveReport SaveCheckpoint(const Job& job, const TrainingState& state,
                                     SuddenDeath* death);

/// A checkpoint from which training goes on.
struct ResumePoint {
  std::filesystem::path checkpoint;
  int64_t step = 0;
};

/// The latest checkpoint below job.root. Called once, before the ranks start, so that all of them
/// resume from the same. Throws std::runtime_error: there is none, or it belongs to another world
/// size, model or text.
ResumePoint FindResumePoint(const Job& job, const ModelShape& shape, uint32_t world_size);

/// Replace the state of one rank by what it saved: its own partitions, its own rank state, and the
/// weights that every rank holds. Throws std::runtime_error: what Flagstone says, or what of the
/// checkpoint does not belong to this state.
void LoadCheckpoint(const ResumePoint& from, TrainingState& state);

}  // namespace train_zero
