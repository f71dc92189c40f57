// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <exception>

#include "base/text.h"

namespace flagstone::base {

Result<std::vector<std::byte>> MakeBytes(uint64_t size, std::string_view what) {
  // std::bad_alloc, or std::length_error above what a vector can have.
  try {
    return std::vector<std::byte>(size);
  } catch (const std::exception&) {
    return Status(StatusCode::kResourceExhausted,
                  Join("there is no memory for ", what, " of ", size, " bytes"));
  }
}

}  // namespace flagstone::base
