// SPDX-License-Identifier: Apache-2.0
// Indexes that say what no writer would have them say, with right digests: refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "flagstone/zero.h"
#include "load/open_with.h"
#include "saved_files.h"
#include "support/temporary_directory.h"

namespace flagstone {
namespace {

using ::testing::HasSubstr;

Layout TwoRanks() {
  Layout layout;
  layout.world_size = 2;
  Tensor tensor;
  tensor.name = "t";
  tensor.shape = {5000};
  layout.tensors.push_back(tensor);
  layout.partitions = {
      MakeZero3("p", {0}, RankList::World(2),
                {{"fp32", DType::kFloat32}, {"step", DType::kInt64, RoleForm::kPlain}}),
      MakeReplicated(layout, "w", {0}, RankList::World(2), {{"weight", DType::kFloat32}}).value()};
  return layout;
}

class HostileIndex : public ::testing::Test {
 protected:
  Result<Checkpoint> Saved(std::function<void(format::RankIndex&)> change) {
    const auto saved = testing::MakeCheckpoint(TwoRanks(), {.content = {}, .change_index = std::move(change)});
    testing::WriteFiles(saved, directory_ / "c");
    return Checkpoint::Open(directory_ / "c");
  }
  Status OpenRank(std::function<void(format::RankIndex&)> change) {
    const auto checkpoint = Saved(std::move(change));
    if (!checkpoint.ok()) return checkpoint.status();
    LoadOptions options;
    options.replicated = true;
    return checkpoint->OpenRank(1, options).status();
  }
  void ExpectRefused(const Status& status, std::string_view words) const {
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr((directory_ / "c").string()));
    EXPECT_THAT(status.message(), HasSubstr(std::string(words)));
    const auto report = Verify(directory_ / "c");
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_FALSE(report->ok());
  }

  testing::TemporaryDirectory directory_;
};

TEST_F(HostileIndex, WithoutChangesAllIsWell) {
  EXPECT_EQ(OpenRank({}), Status());
  const auto report = Verify(directory_ / "c");
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(report->ok());
}

TEST_F(HostileIndex, OfAnotherRankOrWorldOrSave) {
  ExpectRefused(OpenRank([](format::RankIndex& index) { index.rank = 0; }), "disagrees");
  ExpectRefused(OpenRank([](format::RankIndex& index) { index.world_size = 3; }), "disagrees");
  ExpectRefused(OpenRank([](format::RankIndex& index) { index.save_id[3] = std::byte{1}; }),
                "disagrees");
}

TEST_F(HostileIndex, SegmentsThatTheManifestDoesNotHave) {
  ExpectRefused(
      OpenRank([](format::RankIndex& index) { index.placement.segments[0].role = "fp23"; }),
      "disagrees");
  ExpectRefused(OpenRank([](format::RankIndex& index) {
                  // 4 bytes shorter, in the same pages: only the manifest can tell.
                  index.placement.segments[0].bytes -= 4;
                }),
                "disagrees");
}

TEST_F(HostileIndex, PlainValuesThatTheManifestDoesNotHave) {
  const auto with = [this](format::PlainValue value) {
    return OpenRank([value](format::RankIndex& index) { index.plain = {value}; });
  };
  EXPECT_EQ(with({"p", "step", 0, Value(5)}), Status());
  for (const format::PlainValue& value :
       {format::PlainValue{"q", "step", 0, Value(5)}, format::PlainValue{"p", "steps", 0, Value(5)},
        format::PlainValue{"p", "fp32", 0, Value(5)},
        format::PlainValue{"p", "step", 1, Value(5)}}) {
    ExpectRefused(with(value), "which the manifest does not have");
  }
}

// design.md, section 4: unlike values met at load are an error naming both ranks.
TEST_F(HostileIndex, PlainValuesInWhichRanksDiffer) {
  const auto checkpoint = Saved([](format::RankIndex& index) {
    index.plain = {{"p", "step", 0, Value(static_cast<int64_t>(index.rank))}};
  });
  ASSERT_TRUE(checkpoint.ok());
  const auto own = checkpoint->OpenRank(1);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->Plain("p", "step", "t").value(), Value(1)) << "the other was not met";
  LoadOptions options;
  options.replicated = true;  // the weights are in rank 0's file
  const auto both = checkpoint->OpenRank(1, options);
  ASSERT_TRUE(both.ok());
  const Status status = both->Plain("p", "step", "t").status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr("ranks 1 and 0 saved unlike values of 'p/step/t'"));
  const auto report = Verify(directory_ / "c");
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].segment, "p/step");
  EXPECT_THAT(report->problems[0].what,
              HasSubstr("ranks 0 and 1 saved unlike values of 'p/step/t'"));
}

// Digests cover padding too, so only who made them could hide something there.
TEST_F(HostileIndex, PaddingThatIsNotZeroIsReportedThoughItsDigestIsRight) {
  testing::SavedOptions options;
  options.content = [](const format::PlacedSegment& segment, uint64_t offset,
                       std::span<std::byte> out) {
    testing::PatternOf(segment, offset, out);
    const uint64_t last = segment.padded_bytes() - 1;
    if (offset <= last && last < offset + out.size()) out[last - offset] = std::byte{1};
  };
  testing::WriteFiles(testing::MakeCheckpoint(TwoRanks(), options), directory_ / "c",
                      options.content);
  const auto report = Verify(directory_ / "c");
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->problems.size(), 3u) << "p/fp32 twice, w/weight once";
  for (const VerifyProblem& problem : report->problems) {
    EXPECT_THAT(problem.what, HasSubstr("padding is not zero"));
    EXPECT_EQ(problem.code, StatusCode::kCorruption);
  }
}

TEST_F(HostileIndex, M76_BytesBetweenMembersThatAreNotZero) {
  Layout layout = TwoRanks();
  layout.tensors.push_back(layout.tensors[0]);
  layout.tensors[1].name = "u";
  layout.tensors[0].shape = {5};
  layout.partitions = {
      MakeWhole("w", {0, 1}, RankList::World(2), {{"weight", DType::kFloat32}}, {0, 0})};
  testing::SavedOptions options;
  options.content = [](const format::PlacedSegment& segment, uint64_t offset,
                       std::span<std::byte> out) {
    testing::PatternOf(segment, offset, out);
    for (uint64_t at = 20; at < 64; ++at) {
      if (offset <= at && at < offset + out.size()) out[at - offset] = std::byte{at == 63};
    }
  };
  testing::WriteFiles(testing::MakeCheckpoint(layout, options), directory_ / "c", options.content);
  const auto report = Verify(directory_ / "c");
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].segment, "w/weight");
  EXPECT_EQ(report->problems[0].offset, 4096u + 20);
  EXPECT_EQ(report->problems[0].length, 44u);
  EXPECT_THAT(report->problems[0].what, HasSubstr("padding is not zero"));
}

TEST_F(HostileIndex, M73_BytesBehindTheLastDigestThatAreNotZero) {
  testing::SavedOptions options;
  options.change_digests = [](std::span<std::byte> pages) { pages.back() = std::byte{1}; };
  testing::WriteFiles(testing::MakeCheckpoint(TwoRanks(), options), directory_ / "c");
  const auto report = Verify(directory_ / "c");
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ASSERT_EQ(report->problems.size(), 2u) << "one a file";
  EXPECT_THAT(report->problems[0].what, HasSubstr("padding of a digest page is not zero"));
}

TEST_F(HostileIndex, ClientStateWhoseArrayIsNotThere) {
  testing::SavedOptions options;
  options.change_manifest = [](format::Manifest& manifest) {
    manifest.client_state = Value(Array{DType::kUint8, {uint64_t{1} << 40}, {}});
  };
  testing::WriteFiles(testing::MakeCheckpoint(TwoRanks(), options), directory_ / "c");
  const auto checkpoint = Checkpoint::Open(directory_ / "c");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  ExpectRefused(checkpoint->client_state().status(), "disagrees with the manifest");
  ExpectRefused(checkpoint->OpenRank(0).status(), "disagrees with the manifest");
  EXPECT_TRUE(checkpoint->OpenRank(1).ok());
}

}  // namespace
}  // namespace flagstone
