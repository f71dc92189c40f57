// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "io/buffer_pool.h"
#include "io/errno_status.h"
#include "io/io_queue.h"
#include "io/read_setup.h"
#include "io/thread_queue.h"
#include "io/transfer.h"

namespace flagstone::io {
namespace {

// Large enough for a digest chunk and for a device to be as fast as it can.
constexpr uint64_t kBufferBytes = uint64_t{4} << 20;
constexpr uint32_t kMaxDepth = 32;
constexpr uint32_t kMaxRetries = 1000;
constexpr uint32_t kMaxStalls = 16;

// A buffer on its way to the file.
struct Transfer {
  std::span<std::byte> buffer;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t done = 0;
  uint64_t resumed = 0;  // Where in [0, size) the request in flight begins.
  bool direct = false;
  uint32_t retries = 0;
  uint32_t stalls = 0;
};

class StagedWriterImpl final : public StagedWriter {
 public:
  StagedWriterImpl(std::shared_ptr<File> file, uint64_t staging_bytes, uint64_t buffer_bytes)
      : file_(std::move(file)),
        buffer_bytes_(buffer_bytes),
        pool_({.limit_bytes = staging_bytes, .buffer_bytes = buffer_bytes}) {}
  StagedWriterImpl(const StagedWriterImpl&) = delete;
  StagedWriterImpl& operator=(const StagedWriterImpl&) = delete;
  // The queue waits for what is in flight: before the buffers and the files die.
  ~StagedWriterImpl() override { queue_.reset(); }

  Status SetUp(FileSystem& fs, const WriteOptions& options);

  uint64_t buffer_bytes() const override { return buffer_bytes_; }
  Result<std::span<std::byte>> Buffer() override;
  Status Write(std::span<std::byte> buffer, uint64_t offset, uint64_t size) override;
  void Return(std::span<std::byte> buffer) override { pool_.Give(buffer); }
  Result<WriteStats> Finish() override;
  uint64_t completions() const override { return completions_.load(std::memory_order_relaxed); }

 private:
  Status Fail(Status status);
  Status Submit(uint32_t index);
  Status WaitSome();
  Status OnCompletion(const IoCompletion& completion);
  Status OnFailure(uint32_t index, const IoCompletion& completion);
  void Free(uint32_t index);

  const std::shared_ptr<File> file_;
  std::shared_ptr<File> direct_;  // Null where writes go through the page cache.
  bool direct_refused_ = false;   // It stays open all the same: others may be in flight on it.
  const uint64_t buffer_bytes_;
  BufferPool pool_;
  std::unique_ptr<IoQueue> queue_;
  bool forced_ = false;
  std::vector<Transfer> transfers_;
  std::vector<uint32_t> free_;
  std::vector<IoCompletion> completed_;
  Status failure_;
  WriteStats stats_;
  std::atomic<uint64_t> completions_{0};
};

BackendChoice Prefer(File& file) {
  switch (file.kind()) {
    case FileSystemKind::kNetwork:
      return {Backend::kPread, "network file system: direct I/O would pass by its cache"};
    case FileSystemKind::kMemory:
      return {Backend::kPread, "file system in memory"};
    case FileSystemKind::kLocal:
      break;
  }
  return {Backend::kUringDirect, "local file system"};
}

Status StagedWriterImpl::SetUp(FileSystem& fs, const WriteOptions& options) {
  forced_ = options.backend != Backend::kAuto;
  stats_.backend = forced_ ? BackendChoice{options.backend, "asked for"} : Prefer(*file_);
  Backend& backend = stats_.backend.backend;
  if (backend == Backend::kMmap) {
    return Status(StatusCode::kUnsupported, "the backend mmap is for loads only");
  }
  const uint64_t buffers = std::max<uint64_t>(1, pool_.limit_bytes() / buffer_bytes_);
  const auto depth = static_cast<uint32_t>(
      std::min<uint64_t>(options.queue_depth != 0 ? options.queue_depth : kMaxDepth, buffers));
  if (backend == Backend::kUringDirect) {
    auto direct = OpenDirect(fs, *file_, OpenOptions::Mode::kReadWrite);
    if (direct.ok()) {
      direct_ = std::move(*direct);
    } else {
      if (forced_) return direct.status();
      backend = Backend::kUring;
      AddReason(stats_.backend, direct.status().message());
    }
  }
  if (backend != Backend::kPread) {
    auto queue = fs.MakeQueue(QueueKind::kUring, depth);
    if (queue.ok()) {
      queue_ = std::move(*queue);
    } else {
      if (forced_ || queue.status().code() != StatusCode::kUnsupported) return queue.status();
      direct_.reset();
      backend = Backend::kPread;
      AddReason(stats_.backend, queue.status().message());
    }
  }
  if (queue_ == nullptr) {
    FLAGSTONE_ASSIGN_OR_RETURN(
        queue_, fs.MakeQueue(QueueKind::kThreads, std::min(depth, kMaxQueueThreads)));
  }
  transfers_.resize(queue_->depth());
  for (uint32_t i = queue_->depth(); i > 0; --i) free_.push_back(i - 1);
  return Status();
}

// Remember the first failure; what is in flight is waited for, so that no buffer is the kernel's
// any more.
Status StagedWriterImpl::Fail(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
  while (queue_->in_flight() != 0) {
    completed_.clear();
    if (!queue_->Wait(completed_).ok()) break;
  }
  return failure_;
}

Result<std::span<std::byte>> StagedWriterImpl::Buffer() {
  if (!failure_.ok()) return failure_;
  for (;;) {
    auto taken = pool_.Take(buffer_bytes_);
    if (!taken.ok()) return taken.status();
    if (*taken) return **taken;
    if (queue_->in_flight() == 0) {
      return Status(StatusCode::kResourceExhausted,
                    base::Join("all staging buffers (", pool_.limit_bytes(),
                               " bytes) are in the caller's hands"));
    }
    FLAGSTONE_RETURN_IF_ERROR(WaitSome());
  }
}

Status StagedWriterImpl::Submit(uint32_t index) {
  Transfer& transfer = transfers_[index];
  transfer.direct = direct_ != nullptr && !direct_refused_;
  File& file = transfer.direct ? *direct_ : *file_;
  // Direct I/O goes on at the last aligned byte: the bytes from there are written again.
  transfer.resumed =
      base::AlignDown(transfer.done, transfer.direct ? file.direct_alignment().offset : 1);
  ++stats_.write_calls;
  return queue_->Submit(
      {.kind = IoRequest::Kind::kWrite,
       .file = &file,
       .offset = transfer.offset + transfer.resumed,
       .memory = transfer.buffer.subspan(transfer.resumed, transfer.size - transfer.resumed),
       .tag = index});
}

Status StagedWriterImpl::Write(std::span<std::byte> buffer, uint64_t offset, uint64_t size) {
  if (!failure_.ok()) return failure_;
  if (offset % base::kPageBytes != 0 || size % base::kPageBytes != 0 || size > buffer.size()) {
    return Status(StatusCode::kInternal,
                  base::Join("a write of ", size, " bytes at offset ", offset,
                             " is not of whole pages or exceeds its buffer"));
  }
  if (size == 0) {
    Return(buffer);
    return Status();
  }
  while (free_.empty()) FLAGSTONE_RETURN_IF_ERROR(WaitSome());
  const uint32_t index = free_.back();
  free_.pop_back();
  transfers_[index] = Transfer{};
  transfers_[index].buffer = buffer;
  transfers_[index].offset = offset;
  transfers_[index].size = size;
  const Status submitted = Submit(index);
  return submitted.ok() ? submitted : Fail(submitted);
}

void StagedWriterImpl::Free(uint32_t index) {
  pool_.Give(transfers_[index].buffer);
  free_.push_back(index);
}

Status StagedWriterImpl::OnFailure(uint32_t index, const IoCompletion& completion) {
  Transfer& transfer = transfers_[index];
  const Status failure = completion.moved.status();
  if (completion.error == EAGAIN || completion.error == EINTR) {
    return ++transfer.retries > kMaxRetries ? failure : Submit(index);
  }
  if (!transfer.direct || failure.code() != StatusCode::kUnsupported) return failure;
  if (forced_) {
    return Status(StatusCode::kUnsupported,
                  base::Join("direct writes are refused: ", failure.message()), failure.place());
  }
  if (stats_.backend.backend == Backend::kUringDirect) {
    stats_.backend.backend = Backend::kUring;
    AddReason(stats_.backend, base::Join("direct writes are refused: ", failure.message()));
  }
  direct_refused_ = true;
  return Submit(index);
}

Status StagedWriterImpl::OnCompletion(const IoCompletion& completion) {
  const auto index = static_cast<uint32_t>(completion.tag);
  if (!completion.moved.ok()) return OnFailure(index, completion);
  Transfer& transfer = transfers_[index];
  const uint64_t done = std::max(transfer.done, transfer.resumed + *completion.moved);
  transfer.stalls = done == transfer.done ? transfer.stalls + 1 : 0;
  transfer.done = done;
  if (done >= transfer.size) {
    stats_.written_bytes += transfer.size;
    completions_.fetch_add(1, std::memory_order_relaxed);
    Free(index);
    return Status();
  }
  if (transfer.stalls > kMaxStalls) {
    return TransferErrno(EIO, "write (no progress is made)", file_->path(), transfer.offset + done,
                         transfer.size - done);
  }
  completions_.fetch_add(1, std::memory_order_relaxed);
  return Submit(index);
}

Status StagedWriterImpl::WaitSome() {
  completed_.clear();
  Status status = queue_->Wait(completed_);
  for (size_t i = 0; status.ok() && i < completed_.size(); ++i) {
    status = OnCompletion(completed_[i]);
  }
  return status.ok() ? status : Fail(std::move(status));
}

Result<WriteStats> StagedWriterImpl::Finish() {
  while (failure_.ok() && queue_->in_flight() != 0) {
    FLAGSTONE_RETURN_IF_ERROR(WaitSome());
  }
  if (!failure_.ok()) return failure_;
  stats_.peak_staging_bytes = pool_.peak_bytes();
  return stats_;
}

}  // namespace

Result<std::unique_ptr<StagedWriter>> StagedWriter::Make(FileSystem& fs, std::shared_ptr<File> file,
                                                         const WriteOptions& options) {
  if (options.staging_bytes < base::kPageBytes) {
    return Status(
        StatusCode::kResourceExhausted,
        base::Join("staging of ", options.staging_bytes, " bytes does not hold one page of 4096"));
  }
  const uint64_t staging = base::AlignDown(options.staging_bytes, base::kPageBytes);
  auto writer =
      std::make_unique<StagedWriterImpl>(std::move(file), staging, std::min(staging, kBufferBytes));
  FLAGSTONE_RETURN_IF_ERROR(writer->SetUp(fs, options));
  return std::unique_ptr<StagedWriter>(std::move(writer));
}

}  // namespace flagstone::io
