// SPDX-License-Identifier: Apache-2.0
#include "synth_model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <variant>

#include "flagstone/zero.h"

namespace flagstone::tools {
namespace {

// --- The value of an element ---

constexpr uint64_t Mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint32_t Mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352d;
  x = (x ^ (x >> 15)) * 0x846ca68b;
  return x ^ (x >> 16);
}

constexpr uint64_t Fnv1a64(std::string_view text, uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

constexpr uint64_t BlockKey(uint64_t key, uint64_t index) {
  return Mix64(key + (index >> 32) * 0x9e3779b97f4a7c15);
}

constexpr uint32_t HashAt(uint64_t block_key, uint32_t index) {
  return Mix32(index + static_cast<uint32_t>(block_key)) ^ static_cast<uint32_t>(block_key >> 32);
}

// Round to nearest, ties to even; no element is a NaN, which would need a branch.
constexpr uint32_t RoundToBFloat16(uint32_t bits) {
  return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}

}  // namespace

ElementStream::ElementStream(uint64_t seed, const Tensor& tensor, std::string_view role,
                             DType dtype)
    : to_bfloat16_(dtype == DType::kBFloat16) {
  // So that a weight is its own master, rounded.
  const std::string_view stream = role == "weight" ? "fp32" : role;
  key_ = Mix64(seed ^ Fnv1a64(stream, Fnv1a64(std::string_view("\0", 1), Fnv1a64(tensor.name))));
  keep_ = role == "exp_avg_sq" ? 0x03ffffff : 0x83ffffff;
  set_ = role == "exp_avg_sq" ? 0x2c000000 : role == "exp_avg" ? 0x34000000 : 0x3c000000;
}

uint32_t ElementStream::ToBits(uint32_t hash) const {
  const uint32_t bits = (hash & keep_) | set_;
  return to_bfloat16_ ? RoundToBFloat16(bits) : bits;
}

uint32_t ElementStream::BitsAt(uint64_t index) const {
  return ToBits(HashAt(BlockKey(key_, index), static_cast<uint32_t>(index)));
}

// The inner loop has no state but its counter, so that the compiler can make vectors of it.
template <typename Element>
void ElementStream::FillElements(uint64_t first, std::span<std::byte> out) const {
  uint64_t left = out.size() / sizeof(Element);
  std::byte* to = out.data();
  while (left > 0) {
    const uint64_t block_end = ((first >> 32) + 1) << 32;
    const uint64_t count = std::min(left, block_end - first);
    const uint64_t block_key = BlockKey(key_, first);
    const auto low = static_cast<uint32_t>(first);
    const uint32_t keep = keep_, set = set_;
    for (uint64_t i = 0; i < count; ++i) {
      uint32_t bits = (HashAt(block_key, low + static_cast<uint32_t>(i)) & keep) | set;
      if constexpr (sizeof(Element) == 2) bits = RoundToBFloat16(bits);
      const auto element = static_cast<Element>(bits);
      std::memcpy(to + i * sizeof(Element), &element, sizeof(Element));
    }
    to += count * sizeof(Element);
    first += count;
    left -= count;
  }
}

void ElementStream::Fill(uint64_t offset, std::span<std::byte> out) const {
  const uint64_t size = to_bfloat16_ ? 2 : 4;
  const auto copy_part = [&](size_t count) {
    const uint32_t bits = BitsAt(offset / size);
    std::array<std::byte, sizeof(bits)> bytes{};
    std::memcpy(bytes.data(), &bits, sizeof(bits));
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset % size), count, out.begin());
    out = out.subspan(count);
    offset += count;
  };
  // A range may begin and end inside an element.
  if (offset % size != 0) copy_part(std::min<size_t>(out.size(), size - offset % size));
  const size_t whole = out.size() / size * size;
  if (to_bfloat16_) {
    FillElements<uint16_t>(offset / size, out.first(whole));
  } else {
    FillElements<uint32_t>(offset / size, out.first(whole));
  }
  out = out.subspan(whole);
  offset += whole;
  if (!out.empty()) copy_part(out.size());
}

// --- Models ---

namespace {

constexpr uint32_t kDecay = 0;
constexpr uint32_t kNoDecay = 1;

void AddParameter(Layout& layout, std::string name, std::vector<uint64_t> shape, uint32_t group) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = DType::kBFloat16;
  tensor.shape = std::move(shape);
  tensor.group = group;
  layout.tensors.push_back(std::move(tensor));
}

// Matrices decay, biases and the scales of norms do not: the usual two groups.
void AddParameter(Layout& layout, std::string name, std::vector<uint64_t> shape) {
  const uint32_t group = shape.size() > 1 ? kDecay : kNoDecay;
  AddParameter(layout, std::move(name), std::move(shape), group);
}

// GPT-2 under the names of the transformers library, which keeps the matrices of its Conv1D layers
// as [inputs, outputs].
void AddGpt2(Layout& layout, uint64_t layers, uint64_t width) {
  constexpr uint64_t kVocabulary = 50257, kContext = 1024;
  AddParameter(layout, "transformer.wte.weight", {kVocabulary, width});
  layout.tensors.back().aliases = {"lm_head.weight"};
  AddParameter(layout, "transformer.wpe.weight", {kContext, width});
  const auto add_pair = [&](const std::string& name, std::vector<uint64_t> shape) {
    const uint64_t outputs = shape.back();
    AddParameter(layout, name + ".weight", std::move(shape));
    AddParameter(layout, name + ".bias", {outputs});
  };
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string layer = "transformer.h." + std::to_string(i) + ".";
    add_pair(layer + "ln_1", {width});
    Tensor masked_bias;
    masked_bias.name = layer + "attn.masked_bias";
    masked_bias.kind = TensorKind::kBuffer;
    masked_bias.trainable = false;
    layout.tensors.push_back(std::move(masked_bias));
    add_pair(layer + "attn.c_attn", {width, 3 * width});
    add_pair(layer + "attn.c_proj", {width, width});
    add_pair(layer + "ln_2", {width});
    add_pair(layer + "mlp.c_fc", {width, 4 * width});
    add_pair(layer + "mlp.c_proj", {4 * width, width});
  }
  add_pair("transformer.ln_f", {width});
}

// Ten thousand tensors of 4096 elements: where a cost per tensor would show.
void AddSmallTensors(Layout& layout) {
  for (uint64_t i = 0; i < 5000; ++i) {
    const std::string layer = "layers." + std::to_string(i) + ".";
    AddParameter(layout, layer + "weight", {64, 64});
    AddParameter(layout, layer + "bias", {4096});
  }
}

// `count` sizes around the mean, up to a quarter off and odd (the last is what is left): cuts then
// fall at the awkward places.
void AddOddTensors(Layout& layout, uint64_t elements, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t after = count - i - 1;
    uint64_t size = elements;
    if (after > 0) {
      const uint64_t mean = elements / (after + 1);
      size = (mean - mean / 4 + Mix64(i) % (mean / 2 + 1)) | 1;
      // Every later one needs an element.
      size = std::clamp<uint64_t>(size, 1, elements - after);
    }
    AddParameter(layout, "tensor." + std::to_string(i), {size}, i % 4 == 3 ? kNoDecay : kDecay);
    elements -= size;
  }
}

Value HyperParameters(double weight_decay) {
  Value value;
  value.Set("lr", 3e-4);
  value.Set("betas", Value::List{0.9, 0.95});
  value.Set("eps", 1e-8);
  value.Set("weight_decay", weight_decay);
  return value;
}

Status AddCounted(Layout& layout, const ModelChoice& choice) {
  constexpr uint64_t kMeanElements = 1'000'000, kMostByDefault = 1000;
  const uint64_t tensors =
      choice.tensors != 0
          ? choice.tensors
          : std::clamp<uint64_t>(choice.parameters / kMeanElements, 1, kMostByDefault);
  if (choice.parameters < tensors) {
    return Status(StatusCode::kInvalidArgument, std::to_string(choice.parameters) +
                                                    " parameters cannot fill " +
                                                    std::to_string(tensors) + " tensors");
  }
  AddOddTensors(layout, choice.parameters, tensors);
  return Status();
}

}  // namespace

Result<Layout> MakeModel(const ModelChoice& choice) {
  Layout layout;
  layout.groups = {{HyperParameters(0.1)}, {HyperParameters(0.0)}};
  if (choice.name == "gpt2-124m") {
    AddGpt2(layout, 12, 768);
  } else if (choice.name == "gpt2-1.5b") {
    AddGpt2(layout, 48, 1600);
  } else if (choice.name == "small-10k") {
    AddSmallTensors(layout);
  } else if (choice.name.empty()) {
    const Status status = AddCounted(layout, choice);
    if (!status.ok()) return status;
  } else {
    return Status(StatusCode::kInvalidArgument, "there is no model '" + choice.name + "'");
  }
  return layout;
}

// --- Stages ---

namespace {

std::vector<Role> Roles(bool weight, bool optimizer) {
  std::vector<Role> roles;
  const auto add = [&](const char* name, DType dtype, RoleForm form) {
    Role& role = roles.emplace_back();
    role.name = name;
    role.dtype = dtype;
    role.form = form;
  };
  if (weight) add("weight", DType::kBFloat16, RoleForm::kAligned);
  if (optimizer) {
    add("fp32", DType::kFloat32, RoleForm::kAligned);
    add("exp_avg", DType::kFloat32, RoleForm::kAligned);
    add("exp_avg_sq", DType::kFloat32, RoleForm::kAligned);
    add("step", DType::kInt64, RoleForm::kPlain);
  }
  return roles;
}

// What of the layout one partition is about.
std::vector<uint32_t> Select(const Layout& layout, TensorKind kind, std::optional<uint32_t> group) {
  std::vector<uint32_t> tensors;
  for (uint32_t i = 0; i < layout.tensors.size(); ++i) {
    const Tensor& tensor = layout.tensors[i];
    if (tensor.kind == kind && (!group || tensor.group == group)) tensors.push_back(i);
  }
  return tensors;
}

Status Append(Layout& layout, Result<Partition> partition) {
  if (!partition.ok()) return partition.status();
  layout.partitions.push_back(*std::move(partition));
  return Status();
}

Status AddGroup(Layout& layout, uint32_t group, uint32_t stage, const RankList& world) {
  std::vector<uint32_t> tensors = Select(layout, TensorKind::kParameter, group);
  if (tensors.empty()) return Status();
  const PartitionId id = "params." + std::to_string(group);
  if (stage == 0) {
    return Append(layout, MakeReplicated(layout, id, std::move(tensors), world, Roles(true, true)));
  }
  if (stage == 3)
    return Append(layout, MakeZero3(id, std::move(tensors), world, Roles(true, true)));
  return Append(layout, MakeZero12(layout, id, std::move(tensors), world, Roles(false, true)));
}

}  // namespace

Status AddStage(Layout& layout, uint32_t stage, uint32_t world_size) {
  layout.world_size = world_size;
  const RankList world = RankList::World(world_size);
  for (uint32_t group = 0; group < layout.groups.size(); ++group) {
    const Status status = AddGroup(layout, group, stage, world);
    if (!status.ok()) return status;
  }
  if (stage == 1 || stage == 2) {
    const Status status =
        Append(layout, MakeReplicated(layout, "weights", Select(layout, TensorKind::kParameter, {}),
                                      world, Roles(true, false)));
    if (!status.ok()) return status;
  }
  std::vector<uint32_t> buffers = Select(layout, TensorKind::kBuffer, {});
  if (buffers.empty()) return Status();
  std::vector<Role> roles(1);
  roles[0].name = "weight";
  roles[0].dtype = DType::kFloat32;
  return Append(layout, MakeReplicated(layout, "buffers", std::move(buffers), world, roles));
}

// --- What a rank hands over ---

SynthSource::SynthSource(uint64_t seed, bool sparse, const Layout& layout,
                         const Partition& partition, const Role& role,
                         std::span<const Slice> slices)
    : seed_(seed),
      sparse_(sparse),
      layout_(layout),
      partition_(partition),
      role_(role),
      element_bytes_(SizeOf(role.dtype)),
      slices_(slices) {
  uint64_t end = 0;
  ends_.reserve(slices.size());
  for (const Slice& slice : slices) {
    end += (slice.end - slice.begin) * element_bytes_;
    ends_.push_back(end);
  }
}

uint64_t SynthSource::size_bytes() const { return ends_.empty() ? 0 : ends_.back(); }

Status SynthSource::Read(uint64_t offset, std::span<std::byte> out) {
  if (sparse_) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return Status();
  }
  auto at =
      static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
  for (; !out.empty(); ++at) {
    const Slice& slice = slices_[at];
    const Tensor& tensor = layout_.tensors[partition_.members[slice.member].tensor];
    const uint64_t slice_bytes = (slice.end - slice.begin) * element_bytes_;
    const uint64_t skip = offset - (ends_[at] - slice_bytes);
    const size_t count = std::min<size_t>(out.size(), slice_bytes - skip);
    const ElementStream stream(seed_, tensor, role_.name, role_.dtype);
    stream.Fill(slice.begin * element_bytes_ + skip, out.first(count));
    out = out.subspan(count);
    offset += count;
  }
  return Status();
}

bool SynthSource::IsZero(uint64_t, uint64_t) const { return sparse_; }

Value SynthRankState(uint64_t seed, uint32_t rank) {
  // The size of torch's CPU generator: larger than 4 KiB, so it becomes a segment of its own.
  constexpr uint64_t kGeneratorBytes = 5056;
  Array generator;
  generator.shape = {kGeneratorBytes};
  generator.bytes.resize(kGeneratorBytes);
  const uint64_t key = Mix64(seed ^ Mix64(rank));
  for (uint64_t i = 0; i < kGeneratorBytes; ++i) {
    generator.bytes[i] = static_cast<std::byte>(HashAt(key, static_cast<uint32_t>(i)) & 0xff);
  }
  Value value;
  value.Set("rank", static_cast<int64_t>(rank));
  value.Set("torch_cpu_generator", std::move(generator));
  value.Set("loader_position", static_cast<int64_t>(key % 1'000'000));
  return value;
}

Value SynthClientState(const ModelChoice& choice, uint64_t seed, bool sparse, uint32_t stage,
                       int64_t step) {
  Value synth;
  synth.Set("model", choice.name.empty() ? Value() : Value(choice.name));
  synth.Set("parameters", static_cast<int64_t>(choice.parameters));
  // A seed may use all 64 bits, an int of plain data has a sign.
  synth.Set("seed", std::to_string(seed));
  synth.Set("sparse", sparse);
  synth.Set("stage", static_cast<int64_t>(stage));
  Value scheduler;
  scheduler.Set("name", "cosine");
  scheduler.Set("last_lr", Value::List{3e-4, 3e-4});
  Value value;
  value.Set("iteration", step);
  value.Set("scheduler", std::move(scheduler));
  value.Set("synth", std::move(synth));
  return value;
}

}  // namespace flagstone::tools
