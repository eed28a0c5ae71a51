#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/collectives/comms/life_calls.sh: mp_life.c has every call of libgyre that takes a communicator.
. "$(dirname "$0")/../../support/lib.sh"
for header in include/gyre/*.h; do
    [ "$header" = include/gyre/train.h ] || cat "$header" # gyre_train_create is libgyre-train's
done | tr '\n' ' ' | grep -oE 'GYRE_API [^;]*\bgyre_comm_t \*[a-z][^;]*;' |
    sed -E 's/^GYRE_API [^(]*\b(gyre_[a-z0-9_]+)\(.*/\1/' | sort -u >"$W/calls"
check "there are calls" [ "$(wc -l <"$W/calls")" -gt 100 ]
while read -r call; do
    check "mp_life.c lacks $call" grep -q "\b$call(" tests/collectives/comms/mp_life.c
done <"$W/calls"
finish
