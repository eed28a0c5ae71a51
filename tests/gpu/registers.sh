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
default=$(env -u CUDA_ARCHES -u MAKEFLAGS make -s CUDA=1 --eval='print-arches:; @echo "$(CUDA_ARCHES)"' print-arches)
built=$(grep -o 'code=[^ ]*' "$B/cuflags") absent=
for n in 80 90 100 120; do
    "${nvcc[@]}" --list-gpu-code | grep -qx "sm_$n" || continue
    check "the Makefile's default has sm_$n" grep -qw "sm_$n" <<<"$default"
    if ! grep -qw "sm_$n" <<<"$built"; then
        absent="$absent sm_$n"
        continue
    fi
    # HOPPER_CU of the Makefile is for sm_90a alone
    lacking=$(find "$B/obj" -name '*.usage' ! -name '*wgmma.cu.usage' -exec grep -L "for 'sm_$n'" {} + | head -1)
    check "machine code for sm_$n${lacking:+, which $lacking lacks}" [ -z "$lacking" ]
done
[ -z "$absent" ] || leave_out "machine code for$absent, which CUDA_ARCHES of this build leaves out"

# A figure that no longer holds is found.
mkdir "$W/build"
(cd "$B" && find obj -name '*.usage' -exec cp --parents {} "$W/build" \;)
sed -i 's/Used 255 registers/Used 253 registers/' "$W/build/obj/model/gpu/attention/mma.cu.usage"
run /usr/bin/python3 tests/gpu/registers.py "$W/build"
check "another figure is found" [ "$rc" = 1 ]
check "and what it is" grep -q 'does not say: | attention backward, bf16, dq | 253, 253, 253 |' "$W/out"
sed -i 's/Used 108 registers/Used 136 registers/' "$W/build/obj/model/gpu/attention/wgmma.cu.usage"
run /usr/bin/python3 tests/gpu/registers.py "$W/build"
check "more registers are fewer blocks" grep -q 'does not say: | forward | 136, 164 | none | 48, 96 | 1, 1 |' "$W/out"
finish
