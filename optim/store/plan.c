/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/plan.c: cuts a slice of the table into buckets, and counts. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/settings/settings.h"
#include "optim/tree.h"
#include "optim/store/internal.h"

#define VERIFY_STEPS 16

static gyre_status_t check(const optim_zero_config_t *c, size_t ranks, size_t rank)
{
    if (c->stage < 0 || c->stage > 3)
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: stage %d is out of range 0..3", c->stage);
    if (ranks < 1 || rank >= ranks)
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: rank %zu is out of range for %zu data-parallel ranks", rank,
                         ranks);
    if (c->precision != MODEL_FLOAT32 && c->precision != MODEL_BFLOAT16 && c->precision != MODEL_FLOAT16)
        return gyre_fail(GYRE_ERR_INVALID, "%d is not a precision", (int)c->precision);
    if (c->weights_only && ((c->stage != 0 && c->stage != 3) || c->on_device || c->offload))
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: weights alone are for stages 0 and 3, on the host");
    if (c->grad16 && c->precision == MODEL_FLOAT32)
        return gyre_fail(GYRE_ERR_INVALID,
                         "16-bit gradients need weights in 16 bits: take bf16 or fp16, or fp32 gradients");
    if (c->muon && (c->on_device || c->offload))
        return gyre_fail(GYRE_ERR_INVALID, "Muon's state is on the host, in memory: no device, no offload");
    if (c->muon && !(c->momentum >= 0.0 && c->momentum < 1.0))
        return gyre_fail(GYRE_ERR_INVALID, "Muon: a momentum of %g is out of range 0..1", c->momentum);
    return c->precision == MODEL_FLOAT16 ? optim_scaler_check(&c->scaler) : GYRE_OK;
}

/* 1 if row r, after `count` elements of an open bucket, begins a new one. */
static int begins(const zero_plan_t *plan, size_t r, size_t count)
{
    const model_param_t *row = plan->params->row;
    if (row[r].twin || row[r - 1].twin)
        return 1;
    if ((plan->config.stage == 3 || plan->adds) && row[r].layer != row[r - 1].layer)
        return 1; /* a unit is gathered by itself; all rows of one have had as many sequences */
    return count > 0 && (count + row[r].count) * sizeof(float) > plan->config.bucket_bytes;
}

static void cut(zero_plan_t *plan, zero_bucket_t *b)
{
    optim_shard_cut(b->count, plan->ranks, plan->rank, &b->cut_first, &b->cut_count);
    int whole = plan->config.stage == 0;
    b->first = whole ? 0 : b->cut_first;
    b->own = whole ? b->count : b->cut_count;
    b->grad_at = plan->grads;
    plan->grads += b->own;
    plan->max_bucket = base_max_size(plan->max_bucket, b->count);
    plan->max_own = base_max_size(plan->max_own, b->own);
    if (plan->params->row[b->row].alias == MODEL_NONE) {
        b->at = plan->state;
        plan->state += b->own;
    }
}

int zero_plan_part(const zero_plan_t *plan, size_t r, size_t *lo, size_t *hi)
{
    const model_param_t *row = &plan->params->row[r];
    const zero_bucket_t *k = &plan->bucket[plan->bucket_of[r]];
    size_t from = row->grad - k->grad, end = from + row->count;
    *lo = base_max_size(from, k->first);
    *hi = base_min_size(end, k->first + k->own);
    return *lo < *hi;
}

int zero_plan_muon(const zero_plan_t *plan, size_t r)
{
    return plan->config.muon && !plan->config.weights_only && optim_muon_takes(&plan->params->row[r]);
}

/* Where second moments lie: back to back, without Muon's rows. */
static void place_seconds(zero_plan_t *plan, zero_bucket_t *b)
{
    size_t gap = 0, lo, hi;
    for (size_t r = b->row; r < b->row + b->rows; r++) {
        plan->gap[r] = gap;
        if (zero_plan_muon(plan, r) && zero_plan_part(plan, r, &lo, &hi))
            gap += hi - lo;
    }
    if (plan->params->row[b->row].alias != MODEL_NONE)
        return;
    b->second = plan->seconds;
    plan->seconds += b->own - gap;
}

static void make_buckets(zero_plan_t *plan)
{
    const model_params_t *params = plan->params;
    for (size_t r = 0; r < params->rows; r++) {
        const model_param_t *row = &params->row[r];
        zero_bucket_t *open = plan->buckets ? &plan->bucket[plan->buckets - 1] : NULL;
        if (!open || begins(plan, r, open->count)) {
            open = &plan->bucket[plan->buckets++];
            *open = (zero_bucket_t){.row = r, .grad = row->grad, .weight = row->offset, .alias = MODEL_NONE};
        }
        plan->bucket_of[r] = plan->buckets - 1;
        open->rows++;
        open->count += row->count;
    }
    for (size_t b = 0; b < plan->buckets; b++) {
        const model_param_t *row = &params->row[plan->bucket[b].row];
        cut(plan, &plan->bucket[b]);
        place_seconds(plan, &plan->bucket[b]);
        plan->bucket[b].tied = row->twin && row->kind == MODEL_HEAD;
        if (row->alias != MODEL_NONE)
            plan->bucket[b].alias = plan->bucket_of[row->alias];
    }
}

void zero_plan_unit(const zero_plan_t *plan, size_t row, size_t *begin, size_t *end)
{
    const model_param_t *rows = plan->params->row;
    for (*begin = row; *begin > 0 && rows[*begin - 1].layer == rows[row].layer;)
        --*begin;
    for (*end = row + 1; *end < plan->params->rows && rows[*end].layer == rows[row].layer;)
        ++*end;
}

/* *two: the most room of a unit and the one after it. */
static void measure_units(zero_plan_t *plan, size_t *two)
{
    size_t before = 0;
    *two = 0;
    for (size_t r = 0, begin, end; r < plan->params->rows; r = end) {
        zero_plan_unit(plan, r, &begin, &end);
        const size_t count = zero_plan_unit_count(plan, begin, end), room = zero_plan_room(count);
        *two = base_max_size(*two, before + room);
        before = room;
        plan->units++;
        plan->max_unit = base_max_size(plan->max_unit, count);
        plan->max_unit_buckets =
            base_max_size(plan->max_unit_buckets, plan->bucket_of[end - 1] - plan->bucket_of[begin] + 1);
    }
}

static unsigned magnitude(size_t count)
{
    unsigned bits = 0;
    while (count >>= 1)
        bits++;
    return bits;
}

/* The most buckets of the pool that one unit has rows in. *layers: some are of layers. */
static size_t most_at_once(const zero_plan_t *plan, size_t pool, int *layers)
{
    const model_param_t *rows = plan->params->row;
    size_t most = 0;
    *layers = 0;
    for (size_t r = 0, begin, end; r < plan->params->rows; r = end) {
        size_t here = 0;
        zero_plan_unit(plan, r, &begin, &end);
        for (size_t b = plan->bucket_of[begin]; b <= plan->bucket_of[end - 1]; b++)
            here += plan->bucket[b].pool == pool;
        *layers |=
            here > 0 && rows[begin].layer >= 0 && (size_t)rows[begin].layer < plan->params->config.layers;
        most = base_max_size(most, here);
    }
    return most;
}

/* Rows are never cut, so buckets are as long as the longest rows: a buffer for the embedding holds many times
 * a bucket of a layer. In each pool there are buffers for the buckets of a unit, and one that is on its way
 * while the next layer's are filled. Embedding and head have none before or after them. */
static gyre_status_t make_pools(zero_plan_t *plan)
{
    if (!(plan->pool = calloc(plan->buckets + 1, sizeof *plan->pool)))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %zu buckets", plan->buckets);
    for (unsigned bits = magnitude(plan->max_bucket) + 1; bits-- > 0;) {
        zero_pool_t *pool = &plan->pool[plan->pools];
        for (size_t b = 0; b < plan->buckets; b++)
            if (magnitude(plan->bucket[b].count) == bits) {
                plan->bucket[b].pool = plan->pools;
                pool->count = base_max_size(pool->count, plan->bucket[b].count);
                pool->buffers++;
            }
        plan->pools += pool->buffers > 0;
    }
    for (size_t i = 0; i < plan->pools; i++) {
        int layers;
        size_t most = most_at_once(plan, i, &layers);
        plan->pool[i].buffers = base_min_size(most + (layers != 0), plan->pool[i].buffers);
    }
    return GYRE_OK;
}

void optim_zero_share(optim_zero_config_t *config, const optim_batch_t *batch, const optim_part_t *part)
{
    const size_t here = base_max_size(1, part->parts);
    config->share = optim_batch_leaves(batch, part->count) * here;
    config->group = optim_batch_leaves(batch, optim_batch_group(batch)) * base_max_size(1, batch->parts);
    config->run = optim_batch_leaves(batch, part->run) * here;
    config->blocks = part->blocks;
    config->block_group = part->block_group;
}

static gyre_status_t set_share(zero_plan_t *plan, const optim_zero_config_t *config)
{
    optim_zero_config_t *c = &plan->config;
    c->share = config->share * plan->lanes;
    c->group = config->group ? config->group : 1;
    c->run = config->run ? config->run * plan->lanes : c->share;
    c->blocks = config->blocks ? config->blocks : zero_plan_reductions(plan);
    c->block_group = config->block_group ? config->block_group : 1;
    if (c->run > 0 && (c->share % c->run != 0 || c->share / c->run % c->blocks != 0))
        return gyre_fail(GYRE_ERR_INVALID,
                         "ZeRO: a share of %zu does not divide into rounds of %zu reductions of %zu",
                         c->share, c->blocks, c->run);
    return GYRE_OK;
}

/* Whole fp32 gradients have a place for each row; so have the first of two sequences, among the partial
 * sums. */
static void measure_staging(zero_plan_t *plan)
{
    const optim_zero_config_t *c = &plan->config;
    int staged = !c->weights_only && (c->grad16 || (plan->pools > 0 && c->run > 2));
    plan->staging = staged ? plan->max_unit : 0;
}

gyre_status_t zero_plan_resize(zero_plan_t *plan, const optim_zero_config_t *config)
{
    gyre_status_t status = set_share(plan, config);
    if (status == GYRE_OK && zero_plan_reductions(plan) > 1 && !plan->adds)
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: %zu reductions per step, but it was made for one",
                         zero_plan_reductions(plan));
    measure_staging(plan);
    return status;
}

size_t zero_plan_sums(const zero_plan_t *plan)
{
    const optim_zero_config_t *c = &plan->config;
    const size_t turns = optim_stack_levels(plan->lanes, 1) * plan->max_unit;
    return (plan->lanes * optim_stack_levels(c->run / plan->lanes, c->group) * plan->params->grad_total +
            turns) *
           sizeof(float);
}

size_t zero_plan_levels(const zero_plan_t *plan)
{
    const optim_zero_config_t *c = &plan->config;
    return plan->adds ? optim_stack_levels(c->blocks, c->block_group) * plan->grads * plan->grad_bytes : 0;
}

/* The buckets and this rank's shards of them: all that is a rank's own, but for its part in Muon. finish
 * follows. */
static gyre_status_t begin(const model_params_t *params, const optim_zero_config_t *config, size_t ranks,
                           size_t rank, size_t lanes, zero_plan_t *plan)
{
    *plan = (zero_plan_t){.params = params, .config = *config, .ranks = ranks, .rank = rank, .lanes = lanes};
    optim_zero_config_t *c = &plan->config;
    c->scaler = optim_scaler_complete(&c->scaler);
    c->bucket_bytes = c->bucket_bytes ? c->bucket_bytes : (size_t)base_setting_int(SET_BUCKET_BYTES);
    c->verify_steps = c->verify_steps ? c->verify_steps : VERIFY_STEPS;
    gyre_status_t status = check(c, ranks, rank);
    if (status == GYRE_OK)
        status = set_share(plan, config);
    if (status != GYRE_OK)
        return status;
    plan->bucket = calloc(params->rows + 1, sizeof *plan->bucket);
    plan->bucket_of = calloc(params->rows + 1, sizeof *plan->bucket_of);
    plan->gap = calloc(params->rows + 1, sizeof *plan->gap);
    if (!plan->bucket || !plan->bucket_of || !plan->gap) {
        zero_plan_free(plan);
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a plan of %zu parameters", params->rows);
    }
    plan->weight_bytes = c->precision != MODEL_FLOAT32 ? sizeof(uint16_t) : sizeof(float);
    plan->grad_bytes = c->grad16 ? sizeof(uint16_t) : sizeof(float);
    plan->adds = !c->weights_only && zero_plan_reductions(plan) > 1;
    plan->grad_shards = c->stage >= 2 || (c->stage == 1 && plan->adds);
    make_buckets(plan);
    return GYRE_OK;
}

static gyre_status_t finish(zero_plan_t *plan)
{
    const optim_zero_config_t *c = &plan->config;
    const int half = c->precision != MODEL_FLOAT32, many = plan->ranks > 1;
    gyre_status_t status = GYRE_OK;
    size_t two;
    measure_units(plan, &two);
    plan->gathers = c->stage == 3 && many;
    if (((c->stage >= 2 && many && !c->weights_only) || plan->adds))
        status = make_pools(plan);
    if (status == GYRE_OK)
        status = zero_plan_rounds(plan);
    if (status != GYRE_OK)
        return status;
    measure_staging(plan);
    plan->expands = half && !c->on_device;
    if (plan->gathers || plan->expands)
        plan->entries = c->keep ? plan->units : plan->gathers ? 2 : 1; /* in use, and on its way */
    if (plan->gathers && (plan->expands || !c->keep))
        plan->landing = plan->expands ? zero_plan_room(plan->max_unit) : two;
    if (plan->expands)
        plan->expanded = c->keep ? plan->params->grad_total : plan->max_unit;
    return GYRE_OK;
}

gyre_status_t zero_plan_make(const model_params_t *params, const optim_zero_config_t *config, size_t ranks,
                             size_t rank, size_t lanes, zero_plan_t *plan)
{
    gyre_status_t status = begin(params, config, ranks, rank, lanes, plan);
    if (status == GYRE_OK && (status = finish(plan)) != GYRE_OK)
        zero_plan_free(plan);
    return status;
}

void zero_plan_free(zero_plan_t *plan)
{
    free(plan->bucket);
    free(plan->bucket_of);
    free(plan->pool);
    free(plan->gap);
    free(plan->muon.row);
    plan->gap = plan->muon.row = NULL;
    plan->bucket = NULL;
    plan->pool = NULL;
    plan->bucket_of = NULL;
}

int zero_plan_needs_partner(const zero_plan_t *plan)
{
    int twins = 0;
    for (size_t r = 0; r < plan->params->rows; r++)
        twins += plan->params->row[r].twin != 0;
    return twins == 1;
}

const char *optim_memory_name(optim_memory_t kind)
{
    static const char *const name[OPTIM_MEMORY_KINDS] = {"weights", "gradients",    "master",  "moments",
                                                         "tied",    "accumulation", "buckets", "gathered",
                                                         "offload", "muon"};
    return (size_t)kind < OPTIM_MEMORY_KINDS ? name[kind] : "unknown";
}

/* Bytes of moments, but for those of a tied row. */
static size_t moments_of(const zero_plan_t *plan)
{
    const optim_zero_config_t *c = &plan->config;
    size_t sum = 0;
    if (c->offload || c->weights_only)
        return 0;
    for (size_t b = 0; b < plan->buckets; b++)
        if (plan->bucket[b].alias == MODEL_NONE && !plan->bucket[b].tied)
            sum += plan->bucket[b].own * 2 * sizeof(float);
    return sum - (plan->state - plan->seconds) * sizeof(float);
}

static void predict_memory(const zero_plan_t *plan, size_t bytes[OPTIM_MEMORY_KINDS])
{
    const optim_zero_config_t *c = &plan->config;
    int half = c->precision != MODEL_FLOAT32;
    memset(bytes, 0, OPTIM_MEMORY_KINDS * sizeof *bytes);
    for (size_t b = 0; b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b];
        int weights = k->alias == MODEL_NONE, state = weights && !c->offload && !c->weights_only;
        bytes[k->tied ? OPTIM_MEMORY_TIED : OPTIM_MEMORY_WEIGHTS] +=
            weights ? (c->stage == 3 ? k->own : k->count) * plan->weight_bytes : 0;
        bytes[k->tied ? OPTIM_MEMORY_TIED : OPTIM_MEMORY_GRADIENTS] +=
            c->weights_only ? 0 : (plan->grad_shards ? k->own : k->count) * plan->grad_bytes;
        bytes[k->tied ? OPTIM_MEMORY_TIED : OPTIM_MEMORY_MASTER] +=
            state && half ? k->own * sizeof(float) : 0;
        bytes[OPTIM_MEMORY_TIED] += state && k->tied ? k->own * 2 * sizeof(float) : 0;
    }
    bytes[OPTIM_MEMORY_MOMENTS] = moments_of(plan);
    bytes[OPTIM_MEMORY_MUON] = (plan->muon.whole + plan->muon.work + plan->muon.pack) * sizeof(float);
    bytes[OPTIM_MEMORY_ACCUMULATION] = c->weights_only ? 0 : zero_plan_sums(plan) + zero_plan_levels(plan);
    bytes[OPTIM_MEMORY_BUCKETS] = plan->staging * sizeof(float);
    for (size_t i = 0; i < plan->pools; i++)
        bytes[OPTIM_MEMORY_BUCKETS] += plan->pool[i].buffers * plan->pool[i].count * plan->grad_bytes;
    bytes[OPTIM_MEMORY_GATHERED] = plan->landing * plan->weight_bytes + plan->expanded * sizeof(float);
    if (plan->gathers && plan->landing == 0)
        bytes[OPTIM_MEMORY_GATHERED] = plan->params->grad_total * plan->weight_bytes;
    if (c->offload)
        bytes[OPTIM_MEMORY_OFFLOAD] = plan->max_own * (half ? 3 : 2) * sizeof(float);
}

static void predict_traffic(const zero_plan_t *plan, size_t passes, uint64_t sent[OPTIM_TRAFFIC_KINDS])
{
    const optim_zero_config_t *c = &plan->config;
    uint64_t others = plan->ranks - 1;
    memset(sent, 0, OPTIM_TRAFFIC_KINDS * sizeof *sent);
    for (size_t b = 0; b < plan->buckets; b++) {
        const zero_bucket_t *k = &plan->bucket[b], *w = &plan->bucket[zero_plan_weights(plan, b)];
        const model_param_t *row = &plan->params->row[k->row];
        uint64_t scatter = others ? k->count - k->cut_count : 0, times = zero_plan_reductions(plan);
        if (c->weights_only)
            ;
        else if (c->stage == 0)
            sent[OPTIM_TRAFFIC_ALL_REDUCE] += times * (scatter + others * k->cut_count);
        else
            sent[OPTIM_TRAFFIC_REDUCE_SCATTER] += times * scatter;
        if ((c->stage == 1 || c->stage == 2) && k->alias == MODEL_NONE)
            sent[OPTIM_TRAFFIC_ALL_GATHER] += others * k->cut_count;
        int again = row->layer >= 0 ||
                    plan->params->config.embed_norm; /* the embedding's backward reads a norm at most */
        size_t reads = c->keep ? passes > 0 : again ? 2 * passes : passes;
        if (plan->gathers)
            sent[OPTIM_TRAFFIC_GATHER] += others * w->cut_count * reads;
        if (row->twin && zero_plan_needs_partner(plan) && !c->weights_only)
            sent[OPTIM_TRAFFIC_TIED] += k->own;
    }
    sent[OPTIM_TRAFFIC_MUON] = zero_plan_muon_sent(plan);
}

/* ---- all stores of a run ------------------------------------------------------------------------------- */

/* Looks at the plan of each store, whose buckets are made: what is not a rank's own takes longer. */
typedef gyre_status_t look_fn_t(zero_plan_t *plan, void *user);

static gyre_status_t look_at(const model_params_t *params, const optim_zero_config_t *config, size_t ranks,
                             size_t rank, size_t lanes, look_fn_t *look, void *user)
{
    zero_plan_t plan;
    gyre_status_t status = begin(params, config, ranks, rank, lanes, &plan);
    if (status != GYRE_OK)
        return status;
    status = look(&plan, user);
    zero_plan_free(&plan);
    return status;
}

static gyre_status_t look_at_stores(const model_params_t *local, const optim_zero_config_t *config,
                                    size_t dp_size, size_t dp_rank, look_fn_t *look, void *user)
{
    const size_t ep = config->ep;
    zero_experts_t *experts;
    if (ep <= 1)
        return look_at(local, config, dp_size, dp_rank, 1, look, user);
    gyre_status_t status = zero_experts_check(local, config, dp_size);
    if (status == GYRE_OK)
        status = zero_experts_create(local, &experts);
    if (status != GYRE_OK)
        return status;
    status = look_at(experts->table[0], config, dp_size, dp_rank, 1, look, user);
    if (status == GYRE_OK)
        status = look_at(experts->table[1], config, dp_size / ep, dp_rank / ep, ep, look, user);
    zero_experts_destroy(experts);
    return status;
}

typedef struct {
    size_t passes;
    size_t *bytes;  /* [OPTIM_MEMORY_KINDS]; NULL: not wanted */
    uint64_t *sent; /* [OPTIM_TRAFFIC_KINDS]; NULL: not wanted */
} predicted_t;

static gyre_status_t predict(zero_plan_t *plan, void *user)
{
    const predicted_t *all = user;
    size_t more[OPTIM_MEMORY_KINDS];
    uint64_t sends[OPTIM_TRAFFIC_KINDS];
    gyre_status_t status = finish(plan);
    if (status != GYRE_OK)
        return status;
    predict_memory(plan, more);
    predict_traffic(plan, all->passes, sends);
    for (size_t k = 0; all->bytes && k < OPTIM_MEMORY_KINDS; k++)
        all->bytes[k] += more[k];
    for (size_t k = 0; all->sent && k < OPTIM_TRAFFIC_KINDS; k++)
        all->sent[k] += sends[k];
    return GYRE_OK;
}

gyre_status_t optim_zero_predict(const model_params_t *local, const optim_zero_config_t *config,
                                 size_t dp_size, size_t dp_rank, size_t passes,
                                 size_t bytes[OPTIM_MEMORY_KINDS], uint64_t sent[OPTIM_TRAFFIC_KINDS])
{
    predicted_t all = {.passes = passes, .bytes = bytes, .sent = sent};
    if (bytes)
        memset(bytes, 0, OPTIM_MEMORY_KINDS * sizeof *bytes);
    if (sent)
        memset(sent, 0, OPTIM_TRAFFIC_KINDS * sizeof *sent);
    return look_at_stores(local, config, dp_size, dp_rank, predict, &all);
}

static gyre_status_t predict_moments(zero_plan_t *plan, void *user)
{
    size_t *sum = user;
    *sum += moments_of(plan);
    return GYRE_OK;
}

gyre_status_t optim_zero_predict_moments(const model_params_t *local, const optim_zero_config_t *config,
                                         size_t dp_size, size_t dp_rank, size_t *bytes)
{
    size_t sum = 0;
    gyre_status_t status = look_at_stores(local, config, dp_size, dp_rank, predict_moments, &sum);
    if (status == GYRE_OK)
        *bytes = sum;
    return status;
}
