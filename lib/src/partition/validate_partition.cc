// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "partition/checks.h"
#include "partition/geometry.h"
#include "partition/mesh.h"
#include "partition/ranks.h"
#include "partition/validate.h"

namespace flagstone::partition {
namespace {

using base::CheckedAdd;
using base::CheckedMultiply;
using base::Join;
using base::Quote;

constexpr uint32_t kMinChunkBytes = 4096;
constexpr uint32_t kMaxChunkBytes = uint32_t{4} << 20;

// The checks of one partition; each message begins with its name.
class PartitionCheck {
 public:
  PartitionCheck(const Layout& layout, uint32_t index)
      : layout_(layout), self_(layout.partitions[index]), index_(index) {}

  Status Run(bool check_ranks) {
    if (const auto problem = NameProblem(self_.id, kMaxIdBytes, false); !problem.empty()) {
      return Invalid(
          Join("partition ", index_, " has the id ", Quote(self_.id), ", which ", problem));
    }
    if (check_ranks) FLAGSTONE_RETURN_IF_ERROR(CheckRanks());
    ranks_ = self_.ranks.size();
    FLAGSTONE_RETURN_IF_ERROR(CheckMembers());
    FLAGSTONE_RETURN_IF_ERROR(CheckRoles());
    FLAGSTONE_RETURN_IF_ERROR(CheckBoxBlocks());
    if (const auto* mesh = std::get_if<MeshCut>(&self_.cut)) return CheckMesh(*mesh);
    if (const auto* flat = std::get_if<FlatCut>(&self_.cut)) return CheckFlat(flat->cuts);
    if (const auto* even = std::get_if<PerTensorCut>(&self_.cut)) return CheckPerTensor(even->unit);
    if (const auto* whole = std::get_if<WholeCut>(&self_.cut)) {
      return CheckOwners(whole->owners, "owners", "is owned");
    }
    if (const auto* replicated = std::get_if<ReplicatedCut>(&self_.cut)) {
      return CheckOwners(replicated->storing, "storing ranks", "is stored");
    }
    return CheckExplicit(std::get<ExplicitCut>(self_.cut).pieces);
  }

 private:
  template <typename... Pieces>
  Status Fail(const Pieces&... pieces) const {
    return Invalid(Join("partition ", Quote(self_.id), " ", pieces...));
  }

  const std::string& TensorName(uint32_t member) const {
    return layout_.tensors[self_.members[member].tensor].name;
  }

  bool MembersStandAlone() const {
    return std::holds_alternative<WholeCut>(self_.cut) ||
           std::holds_alternative<ReplicatedCut>(self_.cut);
  }

  // The ranges of one list; afterwards their sums fit 32 bits.
  Status CheckRanges(const RankList& list, std::string_view what) const {
    uint64_t count = 0;
    for (const RankRange& range : list.ranges) {
      if (range.count == 0) return Fail("has a range of no ranks in its ", what);
      const auto reach = CheckedMultiply(range.count - 1, range.stride);
      const auto last = reach ? CheckedAdd(range.first, *reach) : std::nullopt;
      if (!last || *last >= layout_.world_size) {
        return Fail("names rank ", last.value_or(std::numeric_limits<uint64_t>::max()), " in its ",
                    what, ", but the world has ", layout_.world_size, " ranks");
      }
      if (range.count > 1 && range.stride == 0) {
        return Fail("names rank ", range.first, " more than once in its ", what);
      }
      count += range.count;  // at most a world each
      if (count > layout_.world_size) {
        return Fail("names more ranks in its ", what, " than the world's ", layout_.world_size,
                    ": a rank stands there more than once");
      }
    }
    if (count == 0) return Fail("has no ranks in its ", what);
    return {};
  }

  Status CheckRanks() const {
    FLAGSTONE_RETURN_IF_ERROR(CheckRanges(self_.ranks, "rank list"));
    std::vector<RankRange> all = self_.ranks.ranges;
    for (const RankList& replica : self_.replicas) {
      FLAGSTONE_RETURN_IF_ERROR(CheckRanges(replica, "replica list"));
      if (replica.size() != self_.ranks.size()) {
        return Fail("has a replica list of ", replica.size(), " ranks, but its rank list has ",
                    self_.ranks.size(), "; they hold the same pieces, so they are equally long");
      }
      all.insert(all.end(), replica.ranges.begin(), replica.ranges.end());
    }
    const uint64_t holders = (uint64_t{self_.replicas.size()} + 1) * self_.ranks.size();
    if (holders > layout_.world_size) {
      return Fail("names ", holders,
                  " ranks in its rank list and replica lists, but the world has ",
                  layout_.world_size, ": a rank stands there more than once");
    }
    if (const auto rank = RepeatedRank(std::move(all))) {
      return Fail("names rank ", *rank, " more than once in its rank list and replica lists");
    }
    return {};
  }

  Status CheckMembers() {
    std::unordered_map<uint32_t, bool> seen;  // whether as a box
    seen.reserve(self_.members.size());
    elements_.reserve(self_.members.size());
    for (size_t m = 0; m < self_.members.size(); ++m) {
      const Member& member = self_.members[m];
      if (member.tensor >= layout_.tensors.size()) {
        return Fail("has tensor index ", member.tensor, " as member ", m, ", but the layout has ",
                    layout_.tensors.size(), " tensors");
      }
      const Tensor& tensor = layout_.tensors[member.tensor];
      auto size = SizeOfValue(tensor.shape, tensor.dtype);
      if (!size.problem.empty()) {
        return Fail("has the member ", Quote(tensor.name), ", which ", size.problem);
      }
      if (member.box) {
        FLAGSTONE_RETURN_IF_ERROR(CheckBox(tensor, *member.box));
        size.elements = *ElementCount(member.box->sizes);  // no larger than the tensor
      }
      const auto [at, is_new] = seen.try_emplace(member.tensor, member.box.has_value());
      if (!is_new && !(at->second && member.box)) {
        return Fail("has tensor ", Quote(tensor.name), " twice");
      }
      elements_.push_back(size.elements);
      const auto total = CheckedAdd(total_, size.elements);
      if (!total || *total > kMaxBytes) return Fail("has more than 2^63 - 1 elements");
      total_ = *total;
    }
    return {};
  }

  Status CheckBox(const Tensor& tensor, const Box& box) const {
    bool inside = box.offsets.size() == tensor.shape.size() &&
                  box.sizes.size() == tensor.shape.size();
    for (size_t d = 0; inside && d < tensor.shape.size(); ++d) {
      inside = base::InBounds(box.offsets[d], box.sizes[d], tensor.shape[d]);
    }
    if (inside) return {};
    return Fail("has a box of tensor ", Quote(tensor.name), " at ", base::ShapeText(box.offsets),
                " of sizes ", base::ShapeText(box.sizes), ", which is not inside of its shape ",
                base::ShapeText(tensor.shape));
  }

  // A boundary between index b - 1 and b of a dimension, by every role with blocks: rows of the
  // tensor have to be whole blocks, unless there is one only, and so has what lies before the
  // boundary.
  Status CheckBlocksAlong(uint32_t member, uint32_t dimension, uint64_t boundary) const {
    const std::vector<uint64_t>& shape = layout_.tensors[self_.members[member].tensor].shape;
    if (boundary == 0 || boundary >= shape[dimension]) return {};
    uint64_t unit = 1;
    uint64_t rows = 1;
    for (size_t d = dimension + 1; d < shape.size(); ++d) unit *= shape[d];
    for (size_t d = 0; d < dimension; ++d) rows *= shape[d];
    for (const Role& role : self_.roles) {
      if (role.form != RoleForm::kAligned || role.block == 1) continue;
      const bool whole_rows = rows == 1 || shape[dimension] * unit % role.block == 0;
      if (boundary * unit % role.block == 0 && whole_rows) continue;
      return Fail("cuts tensor ", Quote(TensorName(member)), " at index ", boundary,
                  " of dimension ", dimension, ", inside of a block of ", role.block,
                  " elements of the role ", Quote(role.name));
    }
    return {};
  }

  bool HasBlocks() const {
    return std::any_of(self_.roles.begin(), self_.roles.end(),
                       [](const Role& role) { return role.block > 1; });
  }

  Status CheckBoxBlocks() const {
    if (!HasBlocks()) return {};
    for (uint32_t m = 0; m < elements_.size(); ++m) {
      const auto& box = self_.members[m].box;
      for (uint32_t d = 0; box && elements_[m] > 0 && d < box->sizes.size(); ++d) {
        FLAGSTONE_RETURN_IF_ERROR(CheckBlocksAlong(m, d, box->offsets[d]));
        FLAGSTONE_RETURN_IF_ERROR(CheckBlocksAlong(m, d, box->offsets[d] + box->sizes[d]));
      }
    }
    return {};
  }

  Status CheckMesh(const MeshCut& cut) const {
    if (cut.axes.size() > kMaxMeshAxes) {
      return Fail("has a mesh of ", cut.axes.size(), " axes, more than ", kMaxMeshAxes);
    }
    uint64_t positions = 1;
    std::map<uint32_t, uint64_t> splits;  // of each dimension
    for (size_t i = 0; i < cut.axes.size(); ++i) {
      FLAGSTONE_RETURN_IF_ERROR(CheckAxis(i, cut.axes[i]));
      uint64_t& split = splits.try_emplace(cut.axes[i].dimension, 1).first->second;
      split *= cut.axes[i].split_factor;
      if (split > kMaxSplitFactor) {
        return Fail("cuts dimension ", cut.axes[i].dimension, " into ", split,
                    " pieces by the split factors of its mesh axes; they may be ", kMaxSplitFactor,
                    " together");
      }
      positions = CheckedMultiply(positions, cut.axes[i].size)
                      .value_or(std::numeric_limits<uint64_t>::max());
    }
    if (positions != ranks_) {
      return Fail("has a mesh of ", positions, " positions, but ", ranks_,
                  " ranks in its rank list; the list is the mesh in row-major order");
    }
    const Mesh mesh(cut);
    for (uint32_t m = 0; m < elements_.size(); ++m) {
      FLAGSTONE_RETURN_IF_ERROR(CheckMeshMember(mesh, m));
    }
    return {};
  }

  Status CheckAxis(size_t index, const MeshAxis& axis) const {
    const auto value = static_cast<unsigned>(axis.placement);
    if (value > static_cast<unsigned>(MeshPlacement::kStridedShard)) {
      return Fail("has the mesh placement value ", value, ", which is no placement");
    }
    if (axis.size == 0) return Fail("has a mesh axis ", index, " of size 0");
    const bool strided = axis.placement == MeshPlacement::kStridedShard;
    if (strided && (axis.split_factor < 1 || axis.split_factor > kMaxSplitFactor)) {
      return Fail("has a strided mesh axis ", index, " with split factor ", axis.split_factor,
                  "; it may be 1 to ", kMaxSplitFactor);
    }
    if (!strided && axis.split_factor != 1) {
      return Fail("has a mesh axis ", index, " with split factor ", axis.split_factor,
                  ", but only a strided shard has one (others: 1)");
    }
    if (axis.placement == MeshPlacement::kReplicate && axis.dimension != 0) {
      return Fail("has a replicating mesh axis ", index, " with dimension ", axis.dimension,
                  ", but it shards none (give 0)");
    }
    return {};
  }

  Status CheckMeshMember(const Mesh& mesh, uint32_t member) const {
    const Member& self = self_.members[member];
    const Tensor& tensor = layout_.tensors[self.tensor];
    std::vector<uint32_t> cut(mesh.dimensions().begin(), mesh.dimensions().end());
    if (!cut.empty() && cut.back() >= tensor.shape.size()) {
      return Fail("shards dimension ", cut.back(), " of tensor ", Quote(tensor.name),
                  ", which has ", tensor.shape.size(), " dimensions");
    }
    if (self.box) AppendCutDimensions(tensor, *self.box, cut);
    std::sort(cut.begin(), cut.end());
    cut.erase(std::unique(cut.begin(), cut.end()), cut.end());
    if (cut.size() > kMaxCutDimensions) {
      return Status(StatusCode::kUnsupported,
                    Join("partition ", Quote(self_.id), " cuts ", cut.size(),
                         " dimensions of tensor ", Quote(tensor.name), ", more than ",
                         kMaxCutDimensions));
    }
    if (!HasBlocks() || elements_[member] == 0) return {};
    for (const uint32_t d : mesh.dimensions()) {
      const uint64_t before = self.box ? self.box->offsets[d] : 0;
      const uint64_t size = self.box ? self.box->sizes[d] : tensor.shape[d];
      Status status;
      mesh.ForEachMeeting(d, size, {0, size}, [&](uint32_t, const Intervals& held) {
        for (const Interval& interval : held) {
          if (status.ok()) status = CheckBlocksAlong(member, d, before + interval.begin);
        }
      });
      FLAGSTONE_RETURN_IF_ERROR(status);
    }
    return {};
  }

  Status CheckRoles() const {
    if (self_.roles.size() > kMaxRoles) {
      return Fail("has ", self_.roles.size(), " roles, more than ", kMaxRoles);
    }
    for (size_t r = 0; r < self_.roles.size(); ++r) {
      const Role& role = self_.roles[r];
      const auto problem = NameProblem(role.name, kMaxIdBytes, false);
      if (!problem.empty()) return Fail("has the role ", Quote(role.name), ", which ", problem);
      for (size_t other = 0; other < r; ++other) {
        if (self_.roles[other].name == role.name) {
          return Fail("has the role ", Quote(role.name), " twice");
        }
      }
      FLAGSTONE_RETURN_IF_ERROR(CheckRole(role));
    }
    return {};
  }

  Status CheckRole(const Role& role) const {
    if (SizeOf(role.dtype) == 0) {
      return Fail("has the role ", Quote(role.name), " with dtype value ",
                  static_cast<unsigned>(role.dtype), ", which is no dtype");
    }
    if (static_cast<uint8_t>(role.form) > static_cast<uint8_t>(RoleForm::kPlain)) {
      return Fail("has the role ", Quote(role.name), " with form value ",
                  static_cast<unsigned>(role.form), ", which is no form");
    }
    if (role.chunk_bytes != 0 &&
        (role.chunk_bytes % base::kPageBytes != 0 || role.chunk_bytes < kMinChunkBytes ||
         role.chunk_bytes > kMaxChunkBytes)) {
      return Fail("has the role ", Quote(role.name), " with chunks of ", role.chunk_bytes,
                  " bytes; use 0 or a multiple of 4096 up to 4194304");
    }
    if (role.block == 0) {
      return Fail("has the role ", Quote(role.name), " with blocks of 0 elements; use 1 for none");
    }
    if (role.form == RoleForm::kAttached) {
      FLAGSTONE_RETURN_IF_ERROR(CheckAttached(role));
    } else if (!role.shapes.empty()) {
      return Fail("has the role ", Quote(role.name), " with ", role.shapes.size(),
                  " shapes, but only attached roles have shapes of their own");
    }
    if (role.form == RoleForm::kAligned && role.name == "weight") {
      FLAGSTONE_RETURN_IF_ERROR(CheckWeight(role));
    }
    return role.form == RoleForm::kPlain ? Status() : CheckRoleBytes(role);
  }

  Status CheckAttached(const Role& role) const {
    if (!std::holds_alternative<WholeCut>(self_.cut)) {
      return Fail("has the attached role ", Quote(role.name), ", but its rule is ",
                  RuleName(self_.cut), "; attached values are whole: use a whole partition");
    }
    if (role.shapes.size() != self_.members.size()) {
      return Fail("has the attached role ", Quote(role.name), " with ", role.shapes.size(),
                  " shapes, but ", self_.members.size(), " members; give one shape a member");
    }
    for (uint32_t m = 0; m < role.shapes.size(); ++m) {
      const auto size = SizeOfValue(role.shapes[m], role.dtype);
      if (!size.problem.empty()) {
        return Fail("has the attached role ", Quote(role.name), ", whose value of tensor ",
                    Quote(TensorName(m)), " ", size.problem);
      }
    }
    return {};
  }

  Status CheckWeight(const Role& role) const {
    for (uint32_t m = 0; m < self_.members.size(); ++m) {
      const DType dtype = layout_.tensors[self_.members[m].tensor].dtype;
      if (dtype != role.dtype) {
        return Fail("has the role 'weight' of ", Name(role.dtype), ", but tensor ",
                    Quote(TensorName(m)), " is ", Name(dtype),
                    "; members of unlike dtypes form partitions of their own");
      }
    }
    return {};
  }

  // All that the ranks store of a role, as if it lay in one segment: no single segment is longer.
  Status CheckRoleBytes(const Role& role) const {
    const uint64_t padding = MembersStandAlone() ? kMemberAlignment : 0;
    std::optional<uint64_t> elements = total_;
    if (role.form == RoleForm::kAttached) {
      elements = 0;
      for (const auto& shape : role.shapes) {
        elements = elements ? CheckedAdd(*elements, *ElementCount(shape)) : std::nullopt;
      }
    }
    const auto data = elements ? CheckedMultiply(*elements, SizeOf(role.dtype)) : std::nullopt;
    const auto bytes =
        data ? CheckedAdd(*data, uint64_t{self_.members.size()} * padding) : std::nullopt;
    if (bytes && *bytes <= kMaxBytes) return {};
    return Fail("has more than 2^63 - 1 bytes of the role ", Quote(role.name));
  }

  // A cut inside of a member at `element`, by every role whose elements belong together in blocks.
  Status CheckBlocks(uint32_t member, uint64_t element) const {
    for (const Role& role : self_.roles) {
      if (role.form != RoleForm::kAligned || element % role.block == 0) continue;
      return Fail("cuts tensor ", Quote(TensorName(member)), " at element ", element,
                  ", inside of a block of ", role.block, " elements of the role ",
                  Quote(role.name));
    }
    return {};
  }

  Status CheckFlat(const std::vector<uint64_t>& cuts) const {
    if (cuts.size() != uint64_t{ranks_} + 1) {
      return Fail("has ", cuts.size(), " cuts for ", ranks_, " ranks; a flat rule has one more cut",
                  " than ranks");
    }
    if (cuts.front() != 0) return Fail("has ", cuts.front(), " as its first cut instead of 0");
    for (size_t i = 1; i < cuts.size(); ++i) {
      if (cuts[i] < cuts[i - 1]) {
        return Fail("has cuts that fall: cut ", i, " is ", cuts[i], " after ", cuts[i - 1]);
      }
    }
    if (cuts.back() != total_) {
      return Fail("has ", cuts.back(), " as its last cut, but its members have ", total_,
                  " elements");
    }
    return CheckFlatBlocks(cuts);
  }

  Status CheckFlatBlocks(const std::vector<uint64_t>& cuts) const {
    uint32_t m = 0;
    uint64_t start = 0;  // elements before member m
    for (const uint64_t cut : cuts) {
      while (m < elements_.size() && elements_[m] <= cut - start) start += elements_[m++];
      if (m < elements_.size()) FLAGSTONE_RETURN_IF_ERROR(CheckBlocks(m, cut - start));
    }
    return {};
  }

  Status CheckPerTensor(CutUnit unit) const {
    if (unit != CutUnit::kElement && unit != CutUnit::kRow) {
      return Fail("has the cut unit value ", static_cast<unsigned>(unit), ", which is no unit");
    }
    if (!HasBlocks()) return {};
    const Geometry geometry(layout_, index_);
    for (uint32_t m = 0; m < elements_.size(); ++m) {
      // All cuts of a member are multiples of the first one.
      const uint64_t first_cut = geometry.even_piece_elements(m);
      if (first_cut < elements_[m]) FLAGSTONE_RETURN_IF_ERROR(CheckBlocks(m, first_cut));
    }
    return {};
  }

  Status CheckOwners(const std::vector<uint32_t>& owners, std::string_view what,
                     std::string_view verb) const {
    if (owners.size() != self_.members.size()) {
      return Fail("has ", owners.size(), " ", what, " for ", self_.members.size(),
                  " members; give one a member");
    }
    for (uint32_t m = 0; m < owners.size(); ++m) {
      if (owners[m] >= ranks_) {
        return Fail("says that tensor ", Quote(TensorName(m)), " ", verb, " by position ",
                    owners[m], " of its rank list, which has ", ranks_, " ranks");
      }
    }
    return {};
  }

  Status CheckExplicit(const std::vector<ExplicitPiece>& pieces) const {
    if (pieces.size() > std::numeric_limits<uint32_t>::max()) return Fail("has too many pieces");
    for (size_t i = 0; i < pieces.size(); ++i) {
      FLAGSTONE_RETURN_IF_ERROR(CheckPiece(i, pieces[i]));
    }
    std::vector<uint32_t> order(pieces.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(pieces[a].member, pieces[a].begin) <
             std::pair(pieces[b].member, pieces[b].begin);
    });
    auto next = order.begin();
    for (uint32_t m = 0; m < elements_.size(); ++m) {
      uint64_t covered = 0;
      for (; next != order.end() && pieces[*next].member == m; ++next) {
        const ExplicitPiece& piece = pieces[*next];
        if (piece.begin > covered) return Unowned(m, covered, piece.begin);
        if (piece.begin < covered) return OwnedTwice(m, piece.begin, std::min(covered, piece.end));
        FLAGSTONE_RETURN_IF_ERROR(CheckBlocks(m, piece.begin));
        covered = piece.end;
      }
      if (covered < elements_[m]) return Unowned(m, covered, elements_[m]);
    }
    return {};
  }

  Status CheckPiece(size_t i, const ExplicitPiece& piece) const {
    if (piece.member >= self_.members.size()) {
      return Fail("has piece ", i, " of member ", piece.member, ", but ", self_.members.size(),
                  " members");
    }
    if (piece.rank_index >= ranks_) {
      return Fail("gives piece ", i, " to position ", piece.rank_index,
                  " of its rank list, which has ", ranks_, " ranks");
    }
    if (piece.begin < piece.end && piece.end <= elements_[piece.member]) return {};
    return Fail("has piece ", i, " [", piece.begin, ", ", piece.end, ") of tensor ",
                Quote(TensorName(piece.member)), ", which has ", elements_[piece.member],
                " elements; a piece lies inside and is not empty");
  }

  Status Unowned(uint32_t member, uint64_t begin, uint64_t end) const {
    return Fail("gives elements [", begin, ", ", end, ") of tensor ", Quote(TensorName(member)),
                " to no rank");
  }

  Status OwnedTwice(uint32_t member, uint64_t begin, uint64_t end) const {
    return Fail("gives elements [", begin, ", ", end, ") of tensor ", Quote(TensorName(member)),
                " twice");
  }

  const Layout& layout_;
  const Partition& self_;
  uint32_t index_;
  uint32_t ranks_ = 0;
  uint64_t total_ = 0;              // elements of all members
  std::vector<uint64_t> elements_;  // per member
};

}  // namespace

Status ValidatePartition(const Layout& layout, uint32_t index, bool ranks_are_known) {
  FLAGSTONE_RETURN_IF_ERROR(CheckWorldSize(layout));
  return PartitionCheck(layout, index).Run(!ranks_are_known);
}

}  // namespace flagstone::partition
