# SPDX-License-Identifier: Apache-2.0
"""bench/peers_page.py: the page of `make bench-peers`: for each collective time over size, every library, both kinds of
memory, and the ratios; then barriers, communicators and what the machine allows."""

import bench_page as page
import bench_svg as svg
import goals
import peers_options
import report
from bench_svg import esc

COLORS = {
    "gyre": 5, "gyre-exact": 1, "ompi": 0, "ompi-ucx": 6, "ompi-sm": 3, "mpich": 2, "mpich-rg": 4, "gloo": 8,
    "gloo-bcube": 7, "ucc": 9,
}
KINDS = {"malloc": "memory of malloc", "own": "memory of the library's allocator"}


def series(cells, names):
    """[(contender, colour, [(bytes, us)])] of one collective, number of ranks and kind of memory."""
    found = []
    for name in names:
        results = [(cell["bytes"], cell["results"].get(name)) for cell in cells]
        points = [(size, r["us"]) for size, r in results if r and r["us"] is not None and not r["wrong"]]
        if points:
            found.append((name, COLORS.get(name, 8), points))
    return found


def marked_table(head, rows):
    """rows: [[(text, is bad)]]"""
    def one(cell):
        return f'<td class="bad">{esc(cell[0])}</td>' if cell[1] else f"<td>{esc(cell[0])}</td>"

    body = "".join("<tr>" + "".join(map(one, row)) + "</tr>" for row in rows)
    names = "".join(f"<th>{esc(name)}</th>" for name in head)
    return f'<div class="scroll"><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>'


def ratios(cells):
    """Best peer / Gyre of one collective: a row for each size, a column for each number of ranks and memory."""
    columns = list(dict.fromkeys((cell["ranks"], report.memory(cell)) for cell in cells))
    sizes = sorted({cell["bytes"] for cell in cells})
    found = {(cell["bytes"], cell["ranks"], report.memory(cell)): cell for cell in cells}
    rows = []
    for size in sizes:
        row = [(svg.size_text(size), False)]
        for column in columns:
            cell = found.get((size, *column))
            row.append((report.ratio_text(cell), report.is_behind(cell)) if cell else ("", False))
        rows.append(row)
    return marked_table(["best peer / Gyre"] + [f"{ranks}: {kind}" for ranks, kind in columns], rows)


def collective(result, name, plots):
    cells = [cell for cell in result["cells"] if cell["collective"] == name]
    names, figures = list(result["contenders"]), []
    for kind, words in KINDS.items():
        for ranks in dict.fromkeys(cell["ranks"] for cell in cells):
            some = [c for c in cells if c["ranks"] == ranks and c["buffers"] == kind and not c["cold"]]
            lines = series(sorted(some, key=lambda cell: cell["bytes"]), names)
            plot = f"{name}/{ranks}/{kind}"
            if not lines:  # no such memory in this run
                continue
            plots[plot] = {label: points for label, _, points in lines}
            drawing = svg.lines(plot, lines, y_label="time of a call", bold=("gyre",))
            figures.append(page.figure(plot, f"{ranks} ranks, {words}", drawing))
    text = "Time of a call over the bytes of the vector. Below: ratios above 1 are ahead, red is behind, * misses the goal,"
    return page.section(name, text + " ? was measured under other load.", page.grid(figures), ratios(cells))


def fixed(result):
    """Barrier, split and first call: one row for each number of ranks, in microseconds."""
    names, rows = list(result["contenders"]), []
    for cell in result["cells"]:
        if cell["collective"] in peers_options.FIXED:
            row = [f"{cell['collective']}, {cell['ranks']} ranks"]
            row += [report.result_text(cell["results"].get(name)) for name in names]
            rows.append([(text, False) for text in row] + [(report.ratio_text(cell), report.is_behind(cell))])
    return rows and page.section(
        "Barriers and communicators",
        "Microseconds. split makes a communicator of all ranks and frees it; first_call makes one, calls all_reduce of 8 B "
        "on it and frees it.",
        marked_table(["us"] + names + ["best peer / Gyre"], rows),
    )


def machine(result):
    limits = [[name.rpartition("_")[0].replace("_", " "), report.time_text(value)
               + " " + report.UNITS[name.rpartition("_")[2]]] for name, value in result["limits"].items()]
    costs = [[name, f"{cost['value']:g} {cost['unit']}", cost["meaning"]]
             for name, cost in result["costs"].get("measured", {}).items()]
    return limits and page.section(
        "The machine",
        "What it allows (bench/limits.c), and the costs that Gyre measures for its choices; both in machine.json.",
        page.details("limits", svg.table(["limit", "value"], limits)),
        page.details("Gyre's costs", svg.table(["cost", "value", "meaning"], costs)),
    )


def head(result):
    facts = page.machine_facts(result["machine"])
    load = f"load average {result['machine']['load_before']:.1f} before, {result['machine']['load_after']:.1f} after"
    cells = [cell for cell in result["cells"] if cell["ratio"] is not None]
    decided = [cell for cell in cells if not cell["undecided"]]
    behind = sum(map(report.is_behind, cells))
    wrong = sum(r["wrong"] for cell in result["cells"] for r in cell["results"].values())
    tiles = [
        page.tile(f"{len(decided) - behind} of {len(decided)}", "cells in which Gyre is first"),
        page.tile(behind, "cells in which it is not"),
        page.tile(len(cells) - len(decided), "cells that other load leaves undecided"),
        page.tile(wrong, "wrong elements, of all libraries; every result is compared"),
    ]
    summary = report.summary(cells)
    for kind in peers_options.BUFFERS:
        few = [c["ratio"] for c in decided if report.memory(c) == kind and c["collective"] not in peers_options.FIXED
               and goals.FEW[0] <= c["ranks"] <= goals.FEW[1]]
        if few:
            text = f"median of best peer / Gyre, {KINDS[kind]}, to {goals.FEW[1]} ranks"
            tiles.append(page.tile(f"{report.statistics.median(few):.2f}", text))
    command = peers_options.command_line(result["command"])
    versions = [[name, c["version"], c["settings"]] for name, c in result["contenders"].items()]
    return [
        "<h1>Gyre and its peers</h1>",
        page.spans(facts + [load, f"{result['seconds']:.0f} s", command]),
        page.tiles(tiles),
        page.details("libraries and settings", svg.table(["column", "version", "settings"], versions)),
        svg.table(*summary) if summary[1] else "",
        svg.legend([(name, COLORS.get(name, 8)) for name in result["contenders"]]),
    ]


def write(result, path):
    plots, parts = {}, head(result)
    names = dict.fromkeys(cell["collective"] for cell in result["cells"])
    parts += [collective(result, name, plots) for name in names if name not in peers_options.FIXED]
    lines = report.conclusion(result).splitlines()
    behind = f'<pre class="scroll">{esc(chr(10).join(lines))}</pre>'
    parts += [fixed(result) or "", machine(result) or "", page.section("Where Gyre is behind", "", behind)]
    page.write_page(path, "Gyre and its peers", parts, plots)
