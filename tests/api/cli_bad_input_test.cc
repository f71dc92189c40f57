// SPDX-License-Identifier: Apache-2.0

/// \file
/// One table: what the program is given that it cannot use, what it says, and that it leaves
/// nothing behind.

#include <flagstone/flagstone.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "program.h"

namespace flagstone::tests {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::IsEmpty;

// What is done to a directory that holds the good checkpoints `ckpt` and `other`.
using Damage = std::function<void(const fs::path& directory)>;

struct BadInput {
  std::string name;
  Damage damage;
  std::vector<std::string> arguments;  // "{}" stands for the directory.
  int exit_code = 1;
  std::string code;          // The code of the error; empty: a report with problems instead.
  std::string message;       // An extended regular expression that the line on stderr contains.
  bool needs_modes = false;  // Modes do not bind root.
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

std::string Replaced(std::string text, const fs::path& directory) {
  for (size_t at = text.find("{}"); at != std::string::npos; at = text.find("{}", at)) {
    text.replace(at, 2, directory.string());
  }
  return text;
}

// --- Ways to damage ---

fs::path RankFile(const fs::path& checkpoint, int rank) {
  const std::string start = "rank-0000" + std::to_string(rank) + ".";
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().starts_with(start)) return entry.path();
  }
  ADD_FAILURE() << "no file of rank " << rank << " in " << checkpoint;
  return {};
}

fs::path Manifest(const fs::path& directory) { return directory / "ckpt/manifest.flagstone"; }

Damage Nothing() {
  return [](const fs::path&) {};
}

Damage Put(const std::string& name, const std::string& content) {
  return [=](const fs::path& directory) {
    fs::create_directories((directory / name).parent_path());
    WriteFile(directory / name, content);
  };
}

Damage PutManifest(const std::string& content) { return Put("ckpt/manifest.flagstone", content); }

Damage Cut(bool manifest, uint64_t keep) {
  return [=](const fs::path& directory) {
    fs::resize_file(manifest ? Manifest(directory) : RankFile(directory / "ckpt", 1), keep);
  };
}

void FlipBit(const fs::path& file, uint64_t offset) {
  std::string content = ReadFile(file);
  ASSERT_LT(offset, content.size());
  content[offset] = static_cast<char>(content[offset] ^ 0x10);
  WriteFile(file, content);
}

Damage Flip(bool manifest, uint64_t offset) {
  return [=](const fs::path& directory) {
    FlipBit(manifest ? Manifest(directory) : RankFile(directory / "ckpt", 1), offset);
  };
}

// Changes the header page and gives it the digest that it then must have (spec/format.md): what
// another version could have written, not damage.
void Rewrite(const fs::path& file, const std::function<void(std::string& page)>& change) {
  constexpr size_t kPage = 4096, kDigestAt = 16, kDigestBytes = 16;
  std::string content = ReadFile(file);
  std::string page = content.substr(0, kPage);
  change(page);
  page.replace(kDigestAt, kDigestBytes, kDigestBytes, '\0');
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits(page.data(), page.size()));
  std::memcpy(page.data() + kDigestAt, digest.digest, kDigestBytes);
  WriteFile(file, page + content.substr(kPage));
}

Damage NewerMajor(bool manifest) {
  return [=](const fs::path& directory) {
    Rewrite(manifest ? Manifest(directory) : RankFile(directory / "ckpt", 1),
            [](std::string& page) { page[12] = 7; });
  };
}

Damage UnknownFeature(bool manifest) {
  return [=](const fs::path& directory) {
    Rewrite(manifest ? Manifest(directory) : RankFile(directory / "ckpt", 1),
            [](std::string& page) { page[69] = 0x02; });
  };
}

Damage MixSaves() {
  return [](const fs::path& directory) {
    fs::copy_file(RankFile(directory / "other", 1), RankFile(directory / "ckpt", 1),
                  fs::copy_options::overwrite_existing);
  };
}

Damage RemoveRankFile() {
  return [](const fs::path& directory) { fs::remove(RankFile(directory / "ckpt", 1)); };
}

Damage DirectoryInPlaceOf(bool manifest) {
  return [=](const fs::path& directory) {
    const fs::path file = manifest ? Manifest(directory) : RankFile(directory / "ckpt", 1);
    fs::remove(file);
    fs::create_directory(file);
  };
}

Damage Forbid(const std::string& what) {
  return [=](const fs::path& directory) {
    const fs::path path = what == "rank file" ? RankFile(directory / "ckpt", 1) : directory / what;
    fs::permissions(path, fs::perms::none);
  };
}

// --- The table ---

constexpr char kRankFile[] = "rank-00001\\.[0-9a-f]{8}\\.flagstone";

std::vector<BadInput> NotCheckpoints() {
  const std::string zip("PK\x03\x04\x14\0\0\0", 8);
  const std::string pickle("\x80\x02}q\0.", 6);
  const std::string safetensors("\x40\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}", 40);
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:12\n";
  const std::vector<std::string> inspect = {"inspect", "{}/ckpt"};
  const std::string bad = "ckpt.*(not a checkpoint|not a Flagstone file).*looks like .*";
  return {
      {"Absent", Nothing(), {"inspect", "{}/none"}, 1, "kNotFound", "{}/none"},
      {"AbsentForLoad", Nothing(), {"load", "{}/none"}, 1, "kNotFound", "{}/none"},
      {"AbsentForVerify", Nothing(), {"verify", "{}/none"}, 1, "kNotFound", "{}/none"},
      {"AbsentRoot", Nothing(), {"list", "{}/none"}, 1, "kNotFound", "{}/none"},
      {"Zip", PutManifest(zip), inspect, 1, "kInvalidArgument", bad + "zip"},
      {"Pickle", PutManifest(pickle), inspect, 1, "kInvalidArgument", bad + "pickle"},
      {"Safetensors", PutManifest(safetensors), inspect, 1, "kInvalidArgument",
       bad + "safetensors"},
      {"Text", PutManifest(pointer), inspect, 1, "kInvalidArgument", bad + "(text|Git LFS)"},
      {"Empty", PutManifest(""), inspect, 1, "kInvalidArgument", bad + "empty"},
      {"ManifestIsDirectory", DirectoryInPlaceOf(true), inspect, 1, "kInvalidArgument",
       "manifest\\.flagstone.*directory"},
      {"FileForDirectory",
       Put("model.pt", zip),
       {"load", "{}/model.pt"},
       1,
       "kInvalidArgument",
       "{}/model\\.pt.*zip"},
      {"TextForDirectory",
       Put("notes", pointer),
       {"verify", "{}/notes"},
       1,
       "kInvalidArgument",
       "{}/notes.*(text|Git LFS)"},
      {"RootIsFile",
       Put("notes", pointer),
       {"list", "{}/notes"},
       1,
       "kInvalidArgument",
       "{}/notes"},
      {"ManifestForDirectory",
       Nothing(),
       {"inspect", "{}/ckpt/manifest.flagstone"},
       1,
       "kInvalidArgument",
       "manifest.flagstone.*one file of a checkpoint.*directory.*{}/ckpt'"},
      {"ManifestUnderAnotherName",
       [](const fs::path& directory) { fs::copy_file(Manifest(directory), directory / "renamed"); },
       {"load", "{}/renamed"},
       1,
       "kInvalidArgument",
       "{}/renamed.*a file of a Flagstone checkpoint"},
      {"EmptyDirectory",
       [](const fs::path& directory) { fs::create_directory(directory / "empty"); },
       {"load", "{}/empty"},
       1,
       "kInvalidArgument",
       "{}/empty"},
      {"LatestNamesNothing", Put("latest", "gone\n"), {"inspect", "{}"}, 1, "kNotFound", "gone"},
      {"LatestIsNoName", Put("latest", "../ckpt\n"), {"inspect", "{}"}, 1, "kCorruption", "latest"},
  };
}

std::vector<BadInput> Damaged() {
  const std::vector<std::string> inspect = {"inspect", "{}/ckpt"}, verify = {"verify", "{}/ckpt"},
                                 load = {"load", "{}/ckpt", "--rank", "1"};
  const std::string manifest = "ckpt/manifest\\.flagstone", rank = kRankFile;
  return {
      {"ManifestCutInHeader", Cut(true, 100), inspect, 1, "kCorruption", manifest + ".*100"},
      {"ManifestCut", Cut(true, 4096), inspect, 1, "kCorruption", manifest + ".*4096"},
      {"ManifestHeaderFlipped", Flip(true, 100), load, 1, "kCorruption", manifest + ".*digest"},
      {"ManifestBodyFlipped", Flip(true, 5000), load, 1, "kCorruption", manifest},
      {"RankFileCut", Cut(false, 8192), load, 1, "kCorruption", rank + ".*8192"},
      {"RankFileEmpty", Cut(false, 0), load, 1, "kCorruption", rank},
      {"RankHeaderFlipped", Flip(false, 2000), load, 1, "kCorruption", rank + ".*digest"},
      {"DataFlipped", Flip(false, 5000), load, 1, "kCorruption",
       rank + ".*params\\.0/fp32.*chunk 0"},
      {"DataFlippedForView",
       Flip(false, 5000),
       {"load", "{}/ckpt", "--rank", "1", "--into", "view"},
       1,
       "kCorruption",
       rank + ".*params\\.0/fp32.*chunk 0"},
      {"DataFlippedForVerify", Flip(false, 5000), verify, 1, "",
       rank + ".*params\\.0/fp32.*chunk 0"},
      {"RankFileCutForVerify", Cut(false, 8192), verify, 1, "", rank + ".*8192"},
      {"MixedSaves", MixSaves(), load, 1, "kCorruption", rank + ".*save"},
      {"MixedSavesForVerify", MixSaves(), verify, 1, "", rank + ".*save"},
      {"RankFileMissing", RemoveRankFile(), load, 1, "kNotFound", rank},
      {"RankFileMissingForVerify", RemoveRankFile(), verify, 1, "", rank},
      {"RankFileMissingForList", RemoveRankFile(), {"list", "{}"}, 1, "", "1 of 2"},
      {"RankFileIsDirectory", DirectoryInPlaceOf(false), load, 1, "kCorruption",
       rank + ".*directory"},
  };
}

std::vector<BadInput> Foreign() {
  const std::vector<std::string> inspect = {"inspect", "{}/ckpt"}, verify = {"verify", "{}/ckpt"},
                                 load = {"load", "{}/ckpt", "--rank", "1"};
  const std::string manifest = "ckpt/manifest\\.flagstone", rank = kRankFile;
  const Damage manifest_only = [](const fs::path& directory) {
    const auto made = RunProgram({"synth", (directory / "planned").string(), "--params", "10K",
                                  "--world", "4", "--manifest-only"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  };
  return {
      {"NewerMajor", NewerMajor(true), inspect, 1, "kUnsupported", manifest + ".*version 7\\."},
      {"NewerMajorRankFile", NewerMajor(false), load, 1, "kUnsupported", rank + ".*version 7\\."},
      {"UnknownFeature", UnknownFeature(true), inspect, 1, "kUnsupported", manifest + ".*bit 41"},
      {"UnknownFeatureRankFile", UnknownFeature(false), load, 1, "kUnsupported", rank + ".*bit 41"},
      {"UnknownFeatureForVerify", UnknownFeature(true), verify, 1, "kUnsupported",
       manifest + ".*bit 41"},
      {"NoDataToLoad", manifest_only, {"load", "{}/planned"}, 1, "kUnsupported", "no-data"},
      {"NoDataToVerify", manifest_only, {"verify", "{}/planned"}, 1, "kUnsupported", "no-data"},
  };
}

std::vector<BadInput> Requests() {
  const std::vector<std::string> load = {"load", "{}/ckpt", "--rank", "1"};
  const Damage closed = [](const fs::path& directory) {
    fs::create_directory(directory / "closed");
    fs::permissions(directory / "closed", fs::perms::owner_read | fs::perms::owner_exec);
  };
  return {
      {"NoSuchRank",
       Nothing(),
       {"load", "{}/ckpt", "--rank", "9"},
       1,
       "kNotFound",
       "rank 9.*0 to 1"},
      {"NoSuchRankOfTheWantedWorld",
       Nothing(),
       {"load", "{}/ckpt", "--world", "3", "--rank", "3"},
       1,
       "kNotFound",
       "rank 3.*of 3 ranks: 0 to 2"},
      {"WorldLargerThanAny",
       Nothing(),
       {"load", "{}/ckpt", "--world", "1048577"},
       1,
       "kInvalidArgument",
       "1048577.*1 to 1048576"},
      {"NoSuchRankToVerify",
       Nothing(),
       {"verify", "{}/ckpt", "--rank", "9"},
       1,
       "kNotFound",
       "rank 9.*0 to 1"},
      {"NoSuchRole",
       Nothing(),
       {"load", "{}/ckpt", "--roles", "fp23"},
       1,
       "kNotFound",
       "fp23.*fp32"},
      {"RoleThatIsReplicatedAlone",
       Nothing(),
       {"load", "{}/ckpt", "--roles", "weight"},
       1,
       "kInvalidArgument",
       "weight.*replicated partitions alone.*--replicated"},
      {"CheckpointForTheDirectoryOfCheckpoints",
       Nothing(),
       {"list", "{}/ckpt"},
       1,
       "kInvalidArgument",
       "{}/ckpt' is a checkpoint.*{}'"},
      {"NameTaken",
       Nothing(),
       {"synth", "{}/ckpt", "--params", "1K"},
       1,
       "kAlreadyExists",
       "{}/ckpt"},
      {"NameTakenByFile",
       Put("taken", "x"),
       {"synth", "{}/taken", "--params", "1K"},
       1,
       "k(AlreadyExists|InvalidArgument|IoError)",
       "{}/taken"},
      {"NameBelowFile",
       Put("taken", "x"),
       {"synth", "{}/taken/ckpt", "--params", "1K"},
       1,
       "k(InvalidArgument|IoError)",
       "{}/taken"},
      {"TooFewParameters",
       Nothing(),
       {"synth", "{}/new", "--params", "3", "--tensors", "4"},
       1,
       "kInvalidArgument",
       "3.*4"},
      {"RankFileForbidden", Forbid("rank file"), load, 1, "kIoError",
       std::string(kRankFile) + ".*[Pp]ermission denied.*uid", true},
      {"ManifestForbidden", Forbid("ckpt/manifest.flagstone"), load, 1, "kIoError",
       "manifest\\.flagstone.*[Pp]ermission denied.*uid", true},
      {"DirectoryForbidden", Forbid("ckpt"), load, 1, "kIoError",
       "{}/ckpt.*[Pp]ermission denied.*uid", true},
      {"RootNotWritable",
       closed,
       {"synth", "{}/closed/new", "--params", "1K"},
       1,
       "kIoError",
       "{}/closed.*[Pp]ermission denied.*uid",
       true},
  };
}

std::vector<BadInput> UsageErrors() {
  const std::string kind = "kInvalidArgument";
  const auto bad = [&](const char* name, std::vector<std::string> arguments,
                       std::string message) -> BadInput {
    return {name, Nothing(), std::move(arguments), 2, kind, std::move(message)};
  };
  return {
      bad("NoCommand", {}, "subcommand"),
      bad("UnknownCommand", {"frobnicate"}, "frobnicate"),
      bad("UnknownOption", {"load", "{}/ckpt", "--frobnicate"}, "--frobnicate"),
      bad("NoCheckpoint", {"verify"}, "CKPT"),
      bad("TooMany", {"list", "{}", "{}"}, "not expected"),
      bad("NeitherModelNorParams", {"synth", "{}/new"}, "--model.*--params"),
      bad("ModelAndParams", {"synth", "{}/new", "--model", "small-10k", "--params", "5"},
          "--model.*--params"),
      bad("UnknownModel", {"synth", "{}/new", "--model", "gpt5"}, "gpt5"),
      bad("SizeOverflows", {"synth", "{}/new", "--params", "99999999999G"}, "99999999999G"),
      bad("UnitUnknown", {"synth", "{}/new", "--params", "1Q"}, "1Q"),
      bad("StageUnknown", {"synth", "{}/new", "--params", "9", "--stage", "4"}, "'4'.*0 to 3"),
      bad("WorldOfNone", {"synth", "{}/new", "--params", "9", "--world", "0"}, "'0'.*from 1"),
      bad("WorldOfNoneWanted", {"load", "{}/ckpt", "--world", "0"}, "'0'.*from 1"),
      bad("StageUnknownWanted", {"load", "{}/ckpt", "--stage", "4"}, "'4'.*0 to 3"),
      bad("NegativeRank", {"load", "{}/ckpt", "--rank", "-1"}, "'-1'"),
      bad("RankTooLarge", {"load", "{}/ckpt", "--rank", "4294967296"}, "4294967296"),
      bad("EmptyRole", {"load", "{}/ckpt", "--roles", "fp32,"}, "fp32,"),
      bad("UnknownBackend", {"load", "{}/ckpt", "--backend", "carrier-pigeon"}, "carrier-pigeon"),
      bad("UnknownInto", {"load", "{}/ckpt", "--into", "void"}, "void"),
      bad("ControlCharacters", {"load", "{}/ckpt", "--backend", "\x1b]52;c;\a\n"},
          "\\\\x1b\\]52;c;\\\\x07\\\\n"),
  };
}

std::vector<BadInput> Table() {
  std::vector<BadInput> table;
  for (const auto& part : {NotCheckpoints(), Damaged(), Foreign(), Requests(), UsageErrors()}) {
    table.insert(table.end(), part.begin(), part.end());
  }
  return table;
}

// --- The test ---

class CliBadInput : public testing::TestWithParam<BadInput> {
 protected:
  // Saved once, copied for each case.
  static void SetUpTestSuite() {
    good_ = new ScratchDirectory;
    for (const char* const name : {"ckpt", "other"}) {
      const auto saved = RunProgram({"synth", (good_->path() / name).string(), "--params", "50K",
                                     "--tensors", "3", "--world", "2", "--step", "7"});
      ASSERT_EQ(saved.exit_code, 0) << saved.err;
    }
    fs::remove(good_->path() / "latest");
  }
  static void TearDownTestSuite() {
    delete good_;
    good_ = nullptr;
  }

  static ScratchDirectory* good_;
};

ScratchDirectory* CliBadInput::good_ = nullptr;

void CheckLine(const ProgramResult& result, const std::string& message) {
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex(message));
  const bool clean = std::none_of(result.err.begin(), result.err.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
  });
  EXPECT_TRUE(clean) << "control characters: " << result.err;
}

void CheckError(const nlohmann::json& json, const std::string& code) {
  ASSERT_TRUE(json.contains("error")) << json;
  const nlohmann::json& error = json["error"];
  for (const char* const key : {"code", "message", "path", "segment", "offset"}) {
    ASSERT_TRUE(error.contains(key)) << key << " of " << json;
  }
  EXPECT_THAT(error["code"].get<std::string>(), testing::MatchesRegex(code));
  EXPECT_FALSE(error["message"].get<std::string>().empty());
}

TEST_P(CliBadInput, IsNamedAndLeavesNothing) {
  const BadInput& input = GetParam();
  if (input.needs_modes && geteuid() == 0) GTEST_SKIP() << "ordinary user: modes do not bind root";
  const ScratchDirectory scratch;
  fs::copy(good_->path(), scratch.path(), fs::copy_options::recursive);
  input.damage(scratch.path());
  if (HasFatalFailure()) return;
  std::vector<std::string> arguments;
  for (const std::string& word : input.arguments) {
    arguments.push_back(Replaced(word, scratch.path()));
  }
  const std::string message = Replaced(input.message, scratch.path());
  const auto before = Snapshot(scratch.path());

  const ProgramResult plain = RunProgram(arguments);
  EXPECT_EQ(plain.exit_code, input.exit_code) << plain.err;
  CheckLine(plain, message);
  if (!input.code.empty()) {
    EXPECT_THAT(plain.out, IsEmpty());
  }

  arguments.push_back("--json");
  const ProgramResult json = RunProgram(arguments);
  EXPECT_EQ(json.exit_code, input.exit_code) << json.err;
  CheckLine(json, message);
  if (input.code.empty()) {
    EXPECT_FALSE(json.Json().contains("error")) << json.out;
  } else {
    CheckError(json.Json(), input.code);
  }
  EXPECT_EQ(Snapshot(scratch.path()), before);
}

// The same bytes through the library: no descriptor stays open behind an error.
TEST_P(CliBadInput, LeaksNoDescriptor) {
  const BadInput& input = GetParam();
  if (input.needs_modes && geteuid() == 0) GTEST_SKIP() << "ordinary user: modes do not bind root";
  const ScratchDirectory scratch;
  fs::copy(good_->path(), scratch.path(), fs::copy_options::recursive);
  input.damage(scratch.path());
  const size_t before = OpenDescriptors();
  LoadOptions options;
  options.replicated = true;
  if (const auto checkpoint = Checkpoint::Open(scratch.path() / "ckpt"); checkpoint.ok()) {
    for (const uint32_t rank : {0u, 1u, 9u}) {
      const auto reader = checkpoint->OpenRank(rank, options);
      if (!reader.ok()) continue;
      for (const SegmentInfo& segment : reader->segments()) {
        (void)reader->ViewSegment(segment.partition, segment.role);
      }
      const auto memory = reader->Allocate();
      ASSERT_TRUE(memory.ok()) << memory.status().ToString();
      (void)reader->Load(memory->destinations);
    }
  }
  (void)Verify(scratch.path() / "ckpt");
  (void)ListCheckpoints(scratch.path());
  EXPECT_EQ(OpenDescriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(Table, CliBadInput, testing::ValuesIn(Table()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace flagstone::tests
