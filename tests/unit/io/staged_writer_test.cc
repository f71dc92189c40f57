// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "io/errno_status.h"
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

// Write `size` expected bytes in pieces of at most `piece`, in the order that `random` gives.
Result<WriteStats> WriteAll(FileSystem& fs, const std::shared_ptr<File>& file, uint64_t size,
                            uint64_t piece, const WriteOptions& options) {
  auto made = StagedWriter::Make(fs, file, options);
  if (!made.ok()) return made.status();
  StagedWriter& writer = **made;
  piece = std::min(piece, writer.buffer_bytes());
  std::vector<uint64_t> places;
  for (uint64_t at = 0; at < size; at += piece) places.push_back(at);
  std::mt19937_64 random(size + piece);
  std::shuffle(places.begin(), places.end(), random);
  for (const uint64_t at : places) {
    auto buffer = writer.Buffer();
    if (!buffer.ok()) return buffer.status();
    EXPECT_GE(buffer->size(), writer.buffer_bytes());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 4096, 0U);
    const uint64_t length = std::min(piece, size - at);
    FillExpected(at, buffer->first(length));
    const Status written = writer.Write(*buffer, at, length);
    if (!written.ok()) return written;
  }
  return writer.Finish();
}

// A mount namespace for this process; one without rights takes a user namespace in which it is
// root.
bool EnterMountNamespace() {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  if (uid == 0) return unshare(CLONE_NEWNS) == 0;
  if (unshare(CLONE_NEWNS | CLONE_NEWUSER) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
  std::ofstream("/proc/self/gid_map") << "0 " << gid << " 1";
  return true;
}

class StagedWriterTest : public IoTest {
 protected:
  void SetUp() override {
    IoTest::SetUp();
    Create(fs_);
  }
  void TearDown() override {
    file_.reset();
    IoTest::TearDown();
  }
  void Create(FileSystem& fs) {
    auto file = fs.Open(path_, {.mode = OpenOptions::Mode::kCreate});
    ASSERT_TRUE(IsOk(file));
    file_ = std::move(*file);
  }
  bool Right(uint64_t size) {
    std::vector<std::byte> bytes(size);
    return file_->Info()->size == size && ReadFully(*file_, 0, bytes).ok() &&
           bytes == Expected(0, size);
  }
  bool CanForce(Backend backend) {
    WriteOptions options;
    options.backend = backend;
    return StagedWriter::Make(fs_, file_, options).ok();
  }
  std::vector<Backend> WorkingWriters() {
    std::vector<Backend> working;
    for (const Backend backend : {Backend::kUringDirect, Backend::kUring, Backend::kPread}) {
      if (CanForce(backend)) working.push_back(backend);
    }
    return working;
  }

  const std::filesystem::path path_ = directory_ / "file";
  FaultFileSystem fs_{PosixFileSystem()};
  std::shared_ptr<File> file_;
};

TEST_F(StagedWriterTest, EveryBackendWritesTheSameBytes) {
  auto backends = WorkingWriters();
  backends.push_back(Backend::kAuto);
  for (const Backend backend : backends) {
    for (const uint64_t staging : {uint64_t{4096}, 3 * kMega, 9 * kMega, 64 * kMega}) {
      for (const uint64_t size : {uint64_t{4096}, 5 * kMega + 8192, 40 * kMega}) {
        if (staging == 4096 && size > 6 * kMega) continue;
        SCOPED_TRACE(::testing::Message()
                     << Name(backend) << ", staging " << staging << ", size " << size);
        ASSERT_TRUE(IsOk(file_->Truncate(0)));
        if (size > kMega) {
          ASSERT_TRUE(IsOk(file_->Allocate(size)));
        }
        WriteOptions options;
        options.backend = backend;
        options.staging_bytes = staging;
        const uint64_t before = LibraryMemory().current_bytes;
        ResetPeakMemory();
        const auto stats = WriteAll(fs_, file_, size, size > kMega ? 700 * 4096 : 4096, options);
        ASSERT_TRUE(IsOk(stats));
        EXPECT_EQ(stats->written_bytes, size);
        EXPECT_LE(stats->peak_staging_bytes, staging);
        EXPECT_LE(LibraryMemory().peak_bytes - before, staging + 3 * kMega);
        EXPECT_TRUE(Right(size));
      }
    }
  }
}

TEST_F(StagedWriterTest, BuffersHoldADigestChunk) {
  auto writer = StagedWriter::Make(fs_, file_, {});
  ASSERT_TRUE(IsOk(writer));
  EXPECT_GE((*writer)->buffer_bytes(), 4 * kMega);
  EXPECT_EQ((*writer)->buffer_bytes() % 4096, 0U);
  WriteOptions small;
  small.staging_bytes = 10'000;
  writer = StagedWriter::Make(fs_, file_, small);
  ASSERT_TRUE(IsOk(writer));
  EXPECT_EQ((*writer)->buffer_bytes(), 8192U);
  small.staging_bytes = 4095;
  EXPECT_EQ(StagedWriter::Make(fs_, file_, small).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(StagedWriterTest, BuffersGoBackAndForth) {
  WriteOptions options;
  options.staging_bytes = 8 * kMega;
  auto made = StagedWriter::Make(fs_, file_, options);
  ASSERT_TRUE(IsOk(made));
  StagedWriter& writer = **made;
  auto first = writer.Buffer();
  auto second = writer.Buffer();
  ASSERT_TRUE(IsOk(second));
  // None is in flight, so that waiting would never end.
  EXPECT_EQ(writer.Buffer().status().code(), StatusCode::kResourceExhausted);
  writer.Return(*first);
  EXPECT_TRUE(IsOk(writer.Buffer()));
  EXPECT_EQ(writer.Write(*second, 1, 4096).code(), StatusCode::kInternal);
  EXPECT_EQ(writer.Write(*second, 4096, 4095).code(), StatusCode::kInternal);
  EXPECT_EQ(writer.completions(), 0U);
  ASSERT_TRUE(IsOk(writer.Write(*second, 0, 4096)));
  ASSERT_TRUE(IsOk(writer.Finish()));
  EXPECT_EQ(writer.completions(), 1U);
}

TEST_F(StagedWriterTest, DestructorWaitsAndMayRunElsewhere) {
  for (const Backend backend : WorkingWriters()) {
    WriteOptions options;
    options.backend = backend;
    auto made = StagedWriter::Make(fs_, file_, options);
    ASSERT_TRUE(IsOk(made));
    std::thread([&] {
      for (uint64_t i = 0; i < 8; ++i) {
        auto buffer = (*made)->Buffer();
        ASSERT_TRUE(IsOk(buffer));
        FillExpected(i * 4 * kMega, *buffer);
        ASSERT_TRUE(IsOk((*made)->Write(*buffer, i * 4 * kMega, 4 * kMega)));
      }
    }).join();
    std::thread([&] { made->reset(); }).join();
  }
}

TEST_F(StagedWriterTest, ShortWritesAreContinued) {
  for (const Backend backend : WorkingWriters()) {
    SCOPED_TRACE(Name(backend));
    ASSERT_TRUE(IsOk(file_->Truncate(0)));
    std::mt19937_64 random(3);
    fs_.Add([&random](const Call& call) -> std::optional<Fault> {
      if (call.operation != Operation::kWrite) return std::nullopt;
      constexpr uint64_t kShort[] = {1, 513, 4096 * 5 + 3, kMega};
      const uint64_t which = random() % 8;
      if (which >= 4) return std::nullopt;
      return Fault{.at_most = kShort[which]};
    });
    WriteOptions options;
    options.backend = backend;
    const auto stats = WriteAll(fs_, file_, 12 * kMega, 4 * kMega, options);
    fs_.Clear();
    ASSERT_TRUE(IsOk(stats));
    EXPECT_GT(stats->write_calls, 3U);
    EXPECT_TRUE(Right(12 * kMega));
  }
}

TEST_F(StagedWriterTest, WritesThatNeverGetOnEnd) {
  for (const Backend backend : WorkingWriters()) {
    fs_.Add([](const Call& call) -> std::optional<Fault> {
      if (call.operation != Operation::kWrite) return std::nullopt;
      return Fault{.at_most = 0};
    });
    WriteOptions options;
    options.backend = backend;
    const Status status = WriteAll(fs_, file_, 12 * kMega, 4 * kMega, options).status();
    fs_.Clear();
    EXPECT_EQ(status.code(), StatusCode::kIoError);
    EXPECT_THAT(status.message(), HasSubstr("no progress"));
  }
}

TEST_F(StagedWriterTest, FullDiskNamesThePathAndTheBytes) {
  for (const Backend backend : WorkingWriters()) {
    for (uint64_t nth = 1; nth <= 4; ++nth) {
      SCOPED_TRACE(::testing::Message() << Name(backend) << ", write " << nth);
      fs_.Fail(Operation::kWrite, ENOSPC, fs_.calls(Operation::kWrite) + nth);
      WriteOptions options;
      options.backend = backend;
      options.staging_bytes = 8 * kMega;
      const Status status = WriteAll(fs_, file_, 16 * kMega, 4 * kMega, options).status();
      fs_.Clear();
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
      EXPECT_THAT(status.message(), AllOf(HasSubstr(path_.native()), HasSubstr("ENOSPC"),
                                          HasSubstr("4194304 bytes at offset")));
    }
  }
}

TEST_F(StagedWriterTest, FailureIsReportedByEveryLaterCall) {
  auto made = StagedWriter::Make(fs_, file_, {});
  ASSERT_TRUE(IsOk(made));
  fs_.Fail(Operation::kWrite, EIO);
  auto first = (*made)->Buffer();
  auto second = (*made)->Buffer();
  ASSERT_TRUE(IsOk((*made)->Write(*first, 0, 4096)));
  const Status failure = (*made)->Finish().status();
  EXPECT_EQ(failure.code(), StatusCode::kIoError);
  EXPECT_EQ((*made)->Buffer().status(), failure);
  EXPECT_EQ((*made)->Write(*second, 0, 4096), failure);
  EXPECT_EQ((*made)->Finish().status(), failure);
}

TEST_F(StagedWriterTest, InterruptedRequestsAreSubmittedAgain) {
  if (!CanForce(Backend::kUring)) GTEST_SKIP() << "no io_uring here";
  fs_.Add([](const Call& call) -> std::optional<Fault> {
    if (call.operation != Operation::kWrite || call.number % 3 == 0) return std::nullopt;
    return Fault{.error = call.number % 3 == 1 ? EAGAIN : EINTR};
  });
  WriteOptions options;
  options.backend = Backend::kUring;
  EXPECT_TRUE(IsOk(WriteAll(fs_, file_, 12 * kMega, kMega, options)));
  EXPECT_TRUE(Right(12 * kMega));
}

TEST_F(StagedWriterTest, RingRefused) {
  for (const int error : {EPERM, ENOSYS, ENOMEM}) {
    ASSERT_TRUE(IsOk(file_->Truncate(0)));
    fs_.Fail(Operation::kMakeUring, error);
    const auto stats = WriteAll(fs_, file_, 9 * kMega, kMega, {});
    ASSERT_TRUE(IsOk(stats));
    EXPECT_EQ(stats->backend.backend, Backend::kPread);
    if (file_->kind() == FileSystemKind::kLocal) {
      EXPECT_THAT(stats->backend.reason, HasSubstr(strerrorname_np(error)));
    }
    EXPECT_TRUE(Right(9 * kMega));
    for (const Backend forced : {Backend::kUring, Backend::kUringDirect}) {
      WriteOptions options;
      options.backend = forced;
      EXPECT_EQ(StagedWriter::Make(fs_, file_, options).status().code(), StatusCode::kUnsupported);
    }
    fs_.Clear();
  }
  WriteOptions mapped;
  mapped.backend = Backend::kMmap;
  EXPECT_EQ(StagedWriter::Make(fs_, file_, mapped).status().code(), StatusCode::kUnsupported);
}

TEST_F(StagedWriterTest, DirectRefusedAtOpenOrAtTheFirstWrite) {
  if (!CanForce(Backend::kUringDirect)) GTEST_SKIP() << "no io_uring with O_DIRECT here";
  if (file_->kind() != FileSystemKind::kLocal)
    GTEST_SKIP() << "auto writes directly on local disks";
  WriteOptions forced;
  forced.backend = Backend::kUringDirect;
  for (const bool at_open : {true, false}) {
    ASSERT_TRUE(IsOk(file_->Truncate(0)));
    if (at_open) {
      fs_.Fail(Operation::kOpenDirect, EINVAL);
    } else {
      fs_.Add([](const Call& call) -> std::optional<Fault> {
        if (call.operation != Operation::kWrite || !call.direct) return std::nullopt;
        return Fault{.error = EINVAL};
      });
    }
    const auto stats = WriteAll(fs_, file_, 9 * kMega, kMega, {});
    ASSERT_TRUE(IsOk(stats));
    EXPECT_EQ(stats->backend.backend, Backend::kUring);
    EXPECT_THAT(stats->backend.reason,
                AllOf(HasSubstr("local file system; "), HasSubstr("EINVAL")));
    EXPECT_TRUE(Right(9 * kMega));
    EXPECT_EQ(WriteAll(fs_, file_, 9 * kMega, kMega, forced).status().code(),
              StatusCode::kUnsupported);
    fs_.Clear();
  }
}

// A real one: a tmpfs of 4 MiB in a mount namespace of its own.
TEST_F(StagedWriterTest, ReallyFullDisk) {
  const auto mount_point = directory_ / "small";
  std::filesystem::create_directory(mount_point);
  std::string skipped;
  const auto failure = RunInChild(
      [&]() -> std::string {
        if (!EnterMountNamespace()) return "SKIP: no mount namespace: " + ErrnoText(errno);
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
        if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=4m") != 0) {
          return "SKIP: mount is refused: " + ErrnoText(errno);
        }
        FileSystem& fs = PosixFileSystem();
        const auto path = mount_point / "file";
        auto opened = fs.Open(path, {.mode = OpenOptions::Mode::kCreate});
        if (!opened.ok()) return opened.status().ToString();
        const std::shared_ptr<File> file = std::move(*opened);
        const Status reserved = file->Allocate(8 * kMega);
        if (reserved.code() != StatusCode::kResourceExhausted) return "Allocate: not refused";
        if (const Status cut = file->Truncate(0); !cut.ok()) return cut.ToString();
        const Status status = WriteAll(fs, file, 16 * kMega, 4 * kMega, {}).status();
        const bool right = status.code() == StatusCode::kResourceExhausted &&
                           status.message().find(path.native()) != std::string::npos &&
                           status.message().find("ENOSPC") != std::string::npos;
        return right ? "" : status.ToString();
      },
      &skipped);
  if (!failure) GTEST_SKIP() << skipped;
  EXPECT_EQ(*failure, "");
}

}  // namespace
}  // namespace flagstone::io
