// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "flagstone/export.h"

namespace flagstone {

/// Version of the library; the format's is Checkpoint::format_version().
FLAGSTONE_EXPORT std::string_view LibraryVersion();

}  // namespace flagstone
