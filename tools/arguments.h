// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Options of the command line, read strictly: no octal, no hexadecimal, no sign where none
/// belongs, no silent overflow.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "flagstone/backend.h"

namespace flagstone::tools {

/// A size as ParseSize takes it, at least `least`.
CLI::Option* AddSize(CLI::App& app, const std::string& name, std::optional<uint64_t>& target,
                     const std::string& help, uint64_t least = 0);

/// A decimal integer from `least` to `most`.
CLI::Option* AddInteger(CLI::App& app, const std::string& name, std::optional<int64_t>& target,
                        const std::string& help,
                        int64_t least = std::numeric_limits<int64_t>::min(),
                        int64_t most = std::numeric_limits<int64_t>::max());
CLI::Option* AddUint32(CLI::App& app, const std::string& name, std::optional<uint32_t>& target,
                       const std::string& help, uint32_t least = 0,
                       uint32_t most = std::numeric_limits<uint32_t>::max());

/// --backend auto|uring-direct|uring|pread|mmap.
CLI::Option* AddBackend(CLI::App& app, Backend& target);

/// "a,b" as {"a", "b"}; an empty name is refused.
CLI::Option* AddNames(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                      const std::string& help);

}  // namespace flagstone::tools
