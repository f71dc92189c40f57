// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Page-aligned buffers up to a number of bytes, mapped as they are needed and used again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flagstone/status.h"
#include "io/memory_count.h"

namespace flagstone::io {

/// How many buffers a pool may have, and how large they are.
struct BufferLimits {
  uint64_t limit_bytes = 0;     ///< Of all together.
  uint64_t buffer_bytes = 0;    ///< Of one, unless a larger one is asked for. Rounded up to pages.
  uint64_t count = UINT64_MAX;  ///< No more will be asked for.
};

/// Most that a pool maps while no more than `in_use` buffers of the usual size are out.
uint64_t PoolBytes(const BufferLimits& limits, uint64_t in_use);

/// Not thread-safe. Buffers belong to the pool; they die with it.
///
/// Memory is mapped in chunks of several buffers: chunks can have huge pages, and the first touch
/// of a buffer with 4 KiB pages costs more than the read that fills it.
class BufferPool {
 public:
  explicit BufferPool(const BufferLimits& limits);

  /// A buffer of at least `size` bytes on a page boundary; nullopt when so many are in use that one
  /// must come back first. Errors: kResourceExhausted where it can never be had.
  Result<std::optional<std::span<std::byte>>> Take(uint64_t size);
  void Give(std::span<std::byte> buffer);

  uint64_t limit_bytes() const { return limits_.limit_bytes; }
  uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  struct Chunk {
    Pages pages;
    uint32_t used = 0;  // Slots that are in use.
  };
  struct Slot {
    size_t chunk = 0;
    std::span<std::byte> bytes;
    bool free = true;
  };
  Slot* FindFree(uint64_t size);
  Result<bool> MapChunk(uint64_t size);
  void UnmapFree();

  const BufferLimits limits_;
  uint64_t mapped_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<Slot> slots_;  // The most recently returned last: its pages are warm.
};

}  // namespace flagstone::io
