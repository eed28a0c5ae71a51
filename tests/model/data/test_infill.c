/* SPDX-License-Identifier: Apache-2.0 */
/* Blank infilling: each example gives back its text, in the shares and lengths that were asked for, as a
 * function of seed and number; what it cannot be made of is refused. */
/* one thread: TSan has nothing to see */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/data/infill.h"

enum { LONGEST = 2048, VOCAB = 5000 };

/* An example and its text: token t of the text is t + 100. */
typedef struct {
    model_token_t tokens[LONGEST], targets[LONGEST];
    int32_t positions[LONGEST];
    model_example_t example;
} made_t;

static const model_infill_ids_t ids = {.mask = 7, .gmask = 8, .sop = 9, .eop = 4999};

static int setup(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    return 0;
}

static gyre_status_t make(model_infill_t *infill, size_t seq, uint64_t seed, model_random_use_t use,
                          uint64_t number, made_t *m)
{
    memset(m, 0xff, sizeof *m);
    m->example =
        (model_example_t){.tokens = m->tokens, .targets = m->targets, .positions = m->positions, .prefix = 0};
    for (size_t t = 0; t < seq; t++)
        m->tokens[t] = (model_token_t)t + 100;
    return model_infill_make(infill, seed, use, number, &m->example);
}

/* After the prefix: each token but [sop] is the target before it. */
static void check_shift(const made_t *m, size_t seq)
{
    assert_true(m->example.prefix < seq);
    assert_int_equal(m->tokens[m->example.prefix], ids.sop);
    for (size_t t = 0; t < m->example.prefix; t++) {
        assert_int_equal(m->positions[t], t);
        assert_int_equal(m->targets[t], m->tokens[t]);
    }
    for (size_t t = m->example.prefix + 1; t < seq; t++)
        assert_true(m->tokens[t] == ids.sop ? m->targets[t - 1] == ids.eop
                                            : m->tokens[t] == m->targets[t - 1]);
}

/* The end, whose length is the answer. */
static size_t check_end(const made_t *m, size_t seq)
{
    size_t kept = m->example.prefix - 1;
    for (size_t t = 0; t < kept; t++)
        assert_int_equal(m->tokens[t], t + 100);
    for (size_t t = kept; t < seq - 1; t++)
        assert_int_equal(m->targets[t + 1], t + 100);
    for (size_t t = 0; t < seq; t++)
        assert_int_equal(m->positions[t], t);
    return seq - 1 - kept;
}

typedef struct {
    size_t count, gone, text;
    int ordered; /* the blanks follow in their order */
} blanks_t;

/* Puts what follows into the [MASK] of its position, and reads the text. */
static blanks_t check_short(const made_t *m, size_t seq)
{
    static size_t from[LONGEST], length[LONGEST];
    blanks_t found = {.ordered = 1};
    model_token_t next = 100;
    int32_t last = -1;
    memset(from, 0, sizeof from);
    for (size_t t = m->example.prefix; t < seq; t++) {
        int32_t at = m->positions[t];
        assert_true(at >= 0 && (size_t)at < m->example.prefix);
        assert_int_equal(m->tokens[at], ids.mask);
        if (m->tokens[t] != ids.sop) {
            assert_int_equal(at, m->positions[t - 1]);
            continue;
        }
        assert_int_equal(from[at], 0);
        from[at] = t;
        for (length[at] = 0; m->targets[t + length[at]] != ids.eop; length[at]++)
            assert_true(t + length[at] + 1 < seq);
        assert_true(length[at] > 0);
        found.ordered &= at > last;
        last = at;
    }
    for (size_t t = 0; t < m->example.prefix; t++) {
        if (m->tokens[t] != ids.mask) {
            assert_int_equal(m->tokens[t], next++);
            continue;
        }
        assert_true(from[t] > 0 && (t == 0 || m->tokens[t - 1] != ids.mask)); /* a token between two */
        for (size_t i = 0; i < length[t]; i++)
            assert_int_equal(m->targets[from[t] + i], next++);
        found.count++;
        found.gone += length[t];
    }
    found.text = (size_t)next - 100;
    assert_int_equal(found.text + 2 * found.count, seq);
    return found;
}

/* All lengths, many numbers. */
static void gives_back_the_text(void **state)
{
    (void)state;
    static made_t m;
    const size_t seq[] = {8, 9, 16, 33, 64, 100, 512, LONGEST};
    for (size_t i = 0; i < sizeof seq / sizeof seq[0]; i++) {
        model_infill_t *infill;
        assert_int_equal(model_infill_create(&ids, VOCAB, seq[i], &infill), GYRE_OK);
        for (uint64_t number = 0; number < 200; number++) {
            assert_int_equal(make(infill, seq[i], 3, MODEL_RANDOM_INFILL, number, &m), GYRE_OK);
            check_shift(&m, seq[i]);
            if (m.tokens[m.example.prefix - 1] == ids.gmask)
                check_end(&m, seq[i]);
            else
                check_short(&m, seq[i]);
        }
        model_infill_destroy(infill);
    }
}

/* Shares and means of many, within four deviations. */
static void as_published(void **state)
{
    (void)state;
    static made_t m;
    enum { MANY = 4000, SEQ = 512 };
    model_infill_t *infill;
    size_t ends = 0, unordered = 0, blanks = 0, gone = 0;
    double least = 1.0, most = 0.0, end = 0.0, part = 0.0;
    assert_int_equal(model_infill_create(&ids, VOCAB, SEQ, &infill), GYRE_OK);
    for (uint64_t number = 0; number < MANY; number++) {
        assert_int_equal(make(infill, SEQ, 11, MODEL_RANDOM_INFILL, number, &m), GYRE_OK);
        if (m.tokens[m.example.prefix - 1] == ids.gmask) {
            double share = (double)check_end(&m, SEQ) / (SEQ - 1);
            ends++;
            end += share;
            least = fmin(least, share);
            most = fmax(most, share);
        } else {
            const blanks_t b = check_short(&m, SEQ);
            blanks += b.count;
            gone += b.gone;
            unordered += !b.ordered;
            part += (double)b.gone / (double)b.text;
            assert_true(b.gone >= b.text * 15 / 100 && b.gone < b.text * 15 / 100 + 39);
        }
    }
    size_t shorts = MANY - ends;
    assert_true(fabs((double)ends / MANY - 0.7) < 4 * sqrt(0.21 / MANY));
    assert_true(least >= 0.199 && least < 0.205 && most > 0.995);
    assert_true(fabs(end / (double)ends - 0.6) < 4 * 0.8 / sqrt(12.0 * (double)ends));
    double mean = 3.0 / (1.0 - exp(-3.0)), deviation = sqrt(mean * (4.0 - mean)); /* E[k (k - 1)] = 3 mean */
    assert_true(fabs((double)gone / (double)blanks - mean) < 4 * deviation / sqrt((double)blanks));
    assert_true(fabs(part / (double)shorts - 0.155) < 0.005);
    assert_int_equal(unordered, shorts); /* one of 20! is in order */
    model_infill_destroy(infill);
}

/* Seed, use and number decide, whatever was made before. */
static void same_for_the_same_number(void **state)
{
    (void)state;
    static made_t first, again, other;
    enum { SEQ = 64 };
    model_infill_t *infill;
    size_t same = 0;
    assert_int_equal(model_infill_create(&ids, VOCAB, SEQ, &infill), GYRE_OK);
    for (uint64_t number = 0; number < 50; number++) {
        assert_int_equal(make(infill, SEQ, 1, MODEL_RANDOM_INFILL, number, &first), GYRE_OK);
        assert_int_equal(make(infill, SEQ, 2, MODEL_RANDOM_INFILL, number, &other), GYRE_OK);
        same += memcmp(first.tokens, other.tokens, sizeof first.tokens) == 0;
        assert_int_equal(make(infill, SEQ, 1, MODEL_RANDOM_INFILL_VALIDATION, number, &other), GYRE_OK);
        same += memcmp(first.tokens, other.tokens, sizeof first.tokens) == 0;
        assert_int_equal(make(infill, SEQ, 1, MODEL_RANDOM_INFILL, number, &again), GYRE_OK);
        assert_memory_equal(first.tokens, again.tokens, sizeof first.tokens);
        assert_memory_equal(first.targets, again.targets, sizeof first.targets);
        assert_memory_equal(first.positions, again.positions, sizeof first.positions);
        assert_int_equal(first.example.prefix, again.example.prefix);
    }
    assert_true(same < 10); /* two ends may be as long */
    model_infill_destroy(infill);
}

static void refused(void **state)
{
    (void)state;
    static made_t m;
    model_infill_t *infill = NULL;
    model_infill_ids_t bad = ids;
    assert_int_equal(model_infill_create(&ids, 4999, 64, &infill), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "id 4999"));
    bad.sop = bad.mask;
    assert_int_equal(model_infill_create(&bad, VOCAB, 64, &infill), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "named twice"));
    bad.sop = -1;
    assert_int_equal(model_infill_create(&bad, VOCAB, 64, &infill), GYRE_ERR_INVALID);
    assert_int_equal(model_infill_create(&ids, VOCAB, 7, &infill), GYRE_ERR_INVALID);
    assert_null(infill);
    bad = model_infill_ids_last(260);
    assert_true(bad.mask == 256 && bad.gmask == 257 && bad.sop == 258 && bad.eop == 259);
    bad.eop = 105; /* the text has it */
    assert_int_equal(model_infill_create(&bad, VOCAB, 64, &infill), GYRE_OK);
    assert_int_equal(make(infill, 64, 1, MODEL_RANDOM_INFILL, 0, &m), GYRE_ERR_FORMAT);
    assert_non_null(strstr(gyre_last_error(), "id 105"));
    m.example.positions = NULL;
    assert_int_equal(model_infill_make(infill, 1, MODEL_RANDOM_INFILL, 0, &m.example), GYRE_ERR_INVALID);
    model_infill_destroy(infill);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_the_text),
        cmocka_unit_test(as_published),
        cmocka_unit_test(same_for_the_same_number),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
