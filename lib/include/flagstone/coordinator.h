// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// How the ranks of a save talk to each other: a small key-value board. Implement it over whatever
/// the job already has.

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/export.h"
#include "flagstone/status.h"

namespace flagstone {

using Deadline = std::chrono::steady_clock::time_point;

/// A key-value board shared by the ranks of a job.
///
/// Keys are made of [A-Za-z0-9._-] and '/', at most 200 bytes; values are any bytes up to 16 MiB. A
/// `Get` sees the last finished `Set` whole or an earlier one, never a mixture. Thread-safe. No
/// call may block past its deadline, and none may be a collective: ranks call them at their own
/// pace.
class FLAGSTONE_EXPORT Coordinator {
 public:
  virtual ~Coordinator();
  /// Write or replace a key.
  virtual Status Set(std::string_view key, std::string_view value, Deadline deadline) = 0;
  /// The value now. Errors: kNotFound when the key is absent.
  virtual Result<std::string> Get(std::string_view key, Deadline deadline) = 0;
  /// Wait until the key exists and give its value. Errors: kDeadlineExceeded. The default polls
  /// Get.
  virtual Result<std::string> Wait(std::string_view key, Deadline deadline);
  /// Remove a key; an absent one is no error.
  virtual Status Delete(std::string_view key, Deadline deadline) = 0;
  /// The keys that begin with `prefix`, in no particular order.
  virtual Result<std::vector<std::string>> List(std::string_view prefix, Deadline deadline) = 0;
};

/// A board in this process's memory: for ranks that are threads, and for tests.
FLAGSTONE_EXPORT std::shared_ptr<Coordinator> MakeInProcessCoordinator();

}  // namespace flagstone
