// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The real File: one descriptor. Made by PosixFileSystem alone.

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "flagstone/status.h"
#include "io/file_system.h"

struct stat;

namespace flagstone::io {

/// Owns a descriptor; closes it once. EINTR at close is not retried: on Linux the descriptor is
/// gone all the same, and its number may be another thread's by then.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

/// open() with O_CLOEXEC, EINTR retried; -1 and errno on failure.
Descriptor OpenDescriptor(const std::filesystem::path& path, int flags, unsigned mode = 0);

bool WasInterrupted();

/// Call a system call wrapper again for as long as it fails with EINTR.
template <typename Call>
auto RetryInterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != -1 || !WasInterrupted()) return result;
  }
}

FileInfo InfoOf(const struct stat& status);

class PosixFile final : public File {
 public:
  /// Takes an open regular file.
  PosixFile(std::filesystem::path path, Descriptor fd, bool direct, DirectAlignment alignment,
            FileSystemKind kind)
      : path_(std::move(path)),
        fd_(std::move(fd)),
        direct_(direct),
        alignment_(alignment),
        kind_(kind) {}

  const std::filesystem::path& path() const override { return path_; }
  Result<uint64_t> ReadAt(uint64_t offset, std::span<std::byte> out) override;
  Result<uint64_t> WriteAt(uint64_t offset, std::span<const std::byte> bytes) override;
  Status Sync() override;
  Result<FileInfo> Info() override;
  Status Allocate(uint64_t size) override;
  Status Truncate(uint64_t size) override;
  Status SetMode(uint32_t mode) override;
  Result<std::shared_ptr<Mapping>> Map(uint64_t offset, uint64_t size) override;
  DirectAlignment direct_alignment() const override { return alignment_; }
  FileSystemKind kind() const override { return kind_; }
  void DropCache(uint64_t offset, uint64_t size) override;
  std::optional<bool> IsResident(uint64_t offset) override;
  int descriptor() const override { return fd_.get(); }

 private:
  const std::filesystem::path path_;
  const Descriptor fd_;
  const bool direct_;
  const DirectAlignment alignment_;
  const FileSystemKind kind_;
};

/// Largest transfer of one call: the kernel cuts at 2 GiB less one page, and so would break direct
/// I/O's alignment if the machine's page were larger than 4 KiB.
inline constexpr uint64_t kMaxTransfer = uint64_t{1} << 30;

}  // namespace flagstone::io
