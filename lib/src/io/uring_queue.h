// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The io_uring queue. Without liburing MakeUringQueue always answers kUnsupported.

#include <cstdint>
#include <memory>

#include "flagstone/status.h"
#include "io/io_queue.h"

namespace flagstone::io {

/// A ring with up to `depth` places: fewer where locked memory allows no more. It was tried with an
/// empty operation, so that a sandbox that allows making a ring but not using it is found out here.
/// Errors: kUnsupported says what refused it: the kernel, a sandbox, a missing feature or opcode,
/// the locked-memory limit.
Result<std::unique_ptr<IoQueue>> MakeUringQueue(uint32_t depth);

}  // namespace flagstone::io
