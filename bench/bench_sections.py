# SPDX-License-Identifier: Apache-2.0
"""bench/bench_sections.py: the sections of the page of `make bench`: from results to plots and tables."""

import os

import bench_svg as svg
from bench_page import median, rows_of
from bench_svg import bytes_text, number_text, size_text, time_text

RANKS = {"x_label": "ranks", "x_text": number_text}  # of charts over the number of ranks
PERCENT = {"y_log": 0, "y_text": lambda v: f"{v:g} %", "y_range": (0, 100)}
PLAIN = {"y_log": 0, "y_text": number_text}


def column(rows, key, scale=1.0, x="ranks"):
    """[(x, y)] of one key of the rows."""
    return [(row[x], scale * row[key]) for row in rows]


# ---- collectives ----
def bus_bandwidth(half):
    """GB/s at the median time; the file has it at the mean."""
    return half["bus_bw"] * half["time"] / half["p50"] if half["p50"] else 0.0


def curves(page, name):
    """[(label, colour, [(size, figures)])] of one collective."""
    found = []
    for kind in ("gyre", "malloc"):
        for i, n in enumerate(page.options.ranks):
            rows = sorted(page.rows(name, n, kind), key=lambda r: r["size"])
            rows = [(r["size"], r["out_of_place"]) for r in rows if r["out_of_place"] and r["size"] > 0]
            if rows:
                label = f"{n} ranks" + (", buffers from malloc" if kind == "malloc" else "")
                found.append((label, i + (3 if kind == "malloc" else 0), rows))
    return found


def copy_times(rate, first, last):
    """What memcpy takes for each size, in us."""
    sizes = [first * 2**k for k in range(40) if first * 2**k <= last]
    return [(s, s / (rate["cache"] if s <= rate["cache_bytes"] else rate["large"]) * 1e-3) for s in sizes]


def collectives(page):
    names = list(dict.fromkeys(s.key[0] for s in page.steps if s.section == "collectives"))
    found = {name: curves(page, name) for name in names}
    every = [half for series in found.values() for _, _, rows in series for _, half in rows]
    if not every:
        return
    rate = page.floors()
    high = max([bus_bandwidth(h) for h in every] + ([rate["large"]] if rate else []))
    times = (min(h["p50"] for h in every), max(h["p50"] for h in every))
    time_plots, width_plots = [], []
    for name, series in found.items():
        floors = [[], []]
        if rate and series:
            ends = series[0][2][0][0], series[0][2][-1][0]
            floors[0] = [("memcpy", copy_times(rate, *ends))]
            floors[1] = [("memcpy", [(x, rate["large"]) for x in ends])]
        time_plots.append(
            page.lines(
                "time/" + name,
                name,
                [(label, color, [(s, h["p50"]) for s, h in rows]) for label, color, rows in series],
                floors=floors[0],
                y_range=times,
            )
        )
        width_plots.append(
            page.lines(
                "busbw/" + name,
                name,
                [(label, color, [(s, bus_bandwidth(h)) for s, h in rows]) for label, color, rows in series],
                y_label="GB/s",
                floors=floors[1],
                y_range=(0, high),
                **PLAIN,
            )
        )
    keys = svg.legend([(label, color) for label, color, _ in found[names[0]]], ["memcpy"])
    copying, cached = "", ""
    if rate:
        copying = f" ({rate['cache']:.1f} GB/s up to {bytes_text(rate['cache_bytes'])}, {rate['large']:.1f} above)"
        cached = f" ({rate['cache']:.1f} GB/s in cache)"
    page.section(
        "Collectives: time",
        "Median time of a call by size, which is that of the larger buffer; float, sum. Dashed: copying as many "
        f"bytes with memcpy, one rank alone{copying}.",
        keys,
        page.grid(time_plots),
    )
    page.section(
        "Collectives: bus bandwidth",
        "What each rank moves per time, as nccl-tests counts it. Dashed: memcpy of one rank alone in memory"
        f"{cached}.",
        keys,
        page.grid(width_plots),
        page.details(
            ["collective", "ranks", "size", "p50", "p99", "busbw GB/s", "wrong"],
            [
                (name, label, size_text(s), time_text(h["p50"]), time_text(h["p99"]))
                + (number_text(bus_bandwidth(h)), "-" if h["nwrong"] is None else h["nwrong"])
                for name, series in found.items()
                for label, _, rows in series
                for s, h in rows
            ],
        ),
    )
    collective_tiles(page, found.get("all_reduce", []))


def collective_tiles(page, series):
    series = [s for s in series if "malloc" not in s[0]]
    for label, _, rows in series:
        page.tile(time_text(rows[0][1]["p50"]), f"all_reduce of {bytes_text(rows[0][0])} on {label}, median")
    best = max(((bus_bandwidth(h), s, label) for label, _, rows in series for s, h in rows), default=None)
    if best:
        page.tile(f"{best[0]:.1f} GB/s", f"largest all_reduce bus bandwidth: {bytes_text(best[1])} on {best[2]}")


# ---- latency ----
def latency(page):
    plots, table = [], []
    for i, n in enumerate(page.options.ranks):
        for row in page.rows("latency", n) + page.rows("latency", n, "barrier"):
            what = f"all_reduce {bytes_text(row['size'])}" if row["size"] else "barrier"
            name = f"latency/{'all_reduce' if row['size'] else 'barrier'}/{row['size']}/{n}"
            bins = row["histogram"]
            marks = [("p50", row["p50"]), ("p99", row["p99"])]
            drawing = svg.histogram(name, bins["edges_us"], bins["counts"], marks, i)
            data = dict(bins, p50=row["p50"], p99=row["p99"])
            plots.append(page.figure(name, f"{what}, {n} ranks", drawing, data))
            figures = [time_text(row[k]) for k in ("min", "p50", "p90", "p99", "p999", "max", "stdev")]
            table.append([what, n, row["calls"]] + figures + [number_text(row["jitter"])])
    if not plots:
        return
    clock = next(s.result["clock"] for s in page.steps if s.section == "latency" and s.result)
    head = ["operation", "ranks", "calls", "min", "p50", "p90", "p99", "p99.9", "max", "st. dev.", "p99/p50"]
    page.section(
        "Latency",
        "Every call timed singly, by its slowest rank, calls back to back. Timing itself takes "
        f"{clock['overhead_ns']:.0f} ns, which every figure contains. The few slowest calls are off the right "
        "edge; the table has the maximum.",
        page.grid(plots),
        svg.table(head, table),
    )


# ---- init ----
def init(page):
    rows = page.rows("init")
    if not rows:
        return
    parts = [("total", "total_ms"), ("launch", "launch_ms"), ("join", "join_ms"), ("create", "create_ms")]
    parts += [("first barrier", "barrier_ms"), ("first all_reduce", "all_reduce_ms")]
    extra = [("one more", "again_ms"), ("first of 1 MiB", "large_ms")]
    times = [(label, i, column(rows, key, 1e3)) for i, (label, key) in enumerate(parts)]
    memory = [(k, i, column(rows, k + "_bytes", 1 / 1024)) for i, k in enumerate(("shared", "private"))]
    links = [("data", 0, column(rows, "connections")), ("bootstrap", 1, column(rows, "boot_connections"))]
    page.section(
        "Time to the first collective",
        f"From starting ucx-run to the end of the first all_reduce, medians of {rows[0]['starts']} starts, each "
        "part at its slowest rank: they overlap, since the first rank to start waits in join for the last. Memory "
        "and connections: the most of any rank.",
        page.grid(
            [
                page.lines("init/time", "time", times, own_keys=True, **RANKS),
                page.lines(
                    "init/memory",
                    "memory of the communicator",
                    memory,
                    own_keys=True,
                    y_label="KiB",
                    y_text=number_text,
                    **RANKS,
                ),
                page.lines(
                    "init/connections", "connections", links, own_keys=True, y_log=2, y_text=number_text, **RANKS
                ),
            ]
        ),
        page.details(
            ["ranks"] + [label for label, _ in parts + extra] + ["links", "resident KiB"],
            [
                [r["ranks"]]
                + [time_text(1e3 * r[key]) for _, key in parts + extra]
                + [f"{r['connections']:.0f}", f"{r['resident_bytes'] / 1024:.0f}"]
                for r in rows
            ],
        ),
    )
    page.tile(f"{rows[0]['total_ms']:.0f} ms", f"from ucx-run to the first result, {rows[0]['ranks']} ranks")


def mock(page):
    rows = page.rows("init", "mock")
    if not rows:
        return
    phases = ("join", "exchange", "barrier")
    counts = [
        ("rounds", 0, column(rows, "rounds")),
        ("connections, most of a rank", 1, column(rows, "connections_most")),
        ("messages of a barrier, mean", 2, [(r["ranks"], r["barrier"]["messages"]) for r in rows]),
        ("messages of an exchange, mean", 3, [(r["ranks"], r["exchange"]["messages"]) for r in rows]),
    ]
    times = [(k, i, [(r["ranks"], 1e3 * r[k]["ms"]) for r in rows]) for i, k in enumerate(phases)]
    state = [("median", 0, column(rows, "state_bytes")), ("most", 1, column(rows, "state_bytes_most"))]
    keys = {"own_keys": True, **RANKS}
    page.section(
        "The bootstrap, with mock ranks",
        "Threads of one process that speak the bootstrap's own protocol: what a rank holds and sends grows with the "
        "logarithm of the job. Times are of all ranks on this machine's cores together, so they grow with the job.",
        page.grid(
            [
                page.lines("mock/counts", "rounds, and per rank", counts, **PLAIN, **keys),
                page.lines("mock/time", "time", times, **keys),
                page.lines("mock/state", "state of a rank", state, y_label="bytes", **PLAIN, **keys),
            ]
        ),
        page.details(
            ["ranks", "rounds", "connections: mean", "most", "state: median B", "most"]
            + [f"{k}: {w}" for k in phases for w in ("time", "messages", "most")],
            [
                [r["ranks"], r["rounds"], f"{r['connections']:.2f}", f"{r['connections_most']:.0f}"]
                + [f"{r['state_bytes']:.0f}", f"{r['state_bytes_most']:.0f}"]
                + [
                    text
                    for p in (r[k] for k in phases)
                    for text in (time_text(1e3 * p["ms"]), f"{p['messages']:.1f}", f"{p['messages_most']:.0f}")
                ]
                for r in rows
            ],
        ),
    )


# ---- beside computing ----
def overlap(page):
    plots, table, kinds = [], [], []
    for n in page.options.ranks:
        rows = page.rows("overlap", n)
        kinds = list(dict.fromkeys(r["progress"] for r in rows)) or kinds
        series = [
            (kind, i, column([r for r in rows if r["progress"] == kind], "overlap", x="size"))
            for i, kind in enumerate(kinds)
        ]
        if rows:
            plots.append(page.lines(f"overlap/{n}", f"all_reduce, {n} ranks", series, **PERCENT))
        table += [
            [n, r["progress"], size_text(r["size"])]
            + [time_text(r[k]) for k in ("pure", "compute", "overall")]
            + [f"{r['overlap']:.0f} %"]
            for r in rows
        ]
    if plots:
        page.section(
            "Overlap",
            "How much of a non-blocking all_reduce is hidden behind computing that takes as long: moved by nobody, by "
            "the rank between pieces of its work, or by a progress thread, which needs a core of its own to pay.",
            svg.legend([(kind, i) for i, kind in enumerate(kinds)]),
            page.grid(plots),
            page.details(["ranks", "progress", "size", "alone", "compute", "together", "hidden"], table),
        )


def bucket_plots(page, model, title, rows):
    chart = {"x_label": "bucket size (B)", "own_keys": True}
    size = "bucket_bytes"
    relative = [
        ("through buckets", 0, [(r[size], 1 / r["one_ratio"]) for r in rows]),
        ("one per tensor", 2, [(r[size], r["each_ratio"] / r["one_ratio"]) for r in rows]),
    ]
    label = "one all_reduce = 1"
    plots = [page.lines(f"bucket/time/{model}", title, relative, y_label=label, level=1.0, **PLAIN, **chart)]
    if rows[0]["step"] is not None:
        gain = [("(computing + one all_reduce) / step", 5, column(rows, "gain", x=size))]
        hidden = [("hidden behind computing", 5, column(rows, "hidden_fraction", 100.0, size))]
        title = f"{model}: gain of a step"
        plots.append(page.lines(f"bucket/gain/{model}", title, gain, level=1.0, zero=False, **PLAIN, **chart))
        title = f"{model}: communication hidden"
        plots.append(page.lines(f"bucket/hidden/{model}", title, hidden, **PERCENT, **chart))
    return plots


def bucket(page):
    plots, table = [], []
    for step in page.steps:
        rows = rows_of(step) if step.section == "bucket" else []
        if not rows:
            continue
        config = step.result["config"]
        model = os.path.basename(config["model"])
        plots += bucket_plots(
            page, model, f"{model}: {config['tensors']} tensors, {bytes_text(rows[0]['size'])}", rows
        )
        for r in rows:
            step_figures = ["-"] * 3
            if r["step"] is not None:
                step_figures = [time_text(r["step"]), f"{100 * r['hidden_fraction']:.0f} %", f"{r['gain']:.2f}"]
            table.append(
                [model, bytes_text(r["bucket_bytes"]), r["buckets"], time_text(r["time"])]
                + [f"{r['one_ratio']:.2f}", f"{r['each_ratio']:.2f}"]
                + step_figures
            )
    if plots:
        head = ["model", "bucket", "buckets", "time", "one / time", "each / time"]
        page.section(
            "Buckets",
            f"A model's gradients reduced through buckets of different sizes on {page.options.ranks[0]} ranks, all "
            "ready at once or as a stand-in for the backward pass finishes them, against one large all_reduce and one for "
            "each tensor. Ratios are medians over iterations in which all of them take turns; dashed: 1.",
            page.grid(plots),
            page.details(head + ["step", "hidden", "(compute + one) / step"], table),
        )


# ---- the contract ----
def order(page):
    series, table = [], []
    for step in page.steps:
        rows = rows_of(step) if step.section == "order" else []
        if not rows:
            continue
        _, n, algo = step.key
        label = f"{n} ranks" + (f", {algo}" if algo != "auto" else "")
        series.append((label, len(series), column(rows, "contract_cost", x="size")))
        table += [
            [label, size_text(r["size"]), time_text(r["canonical"]["time"]), time_text(r["fast"]["time"])]
            + [f"{r['contract_cost']:.3f}"]
            for r in rows
        ]
    if not series:
        return
    page.section(
        "What the contract costs",
        "Time of an all_reduce in the canonical order, whose bits depend on inputs and ranks alone, over its time in "
        "any order (GYRE_ORDER=fast), in blocks that take turns in one run. 1: nothing. On one host only the ring, if "
        "forced, has a cheaper order to offer.",
        svg.legend([(label, i) for label, i, _ in series], ["no cost"]),
        page.grid([page.lines("order/cost", "canonical / fast", series, level=1.0, zero=False, **PLAIN)]),
        page.details(["ranks", "size", "canonical", "fast", "ratio"], table),
    )
    costs = [cost for label, _, data in series if "," not in label for _, cost in data]
    if costs:
        page.tile(f"{median(costs):.2f} x", "time of the canonical order over any order, median of sizes")


ALL = (collectives, latency, init, mock, overlap, bucket, order)
