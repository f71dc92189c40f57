// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What every command prints alike: its result, its failure, and the exit code of both.

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "flagstone/status.h"

namespace flagstone::tools {

enum ExitCode : int { kDone = 0, kProblem = 1, kUsage = 2 };

/// Prints for one command. Thread-safe.
class Output {
 public:
  Output(std::string command, bool json) : command_(std::move(command)), json_(json) {}

  bool json() const { return json_; }
  /// The object of --json, on one line.
  void Print(const nlohmann::ordered_json& object) const;
  /// One line on stderr, and with --json the error object on stdout.
  ExitCode Fail(const Status& status) const;
  ExitCode Usage(std::string_view message) const;
  /// One line on stderr: something to know that changes neither result nor exit code.
  void Note(std::string_view message) const;
  /// As Fail, for another thread while the command runs; stdout is left alone when the result is
  /// already being printed.
  void FailFromOutside(const Status& status) const;

  /// Written out, or the exit code that says it was not. To be called last.
  ExitCode Finish(ExitCode code) const;

 private:
  void PrintLine(std::string_view message) const;
  void PrintError(const Status& status) const;

  std::string command_;
  bool json_;
  mutable std::mutex stdout_mutex_;
};

}  // namespace flagstone::tools
