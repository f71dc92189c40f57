// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "flagstone/page_cache.h"
#include "io_test_util.h"

namespace flagstone::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMega = uint64_t{1} << 20;

class ReadRangesTest : public IoTest {
 protected:
  FileSystem& fs_ = PosixFileSystem();
};

uint64_t Below(std::mt19937_64& random, uint64_t limit) { return random() % limit; }

struct RandomBatch {
  std::vector<ReadRange> ranges;
  std::vector<std::unique_ptr<GuardedMemory>> memory;  // Null where a range has none.
};

// Ranges of all kinds: neighbours, overlaps, odd offsets, parts of a destination, none.
RandomBatch MakeBatch(std::mt19937_64& random, const std::vector<uint64_t>& sizes) {
  constexpr uint64_t kBlocks[] = {0, 4096, 16384, 65536, kMega};
  RandomBatch batch;
  const uint64_t count = 1 + Below(random, 30);
  uint32_t file = 0;
  uint64_t next = 0;
  for (uint64_t i = 0; i < count; ++i) {
    ReadRange range;
    if (Below(random, 3) == 0) {
      file = static_cast<uint32_t>(Below(random, sizes.size()));
      next = Below(random, sizes[file]);
      if (Below(random, 2) == 0) next = next / 4096 * 4096;
    }
    range.file = file;
    range.offset = std::min(next, sizes[file]);
    range.size = Below(random, std::min<uint64_t>(sizes[file] - range.offset + 1, 600'000));
    if (Below(random, 2) == 0) range.size = range.size / 4096 * 4096;
    next = range.offset + range.size + (Below(random, 4) == 0 ? Below(random, 5000) : 0);
    range.block_bytes = kBlocks[Below(random, 5)];
    range.tag = i;
    batch.memory.push_back(nullptr);
    if (Below(random, 4) != 0) {
      uint64_t size = range.size;
      if (size > 1 && Below(random, 2) == 0) {
        range.destination_skip = Below(random, size);
        size = Below(random, size - range.destination_skip + 1);
      }
      const uint64_t modulo = Below(random, 2) == 0 ? (range.offset + range.destination_skip) % 4096
                                                    : Below(random, 4096);
      batch.memory.back() = std::make_unique<GuardedMemory>(size, modulo);
      range.destination = batch.memory.back()->bytes();
    }
    batch.ranges.push_back(range);
  }
  return batch;
}

TEST_F(ReadRangesTest, EveryBackendGivesEqualBytes) {
  const std::vector<uint64_t> sizes = {3 * kMega + 700, kMega, 4097, 1};
  std::vector<std::shared_ptr<File>> files;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto path = directory_ / std::to_string(i);
    WriteTestFile(path, sizes[i]);
    files.push_back(OpenForReading(fs_, path));
  }
  auto backends = WorkingBackends(fs_, files[0]);
  backends.push_back(Backend::kAuto);
  constexpr uint64_t kRequests[] = {1, 4096, 65536, 100'000, kMega, 16 * kMega};
  constexpr uint64_t kBuffers[] = {kMega, 2 * kMega, 32 * kMega};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    for (const Backend backend : backends) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << Name(backend));
      std::mt19937_64 random(seed);
      const RandomBatch batch = MakeBatch(random, sizes);
      ReadOptions options;
      options.backend = backend;
      options.request_bytes = kRequests[Below(random, 6)];
      options.buffer_bytes = kBuffers[Below(random, 3)];
      options.queue_depth = static_cast<uint32_t>(Below(random, 8));
      options.keep_cached = Below(random, 2) == 0;
      uint64_t progress = 0;
      options.progress = [&](uint64_t done) { progress = done; };
      BlockChecker checker(batch.ranges);
      const uint64_t before = LibraryMemory().current_bytes;
      ResetPeakMemory();
      const auto stats = ReadRanges(fs_, files, batch.ranges, checker.consumer(), options);
      ASSERT_TRUE(IsOk(stats));
      EXPECT_TRUE(checker.Complete());
      uint64_t total = 0;
      for (size_t i = 0; i < batch.ranges.size(); ++i) {
        const ReadRange& range = batch.ranges[i];
        total += range.size;
        if (batch.memory[i] == nullptr) continue;
        const auto expected =
            Expected(range.offset + range.destination_skip, range.destination.size());
        EXPECT_TRUE(std::ranges::equal(range.destination, expected));
        EXPECT_TRUE(batch.memory[i]->GuardsIntact());
      }
      EXPECT_EQ(progress, total);
      EXPECT_GE(stats->read_bytes, total);
      EXPECT_LE(stats->peak_buffer_bytes, options.buffer_bytes);
      // Rings and stacks come on top of the buffers.
      const uint64_t peak = LibraryMemory().peak_bytes - before;
      EXPECT_LE(peak, stats->peak_buffer_bytes + 3 * kMega);
      if (backend != Backend::kAuto) {
        const auto predicted = PredictReadMemory(files, batch.ranges, options);
        ASSERT_TRUE(IsOk(predicted));
        EXPECT_LE(peak, *predicted);
        EXPECT_GE(peak + peak / 10 + 8 * kMega, *predicted);
      }
      EXPECT_EQ(LibraryMemory().current_bytes, before);
    }
  }
}

TEST_F(ReadRangesTest, NoRangesAreDone) {
  WriteTestFile(directory_ / "file", 4096);
  const auto file = OpenForReading(fs_, directory_ / "file");
  for (const Backend backend : WorkingBackends(fs_, file)) {
    ReadOptions options;
    options.backend = backend;
    const auto stats = ReadRanges(fs_, {&file, 1}, {}, {}, options);
    ASSERT_TRUE(IsOk(stats));
    EXPECT_EQ(stats->read_calls, 0U);
    EXPECT_EQ(stats->backend.reason, "asked for");
  }
  EXPECT_TRUE(IsOk(ReadRanges(fs_, {}, {}, {}, {})));
}

TEST_F(ReadRangesTest, DirectReadsOfCongruentMemoryCopyNothing) {
  WriteTestFile(directory_ / "file", 8 * kMega);
  const auto file = OpenForReading(fs_, directory_ / "file");
  if (!Works(fs_, file, Backend::kUringDirect)) GTEST_SKIP() << "no io_uring with O_DIRECT here";
  for (const uint64_t modulo : {uint64_t{4096}, uint64_t{64}}) {
    GuardedMemory memory(7 * kMega, modulo);
    const std::vector<ReadRange> ranges = {
        {.offset = 4096, .size = 7 * kMega, .block_bytes = 65536, .destination = memory.bytes()}};
    ReadOptions options;
    options.backend = Backend::kUringDirect;
    const auto stats = ReadRanges(fs_, {&file, 1}, ranges, {}, options);
    ASSERT_TRUE(IsOk(stats));
    EXPECT_TRUE(std::ranges::equal(memory.bytes(), Expected(4096, 7 * kMega)));
    EXPECT_EQ(stats->read_calls, 7U);
    EXPECT_EQ(stats->read_bytes, 7 * kMega);
    EXPECT_EQ(stats->copied_bytes, modulo == 64 ? 7 * kMega : 0U);
    EXPECT_EQ(stats->peak_buffer_bytes > 0, modulo == 64);
  }
}

// The last bytes of a file end inside of a block of the device.
TEST_F(ReadRangesTest, EndOfFileInsideOfADeviceBlock) {
  WriteTestFile(directory_ / "file", 2 * kMega + 700);
  const auto file = OpenForReading(fs_, directory_ / "file");
  for (const Backend backend : WorkingBackends(fs_, file)) {
    SCOPED_TRACE(Name(backend));
    std::vector<ReadRange> ranges = {
        {.offset = 4096, .size = 2 * kMega + 700 - 4096, .block_bytes = 65536}};
    BlockChecker checker(ranges);
    ReadOptions options;
    options.backend = backend;
    ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, checker.consumer(), options)));
    EXPECT_TRUE(checker.Complete());
    // One byte more than there is.
    ranges[0].size += 1;
    const Status status = ReadRanges(fs_, {&file, 1}, ranges, checker.consumer(), options).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("truncated"), HasSubstr("file"),
                                        HasSubstr("have 2097852 need 2097853")));
  }
}

TEST_F(ReadRangesTest, MemoryIsPredictedForLargePlans) {
  constexpr uint64_t kSize = 96 * kMega;
  WriteTestFile(directory_ / "file", kSize);
  const auto file = OpenForReading(fs_, directory_ / "file");
  for (const Backend backend : WorkingBackends(fs_, file)) {
    for (const uint64_t modulo : {uint64_t{0}, uint64_t{64}}) {
      SCOPED_TRACE(::testing::Message() << Name(backend) << ", modulo " << modulo);
      GuardedMemory memory(kSize, modulo);
      const std::vector<ReadRange> ranges = {
          {.offset = 0, .size = kSize, .block_bytes = 65536, .destination = memory.bytes()}};
      ReadOptions options;
      options.backend = backend;
      const auto predicted = PredictReadMemory({&file, 1}, ranges, options);
      ASSERT_TRUE(IsOk(predicted));
      const uint64_t before = LibraryMemory().current_bytes;
      ResetPeakMemory();
      ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, {}, options)));
      const uint64_t peak = LibraryMemory().peak_bytes - before;
      EXPECT_LE(peak, *predicted);
      EXPECT_GE(peak + peak / 10 + 8 * kMega, *predicted);
    }
  }
  EXPECT_EQ(PredictReadMemory({&file, 1}, {}, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ReadRangesTest, ConsumersErrorEndsTheRead) {
  WriteTestFile(directory_ / "file", 8 * kMega);
  const auto file = OpenForReading(fs_, directory_ / "file");
  for (const Backend backend : WorkingBackends(fs_, file)) {
    SCOPED_TRACE(Name(backend));
    const std::vector<ReadRange> ranges = {{.offset = 0, .size = 8 * kMega, .block_bytes = 65536}};
    uint64_t seen = 0;
    const auto consumer = [&](const ReadRange&, uint64_t, std::span<const std::byte>) {
      return ++seen == 20 ? Status(StatusCode::kCorruption, "digest") : Status();
    };
    ReadOptions options;
    options.backend = backend;
    const auto stats = ReadRanges(fs_, {&file, 1}, ranges, consumer, options);
    EXPECT_EQ(stats.status(), Status(StatusCode::kCorruption, "digest"));
    EXPECT_EQ(seen, 20U);
    const auto thrower = [](const ReadRange&, uint64_t, std::span<const std::byte>) -> Status {
      throw std::runtime_error("from the consumer");
    };
    EXPECT_THROW(static_cast<void>(ReadRanges(fs_, {&file, 1}, ranges, thrower, options)),
                 std::runtime_error);
  }
}

TEST_F(ReadRangesTest, BlocksLargerThanAllBuffersAreRefusedUnlessTheyGoStraight) {
  WriteTestFile(directory_ / "file", 3 * kMega);
  const auto file = OpenForReading(fs_, directory_ / "file");
  for (const Backend backend : WorkingBackends(fs_, file)) {
    SCOPED_TRACE(Name(backend));
    ReadOptions options;
    options.backend = backend;
    options.buffer_bytes = kMega;
    std::vector<ReadRange> ranges = {{.offset = 100, .size = 2 * kMega, .block_bytes = 0}};
    BlockChecker checker(ranges);
    const auto refused = ReadRanges(fs_, {&file, 1}, ranges, checker.consumer(), options);
    if (backend != Backend::kMmap) {
      EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    }
    GuardedMemory memory(2 * kMega, 7);
    ranges[0].destination = memory.bytes();
    const auto stats = ReadRanges(fs_, {&file, 1}, ranges, {}, options);
    ASSERT_TRUE(IsOk(stats));
    EXPECT_LE(stats->peak_buffer_bytes, kMega);
    EXPECT_TRUE(std::ranges::equal(memory.bytes(), Expected(100, 2 * kMega)));
  }
}

TEST_F(ReadRangesTest, AutoFollowsThePageCache) {
  const auto path = directory_ / "file";
  WriteTestFile(path, 4 * kMega);
  const auto file = OpenForReading(fs_, path);
  if (file->kind() != FileSystemKind::kLocal) {
    GTEST_SKIP() << "the temporary directory is not on a local disk";
  }
  auto choice = ChooseReadBackend(fs_, {&file, 1}, Backend::kAuto);
  ASSERT_TRUE(IsOk(choice));
  EXPECT_NE(choice->backend, Backend::kUringDirect) << "just written: in the page cache";
  EXPECT_THAT(choice->reason, HasSubstr("16 of 16 probed pages"));
  ASSERT_TRUE(IsOk(DropPageCache(path)));
  choice = ChooseReadBackend(fs_, {&file, 1}, Backend::kAuto);
  ASSERT_TRUE(IsOk(choice));
  EXPECT_THAT(choice->reason, HasSubstr("0 of 16 probed pages"));
  if (Works(fs_, file, Backend::kUringDirect)) {
    EXPECT_EQ(choice->backend, Backend::kUringDirect);
  }
  // Probing reads nothing.
  EXPECT_EQ(ResidentPages(path)->resident_pages, 0U);
}

TEST_F(ReadRangesTest, FileSystemInMemoryNeedsNoDirectReads) {
  if (!std::filesystem::exists("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const flagstone::testing::TemporaryDirectory memory("/dev/shm");
  WriteTestFile(memory / "file", kMega);
  const auto file = OpenForReading(fs_, memory / "file");
  const auto choice = ChooseReadBackend(fs_, {&file, 1}, Backend::kAuto);
  ASSERT_TRUE(IsOk(choice));
  EXPECT_NE(choice->backend, Backend::kUringDirect);
  EXPECT_THAT(choice->reason, HasSubstr("in memory"));
  for (const Backend backend : WorkingBackends(fs_, file)) {
    const std::vector<ReadRange> ranges = {{.offset = 10, .size = kMega - 10}};
    BlockChecker checker(ranges);
    ReadOptions options;
    options.backend = backend;
    ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, checker.consumer(), options)));
    EXPECT_TRUE(checker.Complete());
  }
}

// What was not cached before is not cached after; what was, stays.
TEST_F(ReadRangesTest, PageCacheIsLeftAsItWas) {
  constexpr uint64_t kSize = 32 * kMega;
  const auto path = directory_ / "file";
  WriteTestFile(path, kSize);
  const auto file = OpenForReading(fs_, path);
  if (file->kind() != FileSystemKind::kLocal) {
    GTEST_SKIP() << "the temporary directory is not on a local disk";
  }
  const std::vector<ReadRange> ranges = {{.offset = 0, .size = kSize, .block_bytes = kMega}};
  for (const Backend backend : {Backend::kUring, Backend::kPread, Backend::kMmap}) {
    if (!Works(fs_, file, backend)) continue;
    SCOPED_TRACE(Name(backend));
    ReadOptions options;
    options.backend = backend;
    ASSERT_TRUE(IsOk(DropPageCache(path)));
    ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, {}, options)));
    EXPECT_LE(ResidentPages(path)->resident_pages, 64U);

    options.keep_cached = true;
    ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, {}, options)));
    EXPECT_EQ(ResidentPages(path)->resident_pages, kSize / 4096);
    options.keep_cached = false;
    ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, {}, options)));
    EXPECT_EQ(ResidentPages(path)->resident_pages, kSize / 4096) << "somebody's warm cache";
  }
}

// One range, one block, more than any single call moves.
TEST_F(ReadRangesTest, MoreThanTwoGibibytesInOneRead) {
  constexpr uint64_t kSize = (uint64_t{2} << 30) + 4096;
  const auto path = directory_ / "file";
  {
    auto file = fs_.Open(path, {.mode = OpenOptions::Mode::kCreate});
    ASSERT_TRUE(IsOk(file));
    ASSERT_TRUE(IsOk((*file)->Truncate(kSize)));
    ASSERT_TRUE(IsOk(WriteFully(**file, kSize - 4096, Expected(kSize - 4096, 4096))));
  }
  const auto file = OpenForReading(fs_, path);
  auto memory = PageAllocator().Allocate(kSize, 4096);
  if (!memory.ok()) GTEST_SKIP() << memory.status().ToString();
  for (const Backend backend : WorkingBackends(fs_, file)) {
    SCOPED_TRACE(Name(backend));
    std::memset(memory->bytes().data() + kSize - 4096, 1, 4096);
    const std::vector<ReadRange> ranges = {
        {.offset = 0, .size = kSize, .block_bytes = 0, .destination = memory->bytes()}};
    uint64_t calls = 0;
    const auto consumer = [&](const ReadRange&, uint64_t, std::span<const std::byte> bytes) {
      ++calls;
      EXPECT_EQ(bytes.size(), kSize);
      return Status();
    };
    ReadOptions options;
    options.backend = backend;
    options.request_bytes = UINT64_MAX;
    ASSERT_TRUE(IsOk(ReadRanges(fs_, {&file, 1}, ranges, consumer, options)));
    EXPECT_EQ(calls, 1U);
    EXPECT_TRUE(std::ranges::equal(memory->bytes().last(4096), Expected(kSize - 4096, 4096)));
  }
}

}  // namespace
}  // namespace flagstone::io
