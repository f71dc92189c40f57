// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "flagstone/checkpoint.h"
#include "text.h"
#include "value_json.h"

namespace flagstone::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string_view KindName(TensorKind kind) {
  return kind == TensorKind::kBuffer ? "buffer" : "parameter";
}

// The role names of each tensor, in the order of the partitions; a tensor has a role once.
std::vector<std::vector<std::string_view>> RolesOfTensors(const Layout& layout) {
  std::vector<std::vector<std::string_view>> roles(layout.tensors.size());
  for (const Partition& partition : layout.partitions) {
    for (const Member& member : partition.members) {
      std::vector<std::string_view>& names = roles[member.tensor];
      for (const Role& role : partition.roles) names.push_back(role.name);
    }
  }
  return roles;
}

std::vector<uint32_t> Expand(const RankList& list) {
  std::vector<uint32_t> ranks;
  ranks.reserve(list.size());
  for (const RankRange& range : list.ranges) {
    for (uint32_t i = 0; i < range.count; ++i) ranks.push_back(range.first + i * range.stride);
  }
  return ranks;
}

// --- JSON ---

Json TensorsToJson(const Layout& layout) {
  const auto roles = RolesOfTensors(layout);
  Json list = Json::array();
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const Tensor& tensor = layout.tensors[i];
    list.push_back({{"name", tensor.name},
                    {"dtype", Name(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"kind", KindName(tensor.kind)},
                    {"group", tensor.group ? Json(*tensor.group) : Json(nullptr)},
                    {"trainable", tensor.trainable},
                    {"roles", roles[i]},
                    {"aliases", tensor.aliases}});
  }
  return list;
}

Json BoxesToJson(const Partition& partition) {
  const bool whole = std::none_of(partition.members.begin(), partition.members.end(),
                                  [](const Member& member) { return member.box.has_value(); });
  if (whole) return nullptr;
  Json boxes = Json::array();
  for (const Member& member : partition.members) {
    boxes.push_back(member.box
                        ? Json{{"offsets", member.box->offsets}, {"sizes", member.box->sizes}}
                        : Json(nullptr));
  }
  return boxes;
}

Json PartitionsToJson(const Layout& layout) {
  Json list = Json::array();
  for (const Partition& partition : layout.partitions) {
    Json members = Json::array();
    for (const Member& member : partition.members) {
      members.push_back(layout.tensors[member.tensor].name);
    }
    Json replicas = Json::array();
    for (const RankList& replica : partition.replicas) replicas.push_back(Expand(replica));
    Json roles = Json::array();
    for (const Role& role : partition.roles) {
      roles.push_back({{"name", role.name},
                       {"dtype", Name(role.dtype)},
                       {"form", Name(role.form)},
                       {"chunk_bytes", role.chunk_bytes}});
    }
    list.push_back({{"id", partition.id},
                    {"rule", RuleName(partition.cut)},
                    {"ranks", Expand(partition.ranks)},
                    {"replicas", std::move(replicas)},
                    {"members", std::move(members)},
                    {"boxes", BoxesToJson(partition)},
                    {"roles", std::move(roles)}});
  }
  return list;
}

Json CheckpointToJson(const Checkpoint& checkpoint, const Result<Value>& client_state) {
  const Layout& layout = checkpoint.layout();
  Json groups = Json::array();
  for (const ParameterGroup& group : layout.groups) {
    groups.push_back({{"hyper_parameters", ToJson(group.hyper_parameters)}});
  }
  Json ranks = Json::array();
  for (const Checkpoint::RankFile& file : checkpoint.rank_files()) {
    ranks.push_back({{"rank", file.rank}, {"file", file.name}, {"bytes", file.bytes}});
  }
  return {{"path", checkpoint.path().string()},
          {"world_size", checkpoint.world_size()},
          {"save_id", checkpoint.save_id()},
          {"format_version", checkpoint.format_version()},
          {"has_data", checkpoint.has_data()},
          {"tensor_count", layout.tensors.size()},
          {"tensors", TensorsToJson(layout)},
          {"groups", std::move(groups)},
          {"partitions", PartitionsToJson(layout)},
          {"step", checkpoint.step() ? Json(*checkpoint.step()) : Json(nullptr)},
          {"committed_at", checkpoint.committed_at()},
          {"manifest_bytes", checkpoint.manifest_bytes()},
          {"ranks", std::move(ranks)},
          {"client_state", client_state.ok() ? ToJson(*client_state) : Json(nullptr)},
          {"client_state_error",
           client_state.ok() ? Json(nullptr) : Json(client_state.status().message())}};
}

// --- For people ---

template <typename Text>
std::string Joined(const std::vector<Text>& names) {
  std::string out;
  for (const std::string_view name : names) out.append(out.empty() ? "" : " ").append(name);
  return out.empty() ? "-" : out;
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string out;
  for (const uint64_t size : shape) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return "[" + out + "]";
}

std::string RanksText(const RankList& list) {
  std::string out;
  for (const RankRange& range : list.ranges) {
    if (range.count == 0) continue;
    out += (out.empty() ? "" : ", ") + std::to_string(range.first);
    if (range.count == 1) continue;
    out += ".." + std::to_string(range.first + (range.count - 1) * range.stride);
    if (range.stride != 1) out += " by " + std::to_string(range.stride);
  }
  return out.empty() ? "-" : out;
}

void PrintHead(const Checkpoint& checkpoint) {
  const Layout& layout = checkpoint.layout();
  uint64_t parameters = 0, elements = 0, buffers = 0, aliases = 0;
  for (const Tensor& tensor : layout.tensors) {
    const bool buffer = tensor.kind == TensorKind::kBuffer;
    (buffer ? buffers : parameters) += 1;
    elements += buffer ? 0 : ElementCount(tensor.shape).value_or(0);
    aliases += tensor.aliases.size();
  }
  const auto files = checkpoint.rank_files();
  uint64_t bytes = checkpoint.manifest_bytes();
  for (const Checkpoint::RankFile& file : files) bytes += file.bytes;

  const auto line = [](const char* key, const std::string& value) {
    std::printf("%-11s  %s\n", key, Escape(value).c_str());
  };
  line("checkpoint", checkpoint.path().string());
  line("format", checkpoint.format_version());
  line("save id", checkpoint.save_id());
  line("step", checkpoint.step() ? std::to_string(*checkpoint.step()) : "-");
  line("committed", FormatTime(checkpoint.committed_at()));
  line("world size", std::to_string(checkpoint.world_size()));
  if (!checkpoint.has_data()) line("data", "none: a manifest to plan with, nothing to load");
  line(checkpoint.has_data() ? "bytes" : "would be",
       FormatBytes(bytes) + ": " + std::to_string(files.size()) + " rank files, manifest " +
           FormatBytes(checkpoint.manifest_bytes()));
  line("tensors", FormatCount(parameters) + " parameters of " + FormatCount(elements) +
                      " elements, " + FormatCount(buffers) + " buffers, " + FormatCount(aliases) +
                      " aliases");
}

void PrintPartitions(const Layout& layout) {
  Table table({{"partition"}, {"rule"}, {"ranks"}, {"members", Table::Align::kRight}, {"roles"}});
  for (const Partition& partition : layout.partitions) {
    std::string ranks = RanksText(partition.ranks);
    for (const RankList& replica : partition.replicas) ranks += " = " + RanksText(replica);
    std::vector<std::string> roles;
    for (const Role& role : partition.roles) {
      roles.push_back(
          role.name + ":" +
          std::string(role.form == RoleForm::kPlain ? Name(role.form) : Name(role.dtype)));
    }
    table.AddRow({partition.id, std::string(RuleName(partition.cut)), ranks,
                  std::to_string(partition.members.size()), Joined(roles)});
  }
  std::printf("\n");
  table.Print(stdout);
}

// A thousand rank files tell no more than a few: --json has them all.
void PrintRankFiles(const Checkpoint& checkpoint) {
  constexpr size_t kShown = 16;
  const auto files = checkpoint.rank_files();
  Table table({{"rank", Table::Align::kRight}, {"file"}, {"bytes", Table::Align::kRight}});
  for (size_t i = 0; i < std::min(files.size(), kShown); ++i) {
    table.AddRow({std::to_string(files[i].rank), files[i].name, FormatCount(files[i].bytes)});
  }
  std::printf("\n");
  table.Print(stdout);
  if (files.size() > kShown) {
    std::printf("... and %zu more (--json lists all)\n", files.size() - kShown);
  }
}

void PrintTensors(const Layout& layout) {
  const auto roles = RolesOfTensors(layout);
  Table table({{"tensor"},
               {"dtype"},
               {"shape"},
               {"kind"},
               {"group", Table::Align::kRight},
               {"roles"},
               {"aliases"}});
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const Tensor& tensor = layout.tensors[i];
    table.AddRow({tensor.name, std::string(Name(tensor.dtype)), ShapeText(tensor.shape),
                  std::string(KindName(tensor.kind)) + (tensor.trainable ? "" : ", frozen"),
                  tensor.group ? std::to_string(*tensor.group) : "-", Joined(roles[i]),
                  Joined(tensor.aliases)});
  }
  std::printf("\n");
  table.Print(stdout);
}

void PrintForPeople(const Checkpoint& checkpoint, const Result<Value>& client_state) {
  const Layout& layout = checkpoint.layout();
  PrintHead(checkpoint);
  PrintPartitions(layout);
  PrintRankFiles(checkpoint);
  if (!layout.groups.empty()) std::printf("\nparameter groups\n");
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    std::printf("%3zu  %s\n", i, Dump(ToJson(layout.groups[i].hyper_parameters)).c_str());
  }
  PrintTensors(layout);
  if (client_state.ok() && !client_state->is_null()) {
    std::printf("\nclient state\n%s\n", Dump(ToJson(*client_state), 2).c_str());
  }
}

ExitCode RunInspect(const std::filesystem::path& path, const Output& output) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (!checkpoint.ok()) return output.Fail(checkpoint.status());
  // Large arrays of the client state lie in a rank file. That one may be gone: the rest is shown
  // all the same, as one inspects what is broken.
  const Result<Value> client_state = checkpoint->client_state();
  if (output.json()) {
    output.Print(CheckpointToJson(*checkpoint, client_state));
  } else {
    PrintForPeople(*checkpoint, client_state);
  }
  if (client_state.ok()) return kDone;
  output.Note(client_state.status().message());
  return kProblem;
}

}  // namespace

void AddInspect(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "inspect", "Show what a checkpoint's manifest says: tensors, partitions, files, state");
  const auto path = std::make_shared<std::string>();
  command->add_option("CKPT", *path, "Checkpoint")->required();
  command->callback([path, &invocation] {
    invocation.run = [path](const Output& output, const Interruption&) {
      return RunInspect(*path, output);
    };
  });
}

}  // namespace flagstone::tools
