// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// A rank's reader, its plan, and two ways to get bytes: view (no copy) and load (into your
/// memory).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "flagstone/backend.h"
#include "flagstone/export.h"
#include "flagstone/memory.h"
#include "flagstone/partition.h"
#include "flagstone/status.h"
#include "flagstone/value.h"

namespace flagstone {

struct SegmentInfo;

/// A framework's buffer of one segment: where it has the slices, with zeros between and behind them
/// (the padding of a flat buffer, of each parameter's piece, of an alignment). In elements.
struct BufferShape {
  std::vector<uint64_t> offsets;  ///< Of each slice of SegmentInfo::slices; rising, no overlap.
  uint64_t elements = 0;          ///< Of the whole buffer.
};

/// What RankReader::RankState gives where another number of ranks saved than loads.
enum class RankStatePolicy : uint8_t {
  kNone = 0,    ///< Null, and LoadReport::rank_state says so.
  kRefuse = 1,  ///< OpenRank fails.
  kSame = 2,    ///< Rank r gets what rank r modulo the saved world size saved.
  kDerive = 3,  ///< {"seed": n}: the integer "seed" of rank 0's state folded with the rank.
};

struct LoadOptions {
  bool verify =
      true;  ///< False: bytes are used as they are. Headers and indexes are checked all the same.
  bool replicated = false;  ///< Also what replicated partitions give this rank, read once a node.
  std::vector<std::string> roles = {};  ///< Only these roles; empty: all.
  Backend backend = Backend::kAuto;
  uint32_t queue_depth = 0;            ///< Reads in flight, at most kMaxQueueDepth; 0: chosen.
  /// Gives the buffer that a framework wants of a segment (flagstone/zero.h has ZeRO's); empty: the
  /// slices as SegmentInfo describes them.
  std::function<Result<BufferShape>(const SegmentInfo&)> shape_buffer = {};
  RankStatePolicy rank_state = RankStatePolicy::kNone;
  /// Goes before the policy, also at the saved world size: makes this rank's state of what all ranks
  /// saved, by rank.
  std::function<Result<Value>(uint32_t rank, std::span<const Value> saved)> make_rank_state = {};
  HostAllocator* allocator = nullptr;  ///< For Allocate; null: PageAllocator().
  /// Called now and then from the thread in Load with wanted bytes done so far and in total.
  std::function<void(uint64_t, uint64_t)> progress = {};
  std::stop_token stop = {};  ///< Asked to stop, Load gives up with kCancelled.
};

/// What a load did. Counts are exact.
struct LoadReport {
  uint64_t wanted_bytes = 0;
  uint64_t read_bytes =
      0;  ///< Segment bytes read, rounding and over-read included (a view: bytes verified).
  uint64_t verified_bytes = 0;
  uint64_t metadata_bytes = 0;     ///< Manifest, headers and indexes once, and the digest pages
                                   ///< that were read: those met last are kept in the reader.
  uint64_t read_calls = 0;         ///< Reads submitted for segment bytes.
  uint64_t files_opened = 0;       ///< Rank files.
  uint64_t peak_buffer_bytes = 0;  ///< Buffers of the library itself, above the destination.
  double seconds = 0;
  std::string backend;
  std::string backend_reason;
  std::string rank_state;  ///< Whose state RankState() gives, or why it gives none.
};

/// What a rank gets of one role of one partition: its slices in order, packed (members of whole and
/// replicated partitions each begin on 64 bytes).
struct SegmentInfo {
  PartitionId partition;
  std::string role;
  DType dtype = DType::kFloat32;
  RoleForm form = RoleForm::kAligned;
  bool replicated = false;
  uint64_t bytes = 0;             ///< Size of the destination that Load fills.
  std::vector<Slice> slices;      ///< Members index the partition's members.
  std::vector<uint64_t> offsets;  ///< Byte offset of each slice in the segment.
};

/// Read-only bytes of a mapped segment or tensor. Owns its share of the mapping: it may outlive
/// reader and checkpoint.
class FLAGSTONE_EXPORT View {
 public:
  View() = default;
  View(std::span<const std::byte> bytes, std::shared_ptr<const void> mapping)
      : bytes_(bytes), mapping_(std::move(mapping)) {}
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::shared_ptr<const void>& mapping() const { return mapping_; }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> mapping_;
};

/// Where the bytes of one segment go.
struct Destination {
  PartitionId partition;
  std::string role;
  std::span<std::byte> memory;  ///< SegmentInfo::bytes long; or empty when there is a sink.
  Sink* sink = nullptr;
};

/// The reads that carry saved slices to wanted slices, known before the first read.
struct FLAGSTONE_EXPORT Plan {
  /// `length` bytes at `file_offset` of rank `rank`'s file go to `destination_offset` of wanted
  /// segment `segment`; where there are levels this is repeated, as rows of a matrix are.
  struct Run {
    uint32_t rank = 0;
    uint32_t segment = 0;
    uint64_t file_offset = 0;  ///< Of the first repetition, as destination_offset.
    uint64_t destination_offset = 0;
    uint64_t length = 0;
    uint32_t first_level = 0;  ///< In `levels`; the outermost first.
    uint32_t level_count = 0;
  };
  std::vector<SegmentInfo> segments;
  std::vector<Run> runs;  ///< By segment and destination offset.
  std::vector<RunLevel> levels;
  std::span<const RunLevel> LevelsOf(const Run& run) const {
    return std::span(levels).subspan(run.first_level, run.level_count);
  }
  uint64_t wanted_bytes = 0;
  uint64_t read_bytes =
      0;               ///< With what is read beside the wanted bytes so that they can be verified.
  uint32_t files = 0;  ///< Rank files to be opened, the rank's own included.
};

/// Memory that fits a rank's segments: one buffer a segment, congruent with the file so that direct
/// reads need no copy.
struct RankMemory {
  std::vector<HostBuffer> buffers;  ///< As RankReader::segments().
  std::vector<Destination> destinations;
};

/// Reads what one rank saved. Thread-safe; cheap to copy.
class FLAGSTONE_EXPORT RankReader {
 public:
  uint32_t rank() const;
  /// What this rank gets, in the order of the rank file; replicated segments come last.
  const std::vector<SegmentInfo>& segments() const;
  const Plan& plan() const;

  /// Map this rank's segment of a role and return its bytes without copying.
  ///
  /// The bytes are verified first, in windows of 1 MiB (LoadOptions::verify = false skips it). The
  /// view is read-only: writing through it is a segmentation fault. Cost: one pass over the bytes,
  /// no private memory. Errors: kNotFound (nearest names are listed), kCorruption (names file,
  /// segment, chunk and offset); kUnsupported for a replicated segment whose members lie in several
  /// files (use ViewTensor).
  Result<View> ViewSegment(std::string_view partition, std::string_view role,
                           LoadReport* report = nullptr) const;
  /// Map this rank's slice of one tensor (all slices of it in order, packed); verifies only the
  /// chunks it touches. Errors: those of ViewSegment; kUnsupported for slices that do not follow
  /// each other in one file.
  Result<View> ViewTensor(std::string_view partition, std::string_view role,
                          std::string_view tensor, LoadReport* report = nullptr) const;

  /// Read segments into the caller's memory or sinks, with what lies between their members: zeros, as
  /// Writer leaves them and Verify checks them. After an
  /// error the content of the destinations is undefined. Reads go straight into memory where
  /// (address - file offset) is 0 modulo the device's memory alignment.
  Result<LoadReport> Load(std::span<const Destination> destinations) const;
  /// Memory for all segments, from LoadOptions::allocator.
  Result<RankMemory> Allocate() const;

  /// The value of a plain role of the reader's layout, of a tensor of which this rank holds a part.
  /// Errors: kNotFound; kCorruption names both ranks when two saved unlike values; kInvalidArgument
  /// when boxes of the tensor have unlike ones.
  Result<Value> Plain(std::string_view partition, std::string_view role,
                      std::string_view tensor) const;
  /// The one value that all tensors of a partition have of which this rank holds a part, for a
  /// framework that keeps one a group; null when it holds none. Errors: those of Plain;
  /// kInvalidArgument names tensors that differ.
  Result<Value> PlainOfAll(std::string_view partition, std::string_view role) const;
  /// What this rank's SetRankState was given; null if nothing. In a world of another size, what
  /// LoadOptions::rank_state says. Arrays above 4 KiB are read and verified at this call.
  Result<Value> RankState() const;
  /// Bytes of metadata read so far: manifest, headers, indexes, digest pages, arrays of the state.
  uint64_t metadata_bytes() const;

  class Impl;
  explicit RankReader(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace flagstone
