// SPDX-License-Identifier: Apache-2.0
#include "support/simulated_device.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "io_test_util.h"

namespace flagstone::io {
namespace {

using flagstone::testing::DeviceModel;
using flagstone::testing::SimulatedDevice;
using std::chrono::nanoseconds;

constexpr uint64_t kMega = uint64_t{1} << 20;

double Seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

// On a device of `bytes_per_second` and 100 us, with a consumer that digests 8 GB/s and copies as
// fast.
class SimulatedDeviceTest : public IoTest, public ::testing::WithParamInterface<double> {
 protected:
  SimulatedDeviceTest() : device_({.bytes_per_second = GetParam()}) {}

  // The share of the device's bandwidth that reading `ranges` reaches.
  double Reached(const std::vector<ReadRange>& ranges, const ReadOptions& options = {}) {
    uint64_t size = 0;
    for (const ReadRange& range : ranges) size = std::max(size, range.offset + range.size);
    device_.AddFile("segment", size, FillExpected);
    const auto file = OpenForReading(device_, "segment");
    BlockChecker checker(ranges);
    const auto check = checker.consumer();
    const auto consumer = [&](const ReadRange& range, uint64_t offset,
                              std::span<const std::byte> bytes) {
      device_.Spend(nanoseconds(bytes.size() / 8));
      return check(range, offset, bytes);
    };
    const auto begin = device_.now();
    const auto stats = ReadRanges(device_, {&file, 1}, ranges, consumer, options);
    EXPECT_TRUE(IsOk(stats));
    if (!stats.ok()) return 0;
    EXPECT_EQ(stats->backend.backend, Backend::kUringDirect);
    EXPECT_TRUE(checker.Complete());
    uint64_t wanted = 0;
    for (const ReadRange& range : ranges) wanted += range.size;
    return static_cast<double>(wanted) / GetParam() / Seconds(device_.now() - begin);
  }

  SimulatedDevice device_;
};

INSTANTIATE_TEST_SUITE_P(Bandwidths, SimulatedDeviceTest, ::testing::Values(1e9, 2e9, 3e9, 5e9),
                         [](const auto& tested) {
                           return "GB" + std::to_string(static_cast<int>(tested.param / 1e9));
                         });

TEST_P(SimulatedDeviceTest, OneLargeSegmentIntoItsMemory) {
  GuardedMemory memory(128 * kMega, 0);
  EXPECT_GE(Reached({{.offset = 4096,
                      .size = 128 * kMega,
                      .block_bytes = 65536,
                      .destination = memory.bytes()}}),
            0.97);
  EXPECT_TRUE(std::ranges::equal(memory.bytes(), Expected(4096, 128 * kMega)));
}

TEST_P(SimulatedDeviceTest, OneLargeSegmentToAConsumer) {
  EXPECT_GE(Reached({{.offset = 4096, .size = 128 * kMega, .block_bytes = 65536}}), 0.97);
}

TEST_P(SimulatedDeviceTest, MemoryThatDirectReadsCannotReach) {
  GuardedMemory memory(128 * kMega, 64);
  EXPECT_GE(Reached({{.offset = 0,
                      .size = 128 * kMega,
                      .block_bytes = 65536,
                      .destination = memory.bytes()}}),
            0.97);
  EXPECT_TRUE(std::ranges::equal(memory.bytes(), Expected(0, 128 * kMega)));
}

TEST_P(SimulatedDeviceTest, TenThousandSmallTensors) {
  std::vector<ReadRange> ranges;
  std::vector<std::vector<std::byte>> memory;
  uint64_t offset = 4096;
  for (uint64_t i = 0; i < 10'000; ++i) {
    const uint64_t size = 4096 + (i * 1031) % 8192;
    memory.emplace_back(size);
    ranges.push_back(
        {.offset = offset, .size = size, .block_bytes = 16384, .destination = memory.back()});
    offset += (size + 63) / 64 * 64;
  }
  EXPECT_GE(Reached(ranges), 0.97);
  for (size_t i = 0; i < ranges.size(); ++i) {
    ASSERT_EQ(memory[i], Expected(ranges[i].offset, ranges[i].size));
  }
}

TEST_P(SimulatedDeviceTest, TenThousandBlocksOfOneSegment) {
  GuardedMemory memory(10'000 * 4096, 0);
  EXPECT_GE(Reached({{.offset = 8192,
                      .size = 10'000 * 4096,
                      .block_bytes = 4096,
                      .destination = memory.bytes()}}),
            0.97);
}

TEST_P(SimulatedDeviceTest, StagedWritesKeepTheDeviceBusy) {
  auto file = device_.Open("new", {.mode = OpenOptions::Mode::kCreateExclusive});
  ASSERT_TRUE(IsOk(file));
  const std::shared_ptr<File> shared = std::move(*file);
  const auto begin = device_.now();
  auto writer = StagedWriter::Make(device_, shared, {});
  ASSERT_TRUE(IsOk(writer));
  constexpr uint64_t kSize = 256 * kMega;
  for (uint64_t at = 0; at < kSize;) {
    auto buffer = (*writer)->Buffer();
    ASSERT_TRUE(IsOk(buffer));
    device_.Spend(nanoseconds(buffer->size() / 8));
    ASSERT_TRUE(IsOk((*writer)->Write(*buffer, at, buffer->size())));
    at += buffer->size();
  }
  ASSERT_TRUE(IsOk((*writer)->Finish()));
  EXPECT_GE(static_cast<double>(kSize) / GetParam() / Seconds(device_.now() - begin), 0.96);
}

// Buffered reads of what was not cached: what lies behind the cursor is dropped, in windows.
TEST(CacheWindowTest, PageCacheIsBoundedWhileReading) {
  SimulatedDevice device({});
  device.AddFile("file", 256 * kMega, FillExpected);
  const auto file = OpenForReading(device, "file");
  const std::vector<ReadRange> ranges = {{.offset = 0, .size = 256 * kMega, .block_bytes = kMega}};
  for (const Backend backend : {Backend::kUring, Backend::kPread, Backend::kMmap}) {
    SCOPED_TRACE(Name(backend));
    ReadOptions options;
    options.backend = backend;
    const uint64_t before = device.dropped_bytes();
    uint64_t read = 0;
    uint64_t most = 0;
    const auto consumer = [&](const ReadRange&, uint64_t, std::span<const std::byte> bytes) {
      read += bytes.size();
      most = std::max(most, read - (device.dropped_bytes() - before));
      return Status();
    };
    ASSERT_TRUE(IsOk(ReadRanges(device, {&file, 1}, ranges, consumer, options)));
    EXPECT_LE(most, 10 * kMega);
    EXPECT_EQ(device.dropped_bytes() - before, 256 * kMega);
    options.keep_cached = true;
    ASSERT_TRUE(IsOk(ReadRanges(device, {&file, 1}, ranges, {}, options)));
    EXPECT_EQ(device.dropped_bytes() - before, 256 * kMega);
  }
}

TEST(SimulatedDeviceModelTest, IsASerialDeviceWithLatency) {
  SimulatedDevice device({.latency = std::chrono::microseconds(100), .bytes_per_second = 1e9});
  device.AddFile("file", kMega, FillExpected);
  const auto file = OpenForReading(device, "file");
  std::vector<std::byte> memory(2000);
  auto queue = device.MakeQueue(QueueKind::kUring, 4);
  ASSERT_TRUE(IsOk(queue));
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(IsOk((*queue)->Submit({.file = file.get(),
                                       .offset = i * 1000,
                                       .memory = std::span(memory).subspan(i * 1000, 1000),
                                       .tag = i})));
  }
  std::vector<IoCompletion> completions;
  ASSERT_TRUE(IsOk((*queue)->Wait(completions)));
  EXPECT_EQ(completions.size(), 1U);
  EXPECT_EQ(device.now(), std::chrono::microseconds(101));
  ASSERT_TRUE(IsOk((*queue)->Wait(completions)));
  EXPECT_EQ(device.now(), std::chrono::microseconds(102));
  EXPECT_EQ(memory, Expected(0, 2000));
  EXPECT_EQ(device.moved_bytes(), 2000U);
}

TEST(SimulatedDeviceModelTest, RefusesWhatDirectReadsMayNotAsk) {
  SimulatedDevice device({});
  device.AddFile("file", kMega, FillExpected);
  auto file = device.Open("file", {.direct = true});
  ASSERT_TRUE(IsOk(file));
  GuardedMemory memory(8192, 0);
  EXPECT_TRUE(IsOk((*file)->ReadAt(512, memory.bytes().first(512))));
  EXPECT_EQ((*file)->ReadAt(511, memory.bytes().first(512)).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ((*file)->ReadAt(512, memory.bytes().subspan(1, 512)).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ((*file)->ReadAt(512, memory.bytes().first(513)).status().code(),
            StatusCode::kUnsupported);
}

}  // namespace
}  // namespace flagstone::io
