// SPDX-License-Identifier: Apache-2.0
#include "io/uring_queue.h"

#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/macros.h"
#include "base/text.h"
#include "io/errno_status.h"
#include "io/file_system.h"
#include "io/memory_count.h"
#include "io/posix_file.h"

namespace flagstone::io {
namespace {

// What the queue relies on, and since when it is there.
struct Feature {
  uint32_t bit;
  std::string_view name;
};
constexpr std::array<Feature, 2> kFeatures = {{
    {IORING_FEAT_NODROP, "NODROP (Linux 5.5): completions are never lost"},
    {IORING_FEAT_SUBMIT_STABLE, "SUBMIT_STABLE (Linux 5.5): requests are copied at submission"},
}};
struct Opcode {
  int code;
  std::string_view name;
};
constexpr std::array<Opcode, 3> kOpcodes = {{
    {IORING_OP_NOP, "NOP (Linux 5.1)"},
    {IORING_OP_READ, "READ (Linux 5.6)"},
    {IORING_OP_WRITE, "WRITE (Linux 5.6)"},
}};

// Ways to set a ring up, best first; what a kernel does not know it refuses with EINVAL.
//
// Not SINGLE_ISSUER with DEFER_TASKRUN: it binds the ring to one thread, so that a writer made in
// one thread and used or destroyed in another could not even wait for what is in flight. Neither
// with requests of 1 MiB nor of 4 KiB did it save CPU that could be told from noise. COOP_TASKRUN
// (5.19) saves interrupts without binding anybody.
constexpr std::array<uint32_t, 2> kSetups = {IORING_SETUP_COOP_TASKRUN, 0};

constexpr uint32_t kMinDepth = 4;
// Smaller requests are submitted together by the next Wait, larger ones at once: the device should
// not be idle while the caller digests what has come.
constexpr uint64_t kSubmitAtOnce = 64 << 10;

// How long the kernel may go without memory for a single request.
constexpr auto kRefusalPause = std::chrono::microseconds(200);
constexpr uint32_t kMaxRefusals = 25'000;

Status Refused(std::string_view why) {
  return Status(StatusCode::kUnsupported, base::Join("io_uring cannot be used: ", why));
}

std::string_view CauseOf(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "; a sandbox (seccomp, as in containers) or the sysctl kernel.io_uring_disabled "
             "forbids it";
    case ENOSYS:
      return "; this kernel has none, or a sandbox (seccomp) hides it";
    default:
      return "";
  }
}

std::string MemoryLimit(uint32_t depth) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {};
  const uint64_t needed = UringBytes(depth);
  std::string current =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : base::Join(limit.rlim_cur, " bytes");
  return base::Join("; the limit of locked memory is ", current, " (ulimit -l) and a ring of ",
                    depth, " needs about ", needed,
                    " bytes of it, beside what other rings of this user have");
}

class UringQueue final : public IoQueue {
 public:
  UringQueue() = default;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override;

  Status Set(uint32_t depth);

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return in_flight_; }
  Status Submit(const IoRequest& request) override;
  Status Wait(std::vector<IoCompletion>& completions) override;

 private:
  // 0, or the errno with which no way of setting up works.
  int Init(uint32_t depth);
  Status CheckAbilities();
  Status TryNothing();
  Status Enter(uint32_t wait_for);
  void Drain();
  uint32_t TakeReady(std::vector<IoCompletion>& completions);
  IoCompletion Take(const io_uring_cqe& completion);

  io_uring ring_{};
  bool made_ = false;
  uint32_t depth_ = 0;
  uint32_t in_flight_ = 0;
  std::vector<IoRequest> requests_;  // By slot, which is the ring's user data.
  std::vector<uint32_t> free_;
  CountedBytes counted_;
};

UringQueue::~UringQueue() {
  if (!made_) return;
  std::vector<IoCompletion> dropped;
  while (in_flight_ > 0) {
    if (!Wait(dropped).ok()) {
      Drain();
      break;
    }
    dropped.clear();
  }
  io_uring_queue_exit(&ring_);
}

// The kernel cannot be asked any more (somebody closed the ring's descriptor), but it writes into
// the memory of what it took all the same, and says so in the mapped completions when it has done.
void UringQueue::Drain() {
  const uint32_t never_taken = io_uring_sq_ready(&ring_);
  std::vector<IoCompletion> dropped;
  while (in_flight_ > never_taken) {
    if (TakeReady(dropped) == 0) std::this_thread::sleep_for(kRefusalPause);
    dropped.clear();
  }
}

int UringQueue::Init(uint32_t depth) {
  int error = 0;
  for (const uint32_t flags : kSetups) {
    io_uring_params parameters{};
    parameters.flags = flags;
    // liburing returns the errno, negative, and leaves errno alone.
    error = -io_uring_queue_init_params(depth, &ring_, &parameters);
    if (error == 0) {
      made_ = true;
      return 0;
    }
    if (error != EINVAL) return error;
  }
  return error;
}

Status UringQueue::CheckAbilities() {
  for (const Feature& feature : kFeatures) {
    if ((ring_.features & feature.bit) == 0) {
      return Refused(base::Join("this kernel lacks the feature ", feature.name));
    }
  }
  struct Freer {
    void operator()(io_uring_probe* probe) const { io_uring_free_probe(probe); }
  };
  const std::unique_ptr<io_uring_probe, Freer> probe(io_uring_get_probe_ring(&ring_));
  if (probe == nullptr) return Refused("this kernel does not say which operations it has");
  for (const Opcode& opcode : kOpcodes) {
    if (io_uring_opcode_supported(probe.get(), opcode.code) == 0) {
      return Refused(base::Join("this kernel lacks the operation ", opcode.name));
    }
  }
  return Status();
}

Status UringQueue::TryNothing() {
  io_uring_prep_nop(io_uring_get_sqe(&ring_));
  int error = -io_uring_submit_and_wait(&ring_, 1);
  io_uring_cqe* completion = nullptr;
  if (error <= 0) error = -io_uring_wait_cqe(&ring_, &completion);
  if (error <= 0) error = -completion->res;
  if (completion != nullptr) io_uring_cqe_seen(&ring_, completion);
  if (error <= 0) return Status();
  return Refused(base::Join("an empty operation failed: ", ErrnoText(error), CauseOf(error)));
}

Status UringQueue::Set(uint32_t depth) {
  int error = Init(depth);
  // Before Linux 5.12 rings count as locked memory of the user; a smaller one may fit.
  uint32_t smaller = depth;
  while (error == ENOMEM && smaller > kMinDepth) {
    smaller = std::max(smaller / 2, kMinDepth);
    error = Init(smaller);
  }
  if (error == ENOMEM) {
    return Refused(base::Join("setting up a ring failed: ", ErrnoText(error), MemoryLimit(depth)));
  }
  if (error != 0) {
    return Refused(base::Join("setting up a ring failed: ", ErrnoText(error), CauseOf(error)));
  }
  counted_ = CountedBytes(ring_.sq.ring_sz + sizeof(io_uring_sqe) * ring_.sq.ring_entries);
  // A forked child must neither use the ring nor keep its pages.
  io_uring_ring_dontfork(&ring_);
  FLAGSTONE_RETURN_IF_ERROR(CheckAbilities());
  FLAGSTONE_RETURN_IF_ERROR(TryNothing());
  depth_ = smaller;
  requests_.resize(depth_);
  for (uint32_t slot = depth_; slot > 0; --slot) free_.push_back(slot - 1);
  return Status();
}

// Hand what was prepared to the kernel and wait for completions.
Status UringQueue::Enter(uint32_t wait_for) {
  for (uint32_t refusals = 0;;) {
    const int result =
        wait_for == 0 ? io_uring_submit(&ring_) : io_uring_submit_and_wait(&ring_, wait_for);
    if (result >= 0) return Status();
    if (result == -EINTR) continue;
    // The kernel has no memory for the request, or wants its completions taken first: both pass.
    if (result == -EAGAIN || result == -EBUSY) {
      if (io_uring_cq_ready(&ring_) > 0 || wait_for == 0) return Status();
      if (++refusals > kMaxRefusals) {
        return Status(StatusCode::kResourceExhausted,
                      base::Join("io_uring took no request for ",
                                 kMaxRefusals * kRefusalPause / std::chrono::seconds(1),
                                 " s: ", ErrnoText(-result)));
      }
      std::this_thread::sleep_for(kRefusalPause);
      continue;
    }
    return Status(StatusCode::kIoError, base::Join("io_uring_enter failed: ", ErrnoText(-result)));
  }
}

Status UringQueue::Submit(const IoRequest& request) {
  if (free_.empty()) {
    return Status(StatusCode::kInternal, "a request was submitted to a full queue");
  }
  const int fd = request.file->descriptor();
  if (fd < 0) {
    return Status(StatusCode::kUnsupported,
                  base::Join("io_uring cannot be used: ",
                             base::Quote(request.file->path().native()), " has no descriptor"));
  }
  io_uring_sqe* entry = io_uring_get_sqe(&ring_);
  if (entry == nullptr) {
    FLAGSTONE_RETURN_IF_ERROR(Enter(0));
    entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return Status(StatusCode::kIoError, "io_uring takes no requests");
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  requests_[slot] = request;
  const auto size = static_cast<unsigned>(std::min<uint64_t>(request.memory.size(), kMaxTransfer));
  if (request.kind == IoRequest::Kind::kRead) {
    io_uring_prep_read(entry, fd, request.memory.data(), size, request.offset);
  } else {
    io_uring_prep_write(entry, fd, request.memory.data(), size, request.offset);
  }
  io_uring_sqe_set_data64(entry, slot);
  ++in_flight_;
  return size >= kSubmitAtOnce ? Enter(0) : Status();
}

IoCompletion UringQueue::Take(const io_uring_cqe& completion) {
  const auto slot = static_cast<uint32_t>(completion.user_data);
  const IoRequest& request = requests_[slot];
  IoCompletion taken;
  taken.tag = request.tag;
  if (completion.res >= 0) {
    taken.moved = static_cast<uint64_t>(completion.res);
  } else {
    taken.error = -completion.res;
    taken.moved =
        TransferErrno(taken.error, request.kind == IoRequest::Kind::kRead ? "read" : "write",
                      request.file->path(), request.offset, request.memory.size());
  }
  free_.push_back(slot);
  --in_flight_;
  return taken;
}

Status UringQueue::Wait(std::vector<IoCompletion>& completions) {
  if (in_flight_ == 0) return Status();
  FLAGSTONE_RETURN_IF_ERROR(Enter(1));
  TakeReady(completions);
  return Status();
}

uint32_t UringQueue::TakeReady(std::vector<IoCompletion>& completions) {
  unsigned head = 0;
  unsigned count = 0;
  io_uring_cqe* completion = nullptr;
  io_uring_for_each_cqe(&ring_, head, completion) {
    completions.push_back(Take(*completion));
    ++count;
  }
  io_uring_cq_advance(&ring_, count);
  return count;
}

}  // namespace

Result<std::unique_ptr<IoQueue>> MakeUringQueue(uint32_t depth) {
  if (depth == 0) return Status(StatusCode::kInvalidArgument, "a queue needs a depth of 1 or more");
  auto queue = std::make_unique<UringQueue>();
  FLAGSTONE_RETURN_IF_ERROR(queue->Set(depth));
  return std::unique_ptr<IoQueue>(std::move(queue));
}

}  // namespace flagstone::io
