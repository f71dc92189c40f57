// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The partitions that training frameworks make, built from the cut rules of partition.h. Each is a
/// closed form of the shapes and the rank list: nothing of a framework's padding or flat buffers is
/// stored.

#include <cstdint>
#include <string>
#include <vector>

#include "flagstone/export.h"
#include "flagstone/load.h"
#include "flagstone/partition.h"

namespace flagstone {

/// Cut points of `elements` over `ranks` when the flat buffer is padded to a multiple of
/// `alignment` x ranks and cut evenly: ceil(elements / (ranks x alignment)) x alignment each, so
/// the last ranks may own fewer elements, or none.
FLAGSTONE_EXPORT std::vector<uint64_t> EvenCuts(uint64_t elements, uint32_t ranks,
                                                uint64_t alignment);

/// ZeRO-1 and ZeRO-2: one flat partition a parameter group, padded to 2 x ranks.
/// Source: DeepSpeed's stage 1/2 alignment (`nccl_start_alignment_factor` = 2).
FLAGSTONE_EXPORT Result<Partition> MakeZero12(const Layout& layout, PartitionId id,
                                              std::vector<uint32_t> tensors, RankList ranks,
                                              std::vector<Role> roles);

/// ZeRO-3: each tensor cut into ceil(elements / ranks) elements.
FLAGSTONE_EXPORT Partition MakeZero3(PartitionId id, std::vector<uint32_t> tensors, RankList ranks,
                                     std::vector<Role> roles);

/// FSDP2 and DTensor Shard(0): each tensor cut into ceil(rows / ranks) rows, as torch.chunk does.
FLAGSTONE_EXPORT Partition MakeFsdp2(PartitionId id, std::vector<uint32_t> tensors, RankList ranks,
                                     std::vector<Role> roles);

/// ZeroRedundancyOptimizer: whole tensors, group by group, each group in order of falling size
/// (stable), each given to the rank with the least elements so far (the lowest such rank); the sums
/// go on from group to group. `groups` holds the tensors of each parameter group in order. Returns
/// the owner of each, in the same shape.
FLAGSTONE_EXPORT Result<std::vector<std::vector<uint32_t>>> ZeroRedundancyOwners(
    const Layout& layout, const std::vector<std::vector<uint32_t>>& groups, uint32_t ranks);

/// A partition of whole tensors with stated owners.
FLAGSTONE_EXPORT Partition MakeWhole(PartitionId id, std::vector<uint32_t> tensors, RankList ranks,
                                     std::vector<Role> roles, std::vector<uint32_t> owners);

/// Tensors that every rank of the list holds. They are stored once: in order of falling size
/// (stable), each by the rank with the least bytes so far, over the first clamp(bytes / 64 MiB, 1,
/// all) ranks of the list.
FLAGSTONE_EXPORT Result<Partition> MakeReplicated(const Layout& layout, PartitionId id,
                                                  std::vector<uint32_t> tensors, RankList ranks,
                                                  std::vector<Role> roles);

/// The same model over another number of ranks, each partition by its own rule: flat ones are cut
/// evenly again (EvenCuts, alignment 2), whole ones are given out by ZeroRedundancyOwners, replicated
/// ones are stored as MakeReplicated says, of a mesh the first axis changes its size. Errors:
/// kInvalidArgument (world_size 0, or no multiple of a mesh's other axes) and, naming the partition,
/// for what only its maker knows: stated pieces, replica lists, rank lists that are not the world.
FLAGSTONE_EXPORT Result<Layout> LayoutForWorld(const Layout& layout, uint32_t world_size);

/// The same model as a ZeRO stage has it: 0 everything replicated; 1 and 2 weights replicated, the
/// other roles flat, a partition each as saved; 3 everything per tensor. Boxes become whole tensors;
/// buffers stay replicated, attached roles whole. Errors: kInvalidArgument (stage above 3, or
/// world_size 0).
FLAGSTONE_EXPORT Result<Layout> LayoutForStage(const Layout& layout, uint32_t stage,
                                               uint32_t world_size);

/// DeepSpeed's flat buffer of a ZeRO-1/2 partition on each rank: the slices, then zeros up to
/// ceil(elements / (2 x ranks)) x 2 elements. For LoadOptions::shape_buffer. `layout` is the wanted
/// one. Errors: kNotFound (no such partition), kInvalidArgument (its rule is not flat, or a rank
/// holds more than that).
FLAGSTONE_EXPORT Result<BufferShape> Zero12Buffer(const Layout& layout, const SegmentInfo& segment);
/// The same of a ZeRO-3 partition (per tensor, by element): for each tensor in order
/// ceil(elements / ranks) elements, zeros where the rank's piece is shorter or missing.
FLAGSTONE_EXPORT Result<BufferShape> Zero3Buffer(const Layout& layout, const SegmentInfo& segment);

}  // namespace flagstone
