/* SPDX-License-Identifier: Apache-2.0 */
/* tests/pipeline/test_check.c: schedules that were tampered with are refused, and the message names the
 * action. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "pipeline/schedules/check.h"

static int begin(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    return 0;
}

static pipe_schedule_t *make(pipe_kind_t kind, int p, int v, int m)
{
    pipe_schedule_t *s = NULL;
    pipe_shape_t shape = {kind, p, v, m, 0};
    assert_int_equal(pipe_schedule_create(&shape, &s), GYRE_OK);
    assert_int_equal(pipe_check(s), GYRE_OK);
    return s;
}

static size_t find(const pipe_schedule_t *s, int rank, pipe_op_t op, int chunk, int micro_batch)
{
    for (size_t i = 0; i < s->count[rank]; i++) {
        const pipe_action_t *a = &s->action[rank][i];
        if (a->op == op && a->chunk == chunk && a->micro_batch == micro_batch)
            return i;
    }
    fail_msg("rank %d has no %s of chunk %d, micro-batch %d", rank, pipe_op_name(op), chunk, micro_batch);
    return 0;
}

/* Takes action `from` out and puts it in so that it becomes number `to`. */
static void move(pipe_schedule_t *s, int rank, size_t from, size_t to)
{
    pipe_action_t *list = s->action[rank], a = list[from];
    if (from < to)
        memmove(list + from, list + from + 1, (to - from) * sizeof *list);
    else
        memmove(list + to + 1, list + to, (from - to) * sizeof *list);
    list[to] = a;
}

static void refused(pipe_schedule_t *s, const char *first, const char *second)
{
    assert_int_equal(pipe_check(s), GYRE_ERR_INTERNAL);
    if (!strstr(gyre_last_error(), first) || !strstr(gyre_last_error(), second))
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", gyre_last_error(), first, second);
    pipe_schedule_destroy(s);
}

static void test_order(void **state)
{
    (void)state;
    pipe_schedule_t *s = make(PIPE_GPIPE, 1, 1, 4);
    move(s, 0, 1, 2);
    refused(s, "rank 0, action 1: forward of chunk 0 (stage 0), micro-batch 2", "in order, and 1 is next");
    s = make(PIPE_GPIPE, 1, 1, 4);
    s->action[0][2].micro_batch = 1;
    refused(s, "rank 0, action 2: forward of chunk 0 (stage 0), micro-batch 1", "done before");
    s = make(PIPE_1F1B, 2, 1, 2);
    move(s, 0, find(s, 0, PIPE_BACKWARD, 0, 0), 0);
    refused(s, "backward of chunk 0 (stage 0), micro-batch 0", "did not go forward before");
    s = make(PIPE_ZB_H1, 2, 1, 2);
    move(s, 1, find(s, 1, PIPE_BACKWARD_WEIGHT, 0, 0), 0);
    refused(s, "rank 1, action 0: backward-weight of chunk 0 (stage 1), micro-batch 0",
            "the gradient of its input was not made before");
}

static void test_inputs(void **state)
{
    (void)state;
    pipe_schedule_t *s = make(PIPE_1F1B, 2, 1, 2);
    move(s, 1, 0, 1);
    refused(s, "rank 1, action 0: forward of chunk 0 (stage 1), micro-batch 0", "not received before");
    s = make(PIPE_1F1B, 2, 1, 2);
    move(s, 0, find(s, 0, PIPE_RECV_GRAD, 0, 0), s->count[0] - 1);
    refused(s, "backward of chunk 0 (stage 0), micro-batch 0", "not received before");
    s = make(PIPE_ZB_V, 1, 2, 2);
    move(s, 0, 1, 0);
    refused(s, "rank 0, action 0: forward of chunk 1 (stage 1), micro-batch 0", "on this rank, was not made");
}

static void test_messages(void **state)
{
    (void)state;
    pipe_schedule_t *s = make(PIPE_1F1B, 3, 1, 4);
    size_t i = find(s, 1, PIPE_SEND_ACT, 0, 0);
    move(s, 1, i, i + 1);
    refused(s, "send-act of chunk 0 (stage 1), micro-batch 0, to rank 2", "right after");
    s = make(PIPE_1F1B, 3, 1, 4);
    s->action[1][i].peer = 0;
    refused(s, "send-act of chunk 0 (stage 1), micro-batch 0, to rank 0",
            "the neighbouring stage is not on that rank");
    /* both lists are sound, but the two kinds of messages between one pair of ranks are taken in another
     * order than they are sent */
    s = make(PIPE_INTERLEAVED, 2, 2, 4);
    size_t first = 0, next;
    for (next = 0; s->action[0][next].op != PIPE_RECV_GRAD; next++)
        first = s->action[0][next].op == PIPE_RECV_ACT ? next : first;
    move(s, 0, next, first);
    refused(s, "meets rank 0, action", "match in order");
}

/* Nothing is wrong with either list, and both ranks wait for each other. */
static void test_deadlock(void **state)
{
    (void)state;
    pipe_schedule_t *s = make(PIPE_1F1B, 2, 1, 2);
    move(s, 0, find(s, 0, PIPE_RECV_GRAD, 0, 0), 2); /* F0 >1a <1g | F1 ... */
    move(s, 1, find(s, 1, PIPE_RECV_ACT, 0, 1), 1);  /* <0a <0a | F0 ... */
    refused(s,
            "deadlock: rank 0, action 2: recv-grad of chunk 0 (stage 0), micro-batch 0, from rank 1 waits "
            "for rank 1",
            "rank 1, action 1: recv-act of chunk 0 (stage 1), micro-batch 1");
}

/* Sound lists that would run if messages were buffered somewhere; with the slots that there are they do not:
 * rank 0 sends all before it takes anything, rank 1 takes nothing more until its gradients are taken. */
static void test_slots_deadlock(void **state)
{
    (void)state;
    pipe_schedule_t *all_first = make(PIPE_GPIPE, 2, 1, 16), *s = make(PIPE_1F1B, 2, 1, 16);
    s->action[0] = all_first->action[0];
    assert_int_equal(s->count[0], all_first->count[0]);
    assert_int_equal(pipe_check(s), GYRE_ERR_INTERNAL);
    assert_non_null(strstr(gyre_last_error(), "deadlock: rank 0, action "));
    assert_non_null(
        strstr(gyre_last_error(), "waits for rank 1 to post a receive, which waits in rank 1, action "));
    pipe_schedule_destroy(s);
    pipe_schedule_destroy(all_first);
}

static void program_refused(const pipe_schedule_t *s, int rank, const pipe_program_t *program,
                            const char *why)
{
    if (pipe_check_program(s, rank, program) != GYRE_ERR_INTERNAL)
        fail_msg("%s, rank %d: accepted", pipe_kind_name(s->shape.kind), rank);
    if (!strstr(gyre_last_error(), why) || !strstr(gyre_last_error(), "rank "))
        fail_msg("\"%s\" lacks \"%s\"", gyre_last_error(), why);
}

/* Each slot of each step and each receive, moved by one: refused. */
static void tamper_slots(const pipe_schedule_t *s, int rank, pipe_program_t *program)
{
    const int slots = program->first[PIPE_SLOT_KINDS];
    for (size_t i = 0; i < program->steps; i++) {
        pipe_step_t *step = &program->step[i], good = *step;
        for (int how = 0; how < 3; how++) {
            int *what = how == 0 ? &step->in : how == 1 ? &step->out : &step->receive;
            if (*what < 0)
                continue;
            *what = how < 2 ? (*what + 1) % slots : *what + 1;
            program_refused(s, rank, program, "");
            *step = good;
        }
    }
    for (int k = 0; k < program->receives; k++) {
        int good = program->receive[k].slot;
        program->receive[k].slot = (good + 1) % slots;
        program_refused(s, rank, program, "");
        program->receive[k].slot = good;
    }
}

/* Each receive posted only after the step that waits for it: refused. */
static void tamper_posting(const pipe_schedule_t *s, int rank, pipe_program_t *program)
{
    int *good = calloc(program->steps, sizeof *good);
    assert_non_null(good);
    for (size_t i = 0; i < program->steps; i++)
        good[i] = program->step[i].posted;
    for (int k = 0; k < program->receives; k++) {
        for (size_t i = 0; i <= program->receive[k].step; i++)
            program->step[i].posted = good[i] < k ? good[i] : k;
        program_refused(s, rank, program, "waited for before it is posted");
        for (size_t i = 0; i < program->steps; i++)
            program->step[i].posted = good[i];
    }
    free(good);
}

static void test_programs(void **state)
{
    (void)state;
    static const pipe_shape_t shapes[] = {{PIPE_1F1B, 3, 1, 9, 0},
                                          {PIPE_INTERLEAVED, 2, 2, 8, 0},
                                          {PIPE_ZB_H1, 3, 1, 8, 0},
                                          {PIPE_ZB_V, 3, 2, 8, 0}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int r = 0; r < shapes[k].ranks; r++) {
            pipe_schedule_t *s =
                make(shapes[k].kind, shapes[k].ranks, shapes[k].chunks, shapes[k].micro_batches);
            pipe_program_t program;
            assert_int_equal(pipe_program_build(s, r, &program), GYRE_OK);
            assert_int_equal(pipe_check_program(s, r, &program), GYRE_OK);
            tamper_slots(s, r, &program);
            tamper_posting(s, r, &program);
            assert_int_equal(pipe_check_program(s, r, &program), GYRE_OK);
            for (size_t i = 0; i < program.steps; i++) /* all at once: they land on what is still read */
                program.step[i].posted = program.receives;
            program_refused(s, r, &program, "");
            pipe_program_free(&program);
            pipe_schedule_destroy(s);
        }
}

static void test_bounds(void **state)
{
    (void)state;
    pipe_schedule_t *s = make(PIPE_GPIPE, 4, 1, 8);
    s->shape.kind = PIPE_1F1B;
    refused(s, "rank 0 holds 8 activations", "1f1b promises 4");
    s = make(PIPE_ZB_H1, 4, 1, 3);
    for (int b = 0; b < 3; b++)
        move(s, 0, find(s, 0, PIPE_BACKWARD_WEIGHT, 0, b), s->count[0] - 1);
    refused(s, "rank 0 leaves 3 weight gradients", "zb-h1 promises 1");
}

/* Taking any action out, doing any twice, changing any part of any action: all refused, each naming a
 * rank. */
static void test_every_action(void **state)
{
    (void)state;
    static const pipe_shape_t shapes[] = {{PIPE_GPIPE, 3, 1, 3, 0},       {PIPE_1F1B, 3, 1, 4, 0},
                                          {PIPE_INTERLEAVED, 2, 3, 4, 0}, {PIPE_ZB_H1, 3, 1, 4, 0},
                                          {PIPE_ZB_V, 3, 2, 4, 0},        {PIPE_ZB_V, 2, 2, 3, 1}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        pipe_schedule_t *s = NULL;
        assert_int_equal(pipe_schedule_create(&shapes[k], &s), GYRE_OK);
        for (int r = 0; r < shapes[k].ranks; r++) {
            size_t n = s->count[r];
            pipe_action_t *good = s->action[r], *list = calloc(n + 1, sizeof *list);
            assert_non_null(list);
            for (size_t i = 0; i < n; i++)
                for (int how = 0; how < 8; how++) {
                    memcpy(list, good, n * sizeof *list);
                    s->count[r] = n;
                    pipe_action_t *a = &list[i];
                    if (how == 0) { /* taken out */
                        memmove(a, a + 1, (n - i - 1) * sizeof *a);
                        s->count[r] = n - 1;
                    } else if (how == 1) { /* twice */
                        memmove(a + 1, a, (n - i) * sizeof *a);
                        s->count[r] = n + 1;
                    } else if (how <= 3) {
                        a->micro_batch += how == 2 ? 1 : -1;
                    } else if (how <= 5) {
                        a->chunk += how == 4 ? 1 : -1;
                    } else if (how == 6) {
                        a->op = (pipe_op_t)((a->op + 1) % PIPE_OP_END);
                    } else {
                        a->peer++;
                    }
                    s->action[r] = list;
                    assert_int_equal(pipe_check(s), GYRE_ERR_INTERNAL);
                    assert_non_null(strstr(gyre_last_error(), "rank "));
                }
            free(list);
            s->action[r] = good;
            s->count[r] = n;
        }
        assert_int_equal(pipe_check(s), GYRE_OK);
        pipe_schedule_destroy(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),          cmocka_unit_test(test_inputs),
        cmocka_unit_test(test_messages),       cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_slots_deadlock), cmocka_unit_test(test_programs),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_every_action),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
