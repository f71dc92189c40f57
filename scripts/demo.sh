#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/demo.sh: shows what Flagstone promises, on what `make build` built, in a few minutes. Each step is checked,
# and the first promise that does not hold ends the script with exit code 1.
#
#   1. Training on four ranks is killed in the middle of a save, goes on from the last whole checkpoint, and has the
#      same losses, bit for bit, as training that never stopped.
#   2. Each rank of a GPT-2 checkpoint reads its own bytes, no others, and takes no memory beyond them but a few MiB.
#   3. One flipped bit is found, and named by file, segment and chunk.
#
# FLAGSTONE_DEMO_DIR: where the checkpoints go (needs 2.5 GB; default: build/). They are removed at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=build/release/bin
[[ -x $bin/flagstone ]] || { echo "demo: there is no $bin/flagstone; make build makes it" >&2; exit 1; }
work=$(mktemp -d "${FLAGSTONE_DEMO_DIR:-build}/demo.XXXXXX")
trap 'rm -rf "$work"' EXIT

bold() { if [[ -t 1 ]]; then printf '\n\033[1m%s\033[0m\n' "$*"; else printf '\n%s\n' "$*"; fi; }
fail() { echo "demo: FAILED: $*" >&2; exit 1; }
check() { python3 scripts/demo_checks.py "$@" || fail "the step above"; }
# Shows a command with its folders left out, and runs it. It is shown where the demo's own output goes, also when the
# command's is kept in a file.
exec 3>&1
shown() {
  local words=${*//$work\//}
  words=${words//$bin\//}
  echo "\$ $words" >&3
  "$@"
}

# --- 1. Killed in a save ----------------------------------------------------------------------------------------------
killed_training() {
  local world=4 every=4 steps=12 half status
  bold "1. Train on $world ranks, kill one in the middle of a save, resume"
  echo "Training that never stops, for comparison:"
  shown "$bin/train_zero" --world $world --steps $steps >"$work/straight"

  echo "The same, saving every $every steps:"
  shown "$bin/train_zero" --world $world --steps $every --save-every $every --out "$work/run" >"$work/first"
  "$bin/flagstone" inspect "$work/run" --json >"$work/inspect"
  half=$(check half-of-last-rank-file "$work/inspect")

  echo "... killed (SIGKILL) after $half bytes, half of a rank's file, in its next save:"
  status=0
  shown "$bin/train_zero" --world $world --steps $steps --save-every $every --out "$work/run" --resume \
    --kill-at-save 1 --kill-at-bytes "$half" >"$work/killed" || status=$?
  (( status != 0 )) || fail "training that was to be killed ended well"
  shown "$bin/flagstone" list "$work/run"
  "$bin/flagstone" list "$work/run" --json >"$work/list"
  check list "$work/list" --latest "step-$every" --names "step-$every" --debris

  echo "... and resumed:"
  shown "$bin/train_zero" --world $world --steps $steps --save-every $every --out "$work/run" --resume >"$work/resumed"
  shown "$bin/flagstone" list "$work/run"
  "$bin/flagstone" list "$work/run" --json >"$work/list"
  check list "$work/list" --latest "step-$steps" --names "step-$every,step-$((2 * every)),step-$steps" --clean
  check losses "$work/straight" "$work/first" "$work/resumed"
}

# --- 2. Bytes and memory ----------------------------------------------------------------------------------------------
# load NAME RANK OPTION...: one measured load. Cold where this disk's page cache can be dropped.
load() {
  local name=$1 rank=$2
  shift 2
  if ! "$bin/flagstone" load "$work/gpt2" --rank "$rank" --json "${cold[@]}" "$@" \
    >"$work/load.$name.$rank" 2>"$work/message"; then
    cat "$work/message" >&2
    fail "rank $rank could not be loaded ($name)"
  fi
}

loads() {
  local world=4 rank
  bold "2. Load each rank's own slices of a GPT-2 checkpoint (124 M parameters, ZeRO-2, $world ranks)"
  shown "$bin/flagstone" synth "$work/gpt2" --model gpt2-124m --stage 2 --world $world --seed 1
  cold=(--cold)
  if ! "$bin/flagstone" load "$work/gpt2" "${cold[@]}" >/dev/null 2>"$work/message"; then
    echo "Not cold here, so the speeds are those of the page cache: $(cat "$work/message")"
    cold=()
  fi
  echo "\$ flagstone load gpt2 --rank R ${cold[*]} [--into view | --into prepared --backend uring-direct or pread]"
  for (( rank = 0; rank < world; ++rank )); do
    load view "$rank" --into view
    load uring-direct "$rank" --into prepared --backend uring-direct
    load pread "$rank" --into prepared --backend pread
  done
  check loads "$work" --world $world ${cold[0]+--cold}
}

# --- 3. A flipped bit -------------------------------------------------------------------------------------------------
flipped_bit() {
  local file size offset status
  bold "3. Flip one bit"
  shown "$bin/flagstone" synth "$work/small" --params 1M --stage 2 --world 2 --seed 2
  shown "$bin/flagstone" verify "$work/small"
  cp -r "$work/small" "$work/damaged"
  file=$(cd "$work/damaged" && echo rank-00001.*.flagstone)
  size=$(stat -c %s "$work/damaged/$file")
  offset=$(( size / 2 ))
  echo "Bit 3 of byte $offset of $file in a copy:"
  check flip "$work/damaged/$file" "$offset" 3

  status=0
  shown "$bin/flagstone" verify "$work/damaged" || status=$?
  (( status == 1 )) || fail "verify ended with $status, not 1"
  status=0
  shown "$bin/flagstone" load "$work/damaged" --rank 1 || status=$?
  (( status == 1 )) || fail "load ended with $status, not 1"
  "$bin/flagstone" verify "$work/damaged" --json >"$work/verify" 2>/dev/null || true
  "$bin/flagstone" load "$work/damaged" --rank 1 --json >"$work/load" 2>/dev/null || true
  check damage "$work/verify" "$work/load" "$file" "$offset"
  echo "The other rank is whole:"
  shown "$bin/flagstone" load "$work/damaged" --rank 0 >/dev/null
}

promises="Every promise held."
if [[ -x $bin/train_zero ]]; then
  killed_training
else
  bold "1. SKIPPED: this build has no train_zero, because LibTorch is absent"
  promises="Every promise that was shown held; that of a killed training was not shown (1)."
fi
loads
flipped_bit
bold "$promises"
