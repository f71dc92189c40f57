// SPDX-License-Identifier: Apache-2.0
#include "partition/ranks.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "flagstone/partition.h"
#include "model.h"

namespace flagstone::partition_tests {
namespace {

using partition::CommonRank;
using partition::RepeatedRank;

std::vector<uint32_t> ExpandRange(const RankRange& range) { return Expand({{range}}); }

TEST(RankList, World) {
  EXPECT_EQ(Expand(RankList::World(3)), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(RankList::World(1).ranges, (std::vector<RankRange>{{0, 1, 1}}));
  EXPECT_EQ(RankList::World(0).size(), 0u);
}

TEST(RankList, OfTakesTheFewestRanges) {
  EXPECT_EQ(RankList::Of({}).ranges, std::vector<RankRange>{});
  EXPECT_EQ(RankList::Of({5}).ranges, (std::vector<RankRange>{{5, 1, 1}}));
  EXPECT_EQ(RankList::Of({0, 1, 2, 3}).ranges, (std::vector<RankRange>{{0, 4, 1}}));
  EXPECT_EQ(RankList::Of({1, 5, 9, 13, 2}).ranges, (std::vector<RankRange>{{1, 4, 4}, {2, 1, 1}}));
  EXPECT_EQ(RankList::Of({3, 2, 1}).ranges,
            (std::vector<RankRange>{{3, 1, 1}, {2, 1, 1}, {1, 1, 1}}));
  EXPECT_EQ(RankList::Of({7, 7}).ranges, (std::vector<RankRange>{{7, 1, 1}, {7, 1, 1}}));
}

TEST(RankList, PositionsInSeveralRanges) {
  const RankList list{{{8, 2, 4}, {0, 3, 1}, {5, 1, 0}}};
  EXPECT_EQ(Expand(list), (std::vector<uint32_t>{8, 12, 0, 1, 2, 5}));
  EXPECT_EQ(list.size(), 6u);
  EXPECT_EQ(list.at(1), 12u);
  EXPECT_EQ(list.at(5), 5u);
  EXPECT_EQ(list.IndexOf(12), 1u);
  EXPECT_EQ(list.IndexOf(5), 5u);
  EXPECT_EQ(list.IndexOf(10), std::nullopt);
  EXPECT_EQ(list.IndexOf(16), std::nullopt);
  EXPECT_EQ(list.IndexOf(3), std::nullopt);
}

RC_GTEST_PROP(RankList, OfKeepsTheOrder, (std::vector<uint32_t> ranks)) {
  for (uint32_t& rank : ranks) rank %= 1 << 20;
  const RankList list = RankList::Of(ranks);
  RC_ASSERT(Expand(list) == ranks);
  RC_ASSERT(list.size() == ranks.size());
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    RC_ASSERT(list.at(i) == ranks[i]);
    const auto first = std::find(ranks.begin(), ranks.end(), ranks[i]) - ranks.begin();
    RC_ASSERT(list.IndexOf(ranks[i]) == static_cast<uint32_t>(first));
  }
}

// The fewest ranges that make a list, by trying all splits.
size_t FewestRanges(const std::vector<uint32_t>& ranks) {
  std::vector<size_t> fewest(ranks.size() + 1, 0);
  for (size_t end = 1; end <= ranks.size(); ++end) {
    fewest[end] = end;
    for (size_t begin = 0; begin < end; ++begin) {
      bool progression = true;
      for (size_t i = begin + 1; i < end; ++i) {
        progression = progression && ranks[i] > ranks[i - 1] &&
                      ranks[i] - ranks[i - 1] == ranks[begin + 1] - ranks[begin];
      }
      if (progression) fewest[end] = std::min(fewest[end], fewest[begin] + 1);
    }
  }
  return fewest[ranks.size()];
}

RC_GTEST_PROP(RankList, OfIsShortest, ()) {
  const auto ranks = *rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 12));
  RC_ASSERT(RankList::Of(ranks).ranges.size() == FewestRanges(ranks));
}

RankRange SmallRange() {
  const auto count = *rc::gen::inRange<uint32_t>(1, 12);
  const auto stride = *rc::gen::inRange<uint32_t>(count == 1 ? 0 : 1, 14);
  return {*rc::gen::inRange<uint32_t>(0, 60), count, stride};
}

RC_GTEST_PROP(Ranks, CommonRankIsTheLeastOne, ()) {
  const RankRange a = SmallRange();
  const RankRange b = SmallRange();
  std::optional<uint32_t> expected;
  for (const uint32_t rank : ExpandRange(a)) {
    const auto others = ExpandRange(b);
    if (std::find(others.begin(), others.end(), rank) == others.end()) continue;
    expected = std::min(expected.value_or(rank), rank);
  }
  RC_ASSERT(CommonRank(a, b) == expected);
}

TEST(Ranks, CommonRankOfLongStrides) {
  // 999,983 = 3 + 10 * 99,998 and 999,983 = 83 + 90 * 11,110.
  EXPECT_EQ(CommonRank({3, 100000, 10}, {83, 11112, 90}), 83u);
  EXPECT_EQ(CommonRank({0, 1000, 1024}, {1, 1000, 1024}), std::nullopt);
  // 7 i = 11 j + 1 has its least solution at 7 * 8 = 56.
  EXPECT_EQ(CommonRank({0, 100000, 7}, {1, 90000, 11}), 56u);
  EXPECT_EQ(CommonRank({0, 8, 7}, {1, 90000, 11}), std::nullopt);
}

RC_GTEST_PROP(Ranks, RepeatedRankIsFoundIfAny, ()) {
  std::vector<RankRange> ranges;
  const auto count = *rc::gen::inRange<uint32_t>(0, 8);
  for (uint32_t i = 0; i < count; ++i) ranges.push_back(SmallRange());
  std::multiset<uint32_t> all;
  for (const RankRange& range : ranges) {
    for (const uint32_t rank : ExpandRange(range)) all.insert(rank);
  }
  const auto repeated = RepeatedRank(ranges);
  if (repeated) {
    RC_ASSERT(all.count(*repeated) > 1);
  } else {
    RC_ASSERT(std::set<uint32_t>(all.begin(), all.end()).size() == all.size());
  }
}

}  // namespace
}  // namespace flagstone::partition_tests
