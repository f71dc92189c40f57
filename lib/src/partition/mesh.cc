// SPDX-License-Identifier: Apache-2.0
#include "partition/mesh.h"

#include <algorithm>

#include "base/range.h"

namespace flagstone::partition {
namespace {

// Takes parts of a list of intervals, counted along it, from its beginning to its end.
class Taker {
 public:
  explicit Taker(const Intervals& held) : held_(held) {}

  // Indexes [begin, end), behind those that were taken before, appended to `out`.
  void Append(uint64_t begin, uint64_t end, Intervals& out) {
    while (at_ < held_.size() && before_ + held_[at_].size() <= begin) Advance();
    while (begin < end && at_ < held_.size()) {
      const Interval& interval = held_[at_];
      const uint64_t to = std::min(end, before_ + interval.size());
      const Interval part{interval.begin + (begin - before_), interval.begin + (to - before_)};
      if (!out.empty() && out.back().end == part.begin) {
        out.back().end = part.end;
      } else {
        out.push_back(part);
      }
      begin = to;
      if (to == before_ + interval.size()) Advance();
    }
  }

 private:
  void Advance() { before_ += held_[at_++].size(); }

  const Intervals& held_;
  size_t at_ = 0;
  uint64_t before_ = 0;  // indexes of the intervals before that one
};

// Piece `index` of `pieces` into which torch.chunk cuts `size`.
Interval Chunk(uint64_t size, uint64_t pieces, uint64_t index) {
  const uint64_t share = base::DivideUp(size, pieces);
  const uint64_t begin = std::min(size, base::CheckedMultiply(index, share).value_or(size));
  return {begin, begin + std::min(share, size - begin)};
}

}  // namespace

uint64_t TotalSize(std::span<const Interval> intervals) {
  uint64_t size = 0;
  for (const Interval& interval : intervals) size += interval.size();
  return size;
}

Mesh::Mesh(const MeshCut& cut) {
  uint32_t step = 1;
  for (size_t i = cut.axes.size(); i-- > 0;) {
    const MeshAxis& axis = cut.axes[i];
    const bool shards = axis.placement != MeshPlacement::kReplicate;
    const bool strided = axis.placement == MeshPlacement::kStridedShard;
    axes_.push_back({axis.dimension, shards, axis.size, strided ? axis.split_factor : 1, step});
    if (shards) dimensions_.push_back(axis.dimension);
    step *= axis.size;
  }
  std::reverse(axes_.begin(), axes_.end());
  std::sort(dimensions_.begin(), dimensions_.end());
  dimensions_.erase(std::unique(dimensions_.begin(), dimensions_.end()), dimensions_.end());
}

uint32_t Mesh::StoringPosition(uint32_t position) const {
  for (const Axis& axis : axes_) {
    if (!axis.shards) position -= position / axis.step % axis.size * axis.step;
  }
  return position;
}

// torch's order for a strided shard: cut into split_factor pieces, each of those over the axis; the
// coordinate has its part of every piece, one behind the other.
Intervals Mesh::Take(const Intervals& held, const Axis& axis, uint32_t coordinate) {
  const uint64_t total = TotalSize(held);
  Taker taker(held);
  Intervals taken;
  for (uint32_t i = 0; i < axis.split_factor; ++i) {
    const Interval piece = Chunk(total, axis.split_factor, i);
    if (piece.size() == 0) break;
    const Interval part = Chunk(piece.size(), axis.size, coordinate);
    taker.Append(piece.begin + part.begin, piece.begin + part.end, taken);
  }
  return taken;
}

Intervals Mesh::Held(uint32_t position, uint32_t dimension, uint64_t size) const {
  Intervals held;
  if (size > 0) held.push_back({0, size});
  for (const Axis& axis : axes_) {
    if (!axis.shards || axis.dimension != dimension) continue;
    held = Take(held, axis, position / axis.step % axis.size);
  }
  return held;
}

uint64_t Mesh::HeldSize(uint32_t position, uint32_t dimension, uint64_t size) const {
  for (const Axis& axis : axes_) {
    if (!axis.shards || axis.dimension != dimension) continue;
    if (size == 0) return 0;
    // Pieces of one size, and what is left for the last.
    const uint32_t coordinate = position / axis.step % axis.size;
    const uint64_t piece = base::DivideUp(size, axis.split_factor);
    size = size / piece * Chunk(piece, axis.size, coordinate).size() +
           Chunk(size % piece, axis.size, coordinate).size();
  }
  return size;
}

void Mesh::ForEachMeeting(uint32_t dimension, uint64_t size, Interval wanted,
                          const Visitor& visit) const {
  if (size == 0 || wanted.size() == 0) return;
  Visit(0, dimension, {{0, size}}, wanted, 0, visit);
}

void Mesh::Visit(size_t index, uint32_t dimension, const Intervals& held, Interval wanted,
                 uint32_t offset, const Visitor& visit) const {
  while (index < axes_.size() &&
         (!axes_[index].shards || axes_[index].dimension != dimension)) {
    ++index;
  }
  if (index == axes_.size()) {
    visit(offset, held);
    return;
  }
  const Axis& axis = axes_[index];
  // Which coordinates have a part of what is wanted: for each piece of a strided shard a range of
  // them.
  const uint64_t total = TotalSize(held);
  std::vector<uint32_t> coordinates;
  uint64_t before = 0;
  for (const Interval& interval : held) {
    const uint64_t from = std::max(wanted.begin, interval.begin);
    const uint64_t to = std::min(wanted.end, interval.end);
    if (from < to) {
      const uint64_t begin = before + (from - interval.begin);  // along `held`
      const uint64_t last = before + (to - interval.begin) - 1;
      const uint64_t piece_size = base::DivideUp(total, axis.split_factor);
      for (uint64_t piece = begin / piece_size; piece <= last / piece_size; ++piece) {
        const Interval here = Chunk(total, axis.split_factor, piece);
        const uint64_t share = base::DivideUp(here.size(), axis.size);
        const uint64_t first = (std::max(begin, here.begin) - here.begin) / share;
        const uint64_t end = (std::min(last, here.end - 1) - here.begin) / share;
        for (uint64_t c = first; c <= end; ++c) coordinates.push_back(static_cast<uint32_t>(c));
      }
    }
    before += interval.size();
  }
  std::sort(coordinates.begin(), coordinates.end());
  coordinates.erase(std::unique(coordinates.begin(), coordinates.end()), coordinates.end());
  for (const uint32_t c : coordinates) {
    const Intervals taken = Take(held, axis, c);
    // Of several intervals some may lie beside what is wanted; one at least does not.
    Visit(index + 1, dimension, taken, wanted, offset + c * axis.step, visit);
  }
}

}  // namespace flagstone::partition
