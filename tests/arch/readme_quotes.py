#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the code in a document is the code that is compiled.

A block that follows `<!-- quote FILE NAME -->` must equal the lines between the two `// [NAME]` marks of FILE.

    readme_quotes.py ROOT DOCUMENT...
    readme_quotes.py ROOT --write DOCUMENT...   put the present code in
    readme_quotes.py --self-test
"""

import pathlib
import re
import sys
import tempfile

QUOTE = re.compile(r"(<!-- quote (\S+) (\S+) -->\n```c\+\+\n)(.*?)(```\n)", re.DOTALL)


def snippet(root: pathlib.Path, file: str, name: str) -> str:
    lines = (root / file).read_text(encoding="utf-8").splitlines(keepends=True)
    marks = [i for i, line in enumerate(lines) if re.match(rf"\s*// \[{re.escape(name)}\]", line)]
    if len(marks) != 2:
        raise ValueError(f"{file} has {len(marks)} marks [{name}], not 2")
    first = re.sub(r"// \[[^]]*\] ?", "// ", lines[marks[0]])
    body = lines[marks[0] + 1 : marks[1]]
    return "".join(([first] if first.strip() != "//" else []) + body)


def check(root: pathlib.Path, document: pathlib.Path, write: bool) -> list[str]:
    text = document.read_text(encoding="utf-8")
    problems = []
    if not QUOTE.search(text):
        problems.append(f"{document.name} quotes nothing")

    def replace(match: re.Match) -> str:
        code = snippet(root, match[2], match[3])
        if code != match[4] and not write:
            problems.append(f"{document.name}: the quote of {match[2]} [{match[3]}] is not what the file says")
        return match[1] + code + match[5]

    new = QUOTE.sub(replace, text)
    if write and new != text:
        document.write_text(new, encoding="utf-8")
    return problems


def self_test() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "a.cc").write_text("int x;\n// [part] What it does.\nint y;\n// [part]\n", encoding="utf-8")
        document = root / "README.md"
        document.write_text("<!-- quote a.cc part -->\n```c++\n// What it does.\nint y;\n```\n", encoding="utf-8")
        assert check(root, document, write=False) == []
        document.write_text("<!-- quote a.cc part -->\n```c++\nint z;\n```\n", encoding="utf-8")
        assert len(check(root, document, write=False)) == 1
        document.write_text("no quotes\n", encoding="utf-8")
        assert len(check(root, document, write=False)) == 1


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        self_test()
        return 0
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[0])
    write = arguments[1] == "--write"
    problems = []
    for name in arguments[2 if write else 1 :]:
        problems += check(root, root / name, write)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
