#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/tools/test_lib.sh: what the shell tests' own functions promise: a failed check fails the test whatever comes after
# it; what could not be checked ends it as skipped; and so does a check of time on a machine that is busy.
# alone: 1, for it keeps all cores busy for a second
. "$(dirname "$0")/../support/lib.sh"
script() { # WHAT TEXT: a test of that text, run; its code in $rc, its last line in $last
    printf '. %q\n%s\n' "$PWD/tests/support/lib.sh" "$2" >"$W/script"
    run bash "$W/script"
    last=$(tail -n 1 "$W/out")
}
ends() { # NAME CODE LAST
    checks=$((checks + 1))
    [ "$rc $last" = "$2 $3" ] || bad "$1: ended with $rc, '$last'"
}
script "a check passes" 'check a true; finish'
ends "a check passes" 0 '1 checks, 0 failed'
script "one fails" 'check a true; check b false; finish'
ends "one fails" 1 '2 checks, 1 failed'
script "none" 'finish'
ends "nothing was checked" 1 '0 checks, 1 failed'
script "a skip" 'check a true; skip "no such card"'
ends "a skip" 77 'skipped: no such card'
script "a skip after a failure" 'check a false; skip "no such card"'
ends "a skip after a failure" 1 'no such card, after 1 failed checks'
script "a part" 'check a true; leave_out "b, without a card"; leave_out "c"; finish'
ends "a part is left out" 77 'skipped: 1 checks passed, not checked: b, without a card; c'
script "a part and a failure" 'check a false; leave_out b; finish'
ends "a part is left out, another fails" 1 '1 checks, 1 failed'

# Three loops to a core: nobody gets 85 % of one.
for ((i = 0; i < 3 * $(nproc); i++)); do timeout 4 bash -c 'while :; do :; done' & done
script "busy" 'timed "in time" true; timed "too late" false; finish'
ends "a check of time, on a busy machine" 77 'skipped: 2 checks passed, not checked: too late: something else wants the cores'
mapfile -t loops < <(jobs -p)
kill "${loops[@]}" 2>/dev/null
wait
script "crowded before" 'crowded=1; timed "too late" false; finish'
ends "a check of time, on a machine that was busy" 77 'skipped: 1 checks passed, not checked: too late: something else wants the cores'
finish
