// SPDX-License-Identifier: Apache-2.0
// What files that are not Flagstone's look like, for the message that refuses them.
#include <algorithm>
#include <cstring>

#include "base/endian.h"
#include "base/text.h"
#include "format/header.h"

namespace flagstone::format {
namespace {

bool BeginsWith(std::span<const std::byte> bytes, std::string_view start) {
  return bytes.size() >= start.size() && std::memcmp(bytes.data(), start.data(), start.size()) == 0;
}

// Length of a JSON header, then the header.
bool IsSafetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 9 || bytes[8] != std::byte{'{'}) return false;
  const auto length = base::LoadLittle<uint64_t>(bytes.data());
  return length >= 2 && length <= uint64_t{1} << 32;
}

bool IsText(std::span<const std::byte> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                        std::min<size_t>(bytes.size(), 512));
  // The cut may have gone through a character of up to 4 bytes.
  for (int cut = 0; cut < 4 && !text.empty(); ++cut) {
    if (base::IsUtf8(text)) break;
    text.remove_suffix(1);
  }
  if (text.empty() || !base::IsUtf8(text)) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto value = static_cast<unsigned char>(c);
    return value >= 0x20 ? value != 0x7F : (c == '\n' || c == '\r' || c == '\t' || c == '\f');
  });
}

}  // namespace

std::string DescribeForeign(std::span<const std::byte> bytes) {
  using std::string_view_literals::operator""sv;
  if (bytes.empty()) return "empty";
  if (!FindNonZero(bytes)) return "all zeros";
  if (BeginsWith(bytes,
                 "\x89"
                 "FLAG\r\n\x1a"))
    return "a file of a Flagstone checkpoint";
  if (BeginsWith(bytes,
                 "\x89"
                 "FLAG"))
    return "a Flagstone file changed by a transfer in text mode";
  if (BeginsWith(bytes, "PK\x03\x04") || BeginsWith(bytes, "PK\x05\x06"))
    return "a zip archive (torch.save?)";
  if (BeginsWith(bytes, "GGUF")) return "gguf";
  if (BeginsWith(bytes,
                 "\x7f"
                 "ELF"))
    return "an ELF program or library";
  if (BeginsWith(bytes, "\x1f\x8b")) return "gzip";
  if (BeginsWith(bytes, "\x28\xb5\x2f\xfd")) return "zstd";
  if (BeginsWith(bytes, "\x89HDF\r\n\x1a\n")) return "HDF5";
  if (BeginsWith(bytes, "\x93NUMPY")) return "a numpy array";
  if (BeginsWith(bytes, "version https://git-lfs"))
    return "a Git LFS pointer: the file itself was not fetched";
  if (IsSafetensors(bytes)) return "safetensors";
  // Protocols 2 to 5 begin so.
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x80} && bytes[1] >= std::byte{2} &&
      bytes[1] <= std::byte{5}) {
    return "a pickle";
  }
  if (bytes.size() >= 262 && BeginsWith(bytes.subspan(257), "ustar"sv)) return "a tar archive";
  if (IsText(bytes)) {
    const bool json = bytes[0] == std::byte{'{'} || bytes[0] == std::byte{'['};
    return json ? "JSON" : "text";
  }
  return "unknown bytes";
}

}  // namespace flagstone::format
