#!/bin/bash
# tests/tools/perf/test_perf_latency.sh: gyre-perf latency: columns, histogram, JSON, wrong use.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"

rows() { grep -v '^#' "$W/out"; }

run "$UCX_RUN" -n 3 "$PERF" latency -b 8 -e 512 -n 300 --json "$W/l.json"
want "all_reduce by default" 0
check "a row for each size, 14 columns" [ "$(rows | awk '{print $1, $4, NF}' | paste -sd,)" = "8 300 14,64 300 14,512 300 14" ]
check "least <= p50 <= p90 <= p99 <= p99.9 <= most" [ -z "$(rows | awk '!($5 <= $6 && $6 <= $7 && $7 <= $8 && $8 <= $9 && $9 <= $10)')" ]
check "the clock and what reading it takes" grep -qE '^# each call timed singly by .*takes [0-9]+ ns' "$W/out"
check "bars" grep -qE '^# +[0-9.]+ - +[0-9.]+ us +[0-9]+ +[0-9.]+%  #+$' "$W/out"
check "0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
# every call is in one line of its size's histogram
check "histograms add up" [ "$(sed -nE 's/^# .* us +([0-9]+) .*/\1/p' "$W/out" | awk '{ s += $1 } END { print s }')" = 900 ]
check "JSON: histogram" json "$W/l.json" 'all(sum(r["histogram"]["counts"]) == r["calls"] == 300 and len(r["histogram"]["edges_us"]) == len(r["histogram"]["counts"]) + 1 for r in d["results"])'
check "JSON: edges hold all" json "$W/l.json" 'all(r["histogram"]["edges_us"][0] <= r["min"] and r["max"] <= r["histogram"]["edges_us"][-1] * 1.0001 for r in d["results"])'
check "JSON: figures" json "$W/l.json" 'all(0 < r["min"] <= r["p50"] <= r["p90"] <= r["p99"] <= r["p999"] <= r["max"] and r["stdev"] >= 0 and abs(r["jitter"] - r["p99"] / r["p50"]) < 1e-6 and r["nwrong"] == 0 for r in d["results"])'
check "what ranks did while they waited" [ "$(grep -cE '^#   a rank in a call: [0-9.]+ yields \([0-9.]+ us\), [0-9.]+ sleeps \([0-9.]+ us\); ranks were preempted about [0-9]+ times$' "$W/out")" = 3 ]
check "JSON: the same" json "$W/l.json" 'all(min(r["waits"].values()) >= 0 and (r["waits"]["yield_us"] > 0) == (r["waits"]["yields"] > 0) for r in d["results"])'
check "JSON: the clock" json "$W/l.json" 'd["clock"]["source"] in ("tsc", "monotonic") and 0 <= d["clock"]["overhead_ns"] < 10000'

run "$UCX_RUN" -n 2 "$PERF" latency broadcast -b 1K -e 1K -n 50 --inplace both -d double
want "another collective, both places" 0
check "both places" [ "$(rows | awk '{print $2, $3}' | paste -sd,)" = "double out,double in" ]
run "$UCX_RUN" -n 2 "$PERF" latency barrier -c 0
want "as many calls as fit" 0
check "no data, 100 calls or more" [ "$(rows | awk '{print $1, $2, ($4 >= 100 && $4 <= 100000), $NF}')" = "0 none 1 N/A" ]

run "$UCX_RUN" -n 2 "$PERF" latency -b 8 -e 32 -i 8 -n 5
want "-i" 0
check "adds from size to size" [ "$(rows | awk '{print $1}' | paste -sd,)" = "8,16,24,32" ]
run "$UCX_RUN" -n 2 "$PERF" latency -b 0 -e 64 -n 5 -d uint8
want "-b 0" 0
check "1 after 0, then times 8" [ "$(rows | awk '{print $1}' | paste -sd,)" = "0,1,8,64" ]
run "$UCX_RUN" -n 2 "$PERF" latency -m 3
want "groups" 2 'latency: -m'
check "said once" [ "$(grep -c 'latency: -m' "$W/err")" = 1 ]
run "$PERF" latency -S
want "the time of day" 2 'latency: no -S'
run "$PERF" latency -d all
want "all types" 2 'one type'
run "$PERF" latency --order canonical,fast
want "two orders" 2 'one --order'
run "$PERF" latency all_redduce
want "no such collective" 2 'all_redduce'
run "$PERF" latency --help
want "help" 0
check "help says what it does" grep -q 'p99.9' "$W/out"
check "and what does not go" grep -q '^No -g, -m, -F, -I, -M, -N, -S, -z 3, --cold' "$W/out"
cp "$W/out" "$W/help"
run "$UCX_RUN" -n 2 "$PERF" latency all_reduce -b 8 -e 16 -i 8 -n 20 -w 1 --inplace both -d int32 -o max -c 1 -u 4 -R 0 \
    --algo ring --transport ucx --order fast -J "$W/all.json" -T 30
want "all that it lists" 0
for option in -b -e -i -n -w --inplace -d -o -c -u -R --algo --transport --order -J -T -r -f; do
    check "help lists $option" grep -q -- "$option\b" "$W/help"
done

# --- --order canonical,fast ---
run "$UCX_RUN" -n 3 "$PERF" all_reduce --order canonical,fast --algo ring -b 8 -e 128K -f 16 -n 30 --json "$W/o.json"
want "both orders" 0
check "columns" [ "$(rows | awk '{print NF}' | sort -u)" = 14 ]
check "the ratio is that of the times" [ -z "$(rows | awk '{ r = $6 / $10 / $14; if (r < 0.98 || r > 1.02) print }')" ]
check "JSON" json "$W/o.json" '[r["size"] for r in d["results"]] == [8, 128, 2048, 32768] and all(r["canonical"]["nwrong"] == r["fast"]["nwrong"] == 0 and abs(r["contract_cost"] - r["canonical"]["time"] / r["fast"]["time"]) < 1e-9 for r in d["results"])'
check "JSON: deviations" json "$W/o.json" 'all(r[o]["stdev"] > 0 and r[o]["cv"] > 0 for r in d["results"] for o in ("canonical", "fast"))'
check "JSON: configuration" json "$W/o.json" 'd["config"]["order"] == "canonical,fast"'
run "$UCX_RUN" -n 3 "$PERF" reduce_scatter --order exact,canonical,fast -b 8 -e 128K -f 16 -n 30 --inplace 1 --json "$W/o.json"
want "three orders" 0
check "columns" [ "$(rows | awk '{print NF}' | sort -u)" = 19 ]
check "JSON" json "$W/o.json" 'all(r["exact"]["nwrong"] == 0 and abs(r["costs"]["exact"] - r["exact"]["time"] / r["fast"]["time"]) < 1e-9 for r in d["results"])'
run "$UCX_RUN" -n 3 "$PERF" all_reduce --order canonical,exact,leaves,fast -b 8 -e 128K -f 16 -n 30 --leaves 3 --json "$W/o.json"
want "four orders" 0
check "columns" [ "$(rows | awk '{print NF}' | sort -u)" = 24 ]
check "JSON" json "$W/o.json" 'd["config"]["leaves"] == 3 and all(r["leaves"]["nwrong"] == 0 and abs(r["costs"]["leaves"] - r["leaves"]["time"] / r["fast"]["time"]) < 1e-9 for r in d["results"])'
for coll in reduce reduce_scatterv; do
    run "$UCX_RUN" -n 3 "$PERF" $coll --order leaves -b 64 -e 64K -f 1024 -n 1 -w 0 -m 2 -d all -o avg
    want "leaves of $coll, averages of all types" 0
done
run "$PERF" all_reduce --order leaves,canonical -b 8 -e 64K -f 8 -n 3 -d all -o prod
want "leaves of one rank" 0
run "$PERF" all_reduce --order fast,fast
want "the same order twice" 2 'fast,fast'
run "$PERF" broadcast --order canonical,fast
want "nothing is reduced" 2 'broadcast reduces nothing'
run "$PERF" all_reduce --order canonical,random
want "no such order" 2 'canonical,random'

finish
