#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/mpi.sh: libgyre-mpi and gyre-mpi: C programs and a Fortran program under each MPI library that is here,
# with the library and without; the first example of docs/mpi.md; requests; the report and the comparison; order=exact; what is refused; ranks that end.
# deadline: 600
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/mpi.sh"
export GYRE_MPI_AFTER=0 # else MPI makes the first collectives of each communicator
run "${CC:-gcc}" -O1 -D_GNU_SOURCE -shared -fPIC -o "$W/yields.so" tests/bindings/mpi_yields.c
check "mpi_yields.c compiles" [ "$rc" = 0 ]
core=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//') # one that this test may use
CALLS='Allreduce Reduce Reduce_scatter Reduce_scatter_block Scan Exscan Bcast Barrier Gather Gatherv Scatter Scatterv Allgather
    Allgatherv Alltoall Alltoallv Alltoallw'
NEIGHBORS='Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw'
# taken NAME CALL...: the last report has each as taken
taken() {
    local name=$1 call
    shift
    for call; do
        check "$name: MPI_$call is taken" grep -qE "^MPI_$call +[1-9]" "$W/err"
    done
}

# The commands of docs/mpi.md that start ./program, as written.
mapfile -t written < <(sed -n 's/^    \(.*gyre-mpi \.\/program\)$/\1/p' docs/mpi.md)
check "docs/mpi.md has a first example" [ "${written[*]-}" = 'mpirun -n 4 gyre-mpi ./program GYRE_ORDER=exact mpirun -n 4 gyre-mpi ./program' ]
cat >"$W/program.c" <<'END'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    const double parts[] = {1e16, 1, -1e16, 0};
    double sum = -1;
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&parts[rank % 4], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%g\n", sum);
    MPI_Finalize();
}
END
as_written() { # KIND
    local at=$W/written.$1 i
    mkdir "$at"
    printf '#!/bin/sh\nexec mpirun.%s "$@"\n' "$1" >"$at/mpirun"
    chmod +x "$at/mpirun"
    run "mpicc.$1" -o "$at/program" "$W/program.c"
    for i in 0 1; do
        run env -C "$at" PATH="$at:$B/bin:$PATH" GYRE_MPI_REPORT=1 bash -c "${written[i]}"
        want "$1: ${written[i]}" 0 'MPI_Allreduce +1 +0'
        out_is "$1: ${written[i]}" $i
    done
}

for kind in $kinds; do
    if ! command -v "mpirun.$kind" >/dev/null; then
        leave_out "$kind: no mpirun.$kind"
        continue
    fi
    c=$W/calls.$kind
    run "mpicc.$kind" -O0 -pthread -o "$c" tests/bindings/mpi_calls.c
    check "$kind: the program compiles: $(head -n 5 "$W/err")" [ "$rc" = 0 ]
    as_written "$kind"
    mpi "$kind" 2 "$c" calls
    want "$kind: without the library" 0
    mpi "$kind" 2 env -u GYRE_MPI_AFTER "$gyre" "$c" few
    want "$kind: few collectives" 0
    check "$kind: few collectives: $(cat "$W/out")" grep -q 'libgyre is not loaded' "$W/out"
    mpi "$kind" 2 "$gyre" "$c" few
    check "$kind: it would be seen: $(cat "$W/out")" grep -q 'libgyre is loaded' "$W/out"
    mpi "$kind" 2 env -u GYRE_MPI_AFTER GYRE_MPI_REPORT=1 "$gyre" "$c" worth
    want "$kind: many small collectives, then large ones" 0 'MPI_Allreduce +0 +1000' 'MPI_Bcast +1037 +23'
    check "$kind: only the large ones are worth a join: $(cat "$W/out")" \
        [ "$(grep -c 'not loaded' "$W/out") $(grep -c 'is loaded' "$W/out")" = "1 1" ]
    for part in answer last; do
        mpi "$kind" 2 env UCX_TLS=tcp,self UCX_TCP_SNDBUF=16k UCX_TCP_RCVBUF=16k GYRE_HOST_RANKS=1 \
            GYRE_TRANSPORT=ucx "$gyre" "$c" "$part"
        want "$kind: what is still on its way: $part" 0
    done
    mpi "$kind" 3 env GYRE_MPI_AFTER=8 GYRE_MPI_REPORT=1 "$gyre" "$c" late
    want "$kind: some ranks need the job first" 0 'MPI_Allreduce +28 +32' 'MPI_Bcast +0 +6'
    for n in 1 3; do
        mpi "$kind" "$n" "$gyre" "$c" calls
        want "$kind: $n ranks" 0
        check "$kind: $n ranks: $(cat "$W/out")" grep -q ', 0 failed' "$W/out"
        check "$kind: $n ranks: no messages" [ ! -s "$W/err" ]
    done
    mpi "$kind" 2 env GYRE_MPI_AFTER=3 GYRE_MPI_REPORT=off GYRE_MPI_CHECK=no "$gyre" "$c" calls
    want "$kind: neither report nor comparison" 0
    check "$kind: neither says anything: $(cat "$W/err")" [ ! -s "$W/err" ]
    mpi "$kind" 2 env GYRE_MPI_AFTER=3 GYRE_MPI_REPORT=1 GYRE_MPI_CHECK=1 "$gyre" "$c" calls
    want "$kind: report and comparison" 0 'GYRE_MPI_CHECK: [1-9][0-9]* results compared with MPI.s, 0 differ'
    check "$kind: no warning" [ "$(grep -c 'not a setting' "$W/err")" = 0 ]
    # shellcheck disable=SC2086 # a list
    taken "$kind" $CALLS
    check "$kind: first collectives are passed on" grep -q '[1-9] passed on: communicator not in Gyre yet' "$W/err"
    check "$kind: long double is passed on" grep -q '[1-9] passed on: datatype or operation' "$W/err"
    for who in 0 1; do
        # shellcheck disable=SC2016 # of the shell that is started
        mpi "$kind" 2 sh -c '[ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" != "$0" ] || export GYRE_MPI_CHECK=1; exec "$@"' "$who" \
            "$gyre" "$c" order
        want "$kind: comparison on rank $who alone" 0
        check "$kind: rank 0 asks for the comparison" [ "$(grep -c 'results compared' "$W/err")" = $((1 - who)) ]
    done
    # Without blocking.
    r=$W/requests.$kind
    run "mpicc.$kind" -O0 -pthread -o "$r" tests/bindings/mpi_requests.c
    check "$kind: the program of requests compiles: $(head -n 5 "$W/err")" [ "$rc" = 0 ]
    mpi "$kind" 2 env GYRE_MPI_REPORT=1 GYRE_MPI_CHECK=1 "$gyre" "$c" requests
    want "$kind: comparison of requests" 0 'GYRE_MPI_CHECK: [1-9][0-9]* results compared with MPI.s, 0 differ' \
        '[1-9] passed on: no blocking collective on it since it was due'
    # shellcheck disable=SC2046,SC2086 # a list
    taken "$kind" $(printf 'I%s\n' ${CALLS,,})
    for n in 2 3; do
        mpi "$kind" "$n" env GYRE_MPI_REPORT=1 "$gyre" "$r" all
        want "$kind: requests, $n ranks" 0
        # shellcheck disable=SC2046,SC2086 # a list
        taken "$kind: $n ranks" $NEIGHBORS $(printf 'I%s\n' ${NEIGHBORS,,})
    done
    mpi "$kind" 3 "$gyre" "$r" random 200
    want "$kind: random calls, many open" 0
    mpi "$kind" 2 "$gyre" "$r" threads
    want "$kind: threads with requests" 0
    mpi "$kind" 2 "$gyre" "$r" fails
    want "$kind: a request that fails" 0 'all_reduce .*count 1, int32'
    mpi "$kind" 2 "$gyre" "$r" open
    want "$kind: MPI_Finalize with an open request" 0 'MPI_Finalize: rank 0: open requests .* 1, .* of MPI_Ibarrier: wait'

    mpi "$kind" 3 "$gyre" "$c" progress
    want "$kind: messages move while Gyre waits" 0
    mpi "$kind" 2 "$gyre" "$c" threads
    want "$kind: threads" 0
    mpi "$kind" 2 env GYRE_MPI_AFTER=20 GYRE_MPI_REPORT=1 "$gyre" "$c" threads
    want "$kind: threads that join the ranks" 0 'MPI_Allreduce +[1-9]'
    mpi "$kind" 2 "$gyre" "$c" fails
    want "$kind: the error handler is called" 0 'all_reduce .*count 1, int32' 'has 4294967296 bytes' \
        'MPI_Gatherv: rank 1: MPI_IN_PLACE is for the root alone, which is rank 0'
    mpi "$kind" 2 "$gyre" "$c" abort
    check "$kind: MPI_Abort ends all ($rc)" [ "$rc" = 3 ]
    mpi "$kind" 2 "$gyre" "$c" killed
    check "$kind: a rank that is killed ends all" [ "$rc" != 0 ]
    check "$kind: within 20 s ($ms ms)" [ "$ms" -lt 20000 ]

    # One rank lacks the library: the next one says so, and all end.
    for _ in 1 2 3; do # MPICH's launcher is sometimes too late for a program that ends at once
        mpi "$kind" 1 true : -n 1 true
        [ "$rc" != 0 ] || break
    done
    if [ "$rc" = 0 ]; then
        mpi "$kind" 1 env GYRE_INIT_TIMEOUT=1 "$gyre" "$c" calls : -n 1 "$c" calls
        want "$kind: a rank without the library" 1 'rank 0 waited 1 s for rank 1, which does not load libgyre-mpi'
    else
        leave_out "$kind: a rank without the library: mpirun.$kind cannot start two programs (code $rc)" # Open MPI of Debian 13
    fi
    # The library of the other MPI, by force.
    for other in $kinds; do
        [ "$other" != "$kind" ] || continue
        mpi "$kind" 1 env LD_PRELOAD="$B/lib/libgyre-mpi-$other.so" "$c" calls
        want "$kind: the library of $other" 1 'is built for .*, and the program runs with .*: .*in a script, write gyre-mpi before the program itself'
    done
    # The library without libgyre: MPI makes the collectives.
    mkdir -p "$W/broken"
    cp "$B/lib/libgyre-mpi-$kind.so" "$W/broken/"
    : >"$W/broken/libgyre.so.0"
    mpi "$kind" 2 env GYRE_MPI_AFTER=2 LD_PRELOAD="$W/broken/libgyre-mpi-$kind.so" "$c" calls
    want "$kind: without libgyre" 0 'libgyre cannot be loaded' 'the ranks cannot be joined in Gyre: all collectives go to MPI'
    # A rank that waits gives its core away at once only where ranks share cores.
    run "mpicc.$kind" -O1 -o "$W/start" tests/mpi/start.c
    mpi "$kind" 2 taskset -c "$core" env LD_PRELOAD="$W/yields.so" "$gyre" "$W/start" 50
    want "$kind: two ranks on one core" 0 'yields: [1-9]'
    check "$kind: both yield" [ "$(grep -c 'yields: [1-9]' "$W/err")" = 2 ]
    if [ "$(nproc)" -gt 1 ]; then
        mpi "$kind" 2 env LD_PRELOAD="$W/yields.so" "$gyre" "$W/start" 50
        check "$kind: each rank has a core: no yields" [ "$(grep -c '^yields: 0$' "$W/err")" = 2 ]
    else
        leave_out "$kind: two ranks with a core each"
    fi
    # Another launcher: each rank is alone.
    run "$UCX_RUN" -n 2 "$gyre" "$W/written.$kind/program"
    want "$kind: ucx-run" 0 'linked with .*, but ucx-run started it: each of the 2 ranks is alone'
    check "$kind: ucx-run: one line" [ "$(wc -l <"$W/err")" = 1 ]
    for other in $kinds; do
        [ "$other" != "$kind" ] || continue
        run "mpirun.$other" -n 2 "$gyre" "$W/written.$kind/program"
        want "$kind: the launcher of $other" 0 'linked with .*, but .* mpirun started it: each of the 2 ranks is alone'
    done
    # Without a launcher: one rank.
    run "$gyre" "$c" calls
    want "$kind: no launcher" 0
    out_is "$kind: no launcher" "$(grep '^1 ranks: [0-9]* checks, 0 failed' "$W/out")"
    run env GYRE_MPI_REPORT=1 "$gyre" "$W/written.$kind/program"
    want "$kind: no launcher, and a report" 0 'MPI_Allreduce +0 +1 ' '1 passed on: no job in Gyre'

    # 1e16 + 1 - 1e16, which is 0 from left to right.
    mpi "$kind" 3 "$gyre" "$c" order
    out_is "$kind: canonical order" 'sum 0, product 0'
    mpi "$kind" 3 env -u GYRE_MPI_AFTER GYRE_ORDER=exact "$gyre" "$c" order
    out_is "$kind: order=exact, from the first collective" 'sum 1, product 0'
    mpi "$kind" 2 env GYRE_MPI_AFTER=many "$gyre" "$c" order
    want "$kind: an invalid number" 0 'GYRE_MPI_AFTER=many is not a number from 0 to [0-9]*: it is ignored'

    if command -v "mpif90.$kind" >/dev/null; then
        run "mpif90.$kind" -O0 -o "$W/fortran" -J "$W" tests/bindings/mpi_fortran.f90
        check "$kind: the Fortran program compiles: $(head -n 5 "$W/err")" [ "$rc" = 0 ]
        mpi "$kind" 3 "$W/fortran"
        out_is "$kind: Fortran without the library" '0 errors'
        mpi "$kind" 3 env GYRE_MPI_REPORT=1 "$gyre" "$W/fortran"
        out_is "$kind: Fortran" '0 errors'
        want "$kind: Fortran is taken" 0 'MPI_Allreduce +5 +0' 'MPI_Allgather +1 +0' 'MPI_Reduce +1 +0' 'MPI_Bcast +1 +0' \
            'MPI_Allgatherv +1 +0' 'MPI_Barrier +1 +0' 'MPI_Iallreduce +2 +0' 'MPI_Iallgather +1 +0' 'MPI_Ibarrier +2 +0' \
            'MPI_Ineighbor_alltoall +1 +0'
    else
        leave_out "$kind: no mpif90.$kind"
    fi
done

# Another compiler of MPI, and none.
printf '#!/bin/sh\nexec mpicc "$@"\n' >"$W/wrapper" && chmod +x "$W/wrapper"
run ${MAKE:-make} -n mpi MPICC_openmpi= MPICC_mpich="$W/wrapper"
want "make mpi with another compiler" 0
check "MPICC_mpich= is the compiler" grep -qF "$W/wrapper -shared" "$W/out"
check "MPICC_openmpi= leaves that library out" bash -c '! grep -q "libgyre-mpi-openmpi.so -Wl\|mpicc.openmpi -shared" "$0"' "$W/out"

# What gyre-mpi refuses.
printf 'int main(void) { return 0; }\n' >"$W/static.c"
run "${CC:-gcc}" -static -o "$W/static" "$W/static.c"
if [ "$rc" = 0 ]; then
    run "$gyre" "$W/static"
    want "a static program" 2 'statically linked'
else
    leave_out "a static program: no static C library"
fi
printf 'int MPI_Init(void) { return 0; }\nint main(void) { return MPI_Init(); }\n' >"$W/inside.c"
"${CC:-gcc}" -o "$W/inside" "$W/inside.c"
run "$gyre" "$W/inside"
want "a dynamic program with an MPI library in it" 2 'inside has an MPI library in it'
run "$gyre"
want "no program" 2 'usage'
for launcher in mpirun /usr/bin/mpiexec.hydra srun; do
    run "$gyre" "$launcher" -n 2 "$W/static"
    want "the launcher after gyre-mpi" 2 "$launcher is a launcher: .*: $launcher -n RANKS gyre-mpi PROGRAM"
done
run "$gyre" --version
out_is "the version" "gyre-mpi $(sed -n 's/^#define GYRE_VERSION  *"\(.*\)"$/\1/p' include/gyre/version.h)"
run "$gyre" /no/such/program
want "no such program" 127 '/no/such/program: no such program'
run "$gyre" no-such-program
want "no such program in PATH" 127 'no-such-program: no such program in PATH'
: >"$W/text"
run "$gyre" "$W/text"
want "a file that is not executable" 126 'text: Permission denied'
run env PATH="$W:$PATH" "$gyre" text
want "such a file in PATH" 126 'text: Permission denied'
run "$gyre" "$W"
want "a folder" 126 'Permission denied'
printf '#!/no/such/interpreter\n' >"$W/script" && chmod +x "$W/script"
run "$gyre" "$W/script"
want "no such interpreter" 127 'no such program .or the interpreter'
cp "$gyre" "$W/other"
printf '\x01' | dd of="$W/other" bs=1 seek=18 conv=notrunc 2>/dev/null # e_machine
run "$gyre" "$W/other"
want "a program for another machine" 2 'built for another kind of machine'
head -c 100 "$gyre" >"$W/cut" && chmod +x "$W/cut"
run "$gyre" "$W/cut"
want "a program that is cut off" 2 'statically linked|Exec format error'
run "$gyre" sh -c 'echo "${LD_PRELOAD-nothing}"'
out_is "neither MPI nor a launcher" nothing
# A program that is not linked with MPI: whose launcher started it? launched NAME KIND VARIABLE...
launched() {
    grep -qx "$2" <<<"$kinds" || return 0
    run env -u PMI_RANK "${@:3}" "$gyre" sh -c 'echo "${LD_PRELOAD-nothing}"'
    out_is "$1" "$(realpath "$B")/lib/libgyre-mpi-$2.so"
}
launched "Open MPI's mpirun" openmpi OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0
launched "MPICH's mpirun" mpich PMI_RANK=0
launched "srun --mpi=pmix" openmpi PMIX_RANK=0 SLURM_PROCID=0
launched "srun --mpi=pmi2" mpich PMI_RANK=0 SLURM_PROCID=0
run env SLURM_PROCID=0 "$gyre" sh -c 'echo "${LD_PRELOAD-nothing}"'
if [ "$(echo "$kinds" | wc -l)" = 1 ]; then
    out_is "srun of another kind, one library" "$(realpath "$B")/lib/libgyre-mpi-$kinds.so"
else
    want "srun of another kind" 2 'sh is not linked with MPI.*srun --mpi=pmix .*--mpi=pmi2 .*LD_PRELOAD=.*/libgyre-mpi-openmpi.so'
fi
# A program of upstream's MPICH, or of Intel MPI: libmpi.so.12, which Debian names libmpich.so.12.
if [ -e "$W/calls.mpich" ]; then
    printf 'void MPI_Nothing(void) {}\n' >"$W/mpi12.c"
    printf 'void MPI_Nothing(void);\nint main(void) { MPI_Nothing(); return 0; }\n' >"$W/user12.c"
    "${CC:-gcc}" -shared -fPIC -Wl,-soname,libmpi.so.12 -o "$W/libmpi.so.12" "$W/mpi12.c"
    "${CC:-gcc}" -o "$W/user12" "$W/user12.c" "$W/libmpi.so.12" -Wl,-rpath,"$W"
    run env LD_DEBUG=files "$gyre" "$W/user12"
    want "a program of libmpi.so.12" 0 'libgyre-mpi-mpich.so'
    check "a program of libmpi.so.12: its own library is found first" \
        bash -c 'grep -o "calling init: .*/lib\(mpi\|mpich\).so.12" "$0" | grep -q libmpi.so.12' "$W/err"
fi
mkdir -p "$W/bin" "$W/lib"
cp "$gyre" "$W/bin/"
for kind in $kinds; do
    [ -e "$W/calls.$kind" ] || continue
    run "$W/bin/gyre-mpi" "$W/calls.$kind"
    want "no library for this MPI" 2 "uses libmpi.* no library in .* is built for it"
    for folder in "$W/a space" "$W/a:colon"; do
        mkdir -p "$folder/bin" "$folder/lib"
        cp "$gyre" "$folder/bin/"
        cp "$B/lib/libgyre-mpi-$kind.so" "$folder/lib/"
        run "$folder/bin/gyre-mpi" "$W/calls.$kind"
        want "a folder that LD_PRELOAD cannot name" 2 "$folder/lib/libgyre-mpi-$kind.so has a space or a colon in its path"
    done
done
finish
