#!/bin/bash
# tests/tools/test_stdout.sh: an output file named - is standard output, which then has nothing else.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
export GYRE_TUNE=none
root=$PWD
cd "$W" || exit 1

# only WHAT TOOL ARGS...: standard output is one JSON document, the tables are on standard error, no file is made.
only() {
    local what=$1
    shift
    "$@" >"$W/out" 2>"$W/err"
    check "$what: exit status" [ $? -eq 0 ]
    check "$what: one JSON document" python3 -S -c 'import json, sys; json.load(open(sys.argv[1]))' "$W/out"
    check "$what: no file" [ ! -e ./- ]
}

only doctor "$B/bin/gyre-doctor" --json -
for mode in "all_reduce -b 8 -e 8" "latency all_reduce -b 8 -e 8" "overlap all_reduce -b 8 -e 8"; do
    # shellcheck disable=SC2086 # words
    only "perf $mode" "$B/bin/ucx-run" -n 2 "$B/bin/gyre-perf" $mode -n 2 -w 0 --json -
    check "perf $mode: tables" grep -q '^# *gyre-perf\|^#.*size' "$W/err"
done
only "perf init" "$B/bin/gyre-perf" init --max 2 --starts 1 --json -
only "perf recover" "$B/bin/gyre-perf" recover -n 3 --rounds 1 --json -
only schedule "$B/bin/gyre-plan" schedule --ranks 4 --topology ethernet -b 64K --json -
check "schedule: table" grep -q ring "$W/err"
only pipeline "$B/bin/gyre-plan" pipeline --json -
only memory "$B/bin/gyre-plan" memory --recipe "$root/examples/recipes/bloom-176b.json" --json -

"$B/bin/gyre-plan" pipeline --svg - >"$W/out" 2>/dev/null
check "plan's drawing" python3 -S -c 'import sys, xml.etree.ElementTree as x; x.parse(sys.argv[1])' "$W/out"
"$B/bin/gyre-topo" --svg - >"$W/out" 2>/dev/null
check "topo's drawing" python3 -S -c 'import sys, xml.etree.ElementTree as x; x.parse(sys.argv[1])' "$W/out"
"$B/bin/gyre-perf" all_reduce -b 8 -e 8 -n 2 -w 0 -F - >"$W/out" 2>/dev/null
check "rows alone" [ "$(cut -d, -f1 "$W/out" | tr '\n' ' ')" = "size 8 8 " ]
echo kept >"$W/log"
"$B/bin/gyre-plan" pipeline --json - >>"$W/log" 2>/dev/null
check "a file that is appended to keeps what it has" grep -qx kept "$W/log"
check "no file" [ ! -e ./- ]

if [ -e /dev/full ]; then
    "$B/bin/gyre-plan" pipeline --json - >/dev/full 2>"$W/err"
    check "a full disk: exit status" [ $? -eq 1 ]
    check "a full disk: the text" grep -q 'cannot write standard output' "$W/err"
    "$B/bin/gyre-doctor" --json - >/dev/full 2>"$W/err"
    check "a full disk: why, after a document of several pages" grep -q 'standard output: No space left' "$W/err"
fi
# none TOOL ARGS...: what it prints does not arrive, and it says so
none() {
    "$@" >/dev/full 2>"$W/err"
    check "$* on a full disk: exit status" [ $? -ne 0 ]
    check "$* on a full disk: the text" grep -q 'cannot write standard output: ' "$W/err"
}
if [ -e /dev/full ]; then
    none "$B/bin/gyre-perf" all_reduce -b 8 -e 8 -n 2 -w 0
    none "$B/bin/gyre-perf" latency -n 2
    for tool in doctor eval generate perf plan tokenize topo train; do
        none "$B/bin/gyre-$tool" --help
    done
    none "$B/bin/ucx-run" --help
fi
run sh -c '"$1" schedule --ranks 4 --topology ethernet -b 64K >&-' - "$B/bin/gyre-plan"
want "without standard output" 0
run "$B/bin/gyre-perf" all_reduce -b 8 -e 8 --json - -F -
want "two for one standard output" 2 '-: one file for -F and -J'
printf 'no machine\n' >"$W/machine"
run "$B/bin/gyre-topo" --xml "$W/machine" --svg "$W/machine"
want "a drawing over the machine" 2 "--svg $W/machine would replace $W/machine, which is read: name another file"
check "which is still there" grep -qx 'no machine' "$W/machine"
run "$B/bin/gyre-plan" pipeline --json - --svg -
want "two of gyre-plan" 1 'another file has'
for flag in log report trace save; do
    run "$B/bin/gyre-train" --data "$root/README.md" --steps 0 --report none --$flag -
    want "gyre-train --$flag -" 2 "--$flag -: standard output"
done
finish
