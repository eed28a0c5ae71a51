/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ucx-run/ranks/unfinished.c: SIGKILL waits for what ranks must finish: a checkpoint under way.
 *
 * A rank counts its unfinished writes in its slot of the flight recorder (comm_recorder_hold). The counts are
 * read when KILL is due, and nothing waits if there are none. */
#include "tools/ucx-run/run.h"

#define LOOK_SECONDS 0.1   /* from one look at the ranks to the next */
#define MOST_SECONDS 300.0 /* that KILL waits in all */
#define END_SECONDS  1.0   /* for ranks that have finished to say so and to end by themselves */

/* The first local rank that has unfinished writes, as its place in job->rank; -1: none. *more: how many
 * others. */
static int first_unfinished(const run_job_t *job, int *more)
{
    int first = -1;
    *more = 0;
    for (int i = 0; job->slots && i < job->ranks; i++) {
        if (!job->rank[i].alive || atomic_load_explicit(&job->slots[i].finishing, memory_order_acquire) == 0)
            continue;
        if (first < 0)
            first = i;
        else
            (*more)++;
    }
    return first;
}

int run_kill_waits(run_unfinished_t *u, const run_job_t *job, base_time_t *due)
{
    int more, i = first_unfinished(job, &more);
    if (u->until && base_now() >= u->until)
        return 0;
    if (i < 0) {
        if (u->until && !u->end)
            u->end = base_deadline(END_SECONDS);
        *due = u->end;
        return base_now() < u->end;
    }
    u->end = 0;
    *due = base_deadline(LOOK_SECONDS);
    if (u->until)
        return 1;
    u->until = base_deadline(MOST_SECONDS);
    char others[48] = "";
    if (more > 0)
        snprintf(others, sizeof others, " and %d other%s", more, more == 1 ? "" : "s");
    run_say("ucx-run: rank %d%s on %s must finish what %s (a checkpoint): SIGKILL waits for that, %.0f s at "
            "most; "
            "INT twice does not wait",
            job->rank[i].number, others, run_hostname(), more ? "they write" : "it writes", MOST_SECONDS);
    return 1;
}
