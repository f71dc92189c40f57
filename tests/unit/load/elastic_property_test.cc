// SPDX-License-Identifier: Apache-2.0
// Random checkpoints on disk, opened as random other layouts, element by element against the
// brute-force model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <tuple>

#include "../partition/model.h"
#include "../partition/random_layout.h"
#include "base/text.h"
#include "flagstone/checkpoint.h"
#include "partition/geometry.h"
#include "partition/normalize.h"
#include "saved_files.h"
#include "support/temporary_directory.h"

namespace flagstone {
namespace {

using partition_tests::Draw;
using partition_tests::ElementMark;
using partition_tests::Expand;
using partition_tests::Model;
using partition_tests::ModelElement;
using partition_tests::ModelId;
using partition_tests::ModelSegment;
using partition_tests::SegmentBytes;
using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

struct Counts {
  uint64_t pairs = 0, loads = 0, elements = 0, padded = 0, plain = 0, read_bytes = 0,
           wanted_bytes = 0;
};

int64_t StepOf(const Tensor& tensor) { return static_cast<int64_t>(ModelId(tensor) * 10 + 7); }

// A checkpoint of a layout whose elements say which they are, in a directory.
class Disk {
 public:
  Disk(const Layout& layout, const std::filesystem::path& directory) : layout_(layout) {
    for (uint32_t p = 0; p < layout.partitions.size(); ++p) models_.emplace_back(layout, p);
    testing::SavedOptions options;
    options.rank_content = [this](uint32_t rank, const format::PlacedSegment& segment,
                                  uint64_t offset, std::span<std::byte> out) {
      const std::vector<std::byte>& bytes = BytesOf(rank, segment);
      const uint64_t have = offset < bytes.size() ? std::min(out.size(), bytes.size() - offset) : 0;
      std::fill(out.begin(), out.end(), std::byte{0});
      if (have > 0) std::memcpy(out.data(), bytes.data() + offset, have);
    };
    options.change_index = [this](format::RankIndex& index) { AddPlain(index); };
    const testing::SavedCheckpoint saved = testing::MakeCheckpoint(layout, options);
    testing::WriteFiles(saved, directory, {}, options.rank_content);
  }

 private:
  const std::vector<std::byte>& BytesOf(uint32_t rank, const format::PlacedSegment& segment) {
    const auto [at, is_new] =
        segments_.try_emplace({rank, segment.partition, segment.role});
    if (!is_new) return at->second;
    const Partition* part = partition::FindPartition(layout_, segment.partition);
    const auto p = static_cast<uint32_t>(part - layout_.partitions.data());
    const uint32_t role = *partition::FindRole(*part, segment.role);
    const auto ranks = Expand(part->ranks);
    const auto position = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    at->second = SegmentBytes(layout_, models_[p], role,
                              models_[p].Stored(role, static_cast<uint32_t>(position)),
                              std::byte{0}, ModelId);
    return at->second;
  }

  // As a writer keeps them: of each member of which the rank stores an element; the first rank of
  // those without.
  void AddPlain(format::RankIndex& index) {
    for (uint32_t p = 0; p < layout_.partitions.size(); ++p) {
      const Partition& part = layout_.partitions[p];
      const auto ranks = Expand(part.ranks);
      const auto at = std::find(ranks.begin(), ranks.end(), index.rank);
      if (at == ranks.end()) continue;
      const auto position = static_cast<uint32_t>(at - ranks.begin());
      std::vector<bool> has(part.members.size());
      for (const ModelElement& element : models_[p].StoredSlices(position).elements) {
        has[element.member] = true;
      }
      for (uint32_t m = 0; m < part.members.size(); ++m) {
        if (position == 0 && models_[p].elements(m) == 0) has[m] = true;
      }
      for (const Role& role : part.roles) {
        if (role.form != RoleForm::kPlain) continue;
        for (uint32_t m = 0; m < part.members.size(); ++m) {
          if (!has[m]) continue;
          index.plain.push_back(
              {part.id, role.name, m, Value(StepOf(layout_.tensors[part.members[m].tensor]))});
        }
      }
    }
  }

  const Layout& layout_;
  std::vector<Model> models_;
  std::map<std::tuple<uint32_t, std::string, std::string>, std::vector<std::byte>> segments_;
};

// Slices apart and space behind, as frameworks pad them.
BufferShape RandomShape(const Draw& draw, const SegmentInfo& info) {
  BufferShape shape;
  for (const Slice& slice : info.slices) {
    shape.offsets.push_back(shape.elements + (draw(3) == 0 ? draw(40) : 0));
    shape.elements = shape.offsets.back() + (slice.end - slice.begin);
  }
  shape.elements += draw(2) == 0 ? draw(100) : 0;
  return shape;
}

class MemorySink final : public Sink {
 public:
  explicit MemorySink(uint64_t bytes) : bytes_(bytes), times_(bytes) {}
  Status Write(uint64_t offset, std::span<const std::byte> bytes) override {
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes_.at(offset + i) = bytes[i];
      ++times_.at(offset + i);
    }
    return {};
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  bool each_once() const {
    return std::all_of(times_.begin(), times_.end(), [](uint8_t n) { return n == 1; });
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<uint8_t> times_;
};

class Loading {
 public:
  Loading(const Draw& draw, const Checkpoint& checkpoint, const Layout& wanted, Counts& counts)
      : draw_(draw), checkpoint_(checkpoint), wanted_(partition::Normalize(wanted)),
        counts_(counts) {
    for (uint32_t p = 0; p < wanted_.partitions.size(); ++p) models_.emplace_back(wanted_, p);
  }

  AssertionResult Rank(uint32_t rank) {
    static constexpr Backend kBackends[] = {Backend::kAuto, Backend::kPread, Backend::kMmap};
    LoadOptions options;
    options.replicated = draw_(2) == 0;
    options.backend = kBackends[draw_(3)];
    std::map<std::string, BufferShape> shapes;
    if (draw_(3) == 0) {
      options.shape_buffer = [&](const SegmentInfo& info) -> Result<BufferShape> {
        return shapes[base::Join(info.partition, "/", info.role)] = RandomShape(draw_, info);
      };
      ++counts_.padded;
    }
    const auto reader = checkpoint_.OpenRank(wanted_, rank, options);
    if (!reader.ok()) return AssertionFailure() << reader.status().ToString();
    const auto plan = checkpoint_.PlanRank(wanted_, rank, {.replicated = options.replicated});
    if (!plan.ok() || plan->files != reader->plan().files) return AssertionFailure() << "plan";
    auto memory = reader->Allocate();
    if (!memory.ok()) return AssertionFailure() << memory.status().ToString();
    std::vector<std::unique_ptr<MemorySink>> sinks(memory->destinations.size());
    for (size_t i = 0; i < sinks.size(); ++i) {
      Destination& destination = memory->destinations[i];
      std::ranges::fill(destination.memory, std::byte{0xEE});
      if (draw_(4) != 0 || destination.memory.empty()) continue;
      sinks[i] = std::make_unique<MemorySink>(destination.memory.size());
      destination.memory = {};
      destination.sink = sinks[i].get();
    }
    const auto report = reader->Load(memory->destinations);
    if (!report.ok()) return AssertionFailure() << report.status().ToString();
    for (size_t i = 0; i < sinks.size(); ++i) {
      if (sinks[i] && !sinks[i]->each_once()) return AssertionFailure() << "a sink's byte, twice";
      const std::span<const std::byte> found =
          sinks[i] ? std::span<const std::byte>(sinks[i]->bytes())
                   : std::span<const std::byte>(memory->destinations[i].memory);
      if (auto agree = Segment(reader->segments()[i], rank, found, shapes); !agree) return agree;
    }
    ++counts_.loads;
    counts_.read_bytes += report->read_bytes;
    counts_.wanted_bytes += report->wanted_bytes;
    return Plain(*reader, rank, options.replicated);
  }

 private:
  AssertionResult Segment(const SegmentInfo& info, uint32_t rank, std::span<const std::byte> found,
                          const std::map<std::string, BufferShape>& shapes) {
    const std::string name = base::Join(info.partition, "/", info.role);
    const Partition* part = partition::FindPartition(wanted_, info.partition);
    const auto p = static_cast<uint32_t>(part - wanted_.partitions.data());
    const uint32_t role = *partition::FindRole(*part, info.role);
    const uint64_t size = SizeOf(info.dtype);
    ModelSegment held = models_[p].Held(role, *partition::HolderIndex(*part, rank));
    if (const auto shape = shapes.find(name); shape != shapes.end()) {
      // The same elements, where the shape puts them.
      size_t at = 0;
      for (size_t i = 0; i < info.slices.size(); ++i) {
        for (uint64_t k = 0; k < info.slices[i].end - info.slices[i].begin; ++k, ++at) {
          held.elements.at(at).byte_offset = (shape->second.offsets[i] + k) * size;
        }
      }
      held.bytes = shape->second.elements * size;
    }
    const auto right = SegmentBytes(wanted_, models_[p], role, held, std::byte{0}, ModelId);
    counts_.elements += held.elements.size();
    if (found.size() != right.size()) return AssertionFailure() << name << " has another size";
    for (size_t i = 0; i < right.size(); ++i) {
      if (found[i] != right[i]) return AssertionFailure() << "byte " << i << " of " << name;
    }
    return AssertionSuccess();
  }

  AssertionResult Plain(const RankReader& reader, uint32_t rank, bool replicated) {
    for (uint32_t p = 0; p < wanted_.partitions.size(); ++p) {
      const Partition& part = wanted_.partitions[p];
      const auto holder = partition::HolderIndex(part, rank);
      if (!holder || (std::holds_alternative<ReplicatedCut>(part.cut) && !replicated)) continue;
      for (const Role& role : part.roles) {
        if (role.form != RoleForm::kPlain) continue;
        for (const ModelElement& element : models_[p].HeldSlices(*holder).elements) {
          if (element.index != 0) continue;
          const Tensor& tensor = wanted_.tensors[part.members[element.member].tensor];
          const auto value = reader.Plain(part.id, role.name, tensor.name);
          if (!value.ok()) return AssertionFailure() << value.status().ToString();
          if (*value != Value(StepOf(tensor))) return AssertionFailure() << "plain value";
          ++counts_.plain;
        }
      }
    }
    return AssertionSuccess();
  }

  const Draw& draw_;
  const Checkpoint& checkpoint_;
  const Layout wanted_;
  std::vector<Model> models_;
  Counts& counts_;
};

TEST(ElasticProperty, AnyLayoutLoadsAnyCheckpoint) {
  testing::TemporaryDirectory directory;
  Counts counts;
  for (uint64_t seed = 0; seed < 800; ++seed) {
    const Draw draw = partition_tests::SeededDraw(seed * 3 + 5);
    const bool large = seed % 4 == 0;  // tensors of many chunks
    const uint64_t most_ranks = seed % 10 == 9 ? 64 : 9;
    const auto model = large ? partition_tests::RandomModel(draw, 4, 30000)
                             : partition_tests::RandomModel(draw, 8, 400);
    Layout layout = partition_tests::RandomLayout(draw, model, {.most_ranks = most_ranks});
    for (Partition& part : layout.partitions) {
      for (Role& role : part.roles) role.chunk_bytes = 4096;
    }
    layout = partition::Normalize(std::move(layout));
    const auto path = directory / base::Join("c", seed);
    const Disk disk(layout, path);
    const auto checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    for (int other = 0; other < 3; ++other) {
      const Layout wanted = partition_tests::RandomLayout(
          draw, model,
          {.most_ranks = most_ranks, .subset = draw(2) == 0, .all_roles = false, .rename = true});
      Loading loading(draw, *checkpoint, wanted, counts);
      for (uint32_t n = 0; n < std::min(wanted.world_size, 4U); ++n) {
        const auto rank = static_cast<uint32_t>(draw(wanted.world_size));
        ASSERT_TRUE(loading.Rank(rank)) << "seed " << seed << ", " << other << ", rank " << rank
                                        << " of " << wanted.world_size;
      }
      ++counts.pairs;
    }
    std::filesystem::remove_all(path);
  }
  std::printf("%lu pairs, %lu loads (%lu padded), %lu elements, %lu plain values, %.1f x read\n",
              counts.pairs, counts.loads, counts.padded, counts.elements, counts.plain,
              static_cast<double>(counts.read_bytes) / static_cast<double>(counts.wanted_bytes));
  EXPECT_GT(counts.padded, 100U);
  EXPECT_GT(counts.plain, 500U);
}

}  // namespace
}  // namespace flagstone
