// SPDX-License-Identifier: Apache-2.0
#include "io/uring_queue.h"

namespace flagstone::io {

Result<std::unique_ptr<IoQueue>> MakeUringQueue(uint32_t /*depth*/) {
  return Status(StatusCode::kUnsupported,
                "io_uring cannot be used: this build of flagstone is without liburing");
}

}  // namespace flagstone::io
