# SPDX-License-Identifier: Apache-2.0
# The commit protocol among real processes, which are killed and stopped. They have time limits of their own, so that
# nothing else should keep the processor from them for long.
flagstone_add_test(api_commit_tests
  LABELS api
  SOURCES
    commit_death_test.cc
    commit_rivals_test.cc
    commit_support.cc
    commit_test.cc
  LIBS flagstone::flagstone flagstone_third_party_headers
  TIMEOUT 600)
