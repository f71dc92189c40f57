// SPDX-License-Identifier: Apache-2.0
#include "train_zero/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace train_zero {
namespace {

using flagstone::DType;
using flagstone::Value;

void Require(const flagstone::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

template <typename T>
T Require(flagstone::Result<T> result) {
  Require(result.status());
  return std::move(result).value();
}

[[noreturn]] void Refuse(const std::filesystem::path& checkpoint, const std::string& why) {
  throw std::runtime_error("cannot resume from " + checkpoint.string() + ": " + why);
}

std::string CheckpointName(int64_t step) { return "step-" + std::to_string(step); }

std::string PartitionName(const OptimizerGroup& group) { return "optimizer." + group.name; }

// The partitions of what every rank holds: bfloat16 parameters, and buffers of another type.
constexpr const char* kParameters = "parameters";
constexpr const char* kBuffers = "buffers";

// --- Declarations: what there is, and who holds what of it

Value HyperParameters(const AdamParameters& adam) {
  Value value;
  value.Set("lr", adam.learning_rate);
  value.Set("betas", Value::List{adam.beta1, adam.beta2});
  value.Set("eps", adam.epsilon);
  value.Set("weight_decay", adam.weight_decay);
  return value;
}

flagstone::Tensor Declare(const ModelTensor& tensor) {
  return {
      .name = tensor.name,
      .dtype = tensor.use == TensorUse::kBuffer ? DType::kBool : DType::kBFloat16,
      .shape = tensor.shape,
      .kind = tensor.use == TensorUse::kBuffer ? flagstone::TensorKind::kBuffer
                                               : flagstone::TensorKind::kParameter,
      .group = std::nullopt,
      .trainable = tensor.use == TensorUse::kTrained,
      .aliases = tensor.tied,
  };
}

// The layout is the same on every rank and follows from shapes and world size alone.
flagstone::Layout DescribeLayout(const TrainingState& state) {
  flagstone::Layout layout;
  layout.world_size = state.world_size;
  for (const ModelTensor& tensor : state.tensors) layout.tensors.push_back(Declare(tensor));
  for (uint32_t g = 0; g < state.groups.size(); ++g) {
    layout.groups.push_back({HyperParameters(state.groups[g].adam)});
    for (const uint32_t index : state.groups[g].tensors) layout.tensors[index].group = g;
  }

  const auto world = flagstone::RankList::World(state.world_size);
  // Masters and moments: one flat buffer a group, cut evenly, as the optimizer itself has them.
  for (const OptimizerGroup& group : state.groups) {
    const std::vector<flagstone::Role> roles = {
        {.name = "fp32"},
        {.name = "exp_avg"},
        {.name = "exp_avg_sq"},
        {.name = "step", .dtype = DType::kInt64, .form = flagstone::RoleForm::kPlain}};
    layout.partitions.push_back(
        Require(flagstone::MakeZero12(layout, PartitionName(group), group.tensors, world, roles)));
  }
  // Weights and buffers: every rank holds them whole, one rank stores them.
  std::vector<uint32_t> parameters, buffers;
  for (uint32_t i = 0; i < state.tensors.size(); ++i) {
    (state.tensors[i].use == TensorUse::kBuffer ? buffers : parameters).push_back(i);
  }
  layout.partitions.push_back(Require(flagstone::MakeReplicated(
      layout, kParameters, parameters, world, {{.name = "weight", .dtype = DType::kBFloat16}})));
  layout.partitions.push_back(Require(flagstone::MakeReplicated(
      layout, kBuffers, buffers, world, {{.name = "weight", .dtype = DType::kBool}})));
  return layout;
}

// The tensors of which a rank stores a part, or all.
std::vector<uint32_t> StoredTensors(const flagstone::Layout& layout, const std::string& id,
                                    uint32_t rank) {
  const auto partition = std::find_if(layout.partitions.begin(), layout.partitions.end(),
                                      [&](const auto& candidate) { return candidate.id == id; });
  std::vector<uint32_t> tensors;
  for (const flagstone::Slice& slice : Require(flagstone::StoredSlices(layout, id, rank))) {
    tensors.push_back(partition->members[slice.member].tensor);
  }
  return tensors;
}

// --- Plain data: what is no tensor

Value ClientState(const Job& job, const TrainingState& state) {
  Value model;
  model.Set("layers", static_cast<int64_t>(state.shape.layers));
  model.Set("heads", static_cast<int64_t>(state.shape.heads));
  model.Set("width", static_cast<int64_t>(state.shape.width));
  model.Set("context", static_cast<int64_t>(state.shape.context));
  Value value;
  value.Set("step", state.step);
  value.Set("model", std::move(model));
  value.Set("text", job.text_digest);
  return value;
}

Value RankState(const TrainingState& state) {
  flagstone::Array order{.dtype = DType::kInt64, .shape = {state.loader.order.size()}, .bytes = {}};
  const auto windows = std::as_bytes(std::span(state.loader.order));
  order.bytes.assign(windows.begin(), windows.end());
  flagstone::Array random{
      .dtype = DType::kUint8, .shape = {state.random_state.size()}, .bytes = state.random_state};

  Value loader;
  loader.Set("epoch", state.loader.epoch);
  loader.Set("position", static_cast<int64_t>(state.loader.position));
  loader.Set("order", std::move(order));
  loader.Set("generator", static_cast<int64_t>(state.loader.generator));
  Value value;
  value.Set("loader", std::move(loader));
  value.Set("torch_cpu_generator", std::move(random));
  return value;
}

template <typename T>
const T& Entry(const Value& dict, const char* key) {
  const Value* const found = dict.Find(key);
  const T* const entry = found == nullptr ? nullptr : found->get_if<T>();
  if (entry == nullptr)
    throw std::runtime_error(std::string("the saved state has no usable ") + key);
  return *entry;
}

void RestoreHyperParameters(const Value& saved, AdamParameters& adam) {
  const auto& betas = Entry<Value::List>(saved, "betas");
  const double* const beta1 = betas.size() == 2 ? betas[0].get_if<double>() : nullptr;
  const double* const beta2 = betas.size() == 2 ? betas[1].get_if<double>() : nullptr;
  if (beta1 == nullptr || beta2 == nullptr) {
    throw std::runtime_error("the saved \"betas\" are not two numbers");
  }
  adam = {.learning_rate = Entry<double>(saved, "lr"),
          .beta1 = *beta1,
          .beta2 = *beta2,
          .epsilon = Entry<double>(saved, "eps"),
          .weight_decay = Entry<double>(saved, "weight_decay")};
}

void RestoreRankState(const Value& saved, TrainingState& state) {
  const Value* const loader = saved.Find("loader");
  if (loader == nullptr) throw std::runtime_error("the saved rank state has no \"loader\"");
  const auto& order = Entry<flagstone::Array>(*loader, "order");
  state.loader.epoch = Entry<int64_t>(*loader, "epoch");
  state.loader.position = static_cast<uint64_t>(Entry<int64_t>(*loader, "position"));
  state.loader.generator = static_cast<uint64_t>(Entry<int64_t>(*loader, "generator"));
  state.loader.order.resize(order.bytes.size() / sizeof(int64_t));
  std::memcpy(state.loader.order.data(), order.bytes.data(),
              state.loader.order.size() * sizeof(int64_t));
  state.random_state = Entry<flagstone::Array>(saved, "torch_cpu_generator").bytes;
}

// --- Checks of what was loaded

// The masters of a rank, rounded, are its part of the weights: two partitions of one checkpoint
// that were saved apart must tell of the same step.
void CheckMastersAgainstWeights(const ResumePoint& from, const TrainingState& state) {
  for (const OptimizerGroup& group : state.groups) {
    const auto own =
        state.flat_weights.span().subspan(group.flat_begin + group.own_begin, group.own_elements());
    for (uint64_t i = 0; i < own.size(); ++i) {
      if (BFloat16FromFloat(group.master.span()[i]) == own[i]) continue;
      Refuse(from.checkpoint, "weight and master of element " +
                                  std::to_string(group.own_begin + i) + " of group " + group.name +
                                  " differ");
    }
  }
}

}  // namespace

flagstone::SaveReport SaveCheckpoint(const Job& job, const TrainingState& state,
                                     SuddenDeath* death) {
  const flagstone::Layout layout = DescribeLayout(state);
  flagstone::SaveOptions options;
  options.run = job.run;
  options.step = state.step;
  flagstone::Writer writer = Require(flagstone::Writer::Create(
      job.root / CheckpointName(state.step), layout, state.rank, options));
  // The writer borrows the bytes until Commit returns; nothing is copied here.
  std::vector<std::unique_ptr<flagstone::Source>> sources;
  const auto lend = [&](std::span<const std::byte> bytes) -> flagstone::Source& {
    sources.push_back(death != nullptr ? death->MakeSource(bytes)
                                       : std::make_unique<flagstone::SpanSource>(bytes));
    return *sources.back();
  };

  // This rank's part of each flat buffer is a segment as it stands.
  for (const OptimizerGroup& group : state.groups) {
    const std::string partition = PartitionName(group);
    Require(writer.Add(partition, "fp32", lend(std::as_bytes(group.master.span()))));
    Require(writer.Add(partition, "exp_avg", lend(std::as_bytes(group.exp_avg.span()))));
    Require(writer.Add(partition, "exp_avg_sq", lend(std::as_bytes(group.exp_avg_sq.span()))));
    for (const uint32_t tensor : StoredTensors(layout, partition, state.rank)) {
      Require(writer.AddPlain(partition, "step", state.tensors[tensor].name, state.step));
    }
  }
  // Of what every rank holds, this one gives those tensors that the layout has it store.
  for (const char* const partition : {kParameters, kBuffers}) {
    for (const uint32_t tensor : StoredTensors(layout, partition, state.rank)) {
      Require(writer.AddTensor(partition, "weight", state.tensors[tensor].name,
                               lend(state.weights[tensor])));
    }
  }
  Require(writer.SetRankState(RankState(state)));
  if (state.rank == 0) Require(writer.SetClientState(ClientState(job, state)));
  return Require(writer.Commit());
}

ResumePoint FindResumePoint(const Job& job, const ModelShape& shape, uint32_t world_size) {
  const auto found = flagstone::Checkpoint::Open(job.root);
  if (!found.ok()) Refuse(job.root, found.status().ToString());
  const flagstone::Checkpoint& checkpoint = *found;
  if (checkpoint.world_size() != world_size) {
    Refuse(checkpoint.path(), "it was saved by " + std::to_string(checkpoint.world_size()) +
                                  " ranks and this run has " + std::to_string(world_size) +
                                  "; use --world " + std::to_string(checkpoint.world_size()));
  }
  const Value client = Require(checkpoint.client_state());
  if (Entry<std::string>(client, "text") != job.text_digest) {
    Refuse(checkpoint.path(), "it learned another text");
  }
  const Value* const model = client.Find("model");
  const auto same = [&](const char* key, uint64_t size) {
    return model != nullptr && Entry<int64_t>(*model, key) == static_cast<int64_t>(size);
  };
  if (!same("layers", shape.layers) || !same("heads", shape.heads) || !same("width", shape.width) ||
      !same("context", shape.context)) {
    Refuse(checkpoint.path(), "its model has another shape");
  }
  return {.checkpoint = checkpoint.path(), .step = Entry<int64_t>(client, "step")};
}

void LoadCheckpoint(const ResumePoint& from, TrainingState& state) {
  const flagstone::Checkpoint checkpoint = Require(flagstone::Checkpoint::Open(from.checkpoint));
  const flagstone::Layout wanted = DescribeLayout(state);
  if (checkpoint.layout().tensors != wanted.tensors) {
    Refuse(from.checkpoint, "it holds other tensors");
  }

  // One reader a rank: its own rank file, and the files that store the weights.
  flagstone::LoadOptions options;
  options.replicated = true;
  const flagstone::RankReader reader = Require(checkpoint.OpenRank(state.rank, options));

  // Own partitions go straight into the optimizer's buffers.
  std::vector<flagstone::Destination> destinations;
  for (OptimizerGroup& group : state.groups) {
    const std::string partition = PartitionName(group);
    destinations.push_back({partition, "fp32", std::as_writable_bytes(group.master.span())});
    destinations.push_back({partition, "exp_avg", std::as_writable_bytes(group.exp_avg.span())});
    destinations.push_back(
        {partition, "exp_avg_sq", std::as_writable_bytes(group.exp_avg_sq.span())});
  }
  Require(reader.Load(destinations));

  // The weights lie tensor by tensor in this program's memory, so they are copied out of a view:
  // ranks of one node share its pages, and the disk reads them once.
  for (uint32_t tensor = 0; tensor < state.tensors.size(); ++tensor) {
    const bool buffer = state.tensors[tensor].use == TensorUse::kBuffer;
    const flagstone::View view = Require(
        reader.ViewTensor(buffer ? kBuffers : kParameters, "weight", state.tensors[tensor].name));
    std::copy(view.bytes().begin(), view.bytes().end(), state.weights[tensor].begin());
  }

  for (uint32_t g = 0; g < state.groups.size(); ++g) {
    OptimizerGroup& group = state.groups[g];
    RestoreHyperParameters(checkpoint.layout().groups.at(g).hyper_parameters, group.adam);
    const std::string partition = PartitionName(group);
    for (const uint32_t tensor : StoredTensors(wanted, partition, state.rank)) {
      const std::string& name = state.tensors[tensor].name;
      if (Require(reader.Plain(partition, "step", name)) != Value(from.step)) {
        Refuse(from.checkpoint, name + " stands at another step than the checkpoint");
      }
    }
  }
  RestoreRankState(Require(reader.RankState()), state);
  state.step = from.step;
  CheckMastersAgainstWeights(from, state);
}

}  // namespace train_zero
