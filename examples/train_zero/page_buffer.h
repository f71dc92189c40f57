// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// An array of zeros that begins on a page.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

namespace train_zero {

/// `size()` elements of T, zero at first. Segments of a checkpoint begin on a page too, so that
/// direct reads and writes go between the disk and this memory without a copy.
template <typename T>
class PageBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  PageBuffer() = default;
  explicit PageBuffer(uint64_t size) : size_(size) {
    const uint64_t bytes = (size * sizeof(T) + kPage - 1) / kPage * kPage;
    memory_.reset(static_cast<T*>(std::aligned_alloc(kPage, bytes == 0 ? kPage : bytes)));
    if (memory_ == nullptr) throw std::bad_alloc();
    std::uninitialized_fill_n(memory_.get(), size, T{});
  }

  uint64_t size() const { return size_; }
  std::span<T> span() { return {memory_.get(), size_}; }
  std::span<const T> span() const { return {memory_.get(), size_}; }

 private:
  static constexpr uint64_t kPage = 4096;
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::unique_ptr<T[], Free> memory_;
  uint64_t size_ = 0;
};

}  // namespace train_zero
