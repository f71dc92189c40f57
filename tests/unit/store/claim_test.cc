// SPDX-License-Identifier: Apache-2.0
#include "store/claim.h"

#include <atomic>
#include <thread>

#include "store/file_coordinator.h"
#include "store/names.h"
#include "store_test_util.h"
#include "support/fault_file_system.h"

namespace flagstone::store {
namespace {

using flagstone::testing::Call;
using flagstone::testing::Fault;
using flagstone::testing::FaultFileSystem;
using flagstone::testing::Operation;
using flagstone::testing::TemporaryDirectory;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ClaimTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<TemporaryManifest>> ClaimAs(Attempt& attempt, bool overwrite = true,
                                                     Timing timing = {milliseconds(10'000), {}}) {
    attempt.owner.timeout_ms = timing.timeout.count();
    return Claim(fs_, processes_, directory_.path(), overwrite, timing, stop_.get_token(), attempt);
  }
  // Another's attempt as it lies in the directory.
  void Leave(const Attempt& attempt) {
    const auto framed = FrameValue(EncodeAttempt(attempt));
    WriteText(directory_ / TemporaryManifestName(attempt.save_id),
              {reinterpret_cast<const char*>(framed.data()), framed.size()});
  }
  bool Lies(const Attempt& attempt) {
    return NamesIn(directory_.path()).contains(TemporaryManifestName(attempt.save_id));
  }

  const TemporaryDirectory directory_;
  FaultFileSystem fs_{io::PosixFileSystem()};
  FakeProcesses processes_;
  std::stop_source stop_;
};

TEST_F(ClaimTest, PublishesAnActiveAttempt) {
  Attempt mine = MakeAttempt("mine", 1, "");
  const auto manifest = ClaimAs(mine);
  ASSERT_TRUE(IsOk(manifest));
  EXPECT_EQ(mine.state, AttemptState::kActive);
  EXPECT_EQ(mine.save_id.size(), 32U);
  const auto seen = SeeAttempts(fs_, processes_, directory_.path());
  ASSERT_TRUE(IsOk(seen));
  ASSERT_EQ(seen->size(), 1U);
  EXPECT_EQ(seen->front().record, mine);
}

TEST_F(ClaimTest, ACheckpointIsNotReplacedUnlessAsked) {
  WriteText(directory_ / "manifest.flagstone", "whatever it is");
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_EQ(ClaimAs(mine, false).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(NamesIn(directory_.path()).size(), 1U);
  EXPECT_TRUE(IsOk(ClaimAs(mine, true)));
}

// A rival that commits between the first look and the second.
TEST_F(ClaimTest, ACheckpointThatAppearsMeanwhileIsNotReplaced) {
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kOpen &&
        call.path.filename().string().starts_with(".flagstone-manifest."))
      WriteText(directory_ / "manifest.flagstone", "published");
    return std::nullopt;
  });
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_EQ(ClaimAs(mine, false).status().code(), StatusCode::kAlreadyExists);
  EXPECT_FALSE(Lies(mine));
}

TEST_F(ClaimTest, TheDeadAreFenced) {
  const Attempt dead = MakeAttempt("dead", 7, IdOf(7));
  processes_.Set(7, io::Liveness::kDead);
  Leave(dead);
  Attempt mine = MakeAttempt("mine", 1, "");
  const auto claimed = ClaimAs(mine);
  ASSERT_TRUE(IsOk(claimed));
  EXPECT_FALSE(Lies(dead));
  EXPECT_TRUE(Lies(mine));
}

TEST_F(ClaimTest, AnActiveAttemptIsNotDisturbed) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.owner.nonce = "ff";  // greater: only among those that still claim does that matter
  other.state = AttemptState::kActive;
  processes_.Set(7, io::Liveness::kAlive);
  Leave(other);
  Attempt mine = MakeAttempt("mine", 1, "");
  mine.owner.nonce = "00";
  const auto claimed = ClaimAs(mine);
  EXPECT_EQ(claimed.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(claimed.status().message(),
              AllOf(HasSubstr("run 'other'"), HasSubstr("host h"), HasSubstr("pid 7")));
  EXPECT_TRUE(Lies(other));
  EXPECT_FALSE(Lies(mine));
}

TEST_F(ClaimTest, OfThoseThatClaimTheLeastNonceStays) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.owner.nonce = "55";
  processes_.Set(7, io::Liveness::kAlive);
  Leave(other);
  Attempt greater = MakeAttempt("mine", 1, "");
  greater.owner.nonce = "66";
  EXPECT_EQ(ClaimAs(greater).status().code(), StatusCode::kAlreadyExists);
  Attempt less = MakeAttempt("mine", 1, "");
  less.owner.nonce = "44";
  std::thread withdrawing([&] {
    // The other sees the lesser nonce and withdraws.
    while (NamesIn(directory_.path()).size() < 2) std::this_thread::yield();
    EXPECT_TRUE(IsOk(Fence(io::PosixFileSystem(), directory_.path(), other.save_id)));
  });
  EXPECT_TRUE(IsOk(ClaimAs(less)));
  withdrawing.join();
}

// It would withdraw if it ran.
TEST_F(ClaimTest, ARivalThatStandsStillIsNotWaitedForForEver) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.owner.nonce = "ff";
  processes_.Set(7, io::Liveness::kAlive);
  Leave(other);
  Attempt mine = MakeAttempt("mine", 1, "");
  mine.owner.nonce = "00";
  const auto claimed = ClaimAs(mine, true, {milliseconds(200), {}});
  EXPECT_EQ(claimed.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(claimed.status().message(), HasSubstr("run 'other'"));
  EXPECT_TRUE(Lies(other));
  EXPECT_FALSE(Lies(mine));
}

TEST_F(ClaimTest, WhoWasFencedWhileItClaimedStops) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.owner.nonce = "ff";
  processes_.Set(7, io::Liveness::kAlive);
  Leave(other);
  Attempt mine = MakeAttempt("mine", 1, "");
  mine.owner.nonce = "00";
  std::thread fencing([&] {
    while (NamesIn(directory_.path()).size() < 2) std::this_thread::yield();
    for (const std::string& name : NamesIn(directory_.path())) {
      if (name != TemporaryManifestName(other.save_id)) std::filesystem::remove(directory_ / name);
    }
  });
  const auto claimed = ClaimAs(mine);
  fencing.join();
  EXPECT_EQ(claimed.status().code(), StatusCode::kCancelled);
  EXPECT_THAT(claimed.status().message(), HasSubstr("given up by another participant"));
}

// Who only claims the name does not mind what lies there.
TEST_F(ClaimTest, ADamagedManifestIsReplacedBesideADeadAttempt) {
  WriteText(directory_ / "manifest.flagstone", "damaged");
  const Attempt dead = MakeAttempt("dead", 7, IdOf(7));
  processes_.Set(7, io::Liveness::kDead);
  Leave(dead);
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_TRUE(IsOk(ClaimAs(mine, true)));
  EXPECT_FALSE(Lies(dead));
}

TEST_F(ClaimTest, OfManyThreadsThatClaimAtOnceOneStays) {
  constexpr int kThreads = 8;
  for (int pid = 1; pid <= kThreads; ++pid) processes_.Set(pid, io::Liveness::kAlive);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> stayed = 0;
    std::atomic<int> ready = 0;
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<TemporaryManifest>> manifests(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        Attempt mine = MakeAttempt("run", i + 1, "");
        ++ready;
        while (ready < kThreads) std::this_thread::yield();
        auto claimed = ClaimAs(mine);
        if (claimed.ok()) {
          ++stayed;
          manifests[static_cast<size_t>(i)] = *std::move(claimed);
        } else {
          EXPECT_EQ(claimed.status().code(), StatusCode::kAlreadyExists)
              << claimed.status().ToString();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(stayed, 1);
    EXPECT_EQ(NamesIn(directory_.path()).size(), 1U);
    for (const auto& manifest : manifests) {
      if (!manifest) continue;
      EXPECT_TRUE(IsOk(manifest->Withdraw()));
    }
  }
}

// Two on machines that cannot see each other's processes: their records beat, so neither takes the
// other for dead.
TEST_F(ClaimTest, OfThreadsOnUnlikeMachinesOneStays) {
  std::atomic<int> stayed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      Attempt mine = MakeAttempt("run", i + 1, "");
      auto claimed = ClaimAs(mine, true, {milliseconds(1000), {}});
      if (!claimed.ok()) {
        EXPECT_EQ(claimed.status().code(), StatusCode::kAlreadyExists);
        return;
      }
      ++stayed;
      // As a save does from here on.
      for (int beat = 0; stayed == 1 && beat < 30; ++beat) {
        ++mine.owner.beat;
        EXPECT_TRUE(IsOk((*claimed)->WriteRecord(EncodeAttempt(mine))));
        std::this_thread::sleep_for(milliseconds(100));
      }
      EXPECT_TRUE(IsOk((*claimed)->Withdraw()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stayed, 1);
}

// Or a rival on another machine that watches it would take it for dead.
TEST_F(ClaimTest, WhoWatchesARivalBeatsItself) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.owner.timeout_ms = 600'000;
  Leave(other);
  Attempt mine = MakeAttempt("mine", 1, "");
  std::thread claiming([&] {
    EXPECT_EQ(ClaimAs(mine, true, {milliseconds(1000), {}}).status().code(),
              StatusCode::kCancelled);
  });
  uint64_t beat = 0;
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (beat < 2 && std::chrono::steady_clock::now() < give_up) {
    const auto attempts = SeeAttempts(io::PosixFileSystem(), processes_, directory_.path());
    for (const SeenAttempt& seen : *attempts) {
      if (seen.record && seen.record->owner.party.run == "mine") beat = seen.record->owner.beat;
    }
  }
  EXPECT_GE(beat, 2U);
  stop_.request_stop();
  claiming.join();
}

TEST_F(ClaimTest, ARecordThatLiesStillIsDeadAndOneThatBeatsIsNot) {
  const Timing timing{milliseconds(1000), {}};
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.state = AttemptState::kActive;
  auto theirs =
      TemporaryManifest::Create(fs_, directory_.path(), other.save_id, EncodeAttempt(other));
  ASSERT_TRUE(IsOk(theirs));
  std::atomic<bool> over = false;
  std::thread beating([&] {
    while (!over) {
      ++other.owner.beat;
      EXPECT_TRUE(IsOk((*theirs)->WriteRecord(EncodeAttempt(other))));
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_EQ(ClaimAs(mine, true, timing).status().code(), StatusCode::kAlreadyExists);
  over = true;
  beating.join();
  EXPECT_TRUE(Lies(other));
  EXPECT_TRUE(IsOk(ClaimAs(mine, true, timing)));
  EXPECT_FALSE(Lies(other));
}

// What lay still long before need not be watched.
TEST_F(ClaimTest, AnOldRecordIsDeadAtOnce) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  Leave(other);
  MakeOld(directory_ / TemporaryManifestName(other.save_id));
  Attempt mine = MakeAttempt("mine", 1, "");
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(IsOk(ClaimAs(mine, true, {std::chrono::minutes(10), {}})));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::minutes(1));
  EXPECT_FALSE(Lies(other));
}

// The other's limit is longer than this one's ranks wait.
TEST_F(ClaimTest, WhoCannotBeJudgedInTimeIsLeftAlone) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));
  other.owner.timeout_ms = 3'600'000;
  Leave(other);
  Attempt mine = MakeAttempt("mine", 1, "");
  const auto claimed = ClaimAs(mine, true, {milliseconds(100), {}});
  EXPECT_EQ(claimed.status().code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(claimed.status().message(), HasSubstr("could not be told"));
  EXPECT_TRUE(Lies(other));
  EXPECT_FALSE(Lies(mine));
}

// Committed by a link whose writer died before it removed the temporary name.
TEST_F(ClaimTest, ASecondNameOfThePublishedManifestIsNoRival) {
  const std::string id = IdOf(9);
  const auto bytes = ManifestBytes(id);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  WriteText(directory_ / "manifest.flagstone", text);
  std::filesystem::create_hard_link(directory_ / "manifest.flagstone",
                                    directory_ / TemporaryManifestName(id));
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_TRUE(IsOk(ClaimAs(mine)));
  EXPECT_FALSE(NamesIn(directory_.path()).contains(TemporaryManifestName(id)));
  EXPECT_EQ(ReadText(directory_ / "manifest.flagstone"), text);
}

TEST_F(ClaimTest, AStopWithdraws) {
  Attempt other = MakeAttempt("other", 7, IdOf(7));  // cannot be told: watched
  Leave(other);
  stop_.request_stop();
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_EQ(ClaimAs(mine).status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(Lies(other));
  EXPECT_FALSE(Lies(mine));
}

TEST_F(ClaimTest, NothingIsLeftWhenALookFails) {
  fs_.Fail(Operation::kList, EIO, 2);
  Attempt mine = MakeAttempt("mine", 1, "");
  EXPECT_EQ(ClaimAs(mine).status().code(), StatusCode::kIoError);
  EXPECT_TRUE(NamesIn(directory_.path()).empty());
}

}  // namespace
}  // namespace flagstone::store
