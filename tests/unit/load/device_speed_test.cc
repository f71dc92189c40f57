// SPDX-License-Identifier: Apache-2.0
// How near a whole load comes to a device that is only arithmetic (support/simulated_device.h): no
// real disk's noise, so it is a test. design.md's figure: 0.97 of the device's bandwidth.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "flagstone/zero.h"
#include "load/open_with.h"
#include "saved_files.h"
#include "support/simulated_device.h"

namespace flagstone {
namespace {

using std::chrono::nanoseconds;
using testing::MakeCheckpoint;
using testing::SavedCheckpoint;
using testing::SimulatedDevice;

// Bytes that cost nothing to make, so that large segments are quick to test.
void Plain(const format::PlacedSegment& segment, uint64_t offset, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = offset + i < segment.bytes ? static_cast<std::byte>(offset + i) : std::byte{0};
  }
}

class DeviceSpeed : public ::testing::TestWithParam<double> {
 protected:
  // The share of the bandwidth that a load reaches, from Open to its end, digests and all.
  double Reached(Layout layout, const LoadOptions& options = {}, bool to_sink = false) {
    layout.world_size = 1;
    layout.groups.resize(1);
    return ReachedBy(std::move(layout), std::nullopt, 0, options, to_sink);
  }
  // The same for a rank of the saved layout, or of another.
  double ReachedBy(Layout layout, const std::optional<Layout>& wanted, uint32_t rank,
                   const LoadOptions& options = {}, bool to_sink = false) {
    const SavedCheckpoint saved = MakeCheckpoint(std::move(layout), {.content = Plain});
    SimulatedDevice device({.bytes_per_second = GetParam()});
    device.AddFile("c/manifest.flagstone", saved.manifest_bytes.size(),
                   [&](uint64_t offset, std::span<std::byte> out) {
                     std::copy_n(saved.manifest_bytes.begin() + static_cast<ptrdiff_t>(offset),
                                 out.size(), out.begin());
                   });
    for (const testing::SavedFile& file : saved.files) {
      device.AddFile("c/" + file.name, file.length, [&](uint64_t offset, std::span<std::byte> out) {
        file.Read(offset, out, Plain);
      });
    }
    const auto checkpoint = load::OpenWith(device, "c");
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
    const auto reader = wanted ? checkpoint->OpenRank(*wanted, rank, options)
                               : checkpoint->OpenRank(rank, options);
    EXPECT_TRUE(reader.ok()) << reader.status().ToString();
    const auto memory = reader->Allocate();
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    struct Nothing final : Sink {
      Status Write(uint64_t, std::span<const std::byte>) override { return {}; }
    } nothing;
    std::vector<Destination> destinations = memory->destinations;
    for (Destination& destination : destinations) {
      if (to_sink) destination = {destination.partition, destination.role, {}, &nothing};
    }
    const nanoseconds began = device.now();
    const auto report = reader->Load(destinations);
    const double seconds = std::chrono::duration<double>(device.now() - began).count();
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->backend, "uring-direct") << report->backend_reason;
    EXPECT_EQ(report->verified_bytes, reader->plan().read_bytes);
    const double reached = static_cast<double>(report->wanted_bytes) / GetParam() / seconds;
    std::cout << "reached " << reached << " of " << GetParam() / 1e9 << " GB/s with "
              << report->read_calls << " reads\n";
    return reached;
  }

  static uint32_t Add(Layout& layout, const std::string& name, uint64_t elements) {
    Tensor tensor;
    tensor.name = name;
    tensor.shape = {elements};
    layout.tensors.push_back(tensor);
    return static_cast<uint32_t>(layout.tensors.size() - 1);
  }
  // 10,000 tensors of 4 to 32 KiB, none of a round size.
  static std::vector<uint32_t> AddSmall(Layout& layout) {
    std::vector<uint32_t> tensors;
    for (uint32_t i = 0; i < 10000; ++i) {
      tensors.push_back(Add(layout, std::to_string(i), 1001 + i * 7919 % 7000));
    }
    return tensors;
  }
};
INSTANTIATE_TEST_SUITE_P(Load, DeviceSpeed, ::testing::Values(2e9, 5e9), [](const auto& tested) {
  return std::to_string(static_cast<int>(tested.param / 1e9)).append("GB");
});

const std::vector<Role> kRoles = {{"fp32", DType::kFloat32}};

TEST_P(DeviceSpeed, OneLargeSegment) {
  Layout layout;
  const uint32_t tensor = Add(layout, "t", uint64_t{40} << 20);
  layout.partitions = {MakeZero12(layout, "p", {tensor}, RankList::World(1), kRoles).value()};
  EXPECT_GE(Reached(layout), 0.97);
}

TEST_P(DeviceSpeed, OneLargeSegmentToASink) {
  Layout layout;
  const uint32_t tensor = Add(layout, "t", uint64_t{40} << 20);
  layout.partitions = {MakeZero12(layout, "p", {tensor}, RankList::World(1), kRoles).value()};
  EXPECT_GE(Reached(layout, {}, true), 0.97);
}

TEST_P(DeviceSpeed, TenThousandSmallTensorsOfOneSegment) {
  Layout layout;
  const auto tensors = AddSmall(layout);
  layout.partitions = {MakeZero3("p", tensors, RankList::World(1), kRoles)};
  EXPECT_GE(Reached(layout), 0.97);
}

TEST_P(DeviceSpeed, TenThousandSmallTensorsThatStandAlone) {
  Layout layout;
  const auto tensors = AddSmall(layout);
  layout.partitions = {MakeWhole("p", tensors, RankList::World(1), kRoles,
                                 std::vector<uint32_t>(tensors.size(), 0))};
  EXPECT_GE(Reached(layout), 0.97);
}

// At another world size: the middle of three ranks out of what four saved, beside the same bytes of a
// checkpoint that three saved.
TEST_P(DeviceSpeed, AnotherWorldIsReadAsFastAsTheSame) {
  const auto layout = [](uint32_t world, CutUnit unit, bool flat) {
    Layout result;
    result.world_size = world;
    result.groups.resize(1);
    std::vector<uint32_t> tensors;
    // Pieces of 1.1 to 1.9 MiB, of rows of 400 elements.
    for (uint64_t i = 0; i < 40; ++i) {
      tensors.push_back(Add(result, std::to_string(i), 0));
      result.tensors.back().shape = {3001 + i * 53, 400};
    }
    const RankList ranks = RankList::World(world);
    result.partitions = {MakeZero3("p", tensors, ranks, kRoles)};
    result.partitions[0].cut = PerTensorCut{unit};
    if (flat) result.partitions = {MakeZero12(result, "p", tensors, ranks, kRoles).value()};
    return result;
  };
  for (const bool flat : {true, false}) {
    const Layout three = layout(3, CutUnit::kRow, flat);
    const double same = ReachedBy(three, std::nullopt, 1);
    EXPECT_GE(ReachedBy(layout(4, CutUnit::kRow, flat), three, 1), 0.9 * same);
  }
}

// A segment each: ten thousand destinations, none of which a whole page fits.
TEST_P(DeviceSpeed, TenThousandSegments) {
  Layout layout;
  for (const uint32_t tensor : AddSmall(layout)) {
    layout.partitions.push_back(
        MakeZero3("p" + layout.tensors[tensor].name, {tensor}, RankList::World(1), kRoles));
  }
  // Each segment is rounded up to a page: on the average half a page of 18 KB is read for nothing.
  EXPECT_GE(Reached(layout), 0.97 * 18.0 / 20.5);
}

}  // namespace
}  // namespace flagstone
