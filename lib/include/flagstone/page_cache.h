// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The two page-cache tools that every honest cold measurement needs.

#include <cstdint>
#include <filesystem>

#include "flagstone/export.h"
#include "flagstone/status.h"

namespace flagstone {

struct PageCacheInfo {
  uint64_t resident_pages = 0;
  uint64_t total_pages = 0;
};

/// How many pages of a file are in the page cache (mincore). Errors: kUnsupported when this process
/// does not own the file and so is told that every page is resident.
FLAGSTONE_EXPORT Result<PageCacheInfo> ResidentPages(const std::filesystem::path& file);

/// Write dirty pages back and drop the file's pages from the cache (fsync, posix_fadvise). Affects
/// this file only. Errors: kUnsupported when pages remain (tmpfs, pages mapped by another process):
/// says how many.
FLAGSTONE_EXPORT Status DropPageCache(const std::filesystem::path& file);

}  // namespace flagstone
