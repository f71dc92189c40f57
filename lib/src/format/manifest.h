// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The manifest: the only truth about what is where.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/digest.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"
#include "format/header.h"

namespace flagstone::format {

/// What the manifest says of one rank file; its name follows from rank and save id.
struct RankFileEntry {
  uint32_t rank = 0;
  uint64_t file_length = 0;
  uint64_t index_length = 0;
  base::Digest128 index_digest{};

  bool operator==(const RankFileEntry&) const = default;
};

struct Manifest {
  SaveId save_id{};
  uint64_t required_features = 0;
  std::optional<int64_t> step;
  int64_t committed_at = 0;          ///< Nanoseconds since 1970.
  Layout layout;                     ///< Valid and normal.
  std::vector<RankFileEntry> files;  ///< By rank, all of 0 .. world_size - 1.
  /// Client state. Arrays above 4 KiB have their shape here and their bytes in the coordinator's
  /// (rank 0's) rank file, in the order of a preorder walk; decoded, such an array's `bytes` is
  /// empty.
  Value client_state;

  bool operator==(const Manifest&) const = default;
};

/// The whole file: header page, body, zero padding to a multiple of 4096.
/// Errors: kInvalidArgument for what DecodeManifest would refuse, kResourceExhausted above
/// kMaxIndexBytes.
Result<std::vector<std::byte>> EncodeManifest(const Manifest& manifest);

/// Decode a whole manifest file. Errors: as DecodeHeader, and kCorruption with the offset.
Result<Manifest> DecodeManifest(std::span<const std::byte> file);

}  // namespace flagstone::format
