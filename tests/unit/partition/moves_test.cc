// SPDX-License-Identifier: Apache-2.0
#include "partition/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "flagstone/zero.h"
#include "layout_of.h"
#include "partition/geometry.h"

namespace flagstone::partition {

// For the messages of failed tests.
void PrintTo(const Move& move, std::ostream* out) {
  *out << "segment " << move.wanted << " + " << move.target_offset << " <- rank " << move.saved_rank
       << " partition " << move.saved_partition << " role " << move.saved_role << " + "
       << move.source_offset << ", " << move.length << " bytes";
}

namespace {

using partition_tests::All;
using partition_tests::LayoutOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Layout Zero12(uint32_t world, const std::vector<std::vector<uint64_t>>& shapes) {
  Layout layout = LayoutOf(world, shapes);
  layout.partitions = {
      MakeZero12(layout, "opt", All(layout), RankList::World(world), {{.name = "fp32"}}).value()};
  return layout;
}

Moves Plan(const Layout& saved, const Layout& wanted, uint32_t rank, MoveOptions options = {}) {
  EXPECT_TRUE(ValidateLayout(saved).ok()) << ValidateLayout(saved).ToString();
  EXPECT_TRUE(ValidateLayout(wanted).ok()) << ValidateLayout(wanted).ToString();
  auto moves = PlanMoves(saved, wanted, rank, options);
  EXPECT_TRUE(moves.ok()) << moves.status().ToString();
  return std::move(moves).value();
}

TEST(PlanMoves, ZeroOneFromTwoRanksToThree) {
  // Cuts 0, 30, 57 become 0, 20, 40, 57.
  const Layout saved = Zero12(2, {{7}, {50}});
  const Layout wanted = Zero12(3, {{7}, {50}});
  EXPECT_THAT(Plan(saved, wanted, 0).moves, ElementsAre(Move{0, 0, 0, 0, 0, 0, 80}));
  EXPECT_THAT(Plan(saved, wanted, 1).moves,
              ElementsAre(Move{0, 0, 0, 0, 0, 80, 40}, Move{0, 40, 1, 0, 0, 0, 40}));
  EXPECT_THAT(Plan(saved, wanted, 2).moves, ElementsAre(Move{0, 0, 1, 0, 0, 40, 68}));
}

TEST(PlanMoves, AnEqualPartitionIsOneMove) {
  // The same cut on ranks that have other numbers now, told in another order of tensors.
  Layout saved = LayoutOf(6, {{9}, {2, 3}, {5}});
  saved.partitions = {MakeZero3("a", {0, 1, 2}, RankList::Of({5, 1, 3}), {{.name = "fp32"}})};
  Layout wanted = LayoutOf(3, {{5}, {9}, {2, 3}});
  wanted.tensors[0].name = "t2";
  wanted.tensors[1].name = "t0";
  wanted.tensors[2].name = "t1";
  wanted.partitions = {MakeZero3("b", {1, 2, 0}, RankList::World(3), {{.name = "fp32"}})};
  EXPECT_THAT(Plan(saved, wanted, 1).moves, ElementsAre(Move{0, 0, 1, 0, 0, 0, 28}));
  EXPECT_THAT(Plan(saved, wanted, 2).moves, ElementsAre(Move{0, 0, 3, 0, 0, 0, 24}));
}

TEST(PlanMoves, PaddingBetweenWholeMembersIsCarriedWithThem) {
  // 20 bytes at 0, nothing at 64, 8 bytes at 64, nothing at 128: the segment ends there.
  Layout layout = LayoutOf(2, {{5}, {0}, {2}, {0}});
  layout.partitions = {
      MakeWhole("p", All(layout), RankList::World(2), {{.name = "fp32"}}, {1, 1, 1, 1})};
  const Moves same = Plan(layout, layout, 1);
  EXPECT_EQ(same.segments[0].bytes, 128u);
  EXPECT_THAT(same.moves, ElementsAre(Move{0, 0, 1, 0, 0, 0, 128}));
  // Replicated to both ranks by whoever has them: the same run, as far as there is data.
  Layout wanted = layout;
  wanted.partitions[0].cut = ReplicatedCut{{0, 0, 1, 1}};
  EXPECT_THAT(Plan(layout, wanted, 0, {true, {}}).moves, ElementsAre(Move{0, 0, 1, 0, 0, 0, 72}));
  // A packed segment has no padding to carry.
  wanted.partitions[0].cut = PerTensorCut{};
  wanted.partitions[0].ranks = RankList::World(1);
  EXPECT_THAT(Plan(layout, wanted, 0).moves,
              ElementsAre(Move{0, 0, 1, 0, 0, 0, 20}, Move{0, 20, 1, 0, 0, 64, 8}));
}

// A gap that looks like padding but is another tensor's data on one of the sides.
TEST(PlanMoves, ForeignBytesAreNotCarriedAsPadding) {
  // 20 bytes, 44 bytes, 8 bytes: t2 begins on byte 64 of the flat buffer, as it does behind t0
  // alone.
  Layout flat = LayoutOf(1, {{5}, {11}, {2}});
  flat.partitions = {MakeZero3("p", All(flat), RankList::World(1), {{.name = "fp32"}})};
  Layout whole = flat;
  whole.partitions = {MakeWhole("w", {0, 2}, RankList::World(1), {{.name = "fp32"}}, {0, 0})};
  EXPECT_THAT(Plan(flat, whole, 0).moves,
              ElementsAre(Move{0, 0, 0, 0, 0, 0, 20}, Move{0, 64, 0, 0, 0, 64, 8}));
  // 64 bytes of another member are more than padding.
  Layout saved = LayoutOf(1, {{5}, {11}, {2}});
  saved.partitions = {
      MakeWhole("p", All(saved), RankList::World(1), {{.name = "fp32"}}, {0, 0, 0})};
  Layout wanted = LayoutOf(1, {{5}, {0}, {2}, {11}});
  wanted.tensors[1].name = "t3";
  wanted.tensors[3].name = "t1";
  saved.tensors.push_back(wanted.tensors[1]);
  saved.partitions.push_back(MakeWhole("q", {3}, RankList::World(1), {{.name = "fp32"}}, {0}));
  wanted.partitions = {
      MakeWhole("p", {0, 1, 2, 3}, RankList::World(1), {{.name = "fp32"}}, {0, 0, 0, 0})};
  EXPECT_THAT(Plan(saved, wanted, 0).moves,
              ElementsAre(Move{0, 0, 0, 0, 0, 0, 20}, Move{0, 64, 0, 0, 0, 128, 8},
                          Move{0, 128, 0, 0, 0, 64, 44}));
}

TEST(PlanMoves, ReplicatedMembersComeFromWhoStoresThem) {
  Layout layout = LayoutOf(3, {{5}, {2}, {20}});
  layout.partitions = {
      MakeWhole("w", All(layout), RankList::Of({2, 1}), {{.name = "weight"}}, {0, 0, 0})};
  layout.partitions[0].cut = ReplicatedCut{{1, 0, 1}};
  EXPECT_THAT(Plan(layout, layout, 2).segments, IsEmpty()) << "replicated ones only on request";
  EXPECT_THAT(Plan(layout, layout, 2, {true, {}}).moves,
              ElementsAre(Move{0, 0, 1, 0, 0, 0, 20}, Move{0, 64, 2, 0, 0, 0, 8},
                          Move{0, 128, 1, 0, 0, 64, 80}));
  EXPECT_THAT(Plan(layout, layout, 0, {true, {}}).segments, IsEmpty()) << "not in the list";
  // Stored by one rank: one move, whoever is to store in the wanted layout.
  Layout wanted = layout;
  layout.partitions[0].cut = ReplicatedCut{{1, 1, 1}};
  EXPECT_THAT(Plan(layout, wanted, 2, {true, {}}).moves, ElementsAre(Move{0, 0, 1, 0, 0, 0, 208}));
}

TEST(PlanMoves, ReplicatedSegmentsComeLast) {
  Layout layout = LayoutOf(1, {{5}});
  layout.partitions = {
      MakeReplicated(layout, "a", {0}, RankList::World(1), {{.name = "weight"}}).value(),
      MakeZero3("b", {0}, RankList::World(1), {{.name = "fp32"}})};
  const Moves moves = Plan(layout, layout, 0, {true, {}});
  ASSERT_EQ(moves.segments.size(), 2u);
  EXPECT_EQ(moves.segments[0].partition, 1u);
  EXPECT_EQ(moves.segments[1].partition, 0u);
  EXPECT_THAT(moves.moves, ElementsAre(Move{0, 0, 0, 1, 0, 0, 20}, Move{1, 0, 0, 0, 0, 0, 20}));
}

TEST(PlanMoves, ARankWithoutElementsHasEmptySegments) {
  const Layout layout = Zero12(4, {{2}});
  const Moves moves = Plan(layout, layout, 3);
  ASSERT_EQ(moves.segments.size(), 1u);
  EXPECT_EQ(moves.segments[0].bytes, 0u);
  EXPECT_THAT(moves.moves, IsEmpty());
}

TEST(PlanMoves, ReplicasGetWhatTheirTwinsGet) {
  Layout saved = LayoutOf(4, {{8}});
  saved.partitions = {MakeZero3("p", {0}, RankList::Of({1, 3}), {{.name = "fp32"}})};
  saved.partitions[0].replicas = {RankList::Of({0, 2})};
  for (const uint32_t rank : {2u, 3u}) {
    EXPECT_THAT(Plan(saved, saved, rank).moves, ElementsAre(Move{0, 0, 3, 0, 0, 0, 16}));
  }
}

TEST(PlanMoves, RolesAreChosenByName) {
  Layout layout = LayoutOf(1, {{4}});
  layout.partitions = {
      MakeZero3("p", {0}, RankList::World(1),
                {{.name = "fp32"},
                 {.name = "step", .dtype = DType::kInt64, .form = RoleForm::kPlain},
                 {.name = "exp_avg", .dtype = DType::kFloat16}})};
  const Moves all = Plan(layout, layout, 0);
  EXPECT_THAT(all.moves, ElementsAre(Move{0, 0, 0, 0, 0, 0, 16}, Move{1, 0, 0, 0, 2, 0, 8}));
  EXPECT_THAT(Plan(layout, layout, 0, {false, {"exp_avg"}}).moves,
              ElementsAre(Move{0, 0, 0, 0, 2, 0, 8}));
  EXPECT_THAT(Plan(layout, layout, 0, {false, {"step"}}).segments, IsEmpty());
  const Status typo = PlanMoves(layout, layout, 0, {false, {"exp_av"}}).status();
  EXPECT_EQ(typo.code(), StatusCode::kNotFound);
  EXPECT_THAT(typo.message(), HasSubstr("no partition has the role 'exp_av'; nearest: 'exp_avg'"));
}

TEST(PlanMoves, RolesMayMoveToOtherPartitions) {
  Layout saved = LayoutOf(2, {{4}, {6}});
  saved.partitions = {
      MakeZero3("a", {1}, RankList::World(2), {{.name = "exp_avg"}, {.name = "fp32"}}),
      MakeWhole("b", {0}, RankList::World(2), {{.name = "fp32"}, {.name = "exp_avg"}}, {1})};
  Layout wanted = LayoutOf(1, {{4}, {6}});
  wanted.partitions = {MakeZero3("c", {0, 1}, RankList::World(1), {{.name = "exp_avg"}})};
  EXPECT_THAT(Plan(saved, wanted, 0).moves,
              ElementsAre(Move{0, 0, 1, 1, 1, 0, 16}, Move{0, 16, 0, 0, 0, 0, 12},
                          Move{0, 28, 1, 0, 0, 0, 12}));
}

TEST(PlanMoves, TiedNamesMatch) {
  Layout saved = Zero12(1, {{4}, {6}});
  saved.tensors[1].aliases = {"head"};
  Layout wanted = Zero12(1, {{6}});
  wanted.tensors[0].name = "head";
  EXPECT_THAT(Plan(saved, wanted, 0).moves, ElementsAre(Move{0, 0, 0, 0, 0, 16, 24}));
  // Tied on the wanted side alone.
  wanted.tensors[0].name = "shared";
  wanted.tensors[0].aliases = {"other", "t1"};
  EXPECT_THAT(Plan(saved, wanted, 0).moves, ElementsAre(Move{0, 0, 0, 0, 0, 16, 24}));
}

Status Refused(const Layout& saved, const Layout& wanted, uint32_t rank = 0) {
  EXPECT_TRUE(ValidateLayout(saved).ok() && ValidateLayout(wanted).ok());
  return PlanMoves(saved, wanted, rank, {}).status();
}

TEST(PlanMoves, AMissingTensorIsNamed) {
  const Layout saved = Zero12(1, {{4}});
  Layout wanted = saved;
  wanted.tensors[0].name = "t00";
  const Status status = Refused(saved, wanted);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "the checkpoint has no tensor 't00'; nearest: 't0'");
}

TEST(PlanMoves, AMissingRoleIsNamed) {
  Layout saved = Zero12(1, {{4}});
  saved.partitions[0].roles = {{.name = "fp16"}, {.name = "exp_avg"}};
  const Status status = Refused(saved, Zero12(1, {{4}}));
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(),
            "the checkpoint has no role 'fp32' of tensor 't0'; nearest: 'fp16', 'exp_avg'");
}

// All ranks of a partition fail alike, also one that wants nothing of what is missing.
TEST(PlanMoves, WhatIsMissingIsMissingOnEveryRank) {
  const Layout saved = Zero12(2, {{4}});
  const Layout wanted = Zero12(2, {{4}, {4}});
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_EQ(Refused(saved, wanted, rank).message(),
              "the checkpoint has no tensor 't1'; nearest: 't0'");
  }
}

TEST(PlanMoves, AnotherShapeIsRefused) {
  const Status status = Refused(Zero12(1, {{4, 3}}), Zero12(1, {{3, 4}}));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "tensor 't0' has shape [4, 3] in the checkpoint, but shape [3, 4] is wanted");
}

// FieldCase_C11: no silent cast.
TEST(PlanMoves, FieldCase_C11_AnotherDtypeIsRefused) {
  Layout wanted = Zero12(1, {{4}});
  wanted.partitions[0].roles[0].dtype = DType::kBFloat16;
  const Status status = Refused(Zero12(1, {{4}}), wanted);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the role 'fp32' of tensor 't0' is float32 in the checkpoint, but bfloat16 is wanted");
}

TEST(PlanMoves, AnotherFormIsRefused) {
  Layout saved = LayoutOf(1, {{4}});
  saved.partitions = {MakeWhole("p", {0}, RankList::World(1),
                                {{.name = "fp32", .form = RoleForm::kAttached, .shapes = {{4}}}},
                                {0})};
  const Layout wanted = Zero12(1, {{4}});
  EXPECT_EQ(Refused(saved, wanted).message(),
            "the role 'fp32' of tensor 't0' is attached in the checkpoint, but aligned is wanted");
  Layout other = saved;
  other.partitions[0].roles[0].shapes = {{2, 2}};
  EXPECT_EQ(Refused(saved, other).message(),
            "the role 'fp32' of tensor 't0' is of shape [4] in the checkpoint, but shape [2, 2] is "
            "wanted");
}

TEST(PlanMoves, ARankOutsideOfTheWorldIsRefused) {
  const Layout layout = Zero12(2, {{4}});
  EXPECT_EQ(Refused(layout, layout, 2).message(), "rank 2 is not in the wanted world of 2");
}

// Columns of a matrix that was saved by rows: one move for each rank that has rows, however many.
TEST(PlanMoves, ColumnsOutOfRowsAreStridedRuns) {
  Layout saved = LayoutOf(2, {{100, 40}});
  saved.partitions = {MakeFsdp2("p", {0}, RankList::World(2), {{.name = "fp32"}})};
  Layout wanted = saved;
  wanted.partitions[0].cut = MeshCut{{{2, MeshPlacement::kShard, 1}}};
  const Moves moves = Plan(saved, wanted, 1);
  ASSERT_THAT(moves.moves, ElementsAre(Move{0, 0, 0, 0, 0, 80, 80, 0, 1},
                                       Move{0, 50 * 80, 1, 0, 0, 80, 80, 1, 1}));
  EXPECT_THAT(moves.levels, ElementsAre(RunLevel{50, 160, 80}, RunLevel{50, 160, 80}));
  // And back: each of two halves of the columns has a part of every row.
  const Moves back = Plan(wanted, saved, 0);
  ASSERT_THAT(back.moves, ElementsAre(Move{0, 0, 0, 0, 0, 0, 80, 0, 1},
                                      Move{0, 80, 1, 0, 0, 0, 80, 1, 1}));
  EXPECT_THAT(back.levels, ElementsAre(RunLevel{50, 80, 160}, RunLevel{50, 80, 160}));
}

// Rows of a mesh are ranges, as those of the per-tensor rule are: no levels, and whole where equal.
TEST(PlanMoves, RowsOfAMeshAreRanges) {
  Layout saved = LayoutOf(4, {{12, 5}, {7}});
  saved.partitions = {MakeFsdp2("p", {0, 1}, RankList::World(4), {{.name = "fp32"}})};
  Layout wanted = saved;
  wanted.partitions[0].cut = MeshCut{{{4, MeshPlacement::kShard, 0}}};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const Moves moves = Plan(saved, wanted, rank);
    EXPECT_THAT(moves.moves, ElementsAre(Move{0, 0, rank, 0, 0, 0, moves.segments[0].bytes}));
  }
}

// HSDP: a rank with a replicating coordinate reads what the one at 0 stored.
TEST(PlanMoves, ReplicatingAxesReadWhatTheFirstStores) {
  Layout layout = LayoutOf(4, {{8}});
  layout.partitions = {MakeZero3("p", {0}, RankList::World(4), {{.name = "fp32"}})};
  layout.partitions[0].cut =
      MeshCut{{{2, MeshPlacement::kReplicate}, {2, MeshPlacement::kShard, 0}}};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(Plan(layout, layout, rank).moves, ElementsAre(Move{0, 0, rank % 2, 0, 0, 0, 16}));
  }
}

// Two sharded dimensions that both differ: levels nest.
TEST(PlanMoves, LevelsNest) {
  Layout saved = LayoutOf(1, {{6, 8, 10}});
  saved.partitions = {MakeZero3("p", {0}, RankList::World(1), {{.name = "fp32"}})};
  Layout wanted = LayoutOf(4, {{6, 8, 10}});
  wanted.partitions = {MakeZero3("p", {0}, RankList::World(4), {{.name = "fp32"}})};
  wanted.partitions[0].cut =
      MeshCut{{{2, MeshPlacement::kShard, 1}, {2, MeshPlacement::kShard, 2}}};
  const Moves moves = Plan(saved, wanted, 3);
  ASSERT_THAT(moves.moves, ElementsAre(Move{0, 0, 0, 0, 0, 4 * (4 * 10 + 5), 20, 0, 2}));
  EXPECT_THAT(moves.levels, ElementsAre(RunLevel{6, 320, 80}, RunLevel{4, 40, 20}));
}

TEST(PlanMoves, AnAttachedValueStaysWithItsBox) {
  const auto boxed = [](uint64_t columns) {
    Layout layout = LayoutOf(2, {{4, 6}});
    for (uint32_t rank = 0; rank < 2; ++rank) {
      layout.partitions.push_back(
          MakeWhole(base::Join("p", rank), {0}, RankList::Of({rank}),
                    {{.name = "factor", .form = RoleForm::kAttached, .shapes = {{4}}}}, {0}));
      layout.partitions.back().members[0].box =
          Box{{0, rank == 0 ? 0 : columns}, {4, rank == 0 ? columns : 6 - columns}};
    }
    return layout;
  };
  EXPECT_THAT(Plan(boxed(2), boxed(2), 1).moves, ElementsAre(Move{0, 0, 1, 1, 0, 0, 16}));
  EXPECT_EQ(Refused(boxed(2), boxed(3), 0).message(),
            "the role 'factor' of tensor 't0' is attached to the box at [0, 0] of sizes [4, 2] in "
            "the checkpoint, but a value for the box at [0, 0] of sizes [4, 3] is wanted");
}

// Boxes of a tensor without elements may be anything; nothing is looked up in them.
TEST(PlanMoves, BoxesWithoutElementsAreNotCompared) {
  std::vector<uint64_t> shape(12, 3);
  shape[0] = 0;
  Layout saved = LayoutOf(1, {shape, {5}});
  saved.partitions = {MakeWhole("p", {0, 1}, RankList::World(1), {{.name = "fp32"}}, {0, 0})};
  Layout wanted = saved;
  std::vector<uint64_t> sizes(12, 1);
  sizes[0] = 0;
  saved.partitions[0].members[0].box = Box{std::vector<uint64_t>(12, 0), sizes};
  EXPECT_THAT(Plan(saved, wanted, 0).moves, ElementsAre(Move{0, 0, 0, 0, 0, 0, 20}));
}

TEST(PlanMoves, AnotherBlockIsRefused) {
  Layout saved = Zero12(1, {{64}});
  saved.partitions[0].roles[0].block = 16;
  EXPECT_EQ(Refused(saved, Zero12(1, {{64}})).message(),
            "the role 'fp32' of tensor 't0' is in blocks of 16 in the checkpoint, but blocks of 1 "
            "is wanted");
}

// By arithmetic alone: the moves of one rank fill its segment, whatever the sizes.
TEST(PlanMoves, TensorsOfTwoToTheFortyElements) {
  constexpr uint64_t kElements = (uint64_t{1} << 40) + 3;
  const Layout saved = Zero12(1024, {{kElements}, {5}, {kElements}});
  Layout wanted = LayoutOf(7, {{kElements}, {5}, {kElements}});
  wanted.partitions = {MakeZero3("p", All(wanted), RankList::World(7), {{.name = "fp32"}})};
  uint64_t total = 0;
  for (uint32_t rank = 0; rank < 7; ++rank) {
    const Moves moves = Plan(saved, wanted, rank);
    uint64_t filled = 0;
    for (const Move& move : moves.moves) {
      EXPECT_EQ(move.target_offset, filled);
      filled += move.length;
    }
    EXPECT_EQ(filled, moves.segments[0].bytes);
    EXPECT_LE(moves.moves.size(), 2 * (1024 / 7 + 2) + 1u);
    total += filled;
  }
  EXPECT_EQ(total, (2 * kElements + 5) * 4);
}

// FSDP2 over tensor parallelism stays a closed form: a few runs a tensor, whatever the ranks.
TEST(PlanMoves, OfAFullSizeModelOverTensorParallelismAreFew) {
  std::vector<std::vector<uint64_t>> shapes;
  for (uint64_t t = 0; t < 20000; ++t) shapes.push_back({256 + t % 3000, 64 + t % 7});
  const auto layout = [&](uint32_t data_parallel, uint32_t dimension) {
    Layout result = LayoutOf(data_parallel * 8, shapes);
    const bool rows = dimension == 0;
    result.partitions = {
        MakeZero3("p", All(result), RankList::World(data_parallel * 8), {{.name = "fp32"}})};
    result.partitions[0].cut =
        MeshCut{{{data_parallel, rows ? MeshPlacement::kStridedShard : MeshPlacement::kShard, 0,
                  rows ? 8u : 1u},
                 {8, MeshPlacement::kShard, dimension}}};
    return result;
  };
  for (const uint32_t dimension : {0u, 1u}) {
    const Layout saved = layout(128, dimension);
    EXPECT_EQ(Plan(saved, saved, 511).moves.size(), 1u);
    const Moves moves = Plan(saved, layout(96, dimension), 511);
    EXPECT_LE(moves.moves.size(), 8 * shapes.size());
    // Columns become rows: each meets the columns of all eight.
    const Moves turned = Plan(saved, layout(128, 1 - dimension), 511);
    EXPECT_LE(turned.moves.size(), 3 * 8 * shapes.size());
  }
}

// What a plan costs is counted, not timed: 20 000 parameters, 1024 ranks.
TEST(PlanMoves, OfAFullSizeModelAreFew) {
  std::vector<std::vector<uint64_t>> shapes;
  for (uint64_t t = 0; t < 20000; ++t) shapes.push_back({1 + t % 3000, 1 + t % 7});
  const auto layout = [&](uint32_t world) {
    Layout result = LayoutOf(world, shapes);
    const std::vector<Role> roles = {{.name = "fp32"}, {.name = "exp_avg"}, {.name = "exp_avg_sq"}};
    result.partitions = {MakeZero3("p", All(result), RankList::World(world), roles)};
    return result;
  };
  const Layout saved = layout(1024);
  EXPECT_EQ(Plan(saved, saved, 511).moves.size(), 3u);
  // A wanted slice meets at most three saved ones here.
  EXPECT_LE(Plan(saved, layout(768), 511).moves.size(), 3 * 3 * shapes.size());
}

}  // namespace
}  // namespace flagstone::partition
