// SPDX-License-Identifier: Apache-2.0
#include "store/session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/macros.h"
#include "base/text.h"

namespace flagstone::store {
namespace {

using base::Join;
using base::Quote;

// A board call that takes longer than this is trouble, not waiting: waiting is done by asking
// again.
constexpr auto kBoardPatience = std::chrono::seconds(30);
constexpr auto kShortestPause = std::chrono::microseconds(500);
constexpr auto kLongestPause = std::chrono::milliseconds(25);
constexpr auto kCheckFreeInterval = std::chrono::milliseconds(500);
// How long somebody who asked for a stop is held so that the others learn of it.
constexpr auto kStopPatience = std::chrono::seconds(1);

}  // namespace

Session::Session(SessionOptions options)
    : options_(std::move(options)),
      leads_(options_.self.rank == 0),
      answer_key_(AnswerKey(options_.self.party, options_.self.rank, options_.self.nonce)),
      attempt_key_(AttemptKey(options_.self.party)) {
  answer_.owner = options_.self;
  answer_.declaration = options_.declaration.digest;
  answer_.client_state = options_.declaration.client_state;
}

Session::~Session() { StopThread(); }

Status Session::Follow() {
  Status status = WriteAnswer();
  if (status.ok()) status = Start();
  if (!status.ok()) DeleteAnswer();
  return status;
}

Status Session::Lead(std::string save_id, std::function<void(const Attempt&)> beat_record) {
  attempt_.owner = options_.self;
  attempt_.save_id = std::move(save_id);
  attempt_.state = AttemptState::kActive;
  beat_record_ = std::move(beat_record);
  declarations_.emplace(options_.declaration.digest, options_.declaration.layout);
  FLAGSTONE_RETURN_IF_ERROR(CheckEntry());
  Status status = WriteAttempt();
  if (status.ok()) status = WriteAnswer();
  if (status.ok()) status = Start();
  if (!status.ok()) Conclude(std::nullopt, {});
  return status;
}

Status Session::Start() {
  const auto now = Clock::now();
  coordinator_changed_ = now;
  collect_progress_ = now;
  last_beat_ = now;
  stopping_ = false;
  thread_ = base::Thread([this] { Run(); });
  if (thread_.joinable()) return {};
  return Status(StatusCode::kResourceExhausted,
                "the system has no thread for the handshake of the save");
}

void Session::StopThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.Join();
}

void Session::Run() {
  // Waiting grows with idleness and with the world: a thousand ranks must not ask a file server in
  // step, and the coordinator not look through a thousand answers for each that comes.
  const uint32_t world_size = options_.self.party.world_size;
  const Clock::duration longest = kLongestPause + std::chrono::microseconds(200) * world_size;
  const Clock::duration shortest =
      kShortestPause + std::chrono::microseconds(20) * (leads_ ? world_size : 0);
  Clock::duration pause = shortest;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    wake_ = false;
    bool moved = leads_ && LeaderTick(now);
    moved = RankTick(now) || moved;
    Beat(now);
    // A write that fails stays stale, and the next tick tries again; a board that stays broken ends
    // as a missing answer.
    if (answer_stale_) moved = WriteAnswer().ok() || moved;
    if (attempt_stale_) moved = WriteAttempt().ok() || moved;
    pause = moved ? shortest : std::min(pause * 2, longest);
    changed_.wait_for(lock, pause, [&] { return stopping_ || wake_; });
  }
}

Deadline Session::BoardDeadline() const {
  return Clock::now() + std::min<Clock::duration>(kBoardPatience, options_.timing.timeout);
}

// A record that stands still is how others see that this process does. The thread here always
// runs; what counts is the thread in Commit.
void Session::Beat(Clock::time_point now) {
  if (now - last_beat_ < options_.timing.beat_interval() || !MakesProgress(now)) return;
  last_beat_ = now;
  ++answer_.owner.beat;
  answer_stale_ = true;
  if (!leads_) return;
  ++attempt_.owner.beat;
  attempt_stale_ = true;
  if (beat_record_) beat_record_(attempt_);
}

bool Session::MakesProgress(Clock::time_point now) {
  if (sync_began_) return now - *sync_began_ < options_.timing.sync_timeout;
  if (main_waits_) return true;
  const uint64_t progress = progress_.load(std::memory_order_relaxed);
  return std::exchange(progress_at_beat_, progress) != progress;
}

std::string Session::BoardTrouble() const {
  return board_trouble_.empty() ? "" : Join("; the board said: ", board_trouble_);
}

std::string Session::PassedOver() const {
  if (!passed_over_) return "";
  return Join("; it began one with another process as rank ", options_.self.rank,
              ": give each process its own rank");
}

void Session::BeginSync() {
  const std::lock_guard lock(mutex_);
  sync_began_ = Clock::now();
}

void Session::EndSync() {
  const std::lock_guard lock(mutex_);
  sync_began_.reset();
}

Status Session::Check() const {
  // Without the lock while all is well: the thread holds it during calls of the board, and the data
  // must not wait for those.
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return failure_;
}

template <typename Ready>
void Session::WaitUntil(std::unique_lock<std::mutex>& lock, const std::stop_token& stop,
                        Ready ready) {
  main_waits_ = true;
  // The stop token cannot notify this condition variable; it is looked at often enough for a
  // person.
  while (!ready() && !stop.stop_requested()) changed_.wait_for(lock, std::chrono::milliseconds(50));
  main_waits_ = false;
}

Status Session::CheckFree(Clock::time_point& next) const {
  const auto now = Clock::now();
  if (!options_.check_free || now < next) return {};
  next = now + kCheckFreeInterval;
  return options_.check_free();
}

Result<std::string> Session::WaitListed(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  auto next_check = Clock::now() + kCheckFreeInterval;
  WaitUntil(lock, stop, [&] {
    if (stage_ == Stage::kSeeking) {
      if (Status taken = CheckFree(next_check); taken.code() == StatusCode::kAlreadyExists)
        Fail(std::move(taken));
    }
    return stage_ == Stage::kListed || !failure_.ok();
  });
  FLAGSTONE_RETURN_IF_ERROR(failure_);
  if (stage_ == Stage::kListed) return followed_->save_id;
  return Status(StatusCode::kCancelled,
                "the save was stopped on request while it waited for the other ranks");
}

void Session::ReportWritten(uint64_t file_length, uint64_t index_length, std::string index_digest) {
  const std::lock_guard lock(mutex_);
  answer_.phase = AnswerPhase::kWritten;
  answer_.file_length = file_length;
  answer_.index_length = index_length;
  answer_.index_digest = std::move(index_digest);
  answer_stale_ = true;
  wake_ = true;
  changed_.notify_all();
}

void Session::ReportFailed(const Status& status, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (answer_.phase != AnswerPhase::kWriting) return;
  answer_.phase = AnswerPhase::kFailed;
  answer_.code = status.code();
  answer_.message = status.message();
  answer_stale_ = true;
  wake_ = true;
  changed_.notify_all();
  const auto began = Clock::now();
  WaitUntil(lock, {}, [&] {
    const auto waited = Clock::now() - began;
    return outcome_ || !failure_.ok() || waited > options_.timing.farewell() ||
           (stop.stop_requested() && waited > kStopPatience);
  });
}

Result<Attempt> Session::WaitOutcome(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  WaitUntil(lock, stop, [&] { return outcome_ || !failure_.ok(); });
  if (outcome_) return *outcome_;
  FLAGSTONE_RETURN_IF_ERROR(failure_);
  return Status(StatusCode::kCancelled,
                "the save was stopped on request while the other ranks wrote");
}

void Session::Leave() {
  StopThread();
  DeleteAnswer();
}

void Session::DeleteAnswer() {
  const Status deleted = options_.board->Delete(answer_key_, BoardDeadline());
  static_cast<void>(deleted.ok());  // what is left of it is debris: its owner ends
}

// --- As a rank

void Session::Fail(Status status) {
  if (!failure_.ok()) return;
  failure_ = std::move(status);
  failed_.store(true, std::memory_order_release);
  stage_ = Stage::kOver;
  changed_.notify_all();
}

Status Session::WriteAnswer() {
  Status written = options_.board->Set(answer_key_, EncodeAnswer(answer_), BoardDeadline());
  answer_stale_ = !written.ok();
  if (!written.ok()) board_trouble_ = written.message();
  // A value that the board will not take is not taken the next time either.
  if (written.code() == StatusCode::kInvalidArgument) Fail(written);
  return written;
}

bool Session::RankTick(Clock::time_point now) {
  if (stage_ == Stage::kOver) return false;
  bool moved = false;
  const auto text = options_.board->Get(attempt_key_, BoardDeadline());
  if (text.ok()) {
    // The same text says nothing new, and a thousand ranks need not decode it at every look.
    if (*text != attempt_text_) {
      attempt_text_ = *text;
      const auto attempt = DecodeAttempt(*text);
      if (attempt && attempt->owner.party == options_.self.party)
        moved = FollowAttempt(*attempt, now);
    }
  } else if (text.status().code() != StatusCode::kNotFound) {
    board_trouble_ = text.status().message();
  }
  if (stage_ != Stage::kOver) CheckCoordinator(now);
  return moved;
}

bool Session::FollowAttempt(const Attempt& attempt, Clock::time_point now) {
  if (!followed_ || followed_->save_id != attempt.save_id) {
    if (stage_ == Stage::kListed) {
      Fail(Status(StatusCode::kCancelled,
                  Join("the coordinator was replaced while save ", followed_->save_id,
                       " was written (now: ", Describe(attempt.owner), ")")));
      return true;
    }
    // What is closed or whose owner is dead was meant for others.
    if (options_.processes->StateOf(attempt.owner.process) == io::Liveness::kDead) return false;
    if (attempt.state != AttemptState::kActive) {
      passed_over_ = passed_over_ || attempt.state == AttemptState::kListed;
      return false;
    }
    stage_ = Stage::kAnswered;
    answer_.save_id = attempt.save_id;
    answer_.payload.clear();
    answer_stale_ = true;
  } else if (attempt == *followed_) {
    return false;
  }
  followed_ = attempt;
  coordinator_changed_ = now;
  FollowState();
  return true;
}

// The attempt that this process answers has a new state.
void Session::FollowState() {
  const Attempt& attempt = *followed_;
  const uint32_t rank = options_.self.rank;
  const bool accepted =
      rank < attempt.accepted.size() && attempt.accepted[rank] == options_.self.nonce;
  if (!attempt.accepted.empty() && !accepted) {
    // Another process was listed for this rank: this attempt is not ours to follow, a later one may
    // be.
    passed_over_ = true;
    followed_.reset();
    stage_ = Stage::kSeeking;
    return;
  }
  switch (attempt.state) {
    case AttemptState::kClaimed:
    case AttemptState::kActive: {
      const auto& wanted = attempt.wanted_declarations;
      if (answer_.payload.empty() &&
          std::find(wanted.begin(), wanted.end(), rank) != wanted.end()) {
        answer_.payload = options_.declaration.payload;
        answer_stale_ = true;
      }
      break;
    }
    case AttemptState::kListed:
      answer_.payload.clear();
      stage_ = Stage::kListed;
      changed_.notify_all();
      break;
    case AttemptState::kCommitted:
      outcome_ = attempt;
      stage_ = Stage::kOver;
      changed_.notify_all();
      break;
    case AttemptState::kFailed:
      outcome_ = attempt;
      Fail(Status(attempt.code, attempt.message));
      break;
  }
}

void Session::CheckCoordinator(Clock::time_point now) {
  const auto patience = options_.timing.coordinator_patience();
  const auto still = now - coordinator_changed_;
  if (stage_ == Stage::kSeeking) {
    if (still > patience) {
      Fail(Status(StatusCode::kDeadlineExceeded,
                  Join("rank 0, the coordinator of run ", Quote(options_.self.party.run),
                       ", did not begin the save of ", Quote(options_.self.party.name), " within ",
                       base::SecondsText(patience), PassedOver(), BoardTrouble())));
    }
    return;
  }
  if (still > patience) {
    Fail(Status(StatusCode::kDeadlineExceeded,
                Join("the coordinator (", Describe(followed_->owner), ") stood still for ",
                     base::SecondsText(patience), BoardTrouble())));
    return;
  }
  if (still < kLivenessInterval) return;
  if (options_.processes->StateOf(followed_->owner.process) != io::Liveness::kDead) return;
  if (stage_ == Stage::kListed) {
    Fail(Status(StatusCode::kCancelled,
                Join("the coordinator (", Describe(followed_->owner), ") died before the save ",
                     followed_->save_id, " was decided")));
    return;
  }
  // Not listed: nothing of this process is in that attempt, and a restarted coordinator may make
  // another.
  followed_.reset();
  stage_ = Stage::kSeeking;
}

// --- The end

Result<WrittenSave> Session::WaitAllWritten(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  WaitUntil(lock, stop, [&] { return written_ || !failure_.ok(); });
  FLAGSTONE_RETURN_IF_ERROR(failure_);
  if (written_) return *std::move(written_);
  return Status(StatusCode::kCancelled,
                "the save was stopped on request while the other ranks wrote");
}

void Session::Conclude(const std::optional<Outcome>& outcome, const std::stop_token& stop) {
  std::string message;
  if (outcome && !outcome->failure.ok()) {
    std::unique_lock lock(mutex_);
    // What another rank failed with already begins with its name.
    message = failure_ == outcome->failure ? outcome->failure.message()
                                           : Join("rank 0: ", outcome->failure.message());
    Fail(outcome->failure);  // or the list might still be closed
    auto next_check = Clock::now();
    WaitUntil(lock, stop, [&] {
      return CheckFree(next_check).code() == StatusCode::kAlreadyExists ||
             attempt_.state != AttemptState::kActive || OthersCame() ||
             Clock::now() - collect_progress_ > options_.timing.farewell();
    });
  }
  Leave();
  if (outcome) {
    attempt_.state = outcome->failure.ok() ? AttemptState::kCommitted : AttemptState::kFailed;
    attempt_.code = outcome->failure.code();
    attempt_.message = message;
    attempt_.committed_at = outcome->committed_at;
    attempt_.durability_unknown = outcome->durability_unknown;
    const auto began = Clock::now();
    Clock::duration pause = kShortestPause;
    bool told = false;
    for (;;) {
      told = told || WriteAttempt().ok();
      if (told && AllAcknowledged()) break;
      const auto waited = Clock::now() - began;
      if (waited > options_.timing.timeout || (stop.stop_requested() && waited > kStopPatience))
        break;
      std::this_thread::sleep_for(pause);
      pause = std::min<Clock::duration>(pause * 2, kLongestPause);
    }
  }
  const Status deleted = options_.board->Delete(attempt_key_, BoardDeadline());
  static_cast<void>(deleted.ok());
}

}  // namespace flagstone::store
