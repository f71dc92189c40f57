// SPDX-License-Identifier: Apache-2.0
#include "saved_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/digest.h"
#include "base/endian.h"
#include "base/range.h"
#include "partition/normalize.h"

namespace flagstone::testing {
namespace {

constexpr uint64_t kPage = base::kPageBytes;

const SegmentContent& Or(const SegmentContent& content) {
  static const SegmentContent pattern = PatternOf;
  return content ? content : pattern;
}

SegmentContent OfRank(uint32_t rank, const SegmentContent& content, const RankContent& of_rank) {
  if (!of_rank) return Or(content);
  return [rank, &of_rank](const format::PlacedSegment& segment, uint64_t offset,
                          std::span<std::byte> out) { of_rank(rank, segment, offset, out); };
}

// Digest pages, and their digests into the index.
std::vector<std::byte> DigestPages(format::RankIndex& index, const SavedOptions& options) {
  const SegmentContent content = OfRank(index.rank, options.content, options.rank_content);
  std::vector<std::byte> pages(index.placement.digest_pages() * kPage);
  std::vector<std::byte> chunk;
  for (const format::PlacedSegment& segment : index.placement.segments) {
    for (uint64_t i = 0; i < segment.chunks(); ++i) {
      const uint64_t at = i * segment.chunk_bytes;
      chunk.resize(std::min<uint64_t>(segment.chunk_bytes, segment.padded_bytes() - at));
      content(segment, at, chunk);
      base::StoreLittle(pages.data() + 8 * (segment.first_chunk + i), base::Digest64(chunk));
    }
  }
  if (options.change_digests) options.change_digests(pages);
  index.page_digests.clear();
  for (uint64_t at = 0; at < pages.size(); at += kPage) {
    index.page_digests.push_back(base::Digest64(std::span(pages).subspan(at, kPage)));
  }
  return pages;
}

void WriteFile(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

}  // namespace

void PatternOf(const format::PlacedSegment& segment, uint64_t offset, std::span<std::byte> out) {
  const std::string name = segment.partition + segment.role;
  const uint64_t key = base::Digest64(std::as_bytes(std::span(name)));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t at = offset + i;
    out[i] = at < segment.bytes ? static_cast<std::byte>((key + at * 7 + (at >> 9)) & 0xff)
                                : std::byte{0};
  }
}

void SavedFile::Read(uint64_t offset, std::span<std::byte> out,
                     const SegmentContent& content) const {
  const uint64_t tail_at = length - tail.size();
  while (!out.empty()) {
    uint64_t size = out.size();
    if (offset < head.size()) {
      size = std::min<uint64_t>(size, head.size() - offset);
      std::memcpy(out.data(), head.data() + offset, size);
    } else if (offset >= tail_at) {
      std::memcpy(out.data(), tail.data() + (offset - tail_at), size);
    } else {
      const auto& segments = index.placement.segments;
      const auto segment = std::ranges::find_if(segments, [&](const auto& candidate) {
        return offset < candidate.offset + candidate.padded_bytes();
      });
      size = std::min<uint64_t>(size, segment->offset + segment->padded_bytes() - offset);
      Or(content)(*segment, offset - segment->offset, out.first(size));
    }
    out = out.subspan(size);
    offset += size;
  }
}

SavedCheckpoint MakeCheckpoint(Layout layout, const SavedOptions& options) {
  SavedCheckpoint saved;
  format::Manifest& manifest = saved.manifest;
  manifest.save_id.fill(std::byte{0x3c});
  manifest.committed_at = 1;
  manifest.layout = partition::Normalize(std::move(layout));
  for (uint32_t rank = 0; rank < manifest.layout.world_size; ++rank) {
    SavedFile file;
    file.name = format::RankFileName(rank, manifest.save_id);
    format::RankIndex& index = file.index;
    index.save_id = manifest.save_id;
    index.rank = rank;
    index.world_size = manifest.layout.world_size;
    index.placement = format::PlaceRankFile(manifest.layout, rank, {}).value();
    file.tail = DigestPages(index, options);
    if (options.change_index) options.change_index(index);
    const std::vector<std::byte> encoded = format::EncodeRankIndex(index).value();
    file.tail.insert(file.tail.end(), encoded.begin(), encoded.end());
    file.tail.resize(base::AlignUp(file.tail.size(), kPage));
    file.length = format::RankFileLength(index.placement, encoded.size());
    format::Header header;
    header.kind = format::FileKind::kRankFile;
    header.save_id = manifest.save_id;
    header.rank = rank;
    header.world_size = manifest.layout.world_size;
    header.file_length = file.length;
    header.index_offset = index.placement.index_offset;
    header.index_length = encoded.size();
    header.index_digest = base::DigestOf(encoded);
    const format::HeaderPage page = format::EncodeHeader(header);
    file.head.assign(page.begin(), page.end());
    manifest.files.push_back({rank, file.length, header.index_length, header.index_digest});
    saved.files.push_back(std::move(file));
  }
  if (options.change_manifest) options.change_manifest(manifest);
  saved.manifest_bytes = format::EncodeManifest(manifest).value();
  return saved;
}

void WriteFiles(const SavedCheckpoint& saved, const std::filesystem::path& directory,
                const SegmentContent& content, const RankContent& rank_content) {
  std::filesystem::create_directories(directory);
  WriteFile(directory / format::kManifestName, saved.manifest_bytes);
  for (const SavedFile& file : saved.files) {
    std::vector<std::byte> bytes(file.length);
    file.Read(0, bytes, OfRank(file.index.rank, content, rank_content));
    WriteFile(directory / file.name, bytes);
  }
}

}  // namespace flagstone::testing
