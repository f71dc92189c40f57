// SPDX-License-Identifier: Apache-2.0
#include "support/fault_file_system.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/text.h"
#include "io/errno_status.h"

namespace flagstone::testing {

using io::ErrnoStatus;
using io::TransferErrno;
using Path = std::filesystem::path;

// Shared by the file system and what it has handed out.
class FaultFileSystem::State {
 public:
  std::optional<Fault> Decide(Call call) {
    const std::lock_guard lock(mutex_);
    call.number = ++calls_[static_cast<size_t>(call.operation)];
    call.step = ++steps_;
    for (const FaultRule& rule : rules_) {
      if (auto fault = rule(call)) return fault;
    }
    return std::nullopt;
  }
  // The errno with which the call fails, or 0.
  int Refuse(Call call) {
    const auto fault = Decide(std::move(call));
    return fault ? fault->error : 0;
  }
  void Add(FaultRule rule) {
    const std::lock_guard lock(mutex_);
    rules_.push_back(std::move(rule));
  }
  void Clear() {
    const std::lock_guard lock(mutex_);
    rules_.clear();
  }
  uint64_t calls(Operation operation) const {
    const std::lock_guard lock(mutex_);
    return calls_[static_cast<size_t>(operation)];
  }
  uint64_t steps() const {
    const std::lock_guard lock(mutex_);
    return steps_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<FaultRule> rules_;
  std::array<uint64_t, kOperations> calls_{};
  uint64_t steps_ = 0;
};

namespace {

class FaultFile final : public io::File {
 public:
  FaultFile(std::unique_ptr<io::File> inner, bool direct,
            std::shared_ptr<FaultFileSystem::State> state)
      : inner_(std::move(inner)), direct_(direct), state_(std::move(state)) {}

  io::File& inner() { return *inner_; }
  Call MakeCall(Operation operation, uint64_t offset = 0, uint64_t size = 0) const {
    return {.operation = operation,
            .path = inner_->path(),
            .second_path = {},
            .offset = offset,
            .size = size,
            .direct = direct_};
  }

  const Path& path() const override { return inner_->path(); }
  Result<uint64_t> ReadAt(uint64_t offset, std::span<std::byte> out) override {
    const auto fault = state_->Decide(MakeCall(Operation::kRead, offset, out.size()));
    if (fault && fault->error != 0) {
      return TransferErrno(fault->error, "read", path(), offset, out.size());
    }
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t moved, inner_->ReadAt(offset, out));
    return fault && fault->at_most ? std::min(moved, *fault->at_most) : moved;
  }
  Result<uint64_t> WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    const auto fault = state_->Decide(MakeCall(Operation::kWrite, offset, bytes.size()));
    if (fault && fault->error != 0) {
      return TransferErrno(fault->error, "write", path(), offset, bytes.size());
    }
    FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t moved, inner_->WriteAt(offset, bytes));
    return fault && fault->at_most ? std::min(moved, *fault->at_most) : moved;
  }
  Status Sync() override {
    const int error = state_->Refuse(MakeCall(Operation::kSync));
    return error != 0 ? ErrnoStatus(error, "sync", path()) : inner_->Sync();
  }
  Result<io::FileInfo> Info() override {
    const int error = state_->Refuse(MakeCall(Operation::kInfo));
    if (error != 0) return ErrnoStatus(error, "stat", path());
    return inner_->Info();
  }
  Status Allocate(uint64_t size) override {
    const int error = state_->Refuse(MakeCall(Operation::kAllocate, 0, size));
    if (error == 0) return inner_->Allocate(size);
    return ErrnoStatus(error, "reserve space for", path(), base::Join(": ", size, " bytes"));
  }
  Status Truncate(uint64_t size) override {
    const int error = state_->Refuse(MakeCall(Operation::kTruncate, 0, size));
    return error != 0 ? ErrnoStatus(error, "set the length of", path()) : inner_->Truncate(size);
  }
  Status SetMode(uint32_t mode) override { return inner_->SetMode(mode); }
  Result<std::shared_ptr<io::Mapping>> Map(uint64_t offset, uint64_t size) override {
    const int error = state_->Refuse(MakeCall(Operation::kMap, offset, size));
    if (error != 0) return TransferErrno(error, "map", path(), offset, size);
    return inner_->Map(offset, size);
  }
  io::DirectAlignment direct_alignment() const override { return inner_->direct_alignment(); }
  io::FileSystemKind kind() const override { return inner_->kind(); }
  void DropCache(uint64_t offset, uint64_t size) override { inner_->DropCache(offset, size); }
  std::optional<bool> IsResident(uint64_t offset) override { return inner_->IsResident(offset); }
  int descriptor() const override { return inner_->descriptor(); }

 private:
  const std::unique_ptr<io::File> inner_;
  const bool direct_;
  const std::shared_ptr<FaultFileSystem::State> state_;
};

// Decides at submission and acts at completion.
class FaultQueue final : public io::IoQueue {
 public:
  FaultQueue(std::unique_ptr<io::IoQueue> inner, std::shared_ptr<FaultFileSystem::State> state)
      : inner_(std::move(inner)), state_(std::move(state)), slots_(inner_->depth()) {
    for (size_t i = slots_.size(); i > 0; --i) free_.push_back(i - 1);
  }

  uint32_t depth() const override { return inner_->depth(); }
  uint32_t in_flight() const override {
    return inner_->in_flight() + static_cast<uint32_t>(failed_.size());
  }

  Status Submit(const io::IoRequest& request) override {
    auto* const file = dynamic_cast<FaultFile*>(request.file);
    if (file == nullptr) return Status(StatusCode::kInternal, "a file of another file system");
    const bool read = request.kind == io::IoRequest::Kind::kRead;
    auto fault = state_->Decide(file->MakeCall(read ? Operation::kRead : Operation::kWrite,
                                               request.offset, request.memory.size()));
    if (fault && fault->error != 0) {
      failed_.push_back({.tag = request.tag,
                         .moved = TransferErrno(fault->error, read ? "read" : "write", file->path(),
                                                request.offset, request.memory.size()),
                         .error = fault->error});
      return Status();
    }
    const size_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = {.tag = request.tag, .at_most = fault ? fault->at_most : std::nullopt};
    io::IoRequest passed = request;
    passed.file = &file->inner();
    passed.tag = slot;
    return inner_->Submit(passed);
  }

  Status Wait(std::vector<io::IoCompletion>& completions) override {
    if (!failed_.empty()) {
      for (auto& failed : failed_) completions.push_back(std::move(failed));
      failed_.clear();
      return Status();
    }
    const size_t before = completions.size();
    const Status status = inner_->Wait(completions);
    for (size_t i = before; i < completions.size(); ++i) {
      io::IoCompletion& completion = completions[i];
      const Slot& slot = slots_[completion.tag];
      free_.push_back(completion.tag);
      completion.tag = slot.tag;
      if (completion.moved.ok() && slot.at_most) {
        completion.moved = std::min(*completion.moved, *slot.at_most);
      }
    }
    return status;
  }

 private:
  struct Slot {
    uint64_t tag = 0;
    std::optional<uint64_t> at_most;
  };
  const std::unique_ptr<io::IoQueue> inner_;
  const std::shared_ptr<FaultFileSystem::State> state_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  std::vector<io::IoCompletion> failed_;
};

Call PathCall(Operation operation, const Path& first, const Path& second = {}) {
  Call call;
  call.operation = operation;
  call.path = first;
  call.second_path = second;
  return call;
}

}  // namespace

FaultFileSystem::FaultFileSystem(io::FileSystem& inner)
    : inner_(inner), state_(std::make_shared<State>()) {}
FaultFileSystem::~FaultFileSystem() = default;

void FaultFileSystem::Add(FaultRule rule) { state_->Add(std::move(rule)); }
void FaultFileSystem::Clear() { state_->Clear(); }
uint64_t FaultFileSystem::calls(Operation operation) const { return state_->calls(operation); }
uint64_t FaultFileSystem::steps() const { return state_->steps(); }

void FaultFileSystem::Fail(Operation operation, int error, uint64_t first, uint64_t count) {
  Add([=](const Call& call) -> std::optional<Fault> {
    const bool hit =
        call.operation == operation && call.number >= first && call.number - first < count;
    if (!hit) return std::nullopt;
    return Fault{.error = error, .at_most = {}};
  });
}

void FaultFileSystem::FailRange(Operation operation, const Path& file, uint64_t begin, uint64_t end,
                                int error) {
  Add([=](const Call& call) -> std::optional<Fault> {
    const bool hit = call.operation == operation && call.path == file && call.offset < end &&
                     call.offset + call.size > begin;
    if (!hit) return std::nullopt;
    return Fault{.error = error, .at_most = {}};
  });
}

Result<std::unique_ptr<io::File>> FaultFileSystem::Open(const Path& name,
                                                        const io::OpenOptions& options) {
  const int error =
      state_->Refuse(PathCall(options.direct ? Operation::kOpenDirect : Operation::kOpen, name));
  if (error != 0) return ErrnoStatus(error, "open", name);
  FLAGSTONE_ASSIGN_OR_RETURN(auto file, inner_.Open(name, options));
  return std::unique_ptr<io::File>(
      std::make_unique<FaultFile>(std::move(file), options.direct, state_));
}

Result<io::FileInfo> FaultFileSystem::Stat(const Path& name) {
  const int error = state_->Refuse(PathCall(Operation::kStat, name));
  if (error != 0) return ErrnoStatus(error, "stat", name);
  return inner_.Stat(name);
}

Result<std::vector<std::string>> FaultFileSystem::List(const Path& directory) {
  const int error = state_->Refuse(PathCall(Operation::kList, directory));
  if (error != 0) return ErrnoStatus(error, "list", directory);
  return inner_.List(directory);
}

Status FaultFileSystem::MakeDirectory(const Path& name) {
  const int error = state_->Refuse(PathCall(Operation::kMakeDirectory, name));
  return error != 0 ? ErrnoStatus(error, "make the directory", name) : inner_.MakeDirectory(name);
}

Status FaultFileSystem::RemoveDirectory(const Path& name) {
  const int error = state_->Refuse(PathCall(Operation::kRemoveDirectory, name));
  return error != 0 ? ErrnoStatus(error, "remove the directory", name)
                    : inner_.RemoveDirectory(name);
}

Status FaultFileSystem::Unlink(const Path& name) {
  const int error = state_->Refuse(PathCall(Operation::kUnlink, name));
  return error != 0 ? ErrnoStatus(error, "remove", name) : inner_.Unlink(name);
}

Status FaultFileSystem::Rename(const Path& from, const Path& to) {
  const int error = state_->Refuse(PathCall(Operation::kRename, from, to));
  return error != 0 ? ErrnoStatus(error, "rename", from) : inner_.Rename(from, to);
}

Status FaultFileSystem::RenameNoReplace(const Path& from, const Path& to) {
  const int error = state_->Refuse(PathCall(Operation::kRenameNoReplace, from, to));
  return error != 0 ? ErrnoStatus(error, "rename without replacing", from)
                    : inner_.RenameNoReplace(from, to);
}

Status FaultFileSystem::Link(const Path& from, const Path& to) {
  const int error = state_->Refuse(PathCall(Operation::kLink, from, to));
  if (error == 0) return inner_.Link(from, to);
  const Status failure = ErrnoStatus(error, "link", from);
  // As the real one: EPERM means that there are no links.
  if (error != EPERM) return failure;
  return Status(StatusCode::kUnsupported, failure.message(), failure.place());
}

Status FaultFileSystem::SyncDirectory(const Path& name) {
  const int error = state_->Refuse(PathCall(Operation::kSyncDirectory, name));
  return error != 0 ? ErrnoStatus(error, "sync the directory", name) : inner_.SyncDirectory(name);
}

Result<std::unique_ptr<io::IoQueue>> FaultFileSystem::MakeQueue(io::QueueKind kind,
                                                                uint32_t depth) {
  const bool ring = kind == io::QueueKind::kUring;
  Call call;
  call.operation = ring ? Operation::kMakeUring : Operation::kMakeThreads;
  call.size = depth;
  if (const int error = state_->Refuse(std::move(call)); error != 0) {
    return Status(
        ring ? StatusCode::kUnsupported : StatusCode::kResourceExhausted,
        base::Join(ring ? "io_uring" : "threads", " cannot be used: ", io::ErrnoText(error)));
  }
  FLAGSTONE_ASSIGN_OR_RETURN(auto queue, inner_.MakeQueue(kind, depth));
  return std::unique_ptr<io::IoQueue>(std::make_unique<FaultQueue>(std::move(queue), state_));
}

}  // namespace flagstone::testing
