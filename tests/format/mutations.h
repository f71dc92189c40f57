// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// One thing wrong in otherwise sound bytes: a row for each numbered rule of spec/format.md that a
/// decoder checks. The same bytes lie in tests/format/bad/, where the fuzz programs find them.

#include <string>
#include <vector>

#include "flagstone/status.h"
#include "golden_maker.h"

namespace flagstone::test {

/// What reads the bytes.
enum class Decoder : uint8_t {
  kManifest,  ///< A whole manifest file.
  kHeader,    ///< The header page of a rank file of kHeaderFileLength bytes.
  kIndex,     ///< A rank index.
  kLayout,    ///< A layout as ranks declare it.
};

inline constexpr uint64_t kHeaderFileLength = 5 * 4096;

struct Mutation {
  std::string rule;  ///< "M12"
  std::string name;
  Decoder decoder = Decoder::kManifest;
  FileBytes bytes;
  StatusCode code = StatusCode::kCorruption;
  std::string message;  ///< A part of it.

  /// "M12-file-length.manifest"
  std::string FileName() const;
};

std::vector<Mutation> AllMutations();

/// Decode with the decoder of the row.
Status Decode(Decoder decoder, std::span<const std::byte> bytes);

/// The four groups of AllMutations.
std::vector<Mutation> HeaderMutations();
std::vector<Mutation> WireMutations();
std::vector<Mutation> LayoutMutations();
std::vector<Mutation> IndexMutations();

}  // namespace flagstone::test
