// SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <signal.h>

#include <memory>

namespace flagstone::base {
namespace {

void* Main(void* argument) {
  const std::unique_ptr<std::function<void()>> body(static_cast<std::function<void()>*>(argument));
  (*body)();
  return nullptr;
}

}  // namespace

Thread::Thread(std::function<void()> body) {
  auto argument = std::make_unique<std::function<void()>>(std::move(body));
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  pthread_attr_setstacksize(&attributes, kThreadStackBytes);
  // The program's signals are not for these threads: a handler may need more stack than there is.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  joinable_ = pthread_create(&id_, &attributes, &Main, argument.get()) == 0;
  // A program with much thread-local storage needs more: it is part of the stack.
  if (!joinable_) joinable_ = pthread_create(&id_, nullptr, &Main, argument.get()) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (joinable_) static_cast<void>(argument.release());  // the thread's now
}

Thread& Thread::operator=(Thread&& other) noexcept {
  Join();
  id_ = other.id_;
  joinable_ = std::exchange(other.joinable_, false);
  return *this;
}

void Thread::Join() {
  if (std::exchange(joinable_, false)) pthread_join(id_, nullptr);
}

}  // namespace flagstone::base
