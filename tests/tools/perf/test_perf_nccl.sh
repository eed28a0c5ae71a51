#!/bin/bash
# tests/tools/perf/test_perf_nccl.sh: what gyre-perf takes as nccl-tests does: -I, -K, -z, -M, -F and NCCL_TESTS_SPLIT; and
# output files that cannot be written.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"

rows() { grep -v '^#' "$W/out"; }

# ---- times of single iterations
run "$UCX_RUN" -n 3 "$PERF" all_reduce -b 8 -e 1.5K -f 192 -n 10 -w 1 -I 1 -K 3 -M 1 -z 3 -a 3 -J "$W/i.json" -F "$W/i.csv"
want "-I, -K, -M, -z, -F" 0
check "1.5K is a size; eight columns more" [ "$(rows | awk '{print $1, NF}' | paste -sd,)" = "8 25,1536 25" ]
check "least <= p99 <= most, in both halves" [ -z "$(rows | awk '!($18 <= $20 && $20 <= $19 && $22 <= $24 && $24 <= $23)')" ]
check "the figures are those of the times, without the first 3" json "$W/i.json" \
    'all(len(h["times_us"]) == 10 and abs(h["i_min"] - min(h["times_us"][3:])) < 1e-9 and abs(h["i_max"] - max(h["times_us"][3:])) < 1e-9 for r in d["results"] for h in (r["out_of_place"], r["in_place"]))'
check "the time is their mean at the slowest rank, at most" json "$W/i.json" \
    'all(h["time"] <= sum(h["times_us"]) / 10 * 1.000001 for r in d["results"] for h in (r["out_of_place"], r["in_place"]))'
check "memory" json "$W/i.json" 'd["memory"]["private_bytes"] > 0 and d["memory"]["shared_bytes"] > 0 and d["memory"]["peak_bytes"] > 1 << 20'
check "memory is printed" grep -qE '^# Memory, most of any rank : communicator .* shared and .* of its own; process .* at its peak$' "$W/out"
check "CSV: heads, and a line for each half" [ "$(cut -d, -f1,6 "$W/i.csv" | paste -sd' ')" = "size,place 8,out 8,in 1536,out 1536,in" ]
check "CSV: as many fields everywhere" [ "$(awk -F, '{print NF}' "$W/i.csv" | sort -u | wc -l)" = 1 ]
check "CSV: the JSON file's figures" python3 -c '
import csv, json, sys
rows = list(csv.DictReader(open(sys.argv[2])))
halves = [r[k] for r in json.load(open(sys.argv[1]))["results"] for k in ("out_of_place", "in_place")]
assert len(rows) == len(halves)
assert all(abs(float(row[k]) - half[k]) <= 1e-6 * half[k] for row, half in zip(rows, halves) for k in ("time", "i_p99", "bus_bw"))
' "$W/i.json" "$W/i.csv"
run "$PERF" all_reduce -K 1
want "-K alone" 2 '-K 1: only with -I 1'
run "$PERF" all_reduce -I 1 -n 5 -K 5
want "nothing is left" 2 '-K 5: fewer than the iterations'
run "$PERF" all_reduce -I 1 --explain
want "another table" 2 '-I 1: goes with the usual table'
run "$PERF" all_reduce -b 8 -e 8 -F "$W/same" -J "$W/./same"
want "one file for both" 2 'one file for -F and -J'
run "$PERF" all_reduce -z 4
want "no such -z" 2 '--blocking 4'

# ---- groups
split() { # VALUE EXPECTED: the groups of 5 ranks
    run env NCCL_TESTS_SPLIT="$1" "$UCX_RUN" -n 5 "$PERF" broadcast -r all -b 8 -e 4K -f 512 -n 2 -w 0 -J "$W/s.json"
    want "NCCL_TESTS_SPLIT='$1'" 0
    check "$1: groups" json "$W/s.json" "[x['group'] for x in d['devices']] == $2"
    check "$1: a line for each" [ "$(grep -c '^# Group .*average bus bandwidth' "$W/out")" = "$(json_groups "$2")" ]
}
json_groups() { python3 -c "print(len(set($1)))"; }
split "MOD 2" "[0, 1, 0, 1, 0]"
split "/2" "[0, 0, 1, 1, 2]"
check "roots of the smallest group" json "$W/s.json" '[r["root"] for r in d["results"]] == [0, 0]'
check "sizes of groups" json "$W/s.json" '[(g["group"], g["first_rank"], g["size"]) for g in d["groups"]] == [(0, 0, 2), (1, 2, 2), (2, 4, 1)]'
run env NCCL_TESTS_SPLIT_MASK=2 "$UCX_RUN" -n 3 "$PERF" all_reduce -b 8 -e 8 -n 2 -J "$W/s.json"
want "NCCL_TESTS_SPLIT_MASK" 0
check "the mask: groups" json "$W/s.json" "[x['group'] for x in d['devices']] == [0, 0, 2]"
for wrong in MOD "MOD x" "MOD 0" "XOR 1" "MOD -2"; do
    run env NCCL_TESTS_SPLIT="$wrong" "$PERF" all_reduce
    want "NCCL_TESTS_SPLIT='$wrong'" 2 "NCCL_TESTS_SPLIT=$wrong: wants AND, OR, MOD or DIV"
done
run env NCCL_TESTS_SPLIT="MOD 2" "$UCX_RUN" -n 3 "$PERF" broadcast -r 1 -b 8 -e 8
want "a root that one group lacks" 2 '-r 1: the smallest group has the ranks 0..0'

# ---- ranks are processes: what asks for threads or GPUs is referred to ucx-run
run "$PERF" all_reduce -t 2
want "-t 2" 2 '^gyre-perf: --nthreads 2: wants 1; ucx-run -n N starts N ranks$'
if ! "$PERF" all_reduce --memory cuda -b 8 -e 8 >/dev/null 2>&1; then
    run "$PERF" all_reduce -g 8
    want "-g 8 without a GPU" 2 '^gyre-perf: --ngpus 8: .*; ucx-run -n 8 starts 8 ranks on the host$'
fi
cores=$(env -u OMP_NUM_THREADS nproc)
for n in 1 $((cores + 1)); do
    [ "$n" -le 64 ] || continue
    run "$UCX_RUN" -n "$n" --timeout 60 "$PERF" all_reduce -b 8 -e 8 -n 2 -w 1
    want "$n ranks" 0
    check "$n ranks on $cores cores" [ "$(grep -c "^# $n ranks on $cores cores\{0,1\} of " "$W/out")" = $((n > cores)) ]
done

run taskset -c "$(taskset -pc $$ | sed 's/.*: //; s/[-,].*//')" "$UCX_RUN" -n 2 --timeout 60 "$PERF" all_reduce -b 8 -e 8 -n 2 -w 1
want "2 ranks on 1 core" 0
check "2 ranks on 1 core: says so" grep -q '^# 2 ranks on 1 core of ' "$W/out"

# ---- output that cannot be written is known before anything is measured, and what is there stays
echo kept >"$W/kept"
for command in all_reduce latency overlap bucket init recover; do
    run timeout 20 "$PERF" "$command" -J "$W/none/x.json"
    want "$command: -J" 2 "$W/none/x.json cannot be written: No such file or directory"
    check "$command: nothing was measured" [ "$(wc -l <"$W/out")" = 0 ]
done
run "$PERF" all_reduce -F "$W/none/x.csv" -J "$W/kept"
want "-F" 2 "$W/none/x.csv cannot be written"
check "a file that is there stays" [ "$(cat "$W/kept")" = kept ]
check "and none is made" [ ! -e "$W/none" ]
finish
