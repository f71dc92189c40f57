// SPDX-License-Identifier: Apache-2.0
#include "flagstone/version.h"

namespace flagstone {

// The number lives in the top CMakeLists.txt alone.
std::string_view LibraryVersion() { return FLAGSTONE_VERSION; }

}  // namespace flagstone
