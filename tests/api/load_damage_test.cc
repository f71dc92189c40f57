// SPDX-License-Identifier: Apache-2.0
// A small checkpoint with one bit of every byte flipped, and cut at every length: Verify reports
// it, and a load refuses it in the bytes that it reads or gives what was saved.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "load_support.h"

namespace flagstone::testing {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void SetContents(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Two ranks, a segment with padding between members, one with plain values, and rank state.
class Damage : public ::testing::Test {
 protected:
  Damage() {
    Layout layout = FlatLayout(2, 301);
    layout.partitions[0].roles.pop_back();
    layout.partitions[0].roles.push_back({"step", DType::kInt64, RoleForm::kPlain});
    layout.tensors.push_back(layout.tensors[0]);
    layout.tensors[1].name = "u";
    layout.partitions.push_back(
        MakeReplicated(layout, "w", {0, 1}, RankList::World(2), {{"codes", DType::kInt8}}).value());
    SaveExtras extras;
    extras.also = [](uint32_t rank, Writer& writer) {
      Value state;
      state.Set("seed", Value(static_cast<int64_t>(rank)));
      EXPECT_OK(writer.SetRankState(state));
    };
    SaveAll(path_, layout, extras);
    const auto checkpoint = Checkpoint::Open(path_);
    EXPECT_OK(checkpoint);
    files_ = {path_ / "manifest.flagstone"};
    for (const auto& file : checkpoint->rank_files()) files_.push_back(path_ / file.name);
    options_.backend = Backend::kMmap;  // the quickest for so small a file
    options_.replicated = true;
    verify_.backend = Backend::kMmap;
  }

  // What loading everything that a rank may have says: ok only with the right bytes.
  Status LoadAll(uint32_t rank = 1) {
    const auto checkpoint = Checkpoint::Open(path_);
    if (!checkpoint.ok()) return checkpoint.status();
    const auto reader = checkpoint->OpenRank(rank, options_);
    if (!reader.ok()) return reader.status();
    const auto memory = reader->Allocate();
    if (!memory.ok()) return memory.status();
    const auto report = reader->Load(memory->destinations);
    if (!report.ok()) return report.status();
    const auto step = reader->Plain("p", "step", "t");
    if (!step.ok()) return step.status();
    if (*step != PlainOf("t")) return Status(StatusCode::kInternal, "a wrong plain value");
    for (size_t i = 0; i < reader->segments().size(); ++i) {
      if (!std::ranges::equal(memory->destinations[i].memory,
                              ExpectedSegment(checkpoint->layout(), reader->segments()[i]))) {
        return Status(StatusCode::kInternal, "wrong bytes were loaded");
      }
    }
    return {};
  }

  // What Verify says of the file: problems, or an error that names it.
  void ExpectReported(const std::filesystem::path& file, uint64_t at) {
    const auto report = Verify(path_, verify_);
    if (!report.ok()) {
      EXPECT_EQ(file, files_[0]) << at << ": " << TextOf(report);
      EXPECT_THAT(report.status().message(), HasSubstr(file.string())) << at;
      return;
    }
    ASSERT_FALSE(report->ok()) << file << " at " << at << " is not reported";
    for (const VerifyProblem& problem : report->problems) {
      EXPECT_EQ(problem.file, file.filename().string()) << at;
    }
  }

  const ScratchDirectory scratch_;
  const std::filesystem::path path_ = scratch_ / "c";
  std::vector<std::filesystem::path> files_;
  LoadOptions options_;
  VerifyOptions verify_;
};

TEST_F(Damage, EveryByteFlipped) {
  for (const auto& file : files_) {
    const std::string sound = Contents(file);
    // What lies behind the index is not read by a load.
    const uint64_t read_end = sound.find_last_not_of('\0') + 1;
    const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    for (uint64_t at = 0; at < sound.size(); ++at) {
      const auto place = static_cast<off_t>(at);
      const char flipped = static_cast<char>(sound[at] ^ (1 << (at * 5 % 8)));
      ASSERT_EQ(pwrite(fd, &flipped, 1, place), 1);
      ExpectReported(file, at);
      const Status loaded = LoadAll(file == files_[1] ? 0 : 1);
      if (at < read_end || file == files_[0]) {
        EXPECT_FALSE(loaded.ok()) << file << " at " << at << " is loaded";
      }
      if (!loaded.ok()) {
        // The manifest alone says what the caller named: its magic and its version.
        const bool is_named = file == files_[0] || loaded.code() == StatusCode::kUnsupported;
        EXPECT_TRUE(is_named || loaded.code() == StatusCode::kCorruption)
            << file << " at " << at << ": " << loaded.ToString();
        EXPECT_THAT(loaded.message(), HasSubstr(file.string())) << at;
      }
      ASSERT_EQ(pwrite(fd, &sound[at], 1, place), 1);
    }
    close(fd);
  }
  EXPECT_OK(LoadAll());
  const auto report = Verify(path_);
  ASSERT_OK(report);
  EXPECT_TRUE(report->ok());
}

// A sparse cut costs no test of its own: all lengths near a page, and every 61st between.
TEST_F(Damage, FieldCase_E07_EveryLengthIsRefusedBeforeAByteIsTouched) {
  for (const auto& file : files_) {
    const std::string sound = Contents(file);
    std::set<uint64_t> lengths;
    for (uint64_t at = 0; at < sound.size(); at += 61) lengths.insert(at);
    for (uint64_t page = 0; page <= sound.size(); page += 4096) {
      for (uint64_t by = 0; by < 3; ++by) {
        if (page >= by && page - by < sound.size()) lengths.insert(page - by);
        if (page + by < sound.size()) lengths.insert(page + by);
      }
    }
    for (auto length = lengths.rbegin(); length != lengths.rend(); ++length) {
      ASSERT_EQ(truncate(file.c_str(), static_cast<off_t>(*length)), 0);
      const Status loaded = LoadAll(file == files_[1] ? 0 : 1);
      ASSERT_FALSE(loaded.ok()) << file << " cut to " << *length;
      EXPECT_THAT(loaded.message(), HasSubstr(file.string())) << *length;
      if (file != files_[0]) {
        EXPECT_EQ(loaded.code(), StatusCode::kCorruption);
        EXPECT_THAT(loaded.message(), HasSubstr("truncated: have " + std::to_string(*length) +
                                                " bytes, need " + std::to_string(sound.size())));
      }
      ExpectReported(file, *length);
    }
    SetContents(file, sound);
  }
  EXPECT_OK(LoadAll());
}

TEST_F(Damage, FieldCase_E17_TrailingBytesAreRefusedByEveryBackendAlike) {
  for (const auto& file : files_) {
    const std::string sound = Contents(file);
    for (const size_t more : {size_t{1}, size_t{16}, size_t{4096}}) {
      SetContents(file, sound + std::string(more, '\0'));
      std::set<std::string> verdicts;
      for (const Backend backend : kBackends) {
        options_.backend = backend;
        const Status loaded = LoadAll(file == files_[1] ? 0 : 1);
        EXPECT_EQ(loaded.code(), StatusCode::kCorruption);
        verdicts.insert(loaded.message());
      }
      EXPECT_EQ(verdicts.size(), 1u);
      ExpectReported(file, sound.size() + more);
    }
    SetContents(file, sound);
  }
}

// Verify goes on: what is wrong in several files and segments is all named.
TEST_F(Damage, VerifyReportsEveryProblem) {
  FlipBit(files_[1], 4096, 0);
  FlipBit(files_[1], 2 * 4096, 3);      // its other segment
  FlipBit(files_[2], 2 * 4096 - 1, 7);  // padding
  const auto report = Verify(path_, verify_);
  ASSERT_OK(report);
  ASSERT_EQ(report->problems.size(), 3u);
  std::set<std::string> segments;
  for (const VerifyProblem& problem : report->problems) {
    EXPECT_EQ(problem.code, StatusCode::kCorruption);
    EXPECT_EQ(problem.chunk, 0u);
    EXPECT_TRUE(problem.offset.has_value());
    EXPECT_EQ(problem.length, 4096u);
    segments.insert(problem.file + " " + problem.segment);
  }
  EXPECT_EQ(segments.size(), 3u);
  VerifyOptions one = verify_;
  one.rank = 1;
  const auto of_rank = Verify(path_, one);
  ASSERT_OK(of_rank);
  EXPECT_EQ(of_rank->problems.size(), 1u);
  one.rank = 2;
  const auto none = Verify(path_, one);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
}

TEST_F(Damage, EveryBackendVerifiesAlike) {
  FlipBit(files_[1], 4096 + 77, 0);
  FlipBit(files_[2], 4096 + 78, 0);
  for (const Backend backend :
       {Backend::kAuto, Backend::kUringDirect, Backend::kUring, Backend::kPread, Backend::kMmap}) {
    verify_.backend = backend;
    const auto report = Verify(path_, verify_);
    if (!report.ok() && report.status().code() == StatusCode::kUnsupported) continue;
    ASSERT_OK(report);
    EXPECT_EQ(report->problems.size(), 2u) << Name(backend);
  }
}

}  // namespace
}  // namespace flagstone::testing
