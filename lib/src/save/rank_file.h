// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// One rank's file, from its private name to its finished bytes: segments, digest pages, index,
/// header.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "flagstone/memory.h"
#include "flagstone/status.h"
#include "format/placement.h"
#include "format/rank_index.h"
#include "io/file_system.h"
#include "io/transfer.h"
#include "save/segment_stream.h"

namespace flagstone::save {

/// Bytes of a segment and where they come from; between parts, and after the last, the segment is
/// zero.
struct SegmentPart {
  uint64_t segment_offset = 0;
  uint64_t size = 0;
  Source* source = nullptr;
  uint64_t source_offset = 0;
};

/// All segments of a file: as placement.segments, each with its parts in rising order of
/// segment_offset.
struct RankFileContent {
  format::RankPlacement placement;
  std::vector<std::vector<SegmentPart>> parts;
};

struct FinishedRankFile {
  uint64_t file_length = 0;
  uint64_t index_length = 0;
  base::Digest128 index_digest{};
  io::WriteStats write;
};

class RankFile {
 public:
  /// Make the private file; its first page holds `framed_record` until the header takes its place.
  /// `mode`: its permission bits, where they shall not be those of a new file.
  static Result<std::unique_ptr<RankFile>> Create(io::FileSystem& fs,
                                                  const std::filesystem::path& name,
                                                  std::string_view framed_record,
                                                  const RankFileContent& content,
                                                  const io::WriteOptions& options,
                                                  std::optional<uint32_t> mode);
  /// Write all segments. `checkpoint` as in SegmentStream.
  Status WriteSegments(const std::function<Status(uint64_t)>& checkpoint);
  /// Write digest pages, index and header; nothing is synced yet. `index` has everything but
  /// placement and page digests.
  Result<FinishedRankFile> Finish(format::RankIndex index);

  io::File& file() { return *file_; }
  const std::filesystem::path& name() const { return file_->path(); }
  /// Rises while the device makes progress. Any thread.
  uint64_t completions() const { return writer_->completions(); }

 private:
  RankFile(std::shared_ptr<io::File> file, const RankFileContent& content)
      : file_(std::move(file)), content_(content) {}

  std::shared_ptr<io::File> file_;
  const RankFileContent& content_;
  std::unique_ptr<io::StagedWriter> writer_;
  std::unique_ptr<SegmentStream> stream_;
};

}  // namespace flagstone::save
