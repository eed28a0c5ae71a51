# SPDX-License-Identifier: Apache-2.0
"""tests/plan/runs.py: published runs (docs/data/runs), their two halves, and what gyre-plan says of them.

The rows of a table are ordered by the CRC-32 of their text. The first half of that order calibrates; the other half is for
reports alone.
"""
import json
import math
import os
import subprocess
import tempfile
import zlib

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
DATA = os.path.join(ROOT, "docs/data/runs")
HALVES = ("calibrate", "report")
FAR = 3.0 # times the best of its group: a layout that nobody keeps


class Source:
    """A table and the flags that it is planned with. `software`: flags of the calibrated figures. `within`: also report the
    rows within FAR of the best of their group. `memory`: its rows have GB per GPU, and layouts that did not run."""

    def __init__(self, name, flags, software, within=False, memory=False):
        self.name, self.flags, self.software = name, flags.replace("DATA", DATA).split(), software.split()
        self.within, self.memory = within, memory

    def rows(self, half):
        """The lines of a half, as dictionaries with their text."""
        with open(os.path.join(DATA, self.name + ".txt"), encoding="utf-8") as file:
            lines = [line for line in file if line.strip() and not line.startswith("#")]
        names, lines = lines[0].split(), lines[1:]
        order = sorted(range(len(lines)), key=lambda i: (zlib.crc32(lines[i].strip().encode()), i))
        first = set(order[:(len(lines) + 1) // 2])
        rows = []
        for i, line in enumerate(lines):
            if (i in first) == (half == "calibrate"):
                row = dict(zip(names, line.split()))
                row.update(line=line, seconds=float(row["seconds"]), memory=float(row.get("memory", 0)))
                row["gpus"] = math.prod(int(row.get(key, 1)) for key in ("dp", "tp", "pp"))
                rows.append(row)
        return rows, " ".join(names)


SOURCES = [
    Source("ultrascale", "--recipe DATA/ultrascale.json --machine H100", "--software nanotron --inter 23", within=True,
           memory=True),
    Source("vtrain-single", "--machine A100-80 --heads 16 --seq 1024 --dtype fp16 --grad-dtype fp32 --recompute full",
           "--software megatron-deepspeed"),
    Source("llm-foundry", "--machine A100-40 --vocab 50368 --dtype bf16 --grad-dtype bf16 --zero 3", "--software fsdp"),
    Source("internevo", "--recipe DATA/internevo.json --machine A100-80 --inter 6.25", "--software internevo"),
]


def plan(question, source, names, rows, flags):
    """What gyre-plan `question` says of each row, in their order."""
    tool = os.path.join(os.environ.get("B", "build"), "bin/gyre-plan")
    with tempfile.TemporaryDirectory() as folder:
        table, out = os.path.join(folder, "rows.txt"), os.path.join(folder, "out.json")
        with open(table, "w", encoding="utf-8") as file:
            file.write(names + "\n" + "".join(row["line"] for row in rows))
        if question == "memory":  # which heeds no rates
            flags = [flag for before, flag in zip(["", *flags], flags) if "--inter" not in (before, flag)]
        command = [tool, question, *source.flags, *flags, "--rows", table, "--json", out]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        with open(out, encoding="utf-8") as file:
            found = json.load(file)["rows"]
    assert len(found) == len(rows), (len(found), len(rows))
    return found


def ran(rows):
    return [row for row in rows if row["seconds"] > 0]


def groups(rows):
    """Layouts of one model, batch and number of GPUs: what a person chooses among."""
    fixed = ("layers", "hidden", "heads", "seq", "global_batch", "recompute", "gpus")
    out = {}
    for row in rows:
        out.setdefault(tuple(row.get(key) for key in fixed), []).append(row)
    return out


def near(rows):
    """The rows within FAR of the best of their group: a filter by what was measured, not by an estimate."""
    return [row for group in groups(rows).values() for row in group
            if row["seconds"] <= FAR * min(other["seconds"] for other in group)]


def middle(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def ninety(values):
    return sorted(values)[(len(values) * 9 + 9) // 10 - 1]


def errors(rows, key):
    return [abs(row[key] / row["seconds"] - 1) for row in rows]
