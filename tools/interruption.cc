// SPDX-License-Identifier: Apache-2.0
#include "interruption.h"

#include <pthread.h>
#include <unistd.h>

#include <utility>

namespace flagstone::tools {

Interruption::Interruption(std::function<void()> last_words) : last_words_(std::move(last_words)) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    // A blocked signal is kept for sigwait() even when it is to be ignored, so those are left out.
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    sigaddset(&signals_, signal);
    wake_signal_ = signal;
  }
  if (wake_signal_ == 0) return;
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  watcher_ = std::thread([this] { Watch(); });
}

Interruption::~Interruption() {
  if (!watcher_.joinable()) return;
  finished_ = true;
  pthread_kill(watcher_.native_handle(), wake_signal_);
  watcher_.join();
  // The signals stay blocked: one that came too late must not change how the program ends.
}

void Interruption::Watch() {
  for (;;) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0) continue;
    if (finished_) return;
    const bool again = stop_.stop_requested();
    signal_ = signal;
    if (!again && last_words_) last_words_();
    if (again || last_words_) _exit(128 + signal);
    stop_.request_stop();
  }
}

}  // namespace flagstone::tools
