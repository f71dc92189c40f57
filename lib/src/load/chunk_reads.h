// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Which chunks a load reads. A chunk is read whole, because it is verified whole, and once,
/// however many runs want bytes of it.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "flagstone/partition.h"
#include "format/placement.h"

namespace flagstone::load {

/// The chunks that a run touches.
struct ChunkRange {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t begin = 0;  ///< Byte offset of the first chunk in the segment.
  uint64_t size = 0;   ///< Bytes of all of them, the segment's padding included.
};
/// [offset, offset + length) lies in the segment and is not empty.
ChunkRange ChunksOf(const format::PlacedSegment& segment, uint64_t offset, uint64_t length);

/// Bytes of a saved segment that are wanted somewhere.
struct SourceRun {
  uint32_t rank = 0;                               ///< Whose file it is.
  const format::PlacedSegment* segment = nullptr;  ///< One object for each segment of a file.
  uint64_t offset = 0;                             ///< In the segment.
  uint64_t length = 0;                             ///< Not 0.
  /// Repetitions, the outermost level first, and inner ones within one step of the outer.
  std::span<const RunLevel> levels = {};
};

/// Bytes from the first one of a run, repetitions included, to the end of the last.
uint64_t ExtentOf(uint64_t length, std::span<const RunLevel> levels);
/// Bytes that the run wants.
uint64_t WantedBytes(const SourceRun& run);

/// Calls each(offset, target, length) for what a run has in [begin, end) of its segment, in rising
/// order of offset: where it begins in the segment, and where in the destination, counted from the
/// run's first byte there.
template <typename Each>
void ForEachPart(const SourceRun& run, uint64_t begin, uint64_t end, const Each& each);

/// Chunks of one segment that follow each other and are wanted by the same runs.
struct ChunkRead {
  uint32_t rank = 0;
  const format::PlacedSegment* segment = nullptr;
  ChunkRange chunks;
  uint32_t first_user = 0;  ///< In ChunkReads::users.
  uint32_t user_count = 0;  ///< Not 0.
};

/// Where a run repeats itself, the repetitions are read in one go, with what lies between, where that
/// costs nothing (they touch neighbouring chunks anyway) or where the gap is at most kMaxJoinedGap
/// and no more than kMaxJoinedOverRead times what is wanted is read; otherwise each by itself.
inline constexpr uint64_t kMaxJoinedGap = uint64_t{64} << 10;
inline constexpr uint64_t kMaxJoinedOverRead = 8;

struct ChunkReads {
  std::vector<ChunkRead> reads;  ///< By rank and place in its file; none overlaps another.
  std::vector<uint32_t> users;   ///< Indexes of runs.

  std::span<const uint32_t> UsersOf(const ChunkRead& read) const {
    return std::span(users).subspan(read.first_user, read.user_count);
  }
  uint64_t bytes() const;
};

/// Runs may be in any order, and want the same bytes. Cost: O(n log n) for n runs and repetitions
/// that are read by themselves; the reads are at most twice as many.
ChunkReads GroupByChunk(std::span<const SourceRun> runs);

namespace internal {

template <typename Each>
void ForEachPartOf(std::span<const RunLevel> levels, uint64_t length, uint64_t offset,
                   uint64_t target, uint64_t begin, uint64_t end, const Each& each) {
  if (levels.empty()) {
    const uint64_t from = std::max(begin, offset);
    const uint64_t to = std::min(end, offset + length);
    if (from < to) each(from, target + (from - offset), to - from);
    return;
  }
  // The repetitions that reach into [begin, end); a step is at least as long as what is repeated.
  const RunLevel& level = levels.front();
  const uint64_t extent = ExtentOf(length, levels.subspan(1));
  if (offset >= end) return;
  const uint64_t first =
      offset + extent > begin ? 0 : (begin - offset - extent) / level.source_stride + 1;
  const uint64_t last = std::min(level.count, (end - offset - 1) / level.source_stride + 1);
  for (uint64_t i = first; i < last; ++i) {
    ForEachPartOf(levels.subspan(1), length, offset + i * level.source_stride,
                  target + i * level.target_stride, begin, end, each);
  }
}

}  // namespace internal

template <typename Each>
void ForEachPart(const SourceRun& run, uint64_t begin, uint64_t end, const Each& each) {
  internal::ForEachPartOf(run.levels, run.length, run.offset, 0, begin, end, each);
}

}  // namespace flagstone::load
