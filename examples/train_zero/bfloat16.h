// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// bfloat16 as its 16 bits: the upper half of a float.

#include <bit>
#include <cmath>
#include <cstdint>

namespace train_zero {

/// The bits of a bfloat16, under the name that says so.
using BFloat16Bits = uint16_t;

inline float FloatFromBFloat16(BFloat16Bits bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// Round to the nearest bfloat16, ties to even. A NaN stays one: adding the rounding term to its
/// bits could carry it over into infinity or zero.
inline BFloat16Bits BFloat16FromFloat(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<BFloat16Bits>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace train_zero
