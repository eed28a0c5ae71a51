/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/agree/status.c: one all-reduce of the least (rank, status) that failed. */
#include "pipeline/agree/agree.h"

#include <stdio.h>

#include "base/error.h"
#include "base/log.h"

gyre_status_t pipe_agree(gyre_comm_t *comm, gyre_status_t mine, int *agreed)
{
    char text[512];
    const int rank = gyre_comm_rank(comm);
    snprintf(text, sizeof text, "%s", gyre_last_error()); /* the call below may change it */
    int64_t word = mine == GYRE_OK ? INT64_MAX : (int64_t)rank << 16 | (int64_t)mine;
    gyre_status_t status = gyre_all_reduce(&word, &word, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), comm);
    if (status != GYRE_OK && mine != GYRE_OK)
        return gyre_fail_quiet(mine, "%s", text); /* what failed here came first */
    if (status != GYRE_OK || word == INT64_MAX)
        return status;
    const int first = (int)(word >> 16);
    if (rank > 0 && first == rank)
        log_error("%s", text);
    if (agreed)
        *agreed = 1;
    return pipe_agree_failed(comm, first, (gyre_status_t)(word & 0xffff), mine, text);
}

gyre_status_t pipe_agree_failed(gyre_comm_t *comm, int first, gyre_status_t what, gyre_status_t mine,
                                const char *text)
{
    if (first == gyre_comm_rank(comm))
        return gyre_fail_quiet(what, "%s", text);
    if (mine != GYRE_OK)
        return gyre_fail_quiet(what, "%s (rank %d failed, too: %s)", text, first, gyre_status_string(what));
    return gyre_fail_quiet(what, "rank %d failed: %s: see its log", first, gyre_status_string(what));
}

gyre_status_t pipe_by_all(gyre_comm_t *comm, gyre_status_t (*step)(void *user), void *user, int *agreed)
{
    int muted = base_log_mute(gyre_comm_rank(comm) != 0);
    gyre_status_t status = step(user);
    base_log_mute(muted);
    return pipe_agree(comm, status, agreed);
}
