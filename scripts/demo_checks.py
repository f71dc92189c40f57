#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks and tables of scripts/demo.sh. Exits 1 with a line on stderr when something is not as promised."""

import argparse
import json
import pathlib
import sys

MIB = 1 << 20
WAYS = ("view", "uring-direct", "pread")


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())


def require(condition, message):
    if not condition:
        sys.exit(f"demo: {message}")


def half_of_last_rank_file(arguments):
    ranks = read_json(arguments.inspect)["ranks"]
    print(ranks[-1]["bytes"] // 2)


def check_list(arguments):
    listing = read_json(arguments.list)
    names = sorted(one["name"] for one in listing["checkpoints"])
    wanted = sorted(arguments.names.split(","))
    require(names == wanted, f"the checkpoints are {names}, not {wanted}")
    for one in listing["checkpoints"]:
        require(one["problem"] is None, f"{one['name']}: {one['problem']}")
    latest = [one["name"] for one in listing["checkpoints"] if one["latest"]]
    require(latest == [arguments.latest], f"latest is {latest}, not {arguments.latest}")
    if arguments.clean:
        require(not listing["debris"], f"the killed save left {listing['debris']}")
    if arguments.debris:
        require(listing["debris"], "nothing is left of a save that was killed half-way: was it?")


def read_steps(path):
    """The lines that training printed: loss and digest of the weights, by step."""
    lines = map(json.loads, pathlib.Path(path).read_text().splitlines())
    return {line["step"]: line for line in lines}


def check_losses(arguments):
    straight = read_steps(arguments.straight)
    parts = [read_steps(path) for path in (arguments.first, arguments.resumed)]
    require(not parts[0].keys() & parts[1].keys(), "a step was trained twice")
    pieced = parts[0] | parts[1]
    require(straight.keys() == pieced.keys(), f"steps {sorted(straight)} and {sorted(pieced)}")
    print("step  loss, never stopped    loss, killed and resumed")
    for step in sorted(straight):
        mark = "" if straight[step] == pieced[step] else "  DIFFERS"
        print(f"{step:4}  {straight[step]['loss']:21}  {pieced[step]['loss']}{mark}")
    require(straight == pieced, "the runs differ")
    print("All losses are equal, bit for bit, and so are the weights.")


def check_load(load, way, rank, cold):
    """What design and README promise of a rank's load at the saved world size."""
    where = f"rank {rank}, {way}"
    wanted = load["wanted_bytes"]
    # A view is verified, not read into memory; the figure is of the bytes that it touched.
    bound = 1.01 * wanted + load["metadata_bytes"]
    require(wanted > 0, f"{where}: nothing was wanted")
    require(load["read_bytes"] <= bound, f"{where}: read {load['read_bytes']} of {wanted} wanted bytes")
    require(load["verified_bytes"] >= wanted, f"{where}: {load['verified_bytes']} of {wanted} bytes were verified")
    above = peak_above(load, way)
    allowed = MIB + load["metadata_bytes"] if way == "view" else 32 * MIB
    require(above <= allowed, f"{where}: the peak is {above} bytes above what was wanted; {allowed} are allowed")
    if cold:
        require(load["resident_pages_before"] == 0, f"{where}: not cold")


def peak_above(load, way):
    destination = 0 if way == "view" else load["wanted_bytes"]
    return max(0, load["peak_host_bytes"] - destination)


def check_loads(arguments):
    rows = []
    fallbacks = {}
    for rank in range(arguments.world):
        for way in WAYS:
            load = read_json(pathlib.Path(arguments.folder) / f"load.{way}.{rank}")
            check_load(load, way, rank, arguments.cold)
            wanted = load["wanted_bytes"]
            rows.append((rank, way, f"{wanted:,}", f"{load['read_bytes']:,}", f"{wanted / load['seconds'] / 1e6:,.0f}",
                         f"{load['cpu_seconds'] / wanted * 1e9:.2f}", f"{peak_above(load, way) / MIB:.2f}"))
            if way != "view" and load["backend"] != way:
                fallbacks[way] = f"{way} was not possible here: {load['backend']}, {load['backend_reason']}"
    titles = ("rank", "way", "bytes wanted", "bytes read", "MB/s", "CPU s/GB", "peak above wanted, MiB")
    widths = [max(len(str(row[i])) for row in [titles, *rows]) for i in range(len(titles))]
    for row in [titles, *rows]:
        print("  ".join(str(cell).ljust(width) if i == 1 else str(cell).rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))))
    for line in fallbacks.values():
        print(line)
    print("Each rank read its own bytes only, all of them were verified, and the peaks are within bounds.")


def flip(arguments):
    with open(arguments.file, "r+b") as file:
        file.seek(arguments.offset)
        byte = file.read(1)[0]
        file.seek(arguments.offset)
        file.write(bytes([byte ^ 1 << arguments.bit]))


def check_damage(arguments):
    problems = read_json(arguments.verify)["problems"]
    require(len(problems) == 1, f"verify found {len(problems)} problems, not 1")
    problem = problems[0]
    require(problem["code"] == "kCorruption", f"verify says {problem['code']}")
    require(problem["file"] == arguments.file, f"verify names {problem['file']}, not {arguments.file}")
    require(problem["segment"] and problem["chunk"] is not None, "verify names no segment and chunk")
    require(problem["offset"] <= arguments.offset < problem["offset"] + problem["length"],
            f"verify names offset {problem['offset']}, not {arguments.offset}")
    error = read_json(arguments.load)["error"]
    require(error["code"] == "kCorruption", f"load says {error['code']}")
    require(error["path"].endswith(arguments.file), f"load names {error['path']}")
    require(error["segment"] == problem["segment"], f"load names {error['segment']}, verify {problem['segment']}")
    require(f"chunk {problem['chunk']}" in error["message"], f"load does not name the chunk: {error['message']}")
    print(f"Both name {problem['file']}, segment {problem['segment']}, chunk {problem['chunk']}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("half-of-last-rank-file")
    command.add_argument("inspect")
    command.set_defaults(run=half_of_last_rank_file)

    command = commands.add_parser("list")
    command.add_argument("list")
    command.add_argument("--names", required=True)
    command.add_argument("--latest", required=True)
    command.add_argument("--clean", action="store_true")
    command.add_argument("--debris", action="store_true")
    command.set_defaults(run=check_list)

    command = commands.add_parser("losses")
    command.add_argument("straight")
    command.add_argument("first")
    command.add_argument("resumed")
    command.set_defaults(run=check_losses)

    command = commands.add_parser("loads")
    command.add_argument("folder")
    command.add_argument("--world", type=int, required=True)
    command.add_argument("--cold", action="store_true")
    command.set_defaults(run=check_loads)

    command = commands.add_parser("flip")
    command.add_argument("file")
    command.add_argument("offset", type=int)
    command.add_argument("bit", type=int)
    command.set_defaults(run=flip)

    command = commands.add_parser("damage")
    command.add_argument("verify")
    command.add_argument("load")
    command.add_argument("file")
    command.add_argument("offset", type=int)
    command.set_defaults(run=check_damage)

    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
