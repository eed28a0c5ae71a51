#!/bin/bash
# tests/tools/test_gyre_plan.sh: what gyre-plan's help promises; large jobs in seconds; mistakes are named.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
P=$B/bin/gyre-plan
unset "${!GYRE_@}"
export GYRE_TUNE=none # the same numbers everywhere
DEADLINE=120

json() { # EXPRESSION over d, the JSON file of the last run, that must be true
    python3 -S -c 'import json, sys; d = json.load(open(sys.argv[1])); R = d["results"]; sys.exit(0 if eval(sys.argv[2]) else 1)' \
        "$W/out.json" "$1"
}
plan() { run "$P" schedule --json "$W/out.json" "$@"; }

# --- all algorithms, all presets ---
for topology in nvswitch fat-tree fat-tree:4 torus torus:4x4x3 dragonfly ethernet host; do
    for collective in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all barrier; do
        plan --collective $collective --ranks 48 --topology $topology -b 64K
        want "$collective over $topology" 0
        rows=$(grep -cE '^ +[0-9]+ [* ] [a-z]' "$W/out")
        mv "$W/out.json" "$W/$collective, $topology, $rows rows"
    done
done
# In one process: python3 takes longer to start than gyre-plan takes.
check "72 tables: one winner, fastest first, as many as in the output" python3 -S - "$W"/*' rows' <<'END'
import json, sys

def right(file):
    rows = json.load(open(file))["results"]
    times = [r["time_us"] for r in rows]
    return (len(rows) == int(file.split()[-2]) >= 1 and times == sorted(times)
            and [r["winner"] for r in rows] == [True] + [False] * (len(rows) - 1))

wrong = [file for file in sys.argv[1:] if not right(file)]
print(*wrong, sep="\n", end="")
sys.exit(len(sys.argv) != 1 + 8 * 9 or wrong != [])
END

# --- numbers ---
plan --algo ring --order fast --ranks 16 --topology ethernet -b 1M -e 16M -f 4 --chunk 16M
want "three sizes" 0
check "sizes" json '[r["size"] for r in R] == [1 << 20, 4 << 20, 16 << 20]'
check "ring: steps" json 'all(r["steps"] == 30 for r in R)'
check "ring: each link carries 2 (n-1)/n of the vector" json 'all(r["link_max_bytes"] == r["size"] * 30 / 16 == r["link_mean_bytes"] for r in R)'
check "busbw" json 'all(abs(r["bus_bw"] / r["alg_bw"] - 30 / 16) < 1e-9 and abs(r["alg_bw"] * r["time_us"] * 1e3 / r["size"] - 1) < 1e-9 for r in R)'
check "busbw nears the link's rate" json '2 < R[2]["bus_bw"] < 3.125'
plan --algo hierarchical --ranks 32 --topology fat-tree --ranks-per-host 4 -b 1M
check "hosts: what leaves a host" json '0 < R[0]["between_nodes_bytes"] < R[0]["payload_bytes"]'
plan --collective broadcast --algo binomial --root 5 --ranks 8 -b 1K
check "a root" json 'R[0]["steps"] == 3 and R[0]["payload_bytes"] == 7 * 1024'
plan --topology host --ranks 4 --algo direct -b 4M --memory plain
cp "$W/out.json" "$W/plain.json"
plan --topology host --ranks 4 --algo direct -b 4M
check "a host has no links" [ "$(grep -c 'link\|global\|0 B\| $' "$W/out")" = 0 ]
check "windows beat private memory" python3 -S -c 'import json, sys; a, b = (json.load(open(f))["results"][0]["time_us"] for f in sys.argv[1:]); sys.exit(a >= b)' \
    "$W/out.json" "$W/plain.json"

# --- a file ---
cat >"$W/net.json" <<'END'
{"title": "a pair", "nodes": 2, "cost": {"send_ns": 0, "recv_ns": 0, "reduce": 1e9, "copy": 1e9},
 "links": [{"between": ["n0", "n1"], "latency_ns": 1000, "rate": 1}]}
END
plan --topology "$W/net.json" --ranks 2 --algo ring -b 2000
want "a network from a file" 0
check "two hops of 1000 bytes and 1 us" json 'abs(R[0]["time_us"] - 4) < 1e-3 and R[0]["hottest_link"] == "n0 to n1"'
check "its title" grep -q 'over a pair' "$W/out"

# --- places ---
machine=machine:tests/topo/fixtures/epyc-128.xml
places=(--collective all_gather --algo ring -b 1M --topology "$machine" --ranks 128)
plan "${places[@]}" --deal caches --follow ranks
want "ranks dealt out, by rank" 0
check "every link of the ring leaves a NUMA node but those from one of its caches to the other" json 'R[0]["between_groups_bytes"] == 64 * 127 * 8192'
plan "${places[@]}" --deal caches
want "ranks dealt out" 0
check "one link for each NUMA node leaves it" json 'R[0]["between_groups_bytes"] == 8 * 127 * 8192'
check "the machine's title" grep -q '1 host of 2 packages, 8 NUMA nodes, 16 caches, 128 cores' "$W/out"
plan --topology host --deal hosts
want "places on this host" 2 'the ranks of --topology host have no places'
plan --topology ethernet --deal caches
want "caches of a network" 1 'cannot be dealt out to caches'

# --- large jobs; TEST_LONG=1: as large as the help promises ---
long=${TEST_LONG:-0}
ring=1024 trees=16384 all=384
[ "$long" = 0 ] || ring=4096 trees=65536 all=2048
plan --algo ring --order fast --ranks $ring --topology nvswitch -b 256M
want "ring, $ring ranks" 0
echo "ring, $ring ranks: $ms ms"
check "ring, $ring ranks: messages" json "R[0]['messages'] == 2 * ($ring - 1) * $ring"
for algo in tree binomial; do
    plan --algo $algo --ranks $trees --topology fat-tree:2 -b 4K
    want "$algo, $trees ranks" 0
    echo "$algo, $trees ranks: $ms ms"
done
plan --ranks 1 --topology host -b 64K
check "one rank is no ranks" [ "$(grep -c '\<1 rank[, ]' "$W/out")" = 2 ]
plan --ranks $all --topology dragonfly -b 64K --collective reduce_scatter
want "all, $all ranks" 0
echo "all, $all ranks: $ms ms"
check "ring is there" grep -q ' ring ' "$W/out"
check "no progress where nobody looks" [ ! -s "$W/err" ]
if [ -n "${TEST_LONG-}" ]; then # of fewer ranks nothing is too much
    plan --ranks 16384 --topology dragonfly -b 64K --collective all_gather
    want "all_gather, 16384 ranks" 0
    echo "all_gather, 16384 ranks: $ms ms"
    check "what is too much is left out" grep -q 'ring .*left out: it would take about [1-9]' "$W/out"
fi
# announced before it runs; it need not end
"$P" schedule --algo ring --ranks 4096 --topology torus -b 1M >"$W/out" 2>"$W/err" &
check "what takes long says so first" \
    until_true 5 grep -qE 'ring on 4096 ranks takes about [0-9]+ s.* --order fast about [0-9]+ s' "$W/err"
kill $!
wait $! 2>/dev/null

# --- mistakes ---
run "$P" schedule --topology nowhere
want "a network that is not there" 1 'nowhere.*neither a file nor a preset' 'nvswitch, fat-tree.*host'
run "$P" schedule --topology torus:3x3 --ranks 8
want "a torus of another size" 1 '9 nodes, not 8'
run "$P" schedule --algo rings
want "an unknown algorithm" 2 '--algo rings: wants all, or one of .*butterfly'
run "$P" schedule --algo tree --collective all_gather
want "one that does not serve it" 2 'tree has no all_gather; these serve it:.* bruck'
run "$P" schedule --collective allreduce
want "an unknown collective" 2 '--collective allreduce: wants all_reduce.*'
run "$P" schedule --ranks 0
want "no ranks" 2 '--ranks 0: wants a whole number from 1 to 1048576'
run "$P" schedule -b x
want "no size" 2 '--min x: wants a size'
run "$P" schedule -b 2M -e 1M
want "no sizes" 2 'smaller'
run "$P" schedule --root 64
want "a root that is not there" 2 '--root 64: wants a rank below --ranks 64'
run "$P" schedule extra
want "an argument" 2 'extra'
run "$P" schedule --nonsense
want "an unknown flag" 2 'unknown option --nonsense; see gyre-plan schedule --help'
run "$P" schedule --topologie torus
want "a slip in a flag" 2 'did you mean --topology'
run "$P" schedule --ranks 8 --topology torus -b 64kib -e 1m --chunk 4K
want "sizes with units" 0
check "from 64K to 1M" [ "$(grep -c '^ *\(65536\|262144\|1048576\) ' "$W/out")" -ge 3 ]
printf 'no topology\n' >"$W/own"
run "$P" schedule --topology "$W/own" --json "$W/own"
want "results over the topology" 2 "--json $W/own would replace $W/own, which is read: name another file"
check "which is still there" grep -qx 'no topology' "$W/own"
run "$P" schedule --json "$W/no/such/folder.json"
want "results into nowhere" 1 '--json: cannot write .*no/such/folder.json: No such file'
check "said before anything runs" [ ! -s "$W/out" ]
run "$P" nothing
want "an unknown question" 2 'nothing.*there are: schedule, pipeline'
run "$P"
want "no question" 2 'schedule'
run sh -c '"$1" schedule >/dev/full' - "$P"
want "a full disk" 1 'cannot write standard output'
run "$P" --version
want "--version" 0
run "$P" --help
want "--help" 0
run "$P" schedule --help
want "schedule --help" 0
check "nothing is required" grep -q '^usage: gyre-plan schedule \[--collective NAME\] \[--algo' "$W/out"
grep -oE -- '--[a-z-]+' "$W/out" | sort -u >"$W/flags"
check "help has flags" [ "$(wc -l <"$W/flags")" -ge 13 ]
while read -r flag; do
    check "man page: $flag" grep -q -- "$(echo "${flag#--}" | sed 's/-/\\\\-/g')" docs/man/gyre-plan.1
done <"$W/flags"
finish
