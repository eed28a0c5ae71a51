#!/bin/bash
# tests/tools/train/test_kinds.sh: tensor-parallel ranks whose OpenBLAS cuts the sums of the head in different places (processors
# of two kinds, here by OPENBLAS_CORETYPE) are refused in one line that names the way out; those of one kind train.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
TRAIN=$B/bin/gyre-train
ldd "$TRAIN" | grep -q libopenblas || skip "not with OpenBLAS"
grep -qw avx2 /proc/cpuinfo || skip "the processor has no AVX2"
RUN=(--tp 2 --layers 1 --hidden 256 --heads 4 --leaves 2 --vocab 4096 --seq 1024 --batch 1 --steps 1 --eval-sequences 1
    --sample-tokens 0 --peak-flops 1e9 --report none)
cat >"$W/kinds" <<'X'
#!/bin/bash
types=($KINDS)
export OPENBLAS_CORETYPE=${types[GYRE_RANK]}
exec "$@"
X
chmod +x "$W/kinds"

KINDS="Haswell Sandybridge" run "$UCX_RUN" -n 2 "$W/kinds" "$TRAIN" "${RUN[@]}"
want "two kinds" 1 "the BLAS of the ranks of a tensor-parallel group does not cut sums alike: run them on processors of one kind, or with one OPENBLAS_CORETYPE"
KINDS="Haswell Haswell" run "$UCX_RUN" -n 2 "$W/kinds" "$TRAIN" "${RUN[@]}"
want "one kind" 0
finish
