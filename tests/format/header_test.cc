// SPDX-License-Identifier: Apache-2.0
#include "format/header.h"

#include <gmock/gmock.h>

#include "base/text.h"
#include "golden_maker.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using format::FileKind;

format::Header RankHeader() {
  format::Header header;
  header.kind = FileKind::kRankFile;
  header.save_id = GoldenSaveId();
  header.rank = 3;
  header.world_size = 5;
  header.file_length = 1 << 20;
  header.index_offset = (1 << 20) - 4096;
  header.index_length = 1000;
  header.index_digest[5] = std::byte{9};
  return header;
}

TEST(Header, RoundTrip) {
  const format::Header header = RankHeader();
  const auto page = format::EncodeHeader(header);
  EXPECT_EQ(format::DecodeHeader(page, FileKind::kRankFile, 1 << 20).value(), header);
}

TEST(Header, M17_NewerMinorIsReadWhateverItPutsIntoTheRest) {
  format::Header header = RankHeader();
  header.minor = 9;
  const auto plain = format::EncodeHeader(header);
  EXPECT_EQ(format::DecodeHeader(plain, FileKind::kRankFile, 1 << 20).value(), header);
  const FileBytes page = EditHeaderPage(
      {plain.begin(), plain.end()},
      [](std::span<std::byte> bytes) { bytes[136] = bytes[4095] = std::byte{0xAA}; });
  EXPECT_EQ(format::DecodeHeader(page, FileKind::kRankFile, 1 << 20).value(), header);
}

TEST(Header, BytesAreThoseOfTheSpecification) {
  const auto page = format::EncodeHeader(RankHeader());
  const auto hex = [&](size_t at, size_t size) {
    return base::Hex(std::span(page).subspan(at, size));
  };
  EXPECT_EQ(hex(0, 16),
            "89464c41470d0a1a"
            "02000000"
            "0000"
            "0100");
  EXPECT_EQ(hex(32, 8),
            "04030201"
            "00000000");
  EXPECT_EQ(hex(64, 8), "0000000000000000");
  EXPECT_EQ(hex(72, 16), base::Hex(GoldenSaveId()));
  EXPECT_EQ(hex(88, 8),
            "03000000"
            "05000000");
  EXPECT_EQ(hex(96, 24),
            "0000100000000000"
            "00f00f0000000000"
            "e803000000000000");
  EXPECT_EQ(hex(120, 16), "00000000000900000000000000000000");
  EXPECT_FALSE(format::FindNonZero(std::span(page).subspan(136)));
}

TEST(Header, FindNonZero) {
  FileBytes bytes(10000);
  EXPECT_EQ(format::FindNonZero(bytes), std::nullopt);
  EXPECT_EQ(format::FindNonZero({}), std::nullopt);
  for (const size_t at : {0u, 7u, 8u, 63u, 64u, 4095u, 9983u, 9984u, 9999u}) {
    bytes[at] = std::byte{1};
    EXPECT_EQ(format::FindNonZero(bytes), at);
    bytes[at] = std::byte{0};
  }
}

FileBytes Bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(DescribeForeign, NamesWhatPeopleHave) {
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(format::DescribeForeign({}), "empty");
  EXPECT_EQ(format::DescribeForeign(FileBytes(4096)), "all zeros");
  EXPECT_EQ(format::DescribeForeign(Bytes("PK\x03\x04....")), "a zip archive (torch.save?)");
  EXPECT_EQ(format::DescribeForeign(Bytes("\x80\x02}q\0."sv)), "a pickle");
  EXPECT_EQ(format::DescribeForeign(Bytes("\x80\x05\x95")), "a pickle");
  EXPECT_EQ(format::DescribeForeign(Bytes("\x40\0\0\0\0\0\0\0{\"w\":{}}"sv)), "safetensors");
  EXPECT_EQ(format::DescribeForeign(Bytes("GGUF\x03\0\0\0"sv)), "gguf");
  EXPECT_EQ(format::DescribeForeign(Bytes("\x7f"
                                          "ELF\x02")),
            "an ELF program or library");
  EXPECT_EQ(format::DescribeForeign(Bytes("{\"weight_map\": {}}")), "JSON");
  EXPECT_EQ(format::DescribeForeign(Bytes("hello,\tworld\n")), "text");
  EXPECT_EQ(format::DescribeForeign(Bytes("version https://git-lfs.github.com/spec/v1\n")),
            "a Git LFS pointer: the file itself was not fetched");
  EXPECT_EQ(format::DescribeForeign(Bytes("\x89"
                                          "FLAG\n\x1a")),
            "a Flagstone file changed by a transfer in text mode");
  EXPECT_EQ(format::DescribeForeign(Bytes("\x01\x02\x03\x04")), "unknown bytes");
  // A text whose first page ends inside of a character.
  std::string text(511, 'a');
  EXPECT_EQ(format::DescribeForeign(Bytes(text + "\xE9\x87\x8D")), "text");
}

TEST(RankFileName, M78_FollowsFromRankAndSaveId) {
  EXPECT_EQ(format::RankFileName(3, GoldenSaveId()), "rank-00003.1a2b3c4d.flagstone");
  EXPECT_EQ(format::RankFileName(123456, GoldenSaveId()), "rank-123456.1a2b3c4d.flagstone");
  for (const uint32_t rank : {0u, 9u, 10u, 99u, 100u, 9999u, 10000u, 99999u, 100000u, ~0u}) {
    const auto parts = format::ParseRankFileName(format::RankFileName(rank, GoldenSaveId()));
    ASSERT_TRUE(parts) << rank;
    EXPECT_EQ(parts->rank, rank);
    EXPECT_EQ(parts->id_digits, "1a2b3c4d");
  }
}

TEST(RankFileName, NothingElseIsOne) {
  for (const char* name : {"", "rank-", "rank-00003.flagstone", "rank-3.1a2b3c4d.flagstone",
                           "rank-000003.1a2b3c4d.flagstone", "rank-00003.1A2B3C4D.flagstone",
                           "rank-00003.1a2b3c4.flagstone", "rank-00003.1a2b3c4d5.flagstone",
                           "rank-0000x.1a2b3c4d.flagstone", "rank--0003.1a2b3c4d.flagstone",
                           "rank-+0003.1a2b3c4d.flagstone", "rank-4294967296.1a2b3c4d.flagstone",
                           "rank-00003.1a2b3c4d.flagstone.tmp", "../rank-00003.1a2b3c4d.flagstone",
                           "rank-00003-1a2b3c4d.flagstone", "manifest.flagstone"}) {
    EXPECT_FALSE(format::ParseRankFileName(name)) << name;
  }
}

}  // namespace
}  // namespace flagstone::test
