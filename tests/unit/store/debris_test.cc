// SPDX-License-Identifier: Apache-2.0
// Finding and removing what dead saves left, and nothing else.

#include "store/file_coordinator.h"
#include "store/names.h"
#include "store/participants.h"
#include "store/publish.h"
#include "store_test_util.h"
#include "support/fault_file_system.h"

namespace flagstone::store {
namespace {

using flagstone::testing::FaultFileSystem;
using flagstone::testing::Operation;
using flagstone::testing::TemporaryDirectory;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

constexpr int64_t kAlive = 1;
constexpr int64_t kDead = 2;
constexpr int64_t kElsewhere = 3;

class DebrisTest : public ::testing::Test {
 protected:
  DebrisTest() {
    std::filesystem::create_directory(directory_);
    processes_.Set(kAlive, io::Liveness::kAlive);
    processes_.Set(kDead, io::Liveness::kDead);
  }

  std::string Text(std::string_view record) {
    const auto framed = FrameValue(record);
    return {reinterpret_cast<const char*>(framed.data()), framed.size()};
  }
  std::string Private(int64_t pid, std::string run = "run") {
    Answer answer;
    answer.owner = MakeOwner(std::move(run), pid, 1);
    const std::string name = PrivateName(answer.owner.nonce);
    WriteText(directory_ / name, Text(EncodeAnswer(answer)) + std::string(9000, 'd'));
    return name;
  }
  std::string Key(int64_t pid) {
    Answer answer;
    answer.owner = MakeOwner("run", pid, 1);
    const std::string name =
        ".flagstone-key." + AnswerKey(answer.owner.party, 1, answer.owner.nonce);
    WriteText(directory_ / name, Text(EncodeAnswer(answer)));
    return name;
  }
  std::string Temporary(int64_t pid, int id, std::vector<std::string> accepted = {}) {
    Attempt attempt = MakeAttempt("run", pid, IdOf(id));
    attempt.accepted = std::move(accepted);
    WriteText(directory_ / TemporaryManifestName(attempt.save_id), Text(EncodeAttempt(attempt)));
    return TemporaryManifestName(attempt.save_id);
  }
  std::string RankFileOf(int id) {
    const std::string name = "rank-00000." + std::string(IdDigits(IdOf(id))) + ".flagstone";
    WriteText(directory_ / name, "data");
    return name;
  }
  void PublishManifest(int id) {
    const auto bytes = ManifestBytes(IdOf(id));
    WriteText(directory_ / "manifest.flagstone",
              {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  int64_t Now() {
    WriteText(root_ / "clock", "x");
    return fs_.Stat(root_ / "clock")->modified_ns;
  }
  std::vector<std::string> Find(milliseconds idle = milliseconds(60'000)) {
    const auto debris = FindDebris(fs_, processes_, directory_, idle, Now());
    EXPECT_TRUE(IsOk(debris));
    std::vector<std::string> names;
    for (const Debris& item : *debris) names.push_back(item.name);
    return names;
  }
  std::vector<std::string> Remove() {
    return RemoveDebris(fs_, processes_, directory_, milliseconds(60'000), Now());
  }

  const TemporaryDirectory root_;
  const path directory_ = root_ / "c";
  FaultFileSystem fs_{io::PosixFileSystem()};
  FakeProcesses processes_;
};

TEST_F(DebrisTest, FilesOfTheLivingAndOfOthersAreLeftAlone) {
  PublishManifest(1);
  RankFileOf(1);
  Temporary(kAlive, 2);
  RankFileOf(2);
  Private(kAlive);
  Key(kAlive);
  Private(kElsewhere);
  Key(kElsewhere);
  for (const char* foreign : {"notes.txt", "rank_7.bak", "rank-1.flagstone", "model.safetensors"})
    WriteText(directory_ / foreign, "mine");
  WriteText(root_ / "neighbour", "mine");
  const auto before = NamesIn(directory_);
  EXPECT_THAT(Find(), IsEmpty());
  EXPECT_THAT(Remove(), IsEmpty());
  EXPECT_EQ(NamesIn(directory_), before);
}

TEST_F(DebrisTest, FilesOfTheDeadGo) {
  PublishManifest(1);
  const std::string kept = RankFileOf(1);
  const std::string replaced = RankFileOf(3);
  const std::string temporary = Temporary(kDead, 2);
  const std::string its_file = RankFileOf(2);
  const std::string data = Private(kDead);
  const std::string key = Key(kDead);
  EXPECT_THAT(Find(), UnorderedElementsAre(replaced, temporary, its_file, data, key));
  EXPECT_THAT(Remove(), IsEmpty());
  EXPECT_THAT(NamesIn(directory_), UnorderedElementsAre("manifest.flagstone", kept));
}

TEST_F(DebrisTest, RankFilesWithoutAManifestAreDebris) {
  const std::string file = RankFileOf(3);
  EXPECT_THAT(Find(), ElementsAre(file));
}

// Removing comes after a success: without a manifest the directory is not as it is.
TEST_F(DebrisTest, NothingIsRemovedWhereTheManifestIsNotThere) {
  const std::string file = RankFileOf(5);
  const auto troubles = RemoveDebris(fs_, processes_, directory_, milliseconds(1000), 1);
  ASSERT_EQ(troubles.size(), 1U);
  EXPECT_THAT(troubles[0], HasSubstr("left alone"));
  EXPECT_TRUE(std::filesystem::exists(directory_ / file));
}

TEST_F(DebrisTest, WhoCannotBeToldIsJudgedByTheAgeOfItsFile) {
  const std::string data = Private(kElsewhere);
  const std::string key = Key(kElsewhere);
  const std::string temporary = Temporary(kElsewhere, 2);
  EXPECT_THAT(Find(milliseconds(0)), IsEmpty()) << "younger than its owner may wait";
  for (const std::string& name : {data, key, temporary}) MakeOld(directory_ / name);
  EXPECT_THAT(Find(), UnorderedElementsAre(data, key, temporary));
  EXPECT_TRUE(FindDebris(fs_, processes_, directory_, milliseconds(0), 0)->empty())
      << "no clock, no age";
}

// It waits for the list, and changes no file while it does.
TEST_F(DebrisTest, AnOldFileOfARankThatALiveAttemptMayListStays) {
  const std::string data = Private(kElsewhere);
  MakeOld(directory_ / data);
  Temporary(kAlive, 2);
  EXPECT_THAT(Find(), IsEmpty());
  const std::string other = Private(kElsewhere, "another run");
  MakeOld(directory_ / other);
  EXPECT_THAT(Find(), ElementsAre(other));
}

TEST_F(DebrisTest, AFileOfADeadRankThatALiveAttemptListsStays) {
  const std::string data = Private(kDead);
  Temporary(kAlive, 2, {"0", ParseName(data).id});
  EXPECT_THAT(Find(), IsEmpty());
  Temporary(kAlive, 2, {"0", "1"});
  EXPECT_THAT(Find(), ElementsAre(data));
}

TEST_F(DebrisTest, HalfWrittenFilesAreJudgedByAge) {
  const std::string half = ".flagstone-key.x";
  WriteText(directory_ / half, "half");
  WriteText(directory_ / ".flagstone-0123", "");
  EXPECT_THAT(Find(), IsEmpty());
  MakeOld(directory_ / half);
  EXPECT_THAT(Find(), ElementsAre(half));
}

// Once the manifest's bytes have taken the record's place the owner file tells whose it is.
TEST_F(DebrisTest, AWrittenTemporaryManifestStillHasAnOwner) {
  for (const int64_t pid : {kAlive, kDead}) {
    const std::string id = IdOf(static_cast<int>(pid) + 10);
    auto temporary =
        TemporaryManifest::Create(fs_, directory_, id, EncodeAttempt(MakeAttempt("run", pid, id)));
    ASSERT_TRUE(IsOk(temporary));
    ASSERT_TRUE(IsOk((*temporary)->WriteManifest(ManifestBytes(id))));
    const std::string file = RankFileOf(static_cast<int>(pid) + 10);
    const auto attempts = SeeAttempts(fs_, processes_, directory_);
    ASSERT_TRUE(IsOk(attempts));
    ASSERT_EQ(attempts->size(), 1U);
    EXPECT_EQ(attempts->front().record->owner.process.pid, pid);
    if (pid == kAlive) {
      EXPECT_THAT(Find(), IsEmpty());
      EXPECT_TRUE(IsOk((*temporary)->Withdraw()));
      std::filesystem::remove(directory_ / file);
      EXPECT_TRUE(NamesIn(directory_).empty());
    } else {
      PublishManifest(1);
      EXPECT_THAT(Remove(), IsEmpty());
      EXPECT_THAT(NamesIn(directory_), ElementsAre("manifest.flagstone"));
    }
  }
}

// A manifest that is written changes no more, but its owner, on another machine, still beats.
TEST_F(DebrisTest, AnAttemptWhoseOwnerFileBeatsIsAlive) {
  const std::string temporary = Temporary(kElsewhere, 2);
  WriteText(directory_ / OwnerFileName(IdOf(2)),
            Text(EncodeAttempt(MakeAttempt("run", kElsewhere, IdOf(2)))));
  MakeOld(directory_ / temporary);
  EXPECT_THAT(Find(), IsEmpty());
  MakeOld(directory_ / OwnerFileName(IdOf(2)));
  EXPECT_THAT(Find(), UnorderedElementsAre(temporary, OwnerFileName(IdOf(2))));
}

TEST_F(DebrisTest, ASecondNameOfThePublishedManifestGoesAndItsFilesStay) {
  PublishManifest(1);
  const std::string file = RankFileOf(1);
  std::filesystem::create_hard_link(directory_ / "manifest.flagstone",
                                    directory_ / TemporaryManifestName(IdOf(1)));
  EXPECT_THAT(Remove(), IsEmpty());
  EXPECT_THAT(NamesIn(directory_), UnorderedElementsAre("manifest.flagstone", file));
}

// The fence comes first: what cannot be fenced keeps its files.
TEST_F(DebrisTest, AnAttemptThatCannotBeFencedKeepsItsFiles) {
  PublishManifest(1);
  const std::string temporary = Temporary(kDead, 2);
  const std::string file = RankFileOf(2);
  fs_.Fail(Operation::kUnlink, EIO, 1, 1);
  EXPECT_THAT(Remove(), IsSupersetOf({HasSubstr(temporary)}));
  EXPECT_TRUE(NamesIn(directory_).contains(temporary));
}

TEST_F(DebrisTest, ADamagedManifestMeansThatNothingCanBeTold) {
  WriteText(directory_ / "manifest.flagstone", std::string(4096, 'x'));
  RankFileOf(2);
  EXPECT_FALSE(FindDebris(fs_, processes_, directory_, milliseconds(0), Now()).ok());
  EXPECT_THAT(Remove(), ElementsAre(HasSubstr("left alone")));
  EXPECT_EQ(NamesIn(directory_).size(), 2U);
}

TEST_F(DebrisTest, TemporaryLatestFilesOfThisNameGoOthersWhenOld) {
  PublishManifest(1);
  const std::string own = TemporaryLatestName("c", "11");
  const std::string fresh = TemporaryLatestName("d", "22");
  const std::string old = TemporaryLatestName("e", "33");
  for (const std::string& name : {own, fresh, old}) WriteText(root_ / name, "c\n");
  MakeOld(root_ / old);
  EXPECT_THAT(Remove(), IsEmpty());
  EXPECT_THAT(NamesIn(root_.path()), UnorderedElementsAre("c", "clock", fresh));
}

}  // namespace
}  // namespace flagstone::store
