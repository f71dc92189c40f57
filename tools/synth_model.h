// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The models that `flagstone synth` saves: which tensors there are, who holds what of them, and
/// the value of every element.
///
/// An element is a function of (seed, tensor name, role, index in the tensor), the same at every
/// world size and stage, so that anything loaded can be checked without the program that saved it:
///
///     key    = Mix64(seed ^ Fnv1a64(tensor name, one zero byte, role))     role "weight" of a
///              parameter counts as "fp32"
///     k      = Mix64(key + (index >> 32) * 0x9e3779b97f4a7c15)
///     h      = Mix32((uint32(index) + uint32(k)) mod 2^32) ^ uint32(k >> 32)
///     fp32   = (h & 0x83ffffff) | 0x3c000000      float bits: either sign, 2^-7 <= |x| < 2
///     weight = fp32 rounded to bfloat16, ties to even; of a buffer: its own fp32
///     exp_avg     = (h & 0x83ffffff) | 0x34000000                         2^-23 <= |x| < 2^-15
///     exp_avg_sq  = (h & 0x03ffffff) | 0x2c000000                         2^-39 <=  x  < 2^-31
///     step   = the step of the checkpoint, one integer a tensor
///
/// All are finite, ordinary numbers. Fnv1a64 is FNV-1a; Mix64 is the finalizer of SplitMix64; Mix32
/// is x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b, x ^= x >> 16. With --sparse
/// every element is 0 instead.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/dtype.h"
#include "flagstone/memory.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"

namespace flagstone::tools {

/// The stream of elements of one role of one tensor.
class ElementStream {
 public:
  ElementStream(uint64_t seed, const Tensor& tensor, std::string_view role, DType dtype);

  /// The bits of an element in the dtype of the role (bfloat16: the low 16).
  uint32_t BitsAt(uint64_t index) const;
  /// The bytes of the stream from byte `offset` of the tensor's row-major data on.
  void Fill(uint64_t offset, std::span<std::byte> out) const;

 private:
  template <typename Element>
  void FillElements(uint64_t first, std::span<std::byte> out) const;
  uint32_t ToBits(uint32_t hash) const;

  uint64_t key_;
  uint32_t keep_;  // Of the hash, these bits...
  uint32_t set_;   // ... and these are set: see the formulas above.
  bool to_bfloat16_;
};

/// Which model; the counts are those of the tensors that take part in training.
struct ModelChoice {
  std::string name;  ///< "gpt2-124m", "gpt2-1.5b" or "small-10k"; empty: `parameters` counts.
  uint64_t parameters = 0;  ///< So many elements in all, in ...
  uint64_t tensors = 0;     ///< ... so many tensors of unlike, odd sizes; 0: chosen.
};

/// Its tensors and parameter groups, without partitions. Errors: kInvalidArgument.
Result<Layout> MakeModel(const ModelChoice& choice);

/// Add the partitions of a ZeRO stage over `world_size` ranks. Parameter group g is partition
/// "params.<g>".
///
/// Stage 0: all replicated. Stages 1 and 2 (which differ in gradients, not in what is saved): fp32
/// masters and moments flat over the ranks, weights replicated in partition "weights". Stage 3: all
/// four roles cut tensor by tensor. Buffers are replicated in partition "buffers".
Status AddStage(Layout& layout, uint32_t stage, uint32_t world_size);

/// Generates the bytes of one segment of one rank: `slices` of one role, packed.
class SynthSource final : public Source {
 public:
  /// `sparse`: every element is 0. Layout, partition and slices are borrowed.
  SynthSource(uint64_t seed, bool sparse, const Layout& layout, const Partition& partition,
              const Role& role, std::span<const Slice> slices);

  uint64_t size_bytes() const override;
  Status Read(uint64_t offset, std::span<std::byte> out) override;
  bool IsZero(uint64_t offset, uint64_t size) const override;

 private:
  uint64_t seed_;
  bool sparse_;
  const Layout& layout_;
  const Partition& partition_;
  const Role& role_;
  uint64_t element_bytes_;
  std::span<const Slice> slices_;
  std::vector<uint64_t> ends_;  // Byte offset in the segment at which each slice ends.
};

/// What a rank keeps for itself: an RNG state larger than 4 KiB, its place in the data.
Value SynthRankState(uint64_t seed, uint32_t rank);
/// What the job keeps: how to make the same again, a scheduler, a loss history.
Value SynthClientState(const ModelChoice& choice, uint64_t seed, bool sparse, uint32_t stage,
                       int64_t step);

}  // namespace flagstone::tools
