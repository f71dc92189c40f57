// SPDX-License-Identifier: Apache-2.0
// Views: read-only, private to nobody, alive for as long as they are held.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

#include "load_support.h"

namespace flagstone::testing {
namespace {

std::string Numbered(std::string_view stem, uint64_t number) {
  return std::string(stem).append(std::to_string(number));
}

TEST(LoadView, OutlivesReaderCheckpointAndFile) {
  const ScratchDirectory scratch;
  const Layout layout = FlatLayout(1, 50001);
  std::optional<View> view;
  std::vector<std::byte> expected;
  {
    SaveAll(scratch / "c", layout);
    const auto checkpoint = Checkpoint::Open(scratch / "c");
    ASSERT_OK(checkpoint);
    const auto reader = checkpoint->OpenRank(0);
    ASSERT_OK(reader);
    const auto made = reader->ViewSegment("p", "fp32");
    ASSERT_OK(made);
    view = *made;
    expected = ExpectedSegment(checkpoint->layout(), reader->segments()[0]);
  }
  std::filesystem::remove_all(scratch / "c");
  EXPECT_TRUE(std::ranges::equal(view->bytes(), expected));
  const View copy = *view;
  view.reset();
  EXPECT_TRUE(std::ranges::equal(copy.bytes(), expected));
}

// The bytes saved are those viewed, of the very checkpoint that is replaced.
TEST(LoadView, FieldCase_E10_SavingViewsOverTheirOwnCheckpoint) {
  const ScratchDirectory scratch;
  const Layout layout = FlatLayout(1, 30001);
  SaveAll(scratch / "c", layout);
  std::vector<View> held;
  std::vector<std::string> ids;
  for (uint64_t round = 0; round < 3; ++round) {
    const auto checkpoint = Checkpoint::Open(scratch / "c");
    ASSERT_OK(checkpoint);
    ids.push_back(checkpoint->save_id());
    const auto reader = checkpoint->OpenRank(0);
    ASSERT_OK(reader);
    SaveOptions options;
    options.run = Numbered("again", round);
    options.overwrite = true;
    auto writer = Writer::Create(scratch / "c", layout, 0, options);
    ASSERT_OK(writer);
    for (const char* role : {"fp32", "exp_avg"}) {
      const auto view = reader->ViewSegment("p", role);
      ASSERT_OK(view);
      held.push_back(*view);
      ASSERT_OK(writer->Add("p", role, view->bytes()));
    }
    ASSERT_OK(writer->Commit());
    // The checkpoint that was opened is gone, and says so; its views are as they were.
    const auto gone = checkpoint->OpenRank(0);
    ASSERT_FALSE(gone.ok());
    EXPECT_EQ(gone.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(gone.status().message(), ::testing::HasSubstr("open it again"));
  }
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  EXPECT_EQ(std::ranges::count(ids, checkpoint->save_id()), 0);
  ExpectLoads(*checkpoint, 0);
  const auto plan = checkpoint->PlanRank(0);
  ASSERT_OK(plan);
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(held[i].bytes(),
                                   ExpectedSegment(checkpoint->layout(), plan->segments[i % 2])));
  }
}

struct MappingFacts {
  std::string permissions;
  uint64_t private_dirty_kib = 0;
  uint64_t anonymous_kib = 0;
};

// What the kernel says of the mapping that holds an address.
std::optional<MappingFacts> FactsOf(const std::byte* address) {
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  std::optional<MappingFacts> found;
  while (std::getline(maps, line)) {
    uint64_t begin = 0;
    uint64_t end = 0;
    char permissions[8] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, permissions) == 3) {
      if (found) return found;
      const auto at = reinterpret_cast<uintptr_t>(address);
      if (at >= begin && at < end) found = MappingFacts{permissions, 0, 0};
    } else if (found) {
      uint64_t kib = 0;
      if (std::sscanf(line.c_str(), "Private_Dirty: %lu", &kib) == 1)
        found->private_dirty_kib = kib;
      if (std::sscanf(line.c_str(), "Anonymous: %lu", &kib) == 1) found->anonymous_kib = kib;
    }
  }
  return found;
}

TEST(LoadView, FieldCase_A06_ReadOnlyAndNeverCopied) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", FlatLayout(1, 300000));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  namespace fs = std::filesystem;
  for (const auto& file : checkpoint->rank_files()) {
    fs::permissions(scratch / "c" / file.name, fs::perms(0444));
  }
  fs::permissions(scratch / "c", fs::perms(0555));
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const auto view = reader->ViewSegment("p", "fp32");
  ASSERT_OK(view);
  std::vector<std::byte> copy(view->bytes().begin(), view->bytes().end());
  EXPECT_EQ(copy, ExpectedSegment(checkpoint->layout(), reader->segments()[0]));
  const auto facts = FactsOf(view->bytes().data());
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->permissions.substr(0, 3), "r--");
  EXPECT_EQ(facts->private_dirty_kib, 0u);
  EXPECT_EQ(facts->anonymous_kib, 0u);
  const int died = RunInChild([&] {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would report instead
    const_cast<std::byte&>(view->bytes()[1000]) = std::byte{1};
    return 0;
  });
  EXPECT_EQ(died, 128 + SIGSEGV);
  fs::permissions(scratch / "c", fs::perms(0755));
}

// Of a large segment a view of one tensor verifies and maps that tensor's chunks only.
TEST(LoadView, OfATensorTouchesItsChunksOnly) {
  const ScratchDirectory scratch;
  Layout layout;
  layout.world_size = 1;
  std::vector<uint32_t> tensors;
  for (uint32_t i = 0; i < 64; ++i) {
    Tensor tensor;
    tensor.name = Numbered("t", i);
    tensor.shape = {40000};
    layout.tensors.push_back(tensor);
    tensors.push_back(i);
  }
  layout.partitions.push_back(
      MakeZero3("p", tensors, RankList::World(1), {{"fp32", DType::kFloat32}}));
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  LoadReport report;
  const auto view = reader->ViewTensor("p", "fp32", "t33", &report);
  ASSERT_OK(view);
  EXPECT_EQ(report.wanted_bytes, 160000u);
  EXPECT_LT(report.verified_bytes, 160000u + 2 * 16384);
  EXPECT_EQ(report.read_bytes, report.verified_bytes);
  // A bit flipped outside of those chunks is none of its business; inside it is.
  const auto file = scratch / "c" / checkpoint->rank_files()[0].name;
  FlipBit(file, 4096, 1);
  EXPECT_OK(reader->ViewTensor("p", "fp32", "t33"));
  EXPECT_EQ(reader->ViewTensor("p", "fp32", "t0").status().code(), StatusCode::kCorruption);
}

// Ten thousand views cost the digest pages once, and no pass over all names each.
TEST(LoadView, ManyTensorsReadEachDigestPageOnce) {
  const ScratchDirectory scratch;
  Layout layout;
  layout.world_size = 1;
  std::vector<uint32_t> tensors;
  for (uint32_t i = 0; i < 10000; ++i) {
    Tensor tensor;
    tensor.name = Numbered("layers.", i);
    tensor.shape = {1 + i % 997};
    layout.tensors.push_back(tensor);
    tensors.push_back(i);
  }
  layout.partitions.push_back(
      MakeZero3("p", tensors, RankList::World(1), {{"fp32", DType::kFloat32}}));
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const uint64_t opening = reader->metadata_bytes();
  std::vector<std::byte> expected;
  for (uint32_t i = 0; i < 10000; ++i) {
    const auto view = reader->ViewTensor("p", "fp32", layout.tensors[i].name);
    ASSERT_OK(view);
    expected.resize((1 + i % 997) * 4);
    FillValue(layout.tensors[i].name, "fp32", 0, 0, expected);
    ASSERT_TRUE(std::ranges::equal(view->bytes(), expected));
  }
  const uint64_t chunks = (reader->segments()[0].bytes + 16383) / 16384;
  EXPECT_EQ(reader->metadata_bytes() - opening, (chunks + 511) / 512 * 4096);
}

}  // namespace
}  // namespace flagstone::testing
