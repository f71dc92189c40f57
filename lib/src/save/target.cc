// SPDX-License-Identifier: Apache-2.0
#include "save/target.h"

#include <chrono>
#include <utility>

#include "base/text.h"
#include "store/names.h"

namespace flagstone::save {
namespace {

using base::Join;
using base::Quote;

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

}  // namespace

Result<std::filesystem::path> CheckTarget(const std::filesystem::path& path) {
  std::filesystem::path clean = path;
  while (clean.has_relative_path() && (!clean.has_filename() || clean.filename() == "."))
    clean = clean.parent_path();
  const std::string name = clean.filename().string();
  if (store::IsCheckpointName(name)) return clean;
  return Invalid(Join("checkpoint path ", Quote(path.string()),
                      " does not end in a name for a checkpoint, but in ", Quote(name),
                      "; '.', '..', 'latest' and names of the files in a checkpoint are none, and "
                      "a name has no newline"));
}

Status CheckOptions(const SaveOptions& options) {
  if (options.timeout < std::chrono::milliseconds(100)) {
    return Invalid(Join("SaveOptions::timeout is ", options.timeout.count(),
                        " ms; it must be at least 100 ms"));
  }
  // Far below where sums of times in nanoseconds overflow.
  constexpr auto kMostTime = std::chrono::hours(24 * 365);
  if (options.timeout > kMostTime || options.sync_timeout > kMostTime ||
      options.sync_timeout <= std::chrono::milliseconds(0)) {
    return Invalid(Join("SaveOptions::timeout is ", options.timeout.count(),
                        " ms and sync_timeout ", options.sync_timeout.count(),
                        " ms; both must be above 0 and at most a year"));
  }
  if (options.queue_depth > kMaxQueueDepth) {
    return Invalid(Join("SaveOptions::queue_depth is ", options.queue_depth, "; it may be at most ",
                        kMaxQueueDepth));
  }
  if (options.backend == Backend::kMmap) {
    return Invalid(
        "SaveOptions::backend is mmap, which cannot write; use auto, uring-direct, uring or pread");
  }
  constexpr uint64_t kLeastStaging = 128 * 1024;
  if (options.staging_bytes < kLeastStaging) {
    return Invalid(Join("SaveOptions::staging_bytes is ", options.staging_bytes,
                        "; it must be at least ", kLeastStaging));
  }
  return {};
}

}  // namespace flagstone::save
