// SPDX-License-Identifier: Apache-2.0
#include "raw_wire.h"

#include <layout_generated.h>
#include <manifest_generated.h>
#include <rank_index_generated.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "base/range.h"
#include "base/text.h"
#include "format/layout_wire.h"
#include "format/value_codec.h"

namespace flagstone::test {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using format::ArrayBytes;

constexpr uint64_t kPage = base::kPageBytes;

FileBytes Encoded(const Value& value, ArrayBytes arrays) {
  FileBytes bytes;
  if (!format::AppendValue(value, arrays, "a test's value", bytes).ok()) bytes.clear();
  return bytes;
}

// A vector of `count` 8-byte elements that begin 4 bytes off a multiple of 8, counted from the end
// of a buffer whose length is one.
template <typename T>
Offset<flatbuffers::Vector<T>> Misaligned(FlatBufferBuilder& builder,
                                          const std::vector<uint64_t>& words, size_t count) {
  std::vector<uint32_t> halves(2 * words.size());
  if (!words.empty()) std::memcpy(halves.data(), words.data(), 8 * words.size());
  builder.Align(8);
  builder.PushElement(uint32_t{0});
  for (auto half = halves.rbegin(); half != halves.rend(); ++half) builder.PushElement(*half);
  return builder.PushElement(static_cast<uint32_t>(count));
}

struct TinyLayout {
  std::vector<Offset<wire::Tensor>> tensors;
  std::vector<uint32_t> boxed;
  std::vector<uint64_t> box_bounds;
  std::vector<uint32_t> members;
  wire::Cut cut_type = wire::Cut::PerTensorCut;
  Offset<void> cut = 0;
};

Offset<wire::Tensor> TinyTensor(FlatBufferBuilder& builder, const std::string& name,
                                Offset<flatbuffers::Vector<uint64_t>> shape) {
  const auto text = builder.CreateString(name);
  return wire::CreateTensor(builder, text, wire::DType::Float32, shape);
}

FileBytes FinishTiny(FlatBufferBuilder& builder, const TinyLayout& tiny, const char* identifier) {
  const auto tensors = format::WriteTables(builder, tiny.tensors);
  const auto id = builder.CreateString("p");
  const std::vector<wire::RankRange> ranges = {wire::RankRange(0, 1, 1)};
  const auto ranks = builder.CreateVectorOfStructs(ranges);
  const auto members = format::WriteNumbers(builder, tiny.members);
  const auto boxed = format::WriteNumbers(builder, tiny.boxed);
  const auto bounds = format::WriteNumbers(builder, tiny.box_bounds);
  const auto name = builder.CreateString("fp32");
  const auto role =
      wire::CreateRole(builder, name, wire::DType::Float32, wire::RoleForm::Aligned, 0, 1, 4096);
  const auto roles = format::WriteTables(builder, std::vector{role});
  const auto partition =
      wire::CreatePartition(builder, id, ranks, 0, members, boxed, roles, tiny.cut_type, tiny.cut,
                            bounds);
  const auto partitions = format::WriteTables(builder, std::vector{partition});
  const auto root = wire::CreateLayout(builder, 1, tensors, partitions, 0);
  builder.Finish(root, identifier);
  return format::BytesOf(builder);
}

// References to one table, referred to in their turn: 65 536 visits for a verifier without a limit.
FileBytes SharedTables() {
  FlatBufferBuilder builder;
  const auto name = builder.CreateString("x");
  const auto alias = wire::CreateAlias(builder, name);
  const auto aliases = builder.CreateVector(std::vector<Offset<wire::Alias>>(256, alias));
  const auto tensor =
      wire::CreateTensor(builder, name, wire::DType::Float32, 0, wire::TensorKind::Parameter,
                         flatbuffers::nullopt, true, aliases);
  const auto tensors = builder.CreateVector(std::vector<Offset<wire::Tensor>>(256, tensor));
  const auto root = wire::CreateLayout(builder, 1, tensors);
  wire::FinishLayoutBuffer(builder, root);
  return format::BytesOf(builder);
}

}  // namespace

FileBytes WrapManifest(const FileBytes& body, const std::function<void(format::Header&)>& edit) {
  format::Header header;
  header.kind = format::FileKind::kManifest;
  header.save_id = GoldenSaveId();
  header.world_size = 2;
  header.index_offset = kPage;
  header.index_length = body.size();
  header.file_length = base::AlignUp(kPage + body.size(), kPage);
  header.index_digest = base::DigestOf(body);
  FileBytes file(header.file_length);
  std::copy(body.begin(), body.end(), file.begin() + kPage);
  if (edit) edit(header);
  const auto page = format::EncodeHeader(header);
  std::copy(page.begin(), page.end(), file.begin());
  return file;
}

FileBytes EditHeaderPage(FileBytes file, const std::function<void(std::span<std::byte>)>& edit) {
  constexpr size_t kDigestAt = 16;
  const auto page = std::span(file).first(kPage);
  edit(page);
  std::fill_n(page.begin() + kDigestAt, 16, std::byte{0});
  const auto digest = base::DigestOf(page);
  std::copy(digest.begin(), digest.end(), page.begin() + kDigestAt);
  return file;
}

FileBytes RawManifestBody(const RawManifest& raw) {
  const format::Manifest& manifest = raw.manifest;
  FlatBufferBuilder builder;
  const auto layout = format::WriteLayout(builder, manifest.layout).value();
  std::vector<wire::RankFile> files;
  for (const format::RankFileEntry& file : manifest.files) {
    wire::Digest128 digest;
    std::memcpy(&digest, file.index_digest.data(), file.index_digest.size());
    files.emplace_back(file.file_length, file.index_length, digest, file.rank, raw.reserved);
  }
  const auto file_vector = builder.CreateVectorOfStructs(files);
  const auto client = format::WriteBytes(
      builder, raw.client_bytes.value_or(Encoded(manifest.client_state, ArrayBytes::kSegments)));
  const auto root = wire::CreateManifest(builder, manifest.step.value_or(0), manifest.committed_at,
                                         layout, file_vector, client);
  wire::FinishManifestBuffer(builder, root);
  return format::BytesOf(builder);
}

FileBytes RawIndexBytes(const RawIndex& raw) {
  const format::RankIndex& index = raw.index;
  FlatBufferBuilder builder;
  std::vector<Offset<wire::Segment>> segments;
  for (const format::PlacedSegment& segment : index.placement.segments) {
    const auto partition = segment.partition.empty() ? 0 : builder.CreateString(segment.partition);
    const auto role = builder.CreateString(segment.role);
    segments.push_back(wire::CreateSegment(builder, partition, role, segment.offset, segment.bytes,
                                           segment.chunk_bytes, segment.first_chunk));
  }
  const auto segment_vector = format::WriteTables(builder, segments);
  const auto digests = format::WriteNumbers(builder, index.page_digests);
  std::vector<Offset<wire::PlainColumn>> columns;
  for (size_t begin = 0, end = 0; begin < index.plain.size(); begin = end) {
    std::vector<uint32_t> members;
    FileBytes values;
    for (; end < index.plain.size() && index.plain[end].role == index.plain[begin].role; ++end) {
      if (raw.split_columns && end > begin) break;
      members.push_back(index.plain[end].member);
      const FileBytes value = Encoded(index.plain[end].value, ArrayBytes::kInline);
      values.insert(values.end(), value.begin(), value.end());
    }
    if (begin == 0) values.insert(values.end(), raw.plain_tail.begin(), raw.plain_tail.end());
    if (begin == 0 && raw.drop_last_member) members.pop_back();
    const auto partition = builder.CreateString(index.plain[begin].partition);
    const auto role = builder.CreateString(index.plain[begin].role);
    const auto member_vector = format::WriteNumbers(builder, members);
    const auto value_vector = format::WriteBytes(builder, values);
    columns.push_back(
        wire::CreatePlainColumn(builder, partition, role, member_vector, value_vector));
  }
  const auto plain = format::WriteTables(builder, columns);
  const auto state = format::WriteBytes(
      builder, raw.state_bytes.value_or(Encoded(index.rank_state, ArrayBytes::kSegments)));
  wire::SaveId save_id;
  std::memcpy(&save_id, index.save_id.data(), index.save_id.size());
  const auto root =
      wire::CreateRankIndex(builder, &save_id, index.rank, index.world_size, segment_vector,
                            index.placement.digests_offset, index.placement.digest_count,
                            index.placement.index_offset, digests, plain, state);
  wire::FinishRankIndexBuffer(builder, root);
  return format::BytesOf(builder);
}

FileBytes RawLayoutBytes(const Layout& layout) {
  FlatBufferBuilder builder;
  const auto root = format::WriteLayout(builder, layout).value();
  wire::FinishLayoutBuffer(builder, root);
  return format::BytesOf(builder);
}

FileBytes MalformedLayout(Malformed kind) {
  if (kind == Malformed::kSharedTables) return SharedTables();
  FlatBufferBuilder builder;
  TinyLayout tiny;
  const auto shape = builder.CreateVector(
      std::vector<uint64_t>(kind == Malformed::kSharedShape ? 64 : 1, uint64_t{1}));
  const size_t tensors = kind == Malformed::kSharedShape ? 200 : 1;
  for (size_t i = 0; i < tensors; ++i) {
    tiny.tensors.push_back(TinyTensor(builder, base::Join("t", i), shape));
  }
  if (kind != Malformed::kNoMembersVector) tiny.members = {0};
  tiny.cut = wire::CreatePerTensorCut(builder, wire::CutUnit::Element).Union();
  switch (kind) {
    case Malformed::kEmptyUnaligned: {
      const auto cuts = Misaligned<uint64_t>(builder, {}, 0);
      tiny.tensors.push_back(TinyTensor(builder, "u", cuts));
      break;
    }
    case Malformed::kMisalignedCuts: {
      const auto cuts = Misaligned<uint64_t>(builder, {0, 1}, 2);
      tiny.cut_type = wire::Cut::FlatCut;
      tiny.cut = wire::CreateFlatCut(builder, cuts).Union();
      break;
    }
    case Malformed::kMisalignedPieces: {
      const auto pieces = Misaligned<const wire::ExplicitPiece*>(builder, {0, 0, 1}, 1);
      tiny.cut_type = wire::Cut::ExplicitCut;
      tiny.cut = wire::CreateExplicitCut(builder, pieces).Union();
      break;
    }
    case Malformed::kUnknownCut:
      tiny.cut_type = static_cast<wire::Cut>(7);
      break;
    case Malformed::kNoCut:
      tiny.cut_type = wire::Cut::NONE;
      tiny.cut = 0;
      break;
    case Malformed::kBoxOutOfRange:
      tiny.boxed = {1};
      break;
    case Malformed::kBoxesFalling:
      tiny.boxed = {0, 0};
      tiny.box_bounds = {0, 1, 0, 1};
      break;
    case Malformed::kBoxNumbersMissing:
      tiny.boxed = {0};
      tiny.box_bounds = {0};
      break;
    case Malformed::kBoxNumbersLeft:
      tiny.boxed = {0};
      tiny.box_bounds = {0, 1, 2};
      break;
    default:
      break;
  }
  return FinishTiny(builder, tiny,
                    kind == Malformed::kWrongIdentifier ? "FSLB" : wire::LayoutIdentifier());
}

bool IsGoldenFlatBuffers() {
  return FLATBUFFERS_VERSION_MAJOR == 2 && FLATBUFFERS_VERSION_MINOR == 0;
}

}  // namespace flagstone::test
