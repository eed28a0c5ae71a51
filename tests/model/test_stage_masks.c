/* SPDX-License-Identifier: Apache-2.0 */
/* tests/model/test_stage_masks.c: targets that are not learned. */
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
#include "tests/model/whole.h"

static const model_config_t llama = {.vocab = 11,
                                     .seq = 8,
                                     .layers = 2,
                                     .hidden = 8,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 4,
                                     .ffn = 12,
                                     .leaves = 2,
                                     .pos = MODEL_POS_ROPE,
                                     .norm = MODEL_NORM_RMS,
                                     .act = MODEL_ACT_SILU,
                                     .gated = 1};

/* The loss and a copy of all gradients with these targets hidden: bit t of `hidden`. */
static double masked(whole_t *w, unsigned hidden, double *grads)
{
    model_token_t targets[16];
    const model_sequence_t keep = w->sequence;
    memcpy(targets, w->targets, sizeof targets);
    for (size_t t = 0; t < w->params->config.seq; t++)
        if (hidden >> t & 1)
            targets[t] = MODEL_IGNORED;
    w->sequence.targets = targets;
    memset(w->grads, 0xff, w->params->grad_total * sizeof(double));
    double loss = loss_of(w);
    assert_int_equal(model_stage_backward_f64(w->stage, 0, 1.0, NULL, NULL), GYRE_OK);
    memcpy(grads, w->grads, w->params->grad_total * sizeof(double));
    w->sequence = keep;
    return loss;
}

/* The loss is the sum over learned positions, over the number of all positions; gradients are those of it. */
static void check_ignored(const model_config_t *config)
{
    whole_t w = {0};
    double each[16], sum = 0.0;
    const unsigned all = (1u << config->seq) - 1, some = 0x2d;
    make(&w, config, (model_stage_config_t){0});
    const size_t n = w.params->grad_total;
    double *whole = calloc(3 * n, sizeof *whole), *part = whole + n, *rest = part + n;
    assert_non_null(whole);
    double loss = masked(&w, 0, whole);
    loss_of(&w);
    model_stage_losses_f64(w.stage, each);
    for (size_t t = 0; t < config->seq; t++)
        sum += some >> t & 1 ? 0.0 : each[t];
    assert_true(masked(&w, some, part) == sum / (double)config->seq);
    double other = masked(&w, all & ~some, rest), most = 0.0;
    assert_true(fabs(sum / (double)config->seq + other - loss) < 1e-14);
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(whole[i]));
    for (size_t i = 0; i < n; i++)
        assert_true(fabs(part[i] + rest[i] - whole[i]) <= 1e-13 * most);
    assert_true(masked(&w, all, whole) == 0.0);
    for (size_t i = 0; i < n; i++)
        assert_true(whole[i] == 0.0);
    free(whole);
    unmake(&w);
}

static void ignored(void **state)
{
    (void)state;
    check_ignored(&gpt2);
    check_ignored(&llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ignored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
