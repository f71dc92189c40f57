// SPDX-License-Identifier: Apache-2.0
#include "load_support.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <thread>
#include <utility>

namespace flagstone::testing {
namespace {

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

const Partition& PartitionOf(const Layout& layout, std::string_view id) {
  for (const Partition& partition : layout.partitions) {
    if (partition.id == id) return partition;
  }
  ADD_FAILURE() << "no partition " << id;
  return layout.partitions.front();
}

// A slice's bytes, made as they are asked for.
class ValueSource final : public Source {
 public:
  ValueSource(std::string tensor, std::string role, uint64_t seed, uint64_t begin, uint64_t size)
      : tensor_(std::move(tensor)),
        role_(std::move(role)),
        seed_(seed),
        begin_(begin),
        size_(size) {}
  uint64_t size_bytes() const override { return size_; }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    FillValue(tensor_, role_, seed_, begin_ + offset, out);
    return {};
  }

 private:
  const std::string tensor_;
  const std::string role_;
  const uint64_t seed_;
  const uint64_t begin_;
  const uint64_t size_;
};

// Several slices of one tensor as one source: what AddTensor wants.
class JoinedSource final : public Source {
 public:
  void Append(ValueSource part) {
    size_ += part.size_bytes();
    parts_.push_back(std::move(part));
  }
  uint64_t size_bytes() const override { return size_; }
  Status Read(uint64_t offset, std::span<std::byte> out) override {
    for (ValueSource& part : parts_) {
      if (out.empty()) break;
      if (offset >= part.size_bytes()) {
        offset -= part.size_bytes();
        continue;
      }
      const uint64_t size = std::min<uint64_t>(out.size(), part.size_bytes() - offset);
      if (Status status = part.Read(offset, out.first(size)); !status.ok()) return status;
      out = out.subspan(size);
      offset = 0;
    }
    return {};
  }

 private:
  std::vector<ValueSource> parts_;
  uint64_t size_ = 0;
};

// Give a rank's writer everything that it has to give. Sources live until Commit has returned.
class RankSave {
 public:
  RankSave(const Layout& layout, uint32_t rank, const SaveExtras& extras)
      : layout_(layout), rank_(rank), extras_(extras) {}

  Status Give(Writer& writer) {
    for (const Partition& partition : layout_.partitions) {
      const auto slices = StoredSlices(layout_, partition.id, rank_);
      if (!slices.ok()) return slices.status();
      for (const Role& role : partition.roles) {
        if (Status status = GiveRole(writer, partition, role, *slices); !status.ok()) return status;
      }
    }
    if (extras_.also) extras_.also(rank_, writer);
    return {};
  }

 private:
  Status GiveRole(Writer& writer, const Partition& partition, const Role& role,
                  const std::vector<Slice>& slices) {
    std::vector<uint32_t> order;
    std::map<uint32_t, std::unique_ptr<JoinedSource>> by_tensor;
    for (const Slice& slice : slices) {
      const uint32_t tensor = partition.members[slice.member].tensor;
      auto& source = by_tensor[tensor];
      if (!source) {
        source = std::make_unique<JoinedSource>();
        order.push_back(tensor);
      }
      uint64_t begin = slice.begin;
      uint64_t end = slice.end;
      if (role.form == RoleForm::kAttached) {
        begin = 0;
        end = *ElementCount(role.shapes[slice.member]);
      }
      const uint64_t size = SizeOf(role.dtype);
      source->Append(ValueSource(layout_.tensors[tensor].name, role.name, extras_.seed,
                                 begin * size, (end - begin) * size));
    }
    if (role.form == RoleForm::kPlain && partition.ranks.at(0) == rank_) {
      // Nobody owns an element of an empty tensor: its value is the first rank's to give.
      for (const Member& member : partition.members) {
        const bool is_empty = ElementCount(layout_.tensors[member.tensor].shape) == 0;
        if (is_empty && !by_tensor.contains(member.tensor)) {
          by_tensor.try_emplace(member.tensor);
          order.push_back(member.tensor);
        }
      }
    }
    for (const uint32_t tensor : order) {
      const std::string& name = layout_.tensors[tensor].name;
      const Status status =
          role.form == RoleForm::kPlain
              ? writer.AddPlain(partition.id, role.name, name, PlainOf(name))
              : writer.AddTensor(partition.id, role.name, name, *by_tensor[tensor]);
      if (!status.ok()) return status;
      if (by_tensor[tensor]) sources_.push_back(std::move(by_tensor[tensor]));
    }
    return {};
  }

  const Layout& layout_;
  const uint32_t rank_;
  const SaveExtras& extras_;
  std::vector<std::unique_ptr<JoinedSource>> sources_;
};

uint32_t AddTensorTo(Layout& layout, std::string name, DType dtype, std::vector<uint64_t> shape) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.group = 0;
  layout.tensors.push_back(std::move(tensor));
  return static_cast<uint32_t>(layout.tensors.size() - 1);
}

std::vector<Member> MembersOf(const std::vector<uint32_t>& tensors) {
  std::vector<Member> members;
  for (const uint32_t tensor : tensors) members.push_back({tensor, std::nullopt});
  return members;
}

}  // namespace

ScratchDirectory::ScratchDirectory() {
  const char* parent = std::getenv("TMPDIR");
  std::string name =
      std::string(parent != nullptr && *parent != 0 ? parent : "/tmp") + "/flagstone-load-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    std::perror(name.c_str());
    std::abort();
  }
  path_ = name;
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

void FillValue(std::string_view tensor, std::string_view role, uint64_t seed, uint64_t offset,
               std::span<std::byte> out) {
  uint64_t key = Mix(seed + 0x9e3779b97f4a7c15u);
  for (const char c : tensor) key = Mix(key + static_cast<unsigned char>(c));
  for (const char c : role) key = Mix(key + 256 + static_cast<unsigned char>(c));
  for (size_t i = 0; i < out.size();) {
    const uint64_t at = offset + i;
    const uint64_t word = Mix(key + at / 8);
    const size_t skip = at % 8;
    const size_t size = std::min<size_t>(8 - skip, out.size() - i);
    std::memcpy(out.data() + i, reinterpret_cast<const std::byte*>(&word) + skip, size);
    i += size;
  }
}

Value PlainOf(std::string_view tensor) { return Value(static_cast<int64_t>(tensor.size()) + 7); }

Layout EveryRuleLayout(uint32_t world) {
  Layout layout;
  layout.world_size = world;
  layout.groups.resize(1);
  const RankList all = RankList::World(world);
  const auto odd = AddTensorTo(layout, "odd", DType::kBFloat16, {1021});
  const auto matrix = AddTensorTo(layout, "block.0/../weight", DType::kBFloat16, {37, 129});
  const auto scalar = AddTensorTo(layout, "scalar", DType::kBFloat16, {});
  const auto empty = AddTensorTo(layout, "empty", DType::kBFloat16, {2, 0});
  const auto big = AddTensorTo(layout, "big \xF0\x9F\xAA\xA8", DType::kBFloat16, {50257, 3});
  const auto frozen = AddTensorTo(layout, "frozen", DType::kFloat16, {333});
  const auto buffer = AddTensorTo(layout, "running_mean", DType::kFloat32, {65});
  const auto counter = AddTensorTo(layout, "num_batches", DType::kInt64, {});
  const auto row_one = AddTensorTo(layout, "rows/1", DType::kFloat32, {1, 7});
  const auto row_many = AddTensorTo(layout, "rows/many", DType::kFloat32, {9, 11, 2});
  layout.tensors[odd].aliases = {"tied/odd", "tied/again"};
  layout.tensors[frozen].trainable = false;
  layout.tensors[buffer].kind = TensorKind::kBuffer;
  layout.tensors[counter].kind = TensorKind::kBuffer;
  for (const uint32_t t : {frozen, buffer, counter}) layout.tensors[t].group.reset();

  const std::vector<Role> adam = {{"fp32", DType::kFloat32},
                                  {"exp_avg", DType::kFloat32},
                                  {"step", DType::kInt64, RoleForm::kPlain}};
  const std::vector<uint32_t> trained = {odd, matrix, scalar, empty, big};
  layout.partitions.push_back(MakeZero12(layout, "flat", trained, all, adam).value());
  layout.partitions.push_back(
      MakeZero3("elements", trained, all, {{"exp_avg_sq", DType::kFloat64}}));
  layout.partitions.push_back(
      MakeFsdp2("rows", {row_one, row_many}, all, {{"weight", DType::kFloat32}}));
  std::vector<uint32_t> owners;
  for (uint32_t i = 0; i < trained.size(); ++i) owners.push_back((i + 1) % world);
  Role factors{"row_factor", DType::kFloat16, RoleForm::kAttached};
  factors.shapes = {{5}, {37}, {}, {0}, {7, 3}};
  layout.partitions.push_back(
      MakeWhole("whole", trained, all, {{"momentum", DType::kInt8}, factors}, owners));
  layout.partitions.push_back(
      MakeReplicated(layout, "weights", trained, all, {{"weight", DType::kBFloat16}}).value());
  layout.partitions.push_back(
      MakeReplicated(layout, "frozen", {frozen}, all, {{"weight", DType::kFloat16}}).value());
  layout.partitions.push_back(
      MakeReplicated(layout, "buffers", {buffer}, all, {{"value", DType::kFloat32}}).value());
  layout.partitions.push_back(
      MakeReplicated(layout, "counters", {counter}, all, {{"value", DType::kInt64}}).value());
  // Backwards, and the first tensor in two pieces at one rank.
  Partition stated;
  stated.id = "stated";
  stated.ranks = all;
  stated.members = MembersOf({odd, matrix});
  stated.roles = {{"ema", DType::kComplex64}};
  ExplicitCut cut;
  cut.pieces = {
      {0, 0, 600, 1021}, {world - 1, 1, 0, 37 * 129}, {0, 0, 0, 300}, {world / 2, 0, 300, 600}};
  stated.cut = cut;
  layout.partitions.push_back(stated);
  return layout;
}

Layout FlatLayout(uint32_t world, uint64_t elements) {
  Layout layout;
  layout.world_size = world;
  layout.groups.resize(1);
  const auto tensor = AddTensorTo(layout, "t", DType::kBFloat16, {elements});
  layout.partitions.push_back(MakeZero12(layout, "p", {tensor}, RankList::World(world),
                                         {{"fp32", DType::kFloat32}, {"exp_avg", DType::kFloat32}})
                                  .value());
  return layout;
}

Layout OneTensorLayout(uint32_t world, const CutRule& rule, uint64_t elements, DType dtype) {
  Layout layout;
  layout.world_size = world;
  layout.groups.resize(1);
  const auto tensor = AddTensorTo(layout, "t", dtype, {elements});
  Partition partition;
  partition.id = "p";
  partition.ranks = RankList::World(world);
  partition.members = MembersOf({tensor});
  partition.roles = {{"weight", dtype}};
  partition.cut = rule;
  layout.partitions.push_back(partition);
  return layout;
}

void SaveAll(const std::filesystem::path& path, const Layout& layout, const SaveExtras& extras) {
  const auto coordinator = MakeInProcessCoordinator();
  std::vector<Writer> writers;
  std::vector<std::unique_ptr<RankSave>> saves;
  for (uint32_t rank = 0; rank < layout.world_size; ++rank) {
    SaveOptions options;
    options.run = "load-test";
    options.step = 3;
    options.overwrite = extras.overwrite;
    options.coordinator = coordinator;
    options.timeout = std::chrono::seconds(60);
    options.backend = Backend::kPread;
    auto writer = Writer::Create(path, layout, rank, options);
    ASSERT_OK(writer);
    saves.push_back(std::make_unique<RankSave>(layout, rank, extras));
    ASSERT_OK(saves.back()->Give(*writer));
    writers.push_back(*std::move(writer));
  }
  std::vector<std::thread> ranks;
  for (Writer& writer : writers) {
    ranks.emplace_back([&writer] { EXPECT_OK(writer.Commit()); });
  }
  for (std::thread& rank : ranks) rank.join();
}

std::vector<std::byte> ExpectedSegment(const Layout& layout, const SegmentInfo& segment,
                                       uint64_t seed) {
  const Partition& partition = PartitionOf(layout, segment.partition);
  std::vector<std::byte> bytes(segment.bytes);
  const uint64_t size = SizeOf(segment.dtype);
  for (size_t i = 0; i < segment.slices.size(); ++i) {
    const Slice& slice = segment.slices[i];
    const auto& name = layout.tensors[partition.members[slice.member].tensor].name;
    const uint64_t length = (slice.end - slice.begin) * size;
    if (length == 0) continue;
    FillValue(name, segment.role, seed, slice.begin * size,
              std::span(bytes).subspan(segment.offsets[i], length));
  }
  return bytes;
}

void ExpectLoads(const Checkpoint& checkpoint, uint32_t rank, const LoadOptions& options,
                 uint64_t seed) {
  const auto reader = checkpoint.OpenRank(rank, options);
  ASSERT_OK(reader);
  const auto memory = reader->Allocate();
  ASSERT_OK(memory);
  for (const Destination& destination : memory->destinations) {
    std::ranges::fill(destination.memory, std::byte{0xA5});
  }
  const auto report = reader->Load(memory->destinations);
  ASSERT_OK(report);
  uint64_t wanted = 0;
  for (size_t i = 0; i < reader->segments().size(); ++i) {
    const SegmentInfo& segment = reader->segments()[i];
    wanted += segment.bytes;
    const auto expected = ExpectedSegment(checkpoint.layout(), segment, seed);
    EXPECT_TRUE(std::ranges::equal(memory->destinations[i].memory, expected))
        << "rank " << rank << ", " << segment.partition << "/" << segment.role << " by "
        << report->backend << " (" << report->backend_reason << ")";
  }
  EXPECT_EQ(report->wanted_bytes, wanted);
  EXPECT_EQ(report->verified_bytes, options.verify ? reader->plan().read_bytes : 0);
}

void FlipBit(const std::filesystem::path& file, uint64_t offset, int bit) {
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0) << file;
  unsigned char byte = 0;
  ASSERT_EQ(pread(fd, &byte, 1, static_cast<off_t>(offset)), 1) << file << " at " << offset;
  byte = static_cast<unsigned char>(byte ^ (1u << bit));
  ASSERT_EQ(pwrite(fd, &byte, 1, static_cast<off_t>(offset)), 1);
  close(fd);
}

int RunInChild(const std::function<int()>& body) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int code = body();
    std::cout.flush();
    std::cerr.flush();
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 255;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

uint64_t ProcessMemory(std::string_view line) {
  std::ifstream status("/proc/self/status");
  std::string text;
  while (std::getline(status, text)) {
    if (text.starts_with(line)) return std::stoull(text.substr(line.size())) * 1024;
  }
  return 0;
}

}  // namespace flagstone::testing
