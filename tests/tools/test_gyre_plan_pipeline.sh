#!/bin/bash
# tests/tools/test_gyre_plan_pipeline.sh: `gyre-plan pipeline`: charts, numbers, drawings, refusals.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
P=$B/bin/gyre-plan

# json EXPRESSION: over R, the whole file, and A, the computing actions of a rank: A(r)
json() {
    python3 -S - "$W/out.json" "$1" <<'END'
import json, sys
R = json.load(open(sys.argv[1]))
def A(r):
    return [a for a in R["ranks"][r]["actions"] if "send" not in a["op"] and "recv" not in a["op"]]
sys.exit(not eval(sys.argv[2]))
END
}
plan() { run "$P" pipeline --json "$W/out.json" --svg "$W/out.svg" "$@"; }
run "$P" pipeline --json "$W/both" --svg "$W/both"
want "two results in one file" 2 "--svg and --json name one file, $W/both"
well_formed() { python3 -S -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$W/out.svg"; }

plan --schedule 1f1b --stages 4 --micro-batches 8 --columns 160
want "1f1b" 0
check "its bubble" json 'R["makespan"] == 33 and abs(R["bubble"] - 3 / 11) < 1e-12 and abs(R["bubble_formula"] - 3 / 11) < 1e-12'
check "what it holds" json '[r["activations"] for r in R["ranks"]] == [r["activation_bound"] for r in R["ranks"]] == [4, 3, 2, 1]'
check "the bubble beside its formula" grep -qF 'bubble 27.27 %; formula 27.27 %: (p - 1) / (m + p - 1)' "$W/out"
check "a line per rank" [ "$(grep -c '^rank [0-3] ' "$W/out")" = 4 ]
check "the chart of the last rank" grep -qF 'rank 3 ............F0- B0----- F1- B1-----' "$W/out"

for schedule in gpipe interleaved zb-h1 zb-v; do
    plan --schedule $schedule --stages 4 --micro-batches 8
    want "$schedule" 0
    check "$schedule: the drawing is XML" well_formed
    check "$schedule: every action is drawn" [ "$(grep -c '<rect class="a .*<title>' "$W/out.svg")" = "$(python3 -S -c '
import json, sys
print(sum("send" not in a["op"] and "recv" not in a["op"] for r in json.load(open(sys.argv[1]))["ranks"] for a in r["actions"]))' "$W/out.json")" ]
    check "$schedule: bubble and formula" json 'abs(R["bubble"] - R["bubble_formula"]) < 1e-12 < R["bubble"]'
    check "$schedule: within its promise" json 'all(r["activations"] <= r["activation_bound"] and r["weights"] <= r["weight_bound"] for r in R["ranks"])'
    check "$schedule: one thing at a time" json 'all(a["end"] <= b["start"] + 1e-9 for r in range(4) for a, b in zip(A(r), A(r)[1:]))'
    check "$schedule: as much work as asked for" json 'all(abs(r["busy"] - 24) < 1e-9 for r in R["ranks"])'
done
plan --schedule interleaved --chunks 4 --stages 4 --micro-batches 8
check "a quarter of the bubble" json 'abs(R["bubble"] - 3 / (4 * 8 + 3)) < 1e-12 and R["chunk_times"]["forward"] == 0.25'
plan --schedule gpipe --forward 2 --backward 3 --hop 0.5 -p 3 -m 5
check "times and hops" json 'R["makespan"] == 5 * 7 + 2 * 2 * 0.5'
plan --schedule 1f1b -p 4 -m 10 --scale 1,1,0.5,1.5
want "uneven stages" 0
check "the longest sets the pace" json 'R["makespan"] == 52.5 and R["ranks"][2]["busy"] == 15 and R["bubble_formula"] is None'
plan --schedule zb-v --evaluate -p 4 -m 8
want "evaluation" 0
check "forward only, no formula" json 'R["bubble_formula"] is None and {a["op"] for a in A(0)} == {"forward"}'
plan --stages 1 --micro-batches 1
check "one rank, one micro-batch" json 'R["bubble"] == 0 and R["makespan"] == 3'
plan --schedule 1f1b -p 16 -m 200 --columns 80
want "many" 0
check "the chart keeps to its width" [ "$(grep '^rank' "$W/out" | awk '{ print length($0) }' | sort -n | tail -1)" -le 80 ]

run "$P" pipeline --schedule all -p 4 -m 8
want "all" 0
check "a line each" [ "$(grep -cE '^(gpipe|1f1b|interleaved|zb-h1|zb-v) .* % ' "$W/out")" = 5 ]
run "$P" pipeline --schedule all -p 4 -m 6
want "all, and one that cannot" 0
check "it says so" grep -q '^interleaved .*in groups of 4' "$W/out"

# --- mistakes ---
run "$P" pipeline --schedule interleaved -p 4 -m 10
want "no groups" 2 'the nearest are 8 and 12'
run "$P" pipeline --schedule 1f1b --chunks 2
want "chunks" 2 '1 chunk per rank, not 2'
run "$P" pipeline --schedule dualpipe
want "no such schedule" 2 '--schedule dualpipe: wants gpipe, 1f1b, interleaved, zb-h1, zb-v, or all'
run "$P" pipeline --stages 0
want "no stages" 2 '--stages 0: wants a whole number from 1 to 512'
run "$P" pipeline --micro-batches x
want "no micro-batches" 2 '--micro-batches x: wants'
run "$P" pipeline --hop -1
want "a hop back in time" 2 '--hop -1: wants a number from 0 to'
run "$P" pipeline --weight 3
want "more than all" 2 'part of --backward'
run "$P" pipeline --forward 0 --backward 0
want "nothing to do" 2 'cannot both be 0'
run "$P" pipeline --stages 4 --scale 1,2,3
want "too few stages" 2 'each of the 4 stages, not 3'
run "$P" pipeline --stages 2 --scale 1,x
want "no scale" 2 '--scale 1,x: wants numbers from 0 on'
run "$P" pipeline --svg "$W/no/such.svg"
want "a drawing into nowhere" 1 '--svg: cannot write .*no/such.svg'
run "$P" pipeline --schedule all --svg "$W/a.svg"
want "a drawing of all" 2 'take one schedule'
run "$P" pipeline extra
want "an argument" 2 'extra'
run "$P" pipeline --nonsense
want "an unknown flag" 2 'unknown option --nonsense'
run sh -c '"$1" pipeline >/dev/full' - "$P"
want "a full disk" 1 'cannot write standard output'
run "$P" pipeline --help
want "--help" 0
grep -oE -- '--[a-z-]+' "$W/out" | sort -u >"$W/flags"
check "help has flags" [ "$(wc -l <"$W/flags")" -ge 14 ]
while read -r flag; do
    check "man page: $flag" grep -q -- "$(echo "${flag#--}" | sed 's/-/\\\\-/g')" docs/man/gyre-plan.1
done <"$W/flags"
finish
