// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Runs the flagstone program as a user would, and looks at what it left.

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace flagstone::tests {

struct ProgramResult {
  int exit_code = -1;  ///< 128 + the signal if it was killed by one.
  std::string out;
  std::string err;

  /// The object that --json printed; a test failure and null if `out` is not one line of JSON.
  nlohmann::json Json() const;
};

/// A flagstone process, from its start until it is waited for.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  bool Running();
  ProgramResult Wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

ProgramResult RunProgram(const std::vector<std::string>& arguments);

/// A directory of its own, removed at the end with all that is in it, whatever its modes.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// All that is below a directory: kind, mode and content by relative path. Two that are equal show
/// that nothing was made, changed or removed.
std::map<std::string, std::string> Snapshot(const std::filesystem::path& directory);

std::string ReadFile(const std::filesystem::path& file);
void WriteFile(const std::filesystem::path& file, std::string_view content);

/// Open descriptors of this process.
size_t OpenDescriptors();

}  // namespace flagstone::tests
