// SPDX-License-Identifier: Apache-2.0
// The handshake among sessions of one process, over a board in memory and processes as told.

#include "store/session.h"

#include <atomic>
#include <thread>

#include "base/text.h"
#include "flagstone/zero.h"
#include "format/layout_codec.h"
#include "partition/normalize.h"
#include "store_test_util.h"

namespace flagstone::store {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Layout LayoutOf(uint32_t world, uint32_t owner, std::string tensor) {
  Layout layout;
  layout.world_size = world;
  Tensor added;
  added.name = tensor;
  added.shape = {8};
  added.dtype = DType::kFloat32;
  layout.tensors = {added};
  layout.partitions = {
      MakeWhole(std::move(tensor), {0}, RankList::Of({owner}), {{"fp32", DType::kFloat32}}, {0})};
  return partition::Normalize(std::move(layout));
}

// A board that counts and refuses.
class TroubledBoard final : public Coordinator {
 public:
  Status Set(std::string_view key, std::string_view value, Deadline deadline) override {
    ++sets;
    if (refuse_sets) return Status(StatusCode::kIoError, "the board is gone");
    return inner_->Set(key, value, deadline);
  }
  Result<std::string> Get(std::string_view key, Deadline deadline) override {
    if (slow) std::this_thread::sleep_for(milliseconds(200));
    return inner_->Get(key, deadline);
  }
  Status Delete(std::string_view key, Deadline deadline) override {
    return inner_->Delete(key, deadline);
  }
  Result<std::vector<std::string>> List(std::string_view prefix, Deadline deadline) override {
    if (empty_lists) return std::vector<std::string>();
    if (refuse_lists) return Status(StatusCode::kIoError, "the board is gone");
    return inner_->List(prefix, deadline);
  }

  std::atomic<int> sets = 0;
  std::atomic<bool> refuse_sets = false;
  std::atomic<bool> refuse_lists = false;
  std::atomic<bool> empty_lists = false;
  std::atomic<bool> slow = false;

 private:
  const std::shared_ptr<Coordinator> inner_ = MakeInProcessCoordinator();
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    for (int64_t pid = 0; pid < 10; ++pid) processes_.Set(100 + pid, io::Liveness::kAlive);
  }

  // Rank r is process 100 + r.
  std::unique_ptr<Session> Make(uint32_t rank, Timing timing = {milliseconds(10'000), {}},
                                std::optional<Layout> layout = {}, int64_t pid = 0) {
    SessionOptions options;
    options.board = board_;
    options.processes = &processes_;
    options.self = MakeOwner("run", pid == 0 ? 100 + rank : pid, rank);
    options.timing = timing;
    options.declaration.layout = layout ? *layout : LayoutOf(2, 0, "t");
    options.declaration.digest = base::Hex(format::LayoutDigest(options.declaration.layout));
    const auto bytes = format::EncodeLayout(options.declaration.layout).value();
    options.declaration.payload.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    options.check_free = [this] {
      return taken_ ? Status(StatusCode::kAlreadyExists, "taken") : Status();
    };
    return std::make_unique<Session>(std::move(options));
  }
  Status Lead(Session& session) {
    return session.Lead(IdOf(1), [](const Attempt&) {});
  }
  // Both come, and the list is closed.
  void BringToList(Session& leader, Session& follower) {
    ASSERT_TRUE(IsOk(follower.Follow()));
    ASSERT_TRUE(IsOk(Lead(leader)));
    ASSERT_TRUE(IsOk(follower.WaitListed({})));
  }
  std::vector<std::string> Keys() {
    return board_->List("", std::chrono::steady_clock::now() + std::chrono::seconds(1)).value();
  }
  bool EntryHas(std::string_view key_part, std::string_view text) {
    for (const std::string& key : Keys()) {
      const auto value = board_->Get(key, Deadline::max());
      if (key.find(key_part) != std::string::npos && value.ok() &&
          value->find(text) != std::string::npos)
        return true;
    }
    return false;
  }

  bool WaitForEntry(std::string_view key_part, std::string_view text) {
    for (int i = 0; i < 500 && !EntryHas(key_part, text); ++i)
      std::this_thread::sleep_for(milliseconds(10));
    return EntryHas(key_part, text);
  }

  FakeProcesses processes_;
  std::shared_ptr<TroubledBoard> board_ = std::make_shared<TroubledBoard>();
  std::atomic<bool> taken_ = false;
};

TEST_F(SessionTest, TwoRanksComeToACommit) {
  auto leader = Make(0);
  auto follower = Make(1, {milliseconds(10'000), {}}, LayoutOf(2, 1, "u"));
  ASSERT_TRUE(IsOk(follower->Follow()));
  ASSERT_TRUE(IsOk(Lead(*leader)));
  EXPECT_EQ(follower->WaitListed({}).value(), IdOf(1));
  EXPECT_EQ(leader->WaitListed({}).value(), IdOf(1));
  follower->ReportWritten(7, 8, "digest");
  leader->ReportWritten(1, 2, "other");
  const auto written = leader->WaitAllWritten({});
  ASSERT_TRUE(IsOk(written));
  EXPECT_EQ(written->answers[1].file_length, 7U);
  EXPECT_EQ(written->answers[1].index_digest, "digest");
  EXPECT_EQ(written->layout.tensors.size(), 2U) << "unlike declarations are united";
  std::thread concluding([&] { leader->Conclude(Session::Outcome{Status(), 42, true}, {}); });
  const auto outcome = follower->WaitOutcome({});
  ASSERT_TRUE(IsOk(outcome));
  EXPECT_EQ(outcome->state, AttemptState::kCommitted);
  EXPECT_EQ(outcome->committed_at, 42);
  EXPECT_TRUE(outcome->durability_unknown);
  follower->Leave();
  concluding.join();
  EXPECT_TRUE(Keys().empty());
}

TEST_F(SessionTest, AFailedRankIsNamedToAll) {
  auto leader = Make(0);
  auto follower = Make(1);
  ASSERT_TRUE(IsOk(follower->Follow()));
  ASSERT_TRUE(IsOk(Lead(*leader)));
  std::thread failing([&] {
    follower->ReportFailed(Status(StatusCode::kIoError, "no luck"), {});
    follower->Leave();
  });
  const auto written = leader->WaitAllWritten({});
  EXPECT_EQ(written.status().code(), StatusCode::kIoError);
  EXPECT_EQ(written.status().message(), "rank 1: no luck");
  leader->Conclude(Session::Outcome{written.status(), 0, false}, {});
  failing.join();
  EXPECT_TRUE(Keys().empty());
}

// The reason of rank 0 itself has its name when the others read it; a rank that comes late reads it
// too.
TEST_F(SessionTest, ALateRankLearnsWhyRankZeroFailed) {
  auto leader = Make(0);
  ASSERT_TRUE(IsOk(Lead(*leader)));
  std::thread concluding([&] {
    leader->Conclude(Session::Outcome{Status(StatusCode::kResourceExhausted, "full"), 0, false},
                     {});
  });
  // Who came before rank 0 had failed might be listed first.
  while (leader->Check().ok()) std::this_thread::sleep_for(milliseconds(1));
  auto follower = Make(1);
  ASSERT_TRUE(IsOk(follower->Follow()));
  const auto listed = follower->WaitListed({});
  EXPECT_EQ(listed.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(listed.status().message(), "rank 0: full");
  follower->Leave();
  concluding.join();
  EXPECT_TRUE(Keys().empty());
}

// The second of two processes with one rank has come, and looks at the board late.
TEST_F(SessionTest, BothProcessesOfARankLearnThatTheyAreTwo) {
  const Owner second = MakeOwner("run", 102, 1);
  Answer answer;
  answer.owner = second;
  ASSERT_TRUE(IsOk(board_->Set(AnswerKey(second.party, second.rank, second.nonce),
                               EncodeAnswer(answer), Deadline::max())));
  auto leader = Make(0);
  auto first = Make(1);
  ASSERT_TRUE(IsOk(first->Follow()));
  ASSERT_TRUE(IsOk(Lead(*leader)));
  const Status failure = leader->WaitListed({}).status();
  ASSERT_THAT(failure.message(), HasSubstr("two live processes save as rank 1"));
  std::thread concluding([&] { leader->Conclude(Session::Outcome{failure, 0, false}, {}); });
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(EntryHas("attempt", "two live processes")) << "the second has not answered yet";
  auto late = Make(1, {milliseconds(10'000), {}}, {}, 102);
  ASSERT_TRUE(IsOk(late->Follow()));  // with a key of its own
  ASSERT_TRUE(
      IsOk(board_->Delete(AnswerKey(second.party, second.rank, second.nonce), Deadline::max())));
  for (Session* session : {first.get(), late.get()}) {
    EXPECT_EQ(session->WaitListed({}).status().message(), failure.message());
    session->Leave();
  }
  concluding.join();
  EXPECT_TRUE(Keys().empty());
}

TEST_F(SessionTest, ARankForWhichAnotherProcessWasListedIsTold) {
  auto leader = Make(0);
  auto first = Make(1);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *first));
  auto late = Make(1, {milliseconds(200), {}}, {}, 102);
  ASSERT_TRUE(IsOk(late->Follow()));
  // It is still told when the other save has gone on and ended meanwhile.
  std::this_thread::sleep_for(milliseconds(200));
  first->ReportWritten(1, 1, "d");
  leader->ReportWritten(1, 1, "d");
  ASSERT_TRUE(IsOk(leader->WaitAllWritten({})));
  std::thread concluding([&] { leader->Conclude(Session::Outcome{}, {}); });
  EXPECT_TRUE(IsOk(first->WaitOutcome({})));
  std::this_thread::sleep_for(milliseconds(200));
  first->Leave();
  concluding.join();
  EXPECT_THAT(late->WaitListed({}).status().message(),
              AllOf(HasSubstr("did not begin"), HasSubstr("another process as rank 1")));
  late->Leave();
}

// A listing made in several requests may miss a name.
TEST_F(SessionTest, AKeyThatOneListingLacksIsNotGone) {
  auto leader = Make(0);
  auto follower = Make(1);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  board_->empty_lists = true;
  std::this_thread::sleep_for(milliseconds(300));  // many looks
  EXPECT_TRUE(IsOk(leader->Check()));
  board_->empty_lists = false;
  follower->ReportWritten(1, 1, "d");
  leader->ReportWritten(1, 1, "d");
  EXPECT_TRUE(IsOk(leader->WaitAllWritten({})));
  leader->Conclude(std::nullopt, {});
  follower->Leave();
}

// Another save may remove the answer of a rank that wrote its part and died.
TEST_F(SessionTest, AWrittenRankIsNotMissedWithItsAnswer) {
  auto leader = Make(0);
  auto follower = Make(1);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  follower->ReportWritten(1, 1, "d");
  ASSERT_TRUE(WaitForEntry(".answer-1-", "written"));
  std::this_thread::sleep_for(milliseconds(200));  // for the coordinator to see it
  processes_.Set(101, io::Liveness::kDead);
  follower->Leave();
  std::this_thread::sleep_for(milliseconds(200));
  leader->ReportWritten(1, 1, "d");
  EXPECT_TRUE(IsOk(leader->WaitAllWritten({})));
  leader->Conclude(std::nullopt, {});
}

TEST_F(SessionTest, ABoardThatRefusesIsMetAtOnce) {
  board_->refuse_sets = true;
  EXPECT_EQ(Make(1)->Follow().message(), "the board is gone");
  EXPECT_EQ(Lead(*Make(0)).message(), "the board is gone");
  EXPECT_TRUE(Keys().empty());
}

TEST_F(SessionTest, WritesThatFailForATimeAreMadeUpFor) {
  auto leader = Make(0);
  auto follower = Make(1);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  board_->refuse_sets = true;
  board_->refuse_lists = true;
  const int before = board_->sets;
  follower->ReportWritten(1, 1, "d");
  leader->ReportWritten(1, 1, "d");
  while (board_->sets < before + 4) std::this_thread::yield();
  board_->refuse_sets = false;
  board_->refuse_lists = false;
  EXPECT_TRUE(IsOk(leader->WaitAllWritten({})));
  // The outcome too is published by a later try.
  board_->refuse_sets = true;
  std::thread concluding([&] { leader->Conclude(Session::Outcome{}, {}); });
  const int tries = board_->sets;
  while (board_->sets < tries + 2) std::this_thread::yield();
  board_->refuse_sets = false;
  EXPECT_TRUE(IsOk(follower->WaitOutcome({})));
  follower->Leave();
  concluding.join();
  EXPECT_TRUE(Keys().empty());
}

TEST_F(SessionTest, CheckDoesNotWaitForTheBoard) {
  board_->slow = true;
  auto follower = Make(1);
  ASSERT_TRUE(IsOk(follower->Follow()));
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(IsOk(follower->Check()));
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(10'000))
      << "a thousand calls of a board that takes 200 ms each";
}

TEST_F(SessionTest, ARankWithoutProgressIsNamedAndOneInASyncIsNot) {
  const Timing timing{milliseconds(800), milliseconds(60'000)};
  auto leader = Make(0, timing);
  auto follower = Make(1, timing);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  follower->BeginSync();
  leader->ReportWritten(1, 1, "d");
  std::stop_source stop;
  std::thread stopping([&] {
    std::this_thread::sleep_for(milliseconds(2500));  // three limits long
    stop.request_stop();
  });
  EXPECT_EQ(leader->WaitAllWritten(stop.get_token()).status().code(), StatusCode::kCancelled);
  stopping.join();
  follower->EndSync();
  const auto written = leader->WaitAllWritten({});
  EXPECT_EQ(written.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(written.status().message(), AllOf(HasSubstr("rank 1"), HasSubstr("no progress")));
  leader->Conclude(std::nullopt, {});
  follower->Leave();
}

TEST_F(SessionTest, DataThatMovesIsProgress) {
  const Timing timing{milliseconds(800), milliseconds(60'000)};
  auto leader = Make(0, timing);
  auto follower = Make(1, timing);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  std::thread writing([&] {
    for (int i = 0; i < 50; ++i) {
      follower->NoteProgress();
      std::this_thread::sleep_for(milliseconds(50));
    }
    follower->ReportWritten(1, 1, "d");
  });
  leader->ReportWritten(1, 1, "d");
  EXPECT_TRUE(IsOk(leader->WaitAllWritten({})));
  writing.join();
  leader->Conclude(std::nullopt, {});
  follower->Leave();
}

// Whoever waits for the others lives, and shows it.
TEST_F(SessionTest, WaitingIsProgress) {
  const Timing timing{milliseconds(800), milliseconds(60'000)};
  auto leader = Make(0, timing);
  auto follower = Make(1, timing);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  leader->ReportWritten(1, 1, "d");
  std::thread waiting([&] { EXPECT_TRUE(IsOk(leader->WaitAllWritten({}))); });
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!EntryHas(".attempt", "\"beat\":4") && std::chrono::steady_clock::now() < give_up)
    follower->NoteProgress();
  EXPECT_LT(std::chrono::steady_clock::now(), give_up);
  follower->ReportWritten(1, 1, "d");
  waiting.join();
  leader->Conclude(std::nullopt, {});
  follower->Leave();
}

// What an earlier save of the same party came to is not this one's outcome.
TEST_F(SessionTest, AnAttemptThatIsOverIsNotFollowed) {
  Attempt over = MakeAttempt("run", 108, IdOf(8));
  processes_.Set(108, io::Liveness::kAlive);
  over.state = AttemptState::kFailed;
  over.code = StatusCode::kIoError;
  over.message = "long ago";
  ASSERT_TRUE(
      IsOk(board_->Set(AttemptKey(over.owner.party), EncodeAttempt(over), Deadline::max())));
  auto follower = Make(1);
  ASSERT_TRUE(IsOk(follower->Follow()));
  std::this_thread::sleep_for(milliseconds(200));  // it must not do what it has time for now
  EXPECT_TRUE(IsOk(follower->Check()));
  auto leader = Make(0);
  ASSERT_TRUE(IsOk(Lead(*leader)));
  EXPECT_EQ(follower->WaitListed({}).value(), IdOf(1));
  leader->Conclude(std::nullopt, {});
  follower->Leave();
}

// A dead coordinator's entry is taken over; a rank that had answered it answers the new one.
TEST_F(SessionTest, ARestartedCoordinatorIsFollowed) {
  auto first = Make(0);
  auto follower = Make(1);
  ASSERT_TRUE(IsOk(Lead(*first)));
  processes_.Set(100, io::Liveness::kDead);
  first.reset();  // its thread ends, its entry stays
  ASSERT_FALSE(Keys().empty());
  ASSERT_TRUE(IsOk(follower->Follow()));
  auto second = Make(0, {milliseconds(10'000), {}}, {}, 109);
  ASSERT_TRUE(IsOk(second->Lead(IdOf(2), [](const Attempt&) {})));
  EXPECT_EQ(follower->WaitListed({}).value(), IdOf(2));
  second->Conclude(std::nullopt, {});
  follower->Leave();
}

TEST_F(SessionTest, ACoordinatorThatDiesAfterListingIsNamed) {
  auto leader = Make(0);
  auto follower = Make(1);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  follower->ReportWritten(1, 1, "d");
  leader.reset();
  processes_.Set(100, io::Liveness::kDead);
  const auto outcome = follower->WaitOutcome({});
  EXPECT_EQ(outcome.status().code(), StatusCode::kCancelled);
  EXPECT_THAT(outcome.status().message(), AllOf(HasSubstr("rank 0"), HasSubstr("died")));
  follower->Leave();
}

TEST_F(SessionTest, ALiveRankZeroIsNotPushedAside) {
  auto first = Make(0);
  ASSERT_TRUE(IsOk(Lead(*first)));
  auto second = Make(0, {milliseconds(10'000), {}}, {}, 105);
  const Status refused = second->Lead(IdOf(2), nullptr);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("pid 100"), HasSubstr("pid 105")));
  EXPECT_TRUE(EntryHas(".attempt", IdOf(1)));
  first->Conclude(std::nullopt, {});
}

// Rank 0 found the name taken and ended; this rank passed that check before.
TEST_F(SessionTest, ANameThatIsTakenEndsTheWaitForACoordinator) {
  auto follower = Make(1, {std::chrono::minutes(10), {}});
  ASSERT_TRUE(IsOk(follower->Follow()));
  taken_ = true;
  EXPECT_EQ(follower->WaitListed({}).status().code(), StatusCode::kAlreadyExists);
  follower->Leave();
}

TEST_F(SessionTest, ARankThatGaveUpBeforeTheListIsNotWaitedFor) {
  auto leader = Make(0, {std::chrono::minutes(10), {}});
  auto third = Make(1, {std::chrono::minutes(10), {}});
  Layout layout = LayoutOf(2, 0, "t");
  ASSERT_TRUE(IsOk(Lead(*leader)));
  std::stop_source stop;
  stop.request_stop();
  ASSERT_TRUE(IsOk(third->Follow()));
  third->ReportFailed(Status(StatusCode::kCancelled, "stopped"), stop.get_token());
  third->Leave();
  const auto written = leader->WaitAllWritten({});
  EXPECT_EQ(written.status().code(), StatusCode::kCancelled);
  EXPECT_THAT(written.status().message(), HasSubstr("rank 1"));
  leader->Conclude(Session::Outcome{written.status(), 0, false}, {});
  EXPECT_TRUE(Keys().empty());
}

TEST_F(SessionTest, EntriesOfTheDeadAreRemovedWithTheOutcome) {
  auto leader = Make(0);
  auto follower = Make(1);
  ASSERT_NO_FATAL_FAILURE(BringToList(*leader, *follower));
  follower->ReportWritten(1, 1, "d");
  leader->ReportWritten(1, 1, "d");
  ASSERT_TRUE(IsOk(leader->WaitAllWritten({})));
  follower.reset();
  processes_.Set(101, io::Liveness::kDead);
  leader->Conclude(Session::Outcome{}, {});
  EXPECT_TRUE(Keys().empty());
}

}  // namespace
}  // namespace flagstone::store
