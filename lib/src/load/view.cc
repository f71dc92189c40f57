// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/digest.h"
#include "base/macros.h"
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
  FLAGSTONE_ASSIGN_OR_RETURN(std::shared_ptr<io::Mapping> mapping,
                             source.file->file()->Map(segment.offset + chunks.begin, chunks.size));
  LoadReport own = BaseReport();
  if (options_.verify)
    FLAGSTONE_RETURN_IF_ERROR(VerifyMapped(source, chunks, mapping->bytes(), own));
  const auto bytes = mapping->bytes().subspan(source.offset - chunks.begin, length);
  if (report != nullptr) {
    report->wanted_bytes += length;
    report->read_bytes += own.verified_bytes;
    report->verified_bytes += own.verified_bytes;
    report->metadata_bytes = metadata_bytes();
    report->files_opened = own.files_opened;
    report->seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    report->backend = Name(Backend::kMmap);
    report->backend_reason = "a view is a mapping";
    if (source.file->file()->kind() == io::FileSystemKind::kNetwork) {
      report->backend_reason +=
          "; the file lies on a network file system, where a view breaks when another client "
          "removes the file: load into memory instead";
    }
  }
  return View(bytes, std::move(mapping));
}

Status RankReader::Impl::VerifyMapped(const load::Source& source, const load::ChunkRange& chunks,
                                      std::span<const std::byte> bytes, LoadReport& report) const {
  const uint64_t chunk_bytes = source.segment->chunk_bytes;
  // The digests of a window at a time, so that a view of any size needs no private memory to speak
  // of.
  constexpr uint64_t kDigestsAWindow = 4096;
  for (uint64_t first = 0; first < chunks.count; first += kDigestsAWindow) {
    load::ChunkRange window = chunks;
    window.first = chunks.first + first;
    window.count = std::min(kDigestsAWindow, chunks.count - first);
    FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<uint64_t> digests, Digests(source, window));
    for (uint64_t i = 0; i < window.count; ++i) {
      if (options_.stop.stop_requested())
        return Status(StatusCode::kCancelled, "the view was stopped on request");
      const uint64_t at = (first + i) * chunk_bytes;
      const auto chunk = bytes.subspan(at, std::min<uint64_t>(chunk_bytes, bytes.size() - at));
      const uint64_t digest = base::Digest64(chunk);
      if (digest != digests[i]) {
        return store::ChunkMismatch(source.file->file()->path(), *source.segment, window.first + i,
                                    digests[i], digest);
      }
      report.verified_bytes += chunk.size();
    }
  }
  return {};
}

Result<View> RankReader::Impl::ViewSegment(std::string_view partition, std::string_view role,
                                           LoadReport* report) const {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindSegment(partition, role));
  const SegmentInfo& segment = plan_.segments[index];
  if (segment.bytes == 0) return View();
  const auto runs = RunsOf(index);
  if (runs.size() != 1 || runs.front().length != segment.bytes) {
    return Status(
        StatusCode::kUnsupported,
        Join("segment ", Quote(Join(partition, "/", role)), " is made of ", runs.size(),
             " runs of bytes and cannot be one mapping; use ViewTensor, or Load into memory"),
        {checkpoint_->opened.directory.string(), Join(partition, "/", role), std::nullopt});
  }
  return MapRange(sources_[static_cast<size_t>(runs.data() - plan_.runs.data())], segment.bytes,
                  report);
}

Result<View> RankReader::Impl::ViewTensor(std::string_view partition, std::string_view role,
                                          std::string_view tensor, LoadReport* report) const {
  FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index, FindSegment(partition, role));
  const SegmentInfo& segment = plan_.segments[index];
  const Layout& layout = checkpoint_->opened.manifest.layout;
  const auto part = std::find_if(layout.partitions.begin(), layout.partitions.end(),
                                 [&](const Partition& p) { return p.id == partition; });
  const ErrorPlace place{checkpoint_->opened.directory.string(), Join(partition, "/", role),
                         std::nullopt};
  std::vector<std::string> names;
  for (size_t i = 0; i < segment.slices.size(); ++i) {
    const Tensor& named = layout.tensors[part->members[segment.slices[i].member].tensor];
    names.push_back(named.name);
    if (named.name != tensor &&
        std::find(named.aliases.begin(), named.aliases.end(), tensor) == named.aliases.end()) {
      continue;
    }
    const uint64_t elements = segment.slices[i].end - segment.slices[i].begin;
    const uint64_t length = elements * SizeOf(segment.dtype);
    if (length == 0) return View();
    for (const Plan::Run& run : RunsOf(index)) {
      const uint64_t offset = segment.offsets[i];
      if (offset < run.destination_offset || offset - run.destination_offset >= run.length)
        continue;
      const uint64_t into = offset - run.destination_offset;
      if (length > run.length - into) break;
      load::Source source = sources_[static_cast<size_t>(&run - plan_.runs.data())];
      source.offset += into;
      return MapRange(source, length, report);
    }
    return Status(StatusCode::kUnsupported,
                  Join("this rank's slice of tensor ", Quote(tensor), " in ", Quote(place.segment),
                       " is not contiguous in one file; use Load"),
                  place);
  }
  return Status(StatusCode::kNotFound,
                Join("rank ", rank_, " holds nothing of tensor ", Quote(tensor), " in ",
                     Quote(place.segment), base::NearestNames(tensor, names)),
                place);
}

}  // namespace flagstone
