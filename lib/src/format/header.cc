// SPDX-License-Identifier: Apache-2.0
#include "format/header.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/endian.h"
#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"

namespace flagstone::format {
namespace {

using base::Join;
using base::LoadLittle;
using base::StoreLittle;

// 0x89 is no ASCII and no UTF-8; CR LF and the DOS end-of-file show what a text-mode copy did.
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'F', 'L', 'A', 'G', '\r', '\n', 0x1A};
constexpr uint32_t kEndianMark = 0x01020304;
constexpr uint32_t kSwappedEndianMark = 0x04030201;

// Offsets in the page (spec/format.md, "Header page"). Those below 64 are the same in all versions.
constexpr size_t kKindAt = 8;
constexpr size_t kMajorAt = 12;
constexpr size_t kMinorAt = 14;
constexpr size_t kDigestAt = 16;
constexpr size_t kEndianAt = 32;
constexpr size_t kReservedAt = 36;
constexpr size_t kFeaturesAt = 64;
constexpr size_t kSaveIdAt = 72;
constexpr size_t kRankAt = 88;
constexpr size_t kWorldAt = 92;
constexpr size_t kFileLengthAt = 96;
constexpr size_t kIndexOffsetAt = 104;
constexpr size_t kIndexLengthAt = 112;
constexpr size_t kIndexDigestAt = 120;
constexpr size_t kRestAt = 136;

constexpr size_t kPage = base::kPageBytes;

Status Corrupt(std::string message, uint64_t offset) {
  return Status(StatusCode::kCorruption, std::move(message),
                {.path = {}, .segment = {}, .offset = offset});
}

base::Digest128 PageDigest(HeaderPage page) {
  std::fill_n(page.begin() + kDigestAt, sizeof(base::Digest128), std::byte{0});
  return base::DigestOf(page);
}

template <typename Bytes>
Bytes LoadBytes(std::span<const std::byte> page, size_t at) {
  Bytes bytes;
  std::copy_n(page.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), bytes.begin());
  return bytes;
}

bool HasMagic(std::span<const std::byte> bytes) {
  return bytes.size() >= kMagic.size() &&
         std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

std::string_view KindName(FileKind kind) {
  return kind == FileKind::kManifest ? "manifest" : "rank file";
}

// What must hold before a field beyond the first 64 bytes may be believed.
Status CheckIdentity(std::span<const std::byte> page, FileKind expected) {
  if (!HasMagic(page)) {
    return Status(StatusCode::kInvalidArgument,
                  Join("not a Flagstone file (looks like ", DescribeForeign(page), ")"));
  }
  if (page.size() < kPage) {
    return Corrupt(Join("truncated: the header page has ", page.size(), " of ", kPage, " bytes"),
                   page.size());
  }
  HeaderPage copy;
  std::copy_n(page.begin(), kPage, copy.begin());
  if (PageDigest(copy) != LoadBytes<base::Digest128>(page, kDigestAt)) {
    return Corrupt("the header page does not match its digest", 0);
  }
  const auto mark = LoadLittle<uint32_t>(&page[kEndianAt]);
  if (mark == kSwappedEndianMark) {
    return Status(StatusCode::kUnsupported,
                  "written on a big-endian machine, which this version cannot read");
  }
  if (mark != kEndianMark)
    return Corrupt("the header page has no valid endianness mark", kEndianAt);
  const auto major = LoadLittle<uint16_t>(&page[kMajorAt]);
  if (major != kMajorVersion) {
    return Status(StatusCode::kUnsupported,
                  Join("format version ", major, ".", LoadLittle<uint16_t>(&page[kMinorAt]),
                       " is not one that this version of Flagstone reads (", kMajorVersion, ".x)"));
  }
  if (const auto at = FindNonZero(page.subspan(kReservedAt, kFeaturesAt - kReservedAt))) {
    return Corrupt("a reserved byte of the header page is not zero", kReservedAt + *at);
  }
  const auto kind = LoadLittle<uint32_t>(&page[kKindAt]);
  if (kind != static_cast<uint32_t>(FileKind::kManifest) &&
      kind != static_cast<uint32_t>(FileKind::kRankFile)) {
    return Corrupt(Join("the header page has the unknown kind ", kind), kKindAt);
  }
  if (kind != static_cast<uint32_t>(expected)) {
    return Corrupt(Join("a ", KindName(static_cast<FileKind>(kind)), " where a ",
                        KindName(expected), " belongs"),
                   kKindAt);
  }
  return {};
}

Status CheckFeatures(const Header& header) {
  uint64_t known = 0;
  if (header.kind == FileKind::kManifest) known |= kFeatureNoData;
  const uint64_t unknown = header.required_features & ~known;
  if (unknown == 0) return {};
  if (unknown == kFeatureNoData) {
    return Corrupt("a rank file with the feature \"no-data\", which belongs to manifests",
                   kFeaturesAt);
  }
  return Status(StatusCode::kUnsupported,
                Join("needs the feature of bit ", std::countr_zero(unknown & ~kFeatureNoData),
                     ", which this version of Flagstone (format ", kMajorVersion, ".",
                     kMinorVersion, ") does not have"));
}

Status CheckPlaces(const Header& header, uint64_t file_length) {
  if (header.world_size == 0 || header.world_size > kMaxWorldSize) {
    return Corrupt(Join("world size ", header.world_size, " is not in 1 .. ", kMaxWorldSize),
                   kWorldAt);
  }
  const bool manifest = header.kind == FileKind::kManifest;
  if (manifest ? header.rank != 0 : header.rank >= header.world_size) {
    return Corrupt(Join("rank ", header.rank, " does not belong to a ", KindName(header.kind),
                        " of world size ", header.world_size),
                   kRankAt);
  }
  if (header.file_length != file_length) {
    return Corrupt(Join(file_length < header.file_length ? "truncated: " : "", "the file has ",
                        file_length, " bytes, its header says ", header.file_length),
                   kFileLengthAt);
  }
  if (file_length % kPage != 0 || file_length > kMaxFileBytes) {
    return Corrupt(Join("a file length of ", file_length, " bytes is not a multiple of ", kPage,
                        " up to ", kMaxFileBytes),
                   kFileLengthAt);
  }
  if (header.index_offset % kPage != 0 || header.index_offset < kPage ||
      (manifest && header.index_offset != kPage)) {
    return Corrupt(Join("the index may not begin at ", header.index_offset), kIndexOffsetAt);
  }
  if (header.index_length == 0 || header.index_length > kMaxIndexBytes ||
      !base::InBounds(header.index_offset, header.index_length, file_length) ||
      base::AlignUp(header.index_offset + header.index_length, kPage) != file_length) {
    return Corrupt(Join("an index of ", header.index_length, " bytes at ", header.index_offset,
                        " does not end in the last page of a file of ", file_length, " bytes"),
                   kIndexLengthAt);
  }
  return {};
}

}  // namespace

HeaderPage EncodeHeader(const Header& header) {
  HeaderPage page{};
  std::memcpy(page.data(), kMagic.data(), kMagic.size());
  StoreLittle(&page[kKindAt], static_cast<uint32_t>(header.kind));
  StoreLittle(&page[kMajorAt], header.major);
  StoreLittle(&page[kMinorAt], header.minor);
  StoreLittle(&page[kEndianAt], kEndianMark);
  StoreLittle(&page[kFeaturesAt], header.required_features);
  std::copy(header.save_id.begin(), header.save_id.end(), page.begin() + kSaveIdAt);
  StoreLittle(&page[kRankAt], header.rank);
  StoreLittle(&page[kWorldAt], header.world_size);
  StoreLittle(&page[kFileLengthAt], header.file_length);
  StoreLittle(&page[kIndexOffsetAt], header.index_offset);
  StoreLittle(&page[kIndexLengthAt], header.index_length);
  std::copy(header.index_digest.begin(), header.index_digest.end(), page.begin() + kIndexDigestAt);
  const base::Digest128 digest = PageDigest(page);
  std::copy(digest.begin(), digest.end(), page.begin() + kDigestAt);
  return page;
}

Result<Header> DecodeHeader(std::span<const std::byte> page, FileKind expected,
                            uint64_t file_length) {
  FLAGSTONE_RETURN_IF_ERROR(CheckIdentity(page, expected));
  Header header;
  header.kind = expected;
  header.major = LoadLittle<uint16_t>(&page[kMajorAt]);
  header.minor = LoadLittle<uint16_t>(&page[kMinorAt]);
  header.required_features = LoadLittle<uint64_t>(&page[kFeaturesAt]);
  header.save_id = LoadBytes<SaveId>(page, kSaveIdAt);
  header.rank = LoadLittle<uint32_t>(&page[kRankAt]);
  header.world_size = LoadLittle<uint32_t>(&page[kWorldAt]);
  header.file_length = LoadLittle<uint64_t>(&page[kFileLengthAt]);
  header.index_offset = LoadLittle<uint64_t>(&page[kIndexOffsetAt]);
  header.index_length = LoadLittle<uint64_t>(&page[kIndexLengthAt]);
  header.index_digest = LoadBytes<base::Digest128>(page, kIndexDigestAt);
  FLAGSTONE_RETURN_IF_ERROR(CheckFeatures(header));
  FLAGSTONE_RETURN_IF_ERROR(CheckPlaces(header, file_length));
  // A newer minor version may have put something there that can be ignored; the digest covers it.
  if (header.minor <= kMinorVersion) {
    if (const auto at = FindNonZero(page.subspan(kRestAt, kPage - kRestAt))) {
      return Corrupt("an unused byte of the header page is not zero", kRestAt + *at);
    }
  }
  return header;
}

std::optional<uint64_t> FindNonZero(std::span<const std::byte> bytes) {
  // Whole lines first: padding is long and almost always sound.
  constexpr size_t kLine = 64;
  size_t line = 0;
  for (; line + kLine <= bytes.size(); line += kLine) {
    uint64_t any = 0;
    for (size_t i = 0; i < kLine; i += sizeof(any)) any |= LoadLittle<uint64_t>(&bytes[line + i]);
    if (any != 0) break;
  }
  for (size_t at = line; at < bytes.size(); ++at) {
    if (bytes[at] != std::byte{0}) return at;
  }
  return std::nullopt;
}

std::string RankFileName(uint32_t rank, const SaveId& save_id) {
  std::string digits = Join(rank);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return Join("rank-", digits, ".", base::Hex(std::span(save_id).first(4)), kNameEnd);
}

std::optional<RankFileNameParts> ParseRankFileName(std::string_view name) {
  constexpr std::string_view kStart = "rank-";
  constexpr size_t kIdDigits = 8;
  const size_t tail = 1 + kIdDigits + kNameEnd.size();
  if (!name.starts_with(kStart) || !name.ends_with(kNameEnd) ||
      name.size() < kStart.size() + tail) {
    return std::nullopt;
  }
  const std::string_view number = name.substr(kStart.size(), name.size() - kStart.size() - tail);
  const std::string_view id = name.substr(kStart.size() + number.size() + 1, kIdDigits);
  RankFileNameParts parts;
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), parts.rank);
  const bool is_hex = id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (error != std::errc() || end != number.data() + number.size() || !is_hex) return std::nullopt;
  // One name a rank: exactly five digits, or more without a leading zero.
  if (number.size() < 5 || (number.size() > 5 && number[0] == '0')) return std::nullopt;
  if (name[kStart.size() + number.size()] != '.') return std::nullopt;
  parts.id_digits = id;
  return parts;
}

}  // namespace flagstone::format
