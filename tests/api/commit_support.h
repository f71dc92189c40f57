// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Saves by real processes: one forked child a rank, that can be held at a byte of its data,
/// stopped and killed. Public API alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/flagstone.h"

namespace flagstone::testing {

using std::filesystem::path;

/// How long a test waits for what must come. Far beyond what it takes, so that a busy machine fails
/// no test.
inline constexpr auto kLongWait = std::chrono::seconds(60);

/// A new directory below $TMPDIR that goes with everything in it.
class CommitDirectory {
 public:
  CommitDirectory();
  CommitDirectory(const CommitDirectory&) = delete;
  CommitDirectory& operator=(const CommitDirectory&) = delete;
  ~CommitDirectory();
  const path& root() const { return root_; }
  path operator/(std::string_view name) const { return root_ / name; }

 private:
  path root_;
};

std::string Numbered(std::string prefix, uint64_t number);
/// Names in a directory, sorted; empty when there is none.
std::vector<std::string> NamesIn(const path& directory);
/// The whole of a file, or "" when it is not there.
std::string ContentOf(const path& file);

/// Wait until `ready`; false, and a failure of the test, when it does not come. `what` names it.
bool WaitFor(const std::function<bool()>& ready, std::string_view what);
/// Wait until a board entry in the checkpoint's directory whose name contains `name` contains
/// `text`.
bool WaitForEntry(const path& checkpoint, std::string_view name, std::string_view text);

/// A door between processes: Pass waits until it is opened. Made before the fork.
class Gate {
 public:
  Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();
  void Pass() const;
  void Open() const;

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

/// Elements of a tensor: value i of seed s is a function of both. `at` is called before each read
/// with the bytes read so far.
class PatternSource final : public Source {
 public:
  PatternSource(uint64_t seed, uint64_t first, uint64_t count,
                std::function<void(uint64_t)> at = nullptr)
      : seed_(seed), first_(first), count_(count), at_(std::move(at)) {}
  uint64_t size_bytes() const override { return count_ * sizeof(float); }
  Status Read(uint64_t offset, std::span<std::byte> out) override;

 private:
  const uint64_t seed_;
  const uint64_t first_;
  const uint64_t count_;
  const std::function<void(uint64_t)> at_;
};

/// One flat partition "p" with role "fp32" of tensor "t" over all ranks.
Layout OneTensor(uint32_t world, uint64_t elements);

/// What one rank saves, and how.
struct RankSave {
  path checkpoint;
  uint32_t rank = 0;
  uint32_t world = 1;
  uint64_t elements = 100'000;
  uint64_t seed = 1;
  SaveOptions options = {};
  std::function<void(uint64_t)> at = nullptr;  ///< As PatternSource's.
  std::optional<Layout> layout = {};           ///< Instead of OneTensor.
};
/// Options with a run and a short limit.
SaveOptions OptionsOf(std::string run, bool overwrite = false,
                      std::chrono::milliseconds timeout = std::chrono::seconds(3));
Result<SaveReport> SaveRank(const RankSave& save);

/// How a rank's process ended.
struct RankResult {
  int signal = 0;  ///< That ended it; 0: none, and what follows counts.
  StatusCode code = StatusCode::kOk;
  std::string message;
  std::string save_id;
  std::vector<std::string> warnings;
  bool ok() const { return signal == 0 && code == StatusCode::kOk; }
};
std::ostream& operator<<(std::ostream& out, const RankResult& result);

/// A child process that runs `body` and ends. Killed and reaped when this is destroyed.
class RankProcess {
 public:
  explicit RankProcess(const std::function<Result<SaveReport>()>& body);
  explicit RankProcess(const RankSave& save) : RankProcess([&save] { return SaveRank(save); }) {}
  RankProcess(RankProcess&& other) noexcept;
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  RankProcess& operator=(RankProcess&&) = delete;
  ~RankProcess();

  pid_t pid() const { return pid_; }
  void Send(int signal) const;
  /// Wait until it has stopped (SIGSTOP).
  void WaitStopped() const;
  /// Wait for its end; one that does not end in kLongWait is killed and the test fails.
  RankResult Wait();

 private:
  pid_t pid_ = -1;
  int results_ = -1;
  std::optional<RankResult> result_;
};

/// Start all ranks of a save; `each` may change what a rank does.
std::vector<RankProcess> StartAll(
    const RankSave& common, const std::function<void(RankSave&)>& each = [](RankSave&) {});
std::vector<RankResult> WaitAll(std::vector<RankProcess>& ranks);
/// All of it, and it must succeed.
void SaveWell(const RankSave& common);

/// The checkpoint opens, verifies, and every rank's slices are those of `seed`. Gives the save id.
std::string ExpectHolds(const RankSave& saved);
/// The seed of a checkpoint whose every byte is of one seed among `seeds`; a failure and 0 else.
uint64_t SeedOf(const RankSave& saved, const std::vector<uint64_t>& seeds);
/// Only rank files of the manifest and the manifest lie in the directory.
void ExpectClean(const path& checkpoint, uint32_t world);

/// True where the test may do what root may; else why not is printed.
bool IsRoot();

}  // namespace flagstone::testing
