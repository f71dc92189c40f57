// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A file system around another one that makes operations fail, cuts transfers short and calls back
/// before every operation, so that each way in which a system can refuse is tested on any machine.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "io/file_system.h"
#include "io/io_queue.h"

namespace flagstone::testing {

enum class Operation : uint8_t {
  kOpen,        ///< Buffered.
  kOpenDirect,  ///< With O_DIRECT.
  kRead,        ///< By a file or a queue.
  kWrite,
  kSync,
  kInfo,
  kAllocate,
  kTruncate,
  kMap,
  kStat,
  kList,
  kMakeDirectory,
  kRemoveDirectory,
  kUnlink,
  kRename,
  kRenameNoReplace,
  kLink,
  kSyncDirectory,
  kMakeUring,
  kMakeThreads,
};
inline constexpr size_t kOperations = 20;

struct Call {
  Operation operation = Operation::kOpen;
  std::filesystem::path path = {};
  std::filesystem::path second_path = {};  ///< Of renames and links.
  uint64_t offset = 0;
  uint64_t size = 0;
  bool direct = false;  ///< On an O_DIRECT descriptor.
  uint64_t number = 0;  ///< Of its operation, from 1.
  uint64_t step = 0;    ///< Of all operations, from 1.
};

struct Fault {
  int error = 0;  ///< An errno: the operation fails with it and does nothing.
  /// Reads and writes: no more than so many bytes are reported. They may all have been moved.
  std::optional<uint64_t> at_most = {};
};

/// Decides what happens to a call: nullopt leaves it alone. May also do something itself (stop the
/// process, change a file). Called from the thread that makes the call, one call at a time.
using FaultRule = std::function<std::optional<Fault>(const Call&)>;

/// Thread-safe. Rules are asked in the order in which they were added; the first fault counts.
class FaultFileSystem final : public io::FileSystem {
 public:
  explicit FaultFileSystem(io::FileSystem& inner);
  ~FaultFileSystem() override;

  void Add(FaultRule rule);
  /// The calls number `first` to `first + count - 1` of `operation` fail.
  void Fail(Operation operation, int error, uint64_t first = 1, uint64_t count = UINT64_MAX);
  /// Transfers that touch [begin, end) of a file fail.
  void FailRange(Operation operation, const std::filesystem::path& path, uint64_t begin,
                 uint64_t end, int error);
  void Clear();
  uint64_t calls(Operation operation) const;
  uint64_t steps() const;

  Result<std::unique_ptr<io::File>> Open(const std::filesystem::path& path,
                                         const io::OpenOptions& options) override;
  Result<io::FileInfo> Stat(const std::filesystem::path& path) override;
  Result<std::vector<std::string>> List(const std::filesystem::path& directory) override;
  Status MakeDirectory(const std::filesystem::path& path) override;
  Status RemoveDirectory(const std::filesystem::path& path) override;
  Status Unlink(const std::filesystem::path& path) override;
  Status Rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status RenameNoReplace(const std::filesystem::path& from,
                         const std::filesystem::path& to) override;
  Status Link(const std::filesystem::path& from, const std::filesystem::path& to) override;
  Status SyncDirectory(const std::filesystem::path& path) override;
  Result<std::unique_ptr<io::IoQueue>> MakeQueue(io::QueueKind kind, uint32_t depth) override;

  class State;

 private:
  io::FileSystem& inner_;
  const std::shared_ptr<State> state_;
};

}  // namespace flagstone::testing
