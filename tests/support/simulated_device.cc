// SPDX-License-Identifier: Apache-2.0
#include "support/simulated_device.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/range.h"
#include "io/errno_status.h"

namespace flagstone::testing {

using io::ErrnoStatus;
using io::TransferErrno;
using std::chrono::nanoseconds;
using Path = std::filesystem::path;

namespace {

// A file's bytes: computed, and what was written over them in pages.
struct Node {
  uint64_t inode = 0;
  uint64_t size = 0;
  FileContent content;
  std::map<uint64_t, std::vector<std::byte>> pages;

  void Read(uint64_t offset, std::span<std::byte> out) const {
    if (content) {
      content(offset, out);
    } else {
      std::fill(out.begin(), out.end(), std::byte{0});
    }
    ForPages(offset, out.size(), [&](uint64_t page, uint64_t in_page, uint64_t at, uint64_t size_) {
      const auto found = pages.find(page);
      if (found == pages.end()) return;
      std::memcpy(out.data() + at, found->second.data() + in_page, size_);
    });
  }

  void Write(uint64_t offset, std::span<const std::byte> bytes) {
    ForPages(offset, bytes.size(),
             [&](uint64_t page, uint64_t in_page, uint64_t at, uint64_t size_) {
               auto& stored = pages[page];
               if (stored.empty()) {
                 stored.resize(base::kPageBytes);
                 if (content) content(page * base::kPageBytes, stored);
               }
               std::memcpy(stored.data() + in_page, bytes.data() + at, size_);
             });
    size = std::max(size, offset + bytes.size());
  }

 private:
  template <typename Visit>
  static void ForPages(uint64_t offset, uint64_t size, const Visit& visit) {
    for (uint64_t at = 0; at < size;) {
      const uint64_t in_page = (offset + at) % base::kPageBytes;
      const uint64_t part = std::min(base::kPageBytes - in_page, size - at);
      visit((offset + at) / base::kPageBytes, in_page, at, part);
      at += part;
    }
  }
};

}  // namespace

class SimulatedDevice::State {
 public:
  explicit State(const DeviceModel& model) : model_(model) {}

  // When a request that is made now completes.
  nanoseconds Schedule(uint64_t bytes) {
    const double seconds = static_cast<double>(bytes) / model_.bytes_per_second;
    busy_until_ = std::max(busy_until_, now_) +
                  nanoseconds(static_cast<int64_t>(std::llround(seconds * 1e9)));
    moved_bytes_ += bytes;
    return busy_until_ + model_.latency;
  }

  const DeviceModel model_;
  nanoseconds now_{0};
  nanoseconds busy_until_{0};
  uint64_t moved_bytes_ = 0;
  uint64_t dropped_bytes_ = 0;
  uint64_t next_inode_ = 1;
  std::map<Path, std::shared_ptr<Node>> files_;
  std::set<Path> directories_;
};

namespace {

class SimulatedMapping final : public io::Mapping {
 public:
  explicit SimulatedMapping(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  std::span<const std::byte> bytes() const override { return bytes_; }
  void Release(uint64_t /*offset*/, uint64_t /*size*/) override {}

 private:
  const std::vector<std::byte> bytes_;
};

class SimulatedFile final : public io::File {
 public:
  SimulatedFile(Path name, std::shared_ptr<Node> node, bool direct,
                std::shared_ptr<SimulatedDevice::State> state)
      : path_(std::move(name)), node_(std::move(node)), direct_(direct), state_(std::move(state)) {}

  // Move the bytes; the device's time is the caller's business.
  Result<uint64_t> Move(const io::IoRequest& request) {
    const bool read = request.kind == io::IoRequest::Kind::kRead;
    const auto& alignment = state_->model_.alignment;
    if (direct_ &&
        (request.offset % alignment.offset != 0 || request.memory.size() % alignment.offset != 0 ||
         reinterpret_cast<uintptr_t>(request.memory.data()) % alignment.memory != 0)) {
      return TransferErrno(EINVAL, read ? "read" : "write", path_, request.offset,
                           request.memory.size());
    }
    if (!read) {
      node_->Write(request.offset, request.memory);
      return static_cast<uint64_t>(request.memory.size());
    }
    if (request.offset >= node_->size) return uint64_t{0};
    const uint64_t size = std::min<uint64_t>(request.memory.size(), node_->size - request.offset);
    node_->Read(request.offset, request.memory.first(size));
    return size;
  }

  const Path& path() const override { return path_; }
  Result<uint64_t> ReadAt(uint64_t offset, std::span<std::byte> out) override {
    return MoveNow(
        {.kind = io::IoRequest::Kind::kRead, .file = this, .offset = offset, .memory = out});
  }
  Result<uint64_t> WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    return MoveNow(
        {.kind = io::IoRequest::Kind::kWrite, .file = this, .offset = offset, .memory = copy});
  }
  Status Sync() override { return Status(); }
  Result<io::FileInfo> Info() override {
    io::FileInfo info;
    info.size = node_->size;
    info.device = 1;
    info.inode = node_->inode;
    info.mode = 0644;
    return info;
  }
  Status Allocate(uint64_t size) override { return Truncate(size); }
  Status Truncate(uint64_t size) override {
    node_->size = size;
    return Status();
  }
  Result<std::shared_ptr<io::Mapping>> Map(uint64_t offset, uint64_t size) override {
    if (size == 0 || !base::InBounds(offset, size, node_->size)) {
      return io::TruncatedStatus(path_, node_->size, offset + size);
    }
    std::vector<std::byte> bytes(size);
    FLAGSTONE_RETURN_IF_ERROR(io::ReadFully(*this, offset, bytes));
    return std::shared_ptr<io::Mapping>(std::make_shared<SimulatedMapping>(std::move(bytes)));
  }
  io::DirectAlignment direct_alignment() const override { return state_->model_.alignment; }
  io::FileSystemKind kind() const override { return io::FileSystemKind::kLocal; }
  void DropCache(uint64_t offset, uint64_t size) override {
    if (offset < node_->size) {
      state_->dropped_bytes_ += std::min(size, node_->size - offset);
    }
  }
  std::optional<bool> IsResident(uint64_t /*offset*/) override { return state_->model_.resident; }
  int descriptor() const override { return -1; }

 private:
  Result<uint64_t> MoveNow(const io::IoRequest& request) {
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t moved, Move(request));
    state_->now_ = std::max(state_->now_, state_->Schedule(moved));
    return moved;
  }

  const Path path_;
  const std::shared_ptr<Node> node_;
  const bool direct_;
  const std::shared_ptr<SimulatedDevice::State> state_;
};

class SimulatedQueue final : public io::IoQueue {
 public:
  SimulatedQueue(uint32_t depth, std::shared_ptr<SimulatedDevice::State> state)
      : depth_(depth), state_(std::move(state)) {}

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(running_.size()); }

  Status Submit(const io::IoRequest& request) override {
    auto* const file = dynamic_cast<SimulatedFile*>(request.file);
    if (file == nullptr || in_flight() >= depth_) {
      return Status(StatusCode::kInternal, "a full queue, or a file of another file system");
    }
    io::IoCompletion completion;
    completion.tag = request.tag;
    completion.moved = file->Move(request);
    if (!completion.moved.ok()) completion.error = EINVAL;
    const nanoseconds done = state_->Schedule(completion.moved.ok() ? *completion.moved : 0);
    running_.emplace(std::pair(done, order_++), std::move(completion));
    return Status();
  }

  Status Wait(std::vector<io::IoCompletion>& completions) override {
    if (running_.empty()) return Status();
    const auto first = running_.begin();
    state_->now_ = std::max(state_->now_, first->first.first);
    auto last = first;
    for (; last != running_.end() && last->first.first <= state_->now_; ++last) {
      completions.push_back(last->second);
    }
    running_.erase(first, last);
    return Status();
  }

 private:
  const uint32_t depth_;
  const std::shared_ptr<SimulatedDevice::State> state_;
  // By time of completion, then by order of submission.
  std::map<std::pair<nanoseconds, uint64_t>, io::IoCompletion> running_;
  uint64_t order_ = 0;
};

}  // namespace

SimulatedDevice::SimulatedDevice(const DeviceModel& model)
    : state_(std::make_shared<State>(model)) {}
SimulatedDevice::~SimulatedDevice() = default;

void SimulatedDevice::AddFile(const Path& name, uint64_t size, FileContent content) {
  auto node = std::make_shared<Node>();
  node->inode = state_->next_inode_++;
  node->size = size;
  node->content = std::move(content);
  state_->files_[name] = std::move(node);
}

nanoseconds SimulatedDevice::now() const { return state_->now_; }
void SimulatedDevice::Spend(nanoseconds time) { state_->now_ += time; }
uint64_t SimulatedDevice::moved_bytes() const { return state_->moved_bytes_; }
uint64_t SimulatedDevice::dropped_bytes() const { return state_->dropped_bytes_; }

Result<std::unique_ptr<io::File>> SimulatedDevice::Open(const Path& name,
                                                        const io::OpenOptions& options) {
  using Mode = io::OpenOptions::Mode;
  auto found = state_->files_.find(name);
  if (found == state_->files_.end()) {
    if (options.mode == Mode::kRead || options.mode == Mode::kReadWrite) {
      return ErrnoStatus(ENOENT, "open", name);
    }
    AddFile(name, 0, nullptr);
    found = state_->files_.find(name);
  } else if (options.mode == Mode::kCreateExclusive) {
    return ErrnoStatus(EEXIST, "open", name);
  }
  return std::unique_ptr<io::File>(
      std::make_unique<SimulatedFile>(name, found->second, options.direct, state_));
}

Result<io::FileInfo> SimulatedDevice::Stat(const Path& name) {
  if (state_->directories_.contains(name)) {
    io::FileInfo info;
    info.type = io::FileInfo::Type::kDirectory;
    return info;
  }
  FLAGSTONE_ASSIGN_OR_RETURN(const auto file, Open(name, {}));
  return file->Info();
}

Result<std::vector<std::string>> SimulatedDevice::List(const Path& directory) {
  std::vector<std::string> names;
  for (const auto& [name, node] : state_->files_) {
    if (name.parent_path() == directory) names.push_back(name.filename().native());
  }
  for (const Path& name : state_->directories_) {
    if (name.parent_path() == directory) names.push_back(name.filename().native());
  }
  return names;
}

Status SimulatedDevice::MakeDirectory(const Path& name) {
  if (state_->directories_.insert(name).second) return Status();
  return ErrnoStatus(EEXIST, "make the directory", name);
}

Status SimulatedDevice::RemoveDirectory(const Path& name) {
  if (state_->directories_.erase(name) != 0) return Status();
  return ErrnoStatus(ENOENT, "remove the directory", name);
}

Status SimulatedDevice::Unlink(const Path& name) {
  if (state_->files_.erase(name) != 0) return Status();
  return ErrnoStatus(ENOENT, "remove", name);
}

Status SimulatedDevice::Rename(const Path& from, const Path& to) {
  const auto found = state_->files_.find(from);
  if (found == state_->files_.end()) return ErrnoStatus(ENOENT, "rename", from);
  const auto node = found->second;
  state_->files_.erase(found);
  state_->files_[to] = node;
  return Status();
}

Status SimulatedDevice::RenameNoReplace(const Path& from, const Path& to) {
  if (state_->files_.contains(to)) return ErrnoStatus(EEXIST, "rename without replacing", from);
  return Rename(from, to);
}

Status SimulatedDevice::Link(const Path& from, const Path& to) {
  const auto found = state_->files_.find(from);
  if (found == state_->files_.end()) return ErrnoStatus(ENOENT, "link", from);
  if (state_->files_.contains(to)) return ErrnoStatus(EEXIST, "link", from);
  state_->files_[to] = found->second;
  return Status();
}

Status SimulatedDevice::SyncDirectory(const Path& /*name*/) { return Status(); }

Result<std::unique_ptr<io::IoQueue>> SimulatedDevice::MakeQueue(io::QueueKind /*kind*/,
                                                                uint32_t depth) {
  return std::unique_ptr<io::IoQueue>(std::make_unique<SimulatedQueue>(depth, state_));
}

}  // namespace flagstone::testing
