// SPDX-License-Identifier: Apache-2.0
// Rank indexes that keep FlatBuffers' rules and not the format's: M61 to M69.
#include <string>
#include <utility>

#include "base/range.h"
#include "mutations.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using Code = StatusCode;
constexpr uint64_t kPage = base::kPageBytes;

template <typename Edit>
Mutation Row(std::string rule, std::string name, std::string message, Edit edit) {
  RawIndex raw;
  edit(raw.index);
  return {std::move(rule),    std::move(name),   Decoder::kIndex,
          RawIndexBytes(raw), Code::kCorruption, std::move(message)};
}

using Index = format::RankIndex;
std::vector<format::PlacedSegment>& Segments(Index& index) { return index.placement.segments; }

std::vector<Mutation> SegmentMutations() {
  return {
      Row("M61", "rank", "rank 2 of world size 2", [](Index& i) { i.rank = 2; }),
      Row("M61", "world", "rank 0 of world size 0", [](Index& i) { i.world_size = 0; }),
      Row("M62", "order", "out of order",
          [](Index& i) { std::swap(Segments(i)[1], Segments(i)[2]); }),
      Row("M62", "array-first", "out of order",
          [](Index& i) { std::swap(Segments(i)[2], Segments(i)[3]); }),
      Row("M62", "twice", "is twice", [](Index& i) { Segments(i)[1].role = "fp32"; }),
      Row("M62", "array-role", "belongs to no partition",
          [](Index& i) { Segments(i)[3].role = "x"; }),
      Row("M63", "empty", "impossible length", [](Index& i) { Segments(i)[1].bytes = 0; }),
      Row("M63", "huge", "impossible length", [](Index& i) { Segments(i)[1].bytes = ~0ull; }),
      Row("M63", "chunk-0", "chunk size", [](Index& i) { Segments(i)[1].chunk_bytes = 0; }),
      Row("M63", "chunk-odd", "chunk size", [](Index& i) { Segments(i)[1].chunk_bytes = 4097; }),
      Row("M63", "chunk-large", "chunk size",
          [](Index& i) { Segments(i)[1].chunk_bytes = 8 << 20; }),
      Row("M63", "small-array", "that arrays do not have",
          [](Index& i) { Segments(i)[3].bytes = 4096; }),
      Row("M63", "array-chunk", "that arrays do not have",
          [](Index& i) { Segments(i)[3].chunk_bytes = 4096; }),
      Row("M64", "gap", "it follows at 20480", [](Index& i) { Segments(i)[1].offset += kPage; }),
      Row("M64", "overlap", "it follows at 20480",
          [](Index& i) { Segments(i)[1].offset -= kPage; }),
      Row("M64", "gap-first", "it follows at 4096",
          [](Index& i) { Segments(i)[0].offset = 2 * kPage; }),
      Row("M64", "in-header", "it follows at 4096", [](Index& i) { Segments(i)[0].offset = 0; }),
      Row("M64", "unaligned", "it follows at 20480", [](Index& i) { Segments(i)[1].offset += 8; }),
      Row("M64", "far", "it follows at 20480",
          [](Index& i) { Segments(i)[1].offset = 1ull << 40; }),
      Row("M64", "first-chunk", "with chunk 2", [](Index& i) { Segments(i)[1].first_chunk = 1; }),
      Row("M64", "sum", "would exceed",
          [](Index& i) {
            Segments(i)[0].bytes = (1ull << 63) - 8192;
            Segments(i)[1].bytes = (1ull << 63) - 8192;
          }),
      Row("M65", "digests-offset", "they follow at 36864",
          [](Index& i) { i.placement.digests_offset += kPage; }),
      Row("M65", "digest-count", "(5)", [](Index& i) { i.placement.digest_count = 6; }),
      Row("M65", "index-offset", "40960", [](Index& i) { i.placement.index_offset -= kPage; }),
      Row("M66", "too-few", "0 digests of 1", [](Index& i) { i.page_digests.clear(); }),
      Row("M66", "too-many", "2 digests of 1", [](Index& i) { i.page_digests.push_back(1); }),
  };
}

std::vector<Mutation> StateMutations() {
  RawIndex trailing;
  trailing.plain_tail = {std::byte{0}};
  RawIndex missing;
  missing.drop_last_member = true;
  RawIndex split;
  split.split_columns = true;
  RawIndex no_members;
  no_members.index.plain = {{"p", "step", 0, Value()}};
  no_members.drop_last_member = true;
  constexpr auto I = Decoder::kIndex;
  return {
      Row("M67", "members", "out of order or twice",
          [](Index& i) { std::swap(i.plain[0].member, i.plain[1].member); }),
      Row("M67", "columns", "out of order or twice", [](Index& i) { i.plain[2].role = "a"; }),
      Row("M67", "same-member", "out of order or twice", [](Index& i) { i.plain[1].member = 0; }),
      {"M67", "split", I, RawIndexBytes(split), Code::kCorruption, "out of order or twice"},
      {"M67", "trailing", I, RawIndexBytes(trailing), Code::kCorruption, "1 bytes too many"},
      {"M67", "missing", I, RawIndexBytes(missing), Code::kCorruption, "1 bytes too many"},
      {"M67", "no-members", I, RawIndexBytes(no_members), Code::kCorruption, "has 0 members"},
      Row("M68", "str", "no null, bool, int or float", [](Index& i) { i.plain[0].value = "x"; }),
      Row("M69", "size", "is not that of the rank state",
          [](Index& i) { Segments(i)[3].bytes = 5001; }),
      Row("M69", "no-array", "is not that of the rank state",
          [](Index& i) { i.rank_state = Value(); }),
      Row("M69", "no-segment", "1 large arrays, 0 of which",
          [](Index& i) { Segments(i)[3].role = format::kClientStateRole; }),
      Row("M69", "client", "not rank 0's",
          [](Index& i) {
            i.rank = 1;
            i.rank_state = Value();
            Segments(i)[3].role = format::kClientStateRole;
          }),
  };
}

}  // namespace

std::vector<Mutation> IndexMutations() {
  std::vector<Mutation> all = SegmentMutations();
  for (Mutation& mutation : StateMutations()) all.push_back(std::move(mutation));
  return all;
}

}  // namespace flagstone::test
