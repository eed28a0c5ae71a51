#!/bin/bash
# tests/tools/train/test_fits.sh: a run that a host has no memory for is refused before anything is taken, in one line, once;
# what a run takes is printed when it starts.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
RUN=(--data tests/support/english.txt --seq 32 --batch 4 --steps 2 --warmup 1 --eval-sequences 4 --report none --sample-tokens 0 --peak-flops 1e9)
LARGE=(--layers 96 --hidden 12288 --heads 96)
TELLS='this run needs at least [0-9.]+ TiB for'

run "$TRAIN" "${RUN[@]}" --layers 2 --hidden 32 --heads 4
want "a small run" 0
check "what it takes" grep -qE "^[0-9.]+ [KM]iB of memory on the fullest rank \(0\): weights [0-9.]+ KiB, gradients [0-9.]+ KiB, .*activations" "$W/out"
run "$TRAIN" "${RUN[@]}" "${LARGE[@]}"
want "one rank" 1 "$TELLS 1 rank, and the host has, with its swap, .*: take --zero 1, 2 or 3, "
check "one line" [ "$(wc -l <"$W/err")" = 1 ]
for options in "--tp 2" "--pp 2" "--zero 3"; do
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" "${LARGE[@]}" $options
    want "two ranks, $options" 1 "$TELLS the 2 ranks of this host, "
    check "two ranks, $options: said once" [ "$(grep -c "needs at least" "$W/err")" = 1 ]
done
finish
