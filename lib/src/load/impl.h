// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// What stands behind Checkpoint and RankReader.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "flagstone/checkpoint.h"
#include "flagstone/load.h"
#include "format/placement.h"
#include "io/file_system.h"
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

/// The chunks that a run touches.
struct ChunkRange {
  uint64_t first = 0;
  uint64_t count = 0;
  uint64_t begin = 0;  ///< Byte offset of the first chunk in the segment.
  uint64_t size = 0;   ///< Bytes of all of them, the segment's padding included.
};
ChunkRange ChunksOf(const format::PlacedSegment& segment, uint64_t offset, uint64_t length);

}  // namespace load

class RankReader::Impl {
 public:
  /// Plan and open: `wanted` is the layout of the reader, here the saved one.
  static Result<std::shared_ptr<const Impl>> Make(
      std::shared_ptr<const Checkpoint::Impl> checkpoint, const Layout& wanted, uint32_t rank,
      LoadOptions options);

  Result<View> ViewSegment(std::string_view partition, std::string_view role,
                           LoadReport* report) const;
  Result<View> ViewTensor(std::string_view partition, std::string_view role,
                          std::string_view tensor, LoadReport* report) const;
  Result<LoadReport> Load(std::span<const Destination> destinations) const;
  Result<RankMemory> Allocate() const;
  Result<Value> Plain(std::string_view partition, std::string_view role,
                      std::string_view tensor) const;
  Result<Value> RankState() const;

  uint32_t rank() const { return rank_; }
  const Plan& plan() const { return plan_; }
  uint64_t metadata_bytes() const { return metadata_bytes_.load(std::memory_order_relaxed); }

 private:
  Impl(std::shared_ptr<const Checkpoint::Impl> checkpoint, uint32_t rank, LoadOptions options)
      : checkpoint_(std::move(checkpoint)), rank_(rank), options_(std::move(options)) {}

  Status MakePlan(const Layout& wanted);
  Status ResolveSources();
  Status IndexPlainValues();
  Result<std::shared_ptr<const store::RankFileReader>> FileOf(uint32_t rank) const;
  Result<uint32_t> FindSegment(std::string_view partition, std::string_view role) const;
  std::span<const Plan::Run> RunsOf(uint32_t segment) const;
  Result<View> MapRange(const load::Source& source, uint64_t length, LoadReport* report) const;
  Status VerifyMapped(const load::Source& source, const load::ChunkRange& chunks,
                      std::span<const std::byte> bytes, LoadReport& report) const;
  Result<std::vector<uint64_t>> Digests(const load::Source& source,
                                        const load::ChunkRange& chunks) const;
  LoadReport BaseReport() const;

  friend class LoadRun;

  const std::shared_ptr<const Checkpoint::Impl> checkpoint_;
  const uint32_t rank_;
  const LoadOptions options_;
  Plan plan_;
  std::vector<load::Source> sources_;                              // as plan_.runs
  std::map<std::string, uint32_t, std::less<>> segments_by_name_;  // "partition/role"
  std::unordered_map<std::string, const Value*>
      plain_;                 // "partition/role/tensor", into the rank's own index
  mutable std::mutex mutex_;  // guards files_
  mutable std::map<uint32_t, std::shared_ptr<const store::RankFileReader>> files_;
  mutable std::atomic<uint64_t> metadata_bytes_{0};
};

}  // namespace flagstone
