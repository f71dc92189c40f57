// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Keeps what buffered reads bring into the page cache to a window behind the cursor.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "io/file_system.h"
#include "io/transfer.h"

namespace flagstone::io {

/// Follows reads that go through the page cache and drops what lies behind the oldest one that is
/// not finished, for files of which a probe found no page cached before. Files that somebody else
/// has in the cache are left alone.
class CacheWindow {
 public:
  /// Probes the files of `ranges`, unless `keep`.
  CacheWindow(std::span<const std::shared_ptr<File>> files, std::span<const ReadRange> ranges,
              bool keep);

  /// A read begins; mostly in rising order. Returns a ticket for End, never 0.
  uint64_t Begin(uint32_t file, uint64_t offset, uint64_t size);
  void End(uint64_t ticket);
  /// So much was read since the oldest read that is not finished that the next one should wait for
  /// it: nothing behind it can be dropped.
  bool Full() const;
  /// Drop what is left of the window.
  void Finish();

 private:
  struct Read {
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t end = 0;
    bool finished = false;
  };
  struct Window {
    bool drop = false;
    uint64_t begin = 0;  // Read, finished, and not dropped yet: [begin, end).
    uint64_t end = 0;
  };
  void Grow(const Read& read);
  void Drop(uint32_t file, uint64_t beyond);

  std::span<const std::shared_ptr<File>> files_;
  std::vector<Window> windows_;
  std::deque<Read> reads_;  // From the oldest that is not finished.
  uint64_t first_ticket_ = 1;
  uint64_t held_bytes_ = 0;  // Of reads_.
};

}  // namespace flagstone::io
