// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Plan(saved, wanted): the byte ranges of saved segments that make a rank's wanted segments.
/// Arithmetic alone.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "partition/geometry.h"

namespace flagstone::partition {

/// A segment of the rank that loads.
struct WantedSegment {
  uint32_t partition = 0;  ///< In the wanted layout.
  uint32_t role = 0;
  uint64_t bytes = 0;
  std::vector<SegmentPiece> pieces = {};
};

/// `length` bytes at `source_offset` of a saved segment go to `target_offset` of a wanted one; where
/// there are levels this is repeated, as rows of a matrix are.
struct Move {
  uint32_t wanted = 0;         ///< Index in Moves::segments.
  uint64_t target_offset = 0;  ///< Of the first repetition, as source_offset.
  uint32_t saved_rank = 0;     ///< Global rank whose file it is.
  uint32_t saved_partition = 0;  ///< In the saved layout.
  uint32_t saved_role = 0;
  uint64_t source_offset = 0;  ///< In the saved segment.
  uint64_t length = 0;         ///< Not 0.
  uint32_t first_level = 0;    ///< In Moves::levels; the outermost first.
  uint32_t level_count = 0;

  bool operator==(const Move&) const = default;
};

struct Moves {
  /// In the order of the wanted layout, those of replicated partitions last. A rank that stands in
  /// a partition has a segment of each role, be it of 0 bytes; of a partition in which it does not
  /// stand it has none.
  std::vector<WantedSegment> segments;
  /// By wanted segment and target offset; neighbours that continue each other are joined. Where
  /// both sides put members on 64 bytes, the padding between members is carried with them; what no
  /// move carries of a segment is padding.
  std::vector<Move> moves;
  std::vector<RunLevel> levels;

  std::span<const RunLevel> LevelsOf(const Move& move) const {
    return std::span(levels).subspan(move.first_level, move.level_count);
  }
};

struct MoveOptions {
  bool replicated = false;  ///< Also what replicated partitions of the wanted layout give the rank.
  std::vector<std::string> roles = {};  ///< Only these; empty: all.
  /// Moves the pieces of a wanted segment apart, to where a framework's buffer has them. They must
  /// not overlap, and lie on multiples of the element size inside of the segment.
  std::function<Status(WantedSegment& segment)> arrange = {};
};

/// The moves that fill the segments of `rank` in the wanted layout. Both layouts must be valid.
///
/// Every wanted element is carried exactly once, else an error before anything is read.
/// Tensors are matched by name (or alias), roles by name; plain roles have no segments, but must be there.
/// All members of the partitions in which the rank stands are checked, not only its own slices, so
/// that the ranks of a partition fail alike. Errors: kNotFound (a tensor or role that the
/// checkpoint lacks, nearest names listed; a role of the options that no partition wants),
/// kInvalidArgument (shape, dtype, form or block that differs: both shown; an attached value of
/// another box; a rank outside of the wanted world). Where saved and wanted partition are equal the segment is one move. Cost: O(members of
/// the partitions met + slices wanted + slices met).
Result<Moves> PlanMoves(const Layout& saved, const Layout& wanted, uint32_t rank,
                        const MoveOptions& options);

}  // namespace flagstone::partition
