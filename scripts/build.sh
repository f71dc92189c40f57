#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/build.sh PRESET: sets up, configures and builds one preset of CMakePresets.json, into build/PRESET.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The tests run under an ordinary user as well, who has to read what is built here.
umask 022

preset=${1:?usage: scripts/build.sh PRESET}
scripts/setup.sh --quick

# CMake itself sees changes of its own files, but neither of the presets nor of what setup has installed since.
configured=build/$preset/.configured
if [[ ! -f $configured || CMakePresets.json -nt $configured || build/setup.stamp -nt $configured ]]; then
  cmake --preset "$preset"
  touch "$configured"
fi
cmake --build "build/$preset"
