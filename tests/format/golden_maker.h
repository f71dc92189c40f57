// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A small checkpoint with something of everything, the same bytes on every run: what
/// tests/format/golden holds.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "format/manifest.h"
#include "format/rank_index.h"

namespace flagstone::test {

using FileBytes = std::vector<std::byte>;
using Files = std::map<std::string, FileBytes>;  ///< By file name.

/// Three ranks; partitions of every rule that this version cuts; aligned, attached and plain roles;
/// rank and client state with small and large arrays.
Layout GoldenLayout();
format::SaveId GoldenSaveId();
Value GoldenClientState();
Value GoldenRankState(uint32_t rank);

/// The manifest and the rank files, by the writer below.
Files MakeGolden();

/// A rank file, written plainly: placement, bytes from a formula, digests, index, header.
struct RankFile {
  std::string name;
  FileBytes bytes;
  format::RankFileEntry entry;
};
RankFile MakeRankFile(const Layout& layout, uint32_t rank, const Value& rank_state,
                      const Value& client_state);

/// What ranks own plain values of: every plain role's members, the value a function of the tensor
/// alone.
std::vector<format::PlainValue> PlainValuesOf(const Layout& layout, uint32_t rank);

/// A manifest of one tensor and two ranks, for what is mutated.
format::Manifest SmallManifest();
/// A rank index with a multi-page segment, an array and plain values.
format::RankIndex SmallIndex();

}  // namespace flagstone::test
