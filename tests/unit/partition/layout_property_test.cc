// SPDX-License-Identifier: Apache-2.0
// Slices, segments, look-ups and validation against the brute-force model, on random layouts.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "flagstone/partition.h"
#include "model.h"
#include "partition/geometry.h"
#include "partition/moves.h"
#include "random_layout.h"

namespace flagstone::partition_tests {
namespace {

using partition::Geometry;
using partition::PlanMoves;
using partition::Segment;
using partition::SegmentPiece;
using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

struct Counts {
  uint64_t layouts = 0, partitions = 0, segments = 0, elements = 0, refused = 0;
};

// The elements of slices, one by one; the members of slices without elements.
std::pair<std::vector<std::pair<uint32_t, uint64_t>>, std::vector<uint32_t>> Elements(
    const std::vector<Slice>& slices) {
  std::pair<std::vector<std::pair<uint32_t, uint64_t>>, std::vector<uint32_t>> result;
  for (const Slice& slice : slices) {
    if (slice.begin == slice.end) result.second.push_back(slice.member);
    for (uint64_t i = slice.begin; i < slice.end; ++i) result.first.emplace_back(slice.member, i);
  }
  return result;
}

AssertionResult SlicesAgree(const std::vector<Slice>& slices, const ModelSegment& expected) {
  const auto [elements, empty] = Elements(slices);
  if (empty != expected.empty_members) return AssertionFailure() << "empty slices differ";
  if (elements.size() != expected.elements.size()) {
    return AssertionFailure() << elements.size() << " elements, not " << expected.elements.size();
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] != std::pair(expected.elements[i].member, expected.elements[i].index)) {
      return AssertionFailure() << "element " << i << " of the slices differs";
    }
  }
  return AssertionSuccess();
}

AssertionResult SegmentAgrees(const Segment& segment, const ModelSegment& expected, uint64_t size) {
  if (segment.bytes != expected.bytes) {
    return AssertionFailure() << segment.bytes << " bytes, not " << expected.bytes;
  }
  size_t at = 0;
  for (const SegmentPiece& piece : segment.pieces) {
    if (piece.byte_size != (piece.slice.end - piece.slice.begin) * size) {
      return AssertionFailure() << "a piece of " << piece.byte_size << " bytes";
    }
    for (uint64_t i = piece.slice.begin; i < piece.slice.end; ++i, ++at) {
      const uint64_t byte = piece.byte_offset + (i - piece.slice.begin) * size;
      if (at >= expected.elements.size() || expected.elements[at].byte_offset != byte ||
          expected.elements[at].member != piece.slice.member || expected.elements[at].index != i) {
        return AssertionFailure() << "element " << i << " of member " << piece.slice.member
                                  << " at byte " << byte;
      }
    }
  }
  if (at != expected.elements.size()) return AssertionFailure() << "elements are missing";
  return AssertionSuccess();
}

// Where the model's ranks store each element of a role: by member and index, position and byte.
using Places = std::map<std::pair<uint32_t, uint64_t>, std::pair<uint32_t, uint64_t>>;

AssertionResult FindStoredAgrees(const Draw& draw, const Geometry& geometry, uint32_t role,
                                 const Places& places, Counts& counts) {
  const Partition& partition = geometry.partition();
  for (uint32_t m = 0; m < partition.members.size(); ++m) {
    const uint64_t count = geometry.role_elements(role, m);
    for (int ask = 0; ask < 3; ++ask) {
      // The whole, a part, perhaps nothing.
      uint64_t begin = ask == 0 ? 0 : draw(count + 1);
      uint64_t end = ask == 0 ? count : draw(count + 1);
      if (begin > end) std::swap(begin, end);
      uint64_t next = begin;
      for (const auto& piece : geometry.FindStored(role, m, begin, end)) {
        if (piece.slice.member != m || piece.slice.begin != next || piece.slice.end <= next) {
          return AssertionFailure() << "pieces of member " << m << " do not follow each other";
        }
        for (; next < piece.slice.end; ++next, ++counts.elements) {
          const uint64_t byte =
              piece.byte_offset + (next - piece.slice.begin) * SizeOf(partition.roles[role].dtype);
          if (places.at({m, next}) != std::pair(piece.rank_index, byte)) {
            return AssertionFailure() << "element " << next << " of member " << m << " is not at "
                                      << piece.rank_index << ", " << byte;
          }
        }
      }
      if (next != end) return AssertionFailure() << "member " << m << " ends at " << next;
    }
  }
  return AssertionSuccess();
}

// The local tensors of a rank under a mesh rule, element by element.
AssertionResult LocalsAgree(const Layout& layout, const Partition& partition, uint32_t rank,
                            const ModelSegment& expected) {
  size_t at = 0;
  for (uint32_t m = 0; m < partition.members.size(); ++m) {
    const auto local = HeldTensor(layout, partition.id, rank, m);
    if (!local.ok()) return AssertionFailure() << local.status().ToString();
    std::vector<uint64_t> elements(*ElementCount(local->shape), ~uint64_t{0});
    for (const LocalTensor::Part& part : local->parts) {
      const auto& shape = layout.tensors[partition.members[m].tensor].shape;
      const std::vector<uint64_t> from = IndexesOf(shape, part.box);
      const std::vector<uint64_t> to = IndexesOf(local->shape, Box{part.offsets, part.box.sizes});
      for (size_t i = 0; i < from.size(); ++i) elements[to[i]] = from[i];
    }
    for (const uint64_t element : elements) {
      if (at == expected.elements.size() || expected.elements[at].in_tensor != element) {
        return AssertionFailure() << "the local tensor of member " << m;
      }
      ++at;
    }
  }
  if (at != expected.elements.size()) return AssertionFailure() << "local tensors are too small";
  return AssertionSuccess();
}

AssertionResult PartitionAgrees(const Draw& draw, const Layout& layout, uint32_t p,
                                Counts& counts) {
  const Partition& partition = layout.partitions[p];
  const Model model(layout, p);
  const Geometry geometry(layout, p);
  const std::vector<uint32_t> ranks = Expand(partition.ranks);
  std::map<uint32_t, std::pair<uint32_t, bool>> holders;  // rank: position, is in the rank list
  for (const RankList& replica : partition.replicas) {
    const auto list = Expand(replica);
    for (uint32_t i = 0; i < list.size(); ++i) holders[list[i]] = {i, false};
  }
  for (uint32_t i = 0; i < ranks.size(); ++i) holders[ranks[i]] = {i, true};
  std::set<std::pair<uint32_t, uint64_t>> owned;
  for (uint32_t rank = 0; rank < layout.world_size; ++rank) {
    const auto held = HeldSlices(layout, partition.id, rank);
    const auto stored = StoredSlices(layout, partition.id, rank);
    if (!held.ok() || !stored.ok()) return AssertionFailure() << held.status().ToString();
    const auto at = holders.find(rank);
    const bool holds = at != holders.end();
    const bool stores = holds && at->second.second;
    if (geometry.HolderIndex(rank).has_value() != holds) return AssertionFailure() << "holder";
    const uint32_t position = holds ? at->second.first : 0;
    if (auto agree = SlicesAgree(*held, holds ? model.HeldSlices(position) : ModelSegment());
        !agree) {
      return agree << " (held by rank " << rank << ")";
    }
    if (auto agree = SlicesAgree(*stored, stores ? model.StoredSlices(position) : ModelSegment());
        !agree) {
      return agree << " (stored by rank " << rank << ")";
    }
    for (const ModelElement& element :
         (stores ? model.StoredSlices(position) : ModelSegment()).elements) {
      if (!owned.insert({element.member, element.in_tensor}).second) {
        return AssertionFailure() << "an element has two owners";
      }
    }
    if (!holds || geometry.mesh() == nullptr) continue;
    if (auto agree = LocalsAgree(layout, partition, rank, model.HeldSlices(position)); !agree) {
      return agree << " (rank " << rank << ")";
    }
  }
  uint64_t total = 0;
  for (uint32_t m = 0; m < partition.members.size(); ++m) total += model.elements(m);
  if (owned.size() != total) return AssertionFailure() << "an element has no owner";
  for (uint32_t r = 0; r < partition.roles.size(); ++r) {
    if (partition.roles[r].form == RoleForm::kPlain) continue;
    const uint64_t size = SizeOf(partition.roles[r].dtype);
    Places places;
    for (uint32_t i = 0; i < ranks.size(); ++i) {
      if (geometry.RankAt(i) != ranks[i]) return AssertionFailure() << "RankAt(" << i << ")";
      const ModelSegment stored = model.Stored(r, i);
      for (const ModelElement& element : stored.elements) {
        places[{element.member, element.index}] = {i, element.byte_offset};
      }
      if (auto agree = SegmentAgrees(geometry.StoredSegment(r, i), stored, size); !agree)
        return agree;
      if (auto agree = SegmentAgrees(geometry.HeldSegment(r, i), model.Held(r, i), size); !agree) {
        return agree;
      }
      ++counts.segments;
      counts.elements += stored.elements.size();
    }
    if (geometry.mesh() != nullptr) continue;
    if (auto agree = FindStoredAgrees(draw, geometry, r, places, counts); !agree) return agree;
  }
  ++counts.partitions;
  return AssertionSuccess();
}

AssertionResult LayoutAgrees(const Draw& draw, const Layout& layout, Counts& counts) {
  if (const Status status = ValidateLayout(layout); !status.ok()) {
    return AssertionFailure() << status.ToString();
  }
  for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
    if (auto agree = PartitionAgrees(draw, layout, p, counts); !agree) {
      return agree << " in a partition of rule " << RuleName(layout.partitions[p].cut);
    }
  }
  ++counts.layouts;
  return AssertionSuccess();
}

TEST(LayoutProperty, RandomLayoutsAgreeWithTheModel) {
  Counts counts;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    const Draw draw = SeededDraw(seed);
    // Mostly small worlds; some with far more ranks than elements.
    const uint64_t most_ranks = seed % 100 == 0 ? 1024 : seed % 3 == 0 ? 64 : 9;
    // Some with many members: sums over members are kept for every 32nd only.
    const auto model = seed % 25 == 1 ? RandomModel(draw, 150, 20) : RandomModel(draw, 10, 600);
    const Layout layout = RandomLayout(draw, model, {.most_ranks = most_ranks});
    ASSERT_TRUE(LayoutAgrees(draw, layout, counts)) << "seed " << seed;
  }
  std::printf("%lu layouts, %lu partitions, %lu segments, %lu elements compared\n", counts.layouts,
              counts.partitions, counts.segments, counts.elements);
}

RC_GTEST_PROP(LayoutProperty, ShrinkingLayoutsAgreeWithTheModel, ()) {
  Counts counts;
  const Draw draw = RapidCheckDraw();
  const auto model = RandomModel(draw, 5, 100);
  const Layout layout = RandomLayout(draw, model, {.most_ranks = 9});
  const auto agree = LayoutAgrees(draw, layout, counts);
  RC_ASSERT(agree || (RC_LOG() << agree.message(), false));
}

// A cut is refused exactly when it falls inside of a block.
TEST(LayoutProperty, BlocksAreCutOnTheirGridAlone) {
  uint64_t fine = 0, refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Draw draw = SeededDraw(seed + 300000);
    const auto model = RandomModel(draw, 3, 200);
    // What several partitions give of a tensor has one block: so without boxes here.
    Layout layout = RandomLayout(draw, model, {.most_ranks = 4, .boxes = false});
    bool on_grid = true;
    for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
      const uint64_t block = uint64_t{1} << draw(4);
      for (Role& role : layout.partitions[p].roles) role.block = block;
      const Model brute(layout, p);
      on_grid = on_grid && brute.IsOnGrid(block);
    }
    const Status status = ValidateLayout(layout);
    ASSERT_EQ(status.ok(), on_grid) << "seed " << seed << ": " << status.ToString();
    ++(on_grid ? fine : refused);
  }
  std::printf("%lu on the grid, %lu refused\n", fine, refused);
}

// A number that hostile files like, or one that is off by one.
template <typename T>
void Spoil(const Draw& draw, T& number) {
  static constexpr uint64_t kMost = ~uint64_t{0};
  static constexpr uint64_t kNumbers[] = {
      0,    1,        2,           3,           64,         255,      256,
      4095, 1u << 20, kMost >> 33, kMost >> 32, kMost >> 1, 1u << 31, kMost - kMost / 2,
      kMost};
  switch (draw(3)) {
    case 0:
      number = static_cast<T>(static_cast<uint64_t>(number) + 1);
      break;
    case 1:
      number = static_cast<T>(static_cast<uint64_t>(number) - 1);
      break;
    default:
      number = static_cast<T>(kNumbers[draw(std::size(kNumbers))]);
  }
}

void Spoil(const Draw& draw, ExplicitPiece& piece) {
  const uint64_t field = draw(4);
  if (field == 0) Spoil(draw, piece.rank_index);
  if (field == 1) Spoil(draw, piece.member);
  if (field == 2) Spoil(draw, piece.begin);
  if (field == 3) Spoil(draw, piece.end);
}

void Spoil(const Draw& draw, MeshAxis& axis) {
  const uint64_t field = draw(4);
  if (field == 0) Spoil(draw, axis.size);
  if (field == 1) Spoil(draw, axis.placement);
  if (field == 2) Spoil(draw, axis.dimension);
  if (field == 3) Spoil(draw, axis.split_factor);
}

template <typename T>
void Spoil(const Draw& draw, std::vector<T>& list) {
  if (draw(4) == 0) list.resize(draw(list.size() + 2));
  if (!list.empty()) Spoil(draw, list[draw(list.size())]);
}

void Spoil(const Draw& draw, CutRule& cut) {
  if (auto* flat = std::get_if<FlatCut>(&cut)) Spoil(draw, flat->cuts);
  if (auto* even = std::get_if<PerTensorCut>(&cut)) Spoil(draw, even->unit);
  if (auto* whole = std::get_if<WholeCut>(&cut)) Spoil(draw, whole->owners);
  if (auto* replicated = std::get_if<ReplicatedCut>(&cut)) Spoil(draw, replicated->storing);
  if (auto* stated = std::get_if<ExplicitCut>(&cut)) Spoil(draw, stated->pieces);
  if (auto* mesh = std::get_if<MeshCut>(&cut)) Spoil(draw, mesh->axes);
}

void Spoil(const Draw& draw, Role& role) {
  const uint64_t field = draw(5);
  if (field == 0) Spoil(draw, role.dtype);
  if (field == 1) Spoil(draw, role.block);
  if (field == 2) Spoil(draw, role.chunk_bytes);
  if (field == 3) Spoil(draw, role.form);
  if (field == 4 && !role.shapes.empty()) Spoil(draw, role.shapes[draw(role.shapes.size())]);
}

// Spoil one number somewhere.
void Spoil(const Draw& draw, Layout& layout) {
  if (layout.tensors.empty() || layout.partitions.empty()) return;
  Tensor& tensor = layout.tensors[draw(layout.tensors.size())];
  Partition& partition = layout.partitions[draw(layout.partitions.size())];
  std::vector<RankRange>& ranges = partition.ranks.ranges;
  RankRange& range = ranges[draw(ranges.size())];
  const uint64_t field = draw(16);
  if (field == 0) Spoil(draw, layout.world_size);
  if (field == 1) Spoil(draw, tensor.shape);
  if (field == 2) Spoil(draw, tensor.dtype);
  if (field == 3 && tensor.group) Spoil(draw, *tensor.group);
  if (field == 4) Spoil(draw, range.first);
  if (field == 5) Spoil(draw, range.count);
  if (field == 6) Spoil(draw, range.stride);
  if (field == 7) partition.replicas.push_back(partition.ranks), Spoil(draw, range.first);
  if (field == 8 && !partition.members.empty()) Spoil(draw, partition.members.back().tensor);
  if (field == 9) Spoil(draw, partition.roles[draw(partition.roles.size())]);
  if (field >= 10 && field < 14) Spoil(draw, partition.cut);
  if (field < 14 || partition.members.empty()) return;
  auto& box = partition.members[draw(partition.members.size())].box;
  if (!box) box = Box{std::vector<uint64_t>(tensor.shape.size(), 0), tensor.shape};
  Spoil(draw, draw(2) == 0 ? box->offsets : box->sizes);
}

bool IsSmall(const std::vector<uint64_t>& shape) {
  // The model counts through each dimension of a tensor without elements as well.
  for (const uint64_t size : shape) {
    if (size > 10000) return false;
  }
  return ElementCount(shape).value_or(~uint64_t{0}) <= 10000;
}

// Whether the model can count through it.
bool IsSmall(const Layout& layout) {
  bool small = layout.world_size <= 64;
  for (const Tensor& tensor : layout.tensors) small = small && IsSmall(tensor.shape);
  for (const Partition& partition : layout.partitions) {
    for (const Role& role : partition.roles) {
      for (const auto& shape : role.shapes) small = small && IsSmall(shape);
    }
  }
  return small;
}

// What validation lets through can be computed with, and it owns each element once.
TEST(LayoutProperty, SpoiltLayoutsAreRefusedOrRight) {
  Counts counts;
  for (uint64_t seed = 0; seed < 12000; ++seed) {
    const Draw draw = SeededDraw(seed + 400000);
    const auto model = RandomModel(draw, 4, 60);
    Layout layout = RandomLayout(draw, model, {.most_ranks = 6});
    Spoil(draw, layout);
    if (draw(4) == 0) Spoil(draw, layout);
    if (const Status status = ValidateLayout(layout); !status.ok()) {
      ASSERT_FALSE(status.message().empty());
      // The one-partition check behind HeldSlices must not be led outside either.
      for (const Partition& partition : layout.partitions) {
        (void)HeldSlices(layout, partition.id, 0);
        (void)StoredSlices(layout, partition.id, layout.world_size / 2);
      }
      ++counts.refused;
    } else if (IsSmall(layout)) {
      ASSERT_TRUE(LayoutAgrees(draw, layout, counts)) << "seed " << seed;
    } else {
      for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
        const Geometry geometry(layout, p);
        const auto last = layout.partitions[p].ranks.size() - 1;
        for (uint32_t r = 0; r < layout.partitions[p].roles.size(); ++r) {
          if (layout.partitions[p].roles[r].form == RoleForm::kPlain) continue;
          ASSERT_LE(geometry.HeldSegment(r, last).bytes, (uint64_t{1} << 63) - 1);
        }
      }
      ASSERT_TRUE(PlanMoves(layout, layout, 0, {true, {}}).ok());
    }
  }
  std::printf("%lu refused, %lu accepted and small\n", counts.refused, counts.layouts);
}

}  // namespace
}  // namespace flagstone::partition_tests
