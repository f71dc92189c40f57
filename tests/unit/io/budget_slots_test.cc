// SPDX-License-Identifier: Apache-2.0
// The budget among threads and processes: real ones, which fork, and are killed.

#include "io/budget_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <thread>

#include "support/temporary_directory.h"

namespace flagstone::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kTotal = BudgetFile::kSlots * 1000;
constexpr uint64_t kSlot = 1000;

// What processes tell each other.
struct Shared {
  std::atomic<uint64_t> held{0};
  std::atomic<uint64_t> most_held{0};
  std::atomic<uint64_t> grants{0};
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> tickets{0};
  std::atomic<uint32_t> ready{0};
};

class BudgetSlots : public ::testing::Test {
 protected:
  BudgetSlots() {
    void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_ = new (memory) Shared;
  }
  ~BudgetSlots() override { munmap(shared_, sizeof(Shared)); }

  std::shared_ptr<BudgetFile> Budget() {
    auto budget = BudgetFile::Open(directory_ / "budget");
    EXPECT_TRUE(budget.ok()) << budget.status().ToString();
    return *budget;
  }
  static BudgetFile::Request Want(uint64_t bytes, seconds patience = seconds(60)) {
    return {.total_bytes = kTotal, .bytes = bytes, .deadline = Clock::now() + patience};
  }

  pid_t Fork(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      body();
      _exit(0);
    }
    return child;
  }
  // Take, hold for a moment, give back; counted.
  void Turn(BudgetFile& budget, uint64_t bytes, milliseconds hold) {
    const auto share = budget.Take(Want(bytes));
    if (!share.ok()) {
      ++shared_->failures;
      return;
    }
    const uint64_t held = shared_->held += bytes;
    uint64_t most = shared_->most_held;
    while (held > most && !shared_->most_held.compare_exchange_weak(most, held)) {
    }
    ++shared_->grants;
    std::this_thread::sleep_for(hold);
    shared_->held -= bytes;
  }
  void WaitForAll(const std::vector<pid_t>& children) {
    for (const pid_t child : children) waitpid(child, nullptr, 0);
  }

  testing::TemporaryDirectory directory_;
  Shared* shared_ = nullptr;
};

TEST_F(BudgetSlots, SharesAreWholeSlotsAndComeBack) {
  const auto budget = Budget();
  {
    const auto share = budget->Take(Want(1));
    ASSERT_TRUE(share.ok());
    EXPECT_EQ(share->bytes(), kSlot);
  }
  EXPECT_EQ(budget->Take(Want(kTotal))->bytes(), kTotal) << "all of it is there again";
  EXPECT_EQ(budget->Take(Want(0))->bytes(), 0U);
}

TEST_F(BudgetSlots, WhatCannotWorkIsRefusedAtOnce) {
  const auto budget = Budget();
  EXPECT_THAT(budget->Take(Want(kTotal + 1)).status().message(),
              HasSubstr("4096001 bytes are wanted of a memory budget of 4096000"));
  EXPECT_EQ(budget->Take({}).status().code(), StatusCode::kInvalidArgument);
  const auto share = budget->Take(Want(kSlot));
  EXPECT_THAT(budget->Take(Want(kSlot)).status().message(),
              HasSubstr("this thread holds a part of the memory budget already"));
  const auto other = budget->Take({.total_bytes = kTotal, .bytes = 1});
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BudgetSlots, AnotherTotalIsRefusedWhileSlotsAreHeld) {
  const auto budget = Budget();
  std::optional<BudgetShare> share = *budget->Take(Want(kSlot));
  const auto other = [&] {
    Status status;
    std::thread([&] {
      status = budget->Take({.total_bytes = 2 * kTotal, .bytes = 1}).status();
    }).join();
    return status;
  };
  EXPECT_THAT(other().message(), AllOf(HasSubstr("8192000"), HasSubstr("4096000")));
  const pid_t child = Fork([&] {
    const Status status = budget->Take({.total_bytes = 2 * kTotal, .bytes = 1}).status();
    if (status.code() == StatusCode::kInvalidArgument) ++shared_->grants;
  });
  WaitForAll({child});
  EXPECT_EQ(shared_->grants, 1U);
  share.reset();
  EXPECT_TRUE(other().ok());
}

TEST_F(BudgetSlots, ThreadsOfAProcessExcludeEachOther) {
  const auto budget = Budget();
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 5; ++k) Turn(*budget, kTotal / 3, milliseconds(1));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared_->grants, 80U);
  EXPECT_LE(shared_->most_held, kTotal);
  const auto share = budget->Take(Want(kTotal / 3));
  std::thread([&] { EXPECT_TRUE(budget->Take(Want(kTotal / 3)).ok()) << "two fit"; }).join();
}

TEST_F(BudgetSlots, ThirtyTwoProcessesStayWithinTheTotal) {
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < 32; ++i) {
    children.push_back(Fork([&, i] {
      const auto budget = Budget();
      std::mt19937_64 random(i);
      for (int k = 0; k < 10; ++k) {
        Turn(*budget, 1 + random() % (kTotal / (1 + random() % 8)), milliseconds(random() % 3));
      }
    }));
  }
  WaitForAll(children);
  EXPECT_EQ(shared_->failures, 0U);
  EXPECT_EQ(shared_->grants, 320U);
  EXPECT_LE(shared_->most_held, kTotal + 32 * kSlot);
  EXPECT_EQ(shared_->held, 0U);
}

TEST_F(BudgetSlots, ABudgetForOneAdmitsOneAtATime) {
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < 8; ++i) {
    children.push_back(Fork([&] { Turn(*Budget(), kTotal * 2 / 3, milliseconds(5)); }));
  }
  WaitForAll(children);
  EXPECT_EQ(shared_->grants, 8U);
  EXPECT_EQ(shared_->most_held, kTotal * 2 / 3);
}

// Killed while they hold or stand in the line, processes hold up nobody.
TEST_F(BudgetSlots, TheDeadGiveEverythingBack) {
  std::vector<pid_t> doomed;
  for (uint32_t i = 0; i < 12; ++i) {
    doomed.push_back(Fork([&] {
      const auto budget = Budget();
      ++shared_->ready;
      const auto share = budget->Take(Want(kTotal / 2));
      std::this_thread::sleep_for(seconds(100));
    }));
  }
  while (shared_->ready < 12) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(50));  // two hold, the others wait
  std::vector<pid_t> others;
  for (uint32_t i = 0; i < 4; ++i) {
    others.push_back(Fork([&] { Turn(*Budget(), kTotal, milliseconds(1)); }));
  }
  for (const pid_t child : doomed) kill(child, SIGKILL);
  WaitForAll(doomed);
  WaitForAll(others);
  EXPECT_EQ(shared_->failures, 0U);
  EXPECT_EQ(shared_->grants, 4U);
}

// Small requests come again and again; a large one is served when those before it are.
TEST_F(BudgetSlots, ALargeRequestIsNotStarved) {
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < 12; ++i) {
    children.push_back(Fork([&] {
      const auto budget = Budget();
      while (shared_->ready < 2) Turn(*budget, kTotal / 4, milliseconds(2));
    }));
  }
  while (shared_->grants < 24) std::this_thread::sleep_for(milliseconds(1));
  {
    // All of it at one time: among twelve who hold a quarter each that never comes by itself.
    const auto share = Budget()->Take(Want(kTotal));
    EXPECT_TRUE(share.ok()) << share.status().ToString();
    shared_->ready = 2;
  }
  WaitForAll(children);
  EXPECT_EQ(shared_->failures, 0U);
}

// A small request that would fit stands behind a large one that came before it.
TEST_F(BudgetSlots, RequestsAreServedInTheirOrder) {
  const auto budget = Budget();
  auto first = std::make_unique<BudgetShare>(*budget->Take(Want(kTotal / 2)));
  const auto tickets = [&] {
    // In another process: whoever closes a descriptor of the file loses its process's locks.
    WaitForAll({Fork([&] {
      uint64_t content[2] = {};  // the total, and the next ticket
      std::ifstream file(directory_ / "budget", std::ios::binary);
      file.read(reinterpret_cast<char*>(content), sizeof(content));
      shared_->tickets = content[1];
    })});
    return shared_->tickets.load();
  };
  const auto stand_in_line = [&](uint64_t bytes, uint64_t expected) {
    const uint64_t before = tickets();
    const pid_t child = Fork([&, bytes, expected] {
      const auto share = budget->Take(Want(bytes));
      if (!share.ok() || shared_->grants++ != expected) ++shared_->failures;
    });
    while (tickets() == before) std::this_thread::sleep_for(milliseconds(1));
    return child;
  };
  const pid_t large = stand_in_line(kTotal, 0);
  const pid_t small = stand_in_line(kSlot, 1);
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(shared_->grants, 0U);
  first.reset();
  WaitForAll({large, small});
  EXPECT_EQ(shared_->grants, 2U);
  EXPECT_EQ(shared_->failures, 0U);
}

TEST_F(BudgetSlots, AForkedChildHoldsNothingAndGivesNothingBack) {
  const auto budget = Budget();
  auto share = std::make_unique<BudgetShare>(*budget->Take(Want(kTotal)));
  const pid_t child = Fork([&] {
    share.reset();  // the parent's
    const auto now = budget->Take(Want(kSlot, seconds(0)));
    if (now.status().code() != StatusCode::kDeadlineExceeded) ++shared_->failures;
    ++shared_->ready;
    const auto later = budget->Take(Want(kTotal));
    if (later.ok()) ++shared_->grants;
  });
  while (shared_->ready == 0) std::this_thread::sleep_for(milliseconds(1));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(shared_->grants, 0U) << "the parent still has it";
  share.reset();
  WaitForAll({child});
  EXPECT_EQ(shared_->grants, 1U);
  EXPECT_EQ(shared_->failures, 0U);
}

TEST_F(BudgetSlots, WaitingEndsAtADeadlineAndOnRequest) {
  const auto budget = Budget();
  const auto share = budget->Take(Want(kTotal));
  std::thread([&] {
    const Status late = budget->Take(Want(kSlot, seconds(0))).status();
    EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(late.message(), HasSubstr("1000 bytes of the node's memory budget of 4096000"));
    std::stop_source stop;
    stop.request_stop();
    BudgetFile::Request stopped = Want(kSlot);
    stopped.stop = stop.get_token();
    EXPECT_EQ(budget->Take(stopped).status().code(), StatusCode::kCancelled);
  }).join();
}

TEST_F(BudgetSlots, APathThatCannotBeOpenedIsNamed) {
  const auto budget = BudgetFile::Open(directory_ / "none" / "budget");
  EXPECT_THAT(budget.status().message(), AllOf(HasSubstr("none/budget"), HasSubstr("ENOENT")));
}

}  // namespace
}  // namespace flagstone::io
