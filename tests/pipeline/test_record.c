/* SPDX-License-Identifier: Apache-2.0 */
/* tests/pipeline/test_record.c: the log of a run, written and read back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "pipeline/report/record.h"

/* A run that diverges leaves lines that every reader of JSON takes, and that are read back as what they
 * were. */
static void test_not_finite(void **state)
{
    (void)state;
    char path[] = "/tmp/gyre-train-log-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    train_config_t options;
    const model_data_t data = {.files = 1, .bytes = 10};
    train_record_t record = {.unigram = NAN, .ranks = 1, .tokens_per_step = 8, .final_val = -NAN},
                   again = {0};
    assert_true(train_config_defaults(&options));
    options.log = strdup(path);
    assert_int_equal(train_record_open(&record, &options), GYRE_OK);
    assert_int_equal(train_record_start(&record, &options, &data), GYRE_OK);
    train_step_t step = {.step = 1,
                         .loss = -NAN,
                         .grad_norm = INFINITY,
                         .lr = INFINITY,
                         .val = -INFINITY,
                         .seconds = 1.0,
                         .compute_s = NAN,
                         .exposed_s = -NAN,
                         .hidden_s = INFINITY,
                         .loss_scale = NAN,
                         .balance = NAN,
                         .dropped = NAN,
                         .z_loss = NAN,
                         .router_z = NAN,
                         .bubble = INFINITY};
    assert_int_equal(train_record_step(&record, &step), GYRE_OK);
    assert_int_equal(train_record_finish(&record), GYRE_OK);
    FILE *in = fopen(path, "re");
    assert_non_null(in);
    char line[16384];
    int lines = 0;
    for (; fgets(line, sizeof line, in); lines++) {
        json_t *object = json_loads(line, 0, NULL);
        if (!object)
            fail_msg("no JSON: %s", line);
        json_decref(object);
    }
    assert_int_equal(lines, 3);
    rewind(in);
    off_t keep, begin;
    assert_int_equal(train_record_read(&again, in, path, 1, &keep, &begin), GYRE_OK);
    assert_int_equal(again.steps, 1);
    assert_true(isnan(again.step[0].loss) && isnan(again.step[0].val));
    assert_true(isnan(again.step[0].compute_s) && isnan(again.step[0].exposed_s) &&
                isnan(again.step[0].hidden_s));
    fclose(in);
    unlink(path);
    train_record_free(&record);
    train_record_free(&again);
    train_config_free(&options);
}

/* A line of the log at `path`, with its end; the caller frees it. */
static char *log_line(const char *path, int number)
{
    char *line = NULL;
    size_t room = 0;
    FILE *in = fopen(path, "re");
    assert_non_null(in);
    for (int i = 0; i < number; i++)
        assert_true(getline(&line, &room, in) > 0);
    fclose(in);
    return line;
}

/* A validation that comes late is added to the line of its step, which stays as it was written, though the
 * run goes on with a batch that does not grow. A second one changes nothing. */
static void test_late_validation(void **state)
{
    (void)state;
    char path[] = "/tmp/gyre-train-log-XXXXXX", want[2048];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    train_config_t options;
    model_data_t data = {.is_text = 1};
    train_record_t record = {.tokens_per_step = 80, .batch = 8, .grows = 1};
    assert_true(train_config_defaults(&options));
    options.log = strdup(path);
    assert_int_equal(train_record_open(&record, &options), GYRE_OK);
    assert_int_equal(train_record_start(&record, &options, &data), GYRE_OK);
    train_step_t step = {.step = 1, .loss = INFINITY, .grad_norm = NAN, .val = NAN, .seconds = 0.5};
    step.batch = 4;
    step.skipped = 1;
    step.dropped = step.z_loss = step.router_z = step.bubble = NAN;
    assert_int_equal(train_record_step(&record, &step), GYRE_OK);
    char *before = log_line(path, 2), *rest = strstr(before, "\"grad_norm\"");
    assert_non_null(rest);
    const uint64_t id = record.id;
    train_record_free(&record);
    snprintf(want, sizeof want, "%.*s\"val_loss\":2.5,\"val_losses\":{\"a\":1.5,\"b\":3.5},%s",
             (int)(rest - before), before, rest);
    free(before);
    for (int i = 0; i < 2; i++) {
        record = (train_record_t){.tokens_per_step = 160, .batch = 16, .id = id, .sets = 2};
        record.set[0] = (train_set_t){.name = "a", .final_val = 1.5};
        record.set[1] = (train_set_t){.name = "b", .final_val = 3.5};
        assert_int_equal(train_record_open(&record, &options), GYRE_OK);
        assert_int_equal(train_record_check(&record, path), GYRE_OK);
        assert_int_equal(train_record_resume(&record, path, &options, &data, 1, i ? 2.75 : 2.5), GYRE_OK);
        char *after = log_line(path, 2), *resumed = log_line(path, 3);
        assert_string_equal(after, want);
        assert_string_equal(resumed, "{\"resumed\":1,\"ranks\":0}\n");
        free(after);
        free(resumed);
        assert_true(record.steps == 1 && record.step[0].val == 2.5 && record.step[0].seconds == 0.5);
        record.id++;
        assert_int_equal(train_record_check(&record, path), GYRE_ERR_INVALID);
        train_record_free(&record);
    }
    unlink(path);
    train_config_free(&options);
}

/* Steps of a run whose batch has changed: what a line, or else the first line, says of it. */
static void test_changed_batch(void **state)
{
    (void)state;
    static char text[] = "{\"config\":{\"batch\":8}}\n{\"step\":1,\"tokens_per_second\":100.0}\n"
                         "{\"step\":2,\"batch\":16,\"tokens_per_second\":100.0}\n";
    train_record_t record = {.tokens_per_step = 160, .batch = 16};
    off_t keep = 0, begin = 0;
    FILE *in = fmemopen(text, strlen(text), "r");
    assert_non_null(in);
    assert_int_equal(train_record_read(&record, in, "log", 2, &keep, &begin), GYRE_OK);
    fclose(in);
    assert_int_equal(record.steps, 2);
    assert_true(record.step[0].seconds == 0.8 && record.step[1].seconds == 1.6);
    assert_true(train_record_parts(&record) == 1.5);
    assert_true(keep == (off_t)strlen(text) && strncmp(text + begin, "{\"step\":2", 9) == 0);
    train_record_free(&record);
}

static void test_readable(void **state)
{
    (void)state;
    static const char bytes[] = "a\xe2\x82\n\x01\xff\xc3\xa9\xed\xa0\x80\xf0\x9f\x98";
    char *text = train_readable((const unsigned char *)bytes, sizeof bytes - 1);
    assert_non_null(text); /* as Python replaces it, except for the control character */
    assert_string_equal(text, "a\ufffd\n\ufffd\ufffd\u00e9\ufffd\ufffd\ufffd\ufffd");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_late_validation),
        cmocka_unit_test(test_changed_batch),
        cmocka_unit_test(test_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
