// SPDX-License-Identifier: Apache-2.0
#include "load/rank_state.h"

#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/text.h"
#include "load/impl.h"

namespace flagstone::load {

using base::Join;
using base::Quote;

Result<Value> SavedRankState(const Checkpoint::Impl& checkpoint, uint32_t rank) {
  const store::OpenedManifest& opened = checkpoint.opened;
  FLAGSTONE_RETURN_IF_ERROR(store::RequireData(opened));
  const uint32_t world_size = opened.manifest.layout.world_size;
  if (rank >= world_size) {
    return Status(StatusCode::kNotFound,
                  Join("there is no rank ", rank, " in ", Quote(opened.directory.string()),
                       ", saved by ", world_size, " ranks: 0 to ", world_size - 1),
                  {opened.directory.string(), "", std::nullopt});
  }
  FLAGSTONE_ASSIGN_OR_RETURN(const auto file,
                             store::RankFileReader::Open(checkpoint.fs, opened, rank));
  Value state = file->index().rank_state;
  uint64_t bytes_read = 0;
  FLAGSTONE_RETURN_IF_ERROR(store::FillArrays(*file, /*client=*/false, state, bytes_read));
  return state;
}

int64_t FoldSeed(int64_t seed, uint32_t rank) {
  uint64_t mixed = static_cast<uint64_t>(seed) + (uint64_t{rank} + 1) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
  return static_cast<int64_t>((mixed ^ (mixed >> 31)) >> 1);
}

Result<Value> RankStateFor(const Checkpoint::Impl& checkpoint, uint32_t rank, uint32_t world_size,
                           const LoadOptions& options) {
  const uint32_t saved = checkpoint.opened.manifest.layout.world_size;
  if (options.make_rank_state) {
    std::vector<Value> states;
    for (uint32_t r = 0; r < saved; ++r) {
      FLAGSTONE_ASSIGN_OR_RETURN(Value state, SavedRankState(checkpoint, r));
      states.push_back(std::move(state));
    }
    return options.make_rank_state(rank, states);
  }
  if (saved == world_size) return SavedRankState(checkpoint, rank);
  switch (options.rank_state) {
    case RankStatePolicy::kNone:
      return Value();
    case RankStatePolicy::kRefuse:
      break;  // refused when the reader was made
    case RankStatePolicy::kSame:
      return SavedRankState(checkpoint, rank % saved);
    case RankStatePolicy::kDerive: {
      FLAGSTONE_ASSIGN_OR_RETURN(const Value state, SavedRankState(checkpoint, 0));
      const auto* dict = state.get_if<Value::Dict>();
      for (const auto& [key, value] : dict != nullptr ? *dict : Value::Dict()) {
        const auto* name = key.get_if<std::string>();
        const auto* seed = value.get_if<int64_t>();
        if (name == nullptr || *name != "seed" || seed == nullptr) continue;
        return Value(Value::Dict{{"seed", FoldSeed(*seed, rank)}});
      }
      return Status(StatusCode::kNotFound,
                    Join("rank 0's state in ", Quote(checkpoint.opened.directory.string()),
                         " has no integer \"seed\" from which rank ", rank, " of ", world_size,
                         " could derive one"));
    }
  }
  return Status(StatusCode::kInvalidArgument,
                Join("LoadOptions::rank_state has the value ",
                     static_cast<unsigned>(options.rank_state), ", which is no policy"));
}

std::string RankStateNote(uint32_t saved, uint32_t world_size, const LoadOptions& options) {
  if (options.make_rank_state) return "made by the caller of what all ranks saved";
  if (saved == world_size) return "own";
  const std::string worlds = Join("saved by ", saved, " ranks, loaded by ", world_size);
  switch (options.rank_state) {
    case RankStatePolicy::kSame:
      return Join("of rank modulo ", saved, ": ", worlds);
    case RankStatePolicy::kDerive:
      return Join("the seed of rank 0 folded with the rank: ", worlds);
    default:
      return Join("none: ", worlds);
  }
}

}  // namespace flagstone::load
