#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/gpu/nccl.sh: libgyre-nccl: programs against nccl.h on the emulator, in one process with several devices,
# in several processes, and in several processes with several devices each; what the library exports; a machine
# without a driver; a library for what Gyre lacks.
. "$(dirname "$0")/../../support/lib.sh"
P=$B/emulated/nccl
[ -x "$P/first" ] || skip "no emulated build here: make emulated, with a CUDA toolkit, makes it"
export EMULATED_DEVICES=3 GYRE_CUDA_BLOCKS=2
DEADLINE=60

sed -n '/^```c$/,/^```$/{/^```/d;p}' docs/nccl.md >"$W/first.c"
sed -n '/^#include/,$p' tests/bindings/gpu/nccl/first.c >"$W/built.c"
check "the first example is that of docs/nccl.md" diff "$W/first.c" "$W/built.c"
run "$P/first"
want "the first example" 0
out_is "the first example" "rank 0 of 3 has 6
rank 1 of 3 has 6
rank 2 of 3 has 6"
check "nothing on stderr" [ ! -s "$W/err" ]
NCCL_DEBUG=VERSION run "$P/first"
want "which library it is" 0 '^libgyre-nccl: Gyre .*, as NCCL 2.28.9; GYRE_LOG=info says more$'
check "one line" [ "$(wc -l <"$W/err")" = 1 ]
for part in collectives types groups splits memory errors configs properties threads aborts captures; do
    run "$P/one_process" $part
    want "one process: $part" 0
    [ $part != errors ] || check "a warning, once" [ "$(grep -c 'warning: NCCL_COMM_ID has no effect' "$W/err")" = 1 ]
done
run "$P/streams"
want "one process: streams and events" 0
job() { # PROGRAM PART PROCESSES [OPTION]
    rm -f "$W"/id*
    # shellcheck disable=SC2086 # an option or none
    run "$UCX_RUN" -n "$3" ${4:-} "$P/$1" "$2" "$W/id"
}
for part in collectives ring splits two ids habits mixed captures aborts aborts_part aborts_window revokes mismatch \
    counts; do
    job processes $part 3
    want "processes: $part" 0
done
for part in order ends; do
    job processes $part 3
    want "processes: $part" 0
    check "no rank died: $part: $(cat "$W/err")" [ ! -s "$W/err" ]
done
job processes collectives 1
want "one rank" 0
job zero steps 4
want "four processes: ZeRO steps" 0
for part in dead shrinks; do
    job processes $part 3 --no-kill-on-bad-exit
    want "a rank that dies: $part" 137 'rank 2 died'
    check "the others go on: $part: $(cat "$W/err")" [ "$(grep -c 'goes on' "$W/out")" = 2 ]
done
# two ranks in each process: on devices of their own, on one of another process, and through the host
for part in collectives splits threads; do
    EMULATED_DEVICES=4 job several $part 2
    want "several ranks of a process: $part" 0
done
EMULATED_DEVICES=4 job several collectives 3
want "several ranks of each of three processes" 0
job several splits 2
want "several ranks of a process that share a device" 0
job several threads 1
want "one process, a thread for each rank" 0
GYRE_CUDA_PATH=staged job several collectives 2
want "several ranks of a process, through the host" 0
job several dead 3 --no-kill-on-bad-exit
want "two ranks that die with their process" 137 'rank [45] died'
check "the others go on: $(cat "$W/err")" [ "$(grep -c 'goes on' "$W/out")" = 2 ]
job processes windows 2
want "windows" 0
check "nothing on stderr" [ ! -s "$W/err" ]
GYRE_CUDA_PATH=staged job processes windows 2
want "windows that no peer can read" 0
check "one line from each rank, not for each window" [ "$(grep -c 'no peer would read' "$W/err")" = 2 ]
job processes many_windows 2
want "more windows than there is room for" 0
check "one warning from each rank, and no error: $(head -3 "$W/err")" \
    [ "$(grep -c 'warning: ncclCommWindowRegister: .* 256 ' "$W/err")-$(wc -l <"$W/err")" = 2-2 ]
EMULATED_DEVICES=1 job processes foreign 2
want "windows of memory that cannot be shared" 0
check "a line for each of them: $(cat "$W/err")" [ "$(grep -c 'rank 0: .*cannot be shared' "$W/err")" = 2 ]
# sums of 8-bit floats: by the host alone
job processes float8 3
want "8-bit floats on the device" 1 'ncclAllReduce: .*device code has no sum of float8_e4m3: .*GYRE_CUDA_PATH=staged'
GYRE_CUDA_PATH=staged job processes float8 3
want "8-bit floats through the host" 0
EMULATED_DEVICES=0 run "$P/first"
want "no device" 1 '^first: ncclCommInitAll: there is no CUDA device to work on: '

# --- what Gyre lacks ---
job processes signals 3
want "a call that Gyre lacks" 1 'ncclSignal: Gyre has no such call; GYRE_NCCL_FALLBACK=FILE'
cuda=${CUDA_HOME:-/usr/local/cuda}/include
cc() { run "${CC:-gcc}" -std=c17 -Wall -Wextra -Werror "$@"; }
cc -shared -fPIC -Ibindings/nccl -isystem "$cuda" tests/bindings/gpu/nccl/other/library.c -o "$W/other.so"
want "the other library" 0
GYRE_NCCL_FALLBACK=$W/other.so job processes signals 3
want "passed on" 0
sorted_is "passed on" "rank 0 ends
rank 0 of 3 signals 1 by x
rank 1 ends
rank 1 of 3 signals 2 by x
rank 2 ends
rank 2 of 3 signals 0 by x"
GYRE_NCCL_FALLBACK=$W/other.so job processes aborts_window 3
want "an abort while the other library waits" 0
sorted_is "each is aborted once" "rank 0 ends
rank 1 ends
rank 2 ends"
GYRE_NCCL_FALLBACK=$W/none.so run "$P/first"
want "no such file" 1 'GYRE_NCCL_FALLBACK=.*none.so: .*cannot open.*: name a file of NCCL, or take it back'
GYRE_NCCL_FALLBACK=$W/none.so run "$P/refused"
want "no such file, twice" 0
out_is "no such file, twice" "GYRE_NCCL_FALLBACK=$W/none.so: $W/none.so: cannot open shared object file: No such file or directory: name a file of NCCL, or take it back"

# --- the library itself ---
lib=$B/lib/libgyre-nccl.so.2
for name in libnccl.so.2 libnccl.so; do
    check "found as $name" [ "$(realpath "$B/lib/gyre-nccl/$name")" = "$(realpath "$lib")" ]
done
nm -D --defined-only "$lib" | awk '{ print $3 }' | sort >"$W/exported"
{ # the first column of the table
    sed -n '/^| function /,/^$/p' docs/nccl.md | cut -d'|' -f2 | grep -oE '\bnccl[A-Z][A-Za-z]*' | sed 'p;s/^/p/' | sort
} >"$W/documented"
check "docs/nccl.md has all functions, and nothing else is exported" diff "$W/documented" "$W/exported"
check "all that nccl.h declares is exported" [ -z "$(grep -ohE '\bnccl[A-Z][A-Za-z]*\(' bindings/nccl/nccl.h | tr -d '(' |
    sort | comm -23 - "$W/exported")" ]
# a program that was linked with a libnccl.so.2 of others
sed 's/.*/void &(void) {}/' "$W/exported" >"$W/stub.c"
run "${CC:-gcc}" -w -shared -fPIC -Wl,-soname,libnccl.so.2 "$W/stub.c" -o "$W/libnccl.so.2"
# The commands of docs/nccl.md, as written, with NCCL's header and this libnccl.so, and CUDA's library if only the static
# one is here.
ln -s libnccl.so.2 "$W/libnccl.so"
[ -e /usr/local/cuda/lib64/libcudart.so ] ||
    echo "INPUT(${cuda%include}lib64/libcudart_static.a -ldl -lrt -lpthread)" >"$W/libcudart.so"
run env -C "$W" CPATH="$PWD/bindings/nccl:$cuda" LIBRARY_PATH="$W" bash -c "$(grep -m1 '^    gcc first.c' docs/nccl.md)"
want "the first command of docs/nccl.md" 0
if ! [ -e /dev/nvidiactl ]; then
    line=$(grep -m1 '^    LD_LIBRARY_PATH=.* ./first$' docs/nccl.md)
    run env -C "$W" bash -c "${line//\/usr\/local\/lib\/gyre-nccl/$(realpath "$B")/lib/gyre-nccl:${cuda%include}lib64}"
    want "no driver" 1 '^first: ncclCommInitAll: there is no CUDA device to work on: cudaGetDeviceCount: CUDA driver'
    real=${cuda%include}lib64/libnccl.so.2
    if [ -e "$real" ]; then # NCCL itself, which finds no driver either
        GYRE_NCCL_FALLBACK=$real run "$P/first"
        want "no driver for NCCL" 1 "^first: GYRE_NCCL_FALLBACK=$real: ncclCommInitRank: "
    else
        leave_out "NCCL itself without a driver: there is no $real"
    fi
fi

# --- NCCL's own header, where it is installed ---
real=$(find "$cuda/nccl.h" /usr/include/nccl.h 2>/dev/null | head -1)
if [ -n "$real" ] && grep -q 'NCCL_MINOR 28$' "$real"; then
    mkdir "$W/real" && cp "$real" "$W/real"
    for header in bindings/nccl "$W/real"; do
        cc -I"$header" -isystem "$cuda" tests/bindings/gpu/nccl/other/values.c -o "$W/values"
        want "values of $header" 0
        "$W/values" >"$W/values.$(basename "$header")"
    done
    check "the same values and layouts" diff "$W/values.nccl" "$W/values.real"
    for source in bindings/nccl/*.c; do
        cc -D_GNU_SOURCE -I. -Iinclude -I"$W/real" -isystem "$cuda" -fsyntax-only "$source"
        want "$source, with the prototypes of NCCL's header" 0
    done
else
    leave_out "NCCL's own header: no nccl.h of 2.28 here"
fi
finish
