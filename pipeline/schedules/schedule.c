/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/schedule.c: names, shapes, where stages lie, what is promised; and the messages between
 * the orders of computing that pipeline/schedules/generate.c gives. */
#include "base/checked.h"
#include "pipeline/schedules/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pipeline/schedules/generate.h"

/* ---- kinds --------------------------------------------------------------------------------------------- */

static const pipe_kind_row_t kinds[PIPE_KIND_END] = {
#define KIND(id, stem, text, ...) \
    [PIPE_##id] = {.name = text, .order = pipe_order_##stem, .held = pipe_held_##stem, __VA_ARGS__},
#include "pipeline/schedules/kinds.def"
#undef KIND
};

#define KIND(id, stem, name, ...) ", " name
static const char kind_names[] =
#include "pipeline/schedules/kinds.def"
    ;
#undef KIND

const pipe_kind_row_t *pipe_kind_row(pipe_kind_t kind)
{
    return (unsigned)kind < PIPE_KIND_END ? &kinds[kind] : NULL;
}

static int known(pipe_kind_t kind)
{
    return pipe_kind_row(kind) != NULL;
}

const char *pipe_kind_name(pipe_kind_t kind)
{
    return known(kind) ? kinds[kind].name : "unknown";
}

gyre_status_t pipe_kind_parse(const char *name, pipe_kind_t *kind)
{
    for (int k = 0; k < PIPE_KIND_END; k++)
        if (!strcmp(name, kinds[k].name)) {
            *kind = (pipe_kind_t)k;
            return GYRE_OK;
        }
    return gyre_fail(GYRE_ERR_INVALID, "there is no pipeline schedule \"%s\"; there are: %s", name,
                     kind_names + 2);
}

int pipe_kind_chunks(pipe_kind_t kind)
{
    return known(kind) ? kinds[kind].chunks : 1;
}

int pipe_kind_splits(pipe_kind_t kind)
{
    return known(kind) && kinds[kind].splits;
}

const char *pipe_op_name(pipe_op_t op)
{
    static const char *const names[PIPE_OP_END] = {"forward",         "backward", "backward-input",
                                                   "backward-weight", "send-act", "recv-act",
                                                   "send-grad",       "recv-grad"};
    return (unsigned)op < PIPE_OP_END ? names[op] : "unknown";
}

/* ---- shapes -------------------------------------------------------------------------------------------- */

enum {
    MOST_RANKS = 4096,
    MOST_CHUNKS = 256,
    MOST_MICRO_BATCHES = 1 << 16,
    MOST_ACTIONS = 1 << 26 /* of all ranks: 16 bytes each */
};

static gyre_status_t check_chunks(const pipe_shape_t *s)
{
    const pipe_kind_row_t *row = &kinds[s->kind];
    if (row->any_chunks && s->chunks < row->chunks)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the %s schedule needs %d chunks per stage or more, not %d; with 1 it is 1f1b",
                         row->name, row->chunks, s->chunks);
    if (!row->any_chunks && row->chunks > 1 && s->chunks != row->chunks)
        return gyre_fail(GYRE_ERR_INVALID, "the %s schedule has %d chunks per rank, not %d", row->name,
                         row->chunks, s->chunks);
    if (row->chunks == 1 && s->chunks != 1)
        return gyre_fail(GYRE_ERR_INVALID,
                         "the %s schedule has 1 chunk per rank, not %d; several: interleaved, or 2 with zb-v",
                         row->name, s->chunks);
    return GYRE_OK;
}

static gyre_status_t check_groups(const pipe_shape_t *s)
{
    int p = s->ranks, m = s->micro_batches, below = m / p * p;
    if (!kinds[s->kind].grouped || s->forward_only || m % p == 0)
        return GYRE_OK;
    if (below > 0)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "the %s schedule needs a multiple of %d micro-batches, the number of stages, not %d: "
            "the nearest are %d and %d; 1f1b and zb-v take any number",
            kinds[s->kind].name, p, m, below, below + p);
    return gyre_fail(GYRE_ERR_INVALID,
                     "the %s schedule needs a multiple of %d micro-batches, the number of stages, "
                     "not %d: the nearest is %d; 1f1b and zb-v take any number",
                     kinds[s->kind].name, p, m, p);
}

gyre_status_t pipe_shape_check(const pipe_shape_t *s)
{
    if (!known(s->kind))
        return gyre_fail(GYRE_ERR_INVALID, "pipeline schedule %d does not exist", (int)s->kind);
    if (s->ranks < 1 || s->ranks > MOST_RANKS)
        return gyre_fail(GYRE_ERR_INVALID, "a pipeline of %d ranks: there must be 1 to %d", s->ranks,
                         MOST_RANKS);
    if (s->chunks < 1 || s->chunks > MOST_CHUNKS)
        return gyre_fail(GYRE_ERR_INVALID, "%d chunks per rank: there must be 1 to %d", s->chunks,
                         MOST_CHUNKS);
    if (s->micro_batches < 1 || s->micro_batches > MOST_MICRO_BATCHES)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%d micro-batches: there must be 1 to %d: larger ones are fewer (--micro-batch)",
                         s->micro_batches, MOST_MICRO_BATCHES);
    if ((size_t)s->ranks * (size_t)s->chunks * (size_t)s->micro_batches > MOST_ACTIONS / 8)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%d ranks x %d chunks x %d micro-batches are more than a schedule is made for (%d)",
                         s->ranks, s->chunks, s->micro_batches, MOST_ACTIONS / 8);
    gyre_status_t st = check_chunks(s);
    return st != GYRE_OK ? st : check_groups(s);
}

/* ---- places and promises ------------------------------------------------------------------------------- */

int pipe_stage_of(const pipe_shape_t *shape, int rank, int chunk)
{
    if (kinds[shape->kind].folded && chunk == 1)
        return 2 * shape->ranks - 1 - rank;
    return chunk * shape->ranks + rank;
}

void pipe_place_of(const pipe_shape_t *shape, int stage, int *rank, int *chunk)
{
    int c = stage / shape->ranks, r = stage % shape->ranks;
    if (kinds[shape->kind].folded && c == 1)
        r = shape->ranks - 1 - r;
    if (rank)
        *rank = r;
    if (chunk)
        *chunk = c;
}

int pipe_activation_bound(const pipe_shape_t *s, int rank)
{
    return s->forward_only ? 1 : kinds[s->kind].held(s, rank);
}

int pipe_weight_bound(const pipe_shape_t *s, int rank)
{
    return s->forward_only || !kinds[s->kind].left ? 0 : kinds[s->kind].left(s, rank);
}

size_t pipe_schedule_in_flight(const pipe_schedule_t *schedule, size_t rank, size_t chunk)
{
    const pipe_op_t over = pipe_kind_splits(schedule->shape.kind) ? PIPE_BACKWARD_WEIGHT : PIPE_BACKWARD;
    size_t now = 0, most = 1;
    for (size_t i = 0; i < schedule->count[rank]; i++) {
        const pipe_action_t *action = &schedule->action[rank][i];
        if ((size_t)action->chunk != chunk)
            continue;
        now += action->op == PIPE_FORWARD;
        now -= action->op == over;
        most = base_max_size(most, now);
    }
    return most;
}

const char *pipe_action_text(const pipe_schedule_t *schedule, int rank, size_t index, char *text,
                             size_t bytes)
{
    const pipe_action_t *a = &schedule->action[rank][index];
    int used = snprintf(text, bytes, "rank %d, action %zu: %s of chunk %d (stage %d), micro-batch %d", rank,
                        index, pipe_op_name(a->op), a->chunk, pipe_stage_of(&schedule->shape, rank, a->chunk),
                        a->micro_batch);
    if (!pipe_op_computes(a->op) && used > 0 && (size_t)used < bytes)
        snprintf(text + used, bytes - (size_t)used, ", %s rank %d",
                 a->op == PIPE_SEND_ACT || a->op == PIPE_SEND_GRAD ? "to" : "from", a->peer);
    return text;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Which stage an action hands what it made to, and as what: -1 if to none. */
static int target_of(const pipe_shape_t *shape, int rank, const pipe_action_t *a, int *to, int *chunk)
{
    int stage = pipe_stage_of(shape, rank, a->chunk);
    int next = a->op == PIPE_FORWARD ? stage + 1 : a->op == PIPE_BACKWARD_WEIGHT ? -1 : stage - 1;
    if (next < 0 || next >= pipe_stages(shape))
        return -1;
    pipe_place_of(shape, next, to, chunk);
    return next;
}

/* Which stage an action needs its input from: -1 if from none. */
static int source_of(const pipe_shape_t *shape, int rank, const pipe_action_t *a, int *from)
{
    int stage = pipe_stage_of(shape, rank, a->chunk);
    int next = a->op == PIPE_FORWARD ? stage - 1 : a->op == PIPE_BACKWARD_WEIGHT ? -1 : stage + 1;
    if (next < 0 || next >= pipe_stages(shape))
        return -1;
    pipe_place_of(shape, next, from, NULL);
    return next;
}

typedef struct {
    const pipe_shape_t *shape;
    pipe_action_t **order; /* [ranks][length]: computing only */
    size_t length;
    size_t *
        /* [ranks]: of the rank that is being written: how far into each peer's order its messages were
         * received */
        cursor;
    unsigned char *came; /* [2 * chunks * micro_batches]: of that rank, what was received */
    pipe_action_t *list; /* what is being written; long enough */
} joiner_t;

static unsigned char *came_at(joiner_t *j, int forward, int chunk, int micro_batch)
{
    size_t m = (size_t)j->shape->micro_batches;
    return &j->came[((size_t)chunk * 2 + (size_t)forward) * m + (size_t)micro_batch];
}

/* Receives all that `from` sends to `rank` up to what action `need` of `rank` reads. Returns how many. */
static size_t receive_up_to(joiner_t *j, int rank, int from, const pipe_action_t *need, pipe_action_t *at)
{
    const unsigned char *wanted = came_at(j, need->op == PIPE_FORWARD, need->chunk, need->micro_batch);
    size_t received = 0;
    while (!*wanted && j->cursor[from] < j->length) {
        const pipe_action_t *theirs = &j->order[from][j->cursor[from]++];
        int to, chunk, forward = theirs->op == PIPE_FORWARD;
        if (target_of(j->shape, from, theirs, &to, &chunk) < 0 || to != rank)
            continue;
        *came_at(j, forward, chunk, theirs->micro_batch) = 1;
        at[received++] = (pipe_action_t){.op = forward ? PIPE_RECV_ACT : PIPE_RECV_GRAD,
                                         .chunk = chunk,
                                         .micro_batch = theirs->micro_batch,
                                         .peer = from};
    }
    return received;
}

/* The list of one rank: each computing action after the receives that it needs, and before what it sends. */
static size_t join_rank(joiner_t *j, int rank)
{
    const pipe_shape_t *shape = j->shape;
    size_t n = 0;
    memset(j->cursor, 0, (size_t)shape->ranks * sizeof *j->cursor);
    memset(j->came, 0, 2 * (size_t)shape->chunks * (size_t)shape->micro_batches);
    for (size_t i = 0; i < j->length; i++) {
        const pipe_action_t *a = &j->order[rank][i];
        int peer, chunk;
        if (source_of(shape, rank, a, &peer) >= 0 && peer != rank)
            n += receive_up_to(j, rank, peer, a, j->list + n);
        j->list[n++] = *a;
        if (target_of(shape, rank, a, &peer, &chunk) >= 0 && peer != rank)
            j->list[n++] = (pipe_action_t){.op = a->op == PIPE_FORWARD ? PIPE_SEND_ACT : PIPE_SEND_GRAD,
                                           .chunk = a->chunk,
                                           .micro_batch = a->micro_batch,
                                           .peer = peer};
    }
    return n;
}

static gyre_status_t join(pipe_schedule_t *s, joiner_t *j, base_arena_t *work)
{
    size_t p = (size_t)s->shape.ranks, pairs = (size_t)s->shape.chunks * (size_t)s->shape.micro_batches;
    j->order = base_arena_alloc(work, p, sizeof *j->order);
    j->cursor = base_arena_alloc(work, p, sizeof *j->cursor);
    j->came = base_arena_alloc(work, pairs, 2);
    j->list = base_arena_alloc(work, j->length + 4 * pairs, sizeof *j->list);
    pipe_action_t *orders = base_arena_alloc(work, p * j->length, sizeof *orders);
    s->count = base_arena_alloc(&s->arena, p, sizeof *s->count);
    s->action = base_arena_alloc(&s->arena, p, sizeof *s->action);
    if (!j->order || !j->cursor || !j->came || !j->list || !orders || !s->count || !s->action)
        return GYRE_ERR_NO_MEMORY;
    for (size_t r = 0; r < p; r++) {
        j->order[r] = orders + r * j->length;
        pipe_order(&s->shape, (int)r, j->order[r]);
    }
    for (size_t r = 0; r < p; r++) {
        s->count[r] = join_rank(j, (int)r);
        s->action[r] = base_arena_alloc(&s->arena, s->count[r], sizeof **s->action);
        if (!s->action[r])
            return GYRE_ERR_NO_MEMORY;
        memcpy(s->action[r], j->list, s->count[r] * sizeof **s->action);
    }
    return GYRE_OK;
}

gyre_status_t pipe_schedule_create(const pipe_shape_t *shape, pipe_schedule_t **out)
{
    gyre_status_t st = pipe_shape_check(shape);
    if (st != GYRE_OK)
        return st;
    pipe_schedule_t *s = calloc(1, sizeof *s);
    base_arena_t work = {0};
    st = GYRE_ERR_NO_MEMORY;
    if (s) {
        s->shape = *shape;
        joiner_t j = {.shape = &s->shape, .length = pipe_order_length(shape)};
        st = join(s, &j, &work);
    }
    base_arena_free(&work);
    if (st != GYRE_OK) {
        pipe_schedule_destroy(s);
        return gyre_fail(st, "no memory for the pipeline schedule of %d ranks, %d chunks, %d micro-batches",
                         shape->ranks, shape->chunks, shape->micro_batches);
    }
    *out = s;
    return GYRE_OK;
}

void pipe_schedule_destroy(pipe_schedule_t *schedule)
{
    if (!schedule)
        return;
    base_arena_free(&schedule->arena);
    free(schedule);
}
