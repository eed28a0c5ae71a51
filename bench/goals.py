# SPDX-License-Identifier: Apache-2.0
"""bench/goals.py: what Gyre is to reach, as data: ratios best peer / Gyre of the medians of one run.

The first row that fits a cell holds. `ratio` is the least ratio; `most_us` the most time per call; `p99` the most that
the 99th percentile may be as a multiple of the median; `least_traffic` the most time as a multiple of what limits.c
measured for the least traffic of this very cell.
"""

KI, MI = 1024, 1024 * 1024
REDUCING = ("all_reduce", "reduce_scatter")

# ranks, bytes from-to, collectives (None: all), buffers (None: both), what is wanted
GOALS = [
    ((2,), (8, 8), ("all_reduce",), None, {"ratio": 1.2, "most_us": 0.15}),
    ((2,), (0, 4 * KI), None, None, {"ratio": 1.2}),
    ((2,), (4 * KI + 1, 4 * MI), REDUCING, None, {"ratio": 2.0}),
    ((2,), (4 * KI + 1, 4 * MI), None, None, {"ratio": 1.3}),
    ((2,), (64 * MI, 64 * MI), ("all_reduce",), "own", {"ratio": 2.5, "least_traffic": 1.4}),
    ((2,), (4 * MI + 1, 64 * MI), ("all_reduce",), "own", {"ratio": 2.5}),
    ((2,), (4 * MI + 1, 64 * MI), REDUCING, None, {"ratio": 1.5}),
    ((2,), (4 * MI + 1, 64 * MI), None, None, {"ratio": 1.1}),
    ((4, 8), (0, 4 * KI), None, None, {"ratio": 1.3, "p99": 5.0}),
    ((4, 8), (4 * KI + 1, 64 * MI), REDUCING, None, {"ratio": 1.5}),
]
# Everywhere else: first.
DEFAULT = {"ratio": 1.0}


def goal(ranks, collective, size, buffers):
    for who, (low, high), collectives, kind, wanted in GOALS:
        if ranks in who and low <= size <= high and collective in (collectives or [collective]):
            if kind in (None, buffers):
                return wanted
    return DEFAULT


def misses(cell, limits):
    """What a measured cell lacks of its goal, in words; empty when it is met. Needs cell["gyre_us"].
    The ratio of an undecided cell counts neither way."""
    wanted, found = goal(cell["ranks"], cell["collective"], cell["bytes"], cell["buffers"]), []
    us = cell["gyre_us"]
    if cell["ratio"] is not None and not cell["undecided"] and cell["ratio"] < wanted["ratio"]:
        found.append(f"ratio {cell['ratio']:.2f}, wanted {wanted['ratio']:g}")
    if us > wanted.get("most_us", us):
        found.append(f"{us:.3f} us, wanted at most {wanted['most_us']:g}")
    if cell["gyre_p99_us"] > wanted.get("p99", float("inf")) * us:
        found.append(f"p99 {cell['gyre_p99_us'] / us:.1f} x the median, wanted at most {wanted['p99']:g}")
    least = limits.get("least_traffic_all_reduce_2_64M_us")
    if "least_traffic" in wanted and least and us > wanted["least_traffic"] * least:
        found.append(f"{us / least:.2f} x the least traffic, wanted at most {wanted['least_traffic']:g}")
    return found
