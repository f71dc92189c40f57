// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/digest.h"
#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "flagstone/load.h"
#include "load/impl.h"

namespace flagstone {

using base::Join;
using base::Quote;

// Whole chunks are mapped, so that they can be verified; the view shows the wanted part of them.
Result<View> RankReader::Impl::MapRange(const load::Source& source, uint64_t length,
                                        LoadReport* report) const {
  const auto began = std::chrono::steady_clock::now();
  const format::PlacedSegment& segment = *source.segment;
  const load::ChunkRange chunks = load::ChunksOf(segment, source.offset, length);
  FLAGSTONE_ASSIGN_OR_RETURN(const std::shared_ptr<io::File> file, source.file->file());
  FLAGSTONE_ASSIGN_OR_RETURN(std::shared_ptr<io::Mapping> mapping,
                             file->Map(segment.offset + chunks.begin, chunks.size));
  LoadReport own;
  const Status verified = options_.verify ? VerifyMapped(source, chunks, *mapping, own) : Status();
  RestFile(*source.file);  // the mapping stays without it
  FLAGSTONE_RETURN_IF_ERROR(verified);
  const auto bytes = mapping->bytes().subspan(source.offset - chunks.begin, length);
  if (report != nullptr) {
    report->wanted_bytes += length;
    report->read_bytes += own.verified_bytes;
    report->verified_bytes += own.verified_bytes;
    report->metadata_bytes += own.metadata_bytes;
    report->seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    report->backend_reason = "a view is a mapping";
    if (file->kind() == io::FileSystemKind::kNetwork) {
      report->backend_reason +=
          "; the file lies on a network file system, where a view breaks when another client "
          "removes the file: load into memory instead";
    }
  }
  return View(bytes, std::move(mapping));
}

// In windows, so that a view of any size needs no private memory to speak of, and that a read which
// the device fails is an error and no SIGBUS.
Status RankReader::Impl::VerifyMapped(const load::Source& source, const load::ChunkRange& chunks,
                                      io::Mapping& mapping, LoadReport& report) const {
  constexpr uint64_t kWindowBytes = uint64_t{1} << 20;
  const uint64_t chunk_bytes = source.segment->chunk_bytes;
  const uint64_t window_chunks = std::max<uint64_t>(1, kWindowBytes / chunk_bytes);
  const uint64_t first_digest = source.segment->first_chunk + chunks.first;
  const auto bytes = mapping.bytes();
  for (uint64_t i = 0; i < chunks.count; ++i) {
    const uint64_t at = i * chunk_bytes;
    if (i % window_chunks == 0) {
      if (options_.stop.stop_requested()) {
        return Status(StatusCode::kCancelled, "the view was stopped on request");
      }
      FLAGSTONE_RETURN_IF_ERROR(
          mapping.Populate(at, std::min<uint64_t>(window_chunks * chunk_bytes, bytes.size() - at)));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(
        const uint64_t stated,
        DigestAt(*source.file, first_digest + i, first_digest + chunks.count, report));
    const auto chunk = bytes.subspan(at, std::min<uint64_t>(chunk_bytes, bytes.size() - at));
    const uint64_t found = base::Digest64(chunk);
    if (found != stated) {
      return store::ChunkMismatch(source.file->path(), *source.segment, chunks.first + i,
                                  stated, found);
    }
    report.verified_bytes += chunk.size();
  }
  return {};
}

namespace {

// A report may be used for many views: what opening cost is in it once.
void BeginView(const LoadReport& base, LoadReport* report) {
  if (report == nullptr) return;
  if (report->files_opened == 0) report->metadata_bytes += base.metadata_bytes;
  report->files_opened = base.files_opened;
  report->backend = Name(Backend::kMmap);
}

}  // namespace

Result<View> RankReader::Impl::ViewSegment(std::string_view partition, std::string_view role,
                                           LoadReport* report) const {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindSegment(partition, role));
  const SegmentInfo& segment = plan_.segments[index];
  BeginView(BaseReport(), report);
  if (segment.bytes == 0) return View();
  const auto runs = RunsOf(index);
  if (runs.size() != 1 || runs.front().level_count > 0 || runs.front().length != segment.bytes) {
    const std::string name = Join(partition, "/", role);
    return Status(StatusCode::kUnsupported,
                  Join("segment ", Quote(name), " is made of ", runs.size(),
                       " runs of bytes and cannot be one mapping; use ViewTensor, or Load into "
                       "memory"),
                  {checkpoint_->opened.directory.string(), name, std::nullopt});
  }
  return MapRange(sources_[static_cast<size_t>(runs.data() - plan_.runs.data())], segment.bytes,
                  report);
}

Result<View> RankReader::Impl::ViewTensor(std::string_view partition, std::string_view role,
                                          std::string_view tensor, LoadReport* report) const {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindSegment(partition, role));
  const SegmentInfo& segment = plan_.segments[index];
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<uint32_t> slices, FindSlices(index, tensor));
  BeginView(BaseReport(), report);
  const uint64_t begin = segment.offsets[slices.front()];
  uint64_t end = begin;
  bool is_one = true;
  for (const uint32_t i : slices) {
    is_one = is_one && segment.offsets[i] == end;
    end = segment.offsets[i] +
          (segment.slices[i].end - segment.slices[i].begin) * SizeOf(segment.dtype);
  }
  if (is_one && begin == end) return View();
  // The last run that begins at or before the tensor.
  const auto runs = RunsOf(index);
  auto run = std::upper_bound(
      runs.begin(), runs.end(), begin,
      [](uint64_t offset, const Plan::Run& r) { return offset < r.destination_offset; });
  if (is_one && run != runs.begin()) {
    --run;
    const uint64_t into = begin - run->destination_offset;
    if (run->level_count == 0 && base::InBounds(into, end - begin, run->length)) {
      load::Source source = sources_[static_cast<size_t>(&*run - plan_.runs.data())];
      source.offset += into;
      return MapRange(source, end - begin, report);
    }
  }
  const std::string name = Join(partition, "/", role);
  return Status(StatusCode::kUnsupported,
                Join("what rank ", rank_, " has of tensor ", Quote(tensor), " in ", Quote(name),
                     " (", slices.size(), " slices) is not contiguous in one file; use Load"),
                {checkpoint_->opened.directory.string(), name, std::nullopt});
}

}  // namespace flagstone
