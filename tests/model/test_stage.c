/* A stage alone: gradients against central differences in double, order and errors of the store's calls, refusals, memory. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/network/stage/plain_store.h"
#include "base/random.h"
#include "tests/model/f64/f64.h"

#define EPS 1e-5
#define TOL 1e-7

typedef struct {
    model_params_t *params;
    double *weights, *grads;
    model_plain_store_t_f64 plain;
    model_stage_t_f64 *stage;
    model_token_t tokens[16], targets[16];
    int32_t positions[16];
    model_sequence_t sequence;
} whole_t;

static const model_tp_t alone = {.size = 1};

static void make(whole_t *w, const model_config_t *config, model_stage_config_t how)
{
    assert_int_equal(model_params_create(config, &w->params), GYRE_OK);
    w->weights = calloc(w->params->total, sizeof(double));
    w->grads = calloc(w->params->grad_total, sizeof(double));
    assert_true(w->weights && w->grads);
    for (size_t i = 0; i < w->params->total; i++)
        w->weights[i] = 0.3 * model_random_normal(11, MODEL_RANDOM_DATA, 0, i);
    for (size_t r = 0; r < w->params->rows; r++)
        for (size_t i = 0; w->params->row[r].init == MODEL_INIT_ONE && i < w->params->row[r].count; i++)
            w->weights[w->params->row[r].offset + i] += 1.0;
    for (size_t t = 0; t < config->seq; t++) {
        w->tokens[t] = (model_token_t)(t * t % config->vocab);
        w->targets[t] = (model_token_t)((t * 5 + 2) % config->vocab);
        w->positions[t] = t < 4 ? (int32_t)t : 1; /* as after a blank: two places at one position */
    }
    w->sequence =
        (model_sequence_t){.tokens = w->tokens, .targets = w->targets, .sequence = 3, .step = 4, .prefix = 2};
    if (config->prefix && config->pos == MODEL_POS_ROPE)
        w->sequence.positions = w->positions;
    w->plain = (model_plain_store_t_f64){.params = w->params, .weights = w->weights, .grads = w->grads};
    const model_store_t_f64 store = model_plain_store_f64(&w->plain);
    how.layers = config->layers;
    how.embed = how.head = 1;
    how.slots = how.slots ? how.slots : 1;
    assert_int_equal(model_stage_create_f64(w->params, &alone, &how, &store, MODEL_ISA_BEST, &w->stage),
                     GYRE_OK);
}

static void unmake(whole_t *w)
{
    model_stage_destroy_f64(w->stage);
    model_params_destroy(w->params);
    free(w->weights);
    free(w->grads);
}

static double loss_of(whole_t *w)
{
    double loss = 0.0;
    assert_int_equal(model_stage_forward_f64(w->stage, 0, &w->sequence, NULL, NULL, &loss), GYRE_OK);
    return loss + model_stage_balance_f64(w->stage, 0);
}

/* Sums of the gradients that were reported ready. */
typedef struct {
    const whole_t *whole;
    double *sum;            /* [grad_total] */
    size_t calls, slots[2]; /* of the first row's */
} gathered_t;

static gyre_status_t gather(void *user, size_t slot, size_t first, size_t rows)
{
    gathered_t *g = user;
    const model_param_t *row = &g->whole->params->row[first];
    if (first == 0)
        g->slots[g->calls++ % 2] = slot;
    for (size_t i = row->grad; i < row[rows - 1].grad + row[rows - 1].count; i++)
        g->sum[i] += g->whole->grads[i];
    return GYRE_OK;
}

enum { MANY = 6 };
/* The gradients of MANY sequences, of which config.grad_sequences at a time have one. */
static gathered_t gathered(whole_t *w, const model_config_t *config, model_stage_config_t how)
{
    model_token_t tokens[MANY][16];
    model_sequence_t sequence[MANY];
    double loss[MANY];
    how.slots = how.together = MANY;
    make(w, config, how);
    gathered_t g = {.whole = w, .sum = calloc(w->params->grad_total, sizeof(double))};
    assert_non_null(g.sum);
    w->plain.user = &g;
    w->plain.ready = gather;
    memset(w->grads, 0xff, w->params->grad_total * sizeof(double));
    for (size_t j = 0; j < MANY; j++) {
        for (size_t t = 0; t < config->seq; t++)
            tokens[j][t] = (model_token_t)((t * (j + 1) + j) % config->vocab);
        sequence[j] = w->sequence;
        sequence[j].tokens = tokens[j];
        sequence[j].sequence = j;
    }
    assert_int_equal(model_stage_forward_batch_f64(w->stage, 0, MANY, sequence, NULL, NULL, loss), GYRE_OK);
    if (how.grad_sequences > 1)
        assert_int_equal(model_stage_backward_batch_f64(w->stage, 0, how.grad_sequences - 1, 1.0, NULL, NULL),
                         GYRE_ERR_INVALID);
    assert_int_equal(model_stage_backward_batch_f64(w->stage, 0, MANY, 1.0, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_batch_f64(w->stage, 0, MANY), GYRE_OK);
    return g;
}

/* One gradient of three sequences is the sum of theirs, except for last bits, and is reported once, under the
 * first one's slot. */
static void check_several(const model_config_t *config, model_stage_config_t how)
{
    whole_t each = {0}, three = {0};
    gathered_t want = gathered(&each, config, how);
    how.grad_sequences = 3;
    gathered_t got = gathered(&three, config, how);
    assert_int_equal(want.calls, MANY);
    assert_int_equal(got.calls, MANY / 3);
    assert_int_equal(got.slots[0], 0);
    assert_int_equal(got.slots[1], 3);
    double most = 0.0;
    for (size_t i = 0; i < each.params->grad_total; i++)
        most = fmax(most, fabs(want.sum[i]));
    for (size_t i = 0; i < each.params->grad_total; i++)
        assert_true(fabs(got.sum[i] - want.sum[i]) <= 1e-14 * most);
    free(want.sum);
    free(got.sum);
    unmake(&each);
    unmake(&three);
}

/* Every gradient of the table against central differences; a tied weight's is the sum of two. And those of several sequences. */
static void check_gradients(const char *what, const model_config_t *config, model_stage_config_t how)
{
    whole_t w = {0};
    make(&w, config, how);
    memset(w.grads, 0xff, w.params->grad_total * sizeof(double)); /* NaN: every element must be written */
    loss_of(&w);
    assert_int_equal(model_stage_backward_f64(w.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_f64(w.stage, 0), GYRE_OK);
    double worst = 0.0;
    for (size_t r = 0; r < w.params->rows; r++) {
        const model_param_t *row = &w.params->row[r];
        if (row->alias != MODEL_NONE)
            continue;
        size_t head = row->twin ? model_params_find(w.params, MODEL_HEAD, 0) : MODEL_NONE;
        for (size_t i = 0; i < row->count; i++) {
            double *x = w.weights + row->offset + i, keep = *x, got = w.grads[row->grad + i];
            if (head != MODEL_NONE)
                got += w.grads[w.params->row[head].grad + i];
            *x = keep + EPS;
            double up = loss_of(&w);
            *x = keep - EPS;
            double want = (up - loss_of(&w)) / (2 * EPS);
            *x = keep;
            double error = fabs(want - got) / fmax(1.0, fabs(want));
            if (!(error < TOL))
                print_message("%s[%zu]: %.12g, differences say %.12g\n", row->name, i, got, want);
            worst = fmax(worst, error);
            assert_true(error < TOL);
        }
    }
    print_message("%-44s %.1e\n", what, worst);
    unmake(&w);
    check_several(config, how);
}

static const model_config_t gpt2 = {
    .vocab = 11, .seq = 6, .layers = 2, .hidden = 8, .heads = 4, .leaves = 4, .vocab_padded = 12};

static void gradients(void **state)
{
    (void)state;
    model_config_t c = gpt2;
    check_gradients("gpt-2, four leaves", &c, (model_stage_config_t){0});
    check_gradients("split backward, full recomputation", &c,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL});
    c.leaves = 1;
    c.vocab_padded = 0;
    check_gradients("one leaf", &c, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_SELECTIVE});
    c = gpt2;
    c.leaves = c.kv_heads = 2;
    c.untied = 1;
    c.no_qkv_bias = 1;
    check_gradients("grouped queries, untied, no bias of q, k, v", &c, (model_stage_config_t){0});
    c.no_proj_bias = c.no_mlp_bias = 1;
    c.pos_offset = 2;
    c.dropout = 0.2;
    check_gradients("no biases, offset positions, dropout", &c, (model_stage_config_t){.seed = 9});
}

/* Each feature that distinguishes an architecture from GPT-2, and the architectures themselves. */
static void architectures(void **state)
{
    (void)state;
    const model_config_t opt = {.vocab = 11,
                                .seq = 6,
                                .layers = 2,
                                .hidden = 8,
                                .heads = 4,
                                .leaves = 2,
                                .act = MODEL_ACT_GELU_FAST, /* ReLU has no derivative at 0 */
                                .pos_offset = 2};
    check_gradients("OPT, fast GELU", &opt, (model_stage_config_t){0});
    const model_config_t bloom = {.vocab = 11,
                                  .seq = 6,
                                  .layers = 2,
                                  .hidden = 12,
                                  .heads = 6,
                                  .leaves = 2,
                                  .pos = MODEL_POS_ALIBI,
                                  .embed_norm = 1,
                                  .attn_dropout = 0.2,
                                  .dropout = 0.1};
    check_gradients("BLOOM", &bloom, (model_stage_config_t){0});
    check_gradients("BLOOM, split", &bloom,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL});
    model_config_t neox = {.vocab = 11,
                           .seq = 6,
                           .layers = 2,
                           .hidden = 16,
                           .heads = 2,
                           .leaves = 2,
                           .pos = MODEL_POS_ROPE,
                           .rotary_dim = 4,
                           .act = MODEL_ACT_GELU_ERF,
                           .parallel = 1,
                           .untied = 1};
    check_gradients("GPT-NeoX", &neox, (model_stage_config_t){0});
    neox.dropout = 0.1;
    check_gradients("GPT-NeoX, split", &neox,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL});
    model_config_t llama = {.vocab = 11,
                            .seq = 6,
                            .layers = 2,
                            .hidden = 8,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 4,
                            .ffn = 12,
                            .leaves = 2,
                            .pos = MODEL_POS_ROPE,
                            .norm = MODEL_NORM_RMS,
                            .norm_eps = 1e-6,
                            .act = MODEL_ACT_SILU,
                            .gated = 1,
                            .untied = 1,
                            .no_qkv_bias = 1,
                            .no_proj_bias = 1,
                            .no_mlp_bias = 1};
    check_gradients("LLaMA", &llama, (model_stage_config_t){0});
    llama.untied = 0;
    llama.rope_interleaved = 1;
    check_gradients("LLaMA, tied, neighbours, recomputation", &llama,
                    (model_stage_config_t){.recompute = MODEL_RECOMPUTE_FULL});
    const model_config_t glm = {.vocab = 11,
                                .seq = 6,
                                .layers = 2,
                                .hidden = 8,
                                .heads = 2,
                                .ffn = 12,
                                .leaves = 2,
                                .pos = MODEL_POS_ROPE,
                                .post_norm = 1,
                                .deepnorm = 2.0,
                                .act = MODEL_ACT_GELU_ERF,
                                .gated = 1,
                                .prefix = 1};
    check_gradients("GLM-130B", &glm, (model_stage_config_t){0});
    check_gradients("GLM-130B, split", &glm,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL});
    const model_config_t codegeex = {.vocab = 11,
                                     .seq = 6,
                                     .layers = 2,
                                     .hidden = 8,
                                     .heads = 4,
                                     .leaves = 2,
                                     .act = MODEL_ACT_GELU_FAST,
                                     .top_query = 1};
    check_gradients("CodeGeeX", &codegeex, (model_stage_config_t){0});
    check_gradients("CodeGeeX, split", &codegeex,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_SELECTIVE});
}

/* Experts with room for all, with too little room (positions are dropped), one choice, gates and the balance loss. */
static void experts(void **state)
{
    (void)state;
    model_config_t c = {.vocab = 11,
                        .seq = 6,
                        .layers = 2,
                        .hidden = 8,
                        .heads = 2,
                        .ffn = 10,
                        .leaves = 2,
                        .pos = MODEL_POS_ROPE,
                        .norm = MODEL_NORM_RMS,
                        .act = MODEL_ACT_SILU,
                        .gated = 1,
                        .untied = 1,
                        .no_qkv_bias = 1,
                        .no_proj_bias = 1,
                        .no_mlp_bias = 1,
                        .experts = 4,
                        .top_k = 2,
                        .capacity = 2.0};
    check_gradients("experts", &c, (model_stage_config_t){0});
    c.balance = 0.5;
    c.capacity = 0.5;
    check_gradients("experts, dropped positions, balance", &c, (model_stage_config_t){0});
    check_gradients("experts, split", &c,
                    (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL});
    c.top_k = 1;
    c.gated = 0;
    c.dropout = 0.1;
    c.capacity = 4.0;
    check_gradients("experts, one choice", &c, (model_stage_config_t){0});
    c.dropout = 0.0;
    c.post_norm = 1;
    c.deepnorm = 1.5;
    c.leaves = 4;
    c.heads = 4;
    check_gradients("experts behind a post-norm", &c, (model_stage_config_t){.split = 1});
}

/* Validation and logits see the model without dropout of any kind: to the bit what one that has none computes. */
static void no_dropout_in_evaluation(void **state)
{
    (void)state;
    whole_t plain = {0}, dropping = {0};
    double out[2][6 * 11];
    model_config_t c = gpt2;
    make(&plain, &c, (model_stage_config_t){0});
    c.dropout = 0.5;
    c.attn_dropout = 0.5;
    make(&dropping, &c, (model_stage_config_t){.seed = 9, .recompute = MODEL_RECOMPUTE_FULL});
    double loss = loss_of(&plain);
    assert_true(loss_of(&dropping) != loss);
    dropping.sequence.evaluate = 1;
    assert_true(loss_of(&dropping) == loss);
    dropping.sequence.evaluate = 0;
    assert_int_equal(model_stage_logits_f64(plain.stage, &plain.sequence, NULL, 0, 6, out[0]), GYRE_OK);
    assert_int_equal(model_stage_logits_f64(dropping.stage, &dropping.sequence, NULL, 0, 6, out[1]), GYRE_OK);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    unmake(&plain);
    unmake(&dropping);
}

/* Logits of one position are those among the logits of all, with a sum's last bits at most apart. */
static void logits_of_one_position(void **state)
{
    (void)state;
    whole_t w = {0};
    double all[6 * 11], one[11];
    make(&w, &gpt2, (model_stage_config_t){0});
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 0, 6, all), GYRE_OK);
    for (size_t t = 0; t < 6; t++) {
        assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, t, 1, one), GYRE_OK);
        for (size_t v = 0; v < 11; v++)
            assert_true(fabs(one[v] - all[t * 11 + v]) <= 1e-12);
    }
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 6, 1, one), GYRE_ERR_INVALID);
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 1, SIZE_MAX, one), GYRE_ERR_INVALID);
    unmake(&w);
}

/* The embedding's gradient is shrunk, and only that; a prefix must leave something to learn. */
static void shrunk_embedding(void **state)
{
    (void)state;
    whole_t plain = {0}, shrunk = {0};
    model_config_t c = gpt2;
    c.untied = 1;
    c.prefix = 1;
    make(&plain, &c, (model_stage_config_t){0});
    c.embed_shrink = 0.25;
    make(&shrunk, &c, (model_stage_config_t){0});
    assert_true(loss_of(&plain) == loss_of(&shrunk));
    assert_int_equal(model_stage_backward_f64(plain.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    assert_int_equal(model_stage_backward_f64(shrunk.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    for (size_t r = 0; r < plain.params->rows; r++) {
        const model_param_t *row = &plain.params->row[r];
        double factor = row->kind == MODEL_WTE ? 0.25 : 1.0;
        for (size_t i = 0; i < row->count; i++)
            assert_true(fabs(shrunk.grads[row->grad + i] - factor * plain.grads[row->grad + i]) < 1e-15);
    }
    double loss;
    plain.sequence.positions = plain.positions; /* learned ones are where they are */
    assert_int_equal(model_stage_forward_f64(plain.stage, 0, &plain.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    plain.sequence.positions = NULL;
    plain.sequence.prefix = 6;
    assert_int_equal(model_stage_forward_f64(plain.stage, 0, &plain.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    unmake(&plain);
    unmake(&shrunk);
}

/* Positions that count up are those of no positions, to the bit; others are refused beyond the sequence. */
static void positions(void **state)
{
    (void)state;
    whole_t w = {0};
    model_config_t c = gpt2;
    c.pos = MODEL_POS_ROPE;
    c.prefix = 1;
    c.heads = c.leaves = 2;
    make(&w, &c, (model_stage_config_t){0});
    double turned = loss_of(&w);
    w.sequence.positions = NULL;
    double plain = loss_of(&w);
    assert_true(plain != turned);
    for (size_t t = 0; t < c.seq; t++)
        w.positions[t] = (int32_t)t;
    w.sequence.positions = w.positions;
    assert_true(loss_of(&w) == plain);
    double loss;
    for (int bad = 0; bad < 2; bad++) {
        w.positions[3] = bad ? -1 : 6;
        assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss),
                         GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "position 3 is"));
    }
    unmake(&w);
}

/* ---- the store's calls ---------------------------------------------------------------------------------------------- */

enum { CALLS = 64 };
typedef struct {
    model_store_t_f64 inner;
    char log[CALLS]; /* a: acquire, r: release, p: place, d: ready (done) */
    size_t first[CALLS], next[CALLS], calls;
    size_t fail_at; /* this call fails */
    size_t held;
} spy_t;

static gyre_status_t note(spy_t *spy, char what, size_t first, size_t next)
{
    assert_true(spy->calls < CALLS);
    spy->log[spy->calls] = what;
    spy->first[spy->calls] = first;
    spy->next[spy->calls] = next;
    return spy->calls++ == spy->fail_at ? GYRE_ERR_ABORTED : GYRE_OK;
}

static gyre_status_t spy_acquire(void *user, size_t first, size_t rows, size_t next_first, size_t next_rows,
                                 const double **value)
{
    spy_t *spy = user;
    gyre_status_t status = note(spy, 'a', first, next_rows ? next_first : SIZE_MAX);
    if (status != GYRE_OK)
        return status;
    assert_int_equal(spy->held, 0); /* one unit at a time */
    spy->held = rows;
    return spy->inner.acquire(spy->inner.user, first, rows, next_first, next_rows, value);
}

static void spy_release(void *user, size_t first, size_t rows)
{
    spy_t *spy = user;
    note(spy, 'r', first, SIZE_MAX);
    assert_int_equal(spy->held, rows);
    spy->held = 0;
}

static gyre_status_t spy_place(void *user, size_t slot, size_t first, size_t rows, double **grad)
{
    spy_t *spy = user;
    gyre_status_t status = note(spy, 'p', first, SIZE_MAX);
    return status == GYRE_OK ? spy->inner.place(spy->inner.user, slot, first, rows, grad) : status;
}

static gyre_status_t spy_ready(void *user, size_t slot, size_t first, size_t rows)
{
    (void)slot;
    (void)rows;
    return note(user, 'd', first, SIZE_MAX);
}

static void calls_in_order(void **state)
{
    (void)state;
    whole_t w = {0};
    make(&w, &gpt2, (model_stage_config_t){0});
    model_stage_destroy_f64(w.stage);
    w.stage = NULL;
    spy_t spy = {.inner = model_plain_store_f64(&w.plain), .fail_at = SIZE_MAX};
    const model_store_t_f64 store = {spy_acquire, spy_release, spy_place, spy_ready, &spy};
    model_stage_config_t how = {.layers = 2, .embed = 1, .head = 1, .slots = 1};
    assert_int_equal(model_stage_create_f64(w.params, &alone, &how, &store, MODEL_ISA_BEST, &w.stage),
                     GYRE_OK);

    /* 3 rows of the head, 12 of each layer, 2 of the embedding */
    loss_of(&w);
    assert_int_equal(spy.calls, 8);
    assert_memory_equal(spy.log, "arararar", 8);
    const size_t forward[4] = {27, 15, 3, 0};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(spy.first[2 * i], forward[i]);
        assert_int_equal(spy.next[2 * i], i < 3 ? forward[i + 1] : SIZE_MAX);
    }
    spy.calls = 0;
    assert_int_equal(model_stage_backward_f64(w.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    assert_int_equal(spy.calls, 14);
    const char *const backward = "apdrapdrapdrpd";
    assert_memory_equal(spy.log, backward, 14);
    assert_int_equal(spy.next[0], 3);
    assert_int_equal(spy.next[4], 15);
    assert_int_equal(spy.next[8], SIZE_MAX);
    assert_int_equal(spy.first[13], 27);

    /* once per forward; whichever call fails ends the pass with its status, and nothing stays acquired */
    assert_int_equal(model_stage_backward_f64(w.stage, 0, 1.0, NULL, NULL), GYRE_ERR_INVALID);
    assert_int_equal(model_stage_backward_weight_f64(w.stage, 0), GYRE_ERR_INVALID);
    for (size_t i = 0; i < 14; i++) {
        if (backward[i] == 'r')
            continue;
        spy.fail_at = SIZE_MAX;
        spy.calls = 0;
        loss_of(&w);
        spy.calls = 0;
        spy.fail_at = i;
        assert_int_equal(model_stage_backward_f64(w.stage, 0, 1.0, NULL, NULL), GYRE_ERR_ABORTED);
        assert_int_equal(spy.held, 0);
        assert_int_equal(spy.calls, i + 1 + (i < 12 && backward[i] != 'a'));
    }

    /* two sequences: units are acquired as often, and gradients come one sequence after the other in each */
    model_stage_destroy_f64(w.stage);
    how.slots = how.together = 2;
    assert_int_equal(model_stage_create_f64(w.params, &alone, &how, &store, MODEL_ISA_BEST, &w.stage),
                     GYRE_OK);
    const model_sequence_t two[2] = {w.sequence, w.sequence};
    double loss[2];
    spy.fail_at = SIZE_MAX;
    spy.calls = 0;
    assert_int_equal(model_stage_forward_batch_f64(w.stage, 0, 2, two, NULL, NULL, loss), GYRE_OK);
    assert_int_equal(spy.calls, 8);
    assert_memory_equal(spy.log, "arararar", 8);
    spy.calls = 0;
    assert_int_equal(model_stage_backward_batch_f64(w.stage, 0, 2, 1.0, NULL, NULL), GYRE_OK);
    assert_int_equal(spy.calls, 22);
    assert_memory_equal(spy.log, "apdpdrapdpdrapdpdrpdpd", 22);
    unmake(&w);
}

/* ---- several sequences in one call -------------------------------------------------------------------------------------- */

enum { BATCH = 3 };
typedef struct {
    whole_t *whole;
    double *of[BATCH]; /* gradients of the sequence in each slot */
} copies_t;

static gyre_status_t copy_ready(void *user, size_t slot, size_t first, size_t rows)
{
    const copies_t *copies = user;
    const model_param_t *row = copies->whole->params->row;
    for (size_t r = first; r < first + rows; r++)
        memcpy(copies->of[slot] + row[r].grad, copies->whole->grads + row[r].grad,
               row[r].count * sizeof(double));
    return GYRE_OK;
}

static void run_batch(whole_t *w, const model_sequence_t *sequence, size_t together, int split, double *loss)
{
    for (size_t at = 0; at < BATCH; at += together)
        assert_int_equal(
            model_stage_forward_batch_f64(w->stage, at, together, sequence + at, NULL, NULL, loss + at),
            GYRE_OK);
    for (size_t at = 0; at < BATCH; at += together)
        assert_int_equal(model_stage_backward_batch_f64(w->stage, at, together, 0.5, NULL, NULL), GYRE_OK);
    for (size_t at = 0; split && at < BATCH; at += together)
        assert_int_equal(model_stage_backward_weight_batch_f64(w->stage, at, together), GYRE_OK);
}

/* Sequences that go through the layers together have the losses and gradients of those that go alone, to the bit, whatever
 * lies in memory that slots share. */
static void together_as_alone(void **state)
{
    (void)state;
    model_config_t c = gpt2, experts = gpt2;
    c.dropout = c.attn_dropout = 0.25;
    c.embed_norm = 1;
    experts.experts = 4;
    experts.top_k = 2;
    experts.top_query = 1;
    for (int how = 0; how < 12; how++) {
        whole_t w = {0};
        const model_config_t *config = how < 6 ? &c : &experts;
        double loss[2][BATCH];
        copies_t copies[2] = {{.whole = &w}, {.whole = &w}};
        for (int i = 0; i < 2; i++) {
            make(&w, config,
                 (model_stage_config_t){.slots = BATCH,
                                        .together = i ? BATCH : 0,
                                        .recompute = (model_recompute_t)(how % 3),
                                        .split = how / 3 % 2,
                                        .seed = 5});
            w.plain.ready = copy_ready;
            w.plain.user = &copies[i];
            model_sequence_t sequence[BATCH];
            model_token_t tokens[BATCH][16];
            for (size_t j = 0; j < BATCH; j++) {
                sequence[j] = w.sequence;
                sequence[j].sequence = j;
                sequence[j].tokens = tokens[j];
                for (size_t t = 0; t < config->seq; t++)
                    tokens[j][t] = (model_token_t)((t * t + 3 * j) % config->vocab);
                assert_non_null(copies[i].of[j] = calloc(w.params->grad_total, sizeof(double)));
            }
            run_batch(&w, sequence, i ? BATCH : 1, how / 3 % 2, loss[i]);
            for (size_t j = 0; i == 1 && j < BATCH; j++) {
                assert_memory_equal(copies[0].of[j], copies[1].of[j], w.params->grad_total * sizeof(double));
                free(copies[0].of[j]);
                free(copies[1].of[j]);
            }
            unmake(&w);
        }
        assert_true(loss[0][0] != loss[0][1] && loss[0][1] != loss[0][2]);
        assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    }
}

static void refusals(void **state)
{
    (void)state;
    whole_t w = {0};
    double loss;
    make(&w, &gpt2, (model_stage_config_t){0});
    const model_store_t_f64 store = model_plain_store_f64(&w.plain);
    model_stage_t_f64 *stage = NULL;
    w.tokens[2] = 11; /* a padded row is no token */
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    w.tokens[2] = 0;
    w.targets[5] = -1;
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    w.targets[5] = 0;
    assert_int_equal(model_stage_forward_f64(w.stage, 1, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    assert_int_equal(model_stage_forward_batch_f64(w.stage, 0, 2, &w.sequence, NULL, NULL, &loss),
                     GYRE_ERR_INVALID);
    w.sequence.targets = NULL;
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, &loss), GYRE_ERR_INVALID);
    const model_tp_t eight = {.size = 8}, shards = {.size = 4, .sequence = 1};
    const model_stage_config_t all = {.layers = 2, .embed = 1, .head = 1, .slots = 1};
    const model_stage_config_t wrong[] = {{.layers = 3, .embed = 1, .head = 1, .slots = 1},
                                          {.layers = 2, .embed = 1, .head = 1, .slots = 1, .together = 2},
                                          {.layers = 2, .embed = 1, .head = 1},
                                          {.first = 1, .layers = 1, .embed = 1, .head = 1, .slots = 1},
                                          {.layers = 1, .embed = 1, .head = 1, .slots = 1}};
    assert_int_equal(model_stage_create_f64(w.params, &eight, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    assert_int_equal(model_stage_create_f64(w.params, &shards, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(model_stage_create_f64(w.params, &alone, &wrong[i], &store, MODEL_ISA_BEST, &stage),
                         GYRE_ERR_INVALID);
    model_params_t *upper = NULL;
    const unsigned char has[2] = {0, 1};
    assert_int_equal(
        model_params_slice(w.params, &(model_slice_t){.tp_size = 1, .has = has, .head = 1}, &upper), GYRE_OK);
    const model_stage_config_t top = {.first = 1, .layers = 1, .head = 1, .slots = 1};
    double loss_of_top, edge[6 * 8] = {0};
    w.targets[5] = 0;
    w.sequence.targets = w.targets;
    assert_int_equal(model_stage_create_f64(upper, &alone, &top, &store, MODEL_ISA_BEST, &stage), GYRE_OK);
    assert_int_equal(model_stage_forward_f64(stage, 0, &w.sequence, NULL, NULL, &loss_of_top),
                     GYRE_ERR_INVALID);
    assert_int_equal(model_stage_forward_f64(stage, 0, &w.sequence, edge, NULL, NULL), GYRE_ERR_INVALID);
    assert_int_equal(model_stage_forward_f64(stage, 0, &w.sequence, edge, NULL, &loss_of_top), GYRE_OK);
    assert_int_equal(model_stage_backward_f64(stage, 0, 1.0, NULL, NULL), GYRE_ERR_INVALID);
    model_stage_destroy_f64(stage);
    stage = NULL;
    assert_int_equal(model_stage_create_f64(upper, &alone, &all, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    model_params_destroy(upper);
    unmake(&w);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

/* What slots hold is what the header of each kind of recomputation says, to the byte. */
static void memory(void **state)
{
    (void)state;
    const size_t T = 6, C = 8, F = 32, H = 4, V = 12, L = 2, slots = 3;
    const size_t inputs = T * C, weights = H * T * T;
    const size_t rest =
        4 * T + 4 * T * C + 3 * T * C + 2 * T * F; /* norms, ln1, attention, x2, ln2; q k v; MLP */
    const size_t head = 2 * T * C + 3 * T + T * V + 2 * C;
    const size_t kept[] = {inputs + rest + weights, inputs + rest, inputs};
    const size_t split = 2 * T * C + T * F + 3 * T * C + 6 * C, made_for_split = 3 * T * C + T * F;
    for (int how = 0; how < 6; how++) {
        whole_t w = {0};
        model_recompute_t recompute = (model_recompute_t)(how % 3);
        make(&w, &gpt2, (model_stage_config_t){.slots = slots, .recompute = recompute, .split = how / 3});
        size_t layer = kept[how % 3], work = 0;
        if (how >= 3)
            layer += split + (recompute == MODEL_RECOMPUTE_FULL ? made_for_split : 0);
        size_t want = slots * (L * layer + head + (how >= 3 ? T * C : 0)) * sizeof(double);
        assert_int_equal(model_stage_bytes_f64(w.stage, &work), want);
        assert_true(work > 0);
        unmake(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),
        cmocka_unit_test(architectures),
        cmocka_unit_test(experts),
        cmocka_unit_test(no_dropout_in_evaluation),
        cmocka_unit_test(logits_of_one_position),
        cmocka_unit_test(shrunk_embedding),
        cmocka_unit_test(positions),
        cmocka_unit_test(calls_in_order),
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(refusals),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
