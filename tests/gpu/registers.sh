#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/gpu/registers.sh: registers and spills of kernels that documents and comments name are those that nvcc reported.
. "$(dirname "$0")/../support/lib.sh"
[ -e "$B/obj/model/gpu/attention/mma.cu.usage" ] || skip "a build without CUDA"
grep -q sm_90 "$B/obj/model/gpu/attention/mma.cu.usage" || skip "CUDA_ARCHES of this build has no sm_90, of which the figures are"
read -r -a nvcc < <(sed 's/ -D_GNU_SOURCE.*//' "$B/cuflags")
release=$("${nvcc[@]}" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
[ "$release" = 13.0 ] || skip "the figures are those of nvcc 13.0, and here is $release"
check "figures of registers" /usr/bin/python3 tests/gpu/registers.py "$B"

# Machine code for every GPU that the toolkit knows of those that docs/gpu.md names: without it the driver compiles for a minute.
names=$(! grep -q compute_80 "$B/cuflags" || echo 80 90 100 120) # none where CUDA_ARCHES was given
for n in $names; do
    "${nvcc[@]}" --list-gpu-code | grep -qx "sm_$n" || continue
    lacking=$(find "$B/obj" -name '*.usage' -exec grep -L "for 'sm_$n'" {} + | head -1)
    check "machine code for sm_$n${lacking:+, which $lacking lacks}" [ -z "$lacking" ]
done

# A figure that no longer holds is found.
mkdir "$W/build"
(cd "$B" && find obj -name '*.usage' -exec cp --parents {} "$W/build" \;)
sed -i 's/Used 255 registers/Used 253 registers/' "$W/build/obj/model/gpu/attention/mma.cu.usage"
run /usr/bin/python3 tests/gpu/registers.py "$W/build"
check "another figure is found" [ "$rc" = 1 ]
check "and what it is" grep -q 'does not say: | attention backward, bf16, dq | 253, 253, 253 |' "$W/out"
finish
