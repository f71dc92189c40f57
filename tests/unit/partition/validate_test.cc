// SPDX-License-Identifier: Apache-2.0
// One test per way in which a layout can be wrong, matched on code and text.

#include "partition/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/text.h"
#include "flagstone/partition.h"
#include "flagstone/zero.h"

namespace flagstone::partition_tests {
namespace {

using testing::HasSubstr;

constexpr uint64_t kTwoTo62 = uint64_t{1} << 62;

// Three tensors, one partition of each rule of this version; partition i is of rule i of `Rule`.
enum Rule { kFlat, kPerTensor, kWhole, kReplicated, kExplicit };

Layout Good() {
  Layout layout;
  layout.world_size = 4;
  layout.groups.resize(2);
  layout.groups[1].hyper_parameters.Set("lr", 0.5);
  for (const std::vector<uint64_t>& shape : std::vector<std::vector<uint64_t>>{{10, 10}, {7}, {}}) {
    Tensor tensor;
    tensor.name = base::Join("t", layout.tensors.size());
    tensor.shape = shape;
    layout.tensors.push_back(tensor);
  }
  layout.tensors[0].group = 1;
  layout.tensors[1].aliases = {"tied"};
  const std::vector<Member> members = {{0, {}}, {1, {}}, {2, {}}};
  const RankList world = RankList::World(4);
  layout.partitions = {
      {.id = "flat",
       .ranks = world,
       .replicas = {},
       .members = members,
       .roles = {{.name = "fp32"}},
       .cut = FlatCut{{0, 30, 60, 90, 108}}},
      {.id = "even",
       .ranks = world,
       .replicas = {},
       .members = members,
       .roles = {{.name = "exp_avg"}, {.name = "step", .form = RoleForm::kPlain}},
       .cut = PerTensorCut{}},
      {.id = "whole",
       .ranks = world,
       .replicas = {},
       .members = members,
       .roles = {{.name = "momentum"},
                 {.name = "row", .form = RoleForm::kAttached, .shapes = {{10}, {1}, {}}}},
       .cut = WholeCut{{0, 3, 0}}},
      {.id = "weights",
       .ranks = RankList::Of({0, 2}),
       .replicas = {RankList::Of({1, 3})},
       .members = members,
       .roles = {{.name = "weight"}},
       .cut = ReplicatedCut{{0, 1, 0}}},
      {.id = "stated",
       .ranks = world,
       .replicas = {},
       .members = members,
       .roles =
           {{.name = "exp_avg_sq", .dtype = DType::kBFloat16, .block = 10, .chunk_bytes = 8192}},
       .cut = ExplicitCut{{{2, 0, 50, 100}, {1, 0, 0, 50}, {0, 1, 0, 7}, {3, 2, 0, 1}}}},
  };
  return layout;
}

void Expect(const std::function<void(Layout&)>& spoil, const std::string& message,
            StatusCode code = StatusCode::kInvalidArgument) {
  Layout layout = Good();
  spoil(layout);
  const Status status = ValidateLayout(layout);
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr(message));
}

FlatCut& Flat(Layout& layout) { return std::get<FlatCut>(layout.partitions[kFlat].cut); }
ExplicitCut& Stated(Layout& layout) {
  return std::get<ExplicitCut>(layout.partitions[kExplicit].cut);
}
Role& FirstRole(Layout& layout, Rule rule) { return layout.partitions[rule].roles[0]; }

TEST(ValidateLayout, AcceptsOneOfEachRule) {
  EXPECT_TRUE(ValidateLayout(Good()).ok()) << ValidateLayout(Good()).ToString();
  Layout nothing;
  EXPECT_TRUE(ValidateLayout(nothing).ok());
}

TEST(ValidateLayout, WorldSize) {
  Expect([](Layout& l) { l.world_size = 0; }, "world_size is 0; it must be 1 to 1048576");
  Expect([](Layout& l) { l.world_size = (1u << 20) + 1; }, "world_size is 1048577");
  Expect([](Layout& l) { l.world_size = 3; },
         "partition 'flat' names rank 3 in its rank list, but the world has 3 ranks");
  Layout layout = Good();
  layout.world_size = 1u << 20;
  EXPECT_TRUE(ValidateLayout(layout).ok());
}

TEST(ValidateLayout, TensorNames) {
  Expect([](Layout& l) { l.tensors[2].name = ""; }, "tensor 2 has the name '', which is empty");
  Expect([](Layout& l) { l.tensors[2].name = std::string(4097, 'a'); },
         "which has 4097 bytes, more than 4096");
  Expect([](Layout& l) { l.tensors[2].name = std::string("a\0b", 3); },
         "tensor 2 has the name 'a\\x00b', which contains NUL");
  Expect([](Layout& l) { l.tensors[2].name = "a\xFF"; },
         "tensor 2 has the name 'a\\xff', which is not valid UTF-8");
  Expect([](Layout& l) { l.tensors[1].aliases[0] = ""; },
         "tensor 't1' has the alias '', which is empty");
  Layout layout = Good();
  layout.tensors[0].name = std::string(4096, 'a');
  layout.tensors[1].name = "mit/Schr\xC3\xA4gstrich und Leerzeichen";
  EXPECT_TRUE(ValidateLayout(layout).ok());
}

TEST(ValidateLayout, FieldCase_C16_NulEmptyInvalidAndLongNames) {
  for (const std::string& name : {std::string("a\0b", 3), std::string(), std::string("\xC0\x80"),
                                  std::string(70 << 10, 'n')}) {
    Layout layout = Good();
    layout.tensors[0].name = name;
    EXPECT_EQ(ValidateLayout(layout).code(), StatusCode::kInvalidArgument);
  }
}

TEST(ValidateLayout, FieldCase_G06_DuplicateNames) {
  Expect([](Layout& l) { l.tensors[2].name = "t0"; },
         "duplicate name 't0': tensor 0 ('t0') and tensor 2 ('t0') both have it as name or alias");
  Expect([](Layout& l) { l.tensors[2].name = "tied"; },
         "duplicate name 'tied': tensor 1 ('t1') and tensor 2 ('tied')");
  Expect([](Layout& l) { l.tensors[2].aliases = {"t1"}; }, "duplicate name 't1': tensor 1");
  Expect([](Layout& l) { l.tensors[2].aliases = {"t2"}; }, "duplicate name 't2': tensor 2");
  Expect([](Layout& l) { l.tensors[1].aliases = {"u", "u"}; }, "duplicate name 'u': tensor 1");
}

TEST(ValidateLayout, FieldCase_G01_ShapesThatOverflow) {
  const auto with = [](std::vector<uint64_t> shape) {
    return [shape](Layout& l) { l.tensors[2].shape = shape; };
  };
  constexpr uint64_t kTwoTo32 = uint64_t{1} << 32;
  Expect(with({kTwoTo32, kTwoTo32}),
         "tensor 't2' has shape [4294967296, 4294967296] of float32, which is more than 2^63 - 1");
  Expect(with({uint64_t{1} << 63, 2}), "more than 2^63 - 1 bytes");
  Expect(with({~uint64_t{0}}), "more than 2^63 - 1 bytes");
  Expect(with({uint64_t{1} << 61}), "more than 2^63 - 1 bytes");
  Expect(with(std::vector<uint64_t>(65, 1)), "tensor 't2' has 65 dimensions, more than 64");
  Layout layout = Good();
  layout.partitions.clear();
  layout.tensors[2].shape = {(uint64_t{1} << 61) - 1};
  EXPECT_TRUE(ValidateLayout(layout).ok());
  layout.tensors[2].shape = {~uint64_t{0}, 0, ~uint64_t{0}};
  EXPECT_TRUE(ValidateLayout(layout).ok());
  layout.tensors[2].shape = std::vector<uint64_t>(64, 1);
  EXPECT_TRUE(ValidateLayout(layout).ok());
}

TEST(ValidateLayout, TensorFields) {
  Expect([](Layout& l) { l.tensors[1].dtype = static_cast<DType>(200); },
         "tensor 't1' has dtype value 200, which is no dtype");
  Expect([](Layout& l) { l.tensors[1].kind = static_cast<TensorKind>(2); },
         "tensor 't1' has kind value 2, which is no kind");
  Expect([](Layout& l) { l.tensors[1].group = 2; },
         "tensor 't1' is in parameter group 2, but the layout has 2");
}

TEST(ValidateLayout, HyperParameters) {
  Expect([](Layout& l) { l.groups[1].hyper_parameters = Value(3); },
         "the hyper-parameters of parameter group 1 are neither a dict nor null");
  Expect([](Layout& l) { l.groups[1].hyper_parameters.Set("lr", "\xFF"); },
         "the hyper-parameters of parameter group 1 holds the str");
}

TEST(ValidateLayout, PartitionIds) {
  Expect([](Layout& l) { l.partitions[2].id = ""; }, "partition 2 has the id '', which is empty");
  Expect([](Layout& l) { l.partitions[2].id = std::string(257, 'i'); },
         "which has 257 bytes, more than 256");
  Expect([](Layout& l) { l.partitions[2].id = "a/b"; }, "the id 'a/b', which contains '/'");
  Expect([](Layout& l) { l.partitions[2].id = "\x80"; }, "which is not valid UTF-8");
  Expect([](Layout& l) { l.partitions[2].id = std::string(1, '\0'); }, "which contains NUL");
  Expect([](Layout& l) { l.partitions[2].id = "even"; }, "two partitions have the id 'even'");
}

TEST(ValidateLayout, RankLists) {
  const auto ranks = [](std::vector<RankRange> ranges) {
    return [ranges](Layout& l) { l.partitions[kFlat].ranks.ranges = ranges; };
  };
  Expect(ranks({}), "partition 'flat' has no ranks in its rank list");
  Expect(ranks({{0, 3, 1}, {3, 0, 1}}),
         "partition 'flat' has a range of no ranks in its rank list");
  Expect(ranks({{1, 4, 1}}), "names rank 4 in its rank list, but the world has 4 ranks");
  Expect(ranks({{0, 4, ~0u}}), "names rank 12884901885 in its rank list");
  Expect(ranks({{0, ~0u, ~0u}}), "but the world has 4 ranks");
  Expect(ranks({{0, 4, 0}}), "names rank 0 more than once in its rank list");
  Expect(ranks({{0, ~0u, 0}}), "names rank 0 more than once in its rank list");
  Expect(ranks({{0, 3, 1}, {2, 1, 1}}), "names rank 2 more than once");
  Expect(ranks({{0, 2, 2}, {1, 2, 1}}), "names rank 2 more than once");
  Expect(ranks({{0, 3, 1}, {1, 3, 1}}), "names more ranks in its rank list than the world's 4");
}

TEST(ValidateLayout, ReplicaLists) {
  const auto replicas = [](std::vector<RankList> lists) {
    return [lists](Layout& l) { l.partitions[kReplicated].replicas = lists; };
  };
  Expect(replicas({RankList::Of({1})}),
         "partition 'weights' has a replica list of 1 ranks, but its rank list has 2");
  Expect(replicas({RankList::Of({1, 2})}),
         "names rank 2 more than once in its rank list and replica lists");
  Expect(replicas({RankList::Of({1, 3}), RankList::Of({1, 3})}),
         "names 6 ranks in its rank list and replica lists, but the world has 4");
  Expect(replicas({RankList::Of({1, 4})}), "names rank 4 in its replica list");
  Expect(replicas({RankList()}), "has no ranks in its replica list");
}

// The lists of a partition that equal those before are not checked again, but others are.
TEST(ValidateLayout, RankListsOfLaterPartitions) {
  Expect(
      [](Layout& l) {
        l.partitions[kExplicit].ranks = RankList::Of({0, 1, 2, 4});
      },
      "partition 'stated' names rank 4");
  Expect([](Layout& l) { l.partitions[kPerTensor].replicas = {RankList::World(4)}; },
         "partition 'even' names 8 ranks");
}

TEST(ValidateLayout, Members) {
  Expect([](Layout& l) { l.partitions[kFlat].members[1].tensor = 3; },
         "partition 'flat' has tensor index 3 as member 1, but the layout has 3 tensors");
  Expect([](Layout& l) { l.partitions[kFlat].members[1].tensor = 0; },
         "partition 'flat' has tensor 't0' twice");
}

TEST(ValidateLayout, Roles) {
  Expect([](Layout& l) { FirstRole(l, kFlat).name = ""; },
         "partition 'flat' has the role '', which is empty");
  Expect([](Layout& l) { FirstRole(l, kFlat).name = "a/b"; }, "the role 'a/b', which contains '/'");
  Expect([](Layout& l) { FirstRole(l, kFlat).name = std::string(257, 'r'); }, "more than 256");
  Expect([](Layout& l) { FirstRole(l, kPerTensor).name = "step"; }, "has the role 'step' twice");
  Expect([](Layout& l) { FirstRole(l, kFlat).dtype = static_cast<DType>(46); },
         "has the role 'fp32' with dtype value 46, which is no dtype");
  Expect([](Layout& l) { l.partitions[kPerTensor].roles[1].dtype = static_cast<DType>(255); },
         "has the role 'step' with dtype value 255");
  Expect([](Layout& l) { FirstRole(l, kFlat).form = static_cast<RoleForm>(3); },
         "has the role 'fp32' with form value 3, which is no form");
  Expect([](Layout& l) { FirstRole(l, kFlat).block = 0; }, "'fp32' with blocks of 0 elements");
  Expect(
      [](Layout& l) {
        for (int i = 0; i < 256; ++i) {
          l.partitions[kFlat].roles.push_back({.name = base::Join("role", i)});
        }
      },
      "partition 'flat' has 257 roles, more than 256");
}

TEST(ValidateLayout, ChunkSizes) {
  for (const uint32_t bytes : {1u, 2048u, 4097u, 6144u, (4u << 20) + 4096, 1u << 31}) {
    Expect([&](Layout& l) { FirstRole(l, kFlat).chunk_bytes = bytes; },
           base::Join("has the role 'fp32' with chunks of ", bytes, " bytes"));
  }
  for (const uint32_t bytes : {0u, 4096u, 12288u, 4u << 20}) {
    Layout layout = Good();
    FirstRole(layout, kFlat).chunk_bytes = bytes;
    EXPECT_TRUE(ValidateLayout(layout).ok());
  }
}

TEST(ValidateLayout, AttachedRoles) {
  const auto shapes = [](std::vector<std::vector<uint64_t>> of) {
    return [of](Layout& l) { l.partitions[kWhole].roles[1].shapes = of; };
  };
  Expect(shapes({{10}, {1}}), "attached role 'row' with 2 shapes, but 3 members");
  Expect(shapes({{10}, {1}, {}, {}}), "attached role 'row' with 4 shapes, but 3 members");
  Expect(shapes({{10}, {uint64_t{1} << 33, uint64_t{1} << 33}, {}}),
         "the attached role 'row', whose value of tensor 't1' has shape [8589934592, 8589934592]");
  Expect(shapes({{10}, {1}, std::vector<uint64_t>(65, 1)}), "of tensor 't2' has 65 dimensions");
  Expect(
      [](Layout& l) {
        FirstRole(l, kFlat).form = RoleForm::kAttached;
        FirstRole(l, kFlat).shapes = {{}, {}, {}};
      },
      "partition 'flat' has the attached role 'fp32', but its rule is flat");
  Expect([](Layout& l) { FirstRole(l, kFlat).shapes = {{100}}; },
         "has the role 'fp32' with 1 shapes, but only attached roles have shapes of their own");
}

TEST(ValidateLayout, WeightsAreOfTheTensorsDtype) {
  Expect([](Layout& l) { l.tensors[1].dtype = DType::kBFloat16; },
         "partition 'weights' has the role 'weight' of float32, but tensor 't1' is bfloat16");
}

TEST(ValidateLayout, ARoleOfATensorBelongsToOnePartition) {
  Expect([](Layout& l) { FirstRole(l, kExplicit).name = "fp32"; },
         "the role 'fp32' of tensor 't0' is given by partition 'flat' and by partition 'stated'");
  Expect([](Layout& l) { l.partitions[kExplicit].roles[0].name = "step"; },
         "the role 'step' of tensor 't0' is given by partition 'even' and by partition 'stated'");
  Expect(
      [](Layout& l) {
        l.partitions = {l.partitions[kFlat], l.partitions[kPerTensor]};
        FirstRole(l, kPerTensor).name = "fp32";
      },
      "the role 'fp32' of tensor 't0' is given by partition 'flat' and by partition 'even'");
  // The same role of other tensors is fine.
  Layout layout = Good();
  layout.partitions.resize(1);
  Partition other = layout.partitions[0];
  layout.partitions[0].members = {{0, {}}, {2, {}}};
  std::get<FlatCut>(layout.partitions[0].cut).cuts.back() = 101;
  other.id = "other";
  other.members = {{1, {}}};
  other.cut = PerTensorCut{};
  layout.partitions.push_back(other);
  EXPECT_TRUE(ValidateLayout(layout).ok()) << ValidateLayout(layout).ToString();
}

TEST(ValidateLayout, BytesOfAPartition) {
  // Each tensor alone is small enough.
  const auto large = [](Layout& l) {
    l.tensors[0].shape = {kTwoTo62 / 4};
    l.tensors[1].shape = {kTwoTo62 / 4 - 4};
    l.partitions = {{.id = "even",
                     .ranks = RankList::World(4),
                     .replicas = {},
                     .members = {{0, {}}, {1, {}}},
                     .roles = {{.name = "fp32"}},
                     .cut = PerTensorCut{}}};
  };
  Layout layout = Good();
  large(layout);
  EXPECT_TRUE(ValidateLayout(layout).ok()) << ValidateLayout(layout).ToString();
  Expect([&](Layout& l) { large(l), FirstRole(l, kFlat).dtype = DType::kFloat64; },
         "partition 'even' has more than 2^63 - 1 bytes of the role 'fp32'");
  // 16 bytes are left, less than members that stand alone may need.
  Expect(
      [&](Layout& l) {
        large(l), l.partitions[0].cut = WholeCut{{0, 1}};
      },
      "partition 'even' has more than 2^63 - 1 bytes of the role 'fp32'");
  Expect(
      [&](Layout& l) {
        large(l);
        l.partitions[0].cut = WholeCut{{0, 1}};
        l.tensors[0].shape = l.tensors[1].shape = {1};
        l.partitions[0].roles = {{.name = "row",
                                  .form = RoleForm::kAttached,
                                  .shapes = {{kTwoTo62 / 4}, {kTwoTo62 / 4}}}};
      },
      "partition 'even' has more than 2^63 - 1 bytes of the role 'row'");
  Expect(
      [&](Layout& l) {
        large(l);
        l.tensors[0].dtype = l.tensors[1].dtype = DType::kUint8;
        l.tensors[0].shape = {kTwoTo62};
        l.tensors[1].shape = {kTwoTo62};
        l.partitions[0].roles.clear();
      },
      "partition 'even' has more than 2^63 - 1 elements");
}

TEST(ValidateLayout, FlatCuts) {
  const auto cuts = [](std::vector<uint64_t> of) { return [of](Layout& l) { Flat(l).cuts = of; }; };
  Expect(cuts({}), "partition 'flat' has 0 cuts for 4 ranks");
  Expect(cuts({0, 30, 60, 108}), "partition 'flat' has 4 cuts for 4 ranks");
  Expect(cuts({0, 30, 60, 90, 100, 108}), "partition 'flat' has 6 cuts for 4 ranks");
  Expect(cuts({1, 30, 60, 90, 108}), "has 1 as its first cut instead of 0");
  Expect(cuts({0, 60, 30, 90, 108}), "has cuts that fall: cut 2 is 30 after 60");
  Expect(cuts({0, 30, 29, 90, 108}), "has cuts that fall: cut 2 is 29 after 30");
  Expect(cuts({0, 30, 60, 90, 107}), "has 107 as its last cut, but its members have 108 elements");
  Expect(cuts({0, 30, 60, 90, 109}), "has 109 as its last cut");
}

TEST(ValidateLayout, CutUnits) {
  Expect([](Layout& l) { l.partitions[kPerTensor].cut = PerTensorCut{static_cast<CutUnit>(2)}; },
         "partition 'even' has the cut unit value 2, which is no unit");
}

TEST(ValidateLayout, OwnersAndStoringRanks) {
  Expect(
      [](Layout& l) {
        l.partitions[kWhole].cut = WholeCut{{0, 0}};
      },
      "partition 'whole' has 2 owners for 3 members");
  Expect(
      [](Layout& l) {
        l.partitions[kWhole].cut = WholeCut{{0, 4, 0}};
      },
      "says that tensor 't1' is owned by position 4 of its rank list, which has 4 ranks");
  Expect(
      [](Layout& l) {
        l.partitions[kReplicated].cut = ReplicatedCut{{0, 0, 0, 0}};
      },
      "partition 'weights' has 4 storing ranks for 3 members");
  Expect(
      [](Layout& l) {
        l.partitions[kReplicated].cut = ReplicatedCut{{0, 0, 2}};
      },
      "says that tensor 't2' is stored by position 2 of its rank list, which has 2 ranks");
}

TEST(ValidateLayout, ExplicitPieces) {
  Expect([](Layout& l) { Stated(l).pieces[2].member = 3; },
         "partition 'stated' has piece 2 of member 3, but 3 members");
  Expect([](Layout& l) { Stated(l).pieces[2].rank_index = 4; },
         "gives piece 2 to position 4 of its rank list, which has 4 ranks");
  Expect(
      [](Layout& l) {
        Stated(l).pieces.push_back({0, 1, 3, 3});
      },
      "has piece 4 [3, 3) of tensor 't1', which has 7 elements; a piece lies inside and is not");
  Expect(
      [](Layout& l) {
        Stated(l).pieces[2] = {0, 1, 7, 0};
      },
      "has piece 2 [7, 0) of tensor 't1'");
  Expect([](Layout& l) { Stated(l).pieces.pop_back(); },
         "gives elements [0, 1) of tensor 't2' to no rank");
  Expect([](Layout& l) { Stated(l).pieces[1].begin = 10; },
         "gives elements [0, 10) of tensor 't0' to no rank");
  Expect([](Layout& l) { Stated(l).pieces[1].end = 40; },
         "gives elements [40, 50) of tensor 't0' to no rank");
  Expect([](Layout& l) { Stated(l).pieces[0].end = 90; },
         "gives elements [90, 100) of tensor 't0' to no rank");
  Expect([](Layout& l) { Stated(l).pieces[0].begin = 40; },
         "gives elements [40, 50) of tensor 't0' twice");
  Expect(
      [](Layout& l) {
        Stated(l).pieces.push_back({3, 0, 20, 30});
      },
      "gives elements [20, 30) of tensor 't0' twice");
  // By one element.
  Expect([](Layout& l) { Stated(l).pieces[0].begin = 49; },
         "gives elements [49, 50) of tensor 't0' twice");
  Expect([](Layout& l) { Stated(l).pieces[0].begin = 51; },
         "gives elements [50, 51) of tensor 't0' to no rank");
  Expect([](Layout& l) { Stated(l).pieces.clear(); }, "gives elements [0, 100) of tensor 't0'");
}

// FieldCase_B08: a slice that runs past the tensor.
TEST(ValidateLayout, FieldCase_B08_PiecesOutsideOfTheTensor) {
  Expect(
      [](Layout& l) {
        Stated(l).pieces[0] = {2, 0, 90, 110};
      },
      "has piece 0 [90, 110) of tensor 't0', which has 100 elements");
  Expect(
      [](Layout& l) {
        Stated(l).pieces[0] = {2, 0, 50, ~uint64_t{0}};
      },
      "has piece 0 [50, 18446744073709551615) of tensor 't0'");
}

TEST(ValidateLayout, CutsInsideOfABlock) {
  Expect([](Layout& l) { FirstRole(l, kFlat).block = 20; },
         "partition 'flat' cuts tensor 't0' at element 30, inside of a block of 20 elements of the "
         "role 'fp32'");
  Expect([](Layout& l) { FirstRole(l, kExplicit).block = 20; },
         "partition 'stated' cuts tensor 't0' at element 50, inside of a block of 20 elements");
  Expect([](Layout& l) { FirstRole(l, kPerTensor).block = 50; },
         "partition 'even' cuts tensor 't0' at element 25, inside of a block of 50 elements");
  Layout layout = Good();
  FirstRole(layout, kFlat).block = 10;
  layout.partitions[kPerTensor].cut = PerTensorCut{CutUnit::kRow};
  layout.tensors[1].shape = {4, 30};
  Flat(layout).cuts = {0, 30, 60, 90, 221};
  Stated(layout).pieces[2].end = 120;
  FirstRole(layout, kPerTensor).block = 30;  // the rows of t0 are 10 long: cut at 30
  FirstRole(layout, kWhole).block = 1000;
  EXPECT_TRUE(ValidateLayout(layout).ok()) << ValidateLayout(layout).ToString();
}

// FieldCase_C20: a name cannot drive the terminal that shows the message.
TEST(ValidateLayout, FieldCase_C20_NamesAreEscaped) {
  Expect([](Layout& l) { l.tensors[0].name = l.tensors[1].name = "\x1B]52;c;AA\x07"; },
         "duplicate name '\\x1b]52;c;AA\\x07'");
}

TEST(ValidateLayout, ALongListOfRanksIsNotCountedThrough) {
  // Two interleaved lists of half a million ranks, in many partitions: a few bytes each.
  Layout layout;
  layout.world_size = 1u << 20;
  for (int i = 0; i < 20000; ++i) {
    Partition partition;
    partition.id = base::Join("p", i);
    partition.ranks.ranges = {{0, 1u << 19, 2}};
    partition.replicas = {{{{1, 1u << 19, 2}}}};
    // Unlike those of the neighbours, so that each is checked.
    if (i % 2 == 0) std::swap(partition.ranks, partition.replicas[0]);
    partition.cut = PerTensorCut{};
    layout.partitions.push_back(partition);
  }
  EXPECT_TRUE(ValidateLayout(layout).ok());
  layout.partitions[500].replicas[0].ranges[0].first = 1;  // as its rank list
  EXPECT_FALSE(ValidateLayout(layout).ok());
}

}  // namespace
}  // namespace flagstone::partition_tests
