// SPDX-License-Identifier: Apache-2.0
#include "flagstone/page_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "io/errno_status.h"
#include "io/posix_file.h"

namespace flagstone {
namespace {

using std::filesystem::path;

// Mapped and asked about at a time: 16384 pages of 4 KiB.
constexpr uint64_t kWindowBytes = uint64_t{64} << 20;
// Pages on their way to the kernel's lists are not dropped by the first call.
constexpr int kDropAttempts = 3;

struct OpenFile {
  io::Descriptor fd;
  uint64_t size = 0;
};

Result<OpenFile> OpenRegular(const path& file) {
  OpenFile open;
  open.fd = io::OpenDescriptor(file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  if (open.fd.get() < 0) return io::ErrnoStatus(errno, "open", file);
  struct stat status {};
  if (fstat(open.fd.get(), &status) != 0) return io::ErrnoStatus(errno, "stat", file);
  if (!S_ISREG(status.st_mode)) {
    return Status(StatusCode::kInvalidArgument,
                  base::Join(base::Quote(file.native()), " is not a regular file"),
                  {.path = file.native(), .segment = {}, .offset = {}});
  }
  // To anybody else mincore says that every page is resident, and so proves nothing.
  const bool owner = status.st_uid == geteuid() || geteuid() == 0;
  if (!owner && faccessat(AT_FDCWD, file.c_str(), W_OK, AT_EACCESS) != 0) {
    return Status(
        StatusCode::kUnsupported,
        base::Join("the page cache of ", base::Quote(file.native()), " is shown to its owner (uid ",
                   status.st_uid, ") alone, and the effective uid is ", geteuid()),
        {.path = file.native(), .segment = {}, .offset = {}});
  }
  open.size = static_cast<uint64_t>(status.st_size);
  return open;
}

Result<uint64_t> CountResident(const path& file, int fd, uint64_t offset, uint64_t size,
                               uint64_t page) {
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return io::TransferErrno(errno, "map", file, offset, size);
  std::vector<unsigned char> pages(base::DivideUp(size, page));
  const int result = mincore(address, size, pages.data());
  const int error = errno;
  munmap(address, size);
  if (result != 0) return io::TransferErrno(error, "ask for cached pages of", file, offset, size);
  return static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(),
                                             [](unsigned char bits) { return (bits & 1) != 0; }));
}

Result<PageCacheInfo> Resident(const path& file, const OpenFile& open) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  PageCacheInfo info;
  info.total_pages = base::DivideUp(open.size, page);
  for (uint64_t at = 0; at < open.size; at += kWindowBytes) {
    FLAGSTONE_ASSIGN_OR_RETURN(
        const uint64_t resident,
        CountResident(file, open.fd.get(), at, std::min(kWindowBytes, open.size - at), page));
    info.resident_pages += resident;
  }
  return info;
}

}  // namespace

Result<PageCacheInfo> ResidentPages(const path& file) {
  FLAGSTONE_ASSIGN_OR_RETURN(const OpenFile open, OpenRegular(file));
  return Resident(file, open);
}

Status DropPageCache(const path& file) {
  FLAGSTONE_ASSIGN_OR_RETURN(const OpenFile open, OpenRegular(file));
  if (io::RetryInterrupted([&] { return fsync(open.fd.get()); }) != 0) {
    return io::ErrnoStatus(errno, "sync", file);
  }
  PageCacheInfo info;
  for (int attempt = 0; attempt < kDropAttempts; ++attempt) {
    posix_fadvise(open.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    FLAGSTONE_ASSIGN_OR_RETURN(info, Resident(file, open));
    if (info.resident_pages == 0) return Status();
  }
  return Status(StatusCode::kUnsupported,
                base::Join(info.resident_pages, " of ", info.total_pages, " pages of ",
                           base::Quote(file.native()),
                           " stay in the page cache: a file system in memory, or another process "
                           "has them mapped"),
                {.path = file.native(), .segment = {}, .offset = {}});
}

}  // namespace flagstone
