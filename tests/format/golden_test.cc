// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <array>

#include "base/digest.h"
#include "base/text.h"
#include "file_checker.h"
#include "flagstone/dtype.h"
#include "format/header.h"
#include "golden_description.h"
#include "raw_wire.h"
#include "test_files.h"

namespace flagstone::test {
namespace {

// The committed files, by the names that the manifest's save id and ranks give.
Files CommittedFiles() {
  Files files;
  std::vector<std::string> names = {std::string(format::kManifestName)};
  for (uint32_t rank = 0; rank < 3; ++rank)
    names.push_back(format::RankFileName(rank, GoldenSaveId()));
  for (const std::string& name : names) files[name] = ReadTestFile("tests/format/golden/" + name);
  return files;
}

TEST(Golden, DecodesToTheCommittedJson) {
  const FileBytes json = ReadTestFile("tests/format/golden/description.json");
  const std::string committed(reinterpret_cast<const char*>(json.data()), json.size());
  EXPECT_EQ(DescribeGolden(CommittedFiles()), committed);
}

TEST(Golden, KeepsEveryRuleOfWholeFiles) { EXPECT_EQ(CheckCheckpoint(CommittedFiles()), ""); }

TEST(Golden, ReencodesByteForByte) {
  if (!IsGoldenFlatBuffers()) GTEST_SKIP() << "made with another version of FlatBuffers";
  const Files files = CommittedFiles();
  for (const auto& [name, bytes] : files) {
    SCOPED_TRACE(name);
    if (name == format::kManifestName) {
      const auto manifest = format::DecodeManifest(bytes);
      ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
      EXPECT_EQ(format::EncodeManifest(*manifest).value(), bytes);
      continue;
    }
    const auto header = format::DecodeHeader(std::span(bytes).first(4096),
                                             format::FileKind::kRankFile, bytes.size());
    ASSERT_TRUE(header.ok()) << header.status().ToString();
    const auto page = format::EncodeHeader(*header);
    EXPECT_TRUE(std::equal(page.begin(), page.end(), bytes.begin()));
    const auto index = std::span(bytes).subspan(header->index_offset, header->index_length);
    const auto decoded = format::DecodeRankIndex(index);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(format::EncodeRankIndex(*decoded).value(), FileBytes(index.begin(), index.end()));
  }
}

TEST(Golden, MakerMakesTheCommittedFiles) {
  if (!IsGoldenFlatBuffers()) GTEST_SKIP() << "made with another version of FlatBuffers";
  EXPECT_EQ(MakeGolden(), CommittedFiles())
      << "run make_format_golden, with the reason in the commit";
}

// What a layout means for the bytes does not depend on who made the files: rank 2's expert weight
// lies where the specification says.
TEST(Golden, SegmentsLieWhereTheSpecificationSays) {
  const Files files = CommittedFiles();
  const FileBytes& file = files.at(format::RankFileName(2, GoldenSaveId()));
  // Partitions by id: expert (weight, row_variance), flat.0 (fp32, exp_avg), tp.grid (weight).
  const uint64_t digests = 4096 * (1 + 1 + 1 + 2 + 2 + 1);
  const auto header =
      format::DecodeHeader(std::span(file).first(4096), format::FileKind::kRankFile, file.size());
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->index_offset, digests + 4096);
  const auto index =
      format::DecodeRankIndex(std::span(file).subspan(header->index_offset, header->index_length))
          .value();
  ASSERT_EQ(index.placement.segments.size(), 5u);
  const std::vector<format::PlacedSegment> expected = {
      {"expert", "weight", 4096, 48, 1 << 20, 0},
      {"expert", "row_variance", 8192, 12, 1 << 20, 1},
      {"flat.0", "fp32", 12288, 1180 * 4, 4096, 2},
      {"flat.0", "exp_avg", 20480, 1180 * 4, 65536, 4},
      // Rows 3, 4 and 7, 8 of nine: (0 to 4), (5 to 8) over two ranks.
      {"tp.grid", "weight", 28672, 4 * 4 * 4, 65536, 5}};
  EXPECT_EQ(index.placement.segments, expected);
  EXPECT_EQ(index.placement.digest_count, 6u);
}

// The specification shows what is there.
TEST(Golden, SpecificationShowsItsFirstBytesAndAllElementTypes) {
  const FileBytes text = ReadTestFile("spec/format.md");
  const std::string specification(reinterpret_cast<const char*>(text.data()), text.size());
  const FileBytes manifest = CommittedFiles().at(std::string(format::kManifestName));
  for (size_t line = 0; line < 160; line += 16) {
    std::string expected = "000000" + base::Hex(std::array{static_cast<std::byte>(line)}) + " ";
    for (size_t i = 0; i < 16; ++i) {
      expected += (i == 8 ? "  " : " ") + base::Hex(std::span(&manifest[line + i], 1));
    }
    EXPECT_THAT(specification, testing::HasSubstr(expected));
  }
  for (const DType dtype : AllDTypes()) {
    const std::string expected =
        base::Join("| ", static_cast<int>(dtype), " | `", Name(dtype), "` | ", SizeOf(dtype), " |");
    EXPECT_THAT(specification, testing::HasSubstr(expected));
  }
}

}  // namespace
}  // namespace flagstone::test
