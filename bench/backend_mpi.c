/* SPDX-License-Identifier: Apache-2.0 */
/* bench/backend_mpi.c: any MPI, for the benchmark loop (peers.h); built once with each library's own
 * mpicc. */
#include "bench/peers.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int start(int argc, char **argv, int *rank, int *size)
{
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) {
        fprintf(stderr, "MPI_Init failed\n");
        return 1;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return 0;
}

static int all_reduce(float *send, float *recv, size_t count)
{
    return MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int reduce_scatter(float *send, float *recv, size_t count)
{
    return MPI_Reduce_scatter_block(send, recv, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int all_gather(float *send, float *recv, size_t count)
{
    return MPI_Allgather(send, (int)count, MPI_FLOAT, recv, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int broadcast(float *send, float *recv, size_t count)
{
    (void)send;
    return MPI_Bcast(recv, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int all_to_all(float *send, float *recv, size_t count)
{
    return MPI_Alltoall(send, (int)count, MPI_FLOAT, recv, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int barrier(float *send, float *recv, size_t count)
{
    (void)send;
    (void)recv;
    (void)count;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int first_call(float *send, float *recv, size_t count)
{
    MPI_Comm comm;
    int rc = MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
    if (rc != MPI_SUCCESS)
        return rc;
    if (count)
        rc = MPI_Allreduce(send, recv, (int)count, MPI_FLOAT, MPI_SUM, comm);
    const int freed = MPI_Comm_free(&comm);
    return rc != MPI_SUCCESS ? rc : freed;
}

static int split(float *send, float *recv, size_t count)
{
    (void)count;
    return first_call(send, recv, 0);
}

static void *own_alloc(size_t bytes)
{
    void *memory = NULL;
    return MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory) == MPI_SUCCESS ? memory : NULL;
}

static void own_free(void *memory)
{
    if (MPI_Free_mem(memory) != MPI_SUCCESS)
        fprintf(stderr, "MPI_Free_mem failed\n");
}

static const char *error(int code)
{
    static char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        snprintf(text, sizeof text, "MPI error %d", code);
    return text;
}

static const char *version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS)
        return "an MPI that does not say its version";
    text[strcspn(text, "\n,")] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\t')
            *c = ' ';
    return text;
}

static void finish(void)
{
    MPI_Finalize();
}

const bench_backend_t bench_backend = {
    .init = start,
    .call = {all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier, split, first_call},
    .own_alloc = own_alloc,
    .own_free = own_free,
    .error = error,
    .version = version,
    .finalize = finish,
};
