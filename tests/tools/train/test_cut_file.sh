#!/bin/bash
# tests/tools/train/test_cut_file.sh: a file of the data that gets shorter during a run is named in one line.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
ulimit -c 0
SMALL=(--layers 1 --hidden 32 --heads 2 --seq 32 --batch 8 --sample-tokens 0 --steps 1000000 --time-limit 20
    --report none --progress none)
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }' >"$W/text"
cp "$W/text" "$W/other"
# cut_at_step LOG FILE: makes the file shorter once the log has a step
cut_at_step() {
    until grep -qs '"step":1,' "$1"; do sleep 0.02; done
    truncate -s 4096 "$2"
}
for args in "--data $W/text --eval-sequences 1" "--data 1:$W/other,1:$W/text" "--data $W/other --valid-data a=$W/other,b=$W/text --eval-every 1 --eval-sequences 8"; do
    awk 'BEGIN { for (i = 0; i < 20000; i++) printf "line %d of verse has %d words, and more follow.\n", i, i * 7 % 23 }' >"$W/text"
    rm -f "$W/log"
    cut_at_step "$W/log" "$W/text" &
    # shellcheck disable=SC2086 # words
    run "$B/bin/gyre-train" $args "${SMALL[@]}" --log "$W/log"
    wait
    want "cut: $args" 135 "^gyre-train: $W/text got shorter while it was read: "
    check "in one line" test "$(grep -c . "$W/err")" = 1
done
run bash -c '"$0" "${@:2}" --log "$1" & until grep -qs "\"step\":1," "$1"; do sleep 0.02; done; kill -BUS $!; wait $!' "$B/bin/gyre-train" \
    "$W/log2" --data "$W/other" "${SMALL[@]}"
check "another SIGBUS ends it, too" test "$rc" = 135
check "and names no file" test "$(grep -c 'got shorter' "$W/err")" = 0
finish
