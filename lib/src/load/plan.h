// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The plan of a load: from the manifest alone, no rank file is touched.

#include <cstdint>
#include <vector>

#include "flagstone/load.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "store/open.h"

namespace flagstone::load {

struct PlannedLoad {
  Plan plan;
  std::vector<uint64_t> source_offsets;  ///< As plan.runs: where each begins in its saved segment.
};

/// What `rank` of `wanted` gets of the checkpoint and by which reads. Errors: kNotFound (no such
/// rank, role or tensor), kCorruption (a layout that no file can have).
Result<PlannedLoad> PlanLoad(const store::OpenedManifest& opened, const Layout& wanted,
                             uint32_t rank, const LoadOptions& options);

}  // namespace flagstone::load
