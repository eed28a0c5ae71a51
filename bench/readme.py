#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/readme.py: the README's plot and table, from a run of `make bench-peers` (`make readme-results`).

    bench/readme.py [--check] [RESULTS]

RESULTS is a folder of bench/results/, or else the one that README.md names. Reads its peers.md, writes
docs/images/all_reduce.svg and what stands between the two `results` comments of README.md. --check writes
nothing and fails when either differs from what would be written. Standard library only.
"""

import os
import re
import sys

import report

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README, PLOT = os.path.join(TOP, "README.md"), "docs/images/all_reduce.svg"
BEGIN, END = "<!-- results: {} -->", "<!-- end of results -->"
BLOCK = re.compile(r"<!-- results: (\S+) -->\n.*<!-- end of results -->", re.S)
SIZES = ("8 B", "4 KiB", "64 KiB", "1 MiB", "16 MiB")
PEERS = {
    "Open MPI": ("ompi", "ompi-ucx", "ompi-sm"),
    "MPICH": ("mpich", "mpich-rg"),
    "Gloo": ("gloo", "gloo-bcube"),
}
BUFFERS = {"malloc": "buffers from malloc", "own": "buffers from own allocator"}


def sections(text):
    """peers.md -> {(collective, ranks, buffers): {size: {column: cell}}}"""
    tables = {}
    for head, body in re.findall(r"^### (.*)\n\n((?:\|.*\n)+)", text, re.M):
        parts = head.split(", ")
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
        table = {row[0]: dict(zip(rows[0], row)) for row in rows[2:]}
        kind = next((k for k, v in BUFFERS.items() if len(parts) > 2 and v == parts[2]), "")
        tables[parts[0], int(parts[1].split()[0]), kind] = table
    return tables


def number(cell):
    """A figure without its marks; None for a cell without one."""
    found = re.match(r"[0-9.]+", cell)
    return float(found.group()) if found else None


def size_bytes(text):
    value, unit = text.split()
    return int(value) << {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[unit]


def best(rows, names):
    """The smallest figure of these columns; `~` marks a repetition of another table's."""
    figures = [row[name].rstrip("~") for row in rows for name in names if number(row[name]) is not None]
    return min(figures, key=number) if figures else "-"


def table(tables):
    """all_reduce of 2 ranks: Gyre with both kinds of buffers, each peer at its best."""
    plain, own = tables["all_reduce", 2, "malloc"], tables["all_reduce", 2, "own"]
    lines = [
        "| all_reduce, 2 ranks | Gyre, `gyre_mem_alloc` | Gyre, `malloc` | " + " | ".join(PEERS) + " |",
        "| ---: |" + " ---: |" * (2 + len(PEERS)),
    ]
    for size in SIZES:
        cells = [own[size]["gyre"], plain[size]["gyre"]] + [
            best((plain[size], own[size]), names) for names in PEERS.values()
        ]
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return lines


def plot(tables, source, cores):
    """The same for all sizes and numbers of ranks, one panel each; log-log."""
    all_ranks = sorted({ranks for name, ranks, _ in tables if name == "all_reduce"})
    width, height = len(all_ranks) * (report.WIDE + report.LEFT) + 20, report.TOP + report.HIGH + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="11">',
        f"<title>all_reduce, fp32 sum: microseconds per call against bytes</title><!-- {source} -->",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    at = report.LEFT
    legend = [("gyre", "Gyre, malloc", ""), ("gyre", "Gyre, gyre_mem_alloc", ' stroke-dasharray="5 3"')]
    legend += [(names[0], f"{label}, at its best", "") for label, names in PEERS.items()]
    for name, label, dash in legend:
        out.append(f'<path d="M{at} 16h22" stroke="{report.COLORS[name]}" stroke-width="2.4"{dash}/>')
        out.append(f'<text x="{at + 26}" y="20">{label}</text>')
        at += 50 + 7 * len(label)
    note = f"Microseconds per call against bytes; both scales are logarithmic. All ranks share {cores} cores."
    out.append(f'<text x="{report.LEFT}" y="38">{note}</text>')
    for column, ranks in enumerate(all_ranks):
        lines = {}
        both = [tables["all_reduce", ranks, kind] for kind in BUFFERS]
        for kind, rows in zip(BUFFERS, both):
            lines["gyre", kind] = [(size_bytes(size), number(row["gyre"])) for size, row in rows.items()]
        for names in PEERS.values():
            points = [(size_bytes(s), number(best([rows[s] for rows in both], names))) for s in both[0]]
            lines[names[0], "malloc"] = [p for p in points if p[1] is not None]
        place = (report.LEFT + column * (report.WIDE + report.LEFT), report.TOP)
        out += report.panel(lines, f"{ranks} ranks", *place)
    return "\n".join(out + ["</svg>", ""])


def block(results, text):
    tables = sections(text)
    machine = text.splitlines()[2]
    lines = [
        BEGIN.format(results),
        f"![all_reduce of Gyre, Open MPI, MPICH and Gloo]({PLOT})",
        "",
        *table(tables),
        "",
        f"Microseconds per call. {machine}",
        "All libraries in turns, in one run of `make bench-peers`;",
        f"all tables of it are in [{results}/peers.md]({results}/peers.md).",
        "A library's figure is that of its best setting and kind of buffers.",
        "`?`: never measured without other work on the cores.",
        END,
    ]
    return "\n".join(lines), plot(tables, results, re.search(r"(\d+) cores", machine).group(1))


def main(arguments):
    check = arguments[:1] == ["--check"]
    with open(README) as f:
        readme = f.read()
    old = BLOCK.search(readme)
    if not old:
        sys.exit("bench/readme.py: README.md lacks the two `results` comments")
    rest = arguments[1:] if check else arguments
    results = (rest[0] if rest else old.group(1)).rstrip("/")
    with open(os.path.join(TOP, results, "peers.md")) as f:
        new, svg = block(results, f.read())
    texts = {README: readme[: old.start()] + new + readme[old.end():], os.path.join(TOP, PLOT): svg}
    for path, text in texts.items():
        name = os.path.relpath(path, TOP)
        if check:
            with open(path) as f:
                if f.read() != text:
                    sys.exit(f"{name} is not what bench/readme.py makes of {results}: make readme-results")
            continue
        with open(path, "w") as f:
            f.write(text)
        print(f"wrote {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
