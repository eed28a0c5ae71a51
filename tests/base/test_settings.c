/* SPDX-License-Identifier: Apache-2.0 */
/* tests/base/test_settings.c: values of each kind, malformed ones, unknown names, flags over environment over
 * defaults, and readers in parallel with a writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "base/settings/parse.h"
#include "tests/base/capture.h"

extern char **environ;

/* Every test starts from an environment without settings and without overrides. */
static int clean(void **state)
{
    (void)state;
    for (int i = 0; i < SET_COUNT; i++) {
        unsetenv(base_setting_row((base_setting_t)i).name);
        base_settings_set((base_setting_t)i, NULL, NULL);
    }
    unsetenv("WORLD_SIZE");
    base_log_set_rank(-1);
    return base_settings_reload() != GYRE_OK;
}

static int parses(base_setting_kind_t kind, const char *text, base_setting_value_t *out)
{
    *out = (base_setting_value_t){0};
    return base_setting_parse(kind, "none|some|all", text, out);
}

static void defaults_are_of_their_kind(void **state)
{
    (void)state;
    for (int i = 0; i < SET_COUNT; i++) {
        base_setting_row_t row = base_setting_row((base_setting_t)i);
        base_setting_value_t value;
        assert_int_equal(strncmp(row.name, "GYRE_", 5), 0);
        assert_true(base_setting_parse(row.kind, row.unit, row.standard, &value));
        assert_string_equal(base_setting_string((base_setting_t)i), row.standard);
        if (row.kind == BASE_SETTING_SECONDS)
            assert_true(base_setting_standard_seconds((base_setting_t)i) == value.seconds);
        assert_string_equal(row.source, "default");
        assert_true(base_setting_is_default((base_setting_t)i));
        assert_int_equal(base_setting_nearest(row.name), i);
        assert_true(strlen(row.meaning) > 5);
    }
    assert_int_equal(base_setting_int(SET_SHM_BUDGET), 4 << 20);
    assert_true(base_setting_seconds(SET_TIMEOUT) == 300.0);
    assert_int_equal(base_setting_int(SET_RANK), -1);
}

static void sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"1", 1},
                {"65536", 65536},
                {"64K", 65536},
                {"64k", 65536},
                {"4M", 4 << 20},
                {"4MiB", 4 << 20},
                {"4mb", 4 << 20},
                {"3G", 3LL << 30},
                {"2T", 2LL << 40},
                {"9223372036854775807", INT64_MAX},
                {"8388607T", 8388607LL << 40}};
    static const char *const bad[] = {"",         "K",   "-1",  "+1",
                                      "1.55K",    " 4M", "4 M", "4M ",
                                      "4X",       "4MM", "0x4", "9223372036854775808",
                                      "8388608T", "4iB", "4Mi", "18446744073709551617"};
    base_setting_value_t value;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parses(BASE_SETTING_SIZE, good[i].text, &value));
        assert_true(value.number == good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parses(BASE_SETTING_SIZE, bad[i], &value))
            fail_msg("\"%s\" was taken for a size", bad[i]);
}

static void numbers(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   "-",  "+-1",        "1.0",         "1 ",
                                      " 1", "1k", "2147483648", "-2147483648", "one"};
    base_setting_value_t value;
    assert_true(parses(BASE_SETTING_INT, "-1", &value) && value.number == -1);
    assert_true(parses(BASE_SETTING_INT, "+12", &value) && value.number == 12);
    assert_true(parses(BASE_SETTING_INT, "2147483647", &value) && value.number == 2147483647);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parses(BASE_SETTING_INT, bad[i], &value))
            fail_msg("\"%s\" was taken for a whole number", bad[i]);
}

static void seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {
        {"60", 60.0},   {"0.5", 0.5}, {".5", 0.5},    {"5.", 5.0},          {"60s", 60.0},
        {"500ms", 0.5}, {"0", 0.0},   {"1.25", 1.25}, {"100000000.5", 1e8}, {"99999999999999999999", 1e8}};
    static const char *const bad[] = {
        "", ".", "-1", "1,5", "1e3", "inf", "nan", "1 s", "1m", "1h", "s", "0x1", "100000000000000000000000"};
    base_setting_value_t value;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(parses(BASE_SETTING_SECONDS, good[i].text, &value));
        assert_true(value.seconds == good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parses(BASE_SETTING_SECONDS, bad[i], &value))
            fail_msg("\"%s\" was taken for seconds", bad[i]);
}

static void ranges(void **state)
{
    (void)state;
    static const struct {
        const char *unit, *least, *most, *less, *more; /* NULL: none */
    } cases[] = {
        {"level 0..15", "0", "15", "-1", "16"},         {"queue pairs 1..8", "1", "8", "0", "9"},
        {"index -1..", "-1", "2147483647", "-2", NULL}, {"bytes 4K..256K", "4096", "256K", "4095", "262145"},
        {"us 0..1G", "0", "1G", NULL, "1025M"},         {"ranks", "-2147483647", "2147483647", NULL, NULL}};
    base_setting_value_t value;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *unit = cases[i].unit;
        const base_setting_kind_t kind =
            strchr(cases[i].most, 'G') || strchr(cases[i].most, 'K') ? BASE_SETTING_SIZE : BASE_SETTING_INT;
        assert_true(base_setting_parse(kind, unit, cases[i].least, &value));
        assert_true(base_setting_parse(kind, unit, cases[i].most, &value));
        assert_false(cases[i].less && base_setting_parse(kind, unit, cases[i].less, &value));
        assert_false(cases[i].more && base_setting_parse(kind, unit, cases[i].more, &value));
    }
}

static void switches_and_choices(void **state)
{
    (void)state;
    base_setting_value_t value;
    static const char *const on[] = {"1", "yes", "ON", "True"}, *const off[] = {"0", "no", "Off", "FALSE"};
    for (int i = 0; i < 4; i++) {
        assert_true(parses(BASE_SETTING_BOOL, on[i], &value) && value.number == 1);
        assert_true(parses(BASE_SETTING_BOOL, off[i], &value) && value.number == 0);
    }
    assert_false(parses(BASE_SETTING_BOOL, "2", &value));
    assert_false(parses(BASE_SETTING_BOOL, "", &value));
    assert_false(parses(BASE_SETTING_BOOL, "yess", &value));
    assert_true(parses(BASE_SETTING_CHOICE, "none", &value) && value.number == 0);
    assert_true(parses(BASE_SETTING_CHOICE, "All", &value) && value.number == 2);
    static const char *const bad[] = {"", "al", "alll", "none|some", "|", "n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (parses(BASE_SETTING_CHOICE, bad[i], &value))
            fail_msg("\"%s\" was taken for a choice", bad[i]);
}

static void distances(void **state)
{
    (void)state;
    assert_int_equal(base_setting_distance("", ""), 0);
    assert_int_equal(base_setting_distance("", "abc"), 3);
    assert_int_equal(base_setting_distance("kitten", "sitting"), 3);
    assert_int_equal(base_setting_distance("ab", "ba"), 1);
    assert_int_equal(base_setting_nearest("GYRE_TIMEUOT"), SET_TIMEOUT);
    assert_int_equal(base_setting_nearest("GYRE_TRANPSORT"), SET_TRANSPORT);
    assert_int_equal(base_setting_nearest("GYRE_LOG_LEVEL"), SET_LOG); /* not RANK, INIT_TIMEOUT, ... */
}

static void environment_over_default_flag_over_environment(void **state)
{
    (void)state;
    setenv("GYRE_CHUNK", "64K", 1);
    setenv("GYRE_ORDER", "FAST", 1);
    setenv("GYRE_ALGO", "", 1);
    assert_int_equal(base_settings_reload(), GYRE_OK);
    assert_int_equal(base_setting_int(SET_CHUNK), 65536);
    assert_string_equal(base_setting_string(SET_CHUNK), "64K");
    assert_string_equal(base_setting_string(SET_ORDER), "fast"); /* as the table spells it */
    assert_string_equal(base_setting_row(SET_CHUNK).source, "environment");
    assert_true(base_setting_is_default(SET_ALGO)); /* set to nothing is not set */

    char flag[] = "128K", source[] = "flag --chunk";
    const char *before = base_setting_string(SET_CHUNK);
    assert_int_equal(base_settings_set(SET_CHUNK, flag, source), GYRE_OK);
    memset(flag, 'x', 4); /* both were copied */
    memset(source, 'x', 4);
    assert_int_equal(base_setting_int(SET_CHUNK), 131072);
    assert_string_equal(base_setting_row(SET_CHUNK).source, "flag --chunk");
    assert_string_equal(before, "64K"); /* old strings stay readable */

    setenv("GYRE_CHUNK", "1K", 1);
    assert_int_equal(base_settings_reload(), GYRE_OK);
    assert_int_equal(base_setting_int(SET_CHUNK), 131072); /* a flag outlives a reload */
    assert_int_equal(base_settings_set(SET_CHUNK, NULL, NULL), GYRE_OK);
    assert_int_equal(base_setting_int(SET_CHUNK), 1024);
}

static void malformed_values(void **state)
{
    (void)state;
    static const struct {
        base_setting_t id;
        const char *name, *value, *accepts;
    } cases[] = {{SET_RANK, "GYRE_RANK", "one", "whole number"},
                 {SET_CHUNK, "GYRE_CHUNK", "4X", "K, M, G or T"},
                 {SET_TIMEOUT, "GYRE_TIMEOUT", "soon", "seconds"},
                 {SET_PROGRESS_THREAD, "GYRE_PROGRESS_THREAD", "maybe", "0 or 1"},
                 {SET_PROGRESS_THREAD, "GYRE_PROGRESS_THREAD", "7", "0 or 1"},
                 {SET_HOST_RANKS, "GYRE_HOST_RANKS", "-3", "ranks 0.."},
                 {SET_VERBS_GID, "GYRE_VERBS_GID", "-2", "index -1.."},
                 {SET_VERBS_QPS, "GYRE_VERBS_QPS", "0", "queue pairs 1..8"},
                 {SET_VERBS_QPS, "GYRE_VERBS_QPS", "9", "queue pairs 1..8"},
                 {SET_VERBS_RING, "GYRE_VERBS_RING", "4095", "bytes 4K..256K"},
                 {SET_VERBS_RING, "GYRE_VERBS_RING", "1M", "bytes 4K..256K"},
                 {SET_VERBS_SL, "GYRE_VERBS_SL", "16", "level 0..15"},
                 {SET_VERBS_TCLASS, "GYRE_VERBS_TCLASS", "256", "class 0..255"},
                 {SET_SPIN, "GYRE_SPIN", "8388607T", "us 0..1G"},
                 {SET_ORDER, "GYRE_ORDER", "random", "canonical|fast"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        setenv(cases[i].name, cases[i].value, 1);
        capture_t capture = capture_begin();
        gyre_status_t status = base_settings_reload();
        capture_end(capture, text, sizeof(text));
        assert_int_equal(status, GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), cases[i].name));
        assert_non_null(strstr(gyre_last_error(), cases[i].value));
        assert_non_null(strstr(gyre_last_error(), cases[i].accepts));
        assert_non_null(strstr(text, cases[i].accepts)); /* and it was logged */
        assert_null(strstr(text, "instead"));            /* whether to go on is the caller's to say */
        assert_true(base_setting_is_default(cases[i].id));
        assert_string_equal(base_setting_string(cases[i].id), base_setting_row(cases[i].id).standard);

        assert_int_equal(base_settings_load(), GYRE_ERR_INVALID); /* reported again, but not logged again */
        unsetenv(cases[i].name);
        assert_int_equal(base_settings_reload(), GYRE_OK);

        capture = capture_begin();
        status = base_settings_set(cases[i].id, cases[i].value, "flag --x");
        capture_end(capture, text, sizeof(text));
        assert_int_equal(status, GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), "flag --x"));
        assert_true(base_setting_is_default(cases[i].id));
    }
}

static void unknown_names_are_told_once(void **state)
{
    (void)state;
    char text[1024];
    setenv("GYRE_TIMEUOT", "3", 1);
    setenv("NOT_GYRE_TIMEUOT", "3", 1);
    setenv("GYRE_MPI_REPORT", "1", 1); /* a binding's own */
    setenv("GYRE_NCCL_FALLBACK", "libnccl.so", 1);
    capture_t capture = capture_begin();
    gyre_status_t status = base_settings_reload();
    setenv("GYRE_CHUNK", "1", 1); /* so that the second reload reads again */
    gyre_status_t again = base_settings_reload();
    capture_end(capture, text, sizeof(text));
    unsetenv("GYRE_TIMEUOT");
    unsetenv("NOT_GYRE_TIMEUOT");
    unsetenv("GYRE_MPI_REPORT");
    unsetenv("GYRE_NCCL_FALLBACK");
    assert_int_equal(status, GYRE_OK); /* a warning, not an error */
    assert_int_equal(again, GYRE_OK);
    char *line = strstr(text, "GYRE_TIMEUOT");
    assert_non_null(line);
    assert_non_null(strstr(line, "GYRE_TIMEOUT?"));
    assert_null(strstr(line + 1, "GYRE_TIMEUOT"));
    assert_null(strstr(text, "NOT_GYRE"));
    assert_null(strstr(text, "GYRE_MPI"));
    assert_null(strstr(text, "GYRE_NCCL"));
}

static void log_level_and_rank_follow(void **state)
{
    (void)state;
    setenv("GYRE_LOG", "debug", 1);
    setenv("GYRE_RANK", "5", 1);
    assert_int_equal(base_settings_reload(), GYRE_OK);
    assert_int_equal(base_log_limit, BASE_LOG_DEBUG);
    assert_int_equal(base_log_rank(), 5);
    assert_int_equal(base_settings_set(SET_LOG, "none", "flag --quiet"), GYRE_OK);
    assert_int_equal(base_log_limit, BASE_LOG_NONE);
    assert_int_equal(base_settings_set(SET_LOG, NULL, NULL), GYRE_OK);
    unsetenv("GYRE_LOG");
    assert_int_equal(base_settings_reload(), GYRE_OK);
    assert_int_equal(base_log_limit, BASE_LOG_WARNING);
}

/* What this program prints on stderr if it fails before the settings are read, with these variables. */
static void early(const char *variables, char text[256])
{
    char self[300] = "", line[400];
    assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
    snprintf(line, sizeof(line), "%s '%s' early 2>&1", variables, self);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    text[fread(text, 1, 255, pipe)] = '\0';
    pclose(pipe);
}

static void log_level_before_the_settings_are_read(void **state)
{
    (void)state;
    char text[256];
    early("GYRE_LOG=none", text);
    assert_string_equal(text, "");
    early("GYRE_LOG=Info", text);
    assert_non_null(strstr(text, "error: too early"));
    assert_non_null(strstr(text, "info: so it is"));
    early("GYRE_LOG=loud", text);
    assert_string_equal(text, "gyre: error: too early\n");
}

static void foreign_variables(void **state)
{
    (void)state;
    assert_null(base_env("WORLD_SIZE"));
    setenv("WORLD_SIZE", "12", 1);
    assert_null(base_env("WORLD_SIZE")); /* a snapshot */
    assert_int_equal(base_settings_reload(), GYRE_OK);
    assert_string_equal(base_env("WORLD_SIZE"), "12");
    assert_null(base_env("WORLD_SIZ"));
    assert_null(base_env("WORLD_SIZE=1"));
}

static void an_empty_environment(void **state)
{
    (void)state;
    char *none[] = {NULL}, **saved = environ;
    environ = none;
    gyre_status_t status = base_settings_reload();
    const char *path = base_env("PATH");
    environ = saved;
    assert_int_equal(base_settings_reload(), GYRE_OK);
    assert_int_equal(status, GYRE_OK);
    assert_null(path);
}

/* Joins the lines of a meaning: a line break and the spaces that begin the next line become one space. */
static void unwrap(char *text)
{
    char *to = text;
    for (const char *from = text; *from; from++) {
        *to++ = *from;
        if (from[0] != '\n' || from[1] != ' ')
            continue;
        to[-1] = ' ';
        from += strspn(from + 1, " ");
    }
    *to = '\0';
}

static void print_lists_all_and_hides_the_secret(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    setenv("GYRE_SECRET", "c0ffee", 1);
    assert_int_equal(base_settings_reload(), GYRE_OK);
    FILE *out = open_memstream(&text, &bytes);
    base_settings_print(out);
    fclose(out);
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        assert_in_range(end - line, 1, 220);
    unwrap(text);
    for (int i = 0; i < SET_COUNT; i++) {
        base_setting_row_t row = base_setting_row((base_setting_t)i);
        char start[80];
        snprintf(start, sizeof(start), "\n%s ", row.name);
        assert_non_null(strstr(text, start));
        assert_non_null(strstr(text, row.meaning));
    }
    assert_null(strstr(text, "c0ffee"));
    assert_non_null(strstr(text, "(hidden)"));
    free(text);
}

static void out_of_range(void **state)
{
    (void)state;
    char text[256];
    capture_t capture = capture_begin();
    gyre_status_t status = base_settings_set((base_setting_t)SET_COUNT, "1", "x");
    capture_end(capture, text, sizeof(text));
    assert_int_equal(status, GYRE_ERR_INVALID);
    assert_string_equal(base_setting_string((base_setting_t)-1), "");
    assert_int_equal(base_setting_int((base_setting_t)SET_COUNT), 0);
}

static _Atomic int stop;
static void *reader(void *unused)
{
    (void)unused;
    int64_t wrong = 0;
    while (!stop) {
        int64_t value = base_setting_int(SET_CHUNK);
        wrong += value != 0 && value != 1024 && value != 2048;
        wrong += strlen(base_setting_string(SET_CHUNK)) > 2;
        base_settings_load();
    }
    return (void *)(intptr_t)wrong;
}

static void readers_beside_a_writer(void **state)
{
    (void)state;
    pthread_t threads[2];
    stop = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, NULL), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(base_settings_set(SET_CHUNK, i % 2 ? "1K" : "2K", "test"), GYRE_OK);
    stop = 1;
    for (int i = 0; i < 2; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "early") == 0) {
        gyre_fail(GYRE_ERR_INVALID, "too early");
        log_info("so it is");
        return 0;
    }
#define TEST(f) cmocka_unit_test_setup_teardown(f, clean, clean)
    const struct CMUnitTest tests[] = {
        TEST(defaults_are_of_their_kind),
        TEST(sizes),
        TEST(numbers),
        TEST(seconds),
        TEST(ranges),
        TEST(switches_and_choices),
        TEST(distances),
        TEST(environment_over_default_flag_over_environment),
        TEST(malformed_values),
        TEST(unknown_names_are_told_once),
        TEST(log_level_and_rank_follow),
        TEST(log_level_before_the_settings_are_read),
        TEST(foreign_variables),
        TEST(an_empty_environment),
        TEST(print_lists_all_and_hides_the_secret),
        TEST(out_of_range),
        TEST(readers_beside_a_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
