/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/graphs.c: a stage's work between two calls of its store, launched as CUDA graphs
 * (model/gpu/graphs.h).
 *
 * A segment is a layer forward, a layer backward, one of the gradients of a layer's weights, or the same of
 * embedding and head. Not in graphs: what the store does in between (waiting for gathers, starting
 * reductions, joining gradients), events, copies of other streams and copies to the host. The key is the
 * segment with its pointers. Tokens, dropout's keys and step numbers lie in device memory. ZeRO 3's buffers
 * take turns, and each has its graph.
 *
 * All ranks of the tensor-parallel group agree on whether a segment with collectives is captured. Their keys
 * come again in the same order everywhere, and they have a table of their own, on which nothing acts that
 * could differ. */
#ifdef GYRE_CUDA
#include <string.h>

#include "base/log.h"
#include "collectives/gpu/gpu.h"
#include "model/gpu/stage/runtime.h"

/* Of all tables of all stages. A node is a kernel or a copy; 64 KiB of the device's memory each is what it
 * may cost (docs/gpu-training.md): 512 MiB at most. */
enum { MOST_NODES = 8192 };

/* Products of a layer's gradient that take so long, at half of an H100's rate, are far longer than
 * launches. */
#define LONG_SECONDS 200e-6
#define RATE_BF16    400e12
#define RATE_F32     40e12

typedef struct {
    uint64_t kind, at, j, n, flags, scale; /* scale: its bits */
    const void *slot, *in, *out, *dy_mlp, *dy_attention;
    const void *weight[MODEL_KINDS];
    const float *grad[MODEL_KINDS];
} segment_key_t;

/* What a segment leaves in the stage. */
typedef struct {
    const void *dy_mlp, *dy_attention;
    model_traffic_t traffic; /* of this segment */
} note_t;

typedef struct {
    stage_t *s;
    const segment_t *segment;
    note_t note;
} job_t;

/* ---- creation ------------------------------------------------------------------------------------------ */

/* 1: a GPU is done with a kernel of a layer in about the time that the host takes to launch one. Of
 * gradients there are most. */
static int is_short(const stage_t *s)
{
    const double rate = s->type == MODEL_CUDA_BF16 ? RATE_BF16 : RATE_F32;
    size_t elements = 0;
    const unit_t unit = s->config.layers > 0 ? s->unit_layer[0] : (unit_t){0, 0};
    for (size_t r = unit.first; r < unit.first + unit.rows; r++)
        elements += s->params->row[r].count;
    return 2.0 * (double)(s->config.grad_sequences * s->c.seq) * (double)elements <= LONG_SECONDS * rate;
}

gyre_status_t stage_graphs_create(stage_t *s)
{
    gyre_status_t status = GYRE_OK;
    if (s->config.graphs == MODEL_GRAPHS_OFF || (s->config.graphs == MODEL_GRAPHS_AUTO && !is_short(s)))
        return GYRE_OK;
    const size_t stages = s->config.stages ? s->config.stages : 1, tables = s->tp.size > 1 ? 2 : 1;
    for (size_t together = 0; status == GYRE_OK && together < tables; together++)
        status = model_cuda_graphs_create(s->stream, sizeof(segment_key_t), sizeof(note_t),
                                          MOST_NODES / (stages * tables), &s->graphs[together]);
    return status;
}

void model_cuda_stage_graphs(const model_cuda_stage_t *s, model_cuda_graphs_count_t *out)
{
    *out = (model_cuda_graphs_count_t){0};
    for (size_t i = 0; i < 2; i++)
        if (s->graphs[i]) {
            model_cuda_graphs_count_t one;
            model_cuda_graphs_count(s->graphs[i], &one);
            out->captured += one.captured;
            out->launched += one.launched;
            out->plain += one.plain;
            out->dropped += one.dropped;
            out->nodes += one.nodes;
        }
}

void stage_graphs_destroy(stage_t *s)
{
    model_cuda_graphs_count_t count;
    model_cuda_stage_graphs(s, &count);
    if (s->graphs[0])
        log_info("CUDA graphs of layers %zu..%zu: %llu captured, %llu launched, %llu dropped, %zu nodes "
                 "held; %llu times work "
                 "without one",
                 s->config.first, s->config.first + s->config.layers, (unsigned long long)count.captured,
                 (unsigned long long)count.launched, (unsigned long long)count.dropped, count.nodes,
                 (unsigned long long)count.plain);
    for (size_t i = 0; i < 2; i++) {
        model_cuda_graphs_destroy(s->graphs[i]);
        s->graphs[i] = NULL;
    }
}

/* ---- a segment ----------------------------------------------------------------------------------------- */

static int is_of_weights(const segment_t *g)
{
    return g->kind >= SEGMENT_HEAD_WEIGHTS;
}

static void enqueue(stage_t *s, const segment_t *g)
{
    switch (g->kind) {
    case SEGMENT_EMBED_FORWARD:
        stage_embed_forward(s, g->slot, g->out);
        break;
    case SEGMENT_LAYER_FORWARD:
        stage_layer_forward(s, g->slot, g->at, g->out);
        break;
    case SEGMENT_HEAD_FORWARD:
        stage_head_forward(s, g->slot);
        break;
    case SEGMENT_HEAD_BACKWARD:
        stage_head_backward(s, g->slot, g->out);
        break;
    case SEGMENT_LAYER_BACKWARD:
        stage_layer_backward(s, g->slot, g->at, g->in, g->out);
        break;
    case SEGMENT_EMBED_BACKWARD:
        stage_embed_backward(s, g->slot, g->out);
        break;
    case SEGMENT_HEAD_WEIGHTS:
        stage_head_weights(s, g->slot, g->j);
        break;
    case SEGMENT_LAYER_WEIGHTS:
        stage_layer_weights(s, g->slot, g->at, g->j);
        break;
    case SEGMENT_EMBED_WEIGHTS:
        stage_embed_weights(s, g->slot, g->j);
        break;
    }
}

static void subtract(model_traffic_t *from, const model_traffic_t *before)
{
    from->all_reduce -= before->all_reduce;
    from->reduce_scatter -= before->reduce_scatter;
    from->all_gather -= before->all_gather;
    from->sums -= before->sums;
    from->all_to_all -= before->all_to_all;
    from->loss -= before->loss;
}

static void add(model_traffic_t *to, const model_traffic_t *more)
{
    to->all_reduce += more->all_reduce;
    to->reduce_scatter += more->reduce_scatter;
    to->all_gather += more->all_gather;
    to->sums += more->sums;
    to->all_to_all += more->all_to_all;
    to->loss += more->loss;
}

/* The stage is as before but for its status; what changed is in the note. */
static gyre_status_t enqueue_job(void *user)
{
    job_t *job = user;
    stage_t *s = job->s;
    const note_t before = {s->dy_mlp, s->dy_attention, s->traffic};
    s->status = GYRE_OK;
    enqueue(s, job->segment);
    job->note = (note_t){s->dy_mlp, s->dy_attention, s->traffic};
    subtract(&job->note.traffic, &before.traffic);
    s->dy_mlp = before.dy_mlp;
    s->dy_attention = before.dy_attention;
    s->traffic = before.traffic;
    return s->status;
}

/* 1 if the segment reads weights: it may read all acquired weights, since it gets them together. */
static int reads_weights(const stage_t *s, const segment_t *g)
{
    if (g->kind == SEGMENT_EMBED_BACKWARD)
        return s->c.embed_norm;
    return !is_of_weights(g) || (g->kind == SEGMENT_LAYER_WEIGHTS && stage_is_top_query(s, g->at));
}

static segment_key_t key_of(const stage_t *s, const segment_t *g)
{
    const int drops = !g->slot->evaluate && (s->c.dropout > 0.0 || s->c.attn_dropout > 0.0);
    segment_key_t key;
    uint32_t scale;
    memset(&key, 0, sizeof key);
    memcpy(&scale, &g->scale, sizeof scale);
    key.kind = (uint64_t)g->kind;
    key.at = g->at;
    key.j = g->j;
    key.n = g->slot->n;
    key.flags = (drops ? 1u : 0u) | (g->slot->moved ? 2u : 0u) |
                (g->kind == SEGMENT_HEAD_FORWARD && g->slot->evaluate ? 4u : 0u);
    key.scale = scale;
    key.slot = g->slot;
    key.in = g->in;
    key.out = g->out;
    if (g->kind == SEGMENT_LAYER_WEIGHTS) {
        key.dy_mlp = s->dy_mlp;
        key.dy_attention = s->dy_attention;
    }
    if (reads_weights(s, g))
        memcpy(key.weight, s->weight, sizeof key.weight);
    if (is_of_weights(g))
        memcpy(key.grad, s->grad, sizeof key.grad);
    return key;
}

/* The table for segments with the group's collectives; NULL: they are enqueued one by one. The answer is
 * known once the group was used on the device; it is the same on all its ranks. */
static model_cuda_graphs_t *of_group(stage_t *s)
{
    const char *why = NULL;
    if (!s->graphs[1])
        return NULL;
    const coll_cuda_capture_t how = coll_cuda_captures(s->tp.comm, &why);
    if (how == COLL_CUDA_CAPTURE_LATER)
        return NULL;
    if (how == COLL_CUDA_CAPTURE_FREELY ||
        (how == COLL_CUDA_CAPTURE_WAITS && s->config.graphs == MODEL_GRAPHS_ON))
        return s->graphs[1];
    BASE_LOG(
        s->config.graphs == MODEL_GRAPHS_ON ? BASE_LOG_WARNING : BASE_LOG_INFO,
        "CUDA graphs: work with collectives of the tensor-parallel group is launched kernel by kernel: %s",
        why);
    model_cuda_graphs_destroy(s->graphs[1]); /* empty */
    s->graphs[1] = NULL;
    return NULL;
}

void stage_segment(stage_t *s, const segment_t *segment)
{
    const int together = s->tp.size > 1 && !is_of_weights(segment);
    model_cuda_graphs_t *graphs = together ? of_group(s) : s->graphs[0];
    if (s->status != GYRE_OK)
        return;
    if (!graphs) {
        enqueue(s, segment);
        return;
    }
    if (together && (s->status = gyre_comm_error(s->tp.comm)) != GYRE_OK)
        return;
    job_t job = {.s = s, .segment = segment};
    const segment_key_t key = key_of(s, segment);
    s->status = model_cuda_graphs_run(
        graphs,
        &(model_cuda_work_t){
            .key = &key, .enqueue = enqueue_job, .user = &job, .note = &job.note, .together = together});
    if (s->status != GYRE_OK)
        return;
    s->dy_mlp = job.note.dy_mlp;
    s->dy_attention = job.note.dy_attention;
    add(&s->traffic, &job.note.traffic);
    if (together)
        s->status = coll_cuda_replayed(s->tp.comm, s->stream);
}
#else
#include "model/gpu/stage/stage.h" /* a build without CUDA has nothing of it */
#endif
