#!/bin/bash
# tests/tools/perf/test_gyre_perf.sh: gyre-perf as people call it: alone, under ucx-run, by nccl-tests' names, wrongly.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=60

rows() { grep -vc '^#' "$W/out"; }
right() { # NAME: the last run ended well and says so
    want "$1" 0
    check "$1: 0 wrong" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
}

# --- alone ---
run "$PERF" all_reduce -b 4 -e 64K -f 4 -n 5
right "one rank, no launcher"
check "a row for each size" [ "$(rows)" = 8 ]
check "a figure below each head" [ "$(grep -v '^#' "$W/out" | awk '{print NF}' | sort -u)" = \
    "$(awk '$2 == "size" { print NF - 1 }' "$W/out")" ]
check "nccl-tests' 13 columns come first" grep -qE '^# +size +count +type +redop +root( +time +algbw +busbw +#wrong){2} ' "$W/out"
check "memcpy floor" grep -q '^# memcpy floor (rank 0 alone): [0-9.]* GB/s' "$W/out"
check "load average" grep -q '^# load average [0-9.]' "$W/out"
check "kernels" grep -qE 'kernels (scalar|avx2|avx512|neon)' "$W/out"

# --- every collective ---
help=$("$PERF" --help)
colls=$(sed -n '/^Collectives/,$p' <<<"$help" | sed -n 's/^  \([a-z_]*\) .*/\1/p')
check "defaults of types and operations" [ "$(grep -cE 'or all \((float|sum)\)$' <<<"$help")" = 2 ]
check "18 collectives" [ "$(wc -w <<<"$colls")" = 18 ]
# with every root; other numbers of ranks, and every algorithm that the help names: system/perf_matrix.sh
for coll in $colls; do
    roots=all
    [ "$coll" != reduce ] || roots=2 # of every type and reduction; then every root
    run "$UCX_RUN" -n 3 "$PERF" "$coll" -b 4 -e 4K -f 1024 -n 1 -w 0 -d all -o all -r $roots
    right "$coll, 3 ranks"
done
run "$UCX_RUN" -n 3 "$PERF" reduce -b 4 -e 4K -f 1024 -n 1 -w 0 -d all -r all
right "reduce, every root"

# --- options ---
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 1K -e 4K -f 2 -n 3 -m 4 -N 2 -u 3 -R 0 -c 2 -a 3 -S --inplace 0
right "many options"
check "two cycles of three sizes" [ "$(rows)" = 6 ]
check "no in-place figures" [ "$(grep -v '^#' "$W/out" | awk '{print $10 $11 $12 $13}' | sort -u)" = N/AN/AN/AN/A ]
for coll in all_reduce all_to_allv broadcast; do # every operation of a group has data of its own
    run "$UCX_RUN" -n 3 "$PERF" $coll -b 4 -e 64K -f 16 -n 2 -m 5 -c 2
    right "$coll -m"
done
for transport in shm ucx; do
    run "$UCX_RUN" -n 2 "$PERF" all_to_all -b 4 -e 256K -f 64 -n 2 --transport $transport
    right "--transport $transport"
done
run "$UCX_RUN" -n 3 "$PERF" all_reduce -b 8 -e 64K -f 8 -n 2 --order fast -d half
right "--order fast"
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 2 -c 0
want "no check" 0
check "#wrong is N/A" [ "$(grep -v '^#' "$W/out" | awk '{print $9 $13}')" = N/AN/A ]

# --- nccl-tests' names ---
run "$UCX_RUN" -n 2 "$B/bin/alltoall_perf" -b 1K -e 1K -n 2 -g 1
right "alltoall_perf"
run "$B/bin/all_reduce_perf" all_gather -b 1K -e 1K -n 2
want "another collective than the name's" 2 'one collective at a time, not also "all_gather"'

# --- JSON ---
run "$UCX_RUN" -n 2 "$PERF" -b 8 -e 512 -f 8 all_reduce -n 10 -J "$W/perf.json"
right "--json"
check "keys" json "$W/perf.json" '{"version", "args", "env", "gyre_version", "config", "devices", "results", "out_of_bounds", "average_bus_bandwidth", "errors"} <= set(d)'
check "devices" json "$W/perf.json" '[r["rank"] for r in d["devices"]] == [0, 1] and all(r["pid"] > 0 and r["hostname"] for r in d["devices"])'
check "sizes" json "$W/perf.json" '[r["size"] for r in d["results"]] == [8, 64, 512] and [r["count"] for r in d["results"]] == [2, 16, 128]'
check "figures" json "$W/perf.json" 'all(h["time"] > 0 and h["nwrong"] == 0 and 0 < h["min"] <= h["p50"] <= h["p99"] <= h["max"] for r in d["results"] for h in (r["out_of_place"], r["in_place"]))'
check "arguments as typed" json "$W/perf.json" 'd["args"][1:3] == ["-b", "8"] and d["args"][7] == "all_reduce"'
check "no secret" sh -c "! grep -qi secret '$W/perf.json'"
check "no errors" json "$W/perf.json" 'd["errors"] == [] and d["out_of_bounds"] == {"count": 0, "okay": "true"}'

# --- wrong use: one line, from one rank, before anything is sent ---
run "$UCX_RUN" -n 3 "$PERF" all_reduce --algo nonesuch
want "an unknown algorithm" 2 'no such algorithm; all_reduce has: .*(ring|direct)'
check "said once" [ "$(grep -c 'no such algorithm' "$W/err")" = 1 ]
run "$PERF" all_reduce --algo bruck
want "an algorithm of other collectives" 2 'does not serve this collective; all_reduce has: '
run "$UCX_RUN" -n 2 "$PERF" broadcast -r 2 -b 8 -e 8
want "a root that does not exist" 2 'the ranks are 0..1'
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -G 1
want "a flag of nccl-tests that means nothing here" 2 '--cudagraph 1: wants 0'
run "$PERF" all_reduce -b 8 -e 8 -J "$W/none/perf.json"
want "no place for the JSON" 2 'none/perf.json'

# --- ranks that disagree: an error that says so, not a hang ---
run "$UCX_RUN" -n 2 sh -c "exec '$PERF' all_reduce -n 2 -T 20 -b \$((64 << GYRE_RANK)) -e \$((64 << GYRE_RANK))"
want "different counts" 3 'gyre\[[01]\] error: .*all_reduce'
check "each rank says it once" [ "$(grep -cE '^gyre.*all_reduce' "$W/err")" -le 2 ]
GYRE_LOG=none run "$UCX_RUN" -n 2 sh -c "exec '$PERF' all_reduce -n 2 -T 20 -b \$((64 << GYRE_RANK)) -e \$((64 << GYRE_RANK))"
want "different counts, with a silent library" 3 'gyre-perf: rank [01]: .*all_reduce'
check "each rank says it once" [ "$(grep -cE '^gyre.*all_reduce' "$W/err")" -le 2 ]
check "soon" [ "$ms" -lt 15000 ]

run env GYRE_TRANSPORT=nonsense "$PERF" all_reduce -b 8 -e 8 -n 1
want "a setting that is malformed" 2 'GYRE_TRANSPORT="nonsense" is malformed'
check "that is said once" [ "$(grep -c nonsense "$W/err")" = 1 ]
finish
