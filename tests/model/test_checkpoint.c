/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/model/test_checkpoint.c: weights of every architecture as safetensors and back, in any number of
 * leaves; rows that come one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "model/formats/hf.h"
#include "model/formats/weights.h"
#include "tests/model/kinds.h"
#include "tests/support/weights.h"

static char path[] = "/tmp/gyre-checkpoint-XXXXXX";

static int begin(void **unused)
{
    (void)unused;
    base_log_set_level(BASE_LOG_NONE);
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int end(void **unused)
{
    (void)unused;
    return unlink(path);
}

static model_config_t config_of(size_t kind, size_t leaves)
{
    const model_config_t all[] = {
        {.leaves = leaves}, /* GPT-2 */
        {LLAMA_LIKE, .kv_heads = 4},
        {.pos = MODEL_POS_ALIBI, .embed_norm = 1},
        {.pos = MODEL_POS_ROPE, .parallel = 1, .untied = 1, .rotary_dim = 2, .act = MODEL_ACT_GELU_ERF},
        {.pos_offset = 2, .act = MODEL_ACT_RELU},
        {.experts = 4, .untied = 1},
        {.top_query = 1}};
    model_config_t config = all[kind];
    config.vocab = 21;
    config.seq = 6;
    config.layers = 2;
    config.hidden = 32;
    config.heads = 8;
    config.leaves = leaves;
    return config;
}
enum { KINDS = 7 };

/* Rows after the vocabulary are in no file. */
static int padded(const model_params_t *params, const model_param_t *row, size_t i)
{
    return (row->kind == MODEL_WTE || row->kind == MODEL_HEAD) &&
           model_param_place(row, i) / row->shape[1] >= params->config.vocab;
}

static void any_leaves(void **unused)
{
    (void)unused;
    float *first = NULL; /* the file of one leaf: that of others holds the same */
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t leaves = 1; leaves <= 4; leaves *= 2) {
            const model_config_t config = config_of(kind, leaves);
            model_params_t *params = NULL;
            assert_int_equal(model_params_create(&config, &params), GYRE_OK);
            float *flat = calloc(params->total, sizeof *flat), *again = calloc(params->total, sizeof *again);
            assert_true(flat && again);
            /* every element says which one of the whole it is */
            for (size_t r = 0; r < params->rows; r++)
                for (size_t i = 0; i < params->row[r].count; i++)
                    flat[params->row[r].offset + i] =
                        (float)(1000 * r + 1 + model_param_place(&params->row[r], i));
            assert_int_equal(save_weights(path, params, flat), GYRE_OK);
            assert_int_equal(model_hf_load(path, params, again), GYRE_OK);
            for (size_t r = 0; r < params->rows; r++) {
                const model_param_t *row = &params->row[r];
                for (size_t i = 0; row->alias == MODEL_NONE && i < row->count; i++)
                    assert_true(again[row->offset + i] ==
                                (padded(params, row, i) ? 0.0f : flat[row->offset + i]));
            }
            FILE *file = fopen(path, "rb");
            assert_non_null(file);
            float *image = calloc(1, 1 << 20);
            assert_non_null(image);
            size_t bytes = fread(image, 1, 1 << 20, file);
            assert_true(bytes > 0 && bytes < 1 << 20);
            fclose(file);
            if (leaves == 1) {
                free(first);
                first = image;
            } else {
                assert_memory_equal(first, image, bytes);
                free(image);
            }
            free(flat);
            free(again);
            model_params_destroy(params);
        }
    free(first);
}

typedef struct {
    const model_params_t *params;
    size_t calls, fails_at;
    int given;
} counter_t;

static gyre_status_t count(void *user, size_t row, float *canonical)
{
    counter_t *counter = user;
    counter->given += canonical != NULL;
    assert_true(counter->params->row[row].alias == MODEL_NONE);
    if (canonical)
        memset(canonical, 0, counter->params->row[row].count * sizeof *canonical);
    return ++counter->calls == counter->fails_at ? gyre_fail(GYRE_ERR_PEER_DEAD, "a rank is lost") : GYRE_OK;
}

/* All ranks take part in every row, whatever becomes of the file. */
static void one_by_one(void **unused)
{
    (void)unused;
    const model_config_t config = config_of(0, 2);
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    counter_t counter = {.params = params};
    assert_int_equal(model_checkpoint_stream(NULL, params, count, &counter), GYRE_OK);
    assert_true(counter.calls == params->rows - 1 && counter.given == 0); /* the head is tied */
    counter = (counter_t){.params = params};
    assert_int_equal(model_checkpoint_stream(path, params, count, &counter), GYRE_OK);
    assert_true(counter.calls == params->rows - 1 && counter.given == (int)counter.calls);
    counter = (counter_t){.params = params};
    assert_int_equal(model_checkpoint_stream("/tmp/gyre-no-such-folder/x", params, count, &counter),
                     GYRE_ERR_IO);
    assert_int_equal(counter.calls, params->rows - 1);
    assert_int_equal(model_checkpoint_stream("/dev/full", params, count, &counter), GYRE_ERR_IO);
    counter = (counter_t){.params = params, .fails_at = 3};
    assert_int_equal(model_checkpoint_stream(path, params, count, &counter), GYRE_ERR_PEER_DEAD);
    assert_int_equal(counter.calls, 3);
    float *flat = calloc(params->total, sizeof *flat); /* what was there is still there */
    assert_non_null(flat);
    assert_int_equal(model_hf_load(path, params, flat), GYRE_OK);
    free(flat);
    model_params_destroy(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_leaves), cmocka_unit_test(one_by_one)};
    return cmocka_run_group_tests(tests, begin, end);
}
