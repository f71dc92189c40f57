// SPDX-License-Identifier: Apache-2.0
#include "store/record.h"

#include <nlohmann/json.hpp>

#include "store_test_util.h"

namespace flagstone::store {
namespace {

Attempt FullAttempt() {
  Attempt attempt = MakeAttempt("r", 12, IdOf(7));
  attempt.owner.beat = 4;
  attempt.owner.process = {"host", "machine", "boot", 99, 12, 77};
  attempt.state = AttemptState::kFailed;
  attempt.wanted_declarations = {1, 5};
  attempt.accepted = {"aa", "bb"};
  attempt.code = StatusCode::kIoError;
  attempt.message = "no\nluck";
  attempt.committed_at = -5;
  attempt.durability_unknown = true;
  return attempt;
}

Answer FullAnswer() {
  Answer answer;
  answer.owner = MakeOwner("r", 12, 1);
  answer.owner.party.step.reset();
  answer.save_id = IdOf(7);
  answer.phase = AnswerPhase::kWritten;
  answer.declaration = "dd";
  answer.client_state = "cc";
  answer.file_length = UINT64_MAX;
  answer.index_length = 5;
  answer.index_digest = "ee";
  answer.code = StatusCode::kCancelled;
  answer.message = "m";
  answer.payload = std::string("a\nb\0c", 5);
  return answer;
}

TEST(RecordTest, RecordsComeBackWhole) {
  const Attempt attempt = FullAttempt();
  EXPECT_EQ(DecodeAttempt(EncodeAttempt(attempt)), attempt);
  EXPECT_EQ(DecodeOwner(EncodeAttempt(attempt)), attempt.owner);
  const Answer answer = FullAnswer();
  EXPECT_EQ(DecodeAnswer(EncodeAnswer(answer)), answer);
  EXPECT_EQ(DecodeOwner(EncodeAnswer(answer)), answer.owner);
}

TEST(RecordTest, OneKindIsNotTheOther) {
  EXPECT_FALSE(DecodeAnswer(EncodeAttempt(FullAttempt())));
  EXPECT_FALSE(DecodeAttempt(EncodeAnswer(FullAnswer())));
}

TEST(RecordTest, APartOfARecordIsNone) {
  const std::string attempt = EncodeAttempt(FullAttempt());
  // Without its last newline the line is whole.
  for (size_t size = 0; size + 1 < attempt.size(); ++size)
    EXPECT_FALSE(DecodeAttempt(attempt.substr(0, size))) << size;
  Answer answer = FullAnswer();
  answer.payload.clear();
  const std::string text = EncodeAnswer(answer);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(DecodeAnswer(text.substr(0, size))) << size;
}

TEST(RecordTest, AMissingOrUnlikeFieldMakesARecordInvalid) {
  const auto object = nlohmann::json::parse(EncodeAttempt(FullAttempt()));
  for (const auto& [key, value] : object.items()) {
    for (const nlohmann::json& other :
         {nlohmann::json(), nlohmann::json(1.5), nlohmann::json(-1)}) {
      if (key == "committed_at" && other == -1) continue;
      auto changed = object;
      changed[key] = other;
      EXPECT_FALSE(DecodeAttempt(changed.dump())) << key << " " << other;
    }
    auto changed = object;
    changed.erase(key);
    EXPECT_FALSE(DecodeAttempt(changed.dump())) << key;
  }
  auto changed = object;
  changed["code"] = 99;
  EXPECT_FALSE(DecodeAttempt(changed.dump()));
  for (const char* text : {"", "{", "[]", "null", "\xff\xfe", "{}"}) {
    EXPECT_FALSE(DecodeAttempt(text));
    EXPECT_FALSE(DecodeAnswer(text));
    EXPECT_FALSE(DecodeOwner(text));
  }
}

// Anybody can put a file where records lie.
TEST(RecordTest, DeepNestingIsNoRecord) {
  std::string text = R"({"kind":"attempt","owner":)";
  text.append(4'000'000, '[').append(4'000'000, ']').append("}\n");
  EXPECT_FALSE(DecodeAttempt(text));
  EXPECT_FALSE(DecodeAnswer(text));
  EXPECT_FALSE(DecodeOwner(text));
}

TEST(RecordTest, TimesBeyondSenseMakeARecordInvalid) {
  for (const int64_t ms : {INT64_MIN, int64_t{0}, INT64_MAX}) {
    Attempt attempt = FullAttempt();
    attempt.owner.timeout_ms = ms;
    EXPECT_FALSE(DecodeAttempt(EncodeAttempt(attempt))) << ms;
  }
}

TEST(RecordTest, TextOfAnyBytesComesBackAsItWasGiven) {
  EXPECT_EQ(RecordText("run 1"), "run 1");
  EXPECT_EQ(RecordText("\xff"), "hex:ff");
  Attempt attempt = FullAttempt();
  attempt.owner.party.run = RecordText("\xffz");
  EXPECT_EQ(DecodeAttempt(EncodeAttempt(attempt)), attempt);
}

TEST(RecordTest, KeysTellPartiesApart) {
  const Party party{"ab", "c", 1, 2};
  EXPECT_EQ(AttemptKey(party), AttemptKey(Party{"ab", "c", 1, 2}));
  for (const Party& other : {Party{"a", "bc", 1, 2}, Party{"ab", "c", 2, 2}, Party{"ab", "c", 1, 3},
                             Party{"ab", "c", std::nullopt, 2}, Party{"ab", "d", 1, 2}}) {
    EXPECT_NE(AttemptKey(party), AttemptKey(other));
  }
  EXPECT_TRUE(AnswerKey(party, 1, "n").starts_with(AnswerPrefix(party)));
  EXPECT_FALSE(AttemptKey(party).starts_with(AnswerPrefix(party)));
}

}  // namespace
}  // namespace flagstone::store
