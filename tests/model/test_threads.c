/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_threads.c: products, kernels, forward and backward of several architectures, what a
 * decoder reads, and the optimiser's update have the same bits on 1, 2, 3 and 9 threads. Tensors are large
 * enough to be divided. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread/team.h"
#include "model/network/decode/decode.h"
#include "model/network/stage/plain_store.h"
#include "optim/adamw.h"
#include "tests/model/kinds.h"
#include "tests/support/weights.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* these take ten times as long */
static const size_t teams[] = {3};
enum { PRODUCT_STEP = 5 /* of shapes and transpositions */, SHAPE_STEP = 3, HIDDEN = 128 };
#else
static const size_t teams[] = {1, 2, 3, 9};
enum { PRODUCT_STEP = 1, SHAPE_STEP = 1, HIDDEN = 256 };
#endif
enum { TEAMS = sizeof teams / sizeof *teams };

/* Calls fn with a team of each size, and at first without one. */
static void on_teams(void (*fn)(void *user, size_t threads), void *user)
{
    fn(user, 0);
    for (size_t i = 0; i < TEAMS; i++) {
        base_team_t *team = NULL;
        assert_int_equal(base_team_create(teams[i], "--threads", &team), GYRE_OK);
        base_team_use(team);
        fn(user, teams[i]);
        base_team_use(NULL);
        base_team_destroy(team);
    }
}

static float *numbers(size_t n, uint32_t stream)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) /* cheap, and not round */
        x[i] = (float)((i * 2654435761u + stream * 40503u) % 65521u) * 3e-5f - 1.0f;
    return x;
}

/* ---- products ------------------------------------------------------------------------------------------ */

typedef struct {
    size_t M, N, K;
    int trans_a, trans_b;
    float beta;
    void *pack; /* of products in tiles of bfloat16; NULL: of floats */
    float *a, *b, *want, *got;
} product_t;

static void multiply(void *user, size_t threads)
{
    const product_t *p = user;
    const size_t count = p->M * p->N;
    float *c = threads == 0 ? p->want : p->got;
    for (size_t i = 0; i < count; i++)
        c[i] = p->a[i % 1000];
    if (p->pack)
        model_matmul_bf16_f32(p->pack, p->trans_a, p->trans_b, p->M, p->N, p->K, p->a,
                              p->trans_a ? p->M : p->K, p->b, p->trans_b ? p->K : p->N, p->beta != 0, c,
                              p->N);
    else
        model_matmul_f32(p->trans_a, p->trans_b, p->M, p->N, p->K, 1, p->a, p->trans_a ? p->M : p->K, p->b,
                         p->trans_b ? p->K : p->N, p->beta, c, p->N);
    for (size_t i = 0; threads > 0 && i < count; i++)
        if (memcmp(p->want + i, p->got + i, sizeof(float)) != 0)
            fail_msg("%zu x %zu x %zu, transposed %d %d, %zu threads: element %zu is %a, not %a", p->M, p->N,
                     p->K, p->trans_a, p->trans_b, threads, i, (double)p->got[i], (double)p->want[i]);
}

/* In tiles; in pieces with ends of all kinds, one direction too short to be cut, K in several panels. */
static void products(void **state)
{
    (void)state;
    static const size_t shapes[][3] = {{200, 330, 140}, {521, 267, 257},  {330, 1030, 261}, {70, 900, 700},
                                       {900, 67, 611},  {260, 200, 1500}, {320, 320, 1536}};
    void *pack = model_matmul_has_bf16() ? malloc(MODEL_PACK_BYTES) : NULL;
    model_matmul_init();
    for (size_t i = 0; i < 4 * sizeof shapes / sizeof *shapes; i += PRODUCT_STEP) {
        const size_t M = shapes[i / 4][0], N = shapes[i / 4][1], K = shapes[i / 4][2];
        product_t p = {.M = M, .N = N, .K = K, .trans_a = i & 1, .trans_b = i >> 1 & 1};
        p.beta = (float)((i ^ i >> 1 ^ i >> 2) & 1);
        p.a = numbers(M * K, 1);
        p.b = numbers(K * N, 2);
        p.want = numbers(M * N, 3);
        p.got = numbers(M * N, 4);
        on_teams(multiply, &p);
        p.pack = pack;
        if (pack)
            on_teams(multiply, &p);
        free(p.a);
        free(p.b);
        free(p.want);
        free(p.got);
    }
    free(pack);
}

/* ---- kernels whose sums go over rows, or that few models have ------------------------------------------ */

/* Rows of heads that are `LD` apart; as many as make several pieces, of which the last is short. */
enum { ROWS = 301, HEADS = 5, WIDTH = 69, WIDE = HEADS * WIDTH, LD = WIDE + 3, KERNEL_OUT = 3 * ROWS * LD };

typedef struct {
    const char *name;
    void (*run)(const model_kernels_t_f32 *k, float *out, const float *x, const float *y, const float *small);
    float *x, *y, *small, *want, *got; /* [KERNEL_OUT], but small [2 ROWS HEADS] */
} kernel_t;

#define KERNEL(name)                                                                           \
    static void name(const model_kernels_t_f32 *k, float *out, const float *x, const float *y, \
                     const float *small)

KERNEL(column_sums)
{
    k->column_sum(out, x, ROWS, LD, 0);
    memcpy(out + LD, y, LD * sizeof *out);
    k->column_sum(out + LD, x, ROWS, LD, 1);
    (void)small;
}

KERNEL(head_norms)
{
    memcpy(out, x, (size_t)ROWS * LD * sizeof *out);
    k->head_norm(out, out + (size_t)ROWS * LD, out + 2 * (size_t)ROWS * LD, small, ROWS, LD, HEADS, WIDTH,
                 1e-5f);
    (void)y;
}

KERNEL(head_norms_kept)
{
    memcpy(out, x, (size_t)ROWS * LD * sizeof *out);
    k->head_norm(out, NULL, NULL, small, ROWS, LD, HEADS, WIDTH, 1e-5f);
    (void)y;
}

KERNEL(head_norms_backward)
{
    memcpy(out, x, (size_t)ROWS * LD * sizeof *out);
    k->head_norm_backward(out, out + (size_t)ROWS * LD, y, small, small, ROWS, LD, HEADS, WIDTH);
}

KERNEL(part_norms)
{
    float *sums = out + 2 * (size_t)ROWS * LD;
    k->part_squares(sums, x, ROWS, LD, WIDE);
    memcpy(out, x, (size_t)ROWS * LD * sizeof *out);
    k->part_norm(out, out + (size_t)ROWS * LD, out + 2 * (size_t)ROWS * LD + ROWS, sums, small, ROWS, LD,
                 WIDE, 2 * WIDE, 1e-5f);
    (void)y;
}

KERNEL(part_norms_backward)
{
    float *dots = out + 2 * (size_t)ROWS * LD;
    k->part_dots(dots, x, y, small, small, ROWS, LD, WIDE);
    memcpy(out, x, (size_t)ROWS * LD * sizeof *out);
    k->part_norm_backward(out, out + (size_t)ROWS * LD, y, small, dots, small, ROWS, LD, WIDE, 2 * WIDE);
}

KERNEL(limited)
{
    k->limited(out, x, ROWS, LD, 0.4f);
    (void)y, (void)small;
}

KERNEL(limited_backward)
{
    k->limited_backward(out, y, x, ROWS, LD, 0.4f);
    (void)small;
}

static void kernel(void *user, size_t threads)
{
    kernel_t *all = user;
    float *out = threads == 0 ? all->want : all->got;
    memset(out, 0, KERNEL_OUT * sizeof *out);
    all->run(model_kernels_f32(MODEL_ISA_BEST), out, all->x, all->y, all->small);
    for (size_t i = 0; threads > 0 && i < KERNEL_OUT; i++)
        if (memcmp(all->want + i, all->got + i, sizeof *out) != 0)
            fail_msg("%s, %zu threads: element %zu is %a, not %a", all->name, threads, i, (double)all->got[i],
                     (double)all->want[i]);
}

static void kernels(void **state)
{
    (void)state;
#define RUN(name) {#name, name, NULL, NULL, NULL, NULL, NULL}
    kernel_t each[] = {
        RUN(column_sums), RUN(head_norms),          RUN(head_norms_kept), RUN(head_norms_backward),
        RUN(part_norms),  RUN(part_norms_backward), RUN(limited),         RUN(limited_backward)};
#undef RUN
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        kernel_t *k = &each[i];
        k->x = numbers(KERNEL_OUT, 1);
        k->y = numbers(KERNEL_OUT, 2);
        k->small = numbers((size_t)2 * ROWS * HEADS, 3);
        k->want = numbers(KERNEL_OUT, 4);
        k->got = numbers(KERNEL_OUT, 5);
        on_teams(kernel, k);
        free(k->x);
        free(k->y);
        free(k->small);
        free(k->want);
        free(k->got);
    }
}

/* ---- stages -------------------------------------------------------------------------------------------- */

enum { T = 272, SEQUENCES = 2 };

typedef struct {
    const char *name;
    model_config_t config;
    model_precision_t precision;
} shape_t;

#define LLAMA .vocab = 1000, .seq = T, .layers = 1, .hidden = HIDDEN, .leaves = 4, LLAMA_LIKE

static const shape_t shapes[] = {
    {"GPT-2",
     {.vocab = 1000, .seq = T, .layers = 1, .hidden = HIDDEN, .heads = 8, .leaves = 4, .dropout = 0.1},
     MODEL_FLOAT32},
    {"one leaf",
     {.vocab = 1000, .seq = T, .layers = 1, .hidden = HIDDEN, .heads = 4, .leaves = 1},
     MODEL_BFLOAT16},
    {"Qwen3", {LLAMA, .heads = 16, .kv_heads = 8, .qk_norm = 1}, MODEL_FLOAT16},
    {"Gemma",
     {LLAMA, .heads = 8, .kv_heads = 4, .window = 100, .window_every = 2, .gain_plus_1 = 1, .both_norms = 1,
      .attn_cap = 5, .logit_cap = 3, .attn_dropout = 0.1},
     MODEL_FLOAT32},
    {"experts", {LLAMA, .heads = 8, .experts = 4, .top_k = 2, .capacity = 1, .balance = 0.1}, MODEL_FLOAT32},
    {"sinks and biases of experts",
     {LLAMA, .heads = 8, .kv_heads = 2, .sinks = 1, .experts = 4, .top_k = 2, .capacity = 2, .router_bias = 1,
      .expert_bias = 1},
     MODEL_FLOAT32},
};

typedef struct {
    const shape_t *shape;
    model_params_t *params;
    float *weights, *want, *grads;
    double loss;
} model_t;

static void pass(void *user, size_t threads)
{
    model_t *m = user;
    model_stage_t_f32 *stage = NULL;
    model_plain_store_t_f32 plain = {.params = m->params, .weights = m->weights, .grads = m->grads};
    const model_store_t_f32 store = model_plain_store_f32(&plain);
    const model_tp_t alone = {.size = 1};
    const model_stage_config_t how = {.layers = m->shape->config.layers,
                                      .embed = 1,
                                      .head = 1,
                                      .slots = SEQUENCES,
                                      .together = SEQUENCES,
                                      .grad_sequences = SEQUENCES,
                                      .precision = m->shape->precision,
                                      .threads = threads,
                                      .seed = 5};
    model_token_t tokens[T + 1];
    model_sequence_t sequence[SEQUENCES];
    double loss[SEQUENCES];
    for (size_t t = 0; t <= T; t++)
        tokens[t] = (model_token_t)(t * t % m->shape->config.vocab);
    for (size_t i = 0; i < SEQUENCES; i++)
        sequence[i] = (model_sequence_t){.tokens = tokens, .targets = tokens + 1, .sequence = i, .step = 3};
    assert_int_equal(model_stage_create_f32(m->params, &alone, &how, &store, MODEL_ISA_BEST, &stage),
                     GYRE_OK);
    assert_int_equal(model_stage_forward_batch_f32(stage, 0, SEQUENCES, sequence, NULL, NULL, loss), GYRE_OK);
    assert_int_equal(model_stage_backward_batch_f32(stage, 0, SEQUENCES, 64.0f, NULL, NULL), GYRE_OK);
    model_stage_destroy_f32(stage);
    if (threads == 0) {
        m->loss = loss[1];
        memcpy(m->want, m->grads, m->params->grad_total * sizeof(float));
    }
    assert_memory_equal(&loss[1], &m->loss, sizeof m->loss);
    for (size_t r = 0; r < m->params->rows; r++)
        if (memcmp(m->want + m->params->row[r].grad, m->grads + m->params->row[r].grad,
                   m->params->row[r].count * sizeof(float)) != 0)
            fail_msg("%s, %zu threads: the gradient of %s has other bits", m->shape->name, threads,
                     m->params->row[r].name);
}

static void stages(void **state)
{
    (void)state;
    for (size_t i = SHAPE_STEP - 1; i < sizeof shapes / sizeof *shapes; i += SHAPE_STEP) {
        model_t m = {.shape = &shapes[i]};
        assert_int_equal(model_params_create(&m.shape->config, &m.params), GYRE_OK);
        m.weights = calloc(m.params->total, sizeof(float));
        m.want = calloc(m.params->grad_total, sizeof(float));
        m.grads = calloc(m.params->grad_total, sizeof(float));
        assert_true(m.weights && m.want && m.grads);
        init_params(m.params, 1, m.weights);
        on_teams(pass, &m);
        model_params_destroy(m.params);
        free(m.weights);
        free(m.want);
        free(m.grads);
    }
}

/* ---- a decoder ----------------------------------------------------------------------------------------- */

enum { SLOTS = 3, POSITIONS = 160 };

typedef struct {
    model_params_t *params;
    float *weights, *want, *got; /* [2][SLOTS, V'] logits */
} decoding_t;

/* Pieces of other lengths, then one token of each sequence. */
static void decode(void *user, size_t threads)
{
    static const size_t count[SLOTS] = {131, 60, 99};
    const decoding_t *all = user;
    const size_t logits = SLOTS * all->params->config.vocab_padded;
    const model_decoder_config_t how = {.params = all->params,
                                        .weights = all->weights,
                                        .tp = {.size = 1},
                                        .layers = all->params->config.layers,
                                        .embed = 1,
                                        .head = 1,
                                        .slots = SLOTS,
                                        .rows = 2 * POSITIONS,
                                        .threads = threads};
    float *out = threads == 0 ? all->want : all->got;
    model_token_t tokens[POSITIONS];
    model_piece_t piece[SLOTS];
    model_decoder_t *decoder = NULL;
    for (size_t t = 0; t < POSITIONS; t++)
        tokens[t] = (model_token_t)(t * t % 50);
    for (size_t i = 0; i < SLOTS; i++)
        piece[i] = (model_piece_t){.slot = i, .tokens = tokens, .count = count[i]};
    assert_int_equal(model_decoder_create(&how, &decoder), GYRE_OK);
    assert_int_equal(model_decoder_read(decoder, piece, SLOTS, NULL, NULL, out), GYRE_OK);
    for (size_t i = 0; i < SLOTS; i++)
        piece[i] = (model_piece_t){.slot = i, .tokens = tokens + count[i], .count = 1};
    assert_int_equal(model_decoder_read(decoder, piece, SLOTS, NULL, NULL, out + logits), GYRE_OK);
    model_decoder_destroy(decoder);
    if (threads > 0 && memcmp(all->want, all->got, 2 * logits * sizeof *out) != 0)
        fail_msg("%zu threads: other logits", threads);
}

static void decoders(void **state)
{
    static const model_config_t models[] = {{.vocab = 50,
                                             .seq = POSITIONS,
                                             .layers = 2,
                                             .hidden = 64,
                                             .heads = 8,
                                             .leaves = 2,
                                             .kv_heads = 4,
                                             .pos = MODEL_POS_ROPE,
                                             .window = 130,
                                             .sinks = 1},
                                            {.vocab = 50,
                                             .seq = POSITIONS,
                                             .layers = 1,
                                             .hidden = 64,
                                             .heads = 8,
                                             .leaves = 1,
                                             .pos = MODEL_POS_ALIBI}};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        decoding_t all = {NULL, NULL, NULL, NULL};
        assert_int_equal(model_params_create(&models[i], &all.params), GYRE_OK);
        const size_t logits = 2 * SLOTS * all.params->config.vocab_padded;
        all.weights = calloc(all.params->total, sizeof(float));
        all.want = calloc(logits, sizeof(float));
        all.got = calloc(logits, sizeof(float));
        assert_true(all.weights && all.want && all.got);
        init_params(all.params, 1, all.weights);
        on_teams(decode, &all);
        model_params_destroy(all.params);
        free(all.weights);
        free(all.want);
        free(all.got);
    }
}

/* ---- the optimiser ------------------------------------------------------------------------------------- */

enum { ELEMENTS = 100003 };

static void update(void *user, size_t threads)
{
    static float want[3 * ELEMENTS];
    const optim_adamw_config_t config = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    const optim_adamw_factors_t factors = optim_adamw_factors(&config, 3, 0.25f, 1e-3);
    float *grad = numbers(ELEMENTS, 9), *x = numbers((size_t)3 * ELEMENTS, 8);
    (void)user;
    for (size_t i = 0; i < ELEMENTS; i++)
        x[2 * ELEMENTS + i] *= x[2 * ELEMENTS + i]; /* second moments */
    optim_adamw_update(&factors, 1, x, x + ELEMENTS, x + 2 * ELEMENTS, grad, ELEMENTS);
    if (threads == 0)
        memcpy(want, x, sizeof want);
    assert_memory_equal(x, want, sizeof want);
    free(grad);
    free(x);
}

static void optimizer(void **state)
{
    (void)state;
    on_teams(update, NULL);
}

/* ---- random weights ------------------------------------------------------------------------------------ */

static void begin(void *user, size_t threads)
{
    static float want[ELEMENTS];
    model_param_t row = *(const model_param_t *)user;
    float *x = numbers(ELEMENTS, 7);
    model_param_init(&row, 5, 3, ELEMENTS, x);
    if (threads == 0)
        memcpy(want, x, sizeof want);
    assert_memory_equal(x, want, sizeof want);
    free(x);
}

static void weights(void **state)
{
    const model_param_t row = {.kind = MODEL_WTE,
                               .init = MODEL_INIT_NORMAL,
                               .std = 0.02,
                               .leaves = 1,
                               .parts = 1,
                               .leaf_count = ELEMENTS + 3,
                               .shape = {ELEMENTS + 3}};
    (void)state;
    on_teams(begin, (void *)&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products), cmocka_unit_test(kernels),   cmocka_unit_test(stages),
        cmocka_unit_test(decoders), cmocka_unit_test(optimizer), cmocka_unit_test(weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
