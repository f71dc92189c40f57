// SPDX-License-Identifier: Apache-2.0
// A rank file against the format, byte for byte.

#include "save/rank_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "base/endian.h"
#include "flagstone/zero.h"
#include "format/header.h"
#include "partition/normalize.h"
#include "support/fault_file_system.h"
#include "support/temporary_directory.h"

namespace flagstone::save {
namespace {

using flagstone::testing::FaultFileSystem;
using flagstone::testing::Operation;
using flagstone::testing::TemporaryDirectory;

constexpr uint64_t kPage = 4096;

// 900 chunks of 16 KiB and more: several digest pages.
Layout MakeLayout() {
  Layout layout;
  layout.world_size = 2;
  std::vector<uint32_t> all;
  for (const uint64_t size : {uint64_t{7}, uint64_t{0}, uint64_t{50'257}, uint64_t{6'000'001}}) {
    Tensor tensor;
    tensor.name = std::to_string(size);
    tensor.shape = {size};
    tensor.dtype = DType::kFloat32;
    all.push_back(static_cast<uint32_t>(layout.tensors.size()));
    layout.tensors.push_back(tensor);
  }
  std::vector<Role> roles = {{"fp32", DType::kFloat32}, {"half", DType::kFloat16}};
  for (Role& role : roles) role.chunk_bytes = 16384;
  layout.partitions = {MakeZero3("p", all, RankList::World(2), roles)};
  return partition::Normalize(std::move(layout));
}

std::byte ByteAt(uint64_t segment, uint64_t offset) {
  return static_cast<std::byte>((offset * 31 + offset / 251 + segment * 7) % 256);
}

class RampSource final : public Source {
 public:
  RampSource(uint64_t segment, uint64_t size) : segment_(segment), size_(size) {}
  uint64_t size_bytes() const override { return size_; }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = ByteAt(segment_, offset + i);
    return {};
  }

 private:
  const uint64_t segment_;
  const uint64_t size_;
};

class RankFileTest : public ::testing::Test {
 protected:
  RankFileTest() {
    content_.placement = format::PlaceRankFile(layout_, 1, {}).value();
    for (const auto& segment : content_.placement.segments) {
      sources_.push_back(std::make_unique<RampSource>(sources_.size(), segment.bytes));
      content_.parts.push_back({{0, segment.bytes, sources_.back().get(), 0}});
    }
  }
  Result<FinishedRankFile> Write(const io::WriteOptions& options) {
    auto file = RankFile::Create(fs_, name_, "record", content_, options, std::nullopt);
    if (!file.ok()) return file.status();
    const Status written = (*file)->WriteSegments(nullptr);
    if (!written.ok()) return written;
    format::RankIndex index;
    index.rank = 1;
    index.world_size = 2;
    index.save_id[0] = std::byte{9};
    index.rank_state.Set("n", Value(3));
    return (*file)->Finish(std::move(index));
  }
  std::vector<std::byte> Content() {
    std::ifstream in(name_, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  // Everything that spec/format.md says of a rank file's bytes.
  void ExpectByFormat(const FinishedRankFile& finished) {
    const std::vector<std::byte> bytes = Content();
    const std::span<const std::byte> all(bytes);
    const format::RankPlacement& placement = content_.placement;
    ASSERT_EQ(bytes.size(), finished.file_length);
    ASSERT_EQ(bytes.size(), format::RankFileLength(placement, finished.index_length));
    const auto header =
        format::DecodeHeader(all.first(kPage), format::FileKind::kRankFile, bytes.size());
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    EXPECT_EQ(header->rank, 1U);
    EXPECT_EQ(header->index_digest, finished.index_digest);
    const auto encoded = all.subspan(header->index_offset, header->index_length);
    EXPECT_EQ(base::DigestOf(encoded), header->index_digest);
    const auto index = format::DecodeRankIndex(encoded);
    ASSERT_TRUE(index.ok()) << index.status().ToString();
    EXPECT_EQ(index->placement, placement);
    EXPECT_FALSE(format::FindNonZero(all.subspan(header->index_offset + header->index_length)));
    const auto pages =
        all.subspan(placement.digests_offset, placement.index_offset - placement.digests_offset);
    ASSERT_EQ(index->page_digests.size(), placement.digest_pages());
    EXPECT_GT(placement.digest_pages(), 1U);
    for (size_t page = 0; page < index->page_digests.size(); ++page)
      EXPECT_EQ(index->page_digests[page], base::Digest64(pages.subspan(page * kPage, kPage)));
    EXPECT_FALSE(format::FindNonZero(pages.subspan(8 * placement.digest_count)));
    for (size_t s = 0; s < placement.segments.size(); ++s) {
      const format::PlacedSegment& segment = placement.segments[s];
      const auto padded = all.subspan(segment.offset, segment.padded_bytes());
      for (uint64_t at = 0; at < segment.bytes; ++at)
        ASSERT_EQ(padded[at], ByteAt(s, at)) << segment.role << " " << at;
      EXPECT_FALSE(format::FindNonZero(padded.subspan(segment.bytes)));
      for (uint64_t chunk = 0; chunk < segment.chunks(); ++chunk) {
        const uint64_t at = chunk * segment.chunk_bytes;
        const uint64_t size = std::min<uint64_t>(segment.chunk_bytes, padded.size() - at);
        EXPECT_EQ(base::LoadLittle<uint64_t>(pages.data() + 8 * (segment.first_chunk + chunk)),
                  base::Digest64(padded.subspan(at, size)));
      }
    }
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path name_ = directory_ / "file";
  FaultFileSystem fs_{io::PosixFileSystem()};
  const Layout layout_ = MakeLayout();
  std::vector<std::unique_ptr<RampSource>> sources_;
  RankFileContent content_;
};

TEST_F(RankFileTest, EveryByteIsAsTheFormatSays) {
  for (const Backend backend : {Backend::kAuto, Backend::kPread}) {
    io::WriteOptions options;
    options.backend = backend;
    const auto finished = Write(options);
    ASSERT_TRUE(finished.ok()) << finished.status().ToString();
    EXPECT_LE(finished->write.peak_staging_bytes, uint64_t{64} << 20);
    ExpectByFormat(*finished);
    std::filesystem::remove(name_);
  }
}

TEST_F(RankFileTest, TinyStagingWorksAndIsHeld) {
  io::WriteOptions options;
  options.staging_bytes = 128 * 1024;
  const auto finished = Write(options);
  ASSERT_TRUE(finished.ok()) << finished.status().ToString();
  EXPECT_LE(finished->write.peak_staging_bytes, options.staging_bytes);
  ExpectByFormat(*finished);
}

TEST_F(RankFileTest, AFullDiskIsFoundBeforeAByteOfDataAndNothingIsLeft) {
  fs_.Fail(Operation::kAllocate, ENOSPC);
  const auto finished = Write({});
  EXPECT_EQ(finished.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(finished.status().message(),
              ::testing::HasSubstr(std::to_string(content_.placement.index_offset) + " bytes"));
  EXPECT_FALSE(std::filesystem::exists(name_));
  EXPECT_EQ(fs_.calls(Operation::kWrite), 1U) << "the record alone";
}

TEST_F(RankFileTest, ANameThatIsThereIsNotTouched) {
  std::ofstream(name_) << "other";
  EXPECT_EQ(Write({}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Content().size(), 5U);
}

}  // namespace
}  // namespace flagstone::save
