// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The counter behind LibraryMemory(), and pages that are counted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "flagstone/status.h"

namespace flagstone::io {

/// Bytes that the library mapped or allocated for data: rings, thread stacks, buffers,
/// PageAllocator. Thread-safe.
void CountMapped(uint64_t bytes);
void CountUnmapped(uint64_t bytes);

/// Holds a number of bytes in the count for as long as it lives; for memory that somebody else
/// maps.
class CountedBytes {
 public:
  CountedBytes() = default;
  explicit CountedBytes(uint64_t bytes) : bytes_(bytes) { CountMapped(bytes_); }
  CountedBytes(CountedBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  CountedBytes& operator=(CountedBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CountedBytes() { CountUnmapped(bytes_); }

 private:
  uint64_t bytes_ = 0;
};

/// Anonymous pages, counted; unmapped by the destructor.
class Pages {
 public:
  Pages() = default;
  /// `size` bytes, rounded up to pages, at an address that is 0 modulo `alignment` (a power of
  /// two).
  static Result<Pages> Map(uint64_t size, uint64_t alignment);
  Pages(Pages&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages() { Unmap(bytes_); }

  std::span<std::byte> bytes() const { return bytes_; }
  /// Give up ownership; the caller passes the span to Unmap.
  std::span<std::byte> Release() { return std::exchange(bytes_, {}); }
  static void Unmap(std::span<std::byte> bytes);

 private:
  explicit Pages(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace flagstone::io
