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
  // What is read in one batch: runs, where they go, and the chunks that they share.
  struct Batch {
    std::vector<load::SourceRun> runs;
    std::vector<const Destination*> destinations;  // of each run
    std::vector<uint64_t> target_offsets;          // of each run, in its destination
    load::ChunkReads chunks;
    std::vector<uint64_t>
        digests_end;  // of each read: digests of its file up to here are wanted soon
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

  // What lies between slices and is carried by no run is zero, as it is in a file. A run that
  // carries it goes on before and behind it; others carry slices alone.
  Status FillGaps(const Destination& destination, const SegmentInfo& segment, uint32_t index) {
    const auto runs = reader_.RunsOf(index);
    auto run = runs.begin();
    uint64_t at = 0;
    for (size_t i = 0; i <= segment.slices.size(); ++i) {
      const uint64_t begin = i < segment.slices.size() ? segment.offsets[i] : segment.bytes;
      if (at < begin) {
        const auto ends_before = [&](const Plan::Run& r) {
          return r.level_count > 0 || r.destination_offset + r.length <= at;
        };
        while (run != runs.end() && ends_before(*run)) ++run;
        const bool carried = run != runs.end() && run->destination_offset < at;
        if (!carried) FLAGSTONE_RETURN_IF_ERROR(Zero(destination, at, begin));
      }
      if (i == segment.slices.size()) break;
      const Slice& slice = segment.slices[i];
      at = begin + (slice.end - slice.begin) * SizeOf(segment.dtype);
    }
    return {};
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
    Batch& batch = segment.replicated ? replicated_ : own_;
    for (const Plan::Run& run : reader_.RunsOf(index)) {
      const load::Source& source =
          reader_.sources_[static_cast<size_t>(&run - reader_.plan_.runs.data())];
      batch.runs.push_back({run.rank, source.segment, source.offset, run.length,
                            reader_.plan_.LevelsOf(run)});
      batch.destinations.push_back(&destination);
      batch.target_offsets.push_back(run.destination_offset);
    }
  }

  static uint64_t FirstDigest(const load::ChunkRead& read) {
    return read.segment->first_chunk + read.chunks.first;
  }

  // Chunks are read in the order of their digests, so that one read brings the digests of many.
  static void Arrange(Batch& batch) {
    batch.chunks = load::GroupByChunk(batch.runs);
    const auto& reads = batch.chunks.reads;
    batch.digests_end.resize(reads.size());
    for (size_t i = reads.size(); i-- > 0;) {
      const uint64_t end = FirstDigest(reads[i]) + reads[i].chunks.count;
      const bool follows =
          i + 1 < reads.size() && reads[i + 1].rank == reads[i].rank &&
          FirstDigest(reads[i + 1]) / format::kDigestsPerPage <= end / format::kDigestsPerPage;
      batch.digests_end[i] = follows ? std::max(end, batch.digests_end[i + 1]) : end;
    }
  }

  // Whether the bytes of a read may go straight where they are wanted: what more than one run, rows
  // or a sink take is handed out by Consume.
  static bool GoesStraight(const Batch& batch, std::span<const uint32_t> users) {
    return users.size() == 1 && batch.runs[users.front()].levels.empty() &&
           batch.destinations[users.front()]->sink == nullptr;
  }

  io::ReadRange RangeOf(const Batch& batch, const load::ChunkRead& read) const {
    io::ReadRange range;
    range.offset = read.segment->offset + read.chunks.begin;
    range.size = read.chunks.size;
    range.block_bytes = read.segment->chunk_bytes;
    const auto users = batch.chunks.UsersOf(read);
    if (!GoesStraight(batch, users)) return range;
    const uint32_t user = users.front();
    load::ForEachPart(batch.runs[user], read.chunks.begin, read.chunks.begin + read.chunks.size,
                      [&](uint64_t offset, uint64_t target, uint64_t length) {
                        range.destination = batch.destinations[user]->memory.subspan(
                            batch.target_offsets[user] + target, length);
                        range.destination_skip = offset - read.chunks.begin;
                      });
    return range;
  }

  // Whether more than a tenth of what is read is wanted by other ranks: chunks of which this one wants
  // a part. What pads segments to pages is nobody's.
  static bool ReadsForOthers(const Batch& batch) {
    uint64_t wanted = 0;
    for (const load::SourceRun& run : batch.runs) wanted += load::WantedBytes(run);
    uint64_t data = 0;
    for (const load::ChunkRead& read : batch.chunks.reads) {
      data += std::min(read.chunks.begin + read.chunks.size, read.segment->bytes) -
              read.chunks.begin;
    }
    return data > wanted && data - wanted > wanted / 10;
  }

  // A few files at a time, in the order of ranks.
  Status ReadBatch(const Batch& batch, bool replicated) {
    const auto& reads = batch.chunks.reads;
    const bool shared = replicated || ReadsForOthers(batch);
    for (size_t begin = 0; begin < reads.size();) {
      size_t end = begin;
      size_t files = 0;
      for (; end < reads.size(); ++end) {
        if (end > begin && reads[end].rank == reads[end - 1].rank) continue;
        if (++files > RankReader::Impl::kMaxOpenFiles) break;
      }
      FLAGSTONE_RETURN_IF_ERROR(ReadSome(batch, begin, end, replicated, shared));
      begin = end;
    }
    return {};
  }

  // Reads [begin, end) of a batch.
  Status ReadSome(const Batch& batch, size_t begin, size_t end, bool replicated, bool shared) {
    const auto reads = std::span(batch.chunks.reads).subspan(begin, end - begin);
    std::vector<std::shared_ptr<io::File>> files;
    std::vector<io::ReadRange> ranges;
    ranges.reserve(reads.size());
    for (size_t i = 0; i < reads.size(); ++i) {
      if (i == 0 || reads[i].rank != reads[i - 1].rank) {
        FLAGSTONE_ASSIGN_OR_RETURN(auto file, reader_.files_.at(reads[i].rank)->file());
        files.push_back(std::move(file));
      }
      io::ReadRange range = RangeOf(batch, reads[i]);
      range.file = static_cast<uint32_t>(files.size() - 1);
      range.tag = begin + i;
      ranges.push_back(range);
    }
    io::ReadOptions options;
    options.backend = reader_.options_.backend;
    if (shared && options.backend == Backend::kAuto) {
      options.chosen =
          io::BackendChoice{Backend::kUring, replicated
                                                 ? "read once a node, through the page cache"
                                                 : "small pieces: what is read beside them is for "
                                                   "other ranks of the node, in the page cache"};
    }
    options.queue_depth = reader_.options_.queue_depth;
    options.buffer_bytes = uint64_t{16} << 20;
    options.keep_cached = shared;
    const uint64_t done_before = done_;
    if (reader_.options_.progress) {
      options.progress = [&, done_before](uint64_t done) {
        reader_.options_.progress(std::min(done_before + done, wanted_total_), wanted_total_);
      };
    }
    // Digests are read from the file itself; the first of them before it is busy.
    if (reader_.options_.verify) {
      FLAGSTONE_RETURN_IF_ERROR(reader_
                                    .DigestAt(*reader_.files_.at(reads.front().rank),
                                              FirstDigest(reads.front()), batch.digests_end[begin],
                                              report_)
                                    .status());
    }
    const auto consumer = [&](const io::ReadRange& range, uint64_t offset,
                              std::span<const std::byte> bytes) {
      return Consume(batch, range.tag, offset, bytes);
    };
    FLAGSTONE_ASSIGN_OR_RETURN(
        const io::ReadStats stats,
        io::ReadRanges(reader_.checkpoint_->fs, files, ranges, consumer, options));
    for (const io::ReadRange& range : ranges) done_ += range.size;
    for (const load::ChunkRead& read : reads) reader_.RestFile(*reader_.files_.at(read.rank));
    report_.read_bytes += stats.read_bytes;
    report_.read_calls += stats.read_calls;
    report_.peak_buffer_bytes = std::max(report_.peak_buffer_bytes, stats.peak_buffer_bytes);
    if (report_.backend.empty()) {
      report_.backend = Name(stats.backend.backend);
      report_.backend_reason = stats.backend.reason;
    } else if (replicated && begin == 0 && stats.backend.reason != report_.backend_reason) {
      report_.backend_reason +=
          Join("; replicated tensors by ", Name(stats.backend.backend), ": ", stats.backend.reason);
    }
    return {};
  }

  // One chunk: verify it, and hand it to those who did not have it read into their memory.
  Status Consume(const Batch& batch, size_t index, uint64_t offset,
                 std::span<const std::byte> bytes) {
    const load::ChunkRead& read = batch.chunks.reads[index];
    if (reader_.options_.stop.stop_requested()) {
      return Status(StatusCode::kCancelled, "the load was stopped on request");
    }
    if (reader_.options_.verify) {
      FLAGSTONE_RETURN_IF_ERROR(Verify(read, batch.digests_end[index], offset, bytes));
    }
    const auto users = batch.chunks.UsersOf(read);
    if (GoesStraight(batch, users)) return {};
    const uint64_t chunk_begin = read.chunks.begin + offset;
    Status status;
    for (const uint32_t user : users) {
      const Destination& destination = *batch.destinations[user];
      const auto hand_out = [&](uint64_t source, uint64_t target, uint64_t length) {
        const auto part = bytes.subspan(source - chunk_begin, length);
        const uint64_t at = batch.target_offsets[user] + target;
        if (destination.sink == nullptr) {
          std::memcpy(destination.memory.data() + at, part.data(), part.size());
        } else if (status.ok()) {
          status = destination.sink->Write(at, part);
        }
      };
      load::ForEachPart(batch.runs[user], chunk_begin, chunk_begin + bytes.size(), hand_out);
    }
    return status;
  }

  Status Verify(const load::ChunkRead& read, uint64_t digests_end, uint64_t offset,
                std::span<const std::byte> bytes) {
    const store::RankFileReader& file = *reader_.files_.at(read.rank);
    const uint64_t i = offset / read.segment->chunk_bytes;
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t stated,
                               reader_.DigestAt(file, FirstDigest(read) + i, digests_end, report_));
    const uint64_t found = base::Digest64(bytes);
    if (found != stated) {
      return store::ChunkMismatch(file.path(), *read.segment, read.chunks.first + i, stated,
                                  found);
    }
    report_.verified_bytes += bytes.size();
    return {};
  }

  const RankReader::Impl& reader_;
  const std::span<const Destination> destinations_;
  Batch own_;
  Batch replicated_;
  uint64_t wanted_total_ = 0;
  uint64_t done_ = 0;
  LoadReport report_;
};

Result<LoadReport> RankReader::Impl::Load(std::span<const Destination> destinations) const {
  return LoadRun(*this, destinations).Run();
}

}  // namespace flagstone
