#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/system/tutorials.py FILE.md: does what a tutorial says, and compares what is printed.

In an indented block `$ command` is run by one shell for the whole file, in the current folder, and must
return 0. The lines after it are what it prints: numbers may differ, a line `...` stands for any lines, `...` at the
begin or end of a line for any text. A fenced block after "This is `NAME`:" is written to NAME."""

import os
import re
import subprocess
import sys

END = "tutorials.py: returned "


def steps(text):
    """[(what, content)]: ("write", (name, text)) or ("run", (command, [expected lines]))"""
    out, lines, i = [], text.split("\n"), 0
    while i < len(lines):
        line = lines[i]
        i += 1
        name = re.search(r"This is `([\w.]+)`:$", " ".join(lines[max(i - 2, 0) : i]))
        if name:
            first = next(k for k in range(i, len(lines)) if lines[k].startswith("```")) + 1
            last = next(k for k in range(first, len(lines)) if lines[k].startswith("```"))
            out.append(("write", (name.group(1), "\n".join(lines[first:last]) + "\n")))
            i = last + 1
        elif line.startswith("    $ "):
            expected = []
            while i < len(lines) and lines[i].startswith("    ") and not lines[i].startswith("    $ "):
                expected.append(lines[i][4:])
                i += 1
            out.append(("run", (line[6:], expected)))
    return out


def plain(line):
    """Numbers, lines of dashes and widths do not count."""
    return " ".join(re.sub(r"\d[\d.,:e+-]*", "#", line).split())


def pattern(line):
    line = line.strip()
    if line == "...":
        return r"(?:.*\n)*?"
    begin, end = line.startswith("..."), line.endswith("...")
    text = re.escape(plain(line.removeprefix("...").removesuffix("...")))
    return (".*" if begin else "") + text + (".*" if end else "") + r"\n"


def compare(expected, got):
    """The first expected line that is missing, or what is there beyond the last; None if all is well."""
    text = "".join(plain(line) + "\n" for line in got)
    for n in range(1, len(expected) + 1):
        if not re.fullmatch("".join(map(pattern, expected[:n])) + r"(?:.*\n)*", text):
            return expected[n - 1]
    return None if re.fullmatch("".join(map(pattern, expected)) + r"\n*", text) else "nothing more"


def main(path):
    shell = subprocess.Popen(
        ["bash"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    ran = failed = 0
    for what, content in steps(open(path).read()):
        if what == "write":
            with open(content[0], "w") as f:
                f.write(content[1])
            continue
        command, expected = content
        shell.stdin.write(f"{{ {command}\n}} </dev/null\nrc=$?; echo; echo '{END}'$rc\n")
        shell.stdin.flush()
        got = []
        for line in shell.stdout:
            if line.startswith(END):
                break
            got.append(line.rstrip("\n"))
        else:
            sys.exit(f"{path}: the shell ended in: {command}")
        if got and not got[-1]:
            got.pop()  # of our `echo`
        status = int(line.removeprefix(END))
        missing = compare(expected, got)
        ran += 1
        if status or missing is not None:
            failed += 1
            print(f"{path}: $ {command}")
            print(f"  returned {status}" + ("" if missing is None else f"; expected: {missing}"))
            print("\n".join("  | " + line for line in got[-40:]))
    shell.stdin.close()
    shell.wait()
    print(f"{os.path.basename(path)}: {ran} commands, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
