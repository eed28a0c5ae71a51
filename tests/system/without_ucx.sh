#!/bin/bash
# tests/system/without_ucx.sh: a machine without UCX, with one that lacks a call, and with an older one that does not
# start: jobs of one host work, others say what to install; so does gyre-doctor.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
unset "${!GYRE_@}"

# The loader takes these instead of UCX: one that is no library, one without functions, and one whose calls fail.
mkdir "$W/none" "$W/old" "$W/older"
for library in libucp.so.0 libuct.so.0; do
    : >"$W/none/$library"
    ${CC:-gcc} -shared -Wl,-soname,$library -o "$W/old/$library" -x c /dev/null
done
{
    echo '#define UCX_CALL(name) long name(void) { return -22; }'
    grep -vE 'ucp_get_version|ucs_status_string' comm/ucx/calls.def
    echo 'void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1, *b = 2, *c = 3; }'
    echo 'const char *ucs_status_string(int status) { return status == -22 ? "unsupported" : "?"; }'
} >"$W/older.c"
${CC:-gcc} -shared -fPIC -Wl,-soname,libucp.so.0 -o "$W/older/libucp.so.0" "$W/older.c"
with() { # KIND COMMAND...
    run env LD_LIBRARY_PATH="$W/$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "${@:2}"
}
sweep=(all_reduce -b 8 -e 1M -f 32 -n 2 -w 1 -c 1)

declare -A why=([none]='libucp.so.0: file too short' [old]='libucp.so.0 has no ucp_am_data_release'
    [older]='UCX 1\.2\.3 is older than the 1\.[0-9]+ that Gyre was built with')
for kind in none old older; do
    with $kind "$UCX_RUN" -n 3 --timeout 25 "$PERF" "${sweep[@]}"
    want "$kind: one host" 0
    check "$kind: one host: right" grep -qE '^# Out of bounds values *: *0 OK' "$W/out"
    with $kind "$UCX_RUN" -n 2 --timeout 25 "$PERF" "${sweep[@]}" --transport ucx
    want "$kind: over UCX" 3 "^gyre.* error: UCX.*${why[$kind]}"
    [ $kind = older ] || check "$kind: over UCX: what to do" grep -q 'install UCX .*GYRE_TRANSPORT=shm' "$W/err"
    with $kind "$B/bin/gyre-doctor"
    want "$kind: gyre-doctor" 0
    check "$kind: it says so" grep -qE "^  - UCX .*${why[$kind]}" "$W/out"
    check "$kind: and what to do" grep -q 'only jobs on several hosts need it: apt install libucx0' "$W/out"
    check "$kind: all that is required is there" grep -q 'Everything required is there' "$W/out"
    GYRE_TRANSPORT=ucx with $kind "$B/bin/gyre-doctor"
    want "$kind: gyre-doctor, UCX asked for" 1
    check "$kind: it is missing" grep -qE "^  [^-] UCX .*${why[$kind]}" "$W/out"
    check "$kind: and why it is needed" grep -q 'GYRE_TRANSPORT=ucx needs it: apt install libucx0' "$W/out"
done
# One rank alone has none.
printf '%s\n' '#!/bin/sh' '[ "$GYRE_RANK" != 1 ] || export LD_LIBRARY_PATH='"'$W/none'" 'exec "$@"' >"$W/one"
chmod +x "$W/one"
run "$UCX_RUN" -n 2 --timeout 25 "$W/one" "$PERF" "${sweep[@]}" --transport ucx
want "one rank without" 3 '^gyre\[1\] error: .*cannot be loaded: ' 'rank 1 \(world rank 1\) could not start UCX; its message says why'
finish
