// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Opening what is published: a checkpoint by its path or through `latest`, and one rank file of
/// it.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "flagstone/status.h"
#include "format/manifest.h"
#include "format/rank_index.h"
#include "io/file_system.h"

namespace flagstone::store {

/// A published manifest and where it lies.
struct OpenedManifest {
  std::filesystem::path directory;  ///< The checkpoint, `latest` followed.
  format::Manifest manifest;
  format::Header header;
  uint64_t manifest_bytes = 0;
};

/// Open a checkpoint, or the one that `latest` in a directory of checkpoints names. Errors:
/// Checkpoint::Open lists them.
Result<OpenedManifest> OpenManifest(io::FileSystem& fs, const std::filesystem::path& path);

/// The name of a rank's file in the checkpoint's directory.
std::string RankFileNameOf(const format::Manifest& manifest, uint32_t rank);

/// Refuse a manifest whose features say that there is no data to load or verify.
Status RequireData(const OpenedManifest& opened);

// The steps of opening a rank file, for Verify, which reports what fails and goes on where it can.

/// Open a rank's file and check its length. Errors: kNotFound (missing; or replaced by another
/// save), kCorruption.
Result<std::shared_ptr<io::File>> OpenRankFile(io::FileSystem& fs, const OpenedManifest& opened,
                                               uint32_t rank);
/// Check its header page by itself and against the manifest.
Status CheckRankHeader(io::File& file, const OpenedManifest& opened, uint32_t rank);
/// Read and check its index, by the manifest's digest alone.
Result<format::RankIndex> ReadRankIndex(io::File& file, const OpenedManifest& opened,
                                        uint32_t rank);
/// Where the index begins.
uint64_t IndexOffsetOf(const format::RankFileEntry& entry);

/// One rank file, opened and checked: length, header, index, and the index's places against the
/// manifest's. Thread-safe but for TakePlain and DropState.
class RankFileReader {
 public:
  /// `fs` and `opened` outlive the reader. Errors: kNotFound (missing; or replaced by another save),
  /// kCorruption (names the file and the offset), kIoError.
  static Result<std::shared_ptr<RankFileReader>> Open(io::FileSystem& fs,
                                                      const OpenedManifest& opened, uint32_t rank);

  /// From a file and an index that were checked by the steps above. Not to be closed.
  static std::shared_ptr<RankFileReader> Make(std::shared_ptr<io::File> file,
                                              format::RankIndex index, uint64_t metadata_bytes);

  uint32_t rank() const { return index_.rank; }
  const std::filesystem::path& path() const { return path_; }
  /// The open file. After Close it is opened again, and its header checked: a rank file is never
  /// written twice under one name, so that it is the same one, or not there any more.
  Result<std::shared_ptr<io::File>> file() const;
  /// Give the descriptor back: a plan may meet more files than a process may have open.
  void Close() const;

  const format::RankIndex& index() const { return index_; }
  /// Take the plain values out of the index / drop the rank's state from it: of a thousand files
  /// they are not kept a thousand times.
  std::vector<format::PlainValue> TakePlain() { return std::exchange(index_.plain, {}); }
  void DropState() { index_.rank_state = {}; }
  /// Header page and index.
  uint64_t metadata_bytes() const { return metadata_bytes_; }

  /// Digest pages [first, first + count), checked. `bytes_read` grows by what was read. Errors:
  /// kCorruption names the page and the segments whose digests it holds.
  Result<std::vector<std::byte>> ReadDigestPages(uint64_t first, uint64_t count,
                                                 uint64_t& bytes_read) const;

  /// The bytes of an array segment of the index, verified. `bytes_read` grows by them and by their
  /// digest pages. Errors: kCorruption, kIoError, kResourceExhausted.
  Result<std::vector<std::byte>> ReadArray(const format::PlacedSegment& segment,
                                           uint64_t& bytes_read) const;

 private:
  RankFileReader(std::shared_ptr<io::File> file, format::RankIndex index, uint64_t metadata_bytes)
      : path_(file->path()),
        index_(std::move(index)),
        metadata_bytes_(metadata_bytes),
        file_(std::move(file)) {}

  std::string SegmentsOfPage(uint64_t page) const;

  const std::filesystem::path path_;
  format::RankIndex index_;
  const uint64_t metadata_bytes_;
  io::FileSystem* fs_ = nullptr;  // null: never closed
  const OpenedManifest* opened_ = nullptr;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<io::File> file_;  // null while closed
};

/// What is wrong with a chunk: "digest is ..., saved was ...".
std::string DigestText(uint64_t stated, uint64_t found);

/// The error for a chunk whose bytes are not those that were saved.
Status ChunkMismatch(const std::filesystem::path& file, const format::PlacedSegment& segment,
                     uint64_t chunk, uint64_t stated, uint64_t found);

/// "partition/role", as messages and reports name a segment.
std::string SegmentName(const format::PlacedSegment& segment);

/// Read all arrays above 4 KiB of a decoded value from a rank file and put their bytes in place.
Status FillArrays(const RankFileReader& reader, bool client, Value& value, uint64_t& bytes_read);

}  // namespace flagstone::store
