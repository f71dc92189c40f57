// SPDX-License-Identifier: Apache-2.0
#include "io/read_setup.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "base/thread.h"
#include "io/buffer_pool.h"
#include "io/posix_file.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace flagstone::io {
namespace {

constexpr uint32_t kProbes = 16;

// Fastest for pages that are in memory already.
constexpr Backend kWarm = Backend::kPread;

BackendChoice Prefer(std::span<const std::shared_ptr<File>> files) {
  bool all_in_memory = !files.empty();
  for (const auto& file : files) {
    if (file->kind() == FileSystemKind::kNetwork) {
      return {Backend::kPread,
              "network file system: a mapping could fail with SIGBUS, direct I/O would pass by its "
              "cache"};
    }
    all_in_memory = all_in_memory && file->kind() == FileSystemKind::kMemory;
  }
  if (all_in_memory) return {kWarm, "file system in memory"};

  Residency sum;
  const size_t step = std::max<size_t>(1, files.size() / kProbes);
  const auto probes =
      static_cast<uint32_t>(std::max<size_t>(1, kProbes / std::max<size_t>(1, files.size())));
  for (size_t i = 0; i < files.size(); i += step) {
    const auto info = files[i]->Info();
    if (!info.ok()) continue;
    const Residency found = ProbeResidency(*files[i], 0, info->size, probes);
    sum.probed += found.probed;
    sum.resident += found.resident;
  }
  if (sum.probed == 0) return {Backend::kUringDirect, "page cache cannot be probed"};
  std::string found =
      base::Join(sum.resident, " of ", sum.probed, " probed pages are in the page cache");
  if (2 * sum.resident >= sum.probed) return {kWarm, std::move(found)};
  return {Backend::kUringDirect, std::move(found)};
}

bool CannotWork(const Status& status) { return status.code() == StatusCode::kUnsupported; }

Status OpenAllDirect(FileSystem& fs, std::vector<ReadFile>& files) {
  for (ReadFile& file : files) {
    FLAGSTONE_ASSIGN_OR_RETURN(file.direct,
                               OpenDirect(fs, *file.buffered, OpenOptions::Mode::kRead));
  }
  return Status();
}

void CloseDirect(std::vector<ReadFile>& files) {
  for (ReadFile& file : files) file.direct.reset();
}

}  // namespace

void AddReason(BackendChoice& choice, std::string_view reason) {
  if (!choice.reason.empty()) choice.reason += "; ";
  choice.reason += reason;
}

uint32_t DepthOf(Backend backend, uint32_t depth) {
  if (depth != 0) return depth;
  return backend == Backend::kPread ? kMaxQueueThreads : 32;
}

ReadLimits LimitsOf(const ReadOptions& options, Backend backend) {
  ReadLimits limits;
  limits.request_bytes =
      base::AlignUp(std::clamp<uint64_t>(options.request_bytes, base::kPageBytes, kMaxTransfer),
                    base::kPageBytes);
  if (backend == Backend::kMmap) {
    limits.buffer_bytes = UINT64_MAX;
    return limits;
  }
  limits.buffer_bytes = options.buffer_bytes;
  // Several buffers, whatever the bound: one is read into while another is digested.
  const uint64_t share = base::AlignDown(options.buffer_bytes / 4, base::kPageBytes);
  limits.request_bytes = std::min(limits.request_bytes, std::max(share, 2 * base::kPageBytes));
  return limits;
}

Result<uint64_t> PredictReadMemory(std::span<const std::shared_ptr<File>> files,
                                   std::span<const ReadRange> ranges, const ReadOptions& options) {
  const Backend backend = options.chosen ? options.chosen->backend : options.backend;
  if (backend == Backend::kAuto) {
    return Status(StatusCode::kInvalidArgument, "a prediction needs a backend that is fixed");
  }
  if (backend == Backend::kMmap) return uint64_t{0};
  std::vector<FileAccess> access(files.size());
  for (size_t i = 0; backend == Backend::kUringDirect && i < files.size(); ++i) {
    access[i] = {.direct = true, .alignment = files[i]->direct_alignment()};
  }
  const ReadLimits limits = LimitsOf(options, backend);
  FLAGSTONE_ASSIGN_OR_RETURN(const ReadPlanner planner,
                             ReadPlanner::Make(ranges, files.size(), limits));
  FLAGSTONE_ASSIGN_OR_RETURN(const PlanSummary plan, planner.Summarize(access));
  const uint32_t depth = DepthOf(backend, options.queue_depth);
  // A unit has its buffer while it is in flight and until it is delivered; as many as are in flight
  // may wait for that.
  const uint64_t buffers = PoolBytes(BuffersOf(plan, limits),
                                     std::min<uint64_t>(plan.buffered_units, 2 * uint64_t{depth}));
  if (backend == Backend::kPread) {
    return buffers +
           std::min<uint64_t>({depth, kMaxQueueThreads, plan.requests}) * base::kThreadStackBytes;
  }
  return buffers + UringBytes(depth);
}

BufferLimits BuffersOf(const PlanSummary& plan, const ReadLimits& limits) {
  return {.limit_bytes = limits.buffer_bytes,
          .buffer_bytes = plan.largest_buffer,
          .count = plan.buffered_units};
}

Residency ProbeResidency(File& file, uint64_t begin, uint64_t end, uint32_t probes) {
  Residency found;
  if (begin >= end) return found;
  const uint64_t step = std::max((end - begin) / probes, base::kPageBytes);
  // From the middle of each part: the ends of a file are read by those who only look at it.
  for (uint64_t at = begin + (end - begin > step ? step / 2 : 0); at < end; at += step) {
    const auto resident = file.IsResident(at);
    if (!resident) continue;
    ++found.probed;
    if (*resident) ++found.resident;
  }
  return found;
}

Result<std::shared_ptr<File>> OpenDirect(FileSystem& fs, File& file, OpenOptions::Mode mode) {
  FLAGSTONE_ASSIGN_OR_RETURN(auto direct, fs.Open(file.path(), {.mode = mode, .direct = true}));
  FLAGSTONE_ASSIGN_OR_RETURN(const FileInfo mine, file.Info());
  FLAGSTONE_ASSIGN_OR_RETURN(const FileInfo other, direct->Info());
  if (mine.device != other.device || mine.inode != other.inode) {
    ErrorPlace place;
    place.path = file.path().native();
    return Status(StatusCode::kUnsupported,
                  base::Join("direct I/O (O_DIRECT) on ", base::Quote(file.path().native()),
                             " is refused: another file has taken the name since it was opened"),
                  std::move(place));
  }
  return std::shared_ptr<File>(std::move(direct));
}

Result<ReadSetup> SetUpReads(FileSystem& fs, std::span<const std::shared_ptr<File>> files,
                             Backend requested, const std::optional<BackendChoice>& chosen,
                             uint32_t depth) {
  ReadSetup setup;
  setup.forced = !chosen && requested != Backend::kAuto;
  setup.choice = chosen         ? *chosen
                 : setup.forced ? BackendChoice{requested, "asked for"}
                                : Prefer(files);
  for (const auto& file : files) setup.files.push_back({.buffered = file, .direct = nullptr});
  Backend& backend = setup.choice.backend;
  if (backend == Backend::kMmap) return setup;

  if (backend == Backend::kUringDirect) {
    const Status opened = OpenAllDirect(fs, setup.files);
    if (!opened.ok()) {
      if (setup.forced) return opened;
      CloseDirect(setup.files);
      backend = Backend::kUring;
      AddReason(setup.choice, opened.message());
    }
  }
  if (backend != Backend::kPread) {
    auto queue = fs.MakeQueue(QueueKind::kUring, DepthOf(backend, depth));
    if (queue.ok()) {
      setup.queue = std::move(*queue);
      return setup;
    }
    if (setup.forced || !CannotWork(queue.status())) return queue.status();
    CloseDirect(setup.files);
    backend = Backend::kPread;
    AddReason(setup.choice, queue.status().message());
  }
  FLAGSTONE_ASSIGN_OR_RETURN(setup.queue,
                             fs.MakeQueue(QueueKind::kThreads, DepthOf(backend, depth)));
  return setup;
}

Result<BackendChoice> ChooseReadBackend(FileSystem& fs,
                                        std::span<const std::shared_ptr<File>> files,
                                        Backend requested) {
  FLAGSTONE_ASSIGN_OR_RETURN(const ReadSetup setup,
                             SetUpReads(fs, files, requested, std::nullopt, 0));
  return setup.choice;
}

}  // namespace flagstone::io
