// SPDX-License-Identifier: Apache-2.0
#include "partition/blocks.h"

#include <algorithm>

#include "base/range.h"

namespace flagstone::partition {

Grouping::Grouping(const std::vector<uint64_t>& shape, std::span<const uint32_t> cut)
    : shape_(shape) {
  std::array<uint32_t, kMaxGroups> begins{};
  uint32_t count = 1;
  for (const uint32_t dimension : cut) {
    const auto end = begins.begin() + count;
    if (std::find(begins.begin(), end, dimension) == end) begins[count++] = dimension;
  }
  std::sort(begins.begin(), begins.begin() + count);
  count_ = count;
  first_ = begins;
  for (uint32_t g = 0; g < count_; ++g) {
    const uint32_t end = g + 1 < count_ ? first_[g + 1] : static_cast<uint32_t>(shape.size());
    units_[g] = 1;
    for (uint32_t d = first_[g] + 1; d < end; ++d) units_[g] *= shape[d];
  }
}

uint32_t Grouping::GroupAt(uint32_t dimension) const {
  return static_cast<uint32_t>(std::find(first_.begin(), first_.begin() + count_, dimension) -
                               first_.begin());
}

void Grouping::Place(const std::optional<Box>& box, Groups& offsets, Groups& sizes) const {
  for (uint32_t g = 0; g < count_; ++g) {
    const uint32_t d = first_[g];
    const bool scalar = d >= shape_.size();  // of a tensor without dimensions
    offsets[g] = box && !scalar ? box->offsets[d] * units_[g] : 0;
    sizes[g] = scalar ? 1 : (box ? box->sizes[d] : shape_[d]) * units_[g];
  }
}

void AppendLinear(uint32_t groups, const Groups& box_offsets, const Groups& box_sizes,
                  uint64_t begin, uint64_t end, uint64_t base, std::vector<Patch>& out) {
  if (begin >= end) return;
  Groups strides{};  // of the box in itself
  uint64_t stride = 1;
  for (uint32_t g = groups; g-- > 0;) {
    strides[g] = stride;
    stride *= box_sizes[g];
  }
  // From `begin` on, each time the largest block that begins there: whole indexes of the outermost
  // group whose inner indexes are all 0. First it grows outwards, then inwards again.
  for (uint64_t at = begin; at < end;) {
    uint32_t group = groups - 1;
    while (group > 0 && at % strides[group - 1] == 0 && end - at >= strides[group - 1]) --group;
    // As many indexes as there are up to the end of the range and of the dimension.
    uint64_t indexes = (end - at) / strides[group];
    if (group > 0) {
      const uint64_t used = at % strides[group - 1] / strides[group];
      indexes = std::min(indexes, box_sizes[group] - used);
    }
    Patch& patch = out.emplace_back();
    for (uint32_t g = 0; g < groups; ++g) {
      const uint64_t index = g == 0 ? at / strides[0] : at % strides[g - 1] / strides[g];
      patch.offsets[g] = box_offsets[g] + index;
      patch.sizes[g] = g < group ? 1 : g == group ? indexes : box_sizes[g];
    }
    patch.strides = strides;
    patch.base = base + (at - begin);
    at += indexes * strides[group];
  }
}

uint64_t Overlap::elements() const {
  uint64_t count = length;
  for (uint32_t i = 0; i < level_count; ++i) count *= levels[i].count;
  return count;
}

bool Intersect(uint32_t groups, const Patch& source, const Patch& target, Overlap& overlap) {
  overlap.source = source.base;
  overlap.target = target.base;
  overlap.length = 1;
  overlap.level_count = 0;
  Groups counts{};
  for (uint32_t g = 0; g < groups; ++g) {
    const uint64_t begin = std::max(source.offsets[g], target.offsets[g]);
    const uint64_t end = std::min(source.offsets[g] + source.sizes[g],
                                  target.offsets[g] + target.sizes[g]);
    if (begin >= end) return false;
    counts[g] = end - begin;
    overlap.source += (begin - source.offsets[g]) * source.strides[g];
    overlap.target += (begin - target.offsets[g]) * target.strides[g];
  }
  // From the innermost group out: what follows itself on both sides is one longer run or level.
  std::array<Overlap::Level, kMaxGroups> inner_first;
  uint32_t levels = 0;
  for (uint32_t g = groups; g-- > 0;) {
    if (counts[g] == 1) continue;
    if (levels == 0 && source.strides[g] == overlap.length &&
        target.strides[g] == overlap.length) {
      overlap.length *= counts[g];
      continue;
    }
    if (levels > 0) {
      Overlap::Level& last = inner_first[levels - 1];
      if (source.strides[g] == last.count * last.source_stride &&
          target.strides[g] == last.count * last.target_stride) {
        last.count *= counts[g];
        continue;
      }
    }
    inner_first[levels++] = {counts[g], source.strides[g], target.strides[g]};
  }
  overlap.level_count = levels;
  std::reverse_copy(inner_first.begin(), inner_first.begin() + levels, overlap.levels.begin());
  return true;
}

LinearRange BoundingRange(uint32_t groups, const Groups& box_sizes, const Groups& offsets,
                          const Groups& sizes) {
  LinearRange range;
  uint64_t stride = 1;
  uint64_t last = 0;
  uint64_t row = 1;  // of the outermost group of which more than one index is wanted
  for (uint32_t g = groups; g-- > 0;) {
    range.begin += offsets[g] * stride;
    last += (offsets[g] + sizes[g] - 1) * stride;
    if (sizes[g] > 1) row = stride;
    stride *= box_sizes[g];
  }
  range.begin = base::AlignDown(range.begin, row);
  range.end = base::AlignUp(last + 1, row);
  return range;
}

}  // namespace flagstone::partition
