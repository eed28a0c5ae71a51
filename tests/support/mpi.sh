# SPDX-License-Identifier: Apache-2.0
# tests/support/mpi.sh: for scripts that run programs of MPI: after tests/support/lib.sh. Sets `kinds`, the MPI libraries
# for which there is a libgyre-mpi, and `gyre`.
# shellcheck shell=bash disable=SC2034,SC2154 # set here for those scripts; set by lib.sh
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_MCA_btl=^tcp,ofi GYRE_INIT_TIMEOUT=20
kinds=$(cd "$B/lib" && ls libgyre-mpi-*.so 2>/dev/null | sed 's/libgyre-mpi-\(.*\)\.so/\1/')
[ -n "$kinds" ] || skip "no mpicc.openmpi or mpicc.mpich where this was built, or a build with a sanitizer"
gyre=$B/bin/gyre-mpi
run "${CC:-gcc}" -O1 -shared -fPIC -o "$W/yield.so" tests/mpi/yield.c
check "yield.c compiles" [ "$rc" = 0 ]
mpi() { # KIND RANKS COMMAND...
    local kind=$1 n=$2
    shift 2
    # Ranks of MPICH spin for each other, and other tests want the cores, too.
    [ "$kind" != mpich ] || set -- env LD_PRELOAD="$W/yield.so" "$@"
    run "mpirun.$kind" -n "$n" "$@"
}
