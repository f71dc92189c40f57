// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "flagstone/load.h"
#include "load/impl.h"
#include "partition/geometry.h"
#include "partition/moves.h"

namespace flagstone {

using base::Join;
using base::Quote;

load::ChunkRange load::ChunksOf(const format::PlacedSegment& segment, uint64_t offset,
                                uint64_t length) {
  ChunkRange range;
  range.first = offset / segment.chunk_bytes;
  range.begin = range.first * segment.chunk_bytes;
  // A run lies inside its segment, so its end neither wraps nor passes the padded end.
  const uint64_t end =
      std::min(base::AlignUp(offset + length, segment.chunk_bytes), segment.padded_bytes());
  range.size = end - range.begin;
  range.count = base::DivideUp(range.size, segment.chunk_bytes);
  return range;
}

Result<std::shared_ptr<const RankReader::Impl>> RankReader::Impl::Make(
    std::shared_ptr<const Checkpoint::Impl> checkpoint, const Layout& wanted, uint32_t rank,
    LoadOptions options) {
  const auto& opened = checkpoint->opened;
  FLAGSTONE_RETURN_IF_ERROR(store::RequireData(opened));
  if (rank >= wanted.world_size) {
    return Status(StatusCode::kNotFound,
                  Join("there is no rank ", rank, " in ", Quote(opened.directory.string()),
                       ", saved by ", wanted.world_size, " ranks: 0 to ", wanted.world_size - 1));
  }
  auto impl = std::shared_ptr<Impl>(new Impl(std::move(checkpoint), rank, std::move(options)));
  impl->metadata_bytes_ = impl->checkpoint_->opened.manifest_bytes;
  FLAGSTONE_RETURN_IF_ERROR(impl->MakePlan(wanted));
  // A rank's own file is opened even when it holds nothing wanted: its state and plain values are
  // there.
  FLAGSTONE_RETURN_IF_ERROR(impl->IndexPlainValues());
  FLAGSTONE_RETURN_IF_ERROR(impl->ResolveSources());
  return std::shared_ptr<const Impl>(std::move(impl));
}

namespace {

SegmentInfo DescribeSegment(const Layout& wanted, const partition::WantedSegment& segment,
                            uint32_t rank) {
  const Partition& part = wanted.partitions[segment.partition];
  SegmentInfo info;
  info.partition = part.id;
  info.role = part.roles[segment.role].name;
  info.dtype = part.roles[segment.role].dtype;
  info.form = part.roles[segment.role].form;
  info.replicated = std::holds_alternative<ReplicatedCut>(part.cut);
  info.bytes = segment.bytes;
  const partition::Geometry geometry(wanted, segment.partition);
  if (const auto index = geometry.HolderIndex(rank)) {
    for (const auto& piece : geometry.HeldSegment(segment.role, *index).pieces) {
      info.slices.push_back(piece.slice);
      info.offsets.push_back(piece.byte_offset);
    }
  }
  return info;
}

}  // namespace

// Plan(saved, wanted): the places of saved segments follow from the manifest, so no rank file is
// needed for it.
Status RankReader::Impl::MakePlan(const Layout& wanted) {
  const Layout& saved = checkpoint_->opened.manifest.layout;
  FLAGSTONE_ASSIGN_OR_RETURN(
      const partition::Moves moves,
      partition::PlanMoves(saved, wanted, rank_, {options_.replicated, options_.roles}));
  for (const partition::WantedSegment& segment : moves.segments) {
    segments_by_name_.emplace(Join(wanted.partitions[segment.partition].id, "/",
                                   wanted.partitions[segment.partition].roles[segment.role].name),
                              static_cast<uint32_t>(plan_.segments.size()));
    plan_.segments.push_back(DescribeSegment(wanted, segment, rank_));
    plan_.wanted_bytes += segment.bytes;
  }
  std::map<uint32_t, format::RankPlacement> placements;
  for (const partition::Move& move : moves.moves) {
    const auto [placement, is_new] = placements.try_emplace(move.saved_rank);
    if (is_new) {
      // Arrays come after the partitions' segments: they do not move them.
      FLAGSTONE_ASSIGN_OR_RETURN(placement->second,
                                 format::PlaceRankFile(saved, move.saved_rank, {}));
    }
    const Partition& part = saved.partitions[move.saved_partition];
    const std::string& role = part.roles[move.saved_role].name;
    const auto& segments = placement->second.segments;
    const auto segment =
        std::find_if(segments.begin(), segments.end(), [&](const format::PlacedSegment& candidate) {
          return candidate.partition == part.id && candidate.role == role;
        });
    if (segment == segments.end()) {
      return Status(StatusCode::kInternal,
                    Join("the plan reads ", Quote(Join(part.id, "/", role)), " from rank ",
                         move.saved_rank, ", which stores none of it"));
    }
    const load::ChunkRange chunks = load::ChunksOf(*segment, move.source_offset, move.length);
    plan_.runs.push_back({move.saved_rank, move.wanted, segment->offset + move.source_offset,
                          move.target_offset, move.length});
    plan_.read_bytes += chunks.size;
    sources_.push_back({nullptr, nullptr, move.source_offset});
  }
  plan_.files = static_cast<uint32_t>(placements.size());
  return {};
}

// Tie the runs to opened rank files, whose indexes were checked against the same placement.
Status RankReader::Impl::ResolveSources() {
  for (size_t i = 0; i < plan_.runs.size(); ++i) {
    const Plan::Run& run = plan_.runs[i];
    FLAGSTONE_ASSIGN_OR_RETURN(sources_[i].file, FileOf(run.rank));
    const uint64_t segment_offset = run.file_offset - sources_[i].offset;
    const auto& segments = sources_[i].file->index().placement.segments;
    const auto segment =
        std::lower_bound(segments.begin(), segments.end(), segment_offset,
                         [](const format::PlacedSegment& candidate, uint64_t offset) {
                           return candidate.offset < offset;
                         });
    if (segment == segments.end() || segment->offset != segment_offset) {
      return Status(StatusCode::kInternal,
                    Join("no segment begins at offset ", segment_offset, " of rank ", run.rank));
    }
    sources_[i].segment = &*segment;
  }
  return {};
}

Result<std::shared_ptr<const store::RankFileReader>> RankReader::Impl::FileOf(uint32_t rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(rank);
  if (found != files_.end()) return found->second;
  FLAGSTONE_ASSIGN_OR_RETURN(
      auto file, store::RankFileReader::Open(checkpoint_->fs, checkpoint_->opened, rank));
  metadata_bytes_ += file->metadata_bytes();
  files_.emplace(rank, file);
  return file;
}

Result<uint32_t> RankReader::Impl::FindSegment(std::string_view partition,
                                               std::string_view role) const {
  const std::string name = Join(partition, "/", role);
  const auto found = segments_by_name_.find(name);
  if (found != segments_by_name_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, index] : segments_by_name_) names.push_back(known);
  return Status(StatusCode::kNotFound,
                Join("rank ", rank_, " has no segment ", Quote(name), " among what was opened",
                     base::NearestNames(name, names),
                     options_.replicated ? ""
                                         : " (replicated partitions only with "
                                           "LoadOptions::replicated)"),
                {checkpoint_->opened.directory.string(), name, std::nullopt});
}

// Runs are ordered by segment.
std::span<const Plan::Run> RankReader::Impl::RunsOf(uint32_t segment) const {
  const auto range = std::equal_range(
      plan_.runs.begin(), plan_.runs.end(), Plan::Run{0, segment, 0, 0, 0},
      [](const Plan::Run& a, const Plan::Run& b) { return a.segment < b.segment; });
  return {range.first, range.second};
}

Result<std::vector<uint64_t>> RankReader::Impl::Digests(const load::Source& source,
                                                        const load::ChunkRange& chunks) const {
  uint64_t bytes_read = 0;
  auto digests = source.file->ReadDigests(*source.segment, chunks.first, chunks.count, bytes_read);
  metadata_bytes_ += bytes_read;
  return digests;
}

LoadReport RankReader::Impl::BaseReport() const {
  LoadReport report;
  report.metadata_bytes = metadata_bytes();
  const std::lock_guard lock(mutex_);
  report.files_opened = files_.size();
  return report;
}

Result<RankMemory> RankReader::Impl::Allocate() const {
  HostAllocator& allocator = options_.allocator ? *options_.allocator : PageAllocator();
  RankMemory memory;
  for (uint32_t i = 0; i < plan_.segments.size(); ++i) {
    const SegmentInfo& segment = plan_.segments[i];
    // Congruent with the file: the run's first byte at the same distance from a page as in the
    // file.
    const auto runs = RunsOf(i);
    const uint64_t lead = runs.empty() ? 0
                                       : (runs.front().file_offset + base::kPageBytes -
                                          runs.front().destination_offset % base::kPageBytes) %
                                             base::kPageBytes;
    if (segment.bytes == 0) {
      memory.buffers.emplace_back();
      memory.destinations.push_back({segment.partition, segment.role, {}, nullptr});
      continue;
    }
    FLAGSTONE_ASSIGN_OR_RETURN(HostBuffer buffer,
                               allocator.Allocate(lead + segment.bytes, base::kPageBytes));
    memory.destinations.push_back(
        {segment.partition, segment.role, buffer.bytes().subspan(lead, segment.bytes), nullptr});
    memory.buffers.push_back(std::move(buffer));
  }
  return memory;
}

// Partition ids and role names have no '/', so the joined name is unambiguous whatever the tensor
// is called.
Status RankReader::Impl::IndexPlainValues() {
  const Layout& layout = checkpoint_->opened.manifest.layout;
  FLAGSTONE_ASSIGN_OR_RETURN(const auto file, FileOf(rank_));
  for (const format::PlainValue& value : file->index().plain) {
    const auto part =
        std::lower_bound(layout.partitions.begin(), layout.partitions.end(), value.partition,
                         [](const Partition& p, const std::string& id) { return p.id < id; });
    if (part == layout.partitions.end() || part->id != value.partition ||
        value.member >= part->members.size()) {
      return Status(StatusCode::kCorruption,
                    Join(Quote(file->file()->path().string()), " keeps a plain value of member ",
                         value.member, " of partition ", Quote(value.partition),
                         ", which the manifest does not have"),
                    {file->file()->path().string(), "", std::nullopt});
    }
    const Tensor& tensor = layout.tensors[part->members[value.member].tensor];
    const std::string prefix = Join(value.partition, "/", value.role, "/");
    plain_.emplace(prefix + tensor.name, &value.value);
    for (const std::string& alias : tensor.aliases) plain_.emplace(prefix + alias, &value.value);
  }
  return {};
}

Result<Value> RankReader::Impl::Plain(std::string_view partition, std::string_view role,
                                      std::string_view tensor) const {
  const std::string name = Join(partition, "/", role, "/", tensor);
  const auto found = plain_.find(name);
  if (found != plain_.end()) return *found->second;
  std::vector<std::string> names;
  for (const auto& [known, value] : plain_) names.push_back(known);
  return Status(StatusCode::kNotFound,
                Join("rank ", rank_, " keeps no plain value ", Quote(name),
                     " (partition/role/tensor)", base::NearestNames(name, names)),
                {checkpoint_->opened.directory.string(), Join(partition, "/", role), std::nullopt});
}

Result<Value> RankReader::Impl::RankState() const {
  FLAGSTONE_ASSIGN_OR_RETURN(const auto file, FileOf(rank_));
  Value state = file->index().rank_state;
  uint64_t bytes_read = 0;
  FLAGSTONE_RETURN_IF_ERROR(store::FillArrays(*file, /*client=*/false, state, bytes_read));
  metadata_bytes_ += bytes_read;
  return state;
}

uint32_t RankReader::rank() const { return impl_->rank(); }
const std::vector<SegmentInfo>& RankReader::segments() const { return impl_->plan().segments; }
const Plan& RankReader::plan() const { return impl_->plan(); }
Result<View> RankReader::ViewSegment(std::string_view partition, std::string_view role,
                                     LoadReport* report) const {
  return impl_->ViewSegment(partition, role, report);
}
Result<View> RankReader::ViewTensor(std::string_view partition, std::string_view role,
                                    std::string_view tensor, LoadReport* report) const {
  return impl_->ViewTensor(partition, role, tensor, report);
}
Result<LoadReport> RankReader::Load(std::span<const Destination> destinations) const {
  return impl_->Load(destinations);
}
Result<RankMemory> RankReader::Allocate() const { return impl_->Allocate(); }
Result<Value> RankReader::Plain(std::string_view partition, std::string_view role,
                                std::string_view tensor) const {
  return impl_->Plain(partition, role, tensor);
}
Result<Value> RankReader::RankState() const { return impl_->RankState(); }
uint64_t RankReader::metadata_bytes() const { return impl_->metadata_bytes(); }

}  // namespace flagstone
