// SPDX-License-Identifier: Apache-2.0
#include "io/thread_queue.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "io/file_system.h"
#include "io/memory_count.h"

namespace flagstone::io {
namespace {

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(uint32_t depth)
      : depth_(depth), max_threads_(std::min(depth, kMaxQueueThreads)) {}
  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ~ThreadQueue() override;

  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return in_flight_; }
  Status Submit(const IoRequest& request) override;
  Status Wait(std::vector<IoCompletion>& completions) override;

 private:
  static IoCompletion Serve(const IoRequest& request);
  void Work();
  void StartThread();

  const uint32_t depth_;
  const uint32_t max_threads_;
  uint32_t in_flight_ = 0;  // Of the owner's thread alone.
  std::vector<base::Thread> threads_;
  std::vector<CountedBytes> stacks_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable finished_;
  std::deque<IoRequest> waiting_;
  std::vector<IoCompletion> done_;
  uint32_t idle_ = 0;  // Threads that wait for work.
  bool stop_ = false;
};

ThreadQueue::~ThreadQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    // What no thread has begun is not begun any more; what one has begun is waited for by the join.
    waiting_.clear();
  }
  work_.notify_all();
  threads_.clear();
}

IoCompletion ThreadQueue::Serve(const IoRequest& request) {
  auto moved = request.kind == IoRequest::Kind::kRead
                   ? request.file->ReadAt(request.offset, request.memory)
                   : request.file->WriteAt(request.offset, request.memory);
  return {.tag = request.tag, .moved = std::move(moved)};
}

void ThreadQueue::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    while (waiting_.empty() && !stop_) {
      ++idle_;
      work_.wait(lock);
      --idle_;
    }
    if (waiting_.empty()) return;
    const IoRequest request = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    IoCompletion completion = Serve(request);
    lock.lock();
    done_.push_back(std::move(completion));
    if (done_.size() == 1) finished_.notify_one();
  }
}

void ThreadQueue::StartThread() {
  base::Thread thread([this] { Work(); });
  if (!thread.joinable()) return;
  threads_.push_back(std::move(thread));
  stacks_.emplace_back(base::kThreadStackBytes);
}

Status ThreadQueue::Submit(const IoRequest& request) {
  if (in_flight_ >= depth_) {
    return Status(StatusCode::kInternal, "a request was submitted to a full queue");
  }
  bool start = false;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(request);
    start = waiting_.size() > idle_;
  }
  ++in_flight_;
  if (start && threads_.size() < max_threads_) StartThread();
  work_.notify_one();
  return Status();
}

Status ThreadQueue::Wait(std::vector<IoCompletion>& completions) {
  if (in_flight_ == 0) return Status();
  std::unique_lock lock(mutex_);
  if (threads_.empty()) {
    const IoRequest request = waiting_.front();
    waiting_.pop_front();
    done_.push_back(Serve(request));
  }
  while (done_.empty()) finished_.wait(lock);
  in_flight_ -= static_cast<uint32_t>(done_.size());
  for (IoCompletion& completion : done_) completions.push_back(std::move(completion));
  done_.clear();
  return Status();
}

}  // namespace

Result<std::unique_ptr<IoQueue>> MakeThreadQueue(uint32_t depth) {
  if (depth == 0) return Status(StatusCode::kInvalidArgument, "a queue needs a depth of 1 or more");
  return std::unique_ptr<IoQueue>(std::make_unique<ThreadQueue>(depth));
}

}  // namespace flagstone::io
