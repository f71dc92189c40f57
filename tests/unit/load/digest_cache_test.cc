// SPDX-License-Identifier: Apache-2.0
#include "load/digest_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "flagstone/zero.h"
#include "saved_files.h"
#include "store/open.h"
#include "support/temporary_directory.h"

namespace flagstone::load {
namespace {

// Chunks of 4 KiB: 512 of them a page of digests, `pages` pages.
class DigestCacheTest : public ::testing::Test {
 protected:
  void Make(uint64_t pages) {
    Layout layout;
    Tensor tensor;
    tensor.name = "t";
    tensor.dtype = DType::kInt8;
    tensor.shape = {pages * 512 * 4096};
    layout.tensors.push_back(tensor);
    Role role{"codes", DType::kInt8};
    role.chunk_bytes = 4096;
    layout.partitions = {MakeZero3("p", {0}, RankList::World(1), {role})};
    content_ = [](const format::PlacedSegment&, uint64_t offset, std::span<std::byte> out) {
      std::fill(out.begin(), out.end(), static_cast<std::byte>(offset / 4096 % 251));
    };
    saved_ = testing::MakeCheckpoint(layout, {.content = content_});
    testing::WriteFiles(saved_, directory_ / "c", content_);
    opened_ = store::OpenManifest(io::PosixFileSystem(), directory_ / "c").value();
    file_ = store::RankFileReader::Open(io::PosixFileSystem(), opened_, 0).value();
  }
  uint64_t Stated(uint64_t index) const {
    std::vector<std::byte> chunk(4096, static_cast<std::byte>(index % 251));
    return base::Digest64(chunk);
  }

  testing::TemporaryDirectory directory_;
  testing::SegmentContent content_;
  testing::SavedCheckpoint saved_;
  store::OpenedManifest opened_;
  std::shared_ptr<const store::RankFileReader> file_;
  DigestCache cache_;
  uint64_t read_ = 0;
};

TEST_F(DigestCacheTest, ReadsAPageOnceAndAheadToTheEnd) {
  Make(3);
  EXPECT_EQ(cache_.Get(*file_, 5, 6, read_).value(), Stated(5));
  EXPECT_EQ(read_, 4096u);
  EXPECT_EQ(cache_.Get(*file_, 511, 512, read_).value(), Stated(511));
  EXPECT_EQ(read_, 4096u);
  EXPECT_EQ(cache_.Get(*file_, 600, 3 * 512, read_).value(), Stated(600));
  EXPECT_EQ(read_, 3 * 4096u);
  EXPECT_EQ(cache_.Get(*file_, 3 * 512 - 1, 3 * 512, read_).value(), Stated(3 * 512 - 1));
  EXPECT_EQ(read_, 3 * 4096u);
}

TEST_F(DigestCacheTest, DoesNotReadAgainWhatLiesAhead) {
  Make(4);
  EXPECT_TRUE(cache_.Get(*file_, 2 * 512, 2 * 512 + 1, read_).ok());
  EXPECT_EQ(read_, 4096u);
  EXPECT_TRUE(cache_.Get(*file_, 0, 4 * 512, read_).ok());
  EXPECT_EQ(read_, 3 * 4096u) << "up to the page that is there";
  EXPECT_EQ(cache_.Get(*file_, 3 * 512, 4 * 512, read_).value(), Stated(3 * 512));
  EXPECT_EQ(read_, 4 * 4096u);
}

TEST_F(DigestCacheTest, HoldsABoundedNumberOfPages) {
  Make(DigestCache::kMaxPages + 8);
  const uint64_t end = (DigestCache::kMaxPages + 8) * 512;
  for (uint64_t index = 0; index < end; index += 100) {
    ASSERT_EQ(cache_.Get(*file_, index, end, read_).value(), Stated(index));
  }
  EXPECT_EQ(read_, (DigestCache::kMaxPages + 8) * 4096) << "forwards each page is read once";
  EXPECT_EQ(cache_.Get(*file_, 0, 1, read_).value(), Stated(0));
  EXPECT_EQ(read_, (DigestCache::kMaxPages + 9) * 4096) << "the first one had to go";
}

TEST_F(DigestCacheTest, APageThatWasNotSavedIsRefusedByName) {
  Make(2);
  testing::SavedFile& file = saved_.files[0];
  file.tail[4096 + 17] ^= std::byte{4};
  testing::WriteFiles(saved_, directory_ / "c", content_);
  EXPECT_TRUE(cache_.Get(*file_, 0, 1, read_).ok());
  const Status status = cache_.Get(*file_, 512, 513, read_).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("digest page 1 of "));
  EXPECT_THAT(status.message(), ::testing::HasSubstr("segment 'p/codes'"));
  EXPECT_EQ(status.place().offset, file_->index().placement.digests_offset + 4096);
}

}  // namespace
}  // namespace flagstone::load
