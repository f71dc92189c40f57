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

SegmentInfo DescribeSegment(const Layout& wanted, const partition::WantedSegment& segment) {
  const Partition& part = wanted.partitions[segment.partition];
  const Role& role = part.roles[segment.role];
  SegmentInfo info;
  info.partition = part.id;
  info.role = role.name;
  info.dtype = role.dtype;
  info.form = role.form;
  info.replicated = std::holds_alternative<ReplicatedCut>(part.cut);
  info.bytes = segment.bytes;
  info.slices.reserve(segment.pieces.size());
  info.offsets.reserve(segment.pieces.size());
  for (const partition::SegmentPiece& piece : segment.pieces) {
    info.slices.push_back(piece.slice);
    info.offsets.push_back(piece.byte_offset);
  }
  return info;
}

// Put the pieces where LoadOptions::shape_buffer wants them.
Status Shape(const Layout& wanted, const LoadOptions& options, partition::WantedSegment& segment) {
  const SegmentInfo info = DescribeSegment(wanted, segment);
  const std::string name = Join(info.partition, "/", info.role);
  FLAGSTONE_ASSIGN_OR_RETURN(const BufferShape shape, options.shape_buffer(info));
  if (shape.offsets.size() != segment.pieces.size()) {
    return Status(StatusCode::kInvalidArgument,
                  Join("LoadOptions::shape_buffer gives ", shape.offsets.size(),
                       " offsets for the ", segment.pieces.size(), " slices of ", Quote(name)));
  }
  const uint64_t size = SizeOf(info.dtype);
  const auto bytes = base::CheckedMultiply(shape.elements, size);
  uint64_t end = 0;  // of the piece before, in elements
  for (size_t i = 0; i < shape.offsets.size(); ++i) {
    partition::SegmentPiece& piece = segment.pieces[i];
    const uint64_t elements = piece.slice.end - piece.slice.begin;
    if (!bytes || shape.offsets[i] < end ||
        !base::InBounds(shape.offsets[i], elements, shape.elements)) {
      return Status(StatusCode::kInvalidArgument,
                    Join("LoadOptions::shape_buffer puts slice ", i, " of ", Quote(name), ", ",
                         elements, " elements, at element ", shape.offsets[i], " of ",
                         shape.elements, "; slices come one behind the other (the one before ends "
                         "at ", end, ") and inside"));
    }
    piece.byte_offset = shape.offsets[i] * size;
    end = shape.offsets[i] + elements;
  }
  segment.bytes = bytes.value_or(0);
  return {};
}

Status DescribeSegments(const Layout& wanted, uint32_t rank, const partition::Moves& moves,
                        Plan& plan) {
  plan.segments.reserve(moves.segments.size());
  for (const partition::WantedSegment& segment : moves.segments) {
    plan.segments.push_back(DescribeSegment(wanted, segment));
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
  const Layout& saved = opened.manifest.layout;
  if (rank >= wanted.world_size) {
    return Status(StatusCode::kNotFound,
                  Join("there is no rank ", rank, " in ",
                       &wanted == &saved ? Quote(opened.directory.string()) : "the wanted layout",
                       &wanted == &saved ? ", saved by " : ", of ", wanted.world_size,
                       " ranks: 0 to ", wanted.world_size - 1),
                  {opened.directory.string(), "", std::nullopt});
  }
  if (options.queue_depth > kMaxQueueDepth) {
    return Status(StatusCode::kInvalidArgument,
                  Join("LoadOptions::queue_depth is ", options.queue_depth, "; it may be at most ",
                       kMaxQueueDepth));
  }
  partition::MoveOptions move_options{options.replicated, options.roles};
  if (options.shape_buffer) {
    move_options.arrange = [&](partition::WantedSegment& segment) {
      return Shape(wanted, options, segment);
    };
  }
  auto moves = partition::PlanMoves(saved, wanted, rank, move_options);
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
  // In the same world a rank's own file is opened whatever it holds: its state is there.
  const bool own_is_missed = wanted.world_size == saved.world_size && !placements.Has(rank);
  plan.files = static_cast<uint32_t>(placements.size() + (own_is_missed ? 1 : 0));
  return planned;
}

}  // namespace flagstone::load
