// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/digest.h"
#include "base/endian.h"
#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "flagstone/checkpoint.h"
#include "format/header.h"
#include "io/transfer.h"
#include "load/digest_cache.h"
#include "load/open_with.h"
#include "partition/geometry.h"
#include "partition/normalize.h"
#include "store/open.h"

namespace flagstone {
namespace {

using base::Join;
using base::Quote;

bool IsZero(std::span<const std::byte> bytes) { return !format::FindNonZero(bytes); }

// A run of a segment that holds no element: between members, and from the last one to the 4096
// boundary.
struct Gap {
  uint64_t begin = 0;
  uint64_t end = 0;
};

std::vector<Gap> GapsOf(const Layout& layout, uint32_t rank, const format::PlacedSegment& segment) {
  std::vector<Gap> gaps;
  uint64_t at = 0;
  if (!segment.partition.empty()) {
    const Partition* const part = partition::FindPartition(layout, segment.partition);
    const partition::Geometry geometry(layout,
                                       static_cast<uint32_t>(part - layout.partitions.data()));
    const uint32_t role_index = *partition::FindRole(*part, segment.role);
    for (const auto& piece :
         geometry.StoredSegment(role_index, *part->ranks.IndexOf(rank)).pieces) {
      if (piece.byte_offset > at) gaps.push_back({at, piece.byte_offset});
      at = piece.byte_offset + piece.byte_size;
    }
  } else {
    at = segment.bytes;
  }
  if (at < segment.padded_bytes()) gaps.push_back({at, segment.padded_bytes()});
  return gaps;
}

// The plain values of the ranks so far: unequal ones for one member are wrong wherever they are
// met.
class PlainValues {
 public:
  // What is unlike one that was seen before is given to `unlike`, with the rank that has the other.
  void Add(const format::RankIndex& index,
           const std::function<void(const format::PlainValue&, uint32_t)>& unlike) {
    for (const format::PlainValue& value : index.plain) {
      const auto [entry, is_new] = seen_.try_emplace({value.partition, value.role, value.member},
                                                     Seen{index.rank, value.value});
      if (!is_new && entry->second.value != value.value) unlike(value, entry->second.rank);
    }
  }

 private:
  struct Seen {
    uint32_t rank = 0;
    Value value;
  };
  std::map<std::tuple<std::string, std::string, uint32_t>, Seen> seen_;
};

// Reads one rank file whole and reports everything that is wrong with it.
class FileVerifier {
 public:
  FileVerifier(io::FileSystem& fs, const store::OpenedManifest& opened, uint32_t rank,
               const VerifyOptions& options, PlainValues& plain, VerifyReport& report,
               const std::function<void(uint64_t)>& progress)
      : fs_(fs),
        opened_(opened),
        rank_(rank),
        options_(options),
        plain_(plain),
        report_(report),
        progress_(progress),
        name_(store::RankFileNameOf(opened.manifest, rank)) {}

  // Not ok: the verification itself was stopped.
  Status Run() {
    auto file = store::OpenRankFile(fs_, opened_, rank_);
    if (!file.ok()) {
      AddStatus(file.status(), 0);
      return {};
    }
    file_ = *std::move(file);
    const format::RankFileEntry& entry = opened_.manifest.files[rank_];
    if (const Status header = store::CheckRankHeader(*file_, opened_, rank_); !header.ok()) {
      AddStatus(header, base::kPageBytes);
    }
    auto decoded = store::ReadRankIndex(*file_, opened_, rank_);
    if (!decoded.ok()) {
      AddStatus(decoded.status(), entry.index_length);
      return {};
    }
    reader_ = store::RankFileReader::Make(file_, *std::move(decoded),
                                          base::kPageBytes + entry.index_length);
    CheckPlain();
    CheckIndexPadding(entry);
    CheckDigestPages();
    report_.bytes += base::kPageBytes + (entry.file_length - index().placement.digests_offset);
    return CheckSegments();
  }

 private:
  const format::RankIndex& index() const { return reader_->index(); }

  void AddStatus(const Status& status, uint64_t length) {
    VerifyProblem problem;
    problem.code = status.code();
    problem.file = name_;
    problem.segment = status.place().segment;
    problem.offset = status.place().offset;
    if (length > 0) problem.length = length;
    problem.what = status.message();
    report_.problems.push_back(std::move(problem));
  }

  void Add(std::string segment, std::optional<uint64_t> chunk, uint64_t offset, uint64_t length,
           std::string what) {
    report_.problems.push_back({StatusCode::kCorruption, name_, std::move(segment), chunk, offset,
                                length, std::move(what)});
  }

  void CheckPlain() {
    plain_.Add(index(), [this](const format::PlainValue& value, uint32_t other) {
      const Layout& layout = opened_.manifest.layout;
      const Partition& part = *partition::FindPartition(layout, value.partition);
      const std::string segment = Join(value.partition, "/", value.role);
      report_.problems.push_back(
          {StatusCode::kCorruption, name_, segment, std::nullopt, std::nullopt, std::nullopt,
           Join(
               "ranks ", other, " and ", rank_, " saved unlike values of ",
               Quote(Join(segment, "/", layout.tensors[part.members[value.member].tensor].name)))});
    });
  }

  void CheckIndexPadding(const format::RankFileEntry& entry) {
    const uint64_t end = store::IndexOffsetOf(entry) + entry.index_length;
    std::vector<std::byte> rest(entry.file_length - end);
    if (const Status read = io::ReadFully(*file_, end, rest); !read.ok()) {
      AddStatus(read, rest.size());
    } else if (!IsZero(rest)) {
      Add("", std::nullopt, end, rest.size(), "the padding behind the index is not zero");
    }
  }

  void CheckDigestPages() {
    const format::RankPlacement& placement = index().placement;
    page_is_good_.assign(index().page_digests.size(), false);
    std::vector<std::byte> page(base::kPageBytes);
    for (uint64_t i = 0; i < index().page_digests.size(); ++i) {
      const uint64_t offset = placement.digests_offset + i * base::kPageBytes;
      if (const Status read = io::ReadFully(*file_, offset, page); !read.ok()) {
        AddStatus(read, page.size());
        continue;
      }
      if (base::Digest64(page) != index().page_digests[i]) {
        Add("", std::nullopt, offset, page.size(),
            Join("digest page ", i, " of ", Quote(name_), " at offset ", offset,
                 " is not what was saved; the bytes under it cannot be verified"));
        continue;
      }
      page_is_good_[i] = true;
      const uint64_t first = i * format::kDigestsPerPage;
      const uint64_t count = std::min(format::kDigestsPerPage, placement.digest_count - first);
      if (!IsZero(std::span(page).subspan(8 * count))) {
        Add("", std::nullopt, offset + 8 * count, page.size() - 8 * count,
            "the padding of a digest page is not zero");
      }
    }
  }

  Status CheckSegments() {
    std::vector<io::ReadRange> ranges;
    for (const format::PlacedSegment& segment : index().placement.segments) {
      gaps_.push_back(GapsOf(opened_.manifest.layout, rank_, segment));
      io::ReadRange range;
      range.offset = segment.offset;
      range.size = segment.padded_bytes();
      range.block_bytes = segment.chunk_bytes;
      range.tag = ranges.size();
      ranges.push_back(range);
    }
    const size_t problems_before = report_.problems.size();
    const std::vector<bool> pages_before = page_is_good_;
    io::ReadOptions read;
    read.backend = options_.backend;
    read.buffer_bytes = uint64_t{16} << 20;
    read.progress = progress_;
    const auto consumer = [&](const io::ReadRange& range, uint64_t offset,
                              std::span<const std::byte> bytes) -> Status {
      if (options_.stop.stop_requested()) {
        return Status(StatusCode::kCancelled, "the verification was stopped on request");
      }
      CheckChunk(range.tag, offset, bytes);
      return {};
    };
    const auto stats = io::ReadRanges(fs_, std::span(&file_, 1), ranges, consumer, read);
    if (stats.ok()) {
      report_.bytes += stats->read_bytes;
      return {};
    }
    // A backend that was asked for by name and cannot work is no finding about the file.
    if (stats.status().code() == StatusCode::kCancelled ||
        (stats.status().code() == StatusCode::kUnsupported && options_.backend != Backend::kAuto)) {
      return stats.status();
    }
    // One unreadable place ends a batch. Read chunk by chunk instead, so that each such place is
    // reported.
    report_.problems.resize(problems_before);
    page_is_good_ = pages_before;
    return CheckChunkByChunk();
  }

  Status CheckChunkByChunk() {
    std::vector<std::byte> buffer;
    for (size_t i = 0; i < index().placement.segments.size(); ++i) {
      const format::PlacedSegment& segment = index().placement.segments[i];
      for (uint64_t at = 0; at < segment.padded_bytes(); at += segment.chunk_bytes) {
        if (options_.stop.stop_requested()) {
          return Status(StatusCode::kCancelled, "the verification was stopped on request");
        }
        buffer.resize(std::min<uint64_t>(segment.chunk_bytes, segment.padded_bytes() - at));
        const Status read = io::ReadFully(*file_, segment.offset + at, buffer);
        if (!read.ok()) {
          VerifyProblem problem{read.code(),
                                name_,
                                store::SegmentName(segment),
                                at / segment.chunk_bytes,
                                segment.offset + at,
                                buffer.size(),
                                read.message()};
          report_.problems.push_back(std::move(problem));
          continue;
        }
        report_.bytes += buffer.size();
        CheckChunk(i, at, buffer);
      }
    }
    return {};
  }

  void CheckChunk(size_t segment_index, uint64_t at, std::span<const std::byte> bytes) {
    const format::PlacedSegment& segment = index().placement.segments[segment_index];
    const uint64_t chunk = at / segment.chunk_bytes;
    const std::optional<uint64_t> stated = StatedDigest(segment.first_chunk + chunk);
    if (!stated) return;  // its page was reported
    const uint64_t digest = base::Digest64(bytes);
    if (digest != *stated) {
      Add(store::SegmentName(segment), chunk, segment.offset + at, bytes.size(),
          Join("wrong bytes: ", store::DigestText(*stated, digest)));
      return;
    }
    const std::vector<Gap>& gaps = gaps_[segment_index];
    auto gap = std::lower_bound(gaps.begin(), gaps.end(), at,
                                [](const Gap& g, uint64_t offset) { return g.end <= offset; });
    for (; gap != gaps.end() && gap->begin < at + bytes.size(); ++gap) {
      const uint64_t begin = std::max(gap->begin, at);
      const uint64_t end = std::min(gap->end, at + bytes.size());
      if (!IsZero(bytes.subspan(begin - at, end - begin))) {
        Add(store::SegmentName(segment), chunk, segment.offset + begin, end - begin,
            "padding is not zero");
      }
    }
  }

  // The digest that was saved of a chunk, by its number in the file; nothing where its page is not
  // what was saved. One page at a time: chunks come nearly in order.
  std::optional<uint64_t> StatedDigest(uint64_t number) {
    const uint64_t page = number / format::kDigestsPerPage;
    if (!page_is_good_[page]) return std::nullopt;
    const auto digest = digests_.Get(*reader_, number, number + 1, digest_bytes_);
    if (digest.ok()) return *digest;
    page_is_good_[page] = false;  // was good before: the file changes while it is read
    AddStatus(digest.status(), base::kPageBytes);
    return std::nullopt;
  }

  io::FileSystem& fs_;
  const store::OpenedManifest& opened_;
  const uint32_t rank_;
  const VerifyOptions& options_;
  PlainValues& plain_;
  VerifyReport& report_;
  const std::function<void(uint64_t)>& progress_;
  const std::string name_;
  std::shared_ptr<io::File> file_;
  std::shared_ptr<const store::RankFileReader> reader_;
  std::vector<bool> page_is_good_;
  load::DigestCache digests_;
  uint64_t digest_bytes_ = 0;           // read a second time: not counted in the report
  std::vector<std::vector<Gap>> gaps_;  // by segment
};

}  // namespace

Result<VerifyReport> load::VerifyWith(io::FileSystem& fs, const std::filesystem::path& path,
                                      const VerifyOptions& options) {
  VerifyReport report;
  auto opened = store::OpenManifest(fs, path);
  if (!opened.ok()) {
    const Status& status = opened.status();
    const std::filesystem::path file = status.place().path;
    // A manifest that is there and cannot be read is what a verification is to find; one of
    // another version is for the caller.
    const bool is_damage =
        status.code() == StatusCode::kCorruption ||
        (file.filename() == format::kManifestName &&
         (status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kIoError));
    if (!is_damage) return status;
    report.problems.push_back({status.code(), file.filename().string(), "", std::nullopt,
                               status.place().offset, std::nullopt, status.message()});
    return report;
  }
  FLAGSTONE_RETURN_IF_ERROR(store::RequireData(*opened));
  report.bytes = opened->manifest_bytes;
  const auto& files = opened->manifest.files;
  if (options.rank && *options.rank >= files.size()) {
    return Status(StatusCode::kNotFound,
                  Join("there is no rank ", *options.rank, " in ", Quote(path.string()),
                       ", saved by ranks 0 to ", files.size() - 1));
  }
  uint64_t total = 0;
  for (const auto& entry : files)
    total += !options.rank || entry.rank == *options.rank ? entry.file_length : 0;
  uint64_t done = 0;
  PlainValues plain;
  for (const auto& entry : files) {
    if (options.rank && entry.rank != *options.rank) continue;
    const std::function<void(uint64_t)> progress = [&](uint64_t in_file) {
      if (options.progress) options.progress(done + in_file, total);
    };
    FLAGSTONE_RETURN_IF_ERROR(
        FileVerifier(fs, *opened, entry.rank, options, plain, report, progress).Run());
    done += entry.file_length;
  }
  return report;
}

Result<VerifyReport> Verify(const std::filesystem::path& path, const VerifyOptions& options) {
  return load::VerifyWith(io::PosixFileSystem(), path, options);
}

}  // namespace flagstone
