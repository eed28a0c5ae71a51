/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/passes.c: a stage's passes on the GPU: units of rows in their order, each acquired,
 * used, and released (model/network/stage/passes.inc). */
#ifdef GYRE_CUDA
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/gpu/stage/runtime.h"

/* After the last unit. */
static const unit_t nothing = {0, 0};

/* ---- the store ----------------------------------------------------------------------------------------- */

/* 1: the unit's weights are there, and release must follow. */
static int acquire(stage_t *s, unit_t unit, unit_t next)
{
    const void *value[MODEL_KINDS] = {0};
    if (s->status == GYRE_OK)
        s->status = s->store.acquire(s->store.user, unit.first, unit.rows, next.first, next.rows, value);
    memset(s->weight, 0, sizeof s->weight);
    for (size_t i = 0; s->status == GYRE_OK && i < unit.rows; i++)
        s->weight[s->params->row[unit.first + i].kind] = value[i];
    return s->status == GYRE_OK;
}

static void release(stage_t *s, unit_t unit)
{
    s->store.release(s->store.user, unit.first, unit.rows);
}

static int place(stage_t *s, size_t slot, unit_t unit)
{
    float *grad[MODEL_KINDS] = {0};
    if (s->status == GYRE_OK)
        s->status = s->store.place(s->store.user, slot, unit.first, unit.rows, grad);
    memset(s->grad, 0, sizeof s->grad);
    for (size_t i = 0; s->status == GYRE_OK && i < unit.rows; i++)
        s->grad[s->params->row[unit.first + i].kind] = grad[i];
    return s->status == GYRE_OK;
}

static void announce(stage_t *s, size_t slot, unit_t unit)
{
    if (s->status == GYRE_OK && s->store.ready)
        s->status = s->store.ready(s->store.user, slot, unit.first, unit.rows);
}

/* Units of a stage in the order of forward: embedding, layers, head; nothing beyond either end. */
static unit_t unit_at(const stage_t *s, size_t i)
{
    size_t layers = s->config.layers;
    if (i == 0)
        return s->config.embed ? s->unit_embed : nothing;
    if (i <= layers)
        return s->unit_layer[i - 1];
    return i == layers + 1 && s->config.head ? s->unit_head : nothing;
}

/* ---- forward ------------------------------------------------------------------------------------------- */

static gyre_status_t check_tokens(const stage_t *s, const char *what, const model_token_t *tokens)
{
    if (!tokens)
        return gyre_fail(GYRE_ERR_INVALID, "a sequence has no %ss, which this stage reads", what);
    for (size_t t = 0; t < s->c.seq; t++)
        if (tokens[t] < 0 || (size_t)tokens[t] >= s->c.vocab)
            return gyre_fail(GYRE_ERR_INVALID, "%s %zu is %d: the vocabulary is 0..%zu", what, t,
                             (int)tokens[t], s->c.vocab - 1);
    return GYRE_OK;
}

static gyre_status_t check_positions(const stage_t *s, const int32_t *positions)
{
    if (positions && (!s->c.prefix || s->c.pos != MODEL_POS_ROPE))
        return gyre_fail(GYRE_ERR_INVALID,
                         "positions of a sequence need a model with prefixes and rotary positions");
    for (size_t t = 0; positions && t < s->c.seq; t++)
        if (positions[t] < 0 || (size_t)positions[t] >= s->c.seq)
            return gyre_fail(GYRE_ERR_INVALID, "position %zu is %d: they are 0..%zu", t, (int)positions[t],
                             s->c.seq - 1);
    return GYRE_OK;
}

/* Sequence j's numbers into the slot's pinned memory. */
static gyre_status_t load_one(const stage_t *s, slot_t *slot, size_t j, const model_sequence_t *sequence)
{
    size_t T = s->c.seq, bytes = T * sizeof(int32_t);
    gyre_status_t status = check_positions(s, sequence->positions);
    if (status == GYRE_OK && s->config.embed &&
        (status = check_tokens(s, "token", sequence->tokens)) == GYRE_OK)
        memcpy(slot->in.tokens + j * T, sequence->tokens, bytes);
    if (status == GYRE_OK && s->config.head && sequence->targets &&
        (status = check_tokens(s, "target", sequence->targets)) == GYRE_OK)
        memcpy(slot->in.targets + j * T, sequence->targets, bytes);
    if (status == GYRE_OK && s->c.prefix && sequence->prefix >= T)
        return gyre_fail(GYRE_ERR_INVALID,
                         "a prefix of %zu positions leaves none of the %zu positions to learn",
                         sequence->prefix, T);
    if (status != GYRE_OK)
        return status;
    slot->in.prefix[j] = s->c.prefix ? (uint32_t)sequence->prefix : 0;
    slot->moved |= sequence->positions != NULL;
    for (size_t t = 0; t < T; t++)
        slot->in.positions[j * T + t] = sequence->positions ? sequence->positions[t] : (int32_t)t;
    model_dropout_key(s->config.seed, sequence->sequence, sequence->step, 0, SITE_EMBED,
                      slot->in.keys + 4 * j);
    for (size_t l = 0; l < s->config.layers; l++)
        model_dropout_key(s->config.seed, sequence->sequence, sequence->step, s->config.first + l,
                          SITE_WEIGHTS, slot->in.weight_keys + (l * slot->n + j) * 4);
    return GYRE_OK;
}

static void load(stage_t *s, slot_t *slot, size_t n, const model_sequence_t *sequence)
{
    stage_call(s, cudaEventSynchronize(slot->read), "waiting until the last tokens were read");
    slot->state = SLOT_EMPTY;
    slot->n = n;
    slot->moved = 0;
    slot->evaluate = sequence[0].evaluate;
    for (size_t j = 0; s->status == GYRE_OK && j < n; j++)
        s->status = load_one(s, slot, j, &sequence[j]);
    /* positions with the same token are brought together among those that have one gradient */
    size_t T = s->c.seq, many = s->config.grad_sequences;
    for (size_t j = 0; s->status == GYRE_OK && s->config.embed && j < n; j += many)
        model_cuda_segments(slot->in.segments + j * T, slot->in.tokens + j * T,
                            base_min_size(many, n - j) * T, s->last);
    stage_copy(s, slot->device.tokens, slot->in.tokens, s->input_bytes);
    if (s->status == GYRE_OK)
        stage_call(s, cudaEventRecord(slot->read, s->stream), "recording an event");
}

/* The residual stream that enters layer l; after the last layer: the input of the head, or x_out. */
static void *stream_at(const stage_t *s, const slot_t *slot, size_t l, void *x_out)
{
    if (l < s->config.layers)
        return slot->layer[l].x;
    return s->config.head ? slot->x_out : x_out;
}

/* Up to and with the last layer. */
static void trunk(stage_t *s, slot_t *slot, const void *x_in, void *x_out)
{
    stage_offload_room(s, 0);
    if (!s->config.embed) {
        stage_copy(s, stream_at(s, slot, 0, x_out), x_in, slot->n * model_cuda_stage_boundary(s) * s->size);
    } else if (acquire(s, s->unit_embed, unit_at(s, 1))) {
        stage_segment(
            s,
            &(segment_t){.kind = SEGMENT_EMBED_FORWARD, .slot = slot, .out = stream_at(s, slot, 0, x_out)});
        release(s, s->unit_embed);
    }
    for (size_t l = 0; l < s->config.layers; l++)
        if (acquire(s, s->unit_layer[l], unit_at(s, l + 2))) {
            stage_offload_save(s, slot, l);
            stage_offload_room(s, l + 1);
            stage_segment(s, &(segment_t){.kind = SEGMENT_LAYER_FORWARD,
                                          .slot = slot,
                                          .at = l,
                                          .out = stream_at(s, slot, l + 1, x_out)});
            release(s, s->unit_layer[l]);
        }
}

/* The slot of n sequences that begin at `slot`; NULL with an error. */
static slot_t *find_slot(stage_t *s, size_t slot, size_t n)
{
    size_t at = slot / s->config.together;
    s->status = GYRE_OK;
    if (n >= 1 && n <= s->config.together && at < s->config.slots)
        return &s->slot[at];
    s->status =
        gyre_fail(GYRE_ERR_INVALID,
                  "a pass of %zu sequences from slot %zu on: the stage takes 1 to %zu, and has %zu slots", n,
                  slot, s->config.together, s->config.slots * s->config.together);
    return NULL;
}

/* A tensor between stages that the caller did not bring: the lower one, or (has_lower) the upper one. */
static gyre_status_t lacking_edge(const stage_t *s, const char *pass, int has_lower)
{
    return gyre_fail(GYRE_ERR_INVALID, "%s of a stage without the %s: the tensor at that edge is missing",
                     pass, !s->config.embed && !has_lower ? "embedding" : "head");
}

gyre_status_t model_cuda_stage_forward(model_cuda_stage_t *s, size_t at, size_t n,
                                       const model_sequence_t *sequence, const void *x_in, void *x_out,
                                       double *loss)
{
    slot_t *slot = find_slot(s, at, n);
    if (!slot)
        return s->status;
    if ((!s->config.embed && !x_in) || (!s->config.head && !x_out))
        return lacking_edge(s, "forward", x_in != NULL);
    for (size_t j = 0; s->config.head && j < n; j++)
        if (!sequence[j].targets)
            return gyre_fail(
                GYRE_ERR_INVALID,
                "a forward of the head needs targets; without them call model_cuda_stage_logits");
    load(s, slot, n, sequence);
    trunk(s, slot, x_in, x_out);
    if (s->config.head && acquire(s, s->unit_head, nothing)) {
        stage_segment(s, &(segment_t){.kind = SEGMENT_HEAD_FORWARD, .slot = slot});
        if (loss)
            stage_copy(s, loss, s->loss, n * sizeof *loss);
        release(s, s->unit_head);
    }
    if (s->status == GYRE_OK)
        slot->state = SLOT_FORWARD;
    return s->status;
}

gyre_status_t model_cuda_stage_logits(model_cuda_stage_t *s, const model_sequence_t *sequence,
                                      const void *x_in, size_t first, size_t count, float *logits)
{
    slot_t *slot = find_slot(s, 0, 1);
    if (!slot)
        return s->status;
    if (!s->config.head || (!s->config.embed && !x_in))
        return gyre_fail(GYRE_ERR_INVALID, "this stage cannot give logits: it lacks the %s",
                         s->config.head ? "embedding: x_in is missing" : "head");
    if (first > s->c.seq || count > s->c.seq - first)
        return gyre_fail(GYRE_ERR_INVALID,
                         "logits of %zu positions from %zu on: a sequence has only %zu positions", count,
                         first, s->c.seq);
    model_sequence_t only = *sequence;
    only.targets = NULL;
    only.evaluate = 1;
    load(s, slot, 1, &only);
    trunk(s, slot, x_in, NULL);
    if (acquire(s, s->unit_head, nothing)) {
        stage_head_logits(s, slot, first, count, logits);
        release(s, s->unit_head);
    }
    return s->status;
}

gyre_status_t model_cuda_stage_routed(model_cuda_stage_t *s, size_t at, size_t n, model_routed_t *out)
{
    slot_t *slot = find_slot(s, at, n);
    if (!slot)
        return s->status;
    if (s->c.experts == 0 || slot->n != n)
        return gyre_fail(GYRE_ERR_INVALID,
                         "statistics of experts for %zu sequences in slot %zu need a model with experts and "
                         "a forward of as many sequences",
                         n, at);
    stage_experts_routed(s, slot, out);
    return s->status;
}

/* ---- backward ------------------------------------------------------------------------------------------ */

/* Gradients of unit i's weights (unit_at), one after the other: of each sequence, or of each
 * config.grad_sequences of them. */
static void weights_of(stage_t *s, size_t at, slot_t *slot, size_t i)
{
    const unit_t unit = unit_at(s, i);
    for (size_t j = 0; j < slot->n; j += s->config.grad_sequences) {
        if (!place(s, at + j, unit))
            return;
        segment_t segment = {.kind = SEGMENT_EMBED_WEIGHTS, .slot = slot, .j = j};
        if (i == s->config.layers + 1) {
            segment.kind = SEGMENT_HEAD_WEIGHTS;
            segment.scale = slot->scale;
        } else if (i > 0) {
            segment.kind = SEGMENT_LAYER_WEIGHTS;
            segment.at = i - 1;
        }
        stage_segment(s, &segment);
        announce(s, at + j, unit);
    }
}

/* Takes the gradient through unit i, from d_x to d_in. */
static void unit_backward(stage_t *s, size_t at, slot_t *slot, size_t i, void *d_x, void *d_in)
{
    segment_t segment = {.kind = SEGMENT_EMBED_BACKWARD, .slot = slot, .out = d_x};
    if (i == s->config.layers + 1) {
        segment = (segment_t){.kind = SEGMENT_HEAD_BACKWARD, .slot = slot, .out = d_in, .scale = slot->scale};
    } else if (i > 0) {
        stage_offload_bring(s, slot, i - 1);
        segment =
            (segment_t){.kind = SEGMENT_LAYER_BACKWARD, .slot = slot, .at = i - 1, .in = d_x, .out = d_in};
        segment.scale = s->c.experts > 0 ? s->scale : 0.0f;
    }
    stage_segment(s, &segment);
    if (!s->config.split)
        weights_of(s, at, slot, i);
}

/* What backward acquires below unit i: the embedding's backward needs no weights but those of its norm. */
static unit_t below(const stage_t *s, size_t i)
{
    if (i == 0)
        return nothing;
    return i > 1 || s->c.embed_norm ? unit_at(s, i - 1) : nothing;
}

gyre_status_t model_cuda_stage_backward(model_cuda_stage_t *s, size_t at, size_t n, float scale,
                                        const void *d_out, void *d_in)
{
    slot_t *slot = find_slot(s, at, n);
    if (!slot)
        return s->status;
    if (slot->state != SLOT_FORWARD || slot->n != n)
        return gyre_fail(GYRE_ERR_INVALID,
                         "slot %zu: backward of %zu sequences needs a forward of as many in it, once", at, n);
    if (n % s->config.grad_sequences != 0)
        return gyre_fail(GYRE_ERR_INVALID,
                         "backward of %zu sequences: the number must be a multiple of %zu (--grad-sequences)",
                         n, s->config.grad_sequences);
    if ((!s->config.embed && !d_in) || (!s->config.head && !d_out))
        return lacking_edge(s, "backward", d_in != NULL);
    size_t lowest = s->config.embed ? 0 : 1, turn = 0;
    s->scale = slot->scale = scale;
    /* only the embedding writes into it, and then d_out is no longer needed */
    void *d_x = (void *)(uintptr_t)d_out;
    slot->state = SLOT_EMPTY;
    if (s->config.layers == 0 && d_out && d_in) /* nothing between the edges */
        stage_copy(s, d_in, d_out, n * model_cuda_stage_boundary(s) * s->size);
    if (s->config.layers == 0 && d_out && s->config.embed) {
        stage_copy(s, s->d_x[0], d_out, n * model_cuda_stage_boundary(s) * s->size);
        d_x = s->d_x[0];
    }
    for (size_t i = s->config.layers + 2; i-- > lowest && s->status == GYRE_OK;) {
        const unit_t unit = unit_at(s, i);
        void *to = i == lowest && d_in ? d_in : s->d_x[turn];
        int reads = i > 0 || s->c.embed_norm;
        if (unit.rows == 0)
            continue;
        if (reads && !acquire(s, unit, below(s, i)))
            break;
        unit_backward(s, at, slot, i, d_x, to);
        if (reads)
            release(s, unit);
        d_x = to;
        turn = 1 - turn;
    }
    if (s->status == GYRE_OK && s->config.split)
        slot->state = SLOT_BACKWARD;
    return s->status;
}

gyre_status_t model_cuda_stage_backward_weight(model_cuda_stage_t *s, size_t at, size_t n)
{
    slot_t *slot = find_slot(s, at, n);
    if (!slot)
        return s->status;
    if (slot->state != SLOT_BACKWARD || slot->n != n)
        return gyre_fail(
            GYRE_ERR_INVALID,
            "slot %zu: the weights' gradients need a split backward of as many sequences in it, once", at);
    slot->state = SLOT_EMPTY;
    for (size_t i = s->config.layers + 2; i-- > 0 && s->status == GYRE_OK;) {
        const unit_t unit = unit_at(s, i);
        /* of all weights only the top queries are read by a weight's gradient */
        int reads = i > 0 && i <= s->config.layers && stage_is_top_query(s, i - 1);
        if (unit.rows == 0 || (reads && !acquire(s, unit, nothing)))
            continue;
        weights_of(s, at, slot, i);
        if (reads)
            release(s, unit);
    }
    return s->status;
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
