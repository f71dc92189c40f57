// SPDX-License-Identifier: Apache-2.0
#include "file_checker.h"

#include <algorithm>

#include "base/digest.h"
#include "base/endian.h"
#include "base/range.h"
#include "base/text.h"
#include "format/header.h"
#include "partition/geometry.h"

namespace flagstone::test {
namespace {

using base::Join;

constexpr uint64_t kPage = base::kPageBytes;

std::string AgainstManifest(const format::Header& header, const format::Manifest& manifest,
                            uint32_t rank) {
  const format::RankFileEntry& entry = manifest.files[rank];
  if (header.save_id != manifest.save_id) return "M70: another save id";
  if (header.rank != rank) return "M70: another rank";
  if (header.world_size != manifest.layout.world_size) return "M70: another world size";
  if (header.file_length != entry.file_length) return "M70: another file length";
  if (header.index_length != entry.index_length) return "M70: another index length";
  if (header.index_digest != entry.index_digest) return "M70: another index digest";
  return "";
}

}  // namespace

std::string FileChecker::CheckIndex(uint32_t rank, std::span<const std::byte> bytes) {
  const auto decoded = format::DecodeRankIndex(bytes);
  if (!decoded.ok()) return Join("index: ", decoded.status().message());
  index_ = *decoded;
  if (index_.save_id != manifest_.save_id || index_.rank != rank ||
      index_.world_size != manifest_.layout.world_size) {
    return "M70: the index is of another save, rank or world";
  }
  std::vector<format::ArraySize> arrays;
  for (const Array* array : format::SegmentArrays(index_.rank_state)) {
    arrays.push_back({false, format::ArraySizeBytes(*array)});
  }
  if (rank == 0) {
    for (const Array* array : format::SegmentArrays(manifest_.client_state)) {
      arrays.push_back({true, format::ArraySizeBytes(*array)});
    }
  }
  const auto expected = format::PlaceRankFile(manifest_.layout, rank, arrays);
  if (!expected.ok()) return Join("placement: ", expected.status().message());
  if (index_.placement != *expected) return "M71: not the places that follow from the manifest";
  gaps_ = GapsOf(rank);
  return "";
}

std::vector<FileChecker::Gap> FileChecker::GapsOf(uint32_t rank) const {
  std::vector<Gap> gaps;
  const Layout& layout = manifest_.layout;
  for (const format::PlacedSegment& segment : index_.placement.segments) {
    for (uint32_t p = 0; p < layout.partitions.size(); ++p) {
      const Partition& partition = layout.partitions[p];
      if (partition.id != segment.partition) continue;
      const partition::Geometry geometry(layout, p);
      uint32_t role = 0;
      while (partition.roles[role].name != segment.role) ++role;
      uint64_t end = 0;
      for (const auto& piece :
           geometry.StoredSegment(role, *partition.ranks.IndexOf(rank)).pieces) {
        if (piece.byte_offset > end) {
          gaps.push_back({segment.offset + end, piece.byte_offset - end});
        }
        end = piece.byte_offset + piece.byte_size;
      }
    }
  }
  return gaps;
}

std::string FileChecker::CheckDigests(std::span<const std::byte> file) const {
  const format::RankPlacement& placement = index_.placement;
  for (uint64_t page = 0; page < placement.digest_pages(); ++page) {
    const auto bytes = file.subspan(placement.digests_offset + page * kPage, kPage);
    if (base::Digest64(bytes) != index_.page_digests[page]) {
      return Join("M72: digest page ", page, " does not match its digest");
    }
  }
  const uint64_t end = placement.digests_offset + 8 * placement.digest_count;
  if (format::FindNonZero(file.subspan(end, placement.index_offset - end))) {
    return "M73: the last digest page does not end in zeros";
  }
  return "";
}

std::string FileChecker::CheckSegments(std::span<const std::byte> file) const {
  for (const format::PlacedSegment& segment : index_.placement.segments) {
    const auto bytes = file.subspan(segment.offset, segment.padded_bytes());
    for (uint64_t chunk = 0; chunk < segment.chunks(); ++chunk) {
      const uint64_t begin = chunk * segment.chunk_bytes;
      const uint64_t size = std::min<uint64_t>(segment.chunk_bytes, bytes.size() - begin);
      const uint64_t at = index_.placement.digests_offset + 8 * (segment.first_chunk + chunk);
      if (base::Digest64(bytes.subspan(begin, size)) != base::LoadLittle<uint64_t>(&file[at])) {
        return Join("M74: chunk ", chunk, " of ", segment.partition, "/", segment.role,
                    " does not match its digest");
      }
    }
    if (format::FindNonZero(bytes.subspan(segment.bytes))) {
      return Join("M75: segment ", segment.partition, "/", segment.role, " does not end in zeros");
    }
  }
  for (const Gap& gap : gaps_) {
    if (format::FindNonZero(file.subspan(gap.offset, gap.size))) {
      return Join("M76: the gap at ", gap.offset, " is not zero");
    }
  }
  return "";
}

std::string FileChecker::Check(uint32_t rank, std::span<const std::byte> file) {
  const auto header = format::DecodeHeader(file.first(std::min<size_t>(file.size(), kPage)),
                                           format::FileKind::kRankFile, file.size());
  if (!header.ok()) return Join("header: ", header.status().message());
  if (auto problem = AgainstManifest(*header, manifest_, rank); !problem.empty()) return problem;
  const auto index = file.subspan(header->index_offset, header->index_length);
  if (base::DigestOf(index) != header->index_digest)
    return "M18: the index does not match its digest";
  if (format::FindNonZero(file.subspan(header->index_offset + header->index_length))) {
    return "M19: the index is not followed by zeros";
  }
  if (!std::equal(index.begin(), index.end(), index_bytes_.begin(), index_bytes_.end())) {
    index_bytes_.assign(index.begin(), index.end());
    index_problem_ = CheckIndex(rank, index);
  }
  if (!index_problem_.empty()) return index_problem_;
  if (header->index_offset != index_.placement.index_offset) return "M70: another index offset";
  if (auto problem = CheckDigests(file); !problem.empty()) return problem;
  return CheckSegments(file);
}

std::string CheckCheckpoint(const Files& files) {
  const auto found = files.find(std::string(format::kManifestName));
  if (found == files.end()) return "no manifest";
  const auto manifest = format::DecodeManifest(found->second);
  if (!manifest.ok()) return manifest.status().message();
  for (uint32_t rank = 0; rank < manifest->layout.world_size; ++rank) {
    const auto file = files.find(format::RankFileName(rank, manifest->save_id));
    if (file == files.end()) return Join("no file of rank ", rank);
    FileChecker checker(*manifest);
    if (auto problem = checker.Check(rank, file->second); !problem.empty()) {
      return Join("rank ", rank, ": ", problem);
    }
  }
  return "";
}

}  // namespace flagstone::test
