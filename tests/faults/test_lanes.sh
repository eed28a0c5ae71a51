#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/faults/test_lanes.sh: what make check-faults LANES=N promises, with lanes that are a line of shell: each round
# runs once, a lane that ends takes no other with it, and nothing is left of an interrupted run.
# takes: 2
. "$(dirname "$0")/../support/lib.sh"
cat >"$W/drive" <<'PYTHON'
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, "tests/faults")
from lanes import Lanes
lanes = Lanes(range(int(sys.argv[1])), lambda number, line, status: print(
    f"round {number}: {line.strip() or f'ended {status}'}, open {lanes.first_open()}", flush=True))
print("not run:", lanes.run([(["bash", "-c", script], None) for script in sys.argv[2:]]))
PYTHON
# drive ROUNDS LANE...: each LANE a command of the shell; one reads numbers and writes lines
drive() { run /usr/bin/python3 "$W/drive" "$@"; }
# each WORD N: the rounds 0 to N-1 have one line with that word each
each() { [ "$(sed -nE "s/^round ([0-9]+): $1, .*/\1/p" "$W/out" | sort -n | tr '\n' ' ')" = "$(seq 0 $(($2 - 1)) | tr '\n' ' ')" ]; }
last() { [ "$(tail -n 1 "$W/out")" = "not run: $1" ]; }
lines() { [ "$(grep -cE "^round [0-9]+: $1, " "$W/out")" = "$2" ]; }

good='while read -r n; do echo good; done'
drive 20 "$good"
check "one lane runs each round" each good 20
check "in order" [ "$(sed -n '20s/.*open //p' "$W/out")" = 20 ]
mkdir "$W/in"
drive 9 "while read -r n; do : >$W/in/\$n; until [ -e $W/in/2 ]; do sleep 0.01; done; echo good; done"{,,}
check "three lanes run three rounds at a time, and each round once" each good 9
check "all are run" last 0
drive 6 "while read -r n; do [ \$n != 5 ] || : >$W/go; until [ \$n != 0 ] || [ -e $W/go ]; do sleep 0.01; done; echo good; done"{,}
check "a round that takes long does not keep the others" each good 6
check "a later start begins with it" [ "$(grep -c 'open 0$' "$W/out")" -ge 4 ]
slow="until [ -e $W/b ] && [ -e $W/c ]; do sleep 0.01; done; while read -r n; do sleep 0.02; echo good; done"
drive 20 "$slow" "read -r n; : >$W/b; exit 3" ": >$W/c; exit 4"
check "a lane that ends fails its round" lines 'ended 3' 1
check "so does one that never began" lines 'ended 4' 1
check "the others run the rest" lines good 18
check "of which none is left" last 0
drive 10 'read -r n; exit 3' 'read -r n; kill -KILL $$'
check "without lanes the rest is counted" last 8
check "with what ended each" lines 'ended (3|-9)' 2

/usr/bin/python3 "$W/drive" 4 "echo \$\$ >$W/one; exec sleep 300" "echo \$\$ >$W/two; exec sleep 300" >"$W/out" &
started=$!
check "one lane begins" until_true 20 test -s "$W/one"
check "the other does, too" until_true 20 test -s "$W/two"
kill -TERM $started
wait $started
check "SIGTERM: the status" [ $? = 143 ]
check "SIGTERM: one lane is gone" until_true 20 gone "$(cat "$W/one")"
check "SIGTERM: the other is, too" until_true 20 gone "$(cat "$W/two")"
check "SIGTERM: what it ended has not failed" [ ! -s "$W/out" ]

unset TRANSPORT FAULTS
run env LANES=27 tests/faults/check
want "too many lanes" 1 'LANES=27: 1 to 26 are possible'
run env LANES=2 TRANSPORT=verbs tests/faults/check
want "lanes over verbs" 1 'over verbs there is one lane'

# The ports of thousands of jobs are ports, and none that the kernel gives to others.
export CHECK_HOSTS_TMP=$W/in
run /usr/bin/python3 -Bc '
import sys
sys.path.insert(0, "tests/hosts")
import lab
lab.nethosts = lambda *_: "10.0.0.1"
print(max(int(lab.Job([], 0, 0).common["GYRE_ROOT"].split(":")[1]) for _ in range(7000)))'
check "ports of 7000 jobs" [ "$(cat "$W/out")" -lt 32768 ]
finish
