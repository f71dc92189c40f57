#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs Flagstone into an empty folder and builds a stranger's project against it, as its users do.
#
# usage: find_package.sh static|shared SOURCE BUILD [--configure CXX]
#   BUILD holds a finished build of that kind; with --configure it is made here, as a user would: not in developer mode.
set -euo pipefail

kind=$1
source=$2
build=$3
version=$(sed -n 's/^project(flagstone VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")

if [[ ${4-} == --configure ]]; then
  [[ $kind == shared ]] && shared=ON || shared=OFF
  # Torch is nothing that this test looks at. Without io_uring, because no other build in CI is the one that somebody
  # without liburing gets.
  cmake -S "$source" -B "$build" -G Ninja -DCMAKE_CXX_COMPILER="$5" -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=$shared -DFLAGSTONE_WITH_TORCH=OFF -DFLAGSTONE_WITH_URING=OFF
  cmake --build "$build"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Moved after the install: nothing of the package may hold on to the place that it was installed into.
cmake --install "$build" --prefix "$work/installed"
mv "$work/installed" "$work/moved"

echo "--- every public header is installed, and nothing else"
diff <(cd "$source/lib/include" && find . -name '*.h' | sort) <(cd "$work/moved/include" && find . -type f | sort)

echo "--- a stranger's project"
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
cmake -S "$source/tests/install/consumer" -B "$work/consumer" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_PREFIX_PATH="$work/moved"
cmake --build "$work/consumer"
said=$("$work/consumer/consumer")
if [[ $said != "$version" ]]; then
  echo "the consumer says '$said', not '$version'"
  exit 1
fi

echo "--- it is linked as it should be"
linked=static
if readelf -d "$work/consumer/consumer" | grep -q 'NEEDED.*libflagstone'; then linked=shared; fi
if [[ $linked != "$kind" ]]; then
  echo "the consumer uses a $linked library, not a $kind one"
  exit 1
fi

if [[ -x $work/moved/bin/flagstone ]]; then
  echo "--- the installed program finds its library"
  "$work/moved/bin/flagstone" --version
fi
