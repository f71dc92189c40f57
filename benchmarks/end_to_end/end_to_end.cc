// SPDX-License-Identifier: Apache-2.0
// One measurement a process: what a rank that resumes or saves does, timed from outside of the
// library. Prints one JSON object. run.py calls it.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/flagstone.h"

namespace flagstone {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

void Require(const Status& status) {
  if (!status.ok()) Die(status.ToString());
}
template <typename T>
T Take(Result<T> result) {
  Require(result.status());
  return *std::move(result);
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Wall clock and processor time of all threads since its construction.
class Stopwatch {
 public:
  double wall() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_).count();
  }
  double cpu() const { return CpuSeconds() - cpu_; }

 private:
  const std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  const double cpu_ = CpuSeconds();
};

// Bytes that no file system or device can fold: a counter through a multiplication.
void FillRandom(std::span<std::byte> bytes) {
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = state ^ (state >> 29);
    std::memcpy(bytes.data() + i, &word, 8);
  }
}

uint32_t AddTensor(Layout& layout, uint64_t elements) {
  Tensor tensor;
  tensor.name = "t" + std::to_string(layout.tensors.size());
  tensor.shape = {elements};
  tensor.group = 0;
  layout.tensors.push_back(tensor);
  return static_cast<uint32_t>(layout.tensors.size() - 1);
}

// A rank's optimizer state: one flat segment a role.
Layout LargeLayout(uint64_t bytes) {
  Layout layout;
  layout.groups.resize(1);
  const uint32_t tensor = AddTensor(layout, bytes / 12);
  layout.partitions = {Take(MakeZero12(
      layout, "optimizer", {tensor}, RankList::World(1),
      {{"fp32", DType::kFloat32}, {"exp_avg", DType::kFloat32}, {"exp_avg_sq", DType::kFloat32}}))};
  return layout;
}

// Ten thousand tensors, none of a round size, each whole.
Layout SmallLayout(uint64_t bytes) {
  Layout layout;
  layout.groups.resize(1);
  constexpr uint64_t kTensors = 10000;
  std::vector<uint32_t> tensors;
  const uint64_t mean = bytes / 4 / kTensors;
  for (uint64_t i = 0; i < kTensors; ++i) {
    tensors.push_back(AddTensor(layout, mean / 2 + 1 + i * 7919 % mean));
  }
  layout.partitions = {MakeWhole("optimizer", tensors, RankList::World(1),
                                 {{"fp32", DType::kFloat32}},
                                 std::vector<uint32_t>(tensors.size(), 0))};
  return layout;
}

Layout LayoutOf(std::string_view kind, uint64_t bytes) {
  return kind == "small" ? SmallLayout(bytes) : LargeLayout(bytes);
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

uint64_t SegmentBytes(const Layout& layout, const Role& role) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : layout.tensors) {
    bytes += ElementCount(tensor.shape).value_or(0) * SizeOf(role.dtype);
  }
  return bytes;
}

// save KIND PATH BYTES: from memory that is there, digests and syncs included.
void Save(std::string_view kind, const fs::path& path, uint64_t bytes) {
  const Layout layout = LayoutOf(kind, bytes);
  const Partition& partition = layout.partitions[0];
  const uint64_t segment = SegmentBytes(layout, partition.roles[0]);
  HostBuffer memory = Take(PageAllocator().Allocate(segment, 4096));
  FillRandom(memory.bytes());
  const uint64_t before = LibraryMemory().current_bytes;
  ResetPeakMemory();
  const Stopwatch watch;
  SaveOptions options;
  options.run = "benchmark";
  options.update_latest = false;
  Writer writer = Take(Writer::Create(path, layout, 0, options));
  for (const Role& role : partition.roles) {
    uint64_t at = 0;
    for (const Tensor& tensor : layout.tensors) {
      const uint64_t size = ElementCount(tensor.shape).value_or(0) * SizeOf(role.dtype);
      Require(
          writer.AddTensor(partition.id, role.name, tensor.name, memory.bytes().subspan(at, size)));
      at += size;
    }
  }
  const SaveReport report = Take(writer.Commit());
  std::printf(
      "{\"bytes\":%llu,\"seconds\":%.6f,\"cpu_seconds\":%.6f,\"backend\":\"%s\","
      "\"staging_bytes\":%llu,\"library_bytes\":%llu}\n",
      static_cast<unsigned long long>(segment * partition.roles.size()), watch.wall(), watch.cpu(),
      report.backend.c_str(), static_cast<unsigned long long>(report.peak_staging_bytes),
      static_cast<unsigned long long>(LibraryMemory().peak_bytes - before));
}

// load PATH BACKEND cold|warm: own slices into prepared memory, verification on, from Open on.
void Load(const fs::path& path, std::string_view backend_name, bool cold) {
  const auto backend = BackendFromName(backend_name);
  if (!backend) Die("no such backend");
  LoadOptions options;
  options.backend = *backend;
  RankMemory memory;
  {
    const Checkpoint checkpoint = Take(Checkpoint::Open(path));
    const RankReader reader = Take(checkpoint.OpenRank(0, options));
    memory = Take(reader.Allocate());
    for (const Destination& destination : memory.destinations) {
      std::memset(destination.memory.data(), 1, destination.memory.size());
    }
    const fs::path file = path / checkpoint.rank_files()[0].name;
    if (cold) {
      Require(DropPageCache(file));
    } else {
      // Twice, so that pages are active and stay.
      Take(reader.Load(memory.destinations));
      std::vector<char> buffer(uint64_t{1} << 20);
      if (std::FILE* warm = std::fopen(file.c_str(), "rb")) {
        while (std::fread(buffer.data(), 1, buffer.size(), warm) == buffer.size()) continue;
        std::fclose(warm);
      }
    }
    const PageCacheInfo pages = Take(ResidentPages(file));
    if (!cold && pages.resident_pages * 10 < pages.total_pages * 9) Die("the file is not cached");
  }
  const Stopwatch watch;
  const Checkpoint checkpoint = Take(Checkpoint::Open(path));
  const RankReader reader = Take(checkpoint.OpenRank(0, options));
  const LoadReport report = Take(reader.Load(memory.destinations));
  std::printf(
      "{\"bytes\":%llu,\"read_bytes\":%llu,\"seconds\":%.6f,\"cpu_seconds\":%.6f,"
      "\"backend\":\"%s\",\"reason\":\"%s\",\"read_calls\":%llu,\"buffer_bytes\":%llu}\n",
      static_cast<unsigned long long>(report.wanted_bytes),
      static_cast<unsigned long long>(report.read_bytes), watch.wall(), watch.cpu(),
      report.backend.c_str(), Escaped(report.backend_reason).c_str(),
      static_cast<unsigned long long>(report.read_calls),
      static_cast<unsigned long long>(report.peak_buffer_bytes));
}

// manifest PATH: 20,000 parameters over 1024 ranks, without data.
void MakeManifest(const fs::path& path) {
  Layout layout;
  layout.world_size = 1024;
  layout.groups.resize(1);
  std::vector<uint32_t> tensors;
  for (uint64_t i = 0; i < 20000; ++i) tensors.push_back(AddTensor(layout, 4000000 + i));
  const RankList ranks = RankList::World(layout.world_size);
  layout.partitions = {
      MakeZero3("optimizer", tensors, ranks,
                {{"fp32", DType::kFloat32},
                 {"exp_avg", DType::kFloat32},
                 {"exp_avg_sq", DType::kFloat32}}),
      Take(MakeReplicated(layout, "weights", tensors, ranks, {{"weight", DType::kFloat32}}))};
  SaveOptions options;
  options.run = "benchmark";
  options.update_latest = false;
  Take(WriteManifestOnly(path, layout, options));
  std::printf("{}\n");
}

// open PATH: the manifest, and one rank's own plan from it.
void Open(const fs::path& path) {
  const Stopwatch opening;
  const Checkpoint checkpoint = Take(Checkpoint::Open(path));
  const double open_seconds = opening.wall();
  const Stopwatch planning;
  Take(checkpoint.PlanRank(517));
  std::printf("{\"open_seconds\":%.6f,\"plan_seconds\":%.6f}\n", open_seconds, planning.wall());
}

int Main(std::vector<std::string> arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  const size_t count = arguments.size();
  if (command == "save" && count == 4) {
    Save(arguments[1], arguments[2], std::stoull(arguments[3]));
  } else if (command == "load" && count == 4) {
    Load(arguments[1], arguments[2], arguments[3] == "cold");
  } else if (command == "manifest" && count == 2) {
    MakeManifest(arguments[1]);
  } else if (command == "open" && count == 2) {
    Open(arguments[1]);
  } else {
    std::fprintf(stderr,
                 "usage: end_to_end_benchmark save large|small PATH BYTES\n"
                 "       end_to_end_benchmark load PATH BACKEND cold|warm\n"
                 "       end_to_end_benchmark manifest PATH\n"
                 "       end_to_end_benchmark open PATH\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace flagstone

int main(int count, char** arguments) {
  return flagstone::Main({std::next(arguments), std::next(arguments, count)});
}
