// SPDX-License-Identifier: Apache-2.0
#include "io/read_delivery.h"

#include <algorithm>
#include <cstring>

#include "base/macros.h"

namespace flagstone::io {

void ReadDelivery::Copy(const ReadRange& range, uint64_t offset_in_range,
                        std::span<const std::byte> bytes) {
  const uint64_t begin = std::max(offset_in_range, range.destination_skip);
  const uint64_t end =
      std::min(offset_in_range + bytes.size(), range.destination_skip + range.destination.size());
  if (begin >= end) return;
  std::memcpy(range.destination.data() + (begin - range.destination_skip),
              bytes.data() + (begin - offset_in_range), end - begin);
  copied_bytes_ += end - begin;
}

Status ReadDelivery::Deliver(const ReadUnit& unit, const std::byte* memory, bool copy) {
  for (const ReadPiece& piece : unit.pieces) {
    const ReadRange& range = ranges_[piece.range];
    const uint64_t end = piece.offset_in_range + piece.size;
    for (uint64_t at = piece.offset_in_range; at < end;) {
      const std::span<const std::byte> block(memory + (range.offset + at - unit.offset),
                                             BlockSize(range, at));
      if (consumer_) FLAGSTONE_RETURN_IF_ERROR(consumer_(range, at, block));
      // Right after the consumer, while the block is in the cache.
      if (copy) Copy(range, at, block);
      at += block.size();
    }
    done_bytes_ += piece.size;
  }
  if (progress_) progress_(done_bytes_);
  return Status();
}

}  // namespace flagstone::io
