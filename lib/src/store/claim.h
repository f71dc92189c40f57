// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The coordinator takes a checkpoint's name for one attempt.

#include <filesystem>
#include <memory>
#include <stop_token>

#include "flagstone/status.h"
#include "io/file_system.h"
#include "io/process.h"
#include "store/participants.h"
#include "store/publish.h"
#include "store/record.h"

namespace flagstone::store {

/// kAlreadyExists when anything stands under the manifest's name: damaged or of another version, it
/// is somebody's checkpoint.
Status CheckFree(io::FileSystem& fs, const std::filesystem::path& directory);

/// Draw a save id, publish the attempt in the directory (`attempt` gets id and state kActive), and
/// look who else is there.
///
/// Of several that claim a name at once one stays: an active attempt is never disturbed, and among
/// those that are still claiming the least nonce wins. Each publishes before it looks, so of any
/// two at least one sees the other. Attempts of the dead are fenced; one whose owner cannot be told
/// is watched until its record beats or has stood still for its time, but not for longer than
/// Timing::claim_patience. Errors: kAlreadyExists (a
/// checkpoint is there and `overwrite` is false; or another run's live attempt: host, pid, run).
Result<std::unique_ptr<TemporaryManifest>> Claim(io::FileSystem& fs, io::ProcessTable& processes,
                                                 const std::filesystem::path& directory,
                                                 bool overwrite, const Timing& timing,
                                                 const std::stop_token& stop, Attempt& attempt);

}  // namespace flagstone::store
