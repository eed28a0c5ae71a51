/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline/schedules/program.c: slots and posting times of one rank's list. Two walks over the list: the
 * first finds for each tensor that comes in where it is needed first and last, the second gives out slots. */
#include "pipeline/schedules/program.h"

#include "base/checked.h"
#include "base/error.h"

/* A tensor that comes in: received, or handed over from a stage of this rank. */
typedef struct {
    pipe_slot_kind_t kind; /* ACT or GRAD */
    size_t need;           /* step at which its slot must be there: its RECV, or the step that writes it */
    size_t last;           /* after this step the slot is free */
    size_t user;           /* the step that reads it */
    int received;
    int slot;
} item_t;

typedef struct {
    const pipe_schedule_t *schedule;
    int rank;
    pipe_program_t *program;
    size_t *where; /* [chunks][micro_batches][PIPE_OP_END]: index of the action + 1; 0: there is none */
    item_t *item;  /* in the order of need */
    size_t items;
    size_t *ending; /* [steps]: items whose last step this is: head of a list + 1 */
    size_t *next;   /* [items]: + 1 */
    base_arena_t work;
} builder_t;

static size_t *where_at(const builder_t *b, pipe_op_t op, int chunk, int micro_batch)
{
    size_t m = (size_t)b->schedule->shape.micro_batches;
    return &b->where[((size_t)chunk * m + (size_t)micro_batch) * PIPE_OP_END + op];
}

static gyre_status_t nowhere(const builder_t *b, size_t i)
{
    char text[160];
    return gyre_fail_quiet(GYRE_ERR_INTERNAL, "%s: no action of this rank makes or uses what it needs",
                           pipe_action_text(b->schedule, b->rank, i, text, sizeof text));
}

/* The chunk on this rank that holds `stage`; -1: another rank does, or there is no such stage. */
static int chunk_here(const builder_t *b, int stage)
{
    const pipe_shape_t *shape = &b->schedule->shape;
    int rank, chunk;
    if (stage < 0 || stage >= pipe_stages(shape))
        return -1;
    pipe_place_of(shape, stage, &rank, &chunk);
    return rank == b->rank ? chunk : -1;
}

/* The step that reads what comes in at step i, and the chunk that it belongs to; 0: nothing does. */
static size_t reader_of(const builder_t *b, const pipe_action_t *a, int chunk, int forward)
{
    if (forward)
        return *where_at(b, PIPE_FORWARD, chunk, a->micro_batch);
    size_t whole = *where_at(b, PIPE_BACKWARD, chunk, a->micro_batch);
    return whole ? whole : *where_at(b, PIPE_BACKWARD_INPUT, chunk, a->micro_batch);
}

/* The end of the backward pass of (chunk, micro-batch). */
static size_t end_of(const builder_t *b, int chunk, int micro_batch)
{
    if (b->schedule->shape.forward_only)
        return *where_at(b, PIPE_FORWARD, chunk, micro_batch);
    size_t whole = *where_at(b, PIPE_BACKWARD, chunk, micro_batch);
    return whole ? whole : *where_at(b, PIPE_BACKWARD_WEIGHT, chunk, micro_batch);
}

static void find_all(builder_t *b)
{
    const pipe_action_t *list = b->schedule->action[b->rank];
    for (size_t i = 0; i < b->program->steps; i++)
        *where_at(b, list[i].op, list[i].chunk, list[i].micro_batch) = i + 1;
}

/* Step i brings a tensor in, for chunk `chunk`. */
static gyre_status_t add_item(builder_t *b, size_t i, int chunk, int forward, int received)
{
    const pipe_action_t *a = &b->schedule->action[b->rank][i];
    size_t user = reader_of(b, a, chunk, forward), last = end_of(b, chunk, a->micro_batch);
    if (!user || user <= i + 1 || last < user)
        return nowhere(b, i);
    b->item[b->items] = (item_t){.kind = forward ? PIPE_SLOT_ACT : PIPE_SLOT_GRAD,
                                 .need = i,
                                 .last = last - 1,
                                 .user = user - 1,
                                 .received = received,
                                 .slot = -1};
    b->next[b->items] = b->ending[last - 1];
    b->ending[last - 1] = ++b->items;
    return GYRE_OK;
}

static gyre_status_t find_items(builder_t *b)
{
    const pipe_shape_t *shape = &b->schedule->shape;
    const pipe_action_t *list = b->schedule->action[b->rank];
    for (size_t i = 0; i < b->program->steps; i++) {
        const pipe_action_t *a = &list[i];
        int stage = pipe_stage_of(shape, b->rank, a->chunk), local;
        gyre_status_t st = GYRE_OK;
        if (a->op == PIPE_RECV_ACT || a->op == PIPE_RECV_GRAD)
            st = add_item(b, i, a->chunk, a->op == PIPE_RECV_ACT, 1);
        else if (a->op == PIPE_FORWARD && (local = chunk_here(b, stage + 1)) >= 0)
            st = add_item(b, i, local, 1, 0);
        else if ((a->op == PIPE_BACKWARD || a->op == PIPE_BACKWARD_INPUT) &&
                 (local = chunk_here(b, stage - 1)) >= 0)
            st = add_item(b, i, local, 0, 0);
        if (st != GYRE_OK)
            return st;
    }
    return GYRE_OK;
}

/* The most items of a kind that live at a time: from need to last. */
static void count_slots(builder_t *b, int *most)
{
    int live[2] = {0, 0};
    size_t item = 0;
    most[PIPE_SLOT_ACT] = most[PIPE_SLOT_GRAD] = 0;
    for (size_t i = 0; i < b->program->steps; i++) {
        for (; item < b->items && b->item[item].need == i; item++) {
            int now = ++live[b->item[item].kind], *peak = &most[b->item[item].kind];
            *peak = now > *peak ? now : *peak;
        }
        for (size_t e = b->ending[i]; e; e = b->next[e - 1])
            live[b->item[e - 1].kind]--;
    }
}

typedef struct {
    int *free_slot[2]; /* stacks */
    int count[2];
} pool_t;

/* Gives slots to items in their order, each as early as its kind has one free. */
static void give_slots(builder_t *b, pool_t *pool)
{
    pipe_program_t *program = b->program;
    size_t item = 0;
    for (size_t i = 0; i < program->steps; i++) {
        for (; item < b->items && pool->count[b->item[item].kind] > 0; item++) {
            item_t *it = &b->item[item];
            it->slot = pool->free_slot[it->kind][--pool->count[it->kind]];
            if (it->received)
                program->receive[program->receives++] = (pipe_receive_t){.step = it->need, .slot = it->slot};
        }
        program->step[i].posted = program->receives;
        for (size_t e = b->ending[i]; e; e = b->next[e - 1]) {
            const item_t *it = &b->item[e - 1];
            pool->free_slot[it->kind][pool->count[it->kind]++] = it->slot;
        }
    }
}

/* Slots of inputs and outputs of each step. */
static void wire(builder_t *b)
{
    pipe_program_t *program = b->program;
    int sends[2] = {0, 0}, receives = 0;
    for (size_t i = 0; i < b->items; i++) {
        const item_t *it = &b->item[i];
        program->step[it->user].in = it->slot;
        if (it->received) {
            program->step[it->need].in = it->slot;
            program->step[it->need].receive = receives++;
        } else {
            program->step[it->need].out = it->slot;
        }
    }
    for (size_t i = 0; i < program->steps; i++) {
        pipe_op_t op = program->step[i].action.op;
        if (op != PIPE_SEND_ACT && op != PIPE_SEND_GRAD)
            continue;
        int grad = op == PIPE_SEND_GRAD;
        int slot = program->first[PIPE_SLOT_SEND_ACT + grad] + sends[grad]++ % PIPE_SENDS;
        program->step[i].out = program->step[i - 1].out = slot;
    }
}

static int counts_sends(const builder_t *b, pipe_op_t op)
{
    int n = 0;
    for (size_t i = 0; i < b->program->steps; i++)
        n += b->program->step[i].action.op == op;
    return n;
}

/* How many slots of each kind: what must be, and some more so that messages can come and go while the rank
 * computes; never more than there are tensors. */
static void lay_out(builder_t *b)
{
    int most[2], all[2] = {0, 0}, *first = b->program->first;
    count_slots(b, most);
    for (size_t i = 0; i < b->items; i++)
        all[b->item[i].kind]++;
    for (int k = 0; k < 2; k++) {
        int take = most[k] + PIPE_AHEAD;
        first[k + 1] = first[k] + (take < all[k] ? take : all[k]);
    }
    for (int k = 0; k < 2; k++) {
        int sends = counts_sends(b, k ? PIPE_SEND_GRAD : PIPE_SEND_ACT);
        first[k + 3] = first[k + 2] + (sends < PIPE_SENDS ? sends : PIPE_SENDS);
    }
}

static gyre_status_t make_room(builder_t *b)
{
    const pipe_shape_t *shape = &b->schedule->shape;
    pipe_program_t *program = b->program;
    size_t n = program->steps;
    b->where = base_arena_alloc(&b->work, (size_t)shape->chunks * (size_t)shape->micro_batches * PIPE_OP_END,
                                sizeof *b->where);
    b->item = base_arena_alloc(&b->work, n, sizeof *b->item);
    b->ending = base_arena_alloc(&b->work, n, sizeof *b->ending);
    b->next = base_arena_alloc(&b->work, n, sizeof *b->next);
    program->step = base_arena_alloc(&program->arena, n, sizeof *program->step);
    program->receive = base_arena_alloc(&program->arena, n, sizeof *program->receive);
    if (!b->where || !b->item || !b->ending || !b->next || !program->step || !program->receive)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a pipeline of %d micro-batches",
                         shape->micro_batches);
    for (size_t i = 0; i < n; i++)
        program->step[i] =
            (pipe_step_t){.action = b->schedule->action[b->rank][i], .in = -1, .out = -1, .receive = -1};
    return GYRE_OK;
}

static gyre_status_t build(builder_t *b)
{
    pool_t pool = {.count = {0, 0}};
    gyre_status_t st = make_room(b);
    if (st != GYRE_OK)
        return st;
    find_all(b);
    st = find_items(b);
    if (st != GYRE_OK)
        return st;
    lay_out(b);
    for (int k = 0; k < 2; k++) {
        const int *first = b->program->first;
        pool.free_slot[k] = base_arena_alloc(&b->work, (size_t)(first[k + 1] - first[k]) + 1, sizeof(int));
        if (!pool.free_slot[k])
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a pipeline's slots");
        for (int slot = first[k + 1]; slot-- > first[k];)
            pool.free_slot[k][pool.count[k]++] = slot;
    }
    give_slots(b, &pool);
    wire(b);
    return GYRE_OK;
}

gyre_status_t pipe_program_build(const pipe_schedule_t *schedule, int rank, pipe_program_t *program)
{
    *program = (pipe_program_t){.steps = schedule->count[rank]};
    builder_t b = {.schedule = schedule, .rank = rank, .program = program};
    gyre_status_t st = build(&b);
    base_arena_free(&b.work);
    if (st != GYRE_OK)
        pipe_program_free(program);
    return st;
}

gyre_status_t pipe_program_bytes(const pipe_program_t *program, size_t count, size_t element_bytes,
                                 size_t *slot, size_t *all)
{
    const size_t slots = (size_t)program->first[PIPE_SLOT_KINDS];
    *slot = *all = 0;
    if (slots == 0 || count == 0)
        return GYRE_OK;
    if (!base_mul(count, element_bytes, slot) || !base_add(*slot, PIPE_SLOT_ALIGN, slot))
        return gyre_fail(GYRE_ERR_OVERFLOW, "a boundary tensor of %zu elements is more than memory can hold",
                         count);
    *slot = base_round_up(*slot - PIPE_SLOT_ALIGN, PIPE_SLOT_ALIGN);
    if (!base_mul(slots, *slot, all))
        return gyre_fail(GYRE_ERR_OVERFLOW, "%zu boundary tensors of %zu bytes are more than memory can hold",
                         slots, *slot);
    return GYRE_OK;
}

void pipe_program_free(pipe_program_t *program)
{
    base_arena_free(&program->arena);
    *program = (pipe_program_t){0};
}
