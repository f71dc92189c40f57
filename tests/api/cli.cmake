# SPDX-License-Identifier: Apache-2.0
# The program as its users run it, and what it saves. XXH3 is needed to make files of other versions.
flagstone_add_test(api_cli_tests
  LABELS api
  SOURCES
    cli_bad_input_test.cc
    cli_test.cc
    program.cc
    synth_test.cc
    usable.cc
  LIBS flagstone::flagstone flagstone_synth_model flagstone_third_party_headers nlohmann_json::nlohmann_json
  DEFINITIONS "FLAGSTONE_CLI=\"$<TARGET_FILE:flagstone_cli>\""
  TIMEOUT 600)
add_dependencies(api_cli_tests flagstone_cli)
