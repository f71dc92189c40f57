// SPDX-License-Identifier: Apache-2.0
// A whole save in which every single operation of the file system fails once.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "flagstone/checkpoint.h"
#include "flagstone/synth.h"
#include "flagstone/zero.h"
#include "io/process.h"
#include "save/publication.h"
#include "save/writer_factory.h"
#include "store/names.h"
#include "support/fault_file_system.h"
#include "support/temporary_directory.h"

namespace flagstone::save {
namespace {

using flagstone::testing::Call;
using flagstone::testing::Fault;
using flagstone::testing::FaultFileSystem;
using flagstone::testing::Operation;
using flagstone::testing::TemporaryDirectory;
using std::filesystem::path;
using ::testing::HasSubstr;

Layout MakeLayout(uint32_t world) {
  Layout layout;
  layout.world_size = world;
  Tensor tensor;
  tensor.name.push_back('t');
  tensor.shape = {1000};
  tensor.dtype = DType::kFloat32;
  layout.tensors = {tensor};
  layout.partitions = {
      MakeZero12(layout, "p", {0}, RankList::World(world), {{"fp32", DType::kFloat32}}).value()};
  return layout;
}

std::set<std::string> NamesBelow(const path& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    names.insert(entry.path().lexically_relative(directory).string());
  return names;
}

class SaveFaultTest : public ::testing::Test {
 protected:
  Result<SaveReport> SaveRank(io::FileSystem& fs, uint32_t rank, uint32_t world, float value,
                              SaveOptions options) {
    auto writer = WriterFactory::Make({&fs, &io::SystemProcesses()}, root_ / "c", MakeLayout(world),
                                      rank, std::move(options));
    if (!writer.ok()) return writer.status();
    const std::vector<float> values(1000 / world, value);
    const Status added = writer->Add("p", "fp32", std::as_bytes(std::span(values)));
    if (!added.ok()) return added;
    return writer->Commit();
  }
  // All ranks, as threads; the results.
  std::vector<Result<SaveReport>> Save(io::FileSystem& fs, uint32_t world, float value,
                                       const SaveOptions& options) {
    std::vector<Result<SaveReport>> results(world, Status(StatusCode::kInternal, "not run"));
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < world; ++rank) {
      ranks.emplace_back([&, rank] { results[rank] = SaveRank(fs, rank, world, value, options); });
    }
    for (std::thread& rank : ranks) rank.join();
    return results;
  }
  static SaveOptions Options(bool overwrite = true) {
    SaveOptions options;
    options.run = "run";
    options.overwrite = overwrite;
    options.timeout = std::chrono::milliseconds(1000);
    options.backend = Backend::kPread;
    return options;
  }
  // The value that the checkpoint holds everywhere; 0 when there is none.
  float Held() {
    const auto opened = Checkpoint::Open(root_ / "c");
    if (!opened.ok()) {
      EXPECT_EQ(opened.status().code(), StatusCode::kNotFound) << opened.status().ToString();
      return 0;
    }
    const auto verified = Verify(root_ / "c");
    EXPECT_TRUE(verified.ok() && verified->ok());
    if (std::filesystem::exists(root_ / "latest")) {
      const auto latest = Checkpoint::Open(root_.path());
      EXPECT_TRUE(latest.ok()) << latest.status().ToString();
    }
    float value = 0;
    for (uint32_t rank = 0; rank < opened->world_size(); ++rank) {
      const auto view = opened->OpenRank(rank).value().ViewSegment("p", "fp32");
      EXPECT_TRUE(view.ok());
      const auto* values = reinterpret_cast<const float*>(view->bytes().data());
      for (size_t i = 0; i < view->bytes().size() / sizeof(float); ++i) {
        if (value == 0) value = values[i];
        EXPECT_EQ(values[i], value);
      }
    }
    return value;
  }

  const TemporaryDirectory root_;
};

// Each operation of a save over an old one fails, one after the other: the old state or the new one
// is there, the result says which, and after the next success nothing is left.
TEST_F(SaveFaultTest, EveryOperationThatFailsOnceLeavesOldOrNew) {
  FaultFileSystem counting(io::PosixFileSystem());
  ASSERT_TRUE(Save(io::PosixFileSystem(), 1, 1, Options())[0].ok());
  ASSERT_TRUE(Save(counting, 1, 2, Options())[0].ok());
  const uint64_t steps = counting.steps();
  float held = 2;
  uint64_t failures = 0;
  uint64_t warnings = 0;
  for (uint64_t step = 1; step <= steps; ++step) {
    FaultFileSystem fs(io::PosixFileSystem());
    std::string what;
    fs.Add([&](const Call& call) -> std::optional<Fault> {
      if (call.step != step) return std::nullopt;
      what = std::to_string(static_cast<int>(call.operation)) + " " + call.path.string();
      return Fault{.error = EIO};
    });
    const float value = 3 + static_cast<float>(step);
    const auto result = Save(fs, 1, value, Options())[0];
    const float now = Held();
    if (result.ok()) {
      EXPECT_EQ(now, value) << "step " << step << ": " << what;
      warnings += result->warnings.size();
    } else if (result.status().message().find("durability unknown") != std::string::npos ||
               result.status().message().find("could not be found out") != std::string::npos) {
      EXPECT_TRUE(now == value || now == held) << what;
      ++failures;
    } else {
      EXPECT_EQ(now, held) << "step " << step << ": " << what << ": " << result.status().ToString();
      ++failures;
    }
    held = now;
  }
  EXPECT_GT(failures, 10U);
  EXPECT_GT(warnings, 1U);
  ASSERT_TRUE(Save(io::PosixFileSystem(), 1, 1, Options())[0].ok());
  // Entries whose removal failed stay as long as this process lives, which is their owner.
  std::set<std::string> names = NamesBelow(root_.path());
  std::erase_if(names, [](const std::string& name) {
    return store::ParseName(path(name).filename().string()).kind == store::NameKind::kKey;
  });
  EXPECT_EQ(names.size(), 4U) << "c, its two files, latest: " << ::testing::PrintToString(names);
}

// The same with nothing before it, and the directory goes with a save that fails early.
TEST_F(SaveFaultTest, AFirstSaveThatFailsLeavesNothing) {
  for (const Operation operation : {Operation::kAllocate, Operation::kSync, Operation::kWrite}) {
    FaultFileSystem fs(io::PosixFileSystem());
    fs.Add([&](const Call& call) -> std::optional<Fault> {
      const std::string name = call.path.filename().string();
      const bool data = store::ParseName(name).kind == store::NameKind::kPrivate;
      if (call.operation != operation || !data) return std::nullopt;
      return Fault{.error = ENOSPC};
    });
    for (const auto& result : Save(fs, 2, 1, Options(false))) {
      EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted)
          << result.status().ToString();
    }
    EXPECT_TRUE(NamesBelow(root_.path()).empty());
  }
}

// Another rank that fails removes the directory, empty as it is, before this one's first file.
TEST_F(SaveFaultTest, ADirectoryThatGoesIsMadeAgain) {
  FaultFileSystem fs(io::PosixFileSystem());
  std::atomic<int> removed = 0;
  fs.Add([&](const Call& call) -> std::optional<Fault> {
    const bool answers = call.path.filename().string().find(".answer-1-") != std::string::npos;
    if (call.operation == Operation::kOpen && answers && removed < 2) {
      std::error_code error;
      removed += std::filesystem::remove(root_ / "c", error) ? 1 : 0;
    }
    return std::nullopt;
  });
  std::vector<Result<SaveReport>> results(2, Status(StatusCode::kInternal, "not run"));
  std::thread other([&] { results[1] = SaveRank(fs, 1, 2, 1, Options()); });
  while (removed < 2) std::this_thread::yield();
  results[0] = SaveRank(io::PosixFileSystem(), 0, 2, 1, Options());
  other.join();
  for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(Held(), 1);
}

// Who is wrong before there is anything to write says so to the others too.
TEST_F(SaveFaultTest, ARankThatForgotATensorIsNamedToAll) {
  for (const uint32_t wrong : {0U, 1U}) {
    SaveOptions options = Options();
    options.timeout = std::chrono::minutes(10);
    std::vector<Status> results(2);
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        if (rank != wrong) {
          results[rank] = SaveRank(io::PosixFileSystem(), rank, 2, 1, options).status();
          return;
        }
        auto writer = WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()},
                                          root_ / "c", MakeLayout(2), rank, options);
        ASSERT_TRUE(writer.ok());
        results[rank] = writer->Commit().status();
      });
    }
    for (std::thread& rank : ranks) rank.join();
    for (const Status& result : results) {
      EXPECT_EQ(result.code(), StatusCode::kInvalidArgument) << result.ToString();
      EXPECT_THAT(result.message(), HasSubstr("did not give"));
    }
    EXPECT_THAT(results[1 - wrong].message(), HasSubstr(std::string("rank ") + "01"[wrong]));
    EXPECT_TRUE(NamesBelow(root_.path()).empty());
  }
}

// Each node has a disk of its own under the same path, and the board is elsewhere.
TEST_F(SaveFaultTest, RanksThatShareNoDirectoryMakeNoCheckpoint) {
  SaveOptions options = Options();
  options.coordinator = MakeInProcessCoordinator();
  std::vector<Status> results(2);
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      auto writer =
          WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()},
                              root_ / (rank == 0 ? "a" : "b") / "c", MakeLayout(2), rank, options);
      ASSERT_TRUE(writer.ok());
      const std::vector<float> values(500, 1);
      ASSERT_TRUE(writer->Add("p", "fp32", std::as_bytes(std::span(values))).ok());
      results[rank] = writer->Commit().status();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Status& result : results) {
    EXPECT_EQ(result.code(), StatusCode::kNotFound) << result.ToString();
    EXPECT_THAT(result.message(), HasSubstr("rank 1 wrote its file"));
    EXPECT_THAT(result.message(), HasSubstr("one directory of a shared file system"));
  }
  EXPECT_FALSE(std::filesystem::exists(root_ / "a" / "c"));
  EXPECT_FALSE(std::filesystem::exists(root_ / "b" / "c"));
}

// A path is the file system's to resolve.
TEST_F(SaveFaultTest, ALinkInThePathIsFollowedBeforeDotDot) {
  std::filesystem::create_directories(root_ / "deep" / "a");
  std::filesystem::create_symlink(root_ / "deep" / "a", root_ / "link");
  for (const char* name : {"link/../one", "deep/two/", "deep/./three/."}) {
    auto writer = WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()},
                                      root_ / name, MakeLayout(1), 0, Options());
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    const std::vector<float> values(1000, 1);
    ASSERT_TRUE(writer->Add("p", "fp32", std::as_bytes(std::span(values))).ok());
    ASSERT_TRUE(writer->Commit().ok());
    EXPECT_TRUE(Checkpoint::Open(root_ / name).ok()) << name;
  }
  for (const char* name : {"one", "two", "three"})
    EXPECT_TRUE(std::filesystem::exists(root_ / "deep" / name / "manifest.flagstone")) << name;
}

TEST_F(SaveFaultTest, NamesThatNoCheckpointHasAreRefused) {
  for (const char* name : {"..", "a/..", "latest", ".flagstone-x", "a\nb"}) {
    EXPECT_EQ(WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()}, root_ / name,
                                  MakeLayout(1), 0, Options())
                  .status()
                  .code(),
              StatusCode::kInvalidArgument)
        << name;
    EXPECT_EQ(WriteManifestOnly(root_ / name, MakeLayout(1), {}).status().code(),
              StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(SaveFaultTest, OptionsWithoutSenseAreRefused) {
  const auto code = [&](SaveOptions options) {
    return WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()}, root_ / "c",
                               MakeLayout(1), 0, std::move(options))
        .status()
        .code();
  };
  SaveOptions options = Options();
  options.timeout = std::chrono::milliseconds::max();
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = Options();
  options.sync_timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = Options();
  options.queue_depth = kMaxQueueDepth + 1;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = Options();
  options.timeout = std::chrono::hours(24 * 365);
  EXPECT_EQ(code(options), StatusCode::kOk);
}

TEST_F(SaveFaultTest, AWriterIsUsedOnce) {
  auto writer = WriterFactory::Make({&io::PosixFileSystem(), &io::SystemProcesses()}, root_ / "c",
                                    MakeLayout(1), 0, Options());
  ASSERT_TRUE(writer.ok());
  const std::vector<float> values(1000, 1);
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_FALSE(writer->Commit().ok()) << "nothing was given";
  EXPECT_EQ(writer->Add("p", "fp32", bytes).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Commit().status().code(), StatusCode::kInvalidArgument);
  Writer moved = *std::move(writer);
  EXPECT_EQ(writer->Add("p", "fp32", bytes).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->SetRankState({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(writer->Commit().status().code(), StatusCode::kInvalidArgument);
}

// The failure of one rank's sync after its rename: the file goes under its final name.
TEST_F(SaveFaultTest, ARankWhoseDirectorySyncFailsIsNamed) {
  FaultFileSystem broken(io::PosixFileSystem());
  broken.Fail(Operation::kSyncDirectory, EIO);
  std::filesystem::create_directory(root_ / "c");
  std::vector<Result<SaveReport>> results(2, Status(StatusCode::kInternal, "not run"));
  std::thread other([&] { results[1] = SaveRank(broken, 1, 2, 1, Options()); });
  results[0] = SaveRank(io::PosixFileSystem(), 0, 2, 1, Options());
  other.join();
  for (const auto& result : results) EXPECT_EQ(result.status().code(), StatusCode::kIoError);
  EXPECT_THAT(results[0].status().message(), HasSubstr("rank 1"));
  EXPECT_TRUE(NamesBelow(root_.path()).empty());
}

// Somebody fences the attempt while the coordinator is about to commit.
TEST_F(SaveFaultTest, ASaveThatIsFencedBeforeItsCommitIsCancelledOnAllRanks) {
  ASSERT_TRUE(Save(io::PosixFileSystem(), 2, 1, Options())[0].ok());
  FaultFileSystem fs(io::PosixFileSystem());
  fs.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kRename &&
        store::ParseName(call.path.filename().string()).kind == store::NameKind::kTemporaryManifest)
      std::filesystem::remove(call.path);
    return std::nullopt;
  });
  for (const auto& result : Save(fs, 2, 2, Options())) {
    EXPECT_EQ(result.status().code(), StatusCode::kCancelled) << result.status().ToString();
    EXPECT_THAT(result.status().message(), HasSubstr("given up by another participant"));
  }
  EXPECT_EQ(Held(), 1);
  EXPECT_EQ(NamesBelow(root_.path()).size(), 5U);
}

// The rename was done and its answer lost.
TEST_F(SaveFaultTest, ACommitThatReportsAnErrorButHappenedIsASuccess) {
  FaultFileSystem fs(io::PosixFileSystem());
  fs.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kRename ||
        store::ParseName(call.path.filename().string()).kind != store::NameKind::kTemporaryManifest)
      return std::nullopt;
    std::filesystem::rename(call.path, call.second_path);
    return Fault{.error = EIO};
  });
  for (const auto& result : Save(fs, 2, 2, Options())) {
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_TRUE(result->warnings.empty());
    EXPECT_GT(result->committed_at, 0);
  }
  EXPECT_EQ(Held(), 2);
  EXPECT_EQ(NamesBelow(root_.path()).size(), 5U);
}

// Neither the old files nor the new ones may go, and every rank knows.
TEST_F(SaveFaultTest, DurabilityUnknownIsSaidOnAllRanksAndNothingIsRemoved) {
  ASSERT_TRUE(Save(io::PosixFileSystem(), 2, 1, Options())[0].ok());
  const auto before = NamesBelow(root_ / "c");
  FaultFileSystem fs(io::PosixFileSystem());
  std::atomic<bool> committed = false;
  fs.Add([&](const Call& call) -> std::optional<Fault> {
    if (call.operation == Operation::kRename && call.second_path.filename() == "manifest.flagstone")
      committed = true;
    if (call.operation == Operation::kSyncDirectory && committed) return Fault{.error = EIO};
    return std::nullopt;
  });
  for (const auto& result : Save(fs, 2, 2, Options())) {
    EXPECT_EQ(result.status().code(), StatusCode::kIoError);
    EXPECT_THAT(result.status().message(), HasSubstr("committed, durability unknown"));
  }
  const auto after = NamesBelow(root_ / "c");
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  EXPECT_EQ(after.size(), before.size() + 2);
  EXPECT_EQ(Held(), 2);
}

TEST_F(SaveFaultTest, AManifestAloneObeysTheSameRules) {
  const path name = root_ / "only";
  SaveOptions options;
  const auto first = WriteManifestOnly(name, MakeLayout(2), options);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(WriteManifestOnly(name, MakeLayout(2), options).status().code(),
            StatusCode::kAlreadyExists);
  options.overwrite = true;
  const auto second = WriteManifestOnly(name, MakeLayout(2), options);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(second->committed_at, first->committed_at);
  EXPECT_EQ(NamesBelow(root_.path()).size(), 3U);
}

// Later than what it replaces and than what `latest` names, whatever the clock says.
TEST_F(SaveFaultTest, CommitTimesRise) {
  ASSERT_TRUE(Save(io::PosixFileSystem(), 1, 1, Options())[0].ok());
  const int64_t committed = Checkpoint::Open(root_ / "c")->committed_at();
  EXPECT_GT(CommitTime(io::PosixFileSystem(), root_ / "c"), committed);
  EXPECT_GT(CommitTime(io::PosixFileSystem(), root_ / "new"), committed);
}

}  // namespace
}  // namespace flagstone::save
