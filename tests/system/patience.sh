#!/bin/bash
# tests/system/patience.sh: of the ranks that wait for long one says so, and ever more rarely: in a collective, and while
# the job joins, grows or shrinks. GYRE_PATIENCE sets when, and switches it off.
# takes: 20
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"

lines() { grep -cE "$1" "$W/err"; }

check "the program that gets stuck" gcc -std=c17 -O1 -Iinclude tests/tools/stuck.c -L"$B/lib" -lgyre -Wl,-rpath,"$B/lib" -o "$W/stuck"

# Rank RANK of 5 never makes its 21st call; the others give up after 2 s, so lines come after 0.5 and 1.5 s. If each of
# the four others spoke there would be eight.
stuck() { # RANK SETTING...
    local rank=$1
    shift
    run env GYRE_TIMEOUT=2 GYRE_PATIENCE=0.5 "$@" "$UCX_RUN" -n 5 --timeout 30 "$W/stuck" sleep "$rank"
    long=$(lines "^gyre\[.\] warning: [a-z_]+ #2[12] \(.*, tag 10.\) on rank . has waited for .* s: rank $rank on host .* keeps it waiting: it is in no call; its last calls: all_reduce #20 \(count 1, double, sum, tag 10$rank\), #19, #18; .*gyre-doctor --job [0-9a-f]+ shows all ranks of a host; the deadline is 2 s")
}
spoke() { # WHAT
    checks=$((checks + 1))
    [ "$long" -ge 1 ] && [ "$long" -le 4 ] || bad "$1: $long lines"
}
stuck 3
spoke "the last but one is stuck"
stuck 0
spoke "rank 0 is stuck"
stuck 1 GYRE_HOST_RANKS=1 GYRE_TRANSPORT=ucx
spoke "rank 1 is stuck, over UCX"
stuck 2 GYRE_PATIENCE=0
check "0 switches it off" [ "$long" = 0 ]
run env GYRE_TIMEOUT=0 GYRE_PATIENCE=0.5 "$UCX_RUN" -n 2 --timeout 2 "$W/stuck" sleep 1
check "no deadline" grep -q '; there is no deadline (GYRE_TIMEOUT=0)$' "$W/err"
run env GYRE_TIMEOUT=31536000 GYRE_PATIENCE=0.5 "$UCX_RUN" -n 2 --timeout 2 "$W/stuck" sleep 1 # that of gyre-mpi
check "the deadline of a year" grep -q '; the deadline is 31536000 s (GYRE_TIMEOUT)$' "$W/err"

# A rank that comes to gyre_init too late.
late() { # RANK SETTING...
    local rank=$1
    shift
    # shellcheck disable=SC2016 # the ranks' shell expands these
    run env GYRE_INIT_TIMEOUT=1.2 GYRE_PATIENCE=0.3 "$@" "$UCX_RUN" -n 3 --timeout 30 \
        sh -c 'if [ "$GYRE_RANK" = '"$rank"' ]; then exec sleep 30; fi; exec "$0" barrier' "$PERF"
    checks=$((checks + 1))
    [ "$rc" != 0 ] || bad "a missing rank is no error"
    long=$(lines '^gyre\[.\] warning: .*(has waited|waiting) for [01]\.[0-9] s')
}
late 1
check "rank 0 misses rank 1" [ "$(lines '^gyre\[0\] warning: rank 0 has waited for [01]\.[0-9] s for rank\(s\) 1 to join \(2 of 3 are here\)')" = 2 ]
check "nobody else speaks" [ "$long" = 2 ]
late 0
check "rank 1 misses rank 0" [ "$(lines '^gyre\[1\] warning: waiting for [01]\.[0-9] s for .*, which took the connection and does not answer')" = 2 ]
check "nobody else speaks of rank 0" [ "$long" = 2 ]
late 1 GYRE_PATIENCE=0
check "0 switches it off here, too" [ "$long" = 0 ]

# Ranks that do not come to gyre_comm_grow and gyre_comm_shrink, and newcomers that do not.
cat >"$W/members.c" <<'END'
#include <gyre/gyre.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    gyre_config_t config = GYRE_CONFIG_INITIALIZER;
    gyre_comm_t *world, *other;
    config.timeout_s = 1;
    if (argc < 2 || gyre_init(&config, &world))
        return 10;
    if (gyre_comm_rank(world) == 1 && strcmp(argv[1], "grow") != 0)
        sleep(4);
    else if (strcmp(argv[1], "shrink") != 0) {
        const int failed = gyre_comm_grow(world, 1, &other) == GYRE_ERR_TIMEOUT;
        usleep(500000); /* the others hear it */
        return failed ? 3 : 11;
    } else
        _exit(gyre_comm_shrink(world, &other) == GYRE_OK ? 3 : 12);
    return 13;
}
END
check "the program that changes its members" gcc -std=gnu17 -O1 -Iinclude "$W/members.c" -L"$B/lib" -lgyre -Wl,-rpath,"$B/lib" -o "$W/members"
run env GYRE_PATIENCE=0.3 "$UCX_RUN" -n 3 --timeout 30 "$W/members" grow
want "newcomers that do not come" 3 '^gyre\[0\] warning: gyre_comm_grow: rank 0 has waited for 0\.[0-9] s: 0 of 1 newcomers have come$'
check "one error, of the call" [ "$(lines '^gyre\[0\] error: ')" = 1 ]
check "the others hear it" [ "$(lines '^gyre\[2\] error: rank 0: gyre_comm_grow: 0 of 1 newcomers have come')" = 1 ]
run env GYRE_PATIENCE=0.3 "$UCX_RUN" -n 3 --timeout 30 "$W/members" late
want "a rank that does not come to grow" 3 '^gyre\[0\] warning: gyre_comm_grow: rank 0 has waited for 0\.[0-9] s: rank 1 has not come to it$' \
    '^gyre\[0\] error: gyre_comm_grow: rank 0 waited in vain: rank 1 has not come to it$'
run env GYRE_PATIENCE=0.3 "$UCX_RUN" -n 2 --timeout 30 "$W/members" shrink
want "a rank that does not come" 3 \
    '^gyre\[0\] warning: gyre_comm_shrink: rank 0 has waited for 0\.[0-9] s for rank\(s\) 1 to call it, which count as dead after 1 s$'
finish
