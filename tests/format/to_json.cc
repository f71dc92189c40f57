// SPDX-License-Identifier: Apache-2.0
#include "to_json.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "base/endian.h"
#include "base/text.h"

namespace flagstone::test {
namespace {

using nlohmann::ordered_json;

// Exact, and a NaN shows its payload.
std::string BitsText(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%a", value);
  if (value == value) return text;
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  std::snprintf(text, sizeof(text), "nan:%016llx", static_cast<unsigned long long>(bits));
  return text;
}

ordered_json ArrayJson(const Array& array) {
  return {{"dtype", Name(array.dtype)}, {"shape", array.shape}, {"bytes", base::Hex(array.bytes)}};
}

ordered_json RanksJson(const RankList& list) {
  ordered_json out = ordered_json::array();
  for (const RankRange& range : list.ranges) {
    out.push_back({{"first", range.first}, {"count", range.count}, {"stride", range.stride}});
  }
  return out;
}

ordered_json CutJson(const CutRule& rule) {
  ordered_json out = {{"rule", RuleName(rule)}};
  if (const auto* flat = std::get_if<FlatCut>(&rule)) out["cuts"] = flat->cuts;
  if (const auto* even = std::get_if<PerTensorCut>(&rule)) {
    out["unit"] = even->unit == CutUnit::kRow ? "row" : "element";
  }
  if (const auto* whole = std::get_if<WholeCut>(&rule)) out["owners"] = whole->owners;
  if (const auto* copies = std::get_if<ReplicatedCut>(&rule)) out["storing"] = copies->storing;
  if (const auto* mesh = std::get_if<MeshCut>(&rule)) {
    for (const MeshAxis& axis : mesh->axes) {
      out["axes"].push_back({{"size", axis.size},
                             {"placement", static_cast<int>(axis.placement)},
                             {"dimension", axis.dimension},
                             {"split_factor", axis.split_factor}});
    }
  }
  if (const auto* stated = std::get_if<ExplicitCut>(&rule)) {
    for (const ExplicitPiece& piece : stated->pieces) {
      out["pieces"].push_back({{"rank_index", piece.rank_index},
                               {"member", piece.member},
                               {"begin", piece.begin},
                               {"end", piece.end}});
    }
  }
  return out;
}

ordered_json RoleJson(const Role& role) {
  constexpr const char* kForms[] = {"aligned", "attached", "plain"};
  return {{"name", role.name},
          {"dtype", Name(role.dtype)},
          {"form", kForms[static_cast<size_t>(role.form)]},
          {"shapes", role.shapes},
          {"block", role.block},
          {"chunk_bytes", role.chunk_bytes}};
}

ordered_json TensorJson(const Tensor& tensor) {
  ordered_json out = {{"name", tensor.name},
                      {"dtype", Name(tensor.dtype)},
                      {"shape", tensor.shape},
                      {"kind", tensor.kind == TensorKind::kBuffer ? "buffer" : "parameter"},
                      {"group", nullptr},
                      {"trainable", tensor.trainable},
                      {"aliases", tensor.aliases}};
  if (tensor.group) out["group"] = *tensor.group;
  return out;
}

ordered_json PartitionJson(const Partition& partition) {
  ordered_json out = {{"id", partition.id}, {"ranks", RanksJson(partition.ranks)}};
  out["replicas"] = ordered_json::array();
  for (const RankList& list : partition.replicas) out["replicas"].push_back(RanksJson(list));
  for (const Member& member : partition.members) {
    ordered_json entry = {{"tensor", member.tensor}};
    if (member.box) entry["box"] = {member.box->offsets, member.box->sizes};
    out["members"].push_back(entry);
  }
  for (const Role& role : partition.roles) out["roles"].push_back(RoleJson(role));
  out["cut"] = CutJson(partition.cut);
  return out;
}

}  // namespace

ordered_json ToJson(const Value& value) {
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* number = value.get_if<int64_t>()) return *number;
  if (const auto* number = value.get_if<double>()) return {{"float", BitsText(*number)}};
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* bytes = value.get_if<Value::Bytes>()) return {{"bytes", base::Hex(*bytes)}};
  if (const auto* array = value.get_if<Array>()) return {{"array", ArrayJson(*array)}};
  if (const auto* list = value.get_if<Value::List>()) {
    ordered_json out = ordered_json::array();
    for (const Value& item : *list) out.push_back(ToJson(item));
    return out;
  }
  if (const auto* dict = value.get_if<Value::Dict>()) {
    ordered_json entries = ordered_json::array();
    for (const auto& [key, item] : *dict) entries.push_back({ToJson(key), ToJson(item)});
    return {{"dict", entries}};
  }
  return nullptr;
}

ordered_json ToJson(const Layout& layout) {
  ordered_json out = {{"world_size", layout.world_size}};
  for (const Tensor& tensor : layout.tensors) out["tensors"].push_back(TensorJson(tensor));
  for (const Partition& partition : layout.partitions) {
    out["partitions"].push_back(PartitionJson(partition));
  }
  for (const ParameterGroup& group : layout.groups) {
    out["groups"].push_back(ToJson(group.hyper_parameters));
  }
  return out;
}

ordered_json ToJson(const format::Header& header) {
  return {{"kind", static_cast<int>(header.kind)},
          {"version", base::Join(header.major, ".", header.minor)},
          {"required_features", header.required_features},
          {"save_id", base::Hex(header.save_id)},
          {"rank", header.rank},
          {"world_size", header.world_size},
          {"file_length", header.file_length},
          {"index_offset", header.index_offset},
          {"index_length", header.index_length},
          {"index_digest", base::Hex(header.index_digest)}};
}

ordered_json ToJson(const format::Manifest& manifest) {
  ordered_json out = {{"save_id", base::Hex(manifest.save_id)},
                      {"required_features", manifest.required_features},
                      {"step", nullptr},
                      {"committed_at", manifest.committed_at},
                      {"layout", ToJson(manifest.layout)}};
  if (manifest.step) out["step"] = *manifest.step;
  for (const format::RankFileEntry& file : manifest.files) {
    out["files"].push_back({{"rank", file.rank},
                            {"file_length", file.file_length},
                            {"index_length", file.index_length},
                            {"index_digest", base::Hex(file.index_digest)}});
  }
  out["client_state"] = ToJson(manifest.client_state);
  return out;
}

ordered_json ToJson(const format::RankIndex& index) {
  ordered_json out = {{"save_id", base::Hex(index.save_id)},
                      {"rank", index.rank},
                      {"world_size", index.world_size}};
  for (const format::PlacedSegment& segment : index.placement.segments) {
    out["segments"].push_back({{"partition", segment.partition},
                               {"role", segment.role},
                               {"offset", segment.offset},
                               {"bytes", segment.bytes},
                               {"chunk_bytes", segment.chunk_bytes},
                               {"first_chunk", segment.first_chunk}});
  }
  out["digests_offset"] = index.placement.digests_offset;
  out["digest_count"] = index.placement.digest_count;
  out["index_offset"] = index.placement.index_offset;
  for (const uint64_t digest : index.page_digests) {
    std::byte bytes[8];
    base::StoreLittle(bytes, digest);
    out["page_digests"].push_back(base::Hex(bytes));
  }
  for (const format::PlainValue& plain : index.plain) {
    out["plain"].push_back({{"partition", plain.partition},
                            {"role", plain.role},
                            {"member", plain.member},
                            {"value", ToJson(plain.value)}});
  }
  out["rank_state"] = ToJson(index.rank_state);
  return out;
}

}  // namespace flagstone::test
