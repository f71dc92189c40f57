// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// Which ranks hold which slices of which tensors. A saved layout and a wanted layout are both a
/// `Layout`; a load is a plan from one to the other, and no other code knows about world sizes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "flagstone/export.h"
#include "flagstone/status.h"
#include "flagstone/tensor.h"

namespace flagstone {

/// Name of a partition: 1 to 256 bytes of valid UTF-8 without NUL and '/', unique in a layout.
using PartitionId = std::string;

/// Ranks first, first + stride, ... (count of them).
struct RankRange {
  uint32_t first = 0;
  uint32_t count = 1;
  uint32_t stride = 1;

  bool operator==(const RankRange&) const = default;
};

/// An ordered list of distinct global ranks. It need not be the whole world.
struct FLAGSTONE_EXPORT RankList {
  std::vector<RankRange> ranges;

  /// Ranks 0 .. world_size - 1.
  static RankList World(uint32_t world_size);
  static RankList Of(const std::vector<uint32_t>& ranks);

  uint32_t size() const;
  /// The rank at `index` < size(). Cost: O(ranges).
  uint32_t at(uint32_t index) const;
  /// Position of `rank`, or nullopt. Cost: O(ranges).
  std::optional<uint32_t> IndexOf(uint32_t rank) const;

  bool operator==(const RankList&) const = default;
};

/// A rectangular part of a tensor.
struct Box {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> sizes;

  bool operator==(const Box&) const = default;
};

/// A tensor of the layout, or a box of it, that a partition covers.
struct Member {
  uint32_t tensor = 0;     ///< Index in Layout::tensors.
  std::optional<Box> box;  ///< The whole tensor when absent.

  bool operator==(const Member&) const = default;
};

/// These values are frozen in the file format.
enum class RoleForm : uint8_t {
  kAligned = 0,   ///< Of the member's own shape, cut as the partition cuts.
  kAttached = 1,  ///< Of its own shape, whole, one owner (Adafactor's rows, Shampoo's factors).
  kPlain = 2,  ///< A number, bool or null per tensor (`step`); kept in the index of every rank that
               ///< owns a part.
};

/// "aligned", "attached" or "plain".
FLAGSTONE_EXPORT std::string_view Name(RoleForm form);

/// One of the values that each member of a partition has: "weight", "fp32", "exp_avg",
/// "exp_avg_sq", any other name.
struct Role {
  std::string name;  ///< 1 to 256 bytes of valid UTF-8 without NUL and '/'.
  DType dtype = DType::kFloat32;
  RoleForm form = RoleForm::kAligned;
  /// Attached only: the shape of each member's value, as many as there are members.
  std::vector<std::vector<uint64_t>> shapes = {};
  /// Elements that belong together in block-quantised state; a cut off that grid is refused. 1: no
  /// blocks.
  uint64_t block = 1;
  /// Bytes covered by one digest: a multiple of 4 KiB from 4 KiB to 4 MiB. 0: the default of the
  /// cut rule.
  uint32_t chunk_bytes = 0;

  bool operator==(const Role&) const = default;
};

/// Members are concatenated and cut at stated element offsets: ZeRO-1/2, FSDP1, Megatron's
/// distributed optimizer.
struct FlatCut {
  /// Rank list position i holds elements [cuts[i], cuts[i + 1]); size ranks + 1, first 0, last the
  /// total.
  std::vector<uint64_t> cuts;

  bool operator==(const FlatCut&) const = default;
};

/// These values are frozen in the file format.
enum class CutUnit : uint8_t {
  kElement = 0,  ///< ZeRO-3.
  kRow = 1,      ///< One index of dimension 0, the cut of torch.chunk: FSDP2, DTensor Shard(0).
};

/// Each member is cut into pieces of ceil(units / ranks) units; the last pieces may be short or
/// empty.
struct PerTensorCut {
  CutUnit unit = CutUnit::kElement;

  bool operator==(const PerTensorCut&) const = default;
};

/// What one axis of a device mesh does to each member. These values are frozen in the file format.
enum class MeshPlacement : uint8_t { kReplicate = 0, kShard = 1, kStridedShard = 2 };

struct MeshAxis {
  uint32_t size = 1;
  MeshPlacement placement = MeshPlacement::kReplicate;
  uint32_t dimension = 0;     ///< Sharded dimension.
  uint32_t split_factor = 1;  ///< Of a strided shard.

  bool operator==(const MeshAxis&) const = default;
};

/// DTensor's general rule; the rank list is the mesh in row-major order.
struct MeshCut {
  std::vector<MeshAxis> axes;

  bool operator==(const MeshCut&) const = default;
};

/// Each member belongs whole to one rank: ZeroRedundancyOptimizer, experts, attached roles.
struct WholeCut {
  std::vector<uint32_t> owners;  ///< Per member: position in the rank list.

  bool operator==(const WholeCut&) const = default;
};

/// Every rank of the list holds every member; one of them stores it.
struct ReplicatedCut {
  std::vector<uint32_t> storing;  ///< Per member: position in the rank list.

  bool operator==(const ReplicatedCut&) const = default;
};

/// One stated slice: elements [begin, end) of a member, row-major.
struct ExplicitPiece {
  uint32_t rank_index = 0;  ///< Position in the rank list.
  uint32_t member = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  bool operator==(const ExplicitPiece&) const = default;
};

/// Anything else. A rank holds its pieces in the order stated.
struct ExplicitCut {
  std::vector<ExplicitPiece> pieces;

  bool operator==(const ExplicitCut&) const = default;
};

/// The index of an alternative is frozen in the file format.
using CutRule = std::variant<FlatCut, PerTensorCut, MeshCut, WholeCut, ReplicatedCut, ExplicitCut>;

/// "flat", "per_tensor", "mesh", "whole", "replicated" or "explicit".
FLAGSTONE_EXPORT std::string_view RuleName(const CutRule& rule);

/// Which ranks hold which slices of which members, for one or more roles.
struct Partition {
  PartitionId id;
  RankList ranks;  ///< The ranks that hold and store the pieces.
  /// Further lists of the same length whose ranks hold the same pieces (HSDP).
  std::vector<RankList> replicas = {};
  std::vector<Member> members;  ///< In the order in which a flat rule concatenates them.
  std::vector<Role> roles;      ///< At most 256.
  CutRule cut;

  bool operator==(const Partition&) const = default;
};

/// Everything a checkpoint says about a model and about who holds what of it.
struct Layout {
  uint32_t world_size = 1;  ///< 1 to 2^20.
  std::vector<Tensor> tensors;
  std::vector<Partition> partitions;
  std::vector<ParameterGroup> groups = {};

  bool operator==(const Layout&) const = default;
};

/// Elements [begin, end) of a member, row-major. Under a mesh rule: [0, end), the elements of the
/// rank's local tensor (HeldTensor).
struct Slice {
  uint32_t member = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  bool operator==(const Slice&) const = default;
};

/// What a rank holds of a member under a mesh rule, as DTensor's local tensor.
struct LocalTensor {
  /// A rectangle of it. More than one where a strided shard leaves a dimension in several parts.
  struct Part {
    Box box;                        ///< In the tensor.
    std::vector<uint64_t> offsets;  ///< Where it begins in the local tensor.

    bool operator==(const Part&) const = default;
  };
  std::vector<uint64_t> shape;
  std::vector<Part> parts;  ///< In rising order; none where the local tensor has no elements.

  bool operator==(const LocalTensor&) const = default;
};

/// One level of a repeated run of bytes: `count` times, `source_stride` bytes apart where they are
/// saved and `target_stride` where they go.
struct RunLevel {
  uint64_t count = 0;
  uint64_t source_stride = 0;
  uint64_t target_stride = 0;

  bool operator==(const RunLevel&) const = default;
};

/// Check a layout: names, references, shapes, rank lists, and that every (tensor, role, element)
/// has exactly one owner.
///
/// Errors: kInvalidArgument names the tensor or partition and the range; kUnsupported for boxes and
/// meshes that cut more than 5 dimensions of a tensor. Cost: O(tensors + members + cuts + pieces log
/// pieces), independent of ranks and elements; for a tensor that is in several partitions also their
/// roles, for one in n boxes that cut k dimensions 2^k n log n.
FLAGSTONE_EXPORT Status ValidateLayout(const Layout& layout);

/// The slices that `rank` holds of a partition, in the order of its segment; empty when it holds
/// none. For a replicated partition: all members, whole. A slice without elements stands only for a
/// member without any, of a whole or replicated partition. The partition is checked first; the rest
/// of the layout is taken as valid. Errors: kNotFound (nearest ids are listed), kInvalidArgument
/// (the rank is not in the world), those of ValidateLayout. Cost: O(members + cuts or pieces).
FLAGSTONE_EXPORT Result<std::vector<Slice>> HeldSlices(const Layout& layout,
                                                       std::string_view partition, uint32_t rank);

/// As HeldSlices, but for a replicated partition only the members that `rank` stores, and nothing
/// for a rank that only stands in a replica list.
FLAGSTONE_EXPORT Result<std::vector<Slice>> StoredSlices(const Layout& layout,
                                                         std::string_view partition, uint32_t rank);

/// The local tensor of `rank` of one member of a mesh partition. Errors: as HeldSlices, and
/// kInvalidArgument where the rule is another, there is no such member or the rank holds nothing.
FLAGSTONE_EXPORT Result<LocalTensor> HeldTensor(const Layout& layout, std::string_view partition,
                                                uint32_t rank, uint32_t member);

}  // namespace flagstone
