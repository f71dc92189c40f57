// SPDX-License-Identifier: Apache-2.0
#include "load/chunk_reads.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/range.h"

namespace flagstone::load {
namespace {

ChunkRange ChunksBetween(const format::PlacedSegment& segment, uint64_t first, uint64_t end) {
  ChunkRange range;
  range.first = first;
  range.count = end - first;
  range.begin = first * segment.chunk_bytes;
  range.size = std::min(end * segment.chunk_bytes, segment.padded_bytes()) - range.begin;
  return range;
}

// Chunks [first, end) of a segment that a run wants something of.
struct Stretch {
  uint32_t run = 0;
  uint64_t first = 0;
  uint64_t end = 0;
};

// Whether all repetitions are read in one go.
bool AreJoined(uint64_t length, std::span<const RunLevel> levels, uint64_t chunk_bytes) {
  if (levels.empty()) return true;
  const auto inner = levels.subspan(1);
  if (!AreJoined(length, inner, chunk_bytes)) return false;
  const uint64_t stride = levels.front().source_stride;
  const uint64_t gap = stride - ExtentOf(length, inner);
  if (gap < chunk_bytes) return true;
  uint64_t wanted = length;
  for (const RunLevel& level : inner) wanted *= level.count;
  return gap <= kMaxJoinedGap && stride / kMaxJoinedOverRead <= wanted &&
         stride <= kMaxJoinedOverRead * wanted;
}

void AppendStretches(uint32_t index, const format::PlacedSegment& segment, uint64_t offset,
                     uint64_t length, std::span<const RunLevel> levels,
                     std::vector<Stretch>& out) {
  if (!AreJoined(length, levels, segment.chunk_bytes)) {
    for (uint64_t i = 0; i < levels.front().count; ++i) {
      AppendStretches(index, segment, offset + i * levels.front().source_stride, length,
                      levels.subspan(1), out);
    }
    return;
  }
  const uint64_t first = offset / segment.chunk_bytes;
  const uint64_t end = (offset + ExtentOf(length, levels) - 1) / segment.chunk_bytes + 1;
  // Two repetitions that stand alone may still have ends in one chunk: it is the run's once.
  if (!out.empty() && out.back().run == index && out.back().end > first) {
    out.back().end = std::max(out.back().end, end);
  } else {
    out.push_back({index, first, end});
  }
}

// The reads of one segment: a sweep over the chunks at which stretches begin and end.
void AppendReads(std::span<const SourceRun> runs, std::span<const Stretch> stretches,
                 ChunkReads& result) {
  const SourceRun& any = runs[stretches.front().run];
  std::vector<Stretch> active;
  uint64_t at = 0;
  for (size_t next = 0; next < stretches.size() || !active.empty();) {
    if (active.empty()) at = stretches[next].first;
    for (; next < stretches.size() && stretches[next].first <= at; ++next) {
      active.push_back(stretches[next]);
    }
    uint64_t end = std::ranges::min(active, {}, &Stretch::end).end;
    if (next < stretches.size()) end = std::min(end, stretches[next].first);
    result.reads.push_back({any.rank, any.segment, ChunksBetween(*any.segment, at, end),
                            static_cast<uint32_t>(result.users.size()),
                            static_cast<uint32_t>(active.size())});
    for (const Stretch& user : active) result.users.push_back(user.run);
    at = end;
    std::erase_if(active, [at](const Stretch& user) { return user.end <= at; });
  }
}

}  // namespace

ChunkRange ChunksOf(const format::PlacedSegment& segment, uint64_t offset, uint64_t length) {
  // A run lies inside its segment, so its end does not wrap.
  return ChunksBetween(segment, offset / segment.chunk_bytes,
                       (offset + length - 1) / segment.chunk_bytes + 1);
}

uint64_t ChunkReads::bytes() const {
  uint64_t sum = 0;
  for (const ChunkRead& read : reads) sum += read.chunks.size;
  return sum;
}

uint64_t ExtentOf(uint64_t length, std::span<const RunLevel> levels) {
  uint64_t extent = length;
  for (const RunLevel& level : levels) extent += (level.count - 1) * level.source_stride;
  return extent;
}

uint64_t WantedBytes(const SourceRun& run) {
  uint64_t bytes = run.length;
  for (const RunLevel& level : run.levels) bytes *= level.count;
  return bytes;
}

ChunkReads GroupByChunk(std::span<const SourceRun> runs) {
  std::vector<Stretch> stretches;
  stretches.reserve(runs.size());
  for (uint32_t i = 0; i < runs.size(); ++i) {
    AppendStretches(i, *runs[i].segment, runs[i].offset, runs[i].length, runs[i].levels,
                    stretches);
  }
  const auto segment_of = [&](const Stretch& stretch) {
    return std::pair(runs[stretch.run].rank, runs[stretch.run].segment->offset);
  };
  // Within a chunk by where the runs begin, so that what they take of it is taken in order.
  std::sort(stretches.begin(), stretches.end(), [&](const Stretch& a, const Stretch& b) {
    return std::tuple(segment_of(a), a.first, runs[a.run].offset, a.run) <
           std::tuple(segment_of(b), b.first, runs[b.run].offset, b.run);
  });
  ChunkReads result;
  result.reads.reserve(stretches.size());
  result.users.reserve(stretches.size());
  for (auto begin = stretches.begin(); begin != stretches.end();) {
    const auto end = std::find_if(begin, stretches.end(), [&](const Stretch& stretch) {
      return segment_of(stretch) != segment_of(*begin);
    });
    AppendReads(runs, {begin, end}, result);
    begin = end;
  }
  return result;
}

}  // namespace flagstone::load
