#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes benchmarks/README.md from the JSON of run.py. A missed figure without a stated reason is an error."""

import argparse
import json
import pathlib
import sys

INTRODUCTION = """<!-- Made by `make bench` from results.json; reasons for missed figures come from reasons.json. -->
# Benchmarks

`make bench` measures, writes `results.json` and makes this page of it. Ratios are between neighbours in the order
A B B A; fio reads or writes the same number of bytes with the command below, on the very same file where it reads.
fio called like this is not always the device's ceiling: a ratio well above 1 says so, and no more than that Flagstone
is not the slower of the two.
"""


def number(value):
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--reasons", type=pathlib.Path, required=True)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not that of the results")
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text())
    reasons = json.loads(arguments.reasons.read_text())
    machine = results["machine"]
    lines = [INTRODUCTION]
    lines.append(f"Measured on {machine['cores']} cores of {machine['processor']}, Linux {machine['kernel']}, load "
                 f"average {machine['load_average']:.1f} at the start; {results['size'] / 2**20:.0f} MiB, medians of "
                 f"{results['repeat']}.")
    if results["ceiling"]:
        lines.append(f"Ceiling: `{results['ceiling']}`.")
    lines += ["", "| what | figure | median | spread | met | command | remark |", "|---|---|---|---|---|---|---|"]
    unexplained = []
    for row in results["rows"]:
        remark = row["note"]
        met = {None: "", True: "yes", False: "**no**"}[row["met"]]
        if row["met"] is False:
            reason = reasons.get(row["name"])
            if reason is None:
                unexplained.append(row["name"])
            else:
                remark = f"{remark}; {reason}" if remark else reason
        lines.append(f"| {row['name']} | {row['figure']} | {number(row['median'])} {row['unit']} | "
                     f"{number(row['least'])} to {number(row['most'])} | {met} | `{row['command']}` | {remark} |")
    if unexplained:
        print(f"missed without a reason in {arguments.reasons}: {', '.join(unexplained)}", file=sys.stderr)
        return 1
    page = "\n".join(lines) + "\n"
    if not arguments.check:
        arguments.output.write_text(page)
    elif arguments.output.read_text() != page:
        print(f"{arguments.output} is not the page of {arguments.results}: run render.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
