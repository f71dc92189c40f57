// SPDX-License-Identifier: Apache-2.0
#include "commit_support.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

namespace flagstone::testing {
namespace {

using Clock = std::chrono::steady_clock;

float PatternValue(uint64_t seed, uint64_t index) {
  return static_cast<float>((seed * 1'000'003 + index * 7919) % 16'777'213);
}

[[noreturn]] void ThrowErrno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

std::string ToText(const Result<SaveReport>& result) {
  nlohmann::json object{{"code", static_cast<int>(result.status().code())},
                        {"message", result.status().message()},
                        {"save_id", result.ok() ? result->save_id : ""},
                        {"warnings", result.ok() ? result->warnings : std::vector<std::string>()}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

CommitDirectory::CommitDirectory() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "flagstone-commit-XXXXXX").native();
  if (mkdtemp(pattern.data()) == nullptr) ThrowErrno(pattern.c_str());
  root_ = pattern;
}

CommitDirectory::~CommitDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(root_, ignored);
}

std::string Numbered(std::string prefix, uint64_t number) {
  return prefix.append(std::to_string(number));
}

std::vector<std::string> NamesIn(const path& directory) {
  std::vector<std::string> names;
  std::error_code gone;
  for (std::filesystem::directory_iterator at(directory, gone), end; !gone && at != end;
       at.increment(gone)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ContentOf(const path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

bool WaitFor(const std::function<bool()>& ready, std::string_view what) {
  const auto give_up = Clock::now() + kLongWait;
  while (!ready()) {
    if (Clock::now() > give_up) {
      ADD_FAILURE() << what << " did not come";
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool WaitForEntry(const path& checkpoint, std::string_view name, std::string_view text) {
  const auto there = [&] {
    for (const std::string& file : NamesIn(checkpoint)) {
      if (file.find(name) != std::string::npos &&
          ContentOf(checkpoint / file).find(text) != std::string::npos)
        return true;
    }
    return false;
  };
  return WaitFor(there, std::string(name) + " with " + std::string(text));
}

Gate::Gate() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno("pipe");
  read_end_ = ends[0];
  write_end_ = ends[1];
}

Gate::~Gate() {
  close(read_end_);
  close(write_end_);
}

// Looks and takes nothing: one byte opens the door for all and for good.
void Gate::Pass() const {
  pollfd door{read_end_, POLLIN, 0};
  while (poll(&door, 1, -1) < 0 && errno == EINTR) {
  }
}

void Gate::Open() const { WriteAll(write_end_, "o"); }

Status PatternSource::Read(uint64_t offset, std::span<std::byte> out) {
  if (at_) at_(offset);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t at = offset + i;
    const float value = PatternValue(seed_, first_ + at / sizeof(float));
    std::array<std::byte, sizeof(float)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(value));
    out[i] = bytes[at % sizeof(float)];
  }
  return {};
}

Layout OneTensor(uint32_t world, uint64_t elements) {
  Layout layout;
  layout.world_size = world;
  Tensor tensor;
  tensor.name = "t";
  tensor.shape = {elements};
  tensor.dtype = DType::kFloat32;
  layout.tensors = {tensor};
  layout.partitions = {
      MakeZero12(layout, "p", {0}, RankList::World(world), {{"fp32", DType::kFloat32}}).value()};
  return layout;
}

SaveOptions OptionsOf(std::string run, bool overwrite, std::chrono::milliseconds timeout) {
  SaveOptions options;
  options.run = std::move(run);
  options.overwrite = overwrite;
  options.timeout = timeout;
  options.sync_timeout = std::chrono::seconds(30);
  return options;
}

Result<SaveReport> SaveRank(const RankSave& save) {
  const Layout layout = save.layout ? *save.layout : OneTensor(save.world, save.elements);
  auto writer = Writer::Create(save.checkpoint, layout, save.rank, save.options);
  if (!writer.ok()) return writer.status();
  std::vector<std::unique_ptr<PatternSource>> sources;
  for (const Partition& partition : layout.partitions) {
    auto slices = HeldSlices(layout, partition.id, save.rank);
    if (!slices.ok() || slices->empty()) continue;
    uint64_t count = 0;
    for (const Slice& slice : *slices) count += slice.end - slice.begin;
    sources.push_back(std::make_unique<PatternSource>(save.seed, slices->front().begin, count,
                                                      sources.empty() ? save.at : nullptr));
    const Status added = writer->Add(partition.id, "fp32", *sources.back());
    if (!added.ok()) return added;
  }
  return writer->Commit();
}

std::ostream& operator<<(std::ostream& out, const RankResult& result) {
  if (result.signal != 0) return out << "killed by signal " << result.signal;
  return out << StatusCodeName(result.code) << ": " << result.message;
}

RankProcess::RankProcess(const std::function<Result<SaveReport>()>& body) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) ThrowErrno("pipe");
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) ThrowErrno("fork");
  if (pid_ == 0) {
    // A test that dies leaves no process behind.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    WriteAll(ends[1], ToText(body()));
    _exit(0);
  }
  close(ends[1]);
  results_ = ends[0];
}

RankProcess::RankProcess(RankProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      results_(std::exchange(other.results_, -1)),
      result_(std::move(other.result_)) {}

RankProcess::~RankProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (results_ >= 0) close(results_);
}

void RankProcess::Send(int signal) const { kill(pid_, signal); }

void RankProcess::WaitStopped() const {
  int status = 0;
  while (waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  EXPECT_TRUE(WIFSTOPPED(status));
}

RankResult RankProcess::Wait() {
  if (result_) return *result_;
  RankResult result;
  std::string text;
  const auto give_up = Clock::now() + kLongWait;
  for (;;) {
    pollfd waiting{results_, POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(give_up - Clock::now());
    const int ready = poll(&waiting, 1, std::max(0, static_cast<int>(left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      ADD_FAILURE() << "process " << pid_ << " did not end";
      kill(pid_, SIGKILL);
      break;
    }
    std::array<char, 4096> piece;
    const ssize_t got = read(results_, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(piece.data(), static_cast<size_t>(got));
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    const auto object = nlohmann::json::parse(text, nullptr, false);
    if (object.is_object()) {
      result.code = static_cast<StatusCode>(object["code"].get<int>());
      result.message = object["message"];
      result.save_id = object["save_id"];
      result.warnings = object["warnings"].get<std::vector<std::string>>();
    } else {
      result.code = StatusCode::kInternal;
      result.message = "the process ended without a result";
    }
  }
  result_ = result;
  return result;
}

std::vector<RankProcess> StartAll(const RankSave& common,
                                  const std::function<void(RankSave&)>& each) {
  std::vector<RankProcess> ranks;
  for (uint32_t rank = 0; rank < common.world; ++rank) {
    RankSave save = common;
    save.rank = rank;
    each(save);
    ranks.emplace_back(save);
  }
  return ranks;
}

std::vector<RankResult> WaitAll(std::vector<RankProcess>& ranks) {
  std::vector<RankResult> results;
  for (RankProcess& rank : ranks) results.push_back(rank.Wait());
  return results;
}

void SaveWell(const RankSave& common) {
  auto ranks = StartAll(common);
  for (const RankResult& result : WaitAll(ranks)) {
    EXPECT_TRUE(result.ok()) << result;
    EXPECT_THAT(result.warnings, ::testing::IsEmpty());
  }
}

std::string ExpectHolds(const RankSave& saved) {
  EXPECT_EQ(SeedOf(saved, {saved.seed}), saved.seed);
  const auto opened = Checkpoint::Open(saved.checkpoint);
  return opened.ok() ? opened->save_id() : "";
}

uint64_t SeedOf(const RankSave& saved, const std::vector<uint64_t>& seeds) {
  const auto opened = Checkpoint::Open(saved.checkpoint);
  if (!opened.ok()) {
    ADD_FAILURE() << opened.status().ToString();
    return 0;
  }
  const auto verified = Verify(saved.checkpoint);
  EXPECT_TRUE(verified.ok() && verified->ok()) << verified.status().ToString();
  std::vector<uint64_t> possible = seeds;
  for (uint32_t rank = 0; rank < opened->world_size(); ++rank) {
    const auto reader = opened->OpenRank(rank);
    if (!reader.ok()) {
      ADD_FAILURE() << reader.status().ToString();
      return 0;
    }
    const auto view = reader->ViewSegment("p", "fp32");
    if (!view.ok()) {
      ADD_FAILURE() << view.status().ToString();
      return 0;
    }
    const auto slices = HeldSlices(opened->layout(), "p", rank).value();
    if (slices.empty()) continue;
    const auto bytes = view->bytes();
    std::erase_if(possible, [&](uint64_t seed) {
      PatternSource source(seed, slices.front().begin, bytes.size() / sizeof(float));
      std::vector<std::byte> expected(bytes.size());
      return !source.Read(0, expected).ok() ||
             !std::equal(bytes.begin(), bytes.end(), expected.begin());
    });
  }
  if (possible.size() == 1) return possible.front();
  ADD_FAILURE() << "the bytes are of no single seed";
  return 0;
}

void ExpectClean(const path& checkpoint, uint32_t world) {
  const auto opened = Checkpoint::Open(checkpoint);
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  std::vector<std::string> expected = {"manifest.flagstone"};
  for (const auto& file : opened->rank_files()) expected.push_back(file.name);
  EXPECT_EQ(expected.size(), world + 1);
  EXPECT_THAT(NamesIn(checkpoint), ::testing::UnorderedElementsAreArray(expected));
}

bool IsRoot() { return geteuid() == 0; }

}  // namespace flagstone::testing
