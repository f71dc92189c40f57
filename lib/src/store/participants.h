// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Who else is at work in a checkpoint's directory: reading the records that attempts and ranks
/// leave there, and telling the living from the dead.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "flagstone/status.h"
#include "io/file_system.h"
#include "io/process.h"
#include "store/record.h"

namespace flagstone::store {

/// The time limits of a save (spec/commit.md, "Giving up").
struct Timing {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< T
  std::chrono::milliseconds sync_timeout = std::chrono::minutes(10);

  /// How often a participant that makes progress rewrites its record.
  std::chrono::milliseconds beat_interval() const { return timeout / 8; }
  /// How long ranks wait for a coordinator that stands still: longer than the coordinator waits for
  /// them.
  std::chrono::milliseconds coordinator_patience() const {
    return timeout + std::max<std::chrono::milliseconds>(std::chrono::seconds(5), timeout / 4);
  }
  /// How long a coordinator watches a rival that it cannot judge: longer than a rival of the same
  /// limit is given, shorter than its own ranks wait.
  std::chrono::milliseconds claim_patience() const {
    return timeout + (coordinator_patience() - timeout) / 2;
  }
  /// How long a rank that fails stays so that the coordinator learns why.
  std::chrono::milliseconds farewell() const {
    return std::min<std::chrono::milliseconds>(timeout, std::chrono::seconds(30));
  }
};

/// The record in the first page of a private file or temporary manifest; nullopt when there is none
/// (half-written, or overwritten by the finished header).
std::optional<std::string> ReadRecord(io::FileSystem& fs, const std::filesystem::path& file);

/// What is known of another attempt on a name.
struct SeenAttempt {
  std::string save_id;
  std::optional<Attempt> record;  ///< Absent when the temporary manifest's record cannot be read.
  io::Liveness liveness = io::Liveness::kUnknown;
  /// When its record was last written, by the file system's own clock.
  int64_t modified_ns = 0;
};

/// The attempts whose temporary manifest lies in the directory.
Result<std::vector<SeenAttempt>> SeeAttempts(io::FileSystem& fs, io::ProcessTable& processes,
                                             const std::filesystem::path& directory);

/// A file of Flagstone's that belongs to nothing published and nobody alive.
struct Debris {
  std::string name;
  std::string fence_save_id;  ///< For a temporary manifest: the attempt to be fenced before its
                              ///< files are touched.
};

/// Find debris in a checkpoint's directory without changing anything. `idle` is how long a file
/// whose owner cannot be told must have lain still, by the file system's own clock (`now_ns`, the
/// time of a file just written there; 0: unknown, such files are kept).
Result<std::vector<Debris>> FindDebris(io::FileSystem& fs, io::ProcessTable& processes,
                                       const std::filesystem::path& directory,
                                       std::chrono::milliseconds idle, int64_t now_ns);

/// Remove debris, fencing first, and beside the checkpoint the temporary files of `latest` that a
/// save of this name, or long ago one of another, left. Returns what could not be removed and why;
/// removing nothing is no error.
std::vector<std::string> RemoveDebris(io::FileSystem& fs, io::ProcessTable& processes,
                                      const std::filesystem::path& directory,
                                      std::chrono::milliseconds idle, int64_t now_ns);

}  // namespace flagstone::store
