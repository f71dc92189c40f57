// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The seam: every file-system operation of the library goes through a FileSystem. The posix one is
/// the real one; tests wrap it (faults) or replace it (in memory, simulated device).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "flagstone/status.h"

namespace flagstone::io {

/// What a path or an open file is.
struct FileInfo {
  enum class Type : uint8_t { kFile, kDirectory, kOther };
  Type type = Type::kFile;
  uint64_t size = 0;
  uint64_t device = 0;  ///< With `inode`: identity.
  uint64_t inode = 0;
  uint32_t mode = 0;  ///< Permission bits.
  int64_t modified_ns =
      0;  ///< Last change of the content by the file system's clock, nanoseconds since 1970.
};

/// Alignment that direct I/O demands (statx STATX_DIOALIGN), 4096 where the kernel does not say.
struct DirectAlignment {
  uint64_t memory = 4096;
  uint64_t offset = 4096;
};

/// What sort of file system holds a file, as far as choosing a backend needs it (statfs f_type).
enum class FileSystemKind : uint8_t { kLocal, kMemory, kNetwork };

struct OpenOptions {
  enum class Mode : uint8_t {
    kRead,
    kReadWrite,
    kCreate,           ///< Read and write; made if absent, kept if there.
    kCreateExclusive,  ///< Read and write; kAlreadyExists if there.
  };
  Mode mode = Mode::kRead;
  bool direct = false;  ///< O_DIRECT. kUnsupported where refused.
};

/// A read-only mapping of a range of a file. Unmaps itself; outlives the File.
class Mapping {
 public:
  virtual ~Mapping() = default;
  /// Exactly the range that was asked for.
  virtual std::span<const std::byte> bytes() const = 0;
  /// Give the range's resident pages back (MADV_DONTNEED); they can be read again.
  virtual void Release(uint64_t offset, uint64_t size) = 0;
  /// Bring the range's pages in now (MADV_POPULATE_READ), so that a read that fails is kIoError
  /// here and not SIGBUS at the first touch. Ok where that cannot be done ahead: then the touch
  /// itself reads.
  virtual Status Populate(uint64_t /*offset*/, uint64_t /*size*/) { return Status(); }
};

/// An open file. Thread-safe. Destroying it closes it and reports nothing: Sync first where it
/// matters.
class File {
 public:
  virtual ~File() = default;
  virtual const std::filesystem::path& path() const = 0;
  /// One pread: may be short, 0 at the end. EINTR is retried.
  virtual Result<uint64_t> ReadAt(uint64_t offset, std::span<std::byte> out) = 0;
  /// One pwrite: may be short. EINTR is retried.
  virtual Result<uint64_t> WriteAt(uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual Status Sync() = 0;
  virtual Result<FileInfo> Info() = 0;
  /// Reserve space for [0, size) and set the length (fallocate). Where the file system cannot
  /// reserve, the length alone is set. Errors: kResourceExhausted on a full disk, before a byte is
  /// written.
  virtual Status Allocate(uint64_t size) = 0;
  virtual Status Truncate(uint64_t size) = 0;
  /// Set the permission bits. Ok where the file system has none.
  virtual Status SetMode(uint32_t /*mode*/) { return Status(); }
  /// Map [offset, offset + size), any offset; size > 0 and inside the file.
  virtual Result<std::shared_ptr<Mapping>> Map(uint64_t offset, uint64_t size) = 0;
  virtual DirectAlignment direct_alignment() const = 0;
  virtual FileSystemKind kind() const = 0;
  /// Drop clean cached pages of a range (POSIX_FADV_DONTNEED); a hint.
  virtual void DropCache(uint64_t offset, uint64_t size) = 0;
  /// Whether a page is in the page cache, without reading it (cachestat, else an RWF_NOWAIT probe);
  /// nullopt where that cannot be told.
  virtual std::optional<bool> IsResident(uint64_t offset) = 0;
  /// The descriptor for the ring, or -1 where there is none (simulated files).
  virtual int descriptor() const = 0;
};

class IoQueue;

/// How IoQueue moves bytes; the four backends of flagstone/backend.h without auto, the descriptor's
/// O_DIRECT apart.
enum class QueueKind : uint8_t { kUring, kThreads };

/// A directory tree. Thread-safe. Paths in errors are as given.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> Open(const std::filesystem::path& path,
                                             const OpenOptions& options) = 0;
  virtual Result<FileInfo> Stat(const std::filesystem::path& path) = 0;
  /// Names in a directory, without "." and "..", in no particular order.
  virtual Result<std::vector<std::string>> List(const std::filesystem::path& directory) = 0;
  /// One level. kAlreadyExists if there.
  virtual Status MakeDirectory(const std::filesystem::path& path) = 0;
  virtual Status RemoveDirectory(const std::filesystem::path& path) = 0;
  virtual Status Unlink(const std::filesystem::path& path) = 0;
  virtual Status Rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// kAlreadyExists if `to` is there. kUnsupported where the file system has no RENAME_NOREPLACE.
  virtual Status RenameNoReplace(const std::filesystem::path& from,
                                 const std::filesystem::path& to) = 0;
  /// A second name; kAlreadyExists if `to` is there; kUnsupported where links are refused.
  virtual Status Link(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  virtual Status SyncDirectory(const std::filesystem::path& path) = 0;
  /// A queue of batched reads and writes with `depth` places. kUnsupported names why (io_uring
  /// refused: EPERM, ENOSYS, a missing opcode, the locked-memory limit with its current value).
  virtual Result<std::unique_ptr<IoQueue>> MakeQueue(QueueKind kind, uint32_t depth) = 0;
};

/// The real one. Lives as long as the program.
FileSystem& PosixFileSystem();

/// Read or write the whole range, short transfers continued. Reading past the end is kCorruption
/// "truncated" with the length that was there and the one needed.
Status ReadFully(File& file, uint64_t offset, std::span<std::byte> out);
Status WriteFully(File& file, uint64_t offset, std::span<const std::byte> bytes);

}  // namespace flagstone::io
