// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The plan of a load: from the manifest alone, no rank file is touched.

#include <cstdint>
#include <vector>

#include "flagstone/load.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "format/placement.h"
#include "store/open.h"

namespace flagstone::load {

/// The chunks that a run touches.
struct ChunkRange {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t begin = 0;  ///< Byte offset of the first chunk in the segment.
  uint64_t size = 0;   ///< Bytes of all of them, the segment's padding included.
};
/// [offset, offset + length) lies in the segment and is not empty.
ChunkRange ChunksOf(const format::PlacedSegment& segment, uint64_t offset, uint64_t length);

struct PlannedLoad {
  Plan plan;
  std::vector<uint64_t> source_offsets;  ///< As plan.runs: where each begins in its saved segment.
};

/// What `rank` of `wanted` gets of the checkpoint and by which reads. Errors: kNotFound (no such
/// rank, role or tensor), kCorruption (a layout that no file can have).
Result<PlannedLoad> PlanLoad(const store::OpenedManifest& opened, const Layout& wanted,
                             uint32_t rank, const LoadOptions& options);

}  // namespace flagstone::load
