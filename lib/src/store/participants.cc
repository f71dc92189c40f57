// SPDX-License-Identifier: Apache-2.0
#include "store/participants.h"

#include <set>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "store/file_coordinator.h"
#include "store/names.h"
#include "store/publish.h"

namespace flagstone::store {
namespace {

using base::Join;
using base::Quote;

// The framed value at the front of a file that may be much longer.
std::optional<std::string> ReadFramed(io::FileSystem& fs, const path& name, uint64_t limit) {
  auto file = fs.Open(name, {io::OpenOptions::Mode::kRead, false});
  if (!file.ok()) return std::nullopt;
  std::string framed(kFrameBytes, '\0');
  if (!io::ReadFully(**file, 0, std::as_writable_bytes(std::span(framed))).ok())
    return std::nullopt;
  const uint64_t length = FramedLength(framed);
  if (length > limit) return std::nullopt;
  framed.resize(kFrameBytes + length);
  if (!io::ReadFully(**file, 0, std::as_writable_bytes(std::span(framed))).ok())
    return std::nullopt;
  return UnframeValue(framed);
}

bool LaysStill(io::FileSystem& fs, const path& file, std::chrono::milliseconds idle,
               int64_t now_ns) {
  if (now_ns == 0) return false;
  const auto info = fs.Stat(file);
  return info.ok() && now_ns - info->modified_ns >
                          std::chrono::duration_cast<std::chrono::nanoseconds>(idle).count();
}

// The record of the attempt whose temporary manifest is `name`. Once the manifest's bytes have
// taken the record's place, the board entry of a file-system coordinator still tells whose it is.
std::optional<Attempt> AttemptOf(io::FileSystem& fs, const path& directory, const std::string& name,
                                 const std::string& save_id,
                                 const std::vector<std::string>& names) {
  if (const auto record = ReadRecord(fs, directory / name)) {
    if (auto attempt = DecodeAttempt(*record)) return attempt;
  }
  for (const std::string& key : names) {
    if (ParseName(key).kind != NameKind::kKey || !key.ends_with(kAttemptKeySuffix)) continue;
    const auto record = ReadRecord(fs, directory / key);
    auto attempt = record ? DecodeAttempt(*record) : std::nullopt;
    if (attempt && attempt->save_id == save_id) return attempt;
  }
  return std::nullopt;
}

class DebrisFinder {
 public:
  DebrisFinder(io::FileSystem& fs, io::ProcessTable& processes, const path& directory,
               std::chrono::milliseconds idle, int64_t now_ns)
      : fs_(fs), processes_(processes), directory_(directory), idle_(idle), now_ns_(now_ns) {}

  // The order matters: names first, then what is published. A save that commits in between has its
  // manifest by the time it is read, so its rank files are never taken for debris.
  Result<std::vector<Debris>> Find() {
    FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(directory_));
    FLAGSTONE_ASSIGN_OR_RETURN(const auto published, PublishedSaveId(fs_, directory_));
    std::set<std::string, std::less<>> kept_ids;
    if (published) kept_ids.emplace(IdDigits(*published));
    for (const std::string& name : names) {
      const ParsedName parsed = ParseName(name);
      if (parsed.kind != NameKind::kTemporaryManifest) continue;
      const auto attempt = AttemptOf(fs_, directory_, name, parsed.id, names);
      if (IsDead(name, attempt ? std::optional(attempt->owner) : std::nullopt)) {
        debris_.push_back({name, parsed.id});
      } else {
        kept_ids.emplace(IdDigits(parsed.id));
      }
    }
    for (const std::string& name : names) {
      const ParsedName parsed = ParseName(name);
      const bool dead = (parsed.kind == NameKind::kRankFile && !kept_ids.contains(parsed.id)) ||
                        ((parsed.kind == NameKind::kPrivate || parsed.kind == NameKind::kKey) &&
                         IsDead(name, OwnerOf(name)));
      if (dead) debris_.push_back({name, ""});
    }
    return std::move(debris_);
  }

 private:
  std::optional<Owner> OwnerOf(const std::string& name) {
    const auto record = ReadRecord(fs_, directory_ / name);
    return record ? DecodeOwner(*record) : std::nullopt;
  }

  bool IsDead(const std::string& name, const std::optional<Owner>& owner) {
    if (!owner) return LaysStill(fs_, directory_ / name, idle_, now_ns_);
    const io::Liveness liveness = processes_.StateOf(owner->process);
    if (liveness != io::Liveness::kUnknown) return liveness == io::Liveness::kDead;
    return LaysStill(fs_, directory_ / name,
                     std::max(idle_, std::chrono::milliseconds(owner->timeout_ms)), now_ns_);
  }

  io::FileSystem& fs_;
  io::ProcessTable& processes_;
  const path& directory_;
  const std::chrono::milliseconds idle_;
  const int64_t now_ns_;
  std::vector<Debris> debris_;
};

}  // namespace

std::optional<std::string> ReadRecord(io::FileSystem& fs, const path& file) {
  return ReadFramed(fs, file, kMaxValueBytes);
}

Result<std::vector<SeenAttempt>> SeeAttempts(io::FileSystem& fs, io::ProcessTable& processes,
                                             const path& directory) {
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs.List(directory));
  std::vector<SeenAttempt> seen;
  for (const std::string& name : names) {
    const ParsedName parsed = ParseName(name);
    if (parsed.kind != NameKind::kTemporaryManifest) continue;
    SeenAttempt attempt;
    attempt.save_id = parsed.id;
    attempt.record = AttemptOf(fs, directory, name, parsed.id, names);
    if (attempt.record) attempt.liveness = processes.StateOf(attempt.record->owner.process);
    seen.push_back(std::move(attempt));
  }
  return seen;
}

Result<std::vector<Debris>> FindDebris(io::FileSystem& fs, io::ProcessTable& processes,
                                       const path& directory, std::chrono::milliseconds idle,
                                       int64_t now_ns) {
  return DebrisFinder(fs, processes, directory, idle, now_ns).Find();
}

std::vector<std::string> RemoveDebris(io::FileSystem& fs, io::ProcessTable& processes,
                                      const path& directory, std::chrono::milliseconds idle,
                                      int64_t now_ns) {
  std::vector<std::string> troubles;
  // Twice: fencing a dead attempt may find that it had committed after all, which changes what is
  // debris.
  for (const bool fencing : {true, false}) {
    const auto debris = FindDebris(fs, processes, directory, idle, now_ns);
    if (!debris.ok()) {
      troubles.push_back(Join("looking for debris in ", Quote(directory.string()), ": ",
                              debris.status().message()));
      return troubles;
    }
    for (const Debris& item : *debris) {
      if (item.fence_save_id.empty() == fencing) continue;
      Status status;
      if (fencing) {
        status = Fence(fs, directory, item.fence_save_id).status();
      } else {
        status = fs.Unlink(directory / item.name);
        if (status.code() == StatusCode::kNotFound)
          status = Status();  // another save removed it first
      }
      if (!status.ok())
        troubles.push_back(Join("removing debris ", Quote(item.name), ": ", status.message()));
    }
  }
  return troubles;
}

}  // namespace flagstone::store
