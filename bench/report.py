# SPDX-License-Identifier: Apache-2.0
"""bench/report.py: what bench_peers.py has measured, as tables, a list of what is behind, and JSON."""

import json
import statistics

import goals
import peers_options


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

def memory(cell):
    """Where the data lie: "malloc", "own, cold"."""
    return cell["buffers"] + (", cold" if cell["cold"] else "")

def ratio_text(cell):
    marks = ("?" if cell["undecided"] else "") + ("*" if cell["misses"] else "")
    return "-" if cell["ratio"] is None else f"{cell['ratio']:.2f}{marks}"

def result_text(result):
    """A contender's figure in a cell; what is odd about it is marked."""
    if result is None or result["us"] is None:
        return "failed" if result and result["error"] else "-"
    marks = {"!": result["wrong"], "?": result["disturbed"], "~": result["as_malloc"]}
    return time_text(result["us"]) + "".join(mark for mark, is_so in marks.items() if is_so)

def by_collective(result, ranks):
    """{collective: its cells of so many ranks, by size}"""
    found = {}
    for cell in result["cells"]:
        if cell["ranks"] == ranks:
            found.setdefault(cell["collective"], []).append(cell)
    order = ["malloc", "own", "malloc, cold", "own, cold"]
    return {name: sorted(cells, key=lambda c: (c["bytes"], order.index(memory(c)))) for name, cells in found.items()}

def tables(result, ranks):
    """All tables of one number of ranks: one for each collective, with both kinds of memory."""
    out = []
    for collective, cells in by_collective(result, ranks).items():
        names = [name for name in result["contenders"] if any(name in cell["results"] for cell in cells)]
        rows = [
            [size_text(cell["bytes"]), memory(cell)]
            + [result_text(cell["results"].get(name)) for name in names]
            + [cell["best_peer"] or "-", ratio_text(cell), time_text(cell["gyre_p99_us"])]
            for cell in cells
        ]
        out.append(f"\n### {collective}, {ranks} ranks\n")
        out.append(table(["bytes", "memory"] + names + ["best peer", "ratio", "gyre p99"], rows))
    return "\n".join(out)

def where(cell):
    kind = "" if cell["collective"] in peers_options.FIXED else f", {memory(cell)}"
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

def cliffs(cells):
    """Sizes of which Gyre takes longer than goals.CLIFF times what it takes for the next larger one, in lines."""
    lines, rows = [], {}
    for cell in cells:
        if cell["collective"] not in peers_options.FIXED:
            rows.setdefault((cell["ranks"], cell["collective"], memory(cell)), []).append(cell)
    for row in rows.values():
        row.sort(key=lambda cell: cell["bytes"])
        for cell, larger in zip(row, row[1:]):
            times = cell["gyre_us"] / larger["gyre_us"]
            if times > goals.CLIFF:
                lines.append(f"- {where(cell)}: {times:.2f} x the time of {size_text(larger['bytes'])}")
    return lines

def summary(cells):
    """Where Gyre stands with so many ranks and such memory; a median that misses its goal has a star."""
    groups, rows = {}, []
    for cell in cells:
        if cell["ratio"] is not None and cell["collective"] not in peers_options.FIXED:
            groups.setdefault((cell["ranks"], memory(cell)), []).append(cell)
    for (ranks, kind), group in groups.items():
        ratios = [cell["ratio"] for cell in group if not cell["undecided"]]
        wanted = goals.MEDIANS.get(kind, 0) if goals.FEW[0] <= ranks <= goals.FEW[1] else 0
        median = statistics.median(ratios) if ratios else None
        rows.append(
            [str(ranks), kind, str(len(group)), str(sum(ratio >= 1 for ratio in ratios))]
            + [str(sum(ratio < 1 for ratio in ratios)), str(len(group) - len(ratios))]
            + [f"{min(ratios):.2f}" if ratios else "-"]
            + ["-" if median is None else f"{median:.2f}" + ("*" if median < wanted else "")]
        )
    return ["ranks", "memory", "cells", "first", "behind", "undecided", "least ratio", "median"], rows

def conclusion(result):
    """The cells where Gyre is not first, those that nobody can tell, and those behind their goal."""
    cells = [cell for cell in result["cells"] if cell["gyre_us"] is not None]
    compared = [cell for cell in cells if cell["ratio"] is not None and not cell["undecided"]]
    undecided = [cell for cell in cells if cell["undecided"]]
    behind = [cell for cell in compared if is_behind(cell)]
    missed = [cell for cell in cells if cell["misses"]]
    lines = odd(result)
    lines = (["\nFailures and wrong results:\n"] + lines) if lines else []
    head, rows = summary(cells)
    lines += ["\nRatios best peer / Gyre, barrier and communicators apart:\n", table(head, rows)] if rows else []
    lines.append(f"\nGyre is not first in {len(behind)} of {len(compared)} cells" + (":\n" if behind else "."))
    lines += [compared_line(cell) for cell in sorted(behind, key=lambda c: c["ratio"])]
    if undecided:
        lines.append(f"\nUndecided: {len(undecided)}, whose best peer was never measured without losing a core:\n")
        lines += [compared_line(cell) for cell in sorted(undecided, key=lambda c: c["ratio"])]
    lines.append(f"\nBelow its goal in {len(missed)} of {len(cells)} cells" + (":\n" if missed else "."))
    lines += [f"- {where(cell)}: {'; '.join(cell['misses'])}" for cell in missed]
    steep = cliffs(cells)
    lines.append(f"\nSlower than {goals.CLIFF:g} x the next larger size: {len(steep)}" + (":\n" if steep else "."))
    lines += steep
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
        f"median over {options['rounds']} interleaved rounds. Memory: from malloc, or from the library's own allocator",
        "(own: gyre_mem_alloc, MPI_Alloc_mem); cold: each call uses other parts of buffers that exceed all caches.",
        "split makes a communicator and frees it; first_call makes one, calls all_reduce of 8 B on it and frees it.",
        "Ratio: best peer / Gyre, above 1 is ahead; `*`: behind the goal. `!`: wrong results. `~`: measured with malloc's",
        "buffers. `?`: under other load: never without losing a core or, where ranks share cores, while other programs",
        f"took over {100 * goals.OTHERS_MOST:.0f} % of them; a ratio that rests on such a figure of a peer decides nothing.",
        "p99: of calls timed one by one.",
        "",
    ]
    if result.get("left"):
        lines += [f"The run was ended before it had measured {' and '.join(map(str, result['left']))} ranks.", ""]
    rows = [[n, c["version"], c["settings"]] for n, c in result["contenders"].items()]
    lines += [table(["column", "version", "settings"], rows), "", "## Limits of this machine", ""]
    lines += [limits_text(result["limits"]), "", "Gyre's own costs, by which it chooses, are in machine.json.", ""]
    for n in options["ranks"]:
        if n not in result.get("left", []):
            lines += [f"## {n} ranks", tables(result, n), ""]
    return "\n".join(lines + ["## Where Gyre is behind", conclusion(result), ""])

def as_json(result):
    """One cell a line, four digits a figure."""

    def short(value):
        if isinstance(value, dict):
            return {key: short(one) for key, one in value.items()}
        if isinstance(value, list):
            return [short(one) for one in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    def own(cell):  # the rounds of the twin with malloc's buffers stand there
        results = {k: {**r, "rounds": []} if r["as_malloc"] else r for k, r in cell["results"].items()}
        return json.dumps(short({**cell, "results": results}), separators=(",", ":"))

    head = json.dumps({key: value for key, value in result.items() if key != "cells"}, indent=1)
    return head[:-2] + ',\n "cells": [\n' + ",\n".join(own(cell) for cell in result["cells"]) + "\n ]\n}\n"
