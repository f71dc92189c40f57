// SPDX-License-Identifier: Apache-2.0
#include "train_zero/launcher.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <vector>

namespace train_zero {
namespace {

// Children that still run, by rank; 0 for one that has been waited for.
using Children = std::vector<pid_t>;

// Blocked in the parent and taken by sigwaitinfo, so that no handler runs and nothing is missed
// between two calls.
sigset_t SupervisedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  return signals;
}

[[noreturn]] void RunChild(pid_t parent, const sigset_t& mask, uint32_t rank,
                           const std::function<int(uint32_t)>& rank_main) {
  // Ctrl-C reaches the whole foreground group. The parent alone decides what it means, else ranks
  // would die one by one and be reported as failures.
  std::signal(SIGINT, SIG_IGN);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(EXIT_FAILURE);  // it died before prctl took effect
  int status = EXIT_FAILURE;
  try {
    status = rank_main(rank);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_zero: rank %u: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  // Not exit(): destructors of objects that the parent made are the parent's to run.
  _exit(status);
}

uint64_t Running(const Children& children) {
  uint64_t running = 0;
  for (const pid_t child : children) running += child != 0 ? 1 : 0;
  return running;
}

void EndAll(Children& children) {
  for (const pid_t child : children) {
    if (child != 0) kill(child, SIGKILL);
  }
  for (pid_t& child : children) {
    while (child != 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    child = 0;
  }
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "failed with status " + std::to_string(WEXITSTATUS(status));
}

// Takes the status of every child that has ended. True if all that ended did so with status 0.
bool Reap(Children& children) {
  for (uint32_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    if (children[rank] == 0 || waitpid(children[rank], &status, WNOHANG) <= 0) continue;
    const pid_t pid = children[rank];
    children[rank] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    const uint64_t others = Running(children);
    EndAll(children);
    std::fprintf(stderr, "train_zero: rank %u (process %d) %s; other ranks ended: %llu\n", rank,
                 pid, Describe(status).c_str(), static_cast<unsigned long long>(others));
    return false;
  }
  return true;
}

}  // namespace

int RunRanks(uint32_t world_size, const std::function<int(uint32_t rank)>& rank_main) {
  const sigset_t signals = SupervisedSignals();
  sigset_t mask_before;
  sigprocmask(SIG_BLOCK, &signals, &mask_before);
  std::fflush(nullptr);  // else every child would print again what is still buffered

  const pid_t parent = getpid();
  Children children;
  int result = EXIT_SUCCESS;
  for (uint32_t rank = 0; rank < world_size && result == EXIT_SUCCESS; ++rank) {
    const pid_t child = fork();
    if (child == 0) RunChild(parent, mask_before, rank, rank_main);
    if (child > 0) {
      children.push_back(child);
    } else {
      std::fprintf(stderr, "train_zero: cannot start rank %u: %s\n", rank, std::strerror(errno));
      EndAll(children);
      result = EXIT_FAILURE;
    }
  }

  while (Running(children) > 0) {
    const int number = sigwaitinfo(&signals, nullptr);
    if (number == SIGCHLD) {
      if (!Reap(children)) result = EXIT_FAILURE;
    } else if (number > 0) {
      std::fprintf(stderr, "train_zero: interrupted by signal %d (%s); ending all ranks\n", number,
                   strsignal(number));
      EndAll(children);
      result = 128 + number;
    }
  }
  sigprocmask(SIG_SETMASK, &mask_before, nullptr);
  return result;
}

}  // namespace train_zero
