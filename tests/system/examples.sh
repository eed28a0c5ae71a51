#!/bin/bash
# tests/system/examples.sh: the examples do what their first lines say, on several numbers of ranks.
# SPDX-License-Identifier: Apache-2.0
. "$(dirname "$0")/../support/lib.sh"
for n in 1 2 3 5; do
    run "$UCX_RUN" -n $n --timeout 30 "$B/examples/heat" 65 48 60
    want "heat on $n" 0
    check "heat on $n is identical" grep -q 'identical to the last bit' "$W/out"
done
run "$UCX_RUN" -n 2 --timeout 30 "$B/examples/heat" 1
want "more ranks than rows" 2 'usage'
# An error is printed once: by each rank's library, and in ucx-run's summary, but not by the program again.
run env GYRE_FAULT=1:3:disagree "$UCX_RUN" -n 2 --timeout 30 "$B/examples/heat" 65 48 60
checks=$((checks + 1))
[ "$rc" != 0 ] || bad "ranks that disagree are no error"
check "heat fails, and says where" grep -q '^heat: failed in ' "$W/err"
check "the reason is not printed twice" [ "$(grep -c ', but rank [01] called' "$W/err")" -le 3 ]
# survive: the same result with and without a rank that is killed meanwhile
run timeout 30 "$B/examples/survive" 3 400
want "survive" 0
check "survive: the result" grep -q '^total 6\.569930 after 400 steps, 3 ranks$' "$W/out"
timeout 30 "$B/examples/survive" 3 400 >"$W/out" 2>"$W/err" &
started() { grep -q '^rank 2 is process' "$W/out"; }
until_true 20 started || bad "survive did not start"
sleep 0.2
kill -9 "$(sed -n 's/^rank 0 is process //p' "$W/out")"
wait $!
check "survive: two go on" grep -q '^2 ranks go on from step' "$W/out"
check "survive: the result without one" grep -q '^total 6\.569930 after 400 steps, 2 ranks$' "$W/out"
# reproducible_cg: the residuals are the same text on any number of ranks, with exact dot products
for n in 1 2 3 4 6 8; do
    for way in exact fast; do
        run "$UCX_RUN" -n $n --timeout 30 "$B/examples/reproducible_cg" $way 48 60
        want "reproducible_cg $way on $n" 0
        cp "$W/out" "$W/$way.$n"
    done
    check "reproducible_cg on $n: the same residuals" cmp "$W/exact.1" "$W/exact.$n"
done
check "reproducible_cg: 60 of them" [ "$(wc -l <"$W/exact.1")" = 60 ]
check "reproducible_cg: others with fast" bash -c '! cmp -s "$1.1" "$1.3" || ! cmp -s "$1.1" "$1.8"' sh "$W/fast"
# groups: four ranks in three groups that overlap
run "$UCX_RUN" -n 4 --timeout 30 "$B/examples/groups"
want "groups" 0
check "groups: their sums" [ "$(grep -oE 'group (0, whose sum is 3|1, whose sum is 6|2, whose sum is 5);' "$W/out" | wc -l)" = 9 ]
check "groups: one host" [ "$(grep -c 'of 4 on its host$' "$W/out")" = 4 ]
# programs that no launcher has started
together() { # name, its arguments after rank and ranks: three processes at once
    local name=$1 r pids=() rc=0
    shift
    for r in 0 1 2; do
        timeout 30 "$B/examples/$name" "$r" 3 "$@" >"$W/$name.$r" 2>&1 &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r" || rc=1; done
    [ "$rc" = 0 ] || cat "$W/$name".?
    return "$rc"
}
mkdir "$W/folder"
check "bootstrap_file" together bootstrap_file "$W/folder"
check "bootstrap_file: the sums" [ "$(cat "$W"/bootstrap_file.? | grep -c 'of 3: the sum is 6$')" = 3 ]
port=$(free_port)
check "bootstrap_tcp" together bootstrap_tcp "$port"
check "bootstrap_tcp: the sums" [ "$(cat "$W"/bootstrap_tcp.? | grep -c 'of 3: the sum is 6$')" = 3 ]
for mpi in openmpi mpich; do
    if ! command -v mpicc.$mpi >/dev/null || ! command -v mpirun.$mpi >/dev/null; then
        leave_out "bootstrap_mpi: there is no mpicc.$mpi with mpirun.$mpi"
        continue
    fi
    # the commands of its first lines, in a folder that has what they name
    mkdir "$W/$mpi"
    ln -s "$PWD/include" "$PWD/examples" "$W/$mpi/"
    ln -s "$(realpath "$B")" "$W/$mpi/build"
    oversubscribe=
    [ $mpi = mpich ] || oversubscribe='--oversubscribe --allow-run-as-root'
    sed -n '2,/^ \*$/d; /^ \*$/q; s/^ \*     //p' examples/bootstrap_mpi.c |
        sed "s/^mpicc /mpicc.$mpi /; s/^mpirun /timeout 60 mpirun.$mpi $oversubscribe /" >"$W/$mpi/commands"
    run env -C "$W/$mpi" bash -e commands
    want "the commands of bootstrap_mpi with $mpi" 0
    check "bootstrap_mpi of $mpi: the sums" [ "$(grep -c 'the sums are those of MPI$' "$W/out")" = 3 ]
done
for n in 1 3; do
    run "$UCX_RUN" -n $n --timeout 30 /usr/bin/python3 examples/all_reduce.py "$B/lib/libgyre.so.0"
    want "all_reduce.py on $n" 0
    check "all_reduce.py on $n: every rank is right" [ "$(grep -c ' 0 wrong$' "$W/out")" = $n ]
done
finish
