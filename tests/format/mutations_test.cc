// SPDX-License-Identifier: Apache-2.0
#include "mutations.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "golden_description.h"
#include "raw_wire.h"
#include "test_files.h"

namespace flagstone::test {
namespace {

using testing::HasSubstr;

TEST(Mutations, EachIsRefusedWithItsCodeAndReason) {
  for (const Mutation& mutation : AllMutations()) {
    SCOPED_TRACE(mutation.FileName());
    const Status status = Decode(mutation.decoder, mutation.bytes);
    EXPECT_EQ(StatusCodeName(status.code()), StatusCodeName(mutation.code)) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(mutation.message));
  }
}

// A row that fails for a reason of its own would prove nothing.
TEST(Mutations, UnmutatedBytesAreAccepted) {
  EXPECT_EQ(Decode(Decoder::kManifest, WrapManifest(RawManifestBody({}))).ToString(), "kOk");
  EXPECT_EQ(Decode(Decoder::kIndex, RawIndexBytes({})).ToString(), "kOk");
  EXPECT_EQ(Decode(Decoder::kLayout, RawLayoutBytes(SmallManifest().layout)).ToString(), "kOk");
  EXPECT_EQ(Decode(Decoder::kLayout, MalformedLayout(Malformed::kNoMembersVector)).ToString(),
            "kOk");
  EXPECT_EQ(Decode(Decoder::kLayout, MalformedLayout(Malformed::kEmptyUnaligned)).ToString(),
            "kOk");
}

TEST(Mutations, CommittedBadFilesAreThese) {
  if (!IsGoldenFlatBuffers()) GTEST_SKIP() << "made with another version of FlatBuffers";
  std::set<std::string> names;
  for (const Mutation& mutation : AllMutations()) {
    EXPECT_TRUE(names.insert(mutation.FileName()).second) << mutation.FileName() << " is twice";
    if (mutation.bytes.size() > kLargestBadFile) {
      names.erase(mutation.FileName());
      continue;
    }
    EXPECT_EQ(ReadTestFile("tests/format/bad/" + mutation.FileName()), mutation.bytes)
        << mutation.FileName() << ": run make_format_golden";
  }
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(TestPath("tests/format/bad"))) {
    found.insert(entry.path().filename().string());
  }
  EXPECT_EQ(found, names);
}

// Rules that no decoder of one buffer can check, and where they are tested instead.
const std::set<std::string>& RulesTestedElsewhere() {
  static const std::set<std::string> rules = {
      "M17",                                            // header_test.cc: it accepts
      "M70", "M71", "M72", "M73", "M74", "M75", "M76",  // bit_flip_test.cc: whole files
      "M77",                                            // tests of load/
      "M78",                                            // header_test.cc
      "M79",                                            // tests of store/ and crash
  };
  return rules;
}

TEST(Mutations, EveryRuleOfTheSpecificationHasARow) {
  const FileBytes bytes = ReadTestFile("spec/format.md");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::set<std::string> stated;
  constexpr std::string_view kMark = "**";  // Around "M12".
  for (size_t at = text.find("**M"); at != std::string::npos; at = text.find("**M", at + 1)) {
    const size_t begin = at + kMark.size();
    stated.insert(text.substr(begin, text.find(kMark, begin) - begin));
  }
  std::set<std::string> tested = RulesTestedElsewhere();
  for (const Mutation& mutation : AllMutations()) tested.insert(mutation.rule);
  EXPECT_EQ(stated, tested);
}

}  // namespace
}  // namespace flagstone::test
