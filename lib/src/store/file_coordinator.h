// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The default board: one small file a key, in the checkpoint's own directory.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/coordinator.h"
#include "io/file_system.h"

namespace flagstone::store {

/// A key is the file .flagstone-key.<key>, rewritten in place with one write: length, digest,
/// value. Readers check the digest, so that a half-written value is never taken for one. Nothing is
/// synced: a board need not survive a crash.
std::shared_ptr<Coordinator> MakeFileCoordinator(io::FileSystem& fs,
                                                 std::filesystem::path directory);

inline constexpr size_t kFrameBytes = 16;  ///< Length u64, XXH3-64 of the value.

/// A value as a key file holds it: length, digest, value.
std::vector<std::byte> FrameValue(std::string_view value);
/// The length that a frame's first kFrameBytes bytes state.
uint64_t FramedLength(std::string_view frame);
/// The value in a key file's bytes; nullopt when it is not whole.
std::optional<std::string> UnframeValue(std::string_view file_bytes);

/// Largest value that a board keeps.
inline constexpr uint64_t kMaxValueBytes = uint64_t{16} << 20;

/// Read a small file whole; kCorruption when it is longer than `limit`.
Result<std::string> ReadSmallFile(io::FileSystem& fs, const std::filesystem::path& path,
                                  uint64_t limit);

}  // namespace flagstone::store
