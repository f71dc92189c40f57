// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The only code that syncs and renames: making directories, publishing a rank file, the commit
/// point, `latest`, and the fence. Each function is one step of spec/commit.md.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "flagstone/status.h"
#include "format/manifest.h"
#include "io/file_system.h"

namespace flagstone::store {

using std::filesystem::path;

/// Make the directory and every missing level above it, and sync the parent of each that was made.
Status MakeDirectories(io::FileSystem& fs, const path& directory);

/// The directory of checkpoints in which a checkpoint lies: ROOT of ROOT/NAME.
path RootOf(const path& directory);

/// Remove the directory if nothing is in it; otherwise leave it. Never an error: an empty directory
/// says nothing.
void RemoveIfEmpty(io::FileSystem& fs, const path& directory);

/// The published manifest's save id (32 hexadecimal digits), from its header page; nullopt when
/// there is no manifest.
Result<std::optional<std::string>> PublishedSaveId(io::FileSystem& fs, const path& directory);

/// The published manifest's file.
struct ManifestFile {
  format::Manifest manifest;
  format::Header header;
  uint64_t bytes = 0;
};
Result<ManifestFile> ReadManifestFile(io::FileSystem& fs, const path& directory);

/// What it says.
Result<format::Manifest> ReadManifest(io::FileSystem& fs, const path& directory);

/// A rank's finished file: sync its bytes, give it its final name, sync the directory.
Status PublishRankFile(io::FileSystem& fs, io::File& file, const path& private_path,
                       const path& final_path);

/// Unlink an attempt's temporary manifest and sync the directory: nobody can commit it any more.
/// What is published is not looked at; who would remove rank files asks Fence.
Status RemoveAttempt(io::FileSystem& fs, const path& directory, std::string_view save_id);

/// RemoveAttempt, then look what is published. True: the attempt had been committed before.
Result<bool> Fence(io::FileSystem& fs, const path& directory, std::string_view save_id);

/// What the commit point came to.
enum class CommitResult : uint8_t {
  kCommitted,
  kDurabilityUnknown,  ///< The name was moved but the directory could not be synced.
};

/// The manifest before it is published. Created exclusively, written through one descriptor, its
/// name never made again: whoever unlinks the name has fenced the attempt. Until the manifest is
/// written its first page holds the owner's record; from then on a file beside it does, until
/// Commit or Withdraw. Thread-safe.
class TemporaryManifest {
 public:
  TemporaryManifest(const TemporaryManifest&) = delete;
  TemporaryManifest& operator=(const TemporaryManifest&) = delete;
  /// Unlinks the file if neither a commit nor a withdrawal has come to an end.
  ~TemporaryManifest();
  static Result<std::unique_ptr<TemporaryManifest>> Create(io::FileSystem& fs,
                                                           const path& directory,
                                                           const std::string& save_id,
                                                           std::string_view record);

  const std::string& save_id() const { return save_id_; }
  /// Replace the owner's record.
  Status WriteRecord(std::string_view record);
  /// Give a new file the permission bits of the manifest that it replaces.
  Status SetMode(uint32_t mode) { return file_->SetMode(mode); }
  /// Write the manifest's bytes and sync them.
  Status WriteManifest(std::span<const std::byte> bytes);
  /// The commit point; with `overwrite` see ForgetLatestId. `overwrite` false: kAlreadyExists if a
  /// manifest is there. kCancelled when somebody fenced this attempt.
  Result<CommitResult> Commit(bool overwrite);
  /// Give up: see Fence.
  Result<bool> Withdraw();

 private:
  TemporaryManifest(io::FileSystem& fs, path directory, std::string save_id,
                    std::unique_ptr<io::File> file);
  Result<bool> IsPublished() const;
  Status Refused(Status cause) const;
  Status WriteOwnerFile();
  void RemoveOwnerFile();

  io::FileSystem& fs_;
  const path directory_;
  const std::string save_id_;
  std::mutex mutex_;  // guards what follows, and the files' content until the manifest is written
  std::unique_ptr<io::File> file_;
  std::string record_;
  bool manifest_written_ = false;
  bool over_ = false;  // committed or withdrawn: no record any more
};

/// What ROOT/latest says: a checkpoint's name and, except in old or hand-written files, its save
/// id.
struct Latest {
  std::string name;
  std::string save_id;  ///< Empty when the file has no second line.
};
/// nullopt when the text is not a checkpoint's name, or what follows it no save id.
std::optional<Latest> ParseLatest(std::string_view text);
/// nullopt when there is no such file. kCorruption when it does not hold a checkpoint's name.
Result<std::optional<Latest>> ReadLatest(io::FileSystem& fs, const path& root);

/// Point ROOT/latest at a checkpoint, with the id of the save that is there now, unless it names
/// another one with a later `committed_at`: rename, then sync ROOT.
Status MoveLatest(io::FileSystem& fs, const path& root, const std::string& name,
                  int64_t committed_at);

/// Before the manifest under `name` is replaced: if ROOT/latest names it with a save id, leave the
/// name alone, so that `latest` is right before and after the commit point.
Status ForgetLatestId(io::FileSystem& fs, const path& root, const std::string& name);

}  // namespace flagstone::store
