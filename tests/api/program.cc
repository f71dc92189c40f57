// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>

namespace flagstone::tests {
namespace {

namespace fs = std::filesystem;

// Files in memory instead of pipes: nobody has to read while the program writes.
std::string Content(int descriptor) {
  std::string content;
  char buffer[4096];
  lseek(descriptor, 0, SEEK_SET);
  for (ssize_t count; (count = read(descriptor, buffer, sizeof(buffer))) > 0;) {
    content.append(buffer, static_cast<size_t>(count));
  }
  return content;
}

}  // namespace

nlohmann::json ProgramResult::Json() const {
  const bool one_line = std::count(out.begin(), out.end(), '\n') == 1 && out.back() == '\n';
  EXPECT_TRUE(one_line) << "not one line: " << out;
  auto json = nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << "no JSON object: " << out;
  return json.is_object() ? json : nlohmann::json(nullptr);
}

Program::Program(const std::vector<std::string>& arguments)
    : out_(memfd_create("stdout", MFD_CLOEXEC)), err_(memfd_create("stderr", MFD_CLOEXEC)) {
  std::vector<std::string> words = {FLAGSTONE_CLI};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err_, STDERR_FILENO);
  const int error = posix_spawn(&pid_, FLAGSTONE_CLI, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return;
  ADD_FAILURE() << FLAGSTONE_CLI << " cannot be started: error " << error;
  ended_ = true;
  status_ = 127 << 8;
}

Program::~Program() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  close(out_);
  close(err_);
}

bool Program::Running() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}

ProgramResult Program::Wait() {
  if (!ended_) ended_ = waitpid(pid_, &status_, 0) == pid_;
  const int code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  return {.exit_code = code, .out = Content(out_), .err = Content(err_)};
}

ProgramResult RunProgram(const std::vector<std::string>& arguments) {
  return Program(arguments).Wait();
}

ScratchDirectory::ScratchDirectory() {
  std::string name = (fs::temp_directory_path() / "flagstone-cli.XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr) << name;
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  // A directory that may not be searched hides what is in it, so modes first, from the top down.
  fs::permissions(path_, fs::perms::owner_all, ignored);
  for (auto entry = fs::recursive_directory_iterator(path_, ignored);
       entry != fs::recursive_directory_iterator(); entry.increment(ignored)) {
    if (entry->is_directory(ignored)) fs::permissions(*entry, fs::perms::owner_all, ignored);
  }
  fs::remove_all(path_, ignored);
}

std::map<std::string, std::string> Snapshot(const fs::path& directory) {
  std::map<std::string, std::string> entries;
  std::error_code ignored;
  const auto options = fs::directory_options::skip_permission_denied;
  for (const auto& entry : fs::recursive_directory_iterator(directory, options, ignored)) {
    const fs::file_status status = entry.symlink_status();
    std::string what = std::to_string(static_cast<int>(status.type())) + " " +
                       std::to_string(static_cast<unsigned>(status.permissions())) + " ";
    if (fs::is_regular_file(status)) what += ReadFile(entry.path());
    if (fs::is_symlink(status)) what += fs::read_symlink(entry.path()).string();
    entries[entry.path().lexically_relative(directory).string()] = what;
  }
  return entries;
}

std::string ReadFile(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void WriteFile(const fs::path& file, std::string_view content) {
  std::ofstream stream(file, std::ios::binary | std::ios::trunc);
  stream.write(content.data(), static_cast<std::streamsize>(content.size()));
  EXPECT_TRUE(stream.good()) << file;
}

size_t OpenDescriptors() {
  const auto entries = fs::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(fs::begin(entries), fs::end(entries)));
}

}  // namespace flagstone::tests
