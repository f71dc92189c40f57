// SPDX-License-Identifier: Apache-2.0
#include "train_zero/shared_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace train_zero {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t RoundUpToPage(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

[[noreturn]] void Fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

pthread_barrier_t* BarrierIn(const SharedMemory& memory) {
  return reinterpret_cast<pthread_barrier_t*>(memory.bytes().data());
}

}  // namespace

SharedMemory::SharedMemory(uint64_t size_bytes) : size_bytes_(RoundUpToPage(size_bytes)) {
  const std::string name = "/train_zero." + std::to_string(getpid());
  const int descriptor = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) Fail(errno, "cannot make the shared memory object " + name);
  shm_unlink(name.c_str());

  // posix_fallocate and not ftruncate: a full /dev/shm is reported here, not by SIGBUS in the
  // middle of a step.
  const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(size_bytes_));
  void* address = MAP_FAILED;
  int map_error = 0;
  if (error == 0) {
    address = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    map_error = errno;
  }
  close(descriptor);
  if (error != 0)
    Fail(error,
         "no room for " + std::to_string(size_bytes_) + " bytes of shared memory (/dev/shm)");
  if (address == MAP_FAILED)
    Fail(map_error, "cannot map " + std::to_string(size_bytes_) + " bytes of shared memory");
  address_ = static_cast<std::byte*>(address);
}

SharedMemory::~SharedMemory() { munmap(address_, size_bytes_); }

RankExchange::RankExchange(uint32_t world_size, uint64_t elements)
    : world_size_(world_size),
      elements_(elements),
      memory_(kPage + RoundUpToPage(world_size * sizeof(float)) +
              (world_size + uint64_t{1}) * elements * sizeof(BFloat16Bits)) {
  static_assert(sizeof(pthread_barrier_t) <= kPage);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  const int error = pthread_barrier_init(BarrierIn(memory_), &attributes, world_size);
  pthread_barrierattr_destroy(&attributes);
  if (error != 0) Fail(error, "cannot make a barrier for " + std::to_string(world_size) + " ranks");

  std::byte* const losses = memory_.bytes().data() + kPage;
  losses_ = {reinterpret_cast<float*>(losses), world_size};
  auto* const flat =
      reinterpret_cast<BFloat16Bits*>(losses + RoundUpToPage(world_size * sizeof(float)));
  gradients_ = {flat, world_size * elements};
  weights_ = {flat + world_size * elements, elements};
}

void RankExchange::Barrier() {
  const int error = pthread_barrier_wait(BarrierIn(memory_));
  if (error != 0 && error != PTHREAD_BARRIER_SERIAL_THREAD)
    Fail(error, "waiting at the barrier failed");
}

}  // namespace train_zero
