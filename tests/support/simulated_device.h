// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A file system on a device that is only arithmetic: a fixed latency, a fixed bandwidth and a
/// clock that moves when somebody waits. What a pipeline reaches on it is its own doing, free of a
/// real disk's noise.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "io/file_system.h"
#include "io/io_queue.h"

namespace flagstone::testing {

struct DeviceModel {
  /// From the end of a request's transfer to its completion; transfers of other requests go on
  /// meanwhile.
  std::chrono::nanoseconds latency{100'000};
  double bytes_per_second = 2e9;  ///< Transfers share this and follow each other.
  io::DirectAlignment alignment{.memory = 512, .offset = 512};
  std::optional<bool> resident = false;  ///< What a page-cache probe answers.
};

/// Fills `out` with the file's bytes from `offset` on.
using FileContent = std::function<void(uint64_t offset, std::span<std::byte> out)>;

/// For one thread. Files have no descriptor; every queue, whatever its kind, is the device's. A
/// transfer that breaks the alignment of an O_DIRECT file is refused as the kernel would.
class SimulatedDevice final : public io::FileSystem {
 public:
  explicit SimulatedDevice(const DeviceModel& model);
  ~SimulatedDevice() override;

  /// A read-only file of `size` bytes that are computed.
  void AddFile(const std::filesystem::path& path, uint64_t size, FileContent content);
  /// The virtual clock, from 0.
  std::chrono::nanoseconds now() const;
  /// Time that the caller spends with something else: the device goes on meanwhile.
  void Spend(std::chrono::nanoseconds time);
  /// Bytes moved by the device.
  uint64_t moved_bytes() const;
  /// Bytes that files were told to drop from the page cache.
  uint64_t dropped_bytes() const;

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
  const std::shared_ptr<State> state_;
};

}  // namespace flagstone::testing
