// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A checkpoint made of encoded pieces in memory, so that a test can make any of them say anything,
/// with digests that are right for it.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "flagstone/partition.h"
#include "format/header.h"
#include "format/manifest.h"
#include "format/placement.h"
#include "format/rank_index.h"

namespace flagstone::testing {

/// What a segment holds: `out` gets its bytes from `offset` on, zeros behind its end.
using SegmentContent = std::function<void(const format::PlacedSegment& segment, uint64_t offset,
                                          std::span<std::byte> out)>;

/// One rank file whose data is computed; everything else lies in memory.
struct SavedFile {
  std::string name;
  format::RankIndex index;
  std::vector<std::byte> head;  ///< Header page.
  std::vector<std::byte> tail;  ///< From the first digest page to the end.
  uint64_t length = 0;

  /// Bytes of the file from `offset` on.
  void Read(uint64_t offset, std::span<std::byte> out, const SegmentContent& content) const;
};

struct SavedCheckpoint {
  format::Manifest manifest;
  std::vector<std::byte> manifest_bytes;
  std::vector<SavedFile> files;
};

/// The same for one rank.
using RankContent = std::function<void(uint32_t rank, const format::PlacedSegment& segment,
                                       uint64_t offset, std::span<std::byte> out)>;

struct SavedOptions {
  SegmentContent content;  ///< Null: PatternOf.
  RankContent rank_content = {};  ///< Goes before `content`.
  /// Changes an index before it is digested.
  std::function<void(format::RankIndex& index)> change_index = {};
  /// Changes the manifest before it is written.
  std::function<void(format::Manifest& manifest)> change_manifest = {};
  /// Changes the digest pages before they are digested.
  std::function<void(std::span<std::byte> pages)> change_digests = {};
};

/// The content that is used when a test has no own: a function of partition, role and place.
void PatternOf(const format::PlacedSegment& segment, uint64_t offset, std::span<std::byte> out);

/// A checkpoint of a valid layout. Failures are the test's.
SavedCheckpoint MakeCheckpoint(Layout layout, const SavedOptions& options = {});

/// Write it as files below `directory`.
void WriteFiles(const SavedCheckpoint& saved, const std::filesystem::path& directory,
                const SegmentContent& content = {}, const RankContent& rank_content = {});

}  // namespace flagstone::testing
