/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/train/test_gyre_train.c: gyre-train's option table, ranges of steps, record and drawings, on
 * made-up runs.
 *
 *   test_gyre_train          checks
 *   test_gyre_train FOLDER   also leaves report.html, trace.json and board/ of a made-up run there, for
 *   test_gyre_train.sh to parse */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "pipeline/config/table.h"
#include "pipeline/report/page.h"
#include "pipeline/report/trace.h"
#include "pipeline/train/checkpoint/checkpoint.h"
#include "pipeline/train/peak.h"
#include "tools/gyre-train/options.h"

static const char *folder;
static export_options_t export; /* of command lines without --export */

static void test_table(void **state)
{
    (void)state;
    char *argv[] = {"gyre-train", NULL};
    train_config_t options;
    assert_int_equal(train_options_parse(1, argv, &options, &export, 0),
                     -1); /* every default is one that its row accepts */
    for (size_t i = 0; i < train_rows_count; i++) {
        const train_row_t *row = &train_rows[i];
        assert_true(row->group < TRAIN_GROUPS && train_group_names[row->group]);
        assert_true(row->at < offsetof(train_config_t, given));
        assert_int_equal(row->kind == TRAIN_CHOICE, row->words != NULL);
        assert_int_equal(row->kind == TRAIN_CHOICE, row->argument == NULL);
        for (const pipe_word_t *word = row->words; word && word->word; word++) { /* each stands for a value */
            assert_true(train_config_set(&options, row, word->word));
            assert_string_equal(pipe_word_name(row->words, word->value), word->word);
        }
        assert_string_equal(train_config_nearest(row->name), row->name);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(train_rows[k].name, row->name);
            assert_int_not_equal(train_rows[k].at, row->at);
        }
    }
    assert_string_equal(train_config_nearest("tensor-bord"), "tensorboard");
    assert_null(train_config_nearest("learning-rate"));
    assert_null(train_config_nearest("foo")); /* two edits from log */
    train_config_free(&options);
}

/* Sizes are those of settings and of other tools; counts have no unit. */
static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        char *text;
        uint64_t bytes;
    } good[] = {{"512k", 512 << 10},      {"512K", 512 << 10}, {"4MiB", 4 << 20}, {"1gb", 1 << 30}, {"0", 0},
                {"1T", (uint64_t)1 << 40}};
    train_config_t options;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char *argv[] = {"gyre-train", "--bucket-bytes", good[i].text, NULL};
        assert_int_equal(train_options_parse(3, argv, &options, &export, 0), -1);
        assert_true(options.bucket_bytes == good[i].bytes);
        train_config_free(&options);
    }
    char *bad[] = {"--bucket-bytes=5q",
                   "--bucket-bytes=-1",
                   "--bucket-bytes=1000T",
                   "--bucket-bytes=1.55K",
                   "--steps=5k",
                   "--steps=",
                   "--steps=-1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *argv[] = {"gyre-train", bad[i], NULL};
        if (train_options_parse(2, argv, &options, &export, 0) != TRAIN_USAGE)
            fail_msg("%s passes", bad[i]);
        train_config_free(&options);
    }
}

static void test_ranges(void **state)
{
    (void)state;
    uint64_t from = 7, to = 7;
    assert_true(train_steps_range("3:5", &from, &to) && from == 3 && to == 5);
    assert_true(train_steps_range("1:1", &from, &to) && from == 1 && to == 1);
    static const char *const bad[] = {"",     "3",    "3:",   ":3",   "0:3", "5:3",
                                      "3:5x", "-1:3", "1:65", "1 :3", "x:y"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (train_steps_range(bad[i], &from, &to))
            fail_msg("\"%s\" passes as a range of steps", bad[i]);
    assert_false(train_steps_range(NULL, &from, &to));
    assert_true(from == 1 && to == 1);
}

/* What a checkpoint says of the options of this command line, and whether one with other options may go on
 * with it. */
static json_t *options_then(int argc, char **argv)
{
    train_config_t options;
    const char *name;
    char value[TRAIN_VALUE];
    assert_int_equal(train_options_parse(argc, argv, &options, &export, 0), -1);
    json_t *object = json_object();
    for (int i = 0; (i = train_config_exact(&options, (size_t)i, &name, value, sizeof value)) >= 0; i++)
        assert_int_equal(json_object_set_new(object, name, json_string(value)), 0);
    train_config_free(&options);
    return json_pack("{s:o}", "options", object);
}
static json_t *options_object(json_t *run)
{
    return json_object_get(run, "options");
}
/* "": they agree; else what the error says. */
static const char *goes_on(json_t *run, int prefix_masks, int argc, char **argv)
{
    static char text[512];
    train_config_t options;
    assert_int_equal(train_options_parse(argc, argv, &options, &export, 0), -1);
    gyre_status_t status = train_resume_options(&options, prefix_masks, run, "CK");
    snprintf(text, sizeof text, "%s", status == GYRE_OK ? "" : gyre_last_error());
    train_config_free(&options);
    return text;
}
#define WORDS(...)                                                                    \
    (int)(sizeof((char *[]){"gyre-train", __VA_ARGS__}) / sizeof(char *)), (char *[]) \
    {                                                                                 \
        "gyre-train", __VA_ARGS__, NULL                                               \
    }
#define SAYS(text, part) \
    assert_true(strstr(text, part) || (print_error("\"%s\" lacks \"%s\"\n", text, part), 0))

/* Options that there were not yet when a checkpoint was written have the values that they meant. */
static void test_older_checkpoints(void **state)
{
    (void)state;
    static const char *const newer[] = {
        "objective", "infill-ids",  "batch-rampup", "device",    "invariant",  "lr-schedule", "lr-decay",
        "epsilon",   "data-format", "groups",       "precision", "loss-scale", "lanes",       "lr-cooldown",
        "optimizer", "momentum",    "lr-scale",     "decay-on",  "spike-loss", "spike-norm",  "spike-window"};
    json_t *run = options_then(WORDS("--objective", "causal"));
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++) {
        assert_int_equal(json_object_del(options_object(run), newer[i]), 0);
        assert_string_equal(goes_on(run, 0, WORDS("--objective", "causal")), "");
    }
    assert_string_equal(goes_on(run, 1, WORDS("--objective", "prefix")), "");
    SAYS(goes_on(run, 1, WORDS("--objective", "infill")),
         "--objective is infill, but the run in CK was begun with prefix");
    SAYS(goes_on(run, 0, WORDS("--objective", "causal", "--batch-rampup", "2:2:60")),
         "--batch-rampup is 2:2:60, but the run in CK was begun with none: give --batch-rampup none to");
    SAYS(goes_on(run, 0, WORDS("--objective", "causal", "--epsilon", "1e-6")),
         "was begun with 1e-08: give --epsilon 1e-08");
    SAYS(goes_on(run, 0, WORDS("--objective", "causal", "--precision", "bf16")), "was begun with fp32");
    assert_string_equal(goes_on(run, 0,
                                WORDS("--objective", "causal", "--precision", "bf16", "--may-change",
                                      "precision", "--checkpoint", "CK")),
                        "");
    /* what every checkpoint names: the shape, and that there are options */
    assert_int_equal(json_object_del(options_object(run), "layers"), 0);
    SAYS(goes_on(run, 0, WORDS("--objective", "causal")), "CK does not say what --layers was");
    assert_int_equal(json_object_del(run, "options"), 0);
    SAYS(goes_on(run, 0, WORDS("--objective", "causal")), "CK does not say what the options were");
    json_decref(run);
}

/* Sequences that the steps before had: what the checkpoint says, or what its options take. */
static void test_sequences_before(void **state)
{
    (void)state;
    uint64_t sequences = 0;
    json_t *run = options_then(WORDS("--batch", "8"));
    assert_int_equal(train_state_sequences(run, 5, "CK", &sequences), GYRE_OK);
    assert_int_equal(sequences, 40);
    assert_int_equal(json_object_del(options_object(run), "batch-rampup"), 0); /* older still */
    assert_int_equal(train_state_sequences(run, 5, "CK", &sequences), GYRE_OK);
    assert_int_equal(sequences, 40);
    json_object_set_new(options_object(run), "batch-rampup", json_string("2:2:8"));
    assert_int_equal(train_state_sequences(run, 5, "CK", &sequences), GYRE_OK);
    assert_int_equal(sequences, 2 + 2 + 4 + 8 + 8);
    json_object_set_new(run, "sequences", json_integer(29));
    assert_int_equal(train_state_sequences(run, 5, "CK", &sequences), GYRE_OK);
    assert_int_equal(sequences, 29);
    json_object_set_new(run, "sequences", json_integer(-1));
    assert_int_equal(train_state_sequences(run, 5, "CK", &sequences), GYRE_ERR_FORMAT);
    assert_string_equal(gyre_last_error(), "CK does not say how many sequences its steps had");
    json_decref(run);
}

/* 1 if `name` is in `text` between two characters that are in no name. */
static int has_word(const char *text, const char *name)
{
    static const char *const inner = "abcdefghijklmnopqrstuvwxyz0123456789-";
    for (const char *at = text; (at = strstr(at, name)); at++)
        if ((at == text || !strchr(inner, at[-1])) && (!at[strlen(name)] || !strchr(inner, at[strlen(name)])))
            return 1;
    return 0;
}

/* What stands in a file between two texts, without backslashes; caller frees. */
static char *part_of(const char *path, const char *from, const char *to)
{
    enum { MOST = 1 << 20 };
    char *text = calloc(1, MOST), *out = NULL;
    FILE *in = fopen(path, "r");
    assert_non_null(text);
    if (!in)
        fail_msg("cannot open %s: the test runs in the repository's root", path);
    size_t bytes = fread(text, 1, MOST - 1, in), kept = 0;
    fclose(in);
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != '\\')
            text[kept++] = text[i];
    text[kept] = '\0';
    char *start = strstr(text, from), *end = start ? strstr(start, to) : NULL;
    if (!end)
        fail_msg("%s has no part between \"%s\" and \"%s\"", path, from, to);
    *end = '\0';
    out = strdup(start);
    free(text);
    assert_non_null(out);
    return out;
}

/* Both lists of the options on which bits depend are those of the table. */
static void test_documents(void **state)
{
    (void)state;
    char *guide = part_of("docs/training.md", "Options on which the bits depend", "`--may-change");
    char *page = part_of("docs/man/gyre-train.1", "of those on which the bits depend", "The model's shape");
    char quoted[80];
    for (size_t i = 0; i < train_rows_count; i++) {
        const train_row_t *row = &train_rows[i];
        snprintf(quoted, sizeof quoted, "`%s`", row->name);
        if (!strstr(guide, quoted) != (row->matters < TRAIN_CURVE))
            fail_msg("docs/training.md: %s %s", row->name,
                     row->matters < TRAIN_CURVE ? "matters to no bits" : "is missing from the list");
        int changes = row->matters == TRAIN_CURVE || row->matters == TRAIN_CONTENT;
        if (changes && !has_word(page, row->name))
            fail_msg("docs/man/gyre-train.1: %s is missing from the list", row->name);
    }
    free(guide);
    free(page);
}

/* Options that are text go by what it means, and what is not given is "none". */
static void test_text_of_options(void **state)
{
    (void)state;
    json_t *run = options_then(WORDS("--batch-rampup", "04:4:100"));
    assert_string_equal(goes_on(run, 0, WORDS("--batch-rampup", "4:4:0100")), "");
    SAYS(goes_on(run, 0, WORDS("--batch-rampup", "4:4:10")),
         "is 4:4:10, but the run in CK was begun with 04:4:100");
    SAYS(goes_on(run, 0, WORDS("--lr", "0.003")),
         "--batch-rampup is none, but the run in CK was begun with 04:4:100: give");
    json_decref(run);
    run = options_then(WORDS("--batch-rampup", "none"));
    assert_string_equal(json_string_value(json_object_get(options_object(run), "batch-rampup")), "none");
    assert_int_equal(json_object_set_new(options_object(run), "batch-rampup", json_string("")), 0);
    assert_string_equal(goes_on(run, 0, WORDS("--lr", "0.003")), "");
    json_decref(run);
    run = options_then(WORDS("--objective", "infill", "--infill-ids", "256,257,258,259"));
    assert_string_equal(goes_on(run, 1, WORDS("--objective", "infill", "--infill-ids", "0256, 257,+258,259")),
                        "");
    SAYS(goes_on(run, 1, WORDS("--objective", "infill", "--infill-ids", "256,257,258,25")),
         "begun with 256,257,258,259");
    SAYS(goes_on(run, 1, WORDS("--objective", "prefix")), "give --objective infill");
    /* another objective has no ids, so that it may differ is all that is needed */
    assert_string_equal(
        goes_on(run, 1, WORDS("--objective", "prefix", "--may-change", "objective", "--checkpoint", "CK")),
        "");
    json_decref(run);
}

/* Texts that differ only after the bytes that a checkpoint holds of them are two texts. */
static void test_long_text(void **state)
{
    (void)state;
    for (size_t length = 60; length < TRAIN_VALUE + 40; length += 7) {
        char long_one[2 * TRAIN_VALUE], other[2 * TRAIN_VALUE];
        snprintf(long_one, sizeof long_one, "*%0*d*a", (int)length, 1);
        snprintf(other, sizeof other, "*%0*d*b", (int)length, 1);
        json_t *run = options_then(WORDS("--freeze", long_one));
        assert_string_equal(goes_on(run, 0, WORDS("--freeze", long_one)), "");
        SAYS(goes_on(run, 0, WORDS("--freeze", other)), "--freeze is *0");
        json_decref(run);
    }
}

/* A run of 8 ranks (tp 2, dp 2, pp 2) in 16 bits: 300 steps, some of which overflow. */
static void make_record(train_record_t *record)
{
    static const char *const kind[] = {"weights", "gradients",   "master weights",
                                       "moments", "activations", "buckets"};
    *record = (train_record_t){.unigram = 3.3,
                               .first_val = 5.5,
                               .final_val = 1.9,
                               .seconds = 31,
                               .tokens_per_step = 4096,
                               .ranks = 8,
                               .parameters = 1234567,
                               .flops_per_step = 6e10,
                               .peak_flops = 2e12,
                               .layout = {.tp = 2,
                                          .dp = 2,
                                          .pp = 2,
                                          .chunks = 1,
                                          .schedule = PIPE_1F1B,
                                          .zero = 2,
                                          .sequence = 1,
                                          .micro_batch = 1},
                               .memory = {.kinds = 6, .ranks = 8}};
    record->memory.bytes = calloc(8 * 6, sizeof *record->memory.bytes);
    assert_non_null(record->memory.bytes);
    for (size_t k = 0; k < 6; k++) {
        record->memory.kind[k] = kind[k];
        for (size_t r = 0; r < 8; r++)
            record->memory.bytes[r * 6 + k] = (k + 1) * 3000000 + (k == 4 && r < 4 ? 9000000 : 0);
    }
}

static void make_steps(train_record_t *record)
{
    double scale = 65536;
    for (uint64_t s = 1; s <= 300; s++) {
        int skipped = s < 3 || s == 170;
        train_step_t step = {.step = s,
                             .loss = s == 2     ? INFINITY
                                     : s == 170 ? NAN
                                                : 1.9 + 3.6 / sqrt((double)s),
                             .grad_norm = skipped ? INFINITY : 0.8 + 4.0 / (double)s + 0.2 * sin((double)s),
                             .lr = s < 40 ? 3e-3 * (double)s / 40 : 3e-3 * (1 - (double)(s - 40) / 300),
                             .val = s % 50 == 0 ? 1.92 + 3.6 / sqrt((double)s) : NAN,
                             .seconds = 0.1 + 0.01 * cos((double)s * 0.7),
                             .compute_s = 0.085,
                             .exposed_s = 0.015,
                             .hidden_s = 0.03,
                             .loss_scale = scale,
                             .balance = NAN,
                             .dropped = NAN,
                             .z_loss = NAN,
                             .router_z = NAN,
                             .skipped = skipped,
                             .bubble = 0.15 + 0.02 * sin((double)s)};
        scale = skipped ? scale / 2 : s % 100 == 0 ? scale * 2 : scale;
        assert_int_equal(train_record_step(record, &step), GYRE_OK);
        assert_true(fabs(step.mfu - 6e10 / step.seconds / 2e12) < 1e-9);
    }
}

/* A step of two stages and four micro-batches, by 1F1B; reductions overlap in part. */
static size_t make_spans(model_span_t *span, size_t room, int ranks)
{
    model_spans_t spans = {.span = span, .room = room};
    for (int r = 0; r < ranks; r++) {
        base_time_t t = 1000000;
        size_t from = spans.count;
        if (r >= ranks / 2) {
            model_spans_add(&spans, MODEL_SPAN_WAIT, t, t + 2000000, 0, 0);
            t += 2000000;
        }
        for (int m = 0; m < 4; m++) {
            model_spans_add(&spans, MODEL_SPAN_FORWARD, t, t + 2000000, m, 0);
            for (int l = 0; l < 4; l++)
                model_spans_add(&spans, MODEL_SPAN_TENSOR, t + l * 450000, t + l * 450000 + 90000, m, 0);
            model_spans_add(&spans, MODEL_SPAN_BACKWARD, t + 2000000, t + 6000000, m, 0);
            t += 6000000;
        }
        for (int b = 0; b < 3; b++)
            model_spans_add(&spans, MODEL_SPAN_TRAVEL, t - 3000000 + b * 400000, t - 1500000 + b * 500000, -1,
                            0);
        model_spans_add(&spans, MODEL_SPAN_REDUCE, t, t + 700000, -1, -1);
        model_spans_add(&spans, MODEL_SPAN_OPTIMISER, t + 700000, t + 1500000, -1, -1);
        model_spans_add(&spans, MODEL_SPAN_GATHER, t + 1500000, t + 2000000, -1, -1);
        for (size_t i = from; i < spans.count; i++)
            span[i].rank = r;
    }
    assert_int_equal(spans.dropped, 0);
    return spans.count;
}

static void test_spans(void **state)
{
    (void)state;
    model_span_t span[2];
    model_spans_t spans = {.span = span, .room = 2};
    model_spans_add(NULL, MODEL_SPAN_WAIT, 1, 2, 0, 0);
    for (int i = 0; i < 5; i++)
        model_spans_add(&spans, MODEL_SPAN_FORWARD, i, i + 1, i, 0);
    assert_true(spans.count == 2 && spans.dropped == 3 && span[1].micro_batch == 1);
    assert_int_equal(model_spans_now(NULL), 0);
    for (int k = 0; k < MODEL_SPAN_KINDS; k++)
        assert_string_not_equal(train_span_name(k), "?");
}

static void test_peak(void **state)
{
    (void)state;
    enum { WORDS = 19, RANKS = 5, CPUS = 3 };
    uint64_t told[RANKS * WORDS] = {0};
    const double rate[RANKS] = {10, 30, 50, 20, 20};
    const uint64_t host[RANKS] = {7, 9, 7, 7, 9}, cpus[RANKS] = {1, 3, 2, 3, 0xc};
    for (size_t r = 0; r < RANKS; r++) {
        told[r * WORDS] = host[r];
        memcpy(&told[r * WORDS + 1], &rate[r], sizeof rate[r]);
        told[r * WORDS + 2] = 1;
        told[r * WORDS + CPUS] = cpus[r];
    }
    double sum = train_peak_sum(told, RANKS); /* three ranks on two cores, and two that have four */
    assert_true(fabs(sum - (80.0 / 3 * 2 + 50.0)) < 1e-9);
    told[WORDS + CPUS] = told[4 * WORDS + CPUS] = 0; /* unknown: a core for each */
    assert_true(fabs(train_peak_sum(told, RANKS) - sum) < 1e-9);
    for (size_t r = 0; r < RANKS; r++) { /* threads: still two cores; three of the four */
        told[r * WORDS + 2] = r == 1 ? 2 : r == 4 ? 1 : 8;
        told[r * WORDS + CPUS] = cpus[r];
    }
    assert_true(fabs(train_peak_sum(told, RANKS) - (80.0 / 3 * 2 + 25.0 * 3)) < 1e-9);
}

static char *in(const char *name, char path[4096])
{
    snprintf(path, 4096, "%s/%s", folder, name);
    return path;
}

static void test_page(void **state)
{
    (void)state;
    char own[] = "/tmp/test_gyre_train.XXXXXX", path[4096];
    char *argv[] = {"gyre-train", "--layers", "4", "--prompt", "<b>&\"'", "--peak-flops", "2e12", NULL};
    train_config_t options;
    train_record_t record;
    model_data_t data = {.is_text = 1, .bytes = 1000, .files = 1};
    enum { ROOM = 1024 };
    model_span_t *span = calloc(ROOM, sizeof *span);
    int mine = !folder;
    assert_non_null(span);
    if (mine)
        assert_non_null(folder = mkdtemp(own));
    assert_int_equal(train_options_parse(7, argv, &options, &export, 0), -1);
    make_record(&record);
    options.tensorboard = strdup(in("board", path));
    assert_int_equal(train_record_open(&record, &options), GYRE_OK);
    assert_int_equal(train_record_start(&record, &options, &data), GYRE_OK);
    make_steps(&record);
    assert_int_equal(train_record_finish(&record), GYRE_OK);
    train_watched_t step = {.step = 10, .span = span, .count = make_spans(span, ROOM, 8), .start = 1000000};
    for (size_t i = 0; i < step.count; i++)
        step.end = span[i].end > step.end ? span[i].end : step.end;
    assert_int_equal(train_report_write(in("report.html", path), &options, &record, &data, &step), GYRE_OK);
    if (mine)
        unlink(path);
    assert_int_equal(train_trace_write(in("trace.json", path), &record, &step, 1), GYRE_OK);
    if (mine)
        unlink(path);
    assert_int_equal(train_trace_write(path, &record, NULL, 0), GYRE_ERR_INVALID);
    assert_int_equal(access(path, F_OK), mine ? -1 : 0);
    if (mine) {
        snprintf(path, sizeof path, "rm -r '%s'", folder);
        assert_int_equal(system(path), 0);
        folder = NULL;
    }
    free(span);
    train_record_free(&record);
    train_config_free(&options);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_older_checkpoints),
        cmocka_unit_test(test_sequences_before),
        cmocka_unit_test(test_text_of_options),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_page),
    };
    folder = argc > 1 ? argv[1] : NULL;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
