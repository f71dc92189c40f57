// SPDX-License-Identifier: Apache-2.0

/// \file
/// Save a small model whose optimizer state is partitioned over two ranks, as ZeRO-2 does it.
///
///     save CHECKPOINT
///
/// The two ranks are processes that know nothing of each other but the path, their number, and a
/// word that names the run; in a real job a launcher starts them.

#include <flagstone/flagstone.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr uint32_t kWorldSize = 2;

// [declare] What there is, and who holds what of it. The same on every rank.
flagstone::Result<flagstone::Layout> DeclareLayout() {
  using flagstone::DType;
  flagstone::Layout layout;
  layout.world_size = kWorldSize;
  layout.tensors = {{.name = "linear.weight", .dtype = DType::kBFloat16, .shape = {3, 5}},
                    {.name = "linear.bias", .dtype = DType::kBFloat16, .shape = {3}}};

  const auto world = flagstone::RankList::World(kWorldSize);
  // Master weights and Adam's moments: one flat buffer, cut evenly.
  auto optimizer =
      flagstone::MakeZero12(layout, "optimizer", {0, 1}, world,
                            {{.name = "fp32"}, {.name = "exp_avg"}, {.name = "exp_avg_sq"}});
  if (!optimizer.ok()) return optimizer.status();
  // Weights: every rank holds all of them, one stores each.
  auto weights = flagstone::MakeReplicated(layout, "weights", {0, 1}, world,
                                           {{.name = "weight", .dtype = DType::kBFloat16}});
  if (!weights.ok()) return weights.status();
  layout.partitions = {*optimizer, *weights};
  return layout;
}
// [declare]

// Made-up training state of one rank: what its slices of the flat buffers hold.
std::vector<float> MakeSlice(const std::vector<flagstone::Slice>& slices, float first) {
  std::vector<float> values;
  for (const flagstone::Slice& slice : slices) {
    for (uint64_t i = slice.begin; i < slice.end; ++i) {
      values.push_back(first + static_cast<float>(slice.member) + static_cast<float>(i) / 16);
    }
  }
  return values;
}

// [save] Each rank calls this at its own pace; the checkpoint appears whole, or not at all.
flagstone::Status SaveRank(const std::string& path, uint32_t rank, const std::string& run) {
  const auto layout = DeclareLayout();
  if (!layout.ok()) return layout.status();
  flagstone::SaveOptions options;
  options.run = run;
  options.step = 1000;
  auto writer = flagstone::Writer::Create(path, *layout, rank, options);
  if (!writer.ok()) return writer.status();

  const auto slices = flagstone::HeldSlices(*layout, "optimizer", rank);
  if (!slices.ok()) return slices.status();
  // The writer borrows the bytes until Commit returns.
  const std::vector<float> fp32 = MakeSlice(*slices, 1), exp_avg = MakeSlice(*slices, 100),
                           exp_avg_sq = MakeSlice(*slices, 200);
  for (const auto& [role, values] :
       {std::pair("fp32", std::span(fp32)), std::pair("exp_avg", std::span(exp_avg)),
        std::pair("exp_avg_sq", std::span(exp_avg_sq))}) {
    const auto status = writer->Add("optimizer", role, std::as_bytes(values));
    if (!status.ok()) return status;
  }

  // Of the replicated weights each rank hands over what it stores.
  const auto stored = flagstone::StoredSlices(*layout, "weights", rank);
  if (!stored.ok()) return stored.status();
  const std::vector<uint16_t> weights(15, 0x3f80);  // 1.0 in bfloat16, for either tensor
  for (const flagstone::Slice& slice : *stored) {
    const auto bytes = std::as_bytes(std::span(weights).first(slice.end - slice.begin));
    const auto status =
        writer->AddTensor("weights", "weight", layout->tensors[slice.member].name, bytes);
    if (!status.ok()) return status;
  }
  return writer->Commit().status();
}
// [save]

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr, "usage: save CHECKPOINT\n");
    return 2;
  }
  const std::string run = "save-example-" + std::to_string(getpid());
  for (uint32_t rank = 0; rank < kWorldSize; ++rank) {
    const pid_t child = fork();
    if (child < 0) {
      std::perror("save: fork");
      return EXIT_FAILURE;  // the ranks that did start give up when the one that is missing is late
    }
    if (child > 0) continue;
    const flagstone::Status status = SaveRank(argv[1], rank, run);
    if (!status.ok()) std::fprintf(stderr, "rank %u: %s\n", rank, status.ToString().c_str());
    _exit(status.ok() ? 0 : 1);
  }
  bool saved = true;
  for (int status = 0; wait(&status) > 0;) saved = saved && status == 0;
  if (saved) std::printf("saved %s\n", argv[1]);
  return saved ? EXIT_SUCCESS : EXIT_FAILURE;
}
