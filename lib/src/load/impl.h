// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What stands behind Checkpoint and RankReader.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "flagstone/checkpoint.h"
#include "flagstone/load.h"
#include "format/placement.h"
#include "io/file_system.h"
#include "load/chunk_reads.h"
#include "load/digest_cache.h"
#include "load/plan.h"
#include "load/tensor_names.h"
#include "partition/matcher.h"
#include "store/open.h"

namespace flagstone {

class Checkpoint::Impl {
 public:
  Impl(io::FileSystem& fs, store::OpenedManifest opened);

  io::FileSystem& fs;
  const store::OpenedManifest opened;
  const std::string save_id;
  const std::string format_version;
};

namespace load {

/// Where one run of a plan comes from, resolved against its rank file.
struct Source {
  std::shared_ptr<const store::RankFileReader> file;
  const format::PlacedSegment* segment = nullptr;  ///< In the file's index.
  uint64_t offset = 0;                             ///< In the segment.
};

}  // namespace load

class RankReader::Impl {
 public:
  /// Rank files that one reader has open at a time: each may need a second descriptor for direct
  /// reads, and `ulimit -n` may be as low as 64.
  static constexpr size_t kMaxOpenFiles = 16;

  /// Plan and open. `wanted` is the layout of the reader, valid and normal; null: the saved one.
  static Result<std::shared_ptr<const Impl>> Make(
      std::shared_ptr<const Checkpoint::Impl> checkpoint, std::shared_ptr<const Layout> wanted,
      uint32_t rank, LoadOptions options);

  Result<View> ViewSegment(std::string_view partition, std::string_view role,
                           LoadReport* report) const;
  Result<View> ViewTensor(std::string_view partition, std::string_view role,
                          std::string_view tensor, LoadReport* report) const;
  Result<LoadReport> Load(std::span<const Destination> destinations) const;
  Result<RankMemory> Allocate() const;
  Result<Value> Plain(std::string_view partition, std::string_view role,
                      std::string_view tensor) const;
  Result<Value> PlainOfAll(std::string_view partition, std::string_view role) const;
  Result<Value> RankState() const;

  uint32_t rank() const { return rank_; }
  const Plan& plan() const { return plan_; }
  uint64_t metadata_bytes() const {
    return opening_bytes_ + later_bytes_.load(std::memory_order_relaxed);
  }

 private:
  using File = std::shared_ptr<store::RankFileReader>;
  // Partition, role and member of the saved layout.
  using PlainKey = std::tuple<uint32_t, uint32_t, uint32_t>;
  // A plain value, the rank that saved it, and one that saved another.
  struct PlainEntry {
    Value value;
    uint32_t rank = 0;
    std::optional<uint32_t> unlike;
  };
  // The slices that a segment has of each tensor.
  struct TensorSlices {
    std::vector<std::pair<uint32_t, uint32_t>> by_tensor;  // tensor, slice; sorted
  };

  Impl(std::shared_ptr<const Checkpoint::Impl> checkpoint, std::shared_ptr<const Layout> wanted,
       uint32_t rank, LoadOptions options)
      : checkpoint_(std::move(checkpoint)),
        given_layout_(std::move(wanted)),
        wanted_(given_layout_ ? *given_layout_ : saved()),
        rank_(rank),
        options_(std::move(options)) {}

  const Layout& saved() const { return checkpoint_->opened.manifest.layout; }
  bool is_same_world() const { return wanted_.world_size == saved().world_size; }

  Result<File> OpenFile(uint32_t rank);
  /// Give the descriptor of a file back that is not used for now, where there are many files.
  void RestFile(const store::RankFileReader& file) const {
    if (files_.size() > kMaxOpenFiles) file.Close();
  }
  Status OpenFiles(std::span<const uint64_t> source_offsets);
  Status OpenForPlainValues();
  void IndexPlainValues(store::RankFileReader& file);
  Result<std::vector<partition::Place>> PlainPlaces(const Role& role, uint32_t tensor) const;
  const PlainEntry* FindPlain(const partition::Place& place) const;
  Result<Value> PlainOf(const Partition& part, const Role& role, uint32_t tensor) const;
  Status NoPlain(std::string_view name, std::string_view partition) const;
  Result<uint32_t> FindSegment(std::string_view partition, std::string_view role) const;
  Result<std::vector<uint32_t>> FindSlices(uint32_t segment, std::string_view tensor) const;
  void IndexTensors() const;
  std::span<const Plan::Run> RunsOf(uint32_t segment) const;
  Result<View> MapRange(const load::Source& source, uint64_t length, LoadReport* report) const;
  Status VerifyMapped(const load::Source& source, const load::ChunkRange& chunks,
                      io::Mapping& mapping, LoadReport& report) const;
  /// As DigestCache::Get; what is read is counted here and in `report`.
  Result<uint64_t> DigestAt(const store::RankFileReader& file, uint64_t index, uint64_t end,
                            LoadReport& report) const;
  LoadReport BaseReport() const;

  friend class LoadRun;

  const std::shared_ptr<const Checkpoint::Impl> checkpoint_;
  const std::shared_ptr<const Layout> given_layout_;  // null: the saved one
  const Layout& wanted_;
  const uint32_t rank_;
  const LoadOptions options_;
  Plan plan_;
  std::vector<load::Source> sources_;                              // as plan_.runs
  std::map<std::string, uint32_t, std::less<>> segments_by_name_;  // "partition/role"
  std::map<uint32_t, File> files_;                                 // by rank: all that was opened
  std::map<PlainKey, PlainEntry> plain_;
  mutable std::mutex matcher_mutex_;
  mutable partition::Matcher matcher_{saved(), wanted_};
  std::string rank_state_note_;
  uint64_t opening_bytes_ = 0;
  mutable std::atomic<uint64_t> later_bytes_{0};
  mutable load::DigestCache digests_;
  const load::TensorNames tensor_names_{wanted_};
  // Made when a tensor is first asked for by name.
  mutable std::once_flag tensors_are_indexed_;
  mutable std::vector<TensorSlices> tensor_slices_;  // as plan_.segments
};

}  // namespace flagstone
