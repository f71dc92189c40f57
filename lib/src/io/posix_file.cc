// SPDX-License-Identifier: Apache-2.0
#include "io/posix_file.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "io/errno_status.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22  // Linux 5.14
#endif
#ifndef SYS_cachestat
#define SYS_cachestat 451  // Linux 6.5; the number is the same on every architecture.
#endif

namespace flagstone::io {
namespace {

// Some network file systems answer a blocking call with EAGAIN. So often in a row nothing will come
// of it.
constexpr int kAgainLimit = 1000;

uint64_t PageSize() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

class PosixMapping final : public Mapping {
 public:
  PosixMapping(std::filesystem::path path, uint64_t file_offset, std::span<std::byte> pages,
               std::span<const std::byte> bytes)
      : path_(std::move(path)), file_offset_(file_offset), pages_(pages), bytes_(bytes) {}
  PosixMapping(const PosixMapping&) = delete;
  PosixMapping& operator=(const PosixMapping&) = delete;
  ~PosixMapping() override { munmap(pages_.data(), pages_.size()); }

  std::span<const std::byte> bytes() const override { return bytes_; }

  void Release(uint64_t offset, uint64_t size) override {
    const auto pages = PagesOf(offset, size);
    if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
  }

  Status Populate(uint64_t offset, uint64_t size) override {
    const auto pages = PagesOf(offset, size);
    if (pages.empty()) return Status();
    if (RetryInterrupted([&] { return madvise(pages.data(), pages.size(), MADV_POPULATE_READ); }) ==
        0) {
      return Status();
    }
    // EFAULT stands for the SIGBUS that a touch would have raised; EINVAL is a kernel without the
    // call.
    if (errno == EINVAL || errno == ENOSYS || errno == EAGAIN) return Status();
    return TransferErrno(errno == EFAULT ? EIO : errno, "read the mapping of", path_,
                         file_offset_ + offset, size);
  }

 private:
  // The pages that hold a range of bytes(); empty when the range is not inside.
  std::span<std::byte> PagesOf(uint64_t offset, uint64_t size) const {
    if (size == 0 || !base::InBounds(offset, size, bytes_.size())) return {};
    const auto head = static_cast<uint64_t>(bytes_.data() - pages_.data());
    const uint64_t begin = base::AlignDown(head + offset, PageSize());
    const uint64_t end =
        std::min<uint64_t>(base::AlignUp(head + offset + size, PageSize()), pages_.size());
    return pages_.subspan(begin, end - begin);
  }

  const std::filesystem::path path_;
  const uint64_t file_offset_;
  const std::span<std::byte> pages_;
  const std::span<const std::byte> bytes_;
};

// One transfer of at most kMaxTransfer bytes, with EINTR and a bounded number of EAGAIN retried.
template <typename Call>
ssize_t Transfer(const Call& call) {
  for (int again = 0;; ++again) {
    const ssize_t moved = RetryInterrupted(call);
    if (moved >= 0 || errno != EAGAIN || again == kAgainLimit) return moved;
    sched_yield();
  }
}

Status CheckOffset(const std::filesystem::path& path, uint64_t offset, uint64_t size) {
  constexpr uint64_t kLimit = uint64_t{1} << 63;  // off_t
  if (base::InBounds(offset, size, kLimit)) return Status();
  return TransferErrno(EFBIG, "address", path, offset, size);
}

// Cached pages of a range by cachestat, which has no side effect; nullopt where it is missing or
// refused (it needs the owner or write permission).
std::optional<uint64_t> CachedPages(int fd, uint64_t offset, uint64_t size) {
  struct {
    uint64_t offset, size;
  } range = {offset, size};
  struct {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } counts = {};
  if (syscall(SYS_cachestat, fd, &range, &counts, 0U) != 0) return std::nullopt;
  return counts.cached;
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor OpenDescriptor(const std::filesystem::path& path, int flags, unsigned mode) {
  return Descriptor(RetryInterrupted([&] { return open(path.c_str(), flags | O_CLOEXEC, mode); }));
}

bool WasInterrupted() { return errno == EINTR; }

FileInfo InfoOf(const struct stat& status) {
  FileInfo info;
  info.type = S_ISREG(status.st_mode)   ? FileInfo::Type::kFile
              : S_ISDIR(status.st_mode) ? FileInfo::Type::kDirectory
                                        : FileInfo::Type::kOther;
  info.size = static_cast<uint64_t>(status.st_size);
  info.device = status.st_dev;
  info.inode = status.st_ino;
  info.mode = status.st_mode & 07777U;
  info.modified_ns =
      int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + int64_t{status.st_mtim.tv_nsec};
  return info;
}

Result<uint64_t> PosixFile::ReadAt(uint64_t offset, std::span<std::byte> out) {
  FLAGSTONE_RETURN_IF_ERROR(CheckOffset(path_, offset, out.size()));
  const uint64_t size = std::min<uint64_t>(out.size(), kMaxTransfer);
  const ssize_t moved =
      Transfer([&] { return pread(fd_.get(), out.data(), size, static_cast<off_t>(offset)); });
  if (moved < 0) return TransferErrno(errno, "read", path_, offset, size);
  return static_cast<uint64_t>(moved);
}

Result<uint64_t> PosixFile::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  FLAGSTONE_RETURN_IF_ERROR(CheckOffset(path_, offset, bytes.size()));
  const uint64_t size = std::min<uint64_t>(bytes.size(), kMaxTransfer);
  const ssize_t moved =
      Transfer([&] { return pwrite(fd_.get(), bytes.data(), size, static_cast<off_t>(offset)); });
  if (moved < 0) return TransferErrno(errno, "write", path_, offset, size);
  return static_cast<uint64_t>(moved);
}

Status PosixFile::Sync() {
  if (RetryInterrupted([&] { return fsync(fd_.get()); }) == 0) return Status();
  return ErrnoStatus(errno, "sync", path_);
}

Result<FileInfo> PosixFile::Info() {
  struct stat status {};
  if (fstat(fd_.get(), &status) != 0) return ErrnoStatus(errno, "stat", path_);
  return InfoOf(status);
}

Status PosixFile::Allocate(uint64_t size) {
  FLAGSTONE_RETURN_IF_ERROR(CheckOffset(path_, 0, size));
  if (size != 0 &&
      RetryInterrupted([&] { return fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)); }) != 0) {
    // The C library's posix_fallocate is not used: where this is not supported it writes every
    // block instead.
    if (errno != EOPNOTSUPP && errno != ENOSYS) {
      return ErrnoStatus(errno, "reserve space for", path_, base::Join(": ", size, " bytes"));
    }
  }
  return Truncate(size);  // fallocate only lengthens.
}

Status PosixFile::Truncate(uint64_t size) {
  FLAGSTONE_RETURN_IF_ERROR(CheckOffset(path_, 0, size));
  if (RetryInterrupted([&] { return ftruncate(fd_.get(), static_cast<off_t>(size)); }) == 0) {
    return Status();
  }
  return ErrnoStatus(errno, "set the length of", path_, base::Join(" to ", size, " bytes"));
}

Status PosixFile::SetMode(uint32_t mode) {
  if (fchmod(fd_.get(), mode) == 0) return Status();
  return ErrnoStatus(errno, "set the mode of", path_);
}

Result<std::shared_ptr<Mapping>> PosixFile::Map(uint64_t offset, uint64_t size) {
  FLAGSTONE_ASSIGN_OR_RETURN(const FileInfo info, Info());
  if (size == 0) {
    return Status(StatusCode::kInvalidArgument,
                  base::Join("cannot map 0 bytes of ", base::Quote(path_.native())));
  }
  // A page beyond the end is SIGBUS at the first touch, so this is looked at first.
  if (!base::InBounds(offset, size, info.size)) {
    return TruncatedStatus(path_, info.size, base::CheckedAdd(offset, size).value_or(UINT64_MAX));
  }
  const uint64_t begin = base::AlignDown(offset, PageSize());
  const uint64_t length = offset - begin + size;
  // No advice: readahead as for any file, and nothing is read before it is touched. A view may be
  // of everything.
  void* const address =
      mmap(nullptr, length, PROT_READ, MAP_SHARED, fd_.get(), static_cast<off_t>(begin));
  if (address == MAP_FAILED) return TransferErrno(errno, "map", path_, offset, size);
  const std::span<std::byte> pages(static_cast<std::byte*>(address), length);
  return std::shared_ptr<Mapping>(std::make_shared<PosixMapping>(
      path_, offset, pages, std::span<const std::byte>(pages).subspan(offset - begin, size)));
}

void PosixFile::DropCache(uint64_t offset, uint64_t size) {
  if (size == 0) return;  // To the kernel 0 means "to the end".
  posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(size),
                POSIX_FADV_DONTNEED);
}

std::optional<bool> PosixFile::IsResident(uint64_t offset) {
  if (const auto cached = CachedPages(fd_.get(), base::AlignDown(offset, PageSize()), 1)) {
    return *cached != 0;
  }
  // Direct reads pass by the cache and so say nothing about it. A probe of an absent page fails,
  // but makes the kernel begin to read that page: a few of them cost nothing, and only the first
  // answer for a page means anything.
  if (direct_) return std::nullopt;
  char byte = 0;
  const iovec vector = {&byte, 1};
  const ssize_t moved = RetryInterrupted(
      [&] { return preadv2(fd_.get(), &vector, 1, static_cast<off_t>(offset), RWF_NOWAIT); });
  if (moved > 0) return true;
  if (moved < 0 && errno == EAGAIN) return false;
  return std::nullopt;
}

}  // namespace flagstone::io
