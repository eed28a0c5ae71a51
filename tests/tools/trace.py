# SPDX-License-Identifier: Apache-2.0
"""trace.py FILE RANKS FROM TO NAME...: a trace by the Trace Event Format's rules for what gyre-train writes, of all ranks and steps, with
slices of each NAME; slices of one lane are apart or one inside the other, as viewers require."""
import json
import sys

path, ranks, first, last = sys.argv[1], *map(int, sys.argv[2:5])
trace = json.load(open(path))
assert trace["displayTimeUnit"] in ("ms", "ns")
lanes, named, processes, steps, names = {}, set(), set(), {}, set()
for event in trace["traceEvents"]:
    assert event["ph"] in ("X", "M"), event
    assert isinstance(event["pid"], int) and 0 <= event["pid"] < ranks, event
    if event["ph"] == "M":
        assert event["name"] in ("process_name", "process_sort_index", "thread_name", "thread_sort_index"), event
        if event["name"] == "process_name":
            processes.add(event["pid"])
            assert event["args"]["name"].startswith(f"rank {event['pid']} ")
        if event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
        continue
    assert event["ts"] >= 0 and event["dur"] >= 0 and event["name"], event
    lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    names.add(event["name"])
    if event["cat"] == "step":
        steps.setdefault(event["pid"], []).append(event["name"])
    else:
        assert event["cat"] in ("compute", "communication")
        assert first <= event["args"]["step"] <= last
assert processes == set(range(ranks))
assert set(lanes) <= named, "a lane has no name"
for rank in range(ranks):
    assert steps[rank] == [f"step {s}" for s in range(first, last + 1)], steps[rank]
for lane, slices in lanes.items():
    slices.sort(key=lambda s: (s[0], -s[1]))
    around = []
    for start, end in slices:
        while around and around[-1] <= start + 0.002:
            around.pop()
        assert not around or end <= around[-1] + 0.002, f"slices of lane {lane} overlap in part"
        around.append(end)
assert set(sys.argv[5:]) <= names, (sys.argv[5:], names)
print(len(trace["traceEvents"]), "events")
