// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <flagstone/flagstone.h>

namespace flagstone::tests {

/// Whether a backend can be forced on this file's file system and in this build; prints why not.
bool IsUsable(const Checkpoint& checkpoint, Backend backend);

}  // namespace flagstone::tests
