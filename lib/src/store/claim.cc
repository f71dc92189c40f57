// SPDX-License-Identifier: Apache-2.0
#include "store/claim.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/text.h"
#include "format/header.h"
#include "store/names.h"

namespace flagstone::store {
namespace {

using base::Join;
using base::Quote;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(5);
constexpr auto kLongestBeat = std::chrono::seconds(1);

// A save id whose eight digits no file in the directory has: rank files of two saves must not share
// a name.
Result<std::string> DrawSaveId(io::FileSystem& fs, const path& directory) {
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(directory));
  for (;;) {
    std::string id = io::RandomHex(16);
    const auto digits = IdDigits(id);
    const bool used = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.find(digits) != std::string::npos;
    });
    if (!used) return id;
  }
}

// Decides about the other attempts in the directory, look after look.
class Rivals {
 public:
  Rivals(io::FileSystem& fs, io::ProcessTable& processes, const path& directory,
         const Timing& timing, const Attempt& mine)
      : fs_(fs), processes_(processes), directory_(directory), timing_(timing), mine_(mine) {}

  /// True when nobody else is there; false to look again later. kAlreadyExists when this attempt
  /// must withdraw.
  Result<bool> Look() {
    FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<SeenAttempt> attempts,
                               SeeAttempts(fs_, processes_, directory_));
    const auto own = std::find_if(attempts.begin(), attempts.end(), [&](const auto& attempt) {
      return attempt.save_id == mine_.save_id;
    });
    if (own == attempts.end()) {
      return Status(StatusCode::kCancelled,
                    Join("save ", mine_.save_id, " of ", Quote(directory_.string()),
                         " was given up by another participant while it claimed the name"),
                    {directory_.string(), "", std::nullopt});
    }
    const int64_t now_ns = own->modified_ns;  // own record just beat
    bool alone = true;
    for (const SeenAttempt& other : attempts) {
      if (other.save_id == mine_.save_id) continue;
      const io::Liveness liveness = Judge(other, now_ns);
      if (liveness == io::Liveness::kDead) {
        FLAGSTONE_RETURN_IF_ERROR(RemoveAttempt(fs_, directory_, other.save_id));
        continue;
      }
      alone = false;
      // One that claims too, with the greater nonce, will withdraw; of one that cannot be told to
      // live it is watched whether it does. Neither for ever: a rival may be stopped.
      const bool claims = other.record && other.record->state == AttemptState::kClaimed;
      const bool yields = claims && mine_.owner.nonce < other.record->owner.nonce;
      if (liveness == io::Liveness::kUnknown || yields) {
        if (Clock::now() - began_ < timing_.claim_patience()) continue;
        return Status(
            StatusCode::kAlreadyExists,
            Join("checkpoint ", Quote(directory_.string()), " may still be being saved by ",
                 other.record ? Describe(other.record->owner) : std::string("another process"),
                 "; whether it lives and goes on could not be told within ",
                 timing_.claim_patience().count(), " ms"),
            {directory_.string(), "", std::nullopt});
      }
      return Status(
          StatusCode::kAlreadyExists,
          Join("checkpoint ", Quote(directory_.string()), " is being saved by ",
               other.record ? Describe(other.record->owner) : std::string("another process")),
          {directory_.string(), "", std::nullopt});
    }
    return alone;
  }

 private:
  struct Watched {
    std::optional<Attempt> record;
    Clock::time_point since;
  };

  // Where the process table cannot tell, time does: a record that changes is alive, one that stands
  // still for its owner's own limit is dead, whether it did so before or while it is watched.
  io::Liveness Judge(const SeenAttempt& other, int64_t now_ns) {
    // Committed by a link, its temporary name not yet removed: no attempt any more.
    const auto published = PublishedSaveId(fs_, directory_);
    if (published.ok() && *published == other.save_id) return io::Liveness::kDead;
    if (other.liveness != io::Liveness::kUnknown) return other.liveness;
    const auto limit =
        other.record ? std::chrono::milliseconds(other.record->owner.timeout_ms) : timing_.timeout;
    if (other.modified_ns != 0 && std::chrono::nanoseconds(now_ns - other.modified_ns) > limit)
      return io::Liveness::kDead;
    const auto now = Clock::now();
    const auto [at, is_new] = watched_.try_emplace(other.save_id, Watched{other.record, now});
    if (is_new) return io::Liveness::kUnknown;
    if (at->second.record != other.record) {
      at->second = {other.record, now};
      return other.record ? io::Liveness::kAlive : io::Liveness::kUnknown;
    }
    return now - at->second.since > limit ? io::Liveness::kDead : io::Liveness::kUnknown;
  }

  io::FileSystem& fs_;
  io::ProcessTable& processes_;
  const path& directory_;
  const Timing& timing_;
  const Attempt& mine_;
  const Clock::time_point began_ = Clock::now();
  std::map<std::string, Watched> watched_;
};

// Look until nobody else is there. The own record beats meanwhile: a rival on another machine that
// watches it must not take it for dead.
Status WaitAlone(Rivals& rivals, TemporaryManifest& manifest, Attempt& attempt,
                 const Timing& timing, const std::stop_token& stop) {
  const auto beat_interval =
      std::min<std::chrono::milliseconds>(timing.beat_interval(), kLongestBeat);
  auto last_beat = Clock::now();
  for (;;) {
    if (const auto now = Clock::now(); now - last_beat > beat_interval) {
      last_beat = now;
      ++attempt.owner.beat;
      FLAGSTONE_RETURN_IF_ERROR(manifest.WriteRecord(EncodeAttempt(attempt)));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(const bool alone, rivals.Look());
    if (alone) return {};
    if (stop.stop_requested()) {
      return Status(StatusCode::kCancelled,
                    "the save was stopped on request while it claimed its name");
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Status CheckFree(io::FileSystem& fs, const path& directory) {
  const auto info = fs.Stat(directory / format::kManifestName);
  if (info.status().code() == StatusCode::kNotFound) return {};
  FLAGSTONE_RETURN_IF_ERROR(info.status());
  return Status(StatusCode::kAlreadyExists,
                Join("checkpoint ", Quote(directory.string()),
                     " exists and overwriting it was not asked for; save under another name, or "
                     "remove it first"),
                {directory.string(), "", std::nullopt});
}

Result<std::unique_ptr<TemporaryManifest>> Claim(io::FileSystem& fs, io::ProcessTable& processes,
                                                 const path& directory, bool overwrite,
                                                 const Timing& timing, const std::stop_token& stop,
                                                 Attempt& attempt) {
  if (!overwrite) FLAGSTONE_RETURN_IF_ERROR(CheckFree(fs, directory));
  FLAGSTONE_ASSIGN_OR_RETURN(attempt.save_id, DrawSaveId(fs, directory));
  attempt.state = AttemptState::kClaimed;
  FLAGSTONE_ASSIGN_OR_RETURN(
      auto manifest,
      TemporaryManifest::Create(fs, directory, attempt.save_id, EncodeAttempt(attempt)));
  Rivals rivals(fs, processes, directory, timing, attempt);
  Status status = WaitAlone(rivals, *manifest, attempt, timing, stop);
  // A rival may have committed after the first look and been gone at the second.
  if (status.ok() && !overwrite) status = CheckFree(fs, directory);
  if (status.ok()) {
    attempt.state = AttemptState::kActive;
    status = manifest->WriteRecord(EncodeAttempt(attempt));
  }
  if (!status.ok()) {
    const auto withdrawn = manifest->Withdraw();
    return withdrawn.ok() ? status : status.Annotated(withdrawn.status().message());
  }
  return manifest;
}

}  // namespace flagstone::store
