// SPDX-License-Identifier: Apache-2.0
#include "load/chunk_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

namespace flagstone::load {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kChunk = 4096;

format::PlacedSegment SegmentAt(uint64_t offset, uint64_t bytes) {
  return {"p", "fp32", offset, bytes, kChunk, 0};
}

TEST(ChunkReadsTest, NothingWantedIsNothingRead) {
  EXPECT_TRUE(GroupByChunk({}).reads.empty());
  EXPECT_EQ(GroupByChunk({}).bytes(), 0U);
}

TEST(ChunkReadsTest, OneRunIsOneRead) {
  const auto segment = SegmentAt(0, 10 * kChunk + 1);
  const auto reads = GroupByChunk(std::vector<SourceRun>{{3, &segment, 5000, 20000}});
  ASSERT_EQ(reads.reads.size(), 1U);
  EXPECT_EQ(reads.reads[0].rank, 3U);
  EXPECT_EQ(reads.reads[0].chunks.first, 1U);
  EXPECT_EQ(reads.reads[0].chunks.begin, kChunk);
  EXPECT_EQ(reads.reads[0].chunks.count, 6U);
  EXPECT_EQ(reads.bytes(), 6 * kChunk);
  EXPECT_THAT(reads.users, ElementsAre(0));
}

// The chunk in which one run ends and the next begins is read once, for both.
TEST(ChunkReadsTest, NeighboursShareTheChunkBetweenThem) {
  const auto segment = SegmentAt(0, 10 * kChunk);
  const auto reads = GroupByChunk(std::vector<SourceRun>{{0, &segment, 3 * kChunk + 64, 9000},
                                                         {0, &segment, 0, 3 * kChunk + 64}});
  ASSERT_EQ(reads.reads.size(), 3U);
  EXPECT_THAT(reads.UsersOf(reads.reads[0]), ElementsAre(1));
  EXPECT_THAT(reads.UsersOf(reads.reads[1]), ElementsAre(1, 0));
  EXPECT_THAT(reads.UsersOf(reads.reads[2]), ElementsAre(0));
  EXPECT_EQ(reads.bytes(), 6 * kChunk);
}

// A model in which each chunk knows who wants it.
TEST(ChunkReadsTest, AgreesWithAModelThatMarksEachChunk) {
  std::mt19937 random(7);
  const auto below = [&](uint64_t limit) {
    return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random);
  };
  uint64_t shared = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<format::PlacedSegment> segments;
    for (uint64_t i = 0, at = kChunk; i < 3; ++i) {
      segments.push_back(SegmentAt(at, 1 + below(12 * kChunk)));
      at += segments.back().padded_bytes();
    }
    std::vector<SourceRun> runs(below(9));
    std::map<std::tuple<uint32_t, uint64_t, uint64_t>, std::multiset<uint32_t>> wanted;
    for (uint32_t i = 0; i < runs.size(); ++i) {
      const auto& segment = segments[below(segments.size())];
      const uint64_t begin = below(segment.bytes);
      runs[i] = {static_cast<uint32_t>(below(2)), &segment, begin,
                 1 + below(segment.bytes - begin)};
      for (uint64_t chunk = begin / kChunk; chunk * kChunk < begin + runs[i].length; ++chunk) {
        wanted[{runs[i].rank, segment.offset, chunk}].insert(i);
      }
    }
    const ChunkReads reads = GroupByChunk(runs);
    EXPECT_LE(reads.reads.size(), 2 * runs.size());
    auto next = wanted.begin();  // in the order of ranks and of their files
    uint64_t bytes = 0;
    for (const ChunkRead& read : reads.reads) {
      const auto users = reads.UsersOf(read);
      shared += users.size() > 1 ? 1 : 0;
      ASSERT_EQ(read.chunks.begin, read.chunks.first * kChunk);
      ASSERT_EQ(read.chunks.size, std::min(read.chunks.count * kChunk,
                                           read.segment->padded_bytes() - read.chunks.begin));
      bytes += read.chunks.size;
      for (uint64_t k = 0; k < read.chunks.count; ++k, ++next) {
        ASSERT_NE(next, wanted.end());
        ASSERT_EQ(next->first, std::tuple(read.rank, read.segment->offset, read.chunks.first + k));
        ASSERT_EQ(next->second, std::multiset<uint32_t>(users.begin(), users.end()));
      }
    }
    ASSERT_EQ(next, wanted.end());
    ASSERT_EQ(bytes, reads.bytes());
  }
  EXPECT_GT(shared, 1000U) << "the runs that were drawn share nothing";
}

// A run of one or two levels, as bytes: offset in the segment to offset in the target.
std::map<uint64_t, uint64_t> BytesOf(const SourceRun& run) {
  std::map<uint64_t, uint64_t> bytes;
  const auto add = [&](auto self, size_t level, uint64_t source, uint64_t target) -> void {
    if (level == run.levels.size()) {
      for (uint64_t i = 0; i < run.length; ++i) bytes[source + i] = target + i;
      return;
    }
    for (uint64_t i = 0; i < run.levels[level].count; ++i) {
      self(self, level + 1, source + i * run.levels[level].source_stride,
           target + i * run.levels[level].target_stride);
    }
  };
  add(add, 0, run.offset, 0);
  return bytes;
}

// Rows and rows of rows: every byte is handed out once, from a chunk that is read once.
TEST(ChunkReadsTest, RepetitionsAgreeWithByteByByte) {
  std::mt19937 random(11);
  const auto below = [&](uint64_t limit) {
    return std::uniform_int_distribution<uint64_t>(0, limit - 1)(random);
  };
  uint64_t joined = 0, apart = 0;
  for (int round = 0; round < 400; ++round) {
    SourceRun run;
    run.length = 1 + below(400);
    std::vector<RunLevel> levels;
    uint64_t extent = run.length;
    uint64_t target = run.length;
    for (uint64_t n = 1 + below(2); n > 0; --n) {
      // Gaps below and above a chunk, and above the one that is ever joined.
      static constexpr uint64_t kGaps[] = {0, 100, 2000, 4096, 9000, 70000};
      const RunLevel level{2 + below(5), extent + kGaps[below(6)], target};
      levels.insert(levels.begin(), level);
      extent += (level.count - 1) * level.source_stride;
      target *= level.count;
    }
    run.levels = levels;
    run.offset = below(9000);
    const auto segment = SegmentAt(0, run.offset + extent + below(5000));
    run.segment = &segment;
    const auto bytes = BytesOf(run);
    ASSERT_EQ(WantedBytes(run), bytes.size());
    ASSERT_EQ(run.offset + ExtentOf(run.length, run.levels), bytes.rbegin()->first + 1);

    const ChunkReads reads = GroupByChunk({&run, 1});
    std::map<uint64_t, uint64_t> handed_out;
    uint64_t last_end = 0;
    for (const ChunkRead& read : reads.reads) {
      ASSERT_GE(read.chunks.begin, last_end) << "a chunk is read twice";
      last_end = read.chunks.begin + read.chunks.size;
      ASSERT_EQ(read.user_count, 1U);
      for (uint64_t at = read.chunks.begin; at < last_end; at += kChunk) {
        uint64_t before = 0;
        ForEachPart(run, at, std::min(at + kChunk, last_end),
                    [&](uint64_t offset, uint64_t to, uint64_t length) {
                      ASSERT_GE(offset, before);
                      before = offset + length;
                      for (uint64_t i = 0; i < length; ++i) {
                        ASSERT_TRUE(handed_out.emplace(offset + i, to + i).second);
                      }
                    });
      }
    }
    ASSERT_EQ(handed_out, bytes);
    // What is read beside the chunks that hold something wanted stays within the rule.
    std::set<uint64_t> touched;
    for (const auto& [offset, to] : bytes) touched.insert(offset / kChunk);
    const uint64_t least = touched.size() * kChunk;
    ASSERT_LE(reads.bytes(), std::max(least, kMaxJoinedOverRead * bytes.size() + 2 * kChunk));
    ++(reads.reads.size() == 1 ? joined : apart);
  }
  EXPECT_GT(joined, 50U);
  EXPECT_GT(apart, 50U);
}

// FieldCase_A08: an eighth of the columns of a matrix that was saved whole.
TEST(ChunkReadsTest, FieldCase_A08_NarrowColumnsAreNotReadRowByRow) {
  const std::vector<RunLevel> rows = {{16384, 16384, 2048}};
  format::PlacedSegment segment{"p", "fp32", 4096, uint64_t{256} << 20, 1 << 20, 0};
  SourceRun run{0, &segment, 4096, 2048, rows};
  EXPECT_EQ(GroupByChunk({&run, 1}).reads.size(), 1U);
  EXPECT_EQ(GroupByChunk({&run, 1}).bytes(), 8 * WantedBytes(run));
  // Small chunks: still together, for 8 times what is wanted is read.
  segment.chunk_bytes = 4096;
  EXPECT_EQ(GroupByChunk({&run, 1}).reads.size(), 1U);
  // A sixteenth: more would be read than the rule allows, so each row's chunk by itself.
  run.length = 1024;
  EXPECT_EQ(GroupByChunk({&run, 1}).reads.size(), 16384U);
  EXPECT_EQ(GroupByChunk({&run, 1}).bytes(), 4 * WantedBytes(run));
}

}  // namespace
}  // namespace flagstone::load
