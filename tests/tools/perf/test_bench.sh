#!/bin/bash
# tests/tools/perf/test_bench.sh: bench/bench.py in its quick form: the page has every section with its plot data, stands alone, and a
# run that fails shows.
# deadline: 300
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=120
python=$(command -v /usr/bin/python3 || command -v python3)
[ -n "$python" ] || skip "there is no python3"
bench() { run "$python" bench/bench.py --bin "$B/bin" "$@"; }

bench --quick --ranks 2 --out "$W/quick"
want "the quick form" 0
html=$W/quick/index.html
for coll in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all sendrecv; do
    check "$coll: time" page "$html" "len(plots['time/$coll']['2 ranks']) >= 2 and all(y > 0 for _, y in plots['time/$coll']['2 ranks'])"
    check "$coll: bus bandwidth" page "$html" "len(plots['busbw/$coll']['2 ranks']) >= 2"
done
check "buffers from malloc" page "$html" "plots['time/all_reduce']['2 ranks, buffers from malloc']"
check "latency" page "$html" "sum(plots['latency/all_reduce/8/2']['counts']) == sum(plots['latency/barrier/0/2']['counts']) == 200"
check "init" page "$html" "[x for x, _ in plots['init/time']['total']] == [2, 4] and {'init/memory', 'init/connections'} <= set(plots)"
check "mock ranks" page "$html" "plots['mock/counts']['rounds'] == [[2, 2], [4, 4], [8, 6], [16, 8], [32, 10]] and {'mock/time', 'mock/state'} <= set(plots)"
check "overlap" page "$html" "len(plots['overlap/2']) >= 2 and all(0 <= y <= 100 for s in plots['overlap/2'].values() for _, y in s)"
check "buckets" page "$html" "len(plots['bucket/time/tensors.txt']['through buckets']) >= 2"
check "order" page "$html" "all(y > 0 for s in plots['order/cost'].values() for _, y in s) and len(plots['order/cost']) == 2"
check "every plot is drawn" page "$html" "all(re.search(f'data-plot=\"{name}\">.*?<svg', text) for name in plots) and 'no figures' not in text and 'nan' not in text"
check "nothing from outside" page "$html" "not re.search(r'(src|href)=|https?://|@import|url\((?!#)', text)"
check "light and dark" page "$html" "'prefers-color-scheme: dark' in text"
check "nothing failed or was left out" page "$html" "'class=\"banner\"' not in text"
check "machine and commands" page "$html" "'processors' in text and 'gyre-perf latency' in text and 'commit' in text"
check "progress" grep -q '100 %' "$W/err"
check "raw results" "$python" -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(0 if d and all(s["code"] == 0 and s["result"] for s in d) else 1)' "$W/quick/results.json"

# --- runs that fail are told, on the page and by the exit status ---
mkdir "$W/bin"
ln -s "$UCX_RUN" "$W/bin/ucx-run"
printf '#!/bin/sh\necho "<broken>" >&2\nexit 3\n' >"$W/bin/gyre-perf"
chmod +x "$W/bin/gyre-perf"
run "$python" bench/bench.py --bin "$W/bin" --quick --only init --out "$W/broken"
want "a gyre-perf that fails" 1 'failed with code 3'
check "said on the page, harmlessly" page "$W/broken/index.html" "'1 run failed' in text and '&lt;broken&gt;' in text and '<broken>' not in text"
bench --quick --only mock,init --budget 0.000001 --out "$W/late"
want "no time" 0
check "what is left out is said" page "$W/late/index.html" "'2 runs left out: the time was up' in text"

# --- wrong use ---
bench --only nonesuch
want "no such section" 2 'no section nonesuch'
bench --ranks 2,x
want "no numbers" 2 'ranks 2,x'
run "$python" bench/bench.py --bin "$W/none"
want "nothing built" 2 'has no gyre-perf'
finish
