#!/bin/bash
# tests/gpu/train.sh: gyre-train --device cuda: says in one line that there is no GPU, and on an emulated one learns what the CPU learns, in
# every layout the same bits; what it cannot do is refused before the first step.
# usage: train.sh
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
EMULATED=$PWD/build/emulated/bin/gyre-train
for i in $(seq 60); do echo "the quick brown fox $i jumps over the lazy dog"; done >"$W/text"
SMALL=(--data "$W/text" --layers 2 --hidden 32 --heads 4 --seq 8 --batch 4 --steps 2 --eval-every 0 --eval-sequences 1
    --sample-tokens 0 --report none --progress none)

if ! [ -e /dev/nvidiactl ]; then
    run "$B/bin/gyre-train" "${SMALL[@]}" --device cuda
    want "without a GPU" 2 '^gyre-train: --device cuda: .'
    check "one line" [ "$(wc -l <"$W/err")" = 1 ]
fi
if ! [ -x "$EMULATED" ]; then
    skip "no emulated build here (make emulated): only the refusal was checked"
fi

# train NAME PROGRAM FLAGS...: on as many ranks as tp x pp x dp, its log in $W/NAME
train() {
    local name=$1 ranks=$2 program=$3
    shift 3
    run "$B/bin/ucx-run" -n "$ranks" "$program" "${SMALL[@]}" --log "$W/$name" "$@"
    want "$name" 0
}
train cpu 1 "$B/bin/gyre-train"
train one 1 "$EMULATED" --device cuda
train zero 2 "$EMULATED" --device cuda --dp 2 --zero 3 --micro-batch 2
train pipeline 2 "$EMULATED" --device cuda --pp 2 --trace "$W/trace" --trace-steps 2:2
train away 1 "$EMULATED" --device cuda --layers 4 --micro-batch 2 --recompute full --offload-activations
train stays 1 "$EMULATED" --device cuda --layers 4 --micro-batch 2
train away_pipeline 2 "$EMULATED" --device cuda --layers 4 --pp 2 --schedule zb-h1 --recompute full --offload-activations
check "losses near the CPU's, one curve on the GPU" /usr/bin/python3 - "$W" <<'PY'
import json, sys
def read(name):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}")]
    losses = [row["loss"] for row in rows if "loss" in row]
    return losses, [row["weights_hash"] for row in rows if "weights_hash" in row]
cpu, one = read("cpu"), read("one")
assert len(one[0]) >= 2 and len(one[1]) == 1
assert all(abs(a - b) <= 1e-5 * a for a, b in zip(cpu[0], one[0])), (cpu, one)
assert read("zero") == one and read("pipeline") == one
assert len(read("stays")[0]) >= 2 and read("away") == read("stays") == read("away_pipeline")
assert json.load(open(f"{sys.argv[1]}/trace"))
PY
run "$EMULATED" "${SMALL[@]}" --device cuda --precision fp16
want "fp16" 2 'bf16'
run "$EMULATED" "${SMALL[@]}" --device cuda --offload-activations
want "offload without recomputation" 2 'needs --recompute full'
run "$EMULATED" "${SMALL[@]}" --recompute full --offload-activations
want "offload on the CPU" 2 'is for --device cuda'
run "$EMULATED" "${SMALL[@]}" --device cuda --optimizer muon
want "Muon" 2 '--optimizer muon is for --device cpu: a GPU has AdamW alone'
run "$EMULATED" "${SMALL[@]}" --device cuda --ep 2
want "expert parallelism" 2 '--ep 2 is for --device cpu: leave it out'
run "$EMULATED" "${SMALL[@]}" --device cuda --offload "$W"
want "state in a file" 2 '--offload is for --device cpu: leave it out'
run "$EMULATED" "${SMALL[@]}" --device cuda --lr-scale '*=2'
want "rates by name" 2 '--lr-scale is for --device cpu'

# ---- more losses from one pass than a GPU otherwise owes
WIDE=("${SMALL[@]}" --layers 1 --hidden 8 --heads 1 --seq 2 --batch 1040 --micro-batch 1040 --grad-sequences 1040 --steps 1)
run "$B/bin/gyre-train" "${WIDE[@]}" --log "$W/wide_cpu"
want "a wide batch on the CPU" 0
run "$EMULATED" "${WIDE[@]}" --device cuda --log "$W/wide"
want "a wide batch" 0
check "and the CPU's loss" /usr/bin/python3 - "$W" <<'PY'
import json, sys
cpu, gpu = [[row["loss"] for row in map(json.loads, open(f"{sys.argv[1]}/{name}")) if "loss" in row] for name in ("wide_cpu", "wide")]
assert len(cpu) == len(gpu) == 1 and abs(cpu[0] - gpu[0]) <= 1e-5 * cpu[0], (cpu, gpu)
PY

# ---- a share that is no whole number of micro-batches: with cuBLASLt, whose bits depend on the number of rows
run "$EMULATED" "${SMALL[@]}" --device cuda --micro-batch 3 --steps 1
want "a rest" 0 'a share of 4 sequences in micro-batches of 3: with cuBLASLt'
GYRE_CUBLASLT=off run "$EMULATED" "${SMALL[@]}" --device cuda --micro-batch 3 --steps 1
check "says nothing without" sh -c "! grep -q cuBLASLt '$W/err'"

# ---- CUDA graphs: the batch grows, and the run goes on without them
GROWS=(--steps 6 --batch-rampup 2:2:6 --checkpoint "$W/kept" --checkpoint-every 3)
GYRE_LOG=info train graphs 1 "$EMULATED" --device cuda --cuda-graphs on "${GROWS[@]}"
check "graphs are launched" grep -Eq 'CUDA graphs of layers 0..2: [0-9]+ captured, [1-9][0-9]+ launched' "$W/err"
rm -r "$W/kept/step-000000000006"
train plain 1 "$EMULATED" --device cuda --cuda-graphs off "${GROWS[@]}" --resume
check "the same bits" /usr/bin/python3 - "$W" <<'PY'
import json, sys
def read(name):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}")]
    return {row["step"]: row["loss_hex"] for row in rows if "loss_hex" in row}, [row["weights_hash"] for row in rows if "weights_hash" in row]
graphs, plain = read("graphs"), read("plain")
assert len(graphs[0]) == 6 and sorted(plain[0]) == [4, 5, 6] and len(plain[1]) == 1, (graphs, plain)
assert graphs[1] == plain[1] and all(graphs[0][step] == loss for step, loss in plain[0].items()), (graphs, plain)
PY

# ---- experts
cat >"$W/experts.json" <<'JSON'
{"model_type": "gyre", "vocab": 256, "seq": 8, "layers": 2, "hidden": 32, "heads": 4, "ffn": 32, "leaves": 4, "experts": 8,
 "top_k": 2, "capacity": 1.0, "balance": 0.01}
JSON
SMALL=(--model "$W/experts.json" --data "$W/text" --batch 4 --steps 2 --eval-every 0 --eval-sequences 1 --sample-tokens 0 --report none
    --progress none)
train experts_cpu 1 "$B/bin/gyre-train"
train experts 1 "$EMULATED" --device cuda --micro-batch 2
train experts_tp 2 "$EMULATED" --device cuda --tp 2 --sequence-parallel
check "experts: losses, balance and dropped choices are the CPU's" /usr/bin/python3 - "$W" <<'PY'
import json, sys
def read(name):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}")]
    steps = [(row["loss"], row["balance_loss"], row["dropped"]) for row in rows if "loss" in row]
    return steps, [row["weights_hash"] for row in rows if "weights_hash" in row]
cpu, one = read("experts_cpu"), read("experts")
assert len(one[0]) >= 2 and len(one[1]) == 1 and any(dropped > 0 for _, _, dropped in one[0])
assert all(abs(x - y) <= 1e-5 * x for a, b in zip(cpu[0], one[0]) for x, y in zip(a, b)), (cpu, one)
assert read("experts_tp") == one, (one, read("experts_tp"))
PY
finish
