// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "flagstone/flagstone.h"
#include "kernel_memory.h"
#include "progress.h"
#include "text.h"
#include "world.h"

namespace flagstone::tools {
namespace {

using Json = nlohmann::ordered_json;

enum class Into : uint8_t { kFresh, kPrepared, kView };

struct LoadArguments {
  std::string path;
  std::optional<uint32_t> rank;
  WorldChoice world;
  std::vector<std::string> roles;
  bool replicated = false;
  Backend backend = Backend::kAuto;
  Into into = Into::kFresh;
  bool no_verify = false;
  std::optional<uint32_t> queue_depth;
  bool cold = false;
};

// Everything that is reported.
struct Measurement {
  uint32_t rank = 0;
  LoadReport report;
  double seconds = 0;
  double cpu_seconds = 0;
  uint64_t peak_host_bytes = 0;
  std::optional<uint64_t> kernel_host_bytes;
  std::optional<uint64_t> resident_pages_before;
};

// --- Time and memory ---

// Wall clock and processor time of all threads, while it runs.
class Stopwatch {
 public:
  void Start() {
    wall_start_ = std::chrono::steady_clock::now();
    cpu_start_ = CpuSeconds();
  }
  void Stop() {
    cpu_seconds_ += CpuSeconds() - cpu_start_;
    seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - wall_start_).count();
  }
  double seconds() const { return seconds_; }
  double cpu_seconds() const { return cpu_seconds_; }

 private:
  static double CpuSeconds() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }

  std::chrono::steady_clock::time_point wall_start_;
  double cpu_start_ = 0;
  double seconds_ = 0;
  double cpu_seconds_ = 0;
};

// Growth of the host memory that a load takes, since construction. The destination comes from the
// library's page allocator, so its counter holds that too.
class MemoryWatch {
 public:
  MemoryWatch() : kernel_before_(ResidentHostBytes()) {
    ResetPeakMemory();
    library_before_ = LibraryMemory().current_bytes;
  }
  uint64_t peak_bytes() const {
    const uint64_t peak = LibraryMemory().peak_bytes;
    return peak > library_before_ ? peak - library_before_ : 0;
  }
  // What the kernel counts now: nothing if it does not say.
  std::optional<uint64_t> kernel_bytes() const {
    const std::optional<uint64_t> now = ResidentHostBytes();
    if (!now || !kernel_before_) return std::nullopt;
    return *now > *kernel_before_ ? *now - *kernel_before_ : 0;
  }

 private:
  std::optional<uint64_t> kernel_before_;
  uint64_t library_before_ = 0;
};

// --- The page cache ---

// The files that the load will touch: the manifest, those that its plan reads, and in the world that
// saved the rank's own.
std::vector<std::filesystem::path> FilesOfPlan(const Checkpoint& checkpoint,
                                               const RankReader& reader, uint32_t world_size) {
  std::set<uint32_t> ranks;
  if (world_size == checkpoint.world_size()) ranks.insert(reader.rank());
  for (const Plan::Run& run : reader.plan().runs) ranks.insert(run.rank);
  std::vector<std::filesystem::path> files = {checkpoint.path() / "manifest.flagstone"};
  for (const Checkpoint::RankFile& file : checkpoint.rank_files()) {
    if (ranks.contains(file.rank)) files.push_back(checkpoint.path() / file.name);
  }
  return files;
}

Result<uint64_t> CountResidentPages(std::span<const std::filesystem::path> files) {
  uint64_t pages = 0;
  for (const std::filesystem::path& file : files) {
    const Result<PageCacheInfo> info = ResidentPages(file);
    if (!info.ok()) return info.status();
    pages += info->resident_pages;
  }
  return pages;
}

// Makes the files cold; pages that stay are an error.
Status DropAll(std::span<const std::filesystem::path> files) {
  for (const std::filesystem::path& file : files) {
    const Status status = DropPageCache(file);
    if (!status.ok()) return status.Annotated("--cold");
  }
  return Status();
}

// --- The load ---

// Adds up what several views did; where they lie is the same for all.
void Accumulate(const LoadReport& one, LoadReport& sum) {
  sum.read_bytes += one.read_bytes;
  sum.verified_bytes += one.verified_bytes;
  sum.read_calls += one.read_calls;
  sum.peak_buffer_bytes = std::max(sum.peak_buffer_bytes, one.peak_buffer_bytes);
  sum.backend = one.backend;
  sum.backend_reason = one.backend_reason;
}

// The tensors of a replicated segment that lies in several files.
Status ViewTensors(const Layout& layout, const RankReader& reader, const SegmentInfo& segment,
                   std::vector<View>& views, LoadReport& sum) {
  const auto partition =
      std::find_if(layout.partitions.begin(), layout.partitions.end(),
                   [&](const Partition& one) { return one.id == segment.partition; });
  if (partition == layout.partitions.end()) {
    return Status(StatusCode::kInternal, "the plan has a partition that the layout has not");
  }
  for (const Slice& slice : segment.slices) {
    const std::string& name = layout.tensors[partition->members[slice.member].tensor].name;
    LoadReport report;
    Result<View> view = reader.ViewTensor(segment.partition, segment.role, name, &report);
    if (!view.ok()) return view.status();
    Accumulate(report, sum);
    views.push_back(*std::move(view));
  }
  return Status();
}

Result<LoadReport> ViewAll(const Checkpoint& checkpoint, const RankReader& reader,
                           std::vector<View>& views) {
  LoadReport sum;
  for (const SegmentInfo& segment : reader.segments()) {
    if (segment.form == RoleForm::kPlain) continue;
    LoadReport report;
    Result<View> view = reader.ViewSegment(segment.partition, segment.role, &report);
    if (view.ok()) {
      Accumulate(report, sum);
      views.push_back(*std::move(view));
      continue;
    }
    if (view.status().code() != StatusCode::kUnsupported || !segment.replicated) {
      return view.status();
    }
    const Status status = ViewTensors(checkpoint.layout(), reader, segment, views, sum);
    if (!status.ok()) return status;
  }
  sum.wanted_bytes = reader.plan().wanted_bytes;
  sum.files_opened = reader.plan().files;
  return sum;
}

// Fresh pages are made by the kernel at the first write to each: here, before the clock runs.
void TouchPages(const RankMemory& memory) {
  constexpr size_t kPageBytes = 4096;
  for (const HostBuffer& buffer : memory.buffers) {
    for (size_t i = 0; i < buffer.bytes().size(); i += kPageBytes) {
      const_cast<volatile std::byte&>(buffer.bytes()[i]) = std::byte{0};
    }
  }
}

LoadOptions ToOptions(const LoadArguments& arguments, Progress& progress,
                      const Interruption& interruption) {
  LoadOptions options;
  options.verify = !arguments.no_verify;
  options.replicated = arguments.replicated;
  options.roles = arguments.roles;
  options.backend = arguments.backend;
  options.queue_depth = arguments.queue_depth.value_or(0);
  options.progress = progress.callback();
  options.stop = interruption.token();
  return options;
}

// What was opened, and the bytes: kept until all is measured.
struct Loaded {
  std::vector<View> views;
  RankMemory memory;
  LoadReport report;
};

Result<Loaded> Transfer(Into into, const Checkpoint& checkpoint, const RankReader& reader,
                        Stopwatch& watch) {
  Loaded loaded;
  Result<LoadReport> report = LoadReport();
  if (into == Into::kView) {
    report = ViewAll(checkpoint, reader, loaded.views);
  } else {
    if (into == Into::kPrepared) watch.Stop();
    Result<RankMemory> memory = reader.Allocate();
    if (!memory.ok()) return memory.status();
    loaded.memory = *std::move(memory);
    if (into == Into::kPrepared) {
      TouchPages(loaded.memory);
      watch.Start();
    }
    report = reader.Load(loaded.memory.destinations);
  }
  if (!report.ok()) return report.status();
  loaded.report = *std::move(report);
  return loaded;
}

// The rank of the saved layout, or of the wanted one.
Result<RankReader> Open(const Checkpoint& checkpoint, const LoadArguments& arguments,
                        const LoadOptions& options) {
  const uint32_t rank = arguments.rank.value_or(0);
  if (!arguments.world.is_given()) return checkpoint.OpenRank(rank, options);
  const Result<Layout> wanted = arguments.world.LayoutOf(checkpoint);
  if (!wanted.ok()) return wanted.status();
  return checkpoint.OpenRank(*wanted, rank, options);
}

// From before Open to the last byte; without the time in which --into prepared makes its memory.
Result<Measurement> MeasuredLoad(const LoadArguments& arguments, const LoadOptions& options) {
  Measurement measured;
  measured.rank = arguments.rank.value_or(0);
  const MemoryWatch memory;
  Stopwatch watch;
  watch.Start();
  const Result<Checkpoint> checkpoint = Checkpoint::Open(arguments.path);
  if (!checkpoint.ok()) return checkpoint.status();
  const Result<RankReader> reader = Open(*checkpoint, arguments, options);
  if (!reader.ok()) return reader.status();
  Result<Loaded> loaded = Transfer(arguments.into, *checkpoint, *reader, watch);
  if (!loaded.ok()) return loaded.status();
  watch.Stop();

  measured.report = loaded->report;
  measured.report.metadata_bytes = reader->metadata_bytes();
  measured.seconds = watch.seconds();
  measured.cpu_seconds = watch.cpu_seconds();
  measured.peak_host_bytes = memory.peak_bytes();
  measured.kernel_host_bytes = memory.kernel_bytes();
  return measured;
}

// Opens once to learn which files the load will read, looks at or drops their pages, and loads.
Result<Measurement> Load(const LoadArguments& arguments, const LoadOptions& options) {
  std::vector<std::filesystem::path> files;
  {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(arguments.path);
    if (!checkpoint.ok()) return checkpoint.status();
    const Result<RankReader> reader = Open(*checkpoint, arguments, options);
    if (!reader.ok()) return reader.status();
    files = FilesOfPlan(*checkpoint, *reader, arguments.world.WorldOf(*checkpoint));
  }
  if (arguments.cold) {
    const Status status = DropAll(files);
    if (!status.ok()) return status;
  }
  const Result<uint64_t> resident = CountResidentPages(files);
  Result<Measurement> measured = MeasuredLoad(arguments, options);
  if (measured.ok() && resident.ok()) measured->resident_pages_before = *resident;
  return measured;
}

// --- Output ---

Json OrNull(const std::optional<uint64_t>& number) {
  return number ? Json(*number) : Json(nullptr);
}
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ToJson(const Measurement& measured) {
  const LoadReport& report = measured.report;
  return {{"rank", measured.rank},
          {"wanted_bytes", report.wanted_bytes},
          {"read_bytes", report.read_bytes},
          {"verified_bytes", report.verified_bytes},
          {"seconds", measured.seconds},
          {"cpu_seconds", measured.cpu_seconds},
          {"backend", OrNull(report.backend)},
          {"backend_reason", OrNull(report.backend_reason)},
          {"metadata_bytes", report.metadata_bytes},
          {"files_opened", report.files_opened},
          {"read_calls", report.read_calls},
          {"peak_host_bytes", measured.peak_host_bytes},
          // No plan of this version predicts its peak.
          {"predicted_peak_bytes", nullptr},
          {"kernel_host_bytes", OrNull(measured.kernel_host_bytes)},
          {"resident_pages_before", OrNull(measured.resident_pages_before)}};
}

std::string_view IntoName(Into into) {
  switch (into) {
    case Into::kFresh:
      return "fresh memory";
    case Into::kPrepared:
      return "prepared memory";
    case Into::kView:
      return "a view";
  }
  return "";
}

void PrintForPeople(const LoadArguments& arguments, const Measurement& measured) {
  const LoadReport& report = measured.report;
  const double gigabytes = static_cast<double>(report.wanted_bytes) / 1e9;
  const auto line = [](const char* key, const std::string& value) {
    std::printf("%-12s  %s\n", key, Escape(value).c_str());
  };
  const auto resident = [&]() -> std::string {
    if (!measured.resident_pages_before) return "unknown (another user's file)";
    return FormatCount(*measured.resident_pages_before);
  };
  line("rank", std::to_string(measured.rank) + " of " + arguments.path + ", into " +
                   std::string(IntoName(arguments.into)));
  line("backend",
       report.backend.empty()
           ? "-"
           : report.backend +
                 (report.backend_reason.empty() ? "" : " (" + report.backend_reason + ")"));
  line("wanted", FormatBytes(report.wanted_bytes));
  line("read", FormatBytes(report.read_bytes) + " in " + FormatCount(report.read_calls) +
                   " reads, and " + FormatBytes(report.metadata_bytes) + " of metadata; " +
                   FormatCount(report.files_opened) + " rank files");
  line("verified", FormatBytes(report.verified_bytes));
  line("time", FormatNumber(measured.seconds, 3) + " s (" +
                   FormatBytes(static_cast<uint64_t>(static_cast<double>(report.wanted_bytes) /
                                                     std::max(measured.seconds, 1e-9))) +
                   "/s)");
  line("cpu",
       FormatNumber(measured.cpu_seconds, 3) + " s" +
           (gigabytes > 0 ? " (" + FormatNumber(measured.cpu_seconds / gigabytes, 3) + " s/GB)"
                          : ""));
  line("peak memory", FormatBytes(measured.peak_host_bytes) + " by the library's counter" +
                          (measured.kernel_host_bytes
                               ? "; resident at the end " +
                                     FormatBytes(*measured.kernel_host_bytes) + " more than before"
                               : ""));
  line("cached before", resident() + " pages");
}

ExitCode RunLoad(const LoadArguments& arguments, const Output& output,
                 const Interruption& interruption) {
  std::optional<Progress> progress(std::in_place, "load");
  const LoadOptions options = ToOptions(arguments, *progress, interruption);
  const Result<Measurement> measured = Load(arguments, options);
  progress.reset();
  if (!measured.ok()) return output.Fail(measured.status());
  if (output.json()) {
    output.Print(ToJson(*measured));
  } else {
    PrintForPeople(arguments, *measured);
  }
  return kDone;
}

void DeclareArguments(CLI::App& command, LoadArguments& arguments) {
  command.add_option("CKPT", arguments.path, "Checkpoint")->required();
  AddUint32(command, "--rank", arguments.rank, "The rank whose slices are loaded (default 0)");
  AddWorld(command, arguments.world);
  AddNames(command, "--roles", arguments.roles, "Only these roles, for example weight,fp32");
  command.add_flag("--replicated", arguments.replicated, "Also the tensors that every rank holds");
  AddBackend(command, arguments.backend);
  command
      .add_option_function<std::string>(
          "--into",
          [&arguments](const std::string& text) {
            arguments.into = text == "view"       ? Into::kView
                             : text == "prepared" ? Into::kPrepared
                                                  : Into::kFresh;
          },
          "fresh: memory that is made while the clock runs (default); prepared: memory touched "
          "before; view: a mapping, no copy")
      ->check(CLI::IsMember({"fresh", "prepared", "view"}))
      ->type_name("WHERE");
  command.add_flag("--no-verify", arguments.no_verify,
                   "Do not check the bytes against their digests");
  AddUint32(command, "--queue-depth", arguments.queue_depth, "Reads in flight (default: chosen)", 1,
            4096);
  command.add_flag("--cold", arguments.cold,
                   "Drop the files from the page cache first and prove that they are gone");
}

}  // namespace

void AddLoad(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("load", "Load what one rank saved or, of another world, wants; measure how");
  const auto arguments = std::make_shared<LoadArguments>();
  DeclareArguments(*command, *arguments);
  command->callback([arguments, &invocation] {
    invocation.stoppable = true;
    invocation.run = [arguments](const Output& output, const Interruption& interruption) {
      return RunLoad(*arguments, output, interruption);
    };
  });
}

}  // namespace flagstone::tools
