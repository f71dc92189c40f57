// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The state that each rank saved beside its tensors, and what a rank of another world gets.

#include <cstdint>
#include <string>

#include "flagstone/checkpoint.h"
#include "flagstone/load.h"
#include "flagstone/status.h"
#include "flagstone/value.h"

namespace flagstone::load {

/// What a saved rank gave to SetRankState. Errors: kNotFound (no such rank or file), kCorruption.
Result<Value> SavedRankState(const Checkpoint::Impl& checkpoint, uint32_t rank);

/// The state of `rank` of a world of `world_size`, as LoadOptions say.
Result<Value> RankStateFor(const Checkpoint::Impl& checkpoint, uint32_t rank, uint32_t world_size,
                           const LoadOptions& options);

/// LoadReport::rank_state of that.
std::string RankStateNote(uint32_t saved, uint32_t world_size, const LoadOptions& options);

/// A seed for `rank` out of one for all: splitmix64's output function (Steele, Lea, Flood, "Fast
/// splittable pseudorandom number generators", 2014) of seed + (rank + 1) * 0x9E3779B97F4A7C15,
/// without its highest bit, so that every framework takes it.
int64_t FoldSeed(int64_t seed, uint32_t rank);

}  // namespace flagstone::load
