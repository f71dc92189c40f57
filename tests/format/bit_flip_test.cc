// SPDX-License-Identifier: Apache-2.0
// One flipped bit, anywhere, and one cut, anywhere, is found: the decoders see headers and indexes,
// and a reader that follows the specification's "What covers what" sees the rest.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/digest.h"
#include "base/endian.h"
#include "file_checker.h"
#include "format/header.h"
#include "format/layout_codec.h"

namespace flagstone::test {
namespace {

using testing::StartsWith;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(NDEBUG)
constexpr size_t kStep = 13;  // Bits from one flip to the next: slow builds sample, others do all.
#else
constexpr size_t kStep = 1;
#endif

// Calls `check` with each bit flipped in turn.
template <typename Check>
void ForEachFlip(FileBytes bytes, Check check) {
  for (size_t bit = 0; bit < 8 * bytes.size(); bit += kStep) {
    const auto mask = static_cast<std::byte>(1u << (bit % 8));
    bytes[bit / 8] ^= mask;
    check(std::as_const(bytes), bit);
    bytes[bit / 8] ^= mask;
  }
}

format::Manifest GoldenManifest(const Files& files) {
  return format::DecodeManifest(files.at(std::string(format::kManifestName))).value();
}

TEST(BitFlips, OfTheManifestAreAllRefused) {
  const FileBytes manifest = MakeGolden().at(std::string(format::kManifestName));
  size_t accepted = 0;
  ForEachFlip(manifest, [&](const FileBytes& bytes, size_t bit) {
    const auto decoded = format::DecodeManifest(bytes);
    if (!decoded.ok()) return;
    ++accepted;
    ADD_FAILURE() << "bit " << bit << " may flip";
  });
  EXPECT_EQ(accepted, 0u);
}

TEST(BitFlips, OfRankFilesAreAllFound) {
  const Files files = MakeGolden();
  const format::Manifest manifest = GoldenManifest(files);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    FileChecker checker(manifest);
    const FileBytes& file = files.at(format::RankFileName(rank, manifest.save_id));
    ASSERT_EQ(checker.Check(rank, file), "");
    size_t missed = 0;
    ForEachFlip(file, [&](const FileBytes& bytes, size_t) {
      if (checker.Check(rank, bytes).empty()) ++missed;
    });
    EXPECT_EQ(missed, 0u) << "of rank " << rank;
  }
}

TEST(Truncations, OfAllFilesAreRefused) {
  const Files files = MakeGolden();
  const format::Manifest manifest = GoldenManifest(files);
  for (const auto& [name, bytes] : files) {
    for (size_t length = 0; length < bytes.size(); ++length) {
      const auto cut = std::span(bytes).first(length);
      if (name == format::kManifestName) {
        ASSERT_FALSE(format::DecodeManifest(cut).ok()) << length;
      } else {
        const auto page = cut.first(std::min<size_t>(length, 4096));
        ASSERT_FALSE(format::DecodeHeader(page, format::FileKind::kRankFile, length).ok())
            << length;
      }
    }
  }
}

// Without a digest before them the decoders take what is sound, and what they take means the same
// when it is written again.
TEST(BitFlips, OfABareLayoutAreRefusedOrHarmless) {
  const FileBytes layout = format::EncodeLayout(GoldenLayout()).value();
  ForEachFlip(layout, [](const FileBytes& bytes, size_t bit) {
    const auto once = format::DecodeLayout(bytes);
    if (!once.ok()) return;
    const auto twice = format::DecodeLayout(format::EncodeLayout(*once).value());
    ASSERT_TRUE(twice.ok() && *twice == *once) << "bit " << bit;
  });
  for (size_t length = 0; length < layout.size(); ++length) {
    const auto cut = format::DecodeLayout(std::span(layout).first(length));
    ASSERT_TRUE(!cut.ok() || *cut == GoldenLayout()) << length;
  }
}

TEST(BitFlips, OfABareIndexAreRefusedOrHarmless) {
  const FileBytes index = format::EncodeRankIndex(SmallIndex()).value();
  ForEachFlip(index, [](const FileBytes& bytes, size_t bit) {
    const auto once = format::DecodeRankIndex(bytes);
    if (!once.ok()) return;
    const auto twice = format::DecodeRankIndex(format::EncodeRankIndex(*once).value());
    ASSERT_TRUE(twice.ok() && *twice == *once) << "bit " << bit;
  });
  for (size_t length = 0; length < index.size(); ++length) {
    const auto cut = format::DecodeRankIndex(std::span(index).first(length));
    ASSERT_TRUE(!cut.ok() || *cut == SmallIndex()) << length;
  }
}

// A rank file with digests made anew behind a change, so that only the rule itself is broken.
class WholeFiles : public testing::Test {
 protected:
  void SetUp() override { Load(2); }

  void Load(uint32_t rank) {
    rank_ = rank;
    manifest_ = GoldenManifest(files_);
    file_ = files_.at(format::RankFileName(rank_, manifest_.save_id));
    header_ = format::DecodeHeader(std::span(file_).first(4096), format::FileKind::kRankFile,
                                   file_.size())
                  .value();
    index_ = format::DecodeRankIndex(
                 std::span(file_).subspan(header_.index_offset, header_.index_length))
                 .value();
  }

  std::string Check() { return FileChecker(manifest_).Check(rank_, file_); }

  const format::PlacedSegment& Segment(std::string_view role) {
    return *std::find_if(index_.placement.segments.begin(), index_.placement.segments.end(),
                         [&](const auto& segment) { return segment.role == role; });
  }

  void RedoChunks() {
    for (const auto& segment : index_.placement.segments) {
      for (uint64_t chunk = 0; chunk < segment.chunks(); ++chunk) {
        const uint64_t begin = chunk * segment.chunk_bytes;
        const uint64_t size =
            std::min<uint64_t>(segment.chunk_bytes, segment.padded_bytes() - begin);
        const uint64_t digest =
            base::Digest64(std::span(file_).subspan(segment.offset + begin, size));
        base::StoreLittle(
            &file_[index_.placement.digests_offset + 8 * (segment.first_chunk + chunk)], digest);
      }
    }
  }

  void RedoPages() {
    const auto page = std::span(file_).subspan(index_.placement.digests_offset, 4096);
    index_.page_digests[0] = base::Digest64(page);
  }

  // Index, header and the manifest's entry.
  void RedoIndex(const FileBytes& encoded) {
    file_.resize(header_.index_offset);
    file_.insert(file_.end(), encoded.begin(), encoded.end());
    file_.resize((file_.size() + 4095) / 4096 * 4096);
    header_.index_length = encoded.size();
    header_.index_digest = base::DigestOf(encoded);
    header_.file_length = file_.size();
    manifest_.files[rank_] = {rank_, file_.size(), encoded.size(), header_.index_digest};
    RedoHeader();
  }
  void RedoIndex() { RedoIndex(format::EncodeRankIndex(index_).value()); }

  void RedoHeader() {
    const auto page = format::EncodeHeader(header_);
    std::copy(page.begin(), page.end(), file_.begin());
  }

  uint32_t rank_ = 0;
  Files files_ = MakeGolden();
  format::Manifest manifest_;
  FileBytes file_;
  format::Header header_;
  format::RankIndex index_;
};

TEST_F(WholeFiles, UnchangedIsSound) {
  RedoChunks();
  RedoPages();
  RedoIndex();
  EXPECT_EQ(Check(), "");
}

TEST_F(WholeFiles, M70_HeaderOfAnotherSave) {
  header_.save_id[0] ^= std::byte{1};
  RedoHeader();
  EXPECT_EQ(Check(), "M70: another save id");
}

TEST_F(WholeFiles, M70_HeaderOfAnotherRank) {
  header_.rank = 1;
  RedoHeader();
  EXPECT_EQ(Check(), "M70: another rank");
}

TEST_F(WholeFiles, M70_IndexOfAnotherRank) {
  index_.rank = 1;
  RedoIndex();
  EXPECT_EQ(Check(), "M70: the index is of another save, rank or world");
}

TEST_F(WholeFiles, M70_EntryOfTheManifest) {
  manifest_.files[rank_].index_digest[3] ^= std::byte{1};
  EXPECT_EQ(Check(), "M70: another index digest");
  manifest_.files[rank_].index_length += 1;
  EXPECT_EQ(Check(), "M70: another index length");
  manifest_.files[rank_].file_length += 4096;
  EXPECT_EQ(Check(), "M70: another file length");
}

TEST_F(WholeFiles, M71_PlacesOfAnotherLayout) {
  manifest_.layout.partitions[0].roles[0].chunk_bytes = 4096;
  EXPECT_EQ(Check(), "M71: not the places that follow from the manifest");
}

TEST_F(WholeFiles, M72_DigestPage) {
  file_[index_.placement.digests_offset] ^= std::byte{1};
  EXPECT_EQ(Check(), "M72: digest page 0 does not match its digest");
}

TEST_F(WholeFiles, M73_TailOfTheDigestPage) {
  file_[index_.placement.digests_offset + 8 * index_.placement.digest_count] = std::byte{1};
  RedoPages();
  RedoIndex();
  EXPECT_EQ(Check(), "M73: the last digest page does not end in zeros");
}

TEST_F(WholeFiles, M74_Chunk) {
  file_[Segment("fp32").offset + 4096] ^= std::byte{1};
  EXPECT_EQ(Check(), "M74: chunk 1 of flat.0/fp32 does not match its digest");
}

TEST_F(WholeFiles, M75_TailOfASegment) {
  file_[Segment("fp32").offset + Segment("fp32").bytes] = std::byte{1};
  RedoChunks();
  RedoPages();
  RedoIndex();
  EXPECT_EQ(Check(), "M75: segment flat.0/fp32 does not end in zeros");
}

// Rank 1 stores two replicated tensors, of 16 and 4 bytes, each on 64 bytes.
TEST_F(WholeFiles, M76_GapBetweenMembers) {
  Load(1);
  ASSERT_EQ(Check(), "");
  const auto mean = std::find_if(index_.placement.segments.begin(), index_.placement.segments.end(),
                                 [](const auto& segment) { return segment.partition == "mean"; });
  ASSERT_EQ(mean->bytes, 64u + 4u);
  file_[mean->offset + 63] = std::byte{1};
  RedoChunks();
  RedoPages();
  RedoIndex();
  EXPECT_THAT(Check(), StartsWith("M76: the gap at "));
}

}  // namespace
}  // namespace flagstone::test
