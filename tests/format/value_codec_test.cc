// SPDX-License-Identifier: Apache-2.0
#include "format/value_codec.h"

#include <gmock/gmock.h>

#include <limits>

#include "format/rank_index.h"
#include "golden_maker.h"
#include "random_layout.h"

namespace flagstone::test {
namespace {

using format::ArrayBytes;
using testing::HasSubstr;

FileBytes Encode(const Value& value, ArrayBytes arrays = ArrayBytes::kSegments) {
  FileBytes bytes;
  const Status status = format::AppendValue(value, arrays, "value", bytes);
  EXPECT_EQ(status.ToString(), "kOk");
  return bytes;
}

Value WithoutSegments(Value value) {
  for (Array* array : format::SegmentArrays(value)) array->bytes.clear();
  return value;
}

TEST(ValueCodec, RoundTripOfRandomValues) {
  size_t large = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Value value = RandomValue(random);
    ASSERT_EQ(ValidateValue(value, "value").ToString(), "kOk");
    ASSERT_EQ(format::DecodeValue(Encode(value, ArrayBytes::kInline), ArrayBytes::kInline, "value")
                  .value(),
              value);
    const auto decoded = format::DecodeValue(Encode(value), ArrayBytes::kSegments, "value");
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    ASSERT_EQ(*decoded, WithoutSegments(value));
    // A decoded state, whose large arrays have no bytes, can be written again.
    ASSERT_EQ(Encode(*decoded), Encode(value));
    large += format::SegmentArrays(value).size();
  }
  EXPECT_GT(large, 20u);
}

TEST(ValueCodec, KeepsEveryBitOfAFloat) {
  for (const double number :
       {-0.0, std::numeric_limits<double>::quiet_NaN(),
        -std::numeric_limits<double>::signaling_NaN(), std::numeric_limits<double>::denorm_min()}) {
    EXPECT_EQ(format::DecodeValue(Encode(number), ArrayBytes::kInline, "value").value(),
              Value(number));
  }
}

TEST(ValueCodec, KeysOfUnlikeKindsAreUnlike) {
  const Value value = Value::Dict{{1, "int"}, {1.0, "float"}, {true, "bool"}, {"1", "str"}};
  EXPECT_EQ(format::DecodeValue(Encode(value), ArrayBytes::kInline, "value").value(), value);
}

TEST(ValueCodec, ArraysOfUpTo4KibHaveTheirBytesWithThem) {
  const Array inside{DType::kUint8, {4096}, Value::Bytes(4096, std::byte{1})};
  const Array outside{DType::kUint8, {4097}, Value::Bytes(4097, std::byte{1})};
  EXPECT_EQ(Encode(inside).size(), 3u + 8 + 4096);
  EXPECT_EQ(Encode(outside).size(), 3u + 8);
  EXPECT_EQ(Encode(outside, ArrayBytes::kInline).size(), 3u + 8 + 4097);
  Value both = Value::List{inside, outside};
  ASSERT_EQ(format::SegmentArrays(both).size(), 1u);
  EXPECT_EQ(format::ArraySizeBytes(*format::SegmentArrays(both)[0]), 4097u);
}

TEST(ValueCodec, SegmentArraysComeInPreorder) {
  const auto array = [](uint64_t size) { return Array{DType::kUint8, {size}, Value::Bytes(size)}; };
  const Value value = Value::Dict{{"b", array(5001)},
                                  {"a", Value::List{array(5002), Value::Dict{{1, array(5003)}}}},
                                  {"c", array(5004)}};
  std::vector<uint64_t> sizes;
  for (const Array* found : format::SegmentArrays(value)) sizes.push_back(found->bytes.size());
  EXPECT_THAT(sizes, testing::ElementsAre(5001, 5002, 5003, 5004));
}

TEST(ValueCodec, DepthOf64IsAllowed) {
  Value deepest;
  for (int i = 1; i < 64; ++i) deepest = Value::List{deepest};
  EXPECT_EQ(format::DecodeValue(Encode(deepest), ArrayBytes::kInline, "value").value(), deepest);
  FileBytes bytes;
  const Status status =
      format::AppendValue(Value::List{deepest}, ArrayBytes::kInline, "state", bytes);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("state is nested deeper than 64 levels"));
}

TEST(ValueCodec, WhatItRefusesToWrite) {
  const std::vector<std::pair<Value, std::string>> cases = {
      {Value("\xFF"), "not UTF-8"},
      {Value(Value::Dict{{Value::List{}, 1}}), "dict key"},
      {Value(Value::Dict{{"a", 1}, {"a", 2}}), "twice"},
      {Value(Array{DType::kInt32, {2}, Value::Bytes(7)}), "do not make as many"},
      {Value(Array{DType::kInt32, {2}, {}}), "do not make as many"},
      {Value(Array{static_cast<DType>(46), {}, Value::Bytes(1)}), "do not make as many"},
      {Value(Value::Bytes((16 << 20) + 1)), "more than 16777216 bytes"},
      {Value(std::string((16 << 20) - 15, 'a')), "more than 16777216 bytes"},
  };
  for (const auto& [value, message] : cases) {
    FileBytes bytes;
    const Status status = format::AppendValue(value, ArrayBytes::kSegments, "state", bytes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

// The same values pass here and in ValidateValue, to the byte.
TEST(ValueCodec, LimitOfPlainDataIsThatOfValidateValue) {
  for (const int over : {0, 1}) {
    const Value value = std::string((16 << 20) - 16 + static_cast<size_t>(over), 'a');
    FileBytes bytes;
    EXPECT_EQ(ValidateValue(value, "value").ok(), over == 0);
    EXPECT_EQ(format::AppendValue(value, ArrayBytes::kSegments, "value", bytes).ok(), over == 0);
    const Value list = Value::List((1 << 20) - 1 + static_cast<size_t>(over));
    bytes.clear();
    EXPECT_EQ(ValidateValue(list, "value").ok(), over == 0);
    EXPECT_EQ(format::AppendValue(list, ArrayBytes::kSegments, "value", bytes).ok(), over == 0);
  }
}

TEST(ValueCodec, TakesOneValueAfterTheOther) {
  FileBytes bytes = Encode(7);
  const FileBytes more = Encode("x");
  bytes.insert(bytes.end(), more.begin(), more.end());
  std::span<const std::byte> rest(bytes);
  EXPECT_EQ(format::TakeValue(rest, ArrayBytes::kInline, "value").value(), Value(7));
  EXPECT_EQ(format::TakeValue(rest, ArrayBytes::kInline, "value").value(), Value("x"));
  EXPECT_TRUE(rest.empty());
}

}  // namespace
}  // namespace flagstone::test
