/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_shards.c: a checkpoint written in one layout and read in another holds the same bytes, for
 * random models and layouts; what cannot be a checkpoint is named. Ranks are slices of the table, with
 * shards cut anywhere. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "optim/checkpoint/shards.h"
#include "tests/support/random.h"

enum { LAYERS = 3, ROWS = 128 };

static char folder[] = "/tmp/gyre-shards-XXXXXX";
static uint64_t seed = 20261121;

static size_t below(size_t n)
{
    return (size_t)(random_next(&seed) % n);
}

static int begin(void **unused)
{
    (void)unused;
    base_log_set_level(BASE_LOG_NONE);
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **unused)
{
    (void)unused;
    return rmdir(folder);
}

/* Element i of part p of a canonical row: what is written, and what must be read. */
static float value(size_t row, size_t i, size_t p)
{
    return (float)((row * 7919 + i * 3 + p) % 16777213);
}

static void fill(const optim_range_t *range, size_t row)
{
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        for (size_t i = 0; range->part[p] && i < range->count; i++)
            range->part[p][i] = value(row, range->first + i, p);
}

static void check(const optim_range_t *range, size_t row)
{
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        for (size_t i = 0; range->part[p] && i < range->count; i++)
            assert_true(range->part[p][i] == value(row, range->first + i, p));
}

static optim_range_t make_range(size_t row, size_t first, size_t count)
{
    optim_range_t range = {.row = row, .first = first, .count = count};
    for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
        assert_non_null(range.part[p] = calloc(count, sizeof(float)));
    return range;
}

static void free_ranges(optim_range_t *range, size_t ranges)
{
    for (size_t i = 0; i < ranges; i++)
        for (size_t p = 0; p < OPTIM_RANGE_PARTS; p++)
            free(range[i].part[p]);
}

static model_config_t random_config(void)
{
    const model_config_t kind[] = {{.untied = 0},
                                   {.untied = 1,
                                    .gated = 1,
                                    .norm = MODEL_NORM_RMS,
                                    .pos = MODEL_POS_ROPE,
                                    .no_qkv_bias = 1,
                                    .kv_heads = 4},
                                   {.pos = MODEL_POS_ALIBI, .embed_norm = 1},
                                   {.experts = 4, .untied = 1},
                                   {.kv_heads = 1}, /* leaves share it */
                                   {.top_query = 1}};
    model_config_t config = kind[below(6)];
    config.vocab = 20 + below(20);
    config.seq = 8;
    config.layers = LAYERS;
    config.heads = 8;
    config.hidden = 16;
    config.leaves = (size_t)1 << below(3);
    return config;
}

/* TP x PP x DP; a pipeline stage holds layers whose number it is modulo pp, as chunks do. */
typedef struct {
    size_t tp, pp, dp;
} layout_t;

static layout_t random_layout(size_t leaves)
{
    layout_t l = {.pp = 1 + below(LAYERS), .dp = 1 + below(5)};
    do
        l.tp = (size_t)1 << below(3);
    while (l.tp > leaves);
    return l;
}

static model_params_t *slice_of(const model_params_t *whole, layout_t l, size_t pp, size_t tp)
{
    unsigned char has[LAYERS];
    model_params_t *slice = NULL;
    for (size_t i = 0; i < LAYERS; i++)
        has[i] = i % l.pp == pp;
    const model_slice_t how = {
        .tp_rank = tp, .tp_size = l.tp, .has = has, .embed = pp == 0, .head = pp == l.pp - 1};
    assert_int_equal(model_params_slice(whole, &how, &slice), GYRE_OK);
    return slice;
}

/* Where the dp ranks' shards of a row of `count` begin: anywhere, the same on all of them. */
static size_t cut_of(const model_param_t *row, layout_t l, size_t dp)
{
    if (dp == 0 || dp == l.dp)
        return dp == 0 ? 0 : row->count;
    size_t even = row->count * dp / l.dp, shift = (row->global * 5 + l.dp) % 3;
    return even > shift ? even - shift : 0;
}

/* What one rank writes. */
static size_t owned(const model_params_t *whole, const model_params_t *slice, layout_t l, size_t tp,
                    size_t dp, optim_range_t *range)
{
    size_t n = 0;
    for (size_t r = 0; r < slice->rows; r++) {
        const model_param_t *row = &slice->row[r];
        size_t from = cut_of(row, l, dp), to = cut_of(row, l, dp + 1);
        if (whole->row[row->global].alias != MODEL_NONE || (row->cut < 0 && tp > 0) || from == to)
            continue;
        range[n] = make_range(row->global, row->first + from, to - from);
        fill(&range[n], row->global);
        n++;
    }
    return n;
}

/* The index of what all ranks of the layout write. */
static json_t *write_all(const model_params_t *whole, layout_t l)
{
    json_t *files = json_array();
    optim_range_t range[ROWS];
    size_t rank = 0;
    for (size_t pp = 0; pp < l.pp; pp++)
        for (size_t dp = 0; dp < l.dp; dp++)
            for (size_t tp = 0; tp < l.tp; tp++, rank++) {
                model_params_t *slice = slice_of(whole, l, pp, tp);
                json_t *entry = NULL;
                size_t n = owned(whole, slice, l, tp, dp, range);
                model_params_destroy(slice);
                if (n == 0)
                    continue;
                assert_int_equal(model_shard_write(folder, rank, whole, range, n), GYRE_OK);
                assert_int_equal(model_shard_entry(folder, rank, &entry), GYRE_OK);
                assert_int_equal(json_array_append_new(files, entry), 0);
                free_ranges(range, n);
            }
    return json_pack("{s:o, s:o}", "rows", optim_shards_rows(whole), "files", files);
}

/* Weights of the slice, and a shard of master weights and moments, of every rank of the layout. */
static void read_all(const optim_shards_t *shards, const model_params_t *whole, layout_t l)
{
    optim_range_t range[2 * ROWS];
    for (size_t pp = 0; pp < l.pp; pp++)
        for (size_t dp = 0; dp < l.dp; dp++)
            for (size_t tp = 0; tp < l.tp; tp++) {
                model_params_t *slice = slice_of(whole, l, pp, tp);
                size_t n = 0;
                for (size_t r = 0; r < slice->rows; r++) {
                    const model_param_t *row = &slice->row[r];
                    size_t from = cut_of(row, l, dp), to = cut_of(row, l, dp + 1);
                    range[n] = make_range(row->global, row->first, row->count);
                    for (size_t p = 1; p < OPTIM_RANGE_PARTS; p++) { /* weights alone */
                        free(range[n].part[p]);
                        range[n].part[p] = NULL;
                    }
                    n++;
                    if (from < to)
                        range[n++] = make_range(row->global, row->first + from, to - from);
                }
                assert_int_equal(optim_shards_read(shards, folder, whole, range, n), GYRE_OK);
                for (size_t i = 0; i < n; i++) /* a tied head has the embedding's */
                    check(&range[i], optim_range_row(whole, range[i].row));
                free_ranges(range, n);
                model_params_destroy(slice);
            }
}

static void in_folder(size_t writer, const char *ending, char *path)
{
    snprintf(path, PATH_MAX, "%s/shard-%05zu.%s", folder, writer, ending);
}

static void sweep(void)
{
    char path[PATH_MAX];
    for (size_t r = 0; r < 200; r++) {
        in_folder(r, "safetensors", path);
        (void)unlink(path);
        model_shard_forget(folder, r);
    }
}

static void any_layout(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        const model_config_t config = random_config();
        model_params_t *whole = NULL;
        optim_shards_t *shards = NULL;
        assert_int_equal(model_params_create(&config, &whole), GYRE_OK);
        layout_t from = random_layout(config.leaves), to = random_layout(config.leaves);
        json_t *index = write_all(whole, from);
        assert_int_equal(optim_shards_parse(index, "the-index", &shards), GYRE_OK);
        assert_int_equal(optim_shards_fit(shards, whole, "the-index"), GYRE_OK);
        assert_int_equal(optim_shards_sizes(shards, folder), GYRE_OK);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(optim_shards_verify(shards, folder, i, 3), GYRE_OK);
        read_all(shards, whole, to);
        read_all(shards, whole, from);
        optim_shards_destroy(shards);
        json_decref(index);
        model_params_destroy(whole);
        sweep();
    }
}

/* ---- what is not a checkpoint ------------------------------------------------------------------------- */

static const model_config_t small = {
    .vocab = 16, .seq = 8, .layers = LAYERS, .hidden = 16, .heads = 4, .leaves = 2};

static json_t *small_index(model_params_t **whole)
{
    assert_int_equal(model_params_create(&small, whole), GYRE_OK);
    return write_all(*whole, (layout_t){.tp = 2, .pp = 2, .dp = 2});
}

static void refused(const json_t *index, const char *word)
{
    optim_shards_t *shards = NULL;
    assert_int_equal(optim_shards_parse(index, "the-index", &shards), GYRE_ERR_FORMAT);
    if (!strstr(gyre_last_error(), word))
        fail_msg("\"%s\" is not in \"%s\"", word, gyre_last_error());
}

static json_t *file_of(json_t *index, size_t f)
{
    return json_array_get(json_object_get(index, "files"), f);
}

static json_t *range_of(json_t *index, size_t f, size_t i)
{
    return json_array_get(json_object_get(file_of(index, f), "ranges"), i);
}

/* Changes one figure, and puts it back. */
static void with(json_t *index, json_t *list, size_t i, json_int_t change, const char *word)
{
    json_t *number = json_array_get(list, i);
    json_int_t before = json_integer_value(number);
    json_integer_set(number, before + change);
    refused(index, word);
    json_integer_set(number, before);
}

static void holes(void **unused)
{
    (void)unused;
    model_params_t *whole = NULL;
    optim_shards_t *shards = NULL;
    json_t *index = small_index(&whole), *files = json_object_get(index, "files");

    /* a file is not listed: the first element that it held is in no file */
    for (size_t f = 0; f < json_array_size(files); f++) {
        json_t *file = json_incref(json_array_get(files, f));
        json_array_remove(files, f);
        refused(index, "are in no file");
        json_array_insert_new(files, f, file);
    }
    /* one is listed twice */
    json_array_append(files, file_of(index, 1));
    refused(index, " is in both shard-0000");
    json_array_remove(files, json_array_size(files) - 1);
    with(index, range_of(index, 0, 0), 1, 1, "");             /* first: a hole, or beyond the row's end */
    with(index, range_of(index, 0, 0), 2, -1, "is too long"); /* count: the file's size */
    with(index, range_of(index, 0, 0), 2, 1, "too short");
    with(index, range_of(index, 0, 0), 0, 1000, "in none of its rows");
    with(index, range_of(index, 0, 0), 0, -1000, "in none of its rows");
    with(index, range_of(index, 0, 0), 2, (json_int_t)1 << 60, "in none of its rows");
    assert_int_equal(optim_shards_parse(index, "the-index", &shards), GYRE_OK); /* all is put back */
    optim_shards_destroy(shards);

    const char *const name[] = {"../a", "/a", ".a", "", "a/b"};
    json_t *was = json_incref(json_object_get(file_of(index, 0), "name"));
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        json_object_set_new(file_of(index, 0), "name", json_string(name[i]));
        refused(index, "lacks name");
    }
    json_object_set_new(file_of(index, 0), "name", was);
    json_t *row = json_array_get(json_object_get(index, "rows"), 2);
    json_object_set_new(row, "shape", json_pack("[I, I]", (json_int_t)1 << 40, (json_int_t)1 << 40));
    refused(index, "row 2 lacks");
    json_object_del(index, "rows");
    refused(index, "lacks rows or files");
    json_decref(index);
    model_params_destroy(whole);
    sweep();
}

static void foreign(void **unused)
{
    (void)unused;
    model_params_t *whole = NULL, *other = NULL;
    optim_shards_t *shards = NULL;
    json_t *index = small_index(&whole);
    assert_int_equal(optim_shards_parse(index, "the-index", &shards), GYRE_OK);
    model_config_t config[6] = {small, small, small, small, small, small};
    config[0].leaves = 4;
    config[1].hidden = 32;
    config[2].layers = 4;
    config[3].layers = 2;
    config[4].untied = 1;
    config[5].gated = 1;
    const char *const word[6] = {"of 2 leaves where this one has",
                                 "[16",
                                 "is of another model",
                                 "is of another model",
                                 "is of another model",
                                 "is of another model"};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(model_params_create(&config[i], &other), GYRE_OK);
        assert_int_equal(optim_shards_fit(shards, other, "the-index"), GYRE_ERR_INVALID);
        if (!strstr(gyre_last_error(), word[i]))
            fail_msg("%zu: \"%s\" is not in \"%s\"", i, word[i], gyre_last_error());
        model_params_destroy(other);
    }
    /* beyond a row, beyond the table */
    optim_range_t range = make_range(1, 0, whole->row[1].count + 1);
    assert_int_equal(optim_shards_read(shards, folder, whole, &range, 1), GYRE_ERR_INVALID);
    range.row = whole->rows;
    assert_int_equal(optim_shards_read(shards, folder, whole, &range, 1), GYRE_ERR_INVALID);
    free_ranges(&range, 1);
    optim_shards_destroy(shards);
    json_decref(index);
    model_params_destroy(whole);
    sweep();
}

/* Each file's damage is found by the one reader that checks it. */
static void damaged(void **unused)
{
    (void)unused;
    model_params_t *whole = NULL;
    optim_shards_t *shards = NULL;
    json_t *index = small_index(&whole);
    char path[PATH_MAX], other[PATH_MAX];
    assert_int_equal(optim_shards_parse(index, "the-index", &shards), GYRE_OK);
    size_t files = json_array_size(json_object_get(index, "files"));
    for (size_t f = 0; f < files; f++) {
        in_folder(f, "safetensors", path);
        FILE *file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, -5, SEEK_END), 0);
        int c = fgetc(file);
        assert_int_equal(fseek(file, -5, SEEK_END), 0);
        fputc(c ^ 1, file);
        fclose(file);
        assert_int_equal(optim_shards_sizes(shards, folder), GYRE_OK);
        for (size_t i = 0; i < files; i++)
            assert_int_equal(optim_shards_verify(shards, folder, i, files),
                             i == f ? GYRE_ERR_FORMAT : GYRE_OK);
        assert_non_null(file = fopen(path, "r+b"));
        assert_int_equal(fseek(file, -5, SEEK_END), 0);
        fputc(c, file);
        fclose(file);
    }
    for (size_t i = 0; i < files; i++)
        assert_int_equal(optim_shards_verify(shards, folder, i, files), GYRE_OK);
    in_folder(0, "safetensors", path); /* another one's bytes */
    in_folder(1, "safetensors", other);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(optim_shards_sizes(shards, folder), GYRE_ERR_NOT_FOUND);
    assert_int_equal(optim_shards_verify(shards, folder, 1, files), GYRE_ERR_FORMAT);
    optim_shards_destroy(shards);
    json_decref(index);
    model_params_destroy(whole);
    sweep();
}

static void entries(void **unused)
{
    (void)unused;
    model_params_t *whole = NULL;
    json_t *entry = NULL;
    char path[PATH_MAX];
    assert_int_equal(model_params_create(&small, &whole), GYRE_OK);
    assert_int_equal(model_shard_entry(folder, 3, &entry), GYRE_IN_PROGRESS);
    (void)gyre_fail_quiet(GYRE_ERR_IO, "the disk is %s", "full");
    model_shard_fail(folder, 3);
    assert_int_equal(model_shard_entry(folder, 3, &entry), GYRE_ERR_IO);
    assert_non_null(strstr(gyre_last_error(), "rank 3 could not write its shard: the disk is full"));
    in_folder(3, "failed", path);
    assert_int_equal(unlink(path), 0);
    in_folder(3, "done", path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("{\"name\"", file);
    fclose(file);
    assert_int_equal(model_shard_entry(folder, 3, &entry), GYRE_ERR_FORMAT);
    assert_int_equal(unlink(path), 0);
    /* a tied head is not stored */
    size_t head = model_params_find(whole, MODEL_HEAD, 0);
    assert_true(head != MODEL_NONE);
    optim_range_t range = make_range(head, 0, 4);
    assert_int_equal(model_shard_write(folder, 3, whole, &range, 1), GYRE_ERR_INVALID);
    in_folder(3, "failed", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(model_shard_write("/tmp/no-such-folder", 3, whole, &range, 0), GYRE_ERR_IO);
    free_ranges(&range, 1);
    model_params_destroy(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_layout), cmocka_unit_test(holes),
                                       cmocka_unit_test(foreign), cmocka_unit_test(damaged),
                                       cmocka_unit_test(entries)};
    return cmocka_run_group_tests(tests, begin, end);
}
