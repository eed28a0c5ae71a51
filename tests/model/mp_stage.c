/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 1 2 4 */
/* tests/model/mp_stage.c: a stage's bits do not depend on its layout. All ranks (or the power of two below
 * them) are one tensor-parallel group; each cut of the layers into stages, with and without sequence
 * parallelism, each kind of recomputation, whole and split backward: loss, gradient of every row, all equal
 * to what one rank computes alone with one stage. And what travels is what the formula says. On 2 ranks half
 * of these run, on 4 a quarter, unless TEST_LONG=1 asks for all. */
#include "base/settings/settings.h"
#include "model/network/stage/plain_store.h"

enum { SEQUENCES = 2, DEMO = 0 };
#include "tests/model/mp_stage_whole.h"

typedef struct {
    size_t stages;
    int sequence, split;
    model_recompute_t recompute;
    model_precision_t precision;
    model_isa_t isa;
} layout_t;

/* One stage of a layout, with the slice of the model that it holds. */
typedef struct {
    model_params_t *params;
    float *weights, *grads;
    model_plain_store_t_f32 plain;
    model_stage_t_f32 *stage;
} part_t;

static size_t announced;

static gyre_status_t count_rows(void *user, size_t slot, size_t first, size_t rows)
{
    (void)user;
    (void)slot;
    (void)first;
    announced += rows;
    return GYRE_OK;
}

static void make_part(const whole_t *w, const model_tp_t *tp, const layout_t *layout, size_t index,
                      part_t *part)
{
    unsigned char has[LAYERS] = {0};
    size_t layers = LAYERS / layout->stages;
    const model_slice_t slice = {.tp_rank = tp->rank,
                                 .tp_size = tp->size,
                                 .has = has,
                                 .embed = index == 0,
                                 .head = index + 1 == layout->stages};
    memset(has + index * layers, 1, layers);
    take_slice(w, &slice, &part->params, &part->weights, &part->grads);
    part->plain = (model_plain_store_t_f32){
        .params = part->params, .weights = part->weights, .grads = part->grads, .ready = count_rows};
    const model_store_t_f32 store = model_plain_store_f32(&part->plain);
    const model_stage_config_t config = {.first = index * layers,
                                         .layers = layers,
                                         .embed = slice.embed,
                                         .head = slice.head,
                                         .slots = SEQUENCES,
                                         .recompute = layout->recompute,
                                         .precision = layout->precision,
                                         .split = layout->split,
                                         .seed = 5};
    MP_OK(model_stage_create_f32(part->params, tp, &config, &store, layout->isa, &part->stage));
}

static void free_part(part_t *part)
{
    model_stage_destroy_f32(part->stage);
    model_params_destroy(part->params);
    free(part->weights);
    free(part->grads);
}

/* The gradients of a part: into `out` where it is the reference, else equal to it. */
static void check_grads(const whole_t *w, const part_t *part, size_t i, int fill, const char *what)
{
    for (size_t r = 0; r < part->params->rows; r++) {
        const model_param_t *row = &part->params->row[r];
        float *want = w->grads[i] + w->params->row[row->global].grad + row->first,
              *got = part->grads + row->grad;
        if (fill)
            memcpy(want, got, row->count * sizeof(float));
        size_t e = 0;
        while (e < row->count && memcmp(want + e, got + e, sizeof(float)) == 0)
            e++;
        MP_CHECK(e == row->count, "%s: sequence %zu: gradient of %s[%zu]: %a, one rank has %a", what, i,
                 row->name, row->first + e, (double)got[e], (double)want[e]);
    }
}

/* Both sequences through all stages; fill: this is the reference. Returns what they gave to the group. */
static model_traffic_t run(whole_t *w, const model_tp_t *tp, const layout_t *layout, int fill,
                           const char *what)
{
    part_t part[LAYERS];
    float *edge[LAYERS + 1] = {0};
    size_t P = layout->stages, C = w->params->config.hidden, T = w->params->config.seq;
    announced = 0;
    for (size_t p = 0; p < P; p++)
        make_part(w, tp, layout, p, &part[p]);
    for (size_t p = 1; p < P; p++)
        MP_CHECK((edge[p] = calloc(model_stage_boundary_f32(part[p].stage), sizeof(float))) != NULL,
                 "memory");
    const model_config_t *c = &w->params->config;
    int32_t positions[LONGEST]; /* with prefixes: as after a blank, some places at one position */
    for (int32_t t = 0; t < LONGEST; t++)
        positions[t] = t < 5 ? t : 2;
    for (size_t i = 0; i < SEQUENCES; i++) {
        const model_sequence_t sequence = {.tokens = w->tokens[i],
                                           .targets = w->targets[i],
                                           .sequence = i,
                                           .step = 7,
                                           .prefix = 3 * i,
                                           .positions =
                                               c->prefix && c->pos == MODEL_POS_ROPE ? positions : NULL};
        for (size_t p = 0; p < P; p++)
            MP_OK(model_stage_forward_f32(part[p].stage, i, &sequence, edge[p], edge[p + 1], NULL));
    }
    for (size_t i = 0; i < SEQUENCES; i++) {
        for (size_t p = P; p-- > 0;) {
            MP_OK(model_stage_backward_f32(part[p].stage, i, 0.5f, edge[p + 1], edge[p]));
            if (!layout->split)
                check_grads(w, &part[p], i, fill, what);
        }
        const double loss = model_stage_loss_f32(part[P - 1].stage, i);
        w->loss[i] = fill ? loss : w->loss[i];
        MP_CHECK(memcmp(&loss, &w->loss[i], sizeof loss) == 0, "%s: sequence %zu: loss %a, one rank has %a",
                 what, i, loss, w->loss[i]);
    }
    for (size_t i = 0; layout->split && i < SEQUENCES; i++)
        for (size_t p = P; p-- > 0;) {
            MP_OK(model_stage_backward_weight_f32(part[p].stage, i));
            check_grads(w, &part[p], i, fill, what);
        }
    size_t rows = 0;
    model_traffic_t sum = {0};
    for (size_t p = 0; p < P; p++) {
        model_traffic_t t;
        model_stage_traffic_f32(part[p].stage, &t);
        sum.all_reduce += t.all_reduce;
        sum.reduce_scatter += t.reduce_scatter;
        sum.all_gather += t.all_gather;
        sum.loss += t.loss;
        sum.sums += t.sums;
        sum.keys += t.keys;
        rows += part[p].params->rows;
        free_part(&part[p]);
        free(edge[p]);
    }
    MP_CHECK(announced == SEQUENCES * rows, "%s: %zu rows announced of %zu", what, announced,
             SEQUENCES * rows);

    /* elements that travel per rank: 8 T C (t - 1) / t per layer, 2 T C at either end; full recomputation
     * repeats one sum of the forward and, sharded, its two gathers */
    if (tp->size > 1) {
        size_t once = SEQUENCES * T * C, again = layout->recompute == MODEL_RECOMPUTE_FULL ? LAYERS : 0;
        size_t travelled = 2 * sum.all_reduce + sum.reduce_scatter + sum.all_gather;
        size_t want = once * (8 * LAYERS + 4 + again * (layout->sequence ? 3 : 2));
        const size_t sparse = c->experts > 0 ? LAYERS - c->dense_first : 0;
        if (layout->sequence && c->shared_ffn == 0) /* neither gathered nor scattered, but sent */
            want -= once * (again > 0 ? 5 : 4) * sparse;
        if (!layout->sequence && c->shared_ffn > 0) /* sums of experts, and of those next to them */
            want += once * 4 * sparse;
        if (c->q_latent > 0) /* the input's gradient is that of the latents, which is a sum already */
            want -= once * (layout->sequence ? LAYERS : 2 * LAYERS);
        MP_CHECK(travelled == want, "%s: %zu elements (t - 1) / t travelled, expected %zu", what, travelled,
                 want);
        MP_CHECK((sum.all_reduce == 0) == (layout->sequence == 1), "%s: %zu elements all-reduced", what,
                 (size_t)sum.all_reduce);
        size_t shared = tp->keys ? SEQUENCES * LAYERS * 2 * T * w->params->config.head_dim : 0;
        MP_CHECK(sum.keys == shared, "%s: %zu elements of shared keys and values, expected %zu", what,
                 (size_t)sum.keys, shared);
        MP_CHECK(sum.loss == SEQUENCES * 3 * T, "%s: %zu elements for the loss", what, (size_t)sum.loss);
    }
    return sum;
}

/* The bytes that the library has sent over the group are those of the formula, by an algorithm that sends
 * no more than it must. */
static void check_bytes(whole_t *w, model_tp_t tp)
{
    const layout_t layout = {.stages = 2, .sequence = tp.sequence, .recompute = MODEL_RECOMPUTE_FULL};
    gyre_comm_stats_t stats = {.size = sizeof stats};
    gyre_comm_t *group = tp.comm;
    MP_OK(base_settings_set(SET_ALGO, "pairwise", "the test"));
    MP_OK(gyre_comm_split(group, 0, 0, &tp.comm)); /* one without plans */
    const model_traffic_t given = run(w, &tp, &layout, 0, "bytes");
    MP_OK(gyre_comm_stats(tp.comm, &stats));
    uint64_t sent = stats.bytes_sent, want = (2 * (given.all_reduce + given.sums + given.loss) +
                                              given.reduce_scatter + given.all_gather) *
                                             (tp.size - 1) * sizeof(float);
    MP_OK(gyre_all_reduce(&sent, &sent, 1, GYRE_UINT64, GYRE_OP(GYRE_SUM), group));
    MP_CHECK(sent == want, "tp %zu%s: %zu bytes sent by all ranks, the formula says %zu", tp.size,
             tp.sequence ? " sequence-parallel" : "", (size_t)sent, (size_t)want);
    MP_OK(gyre_comm_destroy(tp.comm));
    MP_OK(base_settings_set(SET_ALGO, NULL, "the test"));
}

/* What rank 0 computes alone with one stage, on all ranks. */
static void make_reference(whole_t *w, const model_tp_t *tp, model_precision_t precision)
{
    const model_tp_t alone = {.size = 1};
    const layout_t layout = {.stages = 1, .precision = precision, .isa = MODEL_ISA_BASE};
    if (tp->rank == 0)
        run(w, &alone, &layout, 1, "reference");
    mp_wait_for_0(tp->comm);
    MP_OK(gyre_broadcast(w->loss, w->loss, SEQUENCES, GYRE_FLOAT64, 0, tp->comm));
    for (size_t i = 0; i < SEQUENCES; i++)
        MP_OK(gyre_broadcast(w->grads[i], w->grads[i], w->params->grad_total, GYRE_FLOAT32, 0, tp->comm));
}

/* Logits of a stage of the group are those of one rank alone. */
static void check_logits(const whole_t *w, const model_tp_t *tp)
{
    const model_config_t *c = &w->params->config;
    const layout_t layout = {.stages = 1, .sequence = tp->sequence};
    const model_sequence_t sequence = {.tokens = w->tokens[0]};
    const model_tp_t alone = {.size = 1};
    part_t one, ours;
    make_part(w, &alone, &layout, 0, &one);
    make_part(w, tp, &layout, 0, &ours);
    float *want = calloc(c->seq * c->vocab, sizeof(float)), *got = calloc(c->seq * c->vocab, sizeof(float));
    MP_CHECK(want && got, "memory");
    MP_OK(model_stage_logits_f32(one.stage, &sequence, NULL, 0, c->seq, want));
    MP_OK(model_stage_logits_f32(ours.stage, &sequence, NULL, 0, c->seq, got));
    MP_CHECK(want[0] != 0.0f && memcmp(want, got, c->seq * c->vocab * sizeof(float)) == 0, "logits");
    MP_OK(model_stage_logits_f32(one.stage, &sequence, NULL, c->seq / 2, 1, want));
    MP_OK(model_stage_logits_f32(ours.stage, &sequence, NULL, c->seq / 2, 1, got));
    MP_CHECK(want[0] != 0.0f && memcmp(want, got, c->vocab * sizeof(float)) == 0, "logits of a position");
    free_part(&one);
    free_part(&ours);
    free(want);
    free(got);
}

/* Whether this one is run: all but of the large ones, and of 16 bits, which need few. Of them one in `tp`,
 * unless TEST_LONG=1 asks for all: each kind with each shape. */
static int wanted(size_t shape, const layout_t *layout, size_t tp)
{
    const size_t kind = shape + layout->recompute + (size_t)layout->split + (size_t)layout->sequence;
    const size_t one_in = getenv("TEST_LONG") ? 1 : tp;
    if (shape == DEMO || shapes[shape].config.seq == LONGEST)
        return layout->stages == 1 && layout->recompute == MODEL_RECOMPUTE_NONE && !layout->split;
    if (layout->precision == MODEL_FLOAT32)
        return (kind + layout->stages / 2) % one_in == 0;
    return layout->stages == 2 && layout->split == (layout->recompute == MODEL_RECOMPUTE_FULL) &&
           (kind + layout->precision) % (one_in > 1 ? 2 : 1) == 0;
}

/* All layouts of one shape and precision in the group; answers how many. */
static size_t run_layouts(whole_t *w, size_t shape, model_precision_t precision, model_tp_t tp)
{
    size_t runs = 0;
    layout_t layout = {.stages = 1, .precision = precision, .isa = MODEL_ISA_BEST};
    make_reference(w, &tp, precision);
    for (int sequence = 0; sequence <= (tp.size > 1); sequence++) {
        tp.sequence = layout.sequence = sequence;
        if (precision == MODEL_FLOAT32)
            check_logits(w, &tp);
        if (precision == MODEL_FLOAT32 && tp.size > 1 && shape > 0 && w->params->config.experts == 0)
            check_bytes(w, tp);
        for (layout.stages = 1; layout.stages <= LAYERS; layout.stages *= 2)
            for (int how = 0; how < 6; how++) {
                char what[160];
                layout.recompute = (model_recompute_t)(how / 2);
                layout.split = how % 2;
                if (!wanted(shape, &layout, tp.size))
                    continue;
                snprintf(what, sizeof what, "%s, precision %d, tp %zu%s, %zu stages, recompute %d, split %d",
                         shapes[shape].name, (int)precision, tp.size, sequence ? " sequence-parallel" : "",
                         layout.stages, how / 2, how % 2);
                run(w, &tp, &layout, 0, what);
                runs++;
            }
    }
    return runs;
}

int main(void)
{
    gyre_comm_t *world = NULL, *group = NULL;
    MP_OK(gyre_init(NULL, &world));
    model_tp_t tp = {.rank = (size_t)gyre_comm_rank(world), .size = 1};
    size_t runs = 0;
    while (2 * tp.size <= (size_t)gyre_comm_size(world))
        tp.size *= 2;
    int spare = tp.rank >= tp.size; /* not a power of two: this rank is one of the others' */
    MP_OK(gyre_comm_split(world, spare, 0, &group));
    if (spare)
        tp = (model_tp_t){.size = 1};
    tp.comm = group;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int precision = MODEL_FLOAT32; precision <= MODEL_FLOAT16; precision++) {
            whole_t w;
            make_whole(&shapes[s], &w);
            const size_t sharing = model_config_sharing(&w.params->config, tp.size);
            tp.keys = NULL;
            if (sharing > 1)
                MP_OK(gyre_comm_split(group, (int)(tp.rank / sharing), 0, &tp.keys));
            runs += run_layouts(&w, s, (model_precision_t)precision, tp);
            if (tp.keys)
                MP_OK(gyre_comm_destroy(tp.keys));
            free_whole(&w);
        }
    if (gyre_comm_rank(world) == 0)
        printf("%zu layouts have the bits of one rank\n", runs);
    MP_OK(gyre_comm_destroy(group));
    MP_OK(gyre_finalize(world));
    return 0;
}
