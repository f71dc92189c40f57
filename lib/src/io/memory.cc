// SPDX-License-Identifier: Apache-2.0
#include "flagstone/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/range.h"
#include "base/text.h"
#include "io/errno_status.h"
#include "io/memory_count.h"

namespace flagstone {
namespace io {
namespace {

std::atomic<uint64_t> current_bytes{0};
std::atomic<uint64_t> peak_bytes{0};

// From here on huge pages are asked for: they fault in 512 times less often, and the first touch of
// fresh memory costs more than the disk. Smaller mappings would waste what they round up to.
constexpr uint64_t kHugeFrom = uint64_t{4} << 20;

uint64_t PageSize() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

Status OutOfMemory(uint64_t size, int error) {
  return Status(StatusCode::kResourceExhausted,
                base::Join("cannot map ", size, " bytes of memory: ", ErrnoText(error)));
}

}  // namespace

void CountMapped(uint64_t bytes) {
  const uint64_t now = current_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (peak < now && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void CountUnmapped(uint64_t bytes) { current_bytes.fetch_sub(bytes, std::memory_order_relaxed); }

Result<Pages> Pages::Map(uint64_t size, uint64_t alignment) {
  const uint64_t page = PageSize();
  if (!std::has_single_bit(alignment)) {
    return Status(StatusCode::kInvalidArgument,
                  base::Join("an alignment of ", alignment, " bytes is not a power of two"));
  }
  // Room for the alignment is mapped too and cut off again, so that what stays is what was asked
  // for.
  const uint64_t slack = alignment > page ? alignment - page : 0;
  const auto bytes = base::CheckedAlignUp(size == 0 ? 1 : size, page);
  const auto mapped = bytes ? base::CheckedAdd(*bytes, slack) : std::nullopt;
  if (!mapped) return OutOfMemory(size, ENOMEM);
  void* const address =
      mmap(nullptr, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) return OutOfMemory(size, errno);

  auto* const begin = static_cast<std::byte*>(address);
  const uint64_t head =
      base::AlignUp(reinterpret_cast<uintptr_t>(begin), alignment > page ? alignment : page) -
      reinterpret_cast<uintptr_t>(begin);
  if (head != 0) munmap(begin, head);
  if (slack != head) munmap(begin + head + *bytes, slack - head);
  if (*bytes >= kHugeFrom) madvise(begin + head, *bytes, MADV_HUGEPAGE);
  CountMapped(*bytes);
  return Pages(std::span<std::byte>(begin + head, *bytes));
}

void Pages::Unmap(std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  munmap(bytes.data(), bytes.size());
  CountUnmapped(bytes.size());
}

}  // namespace io

Source::~Source() = default;

bool Source::IsZero(uint64_t /*offset*/, uint64_t /*size*/) const { return false; }

Status SpanSource::Read(uint64_t offset, std::span<std::byte> out) {
  if (!base::InBounds(offset, out.size(), bytes_.size())) {
    return Status(StatusCode::kInvalidArgument,
                  base::Join("a source of ", bytes_.size(), " bytes was asked for ", out.size(),
                             " bytes at offset ", offset));
  }
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return Status();
}

Sink::~Sink() = default;

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      release_(std::exchange(other.release_, nullptr)),
      context_(std::exchange(other.context_, nullptr)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(release_, other.release_);
  std::swap(context_, other.context_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (release_ != nullptr) release_(context_, bytes_);
}

HostAllocator::~HostAllocator() = default;

namespace {

class PageAllocatorImpl final : public HostAllocator {
 public:
  Result<HostBuffer> Allocate(uint64_t size, uint64_t alignment) override {
    auto pages = io::Pages::Map(size, alignment);
    if (!pages.ok()) return pages.status();
    const std::span<std::byte> bytes = pages->Release();
    return HostBuffer(bytes.first(size), &ReleasePages, nullptr);
  }

 private:
  static void ReleasePages(void* /*context*/, std::span<std::byte> bytes) {
    // What was mapped is a function of what was asked for.
    const uint64_t size = bytes.empty() ? 1 : bytes.size();
    io::Pages::Unmap({bytes.data(), base::AlignUp(size, io::PageSize())});
  }
};

}  // namespace

HostAllocator& PageAllocator() {
  static PageAllocatorImpl allocator;
  return allocator;
}

MemoryCount LibraryMemory() {
  return {.current_bytes = io::current_bytes.load(std::memory_order_relaxed),
          .peak_bytes = io::peak_bytes.load(std::memory_order_relaxed)};
}

void ResetPeakMemory() {
  io::peak_bytes.store(io::current_bytes.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
}

}  // namespace flagstone
