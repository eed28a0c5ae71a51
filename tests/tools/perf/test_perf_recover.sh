#!/bin/bash
# tests/tools/perf/test_perf_recover.sh: gyre-perf recover: ranks die in all the ways that it knows, and the rest goes on.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"

run "$PERF" recover -n 6 -r 6 --during --json "$W/r.json"
want "kill -9, also while the others shrink" 0
check "0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
check "JSON: rounds" json "$W/r.json" 'd["rounds"] == len(d["results"]) == 6 and d["nwrong"] == 0 and d["kind"] == "kill"'
check "JSON: who is left" json "$W/r.json" 'all(r["left"] in (6 - 1, 6 - 2, 6 - 3, 6 - 4) and r["victim"] != r["second"] for r in d["results"])'
check "JSON: figures" json "$W/r.json" 'all(d["summary"][k]["min"] <= d["summary"][k]["p50"] <= d["summary"][k]["max"] for k in ("detect_ms", "shrink_ms", "result_ms", "total_ms"))'
check "JSON: of an even number, the median is between two" json "$W/r.json" 'all(abs(d["summary"][k]["p50"] - sum(sorted(r[k] for r in d["results"])[2:4]) / 2) < 1e-6 for k in d["summary"])'
run "$PERF" recover -n 3 -r 1 --kind exit
want "exit without gyre_finalize" 0
check "0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
GYRE_HEARTBEAT=0.5 run "$PERF" recover -n 3 -r 1 --kind stop
want "a stopped rank" 0
check "0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
run "$PERF" recover -n 3 -r 1 --kind stuck --timeout 0.5
want "a stuck rank" 0
check "0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
run "$PERF" recover -n 2
want "too few ranks" 2
run "$UCX_RUN" -n 2 "$PERF" recover
want "too few ranks of a job" 2 'wants 3 to'
finish
