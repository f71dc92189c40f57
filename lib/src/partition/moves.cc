// SPDX-License-Identifier: Apache-2.0
#include "partition/moves.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>

#include "base/macros.h"
#include "base/text.h"
#include "partition/geometry.h"
#include "partition/normalize.h"

namespace flagstone::partition {
namespace {

using base::Join;
using base::Quote;

constexpr uint32_t kUnknown = std::numeric_limits<uint32_t>::max();

bool StandsAlone(const Partition& partition) {
  return std::holds_alternative<WholeCut>(partition.cut) ||
         std::holds_alternative<ReplicatedCut>(partition.cut);
}

// Where a role of a tensor is in the saved layout.
struct Place {
  uint32_t partition = kUnknown;
  uint32_t role = 0;
  uint32_t member = 0;
};

/// Finds wanted tensors and roles in the saved layout. The order of things is mostly the same on
/// both sides, so that what follows the last find is tried first and the indexes are made only when
/// needed.
class Matcher {
 public:
  Matcher(const Layout& saved, const Layout& wanted)
      : saved_(saved), wanted_(wanted), tensors_(wanted.tensors.size(), kUnknown) {}

  /// The saved tensor of a wanted one, of the same shape.
  Result<uint32_t> FindTensor(uint32_t wanted_index) {
    uint32_t& known = tensors_[wanted_index];
    if (known != kUnknown) return known;
    const Tensor& wanted = wanted_.tensors[wanted_index];
    const uint32_t found = Search(wanted, wanted_index);
    if (found == kUnknown) {
      return Status(StatusCode::kNotFound, Join("the checkpoint has no tensor ", Quote(wanted.name),
                                                base::NearestNames(wanted.name, AllNames())));
    }
    const Tensor& saved = saved_.tensors[found];
    if (saved.shape != wanted.shape) {
      return Status(
          StatusCode::kInvalidArgument,
          Join("tensor ", Quote(wanted.name), " has shape ", base::ShapeText(saved.shape),
               " in the checkpoint, but shape ", base::ShapeText(wanted.shape), " is wanted"));
    }
    return known = found;
  }

  /// Where the checkpoint has `role` of a saved tensor. `last` is the place found before.
  Result<Place> FindRoleOf(uint32_t tensor, const Role& role, const Place& last) {
    if (last.partition != kUnknown) {
      const std::vector<Member>& members = saved_.partitions[last.partition].members;
      const uint32_t next = last.member + 1;
      if (next < members.size() && members[next].tensor == tensor) {
        return Place{last.partition, last.role, next};
      }
    }
    MakeUses();
    for (uint32_t i = first_use_[tensor]; i < first_use_[tensor + 1]; ++i) {
      const auto found = FindRole(saved_.partitions[uses_[i].partition], role.name);
      if (found) return Place{uses_[i].partition, *found, uses_[i].member};
    }
    std::vector<std::string> names;
    for (uint32_t i = first_use_[tensor]; i < first_use_[tensor + 1]; ++i) {
      for (const Role& other : saved_.partitions[uses_[i].partition].roles) {
        names.push_back(other.name);
      }
    }
    return Status(StatusCode::kNotFound,
                  Join("the checkpoint has no role ", Quote(role.name), " of tensor ",
                       Quote(saved_.tensors[tensor].name), base::NearestNames(role.name, names)));
  }

  /// The place of the first member of a partition: where the checkpoint has an equally named
  /// partition in the same place it is likely the same one.
  Place FirstGuess(uint32_t wanted_partition, const Role& role, uint32_t tensor) const {
    if (wanted_partition >= saved_.partitions.size()) return {};
    const Partition& saved = saved_.partitions[wanted_partition];
    if (saved.members.empty() || saved.members[0].tensor != tensor) return {};
    const auto found = FindRole(saved, role.name);
    return found ? Place{wanted_partition, *found, 0} : Place{};
  }

 private:
  struct Use {
    uint32_t partition = 0;
    uint32_t member = 0;
  };

  uint32_t Search(const Tensor& wanted, uint32_t wanted_index) {
    if (wanted_index < saved_.tensors.size() && saved_.tensors[wanted_index].name == wanted.name) {
      return wanted_index;
    }
    MakeNames();
    if (const auto at = names_.find(wanted.name); at != names_.end()) return at->second;
    for (const std::string& alias : wanted.aliases) {
      if (const auto at = names_.find(alias); at != names_.end()) return at->second;
    }
    return kUnknown;
  }

  void MakeNames() {
    if (!names_.empty()) return;
    names_.reserve(saved_.tensors.size());
    for (uint32_t t = 0; t < saved_.tensors.size(); ++t) {
      names_.emplace(saved_.tensors[t].name, t);
      for (const std::string& alias : saved_.tensors[t].aliases) names_.emplace(alias, t);
    }
  }

  std::vector<std::string> AllNames() const {
    std::vector<std::string> names;
    for (const Tensor& tensor : saved_.tensors) {
      names.push_back(tensor.name);
      names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
    }
    return names;
  }

  // In which partitions each saved tensor is: a counting sort of all members.
  void MakeUses() {
    if (!first_use_.empty()) return;
    first_use_.resize(saved_.tensors.size() + 1);
    for (const Partition& partition : saved_.partitions) {
      for (const Member& member : partition.members) ++first_use_[member.tensor + 1];
    }
    std::partial_sum(first_use_.begin(), first_use_.end(), first_use_.begin());
    uses_.resize(first_use_.back());
    std::vector<uint32_t> slots = first_use_;
    for (uint32_t p = 0; p < saved_.partitions.size(); ++p) {
      const std::vector<Member>& members = saved_.partitions[p].members;
      for (uint32_t m = 0; m < members.size(); ++m) uses_[slots[members[m].tensor]++] = {p, m};
    }
  }

  const Layout& saved_;
  const Layout& wanted_;
  std::vector<uint32_t> tensors_;  // by wanted tensor: the saved one, once found
  std::unordered_map<std::string_view, uint32_t> names_;
  std::vector<uint32_t>
      first_use_;  // by saved tensor: its first entry in uses_; one more at the end
  std::vector<Use> uses_;
};

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
      if (role.form == RoleForm::kPlain || !Wants(role)) continue;
      if (!geometry) geometry.emplace(wanted_, p);
      FLAGSTONE_RETURN_IF_ERROR(LocateMembers(p, r));
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
    if (wanted.form == RoleForm::kAttached && saved.shapes[at.member] != wanted.shapes[member]) {
      return differ(Join("of shape ", base::ShapeText(saved.shapes[at.member])),
                    Join("shape ", base::ShapeText(wanted.shapes[member])));
    }
    return {};
  }

  Status PlanSegment(const Geometry& geometry, uint32_t p, uint32_t r, uint32_t holder) {
    const Segment segment = geometry.HeldSegment(r, holder);
    const auto index = static_cast<uint32_t>(result_.segments.size());
    result_.segments.push_back({p, r, segment.bytes});
    if (segment.bytes == 0) return {};
    if (const auto source = EqualSegment(wanted_.partitions[p], holder)) {
      const Place& at = places_[0];
      const uint32_t rank = SavedGeometry(at.partition).RankAt(*source);
      result_.moves.push_back({index, 0, rank, at.partition, at.role, 0, segment.bytes});
      return {};
    }
    first_move_ = result_.moves.size();
    for (const SegmentPiece& piece : segment.pieces) {
      FLAGSTONE_RETURN_IF_ERROR(PlanPiece(p, r, index, piece));
    }
    return {};
  }

  // The position whose saved segment equals the wanted one byte for byte, because the partitions
  // have the same members in the same order and cut them alike.
  std::optional<uint32_t> EqualSegment(const Partition& wanted, uint32_t holder) const {
    const Partition& saved = saved_.partitions[places_[0].partition];
    if (saved.members.size() != places_.size()) return std::nullopt;
    for (uint32_t m = 0; m < places_.size(); ++m) {
      if (places_[m].partition != places_[0].partition || places_[m].member != m) {
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
    return holder;
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
    const Tensor& tensor =
        wanted_.tensors[wanted_.partitions[p].members[piece.slice.member].tensor];
    return Status(
        StatusCode::kInternal,
        Join("the plan carries elements [", piece.slice.begin, ", ", next, ") of tensor ",
             Quote(tensor.name), " instead of [", piece.slice.begin, ", ", piece.slice.end, ")"));
  }

  // Members that stand alone begin on 64 bytes on both sides: a gap below that which is equally
  // wide on both sides is padding on both, and what lies around it is one run.
  void Append(const Move& move, bool padded) {
    if (result_.moves.size() > first_move_) {
      Move& last = result_.moves.back();
      const uint64_t gap = move.target_offset - (last.target_offset + last.length);
      if (move.saved_rank == last.saved_rank && move.saved_partition == last.saved_partition &&
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
  size_t first_move_ = 0;  // of the segment at hand
  Moves result_;
};

}  // namespace

Result<Moves> PlanMoves(const Layout& saved, const Layout& wanted, uint32_t rank,
                        const MoveOptions& options) {
  return Planner(saved, wanted, rank, options).Run();
}

}  // namespace flagstone::partition
