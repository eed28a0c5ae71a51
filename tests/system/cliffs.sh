#!/bin/bash
# tests/system/cliffs.sh: never a cliff: no size of a collective is slower than 1.3 times the next larger one.
# Whole sweeps over all sizes are repeated, one collective after the other, so that a disturbance hits few rounds of a size;
# the median over the sweeps counts. Times on a busy machine say nothing, so this is for TEST_LONG=1 (make check-long) only.
# usage: cliffs.sh [RANKS...]
# deadline: 120
# alone: 1
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
[ -n "${TEST_LONG:-}" ] || skip "timed on a quiet machine only: TEST_LONG=1"
DEADLINE=600
SWEEPS=${SWEEPS:-7}
LIMIT=1.3
ranks=${*:-2 4}
colls="all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all"

for sweep in $(seq "$SWEEPS"); do
    for n in $ranks; do
        for memory in 1 0; do
            for coll in $colls; do
                # small sizes need a long run-up: each kind of slot is new to the caches when it is first used
                for part in "-b 64 -e 32K -n 400 -w 400" "-b 16K -e 16M -n 40 -w 20"; do
                    # shellcheck disable=SC2086 # a list of options
                    run "$UCX_RUN" -n "$n" "$PERF" "$coll" $part -f 2 -c 0 -R $memory --json "$W/one.json"
                    want "$coll, $n ranks, sweep $sweep" 0
                    mv "$W/one.json" "$W/$n.$memory.$coll.$sweep-${part: -2}.json" || bad "no figures of $coll"
                done
            done
        done
    done
done

python3 - "$W" "$LIMIT" <<'PY' >"$W/cliffs"
import collections, glob, json, os, statistics, sys
# Known steps, and how large they may be (docs/performance.md, "No cliff?"): in windows, where the outboxes end and inputs are read
# in place instead; and a reduce of 256 bytes beside the first that streams through other slots.
END_OF_OUTBOXES = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "scatter", "gather", "reduce"}
def allowed(coll, n, memory, place, small):
    if memory == "gyre_mem_alloc" and coll in END_OF_OUTBOXES and 4096 <= small <= 16384:
        return 2.5
    if coll == "reduce" and small == 256:
        return 1.6
    return float(sys.argv[2])
times = collections.defaultdict(list)
for path in glob.glob(sys.argv[1] + "/*.*.*.*.json"):
    n, memory, coll, _, _ = os.path.basename(path).split(".")
    for row in json.load(open(path))["results"]:
        for place in "out_of_place", "in_place":
            if row[place]:
                times[coll, int(n), "gyre_mem_alloc" if memory == "1" else "malloc", place].append((row["size"], row[place]["p50"]))
for key, samples in sorted(times.items()):
    sizes = sorted({size for size, _ in samples})
    median = {s: statistics.median(t for size, t in samples if size == s) for s in sizes}
    for small, large in zip(sizes, sizes[1:]):
        if median[small] > allowed(*key, small) * median[large]:
            print("%s, %d ranks, %s, %s: %d bytes take %.2f us, %d bytes %.2f us" % (*key, small, median[small], large, median[large]))
PY
check "the figures can be read" [ $? = 0 ]
cat "$W/cliffs"
check "no size but the known ones is slower than $LIMIT times the next larger" [ ! -s "$W/cliffs" ]
finish
