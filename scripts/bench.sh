#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/bench.sh [--compare]: runs the benchmark programs of the release build and leaves their figures as JSON in
# build/bench/, one file a program. --compare runs the comparison with other loaders, benchmarks/compare/run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1-} == --compare ]]; then
  if [[ ! -x benchmarks/compare/run ]]; then
    echo "bench: this version of Flagstone has no comparison with other loaders" >&2
    exit 1
  fi
  exec benchmarks/compare/run
fi

shopt -s nullglob
programs=(build/release/benchmark-bin/*)
if (( ${#programs[@]} == 0 )); then
  echo "bench: this version of Flagstone has no benchmarks" >&2
  exit 1
fi
mkdir -p build/bench
for program in "${programs[@]}"; do
  "$program" --benchmark_out="build/bench/${program##*/}.json" --benchmark_out_format=json
done
