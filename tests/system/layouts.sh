#!/bin/bash
# tests/system/layouts.sh: a few layouts, in each precision, have the bits of one process; and so do two recipes;
# `make check-layouts` and `make check-recipes` try them all.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=220
run python3 tests/layouts/check --short
want "layouts do not change results" 0
python3 tests/layouts/check --short --list >"$W/list" 2>"$W/err"
check "--list counts them" grep -qx '25 layouts' "$W/list"
sed -i '$d' "$W/list"
if grep -q '^skipped bf16 by tiles' "$W/out"; then
    leave_out "products by tiles, which this processor lacks"
    sed -i '/^bf16 by tiles/d' "$W/list"
fi
check "all of them were tried" grep -qx "$(wc -l <"$W/list") passed, 0 failed" "$W/out"
sed -n 's/^ok *//p' "$W/out" >"$W/tried"
check "and --list has them" diff "$W/tried" "$W/list"
run python3 tests/layouts/recipes --short
want "recipes train in their layouts" 0
check "both of them" grep -qE '^[1-9][0-9]* passed, 0 failed$' "$W/out"
finish
