// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// How much memory this process may have: the machine's, or what its memory cgroup leaves of it.

#include <cstdint>
#include <filesystem>
#include <string>

#include "flagstone/status.h"

namespace flagstone::io {

struct MemoryLimit {
  uint64_t limit_bytes = 0;
  /// What is left of it: the page cache that the kernel would drop is not counted as used (a cgroup:
  /// limit - (usage - inactive_file - active_file); the machine: MemAvailable).
  uint64_t available_bytes = 0;
  bool is_cgroup = false;  ///< Else the limit is the machine's memory.
  /// The folder of the cgroup that sets the limit, or /proc/meminfo. Processes with the same source
  /// share the limit.
  std::filesystem::path source;
};

/// The limit with the least left of those that hold for this process: each cgroup from its own up to
/// the root, version 1 or 2, and the machine. `root` stands for "/": tests have trees of their own.
/// Errors: kIoError when not even the machine's memory is told.
Result<MemoryLimit> ReadMemoryLimit(const std::filesystem::path& root = "/");

}  // namespace flagstone::io
