/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/move.c: the collectives of MPI that move data. They are always taken, as bytes. One function
 * makes both forms of each: `request` is BLOCKING, or the program's. */
#include "shim.h"

static int bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request)
{
    shim_op_t own;
    shim_op_t *o = shim_take(&own, CALL_Bcast, root, count, type, comm, request);
    if (o == NULL)
        return PASS(Bcast, bcast, buffer, count, type, root, comm);
    /* The root only reads its buffer. */
    const bool root_here = o->on->rank == root;
    shim_side_t *side = root_here ? &o->send : &o->recv;
    *side = shim_flat(buffer, count, type);
    o->sends = root_here;
    o->recvs = !root_here;
    if (!shim_open(o, 0, 0))
        return PASS(Bcast, bcast, buffer, count, type, root, comm);
    if (root_here && shim_checking)
        shim_own_call(o, REAL(Ibcast)(buffer, count, type, root, comm, &o->other));
    else
        CHECK_MOVED(o, REAL(Ibcast)(shadow, count, type, root, comm, &o->other));
    START(o,
          GYRE(ibroadcast)(side->data, side->data, side->total, GYRE_UINT8, root, o->on->gyre, &o->request));
    return shim_finish(o, request);
}

/* The place in the received blocks where Gyre's in-place form has this rank's own. */
static const unsigned char *own_block(const shim_side_t *s, int rank, size_t block)
{
    return s->n > 1 ? s->data + s->offsets[rank] : s->data + (size_t)rank * block;
}

static int gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, recv_count, recv_type, root, comm
    shim_op_t own;
    shim_op_t *o =
        shim_take(&own, CALL_Gather, root, send == MPI_IN_PLACE ? 0 : send_count, send_type, comm, request);
    if (o == NULL)
        return PASS(Gather, gather, ARGUMENTS(recv));
    if (shim_misplaced(o, send, root))
        return shim_finish(o, request);
    o->recvs = o->on->rank == root;
    o->sends = send != MPI_IN_PLACE;
    o->send = shim_flat(send, send_count, send_type);
    o->recv = shim_blocks(recv, o->on->size, NULL, recv_count, NULL, recv_type);
    if (!shim_open(o, 0, SHIM_ADJACENT | (o->sends ? 0 : SHIM_FILL)))
        return PASS(Gather, gather, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Igather)(ARGUMENTS(shadow), &o->other));
    size_t block = o->recvs ? o->recv.bytes[0] : o->send.total;
    START(o, GYRE(igather)(o->sends ? o->send.data : own_block(&o->recv, root, block), o->recv.data, block,
                           GYRE_UINT8, root, o->on->gyre, &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

static int gatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *counts,
                   const int *displs, MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, counts, displs, recv_type, root, comm
    shim_op_t own;
    shim_op_t *o =
        shim_take(&own, CALL_Gatherv, root, send == MPI_IN_PLACE ? 0 : send_count, send_type, comm, request);
    if (o == NULL)
        return PASS(Gatherv, gatherv, ARGUMENTS(recv));
    if (shim_misplaced(o, send, root))
        return shim_finish(o, request);
    o->recvs = o->on->rank == root;
    o->sends = send != MPI_IN_PLACE;
    o->send = shim_flat(send, send_count, send_type);
    o->recv = shim_blocks(recv, o->on->size, counts, 0, displs, recv_type);
    if (!shim_open(o, 0, o->sends ? 0 : SHIM_FILL))
        return PASS(Gatherv, gatherv, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Igatherv)(ARGUMENTS(shadow), &o->other));
    START(o, GYRE(igatherv)(o->sends ? o->send.data : own_block(&o->recv, root, 0),
                            o->sends ? o->send.total : o->recv.bytes[root], o->recv.data, o->recv.bytes,
                            o->recv.offsets, GYRE_UINT8, root, o->on->gyre, &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

static int scatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                   MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, recv_count, recv_type, root, comm
    shim_op_t own;
    shim_op_t *o =
        shim_take(&own, CALL_Scatter, root, recv == MPI_IN_PLACE ? 0 : recv_count, recv_type, comm, request);
    if (o == NULL)
        return PASS(Scatter, scatter, ARGUMENTS(recv));
    if (shim_misplaced(o, recv, root))
        return shim_finish(o, request);
    o->sends = o->on->rank == root;
    o->recvs = recv != MPI_IN_PLACE;
    o->send = shim_blocks(send, o->on->size, NULL, send_count, NULL, send_type);
    o->recv = shim_flat(recv, recv_count, recv_type);
    if (!shim_open(o, SHIM_ADJACENT, 0))
        return PASS(Scatter, scatter, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Iscatter)(ARGUMENTS(shadow), &o->other));
    size_t block = o->sends ? o->send.bytes[0] : o->recv.total;
    void *to = o->recvs ? o->recv.data : o->send.data + (size_t)root * block;
    START(o, GYRE(iscatter)(o->send.data, to, block, GYRE_UINT8, root, o->on->gyre, &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

static int scatterv(const void *send, const int *counts, const int *displs, MPI_Datatype send_type,
                    void *recv, int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm,
                    MPI_Request *request)
{
#define ARGUMENTS(recv) send, counts, displs, send_type, recv, recv_count, recv_type, root, comm
    shim_op_t own;
    shim_op_t *o =
        shim_take(&own, CALL_Scatterv, root, recv == MPI_IN_PLACE ? 0 : recv_count, recv_type, comm, request);
    if (o == NULL)
        return PASS(Scatterv, scatterv, ARGUMENTS(recv));
    if (shim_misplaced(o, recv, root))
        return shim_finish(o, request);
    o->sends = o->on->rank == root;
    o->recvs = recv != MPI_IN_PLACE;
    o->send = shim_blocks(send, o->on->size, counts, 0, displs, send_type);
    o->recv = shim_flat(recv, recv_count, recv_type);
    if (!shim_open(o, 0, 0))
        return PASS(Scatterv, scatterv, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Iscatterv)(ARGUMENTS(shadow), &o->other));
    void *to = o->recvs ? o->recv.data : o->send.data + o->send.offsets[root];
    START(o, GYRE(iscatterv)(o->send.data, o->send.bytes, o->send.offsets, to,
                             o->recvs ? o->recv.total : o->send.bytes[root], GYRE_UINT8, root, o->on->gyre,
                             &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

static int allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                     MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, recv_count, recv_type, comm
    shim_op_t own;
    shim_op_t *o = shim_take(&own, CALL_Allgather, 0, recv_count, recv_type, comm, request);
    if (o == NULL)
        return PASS(Allgather, allgather, ARGUMENTS(recv));
    o->recvs = true;
    o->sends = send != MPI_IN_PLACE;
    o->send = shim_flat(send, send_count, send_type);
    o->recv = shim_blocks(recv, o->on->size, NULL, recv_count, NULL, recv_type);
    if (!shim_open(o, 0, SHIM_ADJACENT | (o->sends ? 0 : SHIM_FILL)))
        return PASS(Allgather, allgather, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Iallgather)(ARGUMENTS(shadow), &o->other));
    size_t block = o->recv.bytes[0];
    START(o, GYRE(iall_gather)(o->sends ? o->send.data : own_block(&o->recv, o->on->rank, block),
                               o->recv.data, block, GYRE_UINT8, o->on->gyre, &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

/* Displacements may differ among the ranks, for which Gyre wants the same: it gets blocks that lie back
 * to back. */
static int allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int *counts,
                      const int *displs, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, counts, displs, recv_type, comm
    shim_op_t own;
    shim_op_t *o =
        shim_take(&own, CALL_Allgatherv, 0, send == MPI_IN_PLACE ? 0 : send_count, send_type, comm, request);
    if (o == NULL)
        return PASS(Allgatherv, allgatherv, ARGUMENTS(recv));
    o->recvs = true;
    o->sends = send != MPI_IN_PLACE;
    o->send = shim_flat(send, send_count, send_type);
    o->recv = shim_blocks(recv, o->on->size, counts, 0, displs, recv_type);
    if (!shim_open(o, 0, SHIM_ADJACENT | (o->sends ? 0 : SHIM_FILL)))
        return PASS(Allgatherv, allgatherv, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Iallgatherv)(ARGUMENTS(shadow), &o->other));
    START(o, GYRE(iall_gatherv)(o->sends ? o->send.data : own_block(&o->recv, o->on->rank, 0), o->recv.data,
                                o->recv.bytes, NULL, GYRE_UINT8, o->on->gyre, &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

static int alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                    MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, recv_count, recv_type, comm
    shim_op_t own;
    shim_op_t *o = shim_take(&own, CALL_Alltoall, 0, recv_count, recv_type, comm, request);
    if (o == NULL)
        return PASS(Alltoall, alltoall, ARGUMENTS(recv));
    o->recvs = true;
    o->sends = send != MPI_IN_PLACE;
    o->send = shim_blocks(send, o->on->size, NULL, send_count, NULL, send_type);
    o->recv = shim_blocks(recv, o->on->size, NULL, recv_count, NULL, recv_type);
    if (!shim_open(o, SHIM_ADJACENT, SHIM_ADJACENT | (o->sends ? 0 : SHIM_FILL)))
        return PASS(Alltoall, alltoall, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ialltoall)(ARGUMENTS(shadow), &o->other));
    START(o, GYRE(iall_to_all)(o->sends ? o->send.data : o->recv.data, o->recv.data, o->recv.bytes[0],
                               GYRE_UINT8, o->on->gyre, &o->request));
    return shim_finish(o, request);
#undef ARGUMENTS
}

/* MPI_Alltoallv and MPI_Alltoallw; in place: what is sent is a copy of the receive buffer. */
#define EXCHANGE(o)                                                                              \
    START(o,                                                                                     \
          GYRE(iall_to_allv)((o)->send.data, (o)->send.bytes, (o)->send.offsets, (o)->recv.data, \
                             (o)->recv.bytes, (o)->recv.offsets, GYRE_UINT8, (o)->on->gyre, &(o)->request))
static int alltoallv(const void *send, const int *send_counts, const int *send_displs, MPI_Datatype send_type,
                     void *recv, const int *recv_counts, const int *recv_displs, MPI_Datatype recv_type,
                     MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) \
    send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm
    shim_op_t own;
    shim_op_t *o =
        shim_take(&own, CALL_Alltoallv, 0, recv_counts ? recv_counts[0] : 0, recv_type, comm, request);
    if (o == NULL)
        return PASS(Alltoallv, alltoallv, ARGUMENTS(recv));
    o->recvs = o->sends = true;
    o->recv = shim_blocks(recv, o->on->size, recv_counts, 0, recv_displs, recv_type);
    o->send = send == MPI_IN_PLACE ? o->recv
                                   : shim_blocks(send, o->on->size, send_counts, 0, send_displs, send_type);
    if (!shim_open(o, send == MPI_IN_PLACE ? SHIM_PACK : 0, 0))
        return PASS(Alltoallv, alltoallv, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ialltoallv)(ARGUMENTS(shadow), &o->other));
    EXCHANGE(o);
    return shim_finish(o, request);
#undef ARGUMENTS
}
static int alltoallw(const void *send, const int *send_counts, const int *send_displs,
                     const MPI_Datatype *send_types, void *recv, const int *recv_counts,
                     const int *recv_displs, const MPI_Datatype *recv_types, MPI_Comm comm,
                     MPI_Request *request)
{
#define ARGUMENTS(recv) \
    send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs, recv_types, comm
    shim_op_t own;
    shim_op_t *o = shim_take(&own, CALL_Alltoallw, 0, recv_counts && recv_types ? recv_counts[0] : 0,
                             recv_types ? recv_types[0] : MPI_DATATYPE_NULL, comm, request);
    if (o == NULL)
        return PASS(Alltoallw, alltoallw, ARGUMENTS(recv));
    o->recvs = o->sends = true;
    o->recv = shim_blocks(recv, o->on->size, recv_counts, 0, recv_displs, MPI_DATATYPE_NULL);
    o->recv.types = recv_types;
    o->send = o->recv;
    if (send != MPI_IN_PLACE) {
        o->send = shim_blocks(send, o->on->size, send_counts, 0, send_displs, MPI_DATATYPE_NULL);
        o->send.types = send_types;
    }
    if (!shim_open(o, send == MPI_IN_PLACE ? SHIM_PACK : 0, 0))
        return PASS(Alltoallw, alltoallw, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ialltoallw)(ARGUMENTS(shadow), &o->other));
    EXCHANGE(o);
    return shim_finish(o, request);
#undef ARGUMENTS
}

/* The program's calls. */
FORMS(Bcast, bcast, (void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
      (buffer, count, type, root, comm))
FORMS(Gather, gather, (SEND, RECV, int root, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_count, recv_type, root, comm))
FORMS(Gatherv, gatherv, (SEND, RECVS, MPI_Datatype recv_type, int root, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_counts, recv_displs, recv_type, root, comm))
FORMS(Scatter, scatter, (SEND, RECV, int root, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_count, recv_type, root, comm))
FORMS(Scatterv, scatterv, (SENDS, MPI_Datatype send_type, RECV, int root, MPI_Comm comm),
      (send, send_counts, send_displs, send_type, recv, recv_count, recv_type, root, comm))
FORMS(Allgather, allgather, (SEND, RECV, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_count, recv_type, comm))
FORMS(Allgatherv, allgatherv, (SEND, RECVS, MPI_Datatype recv_type, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_counts, recv_displs, recv_type, comm))
FORMS(Alltoall, alltoall, (SEND, RECV, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_count, recv_type, comm))
FORMS(Alltoallv, alltoallv, (SENDS, MPI_Datatype send_type, RECVS, MPI_Datatype recv_type, MPI_Comm comm),
      (send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm))
FORMS(Alltoallw, alltoallw,
      (SENDS, const MPI_Datatype *send_types, RECVS, const MPI_Datatype *recv_types, MPI_Comm comm),
      (send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs, recv_types, comm))
