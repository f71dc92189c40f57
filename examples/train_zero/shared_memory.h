// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What the ranks of one run share: a POSIX shared memory object with a barrier, a slot of
/// gradients for each rank, and the weights.

#include <cstddef>
#include <cstdint>
#include <span>

#include "train_zero/bfloat16.h"

namespace train_zero {

/// A mapping that forked children share. The object's name is removed before the constructor
/// returns, so that nothing is left in /dev/shm whatever ends the processes, SIGKILL included.
class SharedMemory {
 public:
  /// Throws std::system_error.
  explicit SharedMemory(uint64_t size_bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::span<std::byte> bytes() const { return {address_, size_bytes_}; }

 private:
  std::byte* address_ = nullptr;
  uint64_t size_bytes_ = 0;
};

/// The exchange of one training step. Made by the parent before it forks; used by every rank.
///
/// A step has two halves with a barrier after each: in the first each rank writes its own slots, in
/// the second each rank reads everybody's slots and writes its own part of the weights. So no byte
/// is read while it is written.
class RankExchange {
 public:
  /// `elements`: of all flat buffers together, padding included.
  RankExchange(uint32_t world_size, uint64_t elements);
  RankExchange(const RankExchange&) = delete;
  RankExchange& operator=(const RankExchange&) = delete;

  uint32_t world_size() const { return world_size_; }
  /// Wait until all ranks are here. When a rank has died the others wait until the parent ends
  /// them.
  void Barrier();

  std::span<float> losses() const { return losses_; }
  std::span<BFloat16Bits> gradients(uint32_t rank) const {
    return gradients_.subspan(rank * elements_, elements_);
  }
  std::span<BFloat16Bits> weights() const { return weights_; }

 private:
  uint32_t world_size_;
  uint64_t elements_;
  SharedMemory memory_;
  std::span<float> losses_;
  std::span<BFloat16Bits> gradients_;
  std::span<BFloat16Bits> weights_;
};

}  // namespace train_zero
