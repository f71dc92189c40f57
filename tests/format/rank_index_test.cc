// SPDX-License-Identifier: Apache-2.0
#include "format/rank_index.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "golden_maker.h"
#include "random_layout.h"

namespace flagstone::test {
namespace {

using testing::HasSubstr;

TEST(RankIndex, RoundTrip) {
  const format::RankIndex index = SmallIndex();
  const auto bytes = format::EncodeRankIndex(index);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_EQ(format::DecodeRankIndex(*bytes).value(), index);
}

TEST(RankIndex, RoundTripOfARankThatStoresNothing) {
  format::RankIndex index;
  index.rank = 4;
  index.world_size = 5;
  index.placement = format::PlaceRankFile(Layout{}, 4, {}).value();
  EXPECT_EQ(index.placement.digests_offset, 4096u);
  EXPECT_EQ(index.placement.index_offset, 4096u);
  EXPECT_EQ(format::DecodeRankIndex(format::EncodeRankIndex(index).value()).value(), index);
}

TEST(RankIndex, RoundTripOfRandomOnes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Layout layout = RandomLayout(random);
    format::RankIndex index;
    index.rank = static_cast<uint32_t>(Below(random, layout.world_size));
    index.world_size = layout.world_size;
    index.rank_state = RandomValue(random);
    std::vector<format::ArraySize> arrays;
    for (Array* array : format::SegmentArrays(index.rank_state)) {
      arrays.push_back({false, format::ArraySizeBytes(*array)});
      array->bytes.clear();
    }
    index.placement = format::PlaceRankFile(layout, index.rank, arrays).value();
    index.plain = PlainValuesOf(layout, index.rank);
    for (uint64_t i = 0; i < index.placement.digest_pages(); ++i)
      index.page_digests.push_back(random());
    const auto bytes = format::EncodeRankIndex(index);
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    const auto decoded = format::DecodeRankIndex(*bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    std::sort(index.plain.begin(), index.plain.end(), [](const auto& a, const auto& b) {
      return std::tie(a.partition, a.role, a.member) < std::tie(b.partition, b.role, b.member);
    });
    ASSERT_EQ(*decoded, index);
    ASSERT_EQ(format::EncodeRankIndex(*decoded).value(), *bytes);
  }
}

TEST(RankIndex, PlainValuesAreSortedWhenWritten) {
  format::RankIndex index = SmallIndex();
  const auto sorted = format::EncodeRankIndex(index).value();
  std::reverse(index.plain.begin(), index.plain.end());
  EXPECT_EQ(format::EncodeRankIndex(index).value(), sorted);
}

TEST(RankIndex, EncodeRefusesWhatDecodeWould) {
  const auto refused = [](auto edit, std::string_view message) {
    format::RankIndex index = SmallIndex();
    edit(index);
    const Status status = format::EncodeRankIndex(index).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(message));
  };
  refused([](format::RankIndex& i) { i.plain.push_back(i.plain[0]); }, "out of order or twice");
  refused([](format::RankIndex& i) { i.plain[0].value = "x"; }, "no null, bool, int or float");
  refused([](format::RankIndex& i) { i.placement.segments[1].offset = 0; }, "it follows at");
  refused([](format::RankIndex& i) { i.page_digests.clear(); }, "0 digests of 1 digest pages");
  refused([](format::RankIndex& i) { i.rank_state = Value(); }, "not that of the rank state");
}

}  // namespace
}  // namespace flagstone::test
