/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/gpu/nccl/other/library.c: stands for the library of GYRE_NCCL_FALLBACK: it makes
 * communicators, and sends one kind of message, which it prints. A window waits until the communicator is
 * aborted. */
#include <nccl.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <threads.h>

struct ncclComm {
    int rank, n;
    char id;
    atomic_int aborted;
};
ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream);

ncclResult_t ncclGetVersion(int *version)
{
    *version = 1;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    id->internal[0] = 'x';
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    ncclComm_t made = malloc(sizeof *made);
    *made = (struct ncclComm){.rank = rank, .n = nranks, .id = id.internal[0]};
    *comm = made;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    printf("rank %d ends\n", comm->rank);
    free(comm);
    return ncclSuccess;
}

/* Not freed: a thread may be in ncclCommWindowRegister. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (atomic_exchange(&comm->aborted, 1))
        printf("rank %d is aborted twice\n", comm->rank);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                    int flags)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    (void)buffer, (void)size, (void)window, (void)flags;
    while (!atomic_load(&comm->aborted))
        thrd_sleep(&pause, NULL);
    return ncclRemoteError;
}

ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

ncclResult_t ncclSignal(int peer, int signal, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream)
{
    (void)signal, (void)ctx, (void)flags, (void)stream;
    printf("rank %d of %d signals %d by %c\n", comm->rank, comm->n, peer, comm->id);
    return ncclSuccess;
}
