// SPDX-License-Identifier: Apache-2.0
#include "io/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"

namespace flagstone::io {
namespace {

// Buffers differ little in size then, and so are used again instead of mapped anew.
constexpr uint64_t kGranularity = uint64_t{64} << 10;

}  // namespace

Result<std::optional<std::span<std::byte>>> BufferPool::Take(uint64_t size) {
  uint64_t wanted = base::AlignUp(std::max<uint64_t>(size, 1), kGranularity);
  if (wanted > limit_bytes_) wanted = base::AlignUp(size, base::kPageBytes);
  if (wanted > limit_bytes_) {
    return Status(StatusCode::kResourceExhausted,
                  base::Join("a buffer of ", size,
                             " bytes is needed, but all buffers together may have ", limit_bytes_));
  }
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    const uint64_t has = slot.pages.bytes().size();
    if (slot.free && has >= wanted && (best == nullptr || has <= best->pages.bytes().size())) {
      best = &slot;
    }
  }
  if (best == nullptr) {
    // Room is made by unmapping free buffers that are too small.
    for (size_t i = 0; i < slots_.size() && mapped_bytes_ + wanted > limit_bytes_;) {
      if (!slots_[i].free) {
        ++i;
        continue;
      }
      mapped_bytes_ -= slots_[i].pages.bytes().size();
      std::swap(slots_[i], slots_.back());
      slots_.pop_back();
    }
    if (mapped_bytes_ + wanted > limit_bytes_) return std::optional<std::span<std::byte>>();
    FLAGSTONE_ASSIGN_OR_RETURN(Pages pages, Pages::Map(wanted, base::kPageBytes));
    slots_.push_back({.pages = std::move(pages)});
    best = &slots_.back();
    mapped_bytes_ += wanted;
    peak_bytes_ = std::max(peak_bytes_, mapped_bytes_);
  }
  best->free = false;
  ++in_use_;
  return std::optional<std::span<std::byte>>(best->pages.bytes());
}

void BufferPool::Give(std::span<std::byte> buffer) {
  for (Slot& slot : slots_) {
    if (slot.pages.bytes().data() != buffer.data()) continue;
    slot.free = true;
    --in_use_;
    std::swap(slot, slots_.back());
    return;
  }
}

}  // namespace flagstone::io
