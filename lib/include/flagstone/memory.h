// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Where bytes come from and go to: `Source` for saving, `Sink` for loading, `HostAllocator` for
/// memory that the library takes on the caller's behalf. The core knows neither torch nor CUDA:
/// adapters implement these.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "flagstone/export.h"
#include "flagstone/status.h"

namespace flagstone {

/// Bytes to be saved: one segment, or one slice of it, packed row-major and little-endian.
///
/// Borrowed by the Writer until `Commit` returns. The library reads a source from one thread at a
/// time, in rising order of offset, each byte once.
class FLAGSTONE_EXPORT Source {
 public:
  virtual ~Source();
  virtual uint64_t size_bytes() const = 0;
  /// Fill `out` with the bytes from `offset` on; offset + out.size() <= size_bytes().
  virtual Status Read(uint64_t offset, std::span<std::byte> out) = 0;
  /// True if [offset, offset + size) is known to be zero: such 4 KiB pages are left unallocated on
  /// disk.
  virtual bool IsZero(uint64_t offset, uint64_t size) const;
};

/// The trivial source: memory of the caller, which must not change until `Commit` returns.
class FLAGSTONE_EXPORT SpanSource final : public Source {
 public:
  explicit SpanSource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status Read(uint64_t offset, std::span<std::byte> out) override;

 private:
  std::span<const std::byte> bytes_;
};

/// Receives loaded bytes that do not go straight into host memory (a GPU, a socket, another
/// format).
///
/// Called from one thread at a time; ranges come in any order, each byte of the wanted range once,
/// after it has been verified. `bytes` is valid during the call only.
class FLAGSTONE_EXPORT Sink {
 public:
  virtual ~Sink();
  virtual Status Write(uint64_t offset, std::span<const std::byte> bytes) = 0;
};

/// Host memory from an allocator; gives itself back.
class FLAGSTONE_EXPORT HostBuffer {
 public:
  using Release = void (*)(void* context, std::span<std::byte> bytes);

  HostBuffer() = default;
  /// `release(context, bytes)` is called once, by the destructor.
  HostBuffer(std::span<std::byte> bytes, Release release, void* context)
      : bytes_(bytes), release_(release), context_(context) {}
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  Release release_ = nullptr;
  void* context_ = nullptr;
};

/// Gives host memory: pageable, pinned, shared. Thread-safe.
class FLAGSTONE_EXPORT HostAllocator {
 public:
  virtual ~HostAllocator();
  /// `size` bytes whose address is 0 modulo `alignment` (a power of two). The content is
  /// unspecified. Errors: kResourceExhausted names the size.
  virtual Result<HostBuffer> Allocate(uint64_t size, uint64_t alignment) = 0;
};

/// Anonymous pages from mmap; given back to the system when released. Lives as long as the program.
FLAGSTONE_EXPORT HostAllocator& PageAllocator();

/// Growth of the memory that the library itself has mapped or allocated for data: rings, buffers,
/// PageAllocator.
struct MemoryCount {
  uint64_t current_bytes = 0;
  uint64_t peak_bytes = 0;  ///< Since the last ResetPeakMemory().
};
FLAGSTONE_EXPORT MemoryCount LibraryMemory();
FLAGSTONE_EXPORT void ResetPeakMemory();

}  // namespace flagstone
