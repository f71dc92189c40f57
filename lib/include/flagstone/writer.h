// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Saving: each rank describes the same layout, hands over its own bytes, and commits.

#include <chrono>
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
#include "flagstone/coordinator.h"
#include "flagstone/export.h"
#include "flagstone/memory.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"

namespace flagstone {

namespace save {
class WriterFactory;  // private: makes Writers over a test's file system
}

struct SaveOptions {
  /// Who belongs together: equal on all ranks of one job and unlike that of any other, restarts
  /// included. Empty: the launcher's job id and restart count from the environment (spec/commit.md
  /// lists them). A world of more than one rank that coordinates over the file system refuses to
  /// save without one.
  std::string run;
  std::optional<int64_t> step;  ///< Training step, kept in the manifest.
  bool overwrite =
      false;  ///< Replace a checkpoint of that name; readers see the old or the new one.
  bool update_latest = true;  ///< Move ROOT/latest to this checkpoint after the commit.
  /// Longest time without progress of any one rank before the save is given up with an error that
  /// names it.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Longest time that one sync of a file or directory may take and still count as progress.
  std::chrono::milliseconds sync_timeout = std::chrono::minutes(10);
  /// The board of the handshake; null: files in the checkpoint's own directory.
  std::shared_ptr<Coordinator> coordinator = {};
  Backend backend = Backend::kAuto;             ///< kMmap cannot write.
  uint64_t staging_bytes = uint64_t{64} << 20;  ///< Upper bound of the writer's buffers.
  uint32_t queue_depth = 0;  ///< Writes in flight, at most kMaxQueueDepth; 0: chosen.
  /// Called now and then from the thread in Commit with bytes written so far and in total.
  std::function<void(uint64_t, uint64_t)> progress = {};
  /// Asked to stop before the commit point, Commit gives up with kCancelled on all ranks and leaves
  /// nothing behind.
  std::stop_token stop = {};
};

struct SaveReport {
  std::string save_id;       ///< 32 hexadecimal digits.
  int64_t committed_at = 0;  ///< Nanoseconds since 1970, as in the manifest.
  uint64_t file_bytes = 0;   ///< Length of this rank's file.
  double seconds = 0;
  std::string backend;
  std::string backend_reason;
  uint64_t peak_staging_bytes = 0;
  /// What went wrong after the commit point (moving `latest`, removing what was replaced). The save
  /// stands.
  std::vector<std::string> warnings;
};

/// Writes one rank's part of one checkpoint.
///
/// Every rank makes a Writer with its own rank number, gives the bytes of its slices, and calls
/// Commit at its own pace; no call before Commit waits for another rank. Thread-compatible.
/// Destroyed without Commit it leaves nothing behind.
class FLAGSTONE_EXPORT Writer {
 public:
  /// `path` is the checkpoint: ROOT/NAME. Nothing is written yet. Ranks may declare different
  /// tensors and partitions (pipeline stages, experts); what two ranks declare under one name must
  /// be equal. Errors: kInvalidArgument (the layout, the rank, or no run identity; names it),
  /// kAlreadyExists.
  static Result<Writer> Create(const std::filesystem::path& path, Layout layout, uint32_t rank,
                               SaveOptions options = {});

  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

  /// What this rank holds of a role, as RankReader::segments() describes it and Load fills it: its
  /// slices in order, packed; in whole and replicated partitions each member on 64 bytes, and what
  /// lies between is ignored. Of a replicated partition every rank may give all and stores its
  /// share. `source` is borrowed until Commit returns. Errors: kNotFound (nearest names are
  /// listed), kInvalidArgument (a size that differs: both are shown).
  Status Add(std::string_view partition, std::string_view role, Source& source);
  Status Add(std::string_view partition, std::string_view role, std::span<const std::byte> bytes);

  /// This rank's slice of one member tensor (all slices of it in order, packed). Either every slice
  /// of a segment is given or the segment as a whole.
  Status AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                   Source& source);
  Status AddTensor(std::string_view partition, std::string_view role, std::string_view tensor,
                   std::span<const std::byte> bytes);

  /// The value of a plain role of a tensor of which this rank owns a part. Copied.
  Status AddPlain(std::string_view partition, std::string_view role, std::string_view tensor,
                  Value value);

  /// This rank's own state (RNG, data-loader position): kept per rank, readable by any. Copied.
  Status SetRankState(Value state);
  /// The job's state (epoch, scheduler). Rank 0 gives it; another rank's must be absent or equal.
  /// Copied.
  Status SetClientState(Value state);

  /// Write, agree with the other ranks, and publish: afterwards the checkpoint exists whole, or the
  /// old one still does. To be called once. Errors before the commit point leave nothing of this
  /// save behind; kIoError "committed, durability unknown" says that the name was moved but the
  /// directory could not be synced.
  Result<SaveReport> Commit();

 private:
  friend class save::WriterFactory;
  class Impl;
  explicit Writer(std::unique_ptr<Impl> impl);
  Status CheckUsable() const;

  std::unique_ptr<Impl> impl_;
};

}  // namespace flagstone
