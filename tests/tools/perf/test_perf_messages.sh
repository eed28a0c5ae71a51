#!/bin/bash
# tests/tools/perf/test_perf_messages.sh: gyre-perf messages: columns, JSON, shared buffers, wrong use.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"

rows() { grep -v '^#' "$W/out"; }

for transport in shm ucx; do
    run "$UCX_RUN" -n 2 "$PERF" messages -b 0 -e 72K -f 9 -n 4 -w 1 --transport $transport -J "$W/m.json"
    want "two ranks, $transport" 0
    check "$transport: sizes, from none on" [ "$(rows | awk '{print $1, NF}' | paste -sd,)" = "0 7,1 7,9 7,81 7,729 7,6561 7,59049 7" ]
    check "$transport: nothing wrong" [ "$(rows | awk '{print $7}' | sort -u)" = 0 ]
    check "$transport: figures" json "$W/m.json" 'all(0 < r["latency"] <= r["latency_p99"] and r["rate"] > 0 and (r["bw"] > 0 and r["bibw"] > 0) == (r["size"] > 0) for r in d["results"])'
    check "$transport: the rate is that of the bandwidth" json "$W/m.json" 'all(abs(r["rate"] * r["size"] * 1e-9 - r["bw"]) <= 1e-6 * r["bw"] for r in d["results"])'
done
run "$UCX_RUN" -n 2 "$PERF" messages -b 512K -e 512K -n 1 -w 0 -W 140 -c 1 -R 0
want "more messages than buffers, malloc" 0
check "a row, nothing wrong" [ "$(rows | awk '{print $1, $7}')" = "524288 0" ]
run "$UCX_RUN" -n 4 "$PERF" messages -b 16K -e 16K -n 1 -w 0 -W 9 -c 1
want "two pairs" 0
check "two pairs: a row, nothing wrong" [ "$(rows | awk '{print $1, $7}')" = "16384 0" ]
run "$UCX_RUN" -n 2 "$PERF" messages -b 8 -e 8 -c 0 -n 1
want "no check" 0
check "#wrong is N/A" [ "$(rows | awk '{print $7}')" = N/A ]
run "$UCX_RUN" -n 3 "$PERF" messages
want "three ranks" 2 'messages: an even number of ranks, and this job has 3'
check "nothing is printed" [ "$(wc -l <"$W/out")" = 0 ]
run "$PERF" messages all
want "a word" 2 'messages: "all" is not an option'
run "$PERF" messages -b 9 -e 8
want "sizes" 2 'larger than the last'
run "$PERF" messages --help
want "help" 0
for option in -b -e -f -n -w -c -W -R -J -T --transport; do
    check "help lists $option" grep -q -- "$option\b" "$W/out"
done
finish
