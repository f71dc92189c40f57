// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "flagstone/status.h"

namespace flagstone::base {

/// `size` zeros. For sizes that a file states: what does not fit into memory is kResourceExhausted,
/// naming `what` and the size, and no exception.
Result<std::vector<std::byte>> MakeBytes(uint64_t size, std::string_view what);

}  // namespace flagstone::base
