// SPDX-License-Identifier: Apache-2.0
// Several jobs at once on one name, and readers beside them.

#include <signal.h>

#include <algorithm>
#include <set>

#include "commit_support.h"

namespace flagstone::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kRounds = 30;

// Two jobs of two ranks each, started at once. Losers get kAlreadyExists; the seeds of the winners.
std::set<uint64_t> Race(const path& checkpoint, bool overwrite, int round) {
  std::vector<std::vector<RankProcess>> jobs;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
    jobs.push_back(
        StartAll({.checkpoint = checkpoint,
                  .world = 2,
                  .elements = 20'000,
                  .seed = seed,
                  .options = OptionsOf(Numbered("job", seed) + Numbered("-", round), overwrite)}));
  }
  std::set<uint64_t> winners;
  for (size_t job = 0; job < jobs.size(); ++job) {
    const auto results = WaitAll(jobs[job]);
    EXPECT_EQ(results[0].ok(), results[1].ok()) << results[0] << " / " << results[1];
    for (const RankResult& result : results) {
      EXPECT_THAT(result.code, ::testing::AnyOf(StatusCode::kOk, StatusCode::kAlreadyExists))
          << result;
    }
    if (results[0].ok()) winners.insert(job + 1);
  }
  return winners;
}

// D18
TEST(CommitRivalsTest, OfTwoJobsOnOneNewNameOneWins) {
  const CommitDirectory scratch;
  for (int round = 0; round < kRounds; ++round) {
    const path checkpoint = scratch / (Numbered("c", static_cast<uint64_t>(round)));
    const auto winners = Race(checkpoint, false, round);
    ASSERT_EQ(winners.size(), 1U);
    EXPECT_EQ(SeedOf({.checkpoint = checkpoint}, {1, 2}), *winners.begin());
    ExpectClean(checkpoint, 2);
  }
}

TEST(CommitRivalsTest, OfTwoJobsThatOverwriteEachStateIsOfOne) {
  const CommitDirectory scratch;
  const path checkpoint = scratch / "c";
  for (int round = 0; round < kRounds; ++round) {
    const auto winners = Race(checkpoint, true, round);
    ASSERT_FALSE(winners.empty());
    EXPECT_TRUE(winners.contains(SeedOf({.checkpoint = checkpoint}, {1, 2})));
    ExpectClean(checkpoint, 2);
  }
  EXPECT_THAT(NamesIn(scratch.root()), ::testing::ElementsAre("c", "latest"));
}

TEST(CommitRivalsTest, ALiveSaveIsNotDisturbedAndNamed) {
  const CommitDirectory scratch;
  const RankSave first{.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("first")};
  const Gate door;
  auto ranks = StartAll(first, [&](RankSave& save) { save.at = [&](uint64_t) { door.Pass(); }; });
  EXPECT_TRUE(WaitForEntry(first.checkpoint, ".attempt", "\"listed\""));
  RankSave second = first;
  second.seed = 2;
  second.options = OptionsOf("second", true);
  auto rivals = StartAll(second);
  for (const RankResult& result : WaitAll(rivals)) {
    EXPECT_EQ(result.code, StatusCode::kAlreadyExists) << result;
    EXPECT_THAT(result.message, HasSubstr("rank 0 of run 'first', host "));
    EXPECT_THAT(result.message, HasSubstr(Numbered("pid ", static_cast<uint64_t>(ranks[0].pid()))));
  }
  door.Open();
  for (const RankResult& result : WaitAll(ranks)) EXPECT_TRUE(result.ok()) << result;
  ExpectHolds(first);
  ExpectClean(first.checkpoint, 2);
}

// A reader that opens at any moment sees one save whole, or is told that it was replaced.
TEST(CommitRivalsTest, AReaderBesideAWriterSeesOldOrNew) {
  const CommitDirectory scratch;
  RankSave save{.checkpoint = scratch / "c",
                .world = 1,
                .elements = 20'000,
                .options = OptionsOf("writer", true)};
  SaveWell(save);
  RankProcess writer([save]() mutable -> Result<SaveReport> {
    for (uint64_t seed = 2; seed < 30; ++seed) {
      save.seed = seed;
      auto report = SaveRank(save);
      if (!report.ok()) return report;
    }
    return SaveReport{};
  });
  std::vector<uint64_t> seeds(30);
  for (uint64_t seed = 0; seed < seeds.size(); ++seed) seeds[seed] = seed;
  uint64_t reads = 0;
  WaitFor(
      [&] {
        const auto opened = Checkpoint::Open(scratch.root());  // through latest
        EXPECT_TRUE(opened.ok()) << opened.status().ToString();
        if (!opened.ok()) return true;
        const auto reader = opened->OpenRank(0);
        if (!reader.ok()) {
          EXPECT_EQ(reader.status().code(), StatusCode::kNotFound);
          EXPECT_THAT(reader.status().message(), HasSubstr("replaced by save"));
          return false;
        }
        const auto view = reader->ViewSegment("p", "fp32");
        EXPECT_TRUE(view.ok()) << view.status().ToString();
        ++reads;
        std::vector<std::byte> expected(view->bytes().size());
        for (const uint64_t seed : seeds) {
          PatternSource source(seed, 0, expected.size() / sizeof(float));
          EXPECT_TRUE(source.Read(0, expected).ok());
          if (std::equal(expected.begin(), expected.end(), view->bytes().begin()))
            return seed == 29;
        }
        ADD_FAILURE() << "bytes of no save";
        return true;
      },
      "the last save");
  EXPECT_TRUE(writer.Wait().ok());
  EXPECT_GT(reads, 0U);
}

}  // namespace
}  // namespace flagstone::testing
