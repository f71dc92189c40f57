# SPDX-License-Identifier: Apache-2.0
# Loading through the public API. A program beside the command line's: its memory figures want a small process.
flagstone_add_test(api_load_tests
  LABELS api
  SOURCES
    load_backends_test.cc
    load_damage_test.cc
    load_elastic_test.cc
    load_errors_test.cc
    load_large_test.cc
    load_memory_test.cc
    load_round_trip_test.cc
    load_support.cc
    load_view_test.cc
    usable.cc
  LIBS flagstone::flagstone
  TIMEOUT 600
  NO_MAIN)
