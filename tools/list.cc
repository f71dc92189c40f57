// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "commands.h"
#include "flagstone/checkpoint.h"
#include "text.h"

namespace flagstone::tools {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const ListedCheckpoint& checkpoint) {
  // Without a readable manifest there is neither identity nor time.
  const bool readable = !checkpoint.save_id.empty();
  return {{"name", checkpoint.name},
          {"save_id", readable ? Json(checkpoint.save_id) : Json(nullptr)},
          {"step", checkpoint.step ? Json(*checkpoint.step) : Json(nullptr)},
          {"bytes", checkpoint.bytes},
          {"committed", readable ? Json(checkpoint.committed_at) : Json(nullptr)},
          {"latest", checkpoint.latest},
          {"problem", checkpoint.problem.empty() ? Json(nullptr) : Json(checkpoint.problem)}};
}

void PrintForPeople(const Listing& listing) {
  if (listing.checkpoints.empty()) std::printf("no checkpoint\n");
  using Align = Table::Align;
  Table table({{"name"},
               {"step", Align::kRight},
               {"bytes", Align::kRight},
               {"committed"},
               {"save id"},
               {"latest"}});
  for (const ListedCheckpoint& checkpoint : listing.checkpoints) {
    const bool readable = !checkpoint.save_id.empty();
    table.AddRow({checkpoint.name, checkpoint.step ? std::to_string(*checkpoint.step) : "-",
                  FormatBytes(checkpoint.bytes),
                  readable ? FormatTime(checkpoint.committed_at) : "-",
                  readable ? checkpoint.save_id : "-", checkpoint.latest ? "latest" : ""});
  }
  if (!listing.checkpoints.empty()) table.Print(stdout);
  for (const ListedCheckpoint& checkpoint : listing.checkpoints) {
    if (checkpoint.problem.empty()) continue;
    std::printf("problem: %s: %s\n", Escape(checkpoint.name).c_str(),
                Escape(checkpoint.problem).c_str());
  }
  for (const std::string& path : listing.debris) {
    std::printf("debris of a dead save: %s\n", Escape(path).c_str());
  }
  if (!listing.debris.empty())
    std::printf("(the next save under the same name that succeeds removes its debris)\n");
}

ExitCode RunList(const std::filesystem::path& root, const Output& output) {
  const Result<Listing> listing = ListCheckpoints(root);
  if (!listing.ok()) return output.Fail(listing.status());
  if (output.json()) {
    Json checkpoints = Json::array();
    for (const ListedCheckpoint& checkpoint : listing->checkpoints) {
      checkpoints.push_back(ToJson(checkpoint));
    }
    output.Print({{"checkpoints", std::move(checkpoints)}, {"debris", listing->debris}});
  } else {
    PrintForPeople(*listing);
  }
  const auto broken = std::count_if(listing->checkpoints.begin(), listing->checkpoints.end(),
                                    [](const auto& one) { return !one.problem.empty(); });
  if (broken == 0) return kDone;
  output.Note(std::to_string(broken) + " of " + std::to_string(listing->checkpoints.size()) +
              " checkpoints below " + root.string() + " cannot be used");
  return kProblem;
}

}  // namespace

void AddList(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("list", "List the checkpoints of a directory and what dead saves left");
  const auto root = std::make_shared<std::string>();
  command->add_option("ROOT", *root, "Directory whose checkpoints are listed")->required();
  command->callback([root, &invocation] {
    invocation.run = [root](const Output& output, const Interruption&) {
      return RunList(*root, output);
    };
  });
}

}  // namespace flagstone::tools
