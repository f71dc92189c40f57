// SPDX-License-Identifier: Apache-2.0
// Every backend by force gives equal bytes, wherever the destination lies, and every chunk of a
// file is verified by every way there is to read it.

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "load_support.h"

namespace flagstone::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096;

// Destinations whose addresses are `shift` behind a page.
class ShiftedMemory {
 public:
  ShiftedMemory(const RankReader& reader, uint64_t shift) {
    for (const SegmentInfo& segment : reader.segments()) {
      auto& memory = memory_.emplace_back(segment.bytes + 2 * kPage, std::byte{0x5A});
      const auto address = reinterpret_cast<uintptr_t>(memory.data());
      const uint64_t begin = (kPage - address % kPage) % kPage + shift;
      destinations_.push_back({segment.partition, segment.role,
                               std::span(memory).subspan(begin, segment.bytes), nullptr});
    }
  }
  std::span<const Destination> destinations() const { return destinations_; }
  // Nothing but the destinations was written.
  void ExpectRestUntouched() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const auto inner = destinations_[i].memory;
      const auto& outer = memory_[i];
      const auto begin = static_cast<size_t>(inner.data() - outer.data());
      const auto is_kept = [](std::byte byte) { return byte == std::byte{0x5A}; };
      EXPECT_TRUE(
          std::all_of(outer.begin(), outer.begin() + static_cast<ptrdiff_t>(begin), is_kept));
      EXPECT_TRUE(std::all_of(outer.begin() + static_cast<ptrdiff_t>(begin + inner.size()),
                              outer.end(), is_kept));
    }
  }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Destination> destinations_;
};

// Remembers what it gets, and that it gets each byte once.
class CheckingSink final : public Sink {
 public:
  explicit CheckingSink(uint64_t size) : bytes_(size), seen_(size) {}
  Status Write(uint64_t offset, std::span<const std::byte> bytes) override {
    for (size_t i = 0; i < bytes.size(); ++i) {
      EXPECT_FALSE(seen_[offset + i]) << "byte " << offset + i << " came twice";
      seen_[offset + i] = true;
      bytes_[offset + i] = bytes[i];
    }
    return {};
  }
  void Expect(std::span<const std::byte> expected) const {
    EXPECT_TRUE(std::ranges::equal(bytes_, expected));
    EXPECT_TRUE(std::ranges::all_of(seen_, [](bool seen) { return seen; }));
  }

 private:
  std::vector<std::byte> bytes_;
  std::vector<bool> seen_;
};

class EveryBackend : public ::testing::TestWithParam<Backend> {
 protected:
  LoadOptions Options() const {
    LoadOptions options;
    options.backend = GetParam();
    options.replicated = true;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Load, EveryBackend,
                         ::testing::Values(Backend::kAuto, Backend::kUringDirect, Backend::kUring,
                                           Backend::kPread, Backend::kMmap),
                         [](const auto& tested) {
                           std::string name(Name(tested.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(EveryBackend, EqualBytesWhereverTheDestinationLies) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(3));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  if (!IsUsable(*checkpoint, GetParam())) GTEST_SKIP() << Name(GetParam()) << " cannot be used";
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ExpectLoads(*checkpoint, rank, Options());
    const auto reader = checkpoint->OpenRank(rank, Options());
    ASSERT_OK(reader);
    // On a page, off it by one byte, on the file's own alignment, and just before a page.
    for (const uint64_t shift : {0, 1, 64, 512, 4095}) {
      const ShiftedMemory memory(*reader, shift);
      const auto report = reader->Load(memory.destinations());
      ASSERT_OK(report);
      if (GetParam() != Backend::kAuto) {
        EXPECT_EQ(report->backend, Name(GetParam()));
      }
      EXPECT_NE(report->backend_reason, "");
      for (size_t i = 0; i < reader->segments().size(); ++i) {
        EXPECT_TRUE(
            std::ranges::equal(memory.destinations()[i].memory,
                               ExpectedSegment(checkpoint->layout(), reader->segments()[i])))
            << reader->segments()[i].partition << " shifted by " << shift;
      }
      memory.ExpectRestUntouched();
    }
  }
}

TEST_P(EveryBackend, ASinkGetsEveryByteOnce) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(2));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  if (!IsUsable(*checkpoint, GetParam())) GTEST_SKIP() << Name(GetParam()) << " cannot be used";
  const auto reader = checkpoint->OpenRank(1, Options());
  ASSERT_OK(reader);
  std::vector<CheckingSink> sinks;
  for (const SegmentInfo& segment : reader->segments()) sinks.emplace_back(segment.bytes);
  std::vector<Destination> destinations;
  for (size_t i = 0; i < sinks.size(); ++i) {
    const SegmentInfo& segment = reader->segments()[i];
    destinations.push_back({segment.partition, segment.role, {}, &sinks[i]});
  }
  std::ranges::reverse(destinations);  // the order is the caller's own
  ASSERT_OK(reader->Load(destinations));
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i].Expect(ExpectedSegment(checkpoint->layout(), reader->segments()[i]));
  }
}

// Each chunk is read once, though many tensors that go elsewhere have bytes of it.
TEST_P(EveryBackend, ReplicatedTensorsAreReadOnce) {
  const ScratchDirectory scratch;
  Layout layout = FlatLayout(4, 1000);
  Partition partition;
  partition.id = "w";
  partition.ranks = RankList::World(4);
  partition.roles = {{"codes", DType::kInt8}};
  ReplicatedCut cut;
  for (uint32_t i = 0; i < 200; ++i) {
    Tensor tensor = layout.tensors[0];
    tensor.name = std::string("w").append(std::to_string(i));
    tensor.shape = {20'001 + 9973 * (i % 7)};
    layout.tensors.push_back(tensor);
    partition.members.push_back({i + 1, std::nullopt});
    cut.storing.push_back(i * 7 % 4);
  }
  partition.cut = cut;
  layout.partitions.push_back(partition);
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  if (!IsUsable(*checkpoint, GetParam())) GTEST_SKIP() << Name(GetParam()) << " cannot be used";
  LoadOptions options = Options();
  options.roles = {"codes"};
  ExpectLoads(*checkpoint, 1, options);
  const auto reader = checkpoint->OpenRank(1, options);
  ASSERT_OK(reader);
  const auto memory = reader->Allocate();
  ASSERT_OK(memory);
  const auto report = reader->Load(memory->destinations);
  ASSERT_OK(report);
  // Four files, each with one segment that is rounded up to a page.
  EXPECT_LE(report->read_bytes, report->wanted_bytes + 4 * 4096);
  EXPECT_LE(reader->plan().read_bytes, report->wanted_bytes + 4 * 4096);
}

// Segments made of many runs, out of several files, with padding between them that no run carries.
TEST_P(EveryBackend, ReplicatedTensorsThatSeveralRanksStore) {
  const ScratchDirectory scratch;
  Layout layout = FlatLayout(4, 1);  // three ranks own nothing of it
  Partition partition;
  partition.id = "w";
  partition.ranks = RankList::World(4);
  partition.roles = {{"codes", DType::kInt8}};
  partition.roles[0].chunk_bytes = 4096;
  for (uint32_t i = 0; i < 7; ++i) {
    Tensor tensor = layout.tensors[0];
    tensor.name = std::string("w").append(std::to_string(i));
    tensor.shape = {3001 + 1777 * i};
    layout.tensors.push_back(tensor);
    partition.members.push_back({i + 1, std::nullopt});
  }
  // An empty one at the end: 64 bytes on, and what lies before it is padding too.
  Tensor nothing = layout.tensors[0];
  nothing.name = "w7";
  nothing.shape = {0};
  layout.tensors.push_back(nothing);
  partition.members.push_back({8, std::nullopt});
  partition.cut = ReplicatedCut{{0, 1, 0, 2, 1, 1, 2, 0}};
  layout.partitions.push_back(partition);
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  if (!IsUsable(*checkpoint, GetParam())) GTEST_SKIP() << Name(GetParam()) << " cannot be used";
  LoadOptions options = Options();
  options.roles = {"codes"};
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ExpectLoads(*checkpoint, rank, options);
    const auto reader = checkpoint->OpenRank(rank, options);
    ASSERT_OK(reader);
    EXPECT_EQ(reader->plan().files, rank == 3 ? 4u : 3u) << "a rank's own file counts";
    ASSERT_EQ(reader->segments().size(), 1u);
    const SegmentInfo& segment = reader->segments()[0];
    const auto expected = ExpectedSegment(checkpoint->layout(), segment);
    CheckingSink sink(segment.bytes);
    const Destination destination{"w", "codes", {}, &sink};
    const auto report = reader->Load({&destination, 1});
    ASSERT_OK(report);
    EXPECT_EQ(report->files_opened, reader->plan().files);
    sink.Expect(expected);
    EXPECT_EQ(reader->ViewSegment("w", "codes").status().code(), StatusCode::kUnsupported);
    for (size_t i = 0; i < segment.slices.size(); ++i) {
      const auto view =
          reader->ViewTensor("w", "codes", layout.tensors[segment.slices[i].member + 1].name);
      ASSERT_OK(view);
      EXPECT_TRUE(std::ranges::equal(
          view->bytes(), std::span(expected).subspan(segment.offsets[i], segment.slices[i].end)));
    }
  }
}

TEST_P(EveryBackend, ASinkThatFailsEndsTheLoad) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", FlatLayout(1, 300000));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  if (!IsUsable(*checkpoint, GetParam())) GTEST_SKIP() << Name(GetParam()) << " cannot be used";
  class Failing final : public Sink {
   public:
    Status Write(uint64_t, std::span<const std::byte>) override {
      if (++calls == 3) return Status(StatusCode::kResourceExhausted, "full");
      return {};
    }
    int calls = 0;
  };
  const auto reader = checkpoint->OpenRank(0, Options());
  ASSERT_OK(reader);
  Failing sink;
  const Destination destination{"p", "fp32", {}, &sink};
  const auto report = reader->Load({&destination, 1});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(sink.calls, 3) << "nothing is written after a failure";
}

// interface.md, "Verification on".
TEST_P(EveryBackend, OneBitInEveryChunkIsRefusedByName) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", FlatLayout(1, 100001));  // 7 chunks of 64 KiB a role, the last a short one
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  if (!IsUsable(*checkpoint, GetParam())) GTEST_SKIP() << Name(GetParam()) << " cannot be used";
  const auto file = scratch / "c" / checkpoint->rank_files()[0].name;
  constexpr uint64_t kChunk = 65536;
  uint64_t segment_offset = kPage;
  for (const char* role : {"fp32", "exp_avg"}) {
    const uint64_t padded = (100001 * 4 + kPage - 1) / kPage * kPage;
    for (uint64_t chunk = 0; chunk * kChunk < padded; ++chunk) {
      const uint64_t size = std::min(kChunk, padded - chunk * kChunk);
      // First, middle and last byte of a chunk; the last one of a segment is padding.
      for (const uint64_t at : {uint64_t{0}, size / 2, size - 1}) {
        const uint64_t offset = segment_offset + chunk * kChunk + at;
        FlipBit(file, offset, static_cast<int>(chunk % 8));
        const auto reader = checkpoint->OpenRank(0, Options());
        ASSERT_OK(reader);
        const auto memory = reader->Allocate();
        ASSERT_OK(memory);
        const auto expect_named = [&](const Status& status) {
          ASSERT_EQ(status.code(), StatusCode::kCorruption) << status.message();
          EXPECT_THAT(status.message(), HasSubstr(file.string()));
          EXPECT_THAT(status.message(), HasSubstr(std::string("'p/") + role + "'"));
          EXPECT_THAT(status.message(), HasSubstr("chunk " + std::to_string(chunk) + " at offset " +
                                                  std::to_string(segment_offset + chunk * kChunk)));
          EXPECT_EQ(status.place().path, file.string());
          EXPECT_EQ(status.place().segment, std::string("p/") + role);
          EXPECT_EQ(status.place().offset, segment_offset + chunk * kChunk);
        };
        expect_named(reader->Load(memory->destinations).status());
        expect_named(reader->ViewSegment("p", role).status());
        expect_named(reader->ViewTensor("p", role, "t").status());
        LoadOptions trusting = Options();
        trusting.verify = false;
        const auto trusted = checkpoint->OpenRank(0, trusting);
        ASSERT_OK(trusted);
        EXPECT_OK(trusted->Load(memory->destinations));
        EXPECT_OK(trusted->ViewSegment("p", role));
        FlipBit(file, offset, static_cast<int>(chunk % 8));
      }
    }
    segment_offset += padded;
  }
  ExpectLoads(*checkpoint, 0, Options());
}

TEST(LoadBackends, AutoSaysWhatItChoseAndWhy) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(2));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  LoadOptions options;
  options.replicated = true;
  const auto reader = checkpoint->OpenRank(1, options);
  ASSERT_OK(reader);
  const auto memory = reader->Allocate();
  ASSERT_OK(memory);
  const auto report = reader->Load(memory->destinations);
  ASSERT_OK(report);
  EXPECT_TRUE(BackendFromName(report->backend).has_value()) << report->backend;
  EXPECT_THAT(report->backend_reason, HasSubstr("replicated tensors by "));
  EXPECT_THAT(report->backend_reason, HasSubstr("once a node"));
}

TEST(LoadBackends, ReplicatedTensorsStayInThePageCacheAndOwnSlicesDoNot) {
  const ScratchDirectory scratch;
  Layout layout = FlatLayout(1, 4u << 20);
  layout.partitions.push_back(
      MakeReplicated(layout, "w", {0}, RankList::World(1), {{"weight", DType::kBFloat16}}).value());
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto file = scratch / "c" / checkpoint->rank_files()[0].name;
  if (const Status dropped = DropPageCache(file); !dropped.ok()) {
    GTEST_SKIP() << "page cache: " << dropped.message();
  }
  const auto resident = [&] {
    const auto info = ResidentPages(file);
    return info.ok() ? info->resident_pages * kPage : 0;
  };
  for (const Backend backend : {Backend::kAuto, Backend::kPread, Backend::kUring, Backend::kMmap}) {
    if (!IsUsable(*checkpoint, backend)) continue;
    ASSERT_OK(DropPageCache(file));
    LoadOptions options;
    options.backend = backend;
    ExpectLoads(*checkpoint, 0, options);
    EXPECT_LE(resident(), 20u << 20) << Name(backend) << ": of 32 MiB, what was read is dropped";
    options.replicated = true;
    options.roles = {"weight"};
    ExpectLoads(*checkpoint, 0, options);
    EXPECT_GE(resident(), 8u << 20) << Name(backend) << ": the next rank finds them there";
  }
}

// One reader, many threads: views, loads, plain values and state at once.
TEST(LoadBackends, AReaderIsThreadSafe) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(2));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  LoadOptions options;
  options.replicated = true;
  const auto reader = checkpoint->OpenRank(1, options);
  ASSERT_OK(reader);
  std::vector<std::vector<std::byte>> expected;
  for (const SegmentInfo& segment : reader->segments()) {
    expected.push_back(ExpectedSegment(checkpoint->layout(), segment));
  }
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t round = 0; round < 10; ++round) {
        const size_t i = (t + round) % expected.size();
        const SegmentInfo& segment = reader->segments()[i];
        if ((t + round) % 2 == 0) {
          std::vector<std::byte> memory(segment.bytes);
          const Destination destination{segment.partition, segment.role, memory, nullptr};
          EXPECT_OK(reader->Load({&destination, 1}));
          EXPECT_EQ(memory, expected[i]);
        } else {
          const auto view = reader->ViewSegment(segment.partition, segment.role);
          EXPECT_OK(view);
          EXPECT_TRUE(view.ok() && std::ranges::equal(view->bytes(), expected[i]));
          EXPECT_OK(reader->ViewTensor("weights", "weight", "odd"));
          EXPECT_OK(reader->RankState());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LoadBackends, CountsAreExact) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", FlatLayout(2, 200000));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(1);
  ASSERT_OK(reader);
  const auto memory = reader->Allocate();
  ASSERT_OK(memory);
  const uint64_t opening = reader->metadata_bytes();
  const auto first = reader->Load(memory->destinations);
  ASSERT_OK(first);
  // 400000 bytes a role end in a page; 7 chunks each, all their digests in one page.
  const uint64_t padded = (400000 + kPage - 1) / kPage * kPage;
  EXPECT_EQ(first->wanted_bytes, 800000u);
  EXPECT_EQ(first->read_bytes, 2 * padded);
  EXPECT_EQ(first->verified_bytes, 2 * padded);
  EXPECT_EQ(first->metadata_bytes, opening + kPage);
  EXPECT_EQ(first->files_opened, 1u);
  EXPECT_GT(first->read_calls, 0u);
  const auto second = reader->Load(memory->destinations);
  ASSERT_OK(second);
  EXPECT_EQ(second->metadata_bytes, opening) << "the digest page is kept";
  EXPECT_EQ(reader->metadata_bytes(), opening + kPage);
  LoadReport viewed;
  ASSERT_OK(reader->ViewSegment("p", "fp32", &viewed));
  ASSERT_OK(reader->ViewSegment("p", "exp_avg", &viewed));
  EXPECT_EQ(viewed.wanted_bytes, 800000u);
  EXPECT_EQ(viewed.read_bytes, 2 * padded);
  EXPECT_EQ(viewed.verified_bytes, 2 * padded);
  EXPECT_EQ(viewed.metadata_bytes, opening);
  EXPECT_EQ(viewed.files_opened, 1u);
  EXPECT_EQ(viewed.backend, "mmap");
}

TEST(LoadBackends, ProgressRisesToTheEndAndAStopIsHeard) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", FlatLayout(1, 1u << 20));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  LoadOptions options;
  uint64_t last = 0;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, 8u << 20);
    last = done;
  };
  ExpectLoads(*checkpoint, 0, options);
  EXPECT_EQ(last, 8u << 20);

  std::stop_source stop;
  options.stop = stop.get_token();
  options.progress = [&](uint64_t, uint64_t) { stop.request_stop(); };
  const auto reader = checkpoint->OpenRank(0, options);
  ASSERT_OK(reader);
  const auto memory = reader->Allocate();
  ASSERT_OK(memory);
  EXPECT_EQ(reader->Load(memory->destinations).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(reader->ViewSegment("p", "fp32").status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace flagstone::testing
