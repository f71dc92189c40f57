#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training that is killed while it saves goes on, bit for bit, as training that never stopped.

usage: train_zero_test.py TRAIN_ZERO FLAGSTONE

A rank is killed as it begins to write and in the middle of its file. Each time the checkpoint before is the newest and
sound, and resuming from it ends in the losses, weights and saved state of the run that never stopped.
"""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile

WORLD = 3
EVERY = 2
STEPS = 4


def run(*command, fails=False):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    if (done.returncode != 0) != fails:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def steps_of(output):
    """The lines that training printed, by step: loss and digest of the weights."""
    return {line["step"]: line for line in map(json.loads, output.splitlines())}


def require(condition, message):
    if not condition:
        sys.exit(message)


def state_of(flagstone, checkpoint):
    """What the rank files hold between header page and index, which name the save: segments and their digests."""
    described = json.loads(run(flagstone, "inspect", checkpoint, "--json"))
    state = []
    for file in described["ranks"]:
        content = (pathlib.Path(described["path"]) / file["file"]).read_bytes()
        (index_offset,) = struct.unpack_from("<Q", content, 104)  # spec/format.md, "Header page"
        state.append(content[4096:index_offset])
    return state


def main():
    train, flagstone = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        common = (train, "--world", WORLD, "--batch", 1, "--save-every", EVERY)
        straight_out = directory / "straight"
        straight = steps_of(run(*common, "--steps", STEPS, "--out", straight_out))
        require(sorted(straight) == list(range(1, STEPS + 1)), f"steps {sorted(straight)}")
        last_rank = json.loads(run(flagstone, "inspect", straight_out, "--json"))["ranks"][-1]
        for place in (1, last_rank["bytes"] // 2):
            out = directory / f"killed-{place}"
            first = steps_of(run(*common, "--steps", EVERY, "--out", out))
            run(*common, "--steps", STEPS, "--out", out, "--resume", "--kill-at-save", 1, "--kill-at-bytes", place,
                fails=True)
            listed = json.loads(run(flagstone, "list", out, "--json"))
            names = [checkpoint["name"] for checkpoint in listed["checkpoints"]]
            require(names == [f"step-{EVERY}"], f"killed at {place}: {names}")
            require(listed["debris"], f"killed at {place}: nothing is left of the killed save")
            run(flagstone, "verify", out)
            resumed = steps_of(run(*common, "--steps", STEPS, "--out", out, "--resume"))
            require(first | resumed == straight, f"killed at {place}: {first | resumed} and {straight}")
            listed = json.loads(run(flagstone, "list", out, "--json"))
            require(not listed["debris"], f"killed at {place}: {listed['debris']} is left")
            run(flagstone, "verify", out)
            require(state_of(flagstone, out) == state_of(flagstone, straight_out), f"killed at {place}: another state")
    print(f"{WORLD} ranks, {STEPS} steps: equal after each of two kills")


if __name__ == "__main__":
    main()
