#!/bin/bash
# tests/bench/test_generate.sh: make bench-generate prints its table, for a tiny model; --order fast names what it gives up.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
run python3 bench/generate.py --build "$B" --rounds 1 --shape tiny
want "bench/generate.py" 0
number='[0-9.]+ \([0-9.]+ to [0-9.]+\)'
for order in canonical fast; do
    check "a row for $order" grep -qE "^\| .$order. \| $number \| $number \|$" "$W/out"
done
run "$B/bin/gyre-train" --layers 1 --hidden 32 --heads 2 --seq 32 --steps 0 --eval-sequences 1 --sample-tokens 0 --report none \
    --data LICENSE --save "$W/model/"
want "a model" 0
for order in canonical fast; do
    run "$B/bin/gyre-generate" --load "$W/model" --tokenizer bytes --prompt a --tokens 4 --order "$order"
    want "--order $order" 0 "4 tokens after 1 prompt of 1 in [0-9.]+ s: [0-9.]+ tokens/s \(set-up [0-9.]+ s\)$"
    [ "$order" = fast ] || check "no price without --order fast" test "$(grep -c price "$W/err")" = 0
done
want "the price of fast" 0 "--order fast: .*The price of the promise"
check "which the page has" grep -qx '### The price of the promise' docs/generate.md
run "$B/bin/gyre-generate" --load "$W/model" --tokenizer bytes --prompt a --tokens 4 --order fast --quiet
check "and --quiet none of it" [ ! -s "$W/err" ]
finish
