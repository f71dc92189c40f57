// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace flagstone::tools {

/// Anonymous and shared memory of this process that is resident now, as the kernel counts it
/// (RssAnon + RssShmem of /proc/self/status); nothing where it does not say.
std::optional<uint64_t> ResidentHostBytes();

}  // namespace flagstone::tools
