// SPDX-License-Identifier: Apache-2.0
#include "save/save_run.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>

#include "base/macros.h"
#include "base/text.h"
#include "format/layout_codec.h"
#include "format/manifest.h"
#include "format/value_codec.h"
#include "store/claim.h"
#include "store/file_coordinator.h"
#include "store/names.h"

namespace flagstone::save {
namespace {

using base::Join;
using base::Quote;

Result<format::SaveId> ParseSaveId(const std::string& text) {
  const auto bytes = base::FromHex(text, sizeof(format::SaveId));
  if (!bytes)
    return Status(StatusCode::kInternal,
                  Join("save id ", Quote(text), " is not 32 hexadecimal digits"));
  format::SaveId id;
  std::copy(bytes->begin(), bytes->end(), id.begin());
  return id;
}

// A sync counts as progress while this lives.
class SyncScope {
 public:
  explicit SyncScope(store::Session& session) : session_(session) { session_.BeginSync(); }
  SyncScope(const SyncScope&) = delete;
  SyncScope& operator=(const SyncScope&) = delete;
  ~SyncScope() { session_.EndSync(); }

 private:
  store::Session& session_;
};

}  // namespace

SaveRun::SaveRun(Input input)
    : input_(std::move(input)),
      fs_(*input_.environment.fs),
      timing_{input_.options->timeout, input_.options->sync_timeout} {
  self_.party = {input_.run, input_.directory.filename().string(), input_.options->step,
                 input_.layout->world_size};
  self_.rank = input_.rank;
  self_.nonce = io::RandomHex(8);
  self_.process = input_.environment.processes->Self();
  self_.timeout_ms = timing_.timeout.count();
}

Result<SaveReport> SaveRun::Run() {
  const auto began = std::chrono::steady_clock::now();
  FLAGSTONE_RETURN_IF_ERROR(PrepareContent());
  const Status begun = Begin();
  Result<SaveReport> result = begun.ok() ? Save() : begun;
  if (result.ok()) {
    result->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  } else {
    store::RemoveIfEmpty(fs_, input_.directory);
  }
  return result;
}

Result<SaveReport> SaveRun::Save() {
  if (Status written = WriteAndPublish(); !written.ok()) return Abandon(std::move(written));
  return leads() ? LeadToCommit() : FollowOutcome();
}

// Everything that can be wrong with what the caller gave is found here, before a name is made.
Status SaveRun::PrepareContent() {
  std::vector<format::ArraySize> sizes;
  const auto add_arrays = [&](const Value& state, bool client) {
    for (const Array* array : format::SegmentArrays(state)) {
      sizes.push_back({client, array->bytes.size()});
      array_sources_.emplace_back(array->bytes);
    }
  };
  add_arrays(input_.rank_state, false);
  if (leads()) add_arrays(input_.client_state, true);
  FLAGSTONE_ASSIGN_OR_RETURN(content_.placement,
                             format::PlaceRankFile(*input_.layout, input_.rank, sizes));
  size_t array = 0;
  for (const format::PlacedSegment& segment : content_.placement.segments) {
    if (segment.partition.empty()) {
      content_.parts.push_back({{0, segment.bytes, &array_sources_[array], 0}});
      ++array;
      continue;
    }
    FLAGSTONE_ASSIGN_OR_RETURN(auto parts, input_.given->PartsOf(segment));
    content_.parts.push_back(std::move(parts));
  }
  FLAGSTONE_ASSIGN_OR_RETURN(plain_, input_.given->PlainValues());
  return {};
}

Result<store::SessionDeclaration> SaveRun::Declare() const {
  store::SessionDeclaration declaration;
  declaration.layout = *input_.layout;
  declaration.digest = base::Hex(format::LayoutDigest(*input_.layout));
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             format::EncodeLayout(*input_.layout));
  declaration.payload.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!input_.client_state.is_null()) {
    std::vector<std::byte> encoded;
    FLAGSTONE_RETURN_IF_ERROR(format::AppendValue(input_.client_state, format::ArrayBytes::kInline,
                                                  "client state", encoded));
    declaration.client_state = base::Hex(base::DigestOf(encoded));
  }
  return declaration;
}

// The claim on the name, and the handshake's thread. On an error nothing of this is left.
Status SaveRun::Begin() {
  FLAGSTONE_ASSIGN_OR_RETURN(auto declaration, Declare());
  store::SessionOptions options;
  options.board = input_.options->coordinator ? input_.options->coordinator
                                              : store::MakeFileCoordinator(fs_, input_.directory);
  options.processes = input_.environment.processes;
  options.self = self_;
  options.timing = timing_;
  options.declaration = std::move(declaration);
  session_ = std::make_unique<store::Session>(std::move(options));
  if (!leads()) {
    session_->Follow();
    return {};
  }
  store::Attempt attempt;
  attempt.owner = self_;
  auto claimed = InDirectory<std::unique_ptr<store::TemporaryManifest>>([&] {
    return store::Claim(fs_, *input_.environment.processes, input_.directory,
                        input_.options->overwrite, timing_, input_.options->stop, attempt);
  });
  if (claimed.ok()) {
    temporary_ = *std::move(claimed);
    session_->Lead(
        attempt.save_id,
        [this](const store::Attempt& now) {
          const Status beaten = temporary_->WriteRecord(store::EncodeAttempt(now));
          static_cast<void>(beaten.ok());  // a beat that is missed is made up for by the next
        },
        {});
    return {};
  }
  if (self_.party.world_size > 1) {
    // The other ranks come to this save too; they are told why it does not take place.
    session_->Lead(io::RandomHex(16), nullptr, claimed.status());
    const auto nobody = session_->WaitAllWritten(input_.options->stop);
    session_->Leave();
    session_->Conclude(nobody.ok() ? claimed.status() : nobody.status(), 0, false);
  }
  return claimed.status();
}

// Make the directory, then do what needs it. Another rank of a save that fails may remove the empty
// directory between the two, so that is tried again a few times.
template <typename T>
Result<T> SaveRun::InDirectory(const std::function<Result<T>()>& act) {
  constexpr int kTries = 10;
  for (int i = 1;; ++i) {
    FLAGSTONE_RETURN_IF_ERROR(store::MakeDirectories(fs_, input_.directory));
    auto result = act();
    if (result.ok() || result.status().code() != StatusCode::kNotFound || i == kTries)
      return result;
  }
}

Status SaveRun::MakePrivateFile() {
  io::WriteOptions options;
  options.backend = input_.options->backend;
  options.queue_depth = input_.options->queue_depth;
  options.staging_bytes = input_.options->staging_bytes;
  const std::filesystem::path name = input_.directory / store::PrivateName(self_.nonce);
  store::Answer record;
  record.owner = self_;
  const std::vector<std::byte> framed = store::FrameValue(store::EncodeAnswer(record));
  const std::string_view text(reinterpret_cast<const char*>(framed.data()), framed.size());
  FLAGSTONE_ASSIGN_OR_RETURN(file_, InDirectory<std::unique_ptr<RankFile>>([&] {
                               return RankFile::Create(fs_, name, text, content_, options);
                             }));
  own_file_ = name;
  return {};
}

Status SaveRun::Checkpoint(uint64_t streamed) {
  const uint64_t completions = file_->completions();
  if (std::exchange(seen_completions_, completions) != completions) session_->NoteProgress();
  if (input_.options->progress) input_.options->progress(streamed, content_.placement.index_offset);
  if (input_.options->stop.stop_requested()) {
    return Status(StatusCode::kCancelled, "the save was stopped on request");
  }
  return session_->Check();
}

Status SaveRun::WriteAndPublish() {
  FLAGSTONE_RETURN_IF_ERROR(MakePrivateFile());
  FLAGSTONE_RETURN_IF_ERROR(
      file_->WriteSegments([this](uint64_t streamed) { return Checkpoint(streamed); }));
  FLAGSTONE_ASSIGN_OR_RETURN(save_id_, session_->WaitListed(input_.options->stop));
  return FinishFile(save_id_);
}

Status SaveRun::FinishFile(const std::string& save_id) {
  format::RankIndex index;
  FLAGSTONE_ASSIGN_OR_RETURN(index.save_id, ParseSaveId(save_id));
  index.rank = input_.rank;
  index.world_size = input_.layout->world_size;
  index.plain = std::move(plain_);
  index.rank_state = input_.rank_state;
  const std::filesystem::path final_name =
      input_.directory / format::RankFileName(input_.rank, index.save_id);
  FLAGSTONE_ASSIGN_OR_RETURN(const FinishedRankFile finished, file_->Finish(std::move(index)));
  const SyncScope sync(*session_);
  const Status published = store::PublishRankFile(fs_, file_->file(), own_file_, final_name);
  // Where it failed cannot be told from here: the file has one of the two names.
  if (!published.ok() && fs_.Stat(own_file_).ok()) return published;
  own_file_ = final_name;
  FLAGSTONE_RETURN_IF_ERROR(published);
  session_->ReportWritten(finished.file_length, finished.index_length,
                          base::Hex(finished.index_digest));
  report_.save_id = save_id;
  report_.file_bytes = finished.file_length;
  report_.backend = Name(finished.write.backend.backend);
  report_.backend_reason = finished.write.backend.reason;
  report_.peak_staging_bytes = finished.write.peak_staging_bytes;
  return {};
}

int64_t SaveRun::CommitTime() const {
  using std::chrono::nanoseconds;
  int64_t now =
      std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  // Later than what it replaces and than what `latest` names, whatever the clocks of their writers
  // said.
  const auto later_than = [&](const std::filesystem::path& checkpoint) {
    const auto manifest = store::ReadManifest(fs_, checkpoint);
    if (manifest.ok() && manifest->committed_at >= now) now = manifest->committed_at + 1;
  };
  later_than(input_.directory);
  const std::filesystem::path root = input_.directory.parent_path();
  const auto latest = store::ReadLatest(fs_, root);
  if (latest.ok() && *latest) later_than(root / (*latest)->name);
  return now;
}

Result<format::Manifest> SaveRun::MakeManifest(store::WrittenSave written) const {
  format::Manifest manifest;
  FLAGSTONE_ASSIGN_OR_RETURN(manifest.save_id, ParseSaveId(save_id_));
  manifest.step = input_.options->step;
  manifest.committed_at = CommitTime();
  manifest.layout = std::move(written.layout);
  manifest.client_state = input_.client_state;
  for (const store::Answer& answer : written.answers) {
    format::RankFileEntry entry;
    entry.rank = answer.owner.rank;
    entry.file_length = answer.file_length;
    entry.index_length = answer.index_length;
    const auto digest = base::FromHex(answer.index_digest, entry.index_digest.size());
    if (!digest) {
      return Status(
          StatusCode::kCorruption,
          Join("rank ", entry.rank, " reported the index digest ", Quote(answer.index_digest)));
    }
    std::copy(digest->begin(), digest->end(), entry.index_digest.begin());
    manifest.files.push_back(entry);
  }
  return manifest;
}

Result<SaveReport> SaveRun::LeadToCommit() {
  auto written = session_->WaitAllWritten(input_.options->stop);
  if (!written.ok()) return Abandon(written.status());
  auto manifest = MakeManifest(*std::move(written));
  if (!manifest.ok()) return Abandon(manifest.status());
  const auto bytes = format::EncodeManifest(*manifest);
  if (!bytes.ok()) return Abandon(bytes.status());
  store::CommitResult committed = store::CommitResult::kCommitted;
  {
    const SyncScope sync(*session_);
    if (Status status = temporary_->WriteManifest(*bytes); !status.ok())
      return Abandon(std::move(status));
    auto result = temporary_->Commit(input_.options->overwrite);
    if (!result.ok()) return Abandon(result.status());
    committed = *result;
  }
  own_file_.clear();
  const bool unknown = committed == store::CommitResult::kDurabilityUnknown;
  // With the directory's state unknown neither the old nor the new files may go.
  if (!unknown) AfterCommit(*manifest);
  session_->Leave();
  session_->Conclude({}, manifest->committed_at, unknown);
  FLAGSTONE_RETURN_IF_ERROR(Committed(manifest->committed_at, unknown));
  return report_;
}

Status SaveRun::Committed(int64_t committed_at, bool durability_unknown) {
  own_file_.clear();
  report_.committed_at = committed_at;
  if (!durability_unknown) return {};
  return Status(StatusCode::kIoError,
                Join("checkpoint ", Quote(input_.directory.string()),
                     " is committed, durability unknown: its directory "
                     "could not be synced after the name was moved; check the storage, then verify "
                     "the checkpoint"),
                {input_.directory.string(), "", std::nullopt});
}

// Nothing in here turns success into failure.
void SaveRun::AfterCommit(const format::Manifest& manifest) {
  const std::filesystem::path root = input_.directory.parent_path();
  if (input_.options->update_latest) {
    const store::Latest latest{self_.party.name, save_id_};
    const Status moved = store::MoveLatest(fs_, root, latest, manifest.committed_at, self_.nonce);
    if (!moved.ok()) report_.warnings.push_back(Join("'latest' was not moved: ", moved.message()));
  }
  // The replaced manifest's files are debris now like any other.
  const auto info = fs_.Stat(input_.directory / format::kManifestName);
  for (std::string& trouble :
       store::RemoveDebris(fs_, *input_.environment.processes, input_.directory, timing_.timeout,
                           info.ok() ? info->modified_ns : 0)) {
    report_.warnings.push_back(std::move(trouble));
  }
}

Result<SaveReport> SaveRun::FollowOutcome() {
  const auto outcome = session_->WaitOutcome();
  if (!outcome.ok()) return Abandon(outcome.status());
  if (outcome->state != store::AttemptState::kCommitted)
    return Abandon(Status(outcome->code, outcome->message));
  session_->Leave();
  FLAGSTONE_RETURN_IF_ERROR(Committed(outcome->committed_at, outcome->durability_unknown));
  return report_;
}

void SaveRun::RemoveOwnFile() {
  if (own_file_.empty()) return;
  const Status unlinked = fs_.Unlink(own_file_);
  static_cast<void>(
      unlinked.ok());  // what is left is debris: its owner ends, the next success removes it
  own_file_.clear();
}

// Make sure that nobody commits what this process gives up. True: it was committed before.
Result<bool> SaveRun::FenceIfNeeded(const Status& status) {
  if (leads()) return temporary_->Withdraw();
  session_->ReportFailed(status);
  // The coordinator's word, if it comes, stands for the fence that it did.
  const auto outcome = session_->WaitOutcome();
  if (outcome.ok()) return outcome->state == store::AttemptState::kCommitted;
  if (save_id_.empty()) return false;  // not listed: nothing of this process is in any attempt
  return store::Fence(fs_, input_.directory, save_id_);
}

Result<SaveReport> SaveRun::Abandon(Status status) {
  const auto committed = FenceIfNeeded(status);
  if (!committed.ok()) {
    // Neither file may be touched: what is published could not be read.
    session_->Leave();
    return status.Annotated(Join("whether the save was committed could not be found out (",
                                 committed.status().message(), ")"));
  }
  if (!*committed) RemoveOwnFile();
  session_->Leave();
  if (leads()) session_->Conclude(*committed ? Status() : status, report_.committed_at, *committed);
  if (!*committed) return status;
  FLAGSTONE_RETURN_IF_ERROR(Committed(0, leads()));
  const auto manifest = store::ReadManifest(fs_, input_.directory);
  if (manifest.ok()) report_.committed_at = manifest->committed_at;
  return report_;
}

}  // namespace flagstone::save
