// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Hands the blocks of a unit that was read to the consumer, and copies what was read into a
/// buffer.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "flagstone/status.h"
#include "io/read_plan.h"
#include "io/transfer.h"

namespace flagstone::io {

class ReadDelivery {
 public:
  ReadDelivery(std::span<const ReadRange> ranges, const BlockConsumer& consumer,
               const std::function<void(uint64_t)>& progress)
      : ranges_(ranges), consumer_(consumer), progress_(progress) {}

  /// `memory` holds the byte at unit.offset. `copy`: it is a buffer, and what has a destination is
  /// copied there.
  Status Deliver(const ReadUnit& unit, const std::byte* memory, bool copy);
  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  void Copy(const ReadRange& range, uint64_t offset_in_range, std::span<const std::byte> bytes);

  const std::span<const ReadRange> ranges_;
  const BlockConsumer& consumer_;
  const std::function<void(uint64_t)>& progress_;
  uint64_t done_bytes_ = 0;
  uint64_t copied_bytes_ = 0;
};

}  // namespace flagstone::io
