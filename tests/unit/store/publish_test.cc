// SPDX-License-Identifier: Apache-2.0
// The steps of the commit, the fence and `latest`, with each operation refused.

#include "store/publish.h"

#include <future>

#include "format/header.h"
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
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class PublishTest : public ::testing::Test {
 protected:
  PublishTest() { std::filesystem::create_directory(directory_); }
  // A temporary manifest with its bytes, ready to be committed.
  std::unique_ptr<TemporaryManifest> Ready(int id) {
    auto made = TemporaryManifest::Create(fs_, directory_, IdOf(id), "record");
    EXPECT_TRUE(IsOk(made));
    EXPECT_TRUE(IsOk((*made)->WriteManifest(ManifestBytes(IdOf(id)))));
    return *std::move(made);
  }
  std::string Published() {
    const auto id = PublishedSaveId(io::PosixFileSystem(), directory_);
    EXPECT_TRUE(IsOk(id));
    return id->value_or("none");
  }

  const TemporaryDirectory root_;
  const path directory_ = root_ / "c";
  FaultFileSystem fs_{io::PosixFileSystem()};
};

TEST_F(PublishTest, MakesEveryLevelAndSyncsEachParent) {
  std::vector<path> synced;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kSyncDirectory) synced.push_back(call.path);
    return std::nullopt;
  });
  ASSERT_TRUE(IsOk(MakeDirectories(fs_, root_ / "a" / "b" / "c")));
  EXPECT_THAT(synced, ::testing::ElementsAre(root_.path(), root_ / "a", root_ / "a" / "b"));
  WriteText(root_ / "file", "x");
  const Status refused = MakeDirectories(fs_, root_ / "file" / "c");
  EXPECT_THAT(refused.message(), HasSubstr((root_ / "file").string()));
  EXPECT_FALSE(refused.ok());
}

TEST_F(PublishTest, CommitsWithAndWithoutOverwrite) {
  auto first = Ready(1);
  ASSERT_EQ(first->Commit(false).value(), CommitResult::kCommitted);
  EXPECT_EQ(Published(), IdOf(1));
  auto second = Ready(2);
  EXPECT_EQ(second->Commit(false).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Published(), IdOf(1));
  EXPECT_EQ(second->Commit(true).value(), CommitResult::kCommitted);
  EXPECT_EQ(Published(), IdOf(2));
  EXPECT_THAT(NamesIn(directory_), UnorderedElementsAre("manifest.flagstone"));
}

TEST_F(PublishTest, WhereLinksAreRefusedItRenames) {
  fs_.Fail(Operation::kLink, EPERM);
  auto first = Ready(1);
  ASSERT_EQ(first->Commit(false).value(), CommitResult::kCommitted);
  EXPECT_EQ(Published(), IdOf(1));
  auto second = Ready(2);
  EXPECT_EQ(second->Commit(false).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(PublishTest, WhatWasFencedCannotBeCommitted) {
  for (const bool overwrite : {false, true}) {
    auto temporary = Ready(1);
    EXPECT_FALSE(Fence(fs_, directory_, IdOf(1)).value());
    const auto committed = temporary->Commit(overwrite);
    EXPECT_EQ(committed.status().code(), StatusCode::kCancelled);
    EXPECT_THAT(committed.status().message(), HasSubstr(IdOf(1)));
    EXPECT_EQ(Published(), "none");
    EXPECT_FALSE(temporary->Withdraw().value());
  }
}

TEST_F(PublishTest, TheFenceFindsWhatWasCommitted) {
  auto temporary = Ready(1);
  ASSERT_TRUE(IsOk(temporary->Commit(true)));
  EXPECT_TRUE(Fence(fs_, directory_, IdOf(1)).value());
  EXPECT_FALSE(Fence(fs_, directory_, IdOf(2)).value());
}

// Over a network the answer to an operation may be lost and the operation tried again.
TEST_F(PublishTest, AnAnswerThatWasLostIsFoundOut) {
  for (const bool overwrite : {false, true}) {
    const int id = overwrite ? 2 : 1;
    auto temporary = Ready(id);
    std::filesystem::remove(directory_ / "manifest.flagstone");
    if (overwrite) {
      std::filesystem::rename(directory_ / TemporaryManifestName(IdOf(id)),
                              directory_ / "manifest.flagstone");
    } else {
      std::filesystem::create_hard_link(directory_ / TemporaryManifestName(IdOf(id)),
                                        directory_ / "manifest.flagstone");
    }
    EXPECT_EQ(temporary->Commit(overwrite).value(), CommitResult::kCommitted);
    EXPECT_THAT(NamesIn(directory_), UnorderedElementsAre("manifest.flagstone"));
  }
}

TEST_F(PublishTest, ADirectoryThatCannotBeSyncedMakesDurabilityUnknown) {
  auto temporary = Ready(1);
  fs_.Fail(Operation::kSyncDirectory, EIO);
  EXPECT_EQ(temporary->Commit(false).value(), CommitResult::kDurabilityUnknown);
  EXPECT_EQ(Published(), IdOf(1));
  EXPECT_FALSE(Fence(fs_, directory_, IdOf(1)).ok()) << "a fence needs its sync";
}

// What comes to no end (the disk fails, a source throws) does not hold the name.
TEST_F(PublishTest, AnAttemptThatIsDroppedIsGone) {
  Ready(1).reset();
  EXPECT_THAT(NamesIn(directory_), UnorderedElementsAre(::testing::StartsWith(".flagstone-key.")));
  auto committed = Ready(2);
  ASSERT_TRUE(IsOk(committed->Commit(true)));
  committed.reset();
  EXPECT_EQ(Published(), IdOf(2));
}

// Beats go on while the manifest is synced, however long that takes.
TEST_F(PublishTest, ARecordIsWrittenDuringTheManifestsSync) {
  auto made = TemporaryManifest::Create(fs_, directory_, IdOf(1), "record");
  ASSERT_TRUE(IsOk(made));
  std::future<Status> beat;
  std::future_status beaten = std::future_status::deferred;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kSync || beat.valid()) return std::nullopt;
    beat = std::async(std::launch::async, [&] { return (*made)->WriteRecord("beat"); });
    return std::nullopt;
  });
  ASSERT_TRUE(IsOk((*made)->WriteManifest(ManifestBytes(IdOf(1)))));
  ASSERT_TRUE(beat.valid());
  beaten = beat.wait_for(std::chrono::seconds(10));
  EXPECT_EQ(beaten, std::future_status::ready);
}

// The read that decides comes after a change of one's own, also when there was nothing to unlink.
TEST_F(PublishTest, AFenceChangesTheDirectoryBeforeItReads) {
  std::vector<Operation> order;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    const std::string name = call.path.filename().string();
    const bool is_probe = ParseName(name).kind == NameKind::kPrivate;
    if (is_probe || (call.operation == Operation::kOpen && name == "manifest.flagstone"))
      order.push_back(call.operation);
    return std::nullopt;
  });
  EXPECT_FALSE(Fence(fs_, directory_, IdOf(1)).value());
  EXPECT_THAT(order,
              ::testing::ElementsAre(Operation::kOpen, Operation::kUnlink, Operation::kOpen));
  EXPECT_TRUE(NamesIn(directory_).empty());
}

// A handle that a file server forgot is no proof that the attempt was not committed.
TEST_F(PublishTest, AStaleHandleDecidesNothing) {
  for (const Operation operation :
       {Operation::kUnlink, Operation::kSyncDirectory, Operation::kOpen}) {
    auto made = Ready(1);
    fs_.Fail(operation, ESTALE);
    EXPECT_FALSE(Fence(fs_, directory_, IdOf(1)).ok());
    fs_.Clear();
  }
}

TEST_F(PublishTest, AFailedSyncOfTheManifestIsAFailure) {
  auto made = TemporaryManifest::Create(fs_, directory_, IdOf(1), "record");
  ASSERT_TRUE(IsOk(made));
  fs_.Fail(Operation::kSync, EIO, 1, 1);
  EXPECT_EQ((*made)->WriteManifest(ManifestBytes(IdOf(1))).code(), StatusCode::kIoError);
}

TEST_F(PublishTest, AFailedSyncOfARankFileIsAFailureAndItKeepsItsName) {
  auto file =
      fs_.Open(directory_ / ".flagstone-1", {io::OpenOptions::Mode::kCreateExclusive, false});
  ASSERT_TRUE(IsOk(file));
  fs_.Fail(Operation::kSync, EIO, 1, 1);
  EXPECT_FALSE(
      PublishRankFile(fs_, **file, directory_ / ".flagstone-1", directory_ / "final").ok());
  EXPECT_THAT(NamesIn(directory_), UnorderedElementsAre(".flagstone-1"));
}

// D20: the order of one rank file and one manifest.
TEST_F(PublishTest, SyncsComeBeforeTheNamesTheyMakeDurable) {
  std::vector<Operation> order;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    switch (call.operation) {
      case Operation::kSync:
      case Operation::kRename:
      case Operation::kLink:
      case Operation::kSyncDirectory:
        order.push_back(call.operation);
        break;
      default:
        break;
    }
    return std::nullopt;
  });
  auto file =
      fs_.Open(directory_ / ".flagstone-1", {io::OpenOptions::Mode::kCreateExclusive, false});
  ASSERT_TRUE(
      IsOk(PublishRankFile(fs_, **file, directory_ / ".flagstone-1", directory_ / "final")));
  EXPECT_TRUE(IsOk(Ready(1)->Commit(false)));
  EXPECT_TRUE(IsOk(MoveLatest(fs_, root_.path(), "c", 1)));
  EXPECT_THAT(order, ::testing::ElementsAre(Operation::kSync, Operation::kRename,
                                            Operation::kSyncDirectory,  //
                                            Operation::kSync, Operation::kLink,
                                            Operation::kSyncDirectory,  //
                                            Operation::kSync, Operation::kRename,
                                            Operation::kSyncDirectory));
}

class LatestTest : public PublishTest {
 protected:
  void Save(const std::string& name, int id, int64_t committed_at) {
    std::filesystem::create_directory(root_ / name);
    const auto bytes = ManifestBytes(IdOf(id), committed_at);
    WriteText(root_ / name / "manifest.flagstone",
              {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  Status SaveAndMove(const std::string& name, int id, int64_t committed_at) {
    Save(name, id, committed_at);
    return MoveLatest(fs_, root_.path(), name, committed_at);
  }
};

TEST_F(LatestTest, MovesForwardOnly) {
  EXPECT_TRUE(IsOk(SaveAndMove("b", 2, 20)));
  EXPECT_TRUE(IsOk(SaveAndMove("a", 1, 10)));
  EXPECT_EQ(ReadText(root_ / "latest"), "b\n" + IdOf(2) + "\n");
  EXPECT_TRUE(IsOk(SaveAndMove("a", 3, 30)));
  EXPECT_EQ(ReadText(root_ / "latest"), "a\n" + IdOf(3) + "\n");
  // The same name saved again by a clock that went back.
  EXPECT_TRUE(IsOk(SaveAndMove("a", 4, 5)));
  EXPECT_EQ(ReadLatest(fs_, root_.path()).value()->save_id, IdOf(4));
}

TEST_F(LatestTest, ATargetThatIsGoneOrNonsenseIsReplaced) {
  for (const char* content : {"gone\n", "../up\n", "", "a\nnot an id\n"}) {
    WriteText(root_ / "latest", content);
    EXPECT_TRUE(IsOk(SaveAndMove("c", 1, 1)));
    EXPECT_EQ(ReadLatest(fs_, root_.path()).value()->name, "c");
  }
}

TEST_F(LatestTest, TroubleLeavesTheOldOneAndNothingElse) {
  WriteText(root_ / "latest", "c\n");
  for (const Operation operation :
       {Operation::kOpen, Operation::kWrite, Operation::kSync, Operation::kRename}) {
    fs_.Add([=](const Call& call) -> std::optional<Fault> {
      if (call.operation == operation &&
          call.path.filename().string().starts_with(kTemporaryLatestPrefix))
        return Fault{.error = ENOSPC};
      return std::nullopt;
    });
    EXPECT_FALSE(SaveAndMove("c", 1, 1).ok());
    fs_.Clear();
    EXPECT_EQ(ReadText(root_ / "latest"), "c\n");
    EXPECT_THAT(NamesIn(root_.path()), UnorderedElementsAre("c", "latest"));
  }
}

// Another save of the name has removed the temporary file as debris.
TEST_F(LatestTest, ATemporaryFileThatWasTakenForDebrisIsMadeAgain) {
  bool removed = false;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kRename && !std::exchange(removed, true))
      std::filesystem::remove(call.path);
    return std::nullopt;
  });
  EXPECT_TRUE(IsOk(SaveAndMove("c", 1, 1)));
  EXPECT_TRUE(removed);
  EXPECT_EQ(ReadText(root_ / "latest"), "c\n" + IdOf(1) + "\n");
}

// The name was saved again, and `latest` moved, before the slower of the two moves it.
TEST_F(LatestTest, TheIdIsThatOfTheSaveThatIsThere) {
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kRename) Save("c", 2, 2);
    return std::nullopt;
  });
  EXPECT_TRUE(IsOk(SaveAndMove("c", 1, 1)));
  EXPECT_EQ(ReadText(root_ / "latest"), "c\n" + IdOf(2) + "\n");
}

// A later save under another name comes while the temporary file is written.
TEST_F(LatestTest, ALaterCheckpointIsNotTakenBack) {
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kSync) return std::nullopt;
    Save("d", 4, 40);
    WriteText(root_ / "latest", "d\n" + IdOf(4) + "\n");
    return std::nullopt;
  });
  EXPECT_TRUE(IsOk(SaveAndMove("c", 1, 1)));
  EXPECT_EQ(ReadText(root_ / "latest"), "d\n" + IdOf(4) + "\n");
  EXPECT_THAT(NamesIn(root_.path()), UnorderedElementsAre("c", "d", "latest"));
}

// From before the commit point until `latest` is moved it holds the name alone: right for both.
TEST_F(LatestTest, AReplacedManifestIsNeverAnotherThanLatestSays) {
  Save("c", 1, 1);
  WriteText(root_ / "latest", "c\n" + IdOf(1) + "\n");
  std::string at_commit;
  fs_.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kRename && call.second_path.filename() == "manifest.flagstone")
      at_commit = ReadText(root_ / "latest");
    return std::nullopt;
  });
  EXPECT_TRUE(IsOk(Ready(2)->Commit(true)));
  EXPECT_EQ(at_commit, "c\n");
  EXPECT_EQ(ReadText(root_ / "latest"), "c\n");
  // One that names another checkpoint is not touched.
  WriteText(root_ / "latest", "d\n" + IdOf(9) + "\n");
  EXPECT_TRUE(IsOk(Ready(3)->Commit(true)));
  EXPECT_EQ(ReadText(root_ / "latest"), "d\n" + IdOf(9) + "\n");
}

}  // namespace
}  // namespace flagstone::store
