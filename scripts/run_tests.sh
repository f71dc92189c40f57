#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/run_tests.sh PRESET [--long]: builds a preset, runs its tests and sums them up.
#
# Root runs the api and io tests a second time as an ordinary user: root may lock memory and open what it likes, so it
# never meets the fallbacks that users live on. --long adds the tests labelled `long`. The last lines list every skip
# with its reason, and end with 'N passed, N failed, N skipped'. FLAGSTONE_REQUIRE names parts whose absence is a
# failure, not a skip: torch io_uring o_direct python user.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

usage="usage: scripts/run_tests.sh PRESET [--long]"
preset=${1:?$usage}
select=(--label-exclude '^long$')
if [[ ${2-} == --long ]]; then
  select=()
  export FLAGSTONE_TEST_LONG=1
elif [[ -n ${2-} ]]; then
  echo "$usage" >&2
  exit 2
fi

scripts/build.sh "$preset"

build=$PWD/build/$preset
results=$build/results
ordinary_uid=65534
rm -rf "$results" "$build/tmp"
mkdir -p "$results"

# run_as WHO CTEST_PREFIX... -- CTEST_ARGUMENTS...
# One run of ctest from a folder of its own, so that someone who may not write into the build can keep its logs there.
# The tests' temporary files go under the build too: a /tmp in memory would not be a disk to O_DIRECT.
run_as() {
  local who=$1 directory=$results/$1 tmp=$build/tmp/$1
  local -a prefix=()
  shift
  while [[ $1 != -- ]]; do prefix+=("$1"); shift; done
  shift
  mkdir -p "$directory" "$tmp"
  echo "subdirs(\"$build\")" >"$directory/CTestTestfile.cmake"
  if [[ $who == user ]]; then chown "$ordinary_uid" "$directory" "$tmp"; fi
  echo "--- tests as $who"
  TMPDIR=$tmp GTEST_OUTPUT=xml:$directory/gtest/ "${prefix[@]}" --test-dir "$directory" \
    --parallel "$(nproc)" --output-on-failure --no-tests=error --test-output-size-passed 1000000 \
    --output-junit "$directory/ctest.xml" "$@" "${select[@]}" || true
  rm -rf "$tmp"
}

# The first ctest on PATH that an ordinary user may run: one in a home folder is out of his reach.
ctest_for_user() {
  local candidate
  hash -r  # else `type` shows the one that has run already, and no other
  for candidate in $(type -aP ctest); do
    if scripts/as_ordinary_user.sh "$PWD" "$candidate" --version >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
}

if [[ $(id -u) == 0 ]]; then
  run_as root ctest --
  user_ctest=$(ctest_for_user)
  if [[ -n $user_ctest ]]; then
    run_as user scripts/as_ordinary_user.sh "$PWD" "$user_ctest" -- --label-regex '^(api|io)$'
  else
    reason=$(scripts/as_ordinary_user.sh "$PWD" true 2>&1) || true
    mkdir "$results/user"
    echo "user: ${reason:-an ordinary user can run no ctest of those on PATH}" >"$results/user/skipped"
  fi
else
  run_as user ctest --
fi

python3 scripts/summarise_tests.py --require "${FLAGSTONE_REQUIRE-}" "$results"/*/
