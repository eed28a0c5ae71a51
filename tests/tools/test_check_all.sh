#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/tools/test_check_all.sh: what tools/check-all promises, in a tree of its own with suites of one line: a suite
# that fails, hangs or is killed does not end the others, counts that are missing are a failure, and the next start
# goes on where the last one ended.
# takes: 12
. "$(dirname "$0")/../support/lib.sh"
command -v git >/dev/null || skip "there is no git"
unset ROUNDS VERBS_ROUNDS FUZZ_SECONDS
# The page for developers has two rows for each suite: what it is, in four columns, and its last known run, in seven.
tools/check-all --list >"$W/list"
check "--list has suites" [ "$(wc -l <"$W/list")" -ge 15 ]
rows() { awk -F'|' -v name="\`$1\`" -v columns="$2" '/^[|] `/ && NF == columns + 2 && index($2, name)' docs/testing.md | wc -l; }
while read -r name _; do
    for columns in 4 7; do
        check "docs/testing.md has a row of $name in $columns columns" [ "$(rows "$name" $columns)" = 1 ]
    done
done <"$W/list"
T=$W/tree
PAGE=$T/build/check-all/index.html
mkdir -p "$T/tools"
cp tools/check-all "$T/tools/"
cd "$T" || exit 1
echo /build/ >.gitignore
echo one >source
commit() { git add -A && git -c user.name=test -c user.email=test@localhost commit -qm "$1"; }
git init -q . && commit first || exit 1
export CHECK_ALL_TABLE=$W/table

all() { DEADLINE=60 run tools/check-all "$@"; }
# suite NAME HOURS LINES COMMAND: a row of the table; the suite notes that it ran
suite() { echo "$1 $2 $3 echo $1 >>$W/ran; $4" >>"$W/table"; }
# ran NAME TEXT: these suites ran since it was asked last
ran() {
    checks=$((checks + 1))
    [ "$(tr '\n' ' ' <"$W/ran")" = "$2" ] || bad "$1: these ran: $(tr '\n' ' ' <"$W/ran")"
    : >"$W/ran"
}
# row NAME TEXT: what the page says of a suite: RESULT PASSED/FAILED/SKIPPED FIRST FAILURE
row() {
    local got
    checks=$((checks + 1))
    got=$(sed -nE 's|^<tr class="[^"]*"><td>'"$1"'</td><td>[^<]*</td><td>([^<]*)</td>.*</td><td>([^<]*)</td><td>([^<]*)</td><td>([^<]*)</td><td>([^<]*)</td><td><a .*|\1 \2/\3/\4 \5|p' "$PAGE")
    [ "${got% }" = "$2" ] || bad "$1: the page says '$got', not '$2'"
}

# Killed twice, right at the third time; killed each time, by make's report.
printf 'echo >>%s/tries; [ $(wc -l <%s/tries) -ge 3 ] || kill -9 $$\necho 1 passed, 0 failed\n' "$W" "$W" >"$W/thrice"
printf 'all:\n\t@kill -9 $$$$\n' >"$W/killed.mk"
suite good 1 1 'echo "    | 9 passed, 9 failed"; echo "3 passed, 0 failed, 1 skipped"'
suite bad 1 1 'echo "x.c: error: no"; echo "FAIL  <this>  1 s"; echo "FAIL  that"; echo "1 passed, 2 failed"; exit 1'
suite silent 1 1 'echo all is well'
suite liar 1 1 'echo "5 passed, 1 failed"'
suite empty 1 1 'echo "0 passed, 0 failed, 2 skipped"'
suite skips 1 1 'echo "skipped: no such card"; echo "2 checks, 0 failed"; exit 77'
suite checks 1 1 'echo "5 checks, 0 failed"'
suite sums 1 2 'echo "10 runs, 0 failed; in 2 Gyre did without"; echo "20 runs, 0 failed; in 3"'
suite half 1 2 'echo "10 runs, 0 failed; in 2 Gyre did without"'
suite crash 1 1 'echo the last words; exit 3'
suite broken 1 1 'make -f /nowhere all'
suite hangs 0.0004 1 'echo "FAIL  early"; sleep 300 & echo $! >'"$W/hangs"'; wait'
suite thrice 1 1 "sh $W/thrice"
suite oom 1 1 "echo '7 passed, 0 failed'; make -f $W/killed.mk"
KILLED='cc: fatal error: Killed signal terminated program cc1'
suite compiler 1 1 "echo 'FAIL  build  3.00 s, code 2'; echo '    | $KILLED'; echo 'FAIL  7 tests need this build and were not run'; echo 'failed: build (code 2)'; echo 'failed: 7 tests without their build (build)'; echo '0 passed, 8 failed'; exit 1"
suite both 1 1 "echo 'FAIL  emulated/build  3.00 s, code 2'; echo '    | $KILLED'; echo 'FAIL  that  1 s'; echo '1 passed, 2 failed'; exit 1"
suite last 1 1 'echo "1 passed, 0 failed"'
all
want "some suites fail" 1
ran "all of them, those that were killed three times" \
    'good bad silent liar empty skips checks sums half crash broken hangs thrice thrice thrice oom oom oom compiler compiler compiler both last '
check "the summary counts suites" [ "$(tail -n 1 "$W/out")" = "5 passed, 12 failed" ]
check "so does the page" grep -q '<p>5 of 17 suites passed, 12 failed, 0 not run</p>' "$PAGE"
row good 'passed 3/0/1'
row bad 'failed 1/2/0 FAIL  &lt;this&gt;  1 s'
row silent 'failed ?/?/? it ended with 0, but not 1 line(s) of its output count its tests'
row liar 'failed 5/1/0 it ended with 0, but 1 failed'
row empty 'failed 0/0/2 nothing was run'
row skips 'failed 2/0/0 skipped: no such card'
row checks 'passed 5/0/0'
row sums 'passed 30/0/0'
row half 'failed ?/?/? it ended with 0, but not 2 line(s) of its output count its tests'
row crash 'failed ?/?/? the last words'
row broken 'failed ?/?/? make: *** No rule to make target &#x27;/nowhere&#x27;.  Stop.'
row hangs 'failed ?/?/? ended after 0.0004 hours; FAIL  early'
check "what hangs is gone" until_true 10 gone "$(cat "$W/hangs")"
row thrice 'passed 1/0/0'
row oom "killed ?/?/? make: *** [$W/killed.mk:2: all] Killed"
row compiler "killed ?/?/? | $KILLED"
row both 'failed 1/2/0 FAIL  emulated/build  3.00 s, code 2'
row last 'passed 1/0/0'
check "a suite's own output" grep -q 'FAIL  that' build/check-all/bad.log
check "the output of a killed one" test -e build/check-all/oom.killed-2.log

all
want "once more, with the same sources" 1
ran "only what was killed" 'oom oom oom compiler compiler compiler '
all checks
want "one suite" 0
ran "it runs again" 'checks '
check "the others are still on the page" grep -q '<p>5 of 17 suites passed, 12 failed, 0 not run</p>' "$PAGE"
all --list
check "--list" grep -qE '^checks +echo checks ' "$W/out"
all nothing
want "a suite that is not there" 2 "no suite 'nothing'"
ran "neither runs any" ''

# starts NAME: check-all in the background, until the suite of that name waits
starts() {
    rm -f "$W/$1"
    tools/check-all >"$W/out" 2>"$W/err" &
    started=$!
    check "$1 begins" until_true 20 test -s "$W/$1"
}
rm "$W/table"
suite first 1 1 'echo "1 passed, 0 failed"'
suite waits 1 1 "[ -e $W/go ] || { setsid sh -c 'trap : TERM; echo \$\$ >$W/aside; while :; do sleep 1; done' & echo \$\$ >$W/waits; sleep 300; }; echo '1 passed, 0 failed'"
suite third 1 1 'echo "1 passed, 0 failed"'
echo two >source
starts waits
row waits 'running //'
kill -TERM $started
wait $started
check "SIGTERM: the status" [ $? = 130 ]
check "SIGTERM: the suite is gone" until_true 20 gone "$(cat "$W/waits")"
check "SIGTERM: and what it has started in a session of its own" until_true 20 gone "$(cat "$W/aside")"
row first 'passed 1/0/0'
row waits 'not run //'
starts waits
kill -KILL $started
wait $started 2>/dev/null
check "SIGKILL: the suite goes, too" until_true 40 gone "$(cat "$W/waits")"
ran "what has ended does not run again" 'first waits waits '
touch "$W/go"
all
want "the next start" 0
ran "goes on where it ended" 'waits third '
check "the summary counts those that had ended" [ "$(tail -n 1 "$W/out")" = "3 passed, 0 failed" ]

echo three >source
all
ran "other changes begin anew" 'first waits third '
commit second
all
ran "so does another commit" 'first waits third '
check "the page says which" grep -q "<h1>Every suite at $(git rev-parse --short=12 HEAD)</h1>" "$PAGE"
all --new
ran "and --new" 'first waits third '

rm "$W/table" "$W/go"
suite writes 1 1 'echo four >source; echo "1 passed, 0 failed"'
suite never 1 1 'echo "1 passed, 0 failed"'
all
want "a suite changes a source" 1 'the sources are now .* and changes '
ran "what follows would test something else" 'writes '
row writes 'failed 1/0/0 the sources have changed meanwhile: git status'
rm "$W/table"
suite edits 1 1 "echo five >source; echo '1 passed, 0 failed'; [ -e $W/go ] || { : >$W/go; kill -9 \$\$; }"
all
want "a source is edited, and the suite killed" 1 'the sources are now '
ran "it does not run anew" 'edits '
rm "$W/table" "$W/go"
suite moves 1 1 'git reset -q --hard HEAD~1; echo "1 passed, 0 failed"'
suite never 1 1 'echo "1 passed, 0 failed"'
all
want "the tree moves to another commit" 1 'the sources are now '
ran "what follows would test something else, too" 'moves '
row moves 'failed 1/0/0 the sources have changed meanwhile: git status'

rm "$W/table"
suite waits 1 1 "[ -e $W/go ] || { echo \$\$ >$W/waits; sleep 300; }; echo '1 passed, 0 failed'"
starts waits
first=$started
tools/check-all 2>"$W/second" >"$W/out" &
check "two at once: the second waits" until_true 30 grep -q 'another one runs in this tree; waiting' "$W/second"
kill -TERM $! $first
wait
ran "and runs nothing" 'waits '
finish
