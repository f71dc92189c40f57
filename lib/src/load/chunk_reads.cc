// SPDX-License-Identifier: Apache-2.0
#include "load/chunk_reads.h"

#include <algorithm>
#include <numeric>
#include <tuple>

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

// A run that wants chunks of the place at hand, and the chunk after its last.
struct User {
  uint32_t run = 0;
  uint64_t end = 0;
};

// The reads of one segment: a sweep over the chunks at which runs begin and end.
void AppendReads(std::span<const SourceRun> runs, std::span<const uint32_t> order,
                 ChunkReads& result) {
  const format::PlacedSegment& segment = *runs[order.front()].segment;
  const auto first_chunk = [&](size_t i) { return runs[order[i]].offset / segment.chunk_bytes; };
  std::vector<User> active;
  uint64_t at = 0;
  for (size_t next = 0; next < order.size() || !active.empty();) {
    if (active.empty()) at = first_chunk(next);
    for (; next < order.size() && first_chunk(next) <= at; ++next) {
      const SourceRun& run = runs[order[next]];
      active.push_back({order[next], (run.offset + run.length - 1) / segment.chunk_bytes + 1});
    }
    uint64_t end = std::ranges::min(active, {}, &User::end).end;
    if (next < order.size()) end = std::min(end, first_chunk(next));
    result.reads.push_back({runs[order.front()].rank, &segment, ChunksBetween(segment, at, end),
                            static_cast<uint32_t>(result.users.size()),
                            static_cast<uint32_t>(active.size())});
    for (const User& user : active) result.users.push_back(user.run);
    at = end;
    std::erase_if(active, [at](const User& user) { return user.end <= at; });
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

ChunkReads GroupByChunk(std::span<const SourceRun> runs) {
  std::vector<uint32_t> order(runs.size());
  std::iota(order.begin(), order.end(), uint32_t{0});
  const auto segment_of = [&](uint32_t run) {
    return std::pair(runs[run].rank, runs[run].segment->offset);
  };
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tuple(segment_of(a), runs[a].offset, a) <
           std::tuple(segment_of(b), runs[b].offset, b);
  });
  ChunkReads result;
  result.reads.reserve(runs.size());
  result.users.reserve(runs.size());
  for (auto begin = order.begin(); begin != order.end();) {
    const auto end = std::find_if(
        begin, order.end(), [&](uint32_t run) { return segment_of(run) != segment_of(*begin); });
    AppendReads(runs, {begin, end}, result);
    begin = end;
  }
  return result;
}

}  // namespace flagstone::load
