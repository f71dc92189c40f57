// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Text for messages: joining, escaping, nearest names, hexadecimal.

#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flagstone::base {

inline void AppendPiece(std::string& out, std::string_view piece) { out += piece; }
inline void AppendPiece(std::string& out, char piece) { out += piece; }
// Constrained, or a string literal (an array that decays to a pointer) would rather be a bool than
// a string_view.
template <std::same_as<bool> T>
void AppendPiece(std::string& out, T piece) {
  out += piece ? "true" : "false";
}
template <typename T>
requires(std::integral<T> && !std::same_as<T, char> &&
         !std::same_as<T, bool>) void AppendPiece(std::string& out, T piece) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof(digits), piece).ptr;
  out.append(digits, end);
}
template <std::floating_point T>
void AppendPiece(std::string& out, T piece) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof(digits), piece).ptr;
  out.append(digits, end);
}

/// Concatenate strings, characters, numbers and bools.
template <typename... Pieces>
std::string Join(const Pieces&... pieces) {
  std::string out;
  (AppendPiece(out, pieces), ...);
  return out;
}

/// `name` in single quotes with control characters, quotes and bytes that are not UTF-8 escaped, so
/// that a hostile name cannot drive a terminal; cut after 200 bytes.
std::string Quote(std::string_view name);

/// True for valid UTF-8 (no surrogates, no overlong forms).
bool IsUtf8(std::string_view text);

/// "; nearest: 'a', 'b'" with up to three names by edit distance, or "" when there are none at all.
std::string NearestNames(std::string_view wanted, const std::vector<std::string>& names);

/// Lower-case hexadecimal.
std::string Hex(std::span<const std::byte> bytes);

/// The inverse; nullopt when it is not 2 * `count` hexadecimal digits.
std::optional<std::vector<std::byte>> FromHex(std::string_view text, size_t count);

/// "[2, 3]".
std::string ShapeText(std::span<const uint64_t> shape);

/// Ranks 0, 1, 5 as "0, 1, 5"; more than ten end in "… (n in all)".
std::string RanksText(std::span<const uint32_t> ranks);

/// "1.5 s"
std::string SecondsText(std::chrono::milliseconds time);

}  // namespace flagstone::base
