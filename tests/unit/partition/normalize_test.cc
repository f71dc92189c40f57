// SPDX-License-Identifier: Apache-2.0
#include "partition/normalize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "flagstone/zero.h"
#include "model.h"
#include "random_layout.h"

namespace flagstone::partition_tests {
namespace {

using partition::Declaration;
using partition::Normalize;
using partition::Unite;
using testing::HasSubstr;

TEST(Normalize, SortsById) {
  Layout layout;
  for (const std::string& id : {std::string("b"), std::string("\xC3\xA4"), std::string("a"),
                                std::string("B"), std::string("ab")}) {
    layout.partitions.push_back(MakeZero3(id, {}, RankList::World(1), {}));
  }
  std::vector<std::string> ids;
  for (const Partition& partition : Normalize(layout).partitions) ids.push_back(partition.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"B", "a", "ab", "b", "\xC3\xA4"}));
}

TEST(Normalize, FillsInChunkSizes) {
  const auto chunk = [](CutRule cut, uint32_t given) {
    Layout layout;
    layout.partitions.push_back(MakeZero3("p", {}, RankList::World(1), {{.name = "r"}}));
    layout.partitions[0].roles[0].chunk_bytes = given;
    layout.partitions[0].cut = std::move(cut);
    return Normalize(layout).partitions[0].roles[0].chunk_bytes;
  };
  EXPECT_EQ(chunk(PerTensorCut{}, 0), 16384u);
  EXPECT_EQ(chunk(FlatCut{}, 0), 65536u);
  EXPECT_EQ(chunk(MeshCut{}, 0), 65536u);
  EXPECT_EQ(chunk(ExplicitCut{}, 0), 65536u);
  EXPECT_EQ(chunk(WholeCut{}, 0), 1048576u);
  EXPECT_EQ(chunk(ReplicatedCut{}, 0), 1048576u);
  EXPECT_EQ(chunk(WholeCut{}, 4096), 4096u);
}

TEST(Normalize, ShortensRankLists) {
  Layout layout;
  layout.partitions.push_back(MakeZero3("p", {}, {{{0, 1, 7}, {1, 1, 1}, {2, 2, 1}}}, {}));
  layout.partitions[0].replicas = {{{{8, 1, 0}}}, {{{4, 1, 1}, {6, 1, 1}}}};
  const Layout normal = Normalize(layout);
  EXPECT_EQ(normal.partitions[0].ranks.ranges, (std::vector<RankRange>{{0, 4, 1}}));
  EXPECT_EQ(normal.partitions[0].replicas[0].ranges, (std::vector<RankRange>{{8, 1, 1}}));
  EXPECT_EQ(normal.partitions[0].replicas[1].ranges, (std::vector<RankRange>{{4, 2, 2}}));
}

TEST(Normalize, ChangesNothingOfWhatIsHeld) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Draw draw = SeededDraw(seed);
    const Layout layout = RandomLayout(draw, RandomModel(draw, 6, 100), {.most_ranks = 9});
    const Layout normal = Normalize(layout);
    ASSERT_TRUE(ValidateLayout(normal).ok());
    ASSERT_EQ(Normalize(normal), normal);
    for (const Partition& partition : layout.partitions) {
      for (uint32_t rank = 0; rank < layout.world_size; ++rank) {
        ASSERT_EQ(StoredSlices(layout, partition.id, rank).value(),
                  StoredSlices(normal, partition.id, rank).value());
        ASSERT_EQ(HeldSlices(layout, partition.id, rank).value(),
                  HeldSlices(normal, partition.id, rank).value());
      }
    }
  }
}

Tensor Named(std::string name, std::vector<uint64_t> shape = {4}) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  return tensor;
}

// One tensor in one partition of its own.
Layout Single(const std::string& tensor, const std::string& partition) {
  Layout layout;
  layout.world_size = 4;
  layout.tensors = {Named(tensor)};
  layout.partitions = {MakeZero3(partition, {0}, RankList::World(4), {{.name = "fp32"}})};
  return Normalize(layout);
}

TEST(Unite, JoinsWhatRanksDeclareByRisingRank) {
  Layout first = Single("a", "z");
  first.tensors.push_back(Named("c"));
  Layout second = Single("b", "y");
  second.tensors.insert(second.tensors.begin(), Named("c"));
  second.partitions[0].members[0].tensor = 1;
  second.groups.resize(1);
  // Given out of order.
  const std::vector<Declaration> declarations = {{3, &second}, {0, &first}};
  const auto united = Unite(declarations);
  ASSERT_TRUE(united.ok()) << united.status().ToString();
  EXPECT_EQ(united->world_size, 4u);
  ASSERT_EQ(united->tensors.size(), 3u);
  EXPECT_EQ(united->tensors[0].name, "a");
  EXPECT_EQ(united->tensors[1].name, "c");
  EXPECT_EQ(united->tensors[2].name, "b");
  EXPECT_EQ(united->groups.size(), 1u);
  ASSERT_EQ(united->partitions.size(), 2u);
  EXPECT_EQ(united->partitions[0].id, "y");
  EXPECT_EQ(united->partitions[0].members[0].tensor, 2u);
  EXPECT_EQ(united->partitions[1].id, "z");
  EXPECT_EQ(united->partitions[1].members[0].tensor, 0u);
  EXPECT_TRUE(ValidateLayout(*united).ok());
}

TEST(Unite, OfOneIsThatOne) {
  const Layout layout = Single("a", "p");
  const std::vector<Declaration> declarations = {{0, &layout}, {2, &layout}};
  EXPECT_EQ(Unite(declarations).value(), layout);
}

void ExpectRefused(const Layout& first, const Layout& second, const std::string& message) {
  const std::vector<Declaration> declarations = {{1, &first}, {3, &second}};
  const auto united = Unite(declarations);
  EXPECT_EQ(united.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(united.status().message(), HasSubstr(message));
}

TEST(Unite, TensorsThatDiffer) {
  const Layout first = Single("a", "p");
  const auto with = [&](auto change, const std::string& field) {
    Layout second = Single("a", "q");
    second.groups.resize(1);
    change(second.tensors[0]);
    ExpectRefused(first, second, "tensor 'a' is float32 [4] on rank 1 and ");
    ExpectRefused(first, second, " on rank 3; they differ in " + field);
  };
  with([](Tensor& t) { t.dtype = DType::kFloat16; }, "dtype");
  with([](Tensor& t) { t.shape = {2, 2}; }, "shape");
  with([](Tensor& t) { t.kind = TensorKind::kBuffer; }, "kind");
  with([](Tensor& t) { t.group = 0; }, "parameter group");
  with([](Tensor& t) { t.trainable = false; }, "trainable flag");
  with([](Tensor& t) { t.aliases = {"b"}; }, "aliases");
}

TEST(Unite, NamesThatAreTakenByAnother) {
  Layout tied = Single("a", "p");
  tied.tensors[0].aliases = {"head"};
  ExpectRefused(
      tied, Single("head", "q"),
      "duplicate name 'head': rank 1 declares it as name or alias of tensor 'a', rank 3 of "
      "tensor 'head'");
  ExpectRefused(
      Single("head", "q"), tied,
      "duplicate name 'head': rank 1 declares it as name or alias of tensor 'head', rank 3 "
      "of tensor 'a'");
}

TEST(Unite, PartitionsThatDiffer) {
  const Layout first = Single("a", "p");
  const auto with = [&](auto change, const std::string& field) {
    Layout second = first;
    change(second.partitions[0]);
    ExpectRefused(first, second,
                  "partition 'p' differs in its " + field + " between rank 1 and rank 3");
  };
  with([](Partition& p) { p.ranks = RankList::World(2); }, "rank list");
  with([](Partition& p) { p.replicas = {RankList::World(4)}; }, "replica lists");
  with([](Partition& p) { p.members.clear(); }, "members");
  with([](Partition& p) { p.roles[0].dtype = DType::kFloat64; }, "roles");
  with([](Partition& p) { p.cut = PerTensorCut{CutUnit::kRow}; }, "cut rule");
}

TEST(Unite, GroupsAndWorldsThatDiffer) {
  Layout first = Single("a", "p");
  Layout second = first;
  second.world_size = 8;
  ExpectRefused(first, second, "rank 1 declares a world of 4 ranks, rank 3 one of 8");
  second = first;
  first.groups.resize(1);
  second.groups.resize(2);
  second.groups[0].hyper_parameters.Set("lr", 1.0);
  ExpectRefused(first, second,
                "rank 1 and rank 3 declare unlike hyper-parameters for parameter group 0");
}

// FieldCase_B12: each rank numbers its own experts from 0.
TEST(Unite, FieldCase_B12_ExpertsOfTheSameName) {
  ExpectRefused(Single("experts.0.w", "experts.rank1"), Single("experts.0.w", "experts.rank3"),
                "the role 'fp32' of tensor 'experts.0.w' is given by partition 'experts.rank1' of "
                "rank 1 and by partition 'experts.rank3' of rank 3");
}

// Each rank declares only the partitions in which it stands and their tensors; together they say it
// all.
TEST(Unite, OfPartsIsTheWhole) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Draw draw = SeededDraw(seed + 1000);
    const Layout whole = Normalize(RandomLayout(draw, RandomModel(draw, 6, 50), {.most_ranks = 6}));
    std::vector<Layout> parts(whole.world_size);
    std::vector<Declaration> declarations;
    std::set<std::string> told;
    for (uint32_t rank = 0; rank < whole.world_size; ++rank) {
      Layout& part = parts[rank];
      part.world_size = whole.world_size;
      part.groups = whole.groups;
      std::map<uint32_t, uint32_t> index;
      for (const Partition& partition : whole.partitions) {
        if (!partition.ranks.IndexOf(rank)) continue;
        told.insert(partition.id);
        part.partitions.push_back(partition);
        for (Member& member : part.partitions.back().members) {
          const auto next = static_cast<uint32_t>(part.tensors.size());
          const auto [at, fresh] = index.try_emplace(member.tensor, next);
          if (fresh) part.tensors.push_back(whole.tensors[member.tensor]);
          member.tensor = at->second;
        }
      }
      declarations.push_back({rank, &part});
    }
    const auto united = Unite(declarations);
    ASSERT_TRUE(united.ok()) << united.status().ToString();
    ASSERT_TRUE(ValidateLayout(*united).ok());
    ASSERT_EQ(united->partitions.size(), told.size());
    ASSERT_EQ(told.size(), whole.partitions.size());
    for (size_t p = 0; p < whole.partitions.size(); ++p) {
      Partition expected = whole.partitions[p];
      Partition found = united->partitions[p];
      ASSERT_EQ(found.members.size(), expected.members.size());
      for (size_t m = 0; m < found.members.size(); ++m) {
        ASSERT_EQ(united->tensors[found.members[m].tensor],
                  whole.tensors[expected.members[m].tensor]);
      }
      found.members = expected.members;
      ASSERT_EQ(found, expected);
    }
  }
}

}  // namespace
}  // namespace flagstone::partition_tests
