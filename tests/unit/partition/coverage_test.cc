// SPDX-License-Identifier: Apache-2.0
// Boxes and meshes: what ValidateLayout accepts and refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>

#include "flagstone/zero.h"
#include "layout_of.h"
#include "model.h"
#include "partition/validate.h"
#include "random_layout.h"

namespace flagstone::partition_tests {
namespace {

using testing::HasSubstr;

// Tensor t0 of shape [8, 6] in one partition a box; partition i is rank i's.
Layout Boxes(const std::vector<Box>& boxes) {
  Layout layout = LayoutOf(static_cast<uint32_t>(boxes.size()), {{8, 6}});
  for (uint32_t i = 0; i < boxes.size(); ++i) {
    layout.partitions.push_back(MakeWhole(base::Join("p", i), {0}, RankList::Of({i}),
                                          {{.name = "fp32"}}, {0}));
    layout.partitions.back().members[0].box = boxes[i];
  }
  return layout;
}

void ExpectRefused(const Layout& layout, const std::string& message,
                   StatusCode code = StatusCode::kInvalidArgument) {
  const Status status = ValidateLayout(layout);
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(message));
}

TEST(Coverage, ColumnsAndAGridAreWhole) {
  EXPECT_TRUE(ValidateLayout(Boxes({{{0, 0}, {8, 4}}, {{0, 4}, {8, 2}}})).ok());
  EXPECT_TRUE(ValidateLayout(
                  Boxes({{{0, 0}, {3, 4}}, {{0, 4}, {8, 2}}, {{3, 0}, {5, 1}}, {{3, 1}, {5, 3}}}))
                  .ok());
  EXPECT_TRUE(ValidateLayout(Boxes({{{0, 0}, {8, 6}}})).ok()) << "a box may be all of it";
}

TEST(Coverage, WhatIsLeftOutOrTakenTwiceIsNamed) {
  ExpectRefused(Boxes({{{0, 0}, {8, 4}}}),
                "elements [4, 6) of the role 'fp32' of tensor 't0' are given to no rank");
  ExpectRefused(Boxes({{{0, 0}, {8, 4}}, {{0, 3}, {8, 3}}}),
                "elements [3, 4) of the role 'fp32' of tensor 't0' are given 2 times: by partition "
                "'p0' and by partition 'p1'");
  ExpectRefused(Boxes({{{0, 0}, {4, 6}}, {{5, 0}, {3, 6}}}), "elements [24, 30)");
  // As many elements as the tensor has, but not the right ones.
  ExpectRefused(Boxes({{{0, 0}, {4, 6}}, {{0, 0}, {4, 6}}}), "elements [0, 24)");
  ExpectRefused(Boxes({}), "", StatusCode::kInvalidArgument);
}

TEST(Coverage, ATensorAndABoxOfIt) {
  Layout layout = Boxes({{{0, 0}, {8, 6}}, {{0, 0}, {8, 3}}});
  layout.partitions[0].members[0].box.reset();
  ExpectRefused(layout, "several members give a role of a tensor only as boxes of it");
  layout = Boxes({{{0, 0}, {8, 3}}});
  layout.partitions[0].members.push_back({0, std::nullopt});
  layout.partitions[0].cut = WholeCut{{0, 0}};
  ExpectRefused(layout, "partition 'p0' has tensor 't0' twice");
}

TEST(Coverage, RolesOfBoxesAreAlike) {
  Layout layout = Boxes({{{0, 0}, {8, 3}}, {{0, 3}, {8, 3}}});
  layout.partitions[1].roles[0].dtype = DType::kFloat16;
  ExpectRefused(layout,
                "is aligned float32 in blocks of 1 in partition 'p0', but aligned float16 in blocks "
                "of 1 in partition 'p1'");
}

TEST(Coverage, ABoxLiesInsideOfItsTensor) {
  const std::string message = "which is not inside of its shape [8, 6]";
  ExpectRefused(Boxes({{{0, 1}, {8, 6}}}), message);
  ExpectRefused(Boxes({{{0}, {8}}}), message);
  ExpectRefused(Boxes({{{0, 0}, {8}}}), message);
  ExpectRefused(Boxes({{{~uint64_t{0}, 0}, {2, 6}}}), message);
}

// What one rank declares is not all.
TEST(Coverage, ADeclarationMayHaveOneBoxOfMany) {
  const Layout layout = Boxes({{{0, 0}, {8, 4}}});
  EXPECT_TRUE(partition::ValidateDeclaration(layout).ok());
  EXPECT_FALSE(ValidateLayout(layout).ok());
}

TEST(Coverage, DimensionsAreLimited) {
  const std::vector<uint64_t> shape(6, 2);
  Layout layout = LayoutOf(2, {shape});
  for (uint32_t i = 0; i < 2; ++i) {
    layout.partitions.push_back(MakeWhole(base::Join("p", i), {0}, RankList::Of({i}),
                                          {{.name = "fp32"}}, {0}));
    layout.partitions.back().members[0].box =
        Box{std::vector<uint64_t>(6, i), std::vector<uint64_t>(6, 1)};
  }
  ExpectRefused(layout, "2 boxes along 6 dimensions, which is more than this version can compare",
                StatusCode::kUnsupported);
}

// The number of boxes over each element, one by one, against what the corners say.
TEST(Coverage, AgreesWithCounting) {
  uint64_t whole = 0, refused = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const Draw draw = SeededDraw(seed + 700000);
    // Start from a right answer and spoil it now and then.
    std::vector<Box> boxes = RandomBoxes(draw, {8, 6});
    for (uint64_t spoils = draw(3); spoils > 0; --spoils) {
      Box& box = boxes[draw(boxes.size())];
      const uint64_t d = draw(2);
      const uint64_t size = d == 0 ? 8 : 6;
      box.offsets[d] = draw(size);
      box.sizes[d] = draw(size - box.offsets[d] + 1);
      if (draw(3) == 0) boxes.push_back(boxes[draw(boxes.size())]);
    }
    std::vector<int> times(48);
    for (const Box& box : boxes) {
      for (const uint64_t i : IndexesOf({8, 6}, box)) ++times[i];
    }
    const auto wrong = std::find_if(times.begin(), times.end(), [](int n) { return n != 1; });
    const Status status = ValidateLayout(Boxes(boxes));
    ASSERT_EQ(status.ok(), wrong == times.end()) << "seed " << seed << ": " << status.ToString();
    ++(status.ok() ? whole : refused);
    if (status.ok()) continue;
    // The first wrong element is the one that is named.
    ASSERT_THAT(status.message(), HasSubstr(base::Join("elements [", wrong - times.begin(), ", ")));
    ASSERT_THAT(status.message(),
                HasSubstr(*wrong == 0 ? std::string("to no rank")
                                      : base::Join("given ", *wrong, " times")));
  }
  std::printf("%lu whole, %lu refused\n", whole, refused);
  EXPECT_GT(whole, 500u);
  EXPECT_GT(refused, 500u);
}

Layout Meshed(uint32_t world, MeshCut cut, std::vector<uint64_t> shape = {8, 6}) {
  Layout layout = LayoutOf(world, {std::move(shape)});
  layout.partitions = {MakeWhole("p", {0}, RankList::World(world), {{.name = "fp32"}}, {0})};
  layout.partitions[0].cut = std::move(cut);
  return layout;
}

TEST(MeshRule, WhatItRefuses) {
  using enum MeshPlacement;
  EXPECT_TRUE(ValidateLayout(Meshed(6, {{{2, kReplicate}, {3, kShard, 1}}})).ok());
  EXPECT_TRUE(ValidateLayout(Meshed(1, {})).ok()) << "a mesh of no axes has one position";
  ExpectRefused(Meshed(6, {{{2, kShard, 0}}}),
                "partition 'p' has a mesh of 2 positions, but 6 ranks in its rank list");
  ExpectRefused(Meshed(6, {{{0, kShard, 0}, {6, kShard, 0}}}), "a mesh axis 0 of size 0");
  ExpectRefused(Meshed(6, {{{6, kShard, 2}}}),
                "shards dimension 2 of tensor 't0', which has 2 dimensions");
  ExpectRefused(Meshed(6, {{{6, kReplicate, 1}}}), "but it shards none");
  ExpectRefused(Meshed(6, {{{6, kShard, 0, 3}}}), "only a strided shard has one");
  ExpectRefused(Meshed(6, {{{6, kStridedShard, 0, 0}}}), "it may be 1 to 4096");
  ExpectRefused(Meshed(6, {{{6, static_cast<MeshPlacement>(7)}}}), "mesh placement value 7");
  ExpectRefused(Meshed(1, {std::vector<MeshAxis>(17)}), "a mesh of 17 axes, more than 16");
  ExpectRefused(Meshed(1, {{{1, kStridedShard, 0, 64}, {1, kStridedShard, 0, 65}}}),
                "cuts dimension 0 into 4160 pieces by the split factors");
  EXPECT_TRUE(
      ValidateLayout(Meshed(1, {{{1, kStridedShard, 0, 64}, {1, kStridedShard, 1, 65}}})).ok());
  MeshCut many;
  for (uint32_t d = 0; d < 6; ++d) many.axes.push_back({1, kShard, d});
  ExpectRefused(Meshed(1, many, std::vector<uint64_t>(6, 2)), "cuts 6 dimensions of tensor 't0'",
                StatusCode::kUnsupported);
}

TEST(MeshRule, BlocksAreNotCut) {
  using enum MeshPlacement;
  Layout layout = Meshed(2, {{{2, kShard, 1}}}, {4, 12});
  layout.partitions[0].roles[0].block = 6;
  EXPECT_TRUE(ValidateLayout(layout).ok());
  layout.partitions[0].roles[0].block = 4;
  ExpectRefused(layout, "cuts tensor 't0' at index 6 of dimension 1, inside of a block of 4");
  // Rows of 10 are no whole blocks of 5 and a half, but rows of 10 are of 5.
  layout = Meshed(2, {{{2, kShard, 1}}}, {4, 10});
  layout.partitions[0].roles[0].block = 5;
  EXPECT_TRUE(ValidateLayout(layout).ok());
  layout = Boxes({{{0, 0}, {8, 4}}, {{0, 4}, {8, 2}}});
  for (Partition& partition : layout.partitions) partition.roles[0].block = 2;
  EXPECT_TRUE(ValidateLayout(layout).ok());
  for (Partition& partition : layout.partitions) partition.roles[0].block = 4;
  ExpectRefused(layout, "cuts tensor 't0' at index 4 of dimension 1, inside of a block of 4");
}

// Blocks under meshes and in boxes, against element by element.
TEST(MeshRule, BlocksAgreeWithCounting) {
  uint64_t fine = 0, refused = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const Draw draw = SeededDraw(seed + 800000);
    const std::vector<uint64_t> shape = {2 + draw(3), 4 * (1 + draw(2)), 1 + draw(3)};
    MeshCut cut;
    uint32_t world = 1;
    for (uint64_t i = 1 + draw(2); i > 0; --i) {
      MeshAxis axis{1 + static_cast<uint32_t>(draw(3)), MeshPlacement::kShard,
                    static_cast<uint32_t>(draw(3))};
      if (draw(3) == 0) {
        axis.placement = MeshPlacement::kStridedShard;
        axis.split_factor = 1 + static_cast<uint32_t>(draw(3));
      }
      world *= axis.size;
      cut.axes.push_back(axis);
    }
    Layout layout = Meshed(world, cut, shape);
    const uint64_t block = uint64_t{1} << (1 + draw(3));
    layout.partitions[0].roles[0].block = block;
    const bool on_grid = Model(layout, 0).IsOnGrid(block);
    const Status status = ValidateLayout(layout);
    ASSERT_EQ(status.ok(), on_grid) << "seed " << seed << ": " << status.ToString();
    ++(on_grid ? fine : refused);
  }
  std::printf("%lu on the grid, %lu refused\n", fine, refused);
}

// DTensor's own example: _StridedShard of split factor 2 over 4 ranks of nine indexes.
TEST(MeshRule, StridedShardsAsDTensorCutsThem) {
  Layout layout = Meshed(4, {{{4, MeshPlacement::kStridedShard, 0, 2}}}, {9});
  const auto parts = [&](uint32_t rank) {
    std::vector<std::pair<uint64_t, uint64_t>> result;
    const LocalTensor local = HeldTensor(layout, "p", rank, 0).value();
    for (const auto& part : local.parts) {
      result.emplace_back(part.box.offsets[0], part.box.offsets[0] + part.box.sizes[0]);
    }
    return result;
  };
  using Parts = std::vector<std::pair<uint64_t, uint64_t>>;
  EXPECT_EQ(parts(0), (Parts{{0, 2}, {5, 6}}));
  EXPECT_EQ(parts(1), (Parts{{2, 4}, {6, 7}}));
  EXPECT_EQ(parts(2), (Parts{{4, 5}, {7, 8}}));
  EXPECT_EQ(parts(3), (Parts{{8, 9}}));
}

TEST(MeshRule, LocalTensorsHaveErrors) {
  Layout layout = Meshed(2, {{{2, MeshPlacement::kShard, 0}}});
  EXPECT_EQ(HeldTensor(layout, "p", 0, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HeldTensor(layout, "q", 0, 0).status().code(), StatusCode::kNotFound);
  layout.partitions[0].cut = PerTensorCut{};
  EXPECT_THAT(HeldTensor(layout, "p", 0, 0).status().message(),
              HasSubstr("(rule per_tensor, 1 members) has no local tensor of member 0 on rank 0"));
}

}  // namespace
}  // namespace flagstone::partition_tests
