/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/quiesce.c: takes the program's buffers back from adapters when a group has failed.
 *
 * Two kinds of work access the buffers: this rank's reads, which write to the buffers of its receives, and
 * the peers' reads, which this rank's adapter serves from the buffers of its sends. Both use queue pairs that
 * belong to this group alone, so ending these affects nothing else.
 *
 * 1. ERROR: the queue pair begins nothing new, drops what comes in, and flushes what was posted. Once each
 * read has completed or was flushed, no read writes any more. 2. RESET: ends what the adapter was still
 * serving. The specification demands this wait (IBTA 10.3.1: nothing is processed in RESET), and drivers do
 * it.
 *
 * Both are local; nothing waits for a peer, which may be dead. */
#include "comm/verbs/verbs.h"

#include <sched.h>
#include <string.h>

#include "base/log.h"

#define LET_GO_NS ((base_time_t)1000000000) /* adapters take microseconds, Soft-RoCE milliseconds */

static int turn(verbs_qp_t *qp, enum ibv_qp_state state)
{
    struct ibv_qp_attr attr = {.qp_state = state};

    return ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);
}

/* The number of this rank's reads that may still write. */
static int open_reads(const comm_verbs_group_t *vg, size_t places)
{
    int open = 0;

    for (size_t i = 0; i < places; i++) {
        const verbs_link_t *link = verbs_link_at(vg, i);
        open += link ? link->pull.open : 0;
    }
    return open;
}

/* The last resort, for a queue pair that refuses to leave its state: without a queue pair there is no
 * work. */
static void destroy(verbs_link_t *link, verbs_qp_t *qp, int err)
{
    const verbs_rail_t *rail = link->vg->rail[qp->rail];
    int failed = ibv_destroy_qp(qp->qp);

    if (failed == 0)
        qp->qp = NULL;
    else
        log_error(
            "verbs: %s does not give up queue pair 0x%06x with rank %d (reset: %s; destroy: %s): it may "
            "still touch the buffers of the operation that failed, so do not use them again",
            rail->name, qp->qp->qp_num, link->base.peer, strerror(err), strerror(failed));
}

void verbs_let_go(comm_group_t *group)
{
    comm_verbs_group_t *vg = verbs_of(group);
    size_t places = (size_t)group->n * COMM_LANES;
    base_time_t begun = base_now(), until = begun + LET_GO_NS;

    if (vg->let_go)
        return;
    vg->let_go = 1;
    verbs_group_fail(vg, "its communicator has failed"); /* no link posts anything from here on */
    for (size_t i = 0; i < places; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        for (int s = 0; link && s < VERBS_STRIPES; s++) {
            if (link->qps[s].qp)
                turn(&link->qps[s], IBV_QPS_ERR); /* on failure RESET reports the reason */
        }
    }
    while (open_reads(vg, places) > 0 && base_now() < until) {
        if (verbs_poll(vg) == 0)
            sched_yield();
    }
    if (open_reads(vg, places) > 0)
        log_info("verbs: %d reads were not flushed in time", open_reads(vg, places));
    for (size_t i = 0; i < places; i++) {
        verbs_link_t *link = verbs_link_at(vg, i);
        for (int s = 0; link && s < VERBS_STRIPES; s++) {
            int err = link->qps[s].qp ? turn(&link->qps[s], IBV_QPS_RESET) : 0;
            if (err != 0)
                destroy(link, &link->qps[s], err);
        }
    }
    log_debug("verbs: let go of all buffers in %.1f ms", (double)(base_now() - begun) / 1e6);
}
