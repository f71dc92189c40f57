// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Who a process is, and whether it still lives: what the commit protocol needs to tell a dead
/// owner from a slow one.

#include <cstdint>
#include <string>

namespace flagstone::io {

/// Names one process for good: a pid is used again, a pid with its start time in one boot is not.
struct ProcessIdentity {
  std::string host;
  std::string machine;  ///< /etc/machine-id: hosts of one name ("localhost") are not one machine.
  std::string boot_id;  ///< /proc/sys/kernel/random/boot_id
  uint64_t pid_namespace = 0;  ///< Inode of /proc/self/ns/pid.
  int64_t pid = 0;
  uint64_t start_time = 0;  ///< Field 22 of /proc/<pid>/stat, in clock ticks since boot.

  bool operator==(const ProcessIdentity&) const = default;
};

enum class Liveness : uint8_t { kAlive, kDead, kUnknown };

/// Thread-safe.
class ProcessTable {
 public:
  virtual ~ProcessTable() = default;
  virtual ProcessIdentity Self() = 0;
  /// kDead is proof: another boot of the same machine, or no such process (or another start time)
  /// in the same boot and pid namespace. A process elsewhere is kUnknown.
  virtual Liveness StateOf(const ProcessIdentity& process) = 0;
};

/// The real one. Lives as long as the program.
ProcessTable& SystemProcesses();

/// Hexadecimal digits of `bytes` random bytes (getrandom).
std::string RandomHex(uint32_t bytes);

}  // namespace flagstone::io
