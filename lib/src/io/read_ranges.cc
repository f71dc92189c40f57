// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <limits>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "io/buffer_pool.h"
#include "io/cache_window.h"
#include "io/errno_status.h"
#include "io/io_queue.h"
#include "io/posix_file.h"
#include "io/read_delivery.h"
#include "io/read_plan.h"
#include "io/read_setup.h"
#include "io/transfer.h"

namespace flagstone::io {
namespace {

// So often in a row a request may come back empty-handed before it counts as failed.
constexpr uint32_t kMaxRetries = 1000;
constexpr uint32_t kMaxStalls = 16;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// A unit in flight or waiting to be delivered.
struct ActiveUnit {
  ReadUnit unit;
  std::span<std::byte> buffer;  // Empty when the unit goes straight.
  std::byte* memory = nullptr;  // Of the byte at unit.read_offset.
  uint64_t submitted = 0;       // Bytes of the unit that parts were made for.
  uint32_t parts_in_flight = 0;
  uint64_t cache_ticket = 0;
};

// One request of a unit, with its continuations.
struct Part {
  uint32_t unit = kNone;
  uint64_t offset = 0;  // In the file.
  uint64_t size = 0;    // Asked for.
  uint64_t needed =
      0;  // Of `size`, must arrive: the rest is rounding and may lie past the end of the file.
  uint64_t have = 0;     // Has arrived.
  uint64_t resumed = 0;  // Where in [0, size) the request in flight begins.
  bool direct = false;   // The request in flight is by the O_DIRECT descriptor.
  uint32_t retries = 0;
  uint32_t stalls = 0;
};

std::vector<FileAccess> AccessOf(const ReadSetup& setup) {
  std::vector<FileAccess> access(setup.files.size());
  for (size_t i = 0; i < access.size(); ++i) {
    access[i].direct = setup.files[i].direct != nullptr;
    if (access[i].direct) access[i].alignment = setup.files[i].direct->direct_alignment();
  }
  return access;
}

class ReadPipeline {
 public:
  ReadPipeline(ReadSetup setup, ReadPlanner planner, BufferPool pool, uint64_t request_bytes,
               ReadDelivery& delivery, CacheWindow window)
      : setup_(std::move(setup)),
        planner_(std::move(planner)),
        pool_(std::move(pool)),
        request_bytes_(request_bytes),
        delivery_(delivery),
        window_(std::move(window)),
        access_(AccessOf(setup_)),
        parts_(setup_.queue->depth()) {
    for (uint32_t i = static_cast<uint32_t>(parts_.size()); i > 0; --i)
      free_parts_.push_back(i - 1);
    // A block read by several requests is cut where direct I/O can begin.
    for (const FileAccess& access : access_) {
      request_bytes_ = base::AlignUp(request_bytes_, access.alignment.offset);
    }
  }
  ReadPipeline(const ReadPipeline&) = delete;
  ReadPipeline& operator=(const ReadPipeline&) = delete;
  // The queue is in setup_, and its destructor waits for what is in flight: it has to die before
  // the buffers, which the order of the members does not give.
  ~ReadPipeline() { setup_.queue.reset(); }

  Status Run();
  ReadStats TakeStats() {
    stats_.peak_buffer_bytes = pool_.peak_bytes();
    stats_.backend = std::move(setup_.choice);
    return std::move(stats_);
  }

 private:
  Status Loop();
  Status Fill();
  Result<bool> NextUnit();
  Result<bool> StartUnit(ReadUnit&& unit);
  void MakePart(uint32_t unit_index);
  Status SubmitPart(uint32_t part_index);
  Status OnCompletion(const IoCompletion& completion);
  Status OnFailure(uint32_t part_index, const IoCompletion& completion);
  Status OnShort(Part& part, uint64_t moved);
  Status FallBackFromDirect(const Status& cause);
  void FinishPart(uint32_t part_index);
  Status DeliverUnit(uint32_t unit_index);
  File& FileOf(const ReadUnit& unit) {
    const ReadFile& file = setup_.files[unit.file];
    return unit.direct ? *file.direct : *file.buffered;
  }
  uint64_t AlignmentOf(const ReadUnit& unit) const {
    return unit.direct ? access_[unit.file].alignment.offset : 1;
  }

  ReadSetup setup_;
  ReadPlanner planner_;
  BufferPool pool_;
  uint64_t request_bytes_;
  ReadDelivery& delivery_;
  CacheWindow window_;
  std::vector<FileAccess> access_;

  std::vector<Part> parts_;
  std::vector<uint32_t> free_parts_;
  std::deque<uint32_t> retry_parts_;  // Parts to be submitted again.
  std::vector<ActiveUnit> units_;
  std::vector<uint32_t> free_units_;
  uint32_t open_unit_ = kNone;    // Its parts are not all made yet.
  std::optional<ReadUnit> held_;  // Waits for a buffer.
  std::deque<uint32_t> ready_;    // Units that were read and not delivered yet.
  std::vector<IoCompletion> completions_;
  ReadStats stats_;
};

// Give the next planned unit a place; false when there is none, or no buffer for it.
Result<bool> ReadPipeline::NextUnit() {
  ReadUnit unit;
  if (held_) {
    unit = std::move(*held_);
    held_.reset();
  } else {
    FLAGSTONE_ASSIGN_OR_RETURN(auto next, planner_.Next(access_));
    if (!next) return false;
    unit = std::move(*next);
  }
  return StartUnit(std::move(unit));
}

Result<bool> ReadPipeline::StartUnit(ReadUnit&& unit) {
  std::span<std::byte> buffer;
  if (unit.straight == nullptr) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto taken, pool_.Take(unit.read_size));
    if (!taken) {
      held_ = std::move(unit);
      return false;
    }
    buffer = *taken;
  }
  if (free_units_.empty()) {
    free_units_.push_back(static_cast<uint32_t>(units_.size()));
    units_.emplace_back();
  }
  open_unit_ = free_units_.back();
  free_units_.pop_back();
  ActiveUnit& active = units_[open_unit_];
  active = ActiveUnit{};
  active.buffer = buffer;
  active.memory = unit.straight != nullptr ? unit.straight : buffer.data();
  if (!unit.direct) {
    active.cache_ticket = window_.Begin(unit.file, unit.read_offset, unit.read_size);
  }
  stats_.read_bytes += unit.read_size;
  active.unit = std::move(unit);
  return true;
}

void ReadPipeline::MakePart(uint32_t unit_index) {
  ActiveUnit& active = units_[unit_index];
  const ReadUnit& unit = active.unit;
  const uint32_t index = free_parts_.back();
  free_parts_.pop_back();
  Part part;
  part.unit = unit_index;
  part.offset = unit.read_offset + active.submitted;
  part.size = std::min(unit.read_size - active.submitted, request_bytes_);
  part.needed = std::min(part.size, unit.offset + unit.size - part.offset);
  parts_[index] = part;
  active.submitted += part.size;
  ++active.parts_in_flight;
  if (active.submitted == unit.read_size) open_unit_ = kNone;
  retry_parts_.push_back(index);
}

Status ReadPipeline::SubmitPart(uint32_t part_index) {
  Part& part = parts_[part_index];
  const ActiveUnit& active = units_[part.unit];
  part.direct = active.unit.direct;
  // Direct I/O goes on at the last aligned byte: the bytes from there are read again.
  part.resumed = base::AlignDown(part.have, AlignmentOf(active.unit));
  std::byte* const memory = active.memory + (part.offset - active.unit.read_offset) + part.resumed;
  ++stats_.read_calls;
  return setup_.queue->Submit({.kind = IoRequest::Kind::kRead,
                               .file = &FileOf(active.unit),
                               .offset = part.offset + part.resumed,
                               .memory = {memory, part.size - part.resumed},
                               .tag = part_index});
}

// Keep the queue full.
Status ReadPipeline::Fill() {
  IoQueue& queue = *setup_.queue;
  while (queue.in_flight() < queue.depth()) {
    if (retry_parts_.empty()) {
      if (free_parts_.empty()) break;
      if (open_unit_ == kNone) {
        if (window_.Full() && queue.in_flight() > 0) break;
        FLAGSTONE_ASSIGN_OR_RETURN(const bool started, NextUnit());
        if (!started) break;
      }
      MakePart(open_unit_);
    }
    const uint32_t part = retry_parts_.front();
    retry_parts_.pop_front();
    FLAGSTONE_RETURN_IF_ERROR(SubmitPart(part));
  }
  return Status();
}

Status ReadPipeline::FallBackFromDirect(const Status& cause) {
  if (setup_.forced) {
    return Status(StatusCode::kUnsupported,
                  base::Join("direct reads are refused: ", cause.message()), cause.place());
  }
  if (setup_.choice.backend != Backend::kUringDirect) return Status();
  setup_.choice.backend = Backend::kUring;
  AddReason(setup_.choice, base::Join("direct reads are refused: ", cause.message()));
  for (FileAccess& access : access_) access.direct = false;
  // A unit that waits for a buffer was planned for direct I/O; read through the cache it is only
  // larger than needed.
  if (held_) held_->direct = false;
  return Status();
}

Status ReadPipeline::OnFailure(uint32_t part_index, const IoCompletion& completion) {
  Part& part = parts_[part_index];
  if (completion.error == EAGAIN || completion.error == EINTR) {
    if (++part.retries > kMaxRetries) return completion.moved.status();
    retry_parts_.push_back(part_index);
    return Status();
  }
  if (part.direct && completion.moved.status().code() == StatusCode::kUnsupported) {
    FLAGSTONE_RETURN_IF_ERROR(FallBackFromDirect(completion.moved.status()));
    // Other parts of the unit that are still in flight may yet succeed; those that do not come here
    // too.
    ActiveUnit& active = units_[part.unit];
    if (active.unit.direct) {
      active.unit.direct = false;
      active.cache_ticket =
          window_.Begin(active.unit.file, active.unit.read_offset, active.unit.read_size);
    }
    retry_parts_.push_back(part_index);
    return Status();
  }
  return completion.moved.status();
}

// Fewer bytes came than are needed.
Status ReadPipeline::OnShort(Part& part, uint64_t moved) {
  const ReadUnit& unit = units_[part.unit].unit;
  File& file = FileOf(unit);
  const uint64_t have = std::max(part.have, part.resumed + moved);
  const bool stalled = have == part.have;
  part.have = have;
  if (!stalled) {
    part.stalls = 0;
    return Status();
  }
  // Nothing new: the end of the file, or a device that does not get on.
  const auto info = file.Info();
  const uint64_t need = part.offset + part.needed;
  if (info.ok() && info->size < need) return TruncatedStatus(file.path(), info->size, need);
  if (moved == 0) return TruncatedStatus(file.path(), part.offset + have, need);
  if (++part.stalls > kMaxStalls) {
    return TransferErrno(EIO, "read (no progress is made)", file.path(), part.offset + have,
                         part.needed - have);
  }
  return Status();
}

void ReadPipeline::FinishPart(uint32_t part_index) {
  const uint32_t unit_index = parts_[part_index].unit;
  free_parts_.push_back(part_index);
  ActiveUnit& active = units_[unit_index];
  if (--active.parts_in_flight == 0 && active.submitted == active.unit.read_size) {
    ready_.push_back(unit_index);
  }
}

Status ReadPipeline::OnCompletion(const IoCompletion& completion) {
  const auto index = static_cast<uint32_t>(completion.tag);
  if (!completion.moved.ok()) return OnFailure(index, completion);
  Part& part = parts_[index];
  const uint64_t moved = *completion.moved;
  if (part.resumed + moved >= part.needed) {
    FinishPart(index);
    return Status();
  }
  FLAGSTONE_RETURN_IF_ERROR(OnShort(part, moved));
  retry_parts_.push_back(index);
  return Status();
}

Status ReadPipeline::DeliverUnit(uint32_t unit_index) {
  ActiveUnit& active = units_[unit_index];
  const ReadUnit& unit = active.unit;
  const Status status = delivery_.Deliver(unit, active.memory + (unit.offset - unit.read_offset),
                                          unit.straight == nullptr);
  if (unit.straight == nullptr) pool_.Give(active.buffer);
  if (active.cache_ticket != 0) window_.End(active.cache_ticket);
  free_units_.push_back(unit_index);
  return status;
}

Status ReadPipeline::Loop() {
  for (;;) {
    FLAGSTONE_RETURN_IF_ERROR(Fill());
    if (setup_.queue->in_flight() == 0) return Status();
    completions_.clear();
    FLAGSTONE_RETURN_IF_ERROR(setup_.queue->Wait(completions_));
    for (const IoCompletion& completion : completions_) {
      FLAGSTONE_RETURN_IF_ERROR(OnCompletion(completion));
    }
    // New requests go out before what has come is looked at, and again as each buffer is free.
    while (!ready_.empty()) {
      FLAGSTONE_RETURN_IF_ERROR(Fill());
      const uint32_t unit = ready_.front();
      ready_.pop_front();
      FLAGSTONE_RETURN_IF_ERROR(DeliverUnit(unit));
    }
  }
}

Status ReadPipeline::Run() {
  Status status = Loop();
  // Buffers and destinations belong to the kernel until the last completion. After success nothing
  // is in flight.
  while (!status.ok() && setup_.queue->in_flight() != 0) {
    completions_.clear();
    if (!setup_.queue->Wait(completions_).ok()) break;
  }
  window_.Finish();
  return status;
}

Status ReadMapped(const ReadSetup& setup, ReadPlanner& planner, ReadDelivery& delivery,
                  CacheWindow& window, ReadStats& stats) {
  const std::vector<FileAccess> access(setup.files.size());
  for (;;) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto unit, planner.Next(access));
    if (!unit) break;
    const uint64_t ticket = window.Begin(unit->file, unit->offset, unit->size);
    {
      FLAGSTONE_ASSIGN_OR_RETURN(const auto mapping,
                                 setup.files[unit->file].buffered->Map(unit->offset, unit->size));
      FLAGSTONE_RETURN_IF_ERROR(mapping->Populate(0, unit->size));
      stats.read_bytes += unit->size;
      ++stats.read_calls;
      FLAGSTONE_RETURN_IF_ERROR(delivery.Deliver(*unit, mapping->bytes().data(), true));
    }
    window.End(ticket);  // Mapped pages cannot be dropped.
  }
  window.Finish();
  stats.backend = setup.choice;
  return Status();
}

// That every file is as long as its ranges need, so that all backends refuse a short one alike,
// before the first read and before a mapping could raise SIGBUS.
Status CheckLengths(std::span<const std::shared_ptr<File>> files,
                    std::span<const ReadRange> ranges) {
  std::vector<uint64_t> needed(files.size(), 0);
  for (const ReadRange& range : ranges) {
    if (range.size == 0) continue;
    needed[range.file] = std::max(needed[range.file], range.offset + range.size);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (needed[i] == 0) continue;
    FLAGSTONE_ASSIGN_OR_RETURN(const FileInfo info, files[i]->Info());
    if (info.size < needed[i]) return TruncatedStatus(files[i]->path(), info.size, needed[i]);
  }
  return Status();
}

}  // namespace

Result<ReadStats> ReadRanges(FileSystem& fs, std::span<const std::shared_ptr<File>> files,
                             std::span<const ReadRange> ranges, const BlockConsumer& consumer,
                             const ReadOptions& options) {
  FLAGSTONE_ASSIGN_OR_RETURN(
      ReadSetup setup, SetUpReads(fs, files, options.backend, options.chosen, options.queue_depth));
  const bool mapped = setup.choice.backend == Backend::kMmap;
  const ReadLimits limits = LimitsOf(options, setup.choice.backend);
  FLAGSTONE_ASSIGN_OR_RETURN(ReadPlanner planner, ReadPlanner::Make(ranges, files.size(), limits));
  FLAGSTONE_RETURN_IF_ERROR(CheckLengths(files, ranges));

  ReadDelivery delivery(ranges, consumer, options.progress);
  CacheWindow window(files, ranges, options.keep_cached);
  ReadStats stats;
  if (mapped) {
    FLAGSTONE_RETURN_IF_ERROR(ReadMapped(setup, planner, delivery, window, stats));
  } else {
    FLAGSTONE_ASSIGN_OR_RETURN(const PlanSummary plan, planner.Summarize(AccessOf(setup)));
    ReadPipeline pipeline(std::move(setup), std::move(planner), BufferPool(BuffersOf(plan, limits)),
                          limits.request_bytes, delivery, std::move(window));
    FLAGSTONE_RETURN_IF_ERROR(pipeline.Run());
    stats = pipeline.TakeStats();
  }
  stats.copied_bytes = delivery.copied_bytes();
  return stats;
}

}  // namespace flagstone::io
