// SPDX-License-Identifier: Apache-2.0
#include "partition/moves.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "base/macros.h"
#include "base/text.h"
#include "partition/geometry.h"
#include "partition/matcher.h"
#include "partition/normalize.h"

namespace flagstone::partition {
namespace {

using base::Join;
using base::Quote;

bool StandsAlone(const Partition& partition) {
  return std::holds_alternative<WholeCut>(partition.cut) ||
         std::holds_alternative<ReplicatedCut>(partition.cut);
}

class Planner {
 public:
  Planner(const Layout& saved, const Layout& wanted, uint32_t rank, const MoveOptions& options)
      : saved_(saved),
        wanted_(wanted),
        rank_(rank),
        options_(options),
        matcher_(saved, wanted),
        geometries_(saved.partitions.size()) {}

  Result<Moves> Run() {
    if (rank_ >= wanted_.world_size) {
      return Status(StatusCode::kInvalidArgument,
                    Join("rank ", rank_, " is not in the wanted world of ", wanted_.world_size));
    }
    FLAGSTONE_RETURN_IF_ERROR(CheckRoleNames());
    for (const bool replicated : {false, true}) {
      if (replicated && !options_.replicated) break;
      for (uint32_t p = 0; p < wanted_.partitions.size(); ++p) {
        const Partition& partition = wanted_.partitions[p];
        if (std::holds_alternative<ReplicatedCut>(partition.cut) != replicated) continue;
        FLAGSTONE_RETURN_IF_ERROR(PlanPartition(p));
      }
    }
    return std::move(result_);
  }

 private:
  bool Wants(const Role& role) const {
    return options_.roles.empty() || std::find(options_.roles.begin(), options_.roles.end(),
                                               role.name) != options_.roles.end();
  }

  // A role asked for by a wrong name would otherwise be a load of nothing.
  Status CheckRoleNames() const {
    for (const std::string& name : options_.roles) {
      const auto has = [&](const Partition& partition) {
        return FindRole(partition, name).has_value();
      };
      const auto gives = [&](const Partition& partition) {
        return has(partition) &&
               (options_.replicated || !std::holds_alternative<ReplicatedCut>(partition.cut));
      };
      if (std::ranges::any_of(wanted_.partitions, gives)) continue;
      if (std::ranges::any_of(wanted_.partitions, has)) {
        return Status(StatusCode::kInvalidArgument,
                      Join("the role ", Quote(name),
                           " is in replicated partitions alone, which are loaded on request "
                           "(LoadOptions::replicated, --replicated)"));
      }
      std::vector<std::string> names;
      for (const Partition& partition : wanted_.partitions) {
        for (const Role& role : partition.roles) names.push_back(role.name);
      }
      std::sort(names.begin(), names.end());
      names.erase(std::unique(names.begin(), names.end()), names.end());
      return Status(StatusCode::kNotFound, Join("no partition has the role ", Quote(name),
                                                base::NearestNames(name, names)));
    }
    return {};
  }

  Status PlanPartition(uint32_t p) {
    const Partition& partition = wanted_.partitions[p];
    const auto holder = HolderIndex(partition, rank_);
    if (!holder) return {};
    std::optional<Geometry> geometry;
    for (uint32_t r = 0; r < partition.roles.size(); ++r) {
      const Role& role = partition.roles[r];
      if (!Wants(role)) continue;
      FLAGSTONE_RETURN_IF_ERROR(LocateMembers(p, r));
      if (role.form == RoleForm::kPlain) continue;  // no segment, but it has to be there
      if (!geometry) geometry.emplace(wanted_, p);
      FLAGSTONE_RETURN_IF_ERROR(PlanSegment(*geometry, p, r, *holder));
    }
    return {};
  }

  // Fill places_ with where each member's value of the role is saved.
  Status LocateMembers(uint32_t p, uint32_t r) {
    const Partition& partition = wanted_.partitions[p];
    const Role& role = partition.roles[r];
    places_.clear();
    places_.reserve(partition.members.size());
    Place last;
    for (uint32_t m = 0; m < partition.members.size(); ++m) {
      FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t tensor,
                                 matcher_.FindTensor(partition.members[m].tensor));
      if (m == 0) last = matcher_.FirstGuess(p, role, tensor);
      if (m > 0 || last.partition == kUnknown) {
        FLAGSTONE_ASSIGN_OR_RETURN(last, matcher_.FindRoleOf(tensor, role, last));
      }
      FLAGSTONE_RETURN_IF_ERROR(PreferEqualBox(role, partition.members[m], last));
      FLAGSTONE_RETURN_IF_ERROR(CheckRole(role, m, partition.members[m].tensor, last));
      places_.push_back(last);
    }
    return {};
  }

  Status CheckRole(const Role& wanted, uint32_t member, uint32_t tensor, const Place& at) const {
    const Role& saved = saved_.partitions[at.partition].roles[at.role];
    const auto differ = [&](const auto& has, const auto& want) {
      return Status(
          StatusCode::kInvalidArgument,
          Join("the role ", Quote(wanted.name), " of tensor ", Quote(wanted_.tensors[tensor].name),
               " is ", has, " in the checkpoint, but ", want, " is wanted"));
    };
    if (saved.form != wanted.form) return differ(Name(saved.form), Name(wanted.form));
    if (saved.dtype != wanted.dtype) return differ(Name(saved.dtype), Name(wanted.dtype));
    if (saved.block != wanted.block) {
      return differ(Join("in blocks of ", saved.block), Join("blocks of ", wanted.block));
    }
    if (wanted.form == RoleForm::kAttached && saved.shapes[at.member] != wanted.shapes[member]) {
      return differ(Join("of shape ", base::ShapeText(saved.shapes[at.member])),
                    Join("shape ", base::ShapeText(wanted.shapes[member])));
    }
    return {};
  }

  static std::string BoxText(const std::optional<Box>& box) {
    if (!box) return "the whole tensor";
    return Join("the box at ", base::ShapeText(box->offsets), " of sizes ",
                base::ShapeText(box->sizes));
  }

  // Prefer the place that has the same box of the tensor. An attached value is found there alone: it
  // belongs to what its owner had of the tensor, and that is not cut or joined.
  Status PreferEqualBox(const Role& role, const Member& member, Place& place) {
    const Member& found = saved_.partitions[place.partition].members[place.member];
    if (found.box == member.box) return {};
    FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t tensor, matcher_.FindTensor(member.tensor));
    candidates_.clear();
    matcher_.AppendPlaces(tensor, role, candidates_);
    for (const Place& candidate : candidates_) {
      if (saved_.partitions[candidate.partition].members[candidate.member].box == member.box) {
        place = candidate;
        return {};
      }
    }
    if (role.form != RoleForm::kAttached) return {};
    return Status(StatusCode::kInvalidArgument,
                  Join("the role ", Quote(role.name), " of tensor ",
                       Quote(wanted_.tensors[member.tensor].name), " is attached to ",
                       BoxText(found.box), " in the checkpoint, but a value for ",
                       BoxText(member.box), " is wanted"));
  }

  Status PlanSegment(const Geometry& geometry, uint32_t p, uint32_t r, uint32_t holder) {
    Segment held = geometry.HeldSegment(r, holder);
    const auto index = static_cast<uint32_t>(result_.segments.size());
    result_.segments.push_back({p, r, held.bytes, std::move(held.pieces)});
    WantedSegment& segment = result_.segments.back();
    const uint64_t packed_bytes = segment.bytes;
    bool moved = false;
    if (options_.arrange) {
      const std::vector<SegmentPiece> before = segment.pieces;
      FLAGSTONE_RETURN_IF_ERROR(options_.arrange(segment));
      moved = segment.pieces != before;
    }
    if (packed_bytes == 0) return {};
    const auto source =
        moved ? std::nullopt : EqualSegment(wanted_.partitions[p], holder);
    if (source) {
      const Place& at = places_[0];
      const uint32_t rank = SavedGeometry(at.partition).RankAt(*source);
      result_.moves.push_back({index, 0, rank, at.partition, at.role, 0, packed_bytes});
      return {};
    }
    first_move_ = result_.moves.size();
    for (const SegmentPiece& piece : segment.pieces) {
      if (AreCutAlike(geometry, piece.slice.member)) {
        FLAGSTONE_RETURN_IF_ERROR(PlanPiece(p, r, index, piece));
      } else {
        FLAGSTONE_RETURN_IF_ERROR(PlanPatches(geometry, r, index, piece, holder));
      }
    }
    return {};
  }

  // The position whose saved segment equals the wanted one byte for byte, because the partitions
  // have the same members in the same order and cut them alike.
  std::optional<uint32_t> EqualSegment(const Partition& wanted, uint32_t holder) {
    const Partition& saved = saved_.partitions[places_[0].partition];
    if (saved.members.size() != places_.size()) return std::nullopt;
    for (uint32_t m = 0; m < places_.size(); ++m) {
      if (places_[m].partition != places_[0].partition || places_[m].member != m ||
          saved.members[m].box != wanted.members[m].box) {
        return std::nullopt;
      }
    }
    if (std::holds_alternative<ReplicatedCut>(wanted.cut)) {
      // Who stores does not matter to who holds, but the segment has to be whole.
      const auto* cut = std::get_if<ReplicatedCut>(&saved.cut);
      if (!cut) return std::nullopt;
      const uint32_t first = cut->storing[0];
      const bool whole = std::all_of(cut->storing.begin(), cut->storing.end(),
                                     [first](uint32_t storing) { return storing == first; });
      return whole ? std::optional<uint32_t>(first) : std::nullopt;
    }
    if (saved.ranks.size() != wanted.ranks.size() || saved.cut != wanted.cut) return std::nullopt;
    const Mesh* mesh = SavedGeometry(places_[0].partition).mesh();
    return mesh == nullptr ? holder : mesh->StoringPosition(holder);
  }

  // Whether slices of the member and what is saved of it are ranges of the same row-major order.
  bool AreCutAlike(const Geometry& wanted, uint32_t member) {
    const Place& at = places_[member];
    return wanted.mesh() == nullptr && SavedGeometry(at.partition).mesh() == nullptr &&
           saved_.partitions[at.partition].members[at.member].box ==
               wanted.partition().members[member].box;
  }

  Status PlanPiece(uint32_t p, uint32_t r, uint32_t index, const SegmentPiece& piece) {
    const Place& at = places_[piece.slice.member];
    const Geometry& saved = SavedGeometry(at.partition);
    const uint64_t size = SizeOf(wanted_.partitions[p].roles[r].dtype);
    found_.clear();
    saved.AppendStored(at.role, at.member, piece.slice.begin, piece.slice.end, found_);
    uint64_t next = piece.slice.begin;
    for (const StoredPiece& part : found_) {
      if (part.slice.begin != next || part.slice.end <= next) break;
      const uint64_t target = piece.byte_offset + (next - piece.slice.begin) * size;
      next = part.slice.end;
      Append({index, target, saved.RankAt(part.rank_index), at.partition, at.role, part.byte_offset,
              (part.slice.end - part.slice.begin) * size},
             StandsAlone(wanted_.partitions[p]) && StandsAlone(saved.partition()));
    }
    if (next == piece.slice.end) return {};
    return NotCovered(wanted_.partitions[p], piece.slice, next - piece.slice.begin);
  }

  // The layouts are valid, so that this would be a mistake of the plan itself.
  Status NotCovered(const Partition& wanted, const Slice& slice, uint64_t carried) const {
    const Tensor& tensor = wanted_.tensors[wanted.members[slice.member].tensor];
    return Status(StatusCode::kInternal,
                  Join("the plan carries ", carried, " elements of slice [", slice.begin, ", ",
                       slice.end, ") of tensor ", Quote(tensor.name), " in partition ",
                       Quote(wanted.id)));
  }

  // A piece that is cut along other lines than what is saved: rectangles against rectangles.
  Status PlanPatches(const Geometry& wanted, uint32_t r, uint32_t index, const SegmentPiece& piece,
                     uint32_t holder) {
    if (piece.slice.begin == piece.slice.end) return {};  // its boxes were not compared
    const Partition& partition = wanted.partition();
    const Member& member = partition.members[piece.slice.member];
    const uint64_t size = SizeOf(partition.roles[r].dtype);
    FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t tensor, matcher_.FindTensor(member.tensor));
    candidates_.clear();
    matcher_.AppendPlaces(tensor, partition.roles[r], candidates_);
    uint64_t carried = 0;
    std::vector<std::pair<Move, Overlap>> found;
    for (const Place& at : candidates_) {
      const Geometry& saved = SavedGeometry(at.partition);
      std::vector<uint32_t> cut;
      AppendCutDimensionsOf(wanted, piece.slice.member, cut);
      AppendCutDimensionsOf(saved, at.member, cut);
      const Grouping grouping(saved_.tensors[tensor].shape, cut);
      patches_.clear();
      wanted.AppendPatches(grouping, holder, piece.slice, piece.byte_offset / size, patches_);
      for (const Patch& target : patches_) {
        stored_.clear();
        saved.AppendStoredPatches(grouping, at.role, at.member, target, stored_);
        for (const StoredPatch& source : stored_) {
          Overlap overlap;
          if (!Intersect(grouping.count(), source.patch, target, overlap)) continue;
          carried += overlap.elements();
          found.push_back({{index, overlap.target * size, saved.RankAt(source.rank_index),
                            at.partition, at.role, overlap.source * size, overlap.length * size},
                           overlap});
        }
      }
    }
    if (carried != piece.slice.end - piece.slice.begin) {
      return NotCovered(partition, piece.slice, carried);
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return a.first.target_offset < b.first.target_offset;
    });
    for (const auto& [move, overlap] : found) Append(move, overlap, size);
    return {};
  }

  static void AppendCutDimensionsOf(const Geometry& geometry, uint32_t member,
                                    std::vector<uint32_t>& cut) {
    const Member& self = geometry.partition().members[member];
    if (self.box) AppendCutDimensions(geometry.layout().tensors[self.tensor], *self.box, cut);
    if (const Mesh* mesh = geometry.mesh()) {
      cut.insert(cut.end(), mesh->dimensions().begin(), mesh->dimensions().end());
    }
  }

  void Append(Move move, const Overlap& overlap, uint64_t size) {
    if (overlap.level_count == 0) return Append(move, /*padded=*/false);
    move.first_level = static_cast<uint32_t>(result_.levels.size());
    move.level_count = overlap.level_count;
    for (const Overlap::Level& level : std::span(overlap.levels).first(overlap.level_count)) {
      result_.levels.push_back(
          {level.count, level.source_stride * size, level.target_stride * size});
    }
    result_.moves.push_back(move);
  }

  // Members that stand alone begin on 64 bytes on both sides: a gap below that which is equally
  // wide on both sides is padding on both, and what lies around it is one run.
  void Append(const Move& move, bool padded) {
    if (result_.moves.size() > first_move_) {
      Move& last = result_.moves.back();
      const uint64_t gap = move.target_offset - (last.target_offset + last.length);
      if (last.level_count == 0 && move.saved_rank == last.saved_rank && move.saved_partition == last.saved_partition &&
          move.saved_role == last.saved_role && gap < (padded ? kMemberAlignment : 1) &&
          move.source_offset == last.source_offset + last.length + gap) {
        last.length += gap + move.length;
        return;
      }
    }
    result_.moves.push_back(move);
  }

  const Geometry& SavedGeometry(uint32_t partition) {
    auto& geometry = geometries_[partition];
    if (!geometry) geometry = std::make_unique<Geometry>(saved_, partition);
    return *geometry;
  }

  const Layout& saved_;
  const Layout& wanted_;
  uint32_t rank_;
  const MoveOptions& options_;
  Matcher matcher_;
  std::vector<std::unique_ptr<Geometry>> geometries_;  // by saved partition, once met
  std::vector<Place> places_;                          // by member of the partition at hand
  std::vector<StoredPiece> found_;
  std::vector<Place> candidates_;  // of the tensor at hand
  std::vector<Patch> patches_;
  std::vector<StoredPatch> stored_;
  size_t first_move_ = 0;  // of the segment at hand
  Moves result_;
};

}  // namespace

Result<Moves> PlanMoves(const Layout& saved, const Layout& wanted, uint32_t rank,
                        const MoveOptions& options) {
  return Planner(saved, wanted, rank, options).Run();
}

}  // namespace flagstone::partition
