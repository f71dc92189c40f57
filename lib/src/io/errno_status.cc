// SPDX-License-Identifier: Apache-2.0
#include "io/errno_status.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace flagstone::io {

std::string ErrnoText(int error) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 32))
  // Constant strings in no locale: strerror's buffer may be another thread's by the time it is
  // read.
  const char* description = strerrordesc_np(error);
  const char* name = strerrorname_np(error);
  if (description != nullptr && name != nullptr) {
    return base::Join(std::string_view(description), " (", std::string_view(name), ")");
  }
  return base::Join("errno ", error);
#else
  return base::Join(std::string_view(std::strerror(error)), " (errno ", error, ")");
#endif
}

StatusCode ErrnoCode(int error) {
  switch (error) {
    case ENOENT:  // not ESTALE: a handle that a file server forgot does not prove that the file is
                  // gone
      return StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EMLINK:
    case ENOLCK:
      return StatusCode::kResourceExhausted;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case EXDEV:
      return StatusCode::kInvalidArgument;
    case EINVAL:
    case EOPNOTSUPP:
    case ENOSYS:
      return StatusCode::kUnsupported;
    default:
      return StatusCode::kIoError;
  }
}

namespace {

std::string Hint(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return base::Join("; permission denied to this process, effective uid ", geteuid(), ", gid ",
                        getegid());
    case EMFILE: {
      rlimit limit{};
      if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
      return base::Join("; this process may have ", limit.rlim_cur, " open files (ulimit -n)");
    }
    case EDQUOT:
      return "; the user's or the group's quota is used up";
    case ESTALE:
      return "; another client of the network file system removed the file, or the server was "
             "replaced";
    default:
      return {};
  }
}

}  // namespace

Status ErrnoStatus(int error, std::string_view operation, const std::filesystem::path& path,
                   std::string_view detail, std::optional<uint64_t> offset) {
  ErrorPlace place;
  place.path = path.native();
  place.offset = offset;
  return Status(ErrnoCode(error),
                base::Join("cannot ", operation, " ", base::Quote(path.native()), detail, ": ",
                           ErrnoText(error), Hint(error)),
                std::move(place));
}

Status TransferErrno(int error, std::string_view operation, const std::filesystem::path& path,
                     uint64_t offset, uint64_t size) {
  return ErrnoStatus(error, operation, path, base::Join(": ", size, " bytes at offset ", offset),
                     offset);
}

Status TruncatedStatus(const std::filesystem::path& path, uint64_t have, uint64_t need) {
  ErrorPlace place;
  place.path = path.native();
  place.offset = have;
  return Status(StatusCode::kCorruption,
                base::Join("truncated: ", base::Quote(path.native()), ": have ", have, " need ",
                           need, " bytes"),
                std::move(place));
}

}  // namespace flagstone::io
