// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The io_uring queue. Without liburing MakeUringQueue always answers kUnsupported.

#include <bit>
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

/// Upper bound of what the kernel maps for a ring of `depth`: entries of 64 bytes for submissions,
/// two of 16 for completions, an index of 4, both rings' heads.
constexpr uint64_t UringBytes(uint32_t depth) {
  return std::bit_ceil(uint64_t{depth}) * (64 + 2 * 16 + 4) + 8192;
}

}  // namespace flagstone::io
