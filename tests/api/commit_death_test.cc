// SPDX-License-Identifier: Apache-2.0
// Processes of a save that die, stall, are restarted or never come.

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "commit_support.h"

namespace flagstone::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kLarge = 4'000'000;  // elements: several buffers a rank

// Saves over an old checkpoint, so that each test also shows that the old one stays.
class CommitDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    old_ = {.checkpoint = scratch_ / "c", .world = 2, .options = OptionsOf("old")};
    SaveWell(old_);
    save_ = {.checkpoint = scratch_ / "c",
             .world = 4,
             .elements = kLarge,
             .seed = 2,
             .options = OptionsOf("new", /*overwrite=*/true)};
  }

  void ExpectOldHolds() { ExpectHolds(old_); }
  // What a failed save leaves goes with the next success.
  void ExpectNextSuccessCleans() {
    RankSave next = old_;
    next.seed = 5;
    next.options = OptionsOf("next", true);
    SaveWell(next);
    ExpectHolds(next);
    ExpectClean(next.checkpoint, next.world);
    EXPECT_THAT(NamesIn(scratch_.root()), ::testing::ElementsAre("c", "latest"));
  }
  // All but `dead` fail within their time, naming it by `what`.
  void ExpectOthersFail(std::vector<RankProcess>& ranks, size_t dead, const std::string& what) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const RankResult result = ranks[rank].Wait();
      if (rank == dead) {
        EXPECT_EQ(result.signal, SIGKILL);
        continue;
      }
      EXPECT_FALSE(result.ok());
      EXPECT_EQ(result.signal, 0);
      EXPECT_THAT(result.message, HasSubstr(what)) << "rank " << rank;
    }
  }
  std::vector<std::string> OwnFilesOfSave() {
    const auto opened = Checkpoint::Open(old_.checkpoint);
    std::vector<std::string> names = NamesIn(old_.checkpoint);
    std::erase_if(names, [&](const std::string& name) {
      return name == "manifest.flagstone" ||
             name.find(opened->save_id().substr(0, 8)) != std::string::npos;
    });
    return names;
  }

  const CommitDirectory scratch_;
  RankSave old_;
  RankSave save_;
};

TEST_F(CommitDeathTest, ARankThatDiesBeforeItWrites) {
  auto ranks = StartAll(save_, [](RankSave& save) {
    if (save.rank == 2) save.at = [](uint64_t) { kill(getpid(), SIGKILL); };
  });
  // Dead before or after it was listed: it is named in both cases.
  ExpectOthersFail(ranks, 2, "rank");
  ExpectOldHolds();
  ExpectNextSuccessCleans();
}

TEST_F(CommitDeathTest, ARankThatDiesWhileItWrites) {
  const Gate listed;
  auto ranks = StartAll(save_, [&](RankSave& save) {
    if (save.rank != 2) return;
    save.at = [&](uint64_t offset) {
      if (offset < 3'000'000) return;
      listed.Pass();
      kill(getpid(), SIGKILL);
    };
  });
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"listed\""));
  listed.Open();
  ExpectOthersFail(ranks, 2, "rank 2 of run 'new'");
  ExpectOldHolds();
  ExpectNextSuccessCleans();
}

TEST_F(CommitDeathTest, ARankThatDiesAfterItHasWritten) {
  const Gate door;
  auto ranks = StartAll(save_, [&](RankSave& save) {
    if (save.rank == 1) save.at = [&](uint64_t) { door.Pass(); };
  });
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".answer-2-", "\"written\""));
  ranks[2].Send(SIGKILL);
  EXPECT_EQ(ranks[2].Wait().signal, SIGKILL);
  door.Open();
  // Its part is there, whole: the save succeeds.
  for (const size_t rank : {0U, 1U, 3U}) {
    const RankResult result = ranks[rank].Wait();
    EXPECT_TRUE(result.ok()) << result;
    EXPECT_THAT(result.warnings, IsEmpty());
  }
  ExpectHolds(save_);
  ExpectClean(save_.checkpoint, 4);
}

TEST_F(CommitDeathTest, TheCoordinatorDiesAfterListing) {
  const Gate door;
  auto ranks = StartAll(save_, [&](RankSave& save) { save.at = [&](uint64_t) { door.Pass(); }; });
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"listed\""));
  ranks[0].Send(SIGKILL);
  door.Open();
  ExpectOthersFail(ranks, 0, "rank 0 of run 'new'");
  ExpectOldHolds();
  ExpectNextSuccessCleans();
}

TEST_F(CommitDeathTest, TheCoordinatorDiesWhenTheOthersHaveWritten) {
  const Gate door;
  auto ranks = StartAll(save_, [&](RankSave& save) {
    if (save.rank == 0) save.at = [&](uint64_t) { door.Pass(); };
  });
  for (const char* answer : {".answer-1-", ".answer-2-", ".answer-3-"})
    EXPECT_TRUE(WaitForEntry(save_.checkpoint, answer, "\"written\""));
  ranks[0].Send(SIGKILL);
  ExpectOthersFail(ranks, 0, "rank 0 of run 'new'");
  ExpectOldHolds();
  // They fenced the attempt and took their files away; only the dead one's are left.
  for (const std::string& name : OwnFilesOfSave()) {
    EXPECT_THAT(
        name, AllOf(::testing::StartsWith(".flagstone-"), ::testing::Not(HasSubstr("manifest."))));
  }
  ExpectNextSuccessCleans();
}

// A board in files of its own, as a user may write one; the process that sets the outcome may die
// of it.
class OwnBoard final : public Coordinator {
 public:
  OwnBoard(path directory, bool dies) : directory_(std::move(directory)), dies_(dies) {}

  Status Set(std::string_view key, std::string_view value, Deadline) override {
    if (dies_ && value.find("\"committed\"") != std::string_view::npos) kill(getpid(), SIGKILL);
    const std::lock_guard lock(mutex_);
    const path temporary = directory_ / (Numbered("t", static_cast<uint64_t>(getpid())));
    std::ofstream(temporary, std::ios::binary) << value;
    std::filesystem::rename(temporary, directory_ / key);
    return {};
  }
  Result<std::string> Get(std::string_view key, Deadline) override {
    std::ifstream in(directory_ / key, std::ios::binary);
    if (!in) return Status(StatusCode::kNotFound, "no key");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
  Status Delete(std::string_view key, Deadline) override {
    std::filesystem::remove(directory_ / key);
    return {};
  }
  Result<std::vector<std::string>> List(std::string_view prefix, Deadline) override {
    std::vector<std::string> keys = NamesIn(directory_);
    std::erase_if(keys, [&](const std::string& key) { return !key.starts_with(prefix); });
    return keys;
  }

 private:
  const path directory_;
  const bool dies_;
  std::mutex mutex_;
};

TEST_F(CommitDeathTest, TheCoordinatorDiesAfterTheCommitPoint) {
  const path board = scratch_ / ".board";
  std::filesystem::create_directory(board);
  auto ranks = StartAll(save_, [&](RankSave& save) {
    save.options.coordinator = std::make_shared<OwnBoard>(board, save.rank == 0);
  });
  EXPECT_EQ(ranks[0].Wait().signal, SIGKILL);
  const std::string id = ExpectHolds(save_);
  for (const size_t rank : {1U, 2U, 3U}) {
    const RankResult result = ranks[rank].Wait();
    EXPECT_TRUE(result.ok()) << result;
    EXPECT_EQ(result.save_id, id);
  }
  ExpectHolds(save_);
  std::filesystem::remove_all(board);
  ExpectNextSuccessCleans();
}

TEST_F(CommitDeathTest, ACoordinatorThatStallsIsGivenUpAndFailsWhenItGoesOn) {
  save_.options.timeout = std::chrono::seconds(1);
  const Gate door;
  auto ranks = StartAll(save_, [&](RankSave& save) { save.at = [&](uint64_t) { door.Pass(); }; });
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"listed\""));
  ranks[0].Send(SIGSTOP);
  ranks[0].WaitStopped();
  door.Open();
  for (const size_t rank : {1U, 2U, 3U}) {
    const RankResult result = ranks[rank].Wait();
    EXPECT_EQ(result.code, StatusCode::kDeadlineExceeded) << result;
    EXPECT_THAT(result.message, HasSubstr("rank 0 of run 'new'"));
  }
  for (const std::string& name : OwnFilesOfSave()) {
    EXPECT_THAT(name, ::testing::Not(HasSubstr("manifest."))) << "the attempt is fenced";
  }
  ExpectOldHolds();
  ranks[0].Send(SIGCONT);
  const RankResult result = ranks[0].Wait();
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
  ExpectOldHolds();
}

TEST_F(CommitDeathTest, ARankThatStallsIsNamed) {
  save_.options.timeout = std::chrono::seconds(1);
  const Gate door;
  auto ranks = StartAll(save_, [&](RankSave& save) {
    if (save.rank == 3) save.at = [&](uint64_t) { door.Pass(); };
  });
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"listed\""));
  ranks[3].Send(SIGSTOP);
  ranks[3].WaitStopped();
  for (const size_t rank : {0U, 1U, 2U}) {
    const RankResult result = ranks[rank].Wait();
    EXPECT_EQ(result.code, StatusCode::kDeadlineExceeded) << result;
    EXPECT_THAT(result.message, AllOf(HasSubstr("rank 3 of run 'new'"), HasSubstr("no progress")));
  }
  ExpectOldHolds();
  door.Open();
  ranks[3].Send(SIGCONT);
  EXPECT_FALSE(ranks[3].Wait().ok());
  EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
}

// A rank 0 whose data does not come holds nobody for longer than the limit.
TEST_F(CommitDeathTest, ACoordinatorWhoseSourceHangsIsGivenUp) {
  save_.options.timeout = std::chrono::seconds(1);
  const Gate door;
  auto ranks = StartAll(save_, [&](RankSave& save) {
    if (save.rank == 0) save.at = [&](uint64_t) { door.Pass(); };
  });
  for (const size_t rank : {1U, 2U, 3U}) {
    const RankResult result = ranks[rank].Wait();
    EXPECT_EQ(result.code, StatusCode::kDeadlineExceeded) << result;
    EXPECT_THAT(result.message, HasSubstr("rank 0 of run 'new'"));
  }
  door.Open();
  EXPECT_FALSE(ranks[0].Wait().ok());
  ExpectOldHolds();
  EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
}

TEST_F(CommitDeathTest, ARankThatNeverComesIsNamed) {
  save_.options.timeout = std::chrono::seconds(1);
  std::vector<RankProcess> ranks;
  for (const uint32_t rank : {0U, 2U, 3U}) {
    save_.rank = rank;
    ranks.emplace_back(save_);
  }
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_EQ(result.code, StatusCode::kDeadlineExceeded) << result;
    EXPECT_THAT(result.message, HasSubstr("rank 1 of 4 did not come"));
  }
  EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
  ExpectOldHolds();
}

TEST_F(CommitDeathTest, ACoordinatorThatNeverComesIsNamed) {
  save_.options.timeout = std::chrono::seconds(1);
  save_.rank = 1;
  RankProcess rank(save_);
  const RankResult result = rank.Wait();
  EXPECT_EQ(result.code, StatusCode::kDeadlineExceeded) << result;
  EXPECT_THAT(result.message, AllOf(HasSubstr("rank 0"), HasSubstr("'new'")));
  EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
}

TEST_F(CommitDeathTest, ARestartedRankTakesPart) {
  std::vector<RankProcess> ranks;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    save_.rank = rank;
    ranks.emplace_back(save_);
  }
  // It has answered the attempt; the list is not closed, as rank 3 has not come.
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"active\""));
  const std::string attempt = [&] {
    for (const std::string& name : NamesIn(save_.checkpoint)) {
      if (name.starts_with(".flagstone-manifest.")) return name.substr(20);
    }
    return std::string("none");
  }();
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".answer-2-", attempt));
  ranks[2].Send(SIGKILL);
  EXPECT_EQ(ranks[2].Wait().signal, SIGKILL);
  for (const uint32_t rank : {2U, 3U}) {
    save_.rank = rank;
    ranks.emplace_back(save_);
  }
  for (const size_t i : {0U, 1U, 3U, 4U}) {
    const RankResult result = ranks[i].Wait();
    EXPECT_TRUE(result.ok()) << result;
  }
  ExpectHolds(save_);
  ExpectClean(save_.checkpoint, 4);
}

TEST_F(CommitDeathTest, ARankThatFailsFailsAllWithItsReason) {
  // The others come late, when it has long failed: they learn it all the same.
  save_.rank = 3;
  RankProcess failing([&]() -> Result<SaveReport> {
    class Broken final : public Source {
     public:
      uint64_t size_bytes() const override { return kLarge / 4 * sizeof(float); }
      Status Read(uint64_t, std::span<std::byte>) override {
        return Status(StatusCode::kIoError, "the device fell off the bus");
      }
    } broken;
    auto writer = Writer::Create(save_.checkpoint, OneTensor(4, kLarge), 3, save_.options);
    if (!writer.ok()) return writer.status();
    const Status added = writer->Add("p", "fp32", broken);
    if (!added.ok()) return added;
    return writer->Commit();
  });
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".answer-3-", "\"failed\""));
  std::vector<RankProcess> ranks;
  for (const uint32_t rank : {0U, 1U}) {
    save_.rank = rank;
    ranks.emplace_back(save_);
  }
  EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"active\""));
  save_.rank = 2;
  ranks.emplace_back(save_);
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_EQ(result.code, StatusCode::kIoError) << result;
    EXPECT_THAT(result.message, AllOf(HasSubstr("rank 3"), HasSubstr("fell off the bus")));
  }
  EXPECT_THAT(failing.Wait().message, HasSubstr("fell off the bus"));
  EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
  ExpectOldHolds();
}

// Ctrl-C: a process that asked for a stop is back in about two seconds, whatever the limits are.
TEST_F(CommitDeathTest, AStopIsPromptForEveryRank) {
  save_.options.timeout = std::chrono::minutes(10);
  const auto stopping = [&](uint32_t rank) {
    return [this, rank]() -> Result<SaveReport> {
      RankSave save = save_;
      save.rank = rank;
      std::stop_source source;
      save.options.stop = source.get_token();
      std::jthread later([&] {
        WaitForEntry(save.checkpoint, ".answer-1-", "\"rank\":1");
        source.request_stop();
      });
      return SaveRank(save);
    };
  };
  // Rank 1 alone: there is nobody to tell. Ranks 0 and 1: the list cannot be closed.
  for (const uint32_t first : {1U, 0U}) {
    std::vector<RankProcess> ranks;
    for (uint32_t rank = first; rank < 2; ++rank) ranks.emplace_back(stopping(rank));
    for (const RankResult& result : WaitAll(ranks)) {
      EXPECT_EQ(result.code, StatusCode::kCancelled) << result;
    }
    EXPECT_THAT(OwnFilesOfSave(), IsEmpty());
  }
  ExpectOldHolds();
}

TEST_F(CommitDeathTest, AJobThatDiedIsCleanedUpByTheNextSuccess) {
  const Gate door;
  {
    auto ranks = StartAll(save_, [&](RankSave& save) {
      save.at = [&](uint64_t offset) {
        if (offset > 3'000'000) door.Pass();
      };
    });
    EXPECT_TRUE(WaitForEntry(save_.checkpoint, ".attempt", "\"listed\""));
    for (RankProcess& rank : ranks) rank.Send(SIGKILL);
    for (RankProcess& rank : ranks) rank.Wait();
  }
  EXPECT_GE(OwnFilesOfSave().size(), 4U);
  ExpectOldHolds();
  const auto listed = ListCheckpoints(scratch_.root());
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(listed->debris.size(), OwnFilesOfSave().size());
  ExpectNextSuccessCleans();
}

TEST_F(CommitDeathTest, HalfWrittenEntriesGoWhenTheyHaveLainStill) {
  const path fresh = old_.checkpoint / ".flagstone-key.0123.answer-0-abcd";
  const path stale = old_.checkpoint / ".flagstone-key.0123.answer-1-abcd";
  const path latest = scratch_ / ".flagstone-latest.0123.abcd";
  for (const path& file : {fresh, stale, latest}) std::ofstream(file) << "half";
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(stale, long_ago);
  std::filesystem::last_write_time(latest, long_ago);
  SaveWell(save_);
  EXPECT_TRUE(std::filesystem::exists(fresh)) << "its writer may live";
  EXPECT_FALSE(std::filesystem::exists(stale));
  EXPECT_FALSE(std::filesystem::exists(latest));
}

}  // namespace
}  // namespace flagstone::testing
