// SPDX-License-Identifier: Apache-2.0
// Layouts of the same model over other ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>

#include "flagstone/zero.h"
#include "layout_of.h"
#include "partition/moves.h"
#include "random_layout.h"

namespace flagstone::partition_tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<Role> AdamRoles() {
  return {{.name = "weight"},
          {.name = "exp_avg"},
          {.name = "step", .dtype = DType::kInt64, .form = RoleForm::kPlain}};
}

Layout OfRule(uint32_t world, CutRule cut) {
  Layout layout = LayoutOf(world, {{10, 4}, {7}, {3}});
  layout.partitions = {MakeZero3("p", All(layout), RankList::World(world), AdamRoles())};
  layout.partitions[0].cut = std::move(cut);
  return layout;
}

TEST(LayoutForWorld, EachRuleByItself) {
  const auto cut = [](CutRule saved, uint32_t world) {
    return LayoutForWorld(OfRule(4, std::move(saved)), world).value().partitions[0].cut;
  };
  EXPECT_EQ(cut(FlatCut{{0, 14, 28, 42, 50}}, 3), CutRule(FlatCut{{0, 18, 36, 50}}));
  EXPECT_EQ(cut(PerTensorCut{CutUnit::kRow}, 3), CutRule(PerTensorCut{CutUnit::kRow}));
  EXPECT_EQ(cut(WholeCut{{3, 3, 3}}, 2), CutRule(WholeCut{{0, 1, 1}}));
  EXPECT_EQ(cut(ReplicatedCut{{3, 2, 1}}, 2), CutRule(ReplicatedCut{{0, 0, 0}}));
  const MeshAxis inner{2, MeshPlacement::kReplicate};
  EXPECT_EQ(cut(MeshCut{{{2, MeshPlacement::kShard, 0}, inner}}, 6),
            CutRule(MeshCut{{{3, MeshPlacement::kShard, 0}, inner}}));
}

TEST(LayoutForWorld, WhatItCannotTellIsNamed) {
  const auto refusal = [](const Layout& layout, uint32_t world) {
    return LayoutForWorld(layout, world).status().ToString();
  };
  EXPECT_THAT(refusal(OfRule(2, PerTensorCut{}), 0), HasSubstr("a world of 0 ranks is wanted"));
  EXPECT_THAT(refusal(OfRule(1, ExplicitCut{{{0, 0, 0, 40}, {0, 1, 0, 7}, {0, 2, 0, 3}}}), 2),
              AllOf(HasSubstr("partition 'p' (rule explicit)"), HasSubstr("its pieces are stated"),
                    HasSubstr("say a ZeRO stage")));
  const MeshAxis inner{2, MeshPlacement::kReplicate};
  EXPECT_THAT(refusal(OfRule(4, MeshCut{{{2, MeshPlacement::kShard, 0}, inner}}), 3),
              HasSubstr("2 positions beside its first axis, of which 3 ranks are no multiple"));
  Layout part = OfRule(4, PerTensorCut{});
  part.partitions[0].ranks = RankList::World(2);
  EXPECT_THAT(refusal(part, 2), HasSubstr("its rank list is not the whole world of 4"));
  Layout replicas = OfRule(4, PerTensorCut{});
  replicas.partitions[0].ranks = RankList::World(2);
  replicas.partitions[0].replicas = {RankList::Of({2, 3})};
  EXPECT_THAT(refusal(replicas, 2), HasSubstr("partition 'p'"));
}

TEST(LayoutForStage, StagesAsZeroHasThem) {
  Layout layout = OfRule(4, PerTensorCut{});
  layout.tensors[2].kind = TensorKind::kBuffer;
  const auto rules = [&](uint32_t stage) {
    std::map<std::string, std::string> result;
    const Layout staged = LayoutForStage(layout, stage, 3).value();
    EXPECT_TRUE(ValidateLayout(staged).ok()) << ValidateLayout(staged).ToString();
    EXPECT_EQ(staged.world_size, 3u);
    for (const Partition& part : staged.partitions) {
      result[part.id] = std::string(RuleName(part.cut)) + " " + part.roles[0].name;
    }
    return result;
  };
  using Rules = std::map<std::string, std::string>;
  EXPECT_EQ(rules(0), (Rules{{"p", "replicated weight"}, {"p.buffers", "replicated weight"}}));
  EXPECT_EQ(rules(2), (Rules{{"p", "flat exp_avg"},
                             {"p.buffers", "replicated exp_avg"},
                             {"p.weight", "replicated weight"},
                             {"p.weight.buffers", "replicated weight"}}));
  EXPECT_EQ(rules(3), (Rules{{"p", "per_tensor weight"}, {"p.buffers", "replicated weight"}}));
  EXPECT_THAT(LayoutForStage(layout, 4, 3).status().message(), HasSubstr("stages 0 to 3, not 4"));
}

// Whatever was saved, each stage at each size gives every role of every tensor once, and a plan.
TEST(LayoutForStage, OfRandomLayoutsHasAllOfThem) {
  uint64_t layouts = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Draw draw = SeededDraw(seed + 900000);
    auto model = RandomModel(draw, 8, 200);
    // What is attached to a box stays with it, which a stage of whole tensors cannot have.
    for (ModelTensor& tensor : model) tensor.attached_boxes.clear();
    const Layout saved = RandomLayout(draw, model, {.most_ranks = 9});
    const auto roles_of = [](const Layout& layout) {
      std::set<std::pair<std::string, std::string>> all;
      for (const Partition& part : layout.partitions) {
        for (const Member& member : part.members) {
          for (const Role& role : part.roles) {
            all.emplace(layout.tensors[member.tensor].name, role.name);
          }
        }
      }
      return all;
    };
    for (uint32_t stage = 0; stage < 4; ++stage) {
      const auto world = static_cast<uint32_t>(1 + draw(9));
      const auto staged = LayoutForStage(saved, stage, world);
      ASSERT_TRUE(staged.ok()) << staged.status().ToString();
      const Status valid = ValidateLayout(*staged);
      ASSERT_TRUE(valid.ok()) << "seed " << seed << ": " << valid.ToString();
      ASSERT_EQ(roles_of(*staged), roles_of(saved)) << "seed " << seed;
      const auto moves =
          partition::PlanMoves(saved, *staged, static_cast<uint32_t>(draw(world)), {true, {}});
      ASSERT_TRUE(moves.ok()) << moves.status().ToString();
      ++layouts;
    }
  }
  std::printf("%lu layouts\n", layouts);
}

}  // namespace
}  // namespace flagstone::partition_tests
