#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the core's objects ask the linker for: nothing that prints, ends the process, or belongs to CUDA or torch.

usage: core_symbols.py ARCHIVE [--nm NM] [--allow SYMBOL]
       core_symbols.py --self-test --compiler CXX [--nm NM]   plants violations and must find every one
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

# Of mangled names, so that std::printf and printf are one. snprintf writes to memory and is let through.
FORBIDDEN = {
    "ends the process": r"abort|_?exit|_Exit|quick_exit|__assert_fail|__assert_perror_fail",
    "prints": r"(__)?v?(f|d)?printf(_chk)?|puts|putchar|putc|fputs|fputc|perror|psignal|stdout|stderr"
    r"|_ZSt4cout|_ZSt4cerr|_ZSt4clog|_ZSt5wcout|_ZSt5wcerr|_ZSt5wclog",
    "is CUDA's": r"cuda[A-Z_].*|cu[A-Z].*|__cuda.*",
    "is torch's": r"_ZN?K?(St)?(3c10|2at|5torch).*",
}
PATTERNS = {why: re.compile(f"(?:{pattern})") for why, pattern in FORBIDDEN.items()}


def undefined_symbols(archive, nm):
    """(object, symbol) of every undefined reference; the symbol without its version."""
    output = subprocess.run(
        [nm, "--undefined-only", "--print-file-name", "--format=posix", str(archive)],
        check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        # archive[object.o]: symbol U
        place, _, rest = line.partition("]: ")
        if rest:
            yield place.partition("[")[2], rest.split()[0].partition("@")[0]


def check(archive, nm, allowed=()):
    violations = []
    count = 0
    for place, symbol in undefined_symbols(archive, nm):
        count += 1
        for why, pattern in PATTERNS.items():
            if pattern.fullmatch(symbol) and symbol not in allowed:
                violations.append(f"{place}: {symbol} {why}")
    return violations, count


PLANTS = {
    "abort": "#include <cstdlib>\nvoid f() { std::abort(); }",
    "exit": "#include <cstdlib>\nvoid f() { std::exit(1); }",
    "_exit": "#include <unistd.h>\nvoid f() { _exit(1); }",
    "__assert_fail": "#undef NDEBUG\n#include <cassert>\nvoid f(int x) { assert(x == 1); }",
    "printf": "#include <cstdio>\nvoid f(int x) { std::printf(\"%d\", x); }",
    "stderr": "#include <cstdio>\nvoid f(int x) { std::fprintf(stderr, \"%d\", x); }",
    "_ZSt4cout": "#include <iostream>\nvoid f(int x) { std::cout << x; }",
    "_ZSt4cerr": "#include <iostream>\nvoid f(int x) { std::cerr << x; }",
    "cudaMalloc": "extern \"C\" int cudaMalloc(void**, unsigned long);\nvoid f(void** p) { cudaMalloc(p, 1); }",
    "cuInit": "extern \"C\" int cuInit(unsigned);\nvoid f() { cuInit(0); }",
    "_ZN3c104freeEv": "namespace c10 { void free(); }\nvoid f() { c10::free(); }",
    "_ZN2at5emptyEv": "namespace at { void empty(); }\nvoid f() { at::empty(); }",
    # The good half: what looks alike but is none of these.
    "": "#include <cstdio>\n#include <stdexcept>\nnamespace attic { void open(); }\nextern \"C\" void customs();\n"
        "void f(char* p, int x) { std::snprintf(p, 4, \"%d\", x); attic::open(); customs();"
        " if (x) throw std::runtime_error(p); }",
}


def self_test(compiler, nm):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (symbol, text) in enumerate(PLANTS.items()):
            source = pathlib.Path(folder) / f"plant{number}.cc"
            source.write_text(text + "\n")
            archive = source.with_suffix(".a")
            subprocess.run([compiler, "-O1", "-c", str(source), "-o", str(source.with_suffix(".o"))], check=True)
            subprocess.run(["ar", "rc", str(archive), str(source.with_suffix(".o"))], check=True)
            violations, _ = check(archive, nm)
            if symbol:
                right = any(f" {symbol} " in violation for violation in violations)
            else:
                right = not violations
            if not right:
                problems.append(f"plant '{symbol}': got {violations}")
    print("\n".join(problems) if problems else f"{len(PLANTS) - 1} planted violations found")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", nargs="?")
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--allow", action="append", default=[])
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--compiler", default="c++")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test(arguments.compiler, arguments.nm)
    if not arguments.archive:
        parser.error("ARCHIVE is missing")
    violations, count = check(arguments.archive, arguments.nm, arguments.allow)
    print("\n".join(violations) if violations else f"{count} undefined references, none of them forbidden")
    # An archive without any reference was not read right.
    return 1 if violations or not count else 0


if __name__ == "__main__":
    sys.exit(main())
