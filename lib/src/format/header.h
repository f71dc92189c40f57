// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The 4 KiB page that every file begins with (spec/format.md, "Header page").

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "flagstone/status.h"

namespace flagstone::format {

inline constexpr uint16_t kMajorVersion = 0;
inline constexpr uint16_t kMinorVersion = 1;

/// Longest index or manifest body. FlatBuffers' offsets end at 2 GiB; half of it leaves room to
/// build one.
inline constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 30;
/// Longest file: what a signed 64-bit offset reaches, in whole pages.
inline constexpr uint64_t kMaxFileBytes = (uint64_t{1} << 63) - 4096;
/// Most ranks, so that a few hostile bytes cannot stand for billions of them.
inline constexpr uint32_t kMaxWorldSize = uint32_t{1} << 20;

/// These values are frozen in the file format.
enum class FileKind : uint32_t { kManifest = 1, kRankFile = 2 };

/// Required-feature bits. A reader that does not know a set bit refuses the file by the bit's name
/// or number.
inline constexpr uint64_t kFeatureNoData = uint64_t{1}
                                           << 0;  ///< A manifest without rank files ("no-data").

using SaveId = std::array<std::byte, 16>;

struct Header {
  FileKind kind = FileKind::kManifest;
  uint16_t major = kMajorVersion;
  uint16_t minor = kMinorVersion;
  uint64_t required_features = 0;
  SaveId save_id{};
  uint32_t rank = 0;  ///< Rank file: whose. Manifest: 0.
  uint32_t world_size = 0;
  uint64_t file_length = 0;
  uint64_t index_offset =
      0;  ///< Of the FlatBuffers index (rank file) or body (manifest); a multiple of 4096.
  uint64_t index_length = 0;
  base::Digest128 index_digest{};

  bool operator==(const Header&) const = default;
};

using HeaderPage = std::array<std::byte, 4096>;

HeaderPage EncodeHeader(const Header& header);

/// Check and decode a file's first page. Order: length, magic, digest, endianness, version,
/// features, the fields against each other and against `file_length`, zero padding. Errors:
/// kInvalidArgument "not a Flagstone file (looks like …)", kCorruption, kUnsupported.
Result<Header> DecodeHeader(std::span<const std::byte> page, FileKind expected,
                            uint64_t file_length);

/// Position of the first byte that is not zero, which padding must not have.
std::optional<uint64_t> FindNonZero(std::span<const std::byte> bytes);

/// What bytes look like that are no Flagstone file, or not in its place: "a zip archive (torch.save?)", "a pickle",
/// "safetensors", "empty", "text", "unknown bytes".
std::string DescribeForeign(std::span<const std::byte> first_bytes);

/// Every file of a checkpoint ends so.
inline constexpr std::string_view kNameEnd = ".flagstone";
/// "manifest.flagstone"
inline constexpr std::string_view kManifestName = "manifest.flagstone";
/// "rank-00003.1a2b3c4d.flagstone": at least five digits of the rank, eight hexadecimal digits of
/// the save id.
std::string RankFileName(uint32_t rank, const SaveId& save_id);
/// The inverse, for finding debris: rank and the eight digits; nullopt for any other name.
struct RankFileNameParts {
  uint32_t rank = 0;
  std::string id_digits;
};
std::optional<RankFileNameParts> ParseRankFileName(std::string_view name);

}  // namespace flagstone::format
