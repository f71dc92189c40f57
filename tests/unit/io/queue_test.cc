// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "io/io_queue.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"
#include "io_test_util.h"

namespace flagstone::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class QueueTest : public IoTest, public ::testing::WithParamInterface<QueueKind> {
 protected:
  void SetUp() override {
    IoTest::SetUp();
    auto queue = PosixFileSystem().MakeQueue(GetParam(), 4);
    if (!queue.ok()) GTEST_SKIP() << queue.status().ToString();
  }
  std::unique_ptr<IoQueue> MakeQueue(uint32_t depth) {
    auto queue = PosixFileSystem().MakeQueue(GetParam(), depth);
    EXPECT_TRUE(IsOk(queue));
    return std::move(*queue);
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds, QueueTest,
                         ::testing::Values(QueueKind::kUring, QueueKind::kThreads),
                         [](const auto& tested) {
                           return tested.param == QueueKind::kUring ? "Uring" : "Threads";
                         });

TEST_P(QueueTest, WritesAndReadsBack) {
  constexpr uint64_t kPart = 10'000;
  constexpr uint32_t kParts = 40;
  auto file = PosixFileSystem().Open(directory_ / "file", {.mode = OpenOptions::Mode::kCreate});
  ASSERT_TRUE(IsOk(file));
  auto bytes = Expected(0, kPart * kParts);
  std::vector<std::byte> read(bytes.size());
  const auto queue = MakeQueue(4);
  for (const auto kind : {IoRequest::Kind::kWrite, IoRequest::Kind::kRead}) {
    auto& memory = kind == IoRequest::Kind::kWrite ? bytes : read;
    std::vector<bool> done(kParts, false);
    std::vector<IoCompletion> completions;
    for (uint32_t next = 0; next < kParts || queue->in_flight() > 0;) {
      while (next < kParts && queue->in_flight() < queue->depth()) {
        ASSERT_TRUE(IsOk(queue->Submit({.kind = kind,
                                        .file = file->get(),
                                        .offset = next * kPart,
                                        .memory = std::span(memory).subspan(next * kPart, kPart),
                                        .tag = next})));
        ++next;
      }
      completions.clear();
      ASSERT_TRUE(IsOk(queue->Wait(completions)));
      ASSERT_FALSE(completions.empty());
      for (const IoCompletion& completion : completions) {
        ASSERT_TRUE(IsOk(completion.moved));
        EXPECT_EQ(*completion.moved, kPart);
        EXPECT_FALSE(done[completion.tag]);
        done[completion.tag] = true;
      }
    }
    EXPECT_EQ(std::count(done.begin(), done.end(), true), kParts);
  }
  EXPECT_EQ(read, bytes);
}

TEST_P(QueueTest, EndOfFileIsShortThenNothing) {
  WriteTestFile(directory_ / "file", 1000);
  const auto file = OpenForReading(PosixFileSystem(), directory_ / "file");
  std::vector<std::byte> memory(4096);
  const auto queue = MakeQueue(2);
  std::vector<IoCompletion> completions;
  ASSERT_TRUE(IsOk(queue->Submit({.file = file.get(), .offset = 0, .memory = memory, .tag = 7})));
  ASSERT_TRUE(IsOk(queue->Wait(completions)));
  ASSERT_TRUE(
      IsOk(queue->Submit({.file = file.get(), .offset = 1000, .memory = memory, .tag = 8})));
  ASSERT_TRUE(IsOk(queue->Wait(completions)));
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].tag, 7U);
  EXPECT_EQ(*completions[0].moved, 1000U);
  EXPECT_EQ(*completions[1].moved, 0U);
  ASSERT_TRUE(IsOk(queue->Wait(completions))) << "nothing in flight: returns at once";
}

TEST_P(QueueTest, FailureNamesFileAndPlace) {
  // A file that is open for reading alone takes no writes.
  WriteTestFile(directory_ / "file", 1000);
  const auto file = OpenForReading(PosixFileSystem(), directory_ / "file");
  std::vector<std::byte> memory(4096);
  const auto queue = MakeQueue(1);
  std::vector<IoCompletion> completions;
  ASSERT_TRUE(IsOk(queue->Submit({.kind = IoRequest::Kind::kWrite,
                                  .file = file.get(),
                                  .offset = 8192,
                                  .memory = memory,
                                  .tag = 1})));
  EXPECT_EQ(queue->Submit({.file = file.get(), .offset = 0, .memory = memory}).code(),
            StatusCode::kInternal)
      << "the queue is full";
  ASSERT_TRUE(IsOk(queue->Wait(completions)));
  const Status status = completions.at(0).moved.status();
  EXPECT_EQ(status.code(), StatusCode::kIoError);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("cannot write"), HasSubstr("file'"),
                                      HasSubstr("4096 bytes at offset 8192"), HasSubstr("EBADF")));
  EXPECT_EQ(status.place().offset, 8192U);
}

std::vector<int> OpenRings() {
  std::vector<int> rings;
  for (int fd = 0; fd < 1024; ++fd) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(
        std::filesystem::path("/proc/self/fd") / std::to_string(fd), error);
    if (!error && target.string() == "anon_inode:[io_uring]") rings.push_back(fd);
  }
  return rings;
}

// As a program does that closes all descriptors to become a daemon.
TEST(UringQueueTest, ARingClosedBySomebodyElseLeavesNothingInFlight) {
  testing::TemporaryDirectory directory;
  WriteTestFile(directory / "file", 8 << 20);
  const auto file = OpenForReading(PosixFileSystem(), directory / "file");
  std::vector<std::byte> memory(8 << 20);
  auto queue = PosixFileSystem().MakeQueue(QueueKind::kUring, 8);
  if (!queue.ok()) GTEST_SKIP() << queue.status().ToString();
  file->DropCache(0, memory.size());
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(IsOk((*queue)->Submit({.file = file.get(),
                                       .offset = i << 20,
                                       .memory = std::span(memory).subspan(i << 20, 1 << 20)})));
  }
  for (const int ring : OpenRings()) close(ring);
  std::vector<IoCompletion> completions;
  const Status waited = (*queue)->Wait(completions);
  EXPECT_EQ(waited.code(), StatusCode::kIoError);
  EXPECT_THAT(waited.message(), HasSubstr("EBADF"));
  queue->reset();
  const auto then = memory;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(memory, then);
}

TEST_P(QueueTest, DestructorWaitsForWhatIsInFlight) {
  WriteTestFile(directory_ / "file", 8 << 20);
  const auto file = OpenForReading(PosixFileSystem(), directory_ / "file");
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> memory(8 << 20);
    const auto queue = MakeQueue(8);
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_TRUE(IsOk(queue->Submit({.file = file.get(),
                                      .offset = i << 20,
                                      .memory = std::span(memory).subspan(i << 20, 1 << 20),
                                      .tag = i})));
    }
  }
}

// A writer is made in one thread, used in another and destroyed in a third.
TEST_P(QueueTest, MayChangeHands) {
  WriteTestFile(directory_ / "file", 1 << 20);
  const auto file = OpenForReading(PosixFileSystem(), directory_ / "file");
  std::vector<std::byte> memory(1 << 20);
  auto queue = MakeQueue(2);
  std::thread([&] {
    EXPECT_TRUE(IsOk(queue->Submit({.file = file.get(), .offset = 0, .memory = memory})));
  }).join();
  std::vector<IoCompletion> completions;
  EXPECT_TRUE(IsOk(queue->Wait(completions)));
  ASSERT_EQ(completions.size(), 1U);
  std::thread([&] { queue.reset(); }).join();
}

TEST_P(QueueTest, MemoryIsCountedAndSmall) {
  WriteTestFile(directory_ / "file", 1 << 20);
  const auto file = OpenForReading(PosixFileSystem(), directory_ / "file");
  const uint64_t before = LibraryMemory().current_bytes;
  ResetPeakMemory();
  std::vector<std::byte> memory(32 * 4096);  // before the queue, whose end waits for what it reads
  const auto queue = MakeQueue(32);
  for (uint64_t i = 0; i < 32; ++i) {
    ASSERT_TRUE(IsOk(queue->Submit({.file = file.get(),
                                    .offset = i * 4096,
                                    .memory = std::span(memory).subspan(i * 4096, 4096)})));
  }
  const uint64_t counted = LibraryMemory().peak_bytes - before;
  EXPECT_GT(counted, 0U);
  EXPECT_LE(counted, kMaxQueueThreads * (uint64_t{256} << 10));
}

TEST_P(QueueTest, DepthOfNothingIsRefused) {
  EXPECT_EQ(PosixFileSystem().MakeQueue(GetParam(), 0).status().code(),
            StatusCode::kInvalidArgument);
}

// Answer one system call of this process with an errno, as the sandboxes of containers do.
bool Forbid(uint32_t call, uint32_t error) {
  std::array<sock_filter, 4> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter = {.len = program.size(), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

struct Refusal {
  uint32_t call;
  int error;
  const char* says;
};

class UringRefusedTest : public IoTest, public ::testing::WithParamInterface<Refusal> {};

INSTANTIATE_TEST_SUITE_P(
    Causes, UringRefusedTest,
    ::testing::Values(Refusal{SYS_io_uring_setup, EPERM, "Operation not permitted (EPERM)"},
                      Refusal{SYS_io_uring_setup, EACCES, "Permission denied (EACCES)"},
                      Refusal{SYS_io_uring_setup, ENOSYS, "Function not implemented (ENOSYS)"},
                      Refusal{SYS_io_uring_setup, ENOMEM, "limit of locked memory is"},
                      Refusal{SYS_io_uring_enter, EPERM, "an empty operation failed"},
                      Refusal{SYS_io_uring_register, EPERM, "does not say which operations"}));

// In a real sandbox: forced, the ring says why; auto takes threads and gives equal bytes.
TEST_P(UringRefusedTest, IsNamedAndFallsBack) {
#if !FLAGSTONE_HAVE_URING
  GTEST_SKIP() << "built without liburing";
#endif
  const auto path = directory_ / "file";
  WriteTestFile(path, 1 << 20);
  std::string skipped;
  const auto failure = RunInChild(
      [&]() -> std::string {
        if (!MakeUringQueue(1).ok()) return "SKIP: io_uring is refused to begin with";
        if (!Forbid(GetParam().call, static_cast<uint32_t>(GetParam().error))) {
          return "SKIP: seccomp filters are refused";
        }
        const Status forced = MakeUringQueue(8).status();
        if (forced.code() != StatusCode::kUnsupported) return "not refused";
        if (forced.message().find(GetParam().says) == std::string::npos) return forced.message();
        const auto file = OpenForReading(PosixFileSystem(), path);
        std::vector<std::byte> memory(1 << 20);
        const std::vector<ReadRange> ranges = {
            {.offset = 0, .size = memory.size(), .block_bytes = 65536, .destination = memory}};
        ReadOptions options;
        options.chosen = BackendChoice{Backend::kUringDirect, "test"};
        const auto stats = ReadRanges(PosixFileSystem(), {&file, 1}, ranges, {}, options);
        if (!stats.ok()) return stats.status().ToString();
        if (stats->backend.backend != Backend::kPread) return "not read by threads";
        if (stats->backend.reason.find(GetParam().says) == std::string::npos) {
          return stats->backend.reason;
        }
        return memory == Expected(0, memory.size()) ? "" : "wrong bytes";
      },
      &skipped);
  if (!failure) GTEST_SKIP() << skipped;
  EXPECT_EQ(*failure, "");
}

TEST(ThreadQueueTest, WorksWithoutThreads) {
  flagstone::testing::TemporaryDirectory directory;
  WriteTestFile(directory / "file", 4096);
  std::string skipped;
  const auto failure = RunInChild(
      [&]() -> std::string {
        if (!Forbid(SYS_clone, EAGAIN)) return "SKIP: seccomp filters are refused";
        if (!Forbid(SYS_clone3, EAGAIN)) return "SKIP: seccomp filters are refused";
        const auto file = OpenForReading(PosixFileSystem(), directory / "file");
        auto queue = MakeThreadQueue(4);
        std::vector<std::byte> memory(4096);
        std::vector<IoCompletion> completions;
        if (!(*queue)->Submit({.file = file.get(), .offset = 0, .memory = memory}).ok()) {
          return "Submit failed";
        }
        if (!(*queue)->Wait(completions).ok() || completions.size() != 1) return "Wait failed";
        return memory == Expected(0, 4096) ? "" : "wrong bytes";
      },
      &skipped);
  if (!failure) GTEST_SKIP() << skipped;
  EXPECT_EQ(*failure, "");
}

}  // namespace
}  // namespace flagstone::io
