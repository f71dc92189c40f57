// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The names of files in a checkpoint's directory that a save uses before it is published.
/// Everything that begins with ".flagstone-" is Flagstone's; so is rank-<digits>.<8 hex>.flagstone
/// (format/header.h).

#include <cstdint>
#include <string>
#include <string_view>

namespace flagstone::store {

inline constexpr std::string_view kOwnPrefix = ".flagstone-";
inline constexpr std::string_view kTemporaryManifestPrefix = ".flagstone-manifest.";
inline constexpr std::string_view kTemporaryLatestPrefix = ".flagstone-latest.";
inline constexpr std::string_view kKeyPrefix = ".flagstone-key.";
inline constexpr std::string_view kLatestName = "latest";

/// What a name in a checkpoint's directory is.
enum class NameKind : uint8_t {
  kForeign,            ///< Not Flagstone's: left alone.
  kManifest,           ///< manifest.flagstone
  kRankFile,           ///< rank-00003.1a2b3c4d.flagstone
  kTemporaryManifest,  ///< .flagstone-manifest.<32 hex>
  kPrivate,            ///< .flagstone-<nonce>: a rank file that has no save id yet
  kKey,                ///< .flagstone-key.<key>: a board entry, or an owner file
  kTemporaryLatest,    ///< .flagstone-latest.<digest of the name>.<nonce>, beside the checkpoints
};

struct ParsedName {
  NameKind kind = NameKind::kForeign;
  std::string id;  ///< Save id (32 or 8 hex digits), nonce or key, by kind.
};

ParsedName ParseName(std::string_view name);

std::string PrivateName(std::string_view nonce);
std::string TemporaryManifestName(std::string_view save_id_hex);
/// Says whose a temporary manifest is once the manifest's bytes have taken the record's place.
std::string OwnerFileName(std::string_view save_id_hex);
std::string TemporaryLatestName(std::string_view checkpoint, std::string_view nonce);

/// The first eight hexadecimal digits of a save id, as in rank file names.
std::string_view IdDigits(std::string_view save_id_hex);

/// A checkpoint's name: one path component that is not Flagstone's own, "." or "..".
bool IsCheckpointName(std::string_view name);

}  // namespace flagstone::store
