// SPDX-License-Identifier: Apache-2.0
#include "store/open.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "base/endian.h"
#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "format/header.h"
#include "format/placement.h"
#include "partition/normalize.h"
#include "store/names.h"
#include "store/publish.h"

namespace flagstone::store {
namespace {

using base::Join;
using base::Quote;

Status Corrupt(const path& file, std::string message,
               std::optional<uint64_t> offset = std::nullopt) {
  return Status(StatusCode::kCorruption, std::move(message), {file.string(), "", offset});
}

// Why a path holds no checkpoint, in words that help.
Status DescribeAbsence(io::FileSystem& fs, const path& given) {
  const ErrorPlace place{given.string(), "", std::nullopt};
  const auto info = fs.Stat(given);
  if (!info.ok()) return info.status();
  if (info->type == io::FileInfo::Type::kDirectory) {
    std::string hint = "it has neither manifest.flagstone nor latest";
    if (const auto names = fs.List(given); names.ok()) {
      for (const std::string& name : *names) {
        const NameKind kind = ParseName(name).kind;
        if (kind == NameKind::kRankFile || kind == NameKind::kPrivate ||
            kind == NameKind::kTemporaryManifest) {
          hint = "it holds an unfinished save, which was never published";
        }
        if (fs.Stat(given / name / format::kManifestName).ok()) {
          return Status(StatusCode::kNotFound,
                        Join(Quote(given.string()),
                             " is a directory of checkpoints without 'latest'; name one of them, "
                             "for example ",
                             Quote((given / name).string())),
                        place);
        }
      }
      if (names->empty()) hint = "it is empty";
    }
    return Status(StatusCode::kInvalidArgument,
                  Join(Quote(given.string()), " is not a checkpoint: ", hint), place);
  }
  const NameKind kind = ParseName(given.filename().string()).kind;
  if (kind == NameKind::kManifest || kind == NameKind::kRankFile) {
    return Status(StatusCode::kInvalidArgument,
                  Join(Quote(given.string()),
                       " is one file of a checkpoint; name the directory that it lies in, ",
                       Quote(RootOf(given).string())),
                  place);
  }
  std::array<std::byte, 4096> front{};
  uint64_t filled = 0;
  if (auto file = fs.Open(given, {io::OpenOptions::Mode::kRead, false}); file.ok()) {
    if (const auto got = (*file)->ReadAt(0, front); got.ok()) filled = *got;
  } else {
    return file.status();
  }
  return Status(StatusCode::kInvalidArgument,
                Join(Quote(given.string()),
                     " is not a checkpoint, which is a directory, but a file (looks like ",
                     format::DescribeForeign(std::span(front).first(filled)), ")"),
                place);
}

Result<OpenedManifest> OpenIn(io::FileSystem& fs, const path& directory) {
  FLAGSTONE_ASSIGN_OR_RETURN(ManifestFile file, ReadManifestFile(fs, directory));
  return OpenedManifest{directory, std::move(file.manifest), file.header, file.bytes};
}

Result<OpenedManifest> OpenLatest(io::FileSystem& fs, const path& root) {
  Status gone;
  // A `latest` whose target is gone, or is another save than it says, was moved meanwhile: read it
  // again.
  constexpr int kLooks = 5;
  for (int look = 0; look < kLooks; ++look) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto latest, ReadLatest(fs, root));
    if (!latest) return DescribeAbsence(fs, root);
    auto opened = OpenIn(fs, root / latest->name);
    if (!opened.ok()) {
      if (opened.status().code() != StatusCode::kNotFound) return opened;
      gone = opened.status().Annotated(
          Join(Quote((root / kLatestName).string()), " names ", Quote(latest->name)));
      continue;
    }
    const std::string save_id = base::Hex(opened->manifest.save_id);
    if (latest->save_id.empty() || latest->save_id == save_id) return opened;
    gone = Status(StatusCode::kCorruption,
                  Join(Quote((root / kLatestName).string()), " names save ", latest->save_id,
                       " of ", Quote(latest->name), ", but there is save ", save_id,
                       "; open the checkpoint by its own path if that one is meant"),
                  {(root / kLatestName).string(), "", std::nullopt});
  }
  return gone;
}

// Every plain value belongs to a plain role of a member.
Status CheckPlain(const Layout& layout, const format::RankIndex& index, const path& file) {
  for (const format::PlainValue& value : index.plain) {
    const Partition* const part = partition::FindPartition(layout, value.partition);
    const auto role = part != nullptr ? partition::FindRole(*part, value.role) : std::nullopt;
    if (role && part->roles[*role].form == RoleForm::kPlain && value.member < part->members.size())
      continue;
    const std::string name = Join(value.partition, "/", value.role);
    return Status(StatusCode::kCorruption,
                  Join(Quote(file.string()), " keeps a plain value of member ", value.member,
                       " in ", Quote(name), ", which the manifest does not have"),
                  {file.string(), name, std::nullopt});
  }
  return {};
}

}  // namespace

Result<OpenedManifest> OpenManifest(io::FileSystem& fs, const path& given) {
  auto opened = OpenIn(fs, given);
  // A file in place of the directory, or a part of the path that is none, says kInvalidArgument or
  // kNotFound by errno.
  if (opened.ok() || (opened.status().code() != StatusCode::kNotFound &&
                      opened.status().code() != StatusCode::kInvalidArgument)) {
    return opened;
  }
  const auto manifest_info = fs.Stat(given / format::kManifestName);
  if (manifest_info.ok()) return opened;  // it is there; what is wrong with it was said
  const auto info = fs.Stat(given);
  if (info.ok() && info->type == io::FileInfo::Type::kDirectory) return OpenLatest(fs, given);
  return DescribeAbsence(fs, given);
}

// The index is the last thing in a file: its place follows from the lengths in the manifest.
uint64_t IndexOffsetOf(const format::RankFileEntry& entry) {
  return entry.file_length - base::AlignUp(entry.index_length, base::kPageBytes);
}

std::string RankFileNameOf(const format::Manifest& manifest, uint32_t rank) {
  return format::RankFileName(rank, manifest.save_id);
}

Status RequireData(const OpenedManifest& opened) {
  if ((opened.manifest.required_features & format::kFeatureNoData) == 0) return {};
  return Status(StatusCode::kUnsupported,
                Join(Quote(opened.directory.string()),
                     " carries the feature 'no-data': it is a manifest to plan with and "
                     "has no bytes to load or verify"),
                {opened.directory.string(), "", std::nullopt});
}

std::string SegmentName(const format::PlacedSegment& segment) {
  return segment.partition.empty() ? segment.role : Join(segment.partition, "/", segment.role);
}

std::string DigestText(uint64_t stated, uint64_t found) {
  const auto hex = [](uint64_t digest) {
    std::array<std::byte, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(digest >> (56 - 8 * i));
    return base::Hex(bytes);
  };
  return Join("digest is ", hex(found), ", saved was ", hex(stated));
}

Status ChunkMismatch(const path& file, const format::PlacedSegment& segment, uint64_t chunk,
                     uint64_t stated, uint64_t found) {
  const uint64_t offset = segment.offset + chunk * segment.chunk_bytes;
  return Status(
      StatusCode::kCorruption,
      Join("wrong bytes in ", Quote(file.string()), ", segment ", Quote(SegmentName(segment)),
           ", chunk ", chunk, " at offset ", offset, ": ", DigestText(stated, found)),
      {file.string(), SegmentName(segment), offset});
}

Result<std::shared_ptr<io::File>> OpenRankFile(io::FileSystem& fs, const OpenedManifest& opened,
                                               uint32_t rank) {
  const format::Manifest& manifest = opened.manifest;
  if (rank >= manifest.files.size()) {
    return Status(StatusCode::kNotFound,
                  Join(Quote(opened.directory.string()), " was saved by ranks 0 to ",
                       manifest.files.size() - 1, "; there is no rank ", rank),
                  {opened.directory.string(), "", std::nullopt});
  }
  FLAGSTONE_RETURN_IF_ERROR(RequireData(opened));
  const format::RankFileEntry& entry = manifest.files[rank];
  const path name = opened.directory / RankFileNameOf(manifest, rank);
  auto file = fs.Open(name, {io::OpenOptions::Mode::kRead, false});
  if (file.status().code() == StatusCode::kInvalidArgument) {
    // Something else has the name; the caller gave another.
    return Corrupt(name, Join("rank file ", Quote(name.string()), ": ", file.status().message()));
  }
  if (!file.ok()) {
    if (file.status().code() != StatusCode::kNotFound) return file.status();
    const auto now = PublishedSaveId(fs, opened.directory);
    if (now.ok() && *now && **now != base::Hex(manifest.save_id)) {
      return Status(StatusCode::kNotFound,
                    Join("checkpoint ", Quote(opened.directory.string()), " was replaced by save ",
                         **now, "; open it again"),
                    {opened.directory.string(), "", std::nullopt});
    }
    return Status(
        StatusCode::kNotFound,
        Join("rank file ", Quote(name.string()), " (", entry.file_length, " bytes) is missing"),
        {name.string(), "", std::nullopt});
  }
  FLAGSTONE_ASSIGN_OR_RETURN(const io::FileInfo info, (*file)->Info());
  if (info.size != entry.file_length) {
    return Corrupt(name, Join("rank file ", Quote(name.string()),
                              info.size < entry.file_length ? " is truncated" : " is too long",
                              ": have ", info.size, " bytes, need ", entry.file_length));
  }
  return std::shared_ptr<io::File>(*std::move(file));
}

Status CheckRankHeader(io::File& file, const OpenedManifest& opened, uint32_t rank) {
  const format::Manifest& manifest = opened.manifest;
  const format::RankFileEntry& entry = manifest.files[rank];
  const std::string name = file.path().string();
  format::HeaderPage page;
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(file, 0, page));
  auto header = format::DecodeHeader(page, format::FileKind::kRankFile, entry.file_length);
  if (!header.ok()) {
    // The manifest names this file: whatever it is now, it is not what the caller asked for.
    const Status& why = header.status();
    if (why.code() == StatusCode::kInvalidArgument)
      return Corrupt(file.path(), Join(Quote(name), ": ", why.message()), 0);
    return why.Annotated(Quote(name), {name, "", 0});
  }
  const auto refuse = [&](std::string why) {
    return Corrupt(
        file.path(),
        Join("rank file ", Quote(name), " is not the one that the manifest names: ", why), 0);
  };
  if (header->save_id != manifest.save_id) {
    return refuse(Join("it is of save ", base::Hex(header->save_id), ", the manifest of save ",
                       base::Hex(manifest.save_id), "; files of two saves are mixed"));
  }
  if (header->rank != rank || header->world_size != manifest.layout.world_size) {
    return refuse(Join("it is rank ", header->rank, " of ", header->world_size, ", not rank ", rank,
                       " of ", manifest.layout.world_size));
  }
  if (header->index_length != entry.index_length || header->index_digest != entry.index_digest ||
      header->index_offset != IndexOffsetOf(entry)) {
    return refuse(Join("its index has ", header->index_length, " bytes at offset ",
                       header->index_offset, " and another digest than the manifest's ",
                       entry.index_length, " bytes at offset ", IndexOffsetOf(entry)));
  }
  return {};
}

Result<format::RankIndex> ReadRankIndex(io::File& file, const OpenedManifest& opened,
                                        uint32_t rank) {
  const format::Manifest& manifest = opened.manifest;
  const format::RankFileEntry& entry = manifest.files[rank];
  const std::string name = file.path().string();
  const uint64_t offset = IndexOffsetOf(entry);
  if (entry.index_length > entry.file_length - base::kPageBytes) {
    return Corrupt(file.path(),
                   Join("the manifest gives the index of ", Quote(name), " ", entry.index_length,
                        " bytes, more than the file's ", entry.file_length));
  }
  std::vector<std::byte> bytes(entry.index_length);
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(file, offset, bytes));
  if (base::DigestOf(bytes) != entry.index_digest) {
    return Corrupt(file.path(),
                   Join("the index of ", Quote(name), " at offset ", offset, ", ", bytes.size(),
                        " bytes, is not what was saved"),
                   offset);
  }
  auto index = format::DecodeRankIndex(bytes);
  if (!index.ok()) return index.status().Annotated(Quote(name), {name, "", offset});
  // The places follow from the manifest and the rank's own state; the index only repeats them.
  std::vector<format::ArraySize> arrays;
  const auto add_arrays = [&](const Value& state, bool client) {
    for (const Array* array : format::SegmentArrays(state))
      arrays.push_back({client, format::ArraySizeBytes(*array)});
  };
  add_arrays(index->rank_state, false);
  if (rank == 0) add_arrays(manifest.client_state, true);
  const auto expected = format::PlaceRankFile(manifest.layout, rank, arrays);
  if (!expected.ok())
    return Corrupt(file.path(), Join(Quote(name), ": ", expected.status().message()));
  if (*expected != index->placement || index->placement.index_offset != offset ||
      index->save_id != manifest.save_id || index->rank != rank ||
      index->world_size != manifest.layout.world_size) {
    return Corrupt(
        file.path(),
        Join("the index of ", Quote(name), " disagrees with the manifest on where segments lie: ",
             index->placement.segments.size(), " segments, ", index->placement.digest_count,
             " chunks and an index at ", index->placement.index_offset, "; by the manifest ",
             expected->segments.size(), ", ", expected->digest_count, " and ",
             expected->index_offset),
        offset);
  }
  FLAGSTONE_RETURN_IF_ERROR(CheckPlain(manifest.layout, *index, file.path()));
  return index;
}

Result<std::shared_ptr<RankFileReader>> RankFileReader::Open(io::FileSystem& fs,
                                                             const OpenedManifest& opened,
                                                             uint32_t rank) {
  FLAGSTONE_ASSIGN_OR_RETURN(auto file, OpenRankFile(fs, opened, rank));
  FLAGSTONE_RETURN_IF_ERROR(CheckRankHeader(*file, opened, rank));
  FLAGSTONE_ASSIGN_OR_RETURN(auto index, ReadRankIndex(*file, opened, rank));
  const uint64_t metadata = base::kPageBytes + opened.manifest.files[rank].index_length;
  auto reader = Make(std::move(file), std::move(index), metadata);
  reader->fs_ = &fs;
  reader->opened_ = &opened;
  return reader;
}

std::shared_ptr<RankFileReader> RankFileReader::Make(std::shared_ptr<io::File> file,
                                                     format::RankIndex index,
                                                     uint64_t metadata_bytes) {
  return std::shared_ptr<RankFileReader>(
      new RankFileReader(std::move(file), std::move(index), metadata_bytes));
}

Result<std::shared_ptr<io::File>> RankFileReader::file() const {
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) {
    FLAGSTONE_ASSIGN_OR_RETURN(auto file, OpenRankFile(*fs_, *opened_, rank()));
    FLAGSTONE_RETURN_IF_ERROR(CheckRankHeader(*file, *opened_, rank()));
    file_ = std::move(file);
  }
  return file_;
}

void RankFileReader::Close() const {
  const std::lock_guard lock(mutex_);
  if (fs_ != nullptr) file_.reset();
}

Result<std::vector<std::byte>> RankFileReader::ReadDigestPages(uint64_t first, uint64_t count,
                                                               uint64_t& bytes_read) const {
  const uint64_t begin = index_.placement.digests_offset + first * base::kPageBytes;
  std::vector<std::byte> pages(count * base::kPageBytes);
  FLAGSTONE_ASSIGN_OR_RETURN(const auto open, file());
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(*open, begin, pages));
  bytes_read += pages.size();
  for (uint64_t i = 0; i < count; ++i) {
    const auto page =
        std::span<const std::byte>(pages).subspan(i * base::kPageBytes, base::kPageBytes);
    if (base::Digest64(page) == index_.page_digests[first + i]) continue;
    const uint64_t offset = begin + i * base::kPageBytes;
    return Status(StatusCode::kCorruption,
                  Join("digest page ", first + i, " of ", Quote(path_.string()),
                       " at offset ", offset, " is not what was saved; without it the bytes of ",
                       SegmentsOfPage(first + i), " cannot be verified"),
                  {path_.string(), "", offset});
  }
  return pages;
}

// "segment 'a/b'", or the first and the last of several.
std::string RankFileReader::SegmentsOfPage(uint64_t page) const {
  const uint64_t begin = page * format::kDigestsPerPage;
  const uint64_t end = begin + format::kDigestsPerPage;
  const format::PlacedSegment* first = nullptr;
  const format::PlacedSegment* last = nullptr;
  for (const format::PlacedSegment& segment : index_.placement.segments) {
    if (segment.first_chunk >= end || segment.first_chunk + segment.chunks() <= begin) continue;
    if (first == nullptr) first = &segment;
    last = &segment;
  }
  if (first == nullptr) return "no segment";
  if (first == last) return Join("segment ", Quote(SegmentName(*first)));
  return Join("segments ", Quote(SegmentName(*first)), " to ", Quote(SegmentName(*last)));
}

Result<std::vector<std::byte>> RankFileReader::ReadArray(const format::PlacedSegment& segment,
                                                         uint64_t& bytes_read) const {
  const uint64_t first_page = segment.first_chunk / format::kDigestsPerPage;
  const uint64_t last_page = (segment.first_chunk + segment.chunks() - 1) / format::kDigestsPerPage;
  FLAGSTONE_ASSIGN_OR_RETURN(const auto digests,
                             ReadDigestPages(first_page, last_page - first_page + 1, bytes_read));
  FLAGSTONE_ASSIGN_OR_RETURN(auto bytes,
                             base::MakeBytes(segment.padded_bytes(), "an array of the state"));
  FLAGSTONE_ASSIGN_OR_RETURN(const auto open, file());
  FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(*open, segment.offset, bytes));
  bytes_read += bytes.size();
  for (uint64_t chunk = 0; chunk < segment.chunks(); ++chunk) {
    const uint64_t at = chunk * segment.chunk_bytes;
    const auto part = std::span<const std::byte>(bytes).subspan(
        at, std::min<uint64_t>(segment.chunk_bytes, bytes.size() - at));
    const uint64_t in_pages = segment.first_chunk + chunk - first_page * format::kDigestsPerPage;
    const uint64_t stated = base::LoadLittle<uint64_t>(digests.data() + 8 * in_pages);
    const uint64_t found = base::Digest64(part);
    if (found != stated) return ChunkMismatch(path_, segment, chunk, stated, found);
  }
  bytes.resize(segment.bytes);
  return bytes;
}

Status FillArrays(const RankFileReader& reader, bool client, Value& value, uint64_t& bytes_read) {
  const std::string_view role = client ? format::kClientStateRole : format::kRankStateRole;
  const auto& segments = reader.index().placement.segments;
  auto segment = segments.begin();
  for (Array* array : format::SegmentArrays(value)) {
    segment = std::find_if(segment, segments.end(), [role](const auto& candidate) {
      return candidate.partition.empty() && candidate.role == role;
    });
    // ReadRankIndex compared the arrays with the state.
    if (segment == segments.end()) {
      return Status(StatusCode::kInternal,
                    Join(Quote(reader.path().string()), " has too few arrays of ", role));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(array->bytes, reader.ReadArray(*segment, bytes_read));
    ++segment;
  }
  return {};
}

}  // namespace flagstone::store
