#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/mpi_order.sh: GYRE_ORDER with programs of MPI: sums on communicators of every origin, by C and Fortran;
# the lines about sums that MPI makes; ranks that lack the variable or have another one; a value or a libgyre that is none.
# deadline: 120
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/mpi.sh"
says() { # NAME COUNT PATTERN: so many lines of the last run's stderr
    check "$1: $2 lines of '$3': $(grep libgyre-mpi "$W/err")" [ "$(grep -cE -- "$3" "$W/err")" = "$2" ]
}
# on_rank RANK ASSIGNMENT COMMAND...: the variable on this rank alone
# shellcheck disable=SC2016 # of the shell that is started
on_rank=(sh -c '[ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" != "$0" ] || export "$1"; shift; exec "$@"')
for kind in $kinds; do
    if ! command -v "mpirun.$kind" >/dev/null; then
        leave_out "$kind: no mpirun.$kind"
        continue
    fi
    p=$W/order.$kind
    run "mpicc.$kind" -O1 -o "$p" tests/bindings/mpi_order.c
    check "$kind: the program compiles: $(head -n 5 "$W/err")" [ "$rc" = 0 ]
    mpi "$kind" 3 env GYRE_ORDER=exact "$gyre" "$p" made
    want "$kind: every communicator" 0
    out_is "$kind: every communicator" "$(printf '%s 1\n' dup dup_with_info split split_type create create_group cart_sub cart_create \
        graph_create dist_graph_create dist_graph_create_adjacent intercomm_merge world)"
    says "$kind: nothing to say" 0 .

    mpi "$kind" 3 env GYRE_ORDER=exact "$gyre" "$p" passed
    want "$kind: what MPI adds" 0
    line='^libgyre-mpi: GYRE_ORDER=exact:'
    says "$kind" 1 "$line MPI_Allreduce of .*LONG_DOUBLE has the MPI library's order: Gyre does not add"
    says "$kind" 1 "$line MPI_Reduce of MPI_DOUBLE .*MPI_Op_create"
    says "$kind" 1 "$line MPI_Iscan of MPI_DOUBLE .*no exact products"
    says "$kind" 1 "$line MPI_Iallreduce on this communicator .* as MPI_Comm_idup"
    check "$kind: not of integers" [ "$(grep -nE 'idup|integers are' "$W/err" | head -n 1 | grep -c integers)" = 1 ]
    says "$kind" 2 "$line MPI_Allreduce on this communicator .*: it is an inter-communicator" # rank 0 of each side
    check "$kind: idup, after a barrier" grep -q '^idup, after a barrier 1$' "$W/out"
    if [ "$kind" = mpich ]; then
        says "$kind" 1 "$line MPI_Exscan_c of MPI_DOUBLE .*never taken"
    fi
    says "$kind" 1 "$line MPIX?_Allreduce_init of MPI_DOUBLE .*never taken"
    mpi "$kind" 3 env GYRE_ORDER=exact "$gyre" "$p" first
    want "$kind: persistent calls first" 0
    says "$kind: persistent calls first" 3 "$line"
    says "$kind" 1 "$line MPIX?_Allreduce_init on this communicator .* as MPI_Comm_idup"
    says "$kind" 2 "$line MPIX?_Allreduce_init on this communicator .*: it is an inter-communicator"
    mpi "$kind" 3 env GYRE_MPI_AFTER=0 "$gyre" "$p" passed
    says "$kind: no order asked for" 0 'MPI library.s order'
    mpi "$kind" 3 env GYRE_ORDER=fast "$gyre" "$p" passed
    says "$kind: no order promised" 0 'MPI library.s order'

    # A launcher that gives the variable to some ranks only, as Open MPI's between hosts.
    mpi "$kind" 3 "${on_rank[@]}" 0 GYRE_ORDER=exact "$gyre" "$p"
    want "$kind: the variable on rank 0 alone" 0
    out_is "$kind: the variable on rank 0 alone" 'world 1'
    mpi "$kind" 3 "${on_rank[@]}" 1 GYRE_ORDER=exact "$gyre" "$p"
    want "$kind: the variable on rank 1 alone" 1 'GYRE_ORDER is exact on rank 1, and not set on rank 0: .*mpirun -x GYRE_ORDER'
    out_is "$kind: no sum" ''
    mpi "$kind" 3 env GYRE_ORDER=exat "$gyre" "$p"
    want "$kind: no such order" 1 'GYRE_ORDER.*exat.*canonical' "GYRE_ORDER=exat is not the order of the MPI library: the job ends"
    out_is "$kind: no sum" ''
    mpi "$kind" 3 env GYRE_ORDER=exact GYRE_MPI_AFTER=7 "$gyre" "$p"
    want "$kind: both variables" 0 'GYRE_MPI_AFTER=7 is ignored: GYRE_ORDER is for all collectives'
    out_is "$kind: both variables" 'world 1'
    # Ranks that cannot be joined.
    mkdir -p "$W/broken"
    cp "$B/lib/libgyre-mpi-$kind.so" "$W/broken/"
    : >"$W/broken/libgyre.so.0"
    mpi "$kind" 2 env GYRE_ORDER=exact LD_PRELOAD="$W/broken/libgyre-mpi-$kind.so" "$p"
    want "$kind: without libgyre" 1 'libgyre cannot be loaded' 'the ranks cannot be joined in Gyre, and GYRE_ORDER=exact is not'
    out_is "$kind: no sum" ''
done
finish
