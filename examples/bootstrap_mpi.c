/* SPDX-License-Identifier: Apache-2.0 */
/* examples/bootstrap_mpi.c: a job of an MPI communicator's ranks, made through that communicator.
 *
 *     mpicc -Iinclude examples/bootstrap_mpi.c -Lbuild/lib -lgyre -Wl,-rpath,$PWD/build/lib -o bootstrap_mpi
 *     mpirun -n 3 ./bootstrap_mpi
 *
 * Shows gyre_comm_create with an all-gather of five lines, twice: for all ranks, and for the even and the odd
 * ranks, so that each process is in two jobs. `make` does not build it: MPI is no part of Gyre. */
#include <mpi.h>
#include <stdio.h>

#include <gyre/gyre.h>

static gyre_status_t by_mpi(const void *mine, void *all, size_t bytes, void *user)
{
    const MPI_Comm *comm = user;
    int error = MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *comm);
    return error == MPI_SUCCESS ? GYRE_OK : GYRE_ERR_IO;
}

static gyre_status_t create(MPI_Comm comm, gyre_comm_t **out)
{
    gyre_create_t config = GYRE_CREATE_INITIALIZER;
    MPI_Comm_rank(comm, &config.rank);
    MPI_Comm_size(comm, &config.nranks);
    config.all_gather = by_mpi;
    config.user = &comm;
    return gyre_comm_create(&config, out);
}

/* 1: Gyre's sum is MPI's. */
static int same_sum(MPI_Comm comm, gyre_comm_t *gyre)
{
    long long mine = gyre_comm_rank(gyre) + 1, by_gyre = 0, by_mpi_itself = 0;
    if (gyre_all_reduce(&mine, &by_gyre, 1, GYRE_INT64, GYRE_OP(GYRE_SUM), gyre) != GYRE_OK)
        return 0;
    MPI_Allreduce(&mine, &by_mpi_itself, 1, MPI_LONG_LONG, MPI_SUM, comm);
    return by_gyre == by_mpi_itself;
}

int main(int argc, char **argv)
{
    int rank, ok = 0;
    MPI_Comm half;
    gyre_comm_t *all, *some;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    if (create(MPI_COMM_WORLD, &all) == GYRE_OK && create(half, &some) == GYRE_OK) {
        ok = same_sum(MPI_COMM_WORLD, all) && same_sum(half, some);
        ok = gyre_finalize(some) == GYRE_OK && ok;
        ok = gyre_finalize(all) == GYRE_OK && ok;
    }
    printf("rank %d: %s\n", rank, ok ? "the sums are those of MPI" : "FAILED");
    MPI_Comm_free(&half);
    MPI_Finalize();
    return !ok;
}
