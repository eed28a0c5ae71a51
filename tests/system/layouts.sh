#!/bin/bash
# tests/system/layouts.sh: a few layouts, in each precision, have the bits of one process; `make check-layouts` tries them all.
# deadline: 240
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=220
run python3 tests/layouts/check --short
want "layouts do not change results" 0 '^[0-9]+ passed, 0 failed'
finish
