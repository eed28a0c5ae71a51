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
run "${MAKE:-make}" "${BENCH#"$PWD"/}/peers-gyre" "${BENCH#"$PWD"/}/limits" "${B#"$PWD"/}/bin/"{ucx-run,gyre-perf,gyre-doctor}
want "it builds" 0

json() { # FILE EXPRESSION: a Python expression over d and cells that must be true
    python3 -S -c 'import json, sys
d = json.load(open(sys.argv[1]))
cells, cold = ({(c["collective"], c["bytes"], c["buffers"]): c for c in d.get("cells", []) if c["cold"] == is_cold} for is_cold in (0, 1))
sys.exit(0 if eval(sys.argv[2]) else 1)' "$1" "$2"
}
# a last-level cache of 16 MiB: cold buffers are twice as long as the machine's, which may have 500 MiB
small='import machine, runpy; machine.last_level = lambda: 16 << 20; runpy.run_path("bench/bench_peers.py", run_name="__main__")'
peers() { run env PYTHONPATH=bench python3 -c "$small" --bin "$W/bin" --gyre "$B/bin" --out "$W/res" --work "$W/work" --rounds 1 --time 4 "$@"; }

# --- Gyre alone, real figures, the limits ---
mkdir "$W/bin" || exit 1
ln -s "$BENCH/peers-gyre" "$BENCH/limits" "$W/bin/"
peers --ranks 2 --sizes "8 64K" --cold 64K --contenders "gyre gyre-exact"
want "Gyre alone" 0
R=$W/res/peers.json
check "23 cells in cache, 10 cold" json "$R" 'len(cells) == 23 and len(cold) == 10'
check "every cell has a time" json "$R" 'all(c["gyre_us"] > 0 and c["gyre_p99_us"] > 0 for c in d["cells"])'
check "nothing wrong" json "$R" 'all(r["wrong"] == 0 for c in d["cells"] for r in c["results"].values())'
check "exact sums where there are sums" json "$R" '{c["collective"] for c in d["cells"] if "gyre-exact" in c["results"]} == {"all_reduce", "reduce_scatter"}'
check "communicators" json "$R" 'cells["split", 0, "malloc"]["gyre_us"] > 0 and cells["first_call", 8, "malloc"]["gyre_us"] > 0'
check "no peer, no ratio" json "$R" 'all(c["ratio"] is None for c in cells.values()) and not d["not_first"]'
check "limits" json "$R" 'd["limits"]["memcpy_64M_one_gbs"] > 0 and all(v > 0 for v in d["limits"].values())'
check "the least traffic" json "$R" 'd["machine"]["cores"] < 2 or d["limits"]["least_traffic_all_reduce_2_64M_us"] > 0'
check "a table with all kinds of memory" awk '/^### all_to_all, 2 ranks$/ { on = 1 } /^### split/ { on = 0 }
    on && /^\| *64 KiB \|  *(malloc|own|malloc, cold|own, cold) \|  *[0-9.]+/ { n++ } END { exit n != 4 }' "$W/out"
check "Markdown" grep -q '^### all_to_all, 2 ranks$' "$W/res/peers.md"
check "the machine" json "$W/res/machine.json" 'd["machine"]["cpu"] and d["limits"] and d["costs"]["measured"]["cma_call"]["unit"] == "ns"'
HTML=$W/res/index.html
check "a plot for each collective and memory" page "$HTML" 'len(plots) == 10 and all(len(p["gyre"]) == 2 for p in plots.values())'
check "every plot is drawn" page "$HTML" "all(re.search(f'data-plot=\"{name}\">.*?<svg', text) for name in plots)"
check "nothing from outside" page "$HTML" "not re.search(r'(src|href)=|https?://|@import|url\((?!#)', text) and 'nan' not in text"
check "all ratios, communicators, limits" page "$HTML" "all(word in text for word in ('own, cold', 'split, 2 ranks', 'cache line flight', 'cma_rate'))"

# --- peers that are not there are named, with how to get them ---
peers --ranks 3 --sizes 8 --collectives "reduce_scatter" --buffers malloc --cold 0 --no-limits
want "without peers" 0 'Open MPI is not here.*apt-get install openmpi-bin' 'Gloo is not here'
check "a size that every rank has a share of" json "$R" 'list(cells) == [("reduce_scatter", 12, "malloc")]'

# --- many ranks: fewer sizes; a folder for each run ---
check "sizes of many ranks" env PYTHONPATH=bench python3 -c '
from peers_options import make_parser, sizes_of
options = make_parser("").parse_args([])
assert sizes_of(options, 8) == ([8, 512] + [4096 << k for k in range(0, 15, 2)], [65536, 1 << 20])
assert sizes_of(options, 32) == ([8, 4096, 65536, 1 << 20], [])
options = make_parser("").parse_args(["--sizes", "8", "--cold", "64"])
assert sizes_of(options, 8) == sizes_of(options, 64) == ([8], [64])'
check "a new folder for each run" env PYTHONPATH=bench python3 - "$W/top" <<'PY'
import os, sys
import bench_peers, machine
facts = dict(machine.facts("."), date="2026-11-27 10:00 UTC", cpu="Intel(R) Xeon(R) Platinum 8275CL CPU @ 3.00GHz", cores=4)
bench_peers.TOP = sys.argv[1]
made = [os.path.relpath(bench_peers.new_folder(facts), sys.argv[1]) for _ in range(2)]
assert made == ["bench/results/2026-11-27-intel-xeon-platinum-8275cl-4", "bench/results/2026-11-27-intel-xeon-platinum-8275cl-4-2"], made
PY

# --- a library that misbehaves ---
cp tests/bench/fake_peer.py "$W/bin/peers-gloo" && chmod +x "$W/bin/peers-gloo"
peers --ranks 2 --sizes 8 --buffers malloc --contenders "gyre gloo" --cold 0 --no-limits --deadline 2
want "beside a fake" 0 'all_gather 8 B: rank [01]: it broke' 'broadcast 8 B: 2 of 2 ranks not done after 2 s'
cell='cells[("%s", 8, "malloc")]'
check "a wrong result is no peer's record" json "$R" "${cell/\%s/all_reduce}"'["best_peer"] is None'
check "and is told" grep -q 'gloo, 2 ranks, all_reduce, 8 B, malloc: 5 elements wrong' "$W/out"
check "a death is told" json "$R" "'died' in ${cell/\%s/reduce_scatter}['results']['gloo']['error']"
check "a library that lacks it" json "$R" "${cell/\%s/all_to_all}['results']['gloo']['error']"
check "the rest goes on" json "$R" 'all(c["gyre_us"] for c in cells.values()) and len(cells) == 8'
check "every failure is listed" json "$R" 'len(d["failures"]) >= 3'

# --- the slowest rank counts, and a peer's ratio comes out of it ---
peers --ranks 2 --collectives barrier --contenders "gyre gloo" --no-limits
want "a slow fake" 0
check "the slowest rank" json "$R" 'cells[("barrier", 0, "malloc")]["results"]["gloo"]["us"] == 1e9'
check "the ratio" json "$R" 'all(abs(c["ratio"] * c["gyre_us"] / 1e9 - 1) < 1e-3 for c in cells.values())'

# --- ended early, it leaves no rank behind and keeps what it has measured ---
python3 bench/bench_peers.py --bin "$W/bin" --gyre "$B/bin" --out "$W/part" --work "$W/work" --rounds 1 --ranks "2 3" \
    --contenders "gyre gloo" --no-limits --collectives broadcast --sizes 8 --cold 0 --buffers malloc --deadline 4 >"$W/out" 2>&1 &
bench=$!
somebody() { pgrep -f "$W/bin/peers-" >/dev/null; }
nobody() { ! somebody; }
check "2 ranks are written" until_true 60 [ -s "$W/part/index.html" ]
check "3 ranks are there" until_true 60 somebody
kill "$bench"
wait "$bench"
check "SIGTERM ends it" [ $? = 143 ]
check "and its ranks" until_true 10 nobody
check "and takes its files along" [ -z "$(find "$W/work" -mindepth 1 -type d)" ]
check "what was measured is there" json "$W/part/peers.json" 'd["left"] == [3] and [c["ranks"] for c in d["cells"]] == [2]'
check "and what was not is told" grep -q 'ended before it had measured 3 ranks' "$W/part/peers.md"

# --- UCC, which is in no Debian: a library with its names ---
check "UCC" gcc -std=c17 -O1 -D_GNU_SOURCE -I. -Itests/bench bench/backend_ucc.c tests/bench/fake_ucc.c bench/peers_loop.c -lm -o "$W/bin/peers-ucc"
peers --ranks 3 --sizes 24 --buffers malloc --contenders "gyre ucc" --cold 0 --no-limits --time 1
want "beside UCC" 0
check "UCC has all operations" json "$R" 'len(cells) == 8 and all(c["results"]["ucc"]["us"] for c in cells.values())'
check "and is right" json "$R" 'all(c["results"]["ucc"]["wrong"] == 0 for c in cells.values()) and "fake" in d["contenders"]["ucc"]["version"]'

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

line, cold_line = "run %s 4096 malloc 0 5 2000 20 0", "run %s 4096 malloc 100000 5 2000 20 0"
for collective in ("all_reduce", "reduce_scatter", "all_gather", "all_to_all"):
    for manner, bad in (("honest", 0), ("last", 3), ("late", 2), ("lazy", 3072), ("frozen", 2048), ("stale", 2048)):
        for one in (line, cold_line):
            answer, code = ask(manner, one % collective)
            assert answer[0] == "ok" and int(answer[5]) == bad and code == 0, (one, collective, manner, answer, code)
for manner in ("failing", "moving"):
    answer, code = ask(manner, line % "all_reduce")
    assert answer == ["error", "all_reduce:", "seven"] and code, (answer, code)
assert ask("moving", cold_line % "all_reduce")[0][0] == "ok"
assert ask("honest", "run all_reduce 64 own 0 1 2000 20 0")[0] == ["none"]
batches = [len(ask("honest", f"run all_reduce 64 malloc 0 1 2000 20 {shared}")[0]) - 7 for shared in (0, 1)]
assert batches == [10, 5], batches
PY

# --- goals ---
check "goals" env PYTHONPATH=bench python3 -c '
from goals import goal, misses
assert goal(2, "all_reduce", 8, "malloc") == {"ratio": 1.1} and goal(2, "all_reduce", 8, "own") == {"ratio": 1.3}
assert goal(2, "barrier", 0, "malloc")["ratio"] == 1.1 and goal(6, "all_to_all", 64 << 20, "own")["ratio"] == 1.3
assert goal(2, "all_reduce", 64 << 20, "own") == {"ratio": 1.3, "least_traffic": 1.4}
assert goal(8, "all_gather", 64, "own") == {"ratio": 1.3, "p99": 5.0} and goal(4, "all_gather", 1 << 20, "malloc") == {"ratio": 1.1}
assert goal(32, "all_gather", 64, "own") == {"ratio": 0.67} and goal(2, "split", 0, "malloc") == {"ratio": 0.5}
c = {"ranks": 4, "collective": "barrier", "bytes": 0, "buffers": "malloc", "gyre_us": 1.0, "gyre_p99_us": 6.0, "ratio": 1.05, "undecided": False}
assert len(misses(c, {})) == 2
c.update(ranks=2, collective="all_reduce", bytes=64 << 20, buffers="own", ratio=3)
assert misses(c, {}) == [] and len(misses(c, {"least_traffic_all_reduce_2_64M_us": 0.5})) == 1'

# --- a figure that was never had undisturbed decides nothing ---
check "undecided" env PYTHONPATH=bench python3 -c '
import bench_peers, report
def cell(size, others=0.0, buffers="malloc", **figures):
    one = lambda us, disturbed: {"us": us, "p50_us": us, "p99_us": us, "disturbed": disturbed, "wrong": 0, "others": others}
    results = {k: {"rounds": [one(*r) for r in v], "wrong": 0, "error": None, "as_malloc": False} for k, v in figures.items()}
    return {"ranks": 3, "collective": "all_reduce", "bytes": size, "buffers": buffers, "cold": False, "results": results}
cells = [cell(4, gyre=[(2, False)], ompi=[(1, True)], mpich=[(3, False)]),
         cell(8, gyre=[(2, False)], ompi=[(4, True)]),
         cell(16, gyre=[(2, False)], ompi=[(1, False), (9, True)]),
         cell(32, gyre=[(1.6, False)], ompi=[(3, False)], mpich=[(4, True)]),
         cell(64, 0.06, gyre=[(2, False)], ompi=[(1, False)]),
         cell(64, 0.04, "own", **{"gyre": [(2, False)], "ompi": [(8, False)], "gyre-exact": [(1, False)]})]
bench_peers.conclude(cells, {})
assert [c["undecided"] for c in cells] == [True, True, False, False, True, False], cells
assert [bool(c["misses"]) for c in cells] == [False, False, True, False, False, False], cells
assert cells[-1]["best_peer"] == "ompi"
result = {"cells": cells, "failures": [], "contenders": {"gyre": {}, "ompi": {}, "mpich": {}}}
text = report.conclusion(result)
assert "not first in 1 of 3 cells" in text and "3 ranks, all_reduce, 4 B, malloc: 2.00 us, ompi 1.00? (ratio 0.50?)" in text, text
assert text.index("ompi 1.00 (ratio 0.50)") < text.index("Undecided") < text.index("ompi 1.00? (ratio"), text
assert "Slower than 1.2 x the next larger size: 1:" in text, text
assert "all_reduce, 16 B, malloc: 1.25 x the time of 32 B" in text, text
rows = report.summary(cells)[1]
assert rows == [["3", "malloc", "5", "1", "1", "3", "0.50", "1.19*"], ["3", "own", "1", "1", "0", "0", "4.00", "4.00"]], rows
assert "0.50? |" in report.tables(result, 3) and "2.00? |" in report.tables(result, 3)'

# --- the tables once more from the JSON; their head says how it was measured ---
headed() { grep -qxF "    $1" "$W/again/peers.md"; }
mkdir "$W/again" || exit 1
peers --ranks 2 --sizes "8 64K" --collectives "all_reduce barrier" --contenders gyre --cold 0 --no-limits
want "a run to report again" 0
cp "$R" "$W/again/r.json"
run python3 bench/bench_peers.py --report "$W/again/r.json"
want "a report from the JSON" 0
check "and where Gyre is behind" grep -q 'Gyre is not first in' "$W/out"
check "the same tables" cmp "$W/res/peers.md" "$W/again/peers.md"
check "the same page" cmp "$W/res/index.html" "$W/again/index.html"
check "the JSON is only read" cmp "$R" "$W/again/r.json"
check "every option that was given" headed \
    'make bench-peers RANKS=2 COLLECTIVES="all_reduce barrier" SIZES="8 64K" COLD=0 CONTENDERS=gyre ROUNDS=1 TIME=4 LIMITS=0'
check "sizes, buffers and the rest" env PYTHONPATH=bench python3 -c '
from peers_options import command_line
assert command_line({"ranks": [2, 4, 8], "sizes": [8, 65536, 3 << 20], "cold": [], "buffers": ["own"], "give_up": 2.5, "deadline": 7,
    "no_limits": False}) == "make bench-peers SIZES=\"8 64K 3M\" COLD=0 BUFFERS=own DEADLINE=7 GIVE_UP=2.5"
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

# --- caches ---
for cpu in 0 1 2 3; do # two processors share each cache of 32 MiB
    cache=$W/cpus/cpu$cpu/cache/index0
    mkdir -p "$cache"
    echo Unified >"$cache/type"
    echo 3 >"$cache/level"
    echo 32768K >"$cache/size"
    echo $((cpu / 2 * 2))-$((cpu / 2 * 2 + 1)) >"$cache/shared_cpu_list"
done
last_level() { PYTHONPATH=bench python3 -c "import machine; print(machine.last_level($1, '$W/cpus') >> 20)"; }
check "caches of the last level are added up" [ "$(last_level '[0, 1, 2, 3]')" = 64 ]
check "only ours" [ "$(last_level '[2, 3]')" = 32 ]
check "64 MiB where they are unknown" [ "$(last_level '[9]')" = 64 ]

# --- wrong command lines ---
peers --sizes 3
want "a size of 3" 2 "size '3' is not"
peers --cold 3
want "a cold size of 3" 2 "size '3' is not"
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
want "no such contender" 1 "no contender 'nobody'; there are: gyre gyre-exact ompi"
finish
