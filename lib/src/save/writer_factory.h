// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Makes Writers over another file system than the machine's: for tests.

#include <filesystem>

#include "flagstone/writer.h"
#include "save/save_run.h"

namespace flagstone::save {

class WriterFactory {
 public:
  static Result<Writer> Make(SaveEnvironment environment, const std::filesystem::path& path,
                             Layout layout, uint32_t rank, SaveOptions options);
};

}  // namespace flagstone::save
