// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace flagstone::base {
namespace {

TEST(Join, TakesTextNumbersAndFlags) {
  const char* const pointer = "c";
  EXPECT_EQ(
      Join("a", std::string("b"), pointer, 'd', 1u, -2, uint64_t{18446744073709551615u}, true, 0.5),
      "abcd1-218446744073709551615true0.5");
  EXPECT_EQ(Join("literal"), "literal");  // not "true"
}

TEST(Utf8, AcceptsWhatRfc3629Does) {
  for (const std::string_view good :
       {"", "abc", "\xC3\xA9", "e\xCC\x81", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF",
        "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  // A lone continuation, overlong forms, surrogates, beyond U+10FFFF, cut sequences, bytes that
  // never occur.
  for (const std::string_view bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xC3", "\xE2\x82", "\xF0\x9F\x98", "\xFE", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(bad)) << Quote(bad);
  }
}

TEST(FieldCase_C20, QuotedNamesCannotDriveATerminal) {
  EXPECT_EQ(Quote("a\x1b]52;c;x\x07\n"), "'a\\x1b]52;c;x\\x07\\x0a'");
  EXPECT_EQ(Quote("\xC2\x9B"
                  "31m"),
            "'\\xc2\\x9b31m'");  // the C1 form of ESC [
  EXPECT_EQ(Quote("it's"), "'it\\'s'");
  EXPECT_EQ(Quote("\xC3\xA9\xFF"), "'\xC3\xA9\\xff'");
  EXPECT_EQ(Quote("\x7F"), "'\\x7f'");
  EXPECT_EQ(Quote(std::string(300, 'x')), "'" + std::string(200, 'x') + "… (300 bytes)'");
}

TEST(NearestNames, OrdersByEditDistance) {
  EXPECT_EQ(NearestNames("exp_avg", {"weight", "exp_avg_sq", "exp_arg"}),
            "; nearest: 'exp_arg', 'exp_avg_sq', 'weight'");
  EXPECT_EQ(NearestNames("a", {}), "");
}

TEST(Hex, GoesBothWays) {
  const std::vector<std::byte> bytes = {std::byte{0}, std::byte{0x1a}, std::byte{0xff}};
  EXPECT_EQ(Hex(bytes), "001aff");
  EXPECT_EQ(FromHex("001aff", 3), bytes);
  EXPECT_EQ(FromHex("001AFF", 3), bytes);
  EXPECT_FALSE(FromHex("001af", 3));
  EXPECT_FALSE(FromHex("001afg", 3));
  EXPECT_FALSE(FromHex("0-1aff", 3));
  EXPECT_FALSE(FromHex("001aff", 2));
}

TEST(Lists, AreShortened) {
  EXPECT_EQ(ShapeText(std::vector<uint64_t>{}), "[]");
  EXPECT_EQ(ShapeText(std::vector<uint64_t>{2, 3}), "[2, 3]");
  EXPECT_EQ(RanksText(std::vector<uint32_t>{0, 5}), "0, 5");
  EXPECT_EQ(RanksText(std::vector<uint32_t>(12, 1)), "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, … (12 in all)");
}

}  // namespace
}  // namespace flagstone::base
