#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/tools/test_run_tests.sh: what tools/run-tests promises, on a tree of its own with shell scripts as tests.
# Failures fail the run, deadlines end tests, skips are counted, -k builds one program, no process is left.
. "$(dirname "$0")/../support/lib.sh"
unset TEST_LONG MAKEFLAGS
T=$W/tree
mkdir -p "$T/tools" "$T/tests/room/inner" "$T/tests/fuzz" "$T/tests/support"
cp tools/run-tests "$T/tools/"
cp -r tests/support/runner "$T/tests/support/"
cat >"$T/Makefile" <<'END'
all tests-of-check: $(patsubst %.c,build/%,$(wildcard tests/*/test_*.c tests/*/*/test_*.c))
build/tests/%: tests/%.c
	@mkdir -p $(@D) && sh -n $< && cp $< $@ && chmod +x $@
left-out:
	@echo tests/room/test_absent.c
.PHONY: all tests left-out
END
put() { printf '#!/bin/sh\n%s\n' "$2" >"$T/tests/room/$1.c"; }
tests() { run env DEADLINE=30 "$T/tools/run-tests" "$@"; }
last() { tail -n 1 "$W/out"; }
# says NAME PATTERN: stdout of the last run has it
says() {
    checks=$((checks + 1))
    grep -qE -- "$2" "$W/out" && return
    bad "$1"
    sed 's/^/    said: /' "$W/out" "$W/err"
}

put test_good 'echo fine'
put inner/test_deep 'exit 0'
put test_absent 'exit 1'
tests unit build
want "all is well" 0
check "the summary" [ "$(last)" = "3 passed, 0 failed, 1 skipped" ]
says "one line each" '^ok    room/inner/test_deep  [0-9.]+ s$'
says "what this build leaves out" '^skip  room/test_absent  not part of this build$'

put test_bad 'echo the reason; exit 3'
put test_skipped 'echo first; echo "[1] skipped: no such card"; echo "ucx-run: rank 0 exited"; exit 77'
tests unit
want "a test fails" 1
check "the summary counts it" [ "$(last)" = "3 passed, 1 failed, 2 skipped" ]
says "its code" '^FAIL  room/test_bad  [0-9.]+ s, code 3$'
says "its output" '^    \| the reason$'
says "once more at the end" '^failed: room/test_bad \(code 3\)$'
says "why one was skipped" '^skip  room/test_skipped  no such card$'
rm "$T"/tests/room/test_{bad,skipped}.c

put test_long 'echo "${TEST_LONG:-} is asked for"'
run env DEADLINE=30 TEST_LONG=1 "$T/tools/run-tests" unit
want "the long sweeps" 0
check "the build, and no test that has none" [ "$(last)" = "2 passed, 0 failed" ]
rm "$T/tests/room/test_long.c"

put test_partly 'echo "[  SKIPPED ] no_card"; echo "[  SKIPPED ] 1 test(s), listed below:"'
tests unit -k partly
want "a part of a test is skipped" 0
says "which" '^ok    room/test_partly  [0-9.]+ s, without no_card$'
rm "$T/tests/room/test_partly.c"

put test_crashes 'echo "SUMMARY: libFuzzer: deadly signal"; exit 77'
tests unit -k crashes
want "77 without the word is a failure" 1
says "its code" '^FAIL  room/test_crashes  [0-9.]+ s, code 77$'
rm "$T/tests/room/test_crashes.c"

put test_broken 'if then'
tests unit
want "a program that cannot be built" 1
check "its tests count as failed" [ "$(last)" = "0 passed, 4 failed, 1 skipped" ]
rm -r "$T/tests/room/test_broken.c" "$T/build"

tests unit -k inner
want "-k" 0
check "-k builds one program" [ "$(find "$T/build/tests" -type f)" = "$T/build/tests/room/inner/test_deep" ]
tests unit -k no-such-test
want "no test has that name" 1 'no test was run'
tests unit -k good --repeat 3
for i in 1 2 3; do says "--repeat, $i" "^ok    room/test_good \($i/3\)  "; done
tests unit --list
says "--list" '^unit +room/test_good '
check "--list runs nothing" [ "$(grep -c '^ok' "$W/out")" = 0 ]
tests no-such-phase
want "an unknown phase" 2 'no-such-phase'

put test_hangs '# deadline: 1
sleep 300'
tests unit -k hangs
want "a test that hangs" 1
says "its deadline" '^FAIL  room/test_hangs  [1-9]\.[0-9]+ s, .*past its deadline of 1 s$'

put test_leaves "sleep 300 >/dev/null 2>&1 &
echo \$! >$W/left"
tests unit -k leaves
want "a test that leaves a process" 1
says "its name" '^FAIL  room/test_leaves  .*left running: sleep \([0-9]+\)$'
check "it is ended" until_true 20 gone "$(cat "$W/left")"
rm "$T"/tests/room/test_{leaves,hangs}.c
put test_empties "env -i setsid sh -c 'echo \$\$ >$W/left; sleep 300 & wait' >/dev/null 2>&1 &
while ! [ -s $W/left ]; do sleep 0.01; done"
rm "$W/left"
tests unit -k empties
want "a test that leaves a process without its environment" 1
says "its name" '^FAIL  left running at the end, by a test or a build: sh \([0-9]+\), sleep \([0-9]+\)$'
says "once more at the end" '^failed: left running at the end: sh '
check "the summary counts it" [ "$(last)" = "2 passed, 1 failed" ]
check "it is ended" until_true 20 gone "$(cat "$W/left")"
rm "$T/tests/room/test_empties.c"

put test_alone "# alone: 1
echo begin alone >>$W/order; sleep 0.3; echo end alone >>$W/order"
for i in 1 2 3; do put test_other$i "echo begin $i >>$W/order; sleep 0.1; echo end $i >>$W/order"; done
tests unit --jobs 3
check "alone means alone" [ "$(grep -A 1 'begin alone' "$W/order" | tail -n 1)" = "end alone" ]
check "and nothing else runs then" [ "$(grep -c begin "$W/order")" = "$(grep -c end "$W/order")" ]
check "others run together" [ "$(head -n 2 "$W/order" | grep -c begin)" = 2 ]

# How many more tests start while processors are idle.
cat >"$W/room.py" <<'END'
import sys, time, types
sys.path.insert(0, "tests/support/runner")
import processes
began = processes.seconds_of_processors()
while processes.seconds_of_processors() == began:
    pass # what processors do is counted
def room(used, more, ago=1.0):
    runner = processes.Runner.__new__(processes.Runner)
    runner.options, runner.more = types.SimpleNamespace(jobs=2), more
    runner.looked = time.monotonic() - ago, 100.0
    processes.seconds_of_processors = lambda: 100.0 + used
    return runner.look_for_room()
print(room(0.5, 0), room(0.5, 3), room(0.5, 4), room(1.9, 2), room(2.0, 2), room(2.0, 0), room(0.0, 1, ago=0.0))
END
run python3 -B "$W/room.py"
out_is "one more if idle, up to four; as many; one less if busy; not at once" '1 4 4 2 1 0 1'

# Tests have the Python that runs this, whatever is first in PATH.
mkdir "$W/fake"
printf '#!/bin/sh\nexit 9\n' >"$W/fake/python3"
chmod +x "$W/fake/python3"
put test_python 'python3 -c "print(1)"'
run env PATH="$W/fake:$PATH" DEADLINE=30 "$T/tools/run-tests" unit -k python
want "another python3 is first in PATH" 0

# What the newest transformers have: once more in their environment, where it exists.
echo 'exit 0' >"$T/tools/setup"
cat >"$T/tests/room/x_compare.py" <<'END'
# newest transformers, too: the families of late
import os, sys
print(f"skipped: {os.environ.get('NEWEST', 'old')} {sys.executable}")
sys.exit(77)
END
tests system
want "no newest transformers" 0
says "the run with the others" '^skip  room/x_compare.py  old /usr/bin/python3'
says "what is not compared" '^skip  newest/room/x_compare.py  no newest transformers .*: the families of late$'
mkdir -p "$T/build/torch/venv/bin" "$T/build/torch/venv/lib/python3.9/site-packages/transformers"
ln -s /usr/bin/python3 "$T/build/torch/venv/bin/python"
tests system
says "their run" '^skip  newest/room/x_compare.py  1 .*/build/torch/venv/bin/python$'

put test_stays "echo \$\$ >$W/stays; trap '' HUP; sleep 300"
"$T/tools/run-tests" unit -k stays >"$W/out" 2>"$W/err" &
runner=$!
until_true 20 test -s "$W/stays" || bad "it does not start"
kill -TERM $runner
wait $runner
check "SIGTERM: the status" [ $? = 143 ]
check "SIGTERM ends the tests" until_true 20 gone "$(cat "$W/stays")"
finish
