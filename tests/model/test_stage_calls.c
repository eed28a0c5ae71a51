/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_stage_calls.c: order and errors of a stage's calls of its store; several sequences in one
 * call; the memory that it holds. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/model/whole.h"

/* ---- the store's calls --------------------------------------------------------------------------------- */

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

/* ---- several sequences in one call --------------------------------------------------------------------- */

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

/* Sequences that go through the layers together have the losses and gradients of those that go alone, to the
 * bit, with any content of the memory that slots share. */
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

/* ---- memory -------------------------------------------------------------------------------------------- */

/* What slots hold is what the header of each kind of recomputation says, to the byte. */
static void memory(void **state)
{
    (void)state;
    const size_t T = 6, C = 8, F = 32, V = 12, L = 2, slots = 3;
    const size_t inputs = T * C;
    const size_t rest =
        4 * T + 4 * T * C + 3 * T * C + 2 * T * F; /* norms, ln1, attention, x2, ln2; q k v; MLP */
    const size_t head = 2 * T * C + 2 * T + 2 * C, logits = T * V;
    const size_t kept[] = {inputs + rest, inputs + rest, inputs};
    const size_t split = 2 * T * C + T * F + 3 * T * C + 6 * C, made_for_split = 3 * T * C + T * F;
    for (int how = 0; how < 6; how++) {
        whole_t w = {0};
        model_recompute_t recompute = (model_recompute_t)(how % 3);
        make(&w, &gpt2, (model_stage_config_t){.slots = slots, .recompute = recompute, .split = how / 3});
        size_t layer = kept[how % 3], work = 0;
        if (how >= 3)
            layer += split + (recompute == MODEL_RECOMPUTE_FULL ? made_for_split : 0);
        size_t want = slots * (L * layer + head + (how >= 3 ? T * C + logits : 0)) * sizeof(double);
        assert_int_equal(model_stage_bytes_f64(w.stage, &work), want);
        assert_true(work > logits * sizeof(double));
        /* planned is the same */
        size_t planned[2], boundary;
        const model_stage_config_t plan = {
            .layers = L, .embed = 1, .head = 1, .slots = slots, .recompute = recompute, .split = how / 3};
        assert_int_equal(
            model_stage_plan_f64(&w.params->config, &alone, &plan, &planned[0], &planned[1], &boundary),
            GYRE_OK);
        assert_int_equal(planned[0], want);
        assert_int_equal(planned[1], work);
        assert_int_equal(boundary, inputs);
        unmake(&w);
    }
}

/* All that a stage holds, with dropout of attention's weights: beyond a block of attention as much for each
 * further position. */
static size_t held(size_t seq)
{
    model_config_t c = gpt2;
    whole_t w = {0};
    size_t work;
    c.attn_dropout = 0.1;
    c.seq = seq;
    const model_stage_config_t how = {.layers = c.layers, .embed = 1, .head = 1, .slots = 1};
    assert_int_equal(model_params_create(&c, &w.params), GYRE_OK);
    const model_store_t_f64 store = model_plain_store_f64(&w.plain);
    assert_int_equal(model_stage_create_f64(w.params, &alone, &how, &store, MODEL_ISA_BEST, &w.stage),
                     GYRE_OK);
    size_t kept = model_stage_bytes_f64(w.stage, &work);
    unmake(&w);
    return kept + work;
}

static void memory_of_long_sequences(void **state)
{
    (void)state;
    const size_t thousand = held(1000), two = held(2000);
    assert_int_equal(held(3000) - two, two - thousand);
}

/* Workspace of the layers first .. first + layers - 1 of a model whose first layer has no experts. */
static size_t workspace(size_t first, size_t layers, model_stage_config_t how)
{
    const model_config_t c = {.vocab = 12,
                              .seq = 6,
                              .layers = 3,
                              .hidden = 8,
                              .heads = 2,
                              .leaves = 1,
                              .ffn = 10,
                              .dense_ffn = 20,
                              .dense_first = 1,
                              .experts = 2,
                              .top_k = 1,
                              .shared_ffn = 4,
                              .no_mlp_bias = 1,
                              .gated = 1};
    whole_t w = {0};
    size_t work;
    how.first = first;
    how.layers = layers;
    how.slots = 1;
    assert_int_equal(model_params_create(&c, &w.params), GYRE_OK);
    const model_store_t_f64 store = model_plain_store_f64(&w.plain);
    assert_int_equal(model_stage_create_f64(w.params, &alone, &how, &store, MODEL_ISA_BEST, &w.stage),
                     GYRE_OK);
    model_stage_bytes_f64(w.stage, &work);
    unmake(&w);
    return work;
}

/* Layers with and without experts share all buffers but those of their MLPs, and a stage has none for a form
 * that it lacks. */
static void memory_of_two_forms(void **state)
{
    (void)state;
    const size_t T = 6, fc = 40, act = 20;
    for (int how = 0; how < 3; how++) {
        const model_stage_config_t config = {.recompute = (model_recompute_t)how};
        const size_t sparse = workspace(1, 1, config), both = workspace(0, 2, config);
        const size_t own = how == MODEL_RECOMPUTE_FULL ? 2 * fc + act : fc; /* d_fc; fc, act */
        assert_int_equal(workspace(1, 2, config), sparse);
        assert_int_equal(both - sparse, T * own * sizeof(double));
        assert_true(workspace(0, 1, config) < both);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_in_order),
        cmocka_unit_test(together_as_alone),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_long_sequences),
        cmocka_unit_test(memory_of_two_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
