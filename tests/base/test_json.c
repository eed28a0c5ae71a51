/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_json.c: files come back as they were written, and errors say where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text/json.h"
#include "tests/base/capture.h"

static char folder[] = "/tmp/gyre-json-XXXXXX";
static char path[64], linked[64];

static int begin(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/a.json", folder);
    snprintf(linked, sizeof(linked), "%s/b.json", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(linked);
    unlink(path);
    return rmdir(folder); /* fails if a temporary file was left */
}

static void put(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static gyre_status_t read_quietly(const char *from, json_t **out)
{
    char text[1024];
    capture_t capture = capture_begin();
    gyre_status_t status = base_json_read(from, out);
    capture_end(capture, text, sizeof(text));
    return status;
}

static gyre_status_t write_quietly(const char *to, const json_t *value)
{
    char text[1024];
    capture_t capture = capture_begin();
    gyre_status_t status = base_json_write(to, value);
    capture_end(capture, text, sizeof(text));
    return status;
}

static void round_trip(void **state)
{
    (void)state;
    json_t *value = json_pack("{s:[i,f,s,n,b], s:{}}", "list", 7, 0.1, "\xc3\xa9\n\"", 1, "empty"),
           *back = NULL;
    for (int i = 0; i < 2; i++) { /* a new file, then over an old one */
        assert_int_equal(base_json_write(path, value), GYRE_OK);
        assert_int_equal(base_json_read(path, &back), GYRE_OK);
        assert_true(json_equal(value, back));
        json_decref(back);
    }
    assert_int_equal(symlink(path, linked), 0);
    assert_int_equal(base_json_write(linked, value), GYRE_OK);
    struct stat info;
    assert_int_equal(lstat(linked, &info), 0);
    assert_true(S_ISLNK(info.st_mode)); /* the file was replaced, not the link */
    assert_int_equal(base_json_write("/dev/null", value), GYRE_OK);
    json_decref(value);
}

static void errors_say_where(void **state)
{
    (void)state;
    json_t *out = NULL;
    char where[96];
    put("{\n  \"a\": 1,\n  \"b\" 2\n}\n");
    assert_int_equal(read_quietly(path, &out), GYRE_ERR_FORMAT);
    snprintf(where, sizeof(where), "%s:3:", path);
    assert_non_null(strstr(gyre_last_error(), where));

    static const char *const bad[] = {"", "{", "{} {}", "{\"a\":1,\"a\":2}", "[1,]", "nul", "\"\xff\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put(bad[i]);
        assert_int_equal(read_quietly(path, &out), GYRE_ERR_FORMAT);
        assert_non_null(strstr(gyre_last_error(), path));
    }
    assert_null(out); /* outputs are set only on success */
}

/* What Python's json writes and reads: integers of any size, and halves of surrogate pairs. All other values
 * stay as they are, and errors are where they were. */
static void from_python(void **state)
{
    (void)state;
    static const char text[] =
        "{\"hash\": [12345678901234567890, -9223372036854775809, 1000000000000000019884624838656, 7],\n"
        " \"most\": [9223372036854775807, -9223372036854775808, 0.12345678901234567890123, 1.0],\n"
        " \"half\": \"a\\ud800b\\uDC00\\\\ud800\\ud83d\\ude00\\ud801\\ud83d\\ude00 12345678901234567890\"}";
    for (int i = 0; i < 2; i++) {
        json_t *value = NULL;
        json_error_t error;
        int lacks;
        put(text);
        if (i == 0)
            assert_non_null(value = base_json_text(text, sizeof text - 1, &error, &lacks));
        else
            assert_int_equal(read_quietly(path, &value), GYRE_OK);
        const json_t *hash = json_object_get(value, "hash"), *most = json_object_get(value, "most");
        assert_true(json_real_value(json_array_get(hash, 0)) == 12345678901234567890.0);
        assert_true(fabs(json_real_value(json_array_get(hash, 1)) + 9223372036854775809.0) <
                    2048.0); /* 1 ulp */
        assert_true(json_real_value(json_array_get(hash, 2)) == 1e30);
        assert_int_equal(json_integer_value(json_array_get(hash, 3)), 7);
        assert_true(json_integer_value(json_array_get(most, 0)) == INT64_MAX);
        assert_true(json_integer_value(json_array_get(most, 1)) == INT64_MIN);
        assert_true(json_real_value(json_array_get(most, 2)) == 0.12345678901234567890123);
        assert_true(json_real_value(json_array_get(most, 3)) == 1.0);
        assert_string_equal(
            json_string_value(json_object_get(value, "half")),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd\\ud800\xf0\x9f\x98\x80\xef\xbf\xbd\xf0\x9f\x98\x80 12345678901234567890");
        json_decref(value);
    }
    json_t *out = NULL;
    char where[128];
    put("{\"id\": 12345678901234567890,\n \"text\": \"\\ud800\" 1}");
    assert_int_equal(read_quietly(path, &out), GYRE_ERR_FORMAT);
    snprintf(where, sizeof where, "%s:2:19: not valid JSON: '}' expected", path);
    assert_non_null(strstr(gyre_last_error(), where));
}

static void unreadable(void **state)
{
    (void)state;
    json_t *out = NULL;
    assert_int_equal(read_quietly("/no/such/file.json", &out), GYRE_ERR_NOT_FOUND);
    assert_non_null(strstr(gyre_last_error(), "/no/such/file.json"));
    assert_int_equal(read_quietly(folder, &out), GYRE_ERR_IO);
    assert_null(out);
}

static void unwritable(void **state)
{
    (void)state;
    json_t *value = json_pack("{s:i}", "a", 1);
    assert_int_equal(write_quietly("/no/such/folder/x.json", value), GYRE_ERR_IO);
    assert_int_equal(write_quietly(folder, value), GYRE_ERR_IO);
    assert_int_equal(write_quietly("/dev/full", value), GYRE_ERR_IO);
    assert_non_null(strstr(gyre_last_error(), "/dev/full"));
    static char large[100000]; /* is written before the end */
    memset(large, 'x', sizeof large - 1);
    json_t *text = json_string(large);
    assert_int_equal(write_quietly("/dev/full", text), GYRE_ERR_IO);
    assert_non_null(strstr(gyre_last_error(), strerror(ENOSPC)));
    json_decref(text);
    put("{\"old\": true}");
    assert_int_equal(write_quietly(path, NULL), GYRE_ERR_INVALID);
    json_t *back = NULL;
    assert_int_equal(base_json_read(path, &back), GYRE_OK); /* a failed write leaves the old file */
    assert_true(json_is_true(json_object_get(back, "old")));
    json_decref(back);
    json_decref(value);
}

/* ---- without memory ------------------------------------------------------------------------------------ */

static long left; /* requests until one is refused */

static void *scarce(size_t bytes)
{
    return left-- == 0 ? NULL : malloc(bytes);
}

/* There is none for the k-th request: the text, or nothing, for strings around the length at which
 * jansson's buffer grows, so that the byte that has no place is one of the string, or its quote. */
static void no_memory(void **state)
{
    enum { GROWS = 1 << 18, ROOM = GROWS + 32 };
    char *text = malloc(ROOM);
    json_malloc_t memory;
    json_free_t release;
    (void)state;
    assert_non_null(text);
    json_get_alloc_funcs(&memory, &release);
    json_set_alloc_funcs(scarce, free);
    for (size_t length = GROWS - 8; length < GROWS + 4; length++) {
        memset(text, 'x', ROOM);
        memcpy(text, "[\"", 2);
        memcpy(text + 2 + length, "\", 1]", 5);
        json_t *value = NULL;
        for (long k = 0; !value; k++) {
            json_error_t error;
            int lacks;
            left = k;
            value = base_json_text(text, length + 7, &error, &lacks);
            assert_true((value == NULL) == lacks);
            assert_true(k < 1000);
        }
        assert_int_equal(json_string_length(json_array_get(value, 0)), length);
        assert_int_equal(json_array_size(value), 2);
        json_decref(value);
    }
    json_set_alloc_funcs(memory, release);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip),  cmocka_unit_test(errors_say_where),
                                       cmocka_unit_test(from_python), cmocka_unit_test(unreadable),
                                       cmocka_unit_test(unwritable),  cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, begin, end);
}
