// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "flagstone/checkpoint.h"
#include "io/file_system.h"
#include "io/process.h"
#include "store/names.h"
#include "store/open.h"
#include "store/participants.h"
#include "store/publish.h"

namespace flagstone {
namespace {

using base::Join;
using base::Quote;
using std::filesystem::path;

// One manifest and the lengths of the files that it names.
ListedCheckpoint ListOne(io::FileSystem& fs, const path& directory) {
  ListedCheckpoint listed;
  listed.name = directory.filename().string();
  const auto file = store::ReadManifestFile(fs, directory);
  if (!file.ok()) {
    listed.problem = file.status().message();
    return listed;
  }
  const format::Manifest& manifest = file->manifest;
  listed.save_id = base::Hex(manifest.save_id);
  listed.step = manifest.step;
  listed.committed_at = manifest.committed_at;
  listed.bytes = file->bytes;
  if ((manifest.required_features & format::kFeatureNoData) != 0) return listed;
  for (const format::RankFileEntry& entry : manifest.files) {
    listed.bytes += entry.file_length;
    const path name = directory / store::RankFileNameOf(manifest, entry.rank);
    const auto info = fs.Stat(name);
    if (!listed.problem.empty()) continue;
    if (!info.ok()) {
      listed.problem = info.status().message();
    } else if (info->size != entry.file_length) {
      listed.problem =
          Join(Quote(name.string()), " has ", info->size, " bytes, needs ", entry.file_length);
    }
  }
  return listed;
}

}  // namespace

Result<Listing> ListCheckpoints(const path& root) {
  io::FileSystem& fs = io::PosixFileSystem();
  FLAGSTONE_ASSIGN_OR_RETURN(std::vector<std::string> names, fs.List(root));
  if (std::find(names.begin(), names.end(), format::kManifestName) != names.end()) {
    return Status(
        StatusCode::kInvalidArgument,
        Join(Quote(root.string()), " is a checkpoint; list takes the directory that it lies in, ",
             Quote(store::RootOf(root).string())),
        {root.string(), "", std::nullopt});
  }
  std::sort(names.begin(), names.end());
  Listing listing;
  for (const std::string& name : names) {
    if (store::ParseName(name).kind == store::NameKind::kTemporaryLatest)
      listing.debris.push_back(name);
    if (!store::IsCheckpointName(name)) continue;
    const path directory = root / name;
    const auto info = fs.Stat(directory);
    if (!info.ok() || info->type != io::FileInfo::Type::kDirectory) continue;
    const auto manifest = fs.Stat(directory / format::kManifestName);
    if (manifest.ok()) {
      listing.checkpoints.push_back(ListOne(fs, directory));
    } else if (manifest.status().code() != StatusCode::kNotFound) {
      // It may be one, and who is not let in should know.
      ListedCheckpoint listed;
      listed.name = name;
      listed.problem = manifest.status().message();
      listing.checkpoints.push_back(std::move(listed));
      continue;
    }
    const auto debris =
        store::FindDebris(fs, io::SystemProcesses(), directory, store::Timing().timeout, 0);
    if (!debris.ok())
      continue;  // an unreadable manifest was reported; what belongs to it cannot be told
    for (const store::Debris& item : *debris) listing.debris.push_back(Join(name, "/", item.name));
  }
  std::stable_sort(listing.checkpoints.begin(), listing.checkpoints.end(),
                   [](const auto& a, const auto& b) { return a.committed_at < b.committed_at; });
  if (const auto latest = store::ReadLatest(fs, root); latest.ok() && *latest) {
    for (ListedCheckpoint& listed : listing.checkpoints) {
      listed.latest = listed.name == (*latest)->name &&
                      ((*latest)->save_id.empty() || (*latest)->save_id == listed.save_id);
    }
  }
  return listing;
}

}  // namespace flagstone
