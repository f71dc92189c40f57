// SPDX-License-Identifier: Apache-2.0

/// \file
/// Whatever `flagstone synth` saves, at any stage and world size, comes back as the documented
/// function of seed, tensor, role and index: through the program, through every backend.

#include <flagstone/flagstone.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "program.h"
#include "synth_model.h"
#include "usable.h"

namespace flagstone::tests {
namespace {

constexpr uint64_t kSeed = 17;

const Partition& FindPartition(const Layout& layout, const PartitionId& id) {
  for (const Partition& partition : layout.partitions) {
    if (partition.id == id) return partition;
  }
  ADD_FAILURE() << "no partition " << id;
  return layout.partitions.front();
}

// Compares one loaded segment with the function; counts the elements it has seen.
uint64_t ExpectModelBytes(const Layout& layout, const SegmentInfo& segment,
                          std::span<const std::byte> bytes, uint64_t seed) {
  const Partition& partition = FindPartition(layout, segment.partition);
  uint64_t elements = 0;
  EXPECT_EQ(bytes.size(), segment.bytes);
  for (size_t i = 0; i < segment.slices.size(); ++i) {
    const Slice& slice = segment.slices[i];
    const Tensor& tensor = layout.tensors[partition.members[slice.member].tensor];
    const uint64_t size = SizeOf(segment.dtype);
    std::vector<std::byte> expected((slice.end - slice.begin) * size);
    const tools::ElementStream stream(seed, tensor, segment.role, segment.dtype);
    stream.Fill(slice.begin * size, expected);
    const auto got = bytes.subspan(segment.offsets[i], expected.size());
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), expected.size()), 0)
        << segment.partition << "/" << segment.role << " " << tensor.name << " [" << slice.begin
        << ", " << slice.end << ")";
    elements += slice.end - slice.begin;
  }
  return elements;
}

struct Shape {
  uint32_t stage;
  uint32_t world;
};

class SynthTest : public testing::TestWithParam<Shape> {
 protected:
  void Save(std::vector<std::string> model) {
    std::vector<std::string> arguments = {
        "synth", path().string(), "--seed", std::to_string(kSeed), "--step", "3"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    for (const auto& [name, value] :
         {std::pair("--stage", GetParam().stage), std::pair("--world", GetParam().world)}) {
      arguments.insert(arguments.end(), {name, std::to_string(value)});
    }
    const ProgramResult saved = RunProgram(arguments);
    ASSERT_EQ(saved.exit_code, 0) << saved.err;
  }
  std::filesystem::path path() const { return scratch_.path() / "synth"; }

  ScratchDirectory scratch_;
};

TEST_P(SynthTest, EveryRankGetsItsElementsByEveryBackend) {
  Save({"--params", "200001", "--tensors", "11"});
  const auto checkpoint = Checkpoint::Open(path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const Layout& layout = checkpoint->layout();
  for (const Backend backend : {Backend::kUringDirect, Backend::kPread, Backend::kMmap}) {
    if (!IsUsable(*checkpoint, backend)) continue;
    LoadOptions options;
    options.replicated = true;
    options.backend = backend;
    uint64_t fp32_elements = 0;
    for (uint32_t rank = 0; rank < GetParam().world; ++rank) {
      const auto reader = checkpoint->OpenRank(rank, options);
      ASSERT_TRUE(reader.ok()) << reader.status().ToString();
      const auto memory = reader->Allocate();
      ASSERT_TRUE(memory.ok()) << memory.status().ToString();
      const auto report = reader->Load(memory->destinations);
      ASSERT_TRUE(report.ok()) << report.status().ToString();
      for (size_t i = 0; i < reader->segments().size(); ++i) {
        const SegmentInfo& segment = reader->segments()[i];
        const uint64_t elements =
            ExpectModelBytes(layout, segment, memory->buffers[i].bytes(), kSeed);
        if (segment.role == "fp32") fp32_elements += elements;
      }
    }
    // Stage 0 gives every rank all of them, else each has one owner.
    EXPECT_EQ(fp32_elements, 200001u * (GetParam().stage == 0 ? GetParam().world : 1));
  }
}

TEST_P(SynthTest, ViewsPlainValuesAndStates) {
  Save({"--params", "5000", "--tensors", "4"});
  const auto checkpoint = Checkpoint::Open(path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  EXPECT_EQ(*checkpoint->client_state()->Find("iteration"), Value(3));
  for (uint32_t rank = 0; rank < GetParam().world; ++rank) {
    const auto reader = checkpoint->OpenRank(rank);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    for (const SegmentInfo& segment : reader->segments()) {
      const auto view = reader->ViewSegment(segment.partition, segment.role);
      ASSERT_TRUE(view.ok()) << view.status().ToString();
      ExpectModelBytes(checkpoint->layout(), segment, view->bytes(), kSeed);
      const Partition& partition = FindPartition(checkpoint->layout(), segment.partition);
      for (const Slice& slice : segment.slices) {
        const std::string& name =
            checkpoint->layout().tensors[partition.members[slice.member].tensor].name;
        if (segment.role != "fp32") continue;
        const auto step = reader->Plain(segment.partition, "step", name);
        ASSERT_TRUE(step.ok()) << step.status().ToString();
        EXPECT_EQ(*step, Value(3));
      }
    }
    const auto state = reader->RankState();
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    EXPECT_EQ(*state, tools::SynthRankState(kSeed, rank));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, SynthTest,
                         testing::Values(Shape{0, 1}, Shape{0, 3}, Shape{1, 2}, Shape{2, 1},
                                         Shape{2, 4}, Shape{3, 1}, Shape{3, 5}),
                         [](const auto& shape) {
                           return "Stage" + std::to_string(shape.param.stage) + "World" +
                                  std::to_string(shape.param.world);
                         });

TEST(SynthElements, AreOrdinaryNumbersAndWeightsAreRoundedMasters) {
  Tensor tensor;
  tensor.name = "a.weight";
  const tools::ElementStream fp32(kSeed, tensor, "fp32", DType::kFloat32);
  const tools::ElementStream weight(kSeed, tensor, "weight", DType::kBFloat16);
  const tools::ElementStream square(kSeed, tensor, "exp_avg_sq", DType::kFloat32);
  const auto to_float = [](uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  };
  for (uint64_t i = 0; i < 10000; ++i) {
    const float master = to_float(fp32.BitsAt(i));
    ASSERT_TRUE(std::isnormal(master) && std::abs(master) < 2);
    ASSERT_TRUE(std::isnormal(to_float(square.BitsAt(i))) && to_float(square.BitsAt(i)) > 0);
    const float rounded = to_float(weight.BitsAt(i) << 16);
    ASSERT_LE(std::abs(rounded - master), std::ldexp(std::abs(master), -8));
  }
}

// Frozen: tests and measurements of later versions compare with checkpoints of earlier ones.
TEST(SynthElements, AreTheSameInEveryVersion) {
  Tensor tensor;
  tensor.name = "transformer.wte.weight";
  const tools::ElementStream fp32(1, tensor, "fp32", DType::kFloat32);
  const tools::ElementStream weight(1, tensor, "weight", DType::kBFloat16);
  EXPECT_EQ(fp32.BitsAt(0), 0x3fa5b323u);
  EXPECT_EQ(fp32.BitsAt(uint64_t{5} << 32), 0x3f371691u);
  EXPECT_EQ(weight.BitsAt(12345), 0xbc23u);
}

TEST(SynthElements, AnyByteRangeIsThatOfTheWhole) {
  Tensor tensor;
  tensor.name = "a.weight";
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const tools::ElementStream stream(kSeed, tensor, "fp32", dtype);
    // Across the border at which the key changes.
    const uint64_t start = (SizeOf(dtype) << 32) - 100;
    std::vector<std::byte> whole(300);
    stream.Fill(start, whole);
    for (size_t begin = 0; begin < whole.size(); begin += 7) {
      for (size_t size = 0; begin + size <= whole.size(); size += 5) {
        std::vector<std::byte> part(size);
        stream.Fill(start + begin, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin))
            << begin << " " << size;
      }
    }
  }
}

}  // namespace
}  // namespace flagstone::tests
