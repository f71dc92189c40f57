// SPDX-License-Identifier: Apache-2.0
#include "flagstone/zero.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "layout_of.h"
#include "model.h"

namespace flagstone::partition_tests {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using Numbers = std::vector<uint64_t>;

// Elements that each rank of the world holds.
Numbers Shares(const Layout& layout, const std::string& partition) {
  Numbers shares;
  for (uint32_t rank = 0; rank < layout.world_size; ++rank) {
    uint64_t share = 0;
    const std::vector<Slice> slices = HeldSlices(layout, partition, rank).value();
    for (const Slice& slice : slices) share += slice.end - slice.begin;
    shares.push_back(share);
  }
  return shares;
}

TEST(EvenCuts, ByHand) {
  EXPECT_EQ(EvenCuts(10, 2, 1), (Numbers{0, 5, 10}));
  EXPECT_EQ(EvenCuts(57, 2, 2), (Numbers{0, 30, 57}));
  EXPECT_EQ(EvenCuts(5, 4, 1), (Numbers{0, 2, 4, 5, 5}));
  EXPECT_EQ(EvenCuts(0, 3, 2), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(EvenCuts(1, 3, 8), (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(EvenCuts(7, 1, 2), (Numbers{0, 7}));
}

TEST(EvenCuts, ArgumentsWithoutMeaningDoNoHarm) {
  EXPECT_EQ(EvenCuts(7, 0, 2), (Numbers{0}));
  EXPECT_EQ(EvenCuts(7, 2, 0), (Numbers{0, 4, 7}));
  constexpr uint64_t kMost = ~uint64_t{0};
  EXPECT_EQ(EvenCuts(kMost, 1, 2), (Numbers{0, kMost}));
  EXPECT_EQ(EvenCuts(kMost, 2, 1), (Numbers{0, kMost / 2 + 1, kMost}));
  EXPECT_EQ(EvenCuts(kMost, 3, kMost), (Numbers{0, kMost, kMost, kMost}));
  EXPECT_EQ(EvenCuts(kMost, 2, uint64_t{1} << 63), (Numbers{0, uint64_t{1} << 63, kMost}));
}

RC_GTEST_PROP(EvenCuts, ArePaddedBufferCutEvenly, ()) {
  const auto elements = *rc::gen::inRange<uint64_t>(0, 2000);
  const auto ranks = *rc::gen::inRange<uint32_t>(1, 40);
  const auto alignment = *rc::gen::inRange<uint64_t>(1, 9);
  const auto cuts = EvenCuts(elements, ranks, alignment);
  uint64_t padded = elements;  // by counting up to the next multiple
  while (padded % (ranks * alignment) != 0) ++padded;
  RC_ASSERT(cuts.size() == ranks + 1);
  for (uint32_t r = 0; r <= ranks; ++r) {
    RC_ASSERT(cuts[r] == std::min(elements, padded / ranks * r));
  }
}

// FieldCase_B05: the padding of a buffer of 60 is nobody's.
TEST(MakeZero12, FieldCase_B05_FiftySevenElementsOnTwoRanks) {
  Layout layout = LayoutOf(2, {{7}, {50}});
  layout.partitions = {
      MakeZero12(layout, "opt", All(layout), RankList::World(2), {{.name = "fp32"}}).value()};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  EXPECT_EQ(Shares(layout, "opt"), (Numbers{30, 27}));
  EXPECT_THAT(HeldSlices(layout, "opt", 0).value(), ElementsAre(Slice{0, 0, 7}, Slice{1, 0, 23}));
  EXPECT_THAT(HeldSlices(layout, "opt", 1).value(), ElementsAre(Slice{1, 23, 50}));
}

// FieldCase_B06: the padding spans the last three ranks.
TEST(MakeZero12, FieldCase_B06_PaddingOfSeveralRanks) {
  Layout layout = LayoutOf(768, {{266240}});
  layout.partitions = {
      MakeZero12(layout, "opt", All(layout), RankList::World(768), {{.name = "fp32"}}).value()};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  Numbers shares = Shares(layout, "opt");
  EXPECT_EQ(shares[764], 348u);
  EXPECT_EQ(shares[765], 20u);
  EXPECT_EQ(shares[766], 0u);
  EXPECT_EQ(shares[767], 0u);
  shares.resize(765);
  EXPECT_THAT(shares, Each(348u));
}

// FieldCase_B03: no world size has to divide the elements.
TEST(MakeZero12, FieldCase_B03_OddTotalsAtAnyWorldSize) {
  const auto share = [](uint32_t world) {
    Layout layout = LayoutOf(world, {{1000003}});
    layout.partitions = {
        MakeZero12(layout, "opt", All(layout), RankList::World(world), {{.name = "fp32"}}).value()};
    EXPECT_TRUE(ValidateLayout(layout).ok());
    const Numbers shares = Shares(layout, "opt");
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), uint64_t{0}), 1000003u);
    return std::pair(shares.front(), shares.back());
  };
  EXPECT_EQ(share(16), std::pair(uint64_t{62502}, uint64_t{62473}));
  EXPECT_EQ(share(24), std::pair(uint64_t{41668}, uint64_t{41639}));
  EXPECT_EQ(share(32), std::pair(uint64_t{31252}, uint64_t{31191}));
  EXPECT_EQ(share(7), std::pair(uint64_t{142858}, uint64_t{142855}));
}

TEST(MakeZero12, RefusesWhatItCannotCut) {
  const Layout layout = LayoutOf(2, {{4}, {uint64_t{1} << 63}, {uint64_t{1} << 63}});
  const auto error = [&](std::vector<uint32_t> tensors, const RankList& ranks) {
    return MakeZero12(layout, "opt", std::move(tensors), ranks, {{.name = "fp32"}}).status();
  };
  EXPECT_THAT(error({0}, {}).message(), HasSubstr("partition 'opt': it is for 0 ranks"));
  EXPECT_THAT(error({3}, RankList::World(2)).message(),
              HasSubstr("tensor index 3 is given, but the layout has 3 tensors"));
  EXPECT_THAT(error({1, 2}, RankList::World(2)).message(), HasSubstr("with tensor 't2' of shape"));
  EXPECT_EQ(error({1, 2}, RankList::World(2)).code(), StatusCode::kInvalidArgument);
}

TEST(MakeZero3, CutsEachTensorByElements) {
  Layout layout = LayoutOf(4, {{2, 5}, {3}, {}, {0, 7}, {4}});
  layout.partitions = {MakeZero3("p", All(layout), RankList::World(4), {{.name = "fp32"}})};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  EXPECT_THAT(HeldSlices(layout, "p", 0).value(),
              ElementsAre(Slice{0, 0, 3}, Slice{1, 0, 1}, Slice{2, 0, 1}, Slice{4, 0, 1}));
  EXPECT_THAT(HeldSlices(layout, "p", 2).value(),
              ElementsAre(Slice{0, 6, 9}, Slice{1, 2, 3}, Slice{4, 2, 3}));
  EXPECT_THAT(HeldSlices(layout, "p", 3).value(), ElementsAre(Slice{0, 9, 10}, Slice{4, 3, 4}));
}

// torch.chunk: torch.arange(n).chunk(w) gives pieces of ceil(n / w), fewer of them when they run
// out.
TEST(MakeFsdp2, CutsAsTorchChunkDoes) {
  const auto rows = [](std::vector<uint64_t> shape, uint32_t world) {
    Layout layout = LayoutOf(world, {shape});
    layout.partitions = {MakeFsdp2("p", {0}, RankList::World(world), {{.name = "fp32"}})};
    EXPECT_TRUE(ValidateLayout(layout).ok());
    return Shares(layout, "p");
  };
  EXPECT_EQ(rows({5, 4}, 3), (Numbers{8, 8, 4}));
  EXPECT_EQ(rows({2, 5}, 3), (Numbers{5, 5, 0}));
  EXPECT_EQ(rows({9}, 4), (Numbers{3, 3, 3, 0}));
  EXPECT_EQ(rows({5}, 4), (Numbers{2, 2, 1, 0}));
  EXPECT_EQ(rows({10, 2, 3}, 6), (Numbers{12, 12, 12, 12, 12, 0}));
  EXPECT_EQ(rows({}, 3), (Numbers{1, 0, 0}));
  EXPECT_EQ(rows({0, 4}, 2), (Numbers{0, 0}));
  EXPECT_EQ(rows({4, 0}, 2), (Numbers{0, 0}));
  EXPECT_EQ(rows({1, uint64_t{1} << 60}, 1024)[0], uint64_t{1} << 60);
}

TEST(ZeroRedundancyOwners, SixteenLinearLayersOnThreeRanks) {
  std::vector<std::vector<uint64_t>> shapes;
  for (int layer = 0; layer < 16; ++layer) {
    shapes.push_back({512, 512});
    shapes.push_back({512});
  }
  Layout layout = LayoutOf(3, shapes);
  const auto owners = ZeroRedundancyOwners(layout, {All(layout)}, 3).value();
  layout.partitions = {
      MakeWhole("opt", All(layout), RankList::World(3), {{.name = "exp_avg"}}, owners[0])};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  EXPECT_EQ(Shares(layout, "opt"), (Numbers{1572864, 1314816, 1314816}));
}

TEST(ZeroRedundancyOwners, SumsGoOnFromGroupToGroup) {
  const Layout layout = LayoutOf(2, {{1}, {10}, {4}, {4}, {6}});
  // Group 0: 10 to rank 0, 1 to rank 1. Group 1: 6 to rank 1 (7), 4 to rank 1 (11), 4 to rank 0.
  EXPECT_THAT(ZeroRedundancyOwners(layout, {{0, 1}, {2, 3, 4}}, 2).value(),
              ElementsAre(ElementsAre(1, 0), ElementsAre(1, 0, 1)));
}

TEST(ZeroRedundancyOwners, TiesGoToTheFirstTensorAndTheLowestRank) {
  const Layout layout = LayoutOf(3, {{2}, {2}, {2}, {2}});
  EXPECT_THAT(ZeroRedundancyOwners(layout, {{3, 1, 0, 2}}, 3).value(),
              ElementsAre(ElementsAre(0, 1, 2, 0)));
}

TEST(ZeroRedundancyOwners, RefusesNoRanksAndUnknownTensors) {
  const Layout layout = LayoutOf(1, {{2}});
  EXPECT_THAT(ZeroRedundancyOwners(layout, {{0}}, 0).status().message(), HasSubstr("0 ranks"));
  EXPECT_THAT(ZeroRedundancyOwners(layout, {{}, {7}}, 1).status().message(),
              HasSubstr("parameter group 1: tensor index 7"));
}

// The definition read aloud: sort by falling size, give to the rank with the least so far.
RC_GTEST_PROP(ZeroRedundancyOwners, AgreeWithTheDefinition, ()) {
  const auto ranks = *rc::gen::inRange<uint32_t>(1, 6);
  const auto sizes = *rc::gen::container<std::vector<std::vector<uint64_t>>>(
      rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, 9)));
  Layout layout = LayoutOf(1, {});
  std::vector<std::vector<uint32_t>> groups;
  for (const auto& group : sizes) {
    groups.emplace_back();
    for (const uint64_t size : group) {
      groups.back().push_back(static_cast<uint32_t>(layout.tensors.size()));
      layout.tensors.emplace_back();
      layout.tensors.back().shape = {size};
    }
  }
  std::vector<std::vector<uint32_t>> expected;
  std::vector<uint64_t> loads(ranks, 0);
  for (const auto& group : sizes) {
    expected.emplace_back(group.size());
    for (uint64_t size = 10; size-- > 0;) {
      for (size_t i = 0; i < group.size(); ++i) {
        if (group[i] != size) continue;
        const auto least = std::min_element(loads.begin(), loads.end());
        expected.back()[i] = static_cast<uint32_t>(least - loads.begin());
        *least += size;
      }
    }
  }
  RC_ASSERT(ZeroRedundancyOwners(layout, groups, ranks).value() == expected);
}

std::vector<uint32_t> Storing(const Layout& layout, uint32_t ranks, std::vector<Role> roles) {
  const auto made =
      MakeReplicated(layout, "w", All(layout), RankList::World(ranks), std::move(roles));
  return std::get<ReplicatedCut>(made.value().cut).storing;
}

TEST(MakeReplicated, BelowTwoSharesOneRankStoresAll) {
  constexpr uint64_t kMib = uint64_t{1} << 20;
  // 127 MiB of bytes in all.
  const Layout layout = LayoutOf(8, {{60 * kMib}, {3 * kMib}, {64 * kMib}}, DType::kUint8);
  EXPECT_THAT(Storing(layout, 8, {{.name = "weight", .dtype = DType::kUint8}}),
              ElementsAre(0, 0, 0));
}

TEST(MakeReplicated, FromTwoSharesOnTheLargestGoFirst) {
  constexpr uint64_t kMib = uint64_t{1} << 20;
  // 192 MiB: three ranks. 70 to rank 0, 60 to rank 1, 40 to rank 2, 20 to rank 2 (60), 2 to rank 1.
  const Layout layout =
      LayoutOf(8, {{2 * kMib}, {20 * kMib}, {60 * kMib}, {70 * kMib}, {40 * kMib}}, DType::kUint8);
  EXPECT_THAT(Storing(layout, 8, {{.name = "weight", .dtype = DType::kUint8}}),
              ElementsAre(1, 2, 1, 0, 2));
  // All roles count, plain ones do not: with 384 MiB six ranks store.
  EXPECT_THAT(Storing(layout, 8,
                      {{.name = "weight", .dtype = DType::kUint8},
                       {.name = "mask", .dtype = DType::kBool},
                       {.name = "step", .dtype = DType::kInt64, .form = RoleForm::kPlain}}),
              ElementsAre(4, 3, 1, 0, 2));
  // Not more ranks than there are.
  EXPECT_THAT(Storing(layout, 2, {{.name = "weight", .dtype = DType::kUint8}}),
              ElementsAre(0, 0, 1, 0, 1));
}

TEST(MakeReplicated, OfNothing) {
  const Layout layout = LayoutOf(2, {{0, 3}});
  EXPECT_THAT(Storing(layout, 2, {{.name = "weight"}}), ElementsAre(0));
  EXPECT_TRUE(MakeReplicated(layout, "b", {}, RankList::World(2), {{.name = "weight"}}).ok());
  EXPECT_FALSE(MakeReplicated(layout, "b", {}, {}, {{.name = "weight"}}).ok());
  EXPECT_FALSE(MakeReplicated(layout, "b", {1}, RankList::World(2), {{.name = "weight"}}).ok());
}

}  // namespace
}  // namespace flagstone::partition_tests
