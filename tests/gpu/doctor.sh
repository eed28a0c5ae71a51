#!/bin/bash
# tests/gpu/doctor.sh: gyre-doctor on a GPU, emulated, with a stand-in for NVML: errors of memory and what holds clocks back, also compared
# between ranks.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
D=$B/emulated/bin/gyre-doctor
[ -x "$D" ] || skip "no emulated build here (make emulated)"
run "$D"
want "without NVML" 0
check "nothing is said of clocks" sh -c '! grep -q "CUDA 0, clocks" "$1"' - "$W/out"
"${CC:-cc}" -shared -fPIC -o "$W/libnvidia-ml.so.1" tests/gpu/fake_nvml.c || bad "the stand-in was not built"
export LD_LIBRARY_PATH=$W${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
FAKE_BRAKES=3 run "$D" # idle, and clocks that a person has set
want "a sound GPU" 0
check "no errors" grep -qE 'CUDA 0, ECC +on, 0 errors that could not be corrected$' "$W/out"
check "clocks" grep -qE 'CUDA 0, clocks +not held back$' "$W/out"
# shellcheck disable=SC2016 # each rank's own
run "$UCX_RUN" -n 3 bash -c '[ "$GYRE_RANK" != 1 ] || export FAKE_ERRORS=2 FAKE_BRAKES=0x44; exec "$0" --compare' "$D"
want "a rank whose GPU is not sound" 1
check "its errors" grep -qE '^    on, 2 errors that could not be corrected +rank 1 ' "$W/out"
check "its clocks" grep -qE '^    held back: power limit, heat +rank 1 ' "$W/out"
check "nothing else" grep -qE ' things are alike, 2 differ\.$' "$W/out"
FAKE_ERRORS=2 run "$D"
check "what to do" grep -q 'nvidia-smi -q -d ECC' "$W/out"
finish
