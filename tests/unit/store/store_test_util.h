// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "format/manifest.h"
#include "io/file_system.h"
#include "io/process.h"
#include "store/record.h"
#include "support/temporary_directory.h"

namespace flagstone::store {

using std::filesystem::path;

/// Processes by pid, as a test says. A pid that it does not mention cannot be told.
class FakeProcesses final : public io::ProcessTable {
 public:
  void Set(int64_t pid, io::Liveness liveness) {
    const std::lock_guard lock(mutex_);
    states_[pid] = liveness;
  }
  io::ProcessIdentity Self() override { return {}; }
  io::Liveness StateOf(const io::ProcessIdentity& process) override {
    const std::lock_guard lock(mutex_);
    const auto found = states_.find(process.pid);
    return found == states_.end() ? io::Liveness::kUnknown : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, io::Liveness> states_;
};

::testing::AssertionResult IsOk(const Status& status);
template <typename T>
::testing::AssertionResult IsOk(const Result<T>& result) {
  return IsOk(result.status());
}

std::set<std::string> NamesIn(const path& directory);
void WriteText(const path& file, std::string_view text);
std::string ReadText(const path& file);
/// Set a file's age by its own clock.
void MakeOld(const path& file);

Owner MakeOwner(std::string run, int64_t pid, uint32_t rank = 0, std::string nonce = "");
Attempt MakeAttempt(std::string run, int64_t pid, std::string save_id);

/// Bytes of a manifest of one rank with this save id.
std::vector<std::byte> ManifestBytes(std::string_view save_id, int64_t committed_at = 1);
/// "1a1a…", 32 digits of one byte.
std::string IdOf(int byte);

}  // namespace flagstone::store
