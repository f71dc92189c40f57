// SPDX-License-Identifier: Apache-2.0
#include "partition/geometry.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <unordered_map>

#include "base/range.h"

namespace flagstone::partition {
namespace {

// Offsets in a rank's per-tensor or mesh segment are sums over the members before; one sum is kept for so
// many members, so that a plan that meets a thousand ranks keeps megabytes, not hundreds of them.
constexpr uint32_t kSumStride = 32;

template <typename Rule>
const Rule* As(const Partition& partition) {
  return std::get_if<Rule>(&partition.cut);
}

}  // namespace

std::optional<uint32_t> HolderIndex(const Partition& partition, uint32_t rank) {
  if (const auto index = partition.ranks.IndexOf(rank)) return index;
  for (const RankList& replica : partition.replicas) {
    if (const auto index = replica.IndexOf(rank)) return index;
  }
  return std::nullopt;
}

// Found on demand, then never changed: a pointer into it stays good without the lock.
struct Geometry::Cache {
  std::mutex mutex;
  std::unordered_map<uint32_t, std::vector<uint64_t>> packed_sums;    // by rank, every 32nd member
  std::unordered_map<uint32_t, std::vector<uint64_t>> owned_offsets;  // by role, per member, bytes
};

Geometry::Geometry(const Layout& layout, uint32_t partition)
    : layout_(&layout), index_(partition), cache_(std::make_shared<Cache>()) {
  const Partition& self = layout.partitions[partition];
  for (const RankRange& range : self.ranks.ranges) {
    range_starts_.push_back(rank_count_);
    rank_count_ += range.count;
  }
  elements_.reserve(self.members.size());
  for (uint32_t m = 0; m < self.members.size(); ++m) {
    elements_.push_back(ElementCount(member_shape(m)).value_or(0));
  }
  if (As<FlatCut>(self)) {
    starts_.resize(elements_.size() + 1);
    std::partial_sum(elements_.begin(), elements_.end(), starts_.begin() + 1);
  } else if (const auto* even = As<PerTensorCut>(self)) {
    SetUpPerTensor(even->unit);
  } else if (const auto* mesh = As<MeshCut>(self)) {
    mesh_.emplace(*mesh);
  } else if (const auto* owners = Owners()) {
    by_rank_.resize(elements_.size());
    std::iota(by_rank_.begin(), by_rank_.end(), 0);
    std::stable_sort(by_rank_.begin(), by_rank_.end(),
                     [owners](uint32_t a, uint32_t b) { return (*owners)[a] < (*owners)[b]; });
  } else if (const auto* stated = As<ExplicitCut>(self)) {
    SetUpExplicit(stated->pieces);
  }
}

const std::vector<uint64_t>& Geometry::member_shape(uint32_t member) const {
  const Member& self = partition().members[member];
  return self.box ? self.box->sizes : layout_->tensors[self.tensor].shape;
}

// torch.chunk's cut: ceil(units / ranks) units each, so that the last ranks may have fewer, or
// none.
void Geometry::SetUpPerTensor(CutUnit unit) {
  even_.resize(elements_.size());
  for (uint32_t m = 0; m < elements_.size(); ++m) {
    const std::vector<uint64_t>& shape = member_shape(m);
    const uint64_t elements = elements_[m];
    if (elements == 0) continue;
    uint64_t units = elements;
    if (unit == CutUnit::kRow) units = shape.empty() ? 1 : shape[0];
    even_[m].length = base::DivideUp(units, rank_count_) * (elements / units);
    even_[m].pieces = static_cast<uint32_t>(base::DivideUp(elements, even_[m].length));
  }
}

void Geometry::SetUpExplicit(const std::vector<ExplicitPiece>& pieces) {
  by_rank_.resize(pieces.size());
  std::iota(by_rank_.begin(), by_rank_.end(), 0);
  by_member_ = by_rank_;
  std::stable_sort(by_rank_.begin(), by_rank_.end(), [&](uint32_t a, uint32_t b) {
    return pieces[a].rank_index < pieces[b].rank_index;
  });
  std::sort(by_member_.begin(), by_member_.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(pieces[a].member, pieces[a].begin) <
           std::pair(pieces[b].member, pieces[b].begin);
  });
  piece_starts_.resize(pieces.size());
  uint64_t start = 0;
  for (size_t i = 0; i < by_rank_.size(); ++i) {
    const ExplicitPiece& piece = pieces[by_rank_[i]];
    if (i > 0 && pieces[by_rank_[i - 1]].rank_index != piece.rank_index) start = 0;
    piece_starts_[by_rank_[i]] = start;
    start += piece.end - piece.begin;
  }
}

const std::vector<uint32_t>* Geometry::Owners() const {
  if (const auto* whole = As<WholeCut>(partition())) return &whole->owners;
  if (const auto* replicated = As<ReplicatedCut>(partition())) return &replicated->storing;
  return nullptr;
}

uint64_t Geometry::role_elements(uint32_t role, uint32_t member) const {
  const Role& self = partition().roles[role];
  if (self.form != RoleForm::kAttached) return elements_[member];
  return ElementCount(self.shapes[member]).value_or(0);
}

std::vector<Slice> Geometry::Held(uint32_t rank_index) const {
  if (mesh_) return MeshSlices(rank_index);
  if (!As<ReplicatedCut>(partition())) return Stored(rank_index);
  std::vector<Slice> slices;
  slices.reserve(elements_.size());
  for (uint32_t m = 0; m < elements_.size(); ++m) slices.push_back({m, 0, elements_[m]});
  return slices;
}

std::vector<Slice> Geometry::Stored(uint32_t rank_index) const {
  if (As<FlatCut>(partition())) return FlatSlices(rank_index);
  if (As<PerTensorCut>(partition())) return EvenSlices(rank_index);
  if (As<ExplicitCut>(partition())) return ExplicitSlices(rank_index);
  if (mesh_) {
    return mesh_->StoringPosition(rank_index) == rank_index ? MeshSlices(rank_index)
                                                            : std::vector<Slice>();
  }
  return OwnedSlices(rank_index);
}

std::vector<Slice> Geometry::FlatSlices(uint32_t rank_index) const {
  const std::vector<uint64_t>& cuts = As<FlatCut>(partition())->cuts;
  const uint64_t begin = cuts[rank_index];
  const uint64_t end = cuts[rank_index + 1];
  std::vector<Slice> slices;
  // The last member that begins at or before `begin`: empty members before it are passed over.
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), begin);
  auto m = static_cast<uint32_t>(after - starts_.begin()) - 1;
  for (; m < elements_.size() && starts_[m] < end; ++m) {
    const uint64_t from = std::max(begin, starts_[m]);
    const uint64_t to = std::min(end, starts_[m + 1]);
    if (from < to) slices.push_back({m, from - starts_[m], to - starts_[m]});
  }
  return slices;
}

std::vector<Slice> Geometry::EvenSlices(uint32_t rank_index) const {
  std::vector<Slice> slices;
  for (uint32_t m = 0; m < elements_.size(); ++m) {
    const auto [begin, end] = EvenRange(m, rank_index);
    if (begin < end) slices.push_back({m, begin, end});
  }
  return slices;
}

std::vector<Slice> Geometry::MeshSlices(uint32_t rank_index) const {
  std::vector<Slice> slices;
  for (uint32_t m = 0; m < elements_.size(); ++m) {
    const uint64_t elements = LocalElements(m, rank_index);
    if (elements > 0) slices.push_back({m, 0, elements});
  }
  return slices;
}

std::vector<Slice> Geometry::OwnedSlices(uint32_t rank_index) const {
  std::vector<Slice> slices;
  const std::vector<uint32_t>* owners = Owners();
  if (!owners) return slices;
  auto at = std::lower_bound(by_rank_.begin(), by_rank_.end(), rank_index,
                             [owners](uint32_t m, uint32_t rank) { return (*owners)[m] < rank; });
  for (; at != by_rank_.end() && (*owners)[*at] == rank_index; ++at) {
    slices.push_back({*at, 0, elements_[*at]});
  }
  return slices;
}

std::vector<Slice> Geometry::ExplicitSlices(uint32_t rank_index) const {
  const std::vector<ExplicitPiece>& pieces = As<ExplicitCut>(partition())->pieces;
  std::vector<Slice> slices;
  auto at =
      std::lower_bound(by_rank_.begin(), by_rank_.end(), rank_index,
                       [&](uint32_t i, uint32_t rank) { return pieces[i].rank_index < rank; });
  for (; at != by_rank_.end() && pieces[*at].rank_index == rank_index; ++at) {
    slices.push_back({pieces[*at].member, pieces[*at].begin, pieces[*at].end});
  }
  return slices;
}

Segment Geometry::HeldSegment(uint32_t role, uint32_t rank_index) const {
  return MakeSegment(role, Held(rank_index));
}

Segment Geometry::StoredSegment(uint32_t role, uint32_t rank_index) const {
  return MakeSegment(role, Stored(rank_index));
}

uint64_t Geometry::StoredBytes(uint32_t role, uint32_t rank_index) const {
  const bool packed = As<PerTensorCut>(partition()) || mesh_;
  if (!packed || partition().roles[role].form != RoleForm::kAligned) {
    return StoredSegment(role, rank_index).bytes;
  }
  // Of many members each rank has a piece of nearly all; a plan over many ranks asks each of them.
  if (mesh_ && mesh_->StoringPosition(rank_index) != rank_index) return 0;
  uint64_t elements = 0;
  for (uint32_t m = 0; m < elements_.size(); ++m) elements += PackedElements(m, rank_index);
  return elements * SizeOf(partition().roles[role].dtype);
}

Segment Geometry::MakeSegment(uint32_t role, const std::vector<Slice>& slices) const {
  const Role& self = partition().roles[role];
  const uint64_t size = SizeOf(self.dtype);
  const uint64_t alignment = Owners() ? kMemberAlignment : 1;
  Segment segment;
  segment.pieces.reserve(slices.size());
  for (Slice slice : slices) {
    if (self.form == RoleForm::kAttached) slice.end = role_elements(role, slice.member);
    const uint64_t offset = base::AlignUp(segment.bytes, alignment);
    const uint64_t bytes = (slice.end - slice.begin) * size;
    segment.pieces.push_back({slice, offset, bytes});
    segment.bytes = offset + bytes;
  }
  return segment;
}

std::vector<StoredPiece> Geometry::FindStored(uint32_t role, uint32_t member, uint64_t begin,
                                              uint64_t end) const {
  std::vector<StoredPiece> found;
  AppendStored(role, member, begin, end, found);
  return found;
}

void Geometry::AppendStored(uint32_t role, uint32_t member, uint64_t begin, uint64_t end,
                            std::vector<StoredPiece>& out) const {
  const uint64_t size = SizeOf(partition().roles[role].dtype);
  if (begin >= end) return;
  if (const auto* owners = Owners()) {
    out.push_back(
        {(*owners)[member], {member, begin, end}, OwnedOffset(role, member) + begin * size});
  } else if (const auto* flat = As<FlatCut>(partition())) {
    const std::vector<uint64_t>& cuts = flat->cuts;
    const uint64_t start = starts_[member];
    auto next = std::upper_bound(cuts.begin(), cuts.end(), start + begin);
    for (; begin < end; ++next) {
      const uint64_t to = std::min(end, *next - start);
      if (to == begin) continue;  // a rank without elements
      const uint64_t in_segment = start + begin - *(next - 1);
      out.push_back(
          {static_cast<uint32_t>(next - cuts.begin()) - 1, {member, begin, to}, in_segment * size});
      begin = to;
    }
  } else if (As<PerTensorCut>(partition())) {
    for (auto rank = static_cast<uint32_t>(begin / even_[member].length); begin < end; ++rank) {
      const auto [from, until] = EvenRange(member, rank);
      const uint64_t to = std::min(end, until);
      out.push_back(
          {rank, {member, begin, to}, (PackedOffset(member, rank) + (begin - from)) * size});
      begin = to;
    }
  } else if (const auto* stated = As<ExplicitCut>(partition())) {
    const std::vector<ExplicitPiece>& pieces = stated->pieces;
    // The first piece of the member that ends behind `begin`.
    auto at = std::upper_bound(by_member_.begin(), by_member_.end(), std::pair(member, begin),
                               [&](const std::pair<uint32_t, uint64_t>& key, uint32_t i) {
                                 return key < std::pair(pieces[i].member, pieces[i].begin);
                               });
    for (--at; begin < end; ++at) {
      const ExplicitPiece& piece = pieces[*at];
      const uint64_t to = std::min(end, piece.end);
      out.push_back({piece.rank_index,
                     {member, begin, to},
                     (piece_starts_[*at] + (begin - piece.begin)) * size});
      begin = to;
    }
  }
}

std::pair<uint64_t, uint64_t> Geometry::EvenRange(uint32_t member, uint32_t rank_index) const {
  const EvenPieces& even = even_[member];
  if (rank_index >= even.pieces) return {elements_[member], elements_[member]};
  const uint64_t begin = rank_index * even.length;
  return {begin, rank_index + 1 == even.pieces ? elements_[member] : begin + even.length};
}

// Elements of a rank's local tensor under a mesh rule.
uint64_t Geometry::LocalElements(uint32_t member, uint32_t rank_index) const {
  uint64_t elements = elements_[member];
  if (elements == 0) return 0;
  const std::vector<uint64_t>& shape = member_shape(member);
  for (const uint32_t d : mesh_->dimensions()) {
    elements = elements / shape[d] * mesh_->HeldSize(rank_index, d, shape[d]);
  }
  return elements;
}

// Elements of a member in the segment of a rank, of a rule that packs the pieces of all members.
uint64_t Geometry::PackedElements(uint32_t member, uint32_t rank_index) const {
  if (mesh_) return LocalElements(member, rank_index);
  const auto [begin, end] = EvenRange(member, rank_index);
  return end - begin;
}

// Elements before `member` in the segment of a rank.
uint64_t Geometry::PackedOffset(uint32_t member, uint32_t rank_index) const {
  const std::vector<uint64_t>* sums = nullptr;
  {
    const std::lock_guard lock(cache_->mutex);
    std::vector<uint64_t>& known = cache_->packed_sums[rank_index];
    if (known.empty()) {
      known.reserve(elements_.size() / kSumStride + 1);
      uint64_t sum = 0;
      for (uint32_t m = 0; m < elements_.size(); ++m) {
        if (m % kSumStride == 0) known.push_back(sum);
        sum += PackedElements(m, rank_index);
      }
    }
    sums = &known;
  }
  uint64_t offset = (*sums)[member / kSumStride];
  for (uint32_t m = member - member % kSumStride; m < member; ++m) {
    offset += PackedElements(m, rank_index);
  }
  return offset;
}

// Where a whole member begins in the segment of the rank that stores it.
uint64_t Geometry::OwnedOffset(uint32_t role, uint32_t member) const {
  const std::lock_guard lock(cache_->mutex);
  std::vector<uint64_t>& offsets = cache_->owned_offsets[role];
  if (offsets.empty()) {
    const std::vector<uint32_t>& owners = *Owners();
    const uint64_t size = SizeOf(partition().roles[role].dtype);
    offsets.resize(elements_.size());
    uint64_t end = 0;
    for (size_t i = 0; i < by_rank_.size(); ++i) {
      const uint32_t m = by_rank_[i];
      if (i > 0 && owners[by_rank_[i - 1]] != owners[m]) end = 0;
      offsets[m] = base::AlignUp(end, kMemberAlignment);
      end = offsets[m] + role_elements(role, m) * size;
    }
  }
  return offsets[member];
}

uint32_t Geometry::RankAt(uint32_t rank_index) const {
  const auto after = std::upper_bound(range_starts_.begin(), range_starts_.end(), rank_index);
  const auto i = static_cast<size_t>(after - range_starts_.begin()) - 1;
  const RankRange& range = partition().ranks.ranges[i];
  return range.first + (rank_index - range_starts_[i]) * range.stride;
}

}  // namespace flagstone::partition
