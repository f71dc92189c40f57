// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "flagstone/status.h"
#include "flagstone/writer.h"

namespace flagstone::save {

/// The path of a checkpoint to be saved, without what may follow its name ("ROOT/NAME/"). The rest
/// is the file system's to resolve: ".." behind a link leads elsewhere than its text says. Errors:
/// kInvalidArgument when the name is none for a checkpoint.
Result<std::filesystem::path> CheckTarget(const std::filesystem::path& path);

/// Errors: kInvalidArgument names the option, its value and its bounds.
Status CheckOptions(const SaveOptions& options);

}  // namespace flagstone::save
