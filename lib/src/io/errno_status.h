// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The one place where an errno becomes a Status.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "flagstone/status.h"

namespace flagstone::io {

/// "No space left on device (ENOSPC)".
std::string ErrnoText(int error);

/// The code for an errno that no caller gave a meaning of its own:
///   kNotFound           ENOENT
///   kAlreadyExists      EEXIST, ENOTEMPTY
///   kResourceExhausted  ENOSPC, EDQUOT, EFBIG, ENOMEM, EMFILE, ENFILE, EMLINK, ENOLCK
///   kInvalidArgument    ENOTDIR, EISDIR, ELOOP, ENAMETOOLONG, EXDEV
///   kUnsupported        EINVAL, EOPNOTSUPP, ENOSYS
///   kIoError            all others; among them EACCES, EPERM and EROFS: a file that may not be
///   read is there, so that
///                       "not found" would send people looking for it.
StatusCode ErrnoCode(int error);

/// "cannot <operation> '<path>'<detail>: <text of error>", where `detail` is for example ": 4096
/// bytes at offset 0". A refused permission names the effective user, a used-up descriptor table
/// its limit.
Status ErrnoStatus(int error, std::string_view operation, const std::filesystem::path& path,
                   std::string_view detail = {}, std::optional<uint64_t> offset = std::nullopt);

/// ErrnoStatus for a transfer of `size` bytes at `offset`.
Status TransferErrno(int error, std::string_view operation, const std::filesystem::path& path,
                     uint64_t offset, uint64_t size);

/// kCorruption "truncated: '<path>': have X need Y bytes".
Status TruncatedStatus(const std::filesystem::path& path, uint64_t have, uint64_t need);

}  // namespace flagstone::io
