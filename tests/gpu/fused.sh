#!/bin/bash
# tests/gpu/fused.sh: examples/fused_all_reduce on an emulated GPU: a rank in each process, with the bits of gyre_all_reduce.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
EMULATED=$PWD/build/emulated/examples/fused_all_reduce
[ -x "$EMULATED" ] || skip "no emulated build here (make emulated)"
for n in 1 2 3 4 7; do
    run "$UCX_RUN" -n $n --timeout 60 "$EMULATED" 1003
    want "fused_all_reduce on $n" 0
    check "fused_all_reduce on $n: the bits" [ "$(grep -c "of $n: 0 of 3009 elements differ" "$W/out")" = $n ]
done
run "$UCX_RUN" -n 1 --timeout 60 "$EMULATED" 0
want "no elements" 2 'usage'
# shellcheck disable=SC2016 # each rank's own
run "$UCX_RUN" -n 2 --timeout 20 sh -c '[ "$GYRE_RANK" = 0 ] && exec "$0" 1003; exec "$0" 4000000000000000' "$EMULATED"
want "a rank without memory ends the job" 1 'malloc: no memory'
check "a rank without memory: the other heard why" grep -q 'a rank of fused_all_reduce failed' "$W/err"
finish
