// SPDX-License-Identifier: Apache-2.0
#include "save/publication.h"

#include <utility>

#include "base/text.h"
#include "format/header.h"
#include "store/names.h"
#include "store/participants.h"

namespace flagstone::save {

using base::Join;
using base::Quote;

int64_t CommitTime(io::FileSystem& fs, const std::filesystem::path& directory) {
  int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count();
  const auto later_than = [&](const std::filesystem::path& checkpoint) {
    const auto manifest = store::ReadManifest(fs, checkpoint);
    if (manifest.ok() && manifest->committed_at >= now) now = manifest->committed_at + 1;
  };
  later_than(directory);
  const std::filesystem::path root = store::RootOf(directory);
  const auto latest = store::ReadLatest(fs, root);
  if (latest.ok() && *latest) later_than(root / (*latest)->name);
  return now;
}

Publication Withdraw(store::TemporaryManifest& temporary, Status why) {
  const auto withdrawn = temporary.Withdraw();
  if (!withdrawn.ok()) why = why.Annotated(withdrawn.status().message());
  return {Decision::kNotCommitted, std::move(why)};
}

Publication Publish(store::TemporaryManifest& temporary, std::span<const std::byte> manifest,
                    bool overwrite) {
  if (Status written = temporary.WriteManifest(manifest); !written.ok())
    return Withdraw(temporary, std::move(written));
  const auto committed = temporary.Commit(overwrite);
  if (committed.ok()) {
    return {*committed == store::CommitResult::kCommitted ? Decision::kCommitted
                                                          : Decision::kDurabilityUnknown,
            Status()};
  }
  // The name may have been moved all the same: the fence finds out, and its sync makes that
  // durable.
  const auto published = temporary.Withdraw();
  if (!published.ok()) {
    return {Decision::kUndecided, committed.status().Annotated(Join(
                                      "whether the save was committed could not be found out (",
                                      published.status().message(), ")"))};
  }
  if (*published) return {Decision::kCommitted, Status()};
  return {Decision::kNotCommitted, committed.status()};
}

Status DurabilityUnknown(const std::filesystem::path& directory) {
  return Status(StatusCode::kIoError,
                Join("checkpoint ", Quote(directory.string()),
                     " is committed, durability unknown: its directory could not be synced after "
                     "the name was moved; check the storage, then verify the checkpoint"),
                {directory.string(), "", std::nullopt});
}

std::vector<std::string> AfterCommit(const SaveEnvironment& environment,
                                     const CommittedSave& save) {
  std::vector<std::string> warnings;
  io::FileSystem& fs = *environment.fs;
  if (save.update_latest) {
    const Status moved = store::MoveLatest(fs, store::RootOf(save.directory),
                                           save.directory.filename().string(), save.committed_at);
    if (!moved.ok()) warnings.push_back(Join("'latest' was not moved: ", moved.message()));
  }
  // The replaced manifest's files are debris now like any other.
  const auto info = fs.Stat(save.directory / format::kManifestName);
  for (std::string& trouble :
       store::RemoveDebris(fs, *environment.processes, save.directory, save.timeout,
                           info.ok() ? info->modified_ns : 0)) {
    warnings.push_back(std::move(trouble));
  }
  return warnings;
}

}  // namespace flagstone::save
