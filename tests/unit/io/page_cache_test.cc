// SPDX-License-Identifier: Apache-2.0
#include "flagstone/page_cache.h"

#include <unistd.h>

#include "io_test_util.h"

namespace flagstone::io {
namespace {

using ::testing::HasSubstr;

class PageCacheTest : public IoTest {
 protected:
  bool InMemory(const std::filesystem::path& path) {
    return OpenForReading(PosixFileSystem(), path)->kind() == FileSystemKind::kMemory;
  }
};

TEST_F(PageCacheTest, CountsAndDrops) {
  const auto path = directory_ / "file";
  WriteTestFile(path, (3 << 20) + 1);
  if (InMemory(path)) GTEST_SKIP() << "the temporary directory is a file system in memory";
  auto pages = ResidentPages(path);
  ASSERT_TRUE(IsOk(pages));
  EXPECT_EQ(pages->total_pages, 769U);
  EXPECT_EQ(pages->resident_pages, 769U);
  ASSERT_TRUE(IsOk(DropPageCache(path)));
  pages = ResidentPages(path);
  ASSERT_TRUE(IsOk(pages));
  EXPECT_EQ(pages->resident_pages, 0U);
}

TEST_F(PageCacheTest, ProbeTellsColdFromWarm) {
  const auto path = directory_ / "file";
  WriteTestFile(path, 1 << 20);
  if (InMemory(path)) GTEST_SKIP() << "the temporary directory is a file system in memory";
  const auto file = OpenForReading(PosixFileSystem(), path);
  EXPECT_EQ(file->IsResident(4096), true);
  ASSERT_TRUE(IsOk(DropPageCache(path)));
  EXPECT_EQ(file->IsResident(4096), false);
}

TEST_F(PageCacheTest, EmptyFileHasNoPages) {
  const auto path = directory_ / "empty";
  WriteTestFile(path, 0);
  const auto pages = ResidentPages(path);
  ASSERT_TRUE(IsOk(pages));
  EXPECT_EQ(pages->total_pages, 0U);
  EXPECT_TRUE(IsOk(DropPageCache(path)));
}

TEST_F(PageCacheTest, WhatIsMissingOrNoFileIsNamed) {
  EXPECT_EQ(ResidentPages(directory_ / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(DropPageCache(directory_.path()).code(), StatusCode::kInvalidArgument);
}

TEST_F(PageCacheTest, MappedPagesStayAndAreReported) {
  const auto path = directory_ / "file";
  WriteTestFile(path, 1 << 20);
  const auto file = OpenForReading(PosixFileSystem(), path);
  const auto mapping = file->Map(0, 1 << 20);
  ASSERT_TRUE(IsOk(mapping));
  ASSERT_TRUE(IsOk((*mapping)->Populate(0, 1 << 20)));
  const Status dropped = DropPageCache(path);
  EXPECT_EQ(dropped.code(), StatusCode::kUnsupported);
  EXPECT_THAT(dropped.message(), HasSubstr("256 of 256 pages"));
}

// mincore tells those who may neither write nor own a file that all of it is resident.
TEST_F(PageCacheTest, OthersFilesAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const auto path = directory_ / "file";
  WriteTestFile(path, 4096);
  std::filesystem::permissions(directory_.path(), std::filesystem::perms(0755));
  std::string skipped;
  const auto failure = RunInChild(
      [&]() -> std::string {
        if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
          return "SKIP: cannot become uid 65534";
        }
        const auto pages = ResidentPages(path);
        return pages.status().code() == StatusCode::kUnsupported ? "" : pages.status().ToString();
      },
      &skipped);
  if (!failure) GTEST_SKIP() << skipped;
  EXPECT_EQ(*failure, "");
}

}  // namespace
}  // namespace flagstone::io
