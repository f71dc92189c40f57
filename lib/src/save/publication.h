// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What the coordinator of a save does from the commit point on (spec/commit.md, "Steps").

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/status.h"
#include "io/file_system.h"
#include "io/process.h"
#include "store/publish.h"

namespace flagstone::save {

/// What a save needs beside the layout. The file system and process table are seams for tests.
struct SaveEnvironment {
  io::FileSystem* fs = nullptr;
  io::ProcessTable* processes = nullptr;
};

/// Nanoseconds since 1970 for a manifest to be committed now: later than that of the checkpoint
/// which it replaces and of the one that `latest` names, whatever their writers' clocks said.
int64_t CommitTime(io::FileSystem& fs, const std::filesystem::path& directory);

enum class Decision : uint8_t {
  kCommitted,
  kDurabilityUnknown,  ///< Committed, but the directory could not be synced.
  kNotCommitted,       ///< Nobody can commit it any more.
  kUndecided,          ///< It could not be found out; no file may be touched.
};

struct Publication {
  Decision decision = Decision::kNotCommitted;
  Status status;  ///< Why it is not kCommitted.
};

/// Write the manifest and commit it, or withdraw it.
Publication Publish(store::TemporaryManifest& temporary, std::span<const std::byte> manifest,
                    bool overwrite);

/// Give up an attempt whose commit was never tried, so that it is certainly not committed.
Publication Withdraw(store::TemporaryManifest& temporary, Status why);

/// "committed, durability unknown".
Status DurabilityUnknown(const std::filesystem::path& directory);

struct CommittedSave {
  std::filesystem::path directory;
  int64_t committed_at = 0;
  bool update_latest = true;
  std::chrono::milliseconds timeout{};
};

/// Move `latest` and remove what was replaced and what failed saves of this name left. Returns what
/// went wrong: the save stands.
std::vector<std::string> AfterCommit(const SaveEnvironment& environment, const CommittedSave& save);

}  // namespace flagstone::save
