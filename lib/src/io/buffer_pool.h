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

/// Not thread-safe. Buffers belong to the pool; they die with it.
class BufferPool {
 public:
  explicit BufferPool(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// A buffer of at least `size` bytes on a page boundary; nullopt when that many are in use that
  /// one must come back first. Errors: kResourceExhausted where it can never be had.
  Result<std::optional<std::span<std::byte>>> Take(uint64_t size);
  void Give(std::span<std::byte> buffer);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t peak_bytes() const { return peak_bytes_; }
  uint32_t in_use() const { return in_use_; }

 private:
  struct Slot {
    Pages pages;
    bool free = true;
  };
  const uint64_t limit_bytes_;
  uint64_t mapped_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  uint32_t in_use_ = 0;
  std::vector<Slot> slots_;  // The most recently returned last: its pages are warm.
};

}  // namespace flagstone::io
