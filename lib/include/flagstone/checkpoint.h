// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Loading: open a checkpoint, open one rank of it, and map or read that rank's own slices.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/backend.h"
#include "flagstone/export.h"
#include "flagstone/load.h"
#include "flagstone/memory.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"

namespace flagstone {

/// A published checkpoint: what its manifest says. Immutable, cheap to copy, thread-safe.
class FLAGSTONE_EXPORT Checkpoint {
 public:
  /// `path` is a checkpoint (ROOT/NAME), or a ROOT, whose `latest` is then followed. Reads and
  /// checks the manifest and touches no rank file. Errors: kNotFound; kInvalidArgument "not a
  /// checkpoint" (says what it looks like); kCorruption; kUnsupported (format version or required
  /// feature, by name).
  static Result<Checkpoint> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const;
  /// 32 hexadecimal digits, different for every save.
  const std::string& save_id() const;
  /// "major.minor" of the format.
  const std::string& format_version() const;
  const Layout& layout() const;
  uint32_t world_size() const;
  /// False for a manifest without rank files (WriteManifestOnly): it can be planned with, not
  /// loaded.
  bool has_data() const;
  std::optional<int64_t> step() const;
  /// Nanoseconds since 1970; later than that of the checkpoint which this one replaced.
  int64_t committed_at() const;
  /// Plain part and small arrays; arrays above 4 KiB are read from the coordinator's rank file at
  /// this call.
  Result<Value> client_state() const;

  struct RankFile {
    uint32_t rank = 0;
    std::string name;    ///< A file name in path().
    uint64_t bytes = 0;  ///< Its length.
  };
  std::vector<RankFile> rank_files() const;
  /// Bytes of the manifest file.
  uint64_t manifest_bytes() const;

  /// Open what `rank` saved. Checks header, index and length of that rank's file (and of those that
  /// hold replicated tensors when they are asked for) and reads no data. Errors: kNotFound (no such
  /// rank or file; "replaced by save X, open again"), kCorruption, kIoError.
  Result<RankReader> OpenRank(uint32_t rank, LoadOptions options = {}) const;
  /// Open what `rank` of another layout holds: of any world size, under any rules. Tensors are
  /// matched by name or alias, roles by name; `wanted` may leave out tensors and roles. Checks the
  /// files that hold something wanted, at most 16 of which are open at a time. Errors: those of
  /// ValidateLayout; kNotFound (a tensor or role that the checkpoint lacks, nearest names are
  /// listed); kInvalidArgument (a shape, dtype, form or block that differs: both shown); those of
  /// the other OpenRank.
  Result<RankReader> OpenRank(const Layout& wanted, uint32_t rank, LoadOptions options = {}) const;
  /// What OpenRank would read, from the manifest alone: no rank file is touched, so it also works on
  /// a manifest without data. Cost: O(members of the partitions in which the rank stands + slices
  /// wanted + slices met). Errors: those of OpenRank that are told from the manifest.
  Result<Plan> PlanRank(uint32_t rank, const LoadOptions& options = {}) const;
  Result<Plan> PlanRank(const Layout& wanted, uint32_t rank, const LoadOptions& options = {}) const;

  /// What `rank` gave to SetRankState when it saved, whoever asks; null if nothing. Opens that rank's
  /// file.
  Result<Value> rank_state(uint32_t rank) const;

  class Impl;
  explicit Checkpoint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// One problem that Verify found.
struct VerifyProblem {
  StatusCode code = StatusCode::kCorruption;
  std::string file;                ///< File name in the checkpoint's directory.
  std::string segment;             ///< "partition/role", or empty.
  std::optional<uint64_t> chunk;   ///< Index in the segment.
  std::optional<uint64_t> offset;  ///< In the file.
  std::optional<uint64_t> length;
  std::string what;
};

struct VerifyReport {
  uint64_t bytes = 0;  ///< Bytes read.
  std::vector<VerifyProblem> problems;
  bool ok() const { return problems.empty(); }
};

struct VerifyOptions {
  std::optional<uint32_t> rank;  ///< This rank's file and the manifest only.
  Backend backend = Backend::kAuto;
  /// Called now and then with bytes read so far and in total.
  std::function<void(uint64_t, uint64_t)> progress;
  std::stop_token stop;  ///< Asked to stop, Verify gives up with kCancelled.
};

/// Read every byte of a checkpoint and report every problem, not only the first. A path that holds
/// no checkpoint at all is an error; a damaged one is a report.
FLAGSTONE_EXPORT Result<VerifyReport> Verify(const std::filesystem::path& path,
                                             const VerifyOptions& options = {});

/// One checkpoint of a directory of checkpoints.
struct ListedCheckpoint {
  std::string name;
  std::string save_id;
  std::optional<int64_t> step;
  uint64_t bytes = 0;  ///< Manifest and rank files.
  int64_t committed_at = 0;
  bool latest = false;
  std::string problem;  ///< Empty, or why it cannot be opened or which named file is missing or of
                        ///< the wrong length.
};

struct Listing {
  std::vector<ListedCheckpoint> checkpoints;  ///< Oldest first.
  std::vector<std::string> debris;            ///< Paths below ROOT of files that a dead save left.
};

/// Open every manifest below `root` and stat the files it names.
FLAGSTONE_EXPORT Result<Listing> ListCheckpoints(const std::filesystem::path& root);

}  // namespace flagstone
