// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The library's own threads: small stacks, no signals.

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <utility>

namespace flagstone::base {

/// Default stacks would add 8 MiB each to what RLIMIT_DATA counts.
inline constexpr size_t kThreadStackBytes = size_t{256} << 10;

/// A thread that is joined when this is destroyed or assigned to.
class Thread {
 public:
  Thread() = default;
  /// Run `body`. Not joinable() when the system has no thread to give.
  explicit Thread(std::function<void()> body);
  Thread(Thread&& other) noexcept
      : id_(other.id_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { Join(); }

  bool joinable() const { return joinable_; }
  void Join();

 private:
  pthread_t id_{};
  bool joinable_ = false;
};

}  // namespace flagstone::base
