// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// --world and --stage: the ranks and the ZeRO stage for which a checkpoint is opened.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "flagstone/flagstone.h"

namespace flagstone::tools {

struct WorldChoice {
  std::optional<uint32_t> world;
  std::optional<uint32_t> stage;

  bool is_given() const { return world.has_value() || stage.has_value(); }
  uint32_t WorldOf(const Checkpoint& checkpoint) const {
    return world.value_or(checkpoint.world_size());
  }
  /// The saved layout over these ranks, by its own rules or as the stage has it.
  Result<Layout> LayoutOf(const Checkpoint& checkpoint) const;
};

void AddWorld(CLI::App& app, WorldChoice& target);

}  // namespace flagstone::tools
