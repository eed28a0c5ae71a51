#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/transport.sh: the toy transport has its row and its word, joins ranks, and is taken
# only by name.
$MAKE build/tests/comm/test_transports build/bin/ucx-run build/bin/gyre-perf build/bin/gyre-doctor
build/tests/comm/test_transports
for n in 2 3; do
    GYRE_LOG=info build/bin/ucx-run -n $n --timeout 60 \
        build/bin/gyre-perf all_reduce --transport toy -b 8 -e 4M -f 64 -n 2 -w 1 -c 1 2>&1 |
        tee toy.out
    grep 'toy: a link to rank 1' toy.out
    grep 'Out of bounds values : 0 OK' toy.out
done
GYRE_HOST_RANKS=1 GYRE_LOG=debug build/bin/ucx-run -n 2 --timeout 60 \
    build/bin/gyre-perf barrier -n 2 >toy.out 2>&1
grep 'link to rank 1, lane 0: ucx' toy.out
[ "$(tools/check-layers | grep -c toy)" = 0 ]
bash tests/system/documents.sh
