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
    planner.total_bytes_ += range.size;
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

// Where `size` bytes at the cursor end up, or null when not all of them have a destination.
std::byte* ReadPlanner::DestinationOf(const Cursor& cursor, uint64_t size) const {
  const ReadRange& range = RangeAt(cursor);
  if (cursor.offset < range.destination_skip) return nullptr;
  const uint64_t at = cursor.offset - range.destination_skip;
  if (!base::InBounds(at, size, range.destination.size())) return nullptr;
  return range.destination.data() + at;
}

// The blocks from the cursor on, `limit` bytes or one block, that can be read into their
// destinations by one request.
ReadPlanner::Run ReadPlanner::StraightRun(Cursor cursor, const FileAccess& access,
                                          uint64_t limit) const {
  Run run{.size = 0, .end = cursor};
  const uint32_t file = RangeAt(cursor).file;
  const uint64_t begin = FileOffset(cursor);
  const std::byte* first = nullptr;
  while (Continues(cursor, file, begin + run.size, 0)) {
    const uint64_t size = BlockSize(RangeAt(cursor), cursor.offset);
    if (run.size != 0 && run.size + size > limit) break;
    const std::byte* const destination = DestinationOf(cursor, size);
    if (destination == nullptr) break;
    if (run.size == 0) {
      first = destination;
    } else if (destination != first + run.size) {
      break;
    }
    if (access.direct &&
        ((begin + run.size) % access.alignment.offset != 0 || size % access.alignment.offset != 0 ||
         reinterpret_cast<uintptr_t>(destination) % access.alignment.memory != 0)) {
      break;
    }
    run.size += size;
    Advance(cursor, size);
    run.end = cursor;
  }
  return run;
}

// Take `size` bytes, of one range, at the cursor into the unit.
void ReadPlanner::Append(ReadUnit& unit, uint64_t size) {
  const uint32_t range = order_[cursor_.index];
  unit.size = FileOffset(cursor_) + size - unit.offset;
  if (!unit.pieces.empty() && unit.pieces.back().range == range) {
    unit.pieces.back().size += size;
  } else {
    unit.pieces.push_back({.range = range, .offset_in_range = cursor_.offset, .size = size});
  }
  Advance(cursor_, size);
}

ReadUnit ReadPlanner::TakeStraight(const Run& run, const FileAccess& access) {
  ReadUnit unit;
  unit.file = RangeAt(cursor_).file;
  unit.offset = FileOffset(cursor_);
  unit.direct = access.direct;
  unit.straight = DestinationOf(cursor_, BlockSize(RangeAt(cursor_), cursor_.offset));
  while (cursor_.index != run.end.index || cursor_.offset != run.end.offset) {
    Append(unit, BlockSize(RangeAt(cursor_), cursor_.offset));
  }
  unit.read_offset = unit.offset;
  unit.read_size = unit.size;
  return unit;
}

Result<ReadUnit> ReadPlanner::TakeBuffered(const FileAccess& access) {
  const uint64_t alignment = access.direct ? access.alignment.offset : 1;
  ReadUnit unit;
  unit.file = RangeAt(cursor_).file;
  unit.offset = FileOffset(cursor_);
  unit.direct = access.direct;
  const uint64_t begin = base::AlignDown(unit.offset, alignment);
  do {
    const uint64_t size = BlockSize(RangeAt(cursor_), cursor_.offset);
    const uint64_t total = base::AlignUp(FileOffset(cursor_) + size, alignment) - begin;
    if (total > limits_.buffer_bytes && unit.pieces.empty()) {
      return Status(StatusCode::kResourceExhausted,
                    base::Join("a block of ", size, " bytes needs a buffer of ", total,
                               " bytes, but one may have ", limits_.buffer_bytes));
    }
    if (!unit.pieces.empty()) {
      if (total > limits_.request_bytes || total > limits_.buffer_bytes) break;
      if (NeedsBuffers() && StraightRun(cursor_, access, kStraightBytes).size >= kStraightBytes) {
        break;
      }
    }
    Append(unit, size);
  } while (Continues(cursor_, unit.file, unit.offset + unit.size, kMaxGap));
  unit.read_offset = begin;
  unit.read_size = base::AlignUp(unit.offset + unit.size, alignment) - begin;
  return unit;
}

Result<std::optional<ReadUnit>> ReadPlanner::Next(std::span<const FileAccess> access) {
  if (AtEnd(cursor_)) return std::optional<ReadUnit>();
  const uint32_t file = RangeAt(cursor_).file;
  FileAccess how = access[file];
  Run run = NeedsBuffers() ? StraightRun(cursor_, how, limits_.request_bytes) : Run{};
  // A block too large for any buffer whose destination does not fit direct I/O is read through the
  // page cache, straight.
  const uint64_t block = BlockSize(RangeAt(cursor_), cursor_.offset);
  const bool too_large = run.size == 0 && how.direct && NeedsBuffers() &&
                         block + 2 * how.alignment.offset > limits_.buffer_bytes;
  if (too_large && DestinationOf(cursor_, block) != nullptr) {
    how.direct = false;
    run = StraightRun(cursor_, how, limits_.request_bytes);
  }
  const bool alone =
      run.size != 0 && !Continues(run.end, file, FileOffset(cursor_) + run.size, kMaxGap);
  if (run.size >= kStraightBytes || alone || (too_large && run.size != 0)) {
    return std::optional<ReadUnit>(TakeStraight(run, how));
  }
  FLAGSTONE_ASSIGN_OR_RETURN(ReadUnit unit, TakeBuffered(how));
  return std::optional<ReadUnit>(std::move(unit));
}

}  // namespace flagstone::io
