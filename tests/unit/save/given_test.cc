// SPDX-License-Identifier: Apache-2.0
#include "save/given.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flagstone/zero.h"
#include "partition/normalize.h"

namespace flagstone::save {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Tensors a (10), b (6) and e (0): flat partition "g" with fp32 and plain step over ranks 0 and 1,
// replicated "w" with weight.
Layout MakeLayout() {
  Layout layout;
  layout.world_size = 3;
  for (const auto& [name, size] :
       std::vector<std::pair<const char*, uint64_t>>{{"a", 10}, {"b", 6}, {"e", 0}}) {
    Tensor tensor;
    tensor.name = name;
    tensor.shape = {size};
    tensor.dtype = DType::kFloat32;
    layout.tensors.push_back(tensor);
  }
  layout.tensors[1].aliases = {"tied"};
  const RankList ranks = RankList::Of({0, 1});
  layout.partitions.push_back(
      MakeZero12(layout, "g", {0, 1, 2}, ranks,
                 {{"fp32", DType::kFloat32}, {"step", DType::kFloat32, RoleForm::kPlain}})
          .value());
  layout.partitions.push_back(
      MakeReplicated(layout, "w", {0, 1, 2}, ranks, {{"weight", DType::kFloat32}}).value());
  return partition::Normalize(std::move(layout));
}

class GivenTest : public ::testing::Test {
 protected:
  SpanSource Bytes(size_t size) { return SpanSource(std::span(memory_).first(size)); }
  format::PlacedSegment Placed(const char* partition, const char* role) {
    format::PlacedSegment segment;
    segment.partition = partition;
    segment.role = role;
    return segment;
  }
  static void Expect(const Status& status, StatusCode code,
                     const ::testing::Matcher<std::string>& what) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), what);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1000);
  const Layout layout_ = MakeLayout();
  // 16 elements padded to 16 and cut in two: rank 0 has a[0, 8), rank 1 a[8, 10) and b.
  Given given_{layout_, 1};
};

TEST_F(GivenTest, WrongNamesAreAnsweredWithTheNearest) {
  SpanSource source = Bytes(32);
  Expect(given_.AddSegment("f", "fp32", source), StatusCode::kNotFound,
         AllOf(HasSubstr("'f'"), HasSubstr("'g'")));
  Expect(given_.AddSegment("g", "fp16", source), StatusCode::kNotFound,
         AllOf(HasSubstr("'fp16'"), HasSubstr("'fp32'")));
  Expect(given_.AddTensor("g", "fp32", "c", source), StatusCode::kNotFound,
         AllOf(HasSubstr("'c'"), HasSubstr("nearest")));
}

TEST_F(GivenTest, WrongSizesAreAnsweredWithBoth) {
  SpanSource source = Bytes(28);
  Expect(
      given_.AddSegment("g", "fp32", source), StatusCode::kInvalidArgument,
      AllOf(HasSubstr("rank 1 gives 28 bytes"), HasSubstr("holds 32 bytes"), HasSubstr("g/fp32")));
  Expect(given_.AddTensor("g", "fp32", "a", source), StatusCode::kInvalidArgument,
         AllOf(HasSubstr("28 bytes"), HasSubstr("holds 8 bytes"), HasSubstr("'a'")));
}

TEST_F(GivenTest, NothingIsGivenTwice) {
  SpanSource whole = Bytes(32);
  SpanSource part = Bytes(8);
  ASSERT_TRUE(given_.AddTensor("g", "fp32", "a", part).ok());
  Expect(given_.AddTensor("g", "fp32", "a", part), StatusCode::kInvalidArgument,
         HasSubstr("given before"));
  Expect(given_.AddSegment("g", "fp32", whole), StatusCode::kInvalidArgument,
         HasSubstr("given before"));
}

TEST_F(GivenTest, PlainAndOtherRolesAreNotMixedUp) {
  SpanSource source = Bytes(4);
  Expect(given_.AddSegment("g", "step", source), StatusCode::kInvalidArgument,
         HasSubstr("AddPlain"));
  Expect(given_.AddPlain("g", "fp32", "a", Value(1)), StatusCode::kInvalidArgument,
         HasSubstr("AddTensor"));
  Expect(given_.AddPlain("g", "step", "a", Value("text")), StatusCode::kInvalidArgument,
         HasSubstr("neither number, bool nor null"));
}

TEST_F(GivenTest, ARankOutsideAPartitionHasNothingToGive) {
  Given outside(layout_, 2);
  SpanSource source = Bytes(0);
  Expect(outside.AddSegment("g", "fp32", source), StatusCode::kInvalidArgument,
         AllOf(HasSubstr("rank 2"), HasSubstr("none of its rank lists")));
  EXPECT_TRUE(outside.PlainValues().value().empty());
}

TEST_F(GivenTest, WhatIsMissingIsNamed) {
  SpanSource part = Bytes(8);
  ASSERT_TRUE(given_.AddTensor("g", "fp32", "a", part).ok());
  Expect(given_.PartsOf(Placed("g", "fp32")).status(), StatusCode::kInvalidArgument,
         AllOf(HasSubstr("rank 1"), HasSubstr("[0, 6)"), HasSubstr("'b'"), HasSubstr("g/fp32")));
  ASSERT_TRUE(given_.AddPlain("g", "step", "a", Value(3)).ok());
  Expect(given_.PlainValues().status(), StatusCode::kInvalidArgument,
         AllOf(HasSubstr("rank 1"), HasSubstr("'b'"), HasSubstr("g/step")));
}

TEST_F(GivenTest, PartsComeFromTensorsAndByAlias) {
  SpanSource a = Bytes(8);
  SpanSource b = Bytes(24);
  SpanSource e = Bytes(0);
  ASSERT_TRUE(given_.AddTensor("g", "fp32", "tied", b).ok());
  ASSERT_TRUE(given_.AddTensor("g", "fp32", "a", a).ok());
  ASSERT_TRUE(given_.AddTensor("g", "fp32", "e", e).ok());
  const auto parts = given_.PartsOf(Placed("g", "fp32"));
  ASSERT_TRUE(parts.ok()) << parts.status().ToString();
  ASSERT_EQ(parts->size(), 2U);
  EXPECT_EQ((*parts)[0].source, &a);
  EXPECT_EQ((*parts)[0].segment_offset, 0U);
  EXPECT_EQ((*parts)[1].source, &b);
  EXPECT_EQ((*parts)[1].segment_offset, 8U);
  EXPECT_EQ((*parts)[1].size, 24U);
}

TEST_F(GivenTest, PartsOfASegmentGivenWholeLieInOneSource) {
  SpanSource whole = Bytes(32);
  ASSERT_TRUE(given_.AddSegment("g", "fp32", whole).ok());
  const auto parts = given_.PartsOf(Placed("g", "fp32"));
  ASSERT_TRUE(parts.ok());
  uint64_t at = 0;
  for (const SegmentPart& part : *parts) {
    EXPECT_EQ(part.source, &whole);
    EXPECT_EQ(part.source_offset, at);
    at += part.size;
  }
  EXPECT_EQ(at, 32U);
}

// Of tensors without elements the list's first rank keeps the plain values.
TEST_F(GivenTest, PlainValuesAreKeptByOwnersAndTheFirstRank) {
  for (const char* tensor : {"a", "b", "e"})
    ASSERT_TRUE(given_.AddPlain("g", "step", tensor, Value(3)).ok());
  EXPECT_EQ(given_.PlainValues()->size(), 2U);
  Given first(layout_, 0);
  for (const char* tensor : {"a", "e"})
    ASSERT_TRUE(first.AddPlain("g", "step", tensor, Value(3)).ok());
  const auto values = first.PlainValues();
  ASSERT_TRUE(values.ok()) << values.status().ToString();
  EXPECT_EQ(values->size(), 2U);
}

// What another rank stores need not be given, but may be.
TEST_F(GivenTest, ReplicatedTensorsOfOthersNeedNotBeGiven) {
  EXPECT_TRUE(given_.PartsOf(Placed("w", "weight")).ok());
  Given storing(layout_, 0);
  Expect(storing.PartsOf(Placed("w", "weight")).status(), StatusCode::kInvalidArgument,
         HasSubstr("w/weight"));
}

}  // namespace
}  // namespace flagstone::save
