// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace flagstone::base {
namespace {

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 + (i >> 8) * 7);
  return bytes;
}

// The digests of nothing are published with XXH3; they pin algorithm, seed and byte order.
TEST(Digest, OfNothingIsXxh3s) {
  EXPECT_EQ(Digest64({}), 0x2d06800538d394c2u);
  EXPECT_EQ(Hex(DigestOf({})), "99aa06d3014798d86001c324468d497f");
}

TEST(Digest, StreamsAgreeWithOneShotHoweverTheBytesAreCut) {
  for (const size_t size : {0, 1, 16, 240, 241, 1024, 65536, 100001}) {
    const auto bytes = Pattern(size);
    for (const size_t step : {1, 7, 256, 4096, 1 << 20}) {
      if (size / step > 2000) continue;
      Digest64Stream stream64;
      Digest128Stream stream128;
      for (size_t at = 0; at < size; at += step) {
        const auto piece = std::span(bytes).subspan(at, std::min(step, size - at));
        stream64.Update(piece);
        stream128.Update(piece);
      }
      EXPECT_EQ(stream64.Finish(), Digest64(bytes)) << size << " by " << step;
      EXPECT_EQ(stream128.Finish(), DigestOf(bytes)) << size << " by " << step;
      stream64.Reset();
      EXPECT_EQ(stream64.Finish(), Digest64({}));
    }
  }
}

}  // namespace
}  // namespace flagstone::base
