/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW against a plain reference, clipping, the schedule, and the order of sums. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "model/network/params.h"
#include "model/random.h"
#include "optim/adamw.h"
#include "optim/batch.h"
#include "optim/ramp.h"
#include "optim/schedule.h"
#include "optim/tree.h"

static const model_config_t config = {.vocab = 17, .seq = 6, .layers = 1, .hidden = 12, .heads = 2};

static double normal(uint32_t stream, uint64_t i)
{
    return model_random_normal(3, MODEL_RANDOM_DATA, stream, i);
}

static void adamw_against_reference(void **state)
{
    (void)state;
    const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.2};
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&config, &params), GYRE_OK);
    size_t n = params->total;
    float *flat = calloc(n, sizeof *flat), *grad = calloc(n, sizeof *grad);
    float *avg = calloc(n, sizeof *avg), *avg_sq = calloc(n, sizeof *avg_sq);
    double *w = calloc(n, sizeof *w), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
    assert_true(flat && grad && avg && avg_sq && w && m && v);
    for (size_t i = 0; i < n; i++)
        w[i] = (double)(flat[i] = (float)normal(1, i));

    const double scale = 0.125;
    for (int t = 1; t <= 20; t++) {
        double rate = 0.01 * t;
        for (size_t i = 0; i < n; i++)
            grad[i] = (float)normal((uint32_t)(10 + t), i);
        const optim_adamw_factors_t f = optim_adamw_factors(&how, (uint64_t)t, (float)scale, rate);
        for (size_t r = 0; r < params->rows; r++) {
            const model_param_t *row = &params->row[r];
            size_t at = row->offset;
            if (row->alias != MODEL_NONE)
                continue;
            optim_adamw_update(&f, row->decay, flat + at, avg + at, avg_sq + at, grad + at, row->count);
            for (size_t j = 0; j < params->row[r].count; j++) {
                size_t i = params->row[r].offset + j;
                double g = (double)grad[i] * scale;
                if (params->row[r].dims == 2)
                    w[i] -= rate * 0.2 * w[i];
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.95 * v[i] + 0.05 * g * g;
                w[i] -= rate * (m[i] / (1 - pow(0.9, t))) / (sqrt(v[i] / (1 - pow(0.95, t))) + 1e-8);
            }
        }
    }
    double worst = 0.0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)flat[i] - w[i]) / fmax(1.0, fabs(w[i])));
    print_message("AdamW, 20 steps: %.1e\n", worst);
    assert_true(worst < 2e-6);
    model_params_destroy(params);
    free(flat);
    free(grad);
    free(avg);
    free(avg_sq);
    free(w);
    free(m);
    free(v);
}

/* A row with a rate and weight decay of its own is a row of a run that has them. */
static void adamw_of_a_group(void **state)
{
    (void)state;
    const struct {
        double times, decay, want[2]; /* of a vector, of a matrix */
    } group[] = {
        {1.0, -1.0, {0.0, 0.2}}, {0.1, -1.0, {0.0, 0.2}}, {3.0, 0.05, {0.05, 0.05}}, {0.0, 0.0, {0, 0}}};
    const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.2};
    for (size_t k = 0; k < sizeof group / sizeof group[0]; k++)
        for (int decay = 0; decay < 2; decay++) {
            enum { N = 64 };
            float w[N], m[N] = {0}, v[N] = {0}, grad[N];
            double x[N], a[N] = {0}, b[N] = {0};
            for (size_t i = 0; i < N; i++)
                x[i] = (double)(w[i] = (float)normal(2, i));
            for (int t = 1; t <= 5; t++) {
                const optim_adamw_factors_t f = optim_adamw_factors(&how, (uint64_t)t, 1.0f, 0.01 * t);
                const optim_adamw_factors_t own = optim_adamw_row(&f, group[k].times, group[k].decay);
                double rate = 0.01 * t * group[k].times;
                for (size_t i = 0; i < N; i++) {
                    double g = (double)(grad[i] = (float)normal((uint32_t)(40 + t), i));
                    x[i] -= rate * group[k].want[decay] * x[i];
                    a[i] = 0.9 * a[i] + 0.1 * g;
                    b[i] = 0.95 * b[i] + 0.05 * g * g;
                    x[i] -= rate * (a[i] / (1 - pow(0.9, t))) / (sqrt(b[i] / (1 - pow(0.95, t))) + 1e-8);
                }
                optim_adamw_update(&own, decay, w, m, v, grad, N);
            }
            for (size_t i = 0; i < N; i++)
                assert_true(fabs((double)w[i] - x[i]) < 2e-6);
        }
}

/* Gradients whose squares are 0 in fp32 move a weight by the rate at most, with the least epsilon and any
 * beta2 that --beta2 takes. */
static void least_epsilon(void **state)
{
    (void)state;
    const double beta2[] = {0.5, 0.95, 0.99, 0.999, 0.9999, 0.999999999};
    for (size_t k = 0; k < sizeof beta2 / sizeof *beta2; k++) {
        const optim_adamw_config_t how = {.beta1 = 0.9, .beta2 = beta2[k], .epsilon = OPTIM_ADAMW_EPSILON};
        for (float grad = 1e-30f; grad < 1.0f; grad *= 1.1f) {
            float w = 0.0f, m = 0.0f, v = 0.0f;
            for (uint64_t t = 1; t <= 20; t++) {
                const float before = w;
                const optim_adamw_factors_t f = optim_adamw_factors(&how, t, 1.0f, 1.0);
                optim_adamw_update(&f, 0, &w, &m, &v, &grad, 1);
                assert_true(fabsf(w - before) <= 1.001f);
            }
        }
    }
}

static void clipping(void **state)
{
    (void)state;
    assert_true(optim_clip_factor(0.5, 1.0) == 1.0);
    assert_true(fabs(optim_clip_factor(4.0, 1.0) - 0.25) < 1e-6);
    assert_true(optim_clip_factor(4.0, 0.0) == 1.0);
    assert_true(optim_clip_factor(0.0, 1.0) == 1.0);
}

static void schedule(void **state)
{
    (void)state;
    const optim_schedule_t s = {.peak = 2.0, .floor = 0.1, .warmup = 10, .steps = 110};
    assert_true(fabs(optim_schedule_rate(&s, 0, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&s, 9, 0.0) - 2.0) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&s, 10, 0.0) - 2.0) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&s, 60, 0.0) - 1.1) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&s, 110, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&s, 5000, 0.0) - 0.2) < 1e-12);
    for (size_t i = 11; i < 110; i++)
        assert_true(optim_schedule_rate(&s, i, 0.0) < optim_schedule_rate(&s, i - 1, 0.0));
    assert_true(fabs(optim_schedule_rate(&s, 10, 0.5) - 1.1) < 1e-12); /* half of the time is gone */
    assert_true(fabs(optim_schedule_rate(&s, 3, 0.9) - 0.8) < 1e-12);  /* warm-up is by steps */
    const optim_schedule_t none = {.peak = 1.0, .floor = 0.0, .warmup = 0, .steps = 0};
    assert_true(fabs(optim_schedule_rate(&none, 0, 0.0) - 1.0) < 1e-12);
    optim_schedule_t other = s;
    other.curve = OPTIM_CURVE_LINEAR;
    assert_true(fabs(optim_schedule_rate(&other, 0, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 35, 0.0) - 1.55) <
                1e-12); /* the cosine is still above that */
    assert_true(fabs(optim_schedule_rate(&other, 110, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 5000, 0.0) - 0.2) < 1e-12);
    other.curve = OPTIM_CURVE_CONSTANT;
    assert_true(fabs(optim_schedule_rate(&other, 4, 0.0) - 1.0) < 1e-12);
    assert_true(optim_schedule_rate(&other, 5000, 1.0) == 2.0);
    other.curve = OPTIM_CURVE_WSD;
    other.cooldown = 20;
    for (size_t i = 10; i <= 90; i++)
        assert_true(optim_schedule_rate(&other, i, 0.0) == 2.0);
    assert_true(fabs(optim_schedule_rate(&other, 95, 0.0) - 1.1) < 1e-12); /* sqrt(5 / 20) of the way */
    assert_true(fabs(optim_schedule_rate(&other, 110, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 5000, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 20, 0.85) - 1.1) < 1e-12); /* by the clock */
    other.cooldown = 0;                                                     /* 11 steps */
    assert_true(optim_schedule_rate(&other, 99, 0.0) == 2.0);
    assert_true(optim_schedule_rate(&other, 100, 0.0) < 1.5);
    other.cooldown = 1000; /* all steps after warm-up */
    assert_true(optim_schedule_rate(&other, 10, 0.0) == 2.0);
    assert_true(fabs(optim_schedule_rate(&other, 35, 0.0) - 1.1) < 1e-12);
    other.curve = OPTIM_CURVE_INVERSE_SQRT;
    assert_true(fabs(optim_schedule_rate(&other, 9, 0.0) - 2.0) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 39, 0.0) - 1.0) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 999, 0.0) - 0.2) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 5000, 0.0) - 0.2) < 1e-12);
    other.warmup = 0;
    assert_true(fabs(optim_schedule_rate(&other, 0, 0.0) - 2.0) < 1e-12);
    assert_true(fabs(optim_schedule_rate(&other, 3, 0.0) - 1.0) < 1e-12);
}

/* The contract's tree, written as it is defined. */
static float tree(const float *leaf, size_t n)
{
    size_t half = 1;
    if (n == 1)
        return leaf[0];
    while (2 * half < n)
        half *= 2;
    return tree(leaf, half) + tree(leaf + half, n - half);
}

static void stack_follows_the_tree(void **state)
{
    (void)state;
    enum { MOST = 33, LENGTH = 5 };
    size_t chain_differs = 0;
    for (size_t n = 1; n <= MOST; n++) {
        float leaf[LENGTH][MOST], value[LENGTH];
        optim_stack_t *stack = NULL;
        assert_int_equal(optim_stack_create(n, 1, 1, LENGTH, NULL, &stack), GYRE_OK);
        size_t bits = 0;
        while ((n - 1) >> bits)
            bits++;
        assert_true(optim_stack_levels(n, 1) <= bits);
        for (size_t i = 0; i < n; i++) {
            float *place = optim_stack_place(stack, i), *to = place ? place : value;
            for (size_t e = 0; e < LENGTH; e++) /* of very different size, so that the order shows */
                to[e] = leaf[e][i] =
                    (float)(normal(20, n * 1000 + i * LENGTH + e) * pow(10.0, (double)(i % 7)));
            if (i + 1 < n) { /* in two ranges, the second first */
                optim_stack_push(stack, i, to + 2, 2, LENGTH - 2);
                optim_stack_push(stack, i, to, 0, 2);
            }
        }
        optim_stack_finish(stack, value + 3, 3, LENGTH - 3);
        optim_stack_finish(stack, value, 0, 3);
        for (size_t e = 0; e < LENGTH; e++) {
            float chain = 0.0f, want = tree(leaf[e], n);
            for (size_t i = 0; i < n; i++)
                chain += leaf[e][i];
            assert_memory_equal(&value[e], &want, sizeof want);
            chain_differs += chain != want;
        }
        optim_stack_destroy(stack);
    }
    assert_true(chain_differs > 20);
}

/* In groups: the tree over each group's leaves, and that over the groups. */
static void groups_are_trees_of_trees(void **state)
{
    (void)state;
    float leaf[60], of_group[60], value;
    for (size_t group = 1; group <= 9; group++)
        for (size_t groups = 1; groups * group <= 60; groups++) {
            size_t n = groups * group;
            optim_stack_t *stack = NULL;
            assert_int_equal(optim_stack_create(n, group, 1, 1, NULL, &stack), GYRE_OK);
            for (size_t i = 0; i < n; i++) {
                float *place = optim_stack_place(stack, i), *to = place ? place : &value;
                *to = leaf[i] = (float)(normal(21, n * 100 + i) * pow(10.0, (double)(i % 7)));
                if (i + 1 < n)
                    optim_stack_push(stack, i, to, 0, 1);
            }
            optim_stack_finish(stack, &value, 0, 1);
            for (size_t g = 0; g < groups; g++)
                of_group[g] = tree(leaf + g * group, group);
            float want = tree(of_group, groups);
            assert_memory_equal(&value, &want, sizeof want);
            optim_stack_destroy(stack);
        }
}

/* In lanes: leaves come in turns, and the last of each lane becomes the sum of its lane's tree. */
static void lanes_take_turns(void **state)
{
    (void)state;
    float leaf[60], value;
    for (size_t lanes = 1; lanes <= 6; lanes++)
        for (size_t n = 1; n * lanes <= 60; n++) { /* leaves of a lane */
            optim_stack_t *stack = NULL;
            assert_int_equal(optim_stack_create(n * lanes, 1, lanes, 1, NULL, &stack), GYRE_OK);
            for (size_t i = 0; i < n * lanes; i++) {
                float *place = optim_stack_place(stack, i), *to = place ? place : &value;
                float *const lane = leaf + i % lanes * n;
                *to = lane[i / lanes] = (float)(normal(22, n * 1000 + i) * pow(10.0, (double)(i % 7)));
                if (i + 1 < n * lanes)
                    optim_stack_push(stack, i, to, 0, 1);
                else
                    optim_stack_finish(stack, to, 0, 1);
                if (i / lanes + 1 < n)
                    continue;
                assert_ptr_equal(to, &value);
                float want = tree(lane, n);
                assert_memory_equal(&value, &want, sizeof want);
            }
            optim_stack_destroy(stack);
        }
}

static void to_integers(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = nearbyintf(x[i]);
}

/* Rounding at every node: leaves, and each sum of two. */
static float rounded_tree(const float *leaf, size_t n)
{
    size_t half = 1;
    if (n == 1)
        return nearbyintf(leaf[0]);
    while (2 * half < n)
        half *= 2;
    return nearbyintf(rounded_tree(leaf, half) + rounded_tree(leaf + half, n - half));
}

static void every_node_is_rounded(void **state)
{
    (void)state;
    float leaf[20], value;
    for (size_t n = 1; n <= 20; n++) {
        optim_stack_t *stack = NULL;
        assert_int_equal(optim_stack_create(n, 1, 1, 1, to_integers, &stack), GYRE_OK);
        for (size_t i = 0; i < n; i++) {
            float *place = optim_stack_place(stack, i), *to = place ? place : &value;
            *to = leaf[i] = 1.25f + 0.5f * (float)(i % 3);
            if (i + 1 < n)
                optim_stack_push(stack, i, to, 0, 1);
        }
        optim_stack_finish(stack, &value, 0, 1);
        assert_true(value == rounded_tree(leaf, n));
        optim_stack_destroy(stack);
    }
}

/* Shares lie side by side, and joined over the ranks they are the sum of one rank, for every batch, every
 * number of groups and every number of ranks. */
static void shares(void **state)
{
    (void)state;
    double leaf[64], of_rank[64];
    size_t differ = 0;
    for (size_t i = 0; i < 64; i++)
        leaf[i] = normal(31, i) * pow(10.0, (double)(i % 9));
    for (size_t n = 1; n <= 64; n++)
        for (size_t groups = 0; groups <= n; groups++)
            for (size_t ranks = 1; ranks <= n && (groups == 0 || n % groups == 0); ranks++)
                for (int equal = 0; equal < 2; equal++) {
                    const optim_batch_t batch = {.batch = n, .groups = groups, .equal = equal};
                    size_t group = optim_batch_group(&batch), next = 0, longest = 0;
                    assert_int_equal(optim_batch_check(&batch, ranks), GYRE_OK);
                    for (size_t r = 0; r < ranks; r++) {
                        size_t first, count;
                        optim_batch_share(&batch, ranks, r, &first, &count);
                        assert_int_equal(first, next);
                        of_rank[r] = optim_tree_sum(leaf + first, count, group);
                        next += count;
                        longest = count > longest ? count : longest;
                    }
                    assert_int_equal(next, n);
                    size_t of = groups ? groups : n & (~n + 1);
                    int powers = (ranks & (ranks - 1)) == 0 && (of & (of - 1)) == 0 && of >= ranks;
                    if ((equal && n % ranks == 0) || powers)
                        assert_int_equal(longest, n / ranks);
                    double joined = optim_tree_sum(of_rank, ranks, 1), whole = optim_tree_sum(leaf, n, group);
                    if (optim_batch_invariant(&batch, ranks))
                        assert_true(joined == whole);
                    else
                        differ += joined != whole;
                    assert_true(equal || optim_batch_invariant(&batch, ranks));
                }
    assert_true(differ > 30); /* what is not promised is mostly not so, either */
    const optim_batch_t bad = {.batch = 12, .groups = 5}, few = {.batch = 3};
    assert_int_equal(optim_batch_check(&bad, 1), GYRE_ERR_INVALID);
    assert_int_equal(optim_batch_check(&few, 4), GYRE_ERR_INVALID);
    for (size_t size = 1; size < 20; size++)
        for (size_t groups = 0; groups < 20; groups++)
            for (size_t ranks = 1; ranks < 9; ranks++) { /* the batch that a refusal names is accepted */
                optim_batch_t batch = {.batch = size, .groups = groups};
                if (optim_batch_check(&batch, ranks) == GYRE_OK)
                    continue;
                const char *take = strstr(gyre_last_error(), "take a batch of ");
                assert_non_null(take);
                batch.batch = strtoull(take + strlen("take a batch of "), NULL, 10);
                assert_int_equal(optim_batch_check(&batch, ranks), GYRE_OK);
            }
}

/* What the ranks' parts give, reduced after every run: the ranks' sums of a run in the tree over ranks,
 * those of the blocks of a round in a tree, rounds from the first to the last. */
static double reduced(const optim_batch_t *batch, size_t ranks, int spread, const double *leaf,
                      size_t used[64])
{
    const optim_part_t one = optim_batch_part(batch, ranks, 0, spread);
    size_t group = optim_batch_group(batch), runs = one.count / one.run;
    double of_rank[64], block[64], run[64], sum = 0.0;
    for (size_t k = 0; k < runs; k++) {
        for (size_t r = 0; r < ranks; r++) {
            const optim_part_t part = optim_batch_part(batch, ranks, r, spread);
            assert_true(part.count == one.count && part.run == one.run && part.blocks == one.blocks);
            for (size_t i = 0; i < part.run; i++) {
                size_t index = optim_part_index(&part, k * part.run + i);
                run[i] = leaf[index];
                used[index]++;
            }
            of_rank[r] = optim_tree_sum(run, part.run, group);
        }
        block[k % one.blocks] = optim_tree_sum(of_rank, ranks, 1);
        if (k % one.blocks + 1 == one.blocks) {
            double round = optim_tree_sum(block, one.blocks, one.block_group);
            sum = k < one.blocks ? round : sum + round;
        }
    }
    return sum;
}

/* Rounds of lanes: whatever the number of ranks, and wherever they reduce, the sum is that of one rank. */
static void rounds_of_lanes(void **state)
{
    (void)state;
    char why[OPTIM_BATCH_WHY];
    double leaf[64];
    size_t spread_runs = 0, chain_differs = 0;
    for (size_t i = 0; i < 64; i++)
        leaf[i] = normal(41, i) * pow(10.0, (double)(i % 9));
    for (size_t lanes = 1; lanes <= 32; lanes++)
        for (size_t groups = 0; groups <= lanes; groups++)
            for (size_t n = lanes; n <= 64 && (groups == 0 || lanes % groups == 0); n += lanes)
                for (size_t ranks = 1; ranks <= lanes; ranks++) {
                    const optim_batch_t batch = {.batch = n, .lanes = lanes, .groups = groups};
                    assert_int_equal(optim_batch_rounds(&batch), n / lanes);
                    if (!optim_batch_dealt(&batch, ranks, why) || lanes % ranks != 0)
                        continue;
                    const optim_batch_t whole = {.batch = n, .groups = batch.groups};
                    double want = optim_batch_sum(&batch, leaf);
                    if (n == lanes)
                        assert_true(want == optim_batch_sum(&whole, leaf));
                    chain_differs += n > lanes && groups == 0 && want != optim_batch_sum(&whole, leaf);
                    for (int spread = 0; spread < 2; spread++) {
                        const optim_part_t part = optim_batch_part(&batch, ranks, 0, spread);
                        size_t used[64] = {0};
                        size_t all = 0;
                        int even = 1; /* one round may have uneven shares */
                        for (size_t r = 0; r < ranks; r++) {
                            size_t count = optim_batch_part(&batch, ranks, r, spread).count;
                            even &= count * ranks == n;
                            all += count;
                        }
                        assert_int_equal(all, n);
                        assert_true(even || part.run == part.count);
                        if (!even)
                            continue;
                        spread_runs += spread && part.run < lanes / ranks;
                        assert_true(reduced(&batch, ranks, spread, leaf, used) == want);
                        for (size_t i = 0; i < n; i++)
                            assert_int_equal(used[i], 1);
                    }
                }
    assert_true(chain_differs > 30 && spread_runs > 100);
}

/* What dp x cp ranks give, each of which has parts / cp consecutive parts of its sequences: reduced after
 * each sequence. */
static double reduced_parts(const optim_batch_t *batch, size_t dp, size_t cp, const double *leaf)
{
    const optim_part_t one = optim_batch_part(batch, dp, 0, 1);
    const size_t here = batch->parts / cp;
    double of_rank[64], block[64], sum = 0.0;
    for (size_t k = 0; k < one.count; k++) {
        for (size_t r = 0; r < dp * cp; r++) {
            const optim_part_t part = optim_batch_part(batch, dp, r / cp, 1);
            const double *parts = leaf + optim_part_index(&part, k) * batch->parts + r % cp * here;
            of_rank[r] = optim_tree_sum(parts, here, optim_batch_group(batch) * batch->parts);
        }
        block[k % one.blocks] = optim_tree_sum(of_rank, dp * cp, 1);
        if (k % one.blocks + 1 == one.blocks) {
            double round = optim_tree_sum(block, one.blocks, one.block_group);
            sum = k < one.blocks ? round : sum + round;
        }
    }
    return sum;
}

/* Parts of sequences: a tree over them stands for the sequence, and ranks that share it add up to it. */
static void parts_of_sequences(void **state)
{
    (void)state;
    double leaf[64], whole[64];
    size_t shared = 0;
    for (size_t i = 0; i < 64; i++)
        leaf[i] = normal(43, i) * pow(10.0, (double)(i % 9));
    for (size_t parts = 1; parts <= 4; parts *= 2)
        for (size_t n = 1; n <= 64 / parts; n++)
            for (size_t lanes = 0; lanes <= n; lanes++) {
                const optim_batch_t batch = {.batch = n, .lanes = lanes, .parts = parts},
                                    sequences = {.batch = n, .lanes = lanes};
                if (optim_batch_check(&batch, 1) != GYRE_OK)
                    continue;
                for (size_t i = 0; i < n; i++)
                    whole[i] = optim_tree_sum(leaf + i * parts, parts, 1);
                const double want = optim_batch_sum(&batch, leaf);
                assert_true(want == optim_batch_sum(&sequences, whole));
                for (size_t dp = 1; dp <= 8; dp++)
                    for (size_t cp = 2; cp <= parts && optim_batch_deals(&batch, dp); cp *= 2, shared++)
                        assert_true(reduced_parts(&batch, dp, cp, leaf) == want);
            }
    assert_true(shared > 200);
}

/* Lanes that are refused, and the way out that the refusal names. */
static void refusals_of_lanes(void **state)
{
    (void)state;
    static const struct {
        optim_batch_t batch;
        size_t ranks;
        const char *text;
    } bad[] = {{{.batch = 12, .lanes = 8}, 1, "rounds of 8 (--lanes): take a batch of 16 sequences"},
               {{.batch = 16, .lanes = 8, .groups = 3}, 1, "take --groups 8, or --lanes 9"},
               {{.batch = 16, .lanes = 4},
                8,
                "rounds of 4 gradients (--lanes) cannot feed dp 8: take --lanes 8"},
               {{.batch = 16, .lanes = 8}, 3, "dp 3 does not divide the 8 gradients of a round (--lanes)"},
               {{.batch = 24, .lanes = 12}, 6, "in 4 groups: take --groups 12"}},
      good[] = {{{.batch = 16, .lanes = 8}, 1, NULL},
                {{.batch = 16, .lanes = 8, .groups = 8}, 1, NULL},
                {{.batch = 16, .lanes = 8}, 8, NULL},
                {{.batch = 16, .lanes = 8}, 4, NULL},
                {{.batch = 24, .lanes = 12, .groups = 12}, 6, NULL},
                {{.batch = 6, .lanes = 8}, 3, NULL}, /* one round, in shares as without lanes */
                {{.batch = 992, .lanes = 124, .groups = 124}, 124, NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(optim_batch_check(&bad[i].batch, bad[i].ranks), GYRE_ERR_INVALID);
        assert_non_null(strstr(gyre_last_error(), bad[i].text));
    }
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(optim_batch_check(&good[i].batch, good[i].ranks), GYRE_OK);
    const optim_ramp_t ramp = {.batch = 24, .start = 4, .increment = 4, .round = 8},
                       steps = {.batch = 24, .start = 8, .increment = 8, .round = 8},
                       below = {.batch = 8, .start = 2, .increment = 2, .round = 8};
    assert_int_equal(optim_ramp_check(&ramp), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "12 sequences are no whole number of rounds of 8 (--lanes)"));
    assert_int_equal(optim_ramp_check(&steps), GYRE_OK);
    assert_int_equal(optim_ramp_check(&below), GYRE_OK);
}

int main(void)
{
    base_log_set_level(BASE_LOG_NONE);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_against_reference),
        cmocka_unit_test(adamw_of_a_group),
        cmocka_unit_test(least_epsilon),
        cmocka_unit_test(clipping),
        cmocka_unit_test(schedule),
        cmocka_unit_test(stack_follows_the_tree),
        cmocka_unit_test(groups_are_trees_of_trees),
        cmocka_unit_test(lanes_take_turns),
        cmocka_unit_test(rounds_of_lanes),
        cmocka_unit_test(parts_of_sequences),
        cmocka_unit_test(refusals_of_lanes),
        cmocka_unit_test(every_node_is_rounded),
        cmocka_unit_test(shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
