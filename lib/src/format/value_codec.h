// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Plain data as bytes (spec/format.md, "Plain data"): one encoding for what lies in files and for
/// the canonical encoding that is digested.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "flagstone/status.h"
#include "flagstone/value.h"

namespace flagstone::format {

/// Where the bytes of arrays above kInlineArrayBytes are.
enum class ArrayBytes : uint8_t {
  kInline,    ///< Behind the shape, as those of small arrays.
  kSegments,  ///< In segments of a rank file; a decoded array has none.
};

/// Append the encoding. Errors: kInvalidArgument, what the format demands of plain data
/// (ValidateValue), but the bytes of an array in a segment may be absent.
Status AppendValue(const Value& value, ArrayBytes arrays, std::string_view what,
                   std::vector<std::byte>& out);

/// Decode a value that is the whole of `bytes`. Errors: kCorruption.
Result<Value> DecodeValue(std::span<const std::byte> bytes, ArrayBytes arrays,
                          std::string_view what);

/// Decode a value at the beginning of `bytes` and remove it from there.
Result<Value> TakeValue(std::span<const std::byte>& bytes, ArrayBytes arrays,
                        std::string_view what);

}  // namespace flagstone::format
