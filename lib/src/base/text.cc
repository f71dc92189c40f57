// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <algorithm>
#include <utility>

namespace flagstone::base {
namespace {

// Length of the UTF-8 sequence that `text` begins with, or 0 when it begins with none (RFC 3629).
size_t Utf8SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continuation = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continuation(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continuation(1) || !continuation(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
    if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continuation(1) || !continuation(2) || !continuation(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
    return 4;
  }
  return 0;
}

// Levenshtein distance, one row of memory.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Quote(std::string_view name) {
  constexpr size_t kMaxBytes = 200;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "'";
  std::string_view rest = name.substr(0, kMaxBytes);
  while (!rest.empty()) {
    const size_t length = Utf8SequenceLength(rest);
    const auto lead = static_cast<unsigned char>(rest[0]);
    // U+0080 to U+009F are control characters too (C1): C2 80 to C2 9F.
    const bool c1_control =
        length == 2 && lead == 0xC2 && static_cast<unsigned char>(rest[1]) < 0xA0;
    if (length == 0 || lead < 0x20 || lead == 0x7F || c1_control) {
      const size_t bytes = std::max<size_t>(length, 1);
      for (size_t i = 0; i < bytes; ++i) {
        const auto value = static_cast<unsigned char>(rest[i]);
        out += "\\x";
        out += kDigits[value >> 4];
        out += kDigits[value & 15];
      }
      rest.remove_prefix(bytes);
      continue;
    }
    if (lead == '\'' || lead == '\\') out += '\\';
    out += rest.substr(0, length);
    rest.remove_prefix(length);
  }
  if (name.size() > kMaxBytes) out += Join("… (", name.size(), " bytes)");
  return out + "'";
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string NearestNames(std::string_view wanted, const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  constexpr size_t kMostCompared = 4096;     // an error message may not take seconds
  constexpr size_t kMostBytesOfAName = 256;  // EditDistance is quadratic
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (const std::string& name : names) {
    if (ranked.size() == kMostCompared) break;
    ranked.emplace_back(EditDistance(wanted.substr(0, kMostBytesOfAName),
                                     std::string_view(name).substr(0, kMostBytesOfAName)),
                        name);
  }
  if (ranked.empty()) return "";
  const size_t shown = std::min(kShown, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(shown),
                    ranked.end());
  std::string out = "; nearest: ";
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) out += ", ";
    out += Quote(ranked[i].second);
  }
  return out;
}

std::string Hex(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte byte : bytes) {
    const auto value = static_cast<unsigned>(byte);
    out += kDigits[value >> 4];
    out += kDigits[value & 15];
  }
  return out;
}

std::optional<std::vector<std::byte>> FromHex(std::string_view text, size_t count) {
  if (text.size() != 2 * count) return std::nullopt;
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    unsigned value = 0;
    const char* const end = text.data() + 2 * i + 2;
    const auto [stopped, error] = std::from_chars(text.data() + 2 * i, end, value, 16);
    if (error != std::errc() || stopped != end) return std::nullopt;
    bytes[i] = static_cast<std::byte>(value);
  }
  return bytes;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += Join(i > 0 ? ", " : "", shape[i]);
  return out + "]";
}

std::string RanksText(std::span<const uint32_t> ranks) {
  constexpr size_t kShown = 10;
  std::string out;
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) out += Join(i > 0 ? ", " : "", ranks[i]);
  if (ranks.size() > kShown) out += Join(", … (", ranks.size(), " in all)");
  return out;
}

std::string SecondsText(std::chrono::milliseconds time) {
  return Join(time.count() / 1000, ".", time.count() % 1000 / 100, " s");
}

}  // namespace flagstone::base
