// SPDX-License-Identifier: Apache-2.0

/// \file
/// The program's good paths: what it prints of what it saved, and that nothing dangerous is
/// printed.

#include <flagstone/flagstone.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "program.h"
#include "usable.h"

namespace flagstone::tests {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json RunJson(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const ProgramResult result = RunProgram(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.Json();
}

void ExpectKeys(const json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << key << ": " << object;
}

class CliTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (scratch_.path() / name).string(); }

  ScratchDirectory scratch_;
};

TEST_F(CliTest, SynthInspectVerifyListLoad) {
  const json made = RunJson(
      {"synth", Path("a"), "--params", "100K", "--tensors", "5", "--world", "3", "--step", "12"});
  EXPECT_EQ(made["path"], Path("a"));
  EXPECT_EQ(made["files"], 4);
  EXPECT_GT(made["seconds"], 0);

  const json shown = RunJson({"inspect", Path("a")});
  ExpectKeys(shown, {"world_size", "save_id", "format_version", "tensor_count", "tensors",
                     "partitions", "step", "committed_at", "ranks", "client_state"});
  EXPECT_EQ(shown["world_size"], 3);
  EXPECT_EQ(shown["save_id"].get<std::string>().size(), 32u);
  EXPECT_EQ(shown["format_version"], "0.1");
  EXPECT_EQ(shown["tensor_count"], 5);
  EXPECT_EQ(shown["step"], 12);
  EXPECT_EQ(shown["client_state"]["iteration"], 12);
  uint64_t bytes = shown["manifest_bytes"];
  for (const json& rank : shown["ranks"]) {
    ExpectKeys(rank, {"rank", "file", "bytes"});
    EXPECT_EQ(fs::file_size(scratch_.path() / "a" / rank["file"].get<std::string>()),
              rank["bytes"]);
    bytes += rank["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(made["bytes"], bytes);
  for (const json& tensor : shown["tensors"]) {
    ExpectKeys(tensor, {"name", "dtype", "shape", "kind", "group", "roles", "aliases"});
    EXPECT_EQ(tensor["roles"].size(), 5u) << tensor;
  }
  for (const json& partition : shown["partitions"]) {
    ExpectKeys(partition, {"id", "rule", "ranks", "members", "roles"});
    EXPECT_EQ(partition["ranks"], (json{0, 1, 2}));
  }

  const json verified = RunJson({"verify", Path("a")});
  EXPECT_EQ(verified["ok"], true);
  EXPECT_EQ(verified["bytes"], bytes);
  EXPECT_EQ(verified["problems"], json::array());
  EXPECT_LT(RunJson({"verify", Path("a"), "--rank", "2"})["bytes"], bytes);

  const json listed = RunJson({"list", scratch_.path().string()});
  ASSERT_EQ(listed["checkpoints"].size(), 1u);
  EXPECT_EQ(listed["checkpoints"][0]["name"], "a");
  EXPECT_EQ(listed["checkpoints"][0]["save_id"], shown["save_id"]);
  EXPECT_EQ(listed["checkpoints"][0]["step"], 12);
  EXPECT_EQ(listed["checkpoints"][0]["bytes"], bytes);
  EXPECT_EQ(listed["checkpoints"][0]["committed"], shown["committed_at"]);
  EXPECT_EQ(listed["checkpoints"][0]["latest"], true);
  EXPECT_EQ(listed["debris"], json::array());
}

TEST_F(CliTest, LoadReportsEveryKeyForEveryWay) {
  RunJson({"synth", Path("a"), "--params", "300K", "--tensors", "7", "--world", "2"});
  const auto checkpoint = Checkpoint::Open(Path("a"));
  ASSERT_TRUE(checkpoint.ok());
  for (const char* const into : {"fresh", "prepared", "view"}) {
    for (const char* const backend : {"auto", "uring-direct", "uring", "pread", "mmap"}) {
      SCOPED_TRACE(std::string(into) + " " + backend);
      if (!IsUsable(*checkpoint, *BackendFromName(backend))) continue;
      // Over ROOT, which follows `latest`.
      const json load = RunJson(
          {"load", scratch_.path().string(), "--rank", "1", "--into", into, "--backend", backend});
      ExpectKeys(load,
                 {"rank", "wanted_bytes", "read_bytes", "verified_bytes", "seconds", "cpu_seconds",
                  "backend", "backend_reason", "metadata_bytes", "files_opened", "read_calls",
                  "peak_host_bytes", "predicted_peak_bytes", "resident_pages_before"});
      const uint64_t wanted = load["wanted_bytes"];
      EXPECT_EQ(load["rank"], 1);
      // Two groups, cut in halves that are padded to even numbers: 4 bytes in each of 3 roles.
      EXPECT_NEAR(static_cast<double>(wanted), 150'000 * 12, 2 * 4 * 3);
      EXPECT_GE(load["read_bytes"], wanted);
      EXPECT_EQ(load["files_opened"], 1);
      EXPECT_TRUE(load["predicted_peak_bytes"].is_null());
      const uint64_t destination = std::string(into) == "view" ? 0 : wanted;
      EXPECT_GE(load["peak_host_bytes"], destination);
      EXPECT_LE(load["peak_host_bytes"], destination + (uint64_t{32} << 20));
    }
  }
}

// All ranks of any world together want what all ranks saved, whatever the stage.
TEST_F(CliTest, LoadAsAnotherWorldAndStage) {
  RunJson({"synth", Path("a"), "--params", "300K", "--tensors", "7", "--world", "4", "--stage", "2"});
  const auto sum = [&](uint32_t world, std::vector<std::string> options) {
    uint64_t bytes = 0;
    for (uint32_t rank = 0; rank < world; ++rank) {
      std::vector<std::string> arguments = {"load",   Path("a"), "--world", std::to_string(world),
                                            "--rank", std::to_string(rank)};
      arguments.insert(arguments.end(), options.begin(), options.end());
      const json load = RunJson(arguments);
      EXPECT_GE(load["verified_bytes"], load["wanted_bytes"]);
      bytes += load["wanted_bytes"].get<uint64_t>();
    }
    return bytes;
  };
  const uint64_t optimizer = sum(4, {});
  for (const uint32_t world : {1U, 3U, 6U}) EXPECT_EQ(sum(world, {}), optimizer);
  // ZeRO-3 owns the weights too: 2 bytes to 12 of the optimizer's.
  EXPECT_EQ(sum(3, {"--stage", "3"}), optimizer + optimizer / 6);
}

TEST_F(CliTest, LoadTakesRolesAndReplicatedTensors) {
  RunJson({"synth", Path("a"), "--params", "300K", "--tensors", "7", "--world", "2"});
  const auto wanted = [&](std::vector<std::string> options) {
    std::vector<std::string> arguments = {"load", Path("a")};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return RunJson(arguments)["wanted_bytes"].get<uint64_t>();
  };
  const uint64_t all = wanted({});
  EXPECT_EQ(wanted({"--roles", "fp32"}) * 3, all);
  EXPECT_EQ(wanted({"--roles", "exp_avg,exp_avg_sq"}) * 3, all * 2);
  EXPECT_GE(wanted({"--replicated"}), all + 2 * 300'000);
  EXPECT_GE(wanted({"--replicated", "--into", "view"}), all + 2 * 300'000);
}

TEST_F(CliTest, ManifestOnlyCanBeInspected) {
  const json made = RunJson({"synth", Path("a"), "--params", "1T", "--tensors", "2000", "--stage",
                             "3", "--world", "1024", "--manifest-only"});
  EXPECT_EQ(made["files"], 1);
  const json shown = RunJson({"inspect", Path("a")});
  EXPECT_EQ(shown["world_size"], 1024);
  uint64_t elements = 0;
  for (const json& tensor : shown["tensors"]) elements += tensor["shape"][0].get<uint64_t>();
  EXPECT_EQ(elements, 1'000'000'000'000u);
}

// `latest` is what loads follow, and a manifest alone cannot be loaded.
TEST_F(CliTest, ManifestOnlyDoesNotMoveLatest) {
  RunJson({"synth", Path("a"), "--params", "1K"});
  RunJson({"synth", Path("b"), "--params", "1G", "--manifest-only"});
  RunJson({"load", scratch_.path().string()});
  EXPECT_EQ(RunJson({"inspect", Path("a")})["has_data"], true);
  EXPECT_EQ(RunJson({"inspect", Path("b")})["has_data"], false);
}

TEST_F(CliTest, ASaveThatLeftSomethingUndoneSaysSo) {
  fs::create_directory(Path("latest"));
  const ProgramResult saved = RunProgram({"synth", Path("a"), "--params", "1K", "--json"});
  EXPECT_EQ(saved.exit_code, 0);
  EXPECT_THAT(saved.err, HasSubstr("'latest' was not moved"));
  EXPECT_EQ(saved.Json()["warnings"].size(), 1u);
}

TEST_F(CliTest, SparseTakesNoRoom) {
  const json made = RunJson(
      {"synth", Path("a"), "--params", "50M", "--tensors", "3", "--world", "2", "--sparse"});
  EXPECT_GT(made["bytes"], 50'000'000u * 14);
  EXPECT_EQ(RunJson({"verify", Path("a")})["ok"], true);
}

// A name may hold what a terminal obeys (field case C20). People see it escaped, scripts exactly.
TEST_F(CliTest, NamesDriveNoTerminal) {
  const std::string evil = "w\x1b]52;c;eA==\a\n\x7f\xc2\x9b\xe2\x80\xae";
  Layout layout;
  Tensor tensor;
  tensor.name = evil;
  tensor.shape = {2};
  tensor.aliases = {"alias\r" + evil};
  layout.tensors = {tensor};
  Role role;
  role.name = "weight\t";
  auto partition = MakeReplicated(layout, "p\x1b[2J", {0}, RankList::World(1), {role});
  ASSERT_TRUE(partition.ok());
  layout.partitions = {*partition};
  auto writer = Writer::Create(Path("a"), layout, 0);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  const std::vector<std::byte> bytes(8);
  ASSERT_TRUE(writer->Add(partition->id, role.name, bytes).ok());
  Value state;
  state.Set("note\x7f", evil);
  ASSERT_TRUE(writer->SetClientState(state).ok());
  ASSERT_TRUE(writer->Commit().ok());

  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"inspect", Path("a")},
                                             {"inspect", Path("a"), "--json"},
                                             {"load", Path("a"), "--roles", evil},
                                             {"load", Path("a"), "--roles", evil, "--json"}}) {
    const ProgramResult result = RunProgram(arguments);
    for (const std::string& text : {result.out, result.err}) {
      for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        ASSERT_TRUE((byte >= 0x20 && byte < 0x7f) || c == '\n') << int{byte} << " in " << text;
      }
    }
  }
  EXPECT_THAT(RunProgram({"inspect", Path("a")}).out,
              HasSubstr("w\\x1b]52;c;eA==\\x07\\n\\x7f\\u{009b}\\u{202e}"));
  const json shown = RunJson({"inspect", Path("a")});
  EXPECT_EQ(shown["tensors"][0]["name"], evil);
  EXPECT_EQ(shown["client_state"]["note\x7f"], evil);
}

// Ctrl-C while a save writes: 130, and nothing is left of it.
TEST_F(CliTest, InterruptedSaveLeavesNothing) {
  RunJson({"synth", Path("old"), "--params", "10K"});
  const auto before = Snapshot(scratch_.path());
  Program program({"synth", Path("new"), "--params", "400M", "--world", "2", "--json"});
  // Once its private files are there it is in the middle of writing 5.6 GB.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (program.Running() && !fs::exists(Path("new")) &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(fs::exists(Path("new")));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(program.pid(), SIGINT);
  const ProgramResult result = program.Wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("interrupted"));
  EXPECT_EQ(result.Json()["error"]["code"], "kCancelled");
  auto after = Snapshot(scratch_.path());
  EXPECT_EQ(after, before);
}

TEST_F(CliTest, ColdIsProvenOrRefused) {
  RunJson({"synth", Path("a"), "--params", "1M"});
  const ProgramResult result = RunProgram({"load", Path("a"), "--cold", "--json"});
  const json load = result.Json();
  if (result.exit_code == 0) {
    EXPECT_EQ(load["resident_pages_before"], 0);
    EXPECT_EQ(result.err, "");
  } else {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(load["error"]["code"], "kUnsupported");
    EXPECT_THAT(result.err, HasSubstr("--cold"));
  }
}

TEST_F(CliTest, HelpAndVersion) {
  const ProgramResult help = RunProgram({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* const command : {"synth", "inspect", "verify", "list", "load"}) {
    EXPECT_THAT(help.out, HasSubstr(command));
    EXPECT_EQ(RunProgram({command, "--help"}).exit_code, 0);
  }
  EXPECT_EQ(RunProgram({"--version"}).out, "flagstone " + std::string(LibraryVersion()) + "\n");
}

}  // namespace
}  // namespace flagstone::tests
