// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Digest pages of the files of one reader, read as they are needed.

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "flagstone/status.h"
#include "format/placement.h"
#include "store/open.h"

namespace flagstone::load {

/// Keeps the pages met last, so that neither a load of many small slices reads a page once a slice,
/// nor one of a terabyte holds the digests of all of it. Thread-safe.
class DigestCache {
 public:
  /// 1 MiB of digests: those of 2 GiB where chunks are of 16 KiB.
  static constexpr size_t kMaxPages = 256;

  /// Digest number `index` of a file. Where its page has to be read, those up to digest `end` are
  /// read with it, as far as there is room. `bytes_read` grows by what was read.
  Result<uint64_t> Get(const store::RankFileReader& file, uint64_t index, uint64_t end,
                       uint64_t& bytes_read);

 private:
  using Key = std::pair<uint32_t, uint64_t>;  // rank, page
  using Page = std::array<uint64_t, format::kDigestsPerPage>;

  Status Read(const store::RankFileReader& file, uint64_t first, uint64_t end,
              uint64_t& bytes_read);

  std::mutex mutex_;
  std::map<Key, std::unique_ptr<Page>> pages_;
  std::deque<Key> order_;  // from the one read first; reads move forward, so it is the one to drop
};

}  // namespace flagstone::load
