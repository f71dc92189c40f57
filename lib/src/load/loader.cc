// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/digest.h"
#include "base/macros.h"
#include "base/text.h"
#include "flagstone/load.h"
#include "io/transfer.h"
#include "load/impl.h"
#include "partition/geometry.h"

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
    uint64_t digests_end = 0;  // digests of the file up to here are wanted soon

    uint64_t first_digest() const { return source->segment->first_chunk + chunks.first; }
    uint64_t file_offset() const { return source->segment->offset + source->offset; }
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
      FLAGSTONE_RETURN_IF_ERROR(FillGaps(destination, segment, index));
      CollectRuns(destination, segment, index);
    }
    Arrange(own_);
    Arrange(replicated_);
    report_.wanted_bytes = wanted_total_;
    return {};
  }

  // What no run carries (padding between members) is zero, as it is in a file.
  Status FillGaps(const Destination& destination, const SegmentInfo& segment, uint32_t index) {
    uint64_t at = 0;
    for (const Plan::Run& run : reader_.RunsOf(index)) {
      FLAGSTONE_RETURN_IF_ERROR(Zero(destination, at, run.destination_offset));
      at = run.destination_offset + run.length;
    }
    return Zero(destination, at, segment.bytes);
  }

  static Status Zero(const Destination& destination, uint64_t begin, uint64_t end) {
    constexpr std::array<std::byte, partition::kMemberAlignment> kZeros{};
    while (begin < end) {
      const auto zeros = std::span(kZeros).first(std::min<uint64_t>(kZeros.size(), end - begin));
      if (destination.sink != nullptr) {
        FLAGSTONE_RETURN_IF_ERROR(destination.sink->Write(begin, zeros));
      } else {
        std::memcpy(destination.memory.data() + begin, zeros.data(), zeros.size());
      }
      begin += zeros.size();
    }
    return {};
  }

  void CollectRuns(const Destination& destination, const SegmentInfo& segment, uint32_t index) {
    for (const Plan::Run& run : reader_.RunsOf(index)) {
      Piece piece;
      piece.destination = &destination;
      piece.source = &reader_.sources_[static_cast<size_t>(&run - reader_.plan_.runs.data())];
      piece.chunks = load::ChunksOf(*piece.source->segment, piece.source->offset, run.length);
      piece.length = run.length;
      piece.target_offset = run.destination_offset;
      piece.digests_end = piece.first_digest() + piece.chunks.count;
      (segment.replicated ? replicated_ : own_).push_back(piece);
    }
  }

  // In the order in which they will be read, so that one read brings the digests of many.
  static void Arrange(std::vector<Piece>& pieces) {
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return std::pair(a.source->file->rank(), a.file_offset()) <
             std::pair(b.source->file->rank(), b.file_offset());
    });
    for (size_t i = pieces.size(); i-- > 1;) {
      Piece& piece = pieces[i - 1];
      const Piece& next = pieces[i];
      const bool follows = next.source->file == piece.source->file &&
                           next.first_digest() / format::kDigestsPerPage <=
                               piece.digests_end / format::kDigestsPerPage;
      if (follows) piece.digests_end = std::max(piece.digests_end, next.digests_end);
    }
  }

  Status ReadBatch(const std::vector<Piece>& pieces, bool replicated) {
    if (pieces.empty()) return {};
    std::vector<std::shared_ptr<io::File>> files;
    std::vector<io::ReadRange> ranges;
    for (const Piece& piece : pieces) {
      const auto& file = piece.source->file->file();
      if (files.empty() || files.back() != file) files.push_back(file);
      io::ReadRange range;
      range.file = static_cast<uint32_t>(files.size() - 1);
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
      options.chosen =
          io::BackendChoice{Backend::kUring, "they are read once a node, through the page cache"};
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
    // Digests are read from the file itself; the first of them before it is busy.
    if (reader_.options_.verify) {
      const Piece& first = pieces.front();
      FLAGSTONE_RETURN_IF_ERROR(
          reader_.DigestAt(*first.source->file, first.first_digest(), first.digests_end, report_)
              .status());
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
    } else if (stats.backend.reason != report_.backend_reason) {
      report_.backend_reason +=
          Join("; replicated tensors by ", Name(stats.backend.backend), ": ", stats.backend.reason);
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
      FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t stated,
                                 reader_.DigestAt(*piece.source->file, piece.first_digest() + i,
                                                  piece.digests_end, report_));
      const uint64_t found = base::Digest64(bytes);
      if (found != stated) {
        return store::ChunkMismatch(piece.source->file->file()->path(), segment,
                                    piece.chunks.first + i, stated, found);
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
