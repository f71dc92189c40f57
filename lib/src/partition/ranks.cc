// SPDX-License-Identifier: Apache-2.0
#include "partition/ranks.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace flagstone::partition {
namespace {

uint32_t Last(const RankRange& range) { return range.first + (range.count - 1) * range.stride; }

// The inverse of `value` modulo `modulus` (extended Euclid); the two have no common factor.
int64_t Inverse(int64_t value, int64_t modulus) {
  int64_t r0 = modulus, r1 = value % modulus, t0 = 0, t1 = 1;
  while (r1 > 0) {
    const int64_t quotient = r0 / r1;
    r0 = std::exchange(r1, r0 - quotient * r1);
    t0 = std::exchange(t1, t0 - quotient * t1);
  }
  return t0 < 0 ? t0 + modulus : t0;
}

std::optional<uint32_t> RepeatedByCounting(const std::vector<RankRange>& ranges) {
  std::vector<uint32_t> all;
  for (const RankRange& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) all.push_back(range.first + i * range.stride);
  }
  std::sort(all.begin(), all.end());
  const auto twice = std::adjacent_find(all.begin(), all.end());
  return twice == all.end() ? std::nullopt : std::optional<uint32_t>(*twice);
}

}  // namespace

std::optional<uint32_t> CommonRank(const RankRange& a, const RankRange& b) {
  const int64_t end = std::min(Last(a), Last(b));
  const int64_t begin = std::max(a.first, b.first);
  if (begin > end) return std::nullopt;
  // A lone rank may come with any stride, 0 included.
  const int64_t step_a = a.count == 1 ? 1 : a.stride;
  const int64_t step_b = b.count == 1 ? 1 : b.stride;
  // a.first + i * step_a is in b's progression when i * step_a = distance modulo step_b.
  const int64_t distance = int64_t{b.first} - a.first;
  const int64_t common = std::gcd(step_a, step_b);
  if (distance % common != 0) return std::nullopt;
  const int64_t modulus = step_b / common;
  // Where i is negative the meeting lies before a, and is moved on like any that lies before
  // `begin`.
  const int64_t i = distance / common % modulus * Inverse(step_a / common, modulus) % modulus;
  const int64_t period = step_a * modulus;
  int64_t meeting = a.first + i * step_a;
  if (meeting < begin) meeting += (begin - meeting + period - 1) / period * period;
  return meeting <= end ? std::optional<uint32_t>(static_cast<uint32_t>(meeting)) : std::nullopt;
}

std::optional<uint32_t> RepeatedRank(std::vector<RankRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const RankRange& a, const RankRange& b) { return a.first < b.first; });
  bool apart = true;
  uint64_t ranks = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranks += ranges[i].count;
    apart = apart && (i == 0 || Last(ranges[i - 1]) < ranges[i].first);
  }
  if (apart) return std::nullopt;
  if (uint64_t{ranges.size()} * ranges.size() / 2 > ranks) return RepeatedByCounting(ranges);
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (size_t j = i + 1; j < ranges.size() && ranges[j].first <= Last(ranges[i]); ++j) {
      if (const auto rank = CommonRank(ranges[i], ranges[j])) return rank;
    }
  }
  return std::nullopt;
}

}  // namespace flagstone::partition
