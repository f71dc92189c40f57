// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Which chunks a load reads. A chunk is read whole, because it is verified whole, and once,
/// however many runs want bytes of it.

#include <cstdint>
#include <span>
#include <vector>

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
};

/// Chunks of one segment that follow each other and are wanted by the same runs.
struct ChunkRead {
  uint32_t rank = 0;
  const format::PlacedSegment* segment = nullptr;
  ChunkRange chunks;
  uint32_t first_user = 0;  ///< In ChunkReads::users.
  uint32_t user_count = 0;  ///< Not 0.
};

struct ChunkReads {
  std::vector<ChunkRead> reads;  ///< By rank and place in its file; none overlaps another.
  std::vector<uint32_t> users;   ///< Indexes of runs.

  std::span<const uint32_t> UsersOf(const ChunkRead& read) const {
    return std::span(users).subspan(read.first_user, read.user_count);
  }
  uint64_t bytes() const;
};

/// Runs may be in any order, and want the same bytes. Cost: O(n log n); the reads are at most twice
/// as many as the runs.
ChunkReads GroupByChunk(std::span<const SourceRun> runs);

}  // namespace flagstone::load
