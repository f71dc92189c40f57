// SPDX-License-Identifier: Apache-2.0
// What decoding costs in memory: in proportion to the bytes that are there, whatever they claim.
#include <gmock/gmock.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/endian.h"
#include "base/text.h"
#include "flagstone/zero.h"
#include "format/header.h"
#include "format/manifest.h"
#include "golden_maker.h"
#include "mutations.h"
#include "partition/normalize.h"
#include "raw_wire.h"

namespace {

std::atomic<size_t> current_bytes = 0;
std::atomic<size_t> peak_bytes = 0;

void* Take(size_t size) noexcept {
  void* memory = std::malloc(size);
  if (memory == nullptr) return nullptr;
  const size_t now = current_bytes += malloc_usable_size(memory);
  if (now > peak_bytes) peak_bytes = now;
  return memory;
}

void* TakeOrThrow(size_t size) {
  void* memory = Take(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Give(void* memory) {
  if (memory == nullptr) return;
  current_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// The whole program's, so that vectors and strings inside of the library are counted. All of them:
// a sanitizer has its own for those that are missing, and minds when one takes what the other gave.
void* operator new(size_t size) { return TakeOrThrow(size); }
void* operator new[](size_t size) { return TakeOrThrow(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Take(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Take(size); }
void operator delete(void* memory) noexcept { Give(memory); }
void operator delete[](void* memory) noexcept { Give(memory); }
void operator delete(void* memory, size_t) noexcept { Give(memory); }
void operator delete[](void* memory, size_t) noexcept { Give(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Give(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Give(memory); }

namespace flagstone::test {
namespace {

// Most bytes that `work` held at one time, above what there was.
template <typename Work>
size_t PeakOf(Work work) {
  const size_t before = current_bytes;
  peak_bytes = before;
  work();
  return peak_bytes - before;
}

// 20 000 tensors of four roles on 1024 ranks.
format::Manifest LargeManifest() {
  format::Manifest manifest;
  Layout& layout = manifest.layout;
  layout.world_size = 1024;
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < 20'000; ++i) {
    Tensor tensor;
    tensor.name = base::Join("model.layers.", i / 12, ".self_attn.projection.weight.", i);
    tensor.dtype = DType::kBFloat16;
    tensor.shape = {1024 + i % 7, 513};
    layout.tensors.push_back(std::move(tensor));
    all.push_back(i);
  }
  const auto role = [](const char* name, DType dtype) {
    Role made;
    made.name = name;
    made.dtype = dtype;
    return made;
  };
  const RankList world = RankList::World(1024);
  const std::vector<Role> optimizer = {role("fp32", DType::kFloat32),
                                       role("exp_avg", DType::kFloat32),
                                       role("exp_avg_sq", DType::kFloat32)};
  layout.partitions = {MakeZero3("optimizer", all, world, optimizer),
                       MakeZero3("weights", all, world, {role("weight", DType::kBFloat16)})};
  layout = partition::Normalize(std::move(layout));
  for (uint32_t rank = 0; rank < 1024; ++rank) manifest.files.push_back({rank, 1 << 20, 1000, {}});
  return manifest;
}

TEST(Memory, OfALargeManifest) {
  const FileBytes file = format::EncodeManifest(LargeManifest()).value();
  EXPECT_LT(file.size(), size_t{3} << 20);
  const size_t peak = PeakOf([&] { EXPECT_TRUE(format::DecodeManifest(file).ok()); });
  EXPECT_LT(file.size() + peak, size_t{24} << 20);
}

// Each row states something that is not there, or there once and meant many times.
TEST(Memory, OfBadBytesIsBoundedByTheirNumber) {
  for (const Mutation& mutation : AllMutations()) {
    const size_t peak =
        PeakOf([&] { EXPECT_FALSE(Decode(mutation.decoder, mutation.bytes).ok()); });
    EXPECT_LT(peak, 64 * mutation.bytes.size() + (64 << 10)) << mutation.FileName();
  }
}

// Lengths near the ends of their types, in the places where files state lengths (field case G03).
TEST(Memory, OfHugeLengthsIsSmall) {
  const FileBytes sound = WrapManifest(RawManifestBody({}));
  for (const uint64_t length : {uint64_t{0}, uint64_t{7}, sound.size() - 7, uint64_t{1} << 31,
                                uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    const FileBytes file = WrapManifest(
        RawManifestBody({}), [&](format::Header& header) { header.index_length = length; });
    const size_t peak = PeakOf([&] { EXPECT_FALSE(format::DecodeManifest(file).ok()) << length; });
    EXPECT_LT(peak, size_t{1} << 20);
  }
}

// FlatBuffers' own counts: every 4 bytes of a layout, overwritten by a count that is too large.
TEST(Memory, OfHugeCountsIsSmall) {
  FileBytes bytes = RawLayoutBytes(SmallManifest().layout);
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    for (const uint32_t count : {0x7FFFFFFFu, 0x40000000u, 0xFFFFFFFFu, 0x00100000u}) {
      FileBytes changed = bytes;
      base::StoreLittle(&changed[at], count);
      const size_t peak = PeakOf([&] { static_cast<void>(Decode(Decoder::kLayout, changed)); });
      ASSERT_LT(peak, size_t{64} << 10) << "at " << at;
    }
  }
}

}  // namespace
}  // namespace flagstone::test
