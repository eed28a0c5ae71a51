/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_stage_parts.c: a stage that takes sequences in parts: their losses and gradients add up to
 * those of the whole sequence, in double, with everything that depends on a position's place in it: positions
 * of each kind, dropout, windows, documents, norms over heads, recomputation, split backward. Bits over
 * ranks: tests/layouts/check. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "tests/model/whole.h"

enum { PARTS = 4 };

/* Gradients of all parts, added up as they are announced. */
typedef struct {
    whole_t w;
    double *sums;
} cut_t;

static gyre_status_t add_ready(void *user, size_t slot, size_t first, size_t rows)
{
    cut_t *cut = user;
    (void)slot;
    for (size_t r = first; r < first + rows; r++)
        for (size_t i = 0; i < cut->w.params->row[r].count; i++)
            cut->sums[cut->w.params->row[r].grad + i] += cut->w.grads[cut->w.params->row[r].grad + i] / PARTS;
    return GYRE_OK;
}

static void compare(model_config_t config, model_stage_config_t how, const int32_t *documents)
{
    whole_t whole = {0};
    cut_t cut = {0};
    config.seq = 8;
    how.seed = 3;
    how.documents = documents != NULL;
    make(&whole, &config, how);
    how.parts = how.slots = how.together = PARTS;
    make(&cut.w, &config, how);
    cut.w.plain.ready = add_ready;
    cut.w.plain.user = &cut;
    cut.sums = calloc(whole.params->grad_total, sizeof(double));
    assert_non_null(cut.sums);
    whole.targets[5] = cut.w.targets[5] = MODEL_IGNORED;
    whole.sequence.documents = cut.w.sequence.documents = documents;
    const double want = loss_of(&whole);
    assert_int_equal(model_stage_backward_f64(whole.stage, 0, 1.0, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_f64(whole.stage, 0), GYRE_OK);

    model_sequence_t part[PARTS];
    double loss[PARTS], sum = 0.0;
    for (size_t p = 0; p < PARTS; p++) {
        part[p] = cut.w.sequence;
        part[p].part = p;
    }
    model_stage_t_f64 *stage = cut.w.stage;
    assert_int_equal(model_stage_forward_batch_f64(stage, 0, PARTS, part, NULL, NULL, loss), GYRE_OK);
    for (size_t p = 0; p < PARTS; p++)
        sum += loss[p] / PARTS;
    assert_true(fabs(sum - want) < 1e-12);
    assert_int_equal(model_stage_backward_batch_f64(stage, 0, PARTS, 1.0, NULL, NULL), GYRE_OK);
    if (how.split)
        assert_int_equal(model_stage_backward_weight_batch_f64(stage, 0, PARTS), GYRE_OK);
    for (size_t i = 0; i < whole.params->grad_total; i++)
        assert_true(fabs(whole.grads[i] - cut.sums[i]) < 1e-12 * fmax(1.0, fabs(whole.grads[i])));
    free(cut.sums);
    unmake(&cut.w);
    unmake(&whole);
}

static void parts_add_up(void **state)
{
    static const int32_t documents[8] = {0, 0, 0, 3, 3, 3, 3, 7};
    const model_config_t llama = {.vocab = 11,
                                  .layers = 2,
                                  .hidden = 16,
                                  .heads = 8,
                                  .kv_heads = 4,
                                  .leaves = 2,
                                  .ffn = 12,
                                  .pos = MODEL_POS_ROPE,
                                  .norm = MODEL_NORM_RMS,
                                  .gated = 1,
                                  .untied = 1,
                                  .window = 3};
    (void)state;
    model_config_t c = gpt2;
    compare(c, (model_stage_config_t){0}, NULL);
    compare(c, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_FULL}, documents);
    c.dropout = c.attn_dropout = 0.2;
    compare(c, (model_stage_config_t){0}, NULL);
    compare(c, (model_stage_config_t){.split = 1}, documents);
    c.pos = MODEL_POS_ALIBI;
    compare(c, (model_stage_config_t){0}, NULL);
    compare(llama, (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL}, NULL);
    compare(llama, (model_stage_config_t){0}, documents);
    c = llama;
    c.window = 0;
    c.qk_norm = 1;
    compare(c, (model_stage_config_t){0}, documents);
    c.kv_heads = 1; /* leaves share it */
    compare(c, (model_stage_config_t){0}, documents);
    c.kv_heads = 4;
    c.qk_whole = c.out_norm = 1;
    compare(c, (model_stage_config_t){.recompute = MODEL_RECOMPUTE_FULL}, NULL);
    c = llama;
    c.sinks = 1;
    compare(c, (model_stage_config_t){0}, documents);
    c.act = MODEL_ACT_GELU_FAST;
    c.act_limit = 0.15;
    compare(c, (model_stage_config_t){.split = 1, .recompute = MODEL_RECOMPUTE_FULL}, NULL);
}

static void refusals(void **state)
{
    (void)state;
    whole_t w = {0};
    double loss[PARTS];
    model_config_t c = gpt2;
    c.seq = 8;
    make(&w, &c, (model_stage_config_t){.parts = 2, .slots = 2, .together = 2});
    assert_int_equal(model_stage_forward_f64(w.stage, 0, &w.sequence, NULL, NULL, loss), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "a pass of 1 parts from slot 0 on: a sequence has 2 here"));
    model_sequence_t parts[2] = {w.sequence, w.sequence};
    parts[1].part = 2;
    assert_int_equal(model_stage_forward_batch_f64(w.stage, 0, 2, parts, NULL, NULL, loss), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "part 2 of a sequence: it has 2"));
    assert_int_equal(model_stage_logits_f64(w.stage, &w.sequence, NULL, 0, 1, loss), GYRE_ERR_UNSUPPORTED);
    model_stage_t_f64 *stage = NULL;
    const model_stage_config_t alone_of_two = {
        .parts = 2, .parts_here = 1, .layers = 2, .embed = 1, .head = 1, .slots = 1};
    const model_store_t_f64 store = model_plain_store_f64(&w.plain);
    assert_int_equal(model_stage_create_f64(w.params, &alone, &alone_of_two, &store, MODEL_ISA_BEST, &stage),
                     GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "a context of 1 rank: sequences in 2 parts, 1 of them on each "
                                              "rank, are those of 2"));
    unmake(&w);
    const model_stage_config_t bad[] = {{.parts = 3, .layers = 2, .slots = 3},
                                        {.parts = 8, .parts_here = 1, .layers = 2, .slots = 1},
                                        {.parts = 2, .grad_sequences = 2, .layers = 2, .slots = 2}};
    const char *const why[] = {"seq 8 in 3 parts", "8 ranks of a context do not divide 4 heads",
                               "gradients of one part"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t bytes;
        const model_config_t complete = model_config_complete(&c);
        assert_true(model_stage_slot_bytes_f64(&complete, &alone, &bad[i], &bytes) != GYRE_OK);
        assert_non_null(strstr(gyre_last_error(), why[i]));
    }
}

/* What a slot takes falls with the number of parts. */
static void memory(void **state)
{
    (void)state;
    size_t one, four;
    model_config_t c = gpt2;
    c.seq = 1024;
    c = model_config_complete(&c);
    const model_stage_config_t whole = {.layers = 2, .slots = 1, .head = 1, .embed = 1};
    model_stage_config_t cut = whole;
    cut.parts = 4;
    cut.parts_here = 1;
    assert_int_equal(model_stage_slot_bytes_f64(&c, &alone, &whole, &one), GYRE_OK);
    assert_int_equal(model_stage_slot_bytes_f64(&c, &alone, &cut, &four), GYRE_OK);
    /* but for sums over positions, and gradients that wait for others */
    assert_in_range(4 * four, one, one + one / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_add_up), cmocka_unit_test(refusals),
                                       cmocka_unit_test(memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
