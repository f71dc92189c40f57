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

}  // namespace
}  // namespace flagstone::load
