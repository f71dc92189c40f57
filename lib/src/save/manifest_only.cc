// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "flagstone/synth.h"
#include "format/manifest.h"
#include "format/placement.h"
#include "io/process.h"
#include "partition/normalize.h"
#include "store/claim.h"
#include "store/publish.h"

namespace flagstone {

using base::Join;

namespace {

format::Manifest DescribeOnly(Layout layout, const SaveOptions& options) {
  format::Manifest manifest;
  manifest.required_features = format::kFeatureNoData;
  manifest.step = options.step;
  manifest.committed_at = std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  manifest.layout = std::move(layout);
  return manifest;
}

// Lengths that a real save of this layout would have but for its index, which is stated as empty.
Status DescribeFiles(format::Manifest& manifest) {
  for (uint32_t rank = 0; rank < manifest.layout.world_size; ++rank) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto placement,
                               format::PlaceRankFile(manifest.layout, rank, {}));
    manifest.files.push_back({rank, format::RankFileLength(placement, 0), 0, {}});
  }
  return {};
}

}  // namespace

Result<SaveReport> WriteManifestOnly(const std::filesystem::path& path, const Layout& layout,
                                     const SaveOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(layout));
  format::Manifest manifest = DescribeOnly(partition::Normalize(layout), options);
  FLAGSTONE_RETURN_IF_ERROR(DescribeFiles(manifest));

  io::FileSystem& fs = io::PosixFileSystem();
  io::ProcessTable& processes = io::SystemProcesses();
  store::Attempt attempt;
  attempt.owner.party = {options.run, path.filename().string(), options.step, layout.world_size};
  attempt.owner.nonce = io::RandomHex(8);
  attempt.owner.process = processes.Self();
  attempt.owner.timeout_ms = options.timeout.count();
  FLAGSTONE_RETURN_IF_ERROR(store::MakeDirectories(fs, path));
  const store::Timing timing{options.timeout, options.sync_timeout};
  const auto publish = [&]() -> Result<SaveReport> {
    FLAGSTONE_ASSIGN_OR_RETURN(auto temporary, store::Claim(fs, processes, path, options.overwrite,
                                                            timing, options.stop, attempt));
    const auto id = base::FromHex(attempt.save_id, manifest.save_id.size());
    std::copy(id->begin(), id->end(), manifest.save_id.begin());
    SaveReport report;
    const auto commit = [&]() -> Status {
      FLAGSTONE_ASSIGN_OR_RETURN(const auto bytes, format::EncodeManifest(manifest));
      FLAGSTONE_RETURN_IF_ERROR(temporary->WriteManifest(bytes));
      report.file_bytes = bytes.size();
      return temporary->Commit(options.overwrite).status();
    };
    if (Status status = commit(); !status.ok()) {
      const auto withdrawn = temporary->Withdraw();
      return withdrawn.ok() ? status : status.Annotated(withdrawn.status().message());
    }
    report.save_id = attempt.save_id;
    report.committed_at = manifest.committed_at;
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (options.update_latest) {
      const Status moved =
          store::MoveLatest(fs, path.parent_path(), {path.filename().string(), attempt.save_id},
                            manifest.committed_at, attempt.owner.nonce);
      if (!moved.ok()) report.warnings.push_back(Join("'latest' was not moved: ", moved.message()));
    }
    return report;
  };
  auto result = publish();
  if (!result.ok()) store::RemoveIfEmpty(fs, path);
  return result;
}

}  // namespace flagstone
