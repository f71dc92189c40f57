#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes follow the layers: each folder includes only what RULES lets it.

usage: layering.py ROOT       checks the repository at ROOT
       layering.py --self-test  plants violations, one of each kind, and must find every one
"""

import pathlib
import re
import sys
import tempfile

LAYERS = ("base", "partition", "format", "io", "store", "save", "load", "foreign", "convert")
BELOW_SAVE = ("base", "partition", "format", "io", "store")

# Folder -> layers of lib/src that it may include (its own always), and kinds of outside headers.
# Kinds: std, system (POSIX and Linux), xxhash, flatbuffers (with the generated headers), and two that only .cc files may
# see: liburing (by file name, in io) and json (nlohmann's). assert is nobody's: a library must not end the process, and a
# release build's symbols would not show it.
RULES = {
    "lib/include/flagstone": ((), {"std"}),
    "lib/src/base": (("base",), {"std", "system", "xxhash"}),
    "lib/src/partition": (("base",), {"std"}),
    "lib/src/format": (("base", "partition"), {"std", "flatbuffers"}),
    "lib/src/io": (("base",), {"std", "system"}),
    "lib/src/store": (("base", "partition", "format", "io"), {"std", "system", "json"}),
    "lib/src/save": (BELOW_SAVE, {"std"}),
    "lib/src/load": (BELOW_SAVE, {"std"}),
    "lib/src/foreign": (("base", "io"), {"std", "json"}),
    "lib/src/convert": (LAYERS, {"std"}),
}

# These see Flagstone as its users do: installed headers, their own files, and whatever else they like. Benchmarks too,
# but for benchmarks/micro, which measures single layers as tests/unit tests them.
OUTSIDE = ("lib/torch", "lib/cuda", "tools", "python", "examples", "benchmarks/end_to_end", "benchmarks/compare",
           "tests/api")

STANDARD = set(
    """algorithm any array atomic barrier bit bitset charconv chrono cmath codecvt compare complex concepts
    condition_variable coroutine cctype cerrno cfenv cfloat cinttypes climits clocale csetjmp csignal cstdarg
    cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format
    forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits
    list locale map memory memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex
    scoped_allocator semaphore set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string
    string_view syncstream system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility
    valarray variant vector version""".split()
)

INCLUDE = re.compile(r"^\s*#\s*include\b\s*(.*?)\s*$")
SPELLED = re.compile(r'^(?:<([^>]+)>|"([^"]+)")')
SOURCES = {".h", ".hpp", ".cc", ".cpp", ".cu", ".inc"}


def outside_kind(path):
    if path in STANDARD:
        return "std"
    first = path.split("/")[0]
    if path in ("cassert", "assert.h"):
        return "assert"
    if first == "flatbuffers" or path.endswith("_generated.h"):
        return "flatbuffers"
    if first in ("liburing", "liburing.h"):
        return "liburing"
    if first == "xxhash.h":
        return "xxhash"
    if first == "nlohmann":
        return "json"
    if first in ("torch", "ATen", "c10", "caffe2", "pybind11", "nanobind", "CLI", "gtest", "gmock"):
        return first
    if first.startswith(("cuda", "cufile")):
        return "cuda"
    return "system"


def allowed_outside(folder, file):
    kinds = set(RULES[folder][1])
    if file.suffix != ".cc":
        kinds.discard("json")
    if folder == "lib/src/io" and file.name.startswith("uring") and file.suffix == ".cc":
        kinds.add("liburing")
    return kinds


def named_layer(path):
    first, slash, _ = path.partition("/")
    return first if slash and first in LAYERS else None


def lies_in_core(root, file, path):
    """Whether a quoted include reaches lib/src from beside the file, as the compiler looks first."""
    return (root / "lib/src").resolve() in (file.parent / path).resolve().parents


def check_include(root, folder, file, text):
    """What is wrong with an include, or None."""
    spelled = SPELLED.match(text)
    if not spelled:
        return "is computed, so that nobody sees what it includes"
    quoted = spelled.group(2) is not None
    path = spelled.group(2) or spelled.group(1)
    layer = named_layer(path)
    if folder in OUTSIDE:
        if layer or "lib/src" in path or (quoted and lies_in_core(root, file, path)):
            return "is private: only installed headers may be included here"
        return None
    if ".." in path.split("/"):
        return "climbs out of its folder"
    if path.startswith("flagstone/"):
        if not (root / "lib/include" / path).is_file():
            return "is no public header"
        return None
    own = folder.removeprefix("lib/src/")
    if layer:
        if layer != own and layer not in RULES[folder][0]:
            return f"is of layer {layer}, which {folder} may not include"
        return None
    if quoted and not path.endswith("_generated.h"):
        return 'names no layer: write "layer/file.h" or "flagstone/file.h"'
    kind = outside_kind(path)
    if kind not in allowed_outside(folder, file):
        return f"is {kind}, which {folder} may not include"
    return None


def check(root):
    """All violations below root, as lines; and how many includes were looked at."""
    violations = []
    seen = 0
    for folder in (*RULES, *OUTSIDE):
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SOURCES or not file.is_file():
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                include = INCLUDE.match(line)
                if not include:
                    continue
                seen += 1
                wrong = check_include(root, folder, file, include.group(1))
                if wrong:
                    violations.append(f"{file.relative_to(root)}:{number}: {include.group(1)} {wrong}")
    source = root / "lib/src"
    unknown = sorted(p.name for p in source.iterdir() if p.is_dir() and p.name not in LAYERS) if source.is_dir() else []
    violations += [f"lib/src/{name}: is no layer that the rules know" for name in unknown]
    return violations, seen


# Pairs of an include that is right where it stands and one that is not.
PLANTS = [
    ("lib/include/flagstone/a.h", '#include "flagstone/b.h"', '#include "base/range.h"'),
    ("lib/include/flagstone/a.h", "#include <span>", "#include <sys/mman.h>"),
    ("lib/src/base/a.cc", "#include <unistd.h>", '#include "partition/cut.h"'),
    ("lib/src/base/b.cc", "#include <cstdlib>", "#include <cassert>"),
    ("lib/src/partition/a.cc", '#include "base/range.h"', '#include "format/header.h"'),
    ("lib/src/partition/a.cc", "#include <vector>", "#include <fcntl.h>"),
    ("lib/src/format/a.cc", '#include "partition/cut.h"', '#include "io/file_system.h"'),
    ("lib/src/format/a.cc", "#include <flatbuffers/flatbuffers.h>", "#include <unistd.h>"),
    ("lib/src/format/a.cc", '#include "manifest_generated.h"', "#include <liburing.h>"),
    ("lib/src/io/uring_queue.cc", "#include <liburing.h>", "#include <flatbuffers/flatbuffers.h>"),
    ("lib/src/io/pread.cc", "#include <fcntl.h>", "#include <liburing.h>"),
    ("lib/src/io/uring_queue.h", "#include <span>", "#include <liburing.h>"),
    ("lib/src/io/a.cc", '#include "base/range.h"', '#include "format/header.h"'),
    ("lib/src/store/a.cc", '#include "format/header.h"', '#include "save/writer.h"'),
    ("lib/src/store/a.cc", "#include <nlohmann/json.hpp>", "#include <xxhash.h>"),
    ("lib/src/store/a.h", '#include "base/range.h"', "#include <nlohmann/json.hpp>"),
    ("lib/src/save/a.cc", '#include "store/commit.h"', '#include "load/plan.h"'),
    ("lib/src/save/a.cc", "#include <thread>", "#include <unistd.h>"),
    ("lib/src/load/a.cc", '#include "io/file_system.h"', '#include "save/writer.h"'),
    ("lib/src/load/a.cc", "#include <map>", '#include "manifest_generated.h"'),
    ("lib/src/foreign/a.cc", '#include "io/file_system.h"', '#include "store/commit.h"'),
    ("lib/src/convert/a.cc", '#include "load/plan.h"', "#include <torch/torch.h>"),
    ("lib/src/load/a.cc", '#include "load/b.h"', '#include "b.h"'),
    ("lib/src/load/a.cc", '#include "load/b.h"', '#include "../save/writer.h"'),
    ("lib/src/load/a.cc", '#include "load/b.h"', "#include HEADER"),
    ("lib/torch/a.cc", "#include <torch/torch.h>", '#include "load/plan.h"'),
    ("tools/a.cc", '#include "options.h"', '#include "io/file_system.h"'),
    ("tools/a.cc", "#include <flagstone/flagstone.h>", '#include "../lib/src/io/file_system.h"'),
    ("examples/a.cc", '#include "model/adam.h"', "  #  include <base/range.h>"),
    ("benchmarks/end_to_end/a.cc", "#include <benchmark/benchmark.h>", '#include "partition/cut.h"'),
    ("tests/api/a.cc", "#include <gtest/gtest.h>", '#include "store/commit.h"'),
]


def self_test():
    problems = []
    for place, good, bad in PLANTS:
        for line, expected in ((good, 0), (bad, 1)):
            with tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "lib/include/flagstone").mkdir(parents=True)
                for header in ("b.h", "flagstone.h"):
                    (root / "lib/include/flagstone" / header).write_text("#pragma once\n")
                file = root / place
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"#include <array>\n{line}\n")
                violations, seen = check(root)
                found = [v for v in violations if v.startswith(f"{place}:2: ")]
                if seen != 2 or len(violations) != expected or len(found) != expected:
                    problems.append(f"{place}: {line}: expected {expected} violations, got {violations}")
    if problems:
        print("\n".join(problems))
        return 1
    print(f"{len(PLANTS)} planted violations found, {len(PLANTS)} rightful includes let through")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    violations, seen = check(pathlib.Path(sys.argv[1]))
    print("\n".join(violations) if violations else f"{seen} includes follow the layers")
    # A check that looked at nothing has checked nothing.
    return 1 if violations or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
