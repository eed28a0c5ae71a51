#!/bin/bash
# tests/tools/test_gyre_plan_runs.sh: gyre-plan against published runs (docs/data/runs): not much worse than docs/planning.md
# says; the memory of recipes in gyre-train, as it says; that of small runs, as they report it.
# deadline: 120
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"

export OPENBLAS_NUM_THREADS=1
B=$B run python3 -S tests/plan/check --bounds
want "times, memory and choices of the report half" 0
check "every bound was held" grep -qE '^8 passed, 0 failed$' "$W/out"
check "four sources, one of them in two parts" test "$(grep -cE '^\| (ultrascale|vtrain-single|llm-foundry|internevo)' "$W/out")" = 8
sed 's/^| opt-175b | A100-80: 79.3 | 0.3/| opt-175b | A100-80: 79.3 | 0.4/' docs/planning.md >"$W/other.md"
DEADLINE=100 run python3 -S tests/plan/recipes --check docs/planning.md "$W/other.md"
want "another figure in a copy" 1 'other.md: opt-175b is not as gyre-plan has it'
check "recipes' memory is what docs/planning.md says, of all of them" grep -qx "13 rows are those of docs/planning.md" "$W/out"

# --- what a run reports that it holds ---
holds() { # RANKS FLAGS OF gyre-plan -- FLAGS OF gyre-train; both also get COMMON
    local ranks=$1 flags=()
    for shift in "${@:2}"; do
        [ "$shift" != -- ] || break
        flags+=("$shift")
    done
    run "$B/bin/gyre-plan" memory --trainer "${COMMON[@]}" "${flags[@]}" --json "$W/plan.json"
    want "gyre-plan ${flags[*]}" 0
    run "$B/bin/ucx-run" -n "$ranks" "$B/bin/gyre-train" --data README.md --steps 1 --eval-sequences 1 --sample-tokens 0 \
        --threads 1 --report none --progress none "${COMMON[@]}" "${@:$((${#flags[@]} + 3))}"
    want "gyre-train ${*:$((${#flags[@]} + 3))}" 0
    check "the run holds what was planned: $*" python3 -S - "$W/plan.json" "$W/out" <<'END'
import json, re, sys
plan = json.load(open(sys.argv[1]))["worst_stage"]
line = re.search(r"memory on the fullest rank \(\d+\): (.*)", open(sys.argv[2]).read())[1]
for kind, number, unit in re.findall(r"(\w+) ([\d.]+) ([KM]iB|B)", line):
    size = plan[kind] / {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
    if abs(size - float(number)) > (0.06 if float(number) < 10 else 0.6):
        sys.exit(f"{kind}: planned {size:.2f} {unit}; {line}")
END
}
COMMON=(--layers 2 --hidden 24 --heads 4 --seq 16 --vocab 257)
holds 1 --global-batch 2 -- --batch 2
holds 6 --dp 6 --global-batch 6 --sequence-parts 2 -- --batch 6 --sequence-parts 2
COMMON=(--recipe examples/recipes/glm-130b.json --scale tiny --pp 3 --dp 2 --tp 1)
holds 6 -- --log /dev/null
COMMON=(--recipe examples/recipes/codegeex-13b.json --scale tiny --dp 3 --tp 1 --lanes 0)
holds 3 --global-batch 6 -- --batch 6
run "$B/bin/gyre-plan" memory --trainer --layers 1 --global-batch 3 --lanes 2
want "a batch that gyre-train refuses" 2 "a batch of 3 sequences does not divide into rounds of 2"
finish
