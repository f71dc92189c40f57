// SPDX-License-Identifier: Apache-2.0
#include "save/segment_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <random>

#include "support/temporary_directory.h"

namespace flagstone::save {
namespace {

using flagstone::testing::TemporaryDirectory;

constexpr uint64_t kPage = 4096;

std::vector<std::byte> RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Digests of a segment's chunks by the definition: the last one reaches the 4 KiB boundary.
std::vector<uint64_t> DigestsOf(std::vector<std::byte> segment, uint64_t chunk) {
  segment.resize((segment.size() + kPage - 1) / kPage * kPage);
  std::vector<uint64_t> digests;
  for (size_t at = 0; at < segment.size(); at += chunk)
    digests.push_back(base::Digest64(
        std::span(segment).subspan(at, std::min<size_t>(chunk, segment.size() - at))));
  return digests;
}

// Zero in the chunks that a bit of `zero_chunks` names.
class HoleySource final : public Source {
 public:
  HoleySource(uint64_t size, uint64_t chunk, uint64_t zero_chunks)
      : bytes_(RandomBytes(size, 5)), chunk_(chunk), zero_chunks_(zero_chunks) {
    for (uint64_t at = 0; at < size; ++at) {
      if (Zero(at)) bytes_[at] = {};
    }
  }
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    read_ += out.size();
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  bool IsZero(uint64_t offset, uint64_t size) const override {
    for (uint64_t at = offset; at < offset + size; ++at) {
      if (!Zero(at)) return false;
    }
    return true;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  uint64_t read() const { return read_; }

 private:
  bool Zero(uint64_t at) const { return (zero_chunks_ >> (at / chunk_ % 64) & 1U) != 0; }
  std::vector<std::byte> bytes_;
  const uint64_t chunk_;
  const uint64_t zero_chunks_;
  uint64_t read_ = 0;
};

class SegmentStreamTest : public ::testing::Test {
 protected:
  // Stream segments one after the other from offset 4096; gives the file behind it.
  std::vector<std::byte> Stream(std::span<Source* const> sources, uint64_t chunk, uint64_t staging,
                                std::vector<uint64_t>& digests) {
    std::filesystem::remove(name_);
    std::shared_ptr<io::File> file =
        io::PosixFileSystem().Open(name_, {io::OpenOptions::Mode::kCreateExclusive, false}).value();
    io::WriteOptions options;
    options.staging_bytes = staging;
    auto writer = io::StagedWriter::Make(io::PosixFileSystem(), file, options).value();
    uint64_t told = 0;
    {
      SegmentStream stream(*writer, kPage, [&](uint64_t streamed) {
        EXPECT_GT(streamed, told);
        told = streamed;
        return Status();
      });
      for (Source* source : sources) {
        EXPECT_EQ(stream.position() % kPage, 0U);
        EXPECT_TRUE(stream.BeginSegment(static_cast<uint32_t>(chunk)).ok());
        EXPECT_TRUE(stream.AppendSource(*source, 0, source->size_bytes()).ok());
        EXPECT_TRUE(stream.EndSegment().ok());
      }
      EXPECT_TRUE(stream.Flush().ok());
      digests = stream.digests();
      const auto stats = writer->Finish();
      EXPECT_TRUE(stats.ok());
      EXPECT_LE(stats->peak_staging_bytes, staging);
      EXPECT_TRUE(file->Truncate(stream.position()).ok());
    }
    std::ifstream in(name_, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const auto bytes = std::as_bytes(std::span(text)).subspan(kPage);
    return {bytes.begin(), bytes.end()};
  }

  const TemporaryDirectory directory_;
  const std::filesystem::path name_ = directory_ / "file";
};

TEST_F(SegmentStreamTest, EveryChunksDigestIsThatOfItsBytes) {
  for (const uint64_t chunk : {kPage, 4 * kPage, 256 * kPage}) {
    // Buffers that a chunk does not fit into, and that chunks do not divide.
    for (const uint64_t staging : {kPage, 3 * kPage, 5 * kPage, uint64_t{1} << 20}) {
      std::vector<std::vector<std::byte>> data;
      std::vector<SpanSource> sources;
      std::vector<std::byte> expected;
      std::vector<uint64_t> expected_digests;
      for (const size_t size : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{0},
                                size_t{100'000}, size_t{12 * 4096}}) {
        data.push_back(RandomBytes(size, size));
        const auto digests = DigestsOf(data.back(), chunk);
        expected_digests.insert(expected_digests.end(), digests.begin(), digests.end());
        expected.insert(expected.end(), data.back().begin(), data.back().end());
        expected.resize((expected.size() + kPage - 1) / kPage * kPage);
      }
      for (const auto& bytes : data) sources.emplace_back(bytes);
      std::vector<Source*> pointers;
      for (SpanSource& source : sources) pointers.push_back(&source);
      std::vector<uint64_t> digests;
      EXPECT_EQ(Stream(pointers, chunk, staging, digests), expected) << chunk << " " << staging;
      EXPECT_EQ(digests, expected_digests) << chunk << " " << staging;
    }
  }
}

TEST_F(SegmentStreamTest, ZeroChunksAreHolesWithTheDigestOfZeros) {
  constexpr uint64_t kChunk = 16 * kPage;
  for (const uint64_t zeros : {uint64_t{0}, uint64_t{0b1010}, ~uint64_t{0}, uint64_t{0b1}}) {
    HoleySource source(7 * kChunk + 100, kChunk, zeros);
    Source* const pointer = &source;
    std::vector<uint64_t> digests;
    std::vector<std::byte> expected = source.bytes();
    expected.resize((expected.size() + kPage - 1) / kPage * kPage);
    EXPECT_EQ(Stream({&pointer, 1}, kChunk, uint64_t{1} << 20, digests), expected);
    EXPECT_EQ(digests, DigestsOf(source.bytes(), kChunk));
    uint64_t holes = 0;
    for (uint64_t chunk = 0; chunk < 7; ++chunk) holes += zeros >> chunk & 1U;
    EXPECT_EQ(source.read(), source.size_bytes() - holes * kChunk);
    struct stat info {};
    ASSERT_EQ(stat(name_.c_str(), &info), 0);
    EXPECT_LE(static_cast<uint64_t>(info.st_blocks) * 512, (9 - holes) * kChunk) << zeros;
  }
}

TEST_F(SegmentStreamTest, ErrorsOfSourceAndCheckpointEndIt) {
  class Broken final : public Source {
   public:
    uint64_t size_bytes() const override { return 10'000; }
    Status Read(uint64_t offset, std::span<std::byte>) override {
      return offset < 4096 ? Status() : Status(StatusCode::kIoError, "broken");
    }
  } broken;
  std::shared_ptr<io::File> file =
      io::PosixFileSystem().Open(name_, {io::OpenOptions::Mode::kCreateExclusive, false}).value();
  io::WriteOptions options;
  options.staging_bytes = kPage;
  auto writer = io::StagedWriter::Make(io::PosixFileSystem(), file, options).value();
  {
    SegmentStream stream(*writer, kPage, nullptr);
    ASSERT_TRUE(stream.BeginSegment(kPage).ok());
    EXPECT_EQ(stream.AppendSource(broken, 0, 10'000).message(), "broken");
  }
  SegmentStream stream(*writer, kPage,
                       [](uint64_t) { return Status(StatusCode::kCancelled, "enough"); });
  ASSERT_TRUE(stream.BeginSegment(kPage).ok());
  EXPECT_EQ(stream.AppendZeros(3 * kPage).message(), "enough");
}

}  // namespace
}  // namespace flagstone::save
