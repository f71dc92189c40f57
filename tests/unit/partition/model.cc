// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <cstring>

namespace flagstone::partition_tests {
namespace {

uint64_t Count(const std::vector<uint64_t>& shape) {
  uint64_t count = 1;
  for (const uint64_t size : shape) count *= size;
  return count;
}

bool StandsAlone(const Partition& partition) {
  return std::holds_alternative<WholeCut>(partition.cut) ||
         std::holds_alternative<ReplicatedCut>(partition.cut);
}

}  // namespace

std::vector<uint32_t> Expand(const RankList& list) {
  std::vector<uint32_t> ranks;
  for (const RankRange& range : list.ranges) {
    for (uint32_t i = 0; i < range.count; ++i) ranks.push_back(range.first + i * range.stride);
  }
  return ranks;
}

Model::Model(const Layout& layout, uint32_t partition)
    : layout_(&layout), partition_(&layout.partitions[partition]) {
  const auto ranks = static_cast<uint64_t>(Expand(partition_->ranks).size());
  uint64_t flat = 0;  // elements so far
  for (uint32_t m = 0; m < partition_->members.size(); ++m) {
    const std::vector<uint64_t>& shape = layout.tensors[partition_->members[m].tensor].shape;
    std::vector<uint32_t> owners(Count(shape), ~uint32_t{0});
    for (uint64_t i = 0; i < owners.size(); ++i, ++flat) {
      if (const auto* cut = std::get_if<FlatCut>(&partition_->cut)) {
        uint32_t r = 0;
        while (!(cut->cuts[r] <= flat && flat < cut->cuts[r + 1])) ++r;
        owners[i] = r;
      } else if (const auto* even = std::get_if<PerTensorCut>(&partition_->cut)) {
        const bool rows = even->unit == CutUnit::kRow;
        const uint64_t units = !rows ? owners.size() : shape.empty() ? 1 : shape[0];
        const uint64_t unit = i / (owners.size() / units);
        uint64_t per_rank =
            0;  // torch.chunk: the least number of units with which the ranks suffice
        while (per_rank * ranks < units) ++per_rank;
        owners[i] = static_cast<uint32_t>(unit / per_rank);
      } else if (const auto* whole = std::get_if<WholeCut>(&partition_->cut)) {
        owners[i] = whole->owners[m];
      } else if (const auto* replicated = std::get_if<ReplicatedCut>(&partition_->cut)) {
        owners[i] = replicated->storing[m];
      } else {
        for (const ExplicitPiece& piece : std::get<ExplicitCut>(partition_->cut).pieces) {
          if (piece.member == m && piece.begin <= i && i < piece.end) owners[i] = piece.rank_index;
        }
      }
    }
    owners_.push_back(std::move(owners));
  }
}

std::vector<uint64_t> Model::CutPoints(uint32_t member) const {
  std::vector<uint64_t> points;
  for (uint64_t i = 1; i < elements(member); ++i) {
    bool cut = owner(member, i) != owner(member, i - 1);
    if (const auto* stated = std::get_if<ExplicitCut>(&partition_->cut)) {
      for (const ExplicitPiece& piece : stated->pieces) {
        cut = cut || (piece.member == member && piece.begin == i);
      }
    }
    if (cut) points.push_back(i);
  }
  return points;
}

ModelSegment Model::Make(const Role* role, uint32_t position, bool held) const {
  const uint64_t size = role ? SizeOf(role->dtype) : 1;
  const bool replicated = std::holds_alternative<ReplicatedCut>(partition_->cut);
  ModelSegment segment;
  const auto add = [&](uint32_t member, uint64_t index) {
    segment.elements.push_back({member, index, segment.bytes});
    segment.bytes += size;
  };
  if (const auto* stated = std::get_if<ExplicitCut>(&partition_->cut)) {
    for (const ExplicitPiece& piece : stated->pieces) {
      if (piece.rank_index != position) continue;
      for (uint64_t i = piece.begin; i < piece.end; ++i) add(piece.member, i);
    }
    return segment;
  }
  for (uint32_t m = 0; m < owners_.size(); ++m) {
    if (!StandsAlone(*partition_)) {
      for (uint64_t i = 0; i < owners_[m].size(); ++i) {
        if (owner(m, i) == position) add(m, i);
      }
      continue;
    }
    const auto* whole = std::get_if<WholeCut>(&partition_->cut);
    const uint32_t storing =
        whole ? whole->owners[m] : std::get<ReplicatedCut>(partition_->cut).storing[m];
    if (storing != position && !(held && replicated)) continue;
    while (segment.bytes % 64 != 0) ++segment.bytes;
    const bool attached = role && role->form == RoleForm::kAttached;
    const uint64_t count = attached ? Count(role->shapes[m]) : owners_[m].size();
    for (uint64_t i = 0; i < count; ++i) add(m, i);
    if (count == 0) segment.empty_members.push_back(m);
  }
  return segment;
}

uint64_t ElementMark(uint64_t tensor, std::string_view role, uint64_t index) {
  uint64_t mark = tensor * 0x9E3779B97F4A7C15u + index;
  for (const char letter : role)
    mark = (mark ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  mark ^= mark >> 29;
  mark *= 0xBF58476D1CE4E5B9u;
  return mark ^ (mark >> 32);
}

void WriteElement(std::byte* at, uint64_t size, uint64_t mark) {
  const uint64_t words[2] = {mark, ~mark};
  std::memcpy(at, words, size);
}

std::vector<std::byte> SegmentBytes(const Layout& layout, const Model& model, uint32_t role,
                                    const ModelSegment& segment, std::byte padding,
                                    const std::function<uint64_t(const Tensor&)>& id) {
  const Partition& partition = model.partition();
  std::vector<std::byte> bytes(segment.bytes, padding);
  for (const ModelElement& element : segment.elements) {
    const Tensor& tensor = layout.tensors[partition.members[element.member].tensor];
    WriteElement(bytes.data() + element.byte_offset, SizeOf(partition.roles[role].dtype),
                 ElementMark(id(tensor), partition.roles[role].name, element.index));
  }
  return bytes;
}

}  // namespace flagstone::partition_tests
