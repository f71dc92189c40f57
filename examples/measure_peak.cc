// SPDX-License-Identifier: Apache-2.0

/// \file
/// Load one rank's slices in each way there is, and measure how much memory that takes.
///
///     measure_peak CHECKPOINT RANK [--limit]
///
/// Each way runs in a process of its own. "peak above" is host memory beyond the wanted bytes: once
/// as the library counts it, once as the kernel counts it (anonymous and shared memory, looked at a
/// thousand times a second). With --limit the kernel grants no more private memory than the wanted
/// bytes and 32 MiB, and a load that took more would fail.

#include <flagstone/flagstone.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr uint64_t kAllowance = uint64_t{32} << 20;

// Sum of some lines of /proc/self/status, in bytes.
uint64_t ProcessBytes(std::initializer_list<std::string_view> keys) {
  std::ifstream status("/proc/self/status");
  uint64_t bytes = 0;
  for (std::string key; status >> key;) {
    uint64_t kib = 0;
    if (std::find(keys.begin(), keys.end(), key) != keys.end() && status >> kib) bytes += kib << 10;
  }
  return bytes;
}

// Anonymous and shared memory; mapped files, which are page cache, do not count.
uint64_t HostBytes() { return ProcessBytes({"RssAnon:", "RssShmem:"}); }

// Watches the host memory of this process from a thread.
class PeakWatch {
 public:
  PeakWatch() : thread_([this] { Watch(); }) {}
  ~PeakWatch() {
    stop_ = true;
    thread_.join();
  }
  PeakWatch(const PeakWatch&) = delete;
  PeakWatch& operator=(const PeakWatch&) = delete;

  uint64_t growth() { return std::max(peak_.load(), HostBytes()) - start_; }

 private:
  void Watch() {
    while (!stop_) {
      peak_ = std::max(peak_.load(), HostBytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  uint64_t start_ = HostBytes();
  std::atomic<uint64_t> peak_ = start_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

struct Way {
  const char* name;
  bool view;
  flagstone::Backend backend;
};

constexpr Way kWays[] = {
    {"view", true, flagstone::Backend::kAuto},
    {"load, auto", false, flagstone::Backend::kAuto},
    {"load, uring-direct", false, flagstone::Backend::kUringDirect},
    {"load, uring", false, flagstone::Backend::kUring},
    {"load, pread", false, flagstone::Backend::kPread},
    {"load, mmap", false, flagstone::Backend::kMmap},
};

struct Bytes {
  uint64_t wanted = 0;
  uint64_t read = 0;
};

// [peak] A view takes no memory of its own; a load takes the wanted bytes and a bounded rest.
flagstone::Result<Bytes> LoadRank(const std::string& path, uint32_t rank, const Way& way) {
  const auto checkpoint = flagstone::Checkpoint::Open(path);
  if (!checkpoint.ok()) return checkpoint.status();
  flagstone::LoadOptions options;
  options.backend = way.backend;
  const auto reader = checkpoint->OpenRank(rank, options);
  if (!reader.ok()) return reader.status();

  if (!way.view) {
    const auto memory = reader->Allocate();
    if (!memory.ok()) return memory.status();
    const auto report = reader->Load(memory->destinations);
    if (!report.ok()) return report.status();
    return Bytes{report->wanted_bytes, report->read_bytes};
  }
  Bytes bytes;
  std::vector<flagstone::View> views;
  for (const flagstone::SegmentInfo& segment : reader->segments()) {
    flagstone::LoadReport report;
    auto view = reader->ViewSegment(segment.partition, segment.role, &report);
    if (!view.ok()) return view.status();
    views.push_back(*std::move(view));
    bytes.wanted += segment.bytes;
    bytes.read += report.read_bytes;
  }
  return bytes;
}
// [peak]

// Private memory of this process from now on: `bytes` and the allowance.
void LimitPrivateMemory(uint64_t bytes) {
  const rlim_t limit = ProcessBytes({"VmData:"}) + bytes + kAllowance;
  const rlimit both = {limit, limit};
  if (setrlimit(RLIMIT_DATA, &both) != 0) std::perror("RLIMIT_DATA");
}

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Runs in a process of its own. Returns its exit code.
int Measure(const std::string& path, uint32_t rank, const Way& way, bool limited) {
  if (limited) {
    // How much is wanted is known before a byte is read.
    const auto checkpoint = flagstone::Checkpoint::Open(path);
    const auto reader = checkpoint.ok() ? checkpoint->OpenRank(rank) : checkpoint.status();
    if (reader.ok()) LimitPrivateMemory(way.view ? 0 : reader->plan().wanted_bytes);
  }
  PeakWatch watch;
  flagstone::ResetPeakMemory();
  const auto bytes = LoadRank(path, rank, way);
  const uint64_t kernel = watch.growth();
  if (!bytes.ok()) {
    std::printf("%-20s %s\n", way.name, bytes.status().ToString().c_str());
    // A way that this system or file system has not is no failure; a checkpoint without data is.
    return way.backend != flagstone::Backend::kAuto &&
                   bytes.status().code() == flagstone::StatusCode::kUnsupported
               ? 0
               : 1;
  }
  const uint64_t inherent = way.view ? 0 : bytes->wanted;
  const auto above = [&](uint64_t peak) { return MiB(peak > inherent ? peak - inherent : 0); };
  std::printf("%-20s %9.1f %9.1f %13.2f %13.2f\n", way.name, MiB(bytes->wanted), MiB(bytes->read),
              above(flagstone::LibraryMemory().peak_bytes), above(kernel));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool limited = argc == 4 && std::string_view(argv[3]) == "--limit";
  if ((argc != 3 && !limited) || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: measure_peak CHECKPOINT RANK [--limit]\n");
    return 2;
  }
  uint32_t rank = 0;
  const std::string_view given = argv[2];
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), rank);
  if (error != std::errc() || end != given.data() + given.size()) {
    std::fprintf(stderr, "'%s' is not the number of a rank\n", argv[2]);
    return 2;
  }
  std::printf("%-20s %9s %9s %13s %13s\n", "MiB", "wanted", "read", "peak above:", "peak above:");
  std::printf("%-20s %9s %9s %13s %13s\n", "", "", "", "the library", "the kernel");
  bool all = true;
  for (const Way& way : kWays) {
    std::fflush(stdout);
    if (fork() == 0) {
      const int code = Measure(argv[1], rank, way, limited);
      std::fflush(stdout);
      _exit(code);
    }
    int status = 0;
    all = wait(&status) > 0 && status == 0 && all;
  }
  return all ? EXIT_SUCCESS : EXIT_FAILURE;
}
