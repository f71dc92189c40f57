// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What the participants of a save tell each other: JSON, so that debris can be read with `cat`,
/// with an optional binary payload after it. Nothing here is part of the file format: the records
/// of one save live as long as the save.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/status.h"
#include "io/process.h"

namespace flagstone::store {

/// Who belongs together (spec/commit.md, "Who belongs together"): only equal parties answer or list
/// each other.
struct Party {
  std::string run;   ///< As RecordText gives it.
  std::string name;  ///< The checkpoint's, likewise.
  std::optional<int64_t> step;
  uint32_t world_size = 1;

  bool operator==(const Party&) const = default;
};

/// One live participant: in the first page of every file that is not finished, and in every board
/// entry.
struct Owner {
  Party party;
  uint32_t rank = 0;
  std::string nonce;  ///< Hexadecimal digits, different for each process and each save.
  io::ProcessIdentity process;
  uint64_t beat = 0;       ///< Rises while the participant makes progress.
  int64_t timeout_ms = 0;  ///< Its own limit without progress.

  bool operator==(const Owner&) const = default;
};

enum class AttemptState : uint8_t { kClaimed, kActive, kListed, kCommitted, kFailed };

/// The coordinator's entry; its state goes forward only.
struct Attempt {
  Owner owner;
  std::string save_id;  ///< 32 hexadecimal digits.
  AttemptState state = AttemptState::kClaimed;
  /// kActive: ranks whose whole declaration is asked for, since nobody with that digest sent it.
  std::vector<uint32_t> wanted_declarations;
  std::vector<std::string> accepted;  ///< From kListed on: the nonce of each rank.
  // kFailed:
  StatusCode code = StatusCode::kOk;
  std::string message;
  // kCommitted:
  int64_t committed_at = 0;
  bool durability_unknown = false;

  bool operator==(const Attempt&) const = default;
};

enum class AnswerPhase : uint8_t { kWriting, kWritten, kFailed };

/// A rank's entry.
struct Answer {
  Owner owner;
  std::string save_id;  ///< Of the attempt that it answers.
  AnswerPhase phase = AnswerPhase::kWriting;
  std::string declaration;   ///< Digest of the layout it declares, hexadecimal.
  std::string client_state;  ///< Digest of its client state, or empty when it has none.
  // kWritten:
  uint64_t file_length = 0;
  uint64_t index_length = 0;
  std::string index_digest;
  // kFailed:
  StatusCode code = StatusCode::kOk;
  std::string message;
  /// The whole declaration, sent only when the attempt wants it.
  std::string payload;

  bool operator==(const Answer&) const = default;
};

/// A run or a file name may be any bytes, a record holds UTF-8: what is none becomes "hex:" and its
/// digits.
std::string RecordText(std::string_view text);

std::string EncodeAttempt(const Attempt& attempt);
std::string EncodeAnswer(const Answer& answer);
/// nullopt for anything but a whole record of that kind: such an entry is ignored, as a
/// half-written one must be.
std::optional<Attempt> DecodeAttempt(std::string_view text);
std::optional<Answer> DecodeAnswer(std::string_view text);

/// The owner inside any record, whichever kind it is.
std::optional<Owner> DecodeOwner(std::string_view text);

/// "run 'x', host a, pid 12" for messages.
std::string Describe(const Owner& owner);

/// Key of the coordinator's and of a rank's board entry. They contain a digest of the party, so
/// that a board shared by several saves keeps them apart.
std::string AttemptKey(const Party& party);
std::string AnswerKey(const Party& party, uint32_t rank, std::string_view nonce);
/// Prefix of all answers of a party.
std::string AnswerPrefix(const Party& party);

}  // namespace flagstone::store
