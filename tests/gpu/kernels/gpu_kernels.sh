#!/bin/bash
# tests/gpu/kernels/gpu_kernels.sh: the program that times kernels says in one line that there is no GPU, and on an emulated one goes through
# everything and writes what it saw.
# usage: gpu_kernels.sh
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
KERNELS=$B/tests/gpu/kernels/gpu_kernels
EMULATED=$PWD/build/emulated/tests/gpu/kernels/gpu_kernels
[ -x "$KERNELS" ] || skip "a build without CUDA"

if ! [ -e /dev/nvidiactl ]; then
    run "$KERNELS" --tiny
    want "without a GPU" 2 '^gpu_kernels: .*(driver|GPU)'
    check "one line" [ "$(wc -l <"$W/err")" = 1 ]
fi
run "$KERNELS" --tinny
want "a flag that is none" 1 '^usage: '

if [ -x "$EMULATED" ]; then
    run "$EMULATED" --tiny --json "$W/result.json"
    want "emulated" 0
    check "a line for each figure" [ "$(grep -c ' us ' "$W/out")" -ge 15 ]
    check "the JSON" /usr/bin/python3 - "$W/result.json" <<'PY'
import json, sys
result = json.load(open(sys.argv[1]))
rows = result["rows"]
assert result["device"] and result["products"] and result["matrix_tflops"] > 0
assert sum("share" in row for row in rows) >= 6 and sum("goal" in row for row in rows) == 2
assert all(row["us"] > 0 and row["rate"] > 0 for row in rows)
assert any("backward" in row["name"] for row in rows)
PY
    EMULATED_MEMORY=72 run "$EMULATED"
    want "a device without room for any row" 1
    check "each row says so, and the others go on" [ "$(grep -cE '^failed: [^;]+; cudaMalloc.*: out of memory$' "$W/out")" = 14 ]
    check "which by name" grep -q '^failed: own, bf16: logits \[8192,768\] x \[768,50304\]; ' "$W/out"
    run "$EMULATED" --device 99
    want "a GPU that is not there" 2 'no number 99'
else
    leave_out "the rows: no emulated build here (make emulated)"
fi
finish
