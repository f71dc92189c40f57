// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Rank ranges as arithmetic progressions: whether they meet, without counting through them.

#include <cstdint>
#include <optional>
#include <vector>

#include "flagstone/partition.h"

namespace flagstone::partition {

/// The least rank that both ranges hold. Ranges must not be empty and must end below 2^31. Cost:
/// O(log stride).
std::optional<uint32_t> CommonRank(const RankRange& a, const RankRange& b);

/// A rank that stands in more than one of the ranges. Cost: O(ranges log ranges) where they lie
/// apart, else O(min(ranges^2, ranks log ranks)): a few bytes of a hostile file cannot ask for long
/// lists to be counted through.
std::optional<uint32_t> RepeatedRank(std::vector<RankRange> ranges);

}  // namespace flagstone::partition
