// SPDX-License-Identifier: Apache-2.0

/// \file
/// flagstone: the command line of Flagstone.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "commands.h"
#include "flagstone/version.h"
#include "interruption.h"
#include "output.h"

namespace flagstone::tools {
namespace {

constexpr char kFooter[] =
    "Sizes are integers, alone or with K M G T (10^3) or KiB MiB GiB TiB (2^10).\n"
    "CKPT is a checkpoint's directory, or the directory above, whose `latest` is then followed.\n"
    "Exit codes: 0 done, 1 problem found or failure, 2 usage, 130 interrupted (128 + signal).";

void DeclareCommands(CLI::App& app, Invocation& invocation) {
  app.set_version_flag("--version", "flagstone " + std::string(LibraryVersion()));
  app.require_subcommand(1);
  app.footer(kFooter);
  AddSynth(app, invocation);
  AddInspect(app, invocation);
  AddVerify(app, invocation);
  AddList(app, invocation);
  AddLoad(app, invocation);
  const auto add_json = [&](CLI::App& to) {
    to.add_flag("--json", invocation.json, "Print one JSON object on stdout");
  };
  add_json(app);
  for (CLI::App* const command : app.get_subcommands(/*filter=*/nullptr)) add_json(*command);
}

// The name of the command that was given, or "" before one was recognised.
std::string CommandName(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? "" : commands.front()->get_name();
}

// CLI11 says of an unknown command only that one is required.
std::string UsageMessage(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const std::string message = error.what();
  if (!app.get_subcommands().empty() || argc < 2 || argv[1][0] == '-') return message;
  return "there is no command '" + std::string(argv[1]) + "'";
}

ExitCode RunGuarded(const Invocation& invocation, const Output& output,
                    const Interruption& interruption) {
  // The library throws nothing of its own; what is left is the standard library's.
  try {
    return invocation.run(output, interruption);
  } catch (const std::bad_alloc&) {
    return output.Fail(Status(StatusCode::kResourceExhausted, "the memory does not suffice"));
  } catch (const std::exception& error) {
    return output.Fail(Status(StatusCode::kInternal, error.what()));
  }
}

int Run(const Invocation& invocation, const Output& output) {
  const Status interrupted(StatusCode::kCancelled, "interrupted");
  const Interruption interruption(invocation.stoppable ? std::function<void()>() : [&] {
    output.FailFromOutside(interrupted);
  });
  const ExitCode code = RunGuarded(invocation, output, interruption);
  const ExitCode finished = output.Finish(code);
  // A command that was done before the signal could stop it is done.
  return interruption.requested() && finished != kDone ? interruption.exit_code() : finished;
}

int Main(int argc, char** argv) {
  CLI::App app("Flagstone: checkpoints of training state that is partitioned over ranks.",
               "flagstone");
  Invocation invocation;
  DeclareCommands(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const bool json = std::any_of(argv, argv + argc, [](const char* argument) {
      return std::string_view(argument) == "--json";
    });
    const Output output(CommandName(app), json);
    return output.Finish(output.Usage(UsageMessage(app, error, argc, argv)));
  }
  return Run(invocation, Output(CommandName(app), invocation.json));
}

}  // namespace
}  // namespace flagstone::tools

int main(int argc, char** argv) {
  // A file that grows beyond ulimit -f is then an error with a name (EFBIG), and is cleaned up.
  signal(SIGXFSZ, SIG_IGN);
  return flagstone::tools::Main(argc, argv);
}
