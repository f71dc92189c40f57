// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Ctrl-C: what is running gives up, cleans up, and says so.

#include <atomic>
#include <csignal>
#include <functional>
#include <stop_token>
#include <thread>

namespace flagstone::tools {

/// Turns SIGINT, SIGTERM and SIGHUP into a stop request, from construction on; after destruction
/// they have no effect any more.
///
/// The signals are blocked for the calling thread and all that it starts later, and a thread of its
/// own waits for them: so no system call of the library is disturbed and no code runs in a signal
/// handler. A second signal ends the process at once. Signals that were ignored when the program
/// was started (nohup, a background job of a script) stay ignored. Made once, before
/// other threads.
class Interruption {
 public:
  /// With `last_words` the first signal already ends the process, after that call: for commands
  /// that leave nothing to clean up and do not ask the token.
  explicit Interruption(std::function<void()> last_words = nullptr);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  bool requested() const { return stop_.stop_requested(); }
  /// 128 + the signal, as a shell reports it: 130 for Ctrl-C.
  int exit_code() const { return 128 + signal_; }

 private:
  void Watch();

  std::function<void()> last_words_;
  sigset_t signals_{};
  int wake_signal_ = 0;  // One of signals_; 0 when there are none to wait for.
  std::atomic<bool> finished_ = false;
  std::atomic<int> signal_ = 0;
  std::stop_source stop_;
  std::thread watcher_;
};

}  // namespace flagstone::tools
