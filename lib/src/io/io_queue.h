// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Batched reads and writes in flight. The queue moves bytes and reports what happened; continuing
/// short transfers, alignment and buffers are the pipeline's business (io/transfer.h).

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "flagstone/status.h"

namespace flagstone::io {

class File;

struct IoRequest {
  enum class Kind : uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  File* file = nullptr;  ///< Outlives the completion.
  uint64_t offset = 0;
  std::span<std::byte> memory = {};  ///< Belongs to the queue until the completion is seen.
  uint64_t tag = 0;                  ///< Given back with the completion.
};

struct IoCompletion {
  uint64_t tag = 0;
  /// Bytes moved (may be short; 0 at the end of a file), or the failure.
  Result<uint64_t> moved = uint64_t{0};
  /// The errno behind a failed `moved`, 0 where the queue does not know it. EAGAIN and EINTR:
  /// submit again.
  int error = 0;
};

/// Used by one thread. The destructor waits for everything in flight.
class IoQueue {
 public:
  virtual ~IoQueue() = default;
  virtual uint32_t depth() const = 0;
  virtual uint32_t in_flight() const = 0;
  /// Start a transfer; in_flight() < depth(). May be handed to the kernel as late as the next Wait.
  virtual Status Submit(const IoRequest& request) = 0;
  /// Wait until at least one transfer has finished (none in flight: returns at once) and append all
  /// that have.
  virtual Status Wait(std::vector<IoCompletion>& completions) = 0;
};

}  // namespace flagstone::io
