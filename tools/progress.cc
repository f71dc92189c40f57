// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "text.h"

namespace flagstone::tools {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(500);
constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr size_t kBarWidth = 30;

bool CanDraw() {
  const char* const terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

std::string Line(const std::string& what, uint64_t done, uint64_t total, double seconds) {
  done = std::min(done, total);
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const auto filled = static_cast<size_t>(part * kBarWidth);
  const double rate = static_cast<double>(done) / std::max(seconds, 1e-3);
  std::string line = what + " [" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') +
                     "] " + FormatNumber(100 * part, 0) + "% of " + FormatBytes(total) + ", " +
                     FormatBytes(static_cast<uint64_t>(rate)) + "/s";
  if (rate > 0) {
    line += ", " + FormatNumber(static_cast<double>(total - done) / rate, 0) + " s left";
  }
  return line;
}

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)),
      enabled_(CanDraw()),
      start_(Clock::now()),
      next_(start_ + kPatience) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void Progress::Update(uint64_t done, uint64_t total) {
  if (!enabled_) return;
  // A thread that finds another one drawing has nothing to add.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const Clock::time_point now = Clock::now();
  if (!lock || now < next_) return;
  next_ = now + kInterval;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::fprintf(stderr, "\r\x1b[K%s", Line(what_, done, total, seconds).c_str());
  std::fflush(stderr);
}

std::function<void(uint64_t, uint64_t)> Progress::callback() {
  if (!enabled_) return nullptr;
  return [this](uint64_t done, uint64_t total) { Update(done, total); };
}

}  // namespace flagstone::tools
