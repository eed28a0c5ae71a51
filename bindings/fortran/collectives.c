/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/fortran/collectives.c: the collectives and messages of module gyre. */
#include "bindings/fortran/arrays.h"

/* The collectives and messages, each with its sibling that returns a request, and the collectives with that
 * which makes a plan:
 * PAIR(name, (its parameters), what it reduces by or -1, whether its arrays are refused, (what Gyre gets)).
 * A sibling's parameters and what Gyre gets have the request or plan at the end; `status` is last of all. */
#define BARE(...) __VA_ARGS__
#define CALL(name, params, reduces, refuses, args)              \
    GYRE_API void gyre_f_##name(params, int *status)            \
    {                                                           \
        fortran_call_t c = fortran_begin(#name, comm, reduces); \
        if (c.refused || (refuses))                             \
            fortran_refuse(&c, status);                         \
        else                                                    \
            fortran_done(&c, gyre_##name(args), status);        \
    }
#define PAIR(name, params, reduces, refuses, args)       \
    CALL(name, BARE params, reduces, refuses, BARE args) \
    CALL(i##name, BARE(BARE params, gyre_request_t **request), reduces, refuses, BARE(BARE args, request))

#define THREE(name, params, reduces, refuses, args) \
    PAIR(name, params, reduces, refuses, args)      \
    CALL(plan_##name, BARE(BARE params, gyre_plan_t **plan), reduces, refuses, BARE(BARE args, plan))

THREE(all_reduce,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, fortran_same(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(reduce_scatter,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, fortran_narrow(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(reduce_scatterv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts, const gyre_redop_t *op,
       gyre_comm_t *const *comm),
      op->kind, fortran_narrowv(&c, send, recv, counts), (c.send, c.recv, c.counts[0], c.type, *op, *comm))
THREE(all_gather, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, gyre_comm_t *const *comm), -1,
      fortran_wide(&c, send, recv, 1), (c.send, c.recv, c.count, c.type, *comm))
THREE(all_gatherv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts, gyre_comm_t *const *comm,
       const CFI_cdesc_t *displs),
      -1, fortran_widev(&c, send, recv, counts, displs, 1),
      (c.send, c.recv, c.counts[0], c.counts[1], c.type, *comm))
THREE(broadcast, (const CFI_cdesc_t *buffer, const int *root, gyre_comm_t *const *comm), -1,
      fortran_one(&c, buffer), (c.recv, c.recv, c.count, c.type, *root, *comm))
THREE(reduce,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, const int *root,
       gyre_comm_t *const *comm),
      op->kind, fortran_rooted(&c, send, recv, *root), (c.send, c.recv, c.count, c.type, *op, *root, *comm))
THREE(scan,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, fortran_same(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(exscan,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const gyre_redop_t *op, gyre_comm_t *const *comm),
      op->kind, fortran_same(&c, send, recv), (c.send, c.recv, c.count, c.type, *op, *comm))
THREE(gather, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const int *root, gyre_comm_t *const *comm),
      -1, fortran_wide(&c, send, recv, gyre_comm_rank(*comm) == *root),
      (c.send, c.recv, c.count, c.type, *root, *comm))
THREE(gatherv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const CFI_cdesc_t *counts, const int *root,
       gyre_comm_t *const *comm, const CFI_cdesc_t *displs),
      -1, fortran_widev(&c, send, recv, counts, displs, gyre_comm_rank(*comm) == *root),
      (c.send, c.count, c.recv, c.counts[0], c.counts[1], c.type, *root, *comm))
THREE(scatter, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, const int *root, gyre_comm_t *const *comm),
      -1, fortran_deal(&c, send, recv, gyre_comm_rank(*comm) == *root),
      (c.send, c.recv, c.count, c.type, *root, *comm))
THREE(scatterv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *counts, const CFI_cdesc_t *recv, const int *root,
       gyre_comm_t *const *comm, const CFI_cdesc_t *displs),
      -1, fortran_dealv(&c, send, counts, displs, recv, gyre_comm_rank(*comm) == *root),
      (c.send, c.counts[0], c.counts[1], c.recv, c.count, c.type, *root, *comm))
THREE(all_to_all, (const CFI_cdesc_t *send, const CFI_cdesc_t *recv, gyre_comm_t *const *comm), -1,
      fortran_square(&c, send, recv), (c.send, c.recv, c.count, c.type, *comm))
THREE(all_to_allv,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts, const CFI_cdesc_t *recv,
       const CFI_cdesc_t *recv_counts, gyre_comm_t *const *comm, const CFI_cdesc_t *send_displs,
       const CFI_cdesc_t *recv_displs),
      -1, fortran_both(&c, send, send_counts, send_displs, recv, recv_counts, recv_displs, c.n, c.n),
      (c.send, c.counts[0], c.counts[1], c.recv, c.counts[2], c.counts[3], c.type, *comm))
THREE(barrier, (gyre_comm_t *const *comm), -1, 0, (*comm))
PAIR(send, (const CFI_cdesc_t *buffer, const int *peer, gyre_comm_t *const *comm), -1,
     fortran_one(&c, buffer), (c.recv, c.count, c.type, *peer, *comm))
PAIR(recv, (const CFI_cdesc_t *buffer, const int *peer, gyre_comm_t *const *comm), -1,
     fortran_one(&c, buffer), (c.recv, c.count, c.type, *peer, *comm))
THREE(neighbor_exchange,
      (const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts, const CFI_cdesc_t *to,
       const CFI_cdesc_t *recv, const CFI_cdesc_t *recv_counts, const CFI_cdesc_t *from,
       gyre_comm_t *const *comm),
      -1, fortran_neighbors(&c, send, send_counts, to, recv, recv_counts, from),
      (c.send, c.counts[0], NULL, c.nto, c.to, c.recv, c.counts[2], NULL, c.nfrom, c.from, c.type, *comm))
