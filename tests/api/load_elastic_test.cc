// SPDX-License-Identifier: Apache-2.0
// One number of ranks saves, another loads: processes, not threads.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "flagstone/zero.h"
#include "load_support.h"

namespace flagstone::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Processes that run side by side, one a rank; how many of them failed.
int RunRanks(uint32_t world, const std::function<int(uint32_t rank)>& body) {
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < world; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(body(rank));
    if (child > 0) children.push_back(child);
  }
  int failed = static_cast<int>(world - children.size());
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    failed += WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
  }
  return failed;
}

// An entry of a dict; null where it has none.
Value Entry(const Result<Value>& dict, std::string_view key) {
  const Value* found = dict.ok() ? dict->Find(key) : nullptr;
  return found == nullptr ? Value() : *found;
}

int Complain(const Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

// A tensor's values of the slices of a segment, in its order.
class ValueSource final : public Source {
 public:
  ValueSource(const Layout& layout, const Partition& part, const Role& role,
              std::vector<Slice> slices) {
    const uint64_t size = SizeOf(role.dtype);
    const bool alone = std::holds_alternative<WholeCut>(part.cut);
    for (const Slice& slice : slices) {
      const size_t at = alone ? (bytes_.size() + 63) / 64 * 64 : bytes_.size();
      bytes_.resize(at + (slice.end - slice.begin) * size);
      FillValue(layout.tensors[part.members[slice.member].tensor].name, role.name, 0,
                slice.begin * size, std::span(bytes_).subspan(at));
    }
  }
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }

 private:
  std::vector<std::byte> bytes_;
};

constexpr char kRoles[][12] = {"fp32", "exp_avg", "exp_avg_sq"};

std::vector<Role> OptimizerRoles() {
  std::vector<Role> roles;
  for (const char* name : kRoles) roles.push_back({.name = name});
  roles.push_back({.name = "step", .dtype = DType::kInt64, .form = RoleForm::kPlain});
  return roles;
}

enum class Rule : uint8_t { kFlat, kElements, kRows, kWhole };

// The odd sizes of FieldCase_B01 under one rule.
Layout Odd(Rule rule, uint32_t world,
           const std::vector<std::vector<uint64_t>>& shapes = {{7}, {1}, {513, 3}, {5025, 64}}) {
  Layout layout;
  layout.world_size = world;
  std::vector<uint32_t> tensors;
  for (const auto& shape : shapes) {
    tensors.push_back(static_cast<uint32_t>(layout.tensors.size()));
    Tensor& tensor = layout.tensors.emplace_back();
    tensor.name = "t" + std::to_string(tensors.back());
    tensor.shape = shape;
  }
  const RankList ranks = RankList::World(world);
  switch (rule) {
    case Rule::kFlat:
      layout.partitions = {MakeZero12(layout, "opt", tensors, ranks, OptimizerRoles()).value()};
      break;
    case Rule::kElements:
      layout.partitions = {MakeZero3("opt", tensors, ranks, OptimizerRoles())};
      break;
    case Rule::kRows:
      layout.partitions = {MakeFsdp2("opt", tensors, ranks, OptimizerRoles())};
      break;
    case Rule::kWhole:
      layout.partitions = {
          MakeWhole("opt", tensors, ranks, OptimizerRoles(),
                    ZeroRedundancyOwners(layout, {tensors}, world).value()[0])};
  }
  return layout;
}

// What a process does that saves one rank.
int SaveRank(const std::filesystem::path& path, const Layout& layout, uint32_t rank) {
  SaveOptions options;
  options.run = "elastic";
  auto writer = Writer::Create(path, layout, rank, options);
  if (!writer.ok()) return Complain(writer.status());
  const Partition& part = layout.partitions[0];
  const auto slices = StoredSlices(layout, part.id, rank);
  if (!slices.ok()) return Complain(slices.status());
  std::vector<std::unique_ptr<ValueSource>> sources;
  for (const Role& role : part.roles) {
    if (role.form == RoleForm::kPlain) {
      for (const Slice& slice : *slices) {
        const std::string& name = layout.tensors[part.members[slice.member].tensor].name;
        const Status added = writer->AddPlain(part.id, role.name, name, PlainOf(name));
        if (!added.ok()) return Complain(added);
      }
      continue;
    }
    sources.push_back(std::make_unique<ValueSource>(layout, part, role, *slices));
    if (sources.back()->size_bytes() == 0) continue;
    const Status added = writer->Add(part.id, role.name, *sources.back());
    if (!added.ok()) return Complain(added);
  }
  const Status given = writer->SetRankState(
      Value(Value::Dict{{"seed", int64_t{100} + rank}, {"rank", int64_t{rank}}}));
  if (!given.ok()) return Complain(given);
  const auto committed = writer->Commit();
  return committed.ok() ? 0 : Complain(committed.status());
}

// What a process does that loads one rank and compares all of it.
int LoadRank(const std::filesystem::path& path, const Layout& wanted, uint32_t rank) {
  const auto checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return Complain(checkpoint.status());
  const auto reader = checkpoint->OpenRank(wanted, rank);
  if (!reader.ok()) return Complain(reader.status());
  auto memory = reader->Allocate();
  if (!memory.ok()) return Complain(memory.status());
  const auto report = reader->Load(memory->destinations);
  if (!report.ok()) return Complain(report.status());
  for (size_t i = 0; i < memory->destinations.size(); ++i) {
    const auto expected = ExpectedSegment(wanted, reader->segments()[i]);
    if (!std::ranges::equal(memory->destinations[i].memory, expected)) {
      return Complain(Status(StatusCode::kInternal, "wrong bytes in " + reader->segments()[i].role));
    }
  }
  for (const Slice& slice : reader->segments()[0].slices) {
    const std::string& name = wanted.tensors[wanted.partitions[0].members[slice.member].tensor].name;
    const auto step = reader->Plain("opt", "step", name);
    if (!step.ok()) return Complain(step.status());
    if (*step != PlainOf(name)) return Complain(Status(StatusCode::kInternal, "step of " + name));
  }
  return 0;
}

TEST(Elastic, FieldCase_B01_FourProcessesSaveAndAnyNumberLoads) {
  const ScratchDirectory scratch;
  for (const Rule saved : {Rule::kFlat, Rule::kElements, Rule::kRows, Rule::kWhole}) {
    const auto path = scratch / ("saved" + std::to_string(static_cast<int>(saved)));
    const Layout layout = Odd(saved, 4);
    ASSERT_EQ(RunRanks(4, [&](uint32_t rank) { return SaveRank(path, layout, rank); }), 0);
    for (const uint32_t world : {1U, 2U, 3U, 5U, 6U, 16U}) {
      for (const Rule rule : {Rule::kFlat, Rule::kElements, Rule::kRows, Rule::kWhole}) {
        const Layout wanted = Odd(rule, world);
        EXPECT_EQ(RunRanks(world, [&](uint32_t rank) { return LoadRank(path, wanted, rank); }), 0)
            << "from rule " << static_cast<int>(saved) << " to " << world << " of "
            << static_cast<int>(rule);
      }
    }
  }
}

TEST(Elastic, FieldCase_B03_NoDivisibilityIsAssumed) {
  const ScratchDirectory scratch;
  const std::vector<std::vector<uint64_t>> shapes = {{1000003}};
  const Layout layout = Odd(Rule::kFlat, 16, shapes);
  ASSERT_EQ(RunRanks(16, [&](uint32_t rank) { return SaveRank(scratch / "c", layout, rank); }), 0);
  for (const uint32_t world : {24U, 32U, 7U}) {
    const Layout wanted = Odd(Rule::kFlat, world, shapes);
    EXPECT_EQ(RunRanks(world, [&](uint32_t rank) { return LoadRank(scratch / "c", wanted, rank); }),
              0);
  }
}

// More rank files than a process may have open.
TEST(Elastic, FieldCase_E18_TwoLoadWhatHundredsSaved) {
  const ScratchDirectory scratch;
  const std::vector<std::vector<uint64_t>> shapes = {{1000, 3}, {5000}};
  const Layout layout = Odd(Rule::kElements, 256, shapes);
  ASSERT_EQ(RunRanks(256, [&](uint32_t rank) { return SaveRank(scratch / "c", layout, rank); }), 0);
  for (const Rule rule : {Rule::kFlat, Rule::kElements}) {
    const Layout wanted = Odd(rule, 2, shapes);
    EXPECT_EQ(RunRanks(2,
                       [&](uint32_t rank) {
                         const rlimit few{64, 64};
                         if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
                         return LoadRank(scratch / "c", wanted, rank);
                       }),
              0);
  }
}

TEST(Elastic, FieldCase_E18_ViewsOfHundredsOfFiles) {
  const ScratchDirectory scratch;
  const std::vector<std::vector<uint64_t>> shapes(100, {100});
  const Layout layout = Odd(Rule::kWhole, 100, shapes);
  ASSERT_EQ(RunRanks(100, [&](uint32_t rank) { return SaveRank(scratch / "c", layout, rank); }), 0);
  const auto view_all = [&](uint32_t) {
    const rlimit few{64, 64};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 2;
    const auto checkpoint = Checkpoint::Open(scratch / "c");
    if (!checkpoint.ok()) return Complain(checkpoint.status());
    const auto reader = checkpoint->OpenRank(Odd(Rule::kWhole, 1, shapes), 0);
    if (!reader.ok()) return Complain(reader.status());
    for (size_t t = 0; t < shapes.size(); ++t) {
      const auto view = reader->ViewTensor("opt", "fp32", "t" + std::to_string(t));
      if (!view.ok()) return Complain(view.status());
      std::vector<std::byte> expected(400);
      FillValue("t" + std::to_string(t), "fp32", 0, 0, expected);
      if (!std::ranges::equal(view->bytes(), expected)) return 3;
    }
    return 0;
  };
  EXPECT_EQ(RunRanks(1, view_all), 0);
}

class ElasticOptions : public ::testing::Test {
 protected:
  ElasticOptions() {
    const Layout layout = Odd(Rule::kFlat, 2, {{7}, {9, 3}});
    EXPECT_EQ(RunRanks(2, [&](uint32_t rank) { return SaveRank(scratch_ / "c", layout, rank); }),
              0);
    checkpoint_ = Checkpoint::Open(scratch_ / "c").value();
  }
  Layout Wanted(uint32_t world) const { return Odd(Rule::kElements, world, {{7}, {9, 3}}); }
  Result<Value> StateOf(uint32_t world, uint32_t rank, LoadOptions options) {
    const auto reader = checkpoint_->OpenRank(Wanted(world), rank, std::move(options));
    if (!reader.ok()) return reader.status();
    return reader->RankState();
  }

  ScratchDirectory scratch_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(ElasticOptions, StateOfRanksIsByPolicy) {
  EXPECT_EQ(Entry(checkpoint_->rank_state(1), "seed"), Value(101));
  EXPECT_EQ(checkpoint_->rank_state(2).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Entry(StateOf(2, 1, {}), "rank"), Value(1)) << "the same world: its own";
  EXPECT_TRUE(StateOf(3, 1, {})->is_null());
  const auto refused = StateOf(3, 1, {.rank_state = RankStatePolicy::kRefuse});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("the state of 2 ranks"));
  EXPECT_EQ(Entry(StateOf(5, 3, {.rank_state = RankStatePolicy::kSame}), "rank"), Value(1));
  // Derived seeds differ, and are the same at every try.
  std::set<int64_t> seeds;
  for (uint32_t rank = 0; rank < 5; ++rank) {
    const LoadOptions derive{.rank_state = RankStatePolicy::kDerive};
    const Value seed = Entry(StateOf(5, rank, derive), "seed");
    EXPECT_EQ(Entry(StateOf(5, rank, derive), "seed"), seed);
    seeds.insert(*seed.get_if<int64_t>());
    EXPECT_GE(*seeds.begin(), 0);
  }
  EXPECT_EQ(seeds.size(), 5U);
  LoadOptions made;
  made.make_rank_state = [](uint32_t rank, std::span<const Value> saved) -> Result<Value> {
    return Value(Value::List{static_cast<int64_t>(rank), static_cast<int64_t>(saved.size()),
                             *saved[1].Find("rank")});
  };
  EXPECT_EQ(*StateOf(3, 2, made), Value(Value::List{2, 2, 1}));
}

TEST_F(ElasticOptions, TheReportSaysWhatStateThereIs) {
  const auto reader = checkpoint_->OpenRank(Wanted(3), 0);
  ASSERT_OK(reader);
  auto memory = reader->Allocate();
  const auto report = reader->Load(memory->destinations);
  ASSERT_OK(report);
  EXPECT_EQ(report->rank_state, "none: saved by 2 ranks, loaded by 3");
}

TEST_F(ElasticOptions, BuffersAreShapedAsZeroHasThem) {
  // 34 elements over 3 ranks: 12 each, padded to 36; ZeRO-3: 3 and 9 of each tensor.
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const Layout flat = Odd(Rule::kFlat, 3, {{7}, {9, 3}});
    LoadOptions options;
    options.shape_buffer = [&](const SegmentInfo& info) { return Zero12Buffer(flat, info); };
    const auto reader = checkpoint_->OpenRank(flat, rank, options);
    ASSERT_OK(reader);
    EXPECT_EQ(reader->segments()[0].bytes, 12U * 4);
    const Layout elements = Wanted(3);
    options.shape_buffer = [&](const SegmentInfo& info) { return Zero3Buffer(elements, info); };
    const auto padded = checkpoint_->OpenRank(elements, rank, options);
    ASSERT_OK(padded);
    EXPECT_EQ(padded->segments()[0].bytes, (3U + 9) * 4);
    auto memory = padded->Allocate();
    for (const Destination& destination : memory->destinations) {
      std::ranges::fill(destination.memory, std::byte{0xAB});
    }
    ASSERT_OK(padded->Load(memory->destinations));
    EXPECT_TRUE(std::ranges::equal(memory->destinations[0].memory,
                                   ExpectedSegment(elements, padded->segments()[0])));
  }
  LoadOptions wrong;
  wrong.shape_buffer = [&](const SegmentInfo& info) { return Zero12Buffer(Wanted(3), info); };
  EXPECT_THAT(checkpoint_->OpenRank(Wanted(3), 0, wrong).status().message(),
              HasSubstr("partition 'opt' has the rule per_tensor; this buffer is for flat ones"));
  wrong.shape_buffer = [&](const SegmentInfo&) -> Result<BufferShape> {
    return BufferShape{{0, 1}, 100};
  };
  EXPECT_THAT(checkpoint_->OpenRank(Wanted(3), 0, wrong).status().message(),
              HasSubstr("puts slice 1 of 'opt/fp32', 9 elements, at element 1 of 100"));
}

TEST_F(ElasticOptions, BadLayoutsAreRefusedBeforeARead) {
  const auto refusal = [&](const std::function<void(Layout&)>& spoil) {
    Layout wanted = Wanted(3);
    spoil(wanted);
    const Status opened = checkpoint_->OpenRank(wanted, 0).status();
    EXPECT_EQ(checkpoint_->PlanRank(wanted, 0).status(), opened);
    return opened.ToString();
  };
  EXPECT_THAT(refusal([](Layout& l) { l.world_size = 0; }), HasSubstr("world_size is 0"));
  EXPECT_THAT(refusal([](Layout& l) { l.tensors[0].name = "t2"; }),
              AllOf(HasSubstr("kNotFound"), HasSubstr("no tensor 't2'"), HasSubstr("'t0'")));
  EXPECT_THAT(refusal([](Layout& l) { l.tensors[0].shape = {8}; }),
              AllOf(HasSubstr("[7] in the checkpoint"), HasSubstr("[8] is wanted")));
  EXPECT_THAT(refusal([](Layout& l) { l.partitions[0].roles[0].name = "fp16"; }),
              AllOf(HasSubstr("no role 'fp16' of tensor 't0'"), HasSubstr("'fp32'")));
  EXPECT_THAT(refusal([](Layout& l) { l.partitions[0].roles[3].name = "steps"; }),
              HasSubstr("no role 'steps'"));
  EXPECT_THAT(refusal([](Layout& l) {
                l.partitions[0].cut = ExplicitCut{{{0, 0, 0, 6}, {0, 1, 0, 27}}};
              }),
              HasSubstr("gives elements [6, 7) of tensor 't0' to no rank"));
  EXPECT_THAT(refusal([](Layout& l) {
                l.partitions[0].cut = ExplicitCut{{{0, 0, 0, 7}, {1, 0, 5, 7}, {0, 1, 0, 27}}};
              }),
              HasSubstr("gives elements [5, 7) of tensor 't0' twice"));
  EXPECT_THAT(checkpoint_->OpenRank(Wanted(3), 3).status().message(),
              HasSubstr("there is no rank 3 in the wanted layout, of 3 ranks: 0 to 2"));
}

TEST(Elastic, OneStepForAllOrTheNamesOfThoseThatDiffer) {
  const ScratchDirectory scratch;
  const Layout layout = Odd(Rule::kFlat, 2, {{4}, {4}, {4}});
  const auto save = [&](const char* name, int64_t last) {
    return RunRanks(2, [&](uint32_t rank) {
      SaveOptions options;
      options.run = name;
      auto writer = Writer::Create(scratch / name, layout, rank, options);
      if (!writer.ok()) return Complain(writer.status());
      std::vector<std::byte> bytes(6 * 4);
      SpanSource source(bytes);
      for (const char* role : kRoles) (void)writer->Add("opt", role, source);
      for (uint32_t t = rank; t < 2 + rank; ++t) {
        (void)writer->AddPlain("opt", "step", "t" + std::to_string(t), Value(t == 2 ? last : 5));
      }
      const auto committed = writer->Commit();
      return committed.ok() ? 0 : Complain(committed.status());
    });
  };
  ASSERT_EQ(save("equal", 5), 0);
  ASSERT_EQ(save("unlike", 6), 0);
  const Layout wanted = Odd(Rule::kElements, 1, {{4}, {4}, {4}});
  const auto all = [&](const char* name) {
    const auto checkpoint = Checkpoint::Open(scratch / name).value();
    return checkpoint.OpenRank(wanted, 0).value().PlainOfAll("opt", "step");
  };
  EXPECT_EQ(*all("equal"), Value(5));
  EXPECT_THAT(all("unlike").status().message(),
              HasSubstr("do not have one value: that of 't2' differs from that of 't0'"));
}

}  // namespace
}  // namespace flagstone::testing
