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
#include "save/publication.h"
#include "save/target.h"
#include "store/claim.h"
#include "store/publish.h"

namespace flagstone {

using save::AfterCommit;
using save::CommitTime;
using save::Decision;
using save::DurabilityUnknown;
using save::Publication;
using save::Publish;
using save::SaveEnvironment;
using save::Withdraw;

namespace {

format::Manifest DescribeOnly(Layout layout, const SaveOptions& options) {
  format::Manifest manifest;
  manifest.required_features = format::kFeatureNoData;
  manifest.step = options.step;
  manifest.layout = std::move(layout);
  return manifest;
}

// Lengths that a real save of this layout would have but for its index, which is stated as empty.
Status DescribeFiles(format::Manifest& manifest) {
  format::RankPlacer placer(manifest.layout);
  for (uint32_t rank = 0; rank < manifest.layout.world_size; ++rank) {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto placement, placer.Place(rank, {}));
    manifest.files.push_back({rank, format::RankFileLength(placement, 0), 0, {}});
  }
  return {};
}

}  // namespace

Result<SaveReport> WriteManifestOnly(const std::filesystem::path& given, const Layout& layout,
                                     const SaveOptions& options) {
  const auto began = std::chrono::steady_clock::now();
  FLAGSTONE_ASSIGN_OR_RETURN(const std::filesystem::path path, save::CheckTarget(given));
  FLAGSTONE_RETURN_IF_ERROR(save::CheckOptions(options));
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(layout));
  format::Manifest manifest = DescribeOnly(partition::Normalize(layout), options);
  FLAGSTONE_RETURN_IF_ERROR(DescribeFiles(manifest));

  const SaveEnvironment environment{&io::PosixFileSystem(), &io::SystemProcesses()};
  io::FileSystem& fs = *environment.fs;
  store::Attempt attempt;
  attempt.owner.party = {store::RecordText(options.run),
                         store::RecordText(path.filename().string()), options.step,
                         layout.world_size};
  attempt.owner.nonce = io::RandomHex(8);
  attempt.owner.process = environment.processes->Self();
  attempt.owner.timeout_ms = options.timeout.count();
  FLAGSTONE_RETURN_IF_ERROR(store::MakeDirectories(fs, path));
  const store::Timing timing{options.timeout, options.sync_timeout};
  SaveReport report;
  const auto publish = [&]() -> Publication {
    auto temporary = store::Claim(fs, *environment.processes, path, options.overwrite, timing,
                                  options.stop, attempt);
    if (!temporary.ok()) return {Decision::kNotCommitted, temporary.status()};
    const auto id = base::FromHex(attempt.save_id, manifest.save_id.size());
    std::copy(id->begin(), id->end(), manifest.save_id.begin());
    manifest.committed_at = CommitTime(fs, path);
    const auto bytes = format::EncodeManifest(manifest);
    if (!bytes.ok()) return Withdraw(**temporary, bytes.status());
    report.file_bytes = bytes->size();
    return Publish(**temporary, *bytes, options.overwrite);
  };
  const Publication publication = publish();
  if (publication.decision == Decision::kDurabilityUnknown) return DurabilityUnknown(path);
  if (publication.decision != Decision::kCommitted) {
    store::RemoveIfEmpty(fs, path);
    return publication.status;
  }
  report.save_id = attempt.save_id;
  report.committed_at = manifest.committed_at;
  report.warnings = AfterCommit(
      environment, {path, manifest.committed_at, options.update_latest, options.timeout});
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return report;
}

}  // namespace flagstone
