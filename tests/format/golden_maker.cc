// SPDX-License-Identifier: Apache-2.0
#include "golden_maker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/digest.h"
#include "base/endian.h"
#include "base/range.h"
#include "base/text.h"
#include "format/header.h"
#include "format/placement.h"
#include "partition/geometry.h"
#include "partition/normalize.h"

namespace flagstone::test {
namespace {

constexpr uint64_t kPage = base::kPageBytes;

// 18:00 of 14 March 2025, UTC.
constexpr int64_t kCommittedAt = 1741975200000000000;

Tensor MakeTensor(std::string name, DType dtype, std::vector<uint64_t> shape,
                  std::optional<uint32_t> group) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.group = group;
  return tensor;
}

std::vector<Member> Members(const std::vector<uint32_t>& tensors) {
  std::vector<Member> members;
  for (const uint32_t tensor : tensors) members.push_back({tensor, std::nullopt});
  return members;
}

Role MakeRole(std::string name, DType dtype, RoleForm form = RoleForm::kAligned,
              uint32_t chunk_bytes = 0) {
  Role role;
  role.name = std::move(name);
  role.dtype = dtype;
  role.form = form;
  role.chunk_bytes = chunk_bytes;
  return role;
}

Partition MakePartition(PartitionId id, RankList ranks, const std::vector<uint32_t>& tensors,
                        std::vector<Role> roles, CutRule cut) {
  Partition partition;
  partition.id = std::move(id);
  partition.ranks = std::move(ranks);
  partition.members = Members(tensors);
  partition.roles = std::move(roles);
  partition.cut = std::move(cut);
  return partition;
}

std::vector<Tensor> GoldenTensors() {
  std::vector<Tensor> tensors;
  tensors.push_back(MakeTensor("embed.weight", DType::kBFloat16, {6, 5}, 0));
  tensors.back().aliases = {"lm_head.weight"};
  tensors.push_back(MakeTensor("layers.0.weight", DType::kBFloat16, {33, 70}, 0));
  tensors.push_back(MakeTensor("layers.0.bias", DType::kBFloat16, {17}, 1));
  tensors.push_back(MakeTensor("scale", DType::kFloat32, {}, std::nullopt));
  tensors.push_back(MakeTensor("empty", DType::kBFloat16, {0, 3}, std::nullopt));
  tensors.push_back(MakeTensor("norm.running_mean", DType::kFloat32, {4}, std::nullopt));
  tensors.back().kind = TensorKind::kBuffer;
  tensors.back().trainable = false;
  tensors.push_back(MakeTensor("experts.0.weight", DType::kFloat32, {3, 4}, 1));
  tensors.push_back(MakeTensor("experts.1.weight", DType::kFloat32, {5, 4}, 1));
  tensors.push_back(MakeTensor("frozen.codes", DType::kUint8, {10, 3}, std::nullopt));
  tensors.back().trainable = false;
  tensors.push_back(
      MakeTensor("na\xC3\xAFve/\xE9\x87\x8D\xE3\x81\xBF", DType::kFloat16, {7, 2}, std::nullopt));
  tensors.push_back(MakeTensor("wide.weight", DType::kFloat32, {8, 6}, 0));
  tensors.push_back(MakeTensor("grid.weight", DType::kFloat32, {9, 4}, 0));
  return tensors;
}

// Bytes that depend on the place alone: a xorshift seeded with the segment's name.
void Fill(std::string_view seed, std::span<std::byte> out) {
  uint64_t state = base::Digest64(std::as_bytes(std::span(seed))) | 1;
  for (std::byte& byte : out) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<std::byte>(state >> 56);
  }
}

Array FilledArray(std::string_view seed, DType dtype, std::vector<uint64_t> shape) {
  Array array{dtype, std::move(shape), {}};
  array.bytes.resize(format::ArraySizeBytes(array));
  Fill(seed, array.bytes);
  return array;
}

std::vector<format::ArraySize> ArraysOf(const Value& rank_state, const Value& client_state) {
  std::vector<format::ArraySize> sizes;
  for (const Array* array : format::SegmentArrays(rank_state)) {
    sizes.push_back({false, format::ArraySizeBytes(*array)});
  }
  for (const Array* array : format::SegmentArrays(client_state)) {
    sizes.push_back({true, format::ArraySizeBytes(*array)});
  }
  return sizes;
}

// The bytes of a partition's segment: members' slices by formula, gaps between them zero.
void FillPartition(const Layout& layout, const format::PlacedSegment& segment, uint32_t rank,
                   std::span<std::byte> out) {
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    const Partition& partition = layout.partitions[p];
    if (partition.id != segment.partition) continue;
    const partition::Geometry geometry(layout, p);
    const auto role = std::find_if(partition.roles.begin(), partition.roles.end(),
                                   [&](const Role& r) { return r.name == segment.role; });
    const auto number = static_cast<uint32_t>(role - partition.roles.begin());
    const auto pieces = geometry.StoredSegment(number, *partition.ranks.IndexOf(rank)).pieces;
    for (const partition::SegmentPiece& piece : pieces) {
      // The element's value, and not its place, decides its bytes: all layouts hold the same.
      const std::string seed = layout.tensors[partition.members[piece.slice.member].tensor].name;
      FileBytes whole(piece.slice.end * SizeOf(role->dtype));
      Fill(seed + segment.role, whole);
      std::copy(whole.end() - static_cast<std::ptrdiff_t>(piece.byte_size), whole.end(),
                out.begin() + static_cast<std::ptrdiff_t>(piece.byte_offset));
    }
  }
}

// Digest pages for the segments that lie in `file`.
void WriteDigests(const format::RankPlacement& placement, std::span<std::byte> file) {
  for (const format::PlacedSegment& segment : placement.segments) {
    for (uint64_t chunk = 0; chunk < segment.chunks(); ++chunk) {
      const uint64_t begin = chunk * segment.chunk_bytes;
      const uint64_t size = std::min<uint64_t>(segment.chunk_bytes, segment.padded_bytes() - begin);
      const uint64_t digest = base::Digest64(file.subspan(segment.offset + begin, size));
      base::StoreLittle(&file[placement.digests_offset + 8 * (segment.first_chunk + chunk)],
                        digest);
    }
  }
}

}  // namespace

format::SaveId GoldenSaveId() {
  format::SaveId id;
  for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0x1A + 0x11 * i);
  return id;
}

Layout GoldenLayout() {
  Layout layout;
  layout.world_size = 3;
  layout.tensors = GoldenTensors();
  Value::Dict group0 = {{"lr", 1e-4}, {"betas", Value::List{0.9, 0.999}}, {"amsgrad", false}};
  layout.groups = {{Value(group0)}, {Value()}};

  Role row_variance = MakeRole("row_variance", DType::kFloat32, RoleForm::kAttached);
  row_variance.shapes = {{3}, {5}};
  Role codes = MakeRole("weight", DType::kUint8);
  codes.block = 3;
  const auto flat_roles = std::vector{MakeRole("fp32", DType::kFloat32, RoleForm::kAligned, 4096),
                                      MakeRole("exp_avg", DType::kFloat32),
                                      MakeRole("step", DType::kFloat32, RoleForm::kPlain)};
  layout.partitions.push_back(MakePartition("flat.0", RankList::Of({2, 0}), {1, 2, 0}, flat_roles,
                                            FlatCut{{0, 1180, 2357}}));
  layout.partitions.push_back(MakePartition("weight", RankList::Of({1}), {0, 1, 2, 4},
                                            {MakeRole("weight", DType::kBFloat16)},
                                            PerTensorCut{}));
  layout.partitions.back().replicas = {RankList::Of({2})};
  layout.partitions.push_back(MakePartition("rows", RankList::Of({0, 1}), {9},
                                            {MakeRole("weight", DType::kFloat16)},
                                            PerTensorCut{CutUnit::kRow}));
  layout.partitions.push_back(MakePartition("expert", RankList::World(3), {6, 7},
                                            {MakeRole("weight", DType::kFloat32), row_variance,
                                             MakeRole("step", DType::kFloat32, RoleForm::kPlain)},
                                            WholeCut{{2, 0}}));
  layout.partitions.push_back(MakePartition("mean", RankList::World(3), {5, 3},
                                            {MakeRole("weight", DType::kFloat32)},
                                            ReplicatedCut{{1, 1}}));
  layout.partitions.push_back(
      MakePartition("frozen", RankList::World(3), {8}, {codes},
                    ExplicitCut{{{1, 0, 0, 9}, {0, 0, 21, 30}, {0, 0, 9, 21}}}));
  // Columns over two tensor-parallel ranks, and rows over a mesh.
  for (const uint32_t rank : {0, 1}) {
    layout.partitions.push_back(MakePartition(base::Join("tp.", rank), RankList::Of({rank}),
                                              {10}, {MakeRole("weight", DType::kFloat32)},
                                              FlatCut{{0, 24}}));
    layout.partitions.back().members[0].box = Box{{0, 3 * uint64_t{rank}}, {8, 3}};
  }
  layout.partitions.push_back(MakePartition("tp.grid", RankList::Of({0, 2}), {11},
                                            {MakeRole("weight", DType::kFloat32)},
                                            MeshCut{{{2, MeshPlacement::kStridedShard, 0, 2}}}));
  return partition::Normalize(std::move(layout));
}

Value GoldenRankState(uint32_t rank) {
  if (rank == 1) return {};
  Value::Dict state;
  if (rank == 0) state.emplace_back("rng", FilledArray("rng", DType::kUint8, {5000}));
  state.emplace_back("seeds", FilledArray("seeds", DType::kInt64, {2, rank}));
  state.emplace_back("position", int64_t{1000} + rank);
  return state;
}

Value GoldenClientState() {
  Value::Dict nested = {{7, "seven"}, {true, Value()}, {2.5, Value::List{}}, {Value(), false}};
  return Value::Dict{{"epoch", 3},
                     {"lowest", std::numeric_limits<int64_t>::min()},
                     {"loss", 2.25},
                     {"nan", std::numeric_limits<double>::quiet_NaN()},
                     {"minus zero", -0.0},
                     {"name", "na\xC3\xAFve\n"},
                     {"blob", Value::Bytes{std::byte{0}, std::byte{0xFF}}},
                     {"nested", nested},
                     {"small", FilledArray("small", DType::kFloat16, {3})},
                     {"ema", FilledArray("ema", DType::kFloat32, {1025})}};
}

std::vector<format::PlainValue> PlainValuesOf(const Layout& layout, uint32_t rank) {
  std::vector<format::PlainValue> values;
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    const Partition& partition = layout.partitions[p];
    const auto position = partition.ranks.IndexOf(rank);
    if (!position) continue;
    std::vector<bool> owned(partition.members.size());
    for (const Slice& slice : partition::Geometry(layout, p).Stored(*position)) {
      owned[slice.member] = owned[slice.member] || slice.begin < slice.end;
    }
    for (const Role& role : partition.roles) {
      if (role.form != RoleForm::kPlain) continue;
      for (uint32_t m = 0; m < owned.size(); ++m) {
        if (!owned[m]) continue;
        const double step = 10.0 + partition.members[m].tensor;
        values.push_back({partition.id, role.name, m, Value(step)});
      }
    }
  }
  return values;
}

RankFile MakeRankFile(const Layout& layout, uint32_t rank, const Value& rank_state,
                      const Value& client_state) {
  const Value no_client;
  const Value& client = rank == 0 ? client_state : no_client;
  const auto sizes = ArraysOf(rank_state, client);
  format::RankIndex index;
  index.save_id = GoldenSaveId();
  index.rank = rank;
  index.world_size = layout.world_size;
  index.placement = format::PlaceRankFile(layout, rank, sizes).value();
  index.plain = PlainValuesOf(layout, rank);
  index.rank_state = rank_state;

  FileBytes file(index.placement.index_offset);
  auto rank_arrays = format::SegmentArrays(rank_state);
  const auto client_arrays = format::SegmentArrays(client);
  rank_arrays.insert(rank_arrays.end(), client_arrays.begin(), client_arrays.end());
  size_t next_array = 0;
  for (const format::PlacedSegment& segment : index.placement.segments) {
    const auto out = std::span(file).subspan(segment.offset, segment.bytes);
    if (segment.partition.empty()) {
      const auto& bytes = rank_arrays[next_array++]->bytes;
      std::copy(bytes.begin(), bytes.end(), out.begin());
    } else {
      FillPartition(layout, segment, rank, out);
    }
  }
  WriteDigests(index.placement, file);
  for (uint64_t page = 0; page < index.placement.digest_pages(); ++page) {
    const auto bytes =
        std::span(file).subspan(index.placement.digests_offset + page * kPage, kPage);
    index.page_digests.push_back(base::Digest64(bytes));
  }

  const FileBytes encoded = format::EncodeRankIndex(index).value();
  file.insert(file.end(), encoded.begin(), encoded.end());
  file.resize(format::RankFileLength(index.placement, encoded.size()));
  format::Header header;
  header.kind = format::FileKind::kRankFile;
  header.save_id = index.save_id;
  header.rank = rank;
  header.world_size = layout.world_size;
  header.file_length = file.size();
  header.index_offset = index.placement.index_offset;
  header.index_length = encoded.size();
  header.index_digest = base::DigestOf(encoded);
  const auto page = format::EncodeHeader(header);
  std::copy(page.begin(), page.end(), file.begin());
  format::RankFileEntry entry{rank, file.size(), encoded.size(), header.index_digest};
  return {format::RankFileName(rank, index.save_id), std::move(file), entry};
}

Files MakeGolden() {
  format::Manifest manifest;
  manifest.save_id = GoldenSaveId();
  manifest.step = 1000;
  manifest.committed_at = kCommittedAt;
  manifest.layout = GoldenLayout();
  manifest.client_state = GoldenClientState();
  Files files;
  for (uint32_t rank = 0; rank < manifest.layout.world_size; ++rank) {
    RankFile file =
        MakeRankFile(manifest.layout, rank, GoldenRankState(rank), manifest.client_state);
    manifest.files.push_back(file.entry);
    files.emplace(file.name, std::move(file.bytes));
  }
  files.emplace(format::kManifestName, format::EncodeManifest(manifest).value());
  return files;
}

format::Manifest SmallManifest() {
  format::Manifest manifest;
  manifest.save_id = GoldenSaveId();
  manifest.step = 5;
  manifest.committed_at = kCommittedAt;
  manifest.layout.world_size = 2;
  manifest.layout.groups = {{Value(Value::Dict{{"lr", 0.5}})}};
  manifest.layout.tensors = {MakeTensor("w", DType::kFloat32, {6, 2}, 0),
                             MakeTensor("v", DType::kFloat32, {3}, 0)};
  manifest.layout.partitions = {
      MakePartition("p", RankList::World(2), {0, 1},
                    {MakeRole("fp32", DType::kFloat32), MakeRole("exp_avg", DType::kFloat32)},
                    FlatCut{{0, 8, 15}}),
      MakePartition("q", RankList::World(2), {0, 1}, {MakeRole("weight", DType::kFloat32)},
                    ReplicatedCut{{0, 1}})};
  manifest.layout = partition::Normalize(std::move(manifest.layout));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    format::RankFileEntry entry{rank, 5 * kPage, 300, {}};
    Fill("digest", entry.index_digest);
    manifest.files.push_back(entry);
  }
  manifest.client_state = Value::Dict{{"epoch", 2}};
  return manifest;
}

format::RankIndex SmallIndex() {
  format::RankIndex index;
  index.save_id = GoldenSaveId();
  index.rank = 0;
  index.world_size = 2;
  Array array = FilledArray("array", DType::kUint8, {5000});
  array.bytes.clear();
  index.rank_state = Value::Dict{{"rng", array}, {"position", 5}};
  index.placement.segments = {
      {"p", "fp32", kPage, 3 * kPage + 100, 8192, 0},
      {"p", "exp_avg", 5 * kPage, 200, 8192, 2},
      {"q", "weight", 6 * kPage, 64, 1 << 20, 3},
      {"", std::string(format::kRankStateRole), 7 * kPage, 5000, format::kArrayChunkBytes, 4}};
  index.placement.digests_offset = 9 * kPage;
  index.placement.digest_count = 5;
  index.placement.index_offset = 10 * kPage;
  index.page_digests = {0x0123456789ABCDEF};
  index.plain = {
      {"p", "step", 0, Value(5.0)}, {"p", "step", 1, Value()}, {"p", "warm", 0, Value(true)}};
  return index;
}

}  // namespace flagstone::test
