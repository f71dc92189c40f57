#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/bench.sh [--compare]: measures loading and saving end to end with the release build and makes
# benchmarks/README.md of it (some minutes; fio, where it is installed, gives the ceiling). Then runs the micro
# benchmarks and leaves their figures as JSON in build/bench/, one file a program. --compare runs the comparison with
# other loaders, benchmarks/compare/run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1-} == --compare ]]; then
  if [[ ! -x benchmarks/compare/run ]]; then
    echo "bench: this version of Flagstone has no comparison with other loaders" >&2
    exit 1
  fi
  exec benchmarks/compare/run
fi

# The files go under the build: a /tmp in memory would not be a disk.
if [[ -d benchmarks/end_to_end ]]; then
  mkdir -p build/release/tmp
  python3 benchmarks/end_to_end/run.py --program build/release/end-to-end-bin/end_to_end_benchmark \
    --directory build/release/tmp --output benchmarks/results.json
  python3 benchmarks/render.py benchmarks/results.json benchmarks/README.md --reasons benchmarks/reasons.json
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
