// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Valid layouts and plain data at random: the same for the same seed.

#include <random>

#include "flagstone/partition.h"
#include "flagstone/value.h"

namespace flagstone::test {

using Random = std::mt19937_64;

/// Valid and normal; every rule that this version cuts, replicas, attached and plain roles, blocks,
/// aliases, empty and 0-dim tensors, names of all sorts.
Layout RandomLayout(Random& random);
/// Every kind of plain data, nested; arrays now and then above 4 KiB.
Value RandomValue(Random& random, int depth = 0);

/// In [0, limit).
inline uint64_t Below(Random& random, uint64_t limit) { return random() % limit; }

}  // namespace flagstone::test
