// SPDX-License-Identifier: Apache-2.0
// Layouts that keep FlatBuffers' rules and not the format's: M23 and M34 to M56.
#include <string>
#include <utility>

#include "mutations.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using Code = StatusCode;
constexpr auto L = Decoder::kLayout;

// SmallManifest's layout, changed: partition 0 is flat over tensors 0 and 1, partition 1
// replicated.
template <typename Edit>
Mutation Row(std::string rule, std::string name, std::string message, Edit edit,
             StatusCode code = Code::kCorruption) {
  Layout layout = SmallManifest().layout;
  edit(layout);
  return {std::move(rule), std::move(name), L, RawLayoutBytes(layout), code, std::move(message)};
}

// The same in a manifest, which unlike a declaration has to be whole.
template <typename Edit>
Mutation ManifestRow(std::string rule, std::string name, std::string message, Edit edit) {
  RawManifest raw;
  edit(raw.manifest.layout);
  return {std::move(rule),
          std::move(name),
          Decoder::kManifest,
          WrapManifest(RawManifestBody(raw)),
          Code::kCorruption,
          std::move(message)};
}

Role& Fp32(Layout& layout) { return layout.partitions[0].roles[0]; }
Partition& Flat(Layout& layout) { return layout.partitions[0]; }
Partition& Copies(Layout& layout) { return layout.partitions[1]; }

void MakeExplicit(Layout& layout, std::vector<ExplicitPiece> pieces) {
  Flat(layout).cut = ExplicitCut{std::move(pieces)};
}

std::vector<Mutation> TensorMutations() {
  const auto unknown = static_cast<DType>(46);
  return {
      Row(
          "M23", "dtype", "the dtype 46", [=](Layout& l) { l.tensors[0].dtype = unknown; },
          Code::kUnsupported),
      Row(
          "M23", "kind", "the tensor kind 2",
          [](Layout& l) { l.tensors[0].kind = static_cast<TensorKind>(2); }, Code::kUnsupported),
      Row("M34", "world-0", "world size 0", [](Layout& l) { l.world_size = 0; }),
      Row("M34", "world-huge", "world size 1048577", [](Layout& l) { l.world_size = 1048577; }),
      Row("M35", "empty-name", "empty", [](Layout& l) { l.tensors[0].name = ""; }),
      Row("M35", "nul", "NUL", [](Layout& l) { l.tensors[0].name = std::string("a\0b", 3); }),
      Row("M35", "utf8", "not valid UTF-8", [](Layout& l) { l.tensors[0].name = "\xED\xA0\x80"; }),
      Row("M35", "long-name", "4097 bytes",
          [](Layout& l) { l.tensors[0].name = std::string(4097, 'a'); }),
      Row("M35", "alias", "empty", [](Layout& l) { l.tensors[0].aliases = {""}; }),
      Row("M36", "same-names", "duplicate name 'w'", [](Layout& l) { l.tensors[1].name = "w"; }),
      Row("M36", "alias", "duplicate name 'v'", [](Layout& l) { l.tensors[0].aliases = {"v"}; }),
      Row("M37", "overflow", "shape [4294967296, 4294967296]",
          [](Layout& l) {
            l.tensors[0].shape = {1ull << 32, 1ull << 32};
          }),
      Row("M37", "large", "more than 2^63 - 1 bytes",
          [](Layout& l) { l.tensors[0].shape = {1ull << 61}; }),
      Row("M37", "dimensions", "65 dimensions",
          [](Layout& l) { l.tensors[0].shape = std::vector<uint64_t>(65, 1); }),
      Row("M38", "group", "parameter group 7", [](Layout& l) { l.tensors[0].group = 7; }),
      Row("M39", "list", "neither a dict nor null",
          [](Layout& l) { l.groups[0].hyper_parameters = Value(Value::List{}); }),
  };
}

std::vector<Mutation> PartitionMutations() {
  return {
      Row("M40", "empty-id", "empty", [](Layout& l) { Flat(l).id = ""; }),
      Row("M40", "slash", "'/'", [](Layout& l) { Flat(l).id = "a/b"; }),
      Row("M40", "long-id", "257 bytes", [](Layout& l) { Flat(l).id = std::string(257, 'a'); }),
      Row("M41", "order", "not in normal form",
          [](Layout& l) { std::swap(l.partitions[0], l.partitions[1]); }),
      Row("M41", "same-ids", "have the id 'p'", [](Layout& l) { Copies(l).id = "p"; }),
      Row("M42", "no-ranks", "no ranks", [](Layout& l) { Flat(l).ranks.ranges.clear(); }),
      Row("M42", "empty-range", "a range of no ranks",
          [](Layout& l) {
            Flat(l).ranks.ranges = {{0, 0, 1}, {0, 2, 1}};
          }),
      Row("M42", "beyond", "names rank 2",
          [](Layout& l) {
            Flat(l).ranks.ranges = {{1, 2, 1}};
          }),
      Row("M42", "wraps", "names rank",
          [](Layout& l) {
            Flat(l).ranks.ranges = {{1, 4294967295u, 4294967295u}};
          }),
      Row("M42", "stride-0", "more than once",
          [](Layout& l) {
            Flat(l).ranks.ranges = {{0, 2, 0}};
          }),
      Row("M42", "twice", "more than once",
          [](Layout& l) {
            Flat(l).ranks.ranges = {{0, 1, 1}, {0, 1, 1}};
          }),
      Row("M42", "replica-length", "a replica list of 1 ranks",
          [](Layout& l) { Flat(l).replicas = {RankList::Of({1})}; }),
      Row("M42", "replica-twice", "more than once",
          [](Layout& l) { Copies(l).replicas = {RankList::World(2)}; }),
      Row("M43", "split", "not in normal form",
          [](Layout& l) {
            Flat(l).ranks.ranges = {{0, 1, 1}, {1, 1, 1}};
          }),
      Row("M43", "lone-stride", "not in normal form",
          [](Layout& l) {
            Copies(l).ranks.ranges = {{1, 1, 5}};
            Copies(l).cut = ReplicatedCut{{0, 0}};
          }),
      Row("M44", "member", "tensor index 9", [](Layout& l) { Flat(l).members[1].tensor = 9; }),
      Row("M44", "member-twice", "twice", [](Layout& l) { Flat(l).members[1].tensor = 0; }),
      {"M45", "range", L, MalformedLayout(Malformed::kBoxOutOfRange), Code::kCorruption,
       "a box of member 1 of 1"},
      {"M45", "order", L, MalformedLayout(Malformed::kBoxesFalling), Code::kCorruption,
       "a box of member 0 of 1"},
      {"M45", "few-bounds", L, MalformedLayout(Malformed::kBoxNumbersMissing), Code::kCorruption,
       "fewer numbers for its boxes"},
      {"M45", "many-bounds", L, MalformedLayout(Malformed::kBoxNumbersLeft), Code::kCorruption,
       "1 numbers behind its boxes"},
      Row("M46", "box", "not inside of its shape",
          [](Layout& l) {
            const auto& shape = l.tensors[Flat(l).members[0].tensor].shape;
            Flat(l).members[0].box = Box{std::vector<uint64_t>(shape.size(), 1), shape};
          }),
      Row("M80", "mesh-product", "has a mesh of 3 positions",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{3, MeshPlacement::kShard, 0, 1}}};
          }),
      Row("M80", "mesh-size", "a mesh axis 0 of size 0",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{0, MeshPlacement::kShard, 0, 1}}};
          }),
      Row("M80", "mesh-dimension", "shards dimension 9",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{2, MeshPlacement::kShard, 9, 1}}};
          }),
      Row("M80", "split-factor", "split factor 5000",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{2, MeshPlacement::kStridedShard, 0, 5000}}};
          }),
      Row("M80", "split-of-a-plain-shard", "only a strided shard has one",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{2, MeshPlacement::kShard, 0, 2}}};
          }),
      Row("M80", "replicating-dimension", "but it shards none",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{2, MeshPlacement::kReplicate, 1, 1}}};
          }),
      Row(
          "M23", "mesh-placement", "the mesh placement 3",
          [](Layout& l) {
            Flat(l).cut = MeshCut{{{2, static_cast<MeshPlacement>(3), 0, 1}}};
          },
          Code::kUnsupported),
      Row(
          "M23", "cut-unit", "the cut unit 2",
          [](Layout& l) { Flat(l).cut = PerTensorCut{static_cast<CutUnit>(2)}; },
          Code::kUnsupported),
  };
}

std::vector<Mutation> RoleMutations() {
  return {
      Row(
          "M23", "form", "the role form 3",
          [](Layout& l) { Fp32(l).form = static_cast<RoleForm>(3); }, Code::kUnsupported),
      Row("M47", "many", "257 roles",
          [](Layout& l) {
            Flat(l).roles.resize(257, Fp32(l));
            for (size_t i = 0; i < 257; ++i) Flat(l).roles[i].name = std::to_string(i);
          }),
      Row("M47", "name", "'/'", [](Layout& l) { Fp32(l).name = "a/b"; }),
      Row("M47", "same-names", "twice", [](Layout& l) { Fp32(l).name = "exp_avg"; }),
      Row("M48", "zero", "not in normal form", [](Layout& l) { Fp32(l).chunk_bytes = 0; }),
      Row("M48", "small", "chunks of 2048", [](Layout& l) { Fp32(l).chunk_bytes = 2048; }),
      Row("M48", "odd", "chunks of 5000", [](Layout& l) { Fp32(l).chunk_bytes = 5000; }),
      Row("M48", "large", "chunks of 8388608", [](Layout& l) { Fp32(l).chunk_bytes = 8 << 20; }),
      Row("M49", "zero", "blocks of 0", [](Layout& l) { Fp32(l).block = 0; }),
      Row("M49", "grid", "inside of a block of 3", [](Layout& l) { Fp32(l).block = 3; }),
      Row("M50", "flat", "attached",
          [](Layout& l) {
            Fp32(l).form = RoleForm::kAttached;
            Fp32(l).shapes = {{1}, {1}};
          }),
      Row("M50", "count", "1 shapes",
          [](Layout& l) {
            Flat(l).cut = WholeCut{{0, 1}};
            Fp32(l).form = RoleForm::kAttached;
            Fp32(l).shapes = {{1}};
          }),
      Row("M50", "aligned", "2 shapes",
          [](Layout& l) {
            Fp32(l).shapes = {{1}, {1}};
          }),
      Row("M51", "weight", "'weight' of float16",
          [](Layout& l) { Copies(l).roles[0].dtype = DType::kFloat16; }),
      Row("M52", "two-owners", "several members give a role of a tensor only as boxes of it",
          [](Layout& l) { Copies(l).roles[0].name = "fp32"; }),
      ManifestRow("M52", "box-missing", "are given to no rank",
                  [](Layout& l) {
                    const auto& shape = l.tensors[Copies(l).members[0].tensor].shape;
                    auto sizes = shape;
                    sizes[0] -= 1;
                    Copies(l).members[0].box = Box{std::vector<uint64_t>(shape.size(), 0), sizes};
                  }),
      ManifestRow("M52", "boxes-overlap", "are given 2 times",
                  [](Layout& l) {
                    const Member member = Copies(l).members[0];
                    const auto& shape = l.tensors[member.tensor].shape;
                    auto rest = shape;
                    rest[0] -= 1;
                    const std::vector<uint64_t> first(shape.size(), 0);
                    Copies(l).members = {{member.tensor, Box{first, shape}},
                                         {member.tensor, Box{first, rest}}};
                    Copies(l).cut = ReplicatedCut{{0, 0}};
                  }),
  };
}

std::vector<Mutation> CutMutations() {
  return {
      Row("M53", "count", "2 cuts",
          [](Layout& l) {
            Flat(l).cut = FlatCut{{0, 15}};
          }),
      Row("M53", "first", "first cut",
          [](Layout& l) {
            Flat(l).cut = FlatCut{{1, 8, 15}};
          }),
      Row("M53", "falling", "cuts that fall",
          [](Layout& l) {
            Flat(l).cut = FlatCut{{0, 16, 15}};
          }),
      Row("M53", "last", "last cut",
          [](Layout& l) {
            Flat(l).cut = FlatCut{{0, 8, 16}};
          }),
      Row("M54", "owners", "1 owners", [](Layout& l) { Flat(l).cut = WholeCut{{0}}; }),
      Row("M54", "storing", "position 2",
          [](Layout& l) {
            Copies(l).cut = ReplicatedCut{{0, 2}};
          }),
      Row("M55", "unowned", "to no rank",
          [](Layout& l) {
            MakeExplicit(l, {{0, 0, 0, 12}, {1, 1, 1, 3}});
          }),
      Row("M55", "twice", "twice",
          [](Layout& l) {
            MakeExplicit(l, {{0, 0, 0, 12}, {1, 1, 0, 3}, {0, 1, 2, 3}});
          }),
      Row("M55", "beyond", "which has 3 elements",
          [](Layout& l) {
            MakeExplicit(l, {{0, 0, 0, 12}, {1, 1, 0, 4}});
          }),
      Row("M55", "empty", "is not empty",
          [](Layout& l) {
            MakeExplicit(l, {{0, 0, 0, 12}, {1, 1, 0, 3}, {0, 0, 5, 5}});
          }),
      Row("M55", "turned", "is not empty",
          [](Layout& l) {
            MakeExplicit(l, {{0, 0, 8, 0}, {1, 1, 0, 3}});
          }),
      Row("M55", "member", "of member 2",
          [](Layout& l) {
            MakeExplicit(l, {{0, 2, 0, 1}});
          }),
      Row("M55", "rank", "position 2",
          [](Layout& l) {
            MakeExplicit(l, {{2, 0, 0, 12}});
          }),
      Row("M56", "elements", "more than 2^63 - 1 elements",
          [](Layout& l) {
            for (Tensor& tensor : l.tensors) {
              tensor.dtype = DType::kUint8;
              tensor.shape = {1ull << 62};
            }
          }),
      Row("M56", "bytes", "more than 2^63 - 1 bytes of the role 'fp32'",
          [](Layout& l) {
            for (Tensor& tensor : l.tensors) {
              tensor.dtype = DType::kUint8;
              tensor.shape = {1ull << 60};
            }
          }),
  };
}

}  // namespace

std::vector<Mutation> LayoutMutations() {
  std::vector<Mutation> all;
  for (auto* group : {TensorMutations, PartitionMutations, RoleMutations, CutMutations}) {
    for (Mutation& mutation : group()) all.push_back(std::move(mutation));
  }
  return all;
}

}  // namespace flagstone::test
