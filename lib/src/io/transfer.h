// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The pipelines: a batch of reads that end in memory or in a consumer, and a stream of buffers to
/// a file. Both keep a queue full, continue short transfers, obey direct I/O's alignment and use a
/// bounded set of buffers.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flagstone/backend.h"
#include "flagstone/memory.h"
#include "flagstone/status.h"
#include "io/file_system.h"

namespace flagstone::io {

/// A backend fixed for one transfer, and why.
struct BackendChoice {
  Backend backend = Backend::kPread;  ///< Never kAuto.
  std::string reason;
};

/// A file opened for reading by a chosen backend: buffered always, direct too where the backend
/// wants it.
struct ReadFile {
  std::shared_ptr<File> buffered;
  std::shared_ptr<File> direct;  ///< Null unless the backend is kUringDirect.
};

/// One contiguous read. The unit of the consumer is a block: [offset, offset + size) is cut at
/// multiples of `block_bytes` from `offset`, each block is handed over once, whole.
struct ReadRange {
  uint32_t file = 0;    ///< Index in the batch's files.
  uint64_t offset = 0;  ///< In the file.
  uint64_t size = 0;
  uint64_t block_bytes =
      0;  ///< A multiple of 4096, or 0 for one block (size <= the largest buffer).
  /// Where the bytes end up: memory for the first `destination.size()` bytes of the range beginning
  /// at `destination_skip`; what lies outside is read into a buffer only. Empty: the consumer takes
  /// it.
  std::span<std::byte> destination = {};
  uint64_t destination_skip = 0;
  uint64_t tag = 0;  ///< Given to the consumer.
};

/// Sees every block after it was read and before it counts as done: verifies it, and takes it where
/// the range has no destination. `bytes` is the whole block, in the destination itself or in a
/// buffer. For a block that was read into a buffer and has a destination the pipeline copies after
/// the consumer has agreed.
using BlockConsumer = std::function<Status(const ReadRange& range, uint64_t offset_in_range,
                                           std::span<const std::byte> bytes)>;

struct ReadOptions {
  Backend backend = Backend::kAuto;
  /// What ChooseReadBackend gave for kAuto, so that nothing is probed twice. Goes before `backend`
  /// and, unlike a forced backend, may still fall back.
  std::optional<BackendChoice> chosen;
  uint32_t queue_depth = 0;                    ///< 0: chosen.
  uint64_t buffer_bytes = uint64_t{32} << 20;  ///< Upper bound of all buffers.
  uint64_t request_bytes = uint64_t{1}
                           << 20;  ///< Aim for requests of this size; blocks are combined or split.
  /// Leave in the page cache what a buffered backend brought into it. Otherwise pages that the
  /// probe found absent are dropped behind the cursor, in windows.
  bool keep_cached = false;
  std::function<void(uint64_t)> progress;  ///< Bytes of ranges done so far.
};

struct ReadStats {
  uint64_t read_bytes = 0;    ///< Asked of files, rounding to the alignment included.
  uint64_t read_calls = 0;    ///< Requests submitted, continuations of short ones included.
  uint64_t copied_bytes = 0;  ///< Through buffers.
  uint64_t peak_buffer_bytes = 0;
  BackendChoice backend;
};

/// Which backend `requested` means for reading these files (kAuto resolved, the others checked by
/// trying), with a reason in words. Errors for a forced backend that cannot work: kUnsupported,
/// with the cause.
Result<BackendChoice> ChooseReadBackend(FileSystem& fs,
                                        std::span<const std::shared_ptr<File>> files,
                                        Backend requested);

/// Read all ranges of a set of files (paths opened by the caller, buffered). Unless the backend was
/// forced, falls back from the ring to threads where it cannot be set up, from direct to buffered
/// reads also where they are refused only at a read, and says so in the reason. After an error
/// nothing is in flight any more.
Result<ReadStats> ReadRanges(FileSystem& fs, std::span<const std::shared_ptr<File>> files,
                             std::span<const ReadRange> ranges, const BlockConsumer& consumer,
                             const ReadOptions& options);

/// Most bytes that ReadRanges maps for itself while it reads `ranges`: buffers, ring, thread
/// stacks. The destinations are not in it. The backend is `options.chosen` or `options.backend`,
/// not kAuto. Cost: one pass over the plan; nothing is read or opened.
Result<uint64_t> PredictReadMemory(std::span<const std::shared_ptr<File>> files,
                                   std::span<const ReadRange> ranges, const ReadOptions& options);

struct WriteOptions {
  Backend backend = Backend::kAuto;
  uint32_t queue_depth = 0;
  uint64_t staging_bytes = uint64_t{64} << 20;  ///< Upper bound of all buffers.
};

struct WriteStats {
  uint64_t written_bytes = 0;
  uint64_t write_calls = 0;
  uint64_t peak_staging_bytes = 0;
  BackendChoice backend;
};

/// Writes page-aligned buffers to one file, several in flight. Used by one thread.
///
/// Get a buffer, fill it, hand it over with its place; Finish waits for all. Buffers are
/// 4096-aligned and reused.
class StagedWriter {
 public:
  /// `file` is open for writing, buffered; a direct descriptor is opened beside it where the
  /// backend wants one.
  static Result<std::unique_ptr<StagedWriter>> Make(FileSystem& fs, std::shared_ptr<File> file,
                                                    const WriteOptions& options);
  virtual ~StagedWriter() = default;
  /// Bytes of one staging buffer: a multiple of 4096, at least 4 MiB unless staging_bytes is
  /// smaller.
  virtual uint64_t buffer_bytes() const = 0;
  /// A free staging buffer (waits for one). Belongs to the caller until Write.
  virtual Result<std::span<std::byte>> Buffer() = 0;
  /// Write the first `size` bytes of a buffer from Buffer() at `offset`; both multiples of 4096.
  /// The buffer is the writer's again.
  virtual Status Write(std::span<std::byte> buffer, uint64_t offset, uint64_t size) = 0;
  /// Give an unused buffer back.
  virtual void Return(std::span<std::byte> buffer) = 0;
  /// Wait until all is written. A failed write is reported by the next call of any kind and by
  /// Finish.
  virtual Result<WriteStats> Finish() = 0;
  /// Counts completions: rises while the device makes progress. Any thread.
  virtual uint64_t completions() const = 0;
};

}  // namespace flagstone::io
