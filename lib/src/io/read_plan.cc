// SPDX-License-Identifier: Apache-2.0
#include "io/read_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"

namespace flagstone::io {
namespace {

// A run that could be read together with its neighbours through a buffer is read straight from this
// size on: below it a request of its own costs more than the copy.
constexpr uint64_t kStraightBytes = uint64_t{64} << 10;

// Ranges this near are read together, with what lies between.
constexpr uint64_t kMaxGap = base::kPageBytes;

Status BadRange(const ReadRange& range, std::string_view what) {
  return Status(
      StatusCode::kInvalidArgument,
      base::Join("a range of ", range.size, " bytes at offset ", range.offset, " ", what));
}

}  // namespace

uint64_t BlockSize(const ReadRange& range, uint64_t offset_in_range) {
  const uint64_t rest = range.size - offset_in_range;
  return range.block_bytes == 0 ? rest : std::min(range.block_bytes, rest);
}

Result<ReadPlanner> ReadPlanner::Make(std::span<const ReadRange> ranges, size_t files,
                                      const ReadLimits& limits) {
  if (ranges.size() > std::numeric_limits<uint32_t>::max()) {
    return Status(StatusCode::kInvalidArgument, base::Join(ranges.size(), " ranges are too many"));
  }
  ReadPlanner planner(ranges, limits);
  planner.order_.reserve(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ReadRange& range = ranges[i];
    if (range.file >= files) return BadRange(range, "names a file that is not there");
    // Room to round up to any alignment stays below 2^63, the limit of off_t.
    if (!base::InBounds(range.offset, range.size, uint64_t{1} << 62)) {
      return BadRange(range, "ends beyond what a file can have");
    }
    if (range.block_bytes % base::kPageBytes != 0) {
      return BadRange(range, "has blocks that are not whole pages of 4096 bytes");
    }
    if (!base::InBounds(range.destination_skip, range.destination.size(), range.size)) {
      return BadRange(range, "has a destination outside of itself");
    }
    if (range.size == 0) continue;
    planner.order_.push_back(static_cast<uint32_t>(i));
  }
  const auto key = [&](uint32_t i) { return std::tuple(ranges[i].file, ranges[i].offset, i); };
  std::sort(planner.order_.begin(), planner.order_.end(),
            [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  return planner;
}

void ReadPlanner::Advance(Cursor& cursor, uint64_t size) const {
  cursor.offset += size;
  if (cursor.offset < RangeAt(cursor).size) return;
  ++cursor.index;
  cursor.offset = 0;
}

bool ReadPlanner::Continues(const Cursor& cursor, uint32_t file, uint64_t end,
                            uint64_t max_gap) const {
  if (AtEnd(cursor) || RangeAt(cursor).file != file) return false;
  const uint64_t next = FileOffset(cursor);
  return next >= end && next - end <= max_gap;
}

// Blocks lie before, in or after the destination; those that are only partly in it, and an
// unaligned last one under direct I/O, count as outside.
ReadPlanner::Stretch ReadPlanner::StretchAt(const Cursor& cursor, const FileAccess& access) const {
  const ReadRange& range = RangeAt(cursor);
  const uint64_t block = range.block_bytes == 0 ? range.size : range.block_bytes;
  const uint64_t destination_end = range.destination_skip + range.destination.size();
  const uint64_t begin = base::AlignUp(range.destination_skip, block);
  uint64_t end =
      destination_end == range.size ? range.size : base::AlignDown(destination_end, block);
  bool straight = true;
  if (access.direct) {
    const DirectAlignment& alignment = access.alignment;
    const auto address = reinterpret_cast<uintptr_t>(range.destination.data());
    straight = range.offset % alignment.offset == 0 &&
               (block == range.size || block % alignment.offset == 0) &&
               (address + begin - range.destination_skip) % alignment.memory == 0;
    if (end == range.size && end % alignment.offset != 0) end = base::AlignDown(end - 1, block);
  }
  if (cursor.offset < begin) return {.size = std::min(begin, range.size) - cursor.offset};
  if (cursor.offset >= end) return {.size = range.size - cursor.offset};
  Stretch stretch{.size = end - cursor.offset};
  if (straight) {
    stretch.destination = range.destination.data() + (cursor.offset - range.destination_skip);
  }
  return stretch;
}

// As much of a stretch at the cursor as fits into `limit`, in whole blocks; 0 when not one does.
uint64_t ReadPlanner::WholeBlocks(const Cursor& cursor, uint64_t stretch, uint64_t limit) const {
  if (stretch <= limit) return stretch;
  const uint64_t block = RangeAt(cursor).block_bytes;
  return block == 0 ? 0 : base::AlignDown(limit, block);
}

// Take `size` bytes, of one range, at the cursor.
void ReadPlanner::Append(std::vector<ReadPiece>& pieces, Cursor& cursor, uint64_t size) const {
  const uint32_t range = order_[cursor.index];
  if (!pieces.empty() && pieces.back().range == range) {
    pieces.back().size += size;
  } else {
    pieces.push_back({.range = range, .offset_in_range = cursor.offset, .size = size});
  }
  Advance(cursor, size);
}

// The blocks from the cursor on, `limit` bytes or one block, that can be read into their
// destinations by one request.
ReadPlanner::Run ReadPlanner::StraightRun(Cursor cursor, const FileAccess& access,
                                          uint64_t limit) const {
  Run run;
  const uint32_t file = RangeAt(cursor).file;
  const uint64_t begin = FileOffset(cursor);
  while (Continues(cursor, file, begin + run.size, 0)) {
    const Stretch stretch = StretchAt(cursor, access);
    if (stretch.destination == nullptr) break;
    if (run.size != 0 && stretch.destination != run.destination + run.size) break;
    uint64_t size = run.size < limit ? WholeBlocks(cursor, stretch.size, limit - run.size) : 0;
    if (size == 0) {
      if (run.size != 0) break;
      size = BlockSize(RangeAt(cursor), cursor.offset);
    }
    if (run.size == 0) run.destination = stretch.destination;
    Append(run.pieces, cursor, size);
    run.size += size;
  }
  run.end = cursor;
  return run;
}

ReadUnit ReadPlanner::TakeStraight(Run&& run, const FileAccess& access) {
  ReadUnit unit;
  unit.file = RangeAt(cursor_).file;
  unit.offset = FileOffset(cursor_);
  unit.size = run.size;
  unit.direct = access.direct;
  unit.straight = run.destination;
  unit.pieces = std::move(run.pieces);
  unit.read_offset = unit.offset;
  unit.read_size = unit.size;
  cursor_ = run.end;
  return unit;
}

Result<ReadUnit> ReadPlanner::TakeBuffered(const FileAccess& access) {
  const uint64_t alignment = access.direct ? access.alignment.offset : 1;
  ReadUnit unit;
  unit.file = RangeAt(cursor_).file;
  unit.offset = FileOffset(cursor_);
  unit.direct = access.direct;
  unit.read_offset = base::AlignDown(unit.offset, alignment);
  // So that the end, rounded up, stays within the limit.
  const uint64_t limit =
      base::AlignDown(std::min(limits_.request_bytes, limits_.buffer_bytes), alignment);
  do {
    const uint64_t at = FileOffset(cursor_);
    const Stretch stretch = StretchAt(cursor_, access);
    if (!unit.pieces.empty() && NeedsBuffers() && stretch.destination != nullptr &&
        StraightRun(cursor_, access, kStraightBytes).size >= kStraightBytes) {
      break;
    }
    const uint64_t used = at - unit.read_offset;
    uint64_t size = used < limit ? WholeBlocks(cursor_, stretch.size, limit - used) : 0;
    if (size == 0) {
      if (!unit.pieces.empty()) break;
      size = BlockSize(RangeAt(cursor_), cursor_.offset);
    }
    Append(unit.pieces, cursor_, size);
    unit.size = at + size - unit.offset;
  } while (Continues(cursor_, unit.file, unit.offset + unit.size, kMaxGap));
  unit.read_size = base::AlignUp(unit.offset + unit.size, alignment) - unit.read_offset;
  if (unit.read_size > limits_.buffer_bytes) {
    return Status(StatusCode::kResourceExhausted,
                  base::Join("a block of ", unit.size, " bytes needs a buffer of ", unit.read_size,
                             " bytes, but one may have ", limits_.buffer_bytes));
  }
  return unit;
}

// Whether the block at the cursor finds no buffer that is large enough.
bool ReadPlanner::TooLarge(const Cursor& cursor, const FileAccess& access) const {
  if (!access.direct || !NeedsBuffers()) return false;
  const uint64_t begin = FileOffset(cursor);
  const uint64_t end = begin + BlockSize(RangeAt(cursor), cursor.offset);
  return base::AlignUp(end, access.alignment.offset) -
             base::AlignDown(begin, access.alignment.offset) >
         limits_.buffer_bytes;
}

Result<std::optional<ReadUnit>> ReadPlanner::Next(std::span<const FileAccess> access) {
  if (AtEnd(cursor_)) return std::optional<ReadUnit>();
  const uint32_t file = RangeAt(cursor_).file;
  FileAccess how = access[file];
  if (NeedsBuffers()) {
    Run run = StraightRun(cursor_, how, limits_.request_bytes);
    bool straight = run.size >= kStraightBytes;
    if (run.size == 0 && TooLarge(cursor_, how)) {
      // Memory that direct I/O cannot reach, and no buffer: straight, through the page cache.
      how.direct = false;
      run = StraightRun(cursor_, how, limits_.request_bytes);
      straight = true;
    }
    // What has no neighbour gains nothing by a buffer.
    straight = straight || !Continues(run.end, file, FileOffset(cursor_) + run.size, kMaxGap);
    if (straight && run.size != 0) {
      return std::optional<ReadUnit>(TakeStraight(std::move(run), how));
    }
  }
  FLAGSTONE_ASSIGN_OR_RETURN(ReadUnit unit, TakeBuffered(how));
  return std::optional<ReadUnit>(std::move(unit));
}

Result<PlanSummary> ReadPlanner::Summarize(std::span<const FileAccess> access) const {
  ReadPlanner ahead = *this;
  PlanSummary summary;
  for (;;) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto unit, ahead.Next(access));
    if (!unit) return summary;
    summary.requests += base::DivideUp(unit->read_size, limits_.request_bytes);
    summary.read_bytes += unit->read_size;
    if (unit->straight != nullptr) continue;
    ++summary.buffered_units;
    summary.largest_buffer = std::max(summary.largest_buffer, unit->read_size);
  }
}

}  // namespace flagstone::io
