// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The handshake of one save, beside the writing of data: a thread that keeps this process's board
/// entries beating, answers the coordinator's attempt and, on rank 0, leads it. It touches the
/// board only; everything that changes the checkpoint's directory is done by the thread in
/// Writer::Commit, which waits here for what the others say.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/thread.h"
#include "flagstone/coordinator.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "store/participants.h"
#include "store/record.h"

namespace flagstone::store {

/// What this process declares.
struct SessionDeclaration {
  std::string digest;        ///< Of the layout, hexadecimal.
  std::string client_state;  ///< Digest of the client state, or empty.
  std::string payload;       ///< The layout's bytes (format/layout_codec.h), sent when asked for.
  Layout layout;             ///< The same, normal.
};

struct SessionOptions {
  std::shared_ptr<Coordinator> board;
  io::ProcessTable* processes = nullptr;
  Owner self;
  Timing timing;
  SessionDeclaration declaration;
  /// Not ok when somebody else has published under this name and it may not be replaced. Then a
  /// coordinator is not waited for: it may have ended before it could tell anybody.
  std::function<Status()> check_free;
};

/// What the coordinator has when every rank has written.
struct WrittenSave {
  Layout layout;                ///< The union of what the ranks declared.
  std::vector<Answer> answers;  ///< By rank, phase kWritten.
};

class Session {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Session(SessionOptions options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// Stops the thread. Removes nothing: Leave and Conclude do.
  ~Session();

  /// Put this rank's entry on the board, so that a board which takes none is met before a byte is
  /// written, and start answering. Not for rank 0. Errors: the board's; then nothing has begun.
  Status Follow();
  /// Start answering and leading. `save_id` is claimed, and `beat_record` refreshes the record in
  /// the directory with the attempt as it stands; an empty function: the claim failed, and the
  /// attempt exists only so that Conclude can tell the other ranks why.
  Status Lead(std::string save_id, std::function<void(const Attempt&)> beat_record);

  // --- every rank

  /// Data moved: the next beat may rise. Any thread.
  void NoteProgress() { progress_.fetch_add(1, std::memory_order_relaxed); }
  /// Between these the process counts as making progress, for at most Timing::sync_timeout.
  void BeginSync();
  void EndSync();
  /// Not ok as soon as this save cannot succeed any more. Never waits for the board.
  Status Check() const;
  /// Wait until the coordinator has listed this process; gives the save id. Errors: the attempt
  /// failed (with its reason), kDeadlineExceeded naming the coordinator, kCancelled on `stop`.
  Result<std::string> WaitListed(const std::stop_token& stop);
  void ReportWritten(uint64_t file_length, uint64_t index_length, std::string index_digest);
  /// Tell the coordinator why this rank gives up, and wait until it has heard: for as long as
  /// others are told (Timing::farewell), after `stop` no longer than a person would. Does nothing
  /// after ReportWritten.
  void ReportFailed(const Status& status, const std::stop_token& stop);
  /// Wait for the coordinator's outcome (kCommitted or kFailed). Errors: the coordinator is gone
  /// without one, or `stop`: the caller fences.
  Result<Attempt> WaitOutcome(const std::stop_token& stop);
  /// Stop the thread and remove this process's answer: the acknowledgement.
  void Leave();

  // --- rank 0

  /// Wait until every rank has written. Errors name the ranks.
  Result<WrittenSave> WaitAllWritten(const std::stop_token& stop);

  struct Outcome {
    Status failure;  ///< Ok: committed.
    int64_t committed_at = 0;
    bool durability_unknown = false;
  };
  /// Publish the outcome, wait until every rank has acknowledged it or is dead or stands still, and
  /// remove what is left on the board. After a failure before the list was closed the ranks that
  /// have not come yet are waited for as well, so that they learn it. `stop` cuts the waiting
  /// short. nullopt: it could not be found out; each rank finds out for itself.
  void Conclude(const std::optional<Outcome>& outcome, const std::stop_token& stop);

 private:
  // One process of a rank as the coordinator sees it. One that has not seen the attempt yet has no
  // save id: it is not listed, but two for one rank are met all the same.
  struct SeenRank {
    Answer answer;
    uint64_t text_digest = 0;   // of the answer as it was read
    Clock::time_point changed;  // when its beat or phase was last seen to change
    bool beats = false;         // has been seen to change since it was first seen
    bool gone = false;          // its key was removed
  };
  // Looking a process up costs a few system calls; often enough to notice a death at once, rarely
  // enough not to matter.
  static constexpr auto kLivenessInterval = std::chrono::milliseconds(100);
  enum class Stage : uint8_t { kSeeking, kAnswered, kListed, kOver };

  Status Start();
  void StopThread();
  void Run();
  Deadline BoardDeadline() const;
  void Beat(Clock::time_point now);
  bool MakesProgress(Clock::time_point now);
  std::string BoardTrouble() const;
  // options_.check_free, but not before `next`, which is set to the time after that.
  Status CheckFree(Clock::time_point& next) const;
  // Wait as the thread in Commit, which counts as progress, until `ready` or `stop`.
  template <typename Ready>
  void WaitUntil(std::unique_lock<std::mutex>& lock, const std::stop_token& stop, Ready ready);

  // As a rank.
  bool RankTick(Clock::time_point now);
  bool FollowAttempt(const Attempt& attempt, Clock::time_point now);
  void FollowState();
  void CheckCoordinator(Clock::time_point now);
  std::string PassedOver() const;
  Status WriteAnswer();
  void DeleteAnswer();
  void Fail(Status status);

  // As the coordinator.
  bool LeaderTick(Clock::time_point now);
  Status CheckEntry() const;
  bool ReadAnswers(Clock::time_point now);
  void Collect(Clock::time_point now);
  bool ChooseAnswers(Clock::time_point now);
  std::optional<std::string> ChooseAnswer(uint32_t rank, const std::vector<std::string>& keys,
                                          Clock::time_point now);
  bool IsDead(const SeenRank& seen, Clock::time_point now) const;
  bool OthersCame() const;
  void List();
  bool GatherDeclarations();
  Result<Layout> UniteDeclarations() const;
  void AwaitWritten(Clock::time_point now);
  Status WriteAttempt();
  bool AllAcknowledged();

  const SessionOptions options_;
  const bool leads_;
  const std::string answer_key_;
  const std::string attempt_key_;

  std::atomic<uint64_t> progress_{0};
  std::atomic<bool> failed_{false};  // failure_ is not ok
  mutable std::mutex mutex_;
  std::condition_variable changed_;

  // Rank state, under mutex_.
  bool stopping_ = false;
  bool wake_ = false;  // the thread has something to write
  Stage stage_ = Stage::kSeeking;
  Answer answer_;
  bool answer_stale_ = false;  // differs from what is on the board
  bool main_waits_ = false;
  std::optional<Clock::time_point> sync_began_;
  uint64_t progress_at_beat_ = 0;
  Clock::time_point last_beat_;
  std::string attempt_text_;               // as last read
  std::optional<Attempt> followed_;        // the attempt that this process answers, as last read
  Clock::time_point coordinator_changed_;  // when it was last seen to change
  Status failure_;                         // why this save cannot succeed
  std::optional<Attempt> outcome_;
  bool passed_over_ = false;   // an attempt listed another process for this rank
  std::string board_trouble_;  // the last error of the board, for messages

  // Leader state, under mutex_.
  Attempt attempt_;
  bool attempt_written_ = false;
  bool attempt_stale_ = false;
  std::function<void(const Attempt&)> beat_record_;
  std::map<std::string, SeenRank> seen_;  // by key
  Clock::time_point collect_progress_;
  std::vector<std::string> chosen_;             // key of each rank, once chosen
  std::map<std::string, Layout> declarations_;  // by digest
  Layout united_;
  std::optional<WrittenSave> written_;

  base::Thread thread_;  // last: it uses everything above
};

}  // namespace flagstone::store
