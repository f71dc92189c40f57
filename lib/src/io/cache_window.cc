// SPDX-License-Identifier: Apache-2.0
#include "io/cache_window.h"

#include <algorithm>

#include "base/range.h"
#include "io/read_setup.h"

namespace flagstone::io {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{8} << 20;
// Beyond what any queue has in flight.
constexpr uint64_t kMaxHeldBytes = uint64_t{64} << 20;
constexpr uint32_t kProbesPerFile = 8;
// The kernel reads ahead of what is asked for; the end of a file's reads takes that with it.
constexpr uint64_t kReadahead = uint64_t{1} << 20;

}  // namespace

CacheWindow::CacheWindow(std::span<const std::shared_ptr<File>> files,
                         std::span<const ReadRange> ranges, bool keep)
    : files_(files), windows_(files.size()) {
  if (keep) return;
  // Also where reads are direct: they may yet fall back.
  struct Extent {
    uint64_t begin = UINT64_MAX;
    uint64_t end = 0;
  };
  std::vector<Extent> extents(files.size());
  for (const ReadRange& range : ranges) {
    if (range.size == 0) continue;
    Extent& extent = extents[range.file];
    extent.begin = std::min(extent.begin, range.offset);
    extent.end = std::max(extent.end, range.offset + range.size);
  }
  for (size_t i = 0; i < files.size(); ++i) {
    if (extents[i].end == 0 || files[i]->kind() == FileSystemKind::kMemory) continue;
    const Residency found =
        ProbeResidency(*files[i], extents[i].begin, extents[i].end, kProbesPerFile);
    windows_[i].drop = found.probed != 0 && found.resident == 0;
  }
}

uint64_t CacheWindow::Begin(uint32_t file, uint64_t offset, uint64_t size) {
  held_bytes_ += size;
  reads_.push_back({.file = file, .offset = offset, .end = offset + size});
  return first_ticket_ + reads_.size() - 1;
}

void CacheWindow::End(uint64_t ticket) {
  reads_[ticket - first_ticket_].finished = true;
  while (!reads_.empty() && reads_.front().finished) {
    Grow(reads_.front());
    held_bytes_ -= reads_.front().end - reads_.front().offset;
    reads_.pop_front();
    ++first_ticket_;
  }
}

bool CacheWindow::Full() const {
  return held_bytes_ > kMaxHeldBytes && windows_[reads_.front().file].drop;
}

void CacheWindow::Grow(const Read& read) {
  Window& window = windows_[read.file];
  if (!window.drop) return;
  window.begin = window.begin == window.end ? read.offset : std::min(window.begin, read.offset);
  window.end = std::max(window.end, read.end);
  if (window.end - window.begin >= kWindowBytes) Drop(read.file, 0);
}

void CacheWindow::Drop(uint32_t file, uint64_t beyond) {
  Window& window = windows_[file];
  // A page that only ends here may be needed by the next read.
  const uint64_t end =
      beyond != 0 ? window.end + beyond : base::AlignDown(window.end, base::kPageBytes);
  if (end > window.begin) files_[file]->DropCache(window.begin, end - window.begin);
  window.begin = window.end = std::min(window.end, end);
}

void CacheWindow::Finish() {
  for (uint32_t i = 0; i < windows_.size(); ++i) {
    if (windows_[i].drop && windows_[i].begin != windows_[i].end) Drop(i, kReadahead);
  }
}

}  // namespace flagstone::io
