// SPDX-License-Identifier: Apache-2.0
#include "format/placement.h"

#include <gmock/gmock.h>

#include "flagstone/zero.h"
#include "golden_maker.h"
#include "partition/normalize.h"
#include "random_layout.h"

namespace flagstone::test {
namespace {

using testing::HasSubstr;

Layout OneTensor(uint64_t elements, uint32_t world, DType dtype = DType::kFloat32) {
  Layout layout;
  layout.world_size = world;
  Tensor tensor;
  tensor.name = "w";
  tensor.dtype = dtype;
  tensor.shape = {elements};
  layout.tensors = {tensor};
  Role role;
  role.name = "weight";
  role.dtype = dtype;
  layout.partitions = {MakeZero3("p", {0}, RankList::World(world), {role})};
  return partition::Normalize(std::move(layout));
}

TEST(Placement, SegmentsFollowEachOtherOnPages) {
  const Layout layout = OneTensor(100'000, 3);
  const std::vector<format::ArraySize> arrays = {{true, 4097}, {false, 5000}, {false, 70'000}};
  const auto placement = format::PlaceRankFile(layout, 0, arrays).value();
  const std::vector<format::PlacedSegment> expected = {
      {"p", "weight", 4096, 33'334 * 4, 16384, 0},
      {"", "rank_state", 4096 + 135'168, 5000, 65536, 9},
      {"", "rank_state", 4096 + 135'168 + 8192, 70'000, 65536, 10},
      {"", "client_state", 4096 + 135'168 + 8192 + 73'728, 4097, 65536, 12}};
  EXPECT_EQ(placement.segments, expected);
  EXPECT_EQ(placement.digest_count, 13u);
  EXPECT_EQ(placement.digests_offset, 4096u + 135'168 + 8192 + 73'728 + 8192);
  EXPECT_EQ(placement.index_offset, placement.digests_offset + 4096);
  EXPECT_EQ(format::RankFileLength(placement, 1), placement.index_offset + 4096);
  EXPECT_EQ(format::RankFileLength(placement, 4097), placement.index_offset + 8192);
  EXPECT_TRUE(format::CheckPlacement(placement).ok());
}

TEST(Placement, RankWithoutElementsHasNoSegment) {
  const Layout layout = OneTensor(2, 3);
  EXPECT_EQ(format::PlaceRankFile(layout, 1, {})->segments.size(), 1u);
  EXPECT_TRUE(format::PlaceRankFile(layout, 2, {})->segments.empty());
}

TEST(Placement, DigestPagesHold512) {
  // 16 KiB chunks: 512 of them are 8 MiB.
  for (const uint64_t chunks : {511u, 512u, 513u}) {
    const auto placement = format::PlaceRankFile(OneTensor(chunks * 4096, 1), 0, {}).value();
    EXPECT_EQ(placement.digest_count, chunks);
    EXPECT_EQ(placement.digest_pages(), chunks == 513 ? 2u : 1u);
    EXPECT_EQ(placement.index_offset, placement.digests_offset + 4096 * placement.digest_pages());
  }
}

TEST(Placement, LastChunkReachesThePage) {
  const auto placement =
      format::PlaceRankFile(OneTensor(4096 * 4 + 1, 1, DType::kUint8), 0, {}).value();
  EXPECT_EQ(placement.segments[0].bytes, 16385u);
  EXPECT_EQ(placement.segments[0].padded_bytes(), 20480u);
  EXPECT_EQ(placement.segments[0].chunks(), 2u);
}

TEST(Placement, ReplicaStoresNothing) {
  Layout layout = OneTensor(10, 2);
  layout.partitions[0].ranks = RankList::Of({0});
  layout.partitions[0].replicas = {RankList::Of({1})};
  EXPECT_EQ(format::PlaceRankFile(layout, 0, {})->segments.size(), 1u);
  EXPECT_TRUE(format::PlaceRankFile(layout, 1, {})->segments.empty());
}

TEST(Placement, FilesLongerThanOffsetsReachAreRefused) {
  const Layout layout = OneTensor((uint64_t{1} << 63) - 1, 1, DType::kUint8);
  ASSERT_EQ(ValidateLayout(layout).ToString(), "kOk");
  const auto placement = format::PlaceRankFile(layout, 0, {});
  EXPECT_EQ(placement.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(placement.status().message(), HasSubstr("would exceed"));
  const std::vector<format::ArraySize> arrays = {{false, uint64_t{1} << 62},
                                                 {false, uint64_t{1} << 62}};
  EXPECT_FALSE(format::PlaceRankFile(Layout{}, 0, arrays).ok());
  // The digests alone may not fit any more.
  const std::vector<format::ArraySize> almost = {{false, (uint64_t{1} << 63) - 16384}};
  EXPECT_FALSE(format::PlaceRankFile(Layout{}, 0, almost).ok());
}

TEST(Placement, OfRandomLayoutsPassesItsOwnCheck) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const Layout layout = RandomLayout(random);
    for (uint32_t rank = 0; rank < layout.world_size; ++rank) {
      const auto placement = format::PlaceRankFile(layout, rank, {});
      ASSERT_TRUE(placement.ok()) << placement.status().ToString();
      ASSERT_EQ(format::CheckPlacement(*placement).ToString(), "kOk");
    }
  }
}

}  // namespace
}  // namespace flagstone::test
