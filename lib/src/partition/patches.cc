// SPDX-License-Identifier: Apache-2.0
// The part of Geometry that tells where slices and local tensors lie as rectangles.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/range.h"
#include "partition/geometry.h"

namespace flagstone::partition {

Geometry::HeldDimensions Geometry::HeldOf(uint32_t member, uint32_t rank_index) const {
  const std::vector<uint64_t>& shape = member_shape(member);
  HeldDimensions held;
  for (const uint32_t d : mesh_->dimensions()) {
    held.push_back(mesh_->Held(rank_index, d, shape[d]));
  }
  return held;
}

LocalTensor Geometry::Local(uint32_t member, uint32_t rank_index) const {
  const auto& box = partition().members[member].box;
  const HeldDimensions held = HeldOf(member, rank_index);
  const auto dimensions = mesh_->dimensions();
  LocalTensor local;
  local.shape = member_shape(member);
  for (size_t i = 0; i < held.size(); ++i) local.shape[dimensions[i]] = TotalSize(held[i]);
  if (LocalElements(member, rank_index) == 0) return local;
  // Every choice of an interval of each sharded dimension, the last of them changing first.
  const std::vector<uint64_t> none(local.shape.size(), 0);
  local.parts.push_back({{box ? box->offsets : none, member_shape(member)}, none});
  for (size_t i = 0; i < held.size(); ++i) {
    const uint32_t d = dimensions[i];
    std::vector<LocalTensor::Part> parts;
    for (const LocalTensor::Part& before : local.parts) {
      uint64_t offset = 0;
      for (const Interval& interval : held[i]) {
        LocalTensor::Part part = before;
        part.box.offsets[d] += interval.begin;
        part.box.sizes[d] = interval.size();
        part.offsets[d] = offset;
        offset += interval.size();
        parts.push_back(std::move(part));
      }
    }
    local.parts = std::move(parts);
  }
  return local;
}

void Geometry::AppendPatches(const Grouping& grouping, uint32_t rank_index, const Slice& slice,
                             uint64_t base, std::vector<Patch>& out) const {
  if (mesh_) {
    AppendMeshPatches(grouping, slice.member, HeldOf(slice.member, rank_index), base, out);
    return;
  }
  Groups offsets{};
  Groups sizes{};
  grouping.Place(partition().members[slice.member].box, offsets, sizes);
  AppendLinear(grouping.count(), offsets, sizes, slice.begin, slice.end, base, out);
}

// Where each sharded dimension is held as one interval the local tensor is one patch; otherwise
// there is one for each choice of an interval of every dimension.
void Geometry::AppendMeshPatches(const Grouping& grouping, uint32_t member,
                                 const HeldDimensions& held, uint64_t base,
                                 std::vector<Patch>& out) const {
  const auto dimensions = mesh_->dimensions();
  Patch whole;  // the local tensor, as if each dimension began where the box does
  grouping.Place(partition().members[member].box, whole.offsets, whole.sizes);
  std::vector<uint32_t> groups(held.size());
  for (size_t i = 0; i < held.size(); ++i) {
    if (held[i].empty()) return;
    groups[i] = grouping.GroupAt(dimensions[i]);
    whole.sizes[groups[i]] = TotalSize(held[i]) * grouping.unit(groups[i]);
  }
  uint64_t stride = 1;
  for (uint32_t g = grouping.count(); g-- > 0;) {
    whole.strides[g] = stride;
    stride *= whole.sizes[g];
  }
  if (stride == 0) return;  // a dimension that nobody cuts has no elements
  whole.base = base;
  const size_t first = out.size();
  out.push_back(whole);
  for (size_t i = 0; i < held.size(); ++i) {
    const uint32_t g = groups[i];
    const uint64_t unit = grouping.unit(g);
    const size_t end = out.size();
    for (size_t p = first; p < end; ++p) {
      const Patch before = out[p];
      uint64_t local = 0;  // indexes of the local tensor before this interval
      for (size_t k = 0; k < held[i].size(); ++k) {
        Patch part = before;
        part.offsets[g] += held[i][k].begin * unit;
        part.sizes[g] = held[i][k].size() * unit;
        part.base += local * unit * part.strides[g];
        local += held[i][k].size();
        if (k == 0) {
          out[p] = part;
        } else {
          out.push_back(part);
        }
      }
    }
  }
}

void Geometry::AppendStoredPatches(const Grouping& grouping, uint32_t role, uint32_t member,
                                   const Patch& wanted, std::vector<StoredPatch>& out) const {
  if (elements_[member] == 0) return;
  if (mesh_) {
    AppendStoredOfMesh(grouping, member, wanted, out);
    return;
  }
  // The part of the member that is wanted, counted from the member's first element.
  Groups box_offsets{};
  Groups box_sizes{};
  Groups offsets{};
  Groups sizes{};
  grouping.Place(partition().members[member].box, box_offsets, box_sizes);
  for (uint32_t g = 0; g < grouping.count(); ++g) {
    const uint64_t begin = std::max(wanted.offsets[g], box_offsets[g]);
    const uint64_t end =
        std::min(wanted.offsets[g] + wanted.sizes[g], box_offsets[g] + box_sizes[g]);
    if (begin >= end) return;
    offsets[g] = begin - box_offsets[g];
    sizes[g] = end - begin;
  }
  const LinearRange range = BoundingRange(grouping.count(), box_sizes, offsets, sizes);
  const uint64_t element_bytes = SizeOf(partition().roles[role].dtype);
  std::vector<Patch> patches;
  for (const StoredPiece& piece : FindStored(role, member, range.begin, range.end)) {
    patches.clear();
    AppendLinear(grouping.count(), box_offsets, box_sizes, piece.slice.begin, piece.slice.end,
                 piece.byte_offset / element_bytes, patches);
    for (const Patch& patch : patches) out.push_back({piece.rank_index, patch});
  }
}

void Geometry::AppendStoredOfMesh(const Grouping& grouping, uint32_t member, const Patch& wanted,
                                  std::vector<StoredPatch>& out) const {
  const std::vector<uint64_t>& shape = member_shape(member);
  const auto& box = partition().members[member].box;
  // Who has which of the wanted indexes of each sharded dimension, and from that every combination.
  struct Holder {
    uint32_t rank_index = 0;
    HeldDimensions held;
  };
  std::vector<Holder> holders = {{}};
  for (const uint32_t d : mesh_->dimensions()) {
    const uint32_t g = grouping.GroupAt(d);
    const uint64_t unit = grouping.unit(g);
    const uint64_t before = box ? box->offsets[d] : 0;
    Interval indexes{wanted.offsets[g] / unit,
                     base::DivideUp(wanted.offsets[g] + wanted.sizes[g], unit)};
    indexes.begin = std::max(indexes.begin, before) - before;
    indexes.end = std::min(std::max(indexes.end, before) - before, shape[d]);
    if (indexes.begin >= indexes.end) return;
    std::vector<Holder> combined;
    mesh_->ForEachMeeting(d, shape[d], indexes, [&](uint32_t offset, const Intervals& held) {
      for (const Holder& holder : holders) {
        combined.push_back({holder.rank_index + offset, holder.held});
        combined.back().held.push_back(held);
      }
    });
    holders = std::move(combined);
  }
  std::vector<Patch> patches;
  for (const Holder& holder : holders) {
    patches.clear();
    AppendMeshPatches(grouping, member, holder.held, PackedOffset(member, holder.rank_index),
                      patches);
    for (const Patch& patch : patches) out.push_back({holder.rank_index, patch});
  }
}

}  // namespace flagstone::partition
