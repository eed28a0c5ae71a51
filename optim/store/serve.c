/* SPDX-License-Identifier: Apache-2.0 */
/* optim/store/serve.c: what the model sees: weights in fp32 and places for gradients (model_store_t_f32). */
#include <string.h>

#include "base/error.h"
#include "optim/convert.h"
#include "optim/store/internal.h"

/* ---- weights ------------------------------------------------------------------------------------------- */

gyre_status_t zero_weights_wait(optim_zero_t *zero, size_t b)
{
    zero_run_t *run = &zero->run[b];
    if (!run->gather.pending)
        return GYRE_OK;
    base_time_t begin = base_now();
    gyre_status_t status = zero->on->wait(zero, &run->gather);
    zero_exposed(zero, MODEL_SPAN_GATHER, begin);
    return status;
}

gyre_status_t zero_weights_publish(optim_zero_t *zero, size_t b, const float *master)
{
    const zero_bucket_t *k = &zero->plan.bucket[b];
    int stage = zero->plan.config.stage;
    char *own = zero_weight_own(zero, b);
    gyre_status_t status = GYRE_OK;
    if (zero_half(zero) && master)
        status = zero->on->round_weights(zero, master, own, k->own);
    if (status != GYRE_OK)
        return status;
    if (zero_alone(zero) || stage == 0 || stage == 3)
        return GYRE_OK;
    zero->sent[OPTIM_TRAFFIC_ALL_GATHER] += (uint64_t)(zero->plan.ranks - 1) * k->cut_count;
    return zero->on->gather(zero, own, own - k->first * zero->plan.weight_bytes, zero->run[b].shards, 0,
                            &zero->run[b].gather);
}

/* Starts the gathers of the unit that `entry` is for. */
static gyre_status_t gather(optim_zero_t *zero, zero_entry_t *entry)
{
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = plan->params->row;
    size_t last = plan->bucket_of[entry->first + entry->rows - 1];
    for (size_t b = plan->bucket_of[entry->first]; b <= last; b++) {
        size_t from = zero_plan_weights(plan, b);
        const zero_bucket_t *k = &plan->bucket[from];
        char *data = entry->raw + (plan->bucket[b].grad - row[entry->first].grad) * plan->weight_bytes,
             *own = data + k->first * plan->weight_bytes;
        gyre_status_t status =
            zero->on->copy(zero, own, zero_weight_own(zero, from), k->own * plan->weight_bytes);
        if (status == GYRE_OK)
            status = zero->on->gather(zero, own, data, zero->run[from].shards, 1,
                                      &entry->request[entry->requests]);
        if (status != GYRE_OK)
            return status;
        entry->requests++;
        zero->sent[OPTIM_TRAFFIC_GATHER] += (uint64_t)(plan->ranks - 1) * k->cut_count;
    }
    return GYRE_OK;
}

/* ---- memory of entries --------------------------------------------------------------------------------- */

static size_t count_of(const optim_zero_t *zero, const zero_entry_t *entry)
{
    return entry ? zero_plan_unit_count(&zero->plan, entry->first, entry->first + entry->rows) : 0;
}

/* Where the unit is to be gathered. The model holds one unit and the next, so each takes the end of
 * `landing` that the other has not; what is expanded has left it before the next one comes (hold). Not
 * `must`: entry->raw is NULL if there is no room. */
static gyre_status_t take_raw(optim_zero_t *zero, zero_entry_t *entry, int must)
{
    const zero_plan_t *plan = &zero->plan;
    const size_t room = zero_plan_room(count_of(zero, entry));
    void *memory;
    for (int i = 0; !entry->own_raw && i < 2; i++)
        if (!zero->end[i] && room + zero_plan_room(count_of(zero, zero->end[1 - i])) <= plan->landing) {
            zero->end[i] = entry;
            entry->raw = zero->landing + (i == 0 ? 0 : plan->landing - room) * plan->weight_bytes;
            return GYRE_OK;
        }
    if (!entry->own_raw && must) { /* it holds more than was planned for */
        gyre_status_t status =
            zero_take(zero, OPTIM_MEMORY_GATHERED, plan->max_unit * plan->weight_bytes, 1, &memory);
        if (status != GYRE_OK)
            return status;
        entry->own_raw = memory;
    }
    entry->raw = entry->own_raw;
    return GYRE_OK;
}

static void give_raw(optim_zero_t *zero, zero_entry_t *entry)
{
    for (int i = 0; i < 2; i++)
        zero->end[i] = zero->end[i] == entry ? NULL : zero->end[i];
    entry->raw = NULL;
}

static gyre_status_t take_value(optim_zero_t *zero, zero_entry_t *entry)
{
    void *memory;
    if (!entry->own_value && zero->expanded && !zero->expands) {
        zero->expands = entry;
        entry->value = zero->expanded;
        return GYRE_OK;
    }
    if (!entry->own_value) { /* as above */
        gyre_status_t status =
            zero_take(zero, OPTIM_MEMORY_GATHERED, zero->plan.max_unit * sizeof(float), 1, &memory);
        if (status != GYRE_OK)
            return status;
        entry->own_value = memory;
    }
    entry->value = entry->own_value;
    return GYRE_OK;
}

static void drop(optim_zero_t *zero, zero_entry_t *entry)
{
    give_raw(zero, entry);
    zero->expands = zero->expands == entry ? NULL : zero->expands;
    entry->value = NULL;
    entry->rows = 0;
    entry->users = entry->filled = 0;
}

/* ---- units --------------------------------------------------------------------------------------------- */

/* Until the unit is there as the model wants it. */
static gyre_status_t fill(optim_zero_t *zero, zero_entry_t *entry)
{
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = plan->params->row;
    gyre_status_t status = GYRE_OK;
    base_time_t begin = base_now();
    for (size_t i = 0; i < entry->requests; i++) {
        gyre_status_t one = zero->on->wait(zero, &entry->request[i]);
        status = status == GYRE_OK ? one : status;
    }
    entry->requests = 0;
    zero_exposed(zero, MODEL_SPAN_GATHER, begin);
    if (status == GYRE_OK && plan->expands)
        status = take_value(zero, entry);
    if (status != GYRE_OK)
        return status;
    for (size_t r = entry->first; plan->expands && r < entry->first + entry->rows; r++) {
        if ((status = zero_weights_wait(zero, zero_plan_weights(plan, plan->bucket_of[r]))) != GYRE_OK)
            return status;
        size_t at = row[r].grad - row[entry->first].grad;
        const uint16_t *from = entry->raw ? (const uint16_t *)(const void *)entry->raw + at
                                          : (const uint16_t *)(const void *)zero->weights + row[r].offset;
        const float *exact = zero_exact(zero, r);
        if (exact)
            memcpy(entry->value + at, exact, row[r].count * sizeof *exact);
        else
            optim_expand(plan->config.precision, from, entry->value + at, row[r].count);
    }
    if (plan->expands)
        give_raw(zero, entry);
    entry->filled = 1;
    return GYRE_OK;
}

static zero_entry_t *find(optim_zero_t *zero, size_t first)
{
    for (size_t i = 0; i < zero->entries; i++)
        if (zero->entry[i].rows > 0 && zero->entry[i].first == first)
            return &zero->entry[i];
    return NULL;
}

/* NULL: all are in use. */
static zero_entry_t *free_entry(optim_zero_t *zero)
{
    for (size_t i = 0; i < zero->entries; i++)
        if (zero->entry[i].rows == 0)
            return &zero->entry[i];
    return NULL;
}

/* The model holds more units at a time than was planned for. */
static zero_entry_t *add_entry(optim_zero_t *zero)
{
    zero_entry_t *entry = &zero->entry[zero->entries];
    entry->request = zero->requests + zero->entries++ * zero->plan.max_unit_buckets;
    return entry;
}

/* The entry of the unit of row `row`, under way or there. *out NULL: there is no room (only without
 * `must`). */
static gyre_status_t begin_entry(optim_zero_t *zero, size_t row, int must, zero_entry_t **out)
{
    size_t first, end;
    zero_plan_unit(&zero->plan, row, &first, &end);
    if ((*out = find(zero, first)) != NULL)
        return GYRE_OK;
    if (zero->plan.config.keep && zero->entries == zero->plan.units) {
        /* each unit has its own, in the order of the table */
        size_t unit = 0;
        for (size_t r = 1; r <= first; r++)
            unit += zero->plan.params->row[r].layer != zero->plan.params->row[r - 1].layer;
        *out = &zero->entry[unit];
    } else if ((*out = free_entry(zero)) == NULL) {
        if (!must)
            return GYRE_OK;
        *out = add_entry(zero);
    }
    zero_entry_t *entry = *out;
    entry->first = first;
    entry->rows = end - first;
    if (!zero->plan.gathers)
        return GYRE_OK;
    gyre_status_t status = take_raw(zero, entry, must);
    if (status == GYRE_OK && (entry->raw || must)) /* which it has then */
        return gather(zero, entry);
    drop(zero, entry);
    *out = NULL;
    return status;
}

static gyre_status_t check_rows(const optim_zero_t *zero, size_t first, size_t rows, const char *what)
{
    const model_params_t *params = zero->plan.params;
    if (rows > 0 && first < params->rows && rows <= params->rows - first &&
        params->row[first].layer == params->row[first + rows - 1].layer)
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_INVALID,
                     "ZeRO: %s of %zu rows from row %zu on: they are not rows of one unit (%zu rows here)",
                     what, rows, first, params->rows);
}

/* The rows' weights are there; *held: their unit's buffer, or NULL: they lie in zero->weights. */
static gyre_status_t hold(optim_zero_t *zero, size_t first, size_t rows, size_t next_first, size_t next_rows,
                          zero_entry_t **held)
{
    const zero_plan_t *plan = &zero->plan;
    gyre_status_t status = check_rows(zero, first, rows, "acquire");
    *held = NULL;
    for (size_t r = first; status == GYRE_OK && r < first + rows; r++)
        status = zero_weights_wait(zero, zero_plan_weights(plan, plan->bucket_of[r]));
    if (status != GYRE_OK)
        return status;
    if (plan->entries == 0)
        return zero_progress(zero);
    zero_entry_t *entry, *ahead;
    if ((status = begin_entry(zero, first, 1, &entry)) != GYRE_OK)
        return status;
    if (entry->users++ > 0)
        return gyre_fail(GYRE_ERR_INVALID, "acquire of %s: its unit is in use already",
                         plan->params->row[first].name);
    if (!entry->filled && (status = fill(zero, entry)) != GYRE_OK)
        return status;
    *held = entry;
    if (plan->gathers && next_rows > 0 && next_first < plan->params->rows)
        status = begin_entry(zero, next_first, 0, &ahead);
    return status == GYRE_OK ? zero_progress(zero) : status;
}

static const void *weights_of(const optim_zero_t *zero, const zero_entry_t *entry, size_t r)
{
    const model_param_t *row = zero->plan.params->row;
    if (!entry)
        return zero->weights + row[r].offset * zero->plan.weight_bytes;
    size_t at = row[r].grad - row[entry->first].grad;
    return entry->value ? (const void *)(entry->value + at)
                        : (const void *)(entry->raw + at * zero->plan.weight_bytes);
}

static gyre_status_t acquire(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                             const float **value)
{
    zero_entry_t *entry;
    gyre_status_t status = hold(user, first, rows, next_first, next_rows, &entry);
    for (size_t i = 0; status == GYRE_OK && i < rows; i++)
        value[i] = weights_of(user, entry, first + i);
    return status;
}

static gyre_status_t acquire_any(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                                 const void **value)
{
    zero_entry_t *entry;
    gyre_status_t status = hold(user, first, rows, next_first, next_rows, &entry);
    for (size_t i = 0; status == GYRE_OK && i < rows; i++)
        value[i] = weights_of(user, entry, first + i);
    return status;
}

static void release(void *user, size_t first, size_t rows)
{
    optim_zero_t *zero = user;
    size_t begin, end;
    (void)rows;
    if (zero->plan.entries == 0)
        return;
    zero_plan_unit(&zero->plan, first, &begin, &end);
    zero_entry_t *entry = find(zero, begin);
    if (!entry)
        return;
    entry->users = 0;
    if (!zero->plan.config.keep)
        drop(zero, entry);
}

gyre_status_t zero_store_forget(optim_zero_t *zero)
{
    gyre_status_t status = GYRE_OK;
    for (size_t i = 0; i < zero->entries; i++) {
        zero_entry_t *entry = &zero->entry[i];
        if (entry->users)
            return gyre_fail(GYRE_ERR_INVALID, "weights cannot change while the model uses %s",
                             zero->plan.params->row[entry->first].name);
        for (size_t r = 0; r < entry->requests; r++) {
            gyre_status_t one = zero->on->wait(zero, &entry->request[r]);
            status = status == GYRE_OK ? one : status;
        }
        entry->requests = 0;
        drop(zero, entry);
    }
    return status;
}

/* 1 if the model's stage reads weights of the unit that begins at row `begin` in this pass. */
static int reads(const model_params_t *params, size_t begin, optim_pass_t pass)
{
    const model_config_t *c = &params->config;
    int layer = params->row[begin].layer;
    if (pass == OPTIM_PASS_BACKWARD)
        return layer >= 0 || c->embed_norm;
    if (pass == OPTIM_PASS_BACKWARD_WEIGHT)
        return c->top_query && layer >= 0 && (size_t)layer + 1 == c->layers;
    return 1;
}

gyre_status_t optim_zero_idle(optim_zero_t *zero, size_t first, size_t rows, optim_pass_t pass)
{
    const model_params_t *params = zero->plan.params;
    zero_entry_t *entry;
    int down = pass != OPTIM_PASS_FORWARD;
    if (rows == 0)
        return GYRE_OK;
    if (zero->experts)
        return gyre_fail(GYRE_ERR_INVALID,
                         "ZeRO: with expert parallelism no rank is idle: others need its part in each pass");
    if (first >= params->rows || rows > params->rows - first)
        return gyre_fail(GYRE_ERR_INVALID, "ZeRO: %zu rows from row %zu on are out of range: there are %zu",
                         rows, first, params->rows);
    int starts = down && zero->plan.config.share == 0 && !zero->plan.config.weights_only;
    gyre_status_t status = starts ? zero_buckets_nothing(zero) : GYRE_OK;
    if (!zero->plan.gathers)
        return status;
    for (size_t at = down ? first : first + rows;
         status == GYRE_OK && (down ? at < first + rows : at > first);) {
        size_t begin, end; /* the unit at the cursor */
        zero_plan_unit(&zero->plan, down ? at : at - 1, &begin, &end);
        at = down ? end : begin;
        if (reads(params, begin, pass) && (status = hold(zero, begin, 1, 0, 0, &entry)) == GYRE_OK)
            release(zero, begin, 1);
    }
    return status;
}

/* ---- gradients ----------------------------------------------------------------------------------------- */

/* Takes the staging memory for `rows` rows of one unit, until they are ready: a model makes one unit's
 * gradients at a time. */
static gyre_status_t stage_rows(optim_zero_t *zero, size_t first, size_t rows)
{
    if (zero->staged > 0)
        return gyre_fail(GYRE_ERR_INVALID, "place of %s: %zu rows that were given a place are not ready",
                         zero->plan.params->row[first].name, zero->staged);
    zero->staged = rows;
    return GYRE_OK;
}

/* 1: gradient j of a run is the last of its lane. */
static int ends_lane(const zero_plan_t *plan, size_t j)
{
    return j + plan->lanes >= plan->config.run;
}

/* Where sums over lanes lie that row r's is among: the lanes of a unit end one right after another. */
static size_t in_unit(const zero_plan_t *plan, size_t r)
{
    size_t begin, end;
    zero_plan_unit(plan, r, &begin, &end);
    return plan->params->row[r].grad - plan->params->row[begin].grad;
}

/* Where the sums are that gradient j of row r may be computed among; NULL: nowhere. */
static float *stack_place(const optim_zero_t *zero, size_t r, size_t j)
{
    const zero_plan_t *plan = &zero->plan;
    const int turn = plan->lanes > 1 && ends_lane(plan, j);
    if (j + 1 == plan->config.run)
        return NULL;
    float *stack = turn ? optim_stack_place(zero->turns, j % plan->lanes) : optim_stack_place(zero->stack, j);
    return stack ? stack + (turn ? in_unit(plan, r) : plan->params->row[r].grad) : NULL;
}

static gyre_status_t place(void *user, size_t slot, size_t first, size_t rows, float **grad)
{
    optim_zero_t *zero = user;
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = plan->params->row;
    gyre_status_t status = check_rows(zero, first, rows, "place");
    (void)slot; /* sequences come to each row in their order */
    if (status != GYRE_OK)
        return status;
    size_t i = zero->seen[first], share = plan->config.share;
    if (i >= share)
        return gyre_fail(GYRE_ERR_INVALID,
                         "%s: gradient of sequence %zu, but this rank's share is %zu sequences",
                         row[first].name, i, share);
    size_t run = plan->config.run, j = i % run;
    const int stack = stack_place(zero, first, j) != NULL;
    int direct = !plan->config.grad16 && (j + 1 == run || plan->pools == 0);
    if (!stack && !direct && (status = stage_rows(zero, first, rows)) != GYRE_OK)
        return status;
    for (size_t r = first; r < first + rows; r++) {
        size_t b = plan->bucket_of[r];
        if (zero->seen[r] != i)
            return gyre_fail(GYRE_ERR_INVALID, "%s has had %zu sequences and %s %zu: units go together",
                             row[r].name, zero->seen[r], row[first].name, i);
        if (stack) {
            zero->placed[r] = stack_place(zero, r, j);
        } else if (!direct) {
            zero->placed[r] = zero->staging + (row[r].grad - row[first].grad);
        } else {
            if ((status = zero_bucket_open(zero, b)) != GYRE_OK)
                return status;
            zero->placed[r] = (float *)(void *)zero->run[b].data + (row[r].grad - plan->bucket[b].grad);
        }
        grad[r - first] = zero->placed[r];
    }
    return GYRE_OK;
}

static int is_staged(const optim_zero_t *zero, const float *placed)
{
    return zero->staging && placed >= zero->staging && placed < zero->staging + zero->plan.max_unit;
}

/* Rows first .. end - 1 of one bucket, which follow each other in memory and in the table: the gradients of
 * the last sequence of a run, joined with those before, in the bucket. */
static gyre_status_t complete(optim_zero_t *zero, size_t first, size_t end, size_t count)
{
    const model_param_t *row = &zero->plan.params->row[first];
    size_t b = zero->plan.bucket_of[first];
    float *value = zero->placed[first];
    gyre_status_t status = optim_stack_finish(zero->stack, value, row->grad, count);
    if (status == GYRE_OK && zero->turns)
        status = optim_stack_finish(zero->turns, value, in_unit(&zero->plan, first), count);
    if (status == GYRE_OK && zero->plan.config.grad16) {
        status = zero_bucket_open(zero, b);
        if (status == GYRE_OK)
            status = zero->on->round_grads(
                zero, value,
                zero->run[b].data + (row->grad - zero->plan.bucket[b].grad) * zero->plan.grad_bytes, count);
    }
    for (size_t r = first; status == GYRE_OK && r < end; r++)
        status = zero_bucket_ready(zero, b);
    return status;
}

/* The first row after `first`, below `end`, that cannot be joined in one call with those before it; *count:
 * their elements. Sums go element by element, so where they are cut changes no bit, but on a device every
 * call is a launch, once per sequence. */
static size_t run_of(const optim_zero_t *zero, size_t first, size_t end, size_t *count)
{
    const zero_plan_t *plan = &zero->plan;
    const model_param_t *row = plan->params->row;
    size_t r = first + 1;
    *count = row[first].count;
    while (r < end && zero->placed[r] == zero->placed[first] + *count &&
           row[r].grad == row[first].grad + *count && zero->seen[r] == zero->seen[first] &&
           plan->bucket_of[r] == plan->bucket_of[first])
        *count += row[r++].count;
    return r;
}

static gyre_status_t ready(void *user, size_t slot, size_t first, size_t rows)
{
    optim_zero_t *zero = user;
    const model_param_t *row = zero->plan.params->row;
    gyre_status_t status = check_rows(zero, first, rows, "ready");
    (void)slot;
    for (size_t r = first, end, count; status == GYRE_OK && r < first + rows; r = end) {
        if (!zero->placed[r])
            return gyre_fail(GYRE_ERR_INVALID, "%s is ready, but was given no place", row[r].name);
        size_t run = zero->plan.config.run, i = run ? zero->seen[r] % run : 0;
        end = run_of(zero, r, first + rows, &count);
        if (i + 1 == run)
            status = complete(zero, r, end, count);
        else
            status = optim_stack_push(zero->stack, i, zero->placed[r], row[r].grad, count);
        if (status == GYRE_OK && zero->turns && i + 1 < run && ends_lane(&zero->plan, i))
            status = optim_stack_push(zero->turns, i % zero->plan.lanes, zero->placed[r],
                                      in_unit(&zero->plan, r), count);
        for (size_t done = r; done < end; done++) {
            zero->seen[done]++;
            if (is_staged(zero, zero->placed[done]))
                zero->staged--;
            zero->placed[done] = NULL;
        }
    }
    return status == GYRE_OK ? zero_progress(zero) : status;
}

void zero_store_init(optim_zero_t *zero)
{
    zero->store = (model_store_t_f32){
        .acquire = acquire, .release = release, .place = place, .ready = ready, .user = zero};
    zero->cuda_store = (model_cuda_store_t){
        .acquire = acquire_any, .release = release, .place = place, .ready = ready, .user = zero};
}
