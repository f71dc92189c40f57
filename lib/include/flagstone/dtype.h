// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Element types: every dtype torch has. The unit everywhere is torch's *storage element*, so a
/// packed type (two 4-bit floats in a byte) counts bytes, and every element has a whole number of
/// bytes.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "flagstone/export.h"

namespace flagstone {

/// These values are frozen in the file format (spec/format.md, "Element types").
enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kUint16 = 5,
  kUint32 = 6,
  kUint64 = 7,
  kBool = 8,
  kFloat16 = 9,
  kBFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kComplex32 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kFloat8E4M3Fn = 16,
  kFloat8E5M2 = 17,
  kFloat8E4M3FnUz = 18,
  kFloat8E5M2FnUz = 19,
  kFloat8E8M0Fnu = 20,
  kFloat4E2M1FnX2 = 21,
  kQInt8 = 22,
  kQUint8 = 23,
  kQInt32 = 24,
  kQUint4x2 = 25,
  kQUint2x4 = 26,
  kBits1x8 = 27,
  kBits2x4 = 28,
  kBits4x2 = 29,
  kBits8 = 30,
  kBits16 = 31,
  kUint1 = 32,
  kUint2 = 33,
  kUint3 = 34,
  kUint4 = 35,
  kUint5 = 36,
  kUint6 = 37,
  kUint7 = 38,
  kInt1 = 39,
  kInt2 = 40,
  kInt3 = 41,
  kInt4 = 42,
  kInt5 = 43,
  kInt6 = 44,
  kInt7 = 45,
};

/// Every DType, in the order of its value.
FLAGSTONE_EXPORT std::span<const DType> AllDTypes();

/// Bytes of one storage element: 1, 2, 4, 8 or 16; 0 for a value that is no DType.
FLAGSTONE_EXPORT uint64_t SizeOf(DType dtype);

/// torch's name without "torch.": "float32", "bfloat16", "float8_e4m3fn"; "unknown" for a value
/// that is no DType.
FLAGSTONE_EXPORT std::string_view Name(DType dtype);

/// The dtype of that name, or nullopt.
FLAGSTONE_EXPORT std::optional<DType> DTypeFromName(std::string_view name);

}  // namespace flagstone
