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

import bench_svg as svg

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
BUFFERS = ("malloc", "own")


def sections(text):
    """peers.md -> {(collective, ranks, memory): {size: {column: cell}}}"""
    tables = {}
    for head, body in re.findall(r"^### (.*)\n\n((?:\|.*\n)+)", text, re.M):
        name, ranks, *_ = head.split(", ")  # then "buffers from own allocator", in results before 2026-11-27
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()]
        for row in (dict(zip(rows[0], words)) for words in rows[2:]):
            memory = row.get("memory") or ("own" if "own" in head else "malloc")
            tables.setdefault((name, int(ranks.split()[0]), memory), {})[row["bytes"]] = row
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
    figures = [row[name].rstrip("~") for row in rows for name in names if number(row.get(name, "-")) is not None]
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
    labels = ["Gyre, malloc", "Gyre, gyre_mem_alloc"] + [f"{name}, at its best" for name in PEERS]
    colors = [5, 5, 0, 2, 8]
    width, height = len(all_ranks) * svg.W, svg.H + 62
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_page.css"), encoding="utf-8") as f:
        css = f.read()
    palette = dict(re.findall(r"--(\w+): (#\w+);", css)[::-1])  # the first of each name is the light theme's
    style = "".join(re.findall(r"^(?:text|line|\.(?:line|bold|dashed|mark))\b[^{]*\{[^}]*\}\n", css, re.M))
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f"<title>all_reduce, fp32 sum: time of a call over bytes</title><!-- {source} --><style>{style}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for i, (label, color) in enumerate(zip(labels, colors)):
        at = 20 + i * 170
        manner = "line bold" + (" dashed" if i == 1 else "") if i < 2 else "line"
        out.append(f'<path class="{manner}" stroke="var(--c{color})" d="M{at} 16h22"/>')
        out.append(f'<text x="{at + 28}" y="20">{label}</text>')
    out.append(f'<text x="20" y="38">Time of a call; both scales are logarithmic. All ranks share {cores} cores.</text>')
    for column, ranks in enumerate(all_ranks):
        both = [tables["all_reduce", ranks, kind] for kind in BUFFERS]
        lines = [[(size_bytes(size), number(row["gyre"])) for size, row in rows.items()] for rows in both]
        lines += [[(size_bytes(s), number(best([rows[s] for rows in both], names))) for s in both[0]]
                  for names in PEERS.values()]
        series = [(label, color, [p for p in line if p[1] is not None])
                  for label, color, line in zip(labels, colors, lines)]
        drawing = svg.lines(f"all_reduce-{ranks}", series, bold=labels[:2], dashed=labels[1:2])
        place = f'<svg x="{column * svg.W}" y="58" width="{svg.W}" height="{svg.H}"'
        out.append(f'<text x="{column * svg.W + svg.W / 2}" y="56" text-anchor="middle">{ranks} ranks</text>')
        out.append(drawing.replace("<svg", place, 1))
    return re.sub(r"var\(--(\w+)\)", lambda found: palette[found[1]], "\n".join(out + ["</svg>", ""]))


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
