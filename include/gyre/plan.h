/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/plan.h: persistent operations: a collective whose arguments are checked once, to be started often.
 *
 *     gyre_plan_t *plan;
 *     gyre_plan_all_reduce(send, recv, count, type, op, comm, &plan);
 *     while (...) {
 *         ... write send ...
 *         gyre_start(plan, NULL);  // as gyre_all_reduce(send, recv, count, type, op, comm)
 *     }
 *     gyre_plan_free(&plan);
 *
 * gyre_plan_x takes the arguments of gyre_x (gyre/collectives.h), checks them and keeps them, and prepares
 * the operation. It is not collective: nothing is sent. Arrays of counts and displacements may be changed or
 * freed after it returns. The buffers must stay where they are until gyre_plan_free, but belong to the
 * program while no start of the plan is under way. A plan costs memory (gyre_comm_stats: private_bytes),
 * which is not given back before gyre_plan_free.
 *
 * A start is a call of the operation like any other: all ranks make it in the same order relative to their
 * other calls on `comm`. The other ranks may call gyre_x itself there. The bits of the result are those of
 * gyre_x.
 *
 * A plan keeps the options that `comm` has when it is made (gyre_comm_set), but for the deadline, which is
 * that of the start. All ranks must have set the same then. gyre_plan_set gives it others.
 *
 * Errors of gyre_plan_x: those with which gyre_x is refused; *plan is not set. */
#ifndef GYRE_PLAN_H
#define GYRE_PLAN_H

#include <gyre/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A persistent operation. Made by gyre_plan_x(..., &plan); freed by gyre_plan_free. */
typedef struct gyre_plan gyre_plan_t;

GYRE_API gyre_status_t gyre_plan_all_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                            gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_reduce_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                                gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_reduce_scatterv(const void *send, void *recv, const size_t *counts,
                                                 gyre_type_t type, gyre_redop_t op, gyre_comm_t *comm,
                                                 gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_all_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                                            gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_all_gatherv(const void *send, void *recv, const size_t *counts,
                                             const size_t *displs, gyre_type_t type, gyre_comm_t *comm,
                                             gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_broadcast(const void *send, void *recv, size_t count, gyre_type_t type,
                                           int root, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_reduce(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_redop_t op, int root, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_scan(const void *send, void *recv, size_t count, gyre_type_t type,
                                      gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_exscan(const void *send, void *recv, size_t count, gyre_type_t type,
                                        gyre_redop_t op, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_gather(const void *send, void *recv, size_t count, gyre_type_t type,
                                        int root, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_gatherv(const void *send, size_t send_count, void *recv,
                                         const size_t *counts, const size_t *displs, gyre_type_t type,
                                         int root, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_scatter(const void *send, void *recv, size_t count, gyre_type_t type,
                                         int root, gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_scatterv(const void *send, const size_t *counts, const size_t *displs,
                                          void *recv, size_t recv_count, gyre_type_t type, int root,
                                          gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_all_to_all(const void *send, void *recv, size_t count, gyre_type_t type,
                                            gyre_comm_t *comm, gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_all_to_allv(const void *send, const size_t *send_counts,
                                             const size_t *send_displs, void *recv, const size_t *recv_counts,
                                             const size_t *recv_displs, gyre_type_t type, gyre_comm_t *comm,
                                             gyre_plan_t **plan);
GYRE_API gyre_status_t gyre_plan_barrier(gyre_comm_t *comm, gyre_plan_t **plan);
/* The lists to and from are copied as the counts are. A start is a group of messages: it is matched by those
 * of the other ranks, and not collective. */
GYRE_API gyre_status_t gyre_plan_neighbor_exchange(const void *send, const size_t *send_counts,
                                                   const size_t *send_displs, int nto, const int *to,
                                                   void *recv, const size_t *recv_counts,
                                                   const size_t *recv_displs, int nfrom, const int *from,
                                                   gyre_type_t type, gyre_comm_t *comm, gyre_plan_t **plan);

/* Starts the operation. request NULL: blocks until it has finished. Else it returns at once, and *request is
 * ended by gyre_wait, gyre_test or their siblings. Within a group the operation starts at gyre_group_end.
 * Errors: those of gyre_x. INVALID, and nothing happens: the plan is under way, that is, a request of it was
 * not ended, or it stands in a group that has not ended; or `comm` has ended. */
GYRE_API gyre_status_t gyre_start(gyre_plan_t *plan, gyre_request_t **request);
/* Sets order, algorithm, chunk and tag of this plan, as gyre_comm_set does for a communicator; options NULL:
 * those that its communicator has now. leaves and timeout_s stay the communicator's: INVALID if they are not
 * 1 and 0. It is not collective: nothing is sent. All ranks must set the same, but for the tag, before the
 * next start, where ranks that differ get MISMATCH, as for arguments.
 *
 * A plan on device memory, or of gyre_plan_neighbor_exchange, has a tag only: options with anything else, or
 * NULL, are UNSUPPORTED.
 *
 * After an error the plan is as before. INVALID: a field is out of range, the plan is under way, or `comm`
 * has ended. UNSUPPORTED: see above; the algorithm does not serve the call, there is no exact result
 * (gyre_comm_set), or it is a reduction and `comm` has leaves or had them when the plan was made. NO_MEMORY.
 */
GYRE_API gyre_status_t gyre_plan_set(gyre_plan_t *plan, const gyre_options_t *options);
/* Frees *plan and sets it to NULL. It may be NULL, and its communicator may have failed or ended. INVALID,
 * and nothing is freed: the plan is under way. */
GYRE_API gyre_status_t gyre_plan_free(gyre_plan_t **plan);

#ifdef __cplusplus
}
#endif
#endif
