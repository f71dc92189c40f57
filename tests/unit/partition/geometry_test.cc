// SPDX-License-Identifier: Apache-2.0
#include "partition/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "flagstone/zero.h"
#include "layout_of.h"

namespace flagstone::partition {

// For the messages of failed tests.
void PrintTo(const SegmentPiece& piece, std::ostream* out) {
  *out << piece.slice.member << " [" << piece.slice.begin << ", " << piece.slice.end << ") at "
       << piece.byte_offset << ", " << piece.byte_size << " bytes";
}

namespace {

using partition_tests::LayoutOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Who, from where to where in the member, at which byte.
struct Found {
  uint32_t rank;
  uint64_t begin, end, byte;
  bool operator==(const Found&) const = default;
};

std::vector<Found> Find(const Geometry& geometry, uint32_t member, uint64_t begin, uint64_t end,
                        uint32_t role = 0) {
  std::vector<Found> found;
  for (const StoredPiece& piece : geometry.FindStored(role, member, begin, end)) {
    EXPECT_EQ(piece.slice.member, member);
    found.push_back({piece.rank_index, piece.slice.begin, piece.slice.end, piece.byte_offset});
  }
  return found;
}

TEST(Geometry, FlatSegmentsAreTheFlatBuffer) {
  Layout layout = LayoutOf(4, {{3}, {0}, {2, 2}, {5}});
  layout.partitions = {{.id = "p",
                        .ranks = RankList::World(4),
                        .members = {{0, {}}, {1, {}}, {2, {}}, {3, {}}},
                        .roles = {{.name = "fp32"}, {.name = "half", .dtype = DType::kFloat16}},
                        .cut = FlatCut{{0, 5, 5, 9, 12}}}};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  const Geometry geometry(layout, 0);
  EXPECT_THAT(geometry.HeldSegment(0, 0).pieces,
              ElementsAre(SegmentPiece{{0, 0, 3}, 0, 12}, SegmentPiece{{2, 0, 2}, 12, 8}));
  EXPECT_THAT(geometry.HeldSegment(1, 2).pieces,
              ElementsAre(SegmentPiece{{2, 2, 4}, 0, 4}, SegmentPiece{{3, 0, 2}, 4, 4}));
  EXPECT_THAT(geometry.HeldSegment(0, 1).pieces, IsEmpty());
  EXPECT_EQ(geometry.HeldSegment(0, 0).bytes, 20u);
  EXPECT_EQ(geometry.HeldSegment(0, 1).bytes, 0u);
  EXPECT_THAT(Find(geometry, 2, 1, 4), ElementsAre(Found{0, 1, 2, 16}, Found{2, 2, 4, 0}));
  EXPECT_THAT(Find(geometry, 3, 0, 5), ElementsAre(Found{2, 0, 2, 8}, Found{3, 2, 5, 0}));
  EXPECT_THAT(Find(geometry, 1, 0, 0), IsEmpty());
}

TEST(Geometry, PerTensorSegmentsArePacked) {
  Layout layout = LayoutOf(3, {{5}, {1}, {4, 3}});
  layout.partitions = {MakeFsdp2("p", {0, 1, 2}, RankList::World(3), {{.name = "fp32"}})};
  const Geometry geometry(layout, 0);
  EXPECT_THAT(geometry.StoredSegment(0, 0).pieces,
              ElementsAre(SegmentPiece{{0, 0, 2}, 0, 8}, SegmentPiece{{1, 0, 1}, 8, 4},
                          SegmentPiece{{2, 0, 6}, 12, 24}));
  EXPECT_THAT(geometry.StoredSegment(0, 2).pieces, ElementsAre(SegmentPiece{{0, 4, 5}, 0, 4}));
  EXPECT_THAT(Find(geometry, 2, 5, 8), ElementsAre(Found{0, 5, 6, 32}, Found{1, 6, 8, 8}));
}

TEST(Geometry, WholeMembersBeginOnSixtyFourBytes) {
  Layout layout = LayoutOf(2, {{5}, {33}, {0}, {2}, {7}});
  layout.partitions = {MakeWhole("p", {0, 1, 2, 3, 4}, RankList::World(2),
                                 {{.name = "fp32"}, {.name = "codes", .dtype = DType::kUint8}},
                                 {1, 0, 1, 1, 1})};
  const Geometry geometry(layout, 0);
  EXPECT_THAT(geometry.StoredSegment(0, 1).pieces,
              ElementsAre(SegmentPiece{{0, 0, 5}, 0, 20}, SegmentPiece{{2, 0, 0}, 64, 0},
                          SegmentPiece{{3, 0, 2}, 64, 8}, SegmentPiece{{4, 0, 7}, 128, 28}));
  EXPECT_EQ(geometry.StoredSegment(0, 1).bytes, 156u);
  EXPECT_EQ(geometry.StoredSegment(1, 0).bytes, 33u);
  EXPECT_THAT(Find(geometry, 4, 1, 3), ElementsAre(Found{1, 1, 3, 132}));
  EXPECT_THAT(Find(geometry, 4, 1, 3, 1), ElementsAre(Found{1, 1, 3, 129}));
}

TEST(Geometry, ReplicatedMembersAreHeldByAllAndStoredByOne) {
  Layout layout = LayoutOf(3, {{5}, {2}, {1}});
  layout.partitions = {{.id = "p",
                        .ranks = RankList::Of({2, 0}),
                        .replicas = {},
                        .members = {{0, {}}, {1, {}}, {2, {}}},
                        .roles = {{.name = "weight"}},
                        .cut = ReplicatedCut{{1, 0, 1}}}};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  const Geometry geometry(layout, 0);
  EXPECT_THAT(geometry.HeldSegment(0, 0).pieces,
              ElementsAre(SegmentPiece{{0, 0, 5}, 0, 20}, SegmentPiece{{1, 0, 2}, 64, 8},
                          SegmentPiece{{2, 0, 1}, 128, 4}));
  EXPECT_THAT(geometry.StoredSegment(0, 1).pieces,
              ElementsAre(SegmentPiece{{0, 0, 5}, 0, 20}, SegmentPiece{{2, 0, 1}, 64, 4}));
  EXPECT_THAT(StoredSlices(layout, "p", 2).value(), ElementsAre(Slice{1, 0, 2}));
  EXPECT_THAT(StoredSlices(layout, "p", 1).value(), IsEmpty());
  EXPECT_THAT(HeldSlices(layout, "p", 1).value(), IsEmpty());
  EXPECT_THAT(Find(geometry, 2, 0, 1), ElementsAre(Found{1, 0, 1, 64}));
}

TEST(Geometry, AttachedValuesHaveTheirOwnShapes) {
  Layout layout = LayoutOf(2, {{4, 6}, {8}});
  Role rows{
      .name = "row", .dtype = DType::kFloat64, .form = RoleForm::kAttached, .shapes = {{4}, {}}};
  layout.partitions = {
      MakeWhole("p", {0, 1}, RankList::World(2), {{.name = "fp32"}, rows}, {1, 1})};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  const Geometry geometry(layout, 0);
  EXPECT_EQ(geometry.role_elements(1, 0), 4u);
  EXPECT_EQ(geometry.role_elements(0, 0), 24u);
  EXPECT_EQ(geometry.member_elements(0), 24u);
  EXPECT_THAT(geometry.StoredSegment(1, 1).pieces,
              ElementsAre(SegmentPiece{{0, 0, 4}, 0, 32}, SegmentPiece{{1, 0, 1}, 64, 8}));
  EXPECT_THAT(Find(geometry, 1, 0, 1, 1), ElementsAre(Found{1, 0, 1, 64}));
}

TEST(Geometry, ExplicitPiecesKeepTheirOrder) {
  Layout layout = LayoutOf(2, {{10}, {4}});
  layout.partitions = {
      {.id = "p",
       .ranks = RankList::World(2),
       .replicas = {},
       .members = {{0, {}}, {1, {}}},
       .roles = {{.name = "fp32"}},
       .cut = ExplicitCut{{{1, 0, 6, 10}, {0, 1, 0, 4}, {1, 0, 0, 2}, {0, 0, 2, 6}}}}};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  EXPECT_THAT(HeldSlices(layout, "p", 1).value(), ElementsAre(Slice{0, 6, 10}, Slice{0, 0, 2}));
  const Geometry geometry(layout, 0);
  EXPECT_THAT(Find(geometry, 0, 1, 8),
              ElementsAre(Found{1, 1, 2, 20}, Found{0, 2, 6, 16}, Found{1, 6, 8, 0}));
}

TEST(Geometry, ReplicasHoldAndDoNotStore) {
  Layout layout = LayoutOf(4, {{5}});
  layout.partitions = {MakeZero3("p", {0}, RankList::Of({0, 2}), {{.name = "fp32"}})};
  layout.partitions[0].replicas = {RankList::Of({1, 3})};
  ASSERT_TRUE(ValidateLayout(layout).ok());
  EXPECT_THAT(HeldSlices(layout, "p", 3).value(), ElementsAre(Slice{0, 3, 5}));
  EXPECT_THAT(StoredSlices(layout, "p", 3).value(), IsEmpty());
  EXPECT_THAT(StoredSlices(layout, "p", 2).value(), ElementsAre(Slice{0, 3, 5}));
}

// By arithmetic alone: nothing of this could be counted through.
TEST(Geometry, TensorsOfTwoToTheFortyElements) {
  constexpr uint64_t kElements = (uint64_t{1} << 40) + 1;
  for (const uint32_t world : {1u, 7u, 1024u, 5000u}) {
    Layout layout = LayoutOf(world, {{kElements}, {kElements}});
    layout.partitions = {
        MakeZero12(layout, "flat", {0, 1}, RankList::World(world), {{.name = "a"}}).value(),
        MakeZero3("even", {0, 1}, RankList::World(world), {{.name = "b"}})};
    ASSERT_TRUE(ValidateLayout(layout).ok());
    for (uint32_t p = 0; p < 2; ++p) {
      const Geometry geometry(layout, p);
      uint64_t bytes = 0;
      for (uint32_t rank = 0; rank < world; ++rank) bytes += geometry.StoredSegment(0, rank).bytes;
      EXPECT_EQ(bytes, 2 * kElements * 4);
      const auto pieces = geometry.FindStored(0, 1, 0, kElements);
      EXPECT_EQ(pieces.back().slice.end, kElements);
      EXPECT_LE(pieces.size(), world);
    }
  }
}

TEST(Geometry, IsThreadSafe) {
  std::vector<std::vector<uint64_t>> shapes(200, {97});
  Layout layout = LayoutOf(16, shapes);
  std::vector<uint32_t> all, owners;
  for (uint32_t t = 0; t < 200; ++t) {
    all.push_back(t);
    owners.push_back(t % 16);
  }
  layout.partitions = {MakeZero3("even", all, RankList::World(16), {{.name = "a"}}),
                       MakeWhole("whole", all, RankList::World(16), {{.name = "b"}}, owners)};
  for (uint32_t p = 0; p < 2; ++p) {
    const Geometry geometry(layout, p);
    const Geometry copy = geometry;
    std::vector<std::thread> threads;
    std::vector<uint64_t> sums(4);
    for (size_t i = 0; i < sums.size(); ++i) {
      threads.emplace_back([&, i] {
        for (uint32_t m = 0; m < 200; ++m) {
          for (const auto& piece : (i % 2 ? geometry : copy).FindStored(0, m, 0, 97)) {
            sums[i] += piece.byte_offset;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(sums, testing::Each(sums[0]));
    EXPECT_GT(sums[0], 0u);
  }
}

TEST(HeldSlices, NamesWhatIsNotThere) {
  Layout layout = LayoutOf(2, {{5}});
  layout.partitions = {MakeZero3("optimizer", {0}, RankList::World(2), {{.name = "fp32"}})};
  const Status missing = HeldSlices(layout, "optimiser", 0).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "there is no partition 'optimiser'; nearest: 'optimizer'");
  const Status outside = StoredSlices(layout, "optimizer", 2).status();
  EXPECT_EQ(outside.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outside.message(), "rank 2 is not in the layout's world of 2");
}

TEST(HeldSlices, ChecksThePartitionFirst) {
  Layout layout = LayoutOf(2, {{5}});
  layout.partitions = {MakeZero3("p", {0}, RankList::World(2), {{.name = "fp32"}})};
  layout.partitions[0].cut = FlatCut{{0, 5}};
  EXPECT_THAT(HeldSlices(layout, "p", 1).status().message(), HasSubstr("2 cuts for 2 ranks"));
  layout.partitions[0].members[0].tensor = 4;
  EXPECT_THAT(StoredSlices(layout, "p", 1).status().message(), HasSubstr("tensor index 4"));
}

TEST(RuleName, OfEachRule) {
  EXPECT_EQ(RuleName(FlatCut{}), "flat");
  EXPECT_EQ(RuleName(PerTensorCut{}), "per_tensor");
  EXPECT_EQ(RuleName(MeshCut{}), "mesh");
  EXPECT_EQ(RuleName(WholeCut{}), "whole");
  EXPECT_EQ(RuleName(ReplicatedCut{}), "replicated");
  EXPECT_EQ(RuleName(ExplicitCut{}), "explicit");
}

}  // namespace
}  // namespace flagstone::partition
