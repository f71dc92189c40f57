// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "flagstone/export.h"

namespace flagstone {

/// How bytes move between files and memory. All give equal bytes.
enum class Backend : uint8_t {
  kAuto = 0,     ///< Chosen by file system, page-cache residency and destination; the report says
                 ///< which and why.
  kUringDirect,  ///< io_uring on O_DIRECT descriptors: past the page cache.
  kUring,        ///< io_uring through the page cache.
  kPread,        ///< Threads with pread and pwrite through the page cache: works everywhere.
  kMmap,         ///< Loads only: copied out of a read-only mapping.
};

/// Most transfers in flight that may be asked for.
inline constexpr uint32_t kMaxQueueDepth = 4096;

/// "auto", "uring-direct", "uring", "pread" or "mmap", as on the command line.
FLAGSTONE_EXPORT std::string_view Name(Backend backend);
FLAGSTONE_EXPORT std::optional<Backend> BackendFromName(std::string_view name);

}  // namespace flagstone
