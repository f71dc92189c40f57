// SPDX-License-Identifier: Apache-2.0
#include "store/names.h"

#include "store_test_util.h"

namespace flagstone::store {
namespace {

TEST(NamesTest, EveryNameIsParsedAsWhatItIs) {
  const std::string id = IdOf(0x1a);
  const auto kind_of = [](std::string_view name) { return ParseName(name).kind; };
  EXPECT_EQ(kind_of("manifest.flagstone"), NameKind::kManifest);
  EXPECT_EQ(kind_of("rank-00003.1a2b3c4d.flagstone"), NameKind::kRankFile);
  EXPECT_EQ(ParseName("rank-00003.1a2b3c4d.flagstone").id, "1a2b3c4d");
  EXPECT_EQ(kind_of(TemporaryManifestName(id)), NameKind::kTemporaryManifest);
  EXPECT_EQ(ParseName(TemporaryManifestName(id)).id, id);
  EXPECT_EQ(kind_of(PrivateName("abcd")), NameKind::kPrivate);
  EXPECT_EQ(ParseName(PrivateName("abcd")).id, "abcd");
  EXPECT_EQ(kind_of(OwnerFileName(id)), NameKind::kKey);
  EXPECT_EQ(kind_of(TemporaryLatestName("step-1", "abcd")), NameKind::kTemporaryLatest);
  for (const char* foreign : {"", "latest", "manifest.flagstone.bak", "rank-00003.flagstone",
                              "rank-00003.1a2b3c4.flagstone", "rank-x.1a2b3c4d.flagstone",
                              "rank-00003.1A2B3C4D.flagstone", "a.flagstone-", "model.pt"}) {
    EXPECT_EQ(kind_of(foreign), NameKind::kForeign) << foreign;
  }
}

TEST(NamesTest, TemporaryLatestNamesTellCheckpointsApart) {
  EXPECT_TRUE(TemporaryLatestName("a", "n").starts_with(TemporaryLatestName("a", "")));
  EXPECT_FALSE(TemporaryLatestName("b", "n").starts_with(TemporaryLatestName("a", "")));
  EXPECT_LT(TemporaryLatestName(std::string(255, 'x'), "0123456789abcdef").size(), 255U);
}

TEST(NamesTest, ACheckpointsNameIsOneForeignComponent) {
  for (const char* good : {"step-1", "a b", "latest2", "..."}) EXPECT_TRUE(IsCheckpointName(good));
  for (const char* bad : {"", ".", "..", "latest", "a/b", ".flagstone-x", "manifest.flagstone"})
    EXPECT_FALSE(IsCheckpointName(bad)) << bad;
  EXPECT_FALSE(IsCheckpointName(std::string_view("a\0b", 3)));
}

}  // namespace
}  // namespace flagstone::store
