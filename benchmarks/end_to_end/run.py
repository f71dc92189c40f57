#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures loading and saving end to end and writes the figures as JSON; render.py makes a page of it.

Ratios are taken between neighbours, in the order A B B A: a disk that others use drifts. fio reads the very same
file. Everything is one process a measurement, and the median of five (one, of a few MiB, with --quick).
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

GB = 1e9


class Bench:
    def __init__(self, program, directory, size, repeat):
        self.program = str(program)
        self.directory = directory
        self.size = size
        self.repeat = repeat
        self.rows = []
        self.fio = shutil.which("fio")
        self.engine = "io_uring"

    def run(self, *arguments):
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def run_fio(self, *arguments):
        command = [self.fio, "--name=ceiling", "--direct=1", f"--ioengine={self.engine}", "--bs=4M", "--iodepth=32",
                   "--output-format=json", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0 and self.engine == "io_uring":
            self.engine = "libaio"
            return self.run_fio(*arguments)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]

    def fio_read(self, file):
        """Bytes a second."""
        return self.run_fio(f"--filename={file}", "--readonly", "--rw=read")["read"]["bw_bytes"]

    def fio_write(self, size):
        """Bytes a second into a new file, the sync at its end included."""
        file = self.directory / "fio-write"
        file.unlink(missing_ok=True)
        job = self.run_fio(f"--filename={file}", "--rw=write", f"--size={size}", "--end_fsync=1", "--fallocate=posix")
        file.unlink()
        return job["write"]["io_bytes"] / (job["job_runtime"] / 1e3)

    def add(self, name, figure, target, at_most, unit, values, command, note=""):
        """A row: `target` is a bound above (at_most) or below; None: printed without one."""
        values = sorted(values)
        median = statistics.median(values)
        met = None if target is None else (median <= target if at_most else median >= target)
        self.rows.append({"name": name, "figure": figure, "target": target, "unit": unit, "median": median,
                          "least": values[0], "most": values[-1], "count": len(values), "met": met,
                          "command": command, "note": note})
        print(f"{name}: {median:.3g} {unit} [{values[0]:.3g}, {values[-1]:.3g}]", file=sys.stderr)

    def pairs(self, ours, ceiling):
        """Ratios of neighbours, ours / ceiling, in the order A B B A."""
        ratios = []
        for i in range(self.repeat):
            if i % 2 == 0:
                a = ours()
                b = ceiling()
            else:
                b = ceiling()
                a = ours()
            ratios.append(a / b)
        return ratios

    def rank_file(self, checkpoint):
        return next(checkpoint.glob("rank-*.flagstone"))

    def cold_load(self, kind, name, figure, target):
        checkpoint = self.directory / kind
        size = self.size if kind == "large" else self.size // 2
        self.run("save", kind, checkpoint, size)
        file = self.rank_file(checkpoint)
        loads = []

        def ours():
            loads.append(self.run("load", checkpoint, "auto", "cold"))
            return loads[-1]["bytes"] / loads[-1]["seconds"]

        command = f"end_to_end_benchmark load {kind} auto cold"
        if self.fio:
            ratios = self.pairs(ours, lambda: self.fio_read(file))
            self.add(name, figure, target, False, "x fio", ratios, command,
                     f"{loads[-1]['backend']}, {loads[-1]['read_calls']} reads")
        else:
            for _ in range(self.repeat):
                ours()
        speed = [load["bytes"] / load["seconds"] / GB for load in loads]
        self.add(f"{name}: speed", "", None, False, "GB/s", speed, command)
        cpu = [load["cpu_seconds"] / (load["bytes"] / GB) for load in loads]
        self.add(f"{name}: CPU", "<= 0.2" if kind == "large" else "", 0.2 if kind == "large" else None, True,
                 "s per GB", cpu, command)

    def warm_load(self):
        checkpoint = self.directory / "large"
        best = None
        for backend in ["uring-direct", "uring", "pread", "mmap"]:
            try:
                speeds = []
                for _ in range(self.repeat):
                    load = self.run("load", checkpoint, backend, "warm")
                    speeds.append(load["bytes"] / load["seconds"] / GB)
            except RuntimeError as error:
                print(f"{backend}: {error}", file=sys.stderr)
                continue
            self.add(f"page cache warm, {backend}", "", None, False, "GB/s", speeds,
                     f"end_to_end_benchmark load large {backend} warm")
            if best is None or statistics.median(speeds) > best[1]:
                best = (backend, statistics.median(speeds))
        autos = []

        def ours():
            autos.append(self.run("load", checkpoint, "auto", "warm"))
            return autos[-1]["bytes"] / autos[-1]["seconds"]

        def theirs():
            load = self.run("load", checkpoint, best[0], "warm")
            return load["bytes"] / load["seconds"]

        ratios = self.pairs(ours, theirs)
        self.add("page cache warm, auto", ">= 0.9 x the best fixed backend", 0.9, False, f"x {best[0]}", ratios,
                 "end_to_end_benchmark load large auto warm", f"auto chose {autos[-1]['backend']}")

    def save(self):
        reports = []

        def ours():
            checkpoint = self.directory / "save"
            reports.append(self.run("save", "large", checkpoint, self.size))
            shutil.rmtree(checkpoint)
            return reports[-1]["bytes"] / reports[-1]["seconds"]

        command = f"end_to_end_benchmark save large PATH {self.size}"
        if self.fio:
            ratios = self.pairs(ours, lambda: self.fio_write(self.size))
            self.add("save, digests and sync included", ">= 0.9 x fio write + sync", 0.9, False, "x fio", ratios,
                     command, reports[-1]["backend"])
        else:
            for _ in range(self.repeat):
                ours()
        self.add("save: CPU", "", None, True, "s per GB",
                 [report["cpu_seconds"] / (report["bytes"] / GB) for report in reports], command)
        self.add("save: staging", "<= 64 MiB", 64, True, "MiB",
                 [report["staging_bytes"] / 2**20 for report in reports], command)
        self.add("save: all that the library maps", "", None, True, "MiB",
                 [report["library_bytes"] / 2**20 for report in reports], command, "staging and rings")

    def scale(self):
        checkpoint = self.directory / "manifest"
        self.run("manifest", checkpoint)
        opens = [self.run("open", checkpoint) for _ in range(self.repeat)]
        command = "end_to_end_benchmark open PATH"
        self.add("open, 20 000 parameters x 1024 ranks", "<= 100 ms", 100, True, "ms",
                 [run["open_seconds"] * 1e3 for run in opens], command)
        self.add("own plan of one rank, from the manifest alone", "<= 50 ms", 50, True, "ms",
                 [run["plan_seconds"] * 1e3 for run in opens], command)


def machine():
    model = "unknown processor"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {"processor": model, "cores": os.cpu_count(), "kernel": platform.release(),
            "load_average": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--directory", type=pathlib.Path, help="on the disk to be measured; default: a temporary one")
    parser.add_argument("--size", type=int, default=2**30)
    parser.add_argument("--quick", action="store_true", help="that it runs, not how fast")
    arguments = parser.parse_args()
    size, repeat = (2**24, 1) if arguments.quick else (arguments.size, 5)
    with tempfile.TemporaryDirectory(dir=arguments.directory, prefix="flagstone-bench-") as directory:
        bench = Bench(arguments.program, pathlib.Path(directory), size, repeat)
        before = machine()
        try:
            bench.cold_load("large", "cold load into prepared memory, verification on", ">= 0.95 x fio", 0.95)
            bench.warm_load()
            bench.cold_load("small", "10 000 small tensors, cold", ">= 0.9 x fio", 0.9)
        except RuntimeError as error:
            # A disk in memory, or somebody else's file: nothing there can be made cold.
            if not arguments.quick:
                raise
            print(f"SKIP: page cache: {error}")
            return 77
        bench.save()
        bench.scale()
    arguments.output.write_text(json.dumps(
        {"machine": before, "size": size, "repeat": repeat,
         "ceiling": f"fio --direct=1 --ioengine={bench.engine} --bs=4M --iodepth=32" if bench.fio else None,
         "rows": bench.rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
