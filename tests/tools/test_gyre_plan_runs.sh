#!/bin/bash
# tests/tools/test_gyre_plan_runs.sh: gyre-plan against published runs (docs/data/runs): not much worse than docs/planning.md
# says; the memory of recipes in gyre-train, as it says.
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
check "recipes' memory is what docs/planning.md says, of all of them" grep -qx "12 rows are those of docs/planning.md" "$W/out"
finish
