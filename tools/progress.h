// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace flagstone::tools {

/// A bar on stderr while something takes long: only on a terminal, only after half a second, at
/// most ten times a second; wiped when it goes. Thread-safe.
class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(uint64_t done, uint64_t total);
  /// Update as the library's options take it; null where nothing would be shown.
  std::function<void(uint64_t, uint64_t)> callback();

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  bool enabled_;
  std::mutex mutex_;
  Clock::time_point start_;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace flagstone::tools
