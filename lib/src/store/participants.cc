// SPDX-License-Identifier: Apache-2.0
#include "store/participants.h"

#include <algorithm>
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

// The record of an attempt: in its temporary manifest, and once the manifest's bytes have taken its
// place there, in the owner file.
std::optional<Attempt> AttemptOf(io::FileSystem& fs, const path& directory,
                                 std::string_view save_id) {
  for (const std::string& name : {TemporaryManifestName(save_id), OwnerFileName(save_id)}) {
    const auto record = ReadRecord(fs, directory / name);
    auto attempt = record ? DecodeAttempt(*record) : std::nullopt;
    if (attempt) return attempt;
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
    if (published) kept_ids_.emplace(IdDigits(*published));
    for (const std::string& name : names) {
      const ParsedName parsed = ParseName(name);
      if (parsed.kind != NameKind::kTemporaryManifest) continue;
      const auto attempt = AttemptOf(fs_, directory_, parsed.id);
      // What is published under a second name is no attempt any more.
      // Its records go to the owner file once the manifest is written.
      const auto owner = attempt ? std::optional(attempt->owner) : std::nullopt;
      if (published == parsed.id ||
          (IsDead(name, owner) && !Beats(OwnerFileName(parsed.id), owner))) {
        debris_.push_back({name, parsed.id});
        continue;
      }
      kept_ids_.emplace(IdDigits(parsed.id));
      if (attempt) live_attempts_.push_back(*attempt);
    }
    for (const std::string& name : names) {
      if (IsDebris(name, ParseName(name))) debris_.push_back({name, ""});
    }
    return std::move(debris_);
  }

 private:
  bool IsDebris(const std::string& name, const ParsedName& parsed) {
    switch (parsed.kind) {
      case NameKind::kRankFile:
        return !kept_ids_.contains(parsed.id);
      case NameKind::kKey:
        return IsDead(name, OwnerOf(name));
      case NameKind::kPrivate: {
        const auto owner = OwnerOf(name);
        return !(owner && IsWaitedFor(*owner)) && IsDead(name, owner);
      }
      case NameKind::kForeign:
      case NameKind::kManifest:
      case NameKind::kTemporaryManifest:
      case NameKind::kTemporaryLatest:
        break;
    }
    return false;
  }

  // A live attempt lists this rank, or may still do so: a rank that waits for the list changes no
  // file, so that its file's age says nothing.
  bool IsWaitedFor(const Owner& owner) const {
    return std::any_of(live_attempts_.begin(), live_attempts_.end(), [&](const Attempt& attempt) {
      if (attempt.owner.party != owner.party) return false;
      const auto& accepted = attempt.accepted;
      return std::find(accepted.begin(), accepted.end(), owner.nonce) != accepted.end() ||
             processes_.StateOf(owner.process) != io::Liveness::kDead;
    });
  }

  std::optional<Owner> OwnerOf(const std::string& name) {
    const auto record = ReadRecord(fs_, directory_ / name);
    return record ? DecodeOwner(*record) : std::nullopt;
  }

  // Whether a file is there that changes, of an owner of whom nothing better is known.
  bool Beats(const std::string& name, const std::optional<Owner>& owner) {
    return owner && processes_.StateOf(owner->process) == io::Liveness::kUnknown &&
           fs_.Stat(directory_ / name).ok() && !IsDead(name, owner);
  }

  bool IsDead(const std::string& name, const std::optional<Owner>& owner) {
    if (!owner) return LaysStill(fs_, directory_ / name, idle_, now_ns_);
    const io::Liveness liveness = processes_.StateOf(owner->process);
    if (liveness != io::Liveness::kUnknown) return liveness == io::Liveness::kDead;
    // As long as it may wait for a coordinator that does not come.
    const Timing timing{std::chrono::milliseconds(owner->timeout_ms), {}};
    return LaysStill(fs_, directory_ / name, std::max(idle_, timing.coordinator_patience()),
                     now_ns_);
  }

  io::FileSystem& fs_;
  io::ProcessTable& processes_;
  const path& directory_;
  const std::chrono::milliseconds idle_;
  const int64_t now_ns_;
  std::set<std::string, std::less<>> kept_ids_;  // digits of what is published or being saved
  std::vector<Attempt> live_attempts_;
  std::vector<Debris> debris_;
};

// The temporary files of `latest` have no room for an owner. One of this name is of an earlier save
// of it, over now; one of another name lives for a moment only.
void RemoveLatestDebris(io::FileSystem& fs, const path& directory, std::chrono::milliseconds idle,
                        int64_t now_ns, std::vector<std::string>& troubles) {
  const path root = RootOf(directory);
  const auto names = fs.List(root);
  if (!names.ok()) return;  // whoever moves `latest` there has said so
  const std::string own = TemporaryLatestName(directory.filename().string(), "");
  for (const std::string& name : *names) {
    if (ParseName(name).kind != NameKind::kTemporaryLatest) continue;
    if (!name.starts_with(own) && !LaysStill(fs, root / name, idle, now_ns)) continue;
    const Status status = fs.Unlink(root / name);
    if (!status.ok() && status.code() != StatusCode::kNotFound)
      troubles.push_back(Join("removing debris ", Quote(name), ": ", status.message()));
  }
}

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
    attempt.record = AttemptOf(fs, directory, parsed.id);
    if (attempt.record) attempt.liveness = processes.StateOf(attempt.record->owner.process);
    for (const std::string& file : {name, OwnerFileName(parsed.id)}) {
      const auto info = fs.Stat(directory / file);
      if (info.ok()) attempt.modified_ns = std::max(attempt.modified_ns, info->modified_ns);
    }
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
  // Called after a success, so there is a manifest; a file server that does not show it may not be
  // believed about what it does show.
  const auto published = PublishedSaveId(fs, directory);
  if (!published.ok() || !*published) {
    troubles.push_back(Join("debris in ", Quote(directory.string()),
                            " was left alone: the manifest that was published is not there",
                            published.ok() ? "" : Join(" (", published.status().message(), ")")));
    return troubles;
  }
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
  RemoveLatestDebris(fs, directory, idle, now_ns, troubles);
  return troubles;
}

}  // namespace flagstone::store
