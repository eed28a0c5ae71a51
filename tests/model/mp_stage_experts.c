/* SPDX-License-Identifier: Apache-2.0 */
/* no TSan: mp_train runs the same threads */
/* ranks: 2 4 */
/* tests/model/mp_stage_experts.c: expert parallelism of a stage: ranks that share experts, each with a
 * sequence of its own, have the loss and the gradients of one rank with all experts, to the bit, each row of
 * experts once for the sequence of each rank in their order; with tensor and sequence parallelism, each kind
 * of recomputation, whole and split backward. And what travels is what the choices are. */
#include "model/network/stage/plain_store.h"

enum { SEQUENCES = 4, ROWS = 128 };
#include "tests/model/mp_stage_whole.h"

/* A stage of all layers on this rank: the part of the model that it holds, and what it has announced. */
typedef struct {
    const whole_t *whole;
    model_tp_t tp;
    size_t ep, ep_rank, sequence;
    int fill; /* 1: it is the reference */
    model_params_t *params;
    float *weights, *grads;
    model_plain_store_t_f32 plain;
    size_t times[ROWS]; /* how often each row was announced */
    const char *what;
} part_t;

/* Gradients are those of this rank's sequence, and of experts' rows of each rank's in turn. */
static gyre_status_t check_rows(void *user, size_t slot, size_t first, size_t rows)
{
    part_t *part = user;
    const whole_t *w = part->whole;
    (void)slot;
    for (size_t r = first; r < first + rows; r++) {
        const model_param_t *row = &part->params->row[r];
        const size_t origin = part->times[r]++,
                     i = model_kind_of_experts(row->kind) && part->ep > 1 ? origin : part->sequence;
        float *want = w->grads[i] + w->params->row[row->global].grad + row->first,
              *got = part->grads + row->grad;
        if (part->fill)
            memcpy(want, got, row->count * sizeof(float));
        MP_CHECK(memcmp(want, got, row->count * sizeof(float)) == 0,
                 "%s: sequence %zu: the gradient of %s is not that of one rank", part->what, i, row->name);
        memset(got, 0x7f, row->count * sizeof(float)); /* what is not made anew would show */
    }
    return GYRE_OK;
}

static void make_part(part_t *part)
{
    const whole_t *w = part->whole;
    const model_slice_t slice = {.tp_rank = part->tp.rank,
                                 .tp_size = part->tp.size,
                                 .embed = 1,
                                 .head = 1,
                                 .ep_rank = part->ep_rank,
                                 .ep_size = part->ep};
    take_slice(w, &slice, &part->params, &part->weights, &part->grads);
    MP_CHECK(part->params->rows <= ROWS, "%zu rows", part->params->rows);
    part->plain = (model_plain_store_t_f32){.params = part->params,
                                            .weights = part->weights,
                                            .grads = part->grads,
                                            .ready = check_rows,
                                            .user = part};
}

/* Choices of a sequence that have got a slot, in all layers with experts. */
static size_t filled(const model_stage_t_f32 *stage, const model_config_t *c)
{
    size_t sum = 0;
    for (size_t l = c->dense_first; l < c->layers; l++) {
        model_routed_t routed;
        model_stage_routed_f32(stage, 0, l, &routed);
        sum += c->seq * c->top_k - routed.dropped;
    }
    return sum;
}

/* One sequence forward and backward. *sent: to owners of experts and back; *kept: choices that got slots. */
static void run(part_t *part, model_stage_config_t config, uint64_t *sent, uint64_t *kept)
{
    const whole_t *w = part->whole;
    const model_config_t *c = &w->params->config;
    const size_t i = part->sequence;
    model_stage_t_f32 *stage;
    make_part(part);
    const model_store_t_f32 store = model_plain_store_f32(&part->plain);
    MP_OK(model_stage_create_f32(part->params, &part->tp, &config, &store, MODEL_ISA_BEST, &stage));
    const model_sequence_t sequence = {
        .tokens = w->tokens[i], .targets = w->targets[i], .sequence = i, .step = 7};
    MP_OK(model_stage_forward_f32(stage, 0, &sequence, NULL, NULL, NULL));
    MP_OK(model_stage_backward_f32(stage, 0, 0.5f, NULL, NULL));
    if (config.split)
        MP_OK(model_stage_backward_weight_f32(stage, 0));
    const double loss = model_stage_loss_f32(stage, 0);
    if (part->fill)
        ((whole_t *)part->whole)->loss[i] = loss;
    MP_CHECK(memcmp(&loss, &w->loss[i], sizeof loss) == 0, "%s: loss %a, one rank has %a", part->what, loss,
             w->loss[i]);
    for (size_t r = 0; r < part->params->rows; r++)
        MP_CHECK(part->times[r] == (model_kind_of_experts(part->params->row[r].kind) ? part->ep : 1),
                 "%s: %s was announced %zu times", part->what, part->params->row[r].name, part->times[r]);
    model_traffic_t traffic;
    model_stage_traffic_f32(stage, &traffic);
    *sent = traffic.all_to_all;
    *kept = filled(stage, c);
    model_stage_destroy_f32(stage);
    model_params_destroy(part->params);
    free(part->weights);
    free(part->grads);
}

/* In all ways: tp ranks share each sequence, and all others experts. */
static void share(whole_t *w, gyre_comm_t *world, size_t tp_size, int sequence, model_precision_t precision,
                  const char *name)
{
    const size_t rank = (size_t)gyre_comm_rank(world), ep = (size_t)gyre_comm_size(world) / tp_size;
    const model_config_t *c = &w->params->config;
    part_t part = {.whole = w, .ep = ep, .ep_rank = rank / tp_size, .sequence = rank / tp_size};
    model_stage_config_t config = {
        .layers = c->layers, .embed = 1, .head = 1, .slots = 1, .precision = precision, .seed = 5, .ep = ep};
    part.tp = (model_tp_t){.rank = rank % tp_size, .size = tp_size, .sequence = sequence};
    MP_OK(gyre_comm_split(world, (int)part.ep_rank, 0, &part.tp.comm));
    MP_OK(gyre_comm_split(world, (int)part.tp.rank, 0, &config.experts));
    for (int how = 0; how < 4; how++) {
        char what[160];
        uint64_t sent[2]; /* and kept */
        config.recompute = how / 2 ? MODEL_RECOMPUTE_FULL : MODEL_RECOMPUTE_NONE;
        config.split = how % 2;
        snprintf(what, sizeof what, "%s, precision %d, tp %zu%s, ep %zu, recompute %d, split %d", name,
                 (int)precision, tp_size, sequence ? " sequence-parallel" : "", ep, how / 2, how % 2);
        part.what = what;
        memset(part.times, 0, sizeof part.times);
        run(&part, config, &sent[0], &sent[1]);
        MP_OK(gyre_all_reduce(sent, sent, 2, GYRE_UINT64, GYRE_OP(GYRE_SUM), world));
        /* rows to their owners and back, with a weight there and its gradient back, forward and backward; all
         * ranks of tp count a sequence's choices */
        const uint64_t want = sent[1] / tp_size * (4 * c->hidden + 2 + (how / 2 ? c->hidden + 1 : 0));
        MP_CHECK(sequence || sent[0] == want, "%s: %llu elements travelled, not %llu", what,
                 (unsigned long long)sent[0], (unsigned long long)want);
    }
    MP_OK(gyre_comm_destroy(config.experts));
    MP_OK(gyre_comm_destroy(part.tp.comm));
}

/* What one rank makes of each sequence. */
static void make_reference(whole_t *w, model_precision_t precision)
{
    for (size_t i = 0; i < SEQUENCES; i++) {
        uint64_t sent, kept;
        part_t alone = {
            .whole = w, .tp = {.size = 1}, .ep = 1, .sequence = i, .fill = 1, .what = "reference"};
        const model_stage_config_t config = {.layers = w->params->config.layers,
                                             .embed = 1,
                                             .head = 1,
                                             .slots = 1,
                                             .precision = precision,
                                             .seed = 5};
        run(&alone, config, &sent, &kept);
        MP_CHECK(sent == 0 && kept > 0, "%llu elements travelled of one rank", (unsigned long long)sent);
    }
}

/* What a stage refuses before it takes memory. */
static void refused(const whole_t *w, gyre_comm_t *world)
{
    const model_tp_t tp = {.size = 1};
    model_stage_t_f32 *stage;
    const model_store_t_f32 store = {0};
    const model_stage_config_t good = {
        .layers = w->params->config.layers, .embed = 1, .head = 1, .slots = 2, .ep = 2, .experts = world};
    model_stage_config_t bad = good;
    bad.ep = 3;
    MP_CHECK(model_stage_create_f32(w->params, &tp, &bad, &store, MODEL_ISA_BEST, &stage) ==
                     GYRE_ERR_INVALID &&
                 strstr(gyre_last_error(), "does not divide the"),
             "%s", gyre_last_error());
    bad = good;
    bad.together = bad.grad_sequences = 2;
    MP_CHECK(model_stage_create_f32(w->params, &tp, &bad, &store, MODEL_ISA_BEST, &stage) ==
                     GYRE_ERR_UNSUPPORTED &&
                 strstr(gyre_last_error(), "each gradient is of one whole sequence"),
             "%s", gyre_last_error());
    bad = good;
    bad.experts = NULL;
    MP_CHECK(model_stage_create_f32(w->params, &tp, &bad, &store, MODEL_ISA_BEST, &stage) ==
                     GYRE_ERR_INVALID &&
                 strstr(gyre_last_error(), "a group of 1 ranks for experts: expert parallelism is of 2"),
             "%s", gyre_last_error());
}

int main(void)
{
    gyre_comm_t *world = NULL;
    size_t shared = 0;
    MP_OK(gyre_init(NULL, &world));
    const size_t ranks = (size_t)gyre_comm_size(world);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int precision = MODEL_FLOAT32; precision <= MODEL_BFLOAT16; precision++) {
            const model_config_t *c = &shapes[s].config;
            whole_t w;
            if (c->experts == 0)
                continue;
            make_whole(&shapes[s], &w);
            make_reference(&w, (model_precision_t)precision);
            for (size_t tp = 1; tp < ranks; tp *= 2)
                for (int sequence = 0; c->experts % ranks == 0 && sequence <= (tp > 1); sequence++) {
                    share(&w, world, tp, sequence, (model_precision_t)precision, shapes[s].name);
                    shared++;
                }
            if (shared == 1)
                refused(&w, world);
            free_whole(&w);
        }
    MP_CHECK(shared >= 4, "only %zu layouts", shared);
    MP_OK(gyre_finalize(world));
    return 0;
}
