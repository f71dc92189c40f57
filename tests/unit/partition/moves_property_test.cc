// SPDX-License-Identifier: Apache-2.0
// The bytes that moves carry against the brute-force model, on thousands of random pairs of
// layouts.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "flagstone/partition.h"
#include "model.h"
#include "partition/geometry.h"
#include "partition/moves.h"
#include "random_layout.h"

namespace flagstone::partition_tests {
namespace {

using partition::Geometry;
using partition::Move;
using partition::MoveOptions;
using partition::Moves;
using partition::PlanMoves;
using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

struct Counts {
  uint64_t pairs = 0, plans = 0, moves = 0, repetitions = 0, bytes = 0, elements = 0, refused = 0;
};

// A saved layout with the bytes of all its rank files.
class Saved {
 public:
  static constexpr std::byte kPadding{0xA5};

  explicit Saved(const Layout& layout) : layout_(layout) {
    for (uint32_t p = 0; p < layout.partitions.size(); ++p) models_.emplace_back(layout, p);
  }

  const Layout& layout() const { return layout_; }

  // The segment of a global rank; empty where it has none.
  const std::vector<std::byte>& Bytes(uint32_t partition, uint32_t role, uint32_t rank) {
    const auto [at, fresh] = segments_.try_emplace({partition, role, rank});
    if (!fresh) return at->second;
    const auto ranks = Expand(layout_.partitions[partition].ranks);
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (found != ranks.end()) {
      const auto position = static_cast<uint32_t>(found - ranks.begin());
      const Model& model = models_[partition];
      at->second =
          SegmentBytes(layout_, model, role, model.Stored(role, position), kPadding, ModelId);
    }
    return at->second;
  }

 private:
  const Layout& layout_;
  std::vector<Model> models_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<std::byte>> segments_;
};

// Call `each` with source and target offset of every repetition of a move.
template <typename Function>
void EachRepetition(std::span<const RunLevel> levels, uint64_t source, uint64_t target,
                    const Function& each) {
  if (levels.empty()) return each(source, target);
  for (uint64_t i = 0; i < levels[0].count; ++i) {
    EachRepetition(levels.subspan(1), source + i * levels[0].source_stride,
                   target + i * levels[0].target_stride, each);
  }
}

// Fill the wanted segments as the moves say; each byte at most once.
AssertionResult Apply(const Moves& moves, Saved& saved,
                      std::vector<std::vector<std::byte>>& targets, Counts& counts) {
  std::optional<Move> last;
  std::vector<std::vector<bool>> carried;
  for (const auto& target : targets) carried.emplace_back(target.size());
  for (const Move& move : moves.moves) {
    const auto& source = saved.Bytes(move.saved_partition, move.saved_role, move.saved_rank);
    auto& target = targets.at(move.wanted);
    if (move.length == 0) return AssertionFailure() << "a move of nothing";
    if (last && last->wanted == move.wanted) {
      if (move.target_offset <= last->target_offset) {
        return AssertionFailure() << "moves are out of order";
      }
      if (move.level_count == 0 && last->level_count == 0 &&
          move.target_offset == last->target_offset + last->length &&
          move.saved_rank == last->saved_rank && move.saved_partition == last->saved_partition &&
          move.saved_role == last->saved_role &&
          move.source_offset == last->source_offset + last->length) {
        return AssertionFailure() << "neighbours are not joined";
      }
    } else if (last && last->wanted > move.wanted) {
      return AssertionFailure() << "segments are out of order";
    }
    AssertionResult result = AssertionSuccess();
    EachRepetition(moves.LevelsOf(move), move.source_offset, move.target_offset,
                   [&](uint64_t from, uint64_t to) {
                     if (!result) return;
                     if (from + move.length > source.size()) result = AssertionFailure() << "source";
                     if (to + move.length > target.size()) result = AssertionFailure() << "target";
                     for (uint64_t i = 0; result && i < move.length; ++i) {
                       if (carried[move.wanted][to + i]) {
                         result = AssertionFailure() << "a byte is carried twice";
                       }
                       carried[move.wanted][to + i] = true;
                       target[to + i] = source[from + i];
                     }
                     ++counts.repetitions;
                     counts.bytes += move.length;
                   });
    if (!result) return result;
    last = move;
    ++counts.moves;
  }
  return AssertionSuccess();
}

// Which segments a rank is to get, in which order.
std::vector<std::pair<uint32_t, uint32_t>> ExpectedSegments(const Layout& wanted, uint32_t rank,
                                                            const MoveOptions& options,
                                                            bool plain = false) {
  std::vector<std::pair<uint32_t, uint32_t>> expected;
  for (const bool replicated : {false, true}) {
    for (uint32_t p = 0; p < wanted.partitions.size(); ++p) {
      const Partition& partition = wanted.partitions[p];
      const bool is = std::holds_alternative<ReplicatedCut>(partition.cut);
      if (is != replicated || (is && !options.replicated)) continue;
      auto lists = partition.replicas;
      lists.push_back(partition.ranks);
      const bool stands = std::any_of(lists.begin(), lists.end(), [&](const RankList& list) {
        const auto ranks = Expand(list);
        return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
      });
      for (uint32_t r = 0; stands && r < partition.roles.size(); ++r) {
        const Role& role = partition.roles[r];
        const bool asked =
            options.roles.empty() ||
            std::find(options.roles.begin(), options.roles.end(), role.name) != options.roles.end();
        if (asked && (plain || role.form != RoleForm::kPlain)) expected.emplace_back(p, r);
      }
    }
  }
  return expected;
}

// A role that is asked for by name and that only what is not asked for has.
bool AsksForNothing(const Layout& wanted, const MoveOptions& options) {
  if (options.replicated) return false;
  return std::ranges::any_of(options.roles, [&](const std::string& name) {
    return std::ranges::all_of(wanted.partitions, [&](const Partition& partition) {
      return std::holds_alternative<ReplicatedCut>(partition.cut) ||
             std::ranges::none_of(partition.roles,
                                  [&](const Role& role) { return role.name == name; });
    });
  });
}

AssertionResult PlanAgrees(Saved& saved, const Layout& wanted, const std::vector<Model>& models,
                           uint32_t rank, const MoveOptions& options, Counts& counts) {
  constexpr std::byte kUntouched{0xEE};
  const auto moves = PlanMoves(saved.layout(), wanted, rank, options);
  if (AsksForNothing(wanted, options)) {
    if (moves.status().code() == StatusCode::kInvalidArgument) return AssertionSuccess();
    return AssertionFailure() << "a role of replicated partitions alone: "
                              << moves.status().ToString();
  }
  if (!moves.ok()) return AssertionFailure() << moves.status().ToString();
  const auto expected = ExpectedSegments(wanted, rank, options);
  if (moves->segments.size() != expected.size()) return AssertionFailure() << "number of segments";
  std::vector<std::vector<std::byte>> targets;
  std::vector<ModelSegment> held;
  for (size_t s = 0; s < expected.size(); ++s) {
    const auto [p, r] = expected[s];
    const auto& segment = moves->segments[s];
    if (std::pair(segment.partition, segment.role) != expected[s]) {
      return AssertionFailure() << "segment " << s;
    }
    held.push_back(models[p].Held(r, *Geometry(wanted, p).HolderIndex(rank)));
    if (segment.bytes != held.back().bytes) return AssertionFailure() << "bytes of segment " << s;
    targets.emplace_back(segment.bytes, kUntouched);
  }
  if (auto applied = Apply(*moves, saved, targets, counts); !applied) return applied;
  for (size_t s = 0; s < expected.size(); ++s) {
    const auto [p, r] = expected[s];
    const uint64_t size = SizeOf(wanted.partitions[p].roles[r].dtype);
    const auto right = SegmentBytes(wanted, models[p], r, held[s], kUntouched, ModelId);
    std::vector<bool> data(right.size());
    for (const ModelElement& element : held[s].elements) {
      std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(element.byte_offset), size, true);
    }
    for (size_t i = 0; i < right.size(); ++i) {
      const bool fine = targets[s][i] == right[i] || (!data[i] && targets[s][i] == Saved::kPadding);
      if (!fine) return AssertionFailure() << "byte " << i << " of segment " << s << " is wrong";
    }
    counts.elements += held[s].elements.size();
  }
  ++counts.plans;
  return AssertionSuccess();
}

MoveOptions RandomOptions(const Draw& draw, const Layout& wanted) {
  MoveOptions options;
  options.replicated = draw(2) == 0;
  if (draw(3) != 0) return options;
  for (const Partition& partition : wanted.partitions) {
    for (const Role& role : partition.roles) {
      if (draw(3) == 0) options.roles.push_back(role.name);
    }
  }
  return options;
}

AssertionResult PairAgrees(const Draw& draw, Saved& saved, const Layout& wanted,
                           uint32_t most_ranks, Counts& counts) {
  std::vector<Model> models;
  for (uint32_t p = 0; p < wanted.partitions.size(); ++p) models.emplace_back(wanted, p);
  const MoveOptions options = RandomOptions(draw, wanted);
  for (uint32_t n = 0; n < std::min(wanted.world_size, most_ranks); ++n) {
    const bool all = wanted.world_size <= most_ranks;
    const uint32_t rank = all ? n : static_cast<uint32_t>(draw(wanted.world_size));
    if (auto agree = PlanAgrees(saved, wanted, models, rank, options, counts); !agree) {
      return agree << " (rank " << rank << ")";
    }
  }
  ++counts.pairs;
  return AssertionSuccess();
}

TEST(MovesProperty, MovesCarryEveryWantedElementOnce) {
  Counts counts;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Draw draw = SeededDraw(seed * 2 + 1);
    const uint64_t most_ranks = seed % 100 == 0 ? 1024 : seed % 4 == 0 ? 64 : 9;
    const auto model = seed % 25 == 1 ? RandomModel(draw, 150, 20) : RandomModel(draw, 8, 400);
    const Layout saved_layout = RandomLayout(draw, model, {.most_ranks = most_ranks});
    Saved saved(saved_layout);
    for (int other = 0; other < 3; ++other) {
      const Layout wanted = RandomLayout(
          draw, model,
          {.most_ranks = most_ranks, .subset = draw(2) == 0, .all_roles = false, .rename = true});
      ASSERT_TRUE(PairAgrees(draw, saved, wanted, 12, counts)) << "seed " << seed << ", " << other;
    }
  }
  std::printf("%lu pairs, %lu plans, %lu moves, %lu repetitions, %lu bytes, %lu elements compared\n",
              counts.pairs, counts.plans, counts.moves, counts.repetitions, counts.bytes,
              counts.elements);
}

RC_GTEST_PROP(MovesProperty, ShrinkingMovesCarryEveryWantedElementOnce, ()) {
  Counts counts;
  const Draw draw = RapidCheckDraw();
  const auto model = RandomModel(draw, 4, 60);
  const Layout saved_layout = RandomLayout(draw, model, {.most_ranks = 6});
  const Layout wanted =
      RandomLayout(draw, model, {.most_ranks = 6, .subset = true, .rename = true});
  Saved saved(saved_layout);
  const auto agree = PairAgrees(draw, saved, wanted, 6, counts);
  RC_ASSERT(agree || (RC_LOG() << agree.message(), false));
}

// The same partitions, told in another order of tensors and partitions.
Layout Reordered(const Draw& draw, const Layout& layout) {
  Layout result = layout;
  std::vector<uint32_t> place(layout.tensors.size());  // new index of each tensor
  for (uint32_t t = 0; t < place.size(); ++t) place[t] = t;
  for (size_t i = place.size(); i > 1; --i) std::swap(place[i - 1], place[draw(i)]);
  for (size_t t = 0; t < place.size(); ++t) result.tensors[place[t]] = layout.tensors[t];
  for (Partition& partition : result.partitions) {
    for (Member& member : partition.members) member.tensor = place[member.tensor];
  }
  for (size_t i = result.partitions.size(); i > 1; --i) {
    std::swap(result.partitions[i - 1], result.partitions[draw(i)]);
  }
  return result;
}

TEST(MovesProperty, AnEqualPartitionIsOneMoveASegment) {
  uint64_t segments = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Draw draw = SeededDraw(seed + 100000);
    const auto model = RandomModel(draw, 8, 300);
    const Layout saved = RandomLayout(draw, model, {.most_ranks = 9});
    const Layout wanted = seed % 2 == 0 ? saved : Reordered(draw, saved);
    for (uint32_t rank = 0; rank < wanted.world_size; ++rank) {
      const auto moves = PlanMoves(saved, wanted, rank, {});
      ASSERT_TRUE(moves.ok()) << moves.status().ToString();
      size_t next = 0;
      for (uint32_t s = 0; s < moves->segments.size(); ++s) {
        if (moves->segments[s].bytes == 0) continue;
        ASSERT_LT(next, moves->moves.size());
        const Move& move = moves->moves[next++];
        EXPECT_EQ(move.wanted, s);
        EXPECT_EQ(move.target_offset, 0u);
        EXPECT_EQ(move.source_offset, 0u);
        EXPECT_EQ(move.length, moves->segments[s].bytes);
        ++segments;
      }
      EXPECT_EQ(next, moves->moves.size());
    }
  }
  std::printf("%lu segments\n", segments);
}

// What PlanMoves must find missing, asked of names alone.
bool Lacks(const Layout& saved, const Layout& wanted, uint32_t rank, const MoveOptions& options) {
  std::set<std::pair<uint64_t, std::string>> there;
  for (const Partition& partition : saved.partitions) {
    for (const Member& member : partition.members) {
      for (const Role& role : partition.roles) {
        there.emplace(ModelId(saved.tensors[member.tensor]), role.name);
      }
    }
  }
  for (const auto& [p, r] : ExpectedSegments(wanted, rank, options, /*plain=*/true)) {
    for (const Member& member : wanted.partitions[p].members) {
      const std::string& role = wanted.partitions[p].roles[r].name;
      if (!there.contains({ModelId(wanted.tensors[member.tensor]), role})) return true;
    }
  }
  return false;
}

TEST(MovesProperty, WhatIsMissingIsFoundMissing) {
  Counts counts;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Draw draw = SeededDraw(seed + 200000);
    const auto model = RandomModel(draw, 8, 40);
    const Layout saved_layout =
        RandomLayout(draw, model, {.most_ranks = 9, .subset = draw(3) == 0, .all_roles = false});
    const Layout wanted = RandomLayout(draw, model, {.most_ranks = 9, .all_roles = false});
    MoveOptions options = RandomOptions(draw, wanted);
    options.replicated = options.replicated || AsksForNothing(wanted, options);
    Saved saved(saved_layout);
    std::vector<Model> models;
    for (uint32_t p = 0; p < wanted.partitions.size(); ++p) models.emplace_back(wanted, p);
    for (uint32_t rank = 0; rank < wanted.world_size; ++rank) {
      if (!Lacks(saved_layout, wanted, rank, options)) {
        ASSERT_TRUE(PlanAgrees(saved, wanted, models, rank, options, counts)) << "seed " << seed;
        continue;
      }
      const auto moves = PlanMoves(saved_layout, wanted, rank, options);
      ASSERT_EQ(moves.status().code(), StatusCode::kNotFound) << "seed " << seed;
      ++counts.refused;
    }
  }
  std::printf("%lu plans, %lu refused\n", counts.plans, counts.refused);
}

}  // namespace
}  // namespace flagstone::partition_tests
