// SPDX-License-Identifier: Apache-2.0
#include "save/run_identity.h"

#include <array>
#include <cstdlib>
#include <string_view>

#include "base/text.h"

namespace flagstone::save {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct Launcher {
  const char* name;
  const char* job;
  const char* part;     // which of the job's steps; may be unset
  const char* restart;  // counts restarts; may be unset
};

// First match wins: a torchrun inside a Slurm job restarts its workers without Slurm knowing.
constexpr auto kLaunchers = std::to_array<Launcher>({
    {"flagstone", "FLAGSTONE_RUN", "", ""},
    {"torchelastic", "TORCHELASTIC_RUN_ID", "", "TORCHELASTIC_RESTART_COUNT"},
    {"slurm", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
    {"pbs", "PBS_JOBID", "", ""},
    {"lsf", "LSB_JOBID", "LSB_JOBINDEX", ""},
});

}  // namespace

std::string RunFromEnvironment() {
  for (const Launcher& launcher : kLaunchers) {
    const std::string job = Variable(launcher.job);
    // torchrun without a rendezvous id says "none", the same for every job on the machine.
    if (job.empty() || (std::string_view(launcher.name) == "torchelastic" && job == "none"))
      continue;
    return base::Join(launcher.name, "-", job, "-", *launcher.part ? Variable(launcher.part) : "",
                      "-", *launcher.restart ? Variable(launcher.restart) : "");
  }
  return "";
}

}  // namespace flagstone::save
