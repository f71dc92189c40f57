// SPDX-License-Identifier: Apache-2.0
#include "load/digest_cache.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/endian.h"
#include "base/macros.h"
#include "base/range.h"

namespace flagstone::load {

Result<uint64_t> DigestCache::Get(const store::RankFileReader& file, uint64_t index, uint64_t end,
                                  uint64_t& bytes_read) {
  const Key key{file.rank(), index / format::kDigestsPerPage};
  const std::lock_guard lock(mutex_);
  auto page = pages_.find(key);
  if (page == pages_.end()) {
    const uint64_t last = std::max(end, index + 1) - 1;
    FLAGSTONE_RETURN_IF_ERROR(
        Read(file, key.second, last / format::kDigestsPerPage + 1, bytes_read));
    page = pages_.find(key);
  }
  return (*page->second)[index % format::kDigestsPerPage];
}

// Read pages [first, end), or as many of them as one read takes, up to one that is there already.
Status DigestCache::Read(const store::RankFileReader& file, uint64_t first, uint64_t end,
                         uint64_t& bytes_read) {
  // A quarter of the room: what runs beside this one does not lose its pages.
  uint64_t count = 1;
  const uint64_t limit = std::min<uint64_t>(end - first, kMaxPages / 4);
  while (count < limit && !pages_.contains({file.rank(), first + count})) ++count;
  FLAGSTONE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                             file.ReadDigestPages(first, count, bytes_read));
  for (uint64_t i = 0; i < count; ++i) {
    auto page = std::make_unique<Page>();
    for (uint64_t k = 0; k < page->size(); ++k) {
      (*page)[k] = base::LoadLittle<uint64_t>(bytes.data() + i * base::kPageBytes + 8 * k);
    }
    if (order_.size() == kMaxPages) {
      pages_.erase(order_.front());
      order_.pop_front();
    }
    const Key key{file.rank(), first + i};
    pages_.emplace(key, std::move(page));
    order_.push_back(key);
  }
  return {};
}

}  // namespace flagstone::load
