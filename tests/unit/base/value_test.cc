// SPDX-License-Identifier: Apache-2.0
#include "flagstone/value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "flagstone/dtype.h"
#include "flagstone/tensor.h"

namespace flagstone {
namespace {

using testing::HasSubstr;

TEST(Value, DictsKeepOrderAndReplace) {
  Value value;
  value.Set("b", 1);
  value.Set("a", "text");
  value.Set("b", 2.5);
  const auto* dict = value.get_if<Value::Dict>();
  ASSERT_NE(dict, nullptr);
  ASSERT_EQ(dict->size(), 2u);
  EXPECT_EQ((*dict)[0].first, Value("b"));
  EXPECT_EQ(*value.Find("b"), Value(2.5));
  EXPECT_EQ(value.Find("c"), nullptr);
  EXPECT_EQ(Value(1).Find("a"), nullptr);
}

TEST(Value, ComparesFloatsByTheirBits) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Value(nan), Value(nan));
  EXPECT_FALSE(Value(0.0) == Value(-0.0));
  EXPECT_FALSE(Value(1) == Value(1.0));
  EXPECT_FALSE(Value(true) == Value(1));
  EXPECT_EQ(Value(Value::List{Value(nan)}), Value(Value::List{Value(nan)}));
}

Value Nested(int depth) {
  Value value(1);
  for (int i = 1; i < depth; ++i) value = Value(Value::List{value});
  return value;
}

TEST(ValidateValue, HoldsTheLimits) {
  EXPECT_TRUE(ValidateValue(Nested(Value::kMaxDepth), "x").ok());
  EXPECT_THAT(ValidateValue(Nested(Value::kMaxDepth + 1), "the state").message(),
              HasSubstr("the state is nested"));

  EXPECT_TRUE(ValidateValue(Value(std::string(16 << 20, 'a').substr(64)), "x").ok());
  EXPECT_THAT(ValidateValue(Value(std::string(16 << 20, 'a')), "x").message(),
              HasSubstr("16777216 bytes"));
  EXPECT_THAT(ValidateValue(Value("\xff"), "x").message(), HasSubstr("UTF-8"));
  // Large arrays are no plain data: they get segments.
  EXPECT_TRUE(
      ValidateValue(Value(Array{DType::kUint8, {32 << 20}, Value::Bytes(32 << 20)}), "x").ok());
}

TEST(ValidateValue, RefusesBadDictsAndArrays) {
  EXPECT_THAT(ValidateValue(Value(Value::Dict{{Value("k"), Value(1)}, {Value("k"), Value(2)}}), "x")
                  .message(),
              HasSubstr("'k' twice"));
  EXPECT_TRUE(
      ValidateValue(
          Value(Value::Dict{{Value(1), Value(1)}, {Value(true), Value(2)}, {Value(1.0), Value(3)}}),
          "x")
          .ok());
  EXPECT_THAT(ValidateValue(Value(Value::Dict{{Value(Value::List{}), Value(1)}}), "x").message(),
              HasSubstr("dict key"));
  EXPECT_THAT(ValidateValue(Value(Array{DType::kFloat32, {2}, Value::Bytes(7)}), "x").message(),
              HasSubstr("7 bytes"));
  EXPECT_FALSE(ValidateValue(Value(Array{DType::kFloat32, {uint64_t{1} << 63, 4}, {}}), "x").ok());
  EXPECT_FALSE(
      ValidateValue(Value(Array{static_cast<DType>(200), {1}, Value::Bytes(1)}), "x").ok());
}

TEST(DType, TableIsConsistent) {
  std::set<std::string_view> names;
  for (const DType dtype : AllDTypes()) {
    EXPECT_GT(SizeOf(dtype), 0u);
    EXPECT_TRUE(names.insert(Name(dtype)).second) << Name(dtype);
    EXPECT_EQ(DTypeFromName(Name(dtype)), dtype);
  }
  EXPECT_EQ(names.size(), 46u);
  EXPECT_EQ(SizeOf(static_cast<DType>(46)), 0u);
  EXPECT_EQ(Name(static_cast<DType>(255)), "unknown");
  EXPECT_FALSE(DTypeFromName("float31"));
}

TEST(ElementCount, IsCheckedAndKnowsEmptyTensors) {
  EXPECT_EQ(ElementCount({}), 1u);
  EXPECT_EQ(ElementCount({0, 3, 5}), 0u);
  EXPECT_EQ(ElementCount({uint64_t{1} << 40, uint64_t{1} << 20}), uint64_t{1} << 60);
  EXPECT_FALSE(ElementCount({uint64_t{1} << 32, uint64_t{1} << 32}));
  EXPECT_EQ(ElementCount({uint64_t{1} << 63, uint64_t{1} << 63, 0}), 0u);
}

}  // namespace
}  // namespace flagstone
