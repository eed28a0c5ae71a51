#!/bin/bash
# tests/tools/perf/test_gyre_perf_more.sh: gyre-perf beyond one table: cold buffers, streams, overlap, buckets.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=60

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

# --- --persistent ---
for coll in all_reduce reduce_scatterv all_gatherv gatherv scatterv alltoallv broadcast barrier neighbor_exchange; do
    run "$UCX_RUN" -n 3 "$PERF" $coll -b 8 -e 32K -f 64 -n 3 --persistent -m 2 -J "$W/persistent.json"
    right "$coll --persistent -m 2"
    check "$coll: persistent in the JSON" json "$W/persistent.json" 'd["config"]["persistent"]'
done
check "the output says that operations are persistent" grep -q '^# persistent operations: made once' "$W/out"
run "$PERF" sendrecv --persistent
want "persistent messages" 2 '--persistent: sendrecv has no persistent form'
run "$PERF" all_reduce --persistent --streams 2
want "persistent operations on streams" 2 'not together with --streams'

# --- --streams ---
for coll in all_reduce all_to_allv broadcast sendrecv neighbor_exchange barrier; do
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
want "no streams" 2 '--streams 0: wants a whole number from 1 to 64'
run "$PERF" all_reduce --streams 2 --order canonical,fast
want "streams and both orders" 2 'not together with --cold or --streams'
run "$PERF" latency --cold
want "cold latency" 2 '--cold.* go with the usual table'

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
check "every collective" [ "$(rows | awk '{print $5}' | sort -u | wc -l)" = 18 ]
check "computes as long as it was told, or longer" json "$W/overlap.json" 'all(x["compute"] > 25 for x in r)'
run "$UCX_RUN" -n 2 "$PERF" overlap -b 0 -e 64 -f 8 -d uint8 -n 2 --progress none -J "$W/overlap.json"
right "overlap -b 0"
check "sizes after 0" json "$W/overlap.json" '[x["size"] for x in r] == [0, 1, 8, 64]'
run "$UCX_RUN" -n 2 "$PERF" overlap -b 0 -e 0 -n 2 --progress none -J "$W/overlap.json"
right "overlap -e 0"
check "no size but 0" json "$W/overlap.json" '[x["size"] for x in r] == [0]'
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 1000T -e 1000T
want "more than the memory" 3 'the buffers of 2 ranks on this host need 3.9 PiB, and it has .*: take a smaller -e or -m'
check "more than the memory: said once" [ "$(grep -c 'the buffers of' "$W/err")" = 1 ]
run "$PERF" overlap nonesuch
want "an unknown collective" 2 '"nonesuch" is no collective'
run "$UCX_RUN" -n 2 "$PERF" overlap --progress maybe
want "an unknown way of progress" 2 '--progress maybe: wants one of none.polled.thread.all'
check "said once" [ "$(grep -c 'progress maybe' "$W/err")" = 1 ]
run "$PERF" overlap -b 4K -e 1K
want "sizes the wrong way round" 2 'larger than the last'
run "$PERF" overlap --help
want "help" 0
check "help names its options" grep -q -- '--polls N' "$W/out"

# --- bucket ---
printf '# sizes\n1000\n  70000 # a large one\n\n1\n16381\n' >"$W/model"
run "$UCX_RUN" -n 3 "$PERF" bucket --model "$W/model" --bucket-bytes 4K,128K,1M -n 3 -c 2 -J "$W/bucket.json"
right "bucket"
check "a row per size of bucket" [ "$(rows | awk '{print $1}' | tr '\n' ' ')" = "4096 131072 1048576 " ]
check "16 columns" [ "$(rows | awk '{print NF}' | sort -u)" = 16 ]
check "as many buckets as tensors' borders allow" [ "$(rows | awk '{print $2}' | tr '\n' ' ')" = "4 3 1 " ]
check "each curve has one best point" [ "$(grep -c '<- best$' "$W/out")" = 2 ]
check "what the model is" grep -q '4 tensors, 87382 elements of type float, 0.3 MB; the largest has 70000' "$W/out"
check "keys" json "$W/bucket.json" 'all({"bucket_bytes", "buckets", "size", "count", "type", "redop", "time", "alg_bw", "bus_bw", "one", "one_ratio", "each", "each_ratio", "compute", "step", "exposed", "hidden", "hidden_fraction", "gain", "nwrong", "experiment_name"} <= set(x) for x in r)'
check "the model in the JSON" json "$W/bucket.json" 'd["config"]["tensors"] == 4 and d["config"]["elements"] == 87382 and d["config"]["largest"] == 70000'
check "figures" json "$W/bucket.json" 'all(x["time"] > 0 and x["one"] > 0 and x["each"] > 0 and x["compute"] > 0 and x["nwrong"] == 0 and 0 <= x["hidden_fraction"] <= 1 and 0 < x["exposed"] < 1.5 * x["step"] for x in r)'
check "the best of each curve" json "$W/bucket.json" 'd["best_bucket_bytes"] == max(r, key=lambda x: x["one_ratio"])["bucket_bytes"] and d["best_step_bucket_bytes"] == max(r, key=lambda x: x["gain"])["bucket_bytes"]'
run "$UCX_RUN" -n 2 "$PERF" bucket --model "$W/model" -b 4K -e 1G -f 16 -d bf16 -n 1 --compute 0 -J "$W/bucket.json"
right "bucket without computing"
check "sizes end where one bucket holds all" [ "$(rows | awk '{print $1}' | tr '\n' ' ')" = "4096 65536 1048576 " ]
check "no figures of a step" [ "$(rows | awk '{print $10 $11 $12 $13 $14 $15}' | sort -u)" = N/AN/AN/AN/AN/AN/A ]
check "nor in the JSON" json "$W/bucket.json" 'all(x["step"] is None and x["hidden"] is None and x["type"] == "bfloat16" for x in r) and "best_step_bucket_bytes" not in d'
run "$UCX_RUN" -n 2 "$PERF" bucket --model "$W/model" --bucket-bytes 64K -n 2 --compute 2 --progress-thread -J "$W/bucket.json"
right "bucket with a progress thread"
check "computes as long as it was told, or longer" json "$W/bucket.json" 'd["config"]["progress_thread"] and all(x["compute"] > 1000 for x in r)'
run "$UCX_RUN" -n 2 "$PERF" bucket --model "$W/model" --bucket-bytes 64K -d complex128 -n 1 -w 0 --compute 0
right "bucket of the largest type"
run "$UCX_RUN" -n 2 "$PERF" bucket --model bloom --bucket-bytes 16M -n 1 -w 0 --compute 0
right "bucket --model bloom"
check "BLOOM's tensors" grep -q 'model bloom: 2525 tensors, 41924352 elements' "$W/out"
run "$PERF" bucket --bucket-bytes 512M -n 1 -w 0 --compute 0 -c 0
want "bucket alone, GPT-2's tensors" 0
check "GPT-2's tensors" grep -q 'model gpt2: 148 tensors, 124439808 elements of type float, 497.8 MB; the largest has 38597376' "$W/out"
check "no check" [ "$(rows | awk '{print $16}')" = N/A ]
run "$UCX_RUN" -n 2 "$PERF" bucket --model gpt5
want "an unknown model" 2 'gpt5: neither gpt2 nor bloom, and no file'
check "said once" [ "$(grep -c 'gpt5' "$W/err")" = 1 ]
printf '12\n13x\n' >"$W/model"
run "$PERF" bucket --model "$W/model"
want "a file that is no list" 2 'line 2 is not a number of elements'
: >"$W/model"
run "$PERF" bucket --model "$W/model"
want "an empty file" 2 'no tensor in it'
cp "$W/model" "$W/only"
run "$PERF" bucket --model "$W/only" -J "$W/only" --bucket-bytes 1M
want "results over the model" 2 "--json $W/only would replace $W/only, which is read: name another file"
check "which is still there" cmp -s "$W/model" "$W/only"
run "$PERF" bucket --bucket-bytes 64K,,1M
want "a malformed list" 2 '64K,,1M: not a list of at most'
run "$PERF" bucket -b 1M -e 64K
want "sizes the wrong way round" 2 'sizes from -b 1048576 to -e 65536: none'
run "$PERF" bucket gpt2
want "a word" 2 'does not know what to do with "'

finish
