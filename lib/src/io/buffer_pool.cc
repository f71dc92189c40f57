// SPDX-License-Identifier: Apache-2.0
#include "io/buffer_pool.h"

#include <algorithm>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"

namespace flagstone::io {
namespace {

// Two huge pages of most machines.
constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

BufferLimits Rounded(BufferLimits limits) {
  limits.limit_bytes = base::AlignDown(limits.limit_bytes, base::kPageBytes);
  limits.buffer_bytes = base::AlignUp(std::max<uint64_t>(limits.buffer_bytes, 1), base::kPageBytes);
  return limits;
}

// Buffers in a chunk of which `mapped` bytes are mapped already; 0 when there is no room.
uint64_t BuffersInChunk(const BufferLimits& limits, uint64_t mapped) {
  const uint64_t room = (limits.limit_bytes - mapped) / limits.buffer_bytes;
  const uint64_t made = mapped / limits.buffer_bytes;
  const uint64_t left = limits.count > made ? limits.count - made : 1;
  return std::min({std::max<uint64_t>(kChunkBytes / limits.buffer_bytes, 1), room, left});
}

}  // namespace

uint64_t PoolBytes(const BufferLimits& limits, uint64_t in_use) {
  const BufferLimits rounded = Rounded(limits);
  uint64_t mapped = 0;
  while (mapped < in_use * rounded.buffer_bytes) {
    const uint64_t buffers = BuffersInChunk(rounded, mapped);
    if (buffers == 0) break;
    mapped += buffers * rounded.buffer_bytes;
  }
  return mapped;
}

BufferPool::BufferPool(const BufferLimits& limits) : limits_(Rounded(limits)) {}

// The smallest free slot that is large enough, the warmest of equals.
BufferPool::Slot* BufferPool::FindFree(uint64_t size) {
  Slot* best = nullptr;
  for (Slot& slot : slots_) {
    if (!slot.free || slot.bytes.size() < size) continue;
    if (best == nullptr || slot.bytes.size() <= best->bytes.size()) best = &slot;
  }
  return best;
}

// Chunks that are not in use make room for a buffer that is larger than theirs.
void BufferPool::UnmapFree() {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    if (chunks_[i].used != 0) continue;
    std::erase_if(slots_, [i](const Slot& slot) { return slot.chunk == i; });
    mapped_bytes_ -= chunks_[i].pages.bytes().size();
    chunks_[i].pages = Pages();
  }
}

Result<bool> BufferPool::MapChunk(uint64_t size) {
  if (size > limits_.limit_bytes - mapped_bytes_) return false;
  const uint64_t buffers =
      size == limits_.buffer_bytes ? BuffersInChunk(limits_, mapped_bytes_) : 1;
  FLAGSTONE_ASSIGN_OR_RETURN(Pages pages, Pages::Map(buffers * size, base::kPageBytes));
  for (uint64_t i = buffers; i > 0; --i) {
    slots_.push_back(
        {.chunk = chunks_.size(), .bytes = pages.bytes().subspan((i - 1) * size, size)});
  }
  chunks_.push_back({.pages = std::move(pages)});
  mapped_bytes_ += buffers * size;
  peak_bytes_ = std::max(peak_bytes_, mapped_bytes_);
  return true;
}

Result<std::optional<std::span<std::byte>>> BufferPool::Take(uint64_t size) {
  const uint64_t pages = base::AlignUp(size, base::kPageBytes);
  const uint64_t wanted = std::max(pages, std::min(limits_.buffer_bytes, limits_.limit_bytes));
  if (wanted > limits_.limit_bytes) {
    return Status(
        StatusCode::kResourceExhausted,
        base::Join("a buffer of ", size, " bytes is needed, but all buffers together may have ",
                   limits_.limit_bytes));
  }
  Slot* slot = FindFree(wanted);
  if (slot == nullptr) {
    FLAGSTONE_ASSIGN_OR_RETURN(bool mapped, MapChunk(wanted));
    if (!mapped) {
      UnmapFree();
      FLAGSTONE_ASSIGN_OR_RETURN(mapped, MapChunk(wanted));
    }
    if (!mapped) return std::optional<std::span<std::byte>>();
    slot = &slots_.back();
  }
  slot->free = false;
  ++chunks_[slot->chunk].used;
  return std::optional<std::span<std::byte>>(slot->bytes);
}

void BufferPool::Give(std::span<std::byte> buffer) {
  for (Slot& slot : slots_) {
    if (slot.bytes.data() != buffer.data() || slot.free) continue;
    slot.free = true;
    --chunks_[slot.chunk].used;
    std::swap(slot, slots_.back());
    return;
  }
}

}  // namespace flagstone::io
