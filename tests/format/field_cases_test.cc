// SPDX-License-Identifier: Apache-2.0
// What went wrong for others, as far as one buffer of bytes can show that it does not here.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "base/text.h"
#include "format/header.h"
#include "format/layout_codec.h"
#include "golden_maker.h"
#include "mutations.h"
#include "partition/normalize.h"
#include "raw_wire.h"

namespace flagstone::test {
namespace {

using testing::HasSubstr;

template <typename Edit>
Status DecodeEdited(Edit edit) {
  Layout layout = SmallManifest().layout;
  edit(layout);
  return Decode(Decoder::kLayout, RawLayoutBytes(layout));
}

TEST(FieldCases, FieldCase_G01_ShapeProductsThatOverflowAreRefused) {
  const std::vector<std::vector<uint64_t>> shapes = {{1ull << 32, 1ull << 32},
                                                     {1ull << 63, 2},
                                                     std::vector<uint64_t>(65, 1),
                                                     {~0ull},
                                                     {~0ull, ~0ull}};
  for (const auto& shape : shapes) {
    const Status status = DecodeEdited([&](Layout& l) { l.tensors[0].shape = shape; });
    EXPECT_EQ(status.code(), StatusCode::kCorruption) << base::ShapeText(shape);
  }
  // A zero makes a tensor empty, whatever the other sizes are: then the flat cut's sum is wrong.
  EXPECT_THAT(DecodeEdited([](Layout& l) {
                l.tensors[0].shape = {1ull << 32, 0, 1ull << 32};
              }).message(),
              HasSubstr("last cut"));
}

TEST(FieldCases, FieldCase_G03_HeaderFieldsAreNotUsedAsSizes) {
  const auto begin = std::chrono::steady_clock::now();
  int refused = 0;
  for (const uint64_t length : {0ull, 7ull, 1ull << 31, 1ull << 63, ~0ull}) {
    const auto edits = {+[](format::Header& h, uint64_t value) { h.index_length = value; },
                        +[](format::Header& h, uint64_t value) { h.index_offset = value; },
                        +[](format::Header& h, uint64_t value) { h.file_length = value; }};
    for (const auto edit : edits) {
      const FileBytes file =
          WrapManifest(RawManifestBody({}), [&](format::Header& header) { edit(header, length); });
      refused += format::DecodeManifest(file).ok() ? 0 : 1;
    }
  }
  EXPECT_EQ(refused, 15);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

// G04 (offsets outside the file) and G05 (overlaps and holes) in a rank index: rows M62 to M65 of
// the mutations; here that each has an error of its own.
TEST(FieldCases, FieldCase_G04_FieldCase_G05_OverlapsAndHolesAreRefused) {
  const auto decode = [](auto edit) {
    RawIndex raw;
    edit(raw.index.placement.segments);
    const Status status = Decode(Decoder::kIndex, RawIndexBytes(raw));
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    return status.message();
  };
  using Segments = std::vector<format::PlacedSegment>;
  EXPECT_THAT(decode([](Segments& s) { s[1].offset = s[0].offset; }),
              HasSubstr("said to lie at 4096"));
  EXPECT_THAT(decode([](Segments& s) { s[1].offset -= 1; }), HasSubstr("said to lie at 20479"));
  EXPECT_THAT(decode([](Segments& s) { s[0].offset += 4096; }), HasSubstr("follows at 4096"));
  EXPECT_THAT(decode([](Segments& s) { s[2].offset += 4096; }), HasSubstr("follows at 24576"));
  EXPECT_THAT(decode([](Segments& s) { s[1].offset = 1ull << 40; }), HasSubstr("1099511627776"));
  EXPECT_THAT(decode([](Segments& s) { s[0].offset = 64; }), HasSubstr("said to lie at 64"));
}

TEST(FieldCases, FieldCase_G06_DuplicateNamesAreNamed) {
  const Status status = DecodeEdited([](Layout& l) { l.tensors[1].name = "w"; });
  EXPECT_THAT(status.message(), HasSubstr("duplicate name 'w': tensor 0"));
}

// G07: nothing in a manifest is a path; names are made of a number and eight hexadecimal digits.
TEST(FieldCases, FieldCase_G07_NamesOfFilesAreSingleComponents) {
  for (const uint32_t rank : {0u, 77u, 4294967295u}) {
    for (int byte = 0; byte < 256; ++byte) {
      format::SaveId id;
      id.fill(static_cast<std::byte>(byte));
      const std::string name = format::RankFileName(rank, id);
      EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-."),
                std::string::npos);
      EXPECT_EQ(name.find(".."), std::string::npos);
    }
  }
}

TEST(FieldCases, FieldCase_G10_FilesOfOthersAreRefusedByTheirNames) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("PK\x03\x04", 4) + std::string(100, 'x'),
       "not a Flagstone file (looks like a zip"},
      {std::string("\x80\x02}q\0.", 6), "looks like a pickle"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10), "looks like safetensors"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"},
      {"", "looks like empty"}};
  for (const auto& [text, message] : cases) {
    const Status status = format::DecodeManifest(std::as_bytes(std::span(text))).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
  const FileBytes newer =
      EditHeaderPage(WrapManifest(RawManifestBody({})),
                     [](std::span<std::byte> page) { page[12] = std::byte{3}; });
  EXPECT_EQ(format::DecodeManifest(newer).status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(format::DecodeManifest(newer).status().message(), HasSubstr("format version 3.1"));
}

TEST(FieldCases, FieldCase_B11_NamesAreUniqueAtAnyWorldSize) {
  std::set<std::string> names;
  for (uint32_t rank = 0; rank < 10'000; ++rank)
    names.insert(format::RankFileName(rank, GoldenSaveId()));
  EXPECT_EQ(names.size(), 10'000u);
  EXPECT_EQ(*names.begin(), format::RankFileName(0, GoldenSaveId()));
  EXPECT_EQ(*names.rbegin(), format::RankFileName(9'999, GoldenSaveId()));
}

TEST(FieldCases, FieldCase_B14_WorldSizesThatCannotBeAreRefused) {
  for (const uint32_t world : {0u, 3u, 1u << 20, ~0u}) {
    RawManifest raw;
    raw.manifest.layout.world_size = world;
    const Status status = format::DecodeManifest(WrapManifest(RawManifestBody(raw))).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruption);
    EXPECT_THAT(status.message(), HasSubstr("world size"));
  }
}

TEST(FieldCases, FieldCase_C12_TheOtherByteOrderIsRefused) {
  const FileBytes file = EditHeaderPage(
      WrapManifest(RawManifestBody({})),
      [](std::span<std::byte> page) { std::reverse(page.begin() + 32, page.begin() + 36); });
  const Status status = format::DecodeManifest(file).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("big-endian"));
}

TEST(FieldCases, FieldCase_C16_NamesThatHideFromScannersAreRefused) {
  for (const std::string& name : {std::string("a\0b", 3), std::string(), std::string("\xFF\xFE"),
                                  std::string(70 << 10, 'n')}) {
    EXPECT_EQ(DecodeEdited([&](Layout& l) { l.tensors[0].name = name; }).code(),
              StatusCode::kCorruption);
  }
}

TEST(FieldCases, FieldCase_C18_NamesKeepTheirBytes) {
  for (const std::string& name : {std::string(300, 'n'), std::string("a/b;c d\xF0\x9F\x98\x80"),
                                  std::string("caf\xC3\xA9"), std::string("cafe\xCC\x81")}) {
    Layout layout = SmallManifest().layout;
    layout.tensors[0].name = name;
    layout.tensors[1].name = name + "\xCC\x81";
    EXPECT_EQ(format::DecodeLayout(format::EncodeLayout(layout).value()).value(), layout);
  }
}

TEST(FieldCases, FieldCase_C20_HostileNamesAreEscapedInMessages) {
  const Status status =
      DecodeEdited([](Layout& l) { l.tensors[0].name = "\x1b]52;c;x\x07\n\xFF"; });
  EXPECT_THAT(status.message(), HasSubstr("\\x1b]52;c;x\\x07\\x0a\\xff"));
  EXPECT_EQ(status.message().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace flagstone::test
