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
#include "store/names.h"

namespace flagstone::store {
namespace {

using base::Join;
using base::Quote;
using Clock = std::chrono::steady_clock;

constexpr auto kPause = std::chrono::milliseconds(5);

Status Taken(const path& directory) {
  return Status(StatusCode::kAlreadyExists,
                Join("checkpoint ", Quote(directory.string()),
                     " exists; save under another name or ask for overwrite"),
                {directory.string(), "", std::nullopt});
}

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
    bool alone = true;
    for (const SeenAttempt& other : attempts) {
      if (other.save_id == mine_.save_id) continue;
      const io::Liveness liveness = Judge(other);
      if (liveness == io::Liveness::kDead) {
        FLAGSTONE_RETURN_IF_ERROR(Fence(fs_, directory_, other.save_id).status());
        continue;
      }
      alone = false;
      if (liveness == io::Liveness::kUnknown) continue;  // watched
      const bool claims = other.record && other.record->state == AttemptState::kClaimed;
      if (claims && mine_.owner.nonce < other.record->owner.nonce) continue;  // it will withdraw
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
  // still for its owner's own limit is dead.
  io::Liveness Judge(const SeenAttempt& other) {
    if (other.liveness != io::Liveness::kUnknown) return other.liveness;
    const auto now = Clock::now();
    const auto [at, is_new] = watched_.try_emplace(other.save_id, Watched{other.record, now});
    if (is_new) return io::Liveness::kUnknown;
    if (at->second.record != other.record) {
      at->second = {other.record, now};
      return other.record ? io::Liveness::kAlive : io::Liveness::kUnknown;
    }
    const auto limit =
        other.record ? std::chrono::milliseconds(other.record->owner.timeout_ms) : timing_.timeout;
    return now - at->second.since > limit ? io::Liveness::kDead : io::Liveness::kUnknown;
  }

  io::FileSystem& fs_;
  io::ProcessTable& processes_;
  const path& directory_;
  const Timing& timing_;
  const Attempt& mine_;
  std::map<std::string, Watched> watched_;
};

Status WaitAlone(Rivals& rivals, const std::stop_token& stop) {
  for (;;) {
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

Result<std::unique_ptr<TemporaryManifest>> Claim(io::FileSystem& fs, io::ProcessTable& processes,
                                                 const path& directory, bool overwrite,
                                                 const Timing& timing, const std::stop_token& stop,
                                                 Attempt& attempt) {
  if (!overwrite) {
    const auto published = PublishedSaveId(fs, directory);
    // A damaged manifest is somebody's checkpoint too.
    if (published.ok() ? published->has_value()
                       : published.status().code() == StatusCode::kCorruption) {
      return Taken(directory);
    }
    FLAGSTONE_RETURN_IF_ERROR(published.status());
  }
  FLAGSTONE_ASSIGN_OR_RETURN(attempt.save_id, DrawSaveId(fs, directory));
  attempt.state = AttemptState::kClaimed;
  FLAGSTONE_ASSIGN_OR_RETURN(
      auto manifest,
      TemporaryManifest::Create(fs, directory, attempt.save_id, EncodeAttempt(attempt)));
  Rivals rivals(fs, processes, directory, timing, attempt);
  Status status = WaitAlone(rivals, stop);
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
