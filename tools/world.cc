// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "arguments.h"

namespace flagstone::tools {

Result<Layout> WorldChoice::LayoutOf(const Checkpoint& checkpoint) const {
  const uint32_t ranks = WorldOf(checkpoint);
  if (stage) return LayoutForStage(checkpoint.layout(), *stage, ranks);
  return LayoutForWorld(checkpoint.layout(), ranks);
}

void AddWorld(CLI::App& app, WorldChoice& target) {
  AddUint32(app, "--world", target.world, "As one of so many ranks (default: as saved)", 1);
  AddUint32(app, "--stage", target.stage,
            "As ZeRO stage 0, 1, 2 or 3 has it (default: by the rules as saved)", 0, 3);
}

}  // namespace flagstone::tools
