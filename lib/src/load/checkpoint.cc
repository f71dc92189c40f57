// SPDX-License-Identifier: Apache-2.0
#include "flagstone/checkpoint.h"

#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "load/impl.h"
#include "load/open_with.h"
#include "load/rank_state.h"
#include "partition/normalize.h"

namespace flagstone {

using base::Join;

Checkpoint::Impl::Impl(io::FileSystem& file_system, store::OpenedManifest manifest)
    : fs(file_system),
      opened(std::move(manifest)),
      save_id(base::Hex(opened.manifest.save_id)),
      format_version(Join(opened.header.major, ".", opened.header.minor)) {}

Result<Checkpoint> load::OpenWith(io::FileSystem& fs, const std::filesystem::path& path) {
  FLAGSTONE_ASSIGN_OR_RETURN(store::OpenedManifest opened, store::OpenManifest(fs, path));
  return Checkpoint(std::make_shared<const Checkpoint::Impl>(fs, std::move(opened)));
}

Result<Checkpoint> Checkpoint::Open(const std::filesystem::path& path) {
  return load::OpenWith(io::PosixFileSystem(), path);
}

const std::filesystem::path& Checkpoint::path() const { return impl_->opened.directory; }
const std::string& Checkpoint::save_id() const { return impl_->save_id; }
const std::string& Checkpoint::format_version() const { return impl_->format_version; }
const Layout& Checkpoint::layout() const { return impl_->opened.manifest.layout; }
uint32_t Checkpoint::world_size() const { return layout().world_size; }
bool Checkpoint::has_data() const { return store::RequireData(impl_->opened).ok(); }
std::optional<int64_t> Checkpoint::step() const { return impl_->opened.manifest.step; }
int64_t Checkpoint::committed_at() const { return impl_->opened.manifest.committed_at; }
uint64_t Checkpoint::manifest_bytes() const { return impl_->opened.manifest_bytes; }

Result<Value> Checkpoint::client_state() const {
  Value state = impl_->opened.manifest.client_state;
  if (format::SegmentArrays(state).empty()) return state;
  FLAGSTONE_ASSIGN_OR_RETURN(const auto file,
                             store::RankFileReader::Open(impl_->fs, impl_->opened, 0));
  uint64_t bytes_read = 0;
  FLAGSTONE_RETURN_IF_ERROR(store::FillArrays(*file, /*client=*/true, state, bytes_read));
  return state;
}

std::vector<Checkpoint::RankFile> Checkpoint::rank_files() const {
  std::vector<RankFile> files;
  for (const format::RankFileEntry& entry : impl_->opened.manifest.files) {
    files.push_back(
        {entry.rank, store::RankFileNameOf(impl_->opened.manifest, entry.rank), entry.file_length});
  }
  return files;
}

Result<Value> Checkpoint::rank_state(uint32_t rank) const {
  return load::SavedRankState(*impl_, rank);
}

Result<RankReader> Checkpoint::OpenRank(uint32_t rank, LoadOptions options) const {
  FLAGSTONE_ASSIGN_OR_RETURN(auto impl,
                             RankReader::Impl::Make(impl_, nullptr, rank, std::move(options)));
  return RankReader(std::move(impl));
}

Result<RankReader> Checkpoint::OpenRank(const Layout& wanted, uint32_t rank,
                                        LoadOptions options) const {
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(wanted));
  auto normal = std::make_shared<const Layout>(partition::Normalize(wanted));
  FLAGSTONE_ASSIGN_OR_RETURN(
      auto impl, RankReader::Impl::Make(impl_, std::move(normal), rank, std::move(options)));
  return RankReader(std::move(impl));
}

Result<Plan> Checkpoint::PlanRank(uint32_t rank, const LoadOptions& options) const {
  FLAGSTONE_ASSIGN_OR_RETURN(load::PlannedLoad planned,
                             load::PlanLoad(impl_->opened, layout(), rank, options));
  return std::move(planned.plan);
}

Result<Plan> Checkpoint::PlanRank(const Layout& wanted, uint32_t rank,
                                  const LoadOptions& options) const {
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(wanted));
  FLAGSTONE_ASSIGN_OR_RETURN(
      load::PlannedLoad planned,
      load::PlanLoad(impl_->opened, partition::Normalize(wanted), rank, options));
  return std::move(planned.plan);
}

}  // namespace flagstone
