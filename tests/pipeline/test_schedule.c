/* SPDX-License-Identifier: Apache-2.0 */
/* tests/pipeline/test_schedule.c: every schedule of up to 16 ranks, 64 micro-batches and 4 chunks is proved,
 * holds as much as it promises and no less, and has the bubble of its formula in virtual time. */
/* takes: 3 */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "pipeline/schedules/check.h"
#include "pipeline/schedules/program.h"
#include "pipeline/schedules/simulate.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SOME 1 /* instrumented: a sample, slow as it is */
#else
#define SOME 0
#endif

static const pipe_times_t even = {.forward = 1, .backward = 2, .weight = 1};

static int begin(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE); /* errors are asked for below */
    return 0;
}

/* Only what pipe_shape_check refuses for its chunks or groups is left out. */
static int exists(const pipe_shape_t *s)
{
    if (s->kind == PIPE_INTERLEAVED)
        return s->chunks >= 2 && (s->forward_only || s->micro_batches % s->ranks == 0);
    return s->chunks == (s->kind == PIPE_ZB_V ? 2 : 1);
}

/* Where the batch is long enough, what is held reaches what is promised: the promise is no guess. */
static void check_tight(const pipe_shape_t *s, const pipe_simulation_t *sim)
{
    for (int r = 0; r < s->ranks; r++) {
        assert_int_equal(sim->activations[r], pipe_activation_bound(s, r));
        assert_int_equal(sim->weights[r], pipe_weight_bound(s, r));
    }
}

static void check_shape(const pipe_shape_t *s)
{
    pipe_schedule_t *schedule = NULL;
    pipe_simulation_t sim;
    assert_int_equal(pipe_schedule_create(s, &schedule), GYRE_OK);
    if (pipe_check(schedule) != GYRE_OK)
        fail_msg("%s%s p %d v %d m %d: %s", pipe_kind_name(s->kind), s->forward_only ? " forward" : "",
                 s->ranks, s->chunks, s->micro_batches, gyre_last_error());
    assert_int_equal(pipe_simulate(schedule, &even, &sim), GYRE_OK);
    double formula = pipe_bubble_formula(s, &even);
    if (!isnan(formula) && fabs(formula - sim.bubble) > 1e-12)
        fail_msg("%s p %d v %d m %d: bubble %.15g, formula %.15g", pipe_kind_name(s->kind), s->ranks,
                 s->chunks, s->micro_batches, sim.bubble, formula);
    if (s->micro_batches >= 2 * s->ranks)
        check_tight(s, &sim);
    pipe_simulation_free(&sim);
    pipe_schedule_destroy(schedule);
}

static void test_every_shape(void **state)
{
    (void)state;
    for (int kind = 0; kind < PIPE_KIND_END; kind++) {
        size_t shapes = 0;
        for (int v = 1; v <= 4; v++)
            for (int p = 1; p <= 16; p += SOME && p > 4 ? 3 : 1)
                for (int m = 1; m <= 64; m += SOME && m > 9 ? 11 : 1)
                    for (int evaluate = 0; evaluate < (m <= 17 || m % 16 == 0 ? 2 : 1); evaluate++) {
                        pipe_shape_t s = {(pipe_kind_t)kind, p, v, m, evaluate};
                        assert_int_equal(pipe_shape_check(&s) == GYRE_OK, exists(&s));
                        if (!exists(&s))
                            continue;
                        check_shape(&s);
                        shapes++;
                    }
        assert_true(shapes > (SOME ? 100 : 1300)); /* of each kind */
    }
}

/* Published pipelines: GLM-130B, MT-NLG, BLOOM, GPT-3 on 3,072 GPUs; and deep ones with few micro-batches. */
static void test_large_shapes(void **state)
{
    (void)state;
    static const pipe_shape_t shapes[] = {
        {PIPE_GPIPE, 8, 1, 176, 0},       {PIPE_1F1B, 35, 1, 120, 0},        {PIPE_1F1B, 12, 1, 256, 0},
        {PIPE_INTERLEAVED, 64, 2, 64, 0}, {PIPE_INTERLEAVED, 5, 12, 100, 0}, {PIPE_ZB_H1, 35, 1, 120, 0},
        {PIPE_ZB_V, 35, 2, 120, 0},       {PIPE_ZB_V, 64, 2, 7, 0},          {PIPE_ZB_H1, 100, 1, 3, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}

/* What the papers say, in their words: of 1F1B's bubble zero-bubble H1 leaves a third, interleaving one in v,
 * ZB-V next to nothing. */
static void test_bubbles(void **state)
{
    (void)state;
    struct {
        pipe_shape_t shape;
        double idle; /* of the first rank, in forwards of a whole stage */
    } cases[] = {{{PIPE_GPIPE, 4, 1, 8, 0}, 9},
                 {{PIPE_1F1B, 4, 1, 8, 0}, 9},
                 {{PIPE_INTERLEAVED, 4, 3, 8, 0}, 3},
                 {{PIPE_ZB_H1, 4, 1, 8, 0}, 3},
                 {{PIPE_ZB_V, 4, 2, 8, 0}, 1.5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pipe_schedule_t *schedule = NULL;
        pipe_simulation_t sim;
        const pipe_shape_t *s = &cases[i].shape;
        double v = s->chunks;
        pipe_times_t times = {.forward = 1 / v, .backward = 2 / v, .weight = 1 / v};
        assert_int_equal(pipe_schedule_create(s, &schedule), GYRE_OK);
        assert_int_equal(pipe_simulate(schedule, &times, &sim), GYRE_OK);
        assert_true(fabs(sim.makespan - 3 * s->micro_batches - cases[i].idle) < 1e-12);
        assert_true(fabs(sim.busy[0] - 3 * s->micro_batches) < 1e-12);
        pipe_simulation_free(&sim);
        pipe_schedule_destroy(schedule);
    }
}

/* The formulas of all schedules but ZB-V, whatever part of a slot forward, inputs and weights take. */
static void test_parts_of_a_slot(void **state)
{
    (void)state;
    static const pipe_times_t times[] = {
        {.forward = 1, .backward = 3, .weight = 1},   {.forward = 1, .backward = 3, .weight = 2},
        {.forward = 1, .backward = 2, .weight = 2},   {.forward = 0.25, .backward = 2, .weight = 1},
        {.forward = 3, .backward = 2, .weight = 0.5}, {.forward = 0.5, .backward = 4, .weight = 3.5}};
    static const pipe_shape_t shapes[] = {{PIPE_GPIPE, 4, 1, 5, 0}, {PIPE_INTERLEAVED, 3, 2, 6, 0},
                                          {PIPE_1F1B, 5, 1, 5, 0},  {PIPE_ZB_H1, 2, 1, 9, 0},
                                          {PIPE_ZB_H1, 4, 1, 4, 0}, {PIPE_ZB_H1, 5, 1, 11, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
            pipe_schedule_t *schedule = NULL;
            pipe_simulation_t sim;
            assert_int_equal(pipe_schedule_create(&shapes[i], &schedule), GYRE_OK);
            assert_int_equal(pipe_simulate(schedule, &times[k], &sim), GYRE_OK);
            const double formula = pipe_bubble_formula(&shapes[i], &times[k]);
            if (!(fabs(sim.bubble - formula) < 1e-12))
                fail_msg("%s p %d, times %zu: bubble %.15g, formula %.15g", pipe_kind_name(shapes[i].kind),
                         shapes[i].ranks, k, sim.bubble, formula);
            pipe_simulation_free(&sim);
            pipe_schedule_destroy(schedule);
        }
}

/* A hop delays the first rank by one way there and back; GPipe hides all others. */
static void test_hops(void **state)
{
    (void)state;
    pipe_shape_t s = {PIPE_GPIPE, 5, 1, 6, 0};
    pipe_times_t times = {.forward = 1, .backward = 2, .weight = 1, .hop = 0.25};
    pipe_schedule_t *schedule = NULL;
    pipe_simulation_t sim;
    assert_int_equal(pipe_schedule_create(&s, &schedule), GYRE_OK);
    assert_int_equal(pipe_simulate(schedule, &times, &sim), GYRE_OK);
    assert_true(fabs(sim.makespan - 3 * (6 + 4) - 2 * 4 * 0.25) < 1e-12);
    pipe_simulation_free(&sim);
    pipe_schedule_destroy(schedule);
}

/* A stage that takes longer, the one with the head perhaps, sets the pace: the others wait for it. */
static void test_scale(void **state)
{
    (void)state;
    const double scale[] = {1, 1, 0.5, 1.5};
    pipe_shape_t s = {PIPE_1F1B, 4, 1, 10, 0};
    pipe_times_t times = {.forward = 1, .backward = 2, .weight = 1, .scale = scale};
    pipe_schedule_t *schedule = NULL;
    pipe_simulation_t sim;
    assert_int_equal(pipe_schedule_create(&s, &schedule), GYRE_OK);
    assert_int_equal(pipe_simulate(schedule, &times, &sim), GYRE_OK);
    assert_true(fabs(sim.busy[2] - 15) < 1e-12 && fabs(sim.busy[3] - 45) < 1e-12);
    assert_true(fabs(sim.makespan - (1 + 1 + 0.5 + 45 + 1 + 2 + 2)) < 1e-12);
    assert_true(isnan(pipe_bubble_formula(&s, &times)));
    pipe_simulation_free(&sim);
    pipe_schedule_destroy(schedule);
}

/* F0 F1 B0 ...; a stroke after the number: of chunk 1; messages: >1a sends activations to rank 1, <1g
 * receives gradients from it. */
static void write_list(const pipe_schedule_t *s, int rank, int messages, char *out, size_t bytes)
{
    static const char letters[] = "FBBWsrsr";
    size_t used = 0;
    for (size_t i = 0; i < s->count[rank]; i++) {
        const pipe_action_t *a = &s->action[rank][i];
        if (pipe_op_computes(a->op))
            used += (size_t)snprintf(out + used, bytes - used, "%s%c%d%s", used ? " " : "", letters[a->op],
                                     a->micro_batch, a->chunk == 1 ? "'" : "");
        else if (messages)
            used += (size_t)snprintf(out + used, bytes - used, "%s%c%d%c", used ? " " : "",
                                     a->op == PIPE_SEND_ACT || a->op == PIPE_SEND_GRAD ? '>' : '<', a->peer,
                                     a->op == PIPE_SEND_ACT || a->op == PIPE_RECV_ACT ? 'a' : 'g');
    }
}

static void test_orders(void **state)
{
    (void)state;
    static const struct {
        pipe_shape_t shape;
        int rank, messages;
        const char *list;
    } cases[] = {
        {{PIPE_GPIPE, 3, 1, 3, 0}, 1, 0, "F0 F1 F2 B0 B1 B2"},
        {{PIPE_1F1B, 1, 1, 1, 0}, 0, 1, "F0 B0"},
        {{PIPE_1F1B, 3, 1, 4, 0}, 0, 0, "F0 F1 F2 B0 F3 B1 B2 B3"},
        {{PIPE_1F1B, 3, 1, 4, 0}, 2, 0, "F0 B0 F1 B1 F2 B2 F3 B3"},
        {{PIPE_1F1B, 3, 1, 1, 0}, 1, 1, "<0a F0 >2a <2g B0 >0g"},
        {{PIPE_INTERLEAVED, 2, 2, 2, 0}, 0, 0, "F0 F1 F0' F1' B0' B1' B0 B1"},
        {{PIPE_INTERLEAVED, 2, 2, 4, 0}, 1, 0, "F0 F1 F0' B0' F1' B1' F2 B0 F3 B1 F2' B2' F3' B3' B2 B3"},
        {{PIPE_INTERLEAVED, 1, 2, 2, 0}, 0, 1, "F0 F0' B0' F1 B0 F1' B1' B1"},
        {{PIPE_ZB_H1, 3, 1, 4, 0}, 0, 0, "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"},
        {{PIPE_ZB_H1, 3, 1, 4, 0}, 2, 0, "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"},
        {{PIPE_ZB_V, 1, 2, 2, 0}, 0, 1, "F0 F0' B0' W0' F1 B0 W0 F1' B1' W1' B1 W1"},
        {{PIPE_ZB_V, 2, 2, 4, 0},
         1,
         0,
         "F0 F0' F1 F1' B0' W0' F2 B0 W0 F2' B1' W1' F3 B1 W1 F3' B2' W2' B2 B3' B3 W2 W3' W3"},
        {{PIPE_ZB_V, 2, 2, 1, 0}, 1, 1, "<0a F0 F0' >0a <0g B0' W0' B0 >0g W0"},
        {{PIPE_ZB_V, 2, 2, 3, 1}, 1, 0, "F0 F0' F1 F1' F2 F2'"},
        {{PIPE_INTERLEAVED, 2, 2, 3, 1}, 0, 0, "F0 F1 F0' F1' F2 F2'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pipe_schedule_t *schedule = NULL;
        char list[512] = "";
        assert_int_equal(pipe_schedule_create(&cases[i].shape, &schedule), GYRE_OK);
        write_list(schedule, cases[i].rank, cases[i].messages, list, sizeof list);
        assert_string_equal(list, cases[i].list);
        pipe_schedule_destroy(schedule);
    }
}

static void test_places(void **state)
{
    (void)state;
    for (int kind = 0; kind < PIPE_KIND_END; kind++)
        for (int p = 1; p <= 5; p++) {
            pipe_shape_t s = {(pipe_kind_t)kind, p, pipe_kind_chunks((pipe_kind_t)kind), p, 0};
            for (int stage = 0; stage < pipe_stages(&s); stage++) {
                int rank = -1, chunk = -1;
                pipe_place_of(&s, stage, &rank, &chunk);
                assert_int_equal(pipe_stage_of(&s, rank, chunk), stage);
            }
        }
    pipe_shape_t turn = {PIPE_ZB_V, 4, 2, 8, 0};
    assert_int_equal(pipe_stage_of(&turn, 3, 0), 3);
    assert_int_equal(pipe_stage_of(&turn, 3, 1), 4);
    assert_int_equal(pipe_stage_of(&turn, 0, 1), 7);
}

/* Slots: what the list keeps alive and one more of each kind that it receives, two to send from. */
static void test_slots(void **state)
{
    (void)state;
    pipe_shape_t s = {PIPE_1F1B, 4, 1, 16, 0};
    pipe_schedule_t *schedule = NULL;
    assert_int_equal(pipe_schedule_create(&s, &schedule), GYRE_OK);
    for (int r = 0; r < 4; r++) {
        pipe_program_t program;
        assert_int_equal(pipe_program_build(schedule, r, &program), GYRE_OK);
        const int *first = program.first;
        assert_int_equal(first[1] - first[0], r == 0 ? 0 : 4 - r + PIPE_AHEAD);
        assert_int_equal(first[2] - first[1], r == 3 ? 0 : 1 + PIPE_AHEAD);
        assert_int_equal(first[3] - first[2], r == 3 ? 0 : PIPE_SENDS);
        assert_int_equal(first[4] - first[3], r == 0 ? 0 : PIPE_SENDS);
        assert_true(program.step[0].posted > 0); /* before anything is computed */
        pipe_program_free(&program);
    }
    pipe_schedule_destroy(schedule);
}

static void refused(pipe_shape_t s, const char *why)
{
    pipe_schedule_t *schedule = NULL;
    assert_int_equal(pipe_schedule_create(&s, &schedule), GYRE_ERR_INVALID);
    assert_null(schedule);
    if (!strstr(gyre_last_error(), why))
        fail_msg("\"%s\" lacks \"%s\"", gyre_last_error(), why);
}

static void test_refusals(void **state)
{
    (void)state;
    pipe_kind_t kind = PIPE_GPIPE;
    refused((pipe_shape_t){PIPE_INTERLEAVED, 4, 2, 10, 0}, "the nearest are 8 and 12");
    refused((pipe_shape_t){PIPE_INTERLEAVED, 4, 2, 3, 0}, "the nearest is 4");
    refused((pipe_shape_t){PIPE_INTERLEAVED, 4, 1, 8, 0}, "with 1 it is 1f1b");
    refused((pipe_shape_t){PIPE_1F1B, 4, 2, 8, 0}, "interleaved, or 2 with zb-v");
    refused((pipe_shape_t){PIPE_ZB_V, 4, 1, 8, 0}, "2 chunks per rank, not 1");
    refused((pipe_shape_t){PIPE_1F1B, 0, 1, 8, 0}, "1 to 4096");
    refused((pipe_shape_t){PIPE_1F1B, 4, 1, 0, 0}, "0 micro-batches");
    refused((pipe_shape_t){PIPE_1F1B, 1, 1, 70000, 0}, "1 to 65536: larger ones are fewer (--micro-batch)");
    refused((pipe_shape_t){PIPE_1F1B, 4, -1, 1, 0}, "-1 chunks");
    refused((pipe_shape_t){PIPE_GPIPE, 4096, 1, 65536, 0}, "more than a schedule is made for");
    refused((pipe_shape_t){PIPE_KIND_END, 4, 1, 1, 0}, "does not exist");
    for (int k = 0; k < PIPE_KIND_END; k++) {
        assert_int_equal(pipe_kind_parse(pipe_kind_name((pipe_kind_t)k), &kind), GYRE_OK);
        assert_int_equal(kind, k);
    }
    assert_int_equal(pipe_kind_parse("dualpipe", &kind), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "gpipe, 1f1b, interleaved, zb-h1, zb-v"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_shape), cmocka_unit_test(test_large_shapes),
        cmocka_unit_test(test_bubbles),     cmocka_unit_test(test_hops),
        cmocka_unit_test(test_scale),       cmocka_unit_test(test_orders),
        cmocka_unit_test(test_places),      cmocka_unit_test(test_slots),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_parts_of_a_slot),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
