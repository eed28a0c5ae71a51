#!/bin/bash
# tests/tools/perf/test_perf_init.sh: gyre-perf init: alone, as a rank, and with mock ranks; wrong use.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"

rows() { grep -v '^#' "$W/out"; }

# --- jobs of its own ---
run "$PERF" init --max 5 --starts 2 --json "$W/i.json"
want "starts jobs" 0
check "2, 4 and 5 ranks" [ "$(rows | awk '{print $1, $2, NF}' | paste -sd,)" = "2 2 17,4 2 17,5 2 17" ]
check "JSON: parts" json "$W/i.json" 'd["command"] == "init" and not d["mock"] and all(0 < r[k] <= r["total_ms"] for r in d["results"] for k in ("launch_ms", "join_ms", "create_ms", "barrier_ms", "all_reduce_ms")) and all(r["again_ms"] > 0 and r["large_ms"] > 0 and r["split_ms"] > 0 and r["first_ms"] > 0 for r in d["results"])'
check "JSON: per rank" json "$W/i.json" 'all(1 <= r["connections"] < r["ranks"] and 1 <= r["boot_connections"] <= math.ceil(math.log2(r["ranks"])) and r["private_bytes"] > 0 and r["resident_bytes"] > 100000 for r in d["results"])'

# --- one start, as a rank ---
run "$UCX_RUN" -n 3 "$PERF" init --json "$W/s.json"
want "one start" 0
check "one row" [ "$(rows | awk '{print $1, $2, NF}')" = "3 1 17" ]
check "JSON" json "$W/s.json" '[r["ranks"] for r in d["results"]] == [3]'

# --- mock ranks: what grows with log n, and how ---
run "$PERF" init --mock 100 --starts 1 --json "$W/m.json"
want "mock ranks" 0
check "doubling, then what was asked for" json "$W/m.json" 'd["mock"] and [r["ranks"] for r in d["results"]] == [2, 4, 8, 16, 32, 64, 100]'
check "O(log n) rounds" json "$W/m.json" 'all(r["rounds"] == 2 * max(bin(i).count("1") for i in range(r["ranks"])) <= 2 * math.ceil(math.log2(r["ranks"])) for r in d["results"])'
check "O(log n) connections, a tree of them" json "$W/m.json" 'all(r["connections_most"] <= math.ceil(math.log2(r["ranks"])) and abs(r["connections"] * r["ranks"] - 2 * (r["ranks"] - 1)) < 1e-6 for r in d["results"])'
check "O(log n) messages" json "$W/m.json" 'all(r["barrier"]["messages_most"] == 2 * r["connections_most"] and r["exchange"]["messages_most"] <= 8 * math.ceil(math.log2(r["ranks"])) for r in d["results"])'
check "O(log n) state" json "$W/m.json" 'd["results"][-1]["state_bytes_most"] < 2 * d["results"][0]["state_bytes_most"]'
check "join: a fixed number of messages but at rank 0" json "$W/m.json" 'all(r["join"]["messages"] < 24 for r in d["results"])'
check "times" json "$W/m.json" 'all(r[k]["ms"] > 0 for r in d["results"] for k in ("join", "exchange", "barrier"))'

# --- wrong use ---
run "$PERF" init --mock 1
want "one mock rank" 2 '--mock 1'
run "$PERF" init everything
want "a word" 2 'everything'
run "$UCX_RUN" -n 2 "$PERF" init --mock 4
want "mock ranks in a rank" 2 'without a launcher'
check "said once" [ "$(grep -c 'without a launcher' "$W/err")" = 1 ]
(
    ulimit -n 256
    timeout 20 "$PERF" init --mock 1024 2>"$W/err"
)
rc=$?
want "too few descriptors" 2 'ulimit -n'
run "$PERF" init --max 2 --starts 1 --json "$W/none/i.json"
want "no place for the JSON" 2 'none/i.json'
run "$PERF" init --version
want "--version" 0
check "a version" grep -qE '^gyre-perf [0-9]' "$W/out"
run "$PERF" init --help
want "help" 0

finish
