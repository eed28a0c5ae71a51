/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/neighbor.c: the neighbourhood collectives of MPI, as exchanges of messages in Gyre. They are
 * taken on every communicator with a topology. `request`: as in move.c. */
#include "shim.h"
#include <stdlib.h>

static void near_make(shim_near_t *near, int most)
{
    near->ranks = calloc(2 * (size_t)most + 1, sizeof(int));
    if (near->ranks == NULL)
        shim_no_memory("a list of neighbours");
    near->index = near->ranks + most;
}
static void near_add(shim_near_t *near, int rank, int index)
{
    if (rank == MPI_PROC_NULL)
        return;
    near->ranks[near->n] = rank;
    near->index[near->n++] = index;
}
/* What goes to the lower neighbour in a dimension comes there from its upper one. Both may be one rank, and
 * then messages match in this order. */
static void find_cart(MPI_Comm comm, shim_comm_t *on)
{
    int dimensions = 0;
    PMPI_Cartdim_get(comm, &dimensions);
    near_make(&on->to, 2 * dimensions);
    near_make(&on->from, 2 * dimensions);
    for (int d = 0; d < dimensions; d++) {
        int below = MPI_PROC_NULL;
        int above = MPI_PROC_NULL;
        PMPI_Cart_shift(comm, d, 1, &below, &above);
        near_add(&on->to, below, 2 * d);
        near_add(&on->to, above, 2 * d + 1);
        near_add(&on->from, above, 2 * d + 1);
        near_add(&on->from, below, 2 * d);
    }
}
static void add_all(shim_near_t *near, const int *ranks, int n)
{
    near_make(near, n);
    for (int i = 0; i < n; i++)
        near_add(near, ranks[i], i);
}
static void find_graph(MPI_Comm comm, shim_comm_t *on, bool distributed)
{
    int in = 0;
    int out = 0;
    int weighted = 0;
    if (distributed) {
        PMPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
    } else {
        PMPI_Graph_neighbors_count(comm, on->rank, &out);
        in = out;
    }
    int *ranks = calloc(2 * ((size_t)in + (size_t)out) + 1, sizeof(*ranks));
    if (ranks == NULL)
        shim_no_memory("a list of neighbours");
    int *weights = ranks + in + out;
    if (distributed) {
        PMPI_Dist_graph_neighbors(comm, in, ranks, weights, out, ranks + in, weights + in);
    } else {
        PMPI_Graph_neighbors(comm, on->rank, in, ranks);
        PMPI_Graph_neighbors(comm, on->rank, out, ranks + in);
    }
    add_all(&on->to, ranks + in, out);
    add_all(&on->from, ranks, in);
    free(ranks);
}

static shim_op_t *take(shim_op_t *own, shim_call_t id, MPI_Comm comm, MPI_Request *request)
{
    shim_op_t *o = shim_take(own, id, 0, 0, MPI_DATATYPE_NULL, comm, request);
    int topology = MPI_UNDEFINED;
    if (o == NULL)
        return NULL;
    o->ordered = false;
    o->sends = o->recvs = true;
    shim_enter(o->on);
    if (o->on->to.ranks == NULL) {
        PMPI_Topo_test(comm, &topology);
        if (topology == MPI_CART)
            find_cart(comm, o->on);
        else if (topology == MPI_GRAPH || topology == MPI_DIST_GRAPH)
            find_graph(comm, o->on, topology == MPI_DIST_GRAPH);
    }
    bool known = o->on->to.ranks != NULL;
    shim_exit(o->on);
    if (!known) {
        shim_drop(o, WHY_ARGUMENT);
        return NULL;
    }
    return o;
}
static shim_side_t near_blocks(const void *user, const shim_near_t *near, const int *counts, int count,
                               const int *displs, MPI_Datatype type)
{
    shim_side_t s = shim_blocks(user, near->n, counts, count, displs, type);
    s.index = near->index;
    return s;
}
/* same: all neighbours get the one block of `send`. */
static int exchange(shim_op_t *o, bool same, MPI_Request *request)
{
    const shim_near_t *to = &o->on->to;
    const shim_near_t *from = &o->on->from;
    size_t *bytes = o->send.bytes;
    size_t *offsets = o->send.offsets;
    size_t *made = NULL;
    if (same && o->status == GYRE_OK) {
        made = bytes = calloc(2 * (size_t)to->n + 1, sizeof(*made));
        if (made == NULL)
            shim_no_memory("a list of neighbours");
        offsets = made + to->n;
        for (int i = 0; i < to->n; i++)
            bytes[i] = o->send.total;
    }
    START(o, GYRE(ineighbor_exchange)(o->send.data, bytes, offsets, to->n, to->ranks, o->recv.data,
                                      o->recv.bytes, o->recv.offsets, from->n, from->ranks, GYRE_UINT8,
                                      o->on->gyre, &o->request));
    free(made);
    return shim_finish(o, request);
}

static int neighbor_allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv,
                              int recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, recv_count, recv_type, comm
    shim_op_t own;
    shim_op_t *o = take(&own, CALL_Neighbor_allgather, comm, request);
    if (o == NULL)
        return PASS(Neighbor_allgather, neighbor_allgather, ARGUMENTS(recv));
    o->send = shim_flat(send, send_count, send_type);
    o->recv = near_blocks(recv, &o->on->from, NULL, recv_count, NULL, recv_type);
    if (!shim_open(o, 0, 0))
        return PASS(Neighbor_allgather, neighbor_allgather, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ineighbor_allgather)(ARGUMENTS(shadow), &o->other));
    return exchange(o, true, request);
#undef ARGUMENTS
}
static int neighbor_allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv,
                               const int *counts, const int *displs, MPI_Datatype recv_type, MPI_Comm comm,
                               MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, counts, displs, recv_type, comm
    shim_op_t own;
    shim_op_t *o = take(&own, CALL_Neighbor_allgatherv, comm, request);
    if (o == NULL)
        return PASS(Neighbor_allgatherv, neighbor_allgatherv, ARGUMENTS(recv));
    o->send = shim_flat(send, send_count, send_type);
    o->recv = near_blocks(recv, &o->on->from, counts, 0, displs, recv_type);
    if (!shim_open(o, 0, 0))
        return PASS(Neighbor_allgatherv, neighbor_allgatherv, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ineighbor_allgatherv)(ARGUMENTS(shadow), &o->other));
    return exchange(o, true, request);
#undef ARGUMENTS
}
static int neighbor_alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv,
                             int recv_count, MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
#define ARGUMENTS(recv) send, send_count, send_type, recv, recv_count, recv_type, comm
    shim_op_t own;
    shim_op_t *o = take(&own, CALL_Neighbor_alltoall, comm, request);
    if (o == NULL)
        return PASS(Neighbor_alltoall, neighbor_alltoall, ARGUMENTS(recv));
    o->send = near_blocks(send, &o->on->to, NULL, send_count, NULL, send_type);
    o->recv = near_blocks(recv, &o->on->from, NULL, recv_count, NULL, recv_type);
    if (!shim_open(o, 0, 0))
        return PASS(Neighbor_alltoall, neighbor_alltoall, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ineighbor_alltoall)(ARGUMENTS(shadow), &o->other));
    return exchange(o, false, request);
#undef ARGUMENTS
}
static int neighbor_alltoallv(const void *send, const int *send_counts, const int *send_displs,
                              MPI_Datatype send_type, void *recv, const int *recv_counts,
                              const int *recv_displs, MPI_Datatype recv_type, MPI_Comm comm,
                              MPI_Request *request)
{
#define ARGUMENTS(recv) \
    send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm
    shim_op_t own;
    shim_op_t *o = take(&own, CALL_Neighbor_alltoallv, comm, request);
    if (o == NULL)
        return PASS(Neighbor_alltoallv, neighbor_alltoallv, ARGUMENTS(recv));
    o->send = near_blocks(send, &o->on->to, send_counts, 0, send_displs, send_type);
    o->recv = near_blocks(recv, &o->on->from, recv_counts, 0, recv_displs, recv_type);
    if (!shim_open(o, 0, 0))
        return PASS(Neighbor_alltoallv, neighbor_alltoallv, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ineighbor_alltoallv)(ARGUMENTS(shadow), &o->other));
    return exchange(o, false, request);
#undef ARGUMENTS
}
static int neighbor_alltoallw(const void *send, const int *send_counts, const MPI_Aint *send_displs,
                              const MPI_Datatype *send_types, void *recv, const int *recv_counts,
                              const MPI_Aint *recv_displs, const MPI_Datatype *recv_types, MPI_Comm comm,
                              MPI_Request *request)
{
#define ARGUMENTS(recv) \
    send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs, recv_types, comm
    shim_op_t own;
    shim_op_t *o = take(&own, CALL_Neighbor_alltoallw, comm, request);
    if (o == NULL)
        return PASS(Neighbor_alltoallw, neighbor_alltoallw, ARGUMENTS(recv));
    o->send = near_blocks(send, &o->on->to, send_counts, 0, NULL, MPI_DATATYPE_NULL);
    o->send.types = send_types;
    o->send.places = send_displs;
    o->recv = near_blocks(recv, &o->on->from, recv_counts, 0, NULL, MPI_DATATYPE_NULL);
    o->recv.types = recv_types;
    o->recv.places = recv_displs;
    if (!shim_open(o, 0, 0))
        return PASS(Neighbor_alltoallw, neighbor_alltoallw, ARGUMENTS(recv));
    CHECK_MOVED(o, REAL(Ineighbor_alltoallw)(ARGUMENTS(shadow), &o->other));
    return exchange(o, false, request);
#undef ARGUMENTS
}

/* The program's calls. */
FORMS(Neighbor_allgather, neighbor_allgather, (SEND, RECV, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_count, recv_type, comm))
FORMS(Neighbor_allgatherv, neighbor_allgatherv, (SEND, RECVS, MPI_Datatype recv_type, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_counts, recv_displs, recv_type, comm))
FORMS(Neighbor_alltoall, neighbor_alltoall, (SEND, RECV, MPI_Comm comm),
      (send, send_count, send_type, recv, recv_count, recv_type, comm))
FORMS(Neighbor_alltoallv, neighbor_alltoallv,
      (SENDS, MPI_Datatype send_type, RECVS, MPI_Datatype recv_type, MPI_Comm comm),
      (send, send_counts, send_displs, send_type, recv, recv_counts, recv_displs, recv_type, comm))
FORMS(Neighbor_alltoallw, neighbor_alltoallw,
      (const void *send, const int *send_counts, const MPI_Aint *send_displs, const MPI_Datatype *send_types,
       void *recv, const int *recv_counts, const MPI_Aint *recv_displs, const MPI_Datatype *recv_types,
       MPI_Comm comm),
      (send, send_counts, send_displs, send_types, recv, recv_counts, recv_displs, recv_types, comm))
