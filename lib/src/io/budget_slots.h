// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A budget of memory that the processes of a node share, without a server: the slots of a file that
/// are locked are taken.
///
/// The locks are classic fcntl record locks: they go when their process dies, however it dies, and a
/// forked child does not have them. Locks of one process do not exclude its threads, so that each
/// process counts its own beside them. They also go when the process closes any descriptor of the
/// file, so that it is opened once a process and never closed.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "flagstone/status.h"

namespace flagstone::io {

class BudgetFile;

/// Slots that this process holds; the destructor, on any thread, gives them back. In a forked child it does nothing:
/// the parent has them.
class BudgetShare {
 public:
  BudgetShare() = default;
  BudgetShare(BudgetShare&& other) noexcept;
  BudgetShare& operator=(BudgetShare&& other) noexcept;
  ~BudgetShare();

  /// Rounded up to whole slots.
  uint64_t bytes() const { return bytes_; }

 private:
  friend class BudgetFile;
  using Range = std::pair<uint64_t, uint64_t>;  // slots [first, end)

  std::shared_ptr<BudgetFile> file_;
  std::vector<Range> slots_;
  uint64_t bytes_ = 0;
  uint64_t generation_ = 0;  // of the process, one more after each fork
  std::thread::id thread_;   // that took it
};

/// One budget. Thread-safe.
class BudgetFile : public std::enable_shared_from_this<BudgetFile> {
 public:
  /// The budget has so many slots, each of ceil(total / kSlots) bytes.
  static constexpr uint64_t kSlots = 4096;

  /// The budget of this path for this process. Made, for this user alone, where it is not there.
  /// Errors: kIoError, kPermission as the system says.
  static Result<std::shared_ptr<BudgetFile>> Open(const std::filesystem::path& path);

  struct Request {
    uint64_t total_bytes = 0;  ///< Of the whole budget; all who hold slots give the same.
    uint64_t bytes = 0;        ///< Wanted of it, at most the total.
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::stop_token stop = {};
  };
  /// Take slots, all at once. Requests of all processes are served in the order in which they came:
  /// a large one is not overtaken by small ones. A process that dies while it waits or holds does
  /// not hold up the others. Errors: kInvalidArgument (more than the total; another total while slots
  /// are held, with both; this thread holds a share already, and waiting for a second could wait for
  /// ever), kDeadlineExceeded, kCancelled.
  Result<BudgetShare> Take(const Request& request);

  ~BudgetFile();

 private:
  struct State;
  explicit BudgetFile(std::unique_ptr<State> state);
  Status StandInLine(const Request& request, uint64_t slots, std::string_view what,
                     std::vector<BudgetShare::Range>& taken);
  void Give(const BudgetShare& share);

  friend class BudgetShare;
  const std::unique_ptr<State> state_;
};

}  // namespace flagstone::io
