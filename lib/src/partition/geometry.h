// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// One partition with its sums made once: who holds and stores what, and where it lies in a
/// segment.

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "flagstone/partition.h"
#include "partition/blocks.h"
#include "partition/mesh.h"

namespace flagstone::partition {

/// Segments of whole and replicated partitions begin each member on this many bytes.
inline constexpr uint64_t kMemberAlignment = 64;

/// One slice of a segment and where its bytes lie in it.
struct SegmentPiece {
  Slice slice;  ///< For an attached role: [0, elements of the member's value).
  uint64_t byte_offset = 0;
  uint64_t byte_size = 0;

  bool operator==(const SegmentPiece&) const = default;
};

/// A rank's segment of one role. Packed for flat, per tensor, mesh and explicit; members on 64 bytes
/// for whole and replicated.
struct Segment {
  std::vector<SegmentPiece> pieces;
  uint64_t bytes = 0;  ///< End of the last piece.

  bool operator==(const Segment&) const = default;
};

/// Part of a wanted slice as some rank stores it.
struct StoredPiece {
  uint32_t rank_index = 0;
  Slice slice;
  uint64_t byte_offset = 0;  ///< In that rank's segment.
};

/// A patch of a tensor as some rank stores it; its base counts elements of that rank's segment.
struct StoredPatch {
  uint32_t rank_index = 0;
  Patch patch;
};

/// Position of a global rank in the rank list of a valid partition or, failing that, in a replica
/// list.
std::optional<uint32_t> HolderIndex(const Partition& partition, uint32_t rank);

/// Who stores which part, for many questions about one partition. Borrowed: the layout must outlive
/// it and be valid. Thread-safe; copies share what they have worked out.
class Geometry {
 public:
  /// Cost: O(members or pieces), independent of ranks and elements.
  Geometry(const Layout& layout, uint32_t partition);

  const Layout& layout() const { return *layout_; }
  const Partition& partition() const { return layout_->partitions[index_]; }
  /// Sizes of the tensor, or of the box of it that the member is.
  const std::vector<uint64_t>& member_shape(uint32_t member) const;
  /// Elements of the member: of its tensor or its box.
  uint64_t member_elements(uint32_t member) const { return elements_[member]; }
  /// Null unless the rule is a mesh.
  const Mesh* mesh() const { return mesh_ ? &*mesh_ : nullptr; }
  /// Elements of a member's value of a role: of the member's shape, or of an attached role's own.
  uint64_t role_elements(uint32_t role, uint32_t member) const;

  /// Per tensor: elements of a piece that is not the last one; all cuts of the member are multiples
  /// of it.
  uint64_t even_piece_elements(uint32_t member) const { return even_[member].length; }

  /// What position `rank_index` of the rank list (or of a replica list) holds / stores, in the
  /// order of its segment. Slices are not empty, but for members without elements of whole and
  /// replicated partitions. Under a mesh rule a slice counts the elements of the local tensor, and
  /// those with a replicating coordinate above 0 store nothing. Cost: O(members or own pieces).
  std::vector<Slice> Held(uint32_t rank_index) const;
  std::vector<Slice> Stored(uint32_t rank_index) const;

  /// The segment of a role (not plain) made of those slices.
  Segment HeldSegment(uint32_t role, uint32_t rank_index) const;
  Segment StoredSegment(uint32_t role, uint32_t rank_index) const;
  /// StoredSegment's bytes, without its pieces.
  uint64_t StoredBytes(uint32_t role, uint32_t rank_index) const;

  /// Who stores elements [begin, end) of a member of an aligned role (or the whole of an attached
  /// one), in rising order of elements, each element once; nothing when there are none. Not for a
  /// mesh rule. Cost: O(log) + pieces met; for per tensor O(members) once a rank met, with one
  /// number kept for every 32 members.
  std::vector<StoredPiece> FindStored(uint32_t role, uint32_t member, uint64_t begin,
                                      uint64_t end) const;
  /// The same, appended to `out`.
  void AppendStored(uint32_t role, uint32_t member, uint64_t begin, uint64_t end,
                    std::vector<StoredPiece>& out) const;

  /// The patches of a slice that `rank_index` holds. `base`: place of its first element in the
  /// buffer. The grouping is of the member's tensor, and cut where boxes and mesh cut it.
  void AppendPatches(const Grouping& grouping, uint32_t rank_index, const Slice& slice,
                     uint64_t base, std::vector<Patch>& out) const;
  /// The local tensor that `rank_index` holds of a member under a mesh rule.
  LocalTensor Local(uint32_t member, uint32_t rank_index) const;
  /// Patches of a member as they are stored, among them all that meet `wanted`. Cost: O(patches).
  void AppendStoredPatches(const Grouping& grouping, uint32_t role, uint32_t member,
                           const Patch& wanted, std::vector<StoredPatch>& out) const;

  /// Position of a global rank in the rank list or, failing that, in a replica list.
  std::optional<uint32_t> HolderIndex(uint32_t rank) const {
    return partition::HolderIndex(partition(), rank);
  }
  /// The global rank at a position of the rank list. Cost: O(log ranges).
  uint32_t RankAt(uint32_t rank_index) const;

 private:
  // How a member is cut by the per-tensor rule: ranks 0 .. pieces - 1 have `length` elements each,
  // the last of them what is left, later ranks none.
  struct EvenPieces {
    uint64_t length = 0;
    uint32_t pieces = 0;
  };
  struct Cache;

  // What a position has of the dimensions that a mesh shards, as Mesh::dimensions().
  using HeldDimensions = std::vector<Intervals>;

  HeldDimensions HeldOf(uint32_t member, uint32_t rank_index) const;
  void SetUpPerTensor(CutUnit unit);
  void SetUpExplicit(const std::vector<ExplicitPiece>& pieces);
  const std::vector<uint32_t>* Owners() const;
  std::pair<uint64_t, uint64_t> EvenRange(uint32_t member, uint32_t rank_index) const;
  uint64_t LocalElements(uint32_t member, uint32_t rank_index) const;
  uint64_t PackedElements(uint32_t member, uint32_t rank_index) const;
  uint64_t PackedOffset(uint32_t member, uint32_t rank_index) const;
  uint64_t OwnedOffset(uint32_t role, uint32_t member) const;
  std::vector<Slice> FlatSlices(uint32_t rank_index) const;
  std::vector<Slice> EvenSlices(uint32_t rank_index) const;
  std::vector<Slice> MeshSlices(uint32_t rank_index) const;
  void AppendMeshPatches(const Grouping& grouping, uint32_t member, const HeldDimensions& held,
                         uint64_t base, std::vector<Patch>& out) const;
  void AppendStoredOfMesh(const Grouping& grouping, uint32_t member, const Patch& wanted,
                          std::vector<StoredPatch>& out) const;
  std::vector<Slice> OwnedSlices(uint32_t rank_index) const;
  std::vector<Slice> ExplicitSlices(uint32_t rank_index) const;
  Segment MakeSegment(uint32_t role, const std::vector<Slice>& slices) const;

  const Layout* layout_;
  uint32_t index_;
  uint32_t rank_count_ = 0;
  std::vector<uint32_t> range_starts_;  // position of each range's first rank in the rank list
  std::vector<uint64_t> elements_;      // per member
  std::vector<uint64_t> starts_;        // flat: elements before each member; one more at the end
  std::vector<EvenPieces> even_;        // per tensor: per member
  std::optional<Mesh> mesh_;
  std::vector<uint32_t> by_rank_;    // whole, replicated: members by storing rank; explicit: pieces
  std::vector<uint32_t> by_member_;  // explicit: pieces by member and first element
  std::vector<uint64_t>
      piece_starts_;  // explicit: elements before each piece in its rank's segment
  std::shared_ptr<Cache> cache_;
};

}  // namespace flagstone::partition
