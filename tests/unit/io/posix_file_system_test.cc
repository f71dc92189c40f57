// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <vector>

#include "io/errno_status.h"
#include "io_test_util.h"

namespace flagstone::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Mode = OpenOptions::Mode;

class PosixFileSystemTest : public IoTest {
 protected:
  FileSystem& fs_ = PosixFileSystem();
};

TEST_F(PosixFileSystemTest, ErrnoBecomesACodeAndAText) {
  const std::vector<std::pair<int, StatusCode>> codes = {
      {ENOENT, StatusCode::kNotFound},
      {ESTALE, StatusCode::kIoError},
      {EEXIST, StatusCode::kAlreadyExists},
      {ENOSPC, StatusCode::kResourceExhausted},
      {EDQUOT, StatusCode::kResourceExhausted},
      {ENOMEM, StatusCode::kResourceExhausted},
      {EMFILE, StatusCode::kResourceExhausted},
      {ENOTDIR, StatusCode::kInvalidArgument},
      {EISDIR, StatusCode::kInvalidArgument},
      {EINVAL, StatusCode::kUnsupported},
      {EOPNOTSUPP, StatusCode::kUnsupported},
      {EIO, StatusCode::kIoError},
      {EROFS, StatusCode::kIoError},
      {EACCES, StatusCode::kIoError},
      {12345, StatusCode::kIoError},
  };
  for (const auto& [error, code] : codes) EXPECT_EQ(ErrnoCode(error), code) << ErrnoText(error);

  const Status full = TransferErrno(ENOSPC, "write", "some/file", 8192, 4096);
  EXPECT_EQ(
      full.message(),
      "cannot write 'some/file': 4096 bytes at offset 8192: No space left on device (ENOSPC)");
  EXPECT_EQ(full.place().path, "some/file");
  EXPECT_EQ(full.place().offset, 8192U);
  EXPECT_THAT(ErrnoStatus(EACCES, "open", "f").message(),
              AllOf(HasSubstr("permission denied"),
                    HasSubstr("effective uid " + std::to_string(geteuid()))));
}

TEST_F(PosixFileSystemTest, ModesOfOpening) {
  const auto path = directory_ / "file";
  const auto missing = fs_.Open(path, {.mode = Mode::kRead});
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(missing.status().place().path, path.native());
  EXPECT_EQ(fs_.Open(path, {.mode = Mode::kReadWrite}).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(IsOk(fs_.Open(path, {.mode = Mode::kCreateExclusive})));
  EXPECT_EQ(fs_.Open(path, {.mode = Mode::kCreateExclusive}).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_TRUE(IsOk(fs_.Open(path, {.mode = Mode::kCreate})));
}

TEST_F(PosixFileSystemTest, DescriptorsAreNotInherited) {
  WriteTestFile(directory_ / "file", 1);
  const auto file = OpenForReading(fs_, directory_ / "file");
  EXPECT_NE(fcntl(file->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(fcntl(file->descriptor(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(PosixFileSystemTest, UmaskDecidesWhoMayRead) {
  for (const mode_t mask : {022U, 027U, 077U}) {
    const auto path = directory_ / std::to_string(mask);
    const mode_t before = umask(mask);
    const auto file = fs_.Open(path, {.mode = Mode::kCreateExclusive});
    umask(before);
    ASSERT_TRUE(IsOk(file));
    EXPECT_EQ((*file)->Info()->mode, 0666U & ~mask);
  }
}

TEST_F(PosixFileSystemTest, OnlyRegularFilesAreOpened) {
  const auto directory = fs_.Open(directory_.path(), {});
  EXPECT_EQ(directory.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(directory.status().message(), HasSubstr("a directory"));
  // A FIFO without a writer would hold an ordinary open() for ever.
  const auto fifo = directory_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(fs_.Open(fifo, {}).status().code(), StatusCode::kInvalidArgument);
  WriteTestFile(directory_ / "file", 1);
  EXPECT_EQ(fs_.Open(directory_ / "file/below", {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(PosixFileSystemTest, RefusedPermissionIsNotMissing) {
  const auto path = directory_ / "file";
  WriteTestFile(path, 1);
  std::filesystem::permissions(path, std::filesystem::perms::none);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  std::string skipped;
  const auto failure = RunInChild(
      [&]() -> std::string {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) {
          return "SKIP: cannot become uid 65534";
        }
        const Status status = fs_.Open(path, {}).status();
        const bool right = status.code() == StatusCode::kIoError &&
                           status.message().find("permission denied") != std::string::npos &&
                           status.message().find(path.native()) != std::string::npos;
        return right ? "" : status.ToString();
      },
      &skipped);
  if (!failure) GTEST_SKIP() << skipped;
  EXPECT_EQ(*failure, "");
}

TEST_F(PosixFileSystemTest, ManyOpenFilesNameTheLimit) {
  WriteTestFile(directory_ / "file", 1);
  std::string skipped;
  const auto failure = RunInChild(
      [&]() -> std::string {
        const rlimit limit = {20, 20};
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return "SKIP: setrlimit is refused";
        std::vector<std::unique_ptr<File>> files;
        for (;;) {
          auto file = fs_.Open(directory_ / "file", {});
          if (file.ok()) {
            files.push_back(std::move(*file));
            continue;
          }
          const Status status = file.status();
          const bool right = status.code() == StatusCode::kResourceExhausted &&
                             status.message().find("20 open files") != std::string::npos;
          return right ? "" : status.ToString();
        }
      },
      &skipped);
  if (!failure) GTEST_SKIP() << skipped;
  EXPECT_EQ(*failure, "");
}

TEST_F(PosixFileSystemTest, ReadsAndWritesAnywhere) {
  const auto path = directory_ / "file";
  auto file = fs_.Open(path, {.mode = Mode::kCreate});
  ASSERT_TRUE(IsOk(file));
  ASSERT_TRUE(IsOk(WriteFully(**file, 1000, Expected(1000, 5000))));
  ASSERT_TRUE(IsOk((*file)->Sync()));
  std::vector<std::byte> out(5000);
  ASSERT_TRUE(IsOk(ReadFully(**file, 1000, out)));
  EXPECT_EQ(out, Expected(1000, 5000));
  EXPECT_EQ((*file)->Info()->size, 6000U);
  const auto past = (*file)->ReadAt(6000, out);
  ASSERT_TRUE(IsOk(past));
  EXPECT_EQ(*past, 0U);
  EXPECT_EQ((*file)->ReadAt(UINT64_MAX - 10, out).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(PosixFileSystemTest, ReadingPastTheEndIsTruncation) {
  WriteTestFile(directory_ / "file", 700);
  const auto file = OpenForReading(fs_, directory_ / "file");
  std::vector<std::byte> out(701);
  const Status status = ReadFully(*file, 0, out);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("truncated"), HasSubstr("have 700 need 701")));
  // Beyond the end by more than what is asked for.
  EXPECT_THAT(ReadFully(*file, 4096, std::span(out).first(1)).message(),
              HasSubstr("have 700 need 4097"));
}

TEST_F(PosixFileSystemTest, AllocateReservesAndSetsTheLength) {
  auto file = fs_.Open(directory_ / "file", {.mode = Mode::kCreate});
  ASSERT_TRUE(IsOk(file));
  ASSERT_TRUE(IsOk((*file)->Allocate(1 << 20)));
  EXPECT_EQ((*file)->Info()->size, 1U << 20);
  ASSERT_TRUE(IsOk((*file)->Allocate(4096)));
  EXPECT_EQ((*file)->Info()->size, 4096U);
  ASSERT_TRUE(IsOk((*file)->Allocate(0)));
  EXPECT_EQ((*file)->Info()->size, 0U);
  // More than any disk has: refused before a byte is written.
  const Status full = (*file)->Allocate(uint64_t{1} << 60);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full.ToString();
  EXPECT_THAT(full.message(), HasSubstr(std::to_string(uint64_t{1} << 60)));
}

TEST_F(PosixFileSystemTest, MapsAtAnyOffsetAndOutlivesTheFile) {
  WriteTestFile(directory_ / "file", 100'000);
  std::shared_ptr<Mapping> mapping;
  {
    const auto file = OpenForReading(fs_, directory_ / "file");
    auto mapped = file->Map(4097, 50'001);
    ASSERT_TRUE(IsOk(mapped));
    mapping = *mapped;
  }
  ASSERT_EQ(mapping->bytes().size(), 50'001U);
  const auto expected = Expected(4097, 50'001);
  EXPECT_TRUE(std::ranges::equal(mapping->bytes(), expected));
  ASSERT_TRUE(IsOk(mapping->Populate(1, 50'000)));
  mapping->Release(0, 50'001);
  EXPECT_TRUE(std::ranges::equal(mapping->bytes(), expected)) << "released pages are read again";
}

TEST_F(PosixFileSystemTest, MappingBeyondTheEndIsRefusedNotSigbus) {
  WriteTestFile(directory_ / "file", 5000);
  const auto file = OpenForReading(fs_, directory_ / "file");
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{0, 5001},
                                     {4999, 2},
                                     {5000, 1},
                                     {UINT64_MAX, 2},
                                     {2, UINT64_MAX}}) {
    EXPECT_EQ(file->Map(offset, size).status().code(), StatusCode::kCorruption);
  }
  EXPECT_EQ(file->Map(0, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(IsOk(file->Map(4999, 1)));
}

// A page that the file system cannot deliver: the file was cut after it was mapped.
TEST_F(PosixFileSystemTest, PopulateTurnsSigbusIntoAnError) {
  WriteTestFile(directory_ / "file", 1 << 20);
  auto file = fs_.Open(directory_ / "file", {.mode = Mode::kReadWrite});
  ASSERT_TRUE(IsOk(file));
  const auto mapping = (*file)->Map(0, 1 << 20);
  ASSERT_TRUE(IsOk(mapping));
  ASSERT_TRUE(IsOk((*file)->Truncate(4096)));
  EXPECT_TRUE(IsOk((*mapping)->Populate(0, 4096)));
  const Status lost = (*mapping)->Populate(0, 1 << 20);
  if (lost.ok()) GTEST_SKIP() << "this kernel has no MADV_POPULATE_READ";
  EXPECT_EQ(lost.code(), StatusCode::kIoError);
  EXPECT_THAT(lost.message(), HasSubstr("file"));
}

TEST_F(PosixFileSystemTest, Names) {
  const auto a = directory_ / "a";
  const auto b = directory_ / "b";
  WriteTestFile(a, 1);
  WriteTestFile(b, 2);
  EXPECT_EQ(fs_.RenameNoReplace(a, b).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(fs_.Link(a, b).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(IsOk(fs_.Link(a, directory_ / "c")));
  EXPECT_EQ(fs_.Stat(a)->inode, fs_.Stat(directory_ / "c")->inode);
  ASSERT_TRUE(IsOk(fs_.RenameNoReplace(a, directory_ / "d")));
  ASSERT_TRUE(IsOk(fs_.Rename(directory_ / "d", b)));
  EXPECT_EQ(fs_.Stat(b)->size, 1U);
  ASSERT_TRUE(IsOk(fs_.MakeDirectory(directory_ / "sub")));
  EXPECT_EQ(fs_.MakeDirectory(directory_ / "sub").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(fs_.Stat(directory_ / "sub")->type, FileInfo::Type::kDirectory);
  ASSERT_TRUE(IsOk(fs_.SyncDirectory(directory_.path())));
  const auto names = fs_.List(directory_.path());
  ASSERT_TRUE(IsOk(names));
  EXPECT_THAT(*names, ::testing::UnorderedElementsAre("b", "c", "sub"));
  ASSERT_TRUE(IsOk(fs_.Unlink(b)));
  EXPECT_EQ(fs_.Unlink(b).code(), StatusCode::kNotFound);
  ASSERT_TRUE(IsOk(fs_.RemoveDirectory(directory_ / "sub")));
  EXPECT_EQ(fs_.List(directory_ / "sub").status().code(), StatusCode::kNotFound);
}

TEST_F(PosixFileSystemTest, KindOfFileSystem) {
  WriteTestFile(directory_ / "file", 1);
  EXPECT_NE(OpenForReading(fs_, directory_ / "file")->kind(), FileSystemKind::kNetwork);
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const flagstone::testing::TemporaryDirectory memory("/dev/shm");
  WriteTestFile(memory / "file", 1);
  EXPECT_EQ(OpenForReading(fs_, memory / "file")->kind(), FileSystemKind::kMemory);
}

TEST_F(PosixFileSystemTest, DirectAlignmentIsAPowerOfTwo) {
  WriteTestFile(directory_ / "file", 1);
  const DirectAlignment alignment = OpenForReading(fs_, directory_ / "file")->direct_alignment();
  EXPECT_TRUE(std::has_single_bit(alignment.memory));
  EXPECT_TRUE(std::has_single_bit(alignment.offset));
}

// One call moves less than 2 GiB; more than that is read by several.
TEST_F(PosixFileSystemTest, ReadsMoreThanTwoGibibytes) {
  constexpr uint64_t kSize = (uint64_t{2} << 30) + 12345;
  auto file = fs_.Open(directory_ / "file", {.mode = Mode::kCreate});
  ASSERT_TRUE(IsOk(file));
  ASSERT_TRUE(IsOk((*file)->Truncate(kSize)));
  ASSERT_TRUE(IsOk(WriteFully(**file, kSize - 5, Expected(kSize - 5, 5))));
  auto memory = PageAllocator().Allocate(kSize, 4096);
  if (!memory.ok()) GTEST_SKIP() << memory.status().ToString();
  ASSERT_TRUE(IsOk(ReadFully(**file, 0, memory->bytes())));
  EXPECT_TRUE(std::ranges::equal(memory->bytes().last(5), Expected(kSize - 5, 5)));
}

}  // namespace
}  // namespace flagstone::io
