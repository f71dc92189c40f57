// SPDX-License-Identifier: Apache-2.0
#include "flagstone/memory.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "flagstone/backend.h"
#include "io/buffer_pool.h"
#include "io/memory_count.h"
#include "io_test_util.h"

namespace flagstone::io {
namespace {

using ::testing::HasSubstr;

class MemoryTest : public IoTest {};

TEST_F(MemoryTest, PageAllocatorAlignsAndCounts) {
  const uint64_t before = LibraryMemory().current_bytes;
  for (const uint64_t alignment : {1U, 512U, 4096U, 65536U, 2U << 20}) {
    for (const uint64_t size : {1U, 4095U, 4096U, 4097U, 5U << 20}) {
      auto buffer = PageAllocator().Allocate(size, alignment);
      ASSERT_TRUE(IsOk(buffer));
      ASSERT_EQ(buffer->bytes().size(), size);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->bytes().data()) % alignment, 0U);
      std::memset(buffer->bytes().data(), 1, size);
      // The room for the alignment is given back: only whole pages of what was asked for stay.
      EXPECT_EQ(LibraryMemory().current_bytes - before, (size + 4095) / 4096 * 4096);
    }
  }
  EXPECT_EQ(LibraryMemory().current_bytes, before);
}

TEST_F(MemoryTest, PeakIsSinceItsReset) {
  const uint64_t before = LibraryMemory().current_bytes;
  ResetPeakMemory();
  { ASSERT_TRUE(IsOk(PageAllocator().Allocate(1 << 20, 4096))); }
  EXPECT_EQ(LibraryMemory().peak_bytes, before + (1 << 20));
  ResetPeakMemory();
  EXPECT_EQ(LibraryMemory().peak_bytes, before);
}

TEST_F(MemoryTest, NothingToAllocateIsABuffer) {
  auto buffer = PageAllocator().Allocate(0, 64);
  ASSERT_TRUE(IsOk(buffer));
  EXPECT_TRUE(buffer->bytes().empty());
}

TEST_F(MemoryTest, TooMuchIsRefusedWithTheSize) {
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 4096, uint64_t{1} << 60}) {
    const auto buffer = PageAllocator().Allocate(size, 4096);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(buffer.status().message(), HasSubstr(std::to_string(size)));
  }
  EXPECT_EQ(PageAllocator().Allocate(1, 3).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(MemoryTest, HostBufferReleasesOnce) {
  int released = 0;
  std::byte memory[4];
  const auto release = [](void* context, std::span<std::byte>) { ++*static_cast<int*>(context); };
  {
    HostBuffer first(memory, release, &released);
    HostBuffer second(std::move(first));
    HostBuffer third;
    third = std::move(second);
    EXPECT_EQ(third.bytes().data(), memory);
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST_F(MemoryTest, SpanSourceReadsItsMemoryAndNoMore) {
  const std::vector<std::byte> bytes = Expected(0, 100);
  SpanSource source(bytes);
  EXPECT_EQ(source.size_bytes(), 100U);
  EXPECT_FALSE(source.IsZero(0, 100));
  std::vector<std::byte> out(40);
  ASSERT_TRUE(IsOk(source.Read(60, out)));
  EXPECT_EQ(out, Expected(60, 40));
  EXPECT_EQ(source.Read(61, out).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(source.Read(UINT64_MAX, out).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(IsOk(source.Read(100, {})));
}

TEST_F(MemoryTest, BackendNamesGoBothWays) {
  for (const Backend backend :
       {Backend::kAuto, Backend::kUringDirect, Backend::kUring, Backend::kPread, Backend::kMmap}) {
    EXPECT_EQ(BackendFromName(Name(backend)), backend);
  }
  EXPECT_EQ(Name(Backend::kUringDirect), "uring-direct");
  EXPECT_EQ(BackendFromName("Auto"), std::nullopt);
}

TEST_F(MemoryTest, BufferPoolStaysWithinItsLimit) {
  BufferPool pool({.limit_bytes = 300 << 10, .buffer_bytes = 100 << 10});
  std::vector<std::span<std::byte>> buffers;
  for (int i = 0; i < 3; ++i) {
    const auto taken = pool.Take(1);
    ASSERT_TRUE(IsOk(taken));
    ASSERT_TRUE(taken->has_value());
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*taken)->data()) % 4096, 0U);
    EXPECT_GE((*taken)->size(), 100U << 10);
    buffers.push_back(**taken);
  }
  // Full: wait for one to come back, and have that one again.
  auto fourth = pool.Take(1);
  ASSERT_TRUE(IsOk(fourth));
  EXPECT_FALSE(fourth->has_value());
  pool.Give(buffers[1]);
  fourth = pool.Take(1);
  ASSERT_TRUE(IsOk(fourth));
  EXPECT_EQ((*fourth)->data(), buffers[1].data());
  for (const auto& buffer : buffers) pool.Give(buffer);
  // Larger than was foreseen: those that are free make room.
  const auto large = pool.Take(250 << 10);
  ASSERT_TRUE(IsOk(large));
  EXPECT_TRUE(large->has_value());
  EXPECT_EQ(pool.peak_bytes(), 300U << 10);
  EXPECT_EQ(pool.Take((300 << 10) + 1).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(MemoryTest, BufferPoolMapsNoMoreThanIsPredicted) {
  constexpr uint64_t kMega = uint64_t{1} << 20;
  for (const uint64_t size : {uint64_t{4096}, uint64_t{100'000}, kMega, 5 * kMega}) {
    for (const uint64_t count : {1U, 3U, 1000U}) {
      const BufferLimits limits = {.limit_bytes = 16 * kMega, .buffer_bytes = size, .count = count};
      BufferPool pool(limits);
      for (uint64_t in_use = 1; in_use <= std::min<uint64_t>(count, 16 * kMega / size); ++in_use) {
        const auto taken = pool.Take(size);
        ASSERT_TRUE(IsOk(taken));
        if (!*taken) break;
        EXPECT_EQ(pool.peak_bytes(), PoolBytes(limits, in_use));
      }
      EXPECT_LE(pool.peak_bytes(), 16 * kMega);
    }
  }
}

}  // namespace
}  // namespace flagstone::io
