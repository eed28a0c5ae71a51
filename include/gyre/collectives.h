/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/collectives.h: the collective operations, blocking, non-blocking and grouped.
 *
 * n is the number of ranks of `comm`, `rank` the number of the calling rank. Counts and displacements are
 * in elements of `type`. Buffers may lie at any address, in host memory or on the communicator's CUDA
 * device (gyre/cuda.h). With a zero count, pointers may be NULL. Buffers must not overlap except in the
 * in-place form that each call names. Arrays of counts and displacements may be changed or freed after the
 * call returns.
 *
 * Each call `gyre_x(...)` blocks. `gyre_ix(..., &request)` starts the same operation and returns at once;
 * the buffers belong to Gyre until gyre_wait, gyre_test or one of their siblings reports that the operation
 * has finished. Calls between gyre_group_start and gyre_group_end are collected and started together; the
 * blocking ones have finished when gyre_group_end returns.
 *
 * Errors of two kinds:
 *  - INVALID, TYPE, OVERFLOW, OVERLAP, UNSUPPORTED, NO_MEMORY: the call is refused before anything is sent,
 *    and `comm` stays usable. The other ranks still wait for the matching call of this rank.
 *  - MISMATCH, PEER_DEAD, TIMEOUT, ABORTED, TRANSPORT, SYSTEM: the communicator is dead, and each later call
 *    on it returns the same status. The buffers belong to the caller again; the contents of `recv` are
 *    undefined. Over shared memory and verbs, no rank and no adapter writes to the buffers after the call
 *    has returned the error, and what is still read from them is not used. Over UCX this holds after the
 *    communicator was destroyed or shrunk (docs/transports.md).
 *
 * Where MISMATCH is found. It is found where a rank reads what another one sent. Where no rank reads (two
 * roots of a broadcast; a count of gatherv, scatterv or all_to_allv that is 0 at one end, since empty blocks
 * are not sent), a later call finds it. A rank that waits for such a block may get TIMEOUT, and a short block
 * may stay unread.
 *
 * The bits of a reduction depend on the inputs and n only (docs/contract.md). */
#ifndef GYRE_COLLECTIVES_H
#define GYRE_COLLECTIVES_H

#include <gyre/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* send, recv: [count]. recv[i] = reduction over the ranks of send[i]. In place: send == recv. */
GYRE_API gyre_status_t gyre_all_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                       gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request);

/* send: [n * count]; recv: [count] = block `rank` of the reduction. In place: recv == send + rank * count. */
GYRE_API gyre_status_t gyre_reduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                           gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ireduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                            gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request);
/* counts: [n], the same on all ranks. Block r of send has counts[r] elements and lies at offset[r] =
 * counts[0] + ... + counts[r - 1]. recv: [counts[rank]]. In place: recv == send + offset[rank]. */
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
/* counts, displs: [n], the same on all ranks. send: [counts[rank]]. Block r lands at recv + displs[r]; displs
 * NULL: the blocks lie back to back. In place: send == recv + displs[rank]. */
GYRE_API gyre_status_t gyre_all_gatherv(const void *send, void *recv, const size_t *counts,
                                        const size_t *displs, gyre_type_t type, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_gatherv(const void *send, void *recv, const size_t *counts,
                                         const size_t *displs, gyre_type_t type, gyre_comm_t *comm,
                                         gyre_request_t **request);

/* send (root only; NULL elsewhere is allowed), recv: [count]. recv of every rank = send of `root`.
 * In place: send == recv. */
GYRE_API gyre_status_t gyre_broadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                      gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ibroadcast(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                       gyre_comm_t *comm, gyre_request_t **request);

/* send, recv (root only; NULL elsewhere is allowed): [count]. recv[i] at root = reduction over the ranks of
 * send[i]. In place at root: send == recv. */
GYRE_API gyre_status_t gyre_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_redop_t op, int root, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ireduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                    gyre_redop_t op, int root, gyre_comm_t *comm, gyre_request_t **request);

/* Prefixes. send, recv: [count]. scan: recv[i] of rank r = reduction over ranks 0..r of send[i]. exscan: over
 * ranks 0..r - 1; rank 0 receives nothing: its recv is not touched, and may be NULL. In place: send == recv.
 * The bits are those of an all_reduce over just these ranks. Communicators without leaves (gyre_comm_set),
 * and device memory only where it is staged (docs/gpu.md): else UNSUPPORTED. INVALID: op is an average. */
GYRE_API gyre_status_t gyre_scan(const void *send, void *recv, size_t count, gyre_type_t type,
                                 gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iscan(const void *send, void *recv, size_t count, gyre_type_t type,
                                  gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request);
GYRE_API gyre_status_t gyre_exscan(const void *send, void *recv, size_t count, gyre_type_t type,
                                   gyre_redop_t op, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iexscan(const void *send, void *recv, size_t count, gyre_type_t type,
                                    gyre_redop_t op, gyre_comm_t *comm, gyre_request_t **request);

/* send: [count]; recv (root only): [n * count]. In place at root: send == recv + root * count. */
GYRE_API gyre_status_t gyre_gather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                   gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_igather(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                    gyre_comm_t *comm, gyre_request_t **request);
/* send: [send_count]. counts, displs (root only): [n]; counts[r] is the send_count of rank r, whose block
 * lands at recv + displs[r]; displs NULL: the blocks lie back to back. In place at root: send == recv +
 * displs[root]. */
GYRE_API gyre_status_t gyre_gatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                    const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_igatherv(const void *send, size_t send_count, void *recv, const size_t *counts,
                                     const size_t *displs, gyre_type_t type, int root, gyre_comm_t *comm,
                                     gyre_request_t **request);

/* send (root only): [n * count]; recv: [count]. In place at root: recv == send + root * count. */
GYRE_API gyre_status_t gyre_scatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                    gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iscatter(const void *send, void *recv, size_t count, gyre_type_t type, int root,
                                     gyre_comm_t *comm, gyre_request_t **request);
/* recv: [recv_count]. counts, displs (root only): [n]; counts[r] is the recv_count of rank r, whose block
 * starts at send + displs[r]; displs NULL: the blocks lie back to back. In place at root: recv == send +
 * displs[root]. */
GYRE_API gyre_status_t gyre_scatterv(const void *send, const size_t *counts, const size_t *displs, void *recv,
                                     size_t recv_count, gyre_type_t type, int root, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iscatterv(const void *send, const size_t *counts, const size_t *displs,
                                      void *recv, size_t recv_count, gyre_type_t type, int root,
                                      gyre_comm_t *comm, gyre_request_t **request);

/* send, recv: [n * count]. Block p of send goes to block `rank` of the recv of rank p. In place: send ==
 * recv. */
GYRE_API gyre_status_t gyre_all_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                       gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_comm_t *comm, gyre_request_t **request);
/* The four arrays: [n]; displs NULL: the blocks lie back to back. send_counts[p] of rank r equals
 * recv_counts[r] of rank p. There is no in-place form. */
GYRE_API gyre_status_t gyre_all_to_allv(const void *send, const size_t *send_counts,
                                        const size_t *send_displs, void *recv, const size_t *recv_counts,
                                        const size_t *recv_displs, gyre_type_t type, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_iall_to_allv(const void *send, const size_t *send_counts,
                                         const size_t *send_displs, void *recv, const size_t *recv_counts,
                                         const size_t *recv_displs, gyre_type_t type, gyre_comm_t *comm,
                                         gyre_request_t **request);

/* Returns when all ranks have called it. */
GYRE_API gyre_status_t gyre_barrier(gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ibarrier(gyre_comm_t *comm, gyre_request_t **request);

/* Point to point; buffer: [count]. Messages between two ranks match in the order of the calls. Both sides
 * pass the same count and type: else MISMATCH. peer == rank is allowed in non-blocking or grouped calls.
 * Messages and collectives do not wait for each other. A blocking send may wait for its receive: ranks
 * that send to each other use gyre_isend or a group. */
GYRE_API gyre_status_t gyre_send(const void *buffer, size_t count, gyre_type_t type, int peer,
                                 gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_isend(const void *buffer, size_t count, gyre_type_t type, int peer,
                                  gyre_comm_t *comm, gyre_request_t **request);
GYRE_API gyre_status_t gyre_recv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_irecv(void *buffer, size_t count, gyre_type_t type, int peer, gyre_comm_t *comm,
                                  gyre_request_t **request);

/* Exchange with neighbours, which each rank lists for itself. Block i of send has send_counts[i] elements at
 * send + send_displs[i] and goes to rank to[i]: arrays of [nto]. Block i of recv has recv_counts[i] elements,
 * comes from rank from[i] and lands at recv + recv_displs[i]: arrays of [nfrom]. displs NULL: the blocks lie
 * back to back. It is a group of a gyre_send for each block of send and a gyre_recv for each block of recv,
 * in the order of the lists. So it is not collective, and is matched like them, together with other messages
 * between the same two ranks: the first block to a rank with that rank's first block from here, and so on.
 * Matched blocks have the same count and type: else MISMATCH. A rank may be in a list several times, and may
 * be the calling one. A block of count 0 is a message, too. send and recv may be one array, as long as no
 * received block overlaps another block, which is not checked. */
GYRE_API gyre_status_t gyre_neighbor_exchange(const void *send, const size_t *send_counts,
                                              const size_t *send_displs, int nto, const int *to, void *recv,
                                              const size_t *recv_counts, const size_t *recv_displs, int nfrom,
                                              const int *from, gyre_type_t type, gyre_comm_t *comm);
GYRE_API gyre_status_t gyre_ineighbor_exchange(const void *send, const size_t *send_counts,
                                               const size_t *send_displs, int nto, const int *to, void *recv,
                                               const size_t *recv_counts, const size_t *recv_displs,
                                               int nfrom, const int *from, gyre_type_t type,
                                               gyre_comm_t *comm, gyre_request_t **request);

/* Blocks until *request has finished, frees it and sets *request = NULL. Returns the status of the
 * operation; OK if *request is NULL. INVALID, and the request stays: it is part of a group that has not
 * ended. INVALID also for a copy of a request that was freed, until the memory serves another one of its
 * communicator. */
GYRE_API gyre_status_t gyre_wait(gyre_request_t **request);
/* requests: [count]. gyre_wait for each of them. Waits for all, also after an error; returns the first
 * error. */
GYRE_API gyre_status_t gyre_wait_all(size_t count, gyre_request_t **requests);
/* Does not block. IN_PROGRESS: not finished, *request stays. Else the request was freed and *request =
 * NULL; the value is the status of the operation. OK if *request is NULL. */
GYRE_API gyre_status_t gyre_test(gyre_request_t **request);
/* The same for a list of requests: [count], of any communicators, each in one place only. An entry that is
 * NULL has finished and is ignored.
 *  - test_all: does not block. IN_PROGRESS: not all have finished, and none was freed. Else all were freed;
 *    the value is the first error, or OK.
 *  - test_any: does not block. Frees one that has finished, the first in the list. *index: its place, and
 *    the value is its status. *index -1 and IN_PROGRESS: none has finished. *index -1 and OK: all are NULL.
 *  - wait_any: blocks until one has finished, and then does the same. It sleeps as gyre_wait does.
 * *index -1 and INVALID: an argument is NULL; from wait_any also: an entry is part of a group that has not
 * ended. All requests stay. */
GYRE_API gyre_status_t gyre_test_all(size_t count, gyre_request_t **requests);
GYRE_API gyre_status_t gyre_test_any(size_t count, gyre_request_t **requests, ptrdiff_t *index);
GYRE_API gyre_status_t gyre_wait_any(size_t count, gyre_request_t **requests, ptrdiff_t *index);
/* Advances the started operations of `comm`, and of other communicators with non-blocking operations, without
 * blocking. Returns the error that killed `comm`, or OK. */
GYRE_API gyre_status_t gyre_progress(gyre_comm_t *comm);

/* A group belongs to the calling thread; groups nest, and the outermost gyre_group_end starts the calls.
 * If a call of the group was refused, that call returns the error, gyre_group_end returns it again, and no
 * call of the group is started. INVALID: gyre_group_end without gyre_group_start. */
GYRE_API gyre_status_t gyre_group_start(void);
GYRE_API gyre_status_t gyre_group_end(void);

#ifdef __cplusplus
}
#endif
#endif
