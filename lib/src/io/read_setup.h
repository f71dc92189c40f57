// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Choosing a backend for reads and opening what it needs. The choice and its use share this code,
/// so that what was found to work is what is used.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "flagstone/status.h"
#include "io/buffer_pool.h"
#include "io/file_system.h"
#include "io/io_queue.h"
#include "io/read_plan.h"
#include "io/transfer.h"

namespace flagstone::io {

struct ReadSetup {
  BackendChoice choice;
  bool forced = false;  ///< Asked for by name: an error instead of a fallback.
  std::vector<ReadFile> files;
  std::unique_ptr<IoQueue> queue;  ///< Null for kMmap.
};

/// `chosen` goes before `requested`. `depth` 0: chosen.
Result<ReadSetup> SetUpReads(FileSystem& fs, std::span<const std::shared_ptr<File>> files,
                             Backend requested, const std::optional<BackendChoice>& chosen,
                             uint32_t depth);

/// Requests in flight: what `depth` says, or a number that keeps disks busy when it is 0.
uint32_t DepthOf(Backend backend, uint32_t depth);

/// What the options mean for a plan.
ReadLimits LimitsOf(const ReadOptions& options, Backend backend);

/// The buffers that a plan has.
BufferLimits BuffersOf(const PlanSummary& plan, const ReadLimits& limits);

/// How much of a file the page cache holds, by a few probes.
struct Residency {
  uint32_t probed = 0;  ///< Pages that could be told.
  uint32_t resident = 0;
};
Residency ProbeResidency(File& file, uint64_t begin, uint64_t end, uint32_t probes);

/// A second descriptor with O_DIRECT beside an open file. kUnsupported where the path no longer
/// leads to the same file.
Result<std::shared_ptr<File>> OpenDirect(FileSystem& fs, File& file, OpenOptions::Mode mode);

/// "first; second": reasons are collected in the order in which they came up.
void AddReason(BackendChoice& choice, std::string_view reason);

}  // namespace flagstone::io
