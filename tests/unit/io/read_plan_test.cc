// SPDX-License-Identifier: Apache-2.0
#include "io/read_plan.h"

#include <vector>

#include "io_test_util.h"

namespace flagstone::io {
namespace {

constexpr uint64_t kMega = uint64_t{1} << 20;
constexpr FileAccess kDirect = {.direct = true, .alignment = {.memory = 512, .offset = 512}};
constexpr FileAccess kBuffered = {};
constexpr ReadLimits kLimits = {.request_bytes = kMega, .buffer_bytes = 8 * kMega};

std::vector<ReadUnit> AllUnits(std::span<const ReadRange> ranges,
                               const std::vector<FileAccess>& access,
                               const ReadLimits& limits = kLimits) {
  std::vector<ReadUnit> units;
  auto planner = ReadPlanner::Make(ranges, access.size(), limits);
  EXPECT_TRUE(IsOk(planner));
  if (!planner.ok()) return units;
  for (;;) {
    auto unit = planner->Next(access);
    EXPECT_TRUE(IsOk(unit));
    if (!unit.ok() || !*unit) return units;
    units.push_back(std::move(**unit));
  }
}

// Memory that is never touched: plans are arithmetic. Address 0 modulo 4096, plus `modulo`.
std::span<std::byte> Fake(uint64_t at, uint64_t size) {
  return {reinterpret_cast<std::byte*>(uint64_t{1} << 40) + at, size};
}

TEST(ReadPlanTest, LargeSegmentGoesStraightInFullRequests) {
  const std::vector<ReadRange> ranges = {{.offset = 8192,
                                          .size = 10 * kMega,
                                          .block_bytes = 65536,
                                          .destination = Fake(8192, 10 * kMega)}};
  const auto units = AllUnits(ranges, {kDirect});
  ASSERT_EQ(units.size(), 10U);
  for (uint64_t i = 0; i < units.size(); ++i) {
    EXPECT_EQ(units[i].straight, Fake(8192 + i * kMega, 1).data());
    EXPECT_EQ(units[i].read_offset, 8192 + i * kMega);
    EXPECT_EQ(units[i].read_size, kMega);
    EXPECT_TRUE(units[i].direct);
  }
}

TEST(ReadPlanTest, CongruenceDecidesWhetherDirectReadsGoStraight) {
  for (const uint64_t modulo : {0U, 512U, 1024U}) {
    const std::vector<ReadRange> ranges = {
        {.offset = 4096, .size = kMega, .block_bytes = 65536, .destination = Fake(modulo, kMega)}};
    EXPECT_NE(AllUnits(ranges, {kDirect}).at(0).straight, nullptr) << modulo;
  }
  for (const uint64_t modulo : {1U, 64U, 511U}) {
    const std::vector<ReadRange> ranges = {
        {.offset = 4096, .size = kMega, .block_bytes = 65536, .destination = Fake(modulo, kMega)}};
    EXPECT_EQ(AllUnits(ranges, {kDirect}).at(0).straight, nullptr) << modulo;
    EXPECT_NE(AllUnits(ranges, {kBuffered}).at(0).straight, nullptr) << modulo;
  }
}

TEST(ReadPlanTest, UnalignedOffsetIsWidenedInABuffer) {
  const std::vector<ReadRange> ranges = {
      {.offset = 1000, .size = 3000, .block_bytes = 0, .destination = Fake(1000, 3000)}};
  const auto units = AllUnits(ranges, {kDirect});
  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units[0].straight, nullptr);
  EXPECT_EQ(units[0].read_offset, 512U);
  EXPECT_EQ(units[0].read_size, 4096U - 512U);
  EXPECT_EQ(AllUnits(ranges, {kBuffered}).at(0).read_size, 3000U);
}

TEST(ReadPlanTest, BlocksAtTheEdgesOfADestinationGoThroughABuffer) {
  // The destination begins and ends inside of a block.
  const std::vector<ReadRange> ranges = {{.offset = 0,
                                          .size = 10 * 65536,
                                          .block_bytes = 65536,
                                          .destination = Fake(512, 8 * 65536),
                                          .destination_skip = 65536 + 512}};
  const auto units = AllUnits(ranges, {kDirect});
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].straight, nullptr);
  EXPECT_EQ(units[0].size, 2 * 65536U);
  EXPECT_EQ(units[1].straight, Fake(65536, 1).data());
  EXPECT_EQ(units[1].size, 7 * 65536U);
  EXPECT_EQ(units[2].straight, nullptr);
  EXPECT_EQ(units[2].size, 65536U);
}

// 10,000 small tensors, each in memory of its own, 64-byte aligned in the file.
TEST(ReadPlanTest, SmallNeighboursAreReadTogether) {
  std::vector<ReadRange> ranges;
  uint64_t offset = 4096;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t size = 1000 + i % 7000;
    ranges.push_back({.offset = offset,
                      .size = size,
                      .block_bytes = 4096,
                      .destination = Fake(i * 16384, size)});
    offset += (size + 63) / 64 * 64;
  }
  for (const FileAccess& access : {kDirect, kBuffered}) {
    const auto units = AllUnits(ranges, {access});
    EXPECT_LE(units.size(), offset / kMega + 2);
    uint64_t bytes = 0;
    for (const ReadUnit& unit : units) bytes += unit.read_size;
    EXPECT_LE(bytes, offset + units.size() * 1024);
  }
}

TEST(ReadPlanTest, NeighboursThatContinueInMemoryNeedNoBuffer) {
  std::vector<ReadRange> ranges;
  for (uint64_t i = 0; i < 64; ++i) {
    ranges.push_back({.offset = i * 8192,
                      .size = 8192,
                      .block_bytes = 4096,
                      .destination = Fake(i * 8192, 8192)});
  }
  const auto units = AllUnits(ranges, {kDirect});
  ASSERT_EQ(units.size(), 1U);
  EXPECT_NE(units[0].straight, nullptr);
  EXPECT_EQ(units[0].pieces.size(), 64U);
}

TEST(ReadPlanTest, LargeNeighboursGoStraightOneByOne) {
  std::vector<ReadRange> ranges;
  for (uint64_t i = 0; i < 16; ++i) {
    ranges.push_back({.offset = i * 262144,
                      .size = 262144,
                      .block_bytes = 16384,
                      .destination = Fake(i * kMega, 262144)});
  }
  for (const ReadUnit& unit : AllUnits(ranges, {kDirect})) EXPECT_NE(unit.straight, nullptr);
}

TEST(ReadPlanTest, RangesFarApartAreNotJoined) {
  const std::vector<ReadRange> ranges = {{.offset = 0, .size = 4096},
                                         {.offset = 4096 + 4096 + 1, .size = 4096},
                                         {.offset = 100'000, .size = 4096},
                                         {.file = 1, .offset = 104'096, .size = 4096}};
  EXPECT_EQ(AllUnits(ranges, {kDirect, kDirect}).size(), 4U);
}

TEST(ReadPlanTest, OrderIsThatOfTheFile) {
  const std::vector<ReadRange> ranges = {{.file = 1, .offset = 0, .size = 4096},
                                         {.file = 0, .offset = 90'000, .size = 4096},
                                         {.file = 0, .offset = 0, .size = 4096},
                                         {.file = 0, .offset = 50, .size = 0}};
  const auto units = AllUnits(ranges, {kBuffered, kBuffered});
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].pieces[0].range, 2U);
  EXPECT_EQ(units[1].pieces[0].range, 1U);
  EXPECT_EQ(units[2].pieces[0].range, 0U);
}

TEST(ReadPlanTest, BlockTooLargeForABuffer) {
  const ReadLimits limits = {.request_bytes = kMega, .buffer_bytes = 2 * kMega};
  std::vector<ReadRange> ranges = {{.offset = 64, .size = 3 * kMega, .block_bytes = 0}};
  auto planner = ReadPlanner::Make(ranges, 1, limits);
  ASSERT_TRUE(IsOk(planner));
  const std::vector<FileAccess> access = {kDirect};
  const auto refused = planner->Next(access);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr(std::to_string(3 * kMega)));
  // With a destination that direct reads cannot reach it is read straight, through the page cache.
  ranges[0].destination = Fake(0, 3 * kMega);
  const auto units = AllUnits(ranges, {kDirect}, limits);
  ASSERT_EQ(units.size(), 1U);
  EXPECT_FALSE(units[0].direct);
  EXPECT_NE(units[0].straight, nullptr);
}

TEST(ReadPlanTest, BadRangesAreRefused) {
  const auto refused = [](const ReadRange& range) {
    return ReadPlanner::Make({&range, 1}, 1, kLimits).status().code() ==
           StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({.file = 1, .size = 1}));
  EXPECT_TRUE(refused({.offset = UINT64_MAX, .size = 2}));
  EXPECT_TRUE(refused({.offset = 0, .size = UINT64_MAX}));
  EXPECT_TRUE(refused({.offset = 0, .size = 8192, .block_bytes = 1000}));
  EXPECT_TRUE(refused({.offset = 0, .size = 8192, .destination = Fake(0, 8193)}));
  EXPECT_TRUE(refused(
      {.offset = 0, .size = 8192, .destination = Fake(0, 2), .destination_skip = UINT64_MAX}));
}

}  // namespace
}  // namespace flagstone::io
