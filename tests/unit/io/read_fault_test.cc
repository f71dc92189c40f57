// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "io_test_util.h"
#include "support/fault_file_system.h"

namespace flagstone::io {
namespace {

using flagstone::testing::Call;
using flagstone::testing::Fault;
using flagstone::testing::FaultFileSystem;
using flagstone::testing::Operation;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMega = uint64_t{1} << 20;
constexpr uint64_t kSize = 4 * kMega + 700;

class ReadFaultTest : public IoTest {
 protected:
  void SetUp() override {
    IoTest::SetUp();
    WriteTestFile(path_, kSize);
    file_ = OpenForReading(fs_, path_);
  }
  void TearDown() override {
    file_.reset();
    IoTest::TearDown();
  }

  // Read the file in blocks into memory, congruent or not, and check every byte.
  Result<ReadStats> Read(const ReadOptions& options, uint64_t modulo = 0) {
    GuardedMemory memory(kSize, modulo);
    const std::vector<ReadRange> ranges = {
        {.offset = 0, .size = kSize, .block_bytes = 65536, .destination = memory.bytes()}};
    BlockChecker checker(ranges);
    auto stats = ReadRanges(fs_, {&file_, 1}, ranges, checker.consumer(), options);
    if (stats.ok()) {
      EXPECT_TRUE(checker.Complete());
      EXPECT_TRUE(std::ranges::equal(memory.bytes(), Expected(0, kSize)));
    }
    EXPECT_TRUE(memory.GuardsIntact());
    return stats;
  }
  static ReadOptions Forced(Backend backend) {
    ReadOptions options;
    options.backend = backend;
    return options;
  }
  static ReadOptions Chosen(Backend backend) {
    ReadOptions options;
    options.chosen = BackendChoice{backend, "as a test wants it"};
    return options;
  }
  bool HasDirect() { return Works(fs_, file_, Backend::kUringDirect); }
  bool HasRing() { return Works(fs_, file_, Backend::kUring); }
  std::vector<Backend> QueueBackends() {
    auto backends = WorkingBackends(fs_, file_);
    std::erase(backends, Backend::kMmap);
    return backends;
  }

  const std::filesystem::path path_ = directory_ / "file";
  FaultFileSystem fs_{PosixFileSystem()};
  std::shared_ptr<File> file_;
};

TEST_F(ReadFaultTest, ShortReadsAreContinued) {
  for (const Backend backend : QueueBackends()) {
    for (const uint64_t modulo : {0U, 64U}) {
      SCOPED_TRACE(::testing::Message() << Name(backend) << ", modulo " << modulo);
      std::mt19937_64 random(17);
      fs_.Add([&random](const Call& call) -> std::optional<Fault> {
        if (call.operation != Operation::kRead) return std::nullopt;
        constexpr uint64_t kShort[] = {1, 513, 4096 * 3 + 3, 100'000};
        const uint64_t which = random() % 8;
        if (which >= 4) return std::nullopt;
        return Fault{.at_most = kShort[which]};
      });
      const auto stats = Read(Forced(backend), modulo);
      EXPECT_TRUE(IsOk(stats));
      EXPECT_GT(stats->read_calls, kSize / kMega + 1);
      fs_.Clear();
    }
  }
}

TEST_F(ReadFaultTest, ReadsThatNeverGetOnEnd) {
  // Direct reads have to go back to the last aligned byte and so gain nothing by one byte at a
  // time.
  if (!HasDirect()) GTEST_SKIP() << "no io_uring with O_DIRECT here";
  fs_.Add([](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kRead) return std::nullopt;
    return Fault{.at_most = 1};
  });
  const Status status = Read(Forced(Backend::kUringDirect)).status();
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(), HasSubstr("no progress"));
}

TEST_F(ReadFaultTest, NothingBeforeTheEndIsTruncation) {
  for (const Backend backend : QueueBackends()) {
    SCOPED_TRACE(Name(backend));
    fs_.Add([](const Call& call) -> std::optional<Fault> {
      if (call.operation != Operation::kRead || call.offset < kMega) return std::nullopt;
      return Fault{.at_most = 0};
    });
    const Status status = Read(Forced(backend)).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("truncated"), HasSubstr("need")));
    fs_.Clear();
  }
}

// The file is cut after its length was looked at.
TEST_F(ReadFaultTest, FileThatShrinksWhileItIsRead) {
  for (const Backend backend : QueueBackends()) {
    SCOPED_TRACE(Name(backend));
    WriteTestFile(path_, kSize);
    bool cut = false;
    fs_.Add([&](const Call& call) -> std::optional<Fault> {
      if (call.operation == Operation::kRead && !cut) {
        cut = true;
        EXPECT_EQ(truncate(path_.c_str(), kSize - 1), 0);
      }
      return std::nullopt;
    });
    const Status status = Read(Forced(backend)).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(),
                HasSubstr("have " + std::to_string(kSize - 1) + " need " + std::to_string(kSize)));
    fs_.Clear();
  }
}

TEST_F(ReadFaultTest, BadSectorNamesFileAndPlace) {
  for (const Backend backend : QueueBackends()) {
    SCOPED_TRACE(Name(backend));
    fs_.FailRange(Operation::kRead, path_, 2 * kMega + 5, 2 * kMega + 6, EIO);
    const Status status = Read(Forced(backend)).status();
    EXPECT_EQ(status.code(), StatusCode::kIoError);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(path_.native()), HasSubstr("EIO"),
                                        HasSubstr("offset " + std::to_string(2 * kMega))));
    EXPECT_EQ(status.place().path, path_.native());
    EXPECT_EQ(status.place().offset, 2 * kMega);
    fs_.Clear();
  }
  fs_.Fail(Operation::kMap, EIO, 2);
  EXPECT_EQ(Read(Forced(Backend::kMmap)).status().code(), StatusCode::kIoError);
}

TEST_F(ReadFaultTest, InterruptedRequestsAreSubmittedAgain) {
  if (!HasRing()) GTEST_SKIP() << "no io_uring here";
  for (const int error : {EAGAIN, EINTR}) {
    fs_.Add([error](const Call& call) -> std::optional<Fault> {
      if (call.operation != Operation::kRead || call.number % 3 == 0) return std::nullopt;
      return Fault{.error = error};
    });
    EXPECT_TRUE(IsOk(Read(Forced(Backend::kUring))));
    fs_.Clear();
    fs_.Fail(Operation::kRead, error);
    EXPECT_EQ(Read(Forced(Backend::kUring)).status().code(), StatusCode::kIoError)
        << "but not for ever";
    fs_.Clear();
  }
}

class RingRefusedTest : public ReadFaultTest, public ::testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Errors, RingRefusedTest, ::testing::Values(EPERM, ENOSYS, ENOMEM));

TEST_P(RingRefusedTest, FallsBackToThreadsAndSaysWhy) {
  fs_.Fail(Operation::kMakeUring, GetParam());
  for (const Backend backend : {Backend::kUringDirect, Backend::kUring}) {
    const auto stats = Read(Chosen(backend));
    ASSERT_TRUE(IsOk(stats));
    EXPECT_EQ(stats->backend.backend, Backend::kPread);
    EXPECT_THAT(stats->backend.reason,
                AllOf(HasSubstr("as a test wants it; "), HasSubstr("io_uring cannot be used"),
                      HasSubstr(strerrorname_np(GetParam()))));
    const Status forced = Read(Forced(backend)).status();
    EXPECT_EQ(forced.code(), StatusCode::kUnsupported);
    const auto choice = ChooseReadBackend(fs_, {&file_, 1}, backend);
    EXPECT_EQ(choice.status(), forced);
  }
  const auto chosen = ChooseReadBackend(fs_, {&file_, 1}, Backend::kAuto);
  ASSERT_TRUE(IsOk(chosen));
  EXPECT_EQ(chosen->backend, Backend::kPread);
}

TEST_F(ReadFaultTest, DirectRefusedAtOpen) {
  if (!HasRing()) GTEST_SKIP() << "no io_uring here";
  fs_.Fail(Operation::kOpenDirect, EINVAL);
  const auto stats = Read(Chosen(Backend::kUringDirect), 64);
  ASSERT_TRUE(IsOk(stats));
  EXPECT_EQ(stats->backend.backend, Backend::kUring);
  EXPECT_THAT(stats->backend.reason, AllOf(HasSubstr("as a test wants it; "), HasSubstr("EINVAL")));
  EXPECT_EQ(stats->copied_bytes, 0U) << "through the page cache any memory can be read into";
  EXPECT_EQ(Read(Forced(Backend::kUringDirect)).status().code(), StatusCode::kUnsupported);
}

TEST_F(ReadFaultTest, DirectRefusedAtTheFirstRead) {
  if (!HasDirect()) GTEST_SKIP() << "no io_uring with O_DIRECT here";
  fs_.Add([](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kRead || !call.direct) return std::nullopt;
    return Fault{.error = EINVAL};
  });
  for (const uint64_t modulo : {0U, 64U}) {
    const auto stats = Read(Chosen(Backend::kUringDirect), modulo);
    ASSERT_TRUE(IsOk(stats));
    EXPECT_EQ(stats->backend.backend, Backend::kUring);
    EXPECT_THAT(stats->backend.reason,
                AllOf(HasSubstr("as a test wants it; "), HasSubstr("direct reads are refused"),
                      HasSubstr("EINVAL")));
  }
  const Status forced = Read(Forced(Backend::kUringDirect)).status();
  EXPECT_EQ(forced.code(), StatusCode::kUnsupported);
  EXPECT_THAT(forced.message(), HasSubstr("direct reads are refused"));
}

// A block of several requests, of which some were direct and fail one after the other.
TEST_F(ReadFaultTest, DirectRefusedInTheMiddleOfABlock) {
  if (!HasDirect()) GTEST_SKIP() << "no io_uring with O_DIRECT here";
  fs_.Add([](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kRead || !call.direct || call.number % 2 == 0) {
      return std::nullopt;
    }
    return Fault{.error = EINVAL};
  });
  GuardedMemory memory(4 * kMega, 0);
  const std::vector<ReadRange> ranges = {
      {.offset = 0, .size = 4 * kMega, .block_bytes = 0, .destination = memory.bytes()}};
  ReadOptions options = Chosen(Backend::kUringDirect);
  options.request_bytes = 65536;
  BlockChecker checker(ranges);
  const auto stats = ReadRanges(fs_, {&file_, 1}, ranges, checker.consumer(), options);
  ASSERT_TRUE(IsOk(stats));
  EXPECT_TRUE(checker.Complete());
}

TEST_F(ReadFaultTest, NoDescriptorLeftForDirectReads) {
  if (!HasRing()) GTEST_SKIP() << "no io_uring here";
  fs_.Fail(Operation::kOpenDirect, EMFILE);
  const auto stats = Read(Chosen(Backend::kUringDirect));
  ASSERT_TRUE(IsOk(stats));
  EXPECT_EQ(stats->backend.backend, Backend::kUring);
  EXPECT_THAT(stats->backend.reason, HasSubstr("EMFILE"));
}

// The name leads to another file by now: its bytes must not be read.
TEST_F(ReadFaultTest, NameWasTakenByAnotherFile) {
  if (!HasDirect()) GTEST_SKIP() << "no io_uring with O_DIRECT here";
  std::filesystem::rename(path_, directory_ / "old");
  {
    auto other = PosixFileSystem().Open(path_, {.mode = OpenOptions::Mode::kCreate});
    ASSERT_TRUE(IsOk(other));
    ASSERT_TRUE(IsOk((*other)->Truncate(kSize)));
  }
  const auto stats = Read(Chosen(Backend::kUringDirect));
  ASSERT_TRUE(IsOk(stats));
  EXPECT_EQ(stats->backend.backend, Backend::kUring);
  EXPECT_THAT(stats->backend.reason, HasSubstr("another file has taken the name"));
  EXPECT_EQ(Read(Forced(Backend::kUringDirect)).status().code(), StatusCode::kUnsupported);
}

TEST_F(ReadFaultTest, NoThreadsAndNoRingIsAnError) {
  fs_.Fail(Operation::kMakeUring, ENOSYS);
  fs_.Fail(Operation::kMakeThreads, EAGAIN);
  EXPECT_EQ(Read(Chosen(Backend::kUring)).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(IsOk(Read(Forced(Backend::kMmap))));
}

TEST_F(ReadFaultTest, LengthCannotBeAsked) {
  fs_.Fail(Operation::kInfo, EIO);
  for (const Backend backend : {Backend::kPread, Backend::kMmap}) {
    EXPECT_EQ(Read(Forced(backend)).status().code(), StatusCode::kIoError);
  }
}

// Whatever fails, and wherever: an error, and nothing in flight, open or mapped (the fixture
// checks).
TEST_F(ReadFaultTest, EveryReadMayBeTheOneThatFails) {
  for (const Backend backend : QueueBackends()) {
    for (uint64_t nth = 1;; ++nth) {
      SCOPED_TRACE(::testing::Message() << Name(backend) << ", read " << nth);
      const uint64_t before = fs_.calls(Operation::kRead);
      fs_.Fail(Operation::kRead, EIO, before + nth, 1);
      const auto stats = Read(Forced(backend), 64);
      fs_.Clear();
      if (stats.ok()) {
        EXPECT_LT(fs_.calls(Operation::kRead) - before, nth);
        break;
      }
      EXPECT_EQ(stats.status().code(), StatusCode::kIoError);
    }
  }
}

TEST(FaultFileSystemTest, CountsAndFailsEveryOperation) {
  flagstone::testing::TemporaryDirectory directory;
  FaultFileSystem fs(PosixFileSystem());
  const auto a = directory / "a";
  std::vector<Operation> seen;
  fs.Add([&](const Call& call) -> std::optional<Fault> {
    EXPECT_EQ(call.step, seen.size() + 1);
    seen.push_back(call.operation);
    return Fault{.error = EPERM};
  });
  EXPECT_FALSE(fs.Open(a, {}).ok());
  EXPECT_FALSE(fs.Open(a, {.direct = true}).ok());
  EXPECT_FALSE(fs.Stat(a).ok());
  EXPECT_FALSE(fs.List(a).ok());
  EXPECT_FALSE(fs.MakeDirectory(a).ok());
  EXPECT_FALSE(fs.RemoveDirectory(a).ok());
  EXPECT_FALSE(fs.Unlink(a).ok());
  EXPECT_FALSE(fs.Rename(a, a).ok());
  EXPECT_FALSE(fs.RenameNoReplace(a, a).ok());
  EXPECT_FALSE(fs.Link(a, a).ok());
  EXPECT_FALSE(fs.SyncDirectory(a).ok());
  EXPECT_FALSE(fs.MakeQueue(QueueKind::kUring, 1).ok());
  EXPECT_FALSE(fs.MakeQueue(QueueKind::kThreads, 1).ok());
  EXPECT_EQ(fs.steps(), seen.size());
  EXPECT_EQ(std::filesystem::exists(a), false);
  fs.Clear();
  auto file = fs.Open(a, {.mode = OpenOptions::Mode::kCreate});
  ASSERT_TRUE(IsOk(file));
  for (const Operation operation : {Operation::kSync, Operation::kInfo, Operation::kAllocate,
                                    Operation::kTruncate, Operation::kMap, Operation::kWrite}) {
    fs.Fail(operation, EIO);
  }
  EXPECT_FALSE((*file)->Sync().ok());
  EXPECT_FALSE((*file)->Info().ok());
  EXPECT_FALSE((*file)->Allocate(1).ok());
  EXPECT_FALSE((*file)->Truncate(1).ok());
  EXPECT_FALSE((*file)->Map(0, 1).ok());
  EXPECT_FALSE((*file)->WriteAt(0, Expected(0, 1)).ok());
}

}  // namespace
}  // namespace flagstone::io
