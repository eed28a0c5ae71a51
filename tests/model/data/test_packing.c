/* SPDX-License-Identifier: Apache-2.0 */
/* Whole documents in sequences: each once, none over another, cut where they are too long, left out where
 * nothing is learned; best fit; epochs; and what is refused. */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/data/data.h"
#include "model/data/packing.h"

static char path[] = "/tmp/gyre-packing-XXXXXX.gyt";
enum { DOCUMENTS = 500, SEQ = 32 };

/* Document d begins with d's low and high digit in base 40, plus 100; every tenth learns nothing. */
static size_t length_of(int d)
{
    if (d % 50 == 7)
        return 90;
    return (size_t)(d % 33 == 1 ? d % 2 : 2 + d * 7 % 29);
}

static void write_documents(int documents)
{
    const model_tokens_header_t header = {.vocab = 300, .tokenizer = "test", .eot = -1};
    model_tokens_writer_t *writer = NULL;
    assert_int_equal(model_tokens_create(path, &header, &writer), GYRE_OK);
    for (int d = 0; d < documents; d++) {
        model_token_t ids[90];
        unsigned char learned[90];
        for (size_t i = 0; i < sizeof learned; i++) {
            ids[i] = i == 0 ? 100 + d % 40 : i == 1 ? 100 + d / 40 : (model_token_t)i;
            learned[i] = d % 10 != 3 || i == 0; /* the first is no target */
        }
        assert_int_equal(model_tokens_add(writer, ids, learned, length_of(d)), GYRE_OK);
    }
    assert_int_equal(model_tokens_finish(writer), GYRE_OK);
}

static int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    int fd = mkstemps(path, 4);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

/* Looks at sequence `number`; counts its documents in seen. Returns its positions that are not padding. */
static size_t look(const model_packing_t *packing, const model_tokens_t *tokens, uint64_t number, int *seen)
{
    model_token_t x[SEQ], y[SEQ];
    int32_t first[SEQ];
    size_t used = 0;
    assert_int_equal(model_packing_read(packing, tokens, number, 300, x, y, first), GYRE_OK);
    for (size_t t = 0, end; t < SEQ; t = end) {
        for (end = t; end < SEQ && first[end] == (int32_t)t; end++)
            ;
        assert_true(end > t);
        if (y[t] == MODEL_IGNORED) { /* padding, and it is the last */
            assert_int_equal(end, SEQ);
            for (; t < SEQ; t++)
                assert_true(x[t] == 0 && y[t] == MODEL_IGNORED);
            break;
        }
        int d = x[t] - 100 + 40 * (y[t] - 100);
        assert_true(d >= 0 && d < DOCUMENTS); /* what is not learned was left out */
        seen[d]++;
        size_t n = length_of(d) - 1;
        assert_int_equal(end - t, n < SEQ ? n : SEQ);
        for (size_t i = 1; t + i < end; i++)
            assert_true(x[t + i] == y[t + i - 1] && y[t + i] == (model_token_t)(i + 1));
        used += end - t;
    }
    return used;
}

static void check_packing(int together, uint64_t first, uint64_t count, int from, int end)
{
    model_tokens_t *tokens = NULL;
    model_packing_t *packing = NULL;
    int seen[DOCUMENTS] = {0};
    size_t used = 0;
    uint64_t cut = 0, unlearned = 0, documents = 0;
    assert_int_equal(model_tokens_open(path, MODEL_TOKENS_AUTO, &tokens), GYRE_OK);
    assert_int_equal(model_packing_create(tokens, first, count, SEQ, together, &packing), GYRE_OK);
    for (uint64_t s = 0; s < packing->sequences; s++)
        used += look(packing, tokens, s, seen);
    for (int d = 0; d < DOCUMENTS; d++) {
        int fits = d >= from && d < end && length_of(d) >= 2;
        unlearned += fits && d % 10 == 3;
        cut += fits && d % 10 != 3 && length_of(d) > SEQ + 1;
        documents += fits && d % 10 != 3;
        assert_int_equal(seen[d], fits && d % 10 != 3);
    }
    assert_int_equal(packing->cut, cut);
    assert_int_equal(packing->unlearned, unlearned);
    assert_int_equal(packing->documents, documents);
    assert_int_equal(packing->positions, used);
    if (!together)
        assert_int_equal(packing->sequences, documents);
    else /* at most 11/9 of the least number, and here all but full */
        assert_true(packing->sequences <= (used + SEQ - 1) / SEQ + 2);
    model_packing_destroy(packing);
    model_tokens_close(tokens);
}

static void each_once(void **state)
{
    (void)state;
    uint64_t ids = 0, at = 0;
    write_documents(DOCUMENTS);
    for (int d = 0; d < DOCUMENTS; d++)
        ids += length_of(d);
    for (int d = 0; d < 300; d++)
        at += length_of(d);
    for (int together = 0; together < 2; together++) {
        check_packing(together, 0, ids, 0, DOCUMENTS);
        check_packing(together, 0, at, 0, 300);
        check_packing(together, at, ids - at, 300, DOCUMENTS);
        check_packing(together, 0, at - 1, 0, 300); /* a document belongs to where it begins */
    }
}

/* Through data.h: every epoch has each sequence once, in another order; the last tenth is for validation. */
static void epochs(void **state)
{
    (void)state;
    const model_data_config_t config = {
        .path = path, .valid_fraction = 0.1, .sampling = MODEL_SAMPLING_PACKED};
    model_data_t *data = NULL;
    model_token_t x[SEQ], y[SEQ], first[2] = {0};
    int32_t documents[SEQ];
    int apart = 0;
    write_documents(DOCUMENTS);
    assert_int_equal(model_data_open(&config, &data), GYRE_OK);
    assert_true(model_data_has_documents(data));
    assert_int_equal(model_data_prepare(data, 300, SEQ), GYRE_OK);
    uint64_t each = model_data_epoch(data, 0);
    assert_true(each > 100 && model_data_validation_count(data, 0) > 10);
    for (int epoch = 0; epoch < 2; epoch++) {
        int seen[DOCUMENTS] = {0}, all = 0;
        for (uint64_t i = 0; i < each; i++) {
            const model_data_step_t step = {.seed = 3, .step = i, .samples = (uint64_t)epoch * each + i};
            const model_example_t example = {.tokens = x, .targets = y, .documents = documents};
            assert_int_equal(model_data_train(data, &step, 0, &example), GYRE_OK);
            for (size_t t = 0; t < SEQ; t++)
                if (documents[t] == (int32_t)t && y[t] != MODEL_IGNORED)
                    seen[x[t] - 100 + 40 * (y[t] - 100)]++;
            first[epoch] = i == 0 ? x[0] + 300 * y[0] : first[epoch];
        }
        for (int d = 0; d < DOCUMENTS; d++) {
            assert_true(seen[d] <= 1);
            all += seen[d];
        }
        assert_int_equal(all, data->train.packing[0]->documents);
        apart = first[0] != first[1];
    }
    assert_true(apart);
    uint64_t kept = 0;
    for (int d = 0; d < DOCUMENTS; d++)
        kept += length_of(d) >= 2 && d % 10 != 3;
    assert_int_equal(data->train.packing[0]->documents + data->set[0].mix.packing[0]->documents, kept);
    model_data_destroy(data);
}

static void refusals(void **state)
{
    (void)state;
    model_data_config_t config = {
        .path = "README.md", .valid_fraction = 0.1, .sampling = MODEL_SAMPLING_PACKED};
    model_data_t *data = NULL;
    assert_int_equal(model_data_open(&config, &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 256, SEQ), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "is of format text, which does not say where documents are"));
    model_data_destroy(data);
    write_documents(1); /* and none in the last tenth */
    config.path = path;
    assert_int_equal(model_data_open(&config, &data), GYRE_OK);
    assert_int_equal(model_data_prepare(data, 300, SEQ), GYRE_ERR_INVALID);
    model_data_destroy(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_once), cmocka_unit_test(epochs),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
