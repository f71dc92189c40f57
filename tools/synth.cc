// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.h"
#include "commands.h"
#include "flagstone/flagstone.h"
#include "progress.h"
#include "synth_model.h"
#include "text.h"

namespace flagstone::tools {
namespace {

struct SynthArguments {
  std::string path;
  std::string model;
  std::optional<uint64_t> parameters;
  std::optional<uint64_t> tensors;
  std::optional<uint32_t> stage;
  std::optional<uint32_t> world;
  std::optional<uint64_t> seed;
  std::optional<int64_t> step;
  bool sparse = false;
  bool manifest_only = false;

  ModelChoice choice() const { return {model, parameters.value_or(0), tensors.value_or(0)}; }
  uint32_t stage_or_default() const { return stage.value_or(2); }
  uint32_t world_or_default() const { return world.value_or(1); }
  uint64_t seed_or_default() const { return seed.value_or(0); }
};

// --- One rank ---

using Warnings = std::vector<std::string>;

// One rank of the job: its sources, its writer, and how its save ended.
struct Rank {
  // Slices and sources do not move: the writer borrows the sources, these borrow the slices.
  std::deque<std::vector<Slice>> slices;
  std::deque<SynthSource> sources;
  std::optional<Writer> writer;  // After the sources, so that it goes before them.
  std::atomic<uint64_t> written_bytes = 0;
  std::atomic<uint64_t> total_bytes = 0;
  Status status;
  Warnings warnings;
};

// Where a role's bytes come from: one source for the segment, or, of a replicated partition, one
// for each tensor that this rank stores.
Status AddRole(const SynthArguments& arguments, const Layout& layout, const Partition& partition,
               const Role& role, std::span<const Slice> stored, Rank& rank) {
  const auto make_source = [&](std::span<const Slice> slices) -> SynthSource& {
    return rank.sources.emplace_back(arguments.seed_or_default(), arguments.sparse, layout,
                                     partition, role, slices);
  };
  if (!std::holds_alternative<ReplicatedCut>(partition.cut)) {
    return rank.writer->Add(partition.id, role.name, make_source(stored));
  }
  for (size_t i = 0; i < stored.size(); ++i) {
    const Tensor& tensor = layout.tensors[partition.members[stored[i].member].tensor];
    const Status status = rank.writer->AddTensor(partition.id, role.name, tensor.name,
                                                 make_source(stored.subspan(i, 1)));
    if (!status.ok()) return status;
  }
  return Status();
}

Status AddPlainRole(const SynthArguments& arguments, const Layout& layout,
                    const Partition& partition, const Role& role, std::span<const Slice> stored,
                    Rank& rank) {
  for (const Slice& slice : stored) {
    const Tensor& tensor = layout.tensors[partition.members[slice.member].tensor];
    const Status status =
        rank.writer->AddPlain(partition.id, role.name, tensor.name, arguments.step.value_or(0));
    if (!status.ok()) return status;
  }
  return Status();
}

// Gives the writer what this rank stores of one partition.
Status AddPartition(const SynthArguments& arguments, const Layout& layout,
                    const Partition& partition, uint32_t number, Rank& rank) {
  Result<std::vector<Slice>> stored = StoredSlices(layout, partition.id, number);
  if (!stored.ok()) return stored.status();
  const std::vector<Slice>& slices = rank.slices.emplace_back(*std::move(stored));
  for (const Role& role : partition.roles) {
    const Status status = role.form == RoleForm::kPlain
                              ? AddPlainRole(arguments, layout, partition, role, slices, rank)
                              : AddRole(arguments, layout, partition, role, slices, rank);
    if (!status.ok()) return status;
  }
  return Status();
}

Status Prepare(const SynthArguments& arguments, const Layout& layout, uint32_t number,
               SaveOptions options, Rank& rank) {
  options.progress = [&rank](uint64_t done, uint64_t total) {
    rank.written_bytes = done;
    rank.total_bytes = total;
  };
  Result<Writer> writer = Writer::Create(arguments.path, layout, number, std::move(options));
  if (!writer.ok()) return writer.status();
  rank.writer.emplace(*std::move(writer));
  for (const Partition& partition : layout.partitions) {
    const Status status = AddPartition(arguments, layout, partition, number, rank);
    if (!status.ok()) return status;
  }
  const uint64_t seed = arguments.seed_or_default();
  if (Status status = rank.writer->SetRankState(SynthRankState(seed, number)); !status.ok()) {
    return status;
  }
  if (number != 0) return Status();
  return rank.writer->SetClientState(SynthClientState(arguments.choice(), seed, arguments.sparse,
                                                      arguments.stage_or_default(),
                                                      arguments.step.value_or(0)));
}

// --- All ranks ---

// Threads with small stacks: every rank of a save has to be alive at once, and a thousand stacks of
// the usual size reserve 8 GiB.
class RankThreads {
 public:
  RankThreads() = default;
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads() { Join(); }

  Status Start(std::function<void()> body) {
    constexpr size_t kStackBytes = size_t{1} << 20;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    bodies_.push_back(std::move(body));
    pthread_t thread{};
    const int error = pthread_create(&thread, &attributes, &RankThreads::Run, &bodies_.back());
    pthread_attr_destroy(&attributes);
    if (error != 0) {
      return Status(StatusCode::kResourceExhausted,
                    "thread " + std::to_string(threads_.size()) +
                        " cannot be started: " + std::strerror(error));
    }
    threads_.push_back(thread);
    return Status();
  }

  void Join() {
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
    threads_.clear();
  }

 private:
  static void* Run(void* body) {
    (*static_cast<std::function<void()>*>(body))();
    return nullptr;
  }

  std::deque<std::function<void()>> bodies_;
  std::vector<pthread_t> threads_;
};

// Each rank has files open, and 1024 descriptors are the usual soft limit for all.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string RunIdentity() {
  std::random_device device;
  std::string identity = "synth";
  for (int i = 0; i < 4; ++i) identity += "-" + std::to_string(device());
  return identity;
}

// The failure to report: others give up because of the first, so that they are cancelled tells
// less.
Status WorstOf(const std::deque<Rank>& ranks) {
  Status worst;
  for (const Rank& rank : ranks) {
    if (rank.status.ok()) continue;
    if (worst.ok() || worst.code() == StatusCode::kCancelled) worst = rank.status;
  }
  return worst;
}

SaveOptions OptionsOfRank(const SynthArguments& arguments) {
  // All ranks together stage what one would.
  constexpr uint64_t kStagingBytes = uint64_t{64} << 20, kLeastStagingBytes = uint64_t{128} << 10;
  SaveOptions options;
  options.run = RunIdentity();
  options.step = arguments.step;
  options.coordinator = MakeInProcessCoordinator();
  options.staging_bytes =
      std::max(kStagingBytes / arguments.world_or_default(), kLeastStagingBytes);
  return options;
}

// One rank's part, in a thread of its own: nothing may be thrown out of it.
void CommitRank(Rank& rank) {
  try {
    Result<SaveReport> report = rank.writer->Commit();
    rank.status = report.status();
    if (report.ok()) rank.warnings = std::move(report->warnings);
  } catch (const std::bad_alloc&) {
    rank.status = Status(StatusCode::kResourceExhausted, "the memory does not suffice");
  }
}

// Runs all commits. If one cannot be started, or fails, all are asked to stop: those that have not
// come yet would be waited for.
Status CommitAll(std::deque<Rank>& ranks, std::stop_source& stop) {
  std::atomic<size_t> running = 0;
  Status started;
  RankThreads threads;
  for (Rank& rank : ranks) {
    ++running;
    started = threads.Start([&rank, &running, &stop] {
      CommitRank(rank);
      if (!rank.status.ok()) stop.request_stop();
      --running;
    });
    if (started.ok()) continue;
    --running;
    stop.request_stop();
    break;
  }
  Progress progress("synth");
  while (running > 0) {
    uint64_t done = 0, total = 0;
    for (const Rank& rank : ranks) {
      done += rank.written_bytes;
      total += rank.total_bytes;
    }
    progress.Update(done, total);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  threads.Join();
  return started.ok() ? WorstOf(ranks) : started;
}

Result<Warnings> SaveAll(const SynthArguments& arguments, const Layout& layout,
                         const std::stop_token& interrupted) {
  RaiseDescriptorLimit();
  std::stop_source stop;
  const std::stop_callback forward(interrupted, [&stop] { stop.request_stop(); });
  SaveOptions options = OptionsOfRank(arguments);
  options.stop = stop.get_token();
  std::deque<Rank> ranks;
  for (uint32_t number = 0; number < arguments.world_or_default(); ++number) {
    if (interrupted.stop_requested()) return Status(StatusCode::kCancelled, "stopped on request");
    const Status status = Prepare(arguments, layout, number, options, ranks.emplace_back());
    if (!status.ok()) return status;
  }
  const Status status = CommitAll(ranks, stop);
  if (!status.ok()) return status;
  return ranks.front().warnings;  // rank 0 alone has any
}

// --- The command ---

Result<Layout> MakeLayout(const SynthArguments& arguments) {
  Result<Layout> layout = MakeModel(arguments.choice());
  if (!layout.ok()) return layout;
  const Status status =
      AddStage(*layout, arguments.stage_or_default(), arguments.world_or_default());
  if (!status.ok()) return status;
  return layout;
}

Result<Warnings> Save(const SynthArguments& arguments, const Layout& layout,
                      const Interruption& interruption) {
  if (!arguments.manifest_only) return SaveAll(arguments, layout, interruption.token());
  SaveOptions options;
  options.step = arguments.step;
  options.update_latest = false;  // it cannot be loaded, and `latest` is what loads follow
  options.stop = interruption.token();
  Result<SaveReport> report = WriteManifestOnly(arguments.path, layout, options);
  if (!report.ok()) return report.status();
  return std::move(report->warnings);
}

ExitCode RunSynth(const SynthArguments& arguments, const Output& output,
                  const Interruption& interruption) {
  const auto start = std::chrono::steady_clock::now();
  const Result<Layout> layout = MakeLayout(arguments);
  if (!layout.ok()) return output.Fail(layout.status());
  const Result<Warnings> warnings = interruption.requested()
                                        ? Status(StatusCode::kCancelled, "stopped on request")
                                        : Save(arguments, *layout, interruption);
  if (!warnings.ok()) {
    const Status& status = warnings.status();
    return output.Fail(interruption.requested() && status.code() == StatusCode::kCancelled
                           ? status.Annotated("interrupted, nothing of this save is left")
                           : status);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  for (const std::string& warning : *warnings) output.Note("saved, but " + warning);

  const Result<Checkpoint> checkpoint = Checkpoint::Open(arguments.path);
  if (!checkpoint.ok()) return output.Fail(checkpoint.status());
  uint64_t bytes = checkpoint->manifest_bytes(), files = 1;
  if (!arguments.manifest_only) {
    for (const Checkpoint::RankFile& file : checkpoint->rank_files()) {
      bytes += file.bytes;
      ++files;
    }
  }
  if (output.json()) {
    output.Print({{"path", arguments.path},
                  {"bytes", bytes},
                  {"files", files},
                  {"seconds", seconds.count()},
                  {"warnings", *warnings}});
    return kDone;
  }
  const auto rate = static_cast<uint64_t>(static_cast<double>(bytes) / seconds.count());
  std::printf("%s: %s in %s files, %s s (%s/s)\n", Escape(arguments.path).c_str(),
              FormatBytes(bytes).c_str(), FormatCount(files).c_str(),
              FormatNumber(seconds.count(), 2).c_str(), FormatBytes(rate).c_str());
  return kDone;
}

void DeclareModel(CLI::App& command, SynthArguments& arguments) {
  auto* const which = command.add_option_group("model", "What is saved");
  which->add_option("--model", arguments.model, "gpt2-124m, gpt2-1.5b or small-10k")
      ->check(CLI::IsMember({"gpt2-124m", "gpt2-1.5b", "small-10k"}))
      ->type_name("NAME");
  CLI::Option* const parameters = AddSize(
      *which, "--params", arguments.parameters,
      "A model of so many parameters in all, in tensors of odd sizes (10G is ten billion)", 1);
  which->require_option(1);
  AddSize(command, "--tensors", arguments.tensors, "How many tensors --params makes", 1)
      ->needs(parameters);
}

}  // namespace

void AddSynth(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "synth", "Save a made-up model as its ranks would, for trials and measurements");
  const auto arguments = std::make_shared<SynthArguments>();
  command->add_option("OUT", arguments->path, "Path of the new checkpoint")->required();
  DeclareModel(*command, *arguments);
  AddUint32(*command, "--stage", arguments->stage,
            "ZeRO stage: 0 all replicated, 1 and 2 optimizer state cut, 3 weights too (default 2)",
            0, 3);
  AddUint32(*command, "--world", arguments->world, "Ranks that save (default 1)", 1, 2048);
  AddSize(*command, "--seed", arguments->seed, "Seed of the values (default 0)")->type_name("N");
  AddInteger(*command, "--step", arguments->step, "Training step that the checkpoint is of");
  command->add_flag("--sparse", arguments->sparse, "Every element is 0 and takes no room on disk");
  command->add_flag("--manifest-only", arguments->manifest_only,
                    "No data: to be inspected and planned with, not loaded");
  command->callback([arguments, &invocation] {
    invocation.stoppable = true;
    invocation.run = [arguments](const Output& output, const Interruption& interruption) {
      return RunSynth(*arguments, output, interruption);
    };
  });
}

}  // namespace flagstone::tools
