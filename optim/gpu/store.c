/* SPDX-License-Identifier: Apache-2.0 */
/* optim/gpu/store.c: ZeRO's memory, arithmetic and collectives on a CUDA device (zero_ops_t).
 *
 * Everything goes into the caller's stream, the one that the model works on, in the order of the calls.
 * Reductions have a stream of their own, so have the gathers of stage 3, which must not queue after them: a
 * collective begins when the caller's stream has come to where it was started, and an event says where that
 * stream waits for its end. No thread waits but where the host reads: the norm's words, hashes, state for
 * checkpoints. */
#include "optim/store/internal.h"

#include "base/checked.h"
#include "base/error.h"

#ifndef GYRE_CUDA

gyre_status_t zero_cuda_begin(optim_zero_t *zero)
{
    (void)zero;
    return gyre_fail(GYRE_ERR_UNSUPPORTED, "optimiser on a CUDA device: %s", base_device_why_not(BASE_CUDA));
}

#else

#include <gyre/cuda.h>
#include <math.h>
#include <stdlib.h>

#include "collectives/gpu/gpu.h"
#include "optim/gpu/kernels.h"

/* Rows are cut for lists of elements: a launch has as many blocks for a bias as for the longest of its list,
 * and those of an embedding would be mostly idle ones. */
static const size_t PIECE = (size_t)1 << 19;

/* A list in device memory. */
typedef struct {
    void *data;
    size_t n, longest;
} list_t;

struct zero_device {
    base_device_t at;
    base_stream_t *compute, *reduce, *gather;
    base_event_t *begun; /* of `compute`, when a collective was started */
    int prepared;        /* the lists below are made: memory does not move */
    list_t squares, hashed[ZERO_GROUPS], updates;
    size_t *update_first;   /* [buckets + 1] into updates */
    size_t *update_longest; /* [buckets] */
    uint64_t *word;         /* [OPTIM_EXACT_WORDS, or rows], device */
    gyre_cuda_registration_t *lent[2];
    size_t lents;
};

static cudaStream_t native(const base_stream_t *stream)
{
    return base_stream_native(stream);
}

static gyre_status_t launched(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess)
        return GYRE_OK;
    cudaGetLastError();
    return gyre_fail(GYRE_ERR_SYSTEM, "optimiser on the device: %s: %s (%s)", what, cudaGetErrorString(rc),
                     cudaGetErrorName(rc));
}

static optim_cuda_type_t half_type(const optim_zero_t *zero)
{
    return zero->plan.config.precision == MODEL_FLOAT16 ? OPTIM_CUDA_FLOAT16 : OPTIM_CUDA_BFLOAT16;
}

static optim_cuda_type_t grad_type(const optim_zero_t *zero)
{
    return zero->plan.config.grad16 ? half_type(zero) : OPTIM_CUDA_FLOAT32;
}

static gyre_status_t take(optim_zero_t *zero, size_t bytes, int travels, void **out)
{
    (void)travels;
    gyre_status_t status = base_device_alloc(zero->device->at, bytes, out);
    return status == GYRE_OK ? base_stream_zero(zero->device->compute, *out, bytes) : status;
}

static void give(optim_zero_t *zero, void *memory, int travels)
{
    (void)travels;
    base_device_free(zero->device->at, memory);
}

static gyre_status_t copy(optim_zero_t *zero, void *to, const void *from, size_t bytes)
{
    return base_stream_copy(zero->device->compute, to, from, bytes);
}

static gyre_status_t copy_and_wait(optim_zero_t *zero, void *to, const void *from, size_t bytes)
{
    gyre_status_t status = base_stream_copy(zero->device->compute, to, from, bytes);
    return status == GYRE_OK ? base_stream_wait(zero->device->compute) : status;
}

/* ---- arithmetic ---------------------------------------------------------------------------------------- */

static gyre_status_t stack_take(void *user, size_t bytes, void **out)
{
    return take(user, bytes, 0, out);
}

static void stack_give(void *user, void *memory)
{
    give(user, memory, 0);
}

static gyre_status_t stack_join(void *user, float *value, float *const *left, size_t joins, int keep,
                                size_t n)
{
    optim_zero_t *zero = user;
    return launched(
        optim_cuda_join(value, left, joins, keep, grad_type(zero), n, native(zero->device->compute)),
        "a sum of gradients");
}

static gyre_status_t stack(optim_zero_t *zero)
{
    const optim_stack_place_t on = {.user = zero, .take = stack_take, .give = stack_give, .join = stack_join};
    return optim_stack_create_on(&on, zero->plan.config.run, zero->plan.config.group,
                                 zero->plan.params->grad_total, &zero->stack);
}

static gyre_status_t round_half(optim_zero_t *zero, const float *from, char *to, size_t n)
{
    return launched(
        optim_cuda_round(half_type(zero), from, (uint16_t *)(void *)to, n, native(zero->device->compute)),
        "rounding");
}

static gyre_status_t add_grads(optim_zero_t *zero, char *sum, const char *other, size_t n)
{
    return launched(optim_cuda_add(sum, other, grad_type(zero), n, native(zero->device->compute)),
                    "a sum of gradients");
}

static gyre_status_t no_grads(optim_zero_t *zero, char *data, size_t n)
{
    return launched(optim_cuda_nothing(grad_type(zero), data, n, native(zero->device->compute)),
                    "filling a bucket");
}

/* ---- lists of what goes in one launch ------------------------------------------------------------------ */

static gyre_status_t upload(optim_zero_t *zero, const void *host, size_t bytes, list_t *list)
{
    gyre_status_t status = take(zero, bytes ? bytes : 1, 0, &list->data);
    return status == GYRE_OK && bytes ? copy_and_wait(zero, list->data, host, bytes) : status;
}

/* Pieces of all rows: each row has at most one that is not whole. */
static size_t most_pieces(const optim_zero_t *zero)
{
    const model_params_t *params = zero->plan.params;
    return params->rows + params->grad_total / PIECE + 1;
}

typedef struct {
    optim_cuda_values_t *at;
    size_t n, longest;
} squares_t;

static gyre_status_t list_squares(optim_zero_t *zero, void *user, const char *grad, size_t n)
{
    squares_t *squares = user;
    for (size_t at = 0, here; at < n; at += here) {
        here = base_min_size(n - at, PIECE);
        squares->at[squares->n++] =
            (optim_cuda_values_t){.data = grad + at * zero->plan.grad_bytes, .n = here};
        squares->longest = base_max_size(squares->longest, here);
    }
    return GYRE_OK;
}

static gyre_status_t prepare_squares(optim_zero_t *zero)
{
    squares_t squares = {.at = calloc(most_pieces(zero), sizeof *squares.at)};
    if (!squares.at)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of rows");
    gyre_status_t status = GYRE_OK;
    for (size_t r = 0; status == GYRE_OK && r < zero->plan.params->rows; r++)
        if (zero->plan.params->row[r].copies > 1)
            status =
                gyre_fail(GYRE_ERR_UNSUPPORTED,
                          "leaves that share a head of keys and values on the GPU: take --device cpu, or "
                          "no more --leaves than such heads");
    if (status == GYRE_OK)
        status = zero_squares(zero, list_squares, &squares);
    if (status == GYRE_OK)
        status = upload(zero, squares.at, squares.n * sizeof *squares.at, &zero->device->squares);
    zero->device->squares.n = squares.n;
    zero->device->squares.longest = squares.longest;
    free(squares.at);
    return status;
}

static gyre_status_t prepare_hashed(optim_zero_t *zero, zero_group_t group)
{
    const size_t rows = zero->plan.params->rows;
    list_t *list = &zero->device->hashed[group];
    zero_piece_t piece[ZERO_PIECES];
    optim_cuda_hashed_t *all = calloc(rows * ZERO_PIECES + 1, sizeof *all);
    if (!all)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of rows");
    for (size_t r = 0; r < rows; r++) {
        size_t pieces = zero_hashed(zero, group, r, piece);
        for (size_t i = 0; i < pieces; i++) {
            size_t bytes = piece[i].n * piece[i].bytes;
            all[list->n++] = (optim_cuda_hashed_t){.data = piece[i].data,
                                                   .bytes = bytes,
                                                   .word = (uint32_t)r,
                                                   .sliced = piece[i].sliced,
                                                   .salt = (i + 1) * 0x9e3779b97f4a7c15u};
            list->longest = list->longest > bytes ? list->longest : bytes;
        }
    }
    gyre_status_t status = upload(zero, all, list->n * sizeof *all, list);
    free(all);
    return status;
}

static gyre_status_t prepare_updates(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    struct zero_device *d = zero->device;
    optim_cuda_span_t *all = calloc(most_pieces(zero), sizeof *all);
    d->update_first = calloc(plan->buckets + 1, sizeof *d->update_first);
    d->update_longest = calloc(plan->buckets + 1, sizeof *d->update_longest);
    if (!all || !d->update_first || !d->update_longest) {
        free(all);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a list of rows");
    }
    size_t n = 0;
    gyre_status_t status = GYRE_OK;
    for (size_t b = 0; status == GYRE_OK && b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b];
        zero_view_t state;
        d->update_first[b] = n;
        if (k->alias == MODEL_NONE)
            status = zero_state_open(zero, b, &state);
        for (size_t r = k->row; status == GYRE_OK && k->alias == MODEL_NONE && r < k->row + k->rows; r++) {
            size_t lo, hi;
            if (!zero_plan_part(&zero->plan, r, &lo, &hi))
                continue;
            for (size_t here; lo < hi; lo += here) {
                size_t at = lo - k->first;
                char *half = zero_half(zero) ? zero_weight_own(zero, b) + at * plan->weight_bytes : NULL;
                here = base_min_size(hi - lo, PIECE);
                all[n] = (optim_cuda_span_t){.w = state.w + at,
                                             .m = state.m + at,
                                             .v = state.v + at,
                                             .grad = zero_grad_own(zero, b) + at * plan->grad_bytes,
                                             .rounded = (uint16_t *)(void *)half,
                                             .n = here,
                                             .decay = plan->params->row[r].decay};
                n++;
                d->update_longest[b] = base_max_size(d->update_longest[b], here);
            }
        }
    }
    d->update_first[plan->buckets] = n;
    if (status == GYRE_OK)
        status = upload(zero, all, n * sizeof *all, &d->updates);
    free(all);
    return status;
}

/* Once: what is held stays where it is. */
static gyre_status_t prepare(optim_zero_t *zero)
{
    struct zero_device *d = zero->device;
    size_t words = zero->plan.params->rows > OPTIM_EXACT_WORDS ? zero->plan.params->rows : OPTIM_EXACT_WORDS;
    void *memory;
    if (d->prepared)
        return GYRE_OK;
    gyre_status_t status = take(zero, words * sizeof(uint64_t), 0, &memory);
    if (status == GYRE_OK) {
        d->word = memory;
        status = prepare_squares(zero);
    }
    if (status == GYRE_OK)
        status = prepare_updates(zero);
    for (int group = 0; status == GYRE_OK && group < ZERO_GROUPS; group++)
        status = prepare_hashed(zero, (zero_group_t)group);
    d->prepared = status == GYRE_OK;
    return status;
}

gyre_status_t optim_cuda_exact_add(gyre_exact_t *sum, const uint64_t word[OPTIM_EXACT_WORDS])
{
    double part[2 * OPTIM_EXACT_LIMBS + 1];
    for (int k = 0; k < OPTIM_EXACT_LIMBS; k++) { /* halves of a word are doubles */
        part[2 * k] = ldexp((double)(uint32_t)word[k], 32 * k - 298);
        part[2 * k + 1] = ldexp((double)(word[k] >> 32), 32 * k - 298 + 32);
    }
    part[2 * OPTIM_EXACT_LIMBS] = word[OPTIM_EXACT_LIMBS] > 0 ? (double)NAN : 0.0;
    return gyre_exact_add(sum, part, 2 * OPTIM_EXACT_LIMBS + 1, GYRE_FLOAT64);
}

static gyre_status_t squares(optim_zero_t *zero)
{
    struct zero_device *d = zero->device;
    gyre_status_t status = prepare(zero);
    uint64_t word[OPTIM_EXACT_WORDS];
    if (status == GYRE_OK)
        status = base_stream_zero(d->compute, d->word, OPTIM_EXACT_WORDS * sizeof(uint64_t));
    if (status == GYRE_OK)
        status = launched(optim_cuda_exact(d->squares.data, d->squares.n, d->squares.longest, grad_type(zero),
                                           d->word, native(d->compute)),
                          "the gradients' norm");
    if (status == GYRE_OK)
        status = copy_and_wait(zero, word, d->word, sizeof word);
    return status == GYRE_OK ? optim_cuda_exact_add(zero->squares, word) : status;
}

static gyre_status_t update(optim_zero_t *zero, size_t b, const optim_adamw_factors_t *factors,
                            const zero_view_t *state, int *rounded)
{
    struct zero_device *d = zero->device;
    (void)state; /* it is in the list */
    gyre_status_t status = prepare(zero);
    if (status != GYRE_OK)
        return status;
    *rounded = 1;
    return launched(optim_cuda_adamw((const optim_cuda_span_t *)d->updates.data + d->update_first[b],
                                     d->update_first[b + 1] - d->update_first[b], d->update_longest[b],
                                     grad_type(zero), half_type(zero), factors, native(d->compute)),
                    "AdamW");
}

static gyre_status_t hash(optim_zero_t *zero, zero_group_t group, size_t part, size_t parts, uint64_t *out)
{
    struct zero_device *d = zero->device;
    size_t bytes = zero->plan.params->rows * sizeof *out;
    gyre_status_t status = prepare(zero);
    const list_t *list = &d->hashed[group];
    if (status == GYRE_OK)
        status = base_stream_zero(d->compute, d->word, bytes);
    if (status == GYRE_OK)
        status = launched(
            optim_cuda_hash(list->data, list->n, list->longest, part, parts, d->word, native(d->compute)),
            "hashes of replicas");
    return status == GYRE_OK ? copy_and_wait(zero, out, d->word, bytes) : status;
}

/* ---- collectives --------------------------------------------------------------------------------------- */

/* `on` goes on after what `compute` holds now. */
static gyre_status_t behind_compute(optim_zero_t *zero, base_stream_t *on)
{
    gyre_status_t status = base_event_record(zero->device->begun, zero->device->compute);
    return status == GYRE_OK ? base_stream_wait_event(on, zero->device->begun) : status;
}

static gyre_status_t started(optim_zero_t *zero, base_stream_t *on, zero_ticket_t *ticket)
{
    gyre_status_t status = ticket->event ? GYRE_OK : base_event_create(zero->device->at, 0, &ticket->event);
    if (status == GYRE_OK)
        status = base_event_record(ticket->event, on);
    ticket->pending = status == GYRE_OK;
    return status;
}

static gyre_status_t reduce(optim_zero_t *zero, size_t b)
{
    zero_run_t *run = &zero->run[b];
    base_stream_t *on = zero->device->reduce;
    gyre_type_t type = zero_grad_type(zero);
    gyre_status_t status = behind_compute(zero, on);
    if (status == GYRE_OK && zero->plan.config.stage == 0)
        status = gyre_all_reduce_stream(run->data, zero_sum_own(zero, b), zero->plan.bucket[b].count, type,
                                        GYRE_OP(GYRE_SUM), zero->groups.dp, native(on));
    else if (status == GYRE_OK)
        status = gyre_reduce_scatterv_stream(run->data, zero_sum_own(zero, b), run->shards, type,
                                             GYRE_OP(GYRE_SUM), zero->groups.dp, native(on));
    return status == GYRE_OK ? started(zero, on, &run->reduce) : status;
}

static gyre_status_t gather(optim_zero_t *zero, const char *own, char *whole, const size_t *counts, int ahead,
                            zero_ticket_t *ticket)
{
    base_stream_t *on = ahead ? zero->device->gather : zero->device->reduce;
    gyre_status_t status = behind_compute(zero, on);
    if (status == GYRE_OK)
        status = gyre_all_gatherv_stream(own, whole, counts, NULL,
                                         zero_half(zero) ? zero_type16(zero) : GYRE_FLOAT32,
                                         ahead ? zero->gather_comm : zero->groups.dp, native(on));
    return status == GYRE_OK ? started(zero, on, ticket) : status;
}

static gyre_status_t sum_tied(optim_zero_t *zero, char *grad, size_t n)
{
    return gyre_all_reduce_stream(grad, grad, n, zero_grad_type(zero), GYRE_OP(GYRE_SUM), zero->groups.tied,
                                  native(zero->device->compute));
}

/* What a stream met that could not end well is known to the communicator. */
static gyre_status_t healthy(const optim_zero_t *zero)
{
    gyre_status_t status = zero->groups.dp ? gyre_comm_error(zero->groups.dp) : GYRE_OK;
    return status == GYRE_OK && zero->gather_comm ? gyre_comm_error(zero->gather_comm) : status;
}

static gyre_status_t wait_for(optim_zero_t *zero, zero_ticket_t *ticket)
{
    if (!ticket->pending)
        return GYRE_OK;
    ticket->pending = 0;
    gyre_status_t status = base_stream_wait_event(zero->device->compute, ticket->event);
    return status == GYRE_OK ? healthy(zero) : status;
}

static gyre_status_t test(optim_zero_t *zero, zero_ticket_t *ticket)
{
    int done = 1;
    gyre_status_t status = ticket->pending ? base_event_done(ticket->event, &done) : GYRE_OK;
    if (status == GYRE_OK && !done)
        return GYRE_IN_PROGRESS;
    return status == GYRE_OK ? wait_for(zero, ticket) : status;
}

/* The ranks of dp read `memory` where it lies, if they map each other's, and not copies in arenas. */
static gyre_status_t lend(optim_zero_t *zero, char *memory, size_t bytes)
{
    struct zero_device *d = zero->device;
    const char *why;
    if (zero_alone(zero) || !memory || bytes == 0 ||
        coll_cuda_captures(zero->groups.dp, &why) == COLL_CUDA_CAPTURE_NEVER)
        return GYRE_OK;
    gyre_status_t status = gyre_comm_register_cuda(zero->groups.dp, memory, bytes, &d->lent[d->lents]);
    d->lents += status == GYRE_OK;
    return status == GYRE_ERR_UNSUPPORTED ? GYRE_OK : status; /* on all ranks: through arenas, then */
}

/* Gradients that have places of their own, and weights that are gathered in theirs. Not buffers that come and
 * go: which bucket has which is each rank's affair, and all or none of a call's must be registered. */
static gyre_status_t join(optim_zero_t *zero)
{
    const zero_plan_t *plan = &zero->plan;
    gyre_comm_t *const comm[] = {zero->groups.dp, zero->groups.tied, zero->gather_comm};
    const size_t grads = plan->pools > 0 ? 0 : plan->grad_shards ? plan->grads : plan->params->grad_total;
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; status == GYRE_OK && i < sizeof comm / sizeof *comm; i++)
        if (comm[i] && gyre_comm_size(comm[i]) > 1)
            status = gyre_comm_prepare_cuda(comm[i]);
    if (status == GYRE_OK)
        status = lend(zero, zero->grads, grads * plan->grad_bytes);
    if (status == GYRE_OK && (plan->config.stage == 1 || plan->config.stage == 2))
        status = lend(zero, zero->weights, plan->params->total * plan->weight_bytes);
    return status;
}

static void leave(optim_zero_t *zero)
{
    struct zero_device *d = zero->device;
    base_stream_t *all[] = {d->reduce, d->gather, d->compute};
    for (size_t i = 0; i < 3; i++)
        if (all[i])
            base_stream_wait(all[i]);
    while (d->lents > 0)
        (void)gyre_comm_deregister_cuda(zero->groups.dp, d->lent[--d->lents]);
}

static void end(optim_zero_t *zero)
{
    struct zero_device *d = zero->device;
    give(zero, d->squares.data, 0);
    give(zero, d->updates.data, 0);
    give(zero, d->word, 0);
    for (int group = 0; group < ZERO_GROUPS; group++)
        give(zero, d->hashed[group].data, 0);
    free(d->update_first);
    free(d->update_longest);
    base_event_destroy(d->begun);
    base_stream_destroy(d->gather);
    base_stream_destroy(d->reduce);
    base_stream_destroy(d->compute); /* the caller's own goes on */
    free(d);
    zero->device = NULL;
}

static const zero_ops_t device_ops = {
    .take = take,
    .give = give,
    .copy = copy,
    .read = copy_and_wait,
    .write = copy_and_wait,
    .stack = stack,
    .round_grads = round_half,
    .add_grads = add_grads,
    .no_grads = no_grads,
    .round_weights = round_half,
    .squares = squares,
    .update = update,
    .hash = hash,
    .reduce = reduce,
    .gather = gather,
    .sum_tied = sum_tied,
    .wait = wait_for,
    .test = test,
    .join = join,
    .leave = leave,
    .end = end,
};

gyre_status_t zero_cuda_begin(optim_zero_t *zero)
{
    const optim_zero_config_t *config = &zero->plan.config;
    if (config->precision == MODEL_FLOAT16 || config->offload)
        return gyre_fail(GYRE_ERR_INVALID, "optimiser on a CUDA device: %s",
                         config->offload ? "--offload keeps state in a file of the host; leave it out there"
                                         : "fp16 is the host's; take bf16");
    struct zero_device *d = calloc(1, sizeof *d);
    if (!d)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a rank's state");
    d->at = (base_device_t){BASE_CUDA, config->device};
    zero->device = d;
    zero->on = &device_ops;
    gyre_status_t status = base_stream_wrap(d->at, config->stream, &d->compute);
    if (status == GYRE_OK)
        status = base_device_use(d->at);
    if (status == GYRE_OK)
        status = base_stream_create_urgent(d->at, &d->reduce);
    if (status == GYRE_OK)
        status = base_stream_create_urgent(d->at, &d->gather);
    if (status == GYRE_OK)
        status = base_event_create(d->at, 0, &d->begun);
    return status; /* optim_zero_destroy ends what there is */
}

#endif
