// SPDX-License-Identifier: Apache-2.0
// What a load costs in memory, bytes and files: counts and peaks, never the clock. Each figure is
// taken in a new program under RLIMIT_DATA, which counts what is mapped and not only what is
// touched. A forked one would not do: what its parent has freed it uses again uncounted.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string_view>
#include <utility>

#include "load_support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FLAGSTONE_SKIP_IF_SANITIZED() \
  GTEST_SKIP() << "a sanitizer's own memory is not ours to measure"
#else
#define FLAGSTONE_SKIP_IF_SANITIZED() static_cast<void>(0)
#endif

namespace flagstone::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// From here on the process may map so much more private memory.
uint64_t LimitGrowth(uint64_t bytes) {
  const uint64_t start = ProcessMemory("VmData:");
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = start + bytes;
  setrlimit(RLIMIT_DATA, &limit);
  return start;
}

int Fail(const std::string& what) {
  std::cout << what << "\n";
  return 1;
}

constexpr const char* kTaskFlag = "--load-memory-task";

// This program anew, which does nothing but a task of RunTask; 0 when it went well.
int RunAnew(const std::string& task, const std::filesystem::path& path) {
  return RunInChild([&] {
    execl("/proc/self/exe", "api_load_tests", kTaskFlag, task.c_str(), path.c_str(), nullptr);
    return 9;
  });
}

// Two ranks of 64 MiB each.
class LoadMemory : public ::testing::Test {
 protected:
  static constexpr uint64_t kElements = uint64_t{16} << 20;
  static constexpr uint64_t kWanted = kElements / 2 * 8;
  static void SetUpTestSuite() {
    scratch_.emplace();
    SaveAll(*scratch_ / "c", FlatLayout(2, kElements));
  }
  static void TearDownTestSuite() { scratch_.reset(); }
  static std::filesystem::path path() { return *scratch_ / "c"; }

 private:
  static inline std::optional<ScratchDirectory> scratch_;
};

int LoadUnderLimit(const std::filesystem::path& path, Backend backend, uint64_t wanted) {
  // The wanted bytes, and 32 MiB for everything else, from before Open.
  LimitGrowth(wanted + 32 * kMiB);
  ResetPeakMemory();
  const uint64_t counted = LibraryMemory().current_bytes;
  const auto checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return Fail(TextOf(checkpoint));
  LoadOptions options;
  options.backend = backend;
  const auto reader = checkpoint->OpenRank(1, options);
  if (!reader.ok()) return Fail(TextOf(reader));
  const auto memory = reader->Allocate();
  if (!memory.ok()) return Fail(TextOf(memory));
  const auto report = reader->Load(memory->destinations);
  if (!report.ok()) return Fail(TextOf(report));
  const uint64_t peak = LibraryMemory().peak_bytes - counted;
  std::cout << report->backend << ": wanted " << wanted << ", read " << report->read_bytes
            << ", metadata " << report->metadata_bytes << ", peak " << peak << ", buffers "
            << report->peak_buffer_bytes << ", anonymous " << ProcessMemory("RssAnon:") << "\n";
  if (peak > wanted + 32 * kMiB) return Fail("the library counts more than that");
  if (peak < wanted) return Fail("the library does not count what it has allocated");
  if (report->peak_buffer_bytes > 32 * kMiB) return Fail("buffers above 32 MiB");
  if (report->wanted_bytes != wanted) return Fail("other bytes wanted");
  if (report->read_bytes * 100 > wanted * 101) return Fail("more than 1.01 x the slices read");
  if (report->files_opened != 1) return Fail("more than one rank file opened");
  if (report->metadata_bytes > kMiB) return Fail("metadata above 1 MiB");
  return 0;
}

int LoadTooLittle(const std::filesystem::path& path, uint64_t wanted) {
  LimitGrowth(wanted / 2);
  const auto checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return Fail(TextOf(checkpoint));
  const auto reader = checkpoint->OpenRank(0);
  if (!reader.ok()) return Fail(TextOf(reader));
  const auto memory = reader->Allocate();
  if (memory.ok()) return Fail("allocated in spite of the limit");
  return memory.status().code() == StatusCode::kResourceExhausted ? 0 : Fail(TextOf(memory));
}

int LoadToSink(const std::filesystem::path& path, uint64_t wanted) {
  class Counter final : public Sink {
   public:
    Status Write(uint64_t, std::span<const std::byte> bytes) override {
      count += bytes.size();
      return {};
    }
    uint64_t count = 0;
  };

  LimitGrowth(32 * kMiB);
  const auto checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return Fail(TextOf(checkpoint));
  const auto reader = checkpoint->OpenRank(0);
  if (!reader.ok()) return Fail(TextOf(reader));
  Counter counter;
  std::vector<Destination> destinations;
  for (const SegmentInfo& segment : reader->segments()) {
    destinations.push_back({segment.partition, segment.role, {}, &counter});
  }
  const auto report = reader->Load(destinations);
  if (!report.ok()) return Fail(TextOf(report));
  return counter.count == wanted ? 0 : Fail("not all bytes came");
}

int ViewAll(const std::filesystem::path& path, uint64_t wanted) {
  const uint64_t before = ProcessMemory("RssAnon:");
  LimitGrowth(kMiB);
  const uint64_t counted = LibraryMemory().current_bytes;
  ResetPeakMemory();
  const auto checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return Fail(TextOf(checkpoint));
  const auto reader = checkpoint->OpenRank(1);
  if (!reader.ok()) return Fail(TextOf(reader));
  std::vector<View> views;
  LoadReport report;
  uint64_t sum = 0;
  for (const SegmentInfo& segment : reader->segments()) {
    const auto view = reader->ViewSegment(segment.partition, segment.role, &report);
    if (!view.ok()) return Fail(TextOf(view));
    views.push_back(*view);
    for (const std::byte byte : view->bytes()) sum += std::to_integer<uint64_t>(byte);
  }
  const uint64_t grown = ProcessMemory("RssAnon:") - before;
  std::cout << "view of " << report.wanted_bytes << ": anonymous memory + " << grown
            << ", counted + " << LibraryMemory().peak_bytes - counted << ", metadata "
            << report.metadata_bytes << " (sum " << sum << ")\n";
  if (report.verified_bytes < wanted) return Fail("not all of it was verified");
  return grown <= kMiB + report.metadata_bytes ? 0 : Fail("too much");
}

TEST_F(LoadMemory, FieldCase_A01_OwnLoadReadsItsSlicesOnceAndHoldsThemOnce) {
  FLAGSTONE_SKIP_IF_SANITIZED();
  const auto checkpoint = Checkpoint::Open(path());
  ASSERT_OK(checkpoint);
  for (const Backend backend :
       {Backend::kAuto, Backend::kUringDirect, Backend::kUring, Backend::kPread, Backend::kMmap}) {
    if (!IsUsable(*checkpoint, backend)) continue;
    EXPECT_EQ(RunAnew(std::string(Name(backend)), path()), 0) << Name(backend);
  }
}

// The limit is a real one: a load that does not fit is refused, not killed.
TEST_F(LoadMemory, TooLittleMemoryIsAnError) {
  FLAGSTONE_SKIP_IF_SANITIZED();
  EXPECT_EQ(RunAnew("too-little", path()), 0);
}

// A sink needs no memory but the buffers.
TEST_F(LoadMemory, ASinkHoldsBuffersOnly) {
  FLAGSTONE_SKIP_IF_SANITIZED();
  EXPECT_EQ(RunAnew("sink", path()), 0);
}

TEST_F(LoadMemory, FieldCase_A04_AViewHasNoPrivateMemory) {
  FLAGSTONE_SKIP_IF_SANITIZED();
  EXPECT_EQ(RunAnew("view", path()), 0);
}

// 20,000 parameters over 1024 ranks, three fp32 roles and a bf16 weight.
Layout LargeLayout(bool per_tensor) {
  Layout layout;
  layout.world_size = 1024;
  layout.groups.resize(1);
  std::vector<uint32_t> tensors;
  for (uint32_t i = 0; i < 20000; ++i) {
    Tensor tensor;
    tensor.name = std::string("model.layers.").append(std::to_string(i / 16));
    tensor.name.append(".self_attention.projection_").append(std::to_string(i % 16));
    tensor.name.append(".weight");
    tensor.dtype = DType::kBFloat16;
    tensor.shape = {4096 + i % 7, 1024 + i % 5};
    tensor.group = 0;
    layout.tensors.push_back(std::move(tensor));
    tensors.push_back(i);
  }
  const RankList ranks = RankList::World(1024);
  const std::vector<Role> adam = {
      {"fp32", DType::kFloat32}, {"exp_avg", DType::kFloat32}, {"exp_avg_sq", DType::kFloat32}};
  layout.partitions.push_back(per_tensor
                                  ? MakeZero3("optimizer", tensors, ranks, adam)
                                  : MakeZero12(layout, "optimizer", tensors, ranks, adam).value());
  layout.partitions.push_back(
      MakeReplicated(layout, "weights", tensors, ranks, {{"weight", DType::kBFloat16}}).value());
  return layout;
}

double MillisecondsSince(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began)
      .count();
}

int OpenAndPlan(const std::filesystem::path& path) {
  const uint64_t before = ProcessMemory("RssAnon:");
  LimitGrowth(32 * kMiB);
  auto began = std::chrono::steady_clock::now();
  const auto checkpoint = Checkpoint::Open(path);
  const double open_ms = MillisecondsSince(began);
  if (!checkpoint.ok()) return Fail(TextOf(checkpoint));
  const uint64_t grown = ProcessMemory("RssAnon:") - before;
  rlimit limit{};
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_DATA, &limit);
  began = std::chrono::steady_clock::now();
  const auto plan = checkpoint->PlanRank(517);
  const double plan_ms = MillisecondsSince(began);
  if (!plan.ok()) return Fail(TextOf(plan));
  std::cout << "20000 parameters x 1024 ranks: manifest of " << checkpoint->manifest_bytes()
            << " bytes opened in " << open_ms << " ms with " << grown
            << " bytes of anonymous memory; own plan of a rank in " << plan_ms << " ms\n";
  const auto refused = checkpoint->OpenRank(517);
  if (refused.ok() || refused.status().code() != StatusCode::kUnsupported ||
      refused.status().message().find("'no-data'") == std::string::npos) {
    return Fail("a manifest without data is opened as if it had some");
  }
  if (plan->files != 1 || plan->segments.size() != 3 || plan->runs.size() != 3) {
    return Fail("own is one file and a run a role");
  }
  if (plan->wanted_bytes == 0 || plan->read_bytes < plan->wanted_bytes) return Fail("wrong sums");
  if (plan->read_bytes * 1000 > plan->wanted_bytes * 1001) return Fail("over-read");
  if (grown > 32 * kMiB) return Fail("more than 32 MiB");
  // By a clock only what no noise explains: the figures of time are printed and benchmarked.
  return 0;
}

TEST(LoadScale, FieldCase_A11_AManifestOf20000ParametersAnd1024Ranks) {
  FLAGSTONE_SKIP_IF_SANITIZED();
  for (const bool per_tensor : {false, true}) {
    const ScratchDirectory scratch;
    SaveOptions options;
    options.run = "scale";
    ASSERT_OK(WriteManifestOnly(scratch / "c", LargeLayout(per_tensor), options));
    EXPECT_EQ(RunAnew("plan", scratch / "c"), 0);
  }
}

int RunTask(const std::string& task, const std::filesystem::path& path) {
  constexpr uint64_t kWanted = uint64_t{64} << 20;  // LoadMemory::kWanted
  if (task == "too-little") return LoadTooLittle(path, kWanted);
  if (task == "sink") return LoadToSink(path, kWanted);
  if (task == "view") return ViewAll(path, kWanted);
  if (task == "plan") return OpenAndPlan(path);
  const auto backend = BackendFromName(task);
  return backend ? LoadUnderLimit(path, *backend, kWanted) : Fail("no such task");
}

}  // namespace

int Main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == kTaskFlag) return RunTask(argv[2], argv[3]);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace flagstone::testing

int main(int argc, char** argv) { return flagstone::testing::Main(argc, argv); }
