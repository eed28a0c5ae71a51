#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/algorithm.sh: the toy algorithm is proved, its TMP is bounded, and it runs by name.
$MAKE build/tests/collectives/schedules/test_generators build/bin/ucx-run build/bin/gyre-perf build/bin/gyre-doctor
build/tests/collectives/schedules/test_generators test_toy 16
build/tests/collectives/schedules/test_generators test_tmp
for n in 2 3; do
    build/bin/ucx-run -n $n --timeout 60 \
        build/bin/gyre-perf all_reduce --algo toy -b 8 -e 1M -f 16 -n 2 -w 1 -c 1 -d all
done
build/bin/gyre-perf --help | grep -A1 '^  all_reduce ' | grep -w toy
[ "$(tools/check-layers | grep -c toy)" = 0 ] # the module's README names the file
bash tests/system/documents.sh
