// SPDX-License-Identifier: Apache-2.0
#include "flagstone/coordinator.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "base/text.h"

namespace flagstone {
namespace {

class InProcessCoordinator final : public Coordinator {
 public:
  Status Set(std::string_view key, std::string_view value, Deadline) override {
    const std::lock_guard lock(mutex_);
    entries_.insert_or_assign(std::string(key), std::string(value));
    return {};
  }

  Result<std::string> Get(std::string_view key, Deadline) override {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
      return Status(StatusCode::kNotFound,
                    base::Join("board key ", base::Quote(key), " is absent"));
    }
    return found->second;
  }

  Status Delete(std::string_view key, Deadline) override {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end()) entries_.erase(found);
    return {};
  }

  Result<std::vector<std::string>> List(std::string_view prefix, Deadline) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (auto at = entries_.lower_bound(prefix);
         at != entries_.end() && at->first.starts_with(prefix); ++at) {
      keys.push_back(at->first);
    }
    return keys;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> entries_;
};

}  // namespace

Coordinator::~Coordinator() = default;

Result<std::string> Coordinator::Wait(std::string_view key, Deadline deadline) {
  constexpr auto kLongestPause = std::chrono::milliseconds(25);
  auto pause = std::chrono::milliseconds(1);
  for (;;) {
    auto value = Get(key, deadline);
    if (value.ok() || value.status().code() != StatusCode::kNotFound) return value;
    if (std::chrono::steady_clock::now() >= deadline) {
      return Status(StatusCode::kDeadlineExceeded,
                    base::Join("board key ", base::Quote(key), " did not come in time"));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

std::shared_ptr<Coordinator> MakeInProcessCoordinator() {
  return std::make_shared<InProcessCoordinator>();
}

}  // namespace flagstone
