// SPDX-License-Identifier: Apache-2.0
// What was saved is what is loaded: every dtype, every cut rule, every role form, every world.

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "load_support.h"

namespace flagstone::testing {
namespace {

using ::testing::HasSubstr;

class EveryWorld : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Load, EveryWorld, ::testing::Range(1u, 9u));

TEST_P(EveryWorld, LoadsWhatWasSavedUnderEveryRule) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(GetParam()));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  EXPECT_EQ(checkpoint->world_size(), GetParam());
  EXPECT_EQ(checkpoint->step(), 3);
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    ExpectLoads(*checkpoint, rank);
    LoadOptions options;
    options.replicated = true;
    ExpectLoads(*checkpoint, rank, options);
    options.verify = false;
    ExpectLoads(*checkpoint, rank, options);
  }
  const auto verified = Verify(scratch / "c");
  ASSERT_OK(verified);
  for (const VerifyProblem& problem : verified->problems) ADD_FAILURE() << problem.what;
  uint64_t bytes = checkpoint->manifest_bytes();
  for (const auto& file : checkpoint->rank_files()) bytes += file.bytes;
  EXPECT_EQ(verified->bytes, bytes) << "every byte is read, once";
}

TEST_P(EveryWorld, OwnIsOneFileAndReplicatedComesOnRequest) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(GetParam()));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    const auto own = checkpoint->OpenRank(rank);
    ASSERT_OK(own);
    EXPECT_EQ(own->rank(), rank);
    EXPECT_EQ(own->plan().files, 1u);
    for (const SegmentInfo& segment : own->segments()) {
      EXPECT_FALSE(segment.replicated) << segment.partition;
    }
    for (const Plan::Run& run : own->plan().runs) EXPECT_EQ(run.rank, rank);
    const auto refused = own->ViewSegment("weights", "weight");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(refused.status().message(), HasSubstr("LoadOptions::replicated"));

    LoadOptions options;
    options.replicated = true;
    const auto all = checkpoint->OpenRank(rank, options);
    ASSERT_OK(all);
    const auto& segments = all->segments();
    const auto first = std::ranges::find_if(segments, &SegmentInfo::replicated);
    EXPECT_TRUE(std::all_of(first, segments.end(),
                            [](const SegmentInfo& segment) { return segment.replicated; }));
    EXPECT_EQ(segments.end() - first, 4);
    // 64 MiB of weights and less are stored by the first rank of the list.
    EXPECT_EQ(all->plan().files, rank == 0 ? 1u : 2u);
    const auto memory = all->Allocate();
    ASSERT_OK(memory);
    const auto report = all->Load(memory->destinations);
    ASSERT_OK(report);
    EXPECT_EQ(report->files_opened, all->plan().files);
    // A page between two segments may be read with them.
    EXPECT_GE(report->read_bytes, all->plan().read_bytes);
    EXPECT_LE(report->read_bytes, all->plan().read_bytes + 4096 * segments.size());
  }
}

TEST_P(EveryWorld, AViewOfEachTensorIsItsSlice) {
  const ScratchDirectory scratch;
  const Layout layout = EveryRuleLayout(GetParam());
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  LoadOptions options;
  options.replicated = true;
  for (uint32_t rank = 0; rank < GetParam(); ++rank) {
    const auto reader = checkpoint->OpenRank(rank, options);
    ASSERT_OK(reader);
    for (const SegmentInfo& segment : reader->segments()) {
      const auto expected = ExpectedSegment(checkpoint->layout(), segment);
      const auto& partitions = checkpoint->layout().partitions;
      const auto partition = std::ranges::find(partitions, segment.partition, &Partition::id);
      const auto whole = reader->ViewSegment(segment.partition, segment.role);
      ASSERT_OK(whole);
      EXPECT_TRUE(std::ranges::equal(whole->bytes(), expected)) << segment.partition;
      for (size_t i = 0; i < segment.slices.size(); ++i) {
        const Slice& slice = segment.slices[i];
        const Tensor& tensor =
            checkpoint->layout().tensors[partition->members[slice.member].tensor];
        if (segment.partition == "stated" && tensor.name == "odd") continue;  // below
        const auto view = reader->ViewTensor(segment.partition, segment.role, tensor.name);
        ASSERT_OK(view);
        const auto part = std::span(expected).subspan(
            segment.offsets[i], (slice.end - slice.begin) * SizeOf(segment.dtype));
        EXPECT_TRUE(std::ranges::equal(view->bytes(), part))
            << segment.partition << "/" << segment.role << "/" << tensor.name;
      }
    }
  }
}

TEST(Load, TiedNamesLeadToOneTensor) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(2));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const auto view = reader->ViewTensor("flat", "fp32", "odd");
  ASSERT_OK(view);
  ASSERT_EQ(view->bytes().size(), 1021 * 4);
  for (const char* alias : {"tied/odd", "tied/again"}) {
    const auto tied = reader->ViewTensor("flat", "fp32", alias);
    ASSERT_OK(tied);
    EXPECT_TRUE(std::ranges::equal(tied->bytes(), view->bytes()));
    const auto step = reader->Plain("flat", "step", alias);
    ASSERT_OK(step);
    EXPECT_EQ(*step, PlainOf("odd"));
  }
  const auto unknown = reader->ViewTensor("flat", "fp32", "tied/odf");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("nearest: 'odd'"));
}

// A tensor in pieces is a view only when the pieces lie one behind the other: never a part of it.
TEST(Load, AViewOfATensorInSeveralSlicesIsAllOfThemOrNone) {
  const ScratchDirectory scratch;
  ExplicitCut apart;
  apart.pieces = {{0, 0, 60, 100}, {1, 0, 30, 60}, {0, 0, 0, 30}};
  SaveAll(scratch / "follow", OneTensorLayout(2, apart, 100, DType::kInt16));
  auto checkpoint = Checkpoint::Open(scratch / "follow");
  ASSERT_OK(checkpoint);
  auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  ASSERT_EQ(reader->segments()[0].slices.size(), 2u);
  const auto both = reader->ViewTensor("p", "weight", "t");
  ASSERT_OK(both);
  EXPECT_TRUE(std::ranges::equal(both->bytes(),
                                 ExpectedSegment(checkpoint->layout(), reader->segments()[0])));

  SaveAll(scratch / "apart", EveryRuleLayout(1));  // another tensor lies between the pieces
  checkpoint = Checkpoint::Open(scratch / "apart");
  ASSERT_OK(checkpoint);
  reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  const auto refused = reader->ViewTensor("stated", "ema", "odd");
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(refused.status().message(), HasSubstr("3 slices"));
}

TEST(Load, FieldCase_C09_EveryDTypeUnderEveryRule) {
  const ScratchDirectory scratch;
  Layout layout;
  layout.world_size = 3;
  layout.groups.resize(1);
  uint32_t rule = 0;
  for (const DType dtype : AllDTypes()) {
    Tensor tensor;
    tensor.name = std::string(Name(dtype));
    tensor.dtype = dtype;
    tensor.shape = {7, 31};
    tensor.group = 0;
    layout.tensors.push_back(tensor);
    const auto index = static_cast<uint32_t>(layout.tensors.size() - 1);
    const std::vector<Role> roles = {{"weight", dtype}};
    const RankList ranks = RankList::World(3);
    switch (rule++ % 5) {
      case 0:
        layout.partitions.push_back(MakeZero12(layout, tensor.name, {index}, ranks, roles).value());
        break;
      case 1:
        layout.partitions.push_back(MakeZero3(tensor.name, {index}, ranks, roles));
        break;
      case 2:
        layout.partitions.push_back(MakeFsdp2(tensor.name, {index}, ranks, roles));
        break;
      case 3:
        layout.partitions.push_back(MakeWhole(tensor.name, {index}, ranks, roles, {rule % 3}));
        break;
      default:
        layout.partitions.push_back(
            MakeReplicated(layout, tensor.name, {index}, ranks, roles).value());
    }
  }
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  ASSERT_EQ(checkpoint->layout().tensors, layout.tensors);
  LoadOptions options;
  options.replicated = true;
  for (uint32_t rank = 0; rank < 3; ++rank) ExpectLoads(*checkpoint, rank, options);
}

TEST(Load, FieldCase_C09_NaNPayloadsAndNegativeZeroKeepTheirBits) {
  const ScratchDirectory scratch;
  const std::vector<uint32_t> bits = {0x7fc00001, 0xffc12345, 0x7f800001, 0xff80beef, 0x80000000,
                                      0x00000001, 0x7f800000, 0xff800000, 0x00000000, 0x807fffff};
  const Layout layout = OneTensorLayout(1, FlatCut{{0, bits.size()}}, bits.size(), DType::kFloat32);
  SaveOptions options;
  options.run = "bits";
  auto writer = Writer::Create(scratch / "c", layout, 0, options);
  ASSERT_OK(writer);
  ASSERT_OK(writer->Add("p", "weight", std::as_bytes(std::span(bits))));
  ASSERT_OK(writer->Commit());
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto reader = checkpoint->OpenRank(0);
  ASSERT_OK(reader);
  for (const Backend backend : kBackends) {
    if (!IsUsable(*checkpoint, backend)) continue;
    LoadOptions forced;
    forced.backend = backend;
    const auto by = checkpoint->OpenRank(0, forced);
    ASSERT_OK(by);
    std::vector<uint32_t> loaded(bits.size());
    const Destination destination{"p", "weight", std::as_writable_bytes(std::span(loaded)),
                                  nullptr};
    ASSERT_OK(by->Load({&destination, 1}));
    EXPECT_EQ(loaded, bits) << Name(backend);
  }
  const auto view = reader->ViewTensor("p", "weight", "t");
  ASSERT_OK(view);
  ASSERT_EQ(view->bytes().size(), bits.size() * 4);
  EXPECT_EQ(std::memcmp(view->bytes().data(), bits.data(), bits.size() * 4), 0);
}

// Three empty tensors are three tensors, not one storage seen three times.
TEST(Load, FieldCase_C05_C06_EmptyTensorsAndScalarsStayWhatTheyAre) {
  const ScratchDirectory scratch;
  Layout layout;
  layout.world_size = 2;
  const std::vector<std::vector<uint64_t>> shapes = {{0}, {2, 0}, {0, 3, 5}, {}, {4}};
  for (const auto& shape : shapes) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(layout.tensors.size());
    tensor.shape = shape;
    layout.tensors.push_back(tensor);
  }
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4};
  const RankList ranks = RankList::World(2);
  layout.partitions = {
      MakeReplicated(layout, "r", all, ranks, {{"weight", DType::kFloat32}}).value(),
      MakeWhole("w", all, ranks, {{"exp_avg", DType::kFloat32}}, {0, 1, 0, 1, 0}),
      MakeZero3("z", all, ranks, {{"fp32", DType::kFloat32}})};
  SaveAll(scratch / "c", layout);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  ASSERT_EQ(checkpoint->layout().tensors, layout.tensors);
  for (const Backend backend : kBackends) {
    if (!IsUsable(*checkpoint, backend)) continue;
    LoadOptions options;
    options.replicated = true;
    options.backend = backend;
    for (uint32_t rank = 0; rank < 2; ++rank) ExpectLoads(*checkpoint, rank, options);
    const auto reader = checkpoint->OpenRank(1, options);
    ASSERT_OK(reader);
    const auto scalar = reader->ViewTensor("r", "weight", "t3");
    ASSERT_OK(scalar);
    EXPECT_EQ(scalar->bytes().size(), 4u);
    const auto empty = reader->ViewTensor("r", "weight", "t1");
    ASSERT_OK(empty);
    EXPECT_TRUE(empty->bytes().empty());
  }
}

TEST(Load, StateOfRanksAndOfTheJobComesBack) {
  const ScratchDirectory scratch;
  const auto rng = [](uint32_t rank) {
    Value state;
    state.Set("rank", Value(static_cast<int64_t>(rank)));
    state.Set("small", Value(Array{DType::kUint8, {3}, std::vector<std::byte>(3)}));
    Value::List arrays;
    for (uint32_t i = 0; i < 3; ++i) {
      std::vector<std::byte> bytes(5000 + 4096 * i);
      FillValue("rng", std::to_string(i), rank, 0, bytes);
      const uint64_t size = bytes.size();
      arrays.push_back(Value(Array{DType::kUint8, {size}, std::move(bytes)}));
    }
    state.Set("arrays", Value(std::move(arrays)));
    return state;
  };
  SaveExtras extras;
  extras.also = [&](uint32_t rank, Writer& writer) {
    EXPECT_OK(writer.SetRankState(rng(rank)));
    if (rank == 0) EXPECT_OK(writer.SetClientState(rng(77)));
  };
  SaveAll(scratch / "c", FlatLayout(3, 100), extras);
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  const auto client = checkpoint->client_state();
  ASSERT_OK(client);
  EXPECT_EQ(*client, rng(77));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const auto reader = checkpoint->OpenRank(rank);
    ASSERT_OK(reader);
    const auto state = reader->RankState();
    ASSERT_OK(state);
    EXPECT_EQ(*state, rng(rank));
  }
  const auto verified = Verify(scratch / "c");
  ASSERT_OK(verified);
  EXPECT_TRUE(verified->ok());
}

TEST(Load, OnlyTheRolesThatWereAskedFor) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(2));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  LoadOptions options;
  options.roles = {"exp_avg", "momentum"};
  const auto reader = checkpoint->OpenRank(1, options);
  ASSERT_OK(reader);
  ASSERT_EQ(reader->segments().size(), 2u);
  EXPECT_EQ(reader->segments()[0].role, "exp_avg");
  EXPECT_EQ(reader->segments()[1].role, "momentum");
  ExpectLoads(*checkpoint, 1, options);
  options.roles = {"exp_avgg"};
  const auto refused = checkpoint->OpenRank(1, options);
  EXPECT_EQ(refused.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(refused.status().message(), HasSubstr("'exp_avg'"));
}

TEST(Load, ThePlanIsKnownWithoutARankFile) {
  const ScratchDirectory scratch;
  SaveAll(scratch / "c", EveryRuleLayout(4));
  const auto checkpoint = Checkpoint::Open(scratch / "c");
  ASSERT_OK(checkpoint);
  std::vector<Plan> plans;
  LoadOptions options;
  options.replicated = true;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto reader = checkpoint->OpenRank(rank, options);
    ASSERT_OK(reader);
    plans.push_back(reader->plan());
  }
  for (const auto& file : checkpoint->rank_files()) {
    std::filesystem::remove(scratch / "c" / file.name);
  }
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto plan = checkpoint->PlanRank(rank, options);
    ASSERT_OK(plan);
    EXPECT_EQ(plan->wanted_bytes, plans[rank].wanted_bytes);
    EXPECT_EQ(plan->read_bytes, plans[rank].read_bytes);
    EXPECT_EQ(plan->files, plans[rank].files);
    EXPECT_EQ(plan->segments.size(), plans[rank].segments.size());
    ASSERT_EQ(plan->runs.size(), plans[rank].runs.size());
    for (size_t i = 0; i < plan->runs.size(); ++i) {
      EXPECT_EQ(plan->runs[i].file_offset, plans[rank].runs[i].file_offset);
      EXPECT_EQ(plan->runs[i].length, plans[rank].runs[i].length);
    }
  }
  const auto none = checkpoint->PlanRank(4);
  EXPECT_EQ(none.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("0 to 3"));
}

}  // namespace
}  // namespace flagstone::testing
