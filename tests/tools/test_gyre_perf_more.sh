#!/bin/bash
# tests/tools/test_gyre_perf_more.sh: gyre-perf beyond one table: cold buffers, streams, overlap, buckets.
# deadline: 240
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=60

json() { # FILE EXPRESSION: a Python expression over d, the file, and r, its results, that must be true
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); r = d["results"]; sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2"
}
rows() { grep -v '^#' "$W/out"; }
right() { # NAME: the last run ended well and says so
    want "$1" 0
    check "$1: 0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
}

# --- --cold ---
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 32K -f 64 -n 3 --cold -J "$W/cold.json"
right "--cold"
check "the output says that and how buffers are cold" grep -qE '^# cold buffers: .* by (clflush|clflushopt|dc civac|a walk)' "$W/out"
check "the columns stay" [ "$(rows | awk '{print NF}' | sort -u)" = 17 ]
check "the JSON says how" json "$W/cold.json" 'd["config"]["cold"] and d["config"]["streams"] == 1 and len(r) == 3'
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 3 -J "$W/warm.json"
right "without --cold"
check "no word of it otherwise" sh -c "! grep -qE 'cold|streams' '$W/out'"
check "not in the JSON either" json "$W/warm.json" 'd["config"]["cold"] is None'

# --- --streams ---
for coll in all_reduce all_to_allv broadcast sendrecv barrier; do
    run "$UCX_RUN" -n 3 "$PERF" $coll -b 8 -e 32K -f 64 -n 3 --streams 4 -m 2 -J "$W/streams.json"
    right "$coll --streams 4 -m 2"
done
check "the output says what time and bandwidth are" grep -q '^# 4 streams: .*those of all' "$W/out"
check "streams in the JSON" json "$W/streams.json" 'd["config"]["streams"] == 4'
run "$UCX_RUN" -n 2 "$PERF" all_gather -b 64K -e 64K -n 5 --streams 3 -J "$W/streams.json"
right "--streams 3"
check "bandwidth is that of all streams" json "$W/streams.json" \
    'all(abs(h["alg_bw"] * h["time"] * 1e3 / (3 * x["size"]) - 1) < 1e-6 for x in r for h in (x["out_of_place"], x["in_place"]))'
run "$PERF" all_reduce --streams 0
want "no streams" 2 '--streams 0: not a value'
run "$PERF" all_reduce --streams 2 --order canonical,fast
want "streams and both orders" 2 'not together with --cold or --streams'
run "$PERF" latency --cold
want "cold latency" 2 'no --cold'

# --- overlap ---
run "$UCX_RUN" -n 2 "$PERF" overlap -b 4K -e 64K -f 16 -n 3 -J "$W/overlap.json"
right "overlap"
check "a row per size and way of progress" [ "$(rows | wc -l)" = 6 ]
check "11 columns" [ "$(rows | awk '{print NF}' | sort -u)" = 11 ]
check "keys" json "$W/overlap.json" 'all({"size", "count", "type", "redop", "root", "progress", "pure", "compute", "overall", "overlap", "nwrong", "experiment_name"} <= set(x) for x in r)'
check "all ways of progress" json "$W/overlap.json" '[x["progress"] for x in r] == ["none"] * 2 + ["polled"] * 2 + ["thread"] * 2'
check "overlap is what its definition says" json "$W/overlap.json" \
    'all(abs(x["overlap"] - 100 * min(max(1 - (x["overall"] - x["compute"]) / x["pure"], 0), 1)) < 1e-6 for x in r)'
run "$UCX_RUN" -n 3 "$PERF" overlap all -b 4K -e 4K -n 2 --progress none --compute 0.05 -J "$W/overlap.json"
right "overlap all"
check "every collective" [ "$(rows | awk '{print $5}' | sort -u | wc -l)" = 15 ]
check "computes as long as it was told, or longer" json "$W/overlap.json" 'all(x["compute"] > 25 for x in r)'
run "$PERF" overlap nonesuch
want "an unknown collective" 2 '"nonesuch" is no collective'
run "$UCX_RUN" -n 2 "$PERF" overlap --progress maybe
want "an unknown way of progress" 2 '--progress maybe: not a value'
check "said once" [ "$(grep -c 'progress maybe' "$W/err")" = 1 ]
run "$PERF" overlap -b 4K -e 1K
want "sizes the wrong way round" 2 'larger than the last'
run "$PERF" overlap --help
want "help" 0
check "help names its options" grep -q -- '--polls N' "$W/out"

finish
