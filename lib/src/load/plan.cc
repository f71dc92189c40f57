// SPDX-License-Identifier: Apache-2.0
#include "load/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "format/header.h"
#include "format/placement.h"
#include "load/chunk_reads.h"
#include "partition/geometry.h"
#include "partition/moves.h"

namespace flagstone::load {

using base::Join;
using base::Quote;

namespace {

// The placements of the rank files that a plan meets, each made once.
class Placements {
 public:
  explicit Placements(const store::OpenedManifest& opened)
      : opened_(opened), placer_(opened.manifest.layout) {}

  /// Where `rank` has a role; the layout says that it stores some of it.
  Result<const format::PlacedSegment*> Find(uint32_t rank, const Partition& part,
                                            const std::string& role) {
    const auto [entry, is_new] = placements_.try_emplace(rank);
    if (is_new) {
      // Arrays come after the partitions' segments: they do not move them.
      auto placed = placer_.Place(rank, {});
      if (!placed.ok()) {
        // A writer refuses such a layout, so nothing that was saved has it.
        const std::string name = (opened_.directory / format::kManifestName).string();
        return Status(StatusCode::kCorruption,
                      Join(Quote(name), ": ", placed.status().message(), " (rank ", rank, ")"),
                      {name, "", std::nullopt});
      }
      entry->second = *std::move(placed);
    }
    const auto& segments = entry->second.segments;
    auto segment = std::lower_bound(segments.begin(), segments.end(), part.id,
                                    [](const format::PlacedSegment& candidate,
                                       const PartitionId& id) { return candidate.partition < id; });
    while (segment != segments.end() && segment->partition == part.id && segment->role != role) {
      ++segment;
    }
    if (segment == segments.end() || segment->partition != part.id) {
      return Status(StatusCode::kInternal, Join("the plan reads ", Quote(Join(part.id, "/", role)),
                                                " from rank ", rank, ", which stores none of it"));
    }
    return &*segment;
  }

  bool Has(uint32_t rank) const { return placements_.contains(rank); }
  size_t size() const { return placements_.size(); }

 private:
  const store::OpenedManifest& opened_;
  format::RankPlacer placer_;
  std::map<uint32_t, format::RankPlacement> placements_;
};

SegmentInfo DescribeSegment(const partition::Geometry& geometry,
                            const partition::WantedSegment& segment, uint32_t rank) {
  const Partition& part = geometry.partition();
  const Role& role = part.roles[segment.role];
  SegmentInfo info;
  info.partition = part.id;
  info.role = role.name;
  info.dtype = role.dtype;
  info.form = role.form;
  info.replicated = std::holds_alternative<ReplicatedCut>(part.cut);
  info.bytes = segment.bytes;
  if (const auto index = geometry.HolderIndex(rank)) {
    const partition::Segment held = geometry.HeldSegment(segment.role, *index);
    info.slices.reserve(held.pieces.size());
    info.offsets.reserve(held.pieces.size());
    for (const auto& piece : held.pieces) {
      info.slices.push_back(piece.slice);
      info.offsets.push_back(piece.byte_offset);
    }
  }
  return info;
}

Status DescribeSegments(const Layout& wanted, uint32_t rank, const partition::Moves& moves,
                        Plan& plan) {
  std::optional<partition::Geometry> geometry;
  std::optional<uint32_t> of;  // the roles of a partition follow each other
  plan.segments.reserve(moves.segments.size());
  for (const partition::WantedSegment& segment : moves.segments) {
    if (of != segment.partition) geometry.emplace(wanted, segment.partition);
    of = segment.partition;
    plan.segments.push_back(DescribeSegment(*geometry, segment, rank));
    const auto sum = base::CheckedAdd(plan.wanted_bytes, segment.bytes);
    if (!sum) {
      return Status(
          StatusCode::kCorruption,
          Join("rank ", rank, " would hold more than 2^64 bytes: partition ",
               Quote(wanted.partitions[segment.partition].id), " alone has ", segment.bytes));
    }
    plan.wanted_bytes = *sum;
  }
  return {};
}

}  // namespace

Result<PlannedLoad> PlanLoad(const store::OpenedManifest& opened, const Layout& wanted,
                             uint32_t rank, const LoadOptions& options) {
  if (rank >= wanted.world_size) {
    return Status(StatusCode::kNotFound,
                  Join("there is no rank ", rank, " in ", Quote(opened.directory.string()),
                       ", saved by ", wanted.world_size, " ranks: 0 to ", wanted.world_size - 1),
                  {opened.directory.string(), "", std::nullopt});
  }
  if (options.queue_depth > kMaxQueueDepth) {
    return Status(StatusCode::kInvalidArgument,
                  Join("LoadOptions::queue_depth is ", options.queue_depth, "; it may be at most ",
                       kMaxQueueDepth));
  }
  const Layout& saved = opened.manifest.layout;
  auto moves = partition::PlanMoves(saved, wanted, rank, {options.replicated, options.roles});
  if (!moves.ok()) {
    return moves.status().Annotated(Quote(opened.directory.string()),
                                    {opened.directory.string(), "", std::nullopt});
  }
  PlannedLoad planned;
  Plan& plan = planned.plan;
  FLAGSTONE_RETURN_IF_ERROR(DescribeSegments(wanted, rank, *moves, plan));
  Placements placements(opened);
  // Read apart, as LoadRun does.
  std::vector<SourceRun> own;
  std::vector<SourceRun> replicated;
  plan.runs.reserve(moves->moves.size());
  planned.source_offsets.reserve(moves->moves.size());
  for (const partition::Move& move : moves->moves) {
    const Partition& part = saved.partitions[move.saved_partition];
    FLAGSTONE_ASSIGN_OR_RETURN(
        const format::PlacedSegment* segment,
        placements.Find(move.saved_rank, part, part.roles[move.saved_role].name));
    plan.runs.push_back({move.saved_rank, move.wanted, segment->offset + move.source_offset,
                         move.target_offset, move.length, move.first_level, move.level_count});
    planned.source_offsets.push_back(move.source_offset);
    (plan.segments[move.wanted].replicated ? replicated : own)
        .push_back({move.saved_rank, segment, move.source_offset, move.length,
                    moves->LevelsOf(move)});
  }
  plan.read_bytes = GroupByChunk(own).bytes() + GroupByChunk(replicated).bytes();
  plan.levels = std::move(moves->levels);
  // A rank's own file is opened whatever it holds: its state and its plain values are there.
  const bool own_is_met = placements.Has(rank);
  plan.files = static_cast<uint32_t>(placements.size() + (own_is_met ? 0 : 1));
  return planned;
}

}  // namespace flagstone::load
