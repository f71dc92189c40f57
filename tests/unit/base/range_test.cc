// SPDX-License-Identifier: Apache-2.0
#include "base/range.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace flagstone::base {
namespace {

constexpr uint64_t kMax = UINT64_MAX;
// The values around which unsigned arithmetic goes wrong.
constexpr std::array<uint64_t, 13> kEdges = {0,
                                             1,
                                             2,
                                             4095,
                                             4096,
                                             4097,
                                             uint64_t{1} << 32,
                                             (uint64_t{1} << 63) - 1,
                                             uint64_t{1} << 63,
                                             kMax - 4096,
                                             kMax - 4095,
                                             kMax - 1,
                                             kMax};

using Wide = unsigned __int128;

TEST(Range, InBoundsAgreesWithWideArithmetic) {
  for (const uint64_t offset : kEdges) {
    for (const uint64_t size : kEdges) {
      for (const uint64_t limit : kEdges) {
        EXPECT_EQ(InBounds(offset, size, limit), Wide{offset} + size <= Wide{limit})
            << offset << " " << size << " " << limit;
      }
    }
  }
}

TEST(Range, CheckedOperationsAgreeWithWideArithmetic) {
  for (const uint64_t a : kEdges) {
    for (const uint64_t b : kEdges) {
      const Wide sum = Wide{a} + b;
      const Wide product = Wide{a} * b;
      EXPECT_EQ(CheckedAdd(a, b).has_value(), sum <= kMax) << a << " " << b;
      if (sum <= kMax) {
        EXPECT_EQ(CheckedAdd(a, b), static_cast<uint64_t>(sum));
      }
      EXPECT_EQ(CheckedMultiply(a, b).has_value(), product <= kMax) << a << " " << b;
      if (product <= kMax) {
        EXPECT_EQ(CheckedMultiply(a, b), static_cast<uint64_t>(product));
      }
      if (b == 0) continue;
      const Wide aligned = (Wide{a} + b - 1) / b * b;
      EXPECT_EQ(CheckedAlignUp(a, b).has_value(), aligned <= kMax) << a << " " << b;
      if (aligned <= kMax) {
        EXPECT_EQ(CheckedAlignUp(a, b), static_cast<uint64_t>(aligned));
      }
      EXPECT_EQ(DivideUp(a, b), static_cast<uint64_t>((Wide{a} + b - 1) / b)) << a << " " << b;
      EXPECT_EQ(AlignDown(a, b), a / b * b) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace flagstone::base
