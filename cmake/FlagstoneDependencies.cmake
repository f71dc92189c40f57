# SPDX-License-Identifier: Apache-2.0
# Everything Flagstone takes from outside. Imported targets are visible only below the directory whose find_package
# made them, so all of it is here and included from the top.

# flagstone_part(<NAME> <help>)
# Declares the option FLAGSTONE_WITH_<NAME>: AUTO takes the part when it is there, ON insists, OFF leaves it out.
function(flagstone_part name help)
  set(FLAGSTONE_WITH_${name} AUTO CACHE STRING "${help} (AUTO, ON or OFF)")
  set_property(CACHE FLAGSTONE_WITH_${name} PROPERTY STRINGS AUTO ON OFF)
  set(value "${FLAGSTONE_WITH_${name}}")
  if(NOT value MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "FLAGSTONE_WITH_${name} is '${value}'; it takes AUTO, ON or OFF")
  endif()
endfunction()

# flagstone_part_result(<NAME> <missing>)
# Settles FLAGSTONE_HAVE_<NAME> in the caller and says why a part is left out. <missing> is empty when all is there.
# FLAGSTONE_ABSENT_<NAME> keeps the reason: the tests of an absent part are listed as skipped with it.
function(flagstone_part_result name missing)
  if(FLAGSTONE_WITH_${name} STREQUAL "OFF")
    set(missing "FLAGSTONE_WITH_${name}=OFF")
  elseif(missing AND FLAGSTONE_WITH_${name} STREQUAL "ON")
    message(FATAL_ERROR "FLAGSTONE_WITH_${name}=ON, but ${missing}")
  endif()
  if(missing)
    message(STATUS "Flagstone without ${name}: ${missing}")
    set(FLAGSTONE_HAVE_${name} 0 PARENT_SCOPE)
  else()
    message(STATUS "Flagstone with ${name}")
    set(FLAGSTONE_HAVE_${name} 1 PARENT_SCOPE)
  endif()
  set(FLAGSTONE_ABSENT_${name} "${missing}" PARENT_SCOPE)
endfunction()

# --- Core: always needed -----------------------------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# The name is spelled so in the packages; `Flatbuffers` is not found. Debian's config has no
# flatbuffers_generate_headers(), so flagstone_compile_schemas() below calls flatc itself.
find_package(FlatBuffers CONFIG REQUIRED)
pkg_check_modules(XXHASH REQUIRED libxxhash)
find_package(nlohmann_json 3 CONFIG REQUIRED)

# All three are used as headers alone (XXH_INLINE_ALL; FlatBuffers' builder and verifier are inline), so that none
# becomes a link dependency of flagstone and of those who link it.
add_library(flagstone_third_party_headers INTERFACE)
target_include_directories(flagstone_third_party_headers SYSTEM INTERFACE
  ${XXHASH_INCLUDE_DIRS}
  $<TARGET_PROPERTY:flatbuffers::flatbuffers,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:nlohmann_json::nlohmann_json,INTERFACE_INCLUDE_DIRECTORIES>)

# --- io_uring ----------------------------------------------------------------------------------------------------
flagstone_part(URING "Read and write through io_uring, by liburing")
set(missing "")
if(NOT FLAGSTONE_WITH_URING STREQUAL "OFF")
  pkg_check_modules(liburing IMPORTED_TARGET liburing)
  if(NOT liburing_FOUND)
    set(missing "liburing is not installed (Debian: liburing-dev)")
  endif()
endif()
flagstone_part_result(URING "${missing}")

# --- LibTorch, out of the torch wheel ----------------------------------------------------------------------------
# find_package(Torch) on a CUDA wheel fails without every CUDA library it was built with, although a program that
# uses the CPU part needs none of them. So its two libraries are imported by hand; libtorch.so itself is an empty stub
# that would only pull in the CUDA ones.
flagstone_part(TORCH "The torch adapter, by LibTorch from the torch wheel in .venv")
set(FLAGSTONE_TORCH_ROOT "" CACHE PATH "Folder of the torch package (default: the one in .venv)")
set(missing "")
if(NOT FLAGSTONE_WITH_TORCH STREQUAL "OFF")
  set(torch_root "${FLAGSTONE_TORCH_ROOT}")
  if(NOT torch_root)
    file(GLOB torch_root LIST_DIRECTORIES true "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  endif()
  if(NOT torch_root)
    set(missing "there is no torch package in .venv (make setup installs it)")
  else()
    list(GET torch_root 0 torch_root)
    foreach(file IN ITEMS lib/libtorch_cpu.so lib/libc10.so include/torch/csrc/api/include/torch/types.h)
      if(NOT EXISTS "${torch_root}/${file}")
        set(missing "${torch_root} has no ${file}")
      endif()
    endforeach()
  endif()
  if(NOT missing)
    foreach(library IN ITEMS c10 torch_cpu)
      add_library(flagstone_${library} SHARED IMPORTED)
      set_target_properties(flagstone_${library} PROPERTIES
        IMPORTED_LOCATION "${torch_root}/lib/lib${library}.so"
        INTERFACE_INCLUDE_DIRECTORIES "${torch_root}/include;${torch_root}/include/torch/csrc/api/include")
    endforeach()
    add_library(flagstone_libtorch INTERFACE)
    target_link_libraries(flagstone_libtorch INTERFACE flagstone_torch_cpu flagstone_c10 Threads::Threads)
  endif()
endif()
flagstone_part_result(TORCH "${missing}")

# --- Parts that this version has no code for ---------------------------------------------------------------------
flagstone_part(CUDA "The CUDA adapter")
flagstone_part_result(CUDA "this version of Flagstone has no CUDA adapter")
flagstone_part(PYTHON "The Python module")
flagstone_part_result(PYTHON "this version of Flagstone has no Python module")
unset(missing)

# --- Command line ------------------------------------------------------------------------------------------------
if(PROJECT_IS_TOP_LEVEL)
  find_package(CLI11 CONFIG REQUIRED)
endif()

# --- Tests and benchmarks ----------------------------------------------------------------------------------------
if(FLAGSTONE_DEVELOPER_MODE)
  find_package(GTest REQUIRED)
  if(NOT TARGET GTest::gmock)
    message(FATAL_ERROR "GoogleTest is installed without GoogleMock (Debian: libgmock-dev)")
  endif()
  find_package(rapidcheck CONFIG REQUIRED)
  find_package(benchmark CONFIG REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

# flagstone_compile_schemas(<schema.fbs>...)
# Makes <schema>_generated.h in the build tree. Generated headers assert the exact FlatBuffers version that made them,
# so they cannot be committed. lib/CMakeLists.txt gives their folder to lib/src/format alone.
function(flagstone_compile_schemas)
  set(folder "${PROJECT_BINARY_DIR}/generated")
  set(schemas "")
  set(headers "")
  foreach(schema IN LISTS ARGN)
    cmake_path(GET schema STEM name)
    list(APPEND schemas "${CMAKE_CURRENT_SOURCE_DIR}/${schema}")
    list(APPEND headers "${folder}/${name}_generated.h")
  endforeach()
  add_custom_command(
    OUTPUT ${headers}
    COMMAND flatbuffers::flatc --cpp --cpp-std c++17 --scoped-enums --require-explicit-ids --warnings-as-errors
            -o "${folder}" ${schemas}
    DEPENDS ${schemas}
    COMMENT "Compiling the FlatBuffers schemas"
    VERBATIM)
  add_custom_target(flagstone_schemas DEPENDS ${headers})
  set_property(TARGET flagstone_schemas PROPERTY FLAGSTONE_GENERATED_FOLDER "${folder}")
endfunction()
