// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Arithmetic on untrusted numbers. Nowhere else in the code is an offset added to a size and
/// compared.

#include <cstdint>
#include <optional>

namespace flagstone::base {

/// Page size of the format: segments, digest pages and file lengths are multiples of it, whatever
/// the machine's is.
inline constexpr uint64_t kPageBytes = 4096;

/// Whether [offset, offset + size) lies in [0, limit), without computing a sum that may wrap.
constexpr bool InBounds(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

constexpr std::optional<uint64_t> CheckedAdd(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

constexpr std::optional<uint64_t> CheckedMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// The least multiple of `alignment` (not 0) that is >= value, or nullopt when it exceeds 2^64 - 1.
constexpr std::optional<uint64_t> CheckedAlignUp(uint64_t value, uint64_t alignment) {
  const uint64_t rest = value % alignment;
  return rest == 0 ? std::optional<uint64_t>(value) : CheckedAdd(value, alignment - rest);
}

/// As CheckedAlignUp, for values known to be far from 2^64.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  const uint64_t rest = value % alignment;
  return rest == 0 ? value : value + (alignment - rest);
}
constexpr uint64_t AlignDown(uint64_t value, uint64_t alignment) {
  return value - value % alignment;
}

constexpr uint64_t DivideUp(uint64_t value, uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

}  // namespace flagstone::base
