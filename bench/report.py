# SPDX-License-Identifier: Apache-2.0
"""bench/report.py: what bench_peers.py has measured, as tables, a list of what is behind, JSON and plots."""

import json
import math
import os

import peers_options

COLORS = {
    "gyre": "#d62728", "ompi": "#1f77b4", "ompi-ucx": "#17becf", "ompi-sm": "#9467bd",
    "mpich": "#2ca02c", "mpich-rg": "#bcbd22", "gloo": "#7f7f7f", "gloo-bcube": "#c7c7c7",
}

def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"

def time_text(us):
    if us is None:
        return "-"
    return f"{us:.3f}" if us < 1 else f"{us:.2f}" if us < 10 else f"{us:.1f}" if us < 100 else f"{us:.0f}"

def table(head, rows):
    """A Markdown table whose columns also line up in a terminal."""
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    lines = ["| " + " | ".join(cell.rjust(w) for cell, w in zip(row, widths)) + " |" for row in [head] + rows]
    lines.insert(1, "|" + "|".join("-" * (w + 1) + ":" for w in widths) + "|")
    return "\n".join(lines)

def result_text(result):
    """A contender's figure in a cell; what is odd about it is marked."""
    if result is None or result["us"] is None:
        return "failed" if result and result["error"] else "-"
    marks = {"!": result["wrong"], "?": result["disturbed"], "~": result["as_malloc"]}
    return time_text(result["us"]) + "".join(mark for mark, is_so in marks.items() if is_so)

def tables(result, ranks):
    """All tables of one number of ranks."""
    names = list(result["contenders"])
    out, done = [], set()
    for first in result["cells"]:
        key = (first["collective"], first["buffers"])
        if first["ranks"] != ranks or key in done:
            continue
        done.add(key)
        kind = "" if key[0] == "barrier" else ", buffers from " + ("malloc" if key[1] == "malloc" else "own allocator")
        rows = []
        for cell in result["cells"]:
            if cell["ranks"] != ranks or (cell["collective"], cell["buffers"]) != key:
                continue
            marks = ("?" if cell["undecided"] else "") + ("*" if cell["misses"] else "")
            ratio = "-" if cell["ratio"] is None else f"{cell['ratio']:.2f}{marks}"
            rows.append(
                [size_text(cell["bytes"])]
                + [result_text(cell["results"].get(name)) for name in names]
                + [cell["best_peer"] or "-", ratio, time_text(cell["gyre_p99_us"])]
            )
        out.append(f"\n### {key[0]}, {ranks} ranks{kind}\n")
        out.append(table(["bytes"] + names + ["best peer", "ratio", "gyre p99"], rows))
    return "\n".join(out)

def where(cell):
    kind = "" if cell["collective"] == "barrier" else f", {cell['buffers']}"
    return f"{cell['ranks']} ranks, {cell['collective']}, {size_text(cell['bytes'])}{kind}"

def odd(result):
    """Contenders that failed or were wrong, in lines."""
    lines = [f"- {f['contender']}, {f['ranks']} ranks: {f['why']}" for f in result["failures"]]
    for cell in result["cells"]:
        for name, r in cell["results"].items():
            if r["wrong"]:
                lines.append(f"- {name}, {where(cell)}: {r['wrong']} elements wrong")
    return lines

def compared_line(cell):
    peer = cell["results"][cell["best_peer"]]
    return (
        f"- {where(cell)}: {time_text(cell['gyre_us'])} us, {cell['best_peer']} {result_text(peer)}"
        f" (ratio {cell['ratio']:.2f}{'?' if cell['undecided'] else ''})"
    )

def is_behind(cell):
    return cell["ratio"] is not None and not cell["undecided"] and cell["ratio"] < 1

def conclusion(result):
    """The cells where Gyre is not first, those that nobody can tell, and those behind their goal."""
    cells = [cell for cell in result["cells"] if cell["gyre_us"] is not None]
    compared = [cell for cell in cells if cell["ratio"] is not None and not cell["undecided"]]
    undecided = [cell for cell in cells if cell["undecided"]]
    behind = [cell for cell in compared if is_behind(cell)]
    missed = [cell for cell in cells if cell["misses"]]
    lines = odd(result)
    lines = (["\nFailures and wrong results:\n"] + lines) if lines else []
    lines.append(f"\nGyre is not first in {len(behind)} of {len(compared)} cells" + (":\n" if behind else "."))
    lines += [compared_line(cell) for cell in sorted(behind, key=lambda c: c["ratio"])]
    if undecided:
        lines.append(f"\nUndecided: {len(undecided)}, whose best peer was never measured without losing a core:\n")
        lines += [compared_line(cell) for cell in sorted(undecided, key=lambda c: c["ratio"])]
    lines.append(f"\nBehind its goal in {len(missed)} of {len(cells)} cells" + (":\n" if missed else "."))
    lines += [f"- {where(cell)}: {'; '.join(cell['misses'])}" for cell in missed]
    return "\n".join(lines)

UNITS = {"gbs": "GB/s", "us": "us", "ns": "ns"}


def limits_text(limits):
    """What limits.c measured; its names end in the unit."""
    if not limits:
        return "Not measured."
    rows = [[name.rpartition("_")[0].replace("_", " "), time_text(value), UNITS[name.rpartition("_")[2]]]
            for name, value in limits.items()]
    return table(["limit", "value", "unit"], rows)

def markdown(result):
    m = result["machine"]
    options = result["command"]
    lines = [
        "# Gyre and its peers",
        "",
        f"{m['cpu']}, {m['cores']} cores, Linux {m['kernel']}, {m['date']}, Gyre at {m['commit']}; load average"
        f" {m['load_before']:.1f} before and {m['load_after']:.1f} after; {result['seconds']:.0f} s.",
        "",
        "    " + peers_options.command_line(options),
        "",
        "Microseconds per call, back to back, of the slowest rank; fp32, sum; bytes are those of the whole vector;",
        f"median over {options['rounds']} interleaved rounds. Ratio: best peer / Gyre, above 1 is ahead; `*`: behind",
        "the goal. `!`: wrong results. `~`: measured with malloc's buffers. `?`: never without losing a core; a ratio",
        "that rests on such a figure of a peer decides nothing. p99: of calls timed one by one.",
        "",
    ]
    rows = [[n, c["version"], c["settings"]] for n, c in result["contenders"].items()]
    lines += [table(["column", "version", "settings"], rows), "", "## Limits of this machine", ""]
    lines += [limits_text(result["limits"]), ""]
    for n in options["ranks"]:
        lines += [f"## {n} ranks", tables(result, n), ""]
    return "\n".join(lines + ["## Where Gyre is behind", conclusion(result), ""])

# ---- plots -------------------------------------------------------------------------------------------------------

WIDE, HIGH, LEFT, TOP = 300, 210, 56, 60

def series(result, ranks, collective):
    """{(contender, buffers): [(bytes, us)]}: peers with malloc; Gyre with both."""
    lines = {}
    for cell in result["cells"]:
        if cell["ranks"] != ranks or cell["collective"] != collective or not cell["bytes"]:
            continue
        for name, r in cell["results"].items():
            if r["us"] is not None and (name == "gyre" or cell["buffers"] == "malloc"):
                lines.setdefault((name, cell["buffers"]), []).append((cell["bytes"], r["us"]))
    return lines

def panel(lines, title, x0, y0):
    """One log-log plot of time against bytes."""
    points = [p for line in lines.values() for p in line]
    out = [f'<text x="{x0 + WIDE / 2}" y="{y0 - 6}" text-anchor="middle" font-weight="bold">{title}</text>']
    low_x, high_x = math.log2(min(p[0] for p in points)), math.log2(max(p[0] for p in points))
    low_y = math.floor(math.log10(min(p[1] for p in points)))
    high_y = math.ceil(math.log10(max(p[1] for p in points)))
    high_x, high_y = max(high_x, low_x + 1), max(high_y, low_y + 1)

    def x(size):
        return x0 + (math.log2(size) - low_x) / (high_x - low_x) * WIDE

    def y(us):
        return y0 + HIGH - (math.log10(us) - low_y) / (high_y - low_y) * HIGH

    for decade in range(low_y, high_y + 1):
        at = y(10.0**decade)
        out.append(f'<path d="M{x0} {at:.1f}h{WIDE}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 4}" y="{at + 4:.1f}" text-anchor="end">{10.0**decade:g}</text>')
    for power in range(math.ceil(low_x), int(high_x) + 1):
        if power % 3 == 0:
            text = size_text(1 << power).replace("iB", "").replace(" ", "")
            out.append(f'<text x="{x(1 << power):.1f}" y="{y0 + HIGH + 14}" text-anchor="middle">{text}</text>')
    out.append(f'<path d="M{x0} {y0}v{HIGH}h{WIDE}" stroke="#444" fill="none"/>')
    for (name, buffers), line in sorted(lines.items(), key=lambda item: item[0][0] == "gyre"):
        way = "L".join(f"{x(size):.1f} {y(us):.1f}" for size, us in sorted(line))
        wide = 2.4 if name == "gyre" else 1.3
        dash = ' stroke-dasharray="5 3"' if buffers == "own" else ""
        out.append(
            f'<path d="M{way}" fill="none" stroke="{COLORS.get(name, "#000")}" stroke-width="{wide}"{dash}/>'
        )
    return out

def svg(result):
    ranks = result["command"]["ranks"]
    collectives = [c for c in result["command"]["collectives"] if any(series(result, n, c) for n in ranks)]
    width = max(1, len(collectives)) * (WIDE + LEFT) + 20
    height = TOP + len(ranks) * (HIGH + 56)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="16">Microseconds per call against bytes, both logarithmic; buffers from malloc,'
        " dashed: gyre_mem_alloc</text>",
    ]
    at = LEFT
    for name in result["contenders"]:
        out.append(f'<path d="M{at} 30h22" stroke="{COLORS.get(name, "#000")}" stroke-width="2.4"/>')
        out.append(f'<text x="{at + 26}" y="34">{name}</text>')
        at += 45 + 7 * len(name)
    for row, n in enumerate(ranks):
        for column, collective in enumerate(collectives):
            lines = series(result, n, collective)
            if lines:
                place = (LEFT + column * (WIDE + LEFT), TOP + row * (HIGH + 56))
                out += panel(lines, f"{collective}, {n} ranks", *place)
    return "\n".join(out + ["</svg>\n"])

def write(result, directory, only_texts=False):
    """peers.json, peers.md and peers.svg; only_texts: not the first."""
    cells = [cell for cell in result["cells"] if cell["gyre_us"] is not None]
    result["not_first"] = [where(cell) for cell in cells if is_behind(cell)]
    result["undecided"] = [where(cell) for cell in cells if cell["undecided"]]
    result["behind_goal"] = {where(cell): cell["misses"] for cell in cells if cell["misses"]}
    texts = {"peers.md": markdown(result), "peers.svg": svg(result)}
    if not only_texts:
        texts["peers.json"] = json.dumps(result, indent=1) + "\n"
    for name, text in texts.items():
        path = os.path.join(directory, name)
        with open(path + ".new", "w") as f:
            f.write(text)
        os.replace(path + ".new", path)
