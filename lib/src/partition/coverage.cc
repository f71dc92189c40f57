// SPDX-License-Identifier: Apache-2.0
// Ownership is per (tensor, role, element): what gives a role of a tensor covers it exactly.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "partition/checks.h"

namespace flagstone::partition {
namespace {

using base::Join;
using base::Quote;

// A member that gives a role of the tensor at hand.
struct Giver {
  uint32_t partition = 0;
  uint32_t member = 0;
  uint32_t role = 0;  // in the partition
};

// Bounds the memory of one comparison of boxes to some tens of megabytes.
constexpr uint64_t kMaxCorners = uint64_t{1} << 20;

// Whether boxes cover a tensor exactly, by their corners: the number of boxes over an element is the
// sum over all corners at or before it, counted +1 or -1 by how many of a corner's coordinates are
// upper ends. So the boxes cover the tensor once where these sums equal those of the tensor itself
// (the n-dimensional difference of a sum determines the sum).
class BoxCover {
 public:
  BoxCover(const Layout& layout, uint32_t tensor, std::span<const Giver> givers)
      : layout_(layout), tensor_(layout.tensors[tensor]), givers_(givers) {}

  Status Run() {
    if (ElementCount(tensor_.shape) == 0) return {};
    for (const Giver& giver : givers_) {
      const auto& box = MemberOf(giver).box;
      if (box) AppendCutDimensions(tensor_, *box, dimensions_);
    }
    std::sort(dimensions_.begin(), dimensions_.end());
    dimensions_.erase(std::unique(dimensions_.begin(), dimensions_.end()), dimensions_.end());
    const bool too_many = dimensions_.size() > kMaxCutDimensions;
    if (too_many || (givers_.size() + 1) << dimensions_.size() > kMaxCorners) {
      return Status(StatusCode::kUnsupported,
                    Join("the role ", Quote(RoleName()), " of tensor ", Quote(tensor_.name),
                         " is cut into ", givers_.size(), " boxes along ", dimensions_.size(),
                         " dimensions, which is more than this version can compare"));
    }
    FindEdges();
    AddCorners(std::nullopt, -1);
    for (const Giver& giver : givers_) AddCorners(MemberOf(giver).box, 1);
    std::sort(corners_.begin(), corners_.end(),
              [](const Corner& a, const Corner& b) { return a.edges < b.edges; });
    for (auto at = corners_.begin(); at != corners_.end();) {
      int64_t sum = 0;
      const auto first = at;
      for (; at != corners_.end() && at->edges == first->edges; ++at) sum += at->sign;
      // The first that is not 0, row-major: nothing before it adds to the element there.
      if (sum != 0) return Fail(first->edges, sum);
    }
    return {};
  }

 private:
  using Edges = std::array<uint32_t, kMaxCutDimensions>;  // positions in edges_, by cut dimension
  struct Corner {
    Edges edges{};
    int32_t sign = 0;
  };

  const Member& MemberOf(const Giver& giver) const {
    return layout_.partitions[giver.partition].members[giver.member];
  }
  const std::string& PartitionOf(const Giver& giver) const {
    return layout_.partitions[giver.partition].id;
  }
  const std::string& RoleName() const {
    return layout_.partitions[givers_[0].partition].roles[givers_[0].role].name;
  }

  // Where a box, or the whole tensor, begins and ends.
  std::pair<uint64_t, uint64_t> Extent(const std::optional<Box>& box, uint32_t dimension) const {
    if (!box) return {0, tensor_.shape[dimension]};
    return {box->offsets[dimension], box->offsets[dimension] + box->sizes[dimension]};
  }

  void FindEdges() {
    for (const uint32_t d : dimensions_) {
      std::vector<uint64_t>& edges = edges_.emplace_back();
      edges = {0, tensor_.shape[d]};
      for (const Giver& giver : givers_) {
        const auto [begin, end] = Extent(MemberOf(giver).box, d);
        edges.push_back(begin);
        edges.push_back(end);
      }
      std::sort(edges.begin(), edges.end());
      edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    }
  }

  void AddCorners(const std::optional<Box>& box, int32_t sign) {
    std::array<std::array<uint32_t, 2>, kMaxCutDimensions> ends{};
    for (size_t i = 0; i < dimensions_.size(); ++i) {
      const auto [begin, end] = Extent(box, dimensions_[i]);
      const auto position = [&](uint64_t edge) {
        return static_cast<uint32_t>(
            std::lower_bound(edges_[i].begin(), edges_[i].end(), edge) - edges_[i].begin());
      };
      ends[i] = {position(begin), position(end)};
    }
    for (uint32_t upper = 0; upper < uint32_t{1} << dimensions_.size(); ++upper) {
      Corner corner;
      corner.sign = sign;
      for (size_t i = 0; i < dimensions_.size(); ++i) {
        const bool is_upper = (upper >> i & 1) != 0;
        corner.edges[i] = ends[i][is_upper ? 1 : 0];
        if (is_upper) corner.sign = -corner.sign;
      }
      corners_.push_back(corner);
    }
  }

  // The coverage of the cell that begins at these edges is 1 + surplus.
  Status Fail(const Edges& edges, int64_t surplus) const {
    std::vector<uint64_t> index(tensor_.shape.size());
    for (size_t i = 0; i < dimensions_.size(); ++i) index[dimensions_[i]] = edges_[i][edges[i]];
    // The row of the cell along the last dimension that is cut.
    const uint32_t last = dimensions_.empty() ? 0 : dimensions_.back();
    uint64_t begin = 0;
    uint64_t unit = 1;
    for (size_t d = 0; d < index.size(); ++d) begin = begin * tensor_.shape[d] + index[d];
    for (size_t d = last + 1; d < index.size(); ++d) unit *= tensor_.shape[d];
    uint64_t end = *ElementCount(tensor_.shape);
    if (!dimensions_.empty()) {
      const auto& row = edges_[dimensions_.size() - 1];
      end = begin + (row[edges[dimensions_.size() - 1] + 1] - index[last]) * unit;
    }
    const std::string range = Join("elements [", begin, ", ", end, ") of the role ",
                                   Quote(RoleName()), " of tensor ", Quote(tensor_.name));
    if (surplus < 0) return Invalid(Join(range, " are given to no rank"));
    std::vector<std::string> names;
    for (const Giver& giver : givers_) {
      const bool inside = std::ranges::all_of(dimensions_, [&](uint32_t d) {
        const auto [from, to] = Extent(MemberOf(giver).box, d);
        return from <= index[d] && index[d] < to;
      });
      if (inside) names.push_back(PartitionOf(giver));
    }
    return Invalid(Join(range, " are given ", surplus + 1, " times: by partition ",
                        Quote(names.at(0)), " and by partition ", Quote(names.at(1))));
  }

  const Layout& layout_;
  const Tensor& tensor_;
  const std::span<const Giver> givers_;
  std::vector<uint32_t> dimensions_;          // that any box cuts, rising
  std::vector<std::vector<uint64_t>> edges_;  // by cut dimension: where boxes begin or end, rising
  std::vector<Corner> corners_;
};

// All that give one role of one tensor.
Status CheckGivers(const Layout& layout, uint32_t tensor, std::span<const Giver> givers,
                   bool complete) {
  const auto role_of = [&](const Giver& giver) -> const Role& {
    return layout.partitions[giver.partition].roles[giver.role];
  };
  const auto is_box = [&](const Giver& giver) {
    return layout.partitions[giver.partition].members[giver.member].box.has_value();
  };
  const Giver& first = givers.front();
  const std::string& name = layout.tensors[tensor].name;
  for (const Giver& giver : givers.subspan(1)) {
    if (!is_box(giver) || !is_box(first)) {
      return Invalid(Join("the role ", Quote(role_of(first).name), " of tensor ", Quote(name),
                          " is given by partition ", Quote(layout.partitions[first.partition].id),
                          " and by partition ", Quote(layout.partitions[giver.partition].id),
                          "; several members give a role of a tensor only as boxes of it"));
    }
    const Role& a = role_of(first);
    const Role& b = role_of(giver);
    if (a.dtype != b.dtype || a.form != b.form || a.block != b.block) {
      const auto text = [](const Role& role) {
        return Join(Name(role.form), " ", Name(role.dtype), " in blocks of ", role.block);
      };
      return Invalid(Join("the role ", Quote(a.name), " of tensor ", Quote(name), " is ", text(a),
                          " in partition ", Quote(layout.partitions[first.partition].id), ", but ",
                          text(b), " in partition ",
                          Quote(layout.partitions[giver.partition].id)));
    }
  }
  if (!is_box(first) || !complete) return {};
  return BoxCover(layout, tensor, givers).Run();
}

}  // namespace

void AppendCutDimensions(const Tensor& tensor, const Box& box, std::vector<uint32_t>& out) {
  for (uint32_t d = 0; d < tensor.shape.size(); ++d) {
    if (box.sizes[d] != tensor.shape[d]) out.push_back(d);
  }
}

Status CheckCoverage(const Layout& layout, bool complete) {
  std::unordered_map<std::string_view, uint32_t> role_ids;
  std::vector<std::vector<uint32_t>> roles(layout.partitions.size());
  std::vector<uint32_t> firsts(layout.tensors.size() + 1);  // counting sort of members by tensor
  std::vector<bool> boxed(layout.tensors.size());
  for (size_t p = 0; p < layout.partitions.size(); ++p) {
    for (const Role& role : layout.partitions[p].roles) {
      const auto next = static_cast<uint32_t>(role_ids.size());
      roles[p].push_back(role_ids.try_emplace(role.name, next).first->second);
    }
    for (const Member& member : layout.partitions[p].members) {
      ++firsts[member.tensor + 1];
      if (member.box) boxed[member.tensor] = true;
    }
  }
  std::partial_sum(firsts.begin(), firsts.end(), firsts.begin());
  std::vector<std::pair<uint32_t, uint32_t>> users(firsts.back());  // partition, member
  std::vector<uint32_t> free_slots = firsts;
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    const auto& members = layout.partitions[p].members;
    for (uint32_t m = 0; m < members.size(); ++m) users[free_slots[members[m].tensor]++] = {p, m};
  }
  std::vector<std::vector<Giver>> givers(role_ids.size());
  std::vector<uint32_t> given;  // roles of the tensor at hand
  for (uint32_t t = 0; t < layout.tensors.size(); ++t) {
    if (firsts[t + 1] - firsts[t] < 2 && !boxed[t]) continue;
    for (uint32_t i = firsts[t]; i < firsts[t + 1]; ++i) {
      const auto [p, m] = users[i];
      for (uint32_t r = 0; r < roles[p].size(); ++r) {
        std::vector<Giver>& of_role = givers[roles[p][r]];
        if (of_role.empty()) given.push_back(roles[p][r]);
        of_role.push_back({p, m, r});
      }
    }
    for (const uint32_t role : given) {
      FLAGSTONE_RETURN_IF_ERROR(CheckGivers(layout, t, givers[role], complete));
      givers[role].clear();
    }
    given.clear();
  }
  return {};
}

}  // namespace flagstone::partition
