/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/api/start.h: what calls.c asks of start.c. Errors name the call. */
#ifndef COLLECTIVES_API_START_H
#define COLLECTIVES_API_START_H

#include "collectives/gpu/gpu.h"
#include "collectives/run/call.h"

/* TYPE: no reduction, or not one of this type, which is one. */
gyre_status_t coll_check_redop_whole(const char *name, gyre_redop_t op, gyre_type_t type);
static inline gyre_status_t coll_check_redop(const char *name, gyre_redop_t op, gyre_type_t type)
{
    return !op.scaled && coll_kernel_has(op.kind, type) ? GYRE_OK : coll_check_redop_whole(name, op, type);
}
/* 1: this reduction has an exact result. */
int coll_has_exact(gyre_redop_kind_t kind, gyre_type_t type);
/* The call, whose reduction is set if it has one, is made in this order. UNSUPPORTED as above. */
gyre_status_t coll_call_order(coll_call_t *c, gyre_order_t order);
gyre_status_t coll_refuse_root(const char *name, int root, const gyre_comm_t *comm);
static inline gyre_status_t coll_check_root(const char *name, int root, const gyre_comm_t *comm)
{
    return (unsigned)root < (unsigned)comm->n ? GYRE_OK : coll_refuse_root(name, root, comm);
}

/* Sums counts[n] (and displs[n], or NULL: packed) into an extent in elements; -> 1, or 0 on overflow. */
int coll_counts_extent(const size_t *counts, const size_t *displs, int n, size_t *out);
/* The error for an extent that overflows. */
gyre_status_t coll_refuse_overflow(const char *name);
/* Where the block of `rank` begins, in elements; the sum of its counts does not overflow. */
size_t coll_packed_displ(const size_t *counts, const size_t *displs, int rank);

/* Checks the buffers of a call whose shape and extents are set, and starts it, or makes it persistent. */
gyre_status_t coll_call_start(coll_call_t *c);
/* 1: its buffers are on a device, or the communicator's ranks are. */
static inline int coll_call_on_device(const coll_call_t *c)
{
    return c->streamed || c->comm->team || coll_cuda_holds_any(c->recv, c->send);
}

#endif
