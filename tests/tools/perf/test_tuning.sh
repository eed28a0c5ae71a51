#!/bin/bash
# tests/tools/perf/test_tuning.sh: gyre-perf --tune writes what later runs read, --explain says what was chosen and why, files that
# cannot be used say so, and gyre-doctor shows the numbers.
# deadline: 240
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../../support/lib.sh"
unset "${!GYRE_@}"
DEADLINE=60
export XDG_CACHE_HOME=$W/cache

cached() { cat "$W"/cache/gyre/tune-* 2>/dev/null; }
mkdir "$W/cache"

# --- the cache: made by the first job of several ranks, only read by the next ---
run "$PERF" all_reduce -b 8 -e 8 -n 1
want "one rank" 0
check "one rank has nothing to choose and measures nothing" [ -z "$(cached)" ]
GYRE_LOG=info run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "a first job" 0 'tuning: measured this machine in [0-9]+ ms' "tuning: kept in $W/cache/gyre/tune-"
check "it is a tuning file" grep -q '^gyre-tune 1$' <(cached)
check "with numbers" [ "$(cached | grep -c '^cost ')" -ge 15 ]
cp "$W"/cache/gyre/tune-* "$W/before"
GYRE_LOG=info run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "a second job" 0
check "it measures nothing" sh -c '! grep -q "tuning: measured" "$1"' - "$W/err"
check "and writes nothing" cmp -s "$W/before" "$W"/cache/gyre/tune-*
check "no other file" [ "$(ls "$W/cache/gyre" | wc -l)" = 1 ]
XDG_CACHE_HOME=/proc/none GYRE_LOG=info run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "a cache that cannot be written is no error" 0 'tuning: /proc/none/gyre/tune-[0-9a-f]* cannot be written'
XDG_CACHE_HOME=/proc/none run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "nor worth a word" 0
check "silent" [ ! -s "$W/err" ]
run env -u HOME -u XDG_CACHE_HOME GYRE_LOG=info "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "no home at all" 0 'neither XDG_CACHE_HOME nor HOME'

# --- --tune ---
run "$PERF" --tune="$W/alone"
want "--tune=FILE, one rank" 0
check "says where" grep -q "^# written to $W/alone: 0 choose lines" "$W/out"
cat >"$W/file" <<'END'
gyre-tune 1
choose all_reduce ranks 2 hosts 1 bytes 64-512 algo ring # old
choose all_reduce ranks 2 hosts 1 bytes 128-1M algo ring # reaches beyond
choose all_reduce ranks 2 hosts 1 bytes 2M- algo tree # larger
choose all_reduce ranks 2 hosts 2 bytes 64-512 algo tree # two hosts
choose all_reduce ranks 7 algo tree # seven
choose all_gather ranks 2 hosts 1 algo ring # not asked
END
run "$UCX_RUN" -n 2 "$PERF" --tune="$W/file" all_reduce broadcast barrier -b 8 -e 4K -f 8 -n 2 -J "$W/tune.json"
want "--tune=FILE, two ranks" 0
check "rows" [ "$(grep -cE '^(all_reduce|broadcast) ' "$W/out")" = 8 ]
check "a row for the barrier" [ "$(grep -c '^barrier ' "$W/out")" = 1 ]
check "numbers" grep -q '^cost line ' "$W/file"
check "lines for other numbers of ranks stay, with their comment" grep -q 'choose all_reduce ranks 7 algo tree  # seven' "$W/file"
for line in larger 'two hosts' 'not asked'; do
    check "what was not measured stays: $line" grep -q "# $line\$" "$W/file"
done
check "lines for what was measured make place" sh -c 'test -s "$1" && ! grep -q "# old" "$1"' - "$W/file"
check "and are cut to what was not" grep -qE 'all_reduce ranks 2 hosts 1 bytes 11586-1M algo ring  # reaches beyond$' "$W/file"
check "each candidate in the JSON" json "$W/tune.json" 'all(r["candidates"][0]["window_us"] > 0 and len(r["candidates"]) > 2 for r in d["results"])'
check "small messages: oneshot is a candidate" json "$W/tune.json" 'any(r["size"] == 8 and r["candidates"][0]["name"] == "oneshot" for r in d["results"])'
check "a line only where it was beaten" json "$W/tune.json" 'all(r["best"] == 0 or r["candidates"][r["best"]]["ratio"] < 0.93 for r in d["results"])'
# sizes outside keep their choice, those inside have none of the old ones
GYRE_TUNE=$W/file run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 64 -e 4M -f 256 -n 2 --inplace 0 --explain
want "it can be used" 0
GYRE_TUNE=$W/file run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 16K -e 4M -f 16 -n 2 --inplace 0 --explain
want "sizes outside" 0
number() { grep -n "# $1\$" "$W/file" | cut -d: -f1; }
check "--explain names the line: 16 KiB" grep -qE "^ +16384 .* ring .*line $(number 'reaches beyond') of file\$" "$W/out"
check "--explain names the line: 4 MiB" grep -qE "^ +4194304 .* tree .*line $(number larger) of file\$" "$W/out"
run "$UCX_RUN" -n 2 "$PERF" --tune barrier -n 1
want "--tune into the cache" 0
check "there" grep -q "^# written to $W/cache/gyre/tune-" "$W/out"
run "$PERF" --tune=/proc/none/file
want "--tune where nothing can be written" 3 '/proc/none/file'
run "$PERF" --tune="$W/file" nonesuch
want "--tune of what is no collective" 2 '"nonesuch" is no collective'
run "$PERF" --tune="$W/file" --order fast
want "--tune in another order" 2 'order fast: only canonical'
GYRE_ORDER=fast run "$UCX_RUN" -n 2 "$PERF" --tune="$W/canonical" all_reduce -b 64K -e 64K -n 1 --order canonical
want "--tune with GYRE_ORDER" 0
check "GYRE_ORDER does not count" grep -q '^# transport .*, order canonical,' "$W/out"
printf 'gyre-tune 1\nchoose nothing\n' >"$W/broken"
run "$UCX_RUN" -n 2 "$PERF" --tune="$W/broken" barrier
want "--tune over a file with a mistake" 2 "$W/broken:2: "

# --- --explain ---
columns() { grep -v '^#' "$W/out" | awk -v c="$1" '{print $c}' | sort -u | tr '\n' ' '; }
GYRE_TUNE=none run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 1M -f 64 -n 5 --explain --json "$W/explain.json"
want "--explain" 0
check "a row for each size and place" [ "$(grep -vc '^#' "$W/out")" = 6 ]
check "the transport" [ "$(columns 6)" = "shm " ]
check "who chose" grep -q 'rule' "$W/out"
check "JSON" json "$W/explain.json" 'all(r[p]["predicted"] > 0 and r[p]["measured"] > 0 and r[p]["next"] for r in d["results"] for p in ("explain_out_of_place", "explain_in_place"))'
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 64K -e 64K -n 2 --explain --algo tree
want "--explain, forced" 0
check "says so" grep -qE ' tree .* forced: GYRE_ALGO' "$W/out"
printf 'gyre-tune 1\n# mine\nchoose all_reduce ranks 2-3 bytes 64K-1M algo butterfly chunk 8K\n' >"$W/mine"
GYRE_TUNE=$W/mine run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 32K -e 64K -f 2 -n 2 --inplace 0 --explain
want "--explain, a choose line" 0
check "from the size that it names" [ "$(grep -c 'line 3 of mine' "$W/out")" = 1 ]
check "algorithm and chunk of the line" grep -qE '^ +65536 .* butterfly .* 8K .*line 3 of mine$' "$W/out"
GYRE_TUNE=$W/mine run "$UCX_RUN" -n 4 "$PERF" all_reduce -b 64K -e 64K -n 2 --inplace 0 --explain
want "--explain, four ranks" 0
check "a row" [ "$(grep -vc '^#' "$W/out")" = 1 ]
check "not for other numbers of ranks" sh -c '! grep -q "line 3" "$1"' - "$W/out"
# the cores are the communicator's own, not those of the job that wrote the file
for cores in 1 64; do
    printf 'gyre-tune 1\ncost call 90\ncost line 100\ncost peer_cache 10\ncost yield 1000\ncost cores %d\n' $cores >"$W/cores"
    GYRE_TUNE=$W/cores run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 2 --inplace 0 --explain
    want "--explain, cost cores $cores" 0
    predicted[cores]=$(columns 9)
done
check "the same prediction" [ "${predicted[1]}" = "${predicted[64]}" ]
for coll in reduce_scatter all_gatherv gatherv all_to_allv broadcast barrier; do
    for all in -d ${TEST_LONG:+'-d all -o'} -o; do # TEST_LONG=1: each reduction of each type
        # shellcheck disable=SC2086 # a list of words
        run "$UCX_RUN" -n 3 "$PERF" $coll -b 4 -e 64K -f 64 -n 2 --explain $all all
        want "--explain $coll $all all" 0
        check "$coll $all all: right" grep -q '^# Out of bounds values : 0 OK$' "$W/out"
    done
done
run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 2 --explain --transport ucx
want "--explain over UCX" 0
check "the transport is named" grep -q ' ucx ' "$W/out"
run "$PERF" all_reduce --explain --streams 2
want "--explain with what it cannot" 2 'one operation at a time'

# --- a file that cannot be used ends the job, on every rank with the same words ---
GYRE_TUNE=$W/broken run "$UCX_RUN" -n 3 "$PERF" all_reduce -b 8 -e 8 -n 1
want "GYRE_TUNE with a mistake" 3 "$W/broken:2: there is no collective \"nothing\"" 'docs/tuning.md'
check "soon" [ "$ms" -lt 10000 ]
GYRE_TUNE=$W/nowhere run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "GYRE_TUNE that is not there" 3 "cannot read the tuning file $W/nowhere"
GYRE_TUNE=$W run "$UCX_RUN" -n 2 "$PERF" all_reduce -b 8 -e 8 -n 1
want "GYRE_TUNE that is a folder" 3 "GYRE_TUNE: cannot read the tuning file $W " 'GYRE_TUNE= without a value' 'Is a directory'
run "$PERF" all_reduce --tune
want "--tune behind a collective" 2 '--tune comes first'
run "$UCX_RUN" -n 2 sh -c "[ \$GYRE_RANK = 0 ] || export GYRE_TUNE=$W/nowhere; exec '$PERF' all_reduce -b 8 -e 8 -n 1"
want "only rank 0's counts" 0

# --- gyre-doctor ---
D=$B/bin/gyre-doctor
run "$D"
check "where the numbers come from" grep -qE "^ +tuning +cache: $W/cache/gyre/tune-" "$W/out"
check "the numbers" grep -qE 'costs in ns .* line [0-9.]+, .* wake [0-9.]+' "$W/out"
XDG_CACHE_HOME=$W/empty run "$D"
check "not measured yet" grep -qE -- '- tuning +not measured yet' "$W/out"
check "and it changes nothing" [ ! -e "$W/empty" ]
GYRE_TUNE=$W/mine run "$D"
check "GYRE_TUNE" grep -qE "tuning +GYRE_TUNE: $W/mine, 1 choose line" "$W/out"
GYRE_TUNE=$W/broken run "$D"
want "a broken file" 1
check "is named" grep -qE "X tuning +$W/broken:2: " "$W/out"
finish
