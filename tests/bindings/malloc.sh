#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/malloc.sh: libgyre-malloc.so: a program's malloc keeps its promises, with threads and forks, whether the
# program has libgyre or not; large allocations are windows, also by the command of
# docs/transports.md; collectives on them need no copy by the kernel.
. "$(dirname "$0")/../support/lib.sh"
pre=$B/lib/libgyre-malloc.so
[ -e "$pre" ] || skip "a build with a sanitizer, whose malloc is its own"
gcc="${CC:-gcc} ${TEST_LONG:+-DTURNS=400}"
run $gcc -std=c17 -O1 -fno-builtin -D_GNU_SOURCE -pthread -o "$W/alone" tests/bindings/preloaded.c
check "the program compiles" [ "$rc" = 0 ]
run $gcc -std=c17 -O1 -fno-builtin -D_GNU_SOURCE -pthread -o "$W/with" tests/bindings/preloaded.c -Wl,--no-as-needed -L"$B/lib" -lgyre \
    -Wl,-rpath,"$B/lib"
check "and with libgyre" [ "$rc" = 0 ]
for program in alone with; do
    for part in calls threads fork; do
        run timeout 60 env LD_PRELOAD="$pre" "$W/$program" "$part"
        check "$part, $program: $(head -c 300 "$W/err")" [ "$rc" = 0 ]
    done
done
check "a program of the system runs" [ "$(LD_PRELOAD=$pre sh -c 'echo well')" = well ]
check "and does not load libgyre" [ "$(LD_PRELOAD=$pre grep -c libgyre.so /proc/self/maps)" = 0 ]

run timeout 60 env LD_PRELOAD="$pre" "$W/with" sockets
check "libgyre makes sockets while a child copies: $(head -c 300 "$W/err")" [ "$rc" = 0 ]
run timeout 60 env LD_PRELOAD="$pre libgyre.so.0" LD_LIBRARY_PATH="$B/lib" "$W/alone" sockets
check "also where it is not linked: $(head -c 300 "$W/err")" [ "$rc" = 0 ]
run env LD_PRELOAD="$pre" "$W/with" windows
check "large allocations are windows: $(cat "$W/err")" [ "$rc" = 0 ]
run env "$W/with" windows
check "which they are not without the library" [ "$rc" = 1 ]
# docs/transports.md: a program that cannot be changed, as written
written=$(sed -n 's/^    \(LD_PRELOAD=.* \.\/program\)$/\1/p' docs/transports.md)
printf '#!/bin/sh\nexec "%s/with" windows\n' "$W" >"$W/program"
chmod +x "$W/program"
run env -C "$W" PREFIX="$(realpath "$B")" PATH="$(realpath "$B")/bin:$PATH" bash -c "${written:?not in docs/transports.md}"
check "$written: $(head -c 300 "$W/err")" [ "$rc" = 0 ]
run env LD_PRELOAD="$pre" "$W/with" twice
check "a second free ends the program" [ "$rc" = 134 ]
check "and says why" grep -q 'libgyre-malloc: free: this memory is free already' "$W/err"
run bash -c "ulimit -n 64; LD_PRELOAD='$pre' '$W/with' files"
check "half of the descriptors are left to the program: $(cat "$W/err")" [ "$rc" = 0 ]
check "and no error is logged" [ ! -s "$W/err" ]
run bash -c "LD_PRELOAD='$pre' '$W/with' fewer"
check "a limit that falls later is no failure" [ "$rc" = 0 ]
check "one error is logged" [ "$(grep -c 'cannot allocate a window' "$W/err")" = 1 ]

# Ranks: results are right, and no rank reads another one's memory by the kernel.
perf() { # LIBRARY
    LD_PRELOAD=$1 run timeout 120 "$UCX_RUN" -n 3 "$PERF" all_reduce -b 1M -e 4M -f 4 -n 3 -w 1 -R 0
    check "all_reduce with '$1'" [ "$rc" = 0 ]
    check "its results with '$1'" grep -q 'Out of bounds values : 0 OK' "$W/out"
}
perf ''
perf "$pre"
if strace -o /dev/null true 2>/dev/null; then
    # Calls are counted by what they return: a call during which another thread runs is two lines in the trace. The
    # calls at the start, which try whether the kernel copies at all, copy 8 bytes. Plain memory is copied by the
    # kernel where that costs nothing; on other machines it may be staged.
    printf '%s\n' 'gyre-tune 1' 'cost cma_call 10' 'cost cma_rate 1000' 'cost cma_memory 1000' >"$W/fast_cma"
    reads() { # LIBRARY TUNING
        strace -f -qq -e trace=process_vm_readv -o "$W/trace" env LD_PRELOAD="$1" GYRE_TUNE="$2" \
            "$UCX_RUN" -n 2 "$PERF" all_gather -b 4M -e 4M -n 3 -w 1 -R 0 >/dev/null 2>&1
        grep -cE '= [0-9]{4,}$' "$W/trace"
    }
    plain=$(reads '' "$W/fast_cma")
    check "the kernel copies plain memory ($plain calls)" [ "$plain" -gt 4 ]
    blocks=$(reads "$pre" none)
    check "the calls at the start are in the trace" grep -qE '= [0-9]{1,3}$' "$W/trace"
    check "the kernel copies no blocks ($blocks calls)" [ "$blocks" = 0 ]
else
    leave_out "calls of process_vm_readv: no strace here"
fi
finish
