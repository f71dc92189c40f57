// SPDX-License-Identifier: Apache-2.0
#include "io/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <span>
#include <vector>

#include "base/text.h"

namespace flagstone::io {
namespace {

// A small file of /proc whole, or "" where it cannot be read.
std::string ReadProcFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  std::string out;
  std::array<char, 1024> piece;
  for (;;) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    out.append(piece.data(), static_cast<size_t>(got));
  }
  ::close(fd);
  return out;
}

std::string FirstLine(std::string text) {
  const size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end);
}

struct StatFields {
  char state = 0;
  uint64_t start_time = 0;
};

// The state (field 3) and start time (field 22) of /proc/<pid>/stat; {} where there is none. The
// command name (field 2) is in parentheses and may contain anything, so fields are counted from the
// last ')'.
StatFields ReadStat(int64_t pid) {
  const std::string text = ReadProcFile(base::Join("/proc/", pid, "/stat"));
  size_t at = text.rfind(')');
  if (at == std::string::npos || at + 2 >= text.size()) return {};
  at += 2;
  StatFields fields;
  fields.state = text[at];
  for (int field = 3; field < 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return {};
    ++at;
  }
  std::from_chars(text.data() + at, text.data() + text.size(), fields.start_time);
  return fields;
}

// What is the same for this process and every child that it forks.
ProcessIdentity ReadMachineIdentity() {
  ProcessIdentity identity;
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) identity.host = host.data();
  identity.machine = FirstLine(ReadProcFile("/etc/machine-id"));
  identity.boot_id = FirstLine(ReadProcFile("/proc/sys/kernel/random/boot_id"));
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) == 0) identity.pid_namespace = info.st_ino;
  return identity;
}

class LinuxProcesses final : public ProcessTable {
 public:
  LinuxProcesses() : here_(ReadMachineIdentity()) {}

  ProcessIdentity Self() override {
    ProcessIdentity self = here_;
    self.pid = ::getpid();  // not kept: a forked child is another process
    self.start_time = ReadStat(self.pid).start_time;
    return self;
  }

  Liveness StateOf(const ProcessIdentity& process) override {
    if (process.boot_id.empty() || here_.boot_id.empty()) return Liveness::kUnknown;
    if (process.boot_id != here_.boot_id) {
      // Containers on many nodes may have one host name, and no machine id.
      const bool same_machine =
          !here_.machine.empty() && process.host == here_.host && process.machine == here_.machine;
      return same_machine ? Liveness::kDead : Liveness::kUnknown;
    }
    if (process.pid_namespace != here_.pid_namespace || process.pid <= 0) return Liveness::kUnknown;
    if (::kill(static_cast<pid_t>(process.pid), 0) != 0 && errno == ESRCH) return Liveness::kDead;
    const StatFields stat = ReadStat(process.pid);
    if (stat.state == 0)
      return Liveness::kUnknown;  // gone between the two looks, or /proc is hidden
    if (stat.start_time != process.start_time) return Liveness::kDead;
    // A zombie runs no more code; only its parent has not looked yet.
    return stat.state == 'Z' || stat.state == 'X' ? Liveness::kDead : Liveness::kAlive;
  }

 private:
  const ProcessIdentity here_;
};

}  // namespace

ProcessTable& SystemProcesses() {
  static LinuxProcesses processes;
  return processes;
}

std::string RandomHex(uint32_t bytes) {
  std::vector<std::byte> random(bytes);
  size_t filled = 0;
  while (filled < random.size()) {
    const ssize_t got = ::getrandom(random.data() + filled, random.size() - filled, 0);
    if (got > 0)
      filled +=
          static_cast<size_t>(got);  // EINTR alone can fail: the size is small, the flags are 0
  }
  return base::Hex(random);
}

}  // namespace flagstone::io
