// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace flagstone::save {

/// The run that the launcher's environment names: job id and restart count, equal on all ranks of a
/// job and unlike that of any other. Empty when no launcher is known (spec/commit.md, "Who belongs
/// together", lists the variables).
std::string RunFromEnvironment();

}  // namespace flagstone::save
