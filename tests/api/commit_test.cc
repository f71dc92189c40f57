// SPDX-License-Identifier: Apache-2.0
// Saves by real processes that go well, or are refused before anything is written.

#include <grp.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "commit_support.h"

namespace flagstone::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CommitTest, FourProcessesSaveAndEveryRanksBytesComeBack) {
  const CommitDirectory scratch;
  const RankSave save{.checkpoint = scratch / "step-1", .world = 4, .options = OptionsOf("a")};
  SaveWell(save);
  const std::string id = ExpectHolds(save);
  ExpectClean(save.checkpoint, 4);
  EXPECT_EQ(ContentOf(scratch / "latest"), "step-1\n" + id + "\n");
  EXPECT_THAT(NamesIn(scratch.root()), ::testing::ElementsAre("latest", "step-1"));
}

TEST(CommitTest, NeverMoreThanTwoFilesARankAndFour) {
  const CommitDirectory scratch;
  const RankSave save{.checkpoint = scratch / "c", .world = 4, .options = OptionsOf("a")};
  auto ranks = StartAll(save);
  size_t most = 0;
  WaitFor(
      [&] {
        most = std::max(most, NamesIn(save.checkpoint).size());
        return std::filesystem::exists(scratch / "latest");
      },
      "the commit");
  for (const RankResult& result : WaitAll(ranks)) EXPECT_TRUE(result.ok()) << result;
  EXPECT_GT(most, 4U);
  EXPECT_LE(most, 2U * 4 + 4);
}

TEST(CommitTest, OverwriteReplacesAllFilesAndKeepsForeignOnes) {
  const CommitDirectory scratch;
  RankSave save{.checkpoint = scratch / "c", .world = 3, .options = OptionsOf("a")};
  SaveWell(save);
  std::ofstream(save.checkpoint / "notes.txt") << "mine";
  std::ofstream(save.checkpoint / "rank_7.bak") << "mine too";
  save.world = 2;
  save.seed = 2;
  save.options = OptionsOf("b", /*overwrite=*/true);
  SaveWell(save);
  ExpectHolds(save);
  EXPECT_EQ(ContentOf(save.checkpoint / "notes.txt"), "mine");
  EXPECT_EQ(ContentOf(save.checkpoint / "rank_7.bak"), "mine too");
  EXPECT_EQ(NamesIn(save.checkpoint).size(), 3U + 2U);
}

TEST(CommitTest, AnOpenCheckpointStaysReadableWhenItIsReplaced) {
  const CommitDirectory scratch;
  RankSave save{.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("a")};
  SaveWell(save);
  const auto opened = Checkpoint::Open(save.checkpoint);
  ASSERT_TRUE(opened.ok());
  const auto reader = opened->OpenRank(0);
  ASSERT_TRUE(reader.ok());
  const auto view = reader->ViewSegment("p", "fp32");
  ASSERT_TRUE(view.ok());
  const std::vector<std::byte> before(view->bytes().begin(), view->bytes().end());
  save.seed = 2;
  save.options = OptionsOf("b", true);
  SaveWell(save);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), view->bytes().begin()));
  const auto late = opened->OpenRank(1);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(late.status().message(), HasSubstr("replaced by save"));
}

TEST(CommitTest, ANameThatExistsIsRefused) {
  const CommitDirectory scratch;
  RankSave save{.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("a")};
  SaveWell(save);
  save.seed = 2;
  save.options = OptionsOf("b");
  auto ranks = StartAll(save);
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_EQ(result.code, StatusCode::kAlreadyExists) << result;
    EXPECT_THAT(result.message, HasSubstr(save.checkpoint.string()));
  }
  save.seed = 1;
  ExpectHolds(save);
  ExpectClean(save.checkpoint, 2);
}

TEST(CommitTest, ARelativePathOfOneComponent) {
  const CommitDirectory scratch;
  RankProcess rank([&]() -> Result<SaveReport> {
    if (chdir(scratch.root().c_str()) != 0) return Status(StatusCode::kInternal, "chdir");
    return SaveRank({.checkpoint = "here", .options = OptionsOf("a")});
  });
  const RankResult result = rank.Wait();
  EXPECT_TRUE(result.ok()) << result;
  EXPECT_THAT(result.warnings, IsEmpty());
  EXPECT_THAT(NamesIn(scratch.root()), ::testing::ElementsAre("here", "latest"));
}

TEST(CommitTest, NamesAndRunsOfAnyBytes) {
  const CommitDirectory scratch;
  const RankSave save{
      .checkpoint = scratch / "caf\xe9", .world = 2, .options = OptionsOf("\xff\n")};
  SaveWell(save);
  ExpectHolds(save);
}

TEST(CommitTest, SeveralRanksOverTheFileSystemNeedARun) {
  const CommitDirectory scratch;
  auto ranks =
      StartAll({.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("")}, [](RankSave&) {
        for (const char* name :
             {"FLAGSTONE_RUN", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"})
          unsetenv(name);
      });
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_EQ(result.code, StatusCode::kInvalidArgument) << result;
    EXPECT_THAT(result.message, HasSubstr("SaveOptions::run"));
  }
  EXPECT_THAT(NamesIn(scratch.root()), IsEmpty());
}

TEST(CommitTest, TheLaunchersJobIsTheRun) {
  const CommitDirectory scratch;
  const RankSave save{.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("")};
  std::vector<RankProcess> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&save, rank] {
      unsetenv("FLAGSTONE_RUN");
      setenv("TORCHELASTIC_RUN_ID", "none", 1);  // does not count
      setenv("SLURM_JOB_ID", "77", 1);
      RankSave mine = save;
      mine.rank = rank;
      return SaveRank(mine);
    });
  }
  for (const RankResult& result : WaitAll(ranks)) EXPECT_TRUE(result.ok()) << result;
  ExpectHolds(save);
}

// E12
TEST(CommitTest, ModesAreTheUmasksAndOverwriteKeepsThem) {
  const CommitDirectory scratch;
  const auto mode_of = [](const path& file) {
    struct stat info {};
    return stat(file.c_str(), &info) == 0 ? info.st_mode & 0777U : 0U;
  };
  const auto save_with = [&](mode_t mask, const path& name, bool overwrite) {
    RankProcess rank([&] {
      umask(mask);
      return SaveRank({.checkpoint = name, .options = OptionsOf("a", overwrite)});
    });
    const RankResult result = rank.Wait();
    EXPECT_TRUE(result.ok()) << result;
  };
  for (const auto& [mask, mode] : std::map<mode_t, mode_t>{{022, 0644}, {027, 0640}, {077, 0600}}) {
    const path name = scratch / (Numbered("m", mask));
    save_with(mask, name, false);
    for (const std::string& file : NamesIn(name)) EXPECT_EQ(mode_of(name / file), mode) << file;
    chmod((name / "manifest.flagstone").c_str(), 0660);
    save_with(mask, name, true);
    for (const std::string& file : NamesIn(name)) EXPECT_EQ(mode_of(name / file), 0660U) << file;
  }
}

// B12: each rank numbers its experts from 0.
TEST(CommitTest, TwoRanksWithTheSameTensorInUnlikePartitions) {
  const CommitDirectory scratch;
  auto ranks = StartAll(
      {.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("a")}, [](RankSave& save) {
        Layout layout = OneTensor(2, 100);
        layout.tensors[0].name = "experts.0.w";
        layout.partitions[0] =
            MakeWhole(Numbered("experts-", save.rank), {0}, RankList::Of({save.rank}),
                      {{"fp32", DType::kFloat32}}, {0});
        save.layout = layout;
      });
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_EQ(result.code, StatusCode::kInvalidArgument) << result;
    EXPECT_THAT(result.message,
                AllOf(HasSubstr("experts.0.w"), HasSubstr("rank 0"), HasSubstr("rank 1")));
  }
  EXPECT_THAT(NamesIn(scratch.root()), IsEmpty());
}

TEST(CommitTest, TwoRanksThatDeclareATensorUnlike) {
  const CommitDirectory scratch;
  auto ranks = StartAll({.checkpoint = scratch / "c", .world = 3, .options = OptionsOf("a")},
                        [](RankSave& save) {
                          save.layout = OneTensor(3, 100);
                          save.layout->tensors[0].trainable = save.rank != 2;
                        });
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_EQ(result.code, StatusCode::kInvalidArgument) << result;
    EXPECT_THAT(result.message, AllOf(HasSubstr("'t'"), HasSubstr("rank 0"), HasSubstr("rank 2"),
                                      HasSubstr("trainable")));
  }
  EXPECT_THAT(NamesIn(scratch.root()), IsEmpty());
}

TEST(CommitTest, TwoProcessesWithOneRankAreNamedBoth) {
  const CommitDirectory scratch;
  const RankSave save{.checkpoint = scratch / "c", .world = 2, .options = OptionsOf("a")};
  RankSave second = save;
  second.rank = 1;
  RankProcess first_one(second);
  RankProcess second_one(second);
  ASSERT_TRUE(WaitFor(
      [&] {
        // With their bytes: one that is still empty may be passed over.
        const auto names = NamesIn(save.checkpoint);
        return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
                 return name.find(".answer-1-") != std::string::npos &&
                        file_size(save.checkpoint / name) > 0;
               }) == 2;
      },
      "two answers"));
  RankProcess coordinator(save);
  for (RankProcess* process : {&coordinator, &first_one, &second_one}) {
    const RankResult result = process->Wait();
    EXPECT_EQ(result.code, StatusCode::kInvalidArgument) << result;
    EXPECT_THAT(result.message, AllOf(HasSubstr("rank 1"), HasSubstr("two live processes")));
  }
  EXPECT_THAT(NamesIn(scratch.root()), IsEmpty());
}

TEST(CommitTest, ADirectoryWithoutPermission) {
  const CommitDirectory scratch;
  chmod(scratch.root().c_str(), 0755);
  const path root = scratch / "closed";
  std::filesystem::create_directory(root);
  chmod(root.c_str(), 0555);
  std::vector<RankProcess> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank]() -> Result<SaveReport> {
      if (IsRoot() && (setgroups(0, nullptr) != 0 || setresgid(65534, 65534, 65534) != 0 ||
                       setresuid(65534, 65534, 65534) != 0))
        return Status(StatusCode::kInternal, "setresuid");
      if (access(root.c_str(), X_OK) != 0) return Status(StatusCode::kUnsupported, "unreachable");
      // A rank must not wait for what cannot come: the limit is far beyond the test's.
      return SaveRank({.checkpoint = root / "c",
                       .rank = rank,
                       .world = 2,
                       .options = OptionsOf("a", false, std::chrono::minutes(10))});
    });
  }
  for (const RankResult& result : WaitAll(ranks)) {
    if (result.code == StatusCode::kUnsupported)
      GTEST_SKIP() << "user: the directory of temporary files is not open to an ordinary user";
    EXPECT_FALSE(result.ok());
    EXPECT_THAT(result.message, AllOf(HasSubstr("ermission denied"), HasSubstr(root.string())));
  }
  EXPECT_THAT(NamesIn(root), IsEmpty());
}

// E01, E04: a full disk.
TEST(CommitTest, AFullDiskLeavesTheOldCheckpointAndNothingElse) {
  const CommitDirectory scratch;
  const path disk = scratch / "disk";
  std::filesystem::create_directory(disk);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8M") != 0)
    GTEST_SKIP() << "user: a small file system cannot be mounted: " << std::strerror(errno);
  struct Unmount {
    const path& disk;
    ~Unmount() { umount2(disk.c_str(), MNT_DETACH); }
  } const unmount{disk};
  RankSave save{.checkpoint = disk / "c", .world = 2, .options = OptionsOf("a", true)};
  SaveWell(save);
  RankSave large = save;
  large.elements = 25'000'000;
  large.seed = 2;
  for (const char* name : {"c", "other"}) {
    large.checkpoint = disk / name;
    auto ranks = StartAll(large);
    for (const RankResult& result : WaitAll(ranks)) {
      EXPECT_EQ(result.code, StatusCode::kResourceExhausted) << result;
      EXPECT_THAT(result.message, AllOf(HasSubstr("No space left"), HasSubstr(disk.string())));
    }
  }
  ExpectHolds(save);
  ExpectClean(save.checkpoint, 2);
  EXPECT_THAT(NamesIn(disk), ::testing::ElementsAre("c", "latest"));
  save.seed = 3;
  SaveWell(save);
  ExpectHolds(save);
}

size_t OpenDescriptors() { return NamesIn("/proc/self/fd").size(); }

// E04
TEST(CommitTest, ManySavesAndFailuresKeepNoDescriptorAndNoMemory) {
  const CommitDirectory scratch;
  RankProcess rank([&]() -> Result<SaveReport> {
    RankSave save{.checkpoint = scratch / "c", .options = OptionsOf("a", true)};
    RankSave failing = save;
    std::stop_source stopped;
    stopped.request_stop();
    failing.options.stop = stopped.get_token();
    size_t descriptors = 0;
    uint64_t memory = 0;
    for (int i = 0; i < 100; ++i) {
      save.seed = static_cast<uint64_t>(i);
      auto report = SaveRank(save);
      if (!report.ok() || !report->warnings.empty() || i == 99) return report;
      if (SaveRank(failing).status().code() != StatusCode::kCancelled)
        return Status(StatusCode::kInternal, "a stopped save was not cancelled");
      if (i == 0) {
        descriptors = OpenDescriptors();
        memory = LibraryMemory().current_bytes;
      } else if (OpenDescriptors() != descriptors || LibraryMemory().current_bytes != memory) {
        return Status(StatusCode::kInternal,
                      Numbered("descriptors or memory grew in save ", save.seed));
      }
    }
    return Status(StatusCode::kInternal, "not reached");
  });
  const RankResult result = rank.Wait();
  EXPECT_TRUE(result.ok()) << result;
  EXPECT_EQ(NamesIn(scratch / "c").size(), 2U);
}

}  // namespace
}  // namespace flagstone::testing
