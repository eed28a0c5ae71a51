#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/contributing/reduction.sh: the toy reduction has the right bits in the kernels of every instruction
# set, and in collectives. gyre/types.h changes almost every object; those of training are not needed here,
# and stay (-o).
$MAKE -o build/lib/libgyre-train.a build/tests/collectives/kernels/test_kernels build/tests/tools/perf/test_perf \
    build/bin/ucx-run build/bin/gyre-perf build/bin/gyre-doctor
build/tests/collectives/kernels/test_kernels
build/tests/tools/perf/test_perf
for n in 2 3; do
    for call in all_reduce reduce_scatter reduce; do
        build/bin/ucx-run -n $n --timeout 60 \
            build/bin/gyre-perf $call -o toy -d all -b 64 -e 64K -f 32 -n 2 -w 1 -c 1
    done
done
build/bin/gyre-perf --help | tr '\n' ' ' | grep 'maxloc *toy *mulsum'
bash tests/system/documents.sh
