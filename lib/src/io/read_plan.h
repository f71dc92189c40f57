// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Which reads a batch of ranges becomes. Arithmetic alone: nothing is read here.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flagstone/status.h"
#include "io/file_system.h"
#include "io/transfer.h"

namespace flagstone::io {

/// Whole blocks of one range that follow each other.
struct ReadPiece {
  uint32_t range = 0;
  uint64_t offset_in_range = 0;
  uint64_t size = 0;
};

/// Bytes of one file that are read together, by one request or, when a block is larger than a
/// request, by several.
struct ReadUnit {
  uint32_t file = 0;
  uint64_t offset = 0;  ///< In the file: of the first piece.
  uint64_t size = 0;    ///< To the end of the last piece, small gaps between pieces included.
  bool direct = false;  ///< By the O_DIRECT descriptor.
  /// Where the byte at `offset` goes when the unit is read straight into a destination; null: into
  /// a buffer.
  std::byte* straight = nullptr;
  std::vector<ReadPiece> pieces;

  /// What is asked of the file: the bytes above, widened to what direct I/O can read.
  uint64_t read_offset = 0;
  uint64_t read_size = 0;
};

/// How a file is read at the moment.
struct FileAccess {
  bool direct = false;
  DirectAlignment alignment;
};

struct ReadLimits {
  uint64_t request_bytes = 0;  ///< Aim of one unit.
  uint64_t buffer_bytes = 0;   ///< Largest buffer. UINT64_MAX: nothing needs a buffer (mappings).
};

/// Size of the block of `range` that begins at `offset_in_range`.
uint64_t BlockSize(const ReadRange& range, uint64_t offset_in_range);

/// What a plan will need.
struct PlanSummary {
  uint64_t requests = 0;  ///< If none comes back short.
  uint64_t read_bytes = 0;
  uint64_t buffered_units = 0;
  uint64_t largest_buffer = 0;
};

/// Cuts ranges into units, in the order of the files' bytes, one at a time: a plan for a terabyte
/// is not kept.
///
/// Blocks go straight into their destination where the file's access allows it, in runs of up to
/// `request_bytes` that are contiguous in file and memory; what is small or does not fit goes
/// through a buffer, many blocks and ranges together.
class ReadPlanner {
 public:
  /// Ranges that overflow or whose destination lies outside are kInvalidArgument.
  static Result<ReadPlanner> Make(std::span<const ReadRange> ranges, size_t files,
                                  const ReadLimits& limits);

  /// The next unit, or nullopt at the end. `access` by file. Errors: kResourceExhausted when a
  /// block needs a larger buffer than there may be.
  Result<std::optional<ReadUnit>> Next(std::span<const FileAccess> access);

  /// Goes through the plan from where it stands. Cost: a fraction of a microsecond a unit.
  Result<PlanSummary> Summarize(std::span<const FileAccess> access) const;

 private:
  // A place between blocks: the next one begins at `offset` of ranges_[order_[index]].
  struct Cursor {
    size_t index = 0;
    uint64_t offset = 0;
  };
  // Blocks of one range that follow each other and are alike.
  struct Stretch {
    uint64_t size = 0;
    std::byte* destination = nullptr;  // Where the first byte can be read straight to, or null.
  };
  struct Run {
    uint64_t size = 0;
    std::byte* destination = nullptr;
    std::vector<ReadPiece> pieces;
    Cursor end;
  };

  ReadPlanner(std::span<const ReadRange> ranges, const ReadLimits& limits)
      : ranges_(ranges), limits_(limits) {}
  bool NeedsBuffers() const { return limits_.buffer_bytes != UINT64_MAX; }
  bool AtEnd(const Cursor& cursor) const { return cursor.index == order_.size(); }
  const ReadRange& RangeAt(const Cursor& cursor) const { return ranges_[order_[cursor.index]]; }
  uint64_t FileOffset(const Cursor& cursor) const { return RangeAt(cursor).offset + cursor.offset; }
  void Advance(Cursor& cursor, uint64_t size) const;
  bool Continues(const Cursor& cursor, uint32_t file, uint64_t end, uint64_t max_gap) const;
  Stretch StretchAt(const Cursor& cursor, const FileAccess& access) const;
  uint64_t WholeBlocks(const Cursor& cursor, uint64_t stretch, uint64_t limit) const;
  void Append(std::vector<ReadPiece>& pieces, Cursor& cursor, uint64_t size) const;
  Run StraightRun(Cursor cursor, const FileAccess& access, uint64_t limit) const;
  bool TooLarge(const Cursor& cursor, const FileAccess& access) const;
  ReadUnit TakeStraight(Run&& run, const FileAccess& access);
  Result<ReadUnit> TakeBuffered(const FileAccess& access);

  std::span<const ReadRange> ranges_;
  ReadLimits limits_;
  std::vector<uint32_t> order_;  // Ranges that are not empty, by file and offset.
  Cursor cursor_;
};

}  // namespace flagstone::io
