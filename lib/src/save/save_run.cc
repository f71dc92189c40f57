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

StatusCode CodeOf(const Status& status) { return status.code(); }
template <typename T>
StatusCode CodeOf(const Result<T>& result) {
  return result.status().code();
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
  self_.party = {store::RecordText(input_.run),
                 store::RecordText(input_.directory.filename().string()), input_.options->step,
                 input_.layout->world_size};
  self_.rank = input_.rank;
  self_.nonce = io::RandomHex(8);
  self_.process = input_.environment.processes->Self();
  self_.timeout_ms = timing_.timeout.count();
}

Result<SaveReport> SaveRun::Run() {
  const auto began = std::chrono::steady_clock::now();
  Result<SaveReport> result = Save();
  if (result.ok()) {
    result->seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  } else {
    store::RemoveIfEmpty(fs_, input_.directory);
  }
  return result;
}

Result<SaveReport> SaveRun::Save() {
  if (Status prepared = PrepareContent(); !prepared.ok()) {
    TellOthers(prepared);
    return prepared;
  }
  FLAGSTONE_RETURN_IF_ERROR(Begin());
  const Status written = WriteAndReport();
  return leads() ? Lead(written) : Follow(written);
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

void SaveRun::MakeSession(store::SessionDeclaration declaration) {
  store::SessionOptions options;
  options.board = input_.options->coordinator ? input_.options->coordinator
                                              : store::MakeFileCoordinator(fs_, input_.directory);
  options.processes = input_.environment.processes;
  options.self = self_;
  options.timing = timing_;
  options.declaration = std::move(declaration);
  if (!input_.options->overwrite)
    options.check_free = [this] { return store::CheckFree(fs_, input_.directory); };
  session_ = std::make_unique<store::Session>(std::move(options));
}

// This rank cannot take part at all. The others come all the same, and would wait for it.
void SaveRun::TellOthers(const Status& why) {
  if (self_.party.world_size == 1) return;
  MakeSession({});
  if (leads()) {
    const Status led = InDirectory([&] { return session_->Lead(io::RandomHex(16), nullptr); });
    if (led.ok()) session_->Conclude(store::Session::Outcome{why, 0, false}, input_.options->stop);
  } else if (InDirectory([&] { return session_->Follow(); }).ok()) {
    session_->ReportFailed(why, input_.options->stop);
    session_->Leave();
  }
}

// The handshake's thread, and on rank 0 the claim on the name. On an error nothing of this is left.
Status SaveRun::Begin() {
  auto declaration = Declare();
  if (!declaration.ok()) {
    TellOthers(declaration.status());
    return declaration.status();
  }
  MakeSession(*std::move(declaration));
  if (leads()) return BeginToLead();
  return InDirectory([&] { return session_->Follow(); });
}

Status SaveRun::BeginToLead() {
  store::Attempt attempt;
  attempt.owner = self_;
  const auto claim = [&]() -> Result<std::unique_ptr<store::TemporaryManifest>> {
    FLAGSTONE_ASSIGN_OR_RETURN(
        auto claimed,
        store::Claim(fs_, *input_.environment.processes, input_.directory,
                     input_.options->overwrite, timing_, input_.options->stop, attempt));
    if (const auto mode = ReplacedMode()) {
      Status status = claimed->SetMode(*mode);
      if (!status.ok()) return Withdraw(*claimed, std::move(status)).status;
    }
    return claimed;
  };
  auto claimed = InDirectory(claim);
  if (claimed.ok()) {
    temporary_ = *std::move(claimed);
    const Status led = session_->Lead(attempt.save_id, [this](const store::Attempt& now) {
      const Status beaten = temporary_->WriteRecord(store::EncodeAttempt(now));
      static_cast<void>(beaten.ok());  // a beat that is missed is made up for by the next
    });
    return led.ok() ? led : Withdraw(*temporary_, led).status;
  }
  // The other ranks come to this save too: they are told why it does not take place.
  if (self_.party.world_size > 1 && session_->Lead(io::RandomHex(16), nullptr).ok())
    session_->Conclude(store::Session::Outcome{claimed.status(), 0, false}, input_.options->stop);
  return claimed.status();
}

// Make the directory, then do what needs it. Another rank of a save that fails may remove the empty
// directory between the two, so that is tried again a few times.
template <typename Act>
auto SaveRun::InDirectory(const Act& act) -> decltype(act()) {
  constexpr int kTries = 10;
  for (int i = 1;; ++i) {
    FLAGSTONE_RETURN_IF_ERROR(store::MakeDirectories(fs_, input_.directory));
    auto result = act();
    if (result.ok() || CodeOf(result) != StatusCode::kNotFound || i == kTries) return result;
  }
}

// The permission bits of the manifest that is overwritten: who may read a checkpoint does not
// change by saving it again.
std::optional<uint32_t> SaveRun::ReplacedMode() const {
  if (!input_.options->overwrite) return std::nullopt;
  const auto info = fs_.Stat(input_.directory / format::kManifestName);
  return info.ok() ? std::optional(info->mode) : std::nullopt;
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
  const SyncScope reserving(*session_);  // space for a large file can take its time
  FLAGSTONE_ASSIGN_OR_RETURN(file_, InDirectory([&] {
                               return RankFile::Create(fs_, name, text, content_, options,
                                                       ReplacedMode());
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

Status SaveRun::WriteAndReport() {
  if (leads() && !ReplacedMode()) {
    // Who made the directory may have died before it synced the directory's own name.
    const SyncScope sync(*session_);
    FLAGSTONE_RETURN_IF_ERROR(fs_.SyncDirectory(store::RootOf(input_.directory)));
  }
  FLAGSTONE_RETURN_IF_ERROR(MakePrivateFile());
  FLAGSTONE_RETURN_IF_ERROR(
      file_->WriteSegments([this](uint64_t streamed) { return Checkpoint(streamed); }));
  FLAGSTONE_ASSIGN_OR_RETURN(save_id_, session_->WaitListed(input_.options->stop));
  return FinishFile();
}

Status SaveRun::FinishFile() {
  format::RankIndex index;
  FLAGSTONE_ASSIGN_OR_RETURN(index.save_id, ParseSaveId(save_id_));
  index.rank = input_.rank;
  index.world_size = input_.layout->world_size;
  index.plain = std::move(plain_);
  index.rank_state = std::move(input_.rank_state);  // its arrays are written
  const std::filesystem::path final_name =
      input_.directory / format::RankFileName(input_.rank, index.save_id);
  const SyncScope sync(*session_);
  FLAGSTONE_ASSIGN_OR_RETURN(const FinishedRankFile finished, file_->Finish(std::move(index)));
  const Status published = store::PublishRankFile(fs_, file_->file(), own_file_, final_name);
  // Where it failed cannot be told from here: the file has one of the two names.
  if (published.ok() || !fs_.Stat(own_file_).ok()) own_file_ = final_name;
  FLAGSTONE_RETURN_IF_ERROR(published);
  file_.reset();  // the others may take long: give buffers and descriptors back now
  session_->ReportWritten(finished.file_length, finished.index_length,
                          base::Hex(finished.index_digest));
  report_.save_id = save_id_;
  report_.file_bytes = finished.file_length;
  report_.backend = Name(finished.write.backend.backend);
  report_.backend_reason = finished.write.backend.reason;
  report_.peak_staging_bytes = finished.write.peak_staging_bytes;
  return {};
}

Result<format::Manifest> SaveRun::MakeManifest(store::WrittenSave written) {
  format::Manifest manifest;
  FLAGSTONE_ASSIGN_OR_RETURN(manifest.save_id, ParseSaveId(save_id_));
  manifest.step = input_.options->step;
  manifest.committed_at = CommitTime(fs_, input_.directory);
  manifest.layout = std::move(written.layout);
  manifest.client_state = std::move(input_.client_state);  // its arrays are written
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

// Before they are published: a directory that is not the same for all ranks (a disk of each node)
// would make a checkpoint of which most is elsewhere.
Status SaveRun::CheckFilesAreHere(const format::Manifest& manifest) const {
  for (const format::RankFileEntry& entry : manifest.files) {
    const std::filesystem::path name =
        input_.directory / format::RankFileName(entry.rank, manifest.save_id);
    const auto info = fs_.Stat(name);
    if (info.ok() && info->size == entry.file_length) continue;
    if (!info.ok() && info.status().code() != StatusCode::kNotFound) return info.status();
    return Status(
        StatusCode::kNotFound,
        Join("rank ", entry.rank, " wrote its file of ", entry.file_length,
             " bytes, but where rank 0 looks, ", Quote(name.string()),
             info.ok() ? Join(" has ", info->size, " bytes") : std::string(" is not there"),
             "; all ranks must save to one directory of a shared file system"),
        {name.string(), "", std::nullopt});
  }
  return {};
}

Publication SaveRun::GatherAndPublish() {
  auto written = session_->WaitAllWritten(input_.options->stop);
  if (!written.ok()) return Withdraw(*temporary_, written.status());
  const SyncScope sync(*session_);
  const auto manifest = MakeManifest(*std::move(written));
  if (!manifest.ok()) return Withdraw(*temporary_, manifest.status());
  if (Status there = CheckFilesAreHere(*manifest); !there.ok())
    return Withdraw(*temporary_, std::move(there));
  report_.committed_at = manifest->committed_at;
  const auto bytes = format::EncodeManifest(*manifest);
  if (!bytes.ok()) return Withdraw(*temporary_, bytes.status());
  return Publish(*temporary_, *bytes, input_.options->overwrite);
}

Result<SaveReport> SaveRun::Lead(const Status& own) {
  const Publication publication = own.ok() ? GatherAndPublish() : Withdraw(*temporary_, own);
  const bool unknown = publication.decision == Decision::kDurabilityUnknown;
  const std::stop_token& stop = input_.options->stop;
  switch (publication.decision) {
    case Decision::kNotCommitted:
      RemoveOwnFile();
      session_->Conclude(store::Session::Outcome{publication.status, 0, false}, stop);
      return publication.status;
    case Decision::kUndecided:
      session_->Conclude(std::nullopt, stop);
      return publication.status;
    case Decision::kCommitted: {
      const SyncScope sync(*session_);
      report_.warnings = AfterCommit(
          input_.environment,
          {input_.directory, report_.committed_at, input_.options->update_latest, timing_.timeout});
      break;
    }
    case Decision::kDurabilityUnknown:  // neither the old files nor the new ones may go
      break;
  }
  session_->Conclude(store::Session::Outcome{Status(), report_.committed_at, unknown}, stop);
  return Report(report_.committed_at, unknown);
}

Result<SaveReport> SaveRun::Follow(const Status& own) {
  if (!own.ok()) {
    // This rank has not reported its file as written, so nobody can commit the attempt.
    RemoveOwnFile();
    session_->ReportFailed(own, input_.options->stop);
    session_->Leave();
    return own;
  }
  const auto outcome = session_->WaitOutcome(input_.options->stop);
  if (outcome.ok()) {
    const bool committed = outcome->state == store::AttemptState::kCommitted;
    if (!committed) RemoveOwnFile();
    session_->Leave();
    if (!committed) return Status(outcome->code, outcome->message);
    return Report(outcome->committed_at, outcome->durability_unknown);
  }
  // Nobody says what became of it, and the file may be named by a manifest that is published at any
  // moment, or was: only after the fence can that be told.
  const auto committed = store::Fence(fs_, input_.directory, save_id_);
  if (committed.ok() && !*committed) RemoveOwnFile();
  session_->Leave();
  if (!committed.ok()) {
    return outcome.status().Annotated(
        Join("whether the save was committed could not be found out (",
             committed.status().message(), ")"));
  }
  if (!*committed) return outcome.status();
  // A later save may have replaced it by now.
  const auto manifest = store::ReadManifest(fs_, input_.directory);
  const bool is_ours = manifest.ok() && base::Hex(manifest->save_id) == save_id_;
  return Report(is_ours ? manifest->committed_at : 0, false);
}

void SaveRun::RemoveOwnFile() {
  file_.reset();  // or its blocks stay until this returns
  if (own_file_.empty()) return;
  const Status unlinked = fs_.Unlink(own_file_);
  static_cast<void>(
      unlinked.ok());  // what is left is debris: its owner ends, the next success removes it
  own_file_.clear();
}

Result<SaveReport> SaveRun::Report(int64_t committed_at, bool durability_unknown) {
  if (durability_unknown) return DurabilityUnknown(input_.directory);
  report_.committed_at = committed_at;
  return std::move(report_);
}

}  // namespace flagstone::save
