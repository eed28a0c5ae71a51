/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/reduce.c: the collectives of MPI that reduce, and MPI_Barrier. */
#include "shim.h"
#include <stdlib.h>
#include <string.h>

/* A reduction that is taken: what Gyre gets. */
typedef struct {
    const void *send;
    void *recv;
    size_t count;
    gyre_type_t type;
    gyre_redop_t op;
    const shim_comm_t *on;
    shim_run_t run;
} reduction_t;

/* Whether the call is taken. Datatype, operation and count are the same on all ranks. An invalid argument
 * may be one of this rank alone, and MPI reports it. */
static bool take(reduction_t *r, shim_call_t id, const void *send, void *recv, int count, MPI_Datatype type,
                 MPI_Op op, MPI_Comm comm)
{
    shim_why_t why;
    r->on = shim_comm_of(comm, &why);
    if (r->on != NULL && !shim_reduction(type, op, &r->type, &r->op))
        why = WHY_TYPE;
    else if (r->on != NULL && (count < 0 || (count > 0 && send == NULL)))
        why = WHY_ARGUMENT;
    if (why != WHY_TAKEN) {
        shim_passed_on(id, why);
        return false;
    }
    r->send = send == MPI_IN_PLACE ? recv : send;
    r->recv = recv;
    r->count = (size_t)count;
    r->run = (shim_run_t){.id = id, .comm = comm, .bytes = r->count * gyre_type_size(r->type)};
    return true;
}
/* GYRE_MPI_CHECK: makes the call by MPI first, with the whole result in `bytes` bytes of recv. */
#define CHECK(r, bytes, same, call)                                        \
    do {                                                                   \
        if (shim_checking) {                                               \
            shim_check_keep(&(r)->run, (r)->recv, bytes, same, (r)->type); \
            call;                                                          \
            shim_check_swap(&(r)->run);                                    \
        }                                                                  \
        shim_begin(&(r)->run);                                             \
    } while (0)

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    reduction_t r;
    gyre_request_t *request = NULL;
    if (!take(&r, CALL_Allreduce, send, recv, count, type, op, comm))
        return REAL(Allreduce)(send, recv, count, type, op, comm);
    CHECK(&r, r.run.bytes, r.run.bytes, REAL(Allreduce)(send, recv, count, type, op, comm));
    return shim_end(
        &r.run,
        shim_wait(gyre_iall_reduce(r.send, r.recv, r.count, r.type, r.op, r.on->gyre, &request), &request));
}

int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    reduction_t r;
    gyre_request_t *request = NULL;
    if (!take(&r, CALL_Reduce, send, recv, count, type, op, comm))
        return REAL(Reduce)(send, recv, count, type, op, root, comm);
    if (root < 0 || root >= r.on->size || (send == MPI_IN_PLACE && root != r.on->rank)) {
        shim_passed_on(CALL_Reduce, WHY_ARGUMENT);
        return REAL(Reduce)(send, recv, count, type, op, root, comm);
    }
    size_t bytes = root == r.on->rank ? r.run.bytes : 0;
    CHECK(&r, bytes, bytes, REAL(Reduce)(send, recv, count, type, op, root, comm));
    return shim_end(&r.run, shim_wait(gyre_ireduce(r.send, root == r.on->rank ? r.recv : NULL, r.count,
                                                   r.type, r.op, root, r.on->gyre, &request),
                                      &request));
}

int MPI_Scan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    reduction_t r;
    gyre_request_t *request = NULL;
    if (!take(&r, CALL_Scan, send, recv, count, type, op, comm))
        return REAL(Scan)(send, recv, count, type, op, comm);
    CHECK(&r, r.run.bytes, r.run.bytes, REAL(Scan)(send, recv, count, type, op, comm));
    return shim_end(
        &r.run, shim_wait(gyre_iscan(r.send, r.recv, r.count, r.type, r.op, r.on->gyre, &request), &request));
}

int MPI_Exscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    reduction_t r;
    gyre_request_t *request = NULL;
    if (!take(&r, CALL_Exscan, send, recv, count, type, op, comm))
        return REAL(Exscan)(send, recv, count, type, op, comm);
    size_t bytes = r.on->rank > 0 || send == MPI_IN_PLACE ? r.run.bytes : 0;
    CHECK(&r, bytes, r.on->rank > 0 ? bytes : 0, REAL(Exscan)(send, recv, count, type, op, comm));
    return shim_end(
        &r.run,
        shim_wait(gyre_iexscan(r.send, r.recv, r.count, r.type, r.op, r.on->gyre, &request), &request));
}

/* In place, the input is all of recv and the result begins it; Gyre's in-place form has the result in its
 * block. */
static gyre_status_t scatter_blocks(reduction_t *r, bool in_place, const size_t *counts, size_t mine)
{
    gyre_request_t *request = NULL;
    size_t bytes = mine * gyre_type_size(r->type);
    void *result = in_place && bytes > 0 ? malloc(bytes) : r->recv;
    if (in_place && bytes > 0 && result == NULL)
        return GYRE_ERR_NO_MEMORY;
    gyre_status_t started =
        counts == NULL
            ? gyre_ireduce_scatter(r->send, result, mine, r->type, r->op, r->on->gyre, &request)
            : gyre_ireduce_scatterv(r->send, result, counts, r->type, r->op, r->on->gyre, &request);
    gyre_status_t status = shim_wait(started, &request);
    if (result != r->recv) {
        if (status == GYRE_OK)
            memcpy(r->recv, result, bytes);
        free(result);
    }
    return status;
}

int MPI_Reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm)
{
    reduction_t r;
    if (!take(&r, CALL_Reduce_scatter_block, send, recv, count, type, op, comm))
        return REAL(Reduce_scatter_block)(send, recv, count, type, op, comm);
    size_t block = r.run.bytes;
    r.run.bytes *= (size_t)r.on->size;
    CHECK(&r, send == MPI_IN_PLACE ? r.run.bytes : block, block,
          REAL(Reduce_scatter_block)(send, recv, count, type, op, comm));
    return shim_end(&r.run, scatter_blocks(&r, send == MPI_IN_PLACE, NULL, r.count));
}

int MPI_Reduce_scatter(const void *send, void *recv, const int *counts, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm)
{
    reduction_t r;
    size_t *sizes = NULL;
    int size = 0;
    int total = 0;
    if (comm != MPI_COMM_NULL)
        PMPI_Comm_size(comm, &size);
    for (int i = 0; i < size; i++)
        total = counts[i] < 0 || total < 0 ? -1 : total | counts[i]; /* only whether it is 0, or invalid */
    if (!take(&r, CALL_Reduce_scatter, send, recv, total, type, op, comm))
        return REAL(Reduce_scatter)(send, recv, counts, type, op, comm);
    sizes = malloc((size_t)r.on->size * sizeof(*sizes));
    if (sizes == NULL)
        return shim_result(comm, GYRE_ERR_NO_MEMORY);
    r.count = 0;
    for (int i = 0; i < r.on->size; i++)
        r.count += sizes[i] = (size_t)counts[i];
    r.run.bytes = r.count * gyre_type_size(r.type);
    size_t block = sizes[r.on->rank] * gyre_type_size(r.type);
    CHECK(&r, send == MPI_IN_PLACE ? r.run.bytes : block, block,
          REAL(Reduce_scatter)(send, recv, counts, type, op, comm));
    gyre_status_t status = scatter_blocks(&r, send == MPI_IN_PLACE, sizes, sizes[r.on->rank]);
    free(sizes);
    return shim_end(&r.run, status);
}

int MPI_Barrier(MPI_Comm comm)
{
    shim_why_t why;
    gyre_request_t *request = NULL;
    const shim_comm_t *on = shim_comm_of(comm, &why);
    if (on == NULL) {
        shim_passed_on(CALL_Barrier, why);
        return REAL(Barrier)(comm);
    }
    shim_run_t run = {.id = CALL_Barrier, .comm = comm};
    shim_begin(&run);
    return shim_end(&run, shim_wait(gyre_ibarrier(on->gyre, &request), &request));
}

/* Open MPI's Fortran calls the PMPI names. MPICH's calls those above, and MPICH itself calls the others. */
#ifdef OPEN_MPI
#define SHIM_ALIAS(name) \
    extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name), visibility("default")));
SHIM_ALIAS(Allreduce)
SHIM_ALIAS(Reduce)
SHIM_ALIAS(Scan)
SHIM_ALIAS(Exscan)
SHIM_ALIAS(Reduce_scatter_block)
SHIM_ALIAS(Reduce_scatter)
SHIM_ALIAS(Barrier)
#else
/* The one collective that MPICH's mpi_f08 does not call by its MPI name. ierror: NULL if it is absent. */
void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *ierror);
__attribute__((visibility("default"))) void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *ierror)
{
    int rc = MPI_Barrier(PMPI_Comm_f2c(*comm));
    if (ierror != NULL)
        *ierror = rc;
}
#endif
