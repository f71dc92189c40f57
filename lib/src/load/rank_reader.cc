// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "flagstone/load.h"
#include "load/impl.h"
#include "load/rank_state.h"
#include "partition/normalize.h"

namespace flagstone {

using base::Join;
using base::Quote;

Result<std::shared_ptr<const RankReader::Impl>> RankReader::Impl::Make(
    std::shared_ptr<const Checkpoint::Impl> checkpoint, std::shared_ptr<const Layout> wanted,
    uint32_t rank, LoadOptions options) {
  const auto& opened = checkpoint->opened;
  FLAGSTONE_RETURN_IF_ERROR(store::RequireData(opened));
  auto impl = std::shared_ptr<Impl>(
      new Impl(std::move(checkpoint), std::move(wanted), rank, std::move(options)));
  FLAGSTONE_ASSIGN_OR_RETURN(load::PlannedLoad planned,
                             load::PlanLoad(opened, impl->wanted_, rank, impl->options_));
  if (!impl->is_same_world() && impl->options_.rank_state == RankStatePolicy::kRefuse &&
      !impl->options_.make_rank_state) {
    return Status(StatusCode::kInvalidArgument,
                  Join("the state of ", impl->saved().world_size, " ranks in ",
                       Quote(opened.directory.string()), " fits no world of ",
                       impl->wanted_.world_size, " (LoadOptions::rank_state is kRefuse)"));
  }
  impl->rank_state_note_ = load::RankStateNote(impl->saved().world_size, impl->wanted_.world_size,
                                               impl->options_);
  impl->plan_ = std::move(planned.plan);
  for (uint32_t i = 0; i < impl->plan_.segments.size(); ++i) {
    const SegmentInfo& segment = impl->plan_.segments[i];
    impl->segments_by_name_.emplace(Join(segment.partition, "/", segment.role), i);
  }
  impl->opening_bytes_ = opened.manifest_bytes;
  FLAGSTONE_RETURN_IF_ERROR(impl->OpenFiles(planned.source_offsets));
  FLAGSTONE_RETURN_IF_ERROR(impl->OpenForPlainValues());
  for (const auto& [other, file] : impl->files_) impl->RestFile(*file);
  return std::shared_ptr<const Impl>(std::move(impl));
}

Result<RankReader::Impl::File> RankReader::Impl::OpenFile(uint32_t rank) {
  const auto found = files_.find(rank);
  if (found != files_.end()) return found->second;
  FLAGSTONE_ASSIGN_OR_RETURN(
      File file, store::RankFileReader::Open(checkpoint_->fs, checkpoint_->opened, rank));
  opening_bytes_ += file->metadata_bytes();
  files_.emplace(rank, file);
  IndexPlainValues(*file);
  if (!is_same_world() || rank != rank_) file->DropState();
  RestFile(*file);
  return file;
}

// Open what the plan reads, and tie its runs to segments of the files, whose indexes were checked
// against the same placement.
Status RankReader::Impl::OpenFiles(std::span<const uint64_t> source_offsets) {
  // In the same world a rank's own file is opened even when it holds nothing wanted: its state is
  // there.
  if (is_same_world()) FLAGSTONE_RETURN_IF_ERROR(OpenFile(rank_).status());
  sources_.reserve(plan_.runs.size());
  for (size_t i = 0; i < plan_.runs.size(); ++i) {
    const Plan::Run& run = plan_.runs[i];
    load::Source source;
    FLAGSTONE_ASSIGN_OR_RETURN(source.file, OpenFile(run.rank));
    source.offset = source_offsets[i];
    const uint64_t segment_offset = run.file_offset - source.offset;
    const auto& segments = source.file->index().placement.segments;
    const auto segment =
        std::lower_bound(segments.begin(), segments.end(), segment_offset,
                         [](const format::PlacedSegment& candidate, uint64_t offset) {
                           return candidate.offset < offset;
                         });
    if (segment == segments.end() || segment->offset != segment_offset) {
      return Status(StatusCode::kInternal,
                    Join("no segment begins at offset ", segment_offset, " of rank ", run.rank));
    }
    source.segment = &*segment;
    sources_.push_back(std::move(source));
  }
  return {};
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
                     options_.replicated ? ""
                                         : " (replicated partitions only with "
                                           "LoadOptions::replicated)",
                     base::NearestNames(name, names)),
                {checkpoint_->opened.directory.string(), name, std::nullopt});
}

// Runs are ordered by segment.
std::span<const Plan::Run> RankReader::Impl::RunsOf(uint32_t segment) const {
  const auto range = std::equal_range(
      plan_.runs.begin(), plan_.runs.end(), Plan::Run{.segment = segment},
      [](const Plan::Run& a, const Plan::Run& b) { return a.segment < b.segment; });
  return {range.first, range.second};
}

void RankReader::Impl::IndexTensors() const {
  tensor_slices_.resize(plan_.segments.size());
  for (size_t i = 0; i < plan_.segments.size(); ++i) {
    const SegmentInfo& segment = plan_.segments[i];
    const Partition& part = *partition::FindPartition(wanted_, segment.partition);
    auto& by_tensor = tensor_slices_[i].by_tensor;
    by_tensor.reserve(segment.slices.size());
    for (uint32_t k = 0; k < segment.slices.size(); ++k) {
      by_tensor.emplace_back(part.members[segment.slices[k].member].tensor, k);
    }
    std::sort(by_tensor.begin(), by_tensor.end());
  }
}

// The slices that a segment has of a tensor, in their order; at least one.
Result<std::vector<uint32_t>> RankReader::Impl::FindSlices(uint32_t segment,
                                                           std::string_view tensor) const {
  std::call_once(tensors_are_indexed_, [this] { IndexTensors(); });
  const auto& by_tensor = tensor_slices_[segment].by_tensor;
  std::vector<uint32_t> slices;
  if (const auto found = tensor_names_.Find(tensor)) {
    for (auto at =
             std::lower_bound(by_tensor.begin(), by_tensor.end(), std::pair(*found, uint32_t{0}));
         at != by_tensor.end() && at->first == *found; ++at) {
      slices.push_back(at->second);
    }
  }
  if (!slices.empty()) return slices;
  std::vector<std::string> names;
  for (const auto& [index, slice] : by_tensor) {
    if (names.empty() || names.back() != wanted_.tensors[index].name) {
      names.push_back(wanted_.tensors[index].name);
    }
  }
  const std::string name =
      Join(plan_.segments[segment].partition, "/", plan_.segments[segment].role);
  return Status(StatusCode::kNotFound,
                Join("rank ", rank_, " holds nothing of tensor ", Quote(tensor), " in ",
                     Quote(name), base::NearestNames(tensor, names)),
                {checkpoint_->opened.directory.string(), name, std::nullopt});
}

Result<uint64_t> RankReader::Impl::DigestAt(const store::RankFileReader& file, uint64_t index,
                                            uint64_t end, LoadReport& report) const {
  uint64_t bytes_read = 0;
  auto digest = digests_.Get(file, index, end, bytes_read);
  later_bytes_.fetch_add(bytes_read, std::memory_order_relaxed);
  report.metadata_bytes += bytes_read;
  return digest;
}

LoadReport RankReader::Impl::BaseReport() const {
  LoadReport report;
  report.metadata_bytes = opening_bytes_;
  report.files_opened = files_.size();
  report.rank_state = rank_state_note_;
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

Result<Value> RankReader::Impl::RankState() const {
  if (!is_same_world() || options_.make_rank_state) {
    return load::RankStateFor(*checkpoint_, rank_, wanted_.world_size, options_);
  }
  const store::RankFileReader& file = *files_.at(rank_);
  Value state = file.index().rank_state;
  uint64_t bytes_read = 0;
  const Status filled = store::FillArrays(file, /*client=*/false, state, bytes_read);
  later_bytes_.fetch_add(bytes_read, std::memory_order_relaxed);
  FLAGSTONE_RETURN_IF_ERROR(filled);
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
Result<Value> RankReader::PlainOfAll(std::string_view partition, std::string_view role) const {
  return impl_->PlainOfAll(partition, role);
}
Result<Value> RankReader::RankState() const { return impl_->RankState(); }
uint64_t RankReader::metadata_bytes() const { return impl_->metadata_bytes(); }

}  // namespace flagstone
