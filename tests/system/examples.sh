#!/bin/bash
# tests/system/examples.sh: the examples do what their first lines say, on several numbers of ranks.
. "$(dirname "$0")/../support/lib.sh"
for n in 1 2 3 5; do
    run "$UCX_RUN" -n $n --timeout 30 "$B/examples/heat" 65 48 60
    want "heat on $n" 0
    check "heat on $n is identical" grep -q 'identical to the last bit' "$W/out"
done
run "$UCX_RUN" -n 2 --timeout 30 "$B/examples/heat" 1
want "more ranks than rows" 2 'usage'
python=$(command -v /usr/bin/python3 || command -v python3)
[ -n "$python" ] || skip "there is no python3"
for n in 1 3; do
    run "$UCX_RUN" -n $n --timeout 30 "$python" examples/all_reduce.py "$B/lib/libgyre.so.0"
    want "all_reduce.py on $n" 0
    check "all_reduce.py on $n: every rank is right" [ "$(grep -c ' 0 wrong$' "$W/out")" = $n ]
done
finish
