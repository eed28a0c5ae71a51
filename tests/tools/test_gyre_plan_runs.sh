#!/bin/bash
# tests/tools/test_gyre_plan_runs.sh: gyre-plan against published runs (docs/data/runs): not much worse than docs/planning.md says.
# deadline: 60
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"

export OPENBLAS_NUM_THREADS=1
B=$B run python3 -S tests/plan/check --bounds
want "times, memory and choices of the report half" 0
check "every bound was held" grep -qE '^8 passed, 0 failed$' "$W/out"
check "four sources, one of them in two parts" test "$(grep -cE '^\| (ultrascale|vtrain-single|llm-foundry|internevo)' "$W/out")" = 8
finish
