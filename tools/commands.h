// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// The commands of the program: each declares its arguments and leaves in `Invocation` what is to
/// be run once they are parsed. To add one: a file with its Add function, a line here, a line in
/// main.cc.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "interruption.h"
#include "output.h"

namespace flagstone::tools {

struct Invocation {
  bool json = false;
  /// Whether the command asks the stop token. Others are ended by the first signal.
  bool stoppable = false;
  std::function<ExitCode(const Output&, const Interruption&)> run;
};

void AddSynth(CLI::App& app, Invocation& invocation);
void AddInspect(CLI::App& app, Invocation& invocation);
void AddVerify(CLI::App& app, Invocation& invocation);
void AddList(CLI::App& app, Invocation& invocation);
void AddLoad(CLI::App& app, Invocation& invocation);

}  // namespace flagstone::tools
