// SPDX-License-Identifier: Apache-2.0
#include "format/layout_codec.h"

#include <gmock/gmock.h>

#include <set>

#include "base/text.h"
#include "golden_maker.h"
#include "partition/normalize.h"
#include "random_layout.h"

namespace flagstone::test {
namespace {

TEST(LayoutCodec, RoundTripOfTheGoldenLayout) {
  const auto decoded = format::DecodeLayout(format::EncodeLayout(GoldenLayout()).value());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, GoldenLayout());
}

TEST(LayoutCodec, RoundTripOfAnEmptyLayout) {
  const Layout empty;
  const auto decoded = format::DecodeLayout(format::EncodeLayout(empty).value());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(*decoded, empty);
}

TEST(LayoutCodec, RoundTripOfRandomLayouts) {
  std::set<size_t> rules;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Layout layout = RandomLayout(random);
    ASSERT_EQ(ValidateLayout(layout).ToString(), "kOk");
    const auto bytes = format::EncodeLayout(layout);
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    const auto decoded = format::DecodeLayout(*bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    ASSERT_EQ(*decoded, layout);
    ASSERT_EQ(format::EncodeLayout(*decoded).value(), *bytes);
    ASSERT_EQ(format::LayoutDigest(*decoded), format::LayoutDigest(layout));
    for (const Partition& partition : layout.partitions) rules.insert(partition.cut.index());
  }
  EXPECT_EQ(rules.size(), 5u);
}

TEST(LayoutCodec, BytesMayLieAtAnyAddress) {
  const auto bytes = format::EncodeLayout(GoldenLayout()).value();
  for (size_t shift = 0; shift < 8; ++shift) {
    FileBytes moved(shift);
    moved.insert(moved.end(), bytes.begin(), bytes.end());
    const auto decoded = format::DecodeLayout(std::span(moved).subspan(shift));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(*decoded, GoldenLayout());
  }
}

// What the decoder calls normal, judged from range to range, is what Normalize leaves as it is.
TEST(LayoutCodec, NormalIsWhatNormalizeLeavesAsItIs) {
  size_t normal = 0;
  size_t other = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    Layout layout;
    layout.world_size = 12;
    Partition partition;
    partition.id = "p";
    partition.cut = PerTensorCut{};
    for (uint64_t i = 1 + Below(random, 3); i > 0; --i) {
      partition.ranks.ranges.push_back({static_cast<uint32_t>(Below(random, 12)),
                                        static_cast<uint32_t>(1 + Below(random, 3)),
                                        static_cast<uint32_t>(1 + Below(random, 3))});
    }
    layout.partitions = {partition};
    if (!ValidateLayout(layout).ok()) continue;
    const bool accepted = format::DecodeLayout(format::EncodeLayout(layout).value()).ok();
    ASSERT_EQ(accepted, partition::Normalize(layout) == layout) << seed;
    ++(accepted ? normal : other);
  }
  EXPECT_GT(normal, 100u);
  EXPECT_GT(other, 100u);
}

TEST(LayoutDigest, ChangesWithEveryField) {
  const Layout base = GoldenLayout();
  std::set<std::string> digests = {base::Hex(format::LayoutDigest(base))};
  size_t made = 1;
  const auto add = [&](auto edit) {
    Layout layout = base;
    edit(layout);
    digests.insert(base::Hex(format::LayoutDigest(layout)));
    ++made;
  };
  add([](Layout& l) { l.world_size = 4; });
  add([](Layout& l) { l.tensors[0].name += "x"; });
  add([](Layout& l) { l.tensors[0].dtype = DType::kInt8; });
  add([](Layout& l) { l.tensors[0].shape = {30}; });
  add([](Layout& l) { l.tensors[0].kind = TensorKind::kBuffer; });
  add([](Layout& l) { l.tensors[0].group = 1; });
  add([](Layout& l) { l.tensors[0].group.reset(); });
  add([](Layout& l) { l.tensors[0].trainable = false; });
  add([](Layout& l) { l.tensors[0].aliases.clear(); });
  add([](Layout& l) { l.partitions[0].id = "x"; });
  add([](Layout& l) { l.partitions[0].ranks.ranges[0].first = 1; });
  add([](Layout& l) { l.partitions[0].ranks.ranges[0].count = 2; });
  add([](Layout& l) { l.partitions[0].ranks.ranges[0].stride = 2; });
  add([](Layout& l) { l.partitions[0].replicas.push_back({}); });
  add([](Layout& l) { l.partitions[0].members[0].tensor = 5; });
  add([](Layout& l) { l.partitions[0].members[0].box = Box{{0}, {1}}; });
  add([](Layout& l) { l.partitions[0].members[0].box = Box{{1}, {1}}; });
  add([](Layout& l) { l.partitions[0].members[0].box = Box{{0}, {2}}; });
  add([](Layout& l) { l.partitions[0].roles[0].name = "x"; });
  add([](Layout& l) { l.partitions[0].roles[0].dtype = DType::kInt8; });
  add([](Layout& l) { l.partitions[0].roles[0].form = RoleForm::kPlain; });
  add([](Layout& l) { l.partitions[0].roles[1].shapes[0] = {4}; });
  add([](Layout& l) { l.partitions[0].roles[0].block = 2; });
  add([](Layout& l) { l.partitions[0].roles[0].chunk_bytes = 8192; });
  add([](Layout& l) { l.partitions[0].cut = WholeCut{{0, 0}}; });
  add([](Layout& l) { l.partitions[0].cut = ReplicatedCut{{0, 0}}; });
  add([](Layout& l) { l.partitions[0].cut = FlatCut{{0, 0}}; });
  add([](Layout& l) { l.partitions[0].cut = PerTensorCut{CutUnit::kElement}; });
  add([](Layout& l) { l.partitions[0].cut = PerTensorCut{CutUnit::kRow}; });
  add([](Layout& l) { l.partitions[0].cut = MeshCut{{{2, MeshPlacement::kShard, 0, 1}}}; });
  add([](Layout& l) { l.partitions[0].cut = MeshCut{{{2, MeshPlacement::kShard, 1, 1}}}; });
  add([](Layout& l) { l.partitions[0].cut = MeshCut{{{2, MeshPlacement::kShard, 0, 2}}}; });
  add([](Layout& l) { l.partitions[0].cut = MeshCut{{{3, MeshPlacement::kShard, 0, 1}}}; });
  add([](Layout& l) { l.partitions[0].cut = ExplicitCut{{{0, 0, 0, 1}}}; });
  add([](Layout& l) { l.partitions[0].cut = ExplicitCut{{{1, 0, 0, 1}}}; });
  add([](Layout& l) { l.groups[0].hyper_parameters = Value(); });
  add([](Layout& l) { l.groups.pop_back(); });
  EXPECT_EQ(digests.size(), made);
}

// The canonical encoding, written out by hand as spec/format.md lists it.
TEST(LayoutDigest, IsOfTheCanonicalEncoding) {
  Layout layout;
  layout.world_size = 2;
  Tensor tensor;
  tensor.name = "w";
  tensor.dtype = DType::kFloat32;
  tensor.shape = {3};
  tensor.group = 0;
  tensor.aliases = {"v"};
  layout.tensors = {tensor};
  Partition partition;
  partition.id = "p";
  partition.ranks = RankList::World(2);
  partition.members = {{0, std::nullopt}};
  Role role;
  role.name = "r";
  role.chunk_bytes = 4096;
  partition.roles = {role};
  partition.cut = FlatCut{{0, 1, 3}};
  layout.partitions = {partition};
  layout.groups = {{Value(Value::Dict{{"lr", true}})}};

  constexpr std::string_view kEncoding(
      "FLAGSTONE-LAYOUT-1"
      "\x02\0\0\0"  // world size
      "\x01\0\0\0"
      "\x01\0\0\0w"
      "\x0b"
      "\x01\0\0\0\x03\0\0\0\0\0\0\0"  // tensor: name, dtype, shape
      "\0"
      "\x01\0\0\0\0"
      "\x01"
      "\x01\0\0\0\x01\0\0\0v"  // kind, group, trainable, aliases
      "\x01\0\0\0"
      "\x01\0\0\0p"
      "\x01\0\0\0\0\0\0\0\x02\0\0\0\x01\0\0\0"  // partition: id, ranks
      "\0\0\0\0"
      "\x01\0\0\0\0\0\0\0\0"  // replicas, members
      "\x01\0\0\0"
      "\x01\0\0\0r"
      "\x0b"
      "\0"
      "\0\0\0\0"  // role: name, dtype, form, shapes
      "\x01\0\0\0\0\0\0\0"
      "\0\x10\0\0"  // block, chunk_bytes
      "\0"
      "\x03\0\0\0"
      "\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0"
      "\x01\0\0\0"
      "\x07\x01\0\0\0\x04\x02\0\0\0lr\x01\x01",
      18 + 4 + 4 + 5 + 1 + 12 + 1 + 5 + 1 + 9 + 4 + 5 + 16 + 4 + 9 + 4 + 5 + 1 + 1 + 4 + 8 + 4 + 1 +
          28 + 4 + 14);
  EXPECT_EQ(base::Hex(format::LayoutDigest(layout)),
            base::Hex(base::DigestOf(std::as_bytes(std::span(kEncoding)))));
}

}  // namespace
}  // namespace flagstone::test
