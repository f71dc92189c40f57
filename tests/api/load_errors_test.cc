// SPDX-License-Identifier: Apache-2.0
// What is wrong with a checkpoint or a request is said with its path, its numbers and what to do.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "load_support.h"

namespace flagstone::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LoadErrors : public ::testing::Test {
 protected:
  LoadErrors() { SaveAll(path_, FlatLayout(2, 1001)); }
  fs::path RankFile(uint32_t rank) const {
    return path_ / Checkpoint::Open(path_).value().rank_files().at(rank).name;
  }
  Status OpenRank(uint32_t rank) const {
    const auto checkpoint = Checkpoint::Open(path_);
    if (!checkpoint.ok()) return checkpoint.status();
    return checkpoint->OpenRank(rank).status();
  }

  const ScratchDirectory scratch_;
  const fs::path path_ = scratch_ / "c";
};

void ExpectNamed(const Status& status, StatusCode code, const fs::path& path,
                 std::string_view words) {
  EXPECT_EQ(status.code(), code) << status.ToString();
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path.string()), HasSubstr(std::string(words))));
  EXPECT_EQ(status.place().path, path.string());
}

TEST_F(LoadErrors, AMissingRankFile) {
  const fs::path file = RankFile(1);
  fs::remove(file);
  EXPECT_OK(OpenRank(0));
  ExpectNamed(OpenRank(1), StatusCode::kNotFound, file, "is missing");
  const auto report = Verify(path_);
  ASSERT_OK(report);
  ASSERT_EQ(report->problems.size(), 1u);
  EXPECT_EQ(report->problems[0].code, StatusCode::kNotFound);
  EXPECT_EQ(report->problems[0].file, file.filename());
}

TEST_F(LoadErrors, RankFilesOfTwoSavesMixed) {
  const fs::path mine = RankFile(0);
  SaveExtras extras;
  extras.seed = 1;
  SaveAll(scratch_ / "other", FlatLayout(2, 1001), extras);
  const auto other = Checkpoint::Open(scratch_ / "other");
  ASSERT_OK(other);
  fs::copy_file(scratch_ / "other" / other->rank_files()[0].name, mine,
                fs::copy_options::overwrite_existing);
  ExpectNamed(OpenRank(0), StatusCode::kCorruption, mine, "files of two saves are mixed");
  EXPECT_THAT(OpenRank(0).message(), HasSubstr(other->save_id()));
  EXPECT_OK(OpenRank(1));
}

TEST_F(LoadErrors, RankFilesOfOneSaveSwapped) {
  fs::copy_file(RankFile(1), RankFile(0), fs::copy_options::overwrite_existing);
  const Status status = OpenRank(0);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), HasSubstr(RankFile(0).string()));
}

TEST_F(LoadErrors, AReplacedCheckpointSaysOpenItAgain) {
  const auto old = Checkpoint::Open(path_);
  ASSERT_OK(old);
  SaveExtras extras;
  extras.overwrite = true;
  extras.seed = 5;
  SaveAll(path_, FlatLayout(2, 1001), extras);
  const auto now = Checkpoint::Open(path_);
  ASSERT_OK(now);
  const Status status = old->OpenRank(1).status();
  ExpectNamed(status, StatusCode::kNotFound, path_, "open it again");
  EXPECT_THAT(status.message(), HasSubstr(now->save_id()));
  ExpectLoads(*now, 1, {}, 5);
}

TEST_F(LoadErrors, AFileCutWhileItIsOpen) {
  const auto checkpoint = Checkpoint::Open(path_);
  ASSERT_OK(checkpoint);
  const fs::path file = RankFile(0);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const auto memory = reader->Allocate();
  ASSERT_OK(memory);
  fs::resize_file(file, 4096 + 100);
  for (const Backend backend : kBackends) {
    if (!IsUsable(*checkpoint, backend)) continue;
    const Status status = reader->Load(memory->destinations).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(file.string()), HasSubstr("truncated")));
  }
  const Status viewed = reader->ViewSegment("p", "fp32").status();
  EXPECT_EQ(viewed.code(), StatusCode::kCorruption) << "and no SIGBUS";
  EXPECT_THAT(viewed.message(), HasSubstr(file.string()));
}

TEST_F(LoadErrors, ADirectoryInPlaceOfAFile) {
  const fs::path file = RankFile(0);
  fs::remove(file);
  fs::create_directory(file);
  const Status status = OpenRank(0);
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(file.string()), HasSubstr("directory")));
  fs::remove(path_ / "manifest.flagstone");
  fs::create_directory(path_ / "manifest.flagstone");
  const Status manifest = OpenRank(0);
  EXPECT_FALSE(manifest.ok());
  EXPECT_THAT(manifest.message(),
              AllOf(HasSubstr((path_ / "manifest.flagstone").string()), HasSubstr("directory")));
}

TEST_F(LoadErrors, AFifoInPlaceOfAFileDoesNotHang) {
  const fs::path file = RankFile(0);
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(OpenRank(0).message(), HasSubstr(file.string()));
}

// Root may read everything, so the child is nobody.
TEST_F(LoadErrors, FieldCase_E13_NoPermissionIsSaidAndNothingElseIsTried) {
  const fs::path file = RankFile(0);
  fs::permissions(scratch_.path(), fs::perms(0755));
  fs::permissions(path_, fs::perms(0755));
  const auto as_nobody = [&](const fs::path& named) {
    return RunInChild([&] {
      if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 3;
      const Status status = OpenRank(0);
      if (status.ok()) return 4;
      const bool said = status.message().find(named.string()) != std::string::npos &&
                        status.message().find("ermission denied") != std::string::npos &&
                        status.message().find("65534") != std::string::npos;
      if (!said) std::cout << status.ToString() << "\n";
      if (status.code() == StatusCode::kNotFound) return 5;
      return said ? 0 : 6;
    });
  };
  if (RunInChild([&] {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) return 3;
        return access(path_.c_str(), R_OK | X_OK) == 0 && geteuid() == 65534 ? 0 : 1;
      }) != 0) {
    GTEST_SKIP() << "the directory of temporary files is not open to an ordinary user";
  }
  fs::permissions(file, fs::perms(0));
  EXPECT_EQ(as_nobody(file), 0) << "a rank file";
  fs::permissions(file, fs::perms(0644));
  fs::permissions(path_ / "manifest.flagstone", fs::perms(0));
  EXPECT_EQ(as_nobody(path_ / "manifest.flagstone"), 0) << "the manifest";
  fs::permissions(path_ / "manifest.flagstone", fs::perms(0644));
  fs::permissions(path_, fs::perms(0));
  EXPECT_EQ(as_nobody(path_), 0) << "the directory";
  fs::permissions(path_, fs::perms(0755));
}

TEST_F(LoadErrors, ARankThatIsNot) {
  ExpectNamed(OpenRank(2), StatusCode::kNotFound, path_, "0 to 1");
  EXPECT_EQ(OpenRank(UINT32_MAX).code(), StatusCode::kNotFound);
}

TEST_F(LoadErrors, WhatIsNotACheckpoint) {
  const auto open = [&](const fs::path& path) { return Checkpoint::Open(path).status(); };
  ExpectNamed(open(scratch_ / "none"), StatusCode::kNotFound, scratch_ / "none", "");
  fs::create_directory(scratch_ / "empty");
  ExpectNamed(open(scratch_ / "empty"), StatusCode::kInvalidArgument, scratch_ / "empty",
              "is not a checkpoint");
  std::ofstream(scratch_ / "zip") << std::string("PK\x03\x04", 4) << std::string(100, 'x');
  ExpectNamed(open(scratch_ / "zip"), StatusCode::kInvalidArgument, scratch_ / "zip",
              "looks like ");
  EXPECT_FALSE(Verify(scratch_ / "empty").ok()) << "no checkpoint at all is no damaged one";
}

TEST_F(LoadErrors, WrongDestinations) {
  const auto checkpoint = Checkpoint::Open(path_);
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const uint64_t size = reader->segments()[0].bytes;
  std::vector<std::byte> memory(size + 1);
  const auto load = [&](std::vector<Destination> destinations) {
    return reader->Load(destinations).status();
  };
  const Status wrong_size = load({{"p", "fp32", memory, nullptr}});
  EXPECT_EQ(wrong_size.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong_size.message(), AllOf(HasSubstr("'p/fp32'"), HasSubstr(std::to_string(size)),
                                          HasSubstr(std::to_string(size + 1))));
  const std::span<std::byte> right = std::span(memory).first(size);
  EXPECT_EQ(load({{"p", "fp32", right, nullptr}, {"p", "fp32", right, nullptr}}).code(),
            StatusCode::kInvalidArgument);
  const Status unknown = load({{"p", "fp23", right, nullptr}});
  EXPECT_EQ(unknown.code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("'p/fp32'"));
  EXPECT_EQ(load({{"p", "fp32", {}, nullptr}}).code(), StatusCode::kInvalidArgument);
  EXPECT_OK(load({}));
  EXPECT_OK(load({{"p", "fp32", right, nullptr}}));
}

}  // namespace
}  // namespace flagstone::testing
