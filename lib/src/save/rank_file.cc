// SPDX-License-Identifier: Apache-2.0
#include "save/rank_file.h"

#include <span>
#include <utility>

#include "base/endian.h"
#include "base/macros.h"
#include "base/range.h"

namespace flagstone::save {
namespace {

bool HasHoles(const RankFileContent& content) {
  for (const auto& parts : content.parts) {
    for (const SegmentPart& part : parts) {
      if (part.size > 0 && part.source->IsZero(part.source_offset, part.size)) return true;
    }
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<RankFile>> RankFile::Create(
    io::FileSystem& fs, const std::filesystem::path& name, std::string_view framed_record,
    const RankFileContent& content, const io::WriteOptions& options, std::optional<uint32_t> mode) {
  FLAGSTONE_ASSIGN_OR_RETURN(std::shared_ptr<io::File> file,
                             fs.Open(name, {io::OpenOptions::Mode::kCreateExclusive, false}));
  const auto fill = [&]() -> Result<std::unique_ptr<RankFile>> {
    FLAGSTONE_RETURN_IF_ERROR(io::WriteFully(*file, 0, std::as_bytes(std::span(framed_record))));
    if (mode) FLAGSTONE_RETURN_IF_ERROR(file->SetMode(*mode));
    const bool sparse = HasHoles(content);
    // A full disk is found before the first byte is written, and the blocks lie together. The index
    // comes on top.
    if (!sparse) FLAGSTONE_RETURN_IF_ERROR(file->Allocate(content.placement.index_offset));
    auto made = std::unique_ptr<RankFile>(new RankFile(file, content));
    FLAGSTONE_ASSIGN_OR_RETURN(made->writer_, io::StagedWriter::Make(fs, file, options));
    return made;
  };
  auto made = fill();
  if (!made.ok()) {
    const Status unlinked = fs.Unlink(name);
    if (!unlinked.ok()) return made.status().Annotated(unlinked.message());
  }
  return made;
}

Status RankFile::WriteSegments(const std::function<Status(uint64_t)>& checkpoint) {
  stream_ = std::make_unique<SegmentStream>(*writer_, base::kPageBytes, checkpoint);
  for (size_t i = 0; i < content_.placement.segments.size(); ++i) {
    const format::PlacedSegment& segment = content_.placement.segments[i];
    if (stream_->position() != segment.offset) {
      return Status(StatusCode::kInternal, "segments are not placed one after the other");
    }
    FLAGSTONE_RETURN_IF_ERROR(stream_->BeginSegment(segment.chunk_bytes));
    for (const SegmentPart& part : content_.parts[i]) {
      const uint64_t gap = segment.offset + part.segment_offset - stream_->position();
      FLAGSTONE_RETURN_IF_ERROR(stream_->AppendZeros(gap));
      FLAGSTONE_RETURN_IF_ERROR(stream_->AppendSource(*part.source, part.source_offset, part.size));
    }
    FLAGSTONE_RETURN_IF_ERROR(stream_->EndSegment());
  }
  return {};
}

Result<FinishedRankFile> RankFile::Finish(format::RankIndex index) {
  const format::RankPlacement& placement = content_.placement;
  const std::vector<uint64_t>& digests = stream_->digests();
  if (digests.size() != placement.digest_count || stream_->position() != placement.digests_offset) {
    return Status(StatusCode::kInternal,
                  "the chunks written are not those that the placement counts");
  }
  std::vector<std::byte> pages(placement.index_offset - placement.digests_offset);
  for (size_t i = 0; i < digests.size(); ++i)
    base::StoreLittle<uint64_t>(pages.data() + 8 * i, digests[i]);
  for (size_t at = 0; at < pages.size(); at += base::kPageBytes) {
    index.page_digests.push_back(base::Digest64(std::span(pages).subspan(at, base::kPageBytes)));
  }
  index.placement = placement;
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::byte> encoded, format::EncodeRankIndex(index));

  FLAGSTONE_RETURN_IF_ERROR(stream_->AppendPlain(pages));
  FLAGSTONE_RETURN_IF_ERROR(stream_->AppendPlain(encoded));
  FLAGSTONE_RETURN_IF_ERROR(stream_->PadPlain());
  FLAGSTONE_RETURN_IF_ERROR(stream_->Flush());

  FinishedRankFile finished;
  finished.file_length = format::RankFileLength(placement, encoded.size());
  finished.index_length = encoded.size();
  finished.index_digest = base::DigestOf(encoded);
  FLAGSTONE_ASSIGN_OR_RETURN(finished.write, writer_->Finish());

  format::Header header;
  header.kind = format::FileKind::kRankFile;
  header.save_id = index.save_id;
  header.rank = index.rank;
  header.world_size = index.world_size;
  header.file_length = finished.file_length;
  header.index_offset = placement.index_offset;
  header.index_length = finished.index_length;
  header.index_digest = finished.index_digest;
  FLAGSTONE_RETURN_IF_ERROR(io::WriteFully(*file_, 0, format::EncodeHeader(header)));
  FLAGSTONE_RETURN_IF_ERROR(file_->Truncate(finished.file_length));
  return finished;
}

}  // namespace flagstone::save
