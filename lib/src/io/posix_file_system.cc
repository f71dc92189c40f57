// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/macros.h"
#include "base/text.h"
#include "io/errno_status.h"
#include "io/io_queue.h"
#include "io/posix_file.h"
#include "io/thread_queue.h"
#include "io/uring_queue.h"

namespace flagstone::io {
namespace {

using std::filesystem::path;

// Magic numbers of statfs, most of which are in no header.
constexpr std::array<uint32_t, 3> kMemoryFileSystems = {
    0x01021994,  // tmpfs
    0x858458f6,  // ramfs
    0x958458f6,  // hugetlbfs
};
constexpr std::array<uint32_t, 19> kNetworkFileSystems = {
    0x00006969,  // NFS
    0x0000517b,  // SMB
    0xff534d42,  // CIFS
    0xfe534d42,  // SMB2
    0x0bd00bd0,  // Lustre
    0x47504653,  // GPFS
    0x65735546,  // FUSE: whatever is behind it
    0x01021997,  // 9p
    0x00c36400,  // Ceph
    0x5346414f,  // AFS
    0x6b414653,  // kAFS
    0x73757245,  // Coda
    0x7461636f,  // OCFS2
    0x01161970,  // GFS2
    0x19830326,  // BeeGFS
    0xaad7aaea,  // PanFS
    0x18031977,  // WekaFS
    0x20030528,  // OrangeFS
    0x786f4256,  // VirtualBox shared folders
};

FileSystemKind KindOf(int fd) {
  struct statfs status {};
  if (RetryInterrupted([&] { return fstatfs(fd, &status); }) != 0) return FileSystemKind::kLocal;
  const auto magic = static_cast<uint32_t>(status.f_type);
  for (const uint32_t memory : kMemoryFileSystems) {
    if (magic == memory) return FileSystemKind::kMemory;
  }
  for (const uint32_t network : kNetworkFileSystems) {
    if (magic == network) return FileSystemKind::kNetwork;
  }
  return FileSystemKind::kLocal;
}

// The kernel's struct statx by its stable layout, as the C library's may be older than the fields
// for direct I/O.
struct StatxBuffer {
  uint32_t mask;
  std::array<std::byte, 148> others;
  uint32_t direct_memory_alignment;  // At byte 152.
  uint32_t direct_offset_alignment;
  std::array<std::byte, 96> rest;
};
static_assert(sizeof(StatxBuffer) == 256 && offsetof(StatxBuffer, direct_memory_alignment) == 152);

// What statx says about direct I/O: nullopt when the kernel (before 6.1) or the file system does
// not say.
std::optional<DirectAlignment> StatedAlignment(int fd) {
  constexpr unsigned kDirectAlignment = 0x2000U;  // STATX_DIOALIGN
  StatxBuffer buffer{};
  if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, kDirectAlignment, &buffer) != 0) {
    return std::nullopt;
  }
  if ((buffer.mask & kDirectAlignment) == 0) return std::nullopt;
  return DirectAlignment{.memory = buffer.direct_memory_alignment,
                         .offset = buffer.direct_offset_alignment};
}

int FlagsOf(const OpenOptions& options) {
  int flags = 0;
  switch (options.mode) {
    case OpenOptions::Mode::kRead:
      flags = O_RDONLY;
      break;
    case OpenOptions::Mode::kReadWrite:
      flags = O_RDWR;
      break;
    case OpenOptions::Mode::kCreate:
      flags = O_RDWR | O_CREAT;
      break;
    case OpenOptions::Mode::kCreateExclusive:
      flags = O_RDWR | O_CREAT | O_EXCL;
      break;
  }
  return options.direct ? flags | O_DIRECT : flags;
}

Status NotAFile(const path& name, const FileInfo& info) {
  ErrorPlace place;
  place.path = name.native();
  return Status(
      StatusCode::kInvalidArgument,
      base::Join("cannot open ", base::Quote(name.native()), ": it is ",
                 info.type == FileInfo::Type::kDirectory ? "a directory" : "not a regular file"),
      std::move(place));
}

Status DirectRefused(const path& name, std::string_view why) {
  ErrorPlace place;
  place.path = name.native();
  return Status(
      StatusCode::kUnsupported,
      base::Join("direct I/O (O_DIRECT) on ", base::Quote(name.native()), " is refused: ", why),
      std::move(place));
}

class PosixFileSystemImpl final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> Open(const path& name, const OpenOptions& options) override {
    // O_NONBLOCK, or a FIFO put in a file's place would hold the open for ever. Creation has mode
    // 0666, less the umask: who may read a checkpoint is the user's choice.
    Descriptor fd = OpenDescriptor(name, FlagsOf(options) | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd.get() < 0) {
      if (options.direct && errno == EINVAL) return DirectRefused(name, ErrnoText(EINVAL));
      return ErrnoStatus(errno, "open", name);
    }
    struct stat status {};
    if (fstat(fd.get(), &status) != 0) return ErrnoStatus(errno, "stat", name);
    const FileInfo info = InfoOf(status);
    if (info.type != FileInfo::Type::kFile) return NotAFile(name, info);
    // io_uring would take O_NONBLOCK to mean that nothing may wait.
    const int flags = fcntl(fd.get(), F_GETFL);
    if (flags < 0 || fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
      return ErrnoStatus(errno, "set the flags of", name);
    }
    const auto alignment = StatedAlignment(fd.get());
    if (options.direct && alignment && (alignment->memory == 0 || alignment->offset == 0)) {
      return DirectRefused(name, "statx says that this file has none");
    }
    const bool stated = alignment && alignment->memory != 0 && alignment->offset != 0;
    const FileSystemKind kind = KindOf(fd.get());
    return std::unique_ptr<File>(std::make_unique<PosixFile>(
        name, std::move(fd), options.direct, stated ? *alignment : DirectAlignment{}, kind));
  }

  Result<FileInfo> Stat(const path& name) override {
    struct stat status {};
    if (RetryInterrupted([&] { return stat(name.c_str(), &status); }) != 0) {
      return ErrnoStatus(errno, "stat", name);
    }
    return InfoOf(status);
  }

  Result<std::vector<std::string>> List(const path& directory) override;

  Status MakeDirectory(const path& name) override {
    if (mkdir(name.c_str(), 0777) == 0) return Status();
    return ErrnoStatus(errno, "make the directory", name);
  }

  Status RemoveDirectory(const path& name) override {
    if (rmdir(name.c_str()) == 0) return Status();
    return ErrnoStatus(errno, "remove the directory", name);
  }

  Status Unlink(const path& name) override {
    if (unlink(name.c_str()) == 0) return Status();
    return ErrnoStatus(errno, "remove", name);
  }

  Status Rename(const path& from, const path& to) override {
    if (rename(from.c_str(), to.c_str()) == 0) return Status();
    return ErrnoStatus(errno, "rename", from, base::Join(" to ", base::Quote(to.native())));
  }

  Status RenameNoReplace(const path& from, const path& to) override {
    constexpr unsigned kNoReplace = 1U;  // RENAME_NOREPLACE
    if (syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), kNoReplace) == 0) {
      return Status();
    }
    return ErrnoStatus(errno, "rename without replacing", from,
                       base::Join(" to ", base::Quote(to.native())));
  }

  Status Link(const path& from, const path& to) override {
    if (link(from.c_str(), to.c_str()) == 0) return Status();
    const int error = errno;
    const Status failure =
        ErrnoStatus(error, "link", from, base::Join(" to ", base::Quote(to.native())));
    // EPERM is what a file system without links says, and what Linux says where they are restricted
    // to owners.
    if (error != EPERM && error != EMLINK) return failure;
    return Status(StatusCode::kUnsupported, failure.message(), failure.place());
  }

  Status SyncDirectory(const path& name) override {
    const Descriptor fd = OpenDescriptor(name, O_RDONLY | O_DIRECTORY);
    if (fd.get() < 0) return ErrnoStatus(errno, "open", name);
    if (RetryInterrupted([&] { return fsync(fd.get()); }) == 0) return Status();
    // A file system that syncs no directories (some over networks) has no stronger promise to give.
    if (errno == EINVAL || errno == EOPNOTSUPP) return Status();
    return ErrnoStatus(errno, "sync the directory", name);
  }

  Result<std::unique_ptr<IoQueue>> MakeQueue(QueueKind kind, uint32_t depth) override {
    return kind == QueueKind::kUring ? MakeUringQueue(depth) : MakeThreadQueue(depth);
  }
};

Result<std::vector<std::string>> PosixFileSystemImpl::List(const path& directory) {
  struct Closer {
    void operator()(DIR* stream) const { closedir(stream); }
  };
  // opendir sets O_CLOEXEC.
  const std::unique_ptr<DIR, Closer> stream(opendir(directory.c_str()));
  if (stream == nullptr) return ErrnoStatus(errno, "list", directory);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return ErrnoStatus(errno, "list", directory);
  return names;
}

}  // namespace

FileSystem& PosixFileSystem() {
  static PosixFileSystemImpl file_system;
  return file_system;
}

Status ReadFully(File& file, uint64_t offset, std::span<std::byte> out) {
  uint64_t done = 0;
  while (done < out.size()) {
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t moved, file.ReadAt(offset + done, out.subspan(done)));
    if (moved == 0) {
      // The end may lie far before what was asked for.
      const auto info = file.Info();
      const uint64_t have = info.ok() ? std::min(info->size, offset + done) : offset + done;
      return TruncatedStatus(file.path(), have, offset + out.size());
    }
    done += moved;
  }
  return Status();
}

Status WriteFully(File& file, uint64_t offset, std::span<const std::byte> bytes) {
  uint64_t done = 0;
  while (done < bytes.size()) {
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t moved,
                               file.WriteAt(offset + done, bytes.subspan(done)));
    if (moved == 0) {
      return TransferErrno(EIO, "write (0 bytes were taken)", file.path(), offset + done,
                           bytes.size() - done);
    }
    done += moved;
  }
  return Status();
}

}  // namespace flagstone::io
