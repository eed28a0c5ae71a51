#!/bin/bash
# tests/tools/train/test_spikes.sh: steps whose loss or gradient norm is far above the median are skipped by the rule of
# optim/spike.h, in every layout and when a run goes on, and are counted in the log.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=40
TRAIN=$B/bin/gyre-train
RUN=(--data LICENSE --layers 2 --hidden 32 --heads 4 --seq 32 --batch 8 --steps 40 --warmup 2 --lr 0.01 --eval-every 0
    --eval-sequences 4 --report none --sample-tokens 0 --peak-flops 1e9 --spike-norm 1.25 --spike-loss 1.02 --spike-window 7)
curve() { # LOG FROM
    python3 -c 'import json, sys
for line in map(json.loads, open(sys.argv[1])):
    if line.get("step", 0) > int(sys.argv[2]):
        print({k: line[k] for k in line if k in ("step", "skipped", "spike", "lr") or k.endswith("_hex")})' "$1" "${2:-0}"
}

run "$TRAIN" "${RUN[@]}" --log "$W/alone" --save "$W/end"
want "one process" 0 "step [0-9]+ is skipped: its gradient norm is [0-9.]+, more than 1.25 times the median of the 7 steps before, "
want "one process, by the loss" 0 "step [0-9]+ is skipped: its loss is [0-9.]+, more than 1.02 times the median of the 7 steps before, "
check "by the rule, and counted" python3 - "$W/alone" "$(grep -c "is skipped" "$W/err")" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
steps, seen = [line for line in lines if "step" in line], {"loss": 0, "norm": 0}
for i, step in enumerate(steps):
    def over(key, times):
        before = sorted(s[key] for s in steps[i - 7:i])
        return i >= 7 and step[key] > times * before[3]
    want = "loss" if over("loss", 1.02) else "norm" if over("grad_norm", 1.25) else None
    assert step.get("spike") == want and step["skipped"] == (want is not None), step
    if want:
        seen[want] += 1
assert len(steps) == 40 and all(0 < n < 20 for n in seen.values()), seen
assert lines[-1]["spikes"] == sum(seen.values()) == int(sys.argv[2]), (seen, sys.argv[2])
PY
curve "$W/alone" >"$W/curve"
while read -r ranks options <&3; do
    # shellcheck disable=SC2086 # several options
    run "$UCX_RUN" -n "$ranks" "$TRAIN" "${RUN[@]}" $options --log "$W/log" --save "$W/weights"
    want "$options" 0
    check "$options: the same steps and bits" cmp -s "$W/curve" <(curve "$W/log")
    check "$options: the same weights" cmp -s "$W/end" "$W/weights"
    check "$options: each is said once" [ "$(grep -c "is skipped" "$W/err")" = "$(grep -c "'spike'" "$W/curve")" ]
done 3<<'LAYOUTS'
2 --tp 2
2 --dp 2 --zero 3
4 --pp 2 --dp 2 --zero 2
LAYOUTS

# --- going on: the medians, and how often AdamW was made ---
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" --zero 1 --checkpoint "$W/cp" --checkpoint-every 20
want "with checkpoints" 0
rm -r "$W/cp/step-000000000040"
run "$TRAIN" "${RUN[@]}" --spike-norm 2 --checkpoint "$W/cp" --resume
want "resumed with another factor" 2 "--spike-norm is 2, but the run in .* was begun with 1.25"
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" --tp 2 --checkpoint "$W/cp" --resume --save "$W/weights" --log "$W/more"
want "resumed" 0
check "to the same bits" cmp -s "$W/end" "$W/weights"
check "with the same steps" cmp -s <(curve "$W/alone" 20) <(curve "$W/more" 20)
check "and the same count" [ "$(tail -n 1 "$W/more" | grep -o '"spikes":[0-9]*')" = "$(tail -n 1 "$W/alone" | grep -o '"spikes":[0-9]*')" ]

check "the terminal counts those before, too" grep -qE "^step 40/40 .* $(grep -c "'spike'" "$W/curve") skipped" "$W/err"
run "$TRAIN" "${RUN[@]}" --checkpoint "$W/cp" --resume --log "$W/more"
want "resumed at its end" 0
check "the same count without a step" [ "$(tail -n 1 "$W/more" | grep -o '"spikes":[0-9]*')" = "$(tail -n 1 "$W/alone" | grep -o '"spikes":[0-9]*')" ]

# --- overflows are no spikes, and spikes are no overflows ---
HALF=(--precision fp16 --loss-scale 16777216 --loss-scale-interval 5)
run "$TRAIN" "${RUN[@]}" "${HALF[@]}" --log "$W/half"
want "fp16" 0
check "both are there" python3 - "$W/half" <<'PY'
import json, sys
steps = [json.loads(line) for line in open(sys.argv[1]) if '"step":' in line]
over = [s for s in steps if s["skipped"] and "spike" not in s]
assert over and all(s["grad_norm"] is None for s in over) and any("spike" in s for s in steps), len(over)
PY
run "$UCX_RUN" -n 2 "$TRAIN" "${RUN[@]}" "${HALF[@]}" --zero 2 --log "$W/log"
check "fp16: the same steps on two ranks" cmp -s <(curve "$W/half") <(curve "$W/log")

run "$TRAIN" "${RUN[@]}" --spike-loss 0.5
want "a factor below 1" 2 "--spike-loss 0.5: wants 0, or 1 and more"
finish
