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

#include "base/log.h"
#include "model/data.h"

static char folder[] = "/tmp/gyre-data-XXXXXX";

static char *at(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

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

static int teardown(void **state)
{
    (void)state;
    const char *files[] = {"tree/b.txt", "tree/a.txt", "tree/deep/c", "tree/picture", "tree/.hidden",
                           "tree/empty", "tree/link",  "binary/x",    "empty",        "long"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        unlink(at(files[i]));
    return rmdir(at("tree/deep")) || rmdir(at("tree")) || rmdir(at("binary")) || rmdir(folder);
}

static void folder_in_order(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    assert_int_equal(model_data_open(at("tree"), &data), GYRE_OK);
    assert_int_equal(data->bytes, 18);
    assert_memory_equal(data->text, "first second third", 18);
    assert_int_equal(data->files, 3);
    assert_int_equal(data->skipped, 1);
    assert_int_equal(data->train, 17);
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
    assert_int_equal(model_data_open(at("long"), &data), GYRE_OK);
    assert_true(fabs(data->unigram_entropy - log(4.0)) < 1e-12);
    model_data_destroy(data);
}

static void refused(void **state)
{
    (void)state;
    model_data_t *data = NULL;
    assert_int_equal(model_data_open(at("nothing"), &data), GYRE_ERR_NOT_FOUND);
    assert_non_null(strstr(gyre_last_error(), at("nothing")));
    assert_non_null(strstr(gyre_last_error(), "--data"));
    assert_int_equal(model_data_open(at("empty"), &data), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "is empty"));
    assert_int_equal(model_data_open(at("binary"), &data), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "1 files were skipped"));
    assert_int_equal(model_data_open("/dev/null", &data), GYRE_ERR_INVALID);
    assert_null(data);
    assert_int_equal(model_data_open(at("tree"), &data), GYRE_OK);
    assert_int_equal(model_data_check(data, at("tree"), 4), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), at("tree")));
    model_data_destroy(data);
}

static void sequences(void **state)
{
    (void)state;
    enum { BYTES = 250, SEQ = 8 };
    model_data_t *data = NULL;
    unsigned char text[BYTES];
    model_token_t x[SEQ], y[SEQ], again[SEQ];
    for (size_t i = 0; i < BYTES; i++)
        text[i] = (unsigned char)(1 + i % 251);
    put("long", (const char *)text, BYTES);
    assert_int_equal(model_data_open(at("long"), &data), GYRE_OK);
    assert_int_equal(model_data_check(data, "long", SEQ), GYRE_OK);
    /* 25 bytes of validation: 24 and a target */
    assert_int_equal(model_data_check(data, "long", 24), GYRE_OK);
    assert_int_equal(model_data_check(data, "long", 25), GYRE_ERR_INVALID);

    size_t different = 0, first = 0, last = 0;
    for (uint64_t step = 0; step < 500; step++)
        for (size_t index = 0; index < 4; index++) {
            model_data_train(data, 1, step, index, SEQ, x, y);
            const unsigned char *place = NULL;
            for (size_t i = 0; i + SEQ < data->train && !place; i++)
                if (data->text[i] == x[0] && data->text[i + SEQ] == y[SEQ - 1] && data->text[i + 1] == y[0])
                    place = data->text + i;
            assert_non_null(place); /* wholly in the training part */
            for (size_t t = 0; t < SEQ; t++) {
                assert_int_equal(x[t], place[t]);
                assert_int_equal(y[t], place[t + 1]);
            }
            first |= place == data->text;
            last |= place == data->text + data->train - SEQ - 1;
            model_data_train(data, 1, step, index, SEQ, again, y);
            assert_memory_equal(x, again, sizeof x);
            model_data_train(data, 2, step, index, SEQ, again, y);
            different += memcmp(x, again, sizeof x) != 0;
        }
    assert_true(different > 1900);
    assert_true(first && last); /* every place can be drawn */

    assert_int_equal(model_data_validation_count(data, SEQ), 3);
    model_data_validation(data, 1, SEQ, x, y);
    assert_int_equal(x[0], data->text[data->train + SEQ]);
    assert_int_equal(y[SEQ - 1], data->text[data->train + 2 * SEQ]);
    model_data_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_in_order),
        cmocka_unit_test(entropy_of_known_text),
        cmocka_unit_test(refused),
        cmocka_unit_test(sequences),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
