// SPDX-License-Identifier: Apache-2.0
#include "support/temporary_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace flagstone::testing {

TemporaryDirectory::TemporaryDirectory(const std::filesystem::path& parent) {
  const auto below = parent.empty() ? std::filesystem::temp_directory_path() : parent;
  std::string pattern = (below / "flagstone-test-XXXXXX").native();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), pattern);
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace flagstone::testing
