/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/checkpoint/save.c: checkpoints of a run, begun by all ranks together and written by a
 * thread of each. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/recorder/recorder.h"
#include "pipeline/train/checkpoint/checkpoint.h"

/* What rank 0's thread waits for the shards of the others, which began at the same time. */
#define SHARDS_S 240.0

static gyre_status_t count_range(void *user, const optim_range_t *range)
{
    *(size_t *)user += range->count;
    return GYRE_OK;
}

static gyre_status_t add_range(void *user, const optim_range_t *range)
{
    return optim_saver_add(user, range);
}

/* Copies what this rank writes. What could not be read, from --offload's file, fails the checkpoint. */
static void add_all(const train_parts_t *parts, optim_saver_t *saver, optim_state_t what,
                    optim_checkpoint_fn fn, void *to)
{
    gyre_status_t status = optim_checkpoint_visit(parts->zero, what, fn, to);
    if (status != GYRE_OK)
        optim_saver_fail(saver, status);
}

/* Elements that this rank writes. */
static gyre_status_t count_owned(const train_parts_t *parts, size_t *elements)
{
    *elements = 0;
    return optim_checkpoint_visit(parts->zero, OPTIM_STATE_LISTED, count_range, elements);
}

/* The name under which all write, and a mark in the folder by which they find out whether it is the same
 * for all. *marked: whether rank 0 could leave it. */
static gyre_status_t share_id(const train_parts_t *parts, char *id, gyre_status_t *marked)
{
    *marked = GYRE_OK;
    if (gyre_comm_rank(parts->comm) == 0) {
        memset(id, 0, OPTIM_SNAPSHOT_ID);
        optim_snapshot_id(id, OPTIM_SNAPSHOT_ID);
        *marked = optim_snapshot_probe(parts->folder, id);
    }
    gyre_status_t status = gyre_broadcast(id, id, OPTIM_SNAPSHOT_ID, GYRE_UINT8, 0, parts->comm);
    id[OPTIM_SNAPSHOT_ID - 1] = 0;
    return status;
}

static gyre_status_t check_sees(const train_parts_t *parts, size_t elements, int sees)
{
    char host[HOST_NAME_MAX + 1] = "";
    if (elements == 0 || sees)
        return GYRE_OK;
    (void)gethostname(host, sizeof host - 1);
    return gyre_fail(
        GYRE_ERR_INVALID,
        "rank %d on %s does not see the checkpoint folder %s of rank 0, or may not write there, and holds "
        "state that no lower rank holds: put --checkpoint on a disk that all hosts share%s",
        gyre_comm_rank(parts->comm), host, parts->folder,
        *parts->folder == '/' ? "" : ", and name it from the root");
}

gyre_status_t train_save_open(const train_parts_t *parts, uint64_t step, char id[OPTIM_SNAPSHOT_ID],
                              optim_saver_t **saver)
{
    int rank = gyre_comm_rank(parts->comm), ranks = gyre_comm_size(parts->comm);
    size_t elements = 0;
    unsigned char *writes = calloc((size_t)ranks, 1);
    gyre_status_t mine = writes ? count_owned(parts, &elements)
                                : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the list of %d ranks", ranks);
    int well;
    gyre_status_t status = train_all_well(parts, mine, &well);
    if (!well) {
        free(writes);
        return status;
    }
    unsigned char word = elements > 0;
    status = share_id(parts, id, &mine);
    if (status != GYRE_OK) { /* perhaps on this rank alone: no further call would fit the others' */
        free(writes);
        return status;
    }
    int sees = optim_snapshot_sees(parts->folder, id);
    status = gyre_all_gather(&word, writes, 1, GYRE_UINT8, parts->comm);
    if (status == GYRE_OK && rank == 0) /* all have looked */
        optim_snapshot_sweep(parts->folder, id, NULL);
    if (status == GYRE_OK)
        status = mine;
    if (status == GYRE_OK)
        status = check_sees(parts, elements, sees);
    const optim_saver_config_t config = {.folder = parts->folder,
                                         .id = id,
                                         .keep = parts->options->checkpoint_keep,
                                         .resumed = step,
                                         .rank = (size_t)rank,
                                         .ranks = (size_t)ranks,
                                         .writes = writes,
                                         .patience = SHARDS_S,
                                         .writing = comm_recorder_hold};
    if (status == GYRE_OK && (rank == 0 || elements > 0))
        status = optim_saver_create(parts->params, &config, elements, saver);
    free(writes);
    return status;
}

gyre_status_t train_save_step(const train_parts_t *parts, optim_saver_t *saver, const train_state_t *state,
                              int first_sync, double patience, gyre_status_t *saved)
{
    int64_t ready = !saver || optim_saver_ready(saver, patience);
    gyre_status_t status = gyre_all_reduce(&ready, &ready, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), parts->comm);
    *saved = ready ? GYRE_OK : GYRE_IN_PROGRESS;
    if (status != GYRE_OK || !saver)
        return status;
    if (!ready) {
        optim_saver_skip(saver, state->step);
        return GYRE_OK;
    }
    base_time_t start = base_now();
    add_all(parts, saver, OPTIM_STATE_OWNED, add_range, saver);
    json_t *run = gyre_comm_rank(parts->comm) == 0 ? train_state_describe(parts, state) : NULL;
    *saved = optim_saver_save(saver, state->step, run, first_sync);
    log_info("checkpoint of step %llu: its copy held training up for %.4f s", (unsigned long long)state->step,
             (double)(base_now() - start) * 1e-9);
    return GYRE_OK;
}

/* A row of this rank, counted unless it is stored under another. */
typedef struct {
    const model_params_t *whole;
    optim_saver_t *saver; /* NULL: only counts */
    size_t elements;
} alone_t;

static gyre_status_t take_range(void *user, const optim_range_t *range)
{
    alone_t *alone = user;
    if (alone->whole->row[range->row].alias != MODEL_NONE)
        return GYRE_OK;
    alone->elements += range->count;
    return alone->saver ? optim_saver_add(alone->saver, range) : GYRE_OK;
}

int train_save_alone(const train_parts_t *parts, optim_saver_t *saver, const train_state_t *state,
                     int first_sync, double patience)
{
    alone_t alone = {.whole = parts->params};
    if (optim_zero_torn(parts->zero) ||
        optim_checkpoint_visit(parts->zero, OPTIM_STATE_HELD, take_range, &alone) != GYRE_OK ||
        alone.elements != parts->params->total || !optim_saver_alone(saver, patience))
        return 0;
    alone.saver = saver;
    add_all(parts, saver, OPTIM_STATE_HELD, take_range, &alone);
    return optim_saver_save(saver, state->step, train_state_describe(parts, state), first_sync) == GYRE_OK;
}
