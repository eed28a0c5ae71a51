/* SPDX-License-Identifier: Apache-2.0 */
/* Reading text: files, folders, what is skipped, the split, sequences, and every way it can be refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "model/data/data.h"
#include "model/random.h"

static char folder[] = "/tmp/gyre-data-XXXXXX";
#include "tests/support/files.h"

static void put(const char *name, const char *text, size_t bytes)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    if (!mkdtemp(folder) || mkdir(at("tree"), 0700) || mkdir(at("tree/deep"), 0700) ||
        mkdir(at("binary"), 0700))
        return 1;
    put("tree/b.txt", "second ", 7);
    put("tree/a.txt", "first ", 6);
    put("tree/deep/c", "third", 5);
    put("tree/picture", "\x89PNG\0\0\0", 7);
    put("tree/.hidden", "no", 2);
    put("tree/empty", "", 0);
    put("binary/x", "\0\1\2", 3);
    put("empty", "", 0);
    return symlink("a.txt", at("tree/link"));
}

static gyre_status_t open_data(const char *path, const char *valid, model_sampling_t sampling,
                               model_data_t **out)
{
    const model_data_config_t config = {
        .path = path, .valid_path = valid, .valid_fraction = 0.1, .sampling = sampling};
    return model_data_open(&config, out);
}

static gyre_status_t open_text(const char *path, model_data_t **out)
{
    return open_data(path, NULL, MODEL_SAMPLING_RANDOM, out);
}

static void folder_in_order(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    model_token_t ids[18];
    assert_int_equal(open_text(at("tree"), &data), GYRE_OK);
    assert_int_equal(data->bytes, 18);
    assert_int_equal(data->tokens, 18);
    assert_int_equal(model_tokens_read(data->train.tokens[0], 0, 18, 256, ids), GYRE_OK);
    for (size_t i = 0; i < 18; i++)
        assert_int_equal(ids[i], "first second third"[i]);
    assert_int_equal(data->files, 3);
    assert_int_equal(data->skipped, 1);
    assert_int_equal(data->train.count[0], 17);
    assert_true(data->is_text);
    assert_int_equal(data->vocab, 256);
    assert_string_equal(data->tokenizer, "bytes");
    model_data_destroy(data);
}

/* What ranks need not copy they share: large files are mapped, small ones are in memory, and the stream runs
 * on from one to the other. Its hash is that of the bytes, wherever they are cut. */
static void large_files_are_mapped(void **state)
{
    (void)state;
    enum { LARGE = 100000 };
    static char text[LARGE], all[18 + LARGE];
    model_data_t *data = NULL;
    model_token_t ids[5];
    for (size_t i = 0; i < LARGE; i++)
        text[i] = (char)('a' + i * i % 26);
    put("tree/large", text, LARGE); /* after "tree/deep/c" */
    assert_int_equal(open_text(at("tree"), &data), GYRE_OK);
    const model_tokens_t *tokens = data->train.tokens[0];
    size_t copied = 0;
    for (size_t i = 0; i < tokens->maps; i++)
        copied += tokens->file[i].copy ? tokens->file[i].bytes : 0;
    assert_int_equal(tokens->maps, 4);
    assert_int_equal(copied, 18);
    assert_int_equal(tokens->count, LARGE + 18);
    assert_int_equal(model_tokens_read(tokens, 18 + LARGE - 2, 2, 256, ids), GYRE_OK);
    assert_int_equal(ids[1], text[LARGE - 1]);
    assert_int_equal(model_tokens_read(tokens, 17, 3, 256, ids), GYRE_OK);
    assert_int_equal(ids[0], 'd');
    assert_int_equal(ids[1], text[0]);
    const model_tokens_file_t *last = &tokens->file[3];
    assert_string_equal(model_data_mapped(data, last->map), last->path);
    assert_string_equal(model_data_mapped(data, last->map + LARGE - 1), last->path);
    assert_null(model_data_mapped(data, last->map + LARGE));
    assert_null(model_data_mapped(data, tokens->file[0].map)); /* it was read */
    assert_int_equal(model_data_identify(data), GYRE_OK);
    memcpy(all, "first second third", 18);
    memcpy(all + 18, text, LARGE);
    assert_int_equal(data->hash, base_hash64(all, sizeof all, 0));
    model_data_destroy(data);
    unlink(at("tree/large"));
}

/* Of every source the last `fraction`, to a token. */
static void held_out(void **state)
{
    (void)state;
    static char text[997];
    const double fraction[] = {0.0, 0.1, 0.25, 0.5, 0.999};
    const uint64_t held[] = {0, 99, 249, 498, 996};
    char path[256];
    memset(text, 'x', sizeof text);
    put("held", text, sizeof text);
    snprintf(path, sizeof path, "%s", at("held"));
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        model_data_t *data = NULL;
        const model_data_config_t config = {.path = path, .valid_fraction = fraction[i]};
        assert_int_equal(model_data_open(&config, &data), GYRE_OK);
        assert_int_equal(data->sets, held[i] > 0);
        assert_int_equal(data->train.count[0], 997 - held[i]);
        if (held[i] > 0) {
            assert_int_equal(data->set[0].mix.first[0], 997 - held[i]);
            assert_int_equal(data->set[0].mix.count[0], held[i]);
        }
        model_data_destroy(data);
    }
    for (uint64_t n = 1, i = 0; i < 2000; n = n * 3 + i++, n %= UINT64_C(1) << 50) /* a tenth, as ever */
        assert_int_equal((uint64_t)((double)n * 0.1), n / 10);
    unlink(at("held"));
}

/* 16-bit ids without a header are no text, unless they are said to be. */
static void headerless_ids(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    char path[256];
    snprintf(path, sizeof path, "%s", at("binary/x"));
    model_data_config_t config = {.path = path, .valid_fraction = 0.1};
    assert_int_equal(model_data_open(&config, &data), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "--data-format nanogpt"));
    config.format = MODEL_TOKENS_TEXT;
    assert_int_equal(model_data_open(&config, &data), GYRE_OK);
    assert_int_equal(data->bytes, 3);
    model_data_destroy(data);
}

static void entropy_of_known_text(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    char text[400];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "abcd"[i % 4];
    put("long", text, sizeof text);
    assert_int_equal(open_text(at("long"), &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, 4), GYRE_OK);
    assert_true(fabs(data->unigram_entropy - log(4.0)) < 1e-12);
    model_data_destroy(data);
}

static void refused(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    assert_int_equal(open_text(at("nothing"), &data), GYRE_ERR_NOT_FOUND);
    assert_non_null(strstr(gyre_last_error(), at("nothing")));
    assert_non_null(strstr(gyre_last_error(), "name a text file"));
    assert_int_equal(open_text(at("empty"), &data), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "is empty"));
    assert_int_equal(open_text(at("binary"), &data), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "1 files were skipped"));
    assert_int_equal(open_text("/dev/null", &data), GYRE_ERR_INVALID);
    assert_int_equal(open_text("0.5:/nothing/here,x:y", &data), GYRE_ERR_NOT_FOUND);
    static const char *const weightless[] = {"0:a,1:b", "0:a"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(open_text(weightless[i], &data), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "'0' is not a weight"));
    }
    assert_null(data);
    assert_int_equal(open_text(at("tree"), &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, 4), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), at("tree")));
    assert_int_equal(model_data_prepare(data, 255, 1), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "vocabulary"));
    model_data_destroy(data);
}

enum { BYTES = 250, SEQ = 8 };

static void put_long(unsigned char *text)
{
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (unsigned char)(1 + i % 251);
    put("long", (const char *)text, BYTES);
}

/* Byte i of the text is i + 1. */
static size_t place_of(const model_token_t *x, const model_token_t *y)
{
    for (model_token_t t = 0; t < SEQ; t++) {
        assert_int_equal(x[t], x[0] + t);
        assert_int_equal(y[t], x[0] + t + 1);
    }
    return (size_t)x[0] - 1;
}

static void sequences(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    unsigned char text[BYTES];
    model_token_t x[SEQ], y[SEQ], again[SEQ];
    put_long(text);
    assert_int_equal(open_text(at("long"), &data), GYRE_OK);
    /* 25 bytes of validation: 24 and a target */
    assert_int_equal(model_data_prepare(data, 256, 24), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, 25), GYRE_ERR_INVALID);
    assert_int_equal(model_data_prepare(data, 256, SEQ), GYRE_OK);

    size_t different = 0, first = 0, last = 0;
    for (uint64_t s = 0; s < 500; s++)
        for (size_t index = 0; index < 4; index++) {
            const model_data_step_t step = {.seed = 1, .step = s, .samples = 4 * s},
                                    other = {.seed = 2, .step = s, .samples = 4 * s};
            assert_int_equal(
                model_data_train(data, &step, index, &(const model_example_t){.tokens = x, .targets = y}),
                GYRE_OK);
            size_t place = place_of(x, y);
            /* never another: runs of before are repeated to the bit */
            uint64_t bits = model_random_bits(1, MODEL_RANDOM_DATA, (uint32_t)index, s);
            assert_int_equal(place, bits % (225 - SEQ));
            first |= place == 0;
            last |= place == 225 - SEQ - 1;
            model_data_train(data, &step, index, &(const model_example_t){.tokens = again, .targets = y});
            assert_memory_equal(x, again, sizeof x);
            model_data_train(data, &other, index, &(const model_example_t){.tokens = again, .targets = y});
            different += memcmp(x, again, sizeof x) != 0;
        }
    assert_true(different > 1900);
    assert_true(first && last); /* every place can be drawn */

    assert_int_equal(model_data_validation_count(data, 0), 3);
    assert_int_equal(model_data_validation(data, 0, 1, &(const model_example_t){.tokens = x, .targets = y}),
                     GYRE_OK);
    assert_int_equal(place_of(x, y), 225 + SEQ);
    assert_int_equal(model_data_identify(data), GYRE_OK);
    assert_int_equal(data->hash, base_hash64(text, BYTES, 0));
    model_data_destroy(data);
}

/* Each epoch holds every window once, however steps cut it up, and epochs differ in order and in where
 * windows begin. */
static void epochs(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    unsigned char text[BYTES];
    model_token_t x[SEQ], y[SEQ];
    put_long(text);
    assert_int_equal(open_data(at("long"), NULL, MODEL_SAMPLING_EPOCH, &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, SEQ), GYRE_OK);
    size_t each = (size_t)model_data_epoch(data, 0);
    assert_int_equal(each, 224 / SEQ);
    size_t moved = 0, ordered = 0;
    for (size_t epoch = 0; epoch < 20; epoch++) {
        int seen[BYTES] = {0};
        size_t begin = BYTES, before = 0;
        for (size_t i = epoch * each; i < (epoch + 1) * each; i++) {
            /* the same sample in batches of 4 and of 7 */
            const model_data_step_t step = {.seed = 9, .step = i / 4, .samples = i / 4 * 4},
                                    other = {.seed = 9, .step = i / 7, .samples = i / 7 * 7};
            assert_int_equal(
                model_data_train(data, &step, i % 4, &(const model_example_t){.tokens = x, .targets = y}),
                GYRE_OK);
            size_t place = place_of(x, y);
            assert_int_equal(
                model_data_train(data, &other, i % 7, &(const model_example_t){.tokens = x, .targets = y}),
                GYRE_OK);
            assert_int_equal(place_of(x, y), place);
            assert_int_equal(seen[place]++, 0);
            assert_true(place + SEQ < 225);
            begin = place < begin ? place : begin;
            ordered += place > before;
            before = place;
        }
        for (size_t k = 0; k < each; k++)
            assert_int_equal(seen[begin + k * SEQ], 1);
        moved += begin > 0;
    }
    assert_int_equal(224 % SEQ, 0); /* then there is no room to begin elsewhere */
    assert_int_equal(moved, 0);
    assert_in_range(ordered, 20 * each / 4, 20 * each * 3 / 4);
    model_data_destroy(data);
}

/* Where windows do not fill the text, epochs begin at different places, and no byte is left out of all. */
static void epochs_begin_elsewhere(void **state)
{
    (void)state;
    enum { ODD = 10 };
    model_data_t *data = NULL;
    unsigned char text[BYTES];
    model_token_t x[ODD], y[ODD];
    int first[ODD] = {0};
    put_long(text);
    assert_int_equal(open_data(at("long"), NULL, MODEL_SAMPLING_EPOCH, &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, ODD), GYRE_OK);
    size_t each = (size_t)model_data_epoch(data, 0);
    assert_int_equal(each, 22);
    for (size_t epoch = 0; epoch < 60; epoch++) {
        int begin = -1;
        for (size_t i = 0; i < each; i++) {
            const model_data_step_t step = {.seed = 3, .samples = epoch * each};
            assert_int_equal(
                model_data_train(data, &step, i, &(const model_example_t){.tokens = x, .targets = y}),
                GYRE_OK);
            int mine = (x[0] - 1) % ODD;
            assert_true(begin < 0 || mine == begin);
            begin = mine;
        }
        first[begin] = 1;
    }
    for (int i = 0; i < ODD; i++)
        assert_int_equal(first[i], i <= 224 % ODD);
    model_data_destroy(data);
}

/* Two sources by weight, both in training and in validation; and validation from a file of its own. */
static void blend(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    model_token_t x[SEQ], y[SEQ];
    char list[600], text[1000];
    memset(text, 'a', sizeof text);
    put("a,1:x", text, 1000);
    memset(text, 'b', sizeof text);
    put("b,c", text, 400);
    snprintf(list, sizeof list, "0.75:%s,.25:%s", at("b,c"), at("long"));
    memset(text, 'a', sizeof text);
    put("long", text, 1000);
    assert_int_equal(open_text(list, &data), GYRE_OK);
    assert_int_equal(data->train.sources, 2);
    assert_int_equal(data->files, 2);
    assert_int_equal(model_data_prepare(data, 256, SEQ), GYRE_OK);
    size_t b = 0;
    for (size_t i = 0; i < 400; i++) {
        const model_data_step_t step = {.seed = 3, .step = i / 4, .samples = i / 4 * 4};
        assert_int_equal(
            model_data_train(data, &step, i % 4, &(const model_example_t){.tokens = x, .targets = y}),
            GYRE_OK);
        b += x[0] == 'b';
        assert_true(fabs((double)b - 0.75 * (double)(i + 1)) < 1.0);
    }
    /* 39 / 8 = 4 windows of b, 99 / 8 = 12 of a: as many as 3 to 1 allows */
    size_t n = model_data_validation_count(data, 0);
    assert_in_range(n, 5, 6);
    for (size_t i = b = 0; i < n; i++) {
        assert_int_equal(
            model_data_validation(data, 0, i, &(const model_example_t){.tokens = x, .targets = y}), GYRE_OK);
        b += x[0] == 'b';
    }
    assert_int_equal(b, 4);
    assert_int_equal(model_data_identify(data), GYRE_OK);
    uint64_t hash = data->hash;
    model_data_destroy(data);

    snprintf(list, sizeof list, "0.7:%s,.3:%s", at("b,c"), at("long"));
    assert_int_equal(open_text(list, &data), GYRE_OK);
    assert_int_equal(model_data_identify(data), GYRE_OK);
    assert_true(data->hash != hash); /* other weights are other data */
    model_data_destroy(data);

    assert_int_equal(open_data(at("long"), at("b,c"), MODEL_SAMPLING_RANDOM, &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, SEQ), GYRE_OK);
    assert_int_equal(data->train.count[0], 1000);
    assert_int_equal(model_data_validation_count(data, 0), 399 / SEQ);
    assert_int_equal(
        model_data_validation(data, 0, 399 / SEQ - 1, &(const model_example_t){.tokens = x, .targets = y}),
        GYRE_OK);
    assert_int_equal(x[0], 'b');
    model_data_destroy(data);
    assert_int_equal(open_text(at("a,1:x"), &data), GYRE_OK); /* what is there is no list */
    model_data_destroy(data);
}

static void put_tokens(const char *name, uint64_t hash)
{
    static const model_token_t ids[64];
    model_tokens_writer_t *writer = NULL;
    const model_tokens_header_t header = {
        .vocab = 300, .tokenizer = hash ? name : "", .tokenizer_hash = hash, .eot = -1};
    assert_int_equal(model_tokens_create(at(name), &header, &writer), GYRE_OK);
    assert_int_equal(model_tokens_add(writer, ids, NULL, 64), GYRE_OK);
    assert_int_equal(model_tokens_finish(writer), GYRE_OK);
}

/* Sources that name their tokenizer name the same one, also after one that does not. */
static void one_tokenizer(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    char list[900];
    put_tokens("none", 0);
    put_tokens("first", 1);
    put_tokens("second", 2);
    snprintf(list, sizeof list, "1:%s,1:%s", at("none"), at("first"));
    assert_int_equal(open_text(list, &data), GYRE_OK);
    assert_true(data->tokenizer_hash == 1);
    model_data_destroy(data);
    assert_int_equal(open_data(list, at("second"), MODEL_SAMPLING_RANDOM, &data), GYRE_ERR_INVALID);
    snprintf(list, sizeof list, "1:%s,1:%s,1:%s", at("none"), at("first"), at("second"));
    assert_int_equal(open_text(list, &data), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "second holds ids of 'second' (300 of them), but"));
    assert_non_null(strstr(gyre_last_error(), "first those of 'first'"));
    snprintf(list, sizeof list, "1:%s,1:%s,1:%s", at("none"), at("second"), at("none"));
    assert_int_equal(open_text(list, &data), GYRE_OK);
    model_data_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_in_order), cmocka_unit_test(entropy_of_known_text),
        cmocka_unit_test(refused),         cmocka_unit_test(sequences),
        cmocka_unit_test(epochs),          cmocka_unit_test(epochs_begin_elsewhere),
        cmocka_unit_test(blend),           cmocka_unit_test(large_files_are_mapped),
        cmocka_unit_test(headerless_ids),  cmocka_unit_test(held_out),
        cmocka_unit_test(one_tokenizer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
