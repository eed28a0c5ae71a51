#!/bin/bash
# tests/system/without_ucx.sh: a machine without UCX, and with one that lacks a call: jobs of one host work, others
# say what to install; so does gyre-doctor.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"

# The loader takes these instead of UCX: one that is no library, and one without functions.
mkdir "$W/none" "$W/old"
for library in libucp.so.0 libuct.so.0; do
    : >"$W/none/$library"
    ${CC:-gcc} -shared -Wl,-soname,$library -o "$W/old/$library" -x c /dev/null
done
with() { # KIND COMMAND...
    run env LD_LIBRARY_PATH="$W/$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "${@:2}"
}
sweep=(all_reduce -b 8 -e 1M -f 32 -n 2 -w 1 -c 1)

declare -A why=([none]='libucp.so.0: file too short' [old]='libucp.so.0 has no ucp_am_data_release')
for kind in none old; do
    with $kind "$UCX_RUN" -n 3 --timeout 25 "$PERF" "${sweep[@]}"
    want "$kind: one host" 0
    check "$kind: one host: right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
    with $kind "$UCX_RUN" -n 2 --timeout 25 "$PERF" "${sweep[@]}" --transport ucx
    want "$kind: over UCX" 3 "UCX, which joins .*, cannot be loaded: .*${why[$kind]}; install UCX .*GYRE_TRANSPORT=shm"
    with $kind "$B/bin/gyre-doctor"
    want "$kind: gyre-doctor" 0
    check "$kind: it says so" grep -qE "^  - UCX +cannot be loaded: .*${why[$kind]}" "$W/out"
    check "$kind: and what to do" grep -q 'only jobs on several hosts need it: apt install libucx0' "$W/out"
    check "$kind: all that is required is there" grep -q 'Everything required is there' "$W/out"
done
# One rank alone has none.
printf '%s\n' '#!/bin/sh' '[ "$GYRE_RANK" != 1 ] || export LD_LIBRARY_PATH='"'$W/none'" 'exec "$@"' >"$W/one"
chmod +x "$W/one"
run "$UCX_RUN" -n 2 --timeout 25 "$W/one" "$PERF" "${sweep[@]}" --transport ucx
want "one rank without" 3 '^gyre\[1\] error: .*cannot be loaded: ' 'rank 1 \(world rank 1\) could not start UCX; its message says why'
finish
