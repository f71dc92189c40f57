// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What tests/format/golden/description.json holds.

#include <string>

#include "golden_maker.h"

namespace flagstone::test {

/// Everything that the files say, decoded; "" when they do not decode.
std::string DescribeGolden(const Files& files);

/// Bad files above this many bytes are made by the tests and not committed.
inline constexpr size_t kLargestBadFile = size_t{64} << 10;

}  // namespace flagstone::test
