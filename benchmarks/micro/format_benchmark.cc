// SPDX-License-Identifier: Apache-2.0
// What opening and saving cost in metadata: 20 000 tensors of four roles on 1024 ranks. Argument 1
// is ZeRO-1 (flat cuts and replicated weights), 3 is ZeRO-3 (per tensor). Peak memory is a count,
// and tested: tests/format/memory_test.cc.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/text.h"
#include "flagstone/zero.h"
#include "format/layout_codec.h"
#include "format/manifest.h"
#include "format/placement.h"
#include "format/rank_index.h"
#include "partition/normalize.h"

namespace flagstone {
namespace {

constexpr uint32_t kTensors = 20'000;
constexpr uint32_t kRanks = 1024;

Role MakeRole(const char* name, DType dtype, RoleForm form = RoleForm::kAligned) {
  Role role;
  role.name = name;
  role.dtype = dtype;
  role.form = form;
  return role;
}

Layout LargeLayout(int64_t stage) {
  Layout layout;
  layout.world_size = kRanks;
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < kTensors; ++i) {
    Tensor tensor;
    tensor.name = base::Join("model.layers.", i / 12, ".self_attn.projection.weight.", i);
    tensor.dtype = DType::kBFloat16;
    tensor.shape = {1024 + i % 7, 513};
    layout.tensors.push_back(std::move(tensor));
    all.push_back(i);
  }
  const RankList world = RankList::World(kRanks);
  const std::vector<Role> optimizer = {
      MakeRole("fp32", DType::kFloat32), MakeRole("exp_avg", DType::kFloat32),
      MakeRole("exp_avg_sq", DType::kFloat32), MakeRole("step", DType::kFloat32, RoleForm::kPlain)};
  const std::vector<Role> weights = {MakeRole("weight", DType::kBFloat16)};
  if (stage == 3) {
    layout.partitions = {MakeZero3("optimizer", all, world, optimizer),
                         MakeZero3("weights", all, world, weights)};
  } else {
    layout.partitions = {MakeZero12(layout, "optimizer", all, world, optimizer).value(),
                         MakeReplicated(layout, "weights", all, world, weights).value()};
  }
  return partition::Normalize(std::move(layout));
}

format::Manifest LargeManifest(int64_t stage) {
  format::Manifest manifest;
  manifest.layout = LargeLayout(stage);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    manifest.files.push_back({rank, 1 << 20, 1000, {}});
  }
  return manifest;
}

void DecodeManifest(benchmark::State& state) {
  const auto file = format::EncodeManifest(LargeManifest(state.range(0))).value();
  for (auto _ : state) {
    auto manifest = format::DecodeManifest(file);
    if (!manifest.ok()) state.SkipWithError("the manifest does not decode");
    benchmark::DoNotOptimize(manifest);
  }
  state.counters["file_bytes"] = static_cast<double>(file.size());
}
BENCHMARK(DecodeManifest)->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

void EncodeManifest(benchmark::State& state) {
  const format::Manifest manifest = LargeManifest(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(format::EncodeManifest(manifest));
}
BENCHMARK(EncodeManifest)->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

void ValidateLargeLayout(benchmark::State& state) {
  const Layout layout = LargeLayout(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(ValidateLayout(layout));
}
BENCHMARK(ValidateLargeLayout)->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

void LayoutDigest(benchmark::State& state) {
  const Layout layout = LargeLayout(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(format::LayoutDigest(layout));
}
BENCHMARK(LayoutDigest)->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

void PlaceRankFile(benchmark::State& state) {
  const Layout layout = LargeLayout(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(format::PlaceRankFile(layout, 5, {}));
}
BENCHMARK(PlaceRankFile)->Arg(1)->Arg(3)->Unit(benchmark::kMillisecond);

// The index of a ZeRO-3 rank: a step for each of 20 000 tensors.
void DecodeRankIndex(benchmark::State& state) {
  format::RankIndex index;
  index.rank = 5;
  index.world_size = kRanks;
  index.placement = format::PlaceRankFile(LargeLayout(3), 5, {}).value();
  index.page_digests.resize(index.placement.digest_pages());
  for (uint32_t i = 0; i < kTensors; ++i)
    index.plain.push_back({"optimizer", "step", i, Value(10.0)});
  const auto bytes = format::EncodeRankIndex(index).value();
  for (auto _ : state) benchmark::DoNotOptimize(format::DecodeRankIndex(bytes));
  state.counters["index_bytes"] = static_cast<double>(bytes.size());
}
BENCHMARK(DecodeRankIndex)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace flagstone
