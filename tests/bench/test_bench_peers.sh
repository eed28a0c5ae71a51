#!/bin/bash
# tests/bench/test_bench_peers.sh: the yardstick with Gyre alone, and beside a fake library that misbehaves in every way.
# The peers themselves are not needed: what is tested is that figures are checked, and that failures are reported.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=120
BENCH=$B/bench

# by the names that the Makefile knows: an absolute one would be a file without a rule
run "${MAKE:-make}" "${BENCH#"$PWD"/}/peers-gyre" "${BENCH#"$PWD"/}/limits" "${B#"$PWD"/}/bin/ucx-run"
want "it builds" 0

json() { # FILE EXPRESSION: a Python expression over d and cells that must be true
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
cells = {(c["collective"], c["bytes"], c["buffers"]): c for c in d["cells"]}
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2"
}
peers() { run python3 bench/bench_peers.py --bin "$W/bin" --gyre "$B/bin" --out "$W/res" --rounds 1 --time 4 "$@"; }

# --- Gyre alone, real figures, the limits ---
mkdir "$W/bin" || exit 1
ln -s "$BENCH/peers-gyre" "$BENCH/limits" "$W/bin/"
peers --ranks 2 --sizes "8 64K" --contenders gyre
want "Gyre alone" 0
R=$W/res/peers.json
check "21 cells" json "$R" 'len(cells) == 21'
check "every cell has a time" json "$R" 'all(c["gyre_us"] > 0 and c["gyre_p99_us"] > 0 for c in cells.values())'
check "nothing wrong" json "$R" 'all(c["results"]["gyre"]["wrong"] == 0 for c in cells.values())'
check "no peer, no ratio" json "$R" 'all(c["ratio"] is None for c in cells.values()) and not d["not_first"]'
check "limits" json "$R" 'd["limits"]["memcpy_64M_one_gbs"] > 0 and all(v > 0 for v in d["limits"].values())'
check "the least traffic" json "$R" 'd["machine"]["cores"] < 2 or d["limits"]["least_traffic_all_reduce_2_64M_us"] > 0'
check "a table" grep -qE '^\|  *64 KiB \|  *[0-9.]+ ' "$W/out"
check "Markdown" grep -q '^### all_to_all, 2 ranks, buffers from own allocator' "$W/res/peers.md"
check "SVG" python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$W/res/peers.svg"

# --- peers that are not there are named, with how to get them ---
peers --ranks 3 --sizes 8 --collectives "reduce_scatter" --buffers malloc --no-limits
want "without peers" 0 'Open MPI is not here.*apt-get install openmpi-bin' 'Gloo is not here'
check "a size that every rank has a share of" json "$R" 'list(cells) == [("reduce_scatter", 12, "malloc")]'

# --- a library that misbehaves ---
cp tests/bench/fake_peer.py "$W/bin/peers-gloo" && chmod +x "$W/bin/peers-gloo"
peers --ranks 2 --sizes 8 --buffers malloc --contenders "gyre gloo" --no-limits --deadline 2
want "beside a fake" 0 'all_gather 8 B: rank [01]: it broke' 'broadcast 8 B: 2 of 2 ranks not done after 2 s'
cell='cells[("%s", 8, "malloc")]'
check "a wrong result is no peer's record" json "$R" "${cell/\%s/all_reduce}"'["best_peer"] is None'
check "and is told" grep -q 'gloo, 2 ranks, all_reduce, 8 B, malloc: 5 elements wrong' "$W/out"
check "a death is told" json "$R" "'died' in ${cell/\%s/reduce_scatter}['results']['gloo']['error']"
check "a library that lacks it" json "$R" "${cell/\%s/all_to_all}['results']['gloo']['error']"
check "the rest goes on" json "$R" 'all(c["gyre_us"] for c in cells.values()) and len(cells) == 6'
check "every failure is listed" json "$R" 'len(d["failures"]) >= 3'

# --- the slowest rank counts, and a peer's ratio comes out of it ---
peers --ranks 2 --collectives barrier --contenders "gyre gloo" --no-limits
want "a slow fake" 0
check "the slowest rank" json "$R" 'cells[("barrier", 0, "malloc")]["results"]["gloo"]["us"] == 1e9'
check "the ratio" json "$R" 'all(abs(c["ratio"] * c["gyre_us"] / 1e9 - 1) < 1e-6 for c in cells.values())'

# --- ended early, it leaves no rank behind ---
timeout 3 python3 bench/bench_peers.py --bin "$W/bin" --gyre "$B/bin" --out "$W/res" --rounds 1000 --ranks 2 \
    --contenders "gyre gloo" --no-limits --collectives barrier >"$W/out" 2>&1
check "SIGTERM ends it" [ $? = 124 ]
nobody() { ! pgrep -f "$W/bin/peers-" >/dev/null; }
check "and its ranks" until_true 10 nobody
check "and takes its files along" [ -z "$(find "$W/res" -mindepth 1 -type d)" ]

# --- the loop's own check of results ---
check "a crooked library" gcc -std=c17 -O1 -D_GNU_SOURCE -I. tests/bench/crooked.c bench/peers_loop.c -lm -o "$W/crooked"
check "is found out" python3 - "$W/crooked" <<'PY'
import socket, subprocess, sys

def ask(manner, line):
    name = f"gyre-test-{manner}-{id(line)}-{__import__('os').getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen(1)
        rank = subprocess.Popen([sys.argv[1], "@" + name, manner])
        listener.settimeout(20)
        connection, _ = listener.accept()
    with connection, connection.makefile("rw") as f:
        assert f.readline() .split()[:3] == ["hello", "0", "1"]
        f.write(line + "\n")
        f.flush()
        answer = f.readline().split()
        if answer[0] != "error":
            f.write("quit\n")
            f.flush()
        f.readline()
    return answer, rank.wait(20)

line = "run %s 4096 malloc 5 2000 20"
for collective in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"):
    for manner, bad in (("honest", 0), ("last", 3), ("late", 2), ("lazy", 3072), ("frozen", 2048), ("stale", 2048)):
        answer, code = ask(manner, line % collective)
        assert answer[0] == "ok" and int(answer[5]) == bad and code == 0, (collective, manner, answer, code)
answer, code = ask("failing", line % "all_reduce")
assert answer == ["error", "all_reduce:", "seven"] and code, (answer, code)
assert ask("honest", "run all_reduce 64 own 1 2000 20")[0] == ["none"]
PY

# --- goals ---
check "goals" env PYTHONPATH=bench python3 -c '
from goals import goal, misses
assert goal(2, "all_reduce", 8, "own") == {"ratio": 1.2, "most_us": 0.15}
assert goal(2, "barrier", 0, "malloc")["ratio"] == 1.2
assert goal(2, "all_reduce", 65536, "malloc")["ratio"] == 2 and goal(2, "broadcast", 65536, "own")["ratio"] == 1.3
assert goal(2, "all_reduce", 64 << 20, "own") == {"ratio": 2.5, "least_traffic": 1.4}
assert goal(2, "reduce_scatter", 16 << 20, "malloc")["ratio"] == 1.5 and goal(2, "all_to_all", 64 << 20, "own")["ratio"] == 1.1
assert goal(8, "all_gather", 64, "own") == {"ratio": 1.3, "p99": 5.0} and goal(4, "all_gather", 1 << 20, "own")["ratio"] == 1
c = {"ranks": 4, "collective": "barrier", "bytes": 0, "buffers": "malloc", "gyre_us": 1.0, "gyre_p99_us": 6.0, "ratio": 1.2, "undecided": False}
assert len(misses(c, {})) == 2
c.update(ranks=2, collective="all_reduce", bytes=64 << 20, buffers="own", ratio=3)
assert misses(c, {}) == [] and len(misses(c, {"least_traffic_all_reduce_2_64M_us": 0.5})) == 1'

# --- a figure that was never had undisturbed decides nothing ---
check "undecided" env PYTHONPATH=bench python3 -c '
import bench_peers, report
def cell(size, **figures):
    one = lambda us, disturbed: {"us": us, "p50_us": us, "p99_us": us, "disturbed": disturbed, "wrong": 0}
    results = {k: {"rounds": [one(*r) for r in v], "wrong": 0, "error": None, "as_malloc": False} for k, v in figures.items()}
    return {"ranks": 3, "collective": "all_reduce", "bytes": size, "buffers": "malloc", "results": results}
cells = [cell(4, gyre=[(2, False)], ompi=[(1, True)], mpich=[(3, False)]),
         cell(8, gyre=[(2, False)], ompi=[(4, True)]),
         cell(16, gyre=[(2, False)], ompi=[(1, False), (9, True)]),
         cell(32, gyre=[(2, False)], ompi=[(3, False)], mpich=[(4, True)])]
bench_peers.conclude(cells, {})
assert [c["undecided"] for c in cells] == [True, True, False, False], cells
assert [bool(c["misses"]) for c in cells] == [False, False, True, False], cells
result = {"cells": cells, "failures": [], "contenders": {"gyre": {}, "ompi": {}, "mpich": {}}}
text = report.conclusion(result)
assert "not first in 1 of 2 cells" in text and "3 ranks, all_reduce, 4 B, malloc: 2.00 us, ompi 1.00? (ratio 0.50?)" in text, text
assert text.index("ompi 1.00 (ratio 0.50)") < text.index("Undecided") < text.index("ompi 1.00? (ratio"), text
assert "0.50? |" in report.tables(result, 3) and "2.00? |" in report.tables(result, 3)'

# --- the tables once more from the JSON; their head says how it was measured ---
headed() { grep -qxF "    $1" "$W/again/peers.md"; }
mkdir "$W/again" || exit 1
cp "$R" "$W/again/r.json"
run python3 bench/bench_peers.py --report "$W/again/r.json"
want "a report from the JSON" 0
check "and where Gyre is behind" grep -q 'Gyre is not first in' "$W/out"
check "the same tables" cmp "$W/res/peers.md" "$W/again/peers.md"
check "the same plots" cmp "$W/res/peers.svg" "$W/again/peers.svg"
check "the JSON is only read" cmp "$R" "$W/again/r.json"
check "every option that was given" headed \
    'make bench-peers RANKS=2 COLLECTIVES=barrier CONTENDERS="gyre gloo" ROUNDS=1 TIME=4 LIMITS=0'
check "sizes, buffers and the rest" env PYTHONPATH=bench python3 -c '
from peers_options import command_line
assert command_line({"ranks": [2, 4, 8], "sizes": [8, 65536, 3 << 20], "buffers": ["own"], "give_up": 2.5, "deadline": 7,
    "no_limits": False}) == "make bench-peers SIZES=\"8 64K 3M\" BUFFERS=own DEADLINE=7 GIVE_UP=2.5"
assert command_line({}) == "make bench-peers"'
echo '{"cells": 1}' >"$W/again/r.json"
run python3 bench/bench_peers.py --report "$W/again/r.json"
want "a report from something else" 1 'r.json: no peers.json of this program'
run python3 bench/bench_peers.py --report "$W/again/none.json"
want "a report from nothing" 1 'none.json.*No such file'

# --- what `make bench` needs is Python alone ---
mkdir "$W/bare" && ln -s "$(command -v dirname)" "$W/bare/" || exit 1
run env PATH="$W/bare" /bin/sh tools/setup python
want "setup for Python" 0
check "asks for nothing else" [ ! -s "$W/out" ]

# --- wrong command lines ---
peers --sizes 3
want "a size of 3" 2 "size '3' is not"
peers --collectives all_reduced
want "no such collective" 2 "choose from all_reduce"
peers --ranks x
want "ranks that are no number" 2 "RANKS='x': allowed are whole numbers from 2 to 4096"
peers --ranks "2 1"
want "one rank" 2 "RANKS='2 1'"
peers --rounds 0
want "no round" 2 "ROUNDS='0': allowed is a whole number from 1 to"
peers --give-up 0
want "giving up at once" 2 "GIVE_UP='0'"
peers --contenders nobody
want "no such contender" 1 "no contender 'nobody'; there are: gyre ompi"
finish
