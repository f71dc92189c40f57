// SPDX-License-Identifier: Apache-2.0
#include "store/publish.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "format/header.h"
#include "io/process.h"
#include "store/file_coordinator.h"
#include "store/names.h"

namespace flagstone::store {
namespace {

using base::Join;
using base::Quote;
using Mode = io::OpenOptions::Mode;

constexpr uint64_t kMaxLatestBytes = 4096;
// A manifest grows with tensors and ranks: 20 000 x 1024 take about 3 MB. The bound keeps a hostile
// length from becoming an allocation; it is far from what any model needs.
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

Result<std::vector<std::byte>> ReadWhole(io::File& file, uint64_t limit) {
  FLAGSTONE_ASSIGN_OR_RETURN(const io::FileInfo info, file.Info());
  if (info.type == io::FileInfo::Type::kDirectory) {
    return Status(StatusCode::kInvalidArgument,
                  Join(Quote(file.path().string()), " is a directory, not a manifest"),
                  {file.path().string(), "", std::nullopt});
  }
  if (info.size > limit) {
    return Status(StatusCode::kCorruption,
                  Join(Quote(file.path().string()), " has ", info.size,
                       " bytes; a manifest has at most ", limit),
                  {file.path().string(), "", std::nullopt});
  }
  std::vector<std::byte> bytes(info.size);
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(file, 0, bytes));
  return bytes;
}

// Change a directory in which there was nothing to remove, so that what is read of it next is what
// the server has and not what this client remembers. On a full disk that may fail: then the
// client's word has to do.
Status ChangeDirectory(io::FileSystem& fs, const path& directory) {
  const path probe = directory / PrivateName(io::RandomHex(8));
  auto file = fs.Open(probe, {Mode::kCreateExclusive, false});
  if (file.ok()) return fs.Unlink(probe);
  const StatusCode code = file.status().code();
  const bool tolerated = code == StatusCode::kNotFound || code == StatusCode::kResourceExhausted;
  return tolerated ? Status() : file.status();
}

}  // namespace

path RootOf(const path& directory) {
  path parent = directory.parent_path();
  return parent.empty() ? path(".") : parent;
}

Status MakeDirectories(io::FileSystem& fs, const path& directory) {
  std::vector<path> missing;
  for (path level = directory; !level.empty(); level = level.parent_path()) {
    const auto info = fs.Stat(level);
    if (info.ok()) {
      if (info->type == io::FileInfo::Type::kDirectory) break;
      return Status(StatusCode::kInvalidArgument,
                    Join("cannot make directory ", Quote(directory.string()), ": ",
                         Quote(level.string()), " exists and is not a directory"),
                    {level.string(), "", std::nullopt});
    }
    if (info.status().code() != StatusCode::kNotFound) return info.status();
    missing.push_back(level);
    if (level == level.parent_path()) break;
  }
  for (auto level = missing.rbegin(); level != missing.rend(); ++level) {
    const Status made = fs.MakeDirectory(*level);
    // Another rank may have made it between the look and now.
    if (!made.ok() && made.code() != StatusCode::kAlreadyExists) return made;
    FLAGSTONE_RETURN_IF_ERROR(fs.SyncDirectory(RootOf(*level)));
  }
  return {};
}

void RemoveIfEmpty(io::FileSystem& fs, const path& directory) {
  const Status status = fs.RemoveDirectory(directory);
  static_cast<void>(
      status
          .ok());  // not empty, or gone, or not ours to remove: all the same to a save that failed
}

Result<std::optional<std::string>> PublishedSaveId(io::FileSystem& fs, const path& directory) {
  auto file = fs.Open(directory / format::kManifestName, {Mode::kRead, false});
  if (!file.ok()) {
    if (file.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
    return file.status();
  }
  FLAGSTONE_ASSIGN_OR_RETURN(const io::FileInfo info, (*file)->Info());
  format::HeaderPage page;
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(**file, 0, page));
  auto header = format::DecodeHeader(page, format::FileKind::kManifest, info.size);
  if (!header.ok())
    return header.status().Annotated("", {(*file)->path().string(), "", std::nullopt});
  return std::optional<std::string>(base::Hex(header->save_id));
}

Result<ManifestFile> ReadManifestFile(io::FileSystem& fs, const path& directory) {
  FLAGSTONE_ASSIGN_OR_RETURN(auto file,
                             fs.Open(directory / format::kManifestName, {Mode::kRead, false}));
  const ErrorPlace place{file->path().string(), "", std::nullopt};
  FLAGSTONE_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  // The header first: room is made for what a manifest says of itself, not for any file's length.
  std::vector<std::byte> first_page(std::min<uint64_t>(info.size, base::kPageBytes));
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(*file, 0, first_page));
  auto header = format::DecodeHeader(first_page, format::FileKind::kManifest, info.size);
  if (!header.ok()) return header.status().Annotated(Quote(place.path), place);
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             ReadWhole(*file, kMaxManifestBytes));
  auto manifest = format::DecodeManifest(bytes);
  if (!manifest.ok()) return manifest.status().Annotated(Quote(place.path), place);
  return ManifestFile{*std::move(manifest), *header, bytes.size()};
}

Result<format::Manifest> ReadManifest(io::FileSystem& fs, const path& directory) {
  FLAGSTONE_ASSIGN_OR_RETURN(ManifestFile file, ReadManifestFile(fs, directory));
  return std::move(file.manifest);
}

Status PublishRankFile(io::FileSystem& fs, io::File& file, const path& private_path,
                       const path& final_path) {
  FLAGSTONE_RETURN_IF_ERROR(file.Sync());
  FLAGSTONE_RETURN_IF_ERROR(fs.Rename(private_path, final_path));
  return fs.SyncDirectory(RootOf(final_path));
}

Status RemoveAttempt(io::FileSystem& fs, const path& directory, std::string_view save_id) {
  const Status unlinked = fs.Unlink(directory / TemporaryManifestName(save_id));
  if (!unlinked.ok() && unlinked.code() != StatusCode::kNotFound) return unlinked;
  if (!unlinked.ok()) FLAGSTONE_RETURN_IF_ERROR(ChangeDirectory(fs, directory));
  const Status synced = fs.SyncDirectory(directory);
  return synced.code() == StatusCode::kNotFound ? Status() : synced;
}

Result<bool> Fence(io::FileSystem& fs, const path& directory, std::string_view save_id) {
  // The deciding read comes after a change of the directory of our own, so that a network file
  // system asks its server.
  FLAGSTONE_RETURN_IF_ERROR(RemoveAttempt(fs, directory, save_id));
  FLAGSTONE_ASSIGN_OR_RETURN(const auto published, PublishedSaveId(fs, directory));
  return published == save_id;
}

// What was neither committed nor withdrawn (the disk failed, a caller's source threw) must not hold
// the name for as long as this process lives. Unlinking is what any fence would do.
TemporaryManifest::~TemporaryManifest() {
  if (over_) return;
  const Status unlinked = fs_.Unlink(directory_ / TemporaryManifestName(save_id_));
  static_cast<void>(unlinked.ok());
}

TemporaryManifest::TemporaryManifest(io::FileSystem& fs, path directory, std::string save_id,
                                     std::unique_ptr<io::File> file)
    : fs_(fs),
      directory_(std::move(directory)),
      save_id_(std::move(save_id)),
      file_(std::move(file)) {}

Result<std::unique_ptr<TemporaryManifest>> TemporaryManifest::Create(io::FileSystem& fs,
                                                                     const path& directory,
                                                                     const std::string& save_id,
                                                                     std::string_view record) {
  const path name = directory / TemporaryManifestName(save_id);
  FLAGSTONE_ASSIGN_OR_RETURN(auto file, fs.Open(name, {Mode::kCreateExclusive, false}));
  auto manifest = std::unique_ptr<TemporaryManifest>(
      new TemporaryManifest(fs, directory, save_id, std::move(file)));
  if (Status status = manifest->WriteRecord(record); !status.ok()) {
    const Status unlinked = fs.Unlink(name);
    return unlinked.ok() ? status : status.Annotated(unlinked.message());
  }
  return manifest;
}

Status TemporaryManifest::WriteRecord(std::string_view record) {
  const std::lock_guard lock(mutex_);
  if (over_) return {};
  record_ = record;
  return manifest_written_ ? WriteOwnerFile() : io::WriteFully(*file_, 0, FrameValue(record_));
}

Status TemporaryManifest::WriteOwnerFile() {
  FLAGSTONE_ASSIGN_OR_RETURN(
      auto file, fs_.Open(directory_ / OwnerFileName(save_id_), {Mode::kCreate, false}));
  return io::WriteFully(*file, 0, FrameValue(record_));
}

void TemporaryManifest::RemoveOwnerFile() {
  const std::lock_guard lock(mutex_);
  over_ = true;
  if (!manifest_written_) return;
  const Status unlinked = fs_.Unlink(directory_ / OwnerFileName(save_id_));
  static_cast<void>(unlinked.ok());  // what is left of it is debris: its owner ends
}

Status TemporaryManifest::WriteManifest(std::span<const std::byte> bytes) {
  {
    const std::lock_guard lock(mutex_);
    manifest_written_ = true;
    FLAGSTONE_RETURN_IF_ERROR(WriteOwnerFile());
  }
  // From here on records go to the owner file: the lock would keep the beats waiting for this sync.
  FLAGSTONE_RETURN_IF_ERROR(
      file_->Truncate(bytes.size()));  // a long record may reach beyond a short manifest
  FLAGSTONE_RETURN_IF_ERROR(io::WriteFully(*file_, 0, bytes));
  return file_->Sync();
}

Result<bool> TemporaryManifest::IsPublished() const {
  FLAGSTONE_ASSIGN_OR_RETURN(const auto published, PublishedSaveId(fs_, directory_));
  return published == save_id_;
}

// EEXIST and ENOENT prove nothing over a network (the answer to the first try may have been lost):
// only the published manifest's save id tells whose it is.
Status TemporaryManifest::Refused(Status cause) const {
  FLAGSTONE_ASSIGN_OR_RETURN(const bool published, IsPublished());
  if (published) return {};
  if (cause.code() == StatusCode::kNotFound) {
    return Status(StatusCode::kCancelled,
                  Join("save ", save_id_, " of ", Quote(directory_.string()),
                       " was given up by another participant before it was committed"),
                  {directory_.string(), "", std::nullopt});
  }
  return cause;
}

Result<CommitResult> TemporaryManifest::Commit(bool overwrite) {
  const path temporary = directory_ / TemporaryManifestName(save_id_);
  const path final_name = directory_ / format::kManifestName;
  Status moved;
  if (overwrite) {
    FLAGSTONE_RETURN_IF_ERROR(
        ForgetLatestId(fs_, RootOf(directory_), directory_.filename().string()));
    moved = fs_.Rename(temporary, final_name);
  } else {
    moved = fs_.Link(temporary, final_name);
    if (moved.code() == StatusCode::kUnsupported)
      moved = fs_.RenameNoReplace(temporary, final_name);
  }
  if (!moved.ok()) {
    if (moved.code() != StatusCode::kAlreadyExists && moved.code() != StatusCode::kNotFound)
      return moved;
    FLAGSTONE_RETURN_IF_ERROR(Refused(std::move(moved)));
  }
  if (!overwrite) {
    // After a link the temporary name is a second one of a committed manifest. Left behind it is
    // debris, no failure.
    const Status unlinked = fs_.Unlink(temporary);
    static_cast<void>(unlinked.ok());
  }
  RemoveOwnerFile();
  const Status synced = fs_.SyncDirectory(directory_);
  return synced.ok() ? CommitResult::kCommitted : CommitResult::kDurabilityUnknown;
}

Result<bool> TemporaryManifest::Withdraw() {
  auto published = Fence(fs_, directory_, save_id_);
  // As long as the temporary manifest may be there, so may the word of whose it is.
  if (published.ok()) RemoveOwnerFile();
  return published;
}

std::optional<Latest> ParseLatest(std::string_view text) {
  Latest latest;
  const size_t line_end = text.find('\n');
  latest.name = text.substr(0, line_end);
  if (line_end != std::string_view::npos) {
    latest.save_id = text.substr(line_end + 1);
    if (latest.save_id.ends_with('\n')) latest.save_id.pop_back();
  }
  const bool id_is_valid =
      latest.save_id.empty() ||
      (latest.save_id.size() == 32 &&
       latest.save_id.find_first_not_of("0123456789abcdef") == std::string::npos);
  if (!IsCheckpointName(latest.name) || !id_is_valid) return std::nullopt;
  return latest;
}

Result<std::optional<Latest>> ReadLatest(io::FileSystem& fs, const path& root) {
  const path name = root / kLatestName;
  auto text = ReadSmallFile(fs, name, kMaxLatestBytes);
  if (!text.ok()) {
    if (text.status().code() == StatusCode::kNotFound) return std::optional<Latest>();
    return text.status();
  }
  auto latest = ParseLatest(*text);
  if (latest) return latest;
  return Status(StatusCode::kCorruption,
                Join(Quote(name.string()), " does not hold a checkpoint's name and save id but ",
                     Quote(*text)),
                {name.string(), "", std::nullopt});
}

namespace {

// Whether `latest` names another checkpoint, committed later.
bool IsLaterElsewhere(io::FileSystem& fs, const path& root, std::string_view name,
                      int64_t committed_at) {
  // A `latest` that cannot be read, or whose checkpoint is gone, is no reason to keep it.
  const auto old = ReadLatest(fs, root);
  if (!old.ok() || !*old || (*old)->name == name) return false;
  const auto manifest = ReadManifest(fs, root / (*old)->name);
  return manifest.ok() && manifest->committed_at > committed_at;
}

// By rename, then sync ROOT; unless `is_wanted` says otherwise right before the rename.
Status ReplaceLatest(io::FileSystem& fs, const path& root, const Latest& latest,
                     const std::function<bool()>& is_wanted) {
  const path temporary = root / TemporaryLatestName(latest.name, io::RandomHex(8));
  const auto write = [&]() -> Status {
    FLAGSTONE_ASSIGN_OR_RETURN(auto file, fs.Open(temporary, {Mode::kCreateExclusive, false}));
    std::string text = Join(latest.name, "\n");
    if (!latest.save_id.empty()) text += Join(latest.save_id, "\n");
    FLAGSTONE_RETURN_IF_ERROR(io::WriteFully(*file, 0, std::as_bytes(std::span(text))));
    FLAGSTONE_RETURN_IF_ERROR(file->Sync());
    return is_wanted() ? fs.Rename(temporary, root / kLatestName) : fs.Unlink(temporary);
  };
  if (Status status = write(); !status.ok()) {
    const Status unlinked = fs.Unlink(temporary);
    return unlinked.ok() || unlinked.code() == StatusCode::kNotFound
               ? status
               : status.Annotated(unlinked.message());
  }
  return fs.SyncDirectory(root);
}

}  // namespace

Status MoveLatest(io::FileSystem& fs, const path& root, const std::string& name,
                  int64_t committed_at) {
  // Saves of one name, one overwriting the other, may come here together: the id that `latest` ends
  // up with is that of the manifest that is there.
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto published, PublishedSaveId(fs, root / name));
    if (!published) return {};  // removed meanwhile
    const auto is_latest = [&] { return !IsLaterElsewhere(fs, root, name, committed_at); };
    if (!is_latest()) return {};
    const Status moved = ReplaceLatest(fs, root, {name, *published}, is_latest);
    // A save of the same name has taken the temporary file for debris.
    if (moved.code() == StatusCode::kNotFound) continue;
    FLAGSTONE_RETURN_IF_ERROR(moved);
    FLAGSTONE_ASSIGN_OR_RETURN(const auto now, PublishedSaveId(fs, root / name));
    if (now == published) return {};
  }
  return Status(
      StatusCode::kIoError,
      Join("the manifest of ", Quote((root / name).string()), " changed at every look of ", kTries),
      {(root / name).string(), "", std::nullopt});
}

Status ForgetLatestId(io::FileSystem& fs, const path& root, const std::string& name) {
  const auto latest = ReadLatest(fs, root);
  if (!latest.ok() || !*latest || (*latest)->name != name || (*latest)->save_id.empty()) return {};
  return ReplaceLatest(fs, root, {name, ""}, [&] {
    const auto now = ReadLatest(fs, root);
    return now.ok() && *now && (*now)->name == name;
  });
}

}  // namespace flagstone::store
