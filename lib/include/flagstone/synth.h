// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A manifest without data, for planning at a scale that no disk here holds.

#include <filesystem>

#include "flagstone/export.h"
#include "flagstone/partition.h"
#include "flagstone/writer.h"

namespace flagstone {

/// Publish a checkpoint that has a manifest only: it carries the required feature "no-data" and
/// zero index digests, so that it can be inspected and planned with, while loading and verifying
/// refuse it by that name. `options`: step, overwrite and update_latest count.
FLAGSTONE_EXPORT Result<SaveReport> WriteManifestOnly(const std::filesystem::path& path,
                                                      const Layout& layout,
                                                      const SaveOptions& options = {});

}  // namespace flagstone
