#!/bin/bash
# tests/tools/train/test_example.sh: examples/train trains with gyre/train.h. The loss falls; on 1 and 2 ranks losses and
# weights are those of gyre-train with the same settings, byte for byte.
# SPDX-License-Identifier: Apache-2.0
# deadline: 120
. "$(dirname "$0")/../../support/lib.sh"
awk 'BEGIN { for (i = 0; i < 300; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }' >"$W/text"
settings() {
    printf '{"data": "%s", "steps": 30, "layers": 2, "hidden": 32, "heads": 4, "seq": 32, "batch": 4, "warmup": 4, "zero": %d,
        "eval-every": 8, "eval-sequences": 5, "log": "%s.log", "save": "%s.safetensors"%s}' \
        "$text" "$3" "$W/$1" "$W/$1" "$2" >"$W/$1.json"
}
text=$W/text
# losses LOG: those of the steps, as the log has them
losses() { python3 -c 'import json, sys
for line in open(sys.argv[1]):
    row = json.loads(line)
    if "loss" in row and "step" in row:
        print(row["step"], row["loss"])' "$1"; }

settings tool ', "report": "none", "sample-tokens": 0' 0
run "$B/bin/gyre-train" --config "$W/tool.json"
want "gyre-train" 0
losses "$W/tool.log" >"$W/tool.losses"
check "it logs every step" [ "$(wc -l <"$W/tool.losses")" = 30 ]
for n in 1 2; do
    settings "example$n" "" $((n - 1))
    (cd "$W" && exec "$UCX_RUN" -n $n --timeout 60 "$B/examples/train" "$W/example$n.json") >"$W/out" 2>"$W/err"
    rc=$?
    want "the example on $n ranks" 0
    check "it says how it went, $n ranks" grep -q '^validation loss [0-9.]*, before training [0-9.]*$' "$W/out"
    losses "$W/example$n.log" >"$W/example$n.losses"
    check "the losses of gyre-train, $n ranks" cmp "$W/tool.losses" "$W/example$n.losses"
    check "its weights, $n ranks" cmp "$W/tool.safetensors" "$W/example$n.safetensors"
    check "no page that nobody asked for" [ ! -e "$W/gyre-train.html" ]
    check "the loss falls" awk '/^step 1 / { first = $4 } /^step 30 / { last = $4 } END { exit !(last < 0.9 * first) }' "$W/out"
done
run "$B/examples/train" '{"data": "'"$text"'", "lerning-rate": 1}'
want "a slip" 1 "lerning-rate: there is no such option"
finish
