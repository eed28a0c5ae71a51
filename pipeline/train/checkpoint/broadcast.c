/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/train/checkpoint/broadcast.c: a checkpoint that not all ranks see: one of them reads it row by row
 * and broadcasts it.
 *
 * Each rank picks what it holds out of what comes by. It does so into memory of its own first, since what it
 * holds may be visited once only for all rows (state that is offloaded to files comes from there and goes
 * back). */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "pipeline/train/checkpoint/checkpoint.h"

#define PIECE ((size_t)1 << 18) /* elements that travel at a time */

/* What this rank holds: ranges whose parts are all here. */
typedef struct {
    optim_range_t *range;
    size_t count, room, next;
} held_t;

static void release(held_t *held)
{
    for (size_t i = 0; i < held->count; i++)
        free(held->range[i].part[0]);
    free(held->range);
}

static gyre_status_t note_range(void *user, const optim_range_t *range)
{
    held_t *held = user;
    if (!base_grow(&held->range, &held->room, held->count, 1, sizeof *held->range))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the ranges of a checkpoint");
    float *memory = malloc(OPTIM_RANGE_PARTS * range->count * sizeof *memory + 1);
    if (!memory)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to receive %zu elements of a checkpoint",
                         range->count);
    optim_range_t *mine = &held->range[held->count++];
    *mine = *range;
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        mine->part[p] = memory + p * range->count;
    return GYRE_OK;
}

static gyre_status_t give_range(void *user, const optim_range_t *range)
{
    held_t *held = user;
    const optim_range_t *mine = &held->range[held->next++];
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        if (range->part[p])
            memcpy(range->part[p], mine->part[p], range->count * sizeof(float));
    return GYRE_OK;
}

/* Picks out of elements [first, first + count) of `row` what is held of it. */
static void pick(const train_parts_t *parts, held_t *held, const optim_range_t *piece)
{
    for (size_t i = 0; i < held->count; i++) {
        const optim_range_t *mine = &held->range[i];
        size_t from = base_max_size(mine->first, piece->first),
               to = base_min_size(mine->first + mine->count, piece->first + piece->count);
        if (optim_range_row(parts->params, mine->row) != piece->row || from >= to)
            continue;
        for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
            memcpy(mine->part[p] + (from - mine->first), piece->part[p] + (from - piece->first),
                   (to - from) * sizeof(float));
    }
}

/* The owner reads a piece, all get it. An error of the read goes with the piece: the others must not wait. */
static gyre_status_t pass_piece(const train_parts_t *parts, const optim_snapshot_t *snapshot, int owner,
                                const optim_range_t *piece)
{
    int mine = gyre_comm_rank(parts->comm) == owner;
    uint64_t word = mine ? (uint64_t)optim_snapshot_read(snapshot, parts->params, piece, 1) : 0;
    gyre_status_t status = gyre_broadcast(&word, &word, 1, GYRE_UINT64, owner, parts->comm);
    if (status == GYRE_OK && word != GYRE_OK)
        return mine ? (gyre_status_t)word
                    : gyre_fail_quiet((gyre_status_t)word, "rank %d cannot read the checkpoint", owner);
    for (size_t p = 0; status == GYRE_OK && p < OPTIM_RANGE_PARTS; p++)
        status =
            gyre_broadcast(piece->part[p], piece->part[p], piece->count, GYRE_FLOAT32, owner, parts->comm);
    return status;
}

static gyre_status_t pass_all(const train_parts_t *parts, const optim_snapshot_t *snapshot, int owner,
                              held_t *held, float *memory)
{
    gyre_status_t status = GYRE_OK;
    optim_range_t piece = {.part = {memory, memory + PIECE, memory + 2 * PIECE}};
    for (size_t r = 0; status == GYRE_OK && r < parts->params->rows; r++) {
        const model_param_t *row = &parts->params->row[r];
        if (row->alias != MODEL_NONE)
            continue;
        piece.row = r;
        for (piece.first = 0; status == GYRE_OK && piece.first < row->count; piece.first += piece.count) {
            piece.count = base_min_size(PIECE, row->count - piece.first);
            status = pass_piece(parts, snapshot, owner, &piece);
            if (status == GYRE_OK)
                pick(parts, held, &piece);
        }
    }
    return status;
}

gyre_status_t train_resume_from_owner(const train_parts_t *parts, const optim_snapshot_t *snapshot, int owner)
{
    held_t held = {0};
    float *memory = malloc(OPTIM_RANGE_PARTS * PIECE * sizeof *memory);
    gyre_status_t status = memory ? optim_checkpoint_visit(parts->zero, OPTIM_STATE_HELD, note_range, &held)
                                  : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to receive a checkpoint");
    int well = 0;
    status = train_all_well(parts, status, &well);
    if (well)
        status = pass_all(parts, snapshot, owner, &held, memory);
    if (status == GYRE_OK && well)
        status = optim_checkpoint_visit(parts->zero, OPTIM_STATE_LOAD, give_range, &held);
    release(&held);
    free(memory);
    return status;
}
