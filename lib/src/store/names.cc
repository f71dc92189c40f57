// SPDX-License-Identifier: Apache-2.0
#include "store/names.h"

#include <span>

#include "base/digest.h"
#include "base/text.h"
#include "format/header.h"

namespace flagstone::store {

ParsedName ParseName(std::string_view name) {
  if (name == format::kManifestName) return {NameKind::kManifest, ""};
  if (const auto parts = format::ParseRankFileName(name))
    return {NameKind::kRankFile, parts->id_digits};
  if (!name.starts_with(kOwnPrefix)) return {};
  const auto rest_after = [&](std::string_view prefix) {
    return std::string(name.substr(prefix.size()));
  };
  if (name.starts_with(kTemporaryManifestPrefix))
    return {NameKind::kTemporaryManifest, rest_after(kTemporaryManifestPrefix)};
  if (name.starts_with(kTemporaryLatestPrefix))
    return {NameKind::kTemporaryLatest, rest_after(kTemporaryLatestPrefix)};
  if (name.starts_with(kKeyPrefix)) return {NameKind::kKey, rest_after(kKeyPrefix)};
  return {NameKind::kPrivate, rest_after(kOwnPrefix)};
}

std::string PrivateName(std::string_view nonce) { return base::Join(kOwnPrefix, nonce); }

std::string TemporaryManifestName(std::string_view save_id_hex) {
  return base::Join(kTemporaryManifestPrefix, save_id_hex);
}

std::string OwnerFileName(std::string_view save_id_hex) {
  return base::Join(kKeyPrefix, save_id_hex, ".owner");
}

std::string TemporaryLatestName(std::string_view checkpoint, std::string_view nonce) {
  const std::string digest = base::Hex(base::DigestOf(std::as_bytes(std::span(checkpoint))));
  return base::Join(kTemporaryLatestPrefix, digest.substr(0, 16), ".", nonce);
}

std::string_view IdDigits(std::string_view save_id_hex) { return save_id_hex.substr(0, 8); }

bool IsCheckpointName(std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name == kLatestName) return false;
  // A newline would end the name in `latest`.
  if (name.find_first_of(std::string_view("/\0\n", 3)) != std::string_view::npos) return false;
  return ParseName(name).kind == NameKind::kForeign;
}

}  // namespace flagstone::store
