// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "text.h"
#include "value_json.h"

namespace flagstone::tools {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

void Output::Print(const Json& object) const {
  const std::lock_guard lock(stdout_mutex_);
  std::printf("%s\n", Dump(object).c_str());
}

void Output::PrintLine(std::string_view message) const {
  const std::string prefix = command_.empty() ? "flagstone" : "flagstone " + command_;
  std::fprintf(stderr, "%s: %s\n", prefix.c_str(), Escape(message).c_str());
}

void Output::PrintError(const Status& status) const {
  const ErrorPlace& place = status.place();
  Json offset = nullptr;
  if (place.offset) offset = *place.offset;
  const Json error = {{"code", StatusCodeName(status.code())},
                      {"message", status.message()},
                      {"path", OrNull(place.path)},
                      {"segment", OrNull(place.segment)},
                      {"offset", offset}};
  std::printf("%s\n", Dump(Json{{"error", error}}).c_str());
}

ExitCode Output::Fail(const Status& status) const {
  PrintLine(status.message() + " [" + std::string(StatusCodeName(status.code())) + "]");
  if (json_) {
    const std::lock_guard lock(stdout_mutex_);
    PrintError(status);
  }
  return kProblem;
}

ExitCode Output::Usage(std::string_view message) const {
  const std::string command = command_.empty() ? "" : " " + command_;
  PrintLine(std::string(message) + " (see flagstone" + command + " --help)");
  if (json_) PrintError(Status(StatusCode::kInvalidArgument, std::string(message)));
  return kUsage;
}

void Output::Note(std::string_view message) const { PrintLine(message); }

void Output::FailFromOutside(const Status& status) const {
  PrintLine(status.message());
  if (!json_) return;
  const std::unique_lock lock(stdout_mutex_, std::try_to_lock);
  if (!lock) return;
  PrintError(status);
  std::fflush(stdout);
}

ExitCode Output::Finish(ExitCode code) const {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  // Of a write that failed earlier the reason is gone.
  PrintLine("the output could not be written" +
            (errno != 0 ? ": " + std::string(std::strerror(errno)) : std::string()));
  return kProblem;
}

}  // namespace flagstone::tools
