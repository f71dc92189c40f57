// SPDX-License-Identifier: Apache-2.0
#include "io/budget_slots.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "base/macros.h"
#include "base/range.h"
#include "base/text.h"
#include "io/errno_status.h"

namespace flagstone::io {
namespace {

using base::Join;
using base::Quote;
using Clock = std::chrono::steady_clock;

// Bytes of the file that are locked; there need not be any there. The slots are bytes 0 to kSlots.
constexpr uint64_t kMutexByte = uint64_t{1} << 40;
constexpr uint64_t kFirstTicket = uint64_t{1} << 41;

// Waiting is asking again: a lock that is waited for in the kernel could be given up by no deadline.
constexpr auto kShortestPause = std::chrono::microseconds(200);
constexpr auto kLongestPause = std::chrono::milliseconds(10);

// What the file holds.
struct Content {
  uint64_t total_bytes = 0;
  uint64_t next_ticket = 0;
};

// Incremented in a forked child: what was held before the fork is the parent's.
std::atomic<uint64_t> process_generation{0};

struct Lock {
  uint64_t first = 0;
  uint64_t end = 0;
};

}  // namespace

// All of it but the descriptor is under the mutex, which is never held while waiting.
struct BudgetFile::State {
  std::filesystem::path path;
  int fd = -1;
  std::mutex mutex;
  std::bitset<kSlots> own;  // that this process holds
  // Threads of this process; the first stands in the line of all processes.
  std::deque<std::thread::id> line;
  std::vector<std::thread::id> holders;  // that took a share which is not given back

  Status Fail(std::string_view what) const {
    return ErrnoStatus(errno, Join("cannot ", what, " the memory budget ", Quote(path.string())),
                       path);
  }

  Status Set(short type, const Lock& lock, bool wait) const {
    struct flock request {};
    request.l_type = type;
    request.l_whence = SEEK_SET;
    request.l_start = static_cast<off_t>(lock.first);
    request.l_len = static_cast<off_t>(lock.end - lock.first);
    while (fcntl(fd, wait ? F_SETLKW : F_SETLK, &request) != 0) {
      if (errno != EINTR) return Fail("lock");
    }
    return {};
  }

  // A lock of another process in the range; the least is not promised.
  Result<std::optional<Lock>> Foreign(const Lock& range) const {
    if (range.first >= range.end) return std::optional<Lock>();  // 0 would mean: without end
    struct flock request {};
    request.l_type = F_WRLCK;
    request.l_whence = SEEK_SET;
    request.l_start = static_cast<off_t>(range.first);
    request.l_len = static_cast<off_t>(range.end - range.first);
    if (fcntl(fd, F_GETLK, &request) != 0) return Fail("look at");
    if (request.l_type == F_UNLCK) return std::optional<Lock>();
    const auto first = static_cast<uint64_t>(request.l_start);
    const uint64_t end = request.l_len == 0 ? UINT64_MAX : first + static_cast<uint64_t>(request.l_len);
    return std::optional(Lock{std::max(first, range.first), std::min(end, range.end)});
  }

  // The slots of a range that no process holds, appended to `free` in rising order.
  Status AppendFree(const Lock& range, std::vector<Lock>& free) const {
    if (range.first >= range.end) return {};
    FLAGSTONE_ASSIGN_OR_RETURN(const auto foreign, Foreign(range));
    if (foreign) {
      FLAGSTONE_RETURN_IF_ERROR(AppendFree({range.first, foreign->first}, free));
      return AppendFree({foreign->end, range.end}, free);
    }
    for (uint64_t slot = range.first; slot < range.end; ++slot) {
      if (own.test(slot)) continue;
      if (!free.empty() && free.back().end == slot) {
        free.back().end = slot + 1;
      } else {
        free.push_back({slot, slot + 1});
      }
    }
    return {};
  }

  Result<Content> Read() const {
    Content content;
    const ssize_t got = pread(fd, &content, sizeof(content), 0);
    if (got < 0) return Fail("read");
    return got == sizeof(content) ? content : Content();
  }
  Status Write(const Content& content) const {
    if (pwrite(fd, &content, sizeof(content), 0) == sizeof(content)) return {};
    return Fail("write");
  }

  // Change the content while no other process does. The lock is held for moments only, never while
  // its holder waits for another.
  template <typename Change>
  Status Update(const Change& change) const {
    const Lock lock{kMutexByte, kMutexByte + 1};
    FLAGSTONE_RETURN_IF_ERROR(Set(F_WRLCK, lock, /*wait=*/true));
    auto content = Read();
    Status status = content.ok() ? change(*content) : content.status();
    if (status.ok()) status = Write(*content);
    const Status unlocked = Set(F_UNLCK, lock, false);
    return status.ok() ? unlocked : status;
  }

  Result<uint64_t> DrawTicket() const {
    uint64_t ticket = 0;
    FLAGSTONE_RETURN_IF_ERROR(Update([&](Content& content) {
      ticket = content.next_ticket++;
      return Set(F_WRLCK, {kFirstTicket + ticket, kFirstTicket + ticket + 1}, false);
    }));
    return ticket;
  }
  void ReturnTicket(uint64_t ticket) const {
    const Status returned = Set(F_UNLCK, {kFirstTicket + ticket, kFirstTicket + ticket + 1}, false);
    static_cast<void>(returned.ok());  // unlocking what is locked does not fail
  }

  Status CheckTotal(uint64_t total) const {
    FLAGSTONE_ASSIGN_OR_RETURN(const Content content, Read());
    if (content.total_bytes == total) return {};
    FLAGSTONE_ASSIGN_OR_RETURN(const auto foreign, Foreign({0, kSlots}));
    if (foreign || own.any()) {
      return Status(StatusCode::kInvalidArgument,
                    Join("a memory budget of ", total, " bytes is asked for, but processes of this "
                         "node hold parts of one of ", content.total_bytes,
                         "; all give the same total"));
    }
    return Update([total](Content& changed) {
      changed.total_bytes = total;
      return Status();
    });
  }

  // Take slots, if so many are free; only who stands first in the line comes here, so that the others
  // give slots back but take none.
  Result<bool> TryTake(uint64_t slots, std::vector<std::pair<uint64_t, uint64_t>>& taken) {
    std::vector<Lock> free;
    FLAGSTONE_RETURN_IF_ERROR(AppendFree({0, kSlots}, free));
    uint64_t count = 0;
    for (const Lock& range : free) count += range.end - range.first;
    if (count < slots) return false;
    for (Lock range : free) {
      if (slots == 0) break;
      range.end = std::min(range.end, range.first + slots);
      slots -= range.end - range.first;
      FLAGSTONE_RETURN_IF_ERROR(Set(F_WRLCK, range, false));
      for (uint64_t slot = range.first; slot < range.end; ++slot) own.set(slot);
      taken.emplace_back(range.first, range.end);
    }
    return true;
  }
};

namespace {

// Every budget of this process, for as long as it lives.
struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<BudgetFile>> files;
};
Registry& TheRegistry() {
  static auto* const registry = new Registry;  // used by threads that outlive static objects
  return *registry;
}

Status WaitedFor(const BudgetFile::Request& request, std::string_view what) {
  if (request.stop.stop_requested()) {
    return Status(StatusCode::kCancelled, Join("stopped on request while waiting for ", what));
  }
  if (Clock::now() >= request.deadline) {
    return Status(StatusCode::kDeadlineExceeded, Join("waited too long for ", what));
  }
  return {};
}

// Ask until it is so.
template <typename Ready>
Status WaitUntil(const BudgetFile::Request& request, std::string_view what, const Ready& ready) {
  Clock::duration pause = kShortestPause;
  for (;;) {
    FLAGSTONE_ASSIGN_OR_RETURN(const bool is_ready, ready());
    if (is_ready) return {};
    FLAGSTONE_RETURN_IF_ERROR(WaitedFor(request, what));
    std::this_thread::sleep_for(pause);
    pause = std::min<Clock::duration>(2 * pause, kLongestPause);
  }
}

}  // namespace

BudgetFile::BudgetFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
BudgetFile::~BudgetFile() = default;

Result<std::shared_ptr<BudgetFile>> BudgetFile::Open(const std::filesystem::path& path) {
  Registry& registry = TheRegistry();
  static const int handlers = pthread_atfork(
      [] {
        Registry& all = TheRegistry();
        all.mutex.lock();
        for (auto& [name, file] : all.files) file->state_->mutex.lock();
      },
      [] {
        Registry& all = TheRegistry();
        for (auto& [name, file] : all.files) file->state_->mutex.unlock();
        all.mutex.unlock();
      },
      [] {
        // The child has none of the locks, and none of the threads that stood in the line.
        Registry& all = TheRegistry();
        process_generation.fetch_add(1);
        for (auto& [name, file] : all.files) {
          file->state_->own.reset();
          file->state_->line.clear();
          file->state_->holders.clear();
          file->state_->mutex.unlock();
        }
        all.mutex.unlock();
      });
  if (handlers != 0) return ErrnoStatus(handlers, "cannot watch for forks", path);
  const std::lock_guard lock(registry.mutex);
  std::shared_ptr<BudgetFile>& file = registry.files[path.string()];
  if (file != nullptr) return file;
  auto state = std::make_unique<State>();
  state->path = path;
  state->fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (state->fd < 0) {
    const Status status = state->Fail("open");
    registry.files.erase(path.string());
    return status;
  }
  file = std::shared_ptr<BudgetFile>(new BudgetFile(std::move(state)));
  return file;
}

Result<BudgetShare> BudgetFile::Take(const Request& request) {
  if (request.bytes > request.total_bytes || request.total_bytes == 0) {
    return Status(StatusCode::kInvalidArgument,
                  Join(request.bytes, " bytes are wanted of a memory budget of ",
                       request.total_bytes, " for the whole node"));
  }
  const std::thread::id self = std::this_thread::get_id();
  bool holds = false;
  {
    const std::lock_guard lock(state_->mutex);
    holds = std::ranges::count(state_->holders, self) > 0;
    if (!holds) state_->line.push_back(self);
  }
  if (holds) {
    return Status(StatusCode::kInvalidArgument,
                  "this thread holds a part of the memory budget already; to wait for another could "
                  "wait for ever");
  }
  const uint64_t slot_bytes = base::DivideUp(request.total_bytes, kSlots);
  const uint64_t slots = base::DivideUp(request.bytes, slot_bytes);
  const std::string what =
      Join(request.bytes, " bytes of the node's memory budget of ", request.total_bytes);
  BudgetShare share;
  share.bytes_ = slots * slot_bytes;
  share.generation_ = process_generation.load();
  share.thread_ = self;
  const Status status = StandInLine(request, slots, what, share.slots_);
  {
    const std::lock_guard lock(state_->mutex);
    std::erase(state_->line, self);
    state_->holders.push_back(self);
  }
  share.file_ = shared_from_this();  // from here on the share gives back what it has
  FLAGSTONE_RETURN_IF_ERROR(status);
  return share;
}

Status BudgetFile::StandInLine(const Request& request, uint64_t slots, std::string_view what,
                               std::vector<BudgetShare::Range>& taken) {
  FLAGSTONE_RETURN_IF_ERROR(WaitUntil(request, what, [&]() -> Result<bool> {
    const std::lock_guard lock(state_->mutex);
    return state_->line.front() == std::this_thread::get_id();
  }));
  FLAGSTONE_ASSIGN_OR_RETURN(const uint64_t ticket, state_->DrawTicket());
  Status status = WaitUntil(request, what, [&]() -> Result<bool> {
    FLAGSTONE_ASSIGN_OR_RETURN(const auto before,
                               state_->Foreign({kFirstTicket, kFirstTicket + ticket}));
    return !before.has_value();
  });
  if (status.ok()) {
    const std::lock_guard lock(state_->mutex);
    status = state_->CheckTotal(request.total_bytes);
  }
  if (status.ok()) {
    status = WaitUntil(request, what, [&]() -> Result<bool> {
      const std::lock_guard lock(state_->mutex);
      return state_->TryTake(slots, taken);
    });
  }
  state_->ReturnTicket(ticket);
  return status;
}

void BudgetFile::Give(const BudgetShare& share) {
  const std::lock_guard lock(state_->mutex);
  const auto holder = std::ranges::find(state_->holders, share.thread_);
  if (holder != state_->holders.end()) state_->holders.erase(holder);
  for (const auto& [first, end] : share.slots_) {
    for (uint64_t slot = first; slot < end; ++slot) state_->own.reset(slot);
    const Status given = state_->Set(F_UNLCK, {first, end}, false);
    static_cast<void>(given.ok());  // unlocking what is locked does not fail
  }
}

BudgetShare::BudgetShare(BudgetShare&& other) noexcept
    : file_(std::move(other.file_)),
      slots_(std::move(other.slots_)),
      bytes_(std::exchange(other.bytes_, 0)),
      generation_(other.generation_),
      thread_(other.thread_) {}

BudgetShare& BudgetShare::operator=(BudgetShare&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(slots_, other.slots_);
  std::swap(bytes_, other.bytes_);
  std::swap(generation_, other.generation_);
  std::swap(thread_, other.thread_);
  return *this;
}

BudgetShare::~BudgetShare() {
  if (file_ == nullptr || generation_ != process_generation.load()) return;
  file_->Give(*this);
}

}  // namespace flagstone::io
