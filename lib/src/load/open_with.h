// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Opens checkpoints of another file system than the machine's: for tests.

#include <filesystem>

#include "flagstone/checkpoint.h"
#include "io/file_system.h"

namespace flagstone::load {

/// As Checkpoint::Open. `fs` outlives the checkpoint and everything opened from it.
Result<Checkpoint> OpenWith(io::FileSystem& fs, const std::filesystem::path& path);
/// As flagstone::Verify.
Result<VerifyReport> VerifyWith(io::FileSystem& fs, const std::filesystem::path& path,
                                const VerifyOptions& options);

}  // namespace flagstone::load
