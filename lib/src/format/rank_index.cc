// SPDX-License-Identifier: Apache-2.0
#include "format/rank_index.h"

#include <rank_index_generated.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "flagstone/tensor.h"
#include "format/layout_wire.h"
#include "format/value_codec.h"

namespace flagstone::format {
namespace {

using base::Join;
using base::Quote;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr std::string_view kWhat = "the rank index";

Status Corrupt(std::string message) {
  return Status(StatusCode::kCorruption, Join(kWhat, ": ", message));
}

bool IsPlain(const Value& value) {
  return value.is_null() || value.get_if<bool>() || value.get_if<int64_t>() ||
         value.get_if<double>();
}

RankPlacement ReadPlacement(const wire::RankIndex& table, WireReader& reader) {
  RankPlacement placement;
  const uint32_t segments = reader.Count(table.segments());
  placement.segments.reserve(segments);
  for (uint32_t i = 0; i < segments && reader.ok(); ++i) {
    const wire::Segment& segment = *table.segments()->Get(i);
    placement.segments.push_back({std::string(reader.Text(segment.partition())),
                                  std::string(reader.Text(segment.role())), segment.offset(),
                                  segment.bytes(), segment.chunk_bytes(), segment.first_chunk()});
  }
  placement.digests_offset = table.digests_offset();
  placement.digest_count = table.digest_count();
  placement.index_offset = table.index_offset();
  return placement;
}

Status ReadColumn(const wire::PlainColumn& column, WireReader& reader,
                  std::vector<PlainValue>& plain) {
  const std::string partition(reader.Text(column.partition()));
  const std::string role(reader.Text(column.role()));
  const auto members = reader.Elements(column.members());
  auto bytes = reader.Bytes(column.values());
  FLAGSTONE_RETURN_IF_ERROR(reader.status());
  if (!plain.empty() &&
      std::tie(plain.back().partition, plain.back().role) >= std::tie(partition, role)) {
    return Corrupt(Join("plain role ", Quote(role), " of partition ", Quote(partition),
                        " is out of order or twice"));
  }
  // One value takes at least one byte: no room is made for more than there are.
  if (members.empty() || members.size() > bytes.size()) {
    return Corrupt(Join("plain role ", Quote(role), " of partition ", Quote(partition), " has ",
                        members.size(), " members and ", bytes.size(), " bytes of values"));
  }
  for (const uint32_t member : members) {
    FLAGSTONE_ASSIGN_OR_RETURN(Value value, TakeValue(bytes, ArrayBytes::kInline, kWhat));
    if (!IsPlain(value)) {
      return Corrupt(Join("plain role ", Quote(role), " of partition ", Quote(partition),
                          " has a value that is no null, bool, int or float"));
    }
    plain.push_back({partition, role, member, std::move(value)});
  }
  if (bytes.empty()) return {};
  return Corrupt(Join("plain role ", Quote(role), " of partition ", Quote(partition), " has ",
                      bytes.size(), " bytes too many"));
}

// By partition, role and member, each once.
Status CheckPlainOrder(const std::vector<PlainValue>& plain) {
  const auto key = [](const PlainValue& value) {
    return std::tuple<std::string_view, std::string_view, uint32_t>(value.partition, value.role,
                                                                    value.member);
  };
  for (size_t i = 1; i < plain.size(); ++i) {
    if (key(plain[i - 1]) < key(plain[i])) continue;
    return Corrupt(Join("the value of member ", plain[i].member, " of plain role ",
                        Quote(plain[i].role), " of partition ", Quote(plain[i].partition),
                        " is out of order or twice"));
  }
  return {};
}

// The arrays of rank state that the state's plain part speaks of, and those that have segments.
Status CheckArrays(const RankIndex& index) {
  const auto arrays = SegmentArrays(index.rank_state);
  size_t next = 0;
  for (const PlacedSegment& segment : index.placement.segments) {
    if (!segment.partition.empty()) continue;
    if (segment.role == kClientStateRole) {
      if (index.rank != 0) return Corrupt("client state has arrays in a file that is not rank 0's");
      continue;
    }
    if (next == arrays.size() || ArraySizeBytes(*arrays[next]) != segment.bytes) {
      return Corrupt(Join("array segment ", next, " of ", segment.bytes,
                          " bytes is not that of the rank state"));
    }
    ++next;
  }
  if (next == arrays.size()) return {};
  return Corrupt(
      Join("rank state has ", arrays.size(), " large arrays, ", next, " of which have segments"));
}

Status CheckIndex(const RankIndex& index) {
  if (index.world_size == 0 || index.world_size > kMaxWorldSize || index.rank >= index.world_size) {
    return Corrupt(Join("rank ", index.rank, " of world size ", index.world_size, " cannot be"));
  }
  if (Status status = CheckPlacement(index.placement); !status.ok()) {
    return Corrupt(status.message());
  }
  if (index.page_digests.size() != index.placement.digest_pages()) {
    return Corrupt(Join("has ", index.page_digests.size(), " digests of ",
                        index.placement.digest_pages(), " digest pages"));
  }
  FLAGSTONE_RETURN_IF_ERROR(CheckPlainOrder(index.plain));
  return CheckArrays(index);
}

Offset<wire::Segment> WriteSegment(FlatBufferBuilder& builder, const PlacedSegment& segment) {
  Offset<flatbuffers::String> partition = 0;
  if (!segment.partition.empty()) partition = builder.CreateString(segment.partition);
  const auto role = builder.CreateString(segment.role);
  return wire::CreateSegment(builder, partition, role, segment.offset, segment.bytes,
                             segment.chunk_bytes, segment.first_chunk);
}

// Positions in `plain` by partition, role and member.
std::vector<size_t> PlainOrder(const std::vector<PlainValue>& plain) {
  std::vector<size_t> order(plain.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(plain[a].partition, plain[a].role, plain[a].member) <
           std::tie(plain[b].partition, plain[b].role, plain[b].member);
  });
  return order;
}

Result<std::vector<Offset<wire::PlainColumn>>> WritePlain(FlatBufferBuilder& builder,
                                                          const std::vector<PlainValue>& plain) {
  std::vector<Offset<wire::PlainColumn>> columns;
  const std::vector<size_t> order = PlainOrder(plain);
  for (size_t begin = 0; begin < order.size();) {
    const PlainValue& first = plain[order[begin]];
    std::vector<uint32_t> members;
    std::vector<std::byte> values;
    size_t end = begin;
    for (; end < order.size(); ++end) {
      const PlainValue& value = plain[order[end]];
      if (value.partition != first.partition || value.role != first.role) break;
      members.push_back(value.member);
      FLAGSTONE_RETURN_IF_ERROR(
          AppendValue(value.value, ArrayBytes::kInline, Quote(value.role), values));
    }
    const auto partition = builder.CreateString(first.partition);
    const auto role = builder.CreateString(first.role);
    const auto member_vector = WriteNumbers(builder, members);
    const auto value_vector = WriteBytes(builder, values);
    columns.push_back(
        wire::CreatePlainColumn(builder, partition, role, member_vector, value_vector));
    begin = end;
  }
  return columns;
}

uint64_t IndexBound(const RankIndex& index, uint64_t state_bytes) {
  uint64_t bound = 4096 + state_bytes + 8 * index.page_digests.size();
  for (const PlacedSegment& segment : index.placement.segments) {
    bound += 160 + segment.partition.size() + segment.role.size();
  }
  // Names are written once a column; the values of one that is not plain are refused.
  for (const PlainValue& value : index.plain) {
    bound += 160 + value.partition.size() + value.role.size();
  }
  return bound;
}

template <typename V, typename A>
void CollectArrays(V& value, std::vector<A*>& arrays, int depth) {
  if (depth > Value::kMaxDepth) return;
  if (auto* list = std::get_if<Value::List>(&value.storage())) {
    for (auto& item : *list) CollectArrays(item, arrays, depth + 1);
  } else if (auto* dict = std::get_if<Value::Dict>(&value.storage())) {
    for (auto& entry : *dict) CollectArrays(entry.second, arrays, depth + 1);
  } else if (auto* array = std::get_if<Array>(&value.storage())) {
    if (ArraySizeBytes(*array) > kInlineArrayBytes) arrays.push_back(array);
  }
}

}  // namespace

Result<std::vector<std::byte>> EncodeRankIndex(const RankIndex& index) {
  for (const PlainValue& value : index.plain) {
    if (IsPlain(value.value)) continue;
    return Status(StatusCode::kInvalidArgument,
                  Join("plain role ", Quote(value.role), " of partition ", Quote(value.partition),
                       " has a value that is no null, bool, int or float"));
  }
  std::vector<std::byte> state;
  FLAGSTONE_RETURN_IF_ERROR(
      AppendValue(index.rank_state, ArrayBytes::kSegments, "rank state", state));
  const uint64_t bound = IndexBound(index, state.size());
  FLAGSTONE_RETURN_IF_ERROR(CheckBound(bound, kWhat));
  FlatBufferBuilder builder;
  std::vector<Offset<wire::Segment>> segments;
  for (const PlacedSegment& segment : index.placement.segments) {
    segments.push_back(WriteSegment(builder, segment));
  }
  const auto segment_vector = WriteTables(builder, segments);
  const auto digests = WriteNumbers(builder, index.page_digests);
  FLAGSTONE_ASSIGN_OR_RETURN(const auto columns, WritePlain(builder, index.plain));
  const auto plain = WriteTables(builder, columns);
  const auto rank_state = WriteBytes(builder, state);
  wire::SaveId save_id;
  std::memcpy(&save_id, index.save_id.data(), index.save_id.size());
  const auto root =
      wire::CreateRankIndex(builder, &save_id, index.rank, index.world_size, segment_vector,
                            index.placement.digests_offset, index.placement.digest_count,
                            index.placement.index_offset, digests, plain, rank_state);
  wire::FinishRankIndexBuffer(builder, root);
  std::vector<std::byte> bytes = BytesOf(builder);
  // The rules are written down once, in the reader: nothing is written that cannot be opened.
  if (auto back = DecodeRankIndex(bytes); !back.ok()) {
    return Status(StatusCode::kInvalidArgument, back.status().message());
  }
  return bytes;
}

Result<RankIndex> DecodeRankIndex(std::span<const std::byte> bytes) {
  WireReader reader(bytes, kWhat);
  const auto* root = reader.Verify<wire::RankIndex>(wire::RankIndexIdentifier());
  if (root == nullptr) return reader.status();
  RankIndex index;
  std::memcpy(index.save_id.data(), root->save_id(), index.save_id.size());
  index.rank = root->rank();
  index.world_size = root->world_size();
  index.placement = ReadPlacement(*root, reader);
  index.page_digests = reader.Numbers(root->page_digests());
  const uint32_t columns = reader.Count(root->plain());
  for (uint32_t i = 0; i < columns && reader.ok(); ++i) {
    FLAGSTONE_RETURN_IF_ERROR(ReadColumn(*root->plain()->Get(i), reader, index.plain));
  }
  const auto state = reader.Bytes(root->rank_state());
  if (!reader.ok()) return reader.status();
  FLAGSTONE_ASSIGN_OR_RETURN(index.rank_state,
                             DecodeValue(state, ArrayBytes::kSegments, "rank state"));
  FLAGSTONE_RETURN_IF_ERROR(CheckIndex(index));
  return index;
}

uint64_t ArraySizeBytes(const Array& array) {
  return ElementCount(array.shape).value_or(0) * SizeOf(array.dtype);
}

std::vector<Array*> SegmentArrays(Value& value) {
  std::vector<Array*> arrays;
  CollectArrays(value, arrays, 1);
  return arrays;
}

std::vector<const Array*> SegmentArrays(const Value& value) {
  std::vector<const Array*> arrays;
  CollectArrays(value, arrays, 1);
  return arrays;
}

}  // namespace flagstone::format
