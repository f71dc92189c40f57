// SPDX-License-Identifier: Apache-2.0
// Layout -> FlatBuffers tables. No two builder calls stand in one argument list: compilers evaluate
// arguments in different orders, and the same layout would give different bytes.
#include "base/macros.h"
#include "base/text.h"
#include "format/header.h"
#include "format/layout_codec.h"
#include "format/layout_wire.h"
#include "format/value_codec.h"

namespace flagstone::format {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

template <typename T>
using TableVector = Offset<flatbuffers::Vector<Offset<T>>>;

Offset<wire::Tensor> WriteTensor(FlatBufferBuilder& builder, const Tensor& tensor) {
  const auto name = builder.CreateString(tensor.name);
  const auto shape = WriteNumbers(builder, tensor.shape);
  std::vector<Offset<wire::Alias>> aliases;
  for (const std::string& alias : tensor.aliases) {
    const auto text = builder.CreateString(alias);
    aliases.push_back(wire::CreateAlias(builder, text));
  }
  const auto alias_vector = WriteTables(builder, aliases);
  wire::TensorBuilder table(builder);
  table.add_aliases(alias_vector);
  if (tensor.group) table.add_group(*tensor.group);
  table.add_shape(shape);
  table.add_name(name);
  table.add_trainable(tensor.trainable);
  table.add_kind(static_cast<wire::TensorKind>(tensor.kind));
  table.add_dtype(static_cast<wire::DType>(tensor.dtype));
  return table.Finish();
}

Offset<flatbuffers::Vector<const wire::RankRange*>> WriteRanks(FlatBufferBuilder& builder,
                                                               const RankList& list) {
  std::vector<wire::RankRange> ranges;
  ranges.reserve(list.ranges.size());
  for (const RankRange& range : list.ranges) {
    ranges.emplace_back(range.first, range.count, range.stride);
  }
  return builder.CreateVectorOfStructs(ranges);
}

struct BoxColumns {
  std::vector<uint32_t> boxed;
  std::vector<uint64_t> bounds;
};

BoxColumns BoxesOf(const std::vector<Member>& members) {
  BoxColumns columns;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!members[i].box) continue;
    const Box& box = *members[i].box;
    columns.boxed.push_back(static_cast<uint32_t>(i));
    columns.bounds.insert(columns.bounds.end(), box.offsets.begin(), box.offsets.end());
    columns.bounds.insert(columns.bounds.end(), box.sizes.begin(), box.sizes.end());
  }
  return columns;
}

Offset<wire::Role> WriteRole(FlatBufferBuilder& builder, const Role& role) {
  const auto name = builder.CreateString(role.name);
  std::vector<Offset<wire::Shape>> shapes;
  for (const auto& shape : role.shapes) {
    const auto sizes = WriteNumbers(builder, shape);
    shapes.push_back(wire::CreateShape(builder, sizes));
  }
  const auto shape_vector = WriteTables(builder, shapes);
  return wire::CreateRole(builder, name, static_cast<wire::DType>(role.dtype),
                          static_cast<wire::RoleForm>(role.form), shape_vector, role.block,
                          role.chunk_bytes);
}

Offset<wire::MeshCut> WriteMesh(FlatBufferBuilder& builder, const MeshCut& cut) {
  std::vector<Offset<wire::MeshAxis>> axes;
  for (const MeshAxis& axis : cut.axes) {
    axes.push_back(wire::CreateMeshAxis(builder, axis.size,
                                        static_cast<wire::MeshPlacement>(axis.placement),
                                        axis.dimension, axis.split_factor));
  }
  const auto vector = WriteTables(builder, axes);
  return wire::CreateMeshCut(builder, vector);
}

Offset<wire::ExplicitCut> WriteExplicit(FlatBufferBuilder& builder, const ExplicitCut& cut) {
  std::vector<wire::ExplicitPiece> pieces;
  pieces.reserve(cut.pieces.size());
  for (const ExplicitPiece& piece : cut.pieces) {
    pieces.emplace_back(piece.rank_index, piece.member, piece.begin, piece.end);
  }
  const auto vector = WriteStructs(builder, pieces);
  return wire::CreateExplicitCut(builder, vector);
}

struct CutWriter {
  FlatBufferBuilder& builder;

  Offset<void> operator()(const FlatCut& cut) const {
    const auto cuts = WriteNumbers(builder, cut.cuts);
    return wire::CreateFlatCut(builder, cuts).Union();
  }
  Offset<void> operator()(const PerTensorCut& cut) const {
    return wire::CreatePerTensorCut(builder, static_cast<wire::CutUnit>(cut.unit)).Union();
  }
  Offset<void> operator()(const MeshCut& cut) const { return WriteMesh(builder, cut).Union(); }
  Offset<void> operator()(const WholeCut& cut) const {
    const auto owners = WriteNumbers(builder, cut.owners);
    return wire::CreateWholeCut(builder, owners).Union();
  }
  Offset<void> operator()(const ReplicatedCut& cut) const {
    const auto storing = WriteNumbers(builder, cut.storing);
    return wire::CreateReplicatedCut(builder, storing).Union();
  }
  Offset<void> operator()(const ExplicitCut& cut) const {
    return WriteExplicit(builder, cut).Union();
  }
};

Offset<wire::Partition> WritePartition(FlatBufferBuilder& builder, const Partition& partition) {
  const auto id = builder.CreateString(partition.id);
  const auto ranks = WriteRanks(builder, partition.ranks);
  std::vector<Offset<wire::RankList>> replicas;
  for (const RankList& list : partition.replicas) {
    const auto ranges = WriteRanks(builder, list);
    replicas.push_back(wire::CreateRankList(builder, ranges));
  }
  const auto replica_vector = WriteTables(builder, replicas);
  std::vector<uint32_t> tensors;
  tensors.reserve(partition.members.size());
  for (const Member& member : partition.members) tensors.push_back(member.tensor);
  const auto members = WriteNumbers(builder, tensors);
  const BoxColumns columns = BoxesOf(partition.members);
  const auto boxed = WriteNumbers(builder, columns.boxed);
  const auto bounds = WriteNumbers(builder, columns.bounds);
  std::vector<Offset<wire::Role>> roles;
  for (const Role& role : partition.roles) roles.push_back(WriteRole(builder, role));
  const auto role_vector = WriteTables(builder, roles);
  const auto cut = std::visit(CutWriter{builder}, partition.cut);
  return wire::CreatePartition(builder, id, ranks, replica_vector, members, boxed, role_vector,
                               static_cast<wire::Cut>(partition.cut.index() + 1), cut, bounds);
}

Result<Offset<wire::ParameterGroup>> WriteGroup(FlatBufferBuilder& builder,
                                                const ParameterGroup& group) {
  Offset<flatbuffers::Vector<uint8_t>> bytes = 0;
  if (!group.hyper_parameters.is_null()) {
    std::vector<std::byte> encoded;
    FLAGSTONE_RETURN_IF_ERROR(
        AppendValue(group.hyper_parameters, ArrayBytes::kInline, "a parameter group", encoded));
    bytes = WriteBytes(builder, encoded);
  }
  return wire::CreateParameterGroup(builder, bytes);
}

// What an object of each kind takes at the most: reference, table, vtable (shared with others as a
// rule), lengths, alignment.
constexpr uint64_t kVectorBound = 24;
constexpr uint64_t kTableBound = 96;

uint64_t TextBound(const std::string& text) { return kVectorBound + text.size(); }
uint64_t ShapeBound(const std::vector<uint64_t>& shape) { return kVectorBound + 8 * shape.size(); }

// At least the encoding's size; a value that hides more in one alternative is refused when encoded.
uint64_t ValueBound(const Value& value) {
  uint64_t bound = 16;
  if (const auto* text = value.get_if<std::string>()) bound += text->size();
  if (const auto* bytes = value.get_if<Value::Bytes>()) bound += bytes->size();
  if (const auto* array = value.get_if<Array>()) {
    bound += array->bytes.size() + 8 * array->shape.size();
  }
  if (const auto* list = value.get_if<Value::List>()) {
    for (const Value& item : *list) bound += ValueBound(item);
  }
  if (const auto* dict = value.get_if<Value::Dict>()) {
    for (const auto& [key, item] : *dict) bound += ValueBound(key) + ValueBound(item);
  }
  return bound;
}

struct CutBound {
  uint64_t operator()(const FlatCut& cut) const { return 8 * cut.cuts.size(); }
  uint64_t operator()(const PerTensorCut&) const { return 0; }
  uint64_t operator()(const MeshCut& cut) const { return kTableBound * cut.axes.size(); }
  uint64_t operator()(const WholeCut& cut) const { return 4 * cut.owners.size(); }
  uint64_t operator()(const ReplicatedCut& cut) const { return 4 * cut.storing.size(); }
  uint64_t operator()(const ExplicitCut& cut) const { return 24 * cut.pieces.size(); }
};

uint64_t PartitionBound(const Partition& partition) {
  uint64_t bound = 3 * kTableBound + TextBound(partition.id) + 8 * kVectorBound;
  bound += 12 * partition.ranks.ranges.size();
  for (const RankList& list : partition.replicas) {
    bound += kTableBound + kVectorBound + 12 * list.ranges.size();
  }
  for (const Member& member : partition.members) {
    bound += 4;
    if (member.box) {
      bound += 4 + 8 * (member.box->offsets.size() + member.box->sizes.size());
    }
  }
  for (const Role& role : partition.roles) {
    bound += kTableBound + TextBound(role.name) + kVectorBound;
    for (const auto& shape : role.shapes) bound += kTableBound + ShapeBound(shape);
  }
  return bound + std::visit(CutBound{}, partition.cut);
}

}  // namespace

Result<Offset<wire::Layout>> WriteLayout(FlatBufferBuilder& builder, const Layout& layout) {
  std::vector<Offset<wire::Tensor>> tensors;
  tensors.reserve(layout.tensors.size());
  for (const Tensor& tensor : layout.tensors) tensors.push_back(WriteTensor(builder, tensor));
  const auto tensor_vector = WriteTables(builder, tensors);
  std::vector<Offset<wire::Partition>> partitions;
  partitions.reserve(layout.partitions.size());
  for (const Partition& partition : layout.partitions) {
    partitions.push_back(WritePartition(builder, partition));
  }
  const auto partition_vector = WriteTables(builder, partitions);
  std::vector<Offset<wire::ParameterGroup>> groups;
  groups.reserve(layout.groups.size());
  for (const ParameterGroup& group : layout.groups) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto offset, WriteGroup(builder, group));
    groups.push_back(offset);
  }
  const auto group_vector = WriteTables(builder, groups);
  return wire::CreateLayout(builder, layout.world_size, tensor_vector, partition_vector,
                            group_vector);
}

uint64_t LayoutBound(const Layout& layout) {
  uint64_t bound = 2 * kTableBound;
  for (const Tensor& tensor : layout.tensors) {
    bound += kTableBound + TextBound(tensor.name) + ShapeBound(tensor.shape);
    for (const std::string& alias : tensor.aliases) bound += kTableBound + TextBound(alias);
  }
  for (const Partition& partition : layout.partitions) bound += PartitionBound(partition);
  for (const ParameterGroup& group : layout.groups) {
    bound += kTableBound + kVectorBound + ValueBound(group.hyper_parameters);
  }
  return bound;
}

Status CheckBound(uint64_t bound, std::string_view what) {
  if (bound <= kMaxIndexBytes) return {};
  return Status(
      StatusCode::kResourceExhausted,
      base::Join(what, " may take ", bound, " bytes; the format allows ", kMaxIndexBytes));
}

Result<std::vector<std::byte>> EncodeLayout(const Layout& layout) {
  const uint64_t bound = LayoutBound(layout);
  FLAGSTONE_RETURN_IF_ERROR(CheckBound(bound, "the layout"));
  FlatBufferBuilder builder;
  FLAGSTONE_ASSIGN_OR_RETURN(const auto root, WriteLayout(builder, layout));
  wire::FinishLayoutBuffer(builder, root);
  return BytesOf(builder);
}

Result<Layout> DecodeLayout(std::span<const std::byte> bytes) {
  WireReader reader(bytes, "the layout");
  const auto* root = reader.Verify<wire::Layout>(wire::LayoutIdentifier());
  if (root == nullptr) return reader.status();
  return ReadLayout(*root, LayoutScope::kDeclaration, reader);
}

}  // namespace flagstone::format
