// SPDX-License-Identifier: Apache-2.0
#include "save/run_identity.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <map>
#include <string>

namespace flagstone::save {
namespace {

constexpr auto kVariables = std::to_array<const char*>(
    {"FLAGSTONE_RUN", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID",
     "SLURM_STEP_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID", "LSB_JOBINDEX"});

class RunIdentityTest : public ::testing::Test {
 protected:
  RunIdentityTest() {
    for (const char* name : kVariables) {
      if (const char* value = getenv(name)) before_[name] = value;
      unsetenv(name);
    }
  }
  ~RunIdentityTest() override {
    for (const char* name : kVariables) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  static std::string With(const std::map<std::string, std::string>& variables) {
    for (const char* name : kVariables) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return RunFromEnvironment();
  }
  std::map<std::string, std::string> before_;
};

TEST_F(RunIdentityTest, NothingIsNothing) {
  EXPECT_EQ(With({}), "");
  EXPECT_EQ(With({{"TORCHELASTIC_RUN_ID", "none"}, {"TORCHELASTIC_RESTART_COUNT", "3"}}), "");
  EXPECT_EQ(With({{"SLURM_JOB_ID", ""}}), "");
  EXPECT_EQ(With({{"SLURM_STEP_ID", "1"}}), "");
}

TEST_F(RunIdentityTest, JobsPartsAndRestartsAreToldApart) {
  const std::string first =
      With({{"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "0"}});
  EXPECT_NE(first, "");
  EXPECT_NE(first, With({{"TORCHELASTIC_RUN_ID", "a"}, {"TORCHELASTIC_RESTART_COUNT", "1"}}));
  EXPECT_NE(first, With({{"TORCHELASTIC_RUN_ID", "b"}, {"TORCHELASTIC_RESTART_COUNT", "0"}}));
  EXPECT_NE(With({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}}),
            With({{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "1"}}));
  EXPECT_NE(With({{"SLURM_JOB_ID", "1"}}), With({{"PBS_JOBID", "1"}}));
  EXPECT_NE(With({{"LSB_JOBID", "1"}, {"LSB_JOBINDEX", "1"}}),
            With({{"LSB_JOBID", "1"}, {"LSB_JOBINDEX", "2"}}));
}

TEST_F(RunIdentityTest, TheInnermostLauncherCounts) {
  EXPECT_EQ(With({{"TORCHELASTIC_RUN_ID", "a"}, {"SLURM_JOB_ID", "1"}}),
            With({{"TORCHELASTIC_RUN_ID", "a"}}));
  EXPECT_EQ(With({{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "1"}}),
            With({{"SLURM_JOB_ID", "1"}}));
  EXPECT_EQ(With({{"FLAGSTONE_RUN", "x"}, {"SLURM_JOB_ID", "1"}}), With({{"FLAGSTONE_RUN", "x"}}));
}

}  // namespace
}  // namespace flagstone::save
