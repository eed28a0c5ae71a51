#!/bin/bash
# tests/pipeline/killed.sh: a rank is killed in the middle of training over UCX, with buckets and gathered weights under way that go by
# rendezvous: the others end with its name, of an error of their own and not of a signal, and soon.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
TRAIN=$B/bin/gyre-train
export DEADLINE=50
for i in $(seq 0 899); do
    echo "the $((i * i % 97)) quick brown foxes jump over $((i % 13)) lazy dogs"
done >"$W/text"
RUN=(--data "$W/text" --layers 2 --hidden 256 --heads 4 --seq 8 --batch 8 --vocab 2048 --steps 10000 --bucket-bytes 2M
    --sample-tokens 0 --peak-flops 1e9 --report none --progress none)

for layout in "--zero 2" "--zero 3"; do
    # shellcheck disable=SC2086 # lists of options
    GYRE_TRANSPORT=ucx GYRE_FAULT=1:40:kill run "$UCX_RUN" -n 4 --no-kill-on-bad-exit --timeout 45 "$TRAIN" "${RUN[@]}" $layout
    want "$layout: the rank was killed" 137 'rank 1 .*killed|rank 1 .*signal 9'
    for rank in 0 2 3; do
        check "$layout: rank $rank ends of an error" grep -qE "rank $rank .*exited with code 1 after the error: .*died" "$W/err"
    done
done
finish
