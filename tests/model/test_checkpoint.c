/* tests/model/test_checkpoint.c: weights of every architecture as safetensors and back, in any number of leaves; 16-bit files;
 * rows that come one by one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "model/checkpoint.h"
#include "model/names.h"

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
        {.norm = MODEL_NORM_RMS,
         .pos = MODEL_POS_ROPE,
         .act = MODEL_ACT_SILU,
         .gated = 1,
         .untied = 1,
         .no_qkv_bias = 1,
         .no_proj_bias = 1,
         .no_mlp_bias = 1,
         .kv_heads = 4},
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

/* What is behind the vocabulary is in no file. */
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
            assert_int_equal(model_checkpoint_save(path, params, flat), GYRE_OK);
            assert_int_equal(model_checkpoint_load(path, params, again), GYRE_OK);
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

/* A file of 16-bit weights of the smallest GPT-2 of one row that matters. */
static void write_halves(const model_params_t *params, const char *dtype, const uint16_t *value)
{
    json_t *header = json_object();
    json_int_t at = 0;
    for (size_t r = 0; r < params->rows; r++) {
        model_tensor_t t;
        for (size_t i = 0;
             model_row_tensor(params, model_config_family(&params->config), &params->row[r], i, &t); i++) {
            json_int_t bytes = (json_int_t)(2 * t.rows * t.columns);
            json_t *shape = json_array();
            for (size_t d = 0; d < t.dims; d++)
                json_array_append_new(shape, json_integer((json_int_t)t.shape[d]));
            /* all share the same bytes: the format permits it to a reader */
            json_object_set_new(header, t.name,
                                json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape,
                                          "data_offsets", (json_int_t)0, bytes));
            at = bytes > at ? bytes : at;
        }
    }
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t length = strlen(text);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(&length, sizeof length, 1, file);
    fwrite(text, length, 1, file);
    for (json_int_t i = 0; i < at / 2; i++)
        fwrite(&value[i % 8], 2, 1, file);
    assert_int_equal(fclose(file), 0);
    free(text);
    json_decref(header);
}

static void halves(void **unused)
{
    (void)unused;
    const model_config_t config = {.vocab = 8, .seq = 2, .layers = 1, .hidden = 8, .heads = 2, .leaves = 1};
    const uint16_t f16[8] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0x0400, 0x8000};
    const float f16_is[8] = {1.0f, -2.0f, 0x1p-24f, -0x1.ff8p-15f, 65504.0f, INFINITY, 0x1p-14f, -0.0f};
    const uint16_t bf16[8] = {0x3f80, 0xc000, 0x0001, 0x807f, 0x7f7f, 0x7f80, 0x0080, 0x8000};
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    float *flat = calloc(params->total, sizeof *flat);
    assert_non_null(flat);
    const model_param_t *wte = &params->row[model_params_find(params, MODEL_WTE, 0)];
    write_halves(params, "F16", f16);
    assert_int_equal(model_checkpoint_load(path, params, flat), GYRE_OK);
    for (size_t i = 0; i < wte->count; i++)
        assert_memory_equal(&flat[wte->offset + i], &f16_is[i % 8], sizeof *flat);
    write_halves(params, "BF16", bf16);
    assert_int_equal(model_checkpoint_load(path, params, flat), GYRE_OK);
    for (size_t i = 0; i < wte->count; i++) {
        uint32_t bits;
        memcpy(&bits, &flat[wte->offset + i], sizeof bits);
        assert_int_equal(bits, (uint32_t)bf16[i % 8] << 16);
    }
    write_halves(params, "F64", bf16);
    assert_int_equal(model_checkpoint_load(path, params, flat), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "is F64: only F32, BF16 and F16 are read"));
    free(flat);
    model_params_destroy(params);
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
    model_checkpoint_t *checkpoint = NULL; /* what was there is still there */
    assert_int_equal(model_checkpoint_open(path, params, &checkpoint), GYRE_OK);
    model_checkpoint_close(checkpoint);
    model_params_destroy(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_leaves), cmocka_unit_test(halves),
                                       cmocka_unit_test(one_by_one)};
    return cmocka_run_group_tests(tests, begin, end);
}
