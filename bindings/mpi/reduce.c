/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/reduce.c: the collectives of MPI that reduce, and the barrier. One function makes both forms
 * of each: `request` is BLOCKING, or the program's. */
#include "shim.h"
#include <stdlib.h>

/* A reduction that is taken: what Gyre gets. */
typedef struct {
    shim_op_t own;
    shim_op_t *o;
    const void *send;
    void *recv;
    size_t count;
    size_t bytes; /* of `count` elements */
    gyre_type_t type;
    gyre_redop_t op;
} reduction_t;

/* Whether the call is taken. Datatype, operation and count are the same on all ranks. An invalid argument
 * may be one of this rank alone, and MPI reports it. */
static bool take(reduction_t *r, shim_call_t id, const void *send, void *recv, int count, MPI_Datatype type,
                 MPI_Op op, int root, MPI_Comm comm, MPI_Request *request)
{
    shim_op_t *o = r->o = shim_take(&r->own, id, root, count, type, comm, request);
    const shim_call_t form = request == BLOCKING ? id : id + CALL_COUNT;
    if (o == NULL) {
        shim_keeps_order(form, shim_name(form), type, op, comm);
        return false;
    }
    if (!shim_reduction(type, op, &r->type, &r->op)) {
        shim_drop(o, WHY_TYPE);
        shim_keeps_order(form, shim_name(form), type, op, comm);
        return false;
    }
    if (count < 0 || (count > 0 && send == NULL)) {
        shim_drop(o, WHY_ARGUMENT);
        return false;
    }
    r->send = send == MPI_IN_PLACE ? recv : send;
    r->recv = recv;
    r->count = (size_t)count;
    r->bytes = r->count * GYRE(type_size)(r->type);
    o->bytes = r->bytes;
    o->type = r->type;
    o->logical = r->op.kind == GYRE_LAND || r->op.kind == GYRE_LOR || r->op.kind == GYRE_LXOR;
    o->result = recv;
    o->length = r->bytes;
    return true;
}

static int allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     MPI_Request *request)
{
    reduction_t r;
    if (!take(&r, CALL_Allreduce, send, recv, count, type, op, 0, comm, request))
        return PASS(Allreduce, allreduce, send, recv, count, type, op, comm);
    CHECK_REDUCED(r.o, recv, r.bytes, REAL(Iallreduce)(send, shadow, count, type, op, comm, &r.o->other));
    START(r.o, GYRE(iall_reduce)(r.send, recv, r.count, r.type, r.op, r.o->on->gyre, &r.o->request));
    return shim_finish(r.o, request);
}

static int reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root,
                  MPI_Comm comm, MPI_Request *request)
{
    reduction_t r;
    if (!take(&r, CALL_Reduce, send, recv, count, type, op, root, comm, request))
        return PASS(Reduce, reduce, send, recv, count, type, op, root, comm);
    bool here = root == r.o->on->rank;
    if (shim_misplaced(r.o, send, root))
        return shim_finish(r.o, request);
    r.o->length = here ? r.bytes : 0;
    CHECK_REDUCED(r.o, recv, r.o->length,
                  REAL(Ireduce)(send, shadow, count, type, op, root, comm, &r.o->other));
    START(r.o, GYRE(ireduce)(r.send, here ? recv : NULL, r.count, r.type, r.op, root, r.o->on->gyre,
                             &r.o->request));
    return shim_finish(r.o, request);
}

static int scan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request *request)
{
    reduction_t r;
    if (!take(&r, CALL_Scan, send, recv, count, type, op, 0, comm, request))
        return PASS(Scan, scan, send, recv, count, type, op, comm);
    CHECK_REDUCED(r.o, recv, r.bytes, REAL(Iscan)(send, shadow, count, type, op, comm, &r.o->other));
    START(r.o, GYRE(iscan)(r.send, recv, r.count, r.type, r.op, r.o->on->gyre, &r.o->request));
    return shim_finish(r.o, request);
}

static int exscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                  MPI_Request *request)
{
    reduction_t r;
    if (!take(&r, CALL_Exscan, send, recv, count, type, op, 0, comm, request))
        return PASS(Exscan, exscan, send, recv, count, type, op, comm);
    bool first = r.o->on->rank == 0;
    r.o->length = first ? 0 : r.bytes;
    /* It has no result on rank 0, where MPICH refuses NULL. */
    CHECK_REDUCED(r.o, first && send != MPI_IN_PLACE ? NULL : recv, r.bytes,
                  REAL(Iexscan)(send, shadow, count, type, op, comm, &r.o->other));
    START(r.o, GYRE(iexscan)(r.send, recv, r.count, r.type, r.op, r.o->on->gyre, &r.o->request));
    return shim_finish(r.o, request);
}

/* In place, the input is all of recv and the result begins it; Gyre's in-place form has the result in its
 * block. So the result goes to memory of the call first. */
static void bounce(reduction_t *r, bool in_place)
{
    if (in_place && r->o->length > 0) {
        r->recv = r->o->bounce = malloc(r->o->length);
        r->o->status = r->recv != NULL ? GYRE_OK : GYRE_ERR_NO_MEMORY;
    }
}

static int reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                                MPI_Comm comm, MPI_Request *request)
{
    reduction_t r;
    if (!take(&r, CALL_Reduce_scatter_block, send, recv, count, type, op, 0, comm, request))
        return PASS(Reduce_scatter_block, reduce_scatter_block, send, recv, count, type, op, comm);
    r.o->bytes *= (size_t)r.o->on->size;
    CHECK_REDUCED(r.o, recv, send == MPI_IN_PLACE ? r.o->bytes : r.bytes,
                  REAL(Ireduce_scatter_block)(send, shadow, count, type, op, comm, &r.o->other));
    bounce(&r, send == MPI_IN_PLACE);
    START(r.o, GYRE(ireduce_scatter)(r.send, r.recv, r.count, r.type, r.op, r.o->on->gyre, &r.o->request));
    return shim_finish(r.o, request);
}

static int reduce_scatter(const void *send, void *recv, const int *counts, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *request)
{
    reduction_t r;
    int size = 0;
    int total = 0;
    if (comm != MPI_COMM_NULL)
        PMPI_Comm_size(comm, &size);
    for (int i = 0; i < size; i++)
        total = counts[i] < 0 || total < 0 ? -1 : total | counts[i]; /* only whether it is 0, or invalid */
    if (!take(&r, CALL_Reduce_scatter, send, recv, total, type, op, 0, comm, request))
        return PASS(Reduce_scatter, reduce_scatter, send, recv, counts, type, op, comm);
    const size_t element = GYRE(type_size)(r.type);
    size_t *sizes = malloc((size_t)size * sizeof(*sizes));
    if (sizes == NULL)
        shim_no_memory("the counts of MPI_Reduce_scatter");
    r.o->bytes = 0;
    for (int i = 0; i < size; i++) {
        sizes[i] = (size_t)counts[i];
        r.o->bytes += sizes[i] * element;
    }
    r.o->length = sizes[r.o->on->rank] * element;
    CHECK_REDUCED(r.o, recv, send == MPI_IN_PLACE ? r.o->bytes : r.o->length,
                  REAL(Ireduce_scatter)(send, shadow, counts, type, op, comm, &r.o->other));
    bounce(&r, send == MPI_IN_PLACE);
    START(r.o, GYRE(ireduce_scatterv)(r.send, r.recv, sizes, r.type, r.op, r.o->on->gyre, &r.o->request));
    free(sizes);
    return shim_finish(r.o, request);
}

static int barrier(MPI_Comm comm, MPI_Request *request)
{
    shim_op_t own;
    shim_op_t *o = shim_take(&own, CALL_Barrier, 0, 0, MPI_DATATYPE_NULL, comm, request);
    if (o == NULL)
        return PASS(Barrier, barrier, comm);
    if (shim_checking)
        shim_own_call(o, REAL(Ibarrier)(comm, &o->other));
    START(o, GYRE(ibarrier)(o->on->gyre, &o->request));
    return shim_finish(o, request);
}

/* The program's calls. */
#define REDUCTION const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op
FORMS(Allreduce, allreduce, (REDUCTION, MPI_Comm comm), (send, recv, count, type, op, comm))
FORMS(Reduce, reduce, (REDUCTION, int root, MPI_Comm comm), (send, recv, count, type, op, root, comm))
FORMS(Scan, scan, (REDUCTION, MPI_Comm comm), (send, recv, count, type, op, comm))
FORMS(Exscan, exscan, (REDUCTION, MPI_Comm comm), (send, recv, count, type, op, comm))
FORMS(Reduce_scatter_block, reduce_scatter_block, (REDUCTION, MPI_Comm comm),
      (send, recv, count, type, op, comm))
FORMS(Reduce_scatter, reduce_scatter,
      (const void *send, void *recv, const int *counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
      (send, recv, counts, type, op, comm))
FORMS(Barrier, barrier, (MPI_Comm comm), (comm))

#ifndef OPEN_MPI
/* The collectives that MPICH's mpi_f08 does not call by their MPI names. ierror: NULL if it is absent. */
#define EXPORTED __attribute__((visibility("default")))
void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *ierror);
EXPORTED void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *ierror)
{
    int rc = MPI_Barrier(PMPI_Comm_f2c(*comm));
    if (ierror != NULL)
        *ierror = rc;
}
void mpi_ibarrier_f08_(const MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror);
EXPORTED void mpi_ibarrier_f08_(const MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror)
{
    MPI_Request made = MPI_REQUEST_NULL;
    int rc = MPI_Ibarrier(PMPI_Comm_f2c(*comm), &made);
    *request = PMPI_Request_c2f(made);
    if (ierror != NULL)
        *ierror = rc;
}
#endif
