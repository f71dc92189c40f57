// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// One process a rank, and a parent that lets none of them outlive a failure.

#include <cstdint>
#include <functional>

namespace train_zero {

/// Fork `world_size` processes, each of which runs `rank_main(rank)` and exits with what it
/// returns, and wait for them.
///
/// The first rank that fails (a status other than 0, or a signal) ends the others by SIGKILL, and
/// so does SIGINT, SIGTERM or SIGHUP to the parent; if the parent itself is killed, the kernel ends
/// the children. On return every child has been waited for. Returns the exit status for the
/// program: 0; 1 when a rank failed, which is reported on stderr; 128 + the signal that interrupted
/// the parent. Call it before any thread is started.
int RunRanks(uint32_t world_size, const std::function<int(uint32_t rank)>& rank_main);

}  // namespace train_zero
