// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The queue that works everywhere: threads that call File::ReadAt and WriteAt.

#include <cstdint>
#include <memory>

#include "flagstone/status.h"
#include "io/io_queue.h"

namespace flagstone::io {

/// At most this many threads serve one queue, however deep.
inline constexpr uint32_t kMaxQueueThreads = 8;

/// Threads are started as requests need them, with small stacks, and joined by the destructor.
/// Where none can be started, the caller's thread does the work in Wait.
Result<std::unique_ptr<IoQueue>> MakeThreadQueue(uint32_t depth);

}  // namespace flagstone::io
