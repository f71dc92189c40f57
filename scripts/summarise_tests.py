#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up the runs that scripts/run_tests.sh made.

A run is a folder with ctest's report (ctest.xml), GoogleTest's reports (gtest/<program>.xml), or, for a run that could
not be made, a file `skipped` with the reason. Where a program wrote a report its cases are counted, else the ctest test
counts as one. A skip's reason begins with the part that it is about: `io_uring: refused by the kernel (EPERM)`.
"""

import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


class Totals:
    def __init__(self, required):
        self.required = set(required)
        self.passed = 0
        self.failures = []
        self.skips = []

    def skip(self, name, reason):
        part = reason.partition(":")[0].strip()
        if part in self.required:
            self.failures.append(f"{name}: skipped, but {part} is required here: {reason}")
        else:
            self.skips.append(f"{name}: {reason}")


def one_line(text):
    return " ".join(text.split())


def gtest_skip_reason(element):
    # GoogleTest puts "file:line" on a line before the message.
    lines = element.get("message", "").splitlines()
    if lines and re.search(r":\d+$", lines[0]):
        lines = lines[1:]
    return one_line(" ".join(lines)) or "no reason given"


def add_gtest_report(path, name, totals):
    """Counts the cases of one program; returns how many failed."""
    failed = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        title = f"{name} {case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            failed += 1
            totals.failures.append(title)
        elif case.find("skipped") is not None and case.get("result") == "skipped":
            totals.skip(title, gtest_skip_reason(case.find("skipped")))
        elif case.get("status") == "run":
            totals.passed += 1
        else:
            totals.skip(title, "disabled")
    return failed


def add_run(folder, totals):
    who = folder.name
    skipped = folder / "skipped"
    if skipped.exists():
        totals.skip(f"[{who}] all tests", one_line(skipped.read_text()))
        return
    report = folder / "ctest.xml"
    cases = list(ElementTree.parse(report).getroot().iter("testcase")) if report.exists() else []
    if not cases:
        totals.failures.append(f"[{who}] ctest ran no test")
        return
    reports = {}
    for path in sorted((folder / "gtest").glob("*.xml")):
        # A program that runs twice numbers its second report.
        reports.setdefault(re.sub(r"_\d+$", "", path.stem), []).append(path)
    for case in cases:
        name = f"[{who}] {case.get('name')}"
        status = case.get("status")
        own = reports.pop(case.get("name"), [])
        failed = sum(add_gtest_report(path, name, totals) for path in own)
        if case.find("skipped") is not None or status == "disabled":
            output = case.findtext("system-out") or ""
            reasons = re.findall(r"^SKIP: (.*)$", output, re.MULTILINE)
            totals.skip(name, one_line(reasons[-1]) if reasons else "no reason given")
        elif status != "run":
            if not failed:
                message = case.find("failure")
                what = message.get("message", status) if message is not None else status
                totals.failures.append(f"{name}: {what}")
        elif not own:
            totals.passed += 1
    # Tests registered under another name than their program's still count.
    for name, paths in reports.items():
        for path in paths:
            add_gtest_report(path, f"[{who}] {name}", totals)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--require", default="", help="parts whose skips are failures, separated by spaces")
    parser.add_argument("--total-only", action="store_true", help="print the last line alone")
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()

    totals = Totals(arguments.require.split())
    for run in arguments.runs:
        add_run(run, totals)
    if not arguments.total_only:
        for title, lines in (("skipped", totals.skips), ("failed", totals.failures)):
            for line in lines:
                print(f"{title}: {line}")
    print(f"{totals.passed} passed, {len(totals.failures)} failed, {len(totals.skips)} skipped")
    ok = not totals.failures and totals.passed
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
