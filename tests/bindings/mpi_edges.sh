#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# tests/bindings/mpi_edges.sh: gyre-mpi with what few programs do: many datatypes, read-only buffers, lists of requests that
# fail, callbacks in MPI_Finalize, requests that are freed, what MPI refuses; and what the comparison must bear.
# deadline: 240
. "$(dirname "$0")/../support/lib.sh"
. "$(dirname "$0")/../support/mpi.sh"
export GYRE_MPI_AFTER=0
# edge PART RANKS [VARIABLE=VALUE...]: the part ends well; with GYRE_MPI_CHECK=1 no result differs
edge() {
    local part=$1 n=$2
    shift 2
    mpi "$kind" "$n" env "$@" "$gyre" "$p" "$part"
    case " $*" in
    *GYRE_MPI_CHECK=1*) want "$kind: $part" 0 'GYRE_MPI_CHECK: [0-9]+ results compared with MPI.s, 0 differ' ;;
    *) want "$kind: $part" 0 ;;
    esac
}
silent() { # PART: libgyre-mpi has nothing to say
    check "$kind: $1: no messages" [ "$(grep -c libgyre-mpi: "$W/err")" = 0 ]
}
for kind in $kinds; do
    if ! command -v "mpirun.$kind" >/dev/null; then
        leave_out "$kind: no mpirun.$kind"
        continue
    fi
    p=$W/edges.$kind
    run "mpicc.$kind" -O0 -o "$p" tests/bindings/mpi_edges.c
    check "$kind: the program compiles: $(head -n 5 "$W/err")" [ "$rc" = 0 ]
    edge many_types 2
    edge read_only 2
    edge read_only 2 GYRE_MPI_CHECK=1
    edge both_fail 2
    edge finalize_callback 3 -u GYRE_MPI_AFTER GYRE_ORDER=exact
    silent finalize_callback
    out_is "$kind: finalize_callback" '3 1 1'
    edge finalize_callback 2 GYRE_MPI_REPORT=1 GYRE_MPI_CHECK=1
    check "$kind: the report has the callback's calls" grep -qE 'MPI_Allreduce +1 +1 ' "$W/err"
    for part in uncommitted_root uncommitted; do
        mpi "$kind" 2 "$gyre" "$p" $part
        check "$kind: $part ($rc): $(grep mpi_edges "$W/err")" [ "$rc" = 5 ]
    done
    edge wide_types 2 GYRE_MPI_CHECK=1
    edge freed_requests 2
    silent freed_requests
    edge logical_prefixes 3 GYRE_MPI_CHECK=1
    edge null_buffers 2 GYRE_MPI_CHECK=1
    mpi "$kind" 2 env GYRE_MPI_CHECK=1 "$gyre" "$p" refused_by_mpi
    want "$kind: refused_by_mpi" 1 "GYRE_MPI_CHECK: MPI_Alltoallv: rank 0: MPI.s own call failed: ."
done
finish
