// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Dying in the middle of a save, to show that nothing is lost by it.

#include <flagstone/flagstone.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace train_zero {

/// Kills this process by SIGKILL, as the kernel's out-of-memory killer would, once its writer has
/// taken a number of bytes from the sources made here. They are shared by all sources of the save.
class SuddenDeath {
 public:
  explicit SuddenDeath(uint64_t after_bytes) : after_bytes_(after_bytes) {}
  SuddenDeath(const SuddenDeath&) = delete;
  SuddenDeath& operator=(const SuddenDeath&) = delete;

  /// A source of these bytes. It must not outlive this object or the bytes.
  std::unique_ptr<flagstone::Source> MakeSource(std::span<const std::byte> bytes);
  uint64_t after_bytes() const { return after_bytes_; }
  /// Bytes that have been taken.
  uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  class CountingSource;
  uint64_t after_bytes_;
  std::atomic<uint64_t> taken_bytes_ = 0;
};

}  // namespace train_zero
