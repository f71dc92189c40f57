// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "arguments.h"
#include "commands.h"
#include "flagstone/checkpoint.h"
#include "progress.h"
#include "text.h"

namespace flagstone::tools {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyArguments {
  std::string path;
  std::optional<uint32_t> rank;
};

template <typename T>
Json OrNull(const std::optional<T>& number) {
  return number ? Json(*number) : Json(nullptr);
}

Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json ToJson(const VerifyProblem& problem) {
  return {{"code", StatusCodeName(problem.code)},
          {"file", OrNull(problem.file)},
          {"segment", OrNull(problem.segment)},
          {"chunk", OrNull(problem.chunk)},
          {"offset", OrNull(problem.offset)},
          {"length", OrNull(problem.length)},
          {"what", problem.what}};
}

// "rank-00001.0123abcd.flagstone, segment optimizer.0/fp32, chunk 3, offset 98304, length 65536"
std::string Place(const VerifyProblem& problem) {
  std::string place = problem.file;
  const auto add = [&](const char* what, const std::string& value) {
    place += place.empty() ? "" : ", ";
    place += what + value;
  };
  if (!problem.segment.empty()) add("segment ", problem.segment);
  if (problem.chunk) add("chunk ", std::to_string(*problem.chunk));
  if (problem.offset) add("offset ", std::to_string(*problem.offset));
  if (problem.length) add("length ", std::to_string(*problem.length));
  return place;
}

void PrintForPeople(const VerifyReport& report, double seconds) {
  for (const VerifyProblem& problem : report.problems) {
    std::printf("%s: %s [%s]\n", Escape(Place(problem)).c_str(), Escape(problem.what).c_str(),
                std::string(StatusCodeName(problem.code)).c_str());
  }
  const std::string rate =
      FormatBytes(static_cast<uint64_t>(static_cast<double>(report.bytes) / seconds));
  // What could not be read may be whole.
  const bool damaged = std::any_of(
      report.problems.begin(), report.problems.end(),
      [](const VerifyProblem& problem) { return problem.code != StatusCode::kIoError; });
  const char* const verdict = report.ok() ? "ok" : damaged ? "DAMAGED" : "UNREADABLE";
  std::printf("%s: %s read in %s s (%s/s)\n", verdict, FormatBytes(report.bytes).c_str(),
              FormatNumber(seconds, 2).c_str(), rate.c_str());
}

ExitCode RunVerify(const VerifyArguments& arguments, const Output& output,
                   const Interruption& interruption) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<Progress> progress(std::in_place, "verify");
  VerifyOptions options;
  options.rank = arguments.rank;
  options.progress = progress->callback();
  options.stop = interruption.token();
  const Result<VerifyReport> report = Verify(arguments.path, options);
  progress.reset();
  if (!report.ok()) return output.Fail(report.status());

  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (output.json()) {
    Json problems = Json::array();
    for (const VerifyProblem& problem : report->problems) problems.push_back(ToJson(problem));
    output.Print(
        {{"ok", report->ok()}, {"bytes", report->bytes}, {"problems", std::move(problems)}});
  } else {
    PrintForPeople(*report, seconds.count());
  }
  if (report->ok()) return kDone;
  const VerifyProblem& first = report->problems.front();
  output.Note(arguments.path + ": " + std::to_string(report->problems.size()) +
              (report->problems.size() == 1 ? " problem: " : " problems, the first: ") +
              Place(first) + ": " + first.what);
  return kProblem;
}

}  // namespace

void AddVerify(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "verify", "Read every byte of a checkpoint and report all that is not as it was written");
  const auto arguments = std::make_shared<VerifyArguments>();
  command->add_option("CKPT", arguments->path, "Checkpoint")->required();
  AddUint32(*command, "--rank", arguments->rank, "The manifest and this rank's file only");
  command->callback([arguments, &invocation] {
    invocation.stoppable = true;
    invocation.run = [arguments](const Output& output, const Interruption& interruption) {
      return RunVerify(*arguments, output, interruption);
    };
  });
}

}  // namespace flagstone::tools
