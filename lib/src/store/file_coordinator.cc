// SPDX-License-Identifier: Apache-2.0
#include "store/file_coordinator.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/endian.h"
#include "base/macros.h"
#include "base/text.h"
#include "store/names.h"

namespace flagstone::store {
namespace {

using base::Join;

class FileCoordinator final : public Coordinator {
 public:
  FileCoordinator(io::FileSystem& fs, std::filesystem::path directory)
      : fs_(fs), directory_(std::move(directory)) {}

  Status Set(std::string_view key, std::string_view value, Deadline) override {
    if (value.size() > kMaxValueBytes) {
      return Status(StatusCode::kInvalidArgument,
                    Join("board value of ", value.size(), " bytes for key ", base::Quote(key),
                         " exceeds ", kMaxValueBytes, " bytes"));
    }
    FLAGSTONE_ASSIGN_OR_RETURN(auto file,
                               fs_.Open(PathOf(key), {io::OpenOptions::Mode::kCreate, false}));
    return io::WriteFully(*file, 0, FrameValue(value));
  }

  Result<std::string> Get(std::string_view key, Deadline deadline) override {
    // A value whose writer is between two of its bytes is whole in a moment; one that stays torn
    // has a dead writer.
    constexpr auto kTornPatience = std::chrono::milliseconds(50);
    const auto give_up = std::min(deadline, std::chrono::steady_clock::now() + kTornPatience);
    for (;;) {
      FLAGSTONE_ASSIGN_OR_RETURN(const std::string bytes,
                                 ReadSmallFile(fs_, PathOf(key), kFrameBytes + kMaxValueBytes));
      if (auto value = UnframeValue(bytes)) return *std::move(value);
      if (std::chrono::steady_clock::now() >= give_up) {
        return Status(StatusCode::kNotFound,
                      Join("board key ", base::Quote(key), " is half-written"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Status Delete(std::string_view key, Deadline) override {
    Status status = fs_.Unlink(PathOf(key));
    return status.code() == StatusCode::kNotFound ? Status() : status;
  }

  Result<std::vector<std::string>> List(std::string_view prefix, Deadline) override {
    FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_.List(directory_));
    std::vector<std::string> keys;
    for (const std::string& name : names) {
      if (!name.starts_with(kKeyPrefix)) continue;
      std::string key = name.substr(kKeyPrefix.size());
      if (key.starts_with(prefix)) keys.push_back(std::move(key));
    }
    return keys;
  }

 private:
  std::filesystem::path PathOf(std::string_view key) const {
    return directory_ / Join(kKeyPrefix, key);
  }

  io::FileSystem& fs_;
  const std::filesystem::path directory_;
};

}  // namespace

std::shared_ptr<Coordinator> MakeFileCoordinator(io::FileSystem& fs,
                                                 std::filesystem::path directory) {
  return std::make_shared<FileCoordinator>(fs, std::move(directory));
}

std::vector<std::byte> FrameValue(std::string_view value) {
  std::vector<std::byte> framed(kFrameBytes + value.size());
  const auto bytes = std::as_bytes(std::span(value));
  base::StoreLittle<uint64_t>(framed.data(), value.size());
  base::StoreLittle<uint64_t>(framed.data() + 8, base::Digest64(bytes));
  if (!value.empty()) std::memcpy(framed.data() + kFrameBytes, value.data(), value.size());
  return framed;
}

uint64_t FramedLength(std::string_view frame) {
  return base::LoadLittle<uint64_t>(reinterpret_cast<const std::byte*>(frame.data()));
}

std::optional<std::string> UnframeValue(std::string_view file_bytes) {
  if (file_bytes.size() < kFrameBytes) return std::nullopt;
  const auto* bytes = reinterpret_cast<const std::byte*>(file_bytes.data());
  const auto length = base::LoadLittle<uint64_t>(bytes);
  if (length > file_bytes.size() - kFrameBytes) return std::nullopt;
  const std::string_view value = file_bytes.substr(kFrameBytes, length);
  if (base::Digest64(std::as_bytes(std::span(value))) != base::LoadLittle<uint64_t>(bytes + 8))
    return std::nullopt;
  return std::string(value);
}

Result<std::string> ReadSmallFile(io::FileSystem& fs, const std::filesystem::path& path,
                                  uint64_t limit) {
  FLAGSTONE_ASSIGN_OR_RETURN(auto file, fs.Open(path, {io::OpenOptions::Mode::kRead, false}));
  FLAGSTONE_ASSIGN_OR_RETURN(const io::FileInfo info, file->Info());
  if (info.size > limit) {
    return Status(StatusCode::kCorruption,
                  Join(base::Quote(path.string()), " has ", info.size, " bytes, more than the ",
                       limit, " it may have"),
                  {path.string(), "", std::nullopt});
  }
  std::string text(info.size, '\0');
  uint64_t filled = 0;
  while (filled < text.size()) {
    const auto rest = std::as_writable_bytes(std::span(text)).subspan(filled);
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t got, file->ReadAt(filled, rest));
    if (got == 0) break;  // shortened meanwhile: what is there is what it holds
    filled += got;
  }
  text.resize(filled);
  return text;
}

}  // namespace flagstone::store
