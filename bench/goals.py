# SPDX-License-Identifier: Apache-2.0
"""bench/goals.py: what Gyre is to reach, as data: ratios best peer / Gyre of the medians of one run.

The first row that fits a cell holds. `ratio` is the least ratio; `p99` the most that the 99th percentile may be as a
multiple of the median; `least_traffic` the most time as a multiple of what limits.c measured for the least traffic of
this very cell.
"""

KI, MI = 1024, 1024 * 1024
FEW, ANY = (2, 8), (2, 1 << 20)
# ranks from-to, bytes from-to, collectives (None: all), buffers (None: both), what is wanted
GOALS = [
    (ANY, (0, 8), ("split",), None, {"ratio": 0.5}),  # at most twice the time
    (ANY, (0, 8), ("first_call",), None, {"ratio": 0.5}),
    ((2, 2), (64 * MI, 64 * MI), ("all_reduce",), "own", {"ratio": 1.3, "least_traffic": 1.4}),
    ((4, 8), (0, 4 * KI), None, "malloc", {"ratio": 1.1, "p99": 5.0}),
    ((4, 8), (0, 4 * KI), None, "own", {"ratio": 1.3, "p99": 5.0}),
    (FEW, (0, 1 << 62), None, "malloc", {"ratio": 1.1}),
    (FEW, (0, 1 << 62), None, "own", {"ratio": 1.3}),
    (ANY, (0, 1 << 62), None, None, {"ratio": 0.67}),  # ranks that outnumber cores: at most 1.5 times the time
]
MEDIANS = {"malloc": 1.5, "own": 3.0}  # of the ratios of all cells of FEW ranks
OTHERS_MOST = 0.05  # of the cores' time; where other programs took more, ranks that share cores were disturbed
CLIFF = 1.2  # no size takes longer than so many times the next larger one


def goal(ranks, collective, size, buffers):
    for (fewest, most), (low, high), collectives, kind, wanted in GOALS:
        if fewest <= ranks <= most and low <= size <= high and collective in (collectives or [collective]):
            if kind in (None, buffers):
                return wanted
    return {}


def misses(cell, limits):
    """What a measured cell lacks of its goal, in words; empty when it is met. Needs cell["gyre_us"].
    The ratio of an undecided cell counts neither way."""
    wanted, found = goal(cell["ranks"], cell["collective"], cell["bytes"], cell["buffers"]), []
    us, ratio = cell["gyre_us"], cell["ratio"]
    if ratio is not None and not cell["undecided"] and ratio < wanted.get("ratio", ratio):
        found.append(f"ratio {ratio:.2f}, wanted {wanted['ratio']:g}")
    if cell["gyre_p99_us"] > wanted.get("p99", float("inf")) * us:
        found.append(f"p99 {cell['gyre_p99_us'] / us:.1f} x the median, wanted at most {wanted['p99']:g}")
    least = limits.get("least_traffic_all_reduce_2_64M_us")
    if "least_traffic" in wanted and least and us > wanted["least_traffic"] * least:
        found.append(f"{us / least:.2f} x the least traffic, wanted at most {wanted['least_traffic']:g}")
    return found
