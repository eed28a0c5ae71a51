/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/team.c: see team.h. */
#include "collectives/run/team.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

coll_team_t *coll_team_create(int n)
{
    const size_t bytes = base_round_up(sizeof(coll_team_t) + (size_t)n * sizeof(coll_team_rank_t), 64);
    coll_team_t *team = aligned_alloc(64, bytes);
    int *host_of = calloc((size_t)n, sizeof *host_of);
    if (!team || !host_of) {
        free(team);
        free(host_of);
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for what %d ranks share", n);
        return NULL;
    }
    memset(team, 0, bytes);
    pthread_mutex_init(&team->lock, NULL);
    team->n = n;
    atomic_store(&team->users, 1);
    team->host_of = host_of;
    for (int r = 0; r < n; r++) {
        coll_team_rank_t *rank = &team->rank[r];
        rank->recorder.rank = r;
        rank->recorder.waiting_for = -1;
        rank->world.rank = r;
        rank->world.size = n;
        rank->world.recorder = &rank->recorder;
    }
    return team;
}

void coll_team_leave(coll_team_t *team, int rank)
{
    atomic_store(&team->rank[rank].left, 1);
    coll_team_release(team);
}

void coll_team_release(coll_team_t *team)
{
    if (atomic_fetch_sub(&team->users, 1) != 1)
        return;
    if (team->drop)
        team->drop(team);
    pthread_mutex_destroy(&team->lock);
    free(team->host_of);
    free(team);
}

static _Thread_local volatile sig_atomic_t locking;

void coll_team_lock(coll_team_t *team)
{
    locking++;
    atomic_signal_fence(memory_order_seq_cst);
    pthread_mutex_lock(&team->lock);
}

void coll_team_unlock(coll_team_t *team)
{
    pthread_mutex_unlock(&team->lock);
    atomic_signal_fence(memory_order_seq_cst);
    locking--;
}

int coll_team_locking(void)
{
    return locking;
}

void coll_team_tell(coll_team_t *team, gyre_status_t status, const char *text)
{
    coll_team_lock(team);
    if (team->status == GYRE_OK) {
        team->status = status;
        snprintf(team->text, sizeof team->text, "%s", text);
        atomic_store(&team->trouble, 1);
    }
    coll_team_unlock(team);
}

gyre_status_t coll_team_told(coll_team_t *team, char *text, size_t bytes)
{
    coll_team_lock(team);
    const gyre_status_t status = team->status;
    if (status != GYRE_OK)
        snprintf(text, bytes, "%s", team->text);
    coll_team_unlock(team);
    return status;
}
