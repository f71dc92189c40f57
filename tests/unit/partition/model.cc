// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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

// torch.chunk with empty lists for what is missing.
std::vector<std::vector<uint64_t>> ChunkOf(const std::vector<uint64_t>& list, uint64_t pieces) {
  std::vector<std::vector<uint64_t>> chunks(pieces);
  uint64_t share = 0;
  while (share * pieces < list.size()) ++share;
  for (size_t i = 0; i < list.size(); ++i) chunks[i / share].push_back(list[i]);
  return chunks;
}

// The indexes of one dimension that a position of a mesh has, taken from a list of all of them.
std::vector<uint64_t> MeshIndexes(const MeshCut& cut, uint32_t dimension, uint64_t size,
                                  uint32_t position) {
  std::vector<uint64_t> indexes(size);
  std::iota(indexes.begin(), indexes.end(), 0);
  uint64_t behind = 1;  // positions of the axes behind
  for (const MeshAxis& axis : cut.axes) behind *= axis.size;
  for (const MeshAxis& axis : cut.axes) {
    behind /= axis.size;
    const uint64_t coordinate = position / behind % axis.size;
    if (axis.placement == MeshPlacement::kReplicate || axis.dimension != dimension) continue;
    const bool strided = axis.placement == MeshPlacement::kStridedShard;
    std::vector<uint64_t> taken;
    for (const auto& piece : ChunkOf(indexes, strided ? axis.split_factor : 1)) {
      const auto mine = ChunkOf(piece, axis.size)[coordinate];
      taken.insert(taken.end(), mine.begin(), mine.end());
    }
    indexes = taken;
  }
  return indexes;
}

uint32_t WithoutReplicas(const MeshCut& cut, uint32_t position) {
  uint64_t behind = 1;
  for (const MeshAxis& axis : cut.axes) behind *= axis.size;
  uint64_t result = 0;
  for (const MeshAxis& axis : cut.axes) {
    behind /= axis.size;
    if (axis.placement != MeshPlacement::kReplicate) {
      result += position / behind % axis.size * behind;
    }
  }
  return static_cast<uint32_t>(result);
}

}  // namespace

std::vector<uint64_t> IndexesOf(const std::vector<uint64_t>& shape,
                                const std::optional<Box>& box) {
  const std::vector<uint64_t>& sizes = box ? box->sizes : shape;
  std::vector<uint64_t> indexes(Count(sizes));
  for (uint64_t i = 0; i < indexes.size(); ++i) {
    uint64_t rest = i;
    uint64_t stride = 1;
    for (size_t d = shape.size(); d-- > 0;) {
      indexes[i] += (rest % sizes[d] + (box ? box->offsets[d] : 0)) * stride;
      rest /= sizes[d];
      stride *= shape[d];
    }
  }
  return indexes;
}

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
    const Member& member = partition_->members[m];
    const std::vector<uint64_t>& tensor_shape = layout.tensors[member.tensor].shape;
    const std::vector<uint64_t>& shape = member.box ? member.box->sizes : tensor_shape;
    shapes_.push_back(shape);
    in_tensor_.push_back(IndexesOf(tensor_shape, member.box));
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
      } else if (const auto* stated = std::get_if<ExplicitCut>(&partition_->cut)) {
        for (const ExplicitPiece& piece : stated->pieces) {
          if (piece.member == m && piece.begin <= i && i < piece.end) owners[i] = piece.rank_index;
        }
      }
    }
    owners_.push_back(std::move(owners));
    if (std::holds_alternative<MeshCut>(partition_->cut)) OwnByMesh(m);
  }
}

void Model::OwnByMesh(uint32_t member) {
  const auto ranks = static_cast<uint32_t>(Expand(partition_->ranks).size());
  for (uint32_t position = 0; position < ranks; ++position) {
    if (WithoutReplicas(std::get<MeshCut>(partition_->cut), position) != position) continue;
    for (const uint64_t i : Local(member, position)) owners_[member][i] = position;
  }
}

// The elements of a member that a position of a mesh has, in the order of its local tensor.
std::vector<uint64_t> Model::Local(uint32_t member, uint32_t position) const {
  std::vector<uint64_t> elements = {0};
  const std::vector<uint64_t>& shape = shapes_[member];
  for (uint32_t d = 0; d < shape.size(); ++d) {
    std::vector<uint64_t> longer;
    const auto held = MeshIndexes(std::get<MeshCut>(partition_->cut), d, shape[d], position);
    for (const uint64_t before : elements) {
      for (const uint64_t index : held) longer.push_back(before * shape[d] + index);
    }
    elements = longer;
  }
  return elements;
}

bool Model::IsOnGrid(uint64_t block) const {
  for (uint32_t m = 0; m < owners_.size(); ++m) {
    std::vector<uint32_t> owners(
        Count(layout_->tensors[partition_->members[m].tensor].shape), ~uint32_t{0});
    for (uint64_t i = 0; i < owners_[m].size(); ++i) owners[in_tensor_[m][i]] = owners_[m][i];
    for (uint64_t i = 0; i < owners.size(); ++i) {
      if (owners[i] != owners[i - i % block]) return false;
    }
    const auto* stated = std::get_if<ExplicitCut>(&partition_->cut);
    for (const ExplicitPiece& piece : stated ? stated->pieces : std::vector<ExplicitPiece>()) {
      if (piece.member == m && in_tensor_[m][piece.begin] % block != 0) return false;
    }
  }
  return true;
}

ModelSegment Model::Make(const Role* role, uint32_t position, bool held) const {
  const uint64_t size = role ? SizeOf(role->dtype) : 1;
  const bool replicated = std::holds_alternative<ReplicatedCut>(partition_->cut);
  ModelSegment segment;
  const auto add = [&](uint32_t member, uint64_t index, uint64_t in_tensor) {
    segment.elements.push_back({member, index, segment.bytes, in_tensor});
    segment.bytes += size;
  };
  if (const auto* mesh = std::get_if<MeshCut>(&partition_->cut)) {
    if (!held && WithoutReplicas(*mesh, position) != position) return segment;
    for (uint32_t m = 0; m < owners_.size(); ++m) {
      const std::vector<uint64_t> local = Local(m, position);
      for (uint64_t i = 0; i < local.size(); ++i) add(m, i, in_tensor_[m][local[i]]);
    }
    return segment;
  }
  if (const auto* stated = std::get_if<ExplicitCut>(&partition_->cut)) {
    for (const ExplicitPiece& piece : stated->pieces) {
      if (piece.rank_index != position) continue;
      for (uint64_t i = piece.begin; i < piece.end; ++i) {
        add(piece.member, i, in_tensor_[piece.member][i]);
      }
    }
    return segment;
  }
  for (uint32_t m = 0; m < owners_.size(); ++m) {
    if (!StandsAlone(*partition_)) {
      for (uint64_t i = 0; i < owners_[m].size(); ++i) {
        if (owner(m, i) == position) add(m, i, in_tensor_[m][i]);
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
    for (uint64_t i = 0; i < count; ++i) add(m, i, attached ? i : in_tensor_[m][i]);
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
    const Member& member = partition.members[element.member];
    // Values attached to boxes of one tensor differ.
    uint64_t box = 0;
    if (partition.roles[role].form == RoleForm::kAttached && member.box) {
      for (const uint64_t offset : member.box->offsets) box = box * 1009 + offset + 1;
    }
    WriteElement(bytes.data() + element.byte_offset, SizeOf(partition.roles[role].dtype),
                 ElementMark(id(layout.tensors[member.tensor]) + box * 1000003,
                             partition.roles[role].name, element.in_tensor));
  }
  return bytes;
}

}  // namespace flagstone::partition_tests
