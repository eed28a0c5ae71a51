/* gyre/collectives.h: the collective operations, blocking, non-blocking and grouped.
 *
 * Counts are in elements of `type`. Buffers hold elements at their natural alignment or at any other; they
 * may be in any host memory. A zero count is allowed and then pointers may be NULL. Buffers must not overlap
 * except in the in-place form that each call names.
 *
 * Each call `gyre_x(...)` blocks. `gyre_ix(..., &request)` starts the same operation and returns at once; the
 * buffers belong to Gyre until gyre_wait or gyre_test says it is finished. Between gyre_group_start and
 * gyre_group_end calls are collected and started together; blocking ones are finished when gyre_group_end
 * returns.
 *
 * A call that fails in the middle of its work, and kills its communicator, gives its buffers back all the same. Over shared memory and verbs
 * nobody, no rank and no adapter, reads or writes them once the error is told; over UCX that is so once the communicator was
 * destroyed or shrunk (docs/transports.md). Their contents are undefined.
 *
 * Results follow one canonical order over the ranks and depend on inputs and n alone (docs/contract.md). */
#ifndef GYRE_COLLECTIVES_H
#define GYRE_COLLECTIVES_H

#include <gyre/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gyre_request gyre_request_t;

/* recv[i] = reduction over ranks of send[i]. In place: send == recv. */
GYRE_API gyre_status_t gyre_all_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                       gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request);

/* send: [n * count]; recv: [count] = block `rank` of the reduction. In place: recv == send + rank * count. */
GYRE_API gyre_status_t gyre_reduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                           gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ireduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                            gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request);
/* counts: [n], the same on all ranks. Block r lies at the sum of the counts before it.
 * In place: recv == send + that sum. */
GYRE_API gyre_status_t gyre_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                            gyre_type_t type, gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ireduce_scatterv(const void *send, void *recv, const size_t *counts,
                                             gyre_type_t type, gyre_redop_t op, gyre_comm_t *comm,
                                             gyre_request_t **request);

/* send: [count]; recv: [n * count]. In place: send == recv + rank * count. */
GYRE_API gyre_status_t gyre_all_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                                       gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_comm_t *comm, gyre_request_t **request);
/* counts, displs: [n], the same on all ranks; block r lands at recv + displs[r]; displs NULL: packed.
 * send: [counts[rank]]. In place: send == recv + displs[rank]. */
GYRE_API gyre_status_t gyre_all_gatherv(const void *send, void *recv, const size_t *counts,
                                        const size_t *displs, gyre_type_t type, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_gatherv(const void *send, void *recv, const size_t *counts,
                                         const size_t *displs, gyre_type_t type, gyre_comm_t *comm,
                                         gyre_request_t **request);

/* recv on every rank = send of `root`. send may be NULL except at root. In place: send == recv. */
GYRE_API gyre_status_t gyre_broadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                      gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ibroadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                       gyre_comm_t *comm, gyre_request_t **request);

/* recv (at root only; may be NULL elsewhere) = reduction. In place at root: send == recv. */
GYRE_API gyre_status_t gyre_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_redop_t op, int root, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ireduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                    gyre_redop_t op, int root, gyre_comm_t *comm, gyre_request_t **request);

/* recv (root only): [n * count]. In place at root: send == recv + root * count. */
GYRE_API gyre_status_t gyre_gather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                   gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_igather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                    gyre_comm_t *comm, gyre_request_t **request);
/* Each rank sends send_count; at root counts, displs: [n] (ignored elsewhere; displs NULL: packed). */
GYRE_API gyre_status_t gyre_gatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                    const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_igatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                     const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm,
                                     gyre_request_t **request);

/* send (root only): [n * count]. In place at root: recv == send + root * count. */
GYRE_API gyre_status_t gyre_scatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                    gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iscatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                     gyre_comm_t *comm, gyre_request_t **request);
/* At root counts, displs: [n] (ignored elsewhere; displs NULL: packed). Each rank receives recv_count. */
GYRE_API gyre_status_t gyre_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                     size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iscatterv(const void *send, const size_t *counts, const size_t *displs,
                                      void *recv, size_t recv_count, gyre_type_t type, int root,
                                      gyre_comm_t *comm, gyre_request_t **request);

/* Block p of send goes to block `rank` of p's recv. send, recv: [n * count]. In place: send == recv. */
GYRE_API gyre_status_t gyre_all_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                       gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_comm_t *comm, gyre_request_t **request);
/* All four arrays: [n]; displs NULL: packed. send_counts[p] here must equal p's recv_counts[this rank].
 * Out of place only. */
GYRE_API gyre_status_t gyre_all_to_allv(const void *send, const size_t *send_counts,
                                        const size_t *send_displs, void *recv, const size_t *recv_counts,
                                        const size_t *recv_displs, gyre_type_t type, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_to_allv(const void *send, const size_t *send_counts,
                                         const size_t *send_displs, void *recv, const size_t *recv_counts,
                                         const size_t *recv_displs, gyre_type_t type, gyre_comm_t *comm,
                                         gyre_request_t **request);

/* No rank leaves before all have entered. */
GYRE_API gyre_status_t gyre_barrier(gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ibarrier(gyre_comm_t *comm, gyre_request_t **request);

/* Point to point. Messages between two ranks match in the order of their calls; count and type must be equal
 * on both sides. peer == rank is allowed (non-blocking or grouped). Independent of the collectives' order. */
GYRE_API gyre_status_t gyre_send(const void *buffer, size_t count, gyre_type_t type, int peer,
                                 gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_isend(const void *buffer, size_t count, gyre_type_t type, int peer,
                                  gyre_comm_t *comm, gyre_request_t **request);
GYRE_API gyre_status_t gyre_recv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_irecv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                                  gyre_request_t **request);

/* Blocks until `*request` is finished, frees it and sets *request = NULL. */
GYRE_API gyre_status_t gyre_wait(gyre_request_t **request);
GYRE_API gyre_status_t gyre_wait_all(size_t count, gyre_request_t **requests);
/* GYRE_OK: finished, freed, *request = NULL. GYRE_IN_PROGRESS: not yet. */
GYRE_API gyre_status_t gyre_test(gyre_request_t **request);
/* Moves all started operations of `comm` a step without blocking. */
GYRE_API gyre_status_t gyre_progress(gyre_comm_t *comm);

/* Per thread; they nest. An error in a collected call is returned by the call and again by the end. */
GYRE_API gyre_status_t gyre_group_start(void);
GYRE_API gyre_status_t gyre_group_end(void);

#ifdef __cplusplus
}
#endif
#endif
