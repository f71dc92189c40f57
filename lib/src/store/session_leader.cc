// SPDX-License-Identifier: Apache-2.0
// What the session of rank 0 does beside that of any rank.
#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/macros.h"
#include "base/text.h"
#include "format/layout_codec.h"
#include "partition/normalize.h"
#include "store/session.h"

namespace flagstone::store {

using base::Join;
using base::Quote;

Status Session::WriteAttempt() {
  Status written = options_.board->Set(attempt_key_, EncodeAttempt(attempt_), BoardDeadline());
  attempt_stale_ = !written.ok();
  if (!written.ok()) board_trouble_ = written.message();
  return written;
}

// Whether the board's entry may be made ours. What a dead coordinator left there goes; a live one's
// is that of another rank 0 with the same run, whose save must not be disturbed.
Status Session::CheckEntry() const {
  const auto text = options_.board->Get(attempt_key_, BoardDeadline());
  if (!text.ok() && text.status().code() != StatusCode::kNotFound) return text.status();
  const auto other = text.ok() ? DecodeAttempt(*text) : std::nullopt;
  if (other && other->state < AttemptState::kCommitted) {
    const io::Liveness liveness = options_.processes->StateOf(other->owner.process);
    // Who holds the claim knows that nobody else saves under this name.
    const bool claimed = static_cast<bool>(beat_record_);
    const bool left_behind =
        liveness == io::Liveness::kUnknown || other->owner.process == options_.self.process;
    if (liveness != io::Liveness::kDead && !(claimed && left_behind)) {
      return Status(StatusCode::kInvalidArgument,
                    Join("two live processes save as rank 0: ", Describe(other->owner), " and ",
                         Describe(options_.self), "; give each process its own rank"));
    }
  }
  return {};
}

bool Session::LeaderTick(Clock::time_point now) {
  if (written_) return false;
  const bool moved = ReadAnswers(now);
  if (!failure_.ok()) return moved;
  if (attempt_.state == AttemptState::kActive) {
    Collect(now);
  } else {
    AwaitWritten(now);
  }
  return moved;
}

// Read the answers that can have changed in a way that matters now.
bool Session::ReadAnswers(Clock::time_point now) {
  const auto keys = options_.board->List(AnswerPrefix(options_.self.party), BoardDeadline());
  if (!keys.ok()) {
    board_trouble_ = keys.status().message();
    return false;
  }
  bool moved = false;
  const std::set<std::string_view> there(keys->begin(), keys->end());
  for (auto& [key, seen] : seen_) {
    // One listing that lacks a name, made in several requests to a file server, proves nothing.
    seen.gone = !there.contains(key) &&
                options_.board->Get(key, BoardDeadline()).status().code() == StatusCode::kNotFound;
  }
  for (const std::string& key : *keys) {
    const auto known = seen_.find(key);
    if (known != seen_.end() && known->second.answer.phase == AnswerPhase::kWritten) continue;
    const auto text = options_.board->Get(key, BoardDeadline());
    if (!text.ok()) continue;  // removed or half-written: the next look tells
    const uint64_t digest = base::Digest64(std::as_bytes(std::span(*text)));
    if (known != seen_.end() && known->second.text_digest == digest) continue;
    auto answer = DecodeAnswer(*text);
    if (!answer || answer->owner.party != options_.self.party ||
        answer->owner.rank >= options_.self.party.world_size ||
        (answer->save_id != attempt_.save_id && !answer->save_id.empty())) {
      continue;
    }
    if (known == seen_.end()) {
      seen_.emplace(key, SeenRank{*std::move(answer), digest, now, false, false});
      collect_progress_ = now;
      moved = true;
    } else if (known->second.answer != *answer) {
      known->second = SeenRank{*std::move(answer), digest, now, true, false};
      moved = true;
    }
  }
  return moved;
}

bool Session::IsDead(const SeenRank& seen, Clock::time_point now) const {
  if (seen.gone) return true;
  const io::Liveness liveness = options_.processes->StateOf(seen.answer.owner.process);
  if (liveness == io::Liveness::kUnknown) return now - seen.changed > options_.timing.timeout;
  return liveness == io::Liveness::kDead;
}

// Every other rank has answered this attempt, if only to fail, and so has every live process: two
// may have been given one rank, and both are to learn it.
bool Session::OthersCame() const {
  std::set<uint32_t> came = {0};
  const auto now = Clock::now();
  for (const auto& [key, seen] : seen_) {
    if (!seen.answer.save_id.empty()) {
      came.insert(seen.answer.owner.rank);
    } else if (key != answer_key_ && !IsDead(seen, now)) {
      return false;
    }
  }
  return came.size() == options_.self.party.world_size;
}

// When this attempt cannot succeed, the thread in Commit learns it from Check or its wait, undoes
// what must be undone, and only then publishes the outcome (Conclude).
void Session::Collect(Clock::time_point now) {
  for (const auto& [key, seen] : seen_) {
    const Owner& owner = seen.answer.owner;
    if (seen.answer.save_id.empty()) continue;  // it has not seen this attempt yet
    if (seen.answer.phase == AnswerPhase::kFailed) {
      Fail(Status(seen.answer.code, Join("rank ", owner.rank, ": ", seen.answer.message)));
      return;
    }
    // Who is dead may be restarted and answer again; who lives and took its answer back will not.
    if (seen.gone && options_.processes->StateOf(owner.process) != io::Liveness::kDead) {
      Fail(Status(StatusCode::kCancelled,
                  Join(Describe(owner), " gave up the save of ", Quote(options_.self.party.name))));
      return;
    }
  }
  if (ChooseAnswers(now) && GatherDeclarations()) List();
}

// True when each rank has exactly one live answer.
bool Session::ChooseAnswers(Clock::time_point now) {
  const uint32_t world_size = options_.self.party.world_size;
  std::vector<std::vector<std::string>> keys(world_size);
  for (const auto& [key, seen] : seen_) keys[seen.answer.owner.rank].push_back(key);
  const bool late = now - collect_progress_ > options_.timing.timeout;
  const bool all_came =
      std::none_of(keys.begin(), keys.end(), [](const auto& of_rank) { return of_rank.empty(); });
  if (!all_came && !late) return false;
  std::vector<uint32_t> missing;
  std::vector<std::string> chosen(world_size);
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    auto key = ChooseAnswer(rank, keys[rank], now);
    if (!failure_.ok()) return false;
    if (key) {
      chosen[rank] = *std::move(key);
    } else {
      missing.push_back(rank);
    }
  }
  if (missing.empty()) {
    chosen_ = std::move(chosen);
    return true;
  }
  if (late) {
    Fail(Status(StatusCode::kDeadlineExceeded,
                Join("rank", missing.size() > 1 ? "s " : " ", base::RanksText(missing), " of ",
                     world_size, " did not come to the save of ", Quote(options_.self.party.name),
                     " (run ", Quote(options_.self.party.run), ") within ",
                     base::SecondsText(options_.timing.timeout),
                     "; all ranks of a save give one run, step and world size", BoardTrouble())));
  }
  return false;
}

// The live answer among those for one rank; nothing when there is none, or when it cannot be told
// yet.
std::optional<std::string> Session::ChooseAnswer(uint32_t rank,
                                                 const std::vector<std::string>& keys,
                                                 Clock::time_point now) {
  std::vector<std::string> live;
  // One that has not seen this attempt yet is waited for, dead or not: looking a process up is not
  // for every tick.
  if (keys.size() == 1 && seen_.at(keys.front()).answer.save_id.empty() &&
      now - collect_progress_ < options_.timing.timeout) {
    return std::nullopt;
  }
  for (const std::string& key : keys) {
    if (!IsDead(seen_.at(key), now)) live.push_back(key);
  }
  if (live.empty()) return std::nullopt;
  if (live.size() == 1) {
    return seen_.at(live.front()).answer.save_id.empty() ? std::nullopt : std::optional(live[0]);
  }
  const SeenRank& first = seen_.at(live[0]);
  const SeenRank& second = seen_.at(live[1]);
  const auto proven = [&](const SeenRank& seen) {
    return seen.beats ||
           options_.processes->StateOf(seen.answer.owner.process) == io::Liveness::kAlive;
  };
  if (proven(first) && proven(second)) {
    Fail(Status(StatusCode::kInvalidArgument,
                Join("two live processes save as rank ", rank, ": ", Describe(first.answer.owner),
                     " and ", Describe(second.answer.owner), "; give each process its own rank")));
  }
  return std::nullopt;
}

// True when the layout of every distinct digest is here.
bool Session::GatherDeclarations() {
  std::vector<uint32_t> wanted;
  for (const std::string& key : chosen_) {
    const Answer& answer = seen_.at(key).answer;
    if (declarations_.contains(answer.declaration)) continue;
    if (answer.payload.empty()) {
      const bool asked = std::any_of(wanted.begin(), wanted.end(), [&](uint32_t rank) {
        return seen_.at(chosen_[rank]).answer.declaration == answer.declaration;
      });
      if (!asked) wanted.push_back(answer.owner.rank);
      continue;
    }
    const auto bytes = std::as_bytes(std::span(answer.payload));
    auto layout = format::DecodeLayout(bytes);
    if (layout.ok() && base::Hex(format::LayoutDigest(*layout)) != answer.declaration) {
      layout = Status(StatusCode::kCorruption, "its digest is not the one it stated");
    }
    if (!layout.ok()) {
      Fail(
          layout.status().Annotated(Join("the layout that rank ", answer.owner.rank, " declares")));
      return false;
    }
    declarations_.emplace(answer.declaration, *std::move(layout));
  }
  if (wanted == attempt_.wanted_declarations) return wanted.empty();
  attempt_.wanted_declarations = std::move(wanted);
  attempt_stale_ = true;
  return attempt_.wanted_declarations.empty();
}

Result<Layout> Session::UniteDeclarations() const {
  std::vector<partition::Declaration> distinct;
  std::map<std::string, std::set<std::string, std::less<>>> partitions_of;  // by digest
  for (const std::string& key : chosen_) {
    const Answer& answer = seen_.at(key).answer;
    const auto [at, is_new] = partitions_of.try_emplace(answer.declaration);
    if (!is_new) continue;
    const Layout& layout = declarations_.at(answer.declaration);
    for (const Partition& part : layout.partitions) at->second.insert(part.id);
    distinct.push_back({answer.owner.rank, &layout});
  }
  FLAGSTONE_ASSIGN_OR_RETURN(Layout united, partition::Unite(distinct));
  FLAGSTONE_RETURN_IF_ERROR(ValidateLayout(united));
  if (distinct.size() == 1) return united;
  // A rank that stands in a partition's list without knowing of it has not written its part.
  for (const Partition& part : united.partitions) {
    for (uint32_t i = 0; i < part.ranks.size(); ++i) {
      const uint32_t rank = part.ranks.at(i);
      if (!partitions_of.at(seen_.at(chosen_[rank]).answer.declaration).contains(part.id)) {
        return Status(StatusCode::kInvalidArgument,
                      Join("partition ", Quote(part.id), " lists rank ", rank,
                           ", which does not declare it; every rank of a partition's "
                           "list must declare the partition"));
      }
    }
  }
  return united;
}

// Everybody is here: check that the declarations fit together and close the list.
void Session::List() {
  for (const std::string& key : chosen_) {
    const Answer& answer = seen_.at(key).answer;
    if (!answer.client_state.empty() && answer.client_state != options_.declaration.client_state) {
      Fail(Status(StatusCode::kInvalidArgument,
                  Join("rank ", answer.owner.rank,
                       " gives a client state that differs from rank 0's; client state "
                       "is rank 0's, another rank's must be absent or equal")));
      return;
    }
  }
  auto united = UniteDeclarations();
  if (!united.ok()) {
    Fail(united.status());
    return;
  }
  united_ = *std::move(united);
  for (const std::string& key : chosen_)
    attempt_.accepted.push_back(seen_.at(key).answer.owner.nonce);
  attempt_.wanted_declarations.clear();
  attempt_.state = AttemptState::kListed;
  attempt_stale_ = true;
}

void Session::AwaitWritten(Clock::time_point now) {
  bool all_written = true;
  for (uint32_t rank = 0; rank < chosen_.size(); ++rank) {
    const SeenRank& seen = seen_.at(chosen_[rank]);
    const auto who = [&] { return Describe(seen.answer.owner); };
    if (seen.gone) {
      // Whose file is written may die: another save then takes the answer away as debris.
      if (seen.answer.phase == AnswerPhase::kWritten &&
          options_.processes->StateOf(seen.answer.owner.process) == io::Liveness::kDead) {
        continue;
      }
      Fail(Status(StatusCode::kCancelled,
                  Join(who(), " gave up the save of ", Quote(options_.self.party.name))));
      return;
    }
    if (seen.answer.phase == AnswerPhase::kWritten) continue;
    all_written = false;
    if (seen.answer.phase == AnswerPhase::kFailed) {
      Fail(Status(seen.answer.code, Join("rank ", rank, ": ", seen.answer.message)));
      return;
    }
    const auto still = now - seen.changed;
    if (still > options_.timing.timeout) {
      Fail(Status(StatusCode::kDeadlineExceeded, Join(who(), " made no progress for ",
                                                      base::SecondsText(options_.timing.timeout))));
      return;
    }
    if (still > kLivenessInterval &&
        options_.processes->StateOf(seen.answer.owner.process) == io::Liveness::kDead) {
      Fail(Status(StatusCode::kCancelled, Join(who(), " died while it wrote its part of ",
                                               Quote(options_.self.party.name))));
      return;
    }
  }
  if (!all_written) return;
  WrittenSave written;
  written.layout = std::move(united_);
  for (const std::string& key : chosen_) written.answers.push_back(seen_.at(key).answer);
  written_ = std::move(written);
  changed_.notify_all();
}

// True when no living rank has an answer to this attempt on the board; those of the dead are
// removed.
bool Session::AllAcknowledged() {
  const auto keys = options_.board->List(AnswerPrefix(options_.self.party), BoardDeadline());
  if (!keys.ok()) return false;
  bool all = true;
  for (const std::string& key : *keys) {
    const auto text = options_.board->Get(key, BoardDeadline());
    auto answer = text.ok() ? DecodeAnswer(*text) : std::nullopt;
    if (!answer) {
      // Half-written now, but maybe known from before. Otherwise nobody knows whose it is: debris,
      // if it lies still.
      const auto known = seen_.find(key);
      if (known == seen_.end()) continue;
      answer = known->second.answer;
    }
    if (options_.processes->StateOf(answer->owner.process) == io::Liveness::kDead) {
      const Status deleted = options_.board->Delete(key, BoardDeadline());
      static_cast<void>(deleted.ok());
    } else if (answer->save_id == attempt_.save_id) {
      all = false;  // an answer to no attempt of ours waits for another coordinator
    }
  }
  return all;
}

}  // namespace flagstone::store
