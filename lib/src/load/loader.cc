// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "base/macros.h"
#include "base/text.h"
#include "flagstone/load.h"
#include "io/transfer.h"
#include "load/impl.h"

namespace flagstone {

using base::Join;
using base::Quote;

// One call of RankReader::Load: the runs of the wanted segments become ranges of whole chunks, each
// of which is verified when it has been read and before it counts.
class LoadRun {
 public:
  LoadRun(const RankReader::Impl& reader, std::span<const Destination> destinations)
      : reader_(reader), destinations_(destinations) {}

  Result<LoadReport> Run() {
    const auto began = std::chrono::steady_clock::now();
    report_ = reader_.BaseReport();
    FLAGSTONE_RETURN_IF_ERROR(Collect());
    // Replicated tensors are read through the page cache and stay there: the other ranks of the
    // node want them too.
    FLAGSTONE_RETURN_IF_ERROR(ReadBatch(own_, /*replicated=*/false));
    FLAGSTONE_RETURN_IF_ERROR(ReadBatch(replicated_, /*replicated=*/true));
    report_.metadata_bytes = reader_.metadata_bytes();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return std::move(report_);
  }

 private:
  struct Piece {
    const Destination* destination = nullptr;
    const load::Source* source = nullptr;
    load::ChunkRange chunks;
    uint64_t length = 0;
    uint64_t target_offset = 0;
    std::vector<uint64_t> digests;
  };

  Status CheckDestination(const Destination& destination, const SegmentInfo& segment) const {
    const std::string name = Join(segment.partition, "/", segment.role);
    if (destination.sink != nullptr && destination.memory.empty()) return {};
    if (destination.sink != nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    Join("destination ", Quote(name), " has both memory and a sink"));
    }
    if (destination.memory.size() == segment.bytes) return {};
    return Status(StatusCode::kInvalidArgument,
                  Join("destination ", Quote(name), " has ", destination.memory.size(),
                       " bytes, the segment ", segment.bytes));
  }

  Status Collect() {
    std::vector<bool> taken(reader_.plan_.segments.size());
    for (const Destination& destination : destinations_) {
      FLAGSTONE_ASSIGN_OR_RETURN(const uint32_t index,
                                 reader_.FindSegment(destination.partition, destination.role));
      const SegmentInfo& segment = reader_.plan_.segments[index];
      FLAGSTONE_RETURN_IF_ERROR(CheckDestination(destination, segment));
      if (taken[index]) {
        return Status(StatusCode::kInvalidArgument,
                      Join("segment ", Quote(Join(segment.partition, "/", segment.role)),
                           " has two destinations"));
      }
      taken[index] = true;
      wanted_total_ += segment.bytes;
      // What no run carries (padding between members) is zero, as it is in a file.
      uint64_t carried = 0;
      for (const Plan::Run& run : reader_.RunsOf(index)) carried += run.length;
      if (carried != segment.bytes && !destination.memory.empty()) {
        std::memset(destination.memory.data(), 0, destination.memory.size());
      }
      FLAGSTONE_RETURN_IF_ERROR(CollectRuns(destination, segment, index));
    }
    report_.wanted_bytes = wanted_total_;
    return {};
  }

  Status CollectRuns(const Destination& destination, const SegmentInfo& segment, uint32_t index) {
    for (const Plan::Run& run : reader_.RunsOf(index)) {
      Piece piece;
      piece.destination = &destination;
      piece.source = &reader_.sources_[static_cast<size_t>(&run - reader_.plan_.runs.data())];
      piece.chunks = load::ChunksOf(*piece.source->segment, piece.source->offset, run.length);
      piece.length = run.length;
      piece.target_offset = run.destination_offset;
      if (reader_.options_.verify) {
        FLAGSTONE_ASSIGN_OR_RETURN(piece.digests, reader_.Digests(*piece.source, piece.chunks));
      }
      (segment.replicated ? replicated_ : own_).push_back(std::move(piece));
    }
    return {};
  }

  Status ReadBatch(const std::vector<Piece>& pieces, bool replicated) {
    if (pieces.empty()) return {};
    std::vector<std::shared_ptr<io::File>> files;
    std::vector<io::ReadRange> ranges;
    for (const Piece& piece : pieces) {
      const auto& file = piece.source->file->file();
      const auto known = std::find(files.begin(), files.end(), file);
      io::ReadRange range;
      range.file = static_cast<uint32_t>(known - files.begin());
      if (known == files.end()) files.push_back(file);
      range.offset = piece.source->segment->offset + piece.chunks.begin;
      range.size = piece.chunks.size;
      range.block_bytes = piece.source->segment->chunk_bytes;
      if (piece.destination->sink == nullptr) {
        range.destination = piece.destination->memory.subspan(piece.target_offset, piece.length);
        range.destination_skip = piece.source->offset - piece.chunks.begin;
      }
      range.tag = ranges.size();
      ranges.push_back(range);
    }
    io::ReadOptions options;
    options.backend = reader_.options_.backend;
    if (replicated && options.backend == Backend::kAuto) {
      options.chosen = io::BackendChoice{
          Backend::kUring, "replicated tensors are read once a node, through the page cache"};
    }
    options.queue_depth = reader_.options_.queue_depth;
    options.buffer_bytes = uint64_t{16} << 20;
    options.keep_cached = replicated;
    const uint64_t done_before = done_;
    if (reader_.options_.progress) {
      options.progress = [&, done_before](uint64_t done) {
        reader_.options_.progress(std::min(done_before + done, wanted_total_), wanted_total_);
      };
    }
    const auto consumer = [&](const io::ReadRange& range, uint64_t offset,
                              std::span<const std::byte> bytes) {
      return Consume(pieces[range.tag], offset, bytes);
    };
    FLAGSTONE_ASSIGN_OR_RETURN(
        const io::ReadStats stats,
        io::ReadRanges(reader_.checkpoint_->fs, files, ranges, consumer, options));
    for (const io::ReadRange& range : ranges) done_ += range.size;
    report_.read_bytes += stats.read_bytes;
    report_.read_calls += stats.read_calls;
    report_.peak_buffer_bytes = std::max(report_.peak_buffer_bytes, stats.peak_buffer_bytes);
    if (report_.backend.empty()) {
      report_.backend = Name(stats.backend.backend);
      report_.backend_reason = stats.backend.reason;
    }
    return {};
  }

  // One chunk: verify it, and hand it to the sink where there is one.
  Status Consume(const Piece& piece, uint64_t offset, std::span<const std::byte> bytes) {
    const format::PlacedSegment& segment = *piece.source->segment;
    if (reader_.options_.stop.stop_requested()) {
      return Status(StatusCode::kCancelled, "the load was stopped on request");
    }
    if (reader_.options_.verify) {
      const uint64_t i = offset / segment.chunk_bytes;
      const uint64_t digest = base::Digest64(bytes);
      if (digest != piece.digests[i]) {
        return store::ChunkMismatch(piece.source->file->file()->path(), segment,
                                    piece.chunks.first + i, piece.digests[i], digest);
      }
      report_.verified_bytes += bytes.size();
    }
    if (piece.destination->sink == nullptr) return {};
    // The part of the chunk that the run wants.
    const uint64_t skip = piece.source->offset - piece.chunks.begin;
    const uint64_t begin = std::max(offset, skip);
    const uint64_t end = std::min(offset + bytes.size(), skip + piece.length);
    if (begin >= end) return {};
    return piece.destination->sink->Write(piece.target_offset + (begin - skip),
                                          bytes.subspan(begin - offset, end - begin));
  }

  const RankReader::Impl& reader_;
  const std::span<const Destination> destinations_;
  std::vector<Piece> own_;
  std::vector<Piece> replicated_;
  uint64_t wanted_total_ = 0;
  uint64_t done_ = 0;
  LoadReport report_;
};

Result<LoadReport> RankReader::Impl::Load(std::span<const Destination> destinations) const {
  return LoadRun(*this, destinations).Run();
}

}  // namespace flagstone
