// SPDX-License-Identifier: Apache-2.0
// FlatBuffers tables -> layout. Memory is bounded by the bytes that are there (wire.h).
#include <optional>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "format/header.h"
#include "format/layout_wire.h"
#include "format/value_codec.h"
#include "partition/validate.h"

namespace flagstone::format {
namespace {

using base::Join;
using base::Quote;

// The enumerators of the schema and of the public headers are the same numbers.
static_assert(static_cast<int>(wire::DType::MAX) == static_cast<int>(DType::kInt7));
static_assert(static_cast<int>(wire::TensorKind::MAX) == static_cast<int>(TensorKind::kBuffer));
static_assert(static_cast<int>(wire::RoleForm::MAX) == static_cast<int>(RoleForm::kPlain));
static_assert(static_cast<int>(wire::CutUnit::MAX) == static_cast<int>(CutUnit::kRow));
static_assert(static_cast<int>(wire::MeshPlacement::MAX) ==
              static_cast<int>(MeshPlacement::kStridedShard));
static_assert(static_cast<size_t>(wire::Cut::MAX) == std::variant_size_v<CutRule>);
static_assert(kMaxWorldSize == partition::kMaxWorldSize);

template <typename Enum, typename Wire>
Enum Read(WireReader& reader, Wire value, std::string_view field) {
  return reader.Enumerator<Enum>(value, static_cast<uint64_t>(Wire::MAX) + 1, field);
}

Tensor ReadTensor(const wire::Tensor& table, WireReader& reader) {
  Tensor tensor;
  tensor.name = reader.Text(table.name());
  tensor.dtype = Read<DType>(reader, table.dtype(), "dtype");
  tensor.shape = reader.Numbers(table.shape());
  tensor.kind = Read<TensorKind>(reader, table.kind(), "tensor kind");
  if (const auto group = table.group(); group.has_value()) tensor.group = *group;
  tensor.trainable = table.trainable();
  const uint32_t aliases = reader.Count(table.aliases());
  tensor.aliases.reserve(aliases);
  for (uint32_t i = 0; i < aliases; ++i) {
    tensor.aliases.emplace_back(reader.Text(table.aliases()->Get(i)->name()));
  }
  return tensor;
}

RankList ReadRanks(const flatbuffers::Vector<const wire::RankRange*>* vector, WireReader& reader) {
  RankList list;
  for (const wire::RankRange& range : reader.Elements(vector)) {
    list.ranges.push_back({range.first(), range.count(), range.stride()});
  }
  return list;
}

std::vector<Member> ReadMembers(const wire::Partition& table, const std::vector<Tensor>& of,
                                WireReader& reader) {
  std::vector<Member> members;
  const auto tensors = reader.Elements(table.members());
  members.reserve(tensors.size());
  for (const uint32_t tensor : tensors) members.push_back({tensor, std::nullopt});
  auto bounds = reader.Elements(table.box_bounds());
  uint64_t least = 0;  // Rising members: one box each, and one way to write them down.
  for (const uint32_t member : reader.Elements(table.boxed())) {
    if (member < least || member >= members.size() || members[member].tensor >= of.size()) {
      reader.Fail(Join("has a box of member ", member, " of ", members.size(),
                       " out of order or range"));
      return {};
    }
    least = uint64_t{member} + 1;
    const size_t dimensions = of[members[member].tensor].shape.size();
    if (bounds.size() / 2 < dimensions) {
      reader.Fail(Join("has fewer numbers for its boxes than they have dimensions"));
      return {};
    }
    Box& box = members[member].box.emplace();
    for (const uint64_t bound : bounds.first(dimensions)) box.offsets.push_back(bound);
    for (const uint64_t bound : bounds.subspan(dimensions, dimensions)) box.sizes.push_back(bound);
    bounds = bounds.subspan(2 * dimensions);
  }
  if (!bounds.empty()) reader.Fail(Join("has ", bounds.size(), " numbers behind its boxes"));
  return members;
}

Role ReadRole(const wire::Role& table, WireReader& reader) {
  Role role;
  role.name = reader.Text(table.name());
  role.dtype = Read<DType>(reader, table.dtype(), "dtype");
  role.form = Read<RoleForm>(reader, table.form(), "role form");
  const uint32_t shapes = reader.Count(table.shapes());
  role.shapes.reserve(shapes);
  for (uint32_t i = 0; i < shapes; ++i) {
    role.shapes.push_back(reader.Numbers(table.shapes()->Get(i)->sizes()));
  }
  role.block = table.block();
  role.chunk_bytes = table.chunk_bytes();
  return role;
}

MeshCut ReadMesh(const wire::MeshCut& table, WireReader& reader) {
  MeshCut mesh;
  const uint32_t axes = reader.Count(table.axes());
  for (uint32_t i = 0; i < axes; ++i) {
    const wire::MeshAxis& axis = *table.axes()->Get(i);
    const auto placement = Read<MeshPlacement>(reader, axis.placement(), "mesh placement");
    mesh.axes.push_back({axis.size(), placement, axis.dimension(), axis.split_factor()});
  }
  return mesh;
}

ExplicitCut ReadExplicit(const wire::ExplicitCut& table, WireReader& reader) {
  ExplicitCut cut;
  const auto pieces = reader.Elements(table.pieces());
  cut.pieces.reserve(pieces.size());
  for (const wire::ExplicitPiece& piece : pieces) {
    cut.pieces.push_back({piece.rank_index(), piece.member(), piece.begin(), piece.end()});
  }
  return cut;
}

CutRule ReadCut(const wire::Partition& table, WireReader& reader) {
  if (table.cut_type() > wire::Cut::MAX) {
    reader.FailUnsupported(Join("has the cut rule ", static_cast<int>(table.cut_type())));
    return {};
  }
  if (table.cut() == nullptr) {
    reader.Fail("has a partition without a cut rule");
    return {};
  }
  switch (table.cut_type()) {
    case wire::Cut::FlatCut:
      return FlatCut{reader.Numbers(table.cut_as_FlatCut()->cuts())};
    case wire::Cut::PerTensorCut:
      return PerTensorCut{Read<CutUnit>(reader, table.cut_as_PerTensorCut()->unit(), "cut unit")};
    case wire::Cut::MeshCut:
      return ReadMesh(*table.cut_as_MeshCut(), reader);
    case wire::Cut::WholeCut:
      return WholeCut{reader.Numbers(table.cut_as_WholeCut()->owners())};
    case wire::Cut::ReplicatedCut:
      return ReplicatedCut{reader.Numbers(table.cut_as_ReplicatedCut()->storing())};
    case wire::Cut::ExplicitCut:
      return ReadExplicit(*table.cut_as_ExplicitCut(), reader);
    case wire::Cut::NONE:
      break;
  }
  reader.Fail("has a partition without a cut rule");
  return {};
}

Partition ReadPartition(const wire::Partition& table, const std::vector<Tensor>& tensors,
                        WireReader& reader) {
  Partition partition;
  partition.id = reader.Text(table.id());
  partition.ranks = ReadRanks(table.ranks(), reader);
  const uint32_t replicas = reader.Count(table.replicas());
  for (uint32_t i = 0; i < replicas; ++i) {
    partition.replicas.push_back(ReadRanks(table.replicas()->Get(i)->ranges(), reader));
  }
  partition.members = ReadMembers(table, tensors, reader);
  const uint32_t roles = reader.Count(table.roles());
  for (uint32_t i = 0; i < roles; ++i) {
    partition.roles.push_back(ReadRole(*table.roles()->Get(i), reader));
  }
  partition.cut = ReadCut(table, reader);
  return partition;
}

Result<ParameterGroup> ReadGroup(const wire::ParameterGroup& table, WireReader& reader) {
  ParameterGroup group;
  if (table.hyper_parameters() == nullptr) return group;
  const auto bytes = reader.Bytes(table.hyper_parameters());
  if (!reader.ok()) return reader.status();
  FLAGSTONE_ASSIGN_OR_RETURN(group.hyper_parameters,
                             DecodeValue(bytes, ArrayBytes::kInline, "a parameter group"));
  return group;
}

// Whether RankList::Of would make the same ranges of the same ranks: each range goes as far as it
// can. Judged from range to range, for a few hostile bytes must not be counted through as ranks.
bool IsShortest(const RankList& list) {
  for (size_t i = 0; i < list.ranges.size(); ++i) {
    const RankRange& range = list.ranges[i];
    if (range.count == 1 && range.stride != 1) return false;
    if (i + 1 == list.ranges.size()) continue;
    const uint32_t next = list.ranges[i + 1].first;
    if (range.count == 1 && next > range.first) return false;
    const uint64_t following = range.first + uint64_t{range.count} * range.stride;
    if (range.count > 1 && next == following) return false;
  }
  return true;
}

// Normal form (partition/normalize.h): what is in it stays as it is under Normalize. A layout has
// then one encoding, and the order of segments is a function of what a rank declares.
Status CheckNormal(const Layout& layout, std::string_view what) {
  const std::string* before = nullptr;
  for (const Partition& partition : layout.partitions) {
    bool normal = before == nullptr || *before < partition.id;
    before = &partition.id;
    normal = normal && IsShortest(partition.ranks);
    for (const RankList& replica : partition.replicas) normal = normal && IsShortest(replica);
    for (const Role& role : partition.roles) normal = normal && role.chunk_bytes != 0;
    if (normal) continue;
    return Status(StatusCode::kCorruption,
                  Join(what, " is not in normal form at partition ", Quote(partition.id)));
  }
  return {};
}

}  // namespace

Result<Layout> ReadLayout(const wire::Layout& table, LayoutScope scope, WireReader& reader) {
  Layout layout;
  layout.world_size = table.world_size();
  if (layout.world_size == 0 || layout.world_size > kMaxWorldSize) {
    reader.Fail(
        Join("has the world size ", layout.world_size, ", which is not in 1 .. ", kMaxWorldSize));
  }
  const uint32_t tensors = reader.Count(table.tensors());
  layout.tensors.reserve(tensors);
  for (uint32_t i = 0; i < tensors && reader.ok(); ++i) {
    layout.tensors.push_back(ReadTensor(*table.tensors()->Get(i), reader));
  }
  const uint32_t partitions = reader.Count(table.partitions());
  for (uint32_t i = 0; i < partitions && reader.ok(); ++i) {
    layout.partitions.push_back(ReadPartition(*table.partitions()->Get(i), layout.tensors, reader));
  }
  const uint32_t groups = reader.Count(table.groups());
  for (uint32_t i = 0; i < groups && reader.ok(); ++i) {
    FLAGSTONE_ASSIGN_OR_RETURN(ParameterGroup group, ReadGroup(*table.groups()->Get(i), reader));
    layout.groups.push_back(std::move(group));
  }
  if (!reader.ok()) return reader.status();
  Status status = scope == LayoutScope::kDeclaration ? partition::ValidateDeclaration(layout)
                                                     : ValidateLayout(layout);
  if (!status.ok()) {
    const bool unsupported = status.code() == StatusCode::kUnsupported;
    return Status(unsupported ? StatusCode::kUnsupported : StatusCode::kCorruption,
                  Join(reader.what(), ": ", status.message()));
  }
  FLAGSTONE_RETURN_IF_ERROR(CheckNormal(layout, reader.what()));
  return layout;
}

}  // namespace flagstone::format
