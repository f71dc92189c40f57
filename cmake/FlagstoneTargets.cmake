# SPDX-License-Identifier: Apache-2.0
# How everything here is compiled, and the helpers that declare tests, fuzz programs, benchmarks and examples.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# What is exported says so (flagstone/export.h); a symbol forgotten is then found by the shared build's tests.
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
# The libraries lie side by side, and the program finds them from ../lib, wherever the install was put.
set(CMAKE_INSTALL_RPATH "$ORIGIN")

if(PROJECT_IS_TOP_LEVEL)
  include(GNUInstallDirs)
  list(APPEND CMAKE_INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Kind of build" FORCE)
  endif()
  find_program(FLAGSTONE_CCACHE ccache)
  if(FLAGSTONE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${FLAGSTONE_CCACHE}")
  endif()
endif()

if(FLAGSTONE_SANITIZE)
  list(JOIN FLAGSTONE_SANITIZE "," sanitizers)
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizers})
endif()

set(FLAGSTONE_WARNINGS
  -Wall -Wextra -Wconversion -Wshadow -Wcast-qual -Wimplicit-fallthrough -Wnon-virtual-dtor -Woverloaded-virtual
  -Wundef -Wvla)
# g++ 12 sees overlapping copies in `"literal" + std::string` at -O3 that are none (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND FLAGSTONE_WARNINGS -Wno-restrict)
endif()
# A newer compiler's new warning must not break the build of somebody who only wants the library.
if(FLAGSTONE_DEVELOPER_MODE)
  list(APPEND FLAGSTONE_WARNINGS -Werror)
endif()

# flagstone_target(<target>)
# What every target of this project has: the standard and the warnings.
function(flagstone_target target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_compile_options(${target} PRIVATE ${FLAGSTONE_WARNINGS})
endfunction()

# flagstone_add_program(<name> [OUTPUT <file name>] SOURCES <file>... [LIBS <target>...])
# A program for users, in bin/. It links installed libraries only, so it sees public headers alone.
function(flagstone_add_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  flagstone_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  if(arg_OUTPUT)
    set_target_properties(${name} PROPERTIES OUTPUT_NAME "${arg_OUTPUT}")
  endif()
endfunction()

# flagstone_add_example(<name> SOURCES <file>... [LIBS <target>...])
# An example program; LIBS are what it needs beside flagstone::flagstone.
function(flagstone_add_example name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  flagstone_add_program(${name} SOURCES ${arg_SOURCES} LIBS flagstone::flagstone ${arg_LIBS})
endfunction()

# flagstone_add_test(<name> LABELS <label>... SOURCES <file>... LIBS <target>... [DEFINITIONS <NAME=value>...]
#                    [TIMEOUT <seconds>] [NO_MAIN] [RUN_SERIAL])
# One GoogleTest program, which is one ctest test: on two cores a program a case would cost more than the cases.
# scripts/run_tests.sh counts the cases from the report that each program writes. Private code is tested by linking
# flagstone_internal; tests of the public API link flagstone::flagstone and then cannot include anything else.
# NO_MAIN: the sources have their own main().
function(flagstone_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_MAIN;RUN_SERIAL" "TIMEOUT" "LABELS;SOURCES;LIBS;DEFINITIONS")
  if(NOT arg_LABELS OR NOT arg_SOURCES)
    message(FATAL_ERROR "flagstone_add_test(${name}): LABELS and SOURCES are needed")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  flagstone_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock)
  if(NOT arg_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gmock_main)
  endif()
  target_compile_definitions(${name} PRIVATE ${arg_DEFINITIONS})
  # What is tested is optimised; the tests themselves would only take longer to compile, on two cores by minutes.
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE -O1)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/test-bin")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_RUN_SERIAL})
endfunction()

# flagstone_add_script_test(<name> LABELS <label>... COMMAND <word>... [TIMEOUT <seconds>] [ENVIRONMENT <N=v>...])
# A test that is a command. It exits 77 to skip, with the reason on a line `SKIP: <part>: <reason>`.
function(flagstone_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "LABELS;COMMAND;ENVIRONMENT")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT ${arg_TIMEOUT} ENVIRONMENT "${arg_ENVIRONMENT}")
endfunction()

# flagstone_add_absent_test(<name> PART <part> REASON <text> LABELS <label>...)
# Stands for tests that cannot be built here, so that they are listed as skipped with the reason, not forgotten.
function(flagstone_add_absent_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PART;REASON" "LABELS")
  flagstone_add_script_test(${name} LABELS ${arg_LABELS}
    COMMAND sh -c "echo \"SKIP: $1: $2\"; exit 77" sh "${arg_PART}" "${arg_REASON}")
endfunction()

# flagstone_add_fuzzer(<name> SOURCES <file>... LIBS <target>... SEEDS <file or folder>...)
# A program around LLVMFuzzerTestOneInput. In every build it is linked with a main() that replays the seeds, as an
# ordinary test, so that it cannot rot; with FLAGSTONE_FUZZING it is a libFuzzer program instead.
function(flagstone_add_fuzzer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS;SEEDS")
  add_executable(${name} ${arg_SOURCES})
  flagstone_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/test-bin")
  if(FLAGSTONE_FUZZING)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${name} COMMAND ${name} -runs=0 ${arg_SEEDS})
  else()
    target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc")
    add_test(NAME ${name} COMMAND ${name} ${arg_SEEDS})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 300)
endfunction()

# flagstone_add_benchmark(<name> SOURCES <file>... LIBS <target>...)
# A Google Benchmark program. One iteration of each benchmark is a test: numbers are read elsewhere, that it runs is
# checked here.
function(flagstone_add_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
  add_executable(${name} ${arg_SOURCES})
  flagstone_target(${name})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} benchmark::benchmark benchmark::benchmark_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/benchmark-bin")
  add_test(NAME ${name} COMMAND ${name} --benchmark_min_time=0.000001)
  set_tests_properties(${name} PROPERTIES LABELS benchmark TIMEOUT 300)
endfunction()
