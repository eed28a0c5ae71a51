/* SPDX-License-Identifier: Apache-2.0 */
/* tests/collectives/schedules/test_checker.c: the checker rejects broken schedules, each kind of breakage
 * for each algorithm, and says where; and accepts and rejects hand-made ones for the right reason. Schedules
 * are broken at every place: of 2 to 5 ranks, of which 4 and 5 have one half of the forms each, under a
 * sanitizer of 3. With TEST_LONG=1 (make check-long) they have all, and 7 and 8 ranks come, under a sanitizer
 * 4. */
/* takes: 2 */
/* one thread: TSan has nothing to see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/proof/check/check.h"
#include "collectives/schedules/algorithms.h"
#include "tests/support/schedules.h"

/* ---- breaking generated schedules --------------------------------------------------------------------- */

typedef enum {
    DROP_STEP,     /* a SEND, RECV, COPY or REDUCE is missing */
    SWAP_OPERANDS, /* REDUCE in the wrong order */
    WRONG_PEER,    /* SEND to or RECV from another rank */
    WRONG_COUNT,   /* one element less at one end of a message */
    WRONG_OFFSET,  /* one element further on */
    WRONG_BUFFER,  /* writes IN */
    MISSING_DEPS,  /* a rank's dependencies, all of them */
    EXTRA_WRITE,   /* the last result is overwritten with something else */
    DOUBLE_TERM,   /* REDUCE takes one source twice */
    FINAL_MISSING,
    FINAL_DOUBLE, /* a second FINAL, on a step before or after */
    CYCLE,        /* the first step waits for the last */
    READ_EARLY,   /* a REDUCE before the RECV of its source */
    MUTATIONS
} mutation_t;

static const char *const mutation_names[MUTATIONS] = {
    "drop step",    "swap operands", "wrong peer",  "wrong count", "wrong offset",
    "wrong buffer", "missing deps",  "extra write", "double term", "final missing",
    "final double", "cycle",         "read early"};

/* A schedule's arrays are its own; a copy with room for one step, source and dependency more can be broken
 * freely. */
static coll_schedule_t copy_schedule(base_arena_t *arena, const coll_schedule_t *from)
{
    coll_schedule_t s = *from;
    s.steps = base_arena_alloc(arena, from->nsteps + 1u, sizeof *s.steps);
    s.sources = base_arena_alloc(arena, from->nsources + 1u, sizeof *s.sources);
    s.deps = base_arena_alloc(arena, from->ndeps + 1u, sizeof *s.deps);
    if (from->nsteps)
        memcpy(s.steps, from->steps, from->nsteps * sizeof *s.steps);
    if (from->nsources)
        memcpy(s.sources, from->sources, from->nsources * sizeof *s.sources);
    if (from->ndeps)
        memcpy(s.deps, from->deps, from->ndeps * sizeof *s.deps);
    return s;
}

static void drop_step(coll_schedule_t *s, uint32_t at)
{
    memmove(&s->steps[at], &s->steps[at + 1], (s->nsteps - at - 1) * sizeof *s->steps);
    s->nsteps--;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        uint32_t kept = 0;
        for (uint32_t k = 0; k < s->steps[i].ndep; k++) {
            uint32_t on = s->deps[s->steps[i].dep + k];
            if (on != at)
                s->deps[s->steps[i].dep + kept++] = on > at ? on - 1 : on;
        }
        s->steps[i].ndep = kept;
    }
}

/* Puts a second FINAL on the result of a step right after it. */
static void repeat_final(coll_schedule_t *s, uint32_t at)
{
    memmove(&s->steps[at + 1], &s->steps[at], (s->nsteps++ - at) * sizeof *s->steps);
    for (uint32_t i = 0; i < s->ndeps; i++)
        s->deps[i] += s->deps[i] > at;
    coll_step_t *again = &s->steps[at + 1];
    again->ndep = 0;
    again->nsrc = 1;
    again->src = s->nsources;
    s->sources[s->nsources++] = again->at;
}

static int is_message(const coll_step_t *s)
{
    return s->kind == COLL_STEP_SEND || s->kind == COLL_STEP_RECV;
}

static int same_ref(coll_ref_t x, coll_ref_t y)
{
    return x.buf == y.buf && x.offset == y.offset;
}

/* Moves the REDUCE or COPY at `at` before the RECV that writes exactly one of its sources; 0 if there is
 * none. */
static int read_early(coll_schedule_t *s, uint32_t at)
{
    coll_step_t step = s->steps[at];
    if (is_message(&step) || at == 0 || step.ndep)
        return 0;
    const coll_step_t *before = &s->steps[at - 1];
    int uses = 0;
    for (uint32_t i = 0; i < step.nsrc; i++)
        uses |= same_ref(s->sources[step.src + i], before->at);
    if (before->kind != COLL_STEP_RECV || !uses || before->channel != step.channel)
        return 0;
    for (uint32_t i = 0; i < s->ndeps; i++)
        if (s->deps[i] == at || s->deps[i] == at - 1)
            return 0; /* keep it simple: those would have to be renumbered */
    for (uint32_t i = 0; i + 1 < at; i++)
        if (s->steps[i].kind == COLL_STEP_RECV && same_ref(s->steps[i].at, before->at))
            return 0; /* the place holds something older, which is another breakage */
    s->steps[at] = *before;
    s->steps[at - 1] = step;
    return 1;
}

static int overwrite_result(coll_schedule_t *s, const coll_args_t *a)
{
    for (uint32_t i = s->nsteps; i-- > 0;) {
        coll_step_t last = s->steps[i];
        if (last.at.buf != COLL_OUT || last.kind == COLL_STEP_SEND || last.count < 2)
            continue;
        last.at.offset += last.count - 1;  /* its last element gets the first one of what was received */
        for (uint32_t k = 0; k < i; k++) { /* something in TMP that is not the result */
            if (s->steps[k].kind != COLL_STEP_RECV || s->steps[k].at.buf != COLL_TMP)
                continue;
            s->sources[s->nsources] = s->steps[k].at;
            s->steps[s->nsteps++] = (coll_step_t){.kind = COLL_STEP_COPY,
                                                  .channel = s->steps[k].channel,
                                                  .peer = -1,
                                                  .count = 1,
                                                  .at = last.at,
                                                  .src = s->nsources++,
                                                  .nsrc = 1};
            return a->n > 1;
        }
    }
    return 0;
}

/* 0: there are none, or they only pace a copy: nothing but SENDs of its own channel reads what a COLL_STAGE
 * copy writes. */
static int needs_deps(const coll_schedule_t *s)
{
    for (uint32_t i = 0; i < s->ndeps; i++)
        if (!(s->steps[s->deps[i]].flags & COLL_STAGE))
            return 1;
    return 0;
}

/* Breaks one schedule at a step; 0 if this mutation does not apply there. */
static int mutate(coll_schedule_t *s, const coll_args_t *a, mutation_t kind, uint32_t at)
{
    coll_step_t *step = &s->steps[at];
    int reduces = coll_op_reduces(a->op);
    switch (kind) {
    case DROP_STEP:
        drop_step(s, at);
        return 1;
    case SWAP_OPERANDS:
        if (step->kind != COLL_STEP_REDUCE || step->nsrc < 2 || a->fast_order)
            return 0;
        coll_ref_t first = s->sources[step->src];
        s->sources[step->src] = s->sources[step->src + 1];
        s->sources[step->src + 1] = first;
        return 1;
    case WRONG_PEER:
        step->peer = (step->peer + 1) % a->n; /* perhaps itself, also wrong */
        return is_message(step);
    case WRONG_COUNT:
        step->count--;
        return is_message(step) && step->count + 1 > 0;
    case WRONG_OFFSET:
        if (is_message(step) || step->kind == COLL_STEP_JOINT || at % 2)
            step->at.offset++;
        else
            s->sources[step->src].offset++;
        return step->count > 0;
    case WRONG_BUFFER:
        step->at.buf = COLL_IN;
        return step->kind != COLL_STEP_SEND && step->count > 0;
    case MISSING_DEPS:
        for (uint32_t i = 0; i < s->nsteps; i++)
            s->steps[i].ndep = 0;
        return at == 0 && needs_deps(s);
    case EXTRA_WRITE:
        return at == 0 && overwrite_result(s, a);
    case DOUBLE_TERM:
        if (step->kind != COLL_STEP_REDUCE || step->nsrc < 2)
            return 0;
        s->sources[step->src + 1] = s->sources[step->src];
        return 1;
    case FINAL_MISSING:
        if (!(step->flags & COLL_FINAL))
            return 0;
        step->flags = 0;
        return 1;
    case FINAL_DOUBLE:
        if (is_message(step) || !reduces)
            return 0;
        if (step->flags & COLL_FINAL)
            repeat_final(s, at);
        step->flags = COLL_FINAL;
        return 1;
    case CYCLE:
        s->deps[s->ndeps] = s->nsteps - 1;
        while (s->steps[s->deps[s->ndeps]].channel != step->channel)
            s->deps[s->ndeps]--;
        if (at != 0 || s->deps[s->ndeps] == 0)
            return 0;
        step->dep = s->ndeps++;
        step->ndep = 1;
        return 1;
    default:
        return read_early(s, at);
    }
}

static unsigned long tried[COLL_ALGO_END][MUTATIONS];

static void expect_rejected(const sched_case_t *c, sched_world_t *w, int rank, uint32_t at, mutation_t kind)
{
    char text[200], why[400] = "";
    gyre_status_t status = coll_check(w->args, w->schedules, w->n, why, sizeof why);
    sched_case_print(c, text, sizeof text);
    if (status != GYRE_ERR_INTERNAL)
        fail_msg("%s: %s at rank %d, step %u was not noticed", text, mutation_names[kind], rank, at);
    if (strncmp(why, "rank ", 5) != 0 || strlen(why) < 12)
        fail_msg("%s: %s at rank %d, step %u: the reason is \"%s\"", text, mutation_names[kind], rank, at,
                 why);
    tried[c->algo][kind]++;
}

static void break_case(const sched_case_t *c)
{
    sched_world_t w;
    gyre_status_t status;
    if (!sched_case_served(c))
        return;
    assert_true(sched_world_build(&w, c, &status));
    assert_int_equal(coll_check(w.args, w.schedules, w.n, NULL, 0), GYRE_OK);
    unsigned state = c->seed;
    for (int rank = 0; rank < c->n; rank++) {
        coll_schedule_t whole = w.schedules[rank];
        for (uint32_t at = 0; at < whole.nsteps; at++) {
            for (mutation_t kind = 0; kind < MUTATIONS; kind++) {
                if (whole.nsteps > 24 && at > 0 && sched_random(&state) % whole.nsteps > 16)
                    continue; /* a sample of the long ones */
                base_arena_t arena = {0};
                w.schedules[rank] = copy_schedule(&arena, &whole);
                if (mutate(&w.schedules[rank], &w.args[rank], kind, at))
                    expect_rejected(c, &w, rank, at, kind);
                base_arena_free(&arena);
            }
        }
        w.schedules[rank] = whole;
    }
    sched_world_free(&w);
}

static void test_mutations(void **state)
{
    (void)state;
    const int sizes[] = {3, 4, 2,
                         5, 7, 8}; /* the first ones; the largest two take three quarters of the time */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const size_t count = getenv("TEST_LONG") ? 2 : 1;
#else
    const size_t count = getenv("TEST_LONG") ? 6 : 4;
#endif
    for (coll_algo_t algo = COLL_RING; algo < COLL_ALGO_END; algo++) {
        for (coll_op_t op = COLL_ALL_REDUCE; op < COLL_OP_END; op++) {
            for (size_t i = 0; i < count; i++) {
                for (unsigned form = 0; form < 8; form++) {
                    sched_case_t c = {
                        .algo = algo, .op = op, .n = sizes[i], .root = sizes[i] - 2, .chunk = 3};
                    c.count = op == COLL_BARRIER ? 0 : op != COLL_BROADCAST && coll_op_is_vector(op) ? 19 : 4;
                    c.place = form & 1 ? PLACE_IN : PLACE_OUT;
                    c.one_shot = form & 2 && op == COLL_ALL_REDUCE;
                    c.fast = form >> 2 && op != COLL_BARRIER;
                    c.ragged = form >> 2 && !coll_op_is_vector(op);
                    c.seed = form + 1;
                    c.hosts = HOSTS_ROUND_ROBIN;
                    if ((form & 2 && !c.one_shot) || (form && op == COLL_BARRIER))
                        continue;
                    if (!getenv("TEST_LONG") && c.n >= 4 && (form ^ form >> 2 ^ (unsigned)c.n) & 1)
                        continue;
                    break_case(&c);
                }
            }
        }
    }
    for (coll_algo_t algo = COLL_RING; algo < COLL_ALGO_END; algo++) {
        if (coll_algo_is(algo, COLL_OF_LEAVES)) /* tests/collectives/schedules/test_leaves.c */
            continue;
        for (mutation_t kind = 0; kind < MUTATIONS; kind++) {
            int reduces = coll_algo_serves(algo, COLL_ALL_REDUCE, NULL);
            int needs = kind == SWAP_OPERANDS || kind == DOUBLE_TERM || kind == FINAL_MISSING ||
                        kind == EXTRA_WRITE || kind == READ_EARLY || kind == MISSING_DEPS ||
                        kind == FINAL_DOUBLE;
            int joint = algo == COLL_SHARED && (kind == SWAP_OPERANDS || kind == DOUBLE_TERM ||
                                                kind == READ_EARLY || kind == MISSING_DEPS);
            if (tried[algo][kind] == 0 && (reduces || !needs) && !joint)
                fail_msg("%s: \"%s\" was never tried", coll_algo_name(algo), mutation_names[kind]);
        }
    }
}

/* ---- hand-made schedules ------------------------------------------------------------------------------ */

/* Two ranks, one element each by default; steps are appended through the builder, so its hazards are in,
 * unless the test takes them out. */
typedef struct {
    coll_args_t args[2];
    coll_builder_t *b[2];
    coll_schedule_t schedules[2];
    char why[400];
} pair_t;

static void pair_start(pair_t *p, coll_op_t op, size_t count)
{
    *p = (pair_t){0};
    for (int r = 0; r < 2; r++) {
        p->args[r] = (coll_args_t){.op = op, .n = 2, .rank = r, .count = count, .chunk = 8};
        p->b[r] = coll_builder_new(&p->args[r]);
        assert_non_null(p->b[r]);
    }
}

static gyre_status_t pair_check(pair_t *p)
{
    for (int r = 0; r < 2; r++)
        assert_int_equal(coll_builder_finish(p->b[r], COLL_DIRECT, &p->schedules[r]), GYRE_OK);
    return coll_check(p->args, p->schedules, 2, p->why, sizeof p->why);
}

static void pair_end(pair_t *p)
{
    coll_schedule_free(&p->schedules[0]);
    coll_schedule_free(&p->schedules[1]);
}

static void expect_why(pair_t *p, const char *part)
{
    assert_int_equal(pair_check(p), GYRE_ERR_INTERNAL);
    if (!strstr(p->why, part))
        fail_msg("expected \"%s\" in \"%s\"", part, p->why);
    pair_end(p);
}

static coll_ref_t at(coll_buf_t buf, size_t offset)
{
    return (coll_ref_t){offset, buf};
}

/* all_reduce of one element by swapping it. */
static void swap_and_add(pair_t *p, int rank, int channel)
{
    coll_ref_t slot = coll_tmp(p->b[rank], 1);
    coll_ref_t sources[2] = {rank ? slot : at(COLL_IN, 0), rank ? at(COLL_IN, 0) : slot};
    coll_add_send(p->b[rank], channel, !rank, at(COLL_IN, 0), 1);
    coll_add_recv(p->b[rank], channel, !rank, slot, 1);
    coll_add_reduce(p->b[rank], channel, at(COLL_OUT, 0), sources, 2, 1, COLL_FINAL);
}

static void test_accepts(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_ALL_REDUCE, 1);
    swap_and_add(&p, 0, 0);
    swap_and_add(&p, 1, 0);
    assert_int_equal(pair_check(&p), GYRE_OK);
    pair_end(&p);
}

/* In place both sums wait until the other's SEND is complete, which a view makes wait for the sum: a deadlock
 * that only shows where memory is shared. */
static void test_waiting_views(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_ALL_REDUCE, 1);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(coll_builder_finish(p.b[r], COLL_DIRECT, &p.schedules[r]), GYRE_OK);
        coll_schedule_free(&p.schedules[r]);
        p.args[r].in_place = 1;
        p.b[r] = coll_builder_new(&p.args[r]);
    }
    swap_and_add(&p, 0, 0);
    swap_and_add(&p, 1, 0);
    expect_why(&p, "deadlock");
}

static void test_receives_cross(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_BARRIER, 0);
    for (int r = 0; r < 2; r++) {
        coll_add_sync_recv(p.b[r], !r);
        coll_add_sync_send(p.b[r], !r);
    }
    expect_why(&p, "deadlock: waits forever for rank 1");
}

static void test_barrier_one_way(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_BARRIER, 0);
    coll_add_sync_send(p.b[0], 1);
    coll_add_sync_recv(p.b[1], 0);
    expect_why(&p, "rank 0: leaves the barrier without knowing that rank 1 entered");
}

static void test_never_received(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_BARRIER, 0);
    for (int r = 0; r < 2; r++) {
        coll_add_sync_send(p.b[r], !r);
        coll_add_sync_recv(p.b[r], !r);
    }
    coll_add_sync_send(p.b[1], 0);
    expect_why(&p, "is never received");
}

/* Two channels write and read the same place with no order between them; and with one. */
static void test_race_between_channels(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        pair_t p;
        pair_start(&p, COLL_BROADCAST, 1);
        coll_add_send(p.b[0], 0, 1, at(COLL_IN, 0), 1);
        coll_add_copy(p.b[0], 0, at(COLL_OUT, 0), at(COLL_IN, 0), 1, 0);
        coll_ref_t slot = coll_tmp(p.b[1], 1);
        uint32_t got = coll_add_recv(p.b[1], 0, 0, slot, 1);
        uint32_t copied = coll_add_copy(p.b[1], 1, at(COLL_OUT, 0), slot, 1, 0);
        if (ordered) {
            coll_add_dep(p.b[1], copied, got);
            assert_int_equal(pair_check(&p), GYRE_OK);
            pair_end(&p);
        } else {
            assert_int_equal(pair_check(&p), GYRE_ERR_INTERNAL);
            assert_true(strstr(p.why, "races") || strstr(p.why, "before anything wrote it"));
            pair_end(&p);
        }
    }
}

/* The value is right by luck of the order in which the checker runs channels; the race must be seen all the
 * same. */
static void test_race_write_write(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_BROADCAST, 1);
    coll_add_send(p.b[0], 0, 1, at(COLL_IN, 0), 1);
    coll_add_send(p.b[0], 1, 1, at(COLL_IN, 0), 1);
    coll_add_copy(p.b[0], 0, at(COLL_OUT, 0), at(COLL_IN, 0), 1, 0);
    coll_add_recv(p.b[1], 0, 0, at(COLL_OUT, 0), 1);
    coll_add_recv(p.b[1], 1, 0, at(COLL_OUT, 0), 1);
    expect_why(&p, "races with step");
}

/* The message was received, and the sender knows; that does not prove that its memory is no longer read. */
static void test_send_still_reads(void **state)
{
    (void)state;
    pair_t p;
    pair_start(&p, COLL_REDUCE, 1);
    p.args[0].in_place = 1;
    coll_ref_t slot = coll_tmp(p.b[1], 1), back = coll_tmp(p.b[0], 1);
    coll_ref_t sources[2] = {slot, at(COLL_IN, 0)};
    coll_add_send(p.b[0], 0, 1, at(COLL_IN, 0), 1);
    coll_add_recv(p.b[1], 0, 0, slot, 1);
    coll_add_reduce(p.b[1], 0, slot, sources, 2, 1, COLL_FINAL);
    coll_add_send(p.b[1], 0, 0, slot, 1);
    coll_add_recv(p.b[0], 0, 1, back, 1);
    coll_add_copy(p.b[0], 0, at(COLL_OUT, 0), back, 1,
                  0); /* the builder does not know that IN and OUT are one */
    expect_why(&p, "may still read");
}

static void test_gap_written(void **state)
{
    (void)state;
    const size_t counts[2] = {1, 1}, displs[2] = {0, 2};
    for (int good = 0; good < 2; good++) {
        pair_t p;
        pair_start(&p, COLL_ALL_GATHER, 0);
        for (int r = 0; r < 2; r++) {
            p.args[r].counts = counts;
            p.args[r].displs = displs;
            coll_add_send(p.b[r], 0, !r, at(COLL_IN, 0), 1);
            coll_add_copy(p.b[r], 0, at(COLL_OUT, displs[r]), at(COLL_IN, 0), 1, 0);
            coll_add_recv(p.b[r], 0, !r, at(COLL_OUT, displs[!r]), 1);
        }
        if (!good) {
            coll_add_copy(p.b[1], 0, at(COLL_OUT, 1), at(COLL_IN, 0), 1, 0);
            expect_why(&p, "OUT element 1, which is not part of the result");
        } else {
            assert_int_equal(pair_check(&p), GYRE_OK);
            pair_end(&p);
        }
    }
}

static void test_names_and_printing(void **state)
{
    (void)state;
    for (coll_algo_t algo = COLL_RING; algo < COLL_ALGO_END; algo++)
        assert_int_equal(coll_algo_parse(coll_algo_name(algo)), algo == COLL_LEAVES ? COLL_ALGO_END : algo);
    assert_int_equal(coll_algo_parse("bogus"), COLL_ALGO_END);
    assert_int_equal(coll_algo_parse(NULL), COLL_ALGO_END);
    assert_string_equal(coll_op_name(COLL_REDUCE_SCATTER), "reduce_scatter");
    assert_string_equal(coll_op_name((coll_op_t)99), "unknown");
    pair_t p;
    char text[120], little[8];
    pair_start(&p, COLL_ALL_REDUCE, 1);
    swap_and_add(&p, 0, 0);
    swap_and_add(&p, 1, 0);
    assert_int_equal(pair_check(&p), GYRE_OK);
    coll_step_print(&p.schedules[1], 0, text, sizeof text);
    assert_string_equal(text, "0: channel 0 send 1 from in+0 to rank 0");
    coll_step_print(&p.schedules[1], 1, text, sizeof text);
    assert_string_equal(text, "1: channel 0 recv 1 into tmp+0 of rank 0");
    int length = coll_step_print(&p.schedules[1], 2, text, sizeof text);
    assert_string_equal(text, "2: channel 0 reduce 1 final into out+0 from tmp+0, in+0");
    assert_int_equal(length, strlen(text));
    assert_int_equal(coll_step_print(&p.schedules[1], 2, little, sizeof little), length);
    assert_string_equal(little, "2: chan");
    pair_end(&p);
}

/* Arguments that no schedule can be made of are answered, not followed. */
static void test_bad_arguments(void **state)
{
    (void)state;
    coll_schedule_t s;
    coll_args_t a = {.op = COLL_BROADCAST, .n = 4, .rank = 4, .count = 1, .chunk = 1};
    assert_int_equal(coll_schedule_build(COLL_DIRECT, &a, &s), GYRE_ERR_INVALID);
    a.rank = 0;
    a.chunk = 0;
    assert_int_equal(coll_schedule_build(COLL_DIRECT, &a, &s), GYRE_ERR_INVALID);
    a.chunk = 1;
    a.op = COLL_GATHER;
    assert_int_equal(coll_schedule_build(COLL_DIRECT, &a, &s), GYRE_ERR_INVALID);
    assert_int_equal(coll_schedule_build(COLL_BRUCK, &a, &s), GYRE_ERR_UNSUPPORTED);
    assert_int_equal(coll_schedule_build(COLL_ALGO_AUTO, &a, &s), GYRE_ERR_UNSUPPORTED);
    a.op = COLL_ALL_REDUCE;
    assert_int_equal(coll_schedule_build(COLL_HIERARCHICAL, &a, &s), GYRE_ERR_UNSUPPORTED);
    a.count = SIZE_MAX - 5; /* more TMP than there are addresses */
    a.chunk = SIZE_MAX - 5;
    assert_int_equal(coll_schedule_build(COLL_PAIRWISE, &a, &s), GYRE_ERR_NO_MEMORY);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepts),          cmocka_unit_test(test_waiting_views),
        cmocka_unit_test(test_receives_cross),   cmocka_unit_test(test_barrier_one_way),
        cmocka_unit_test(test_never_received),   cmocka_unit_test(test_race_between_channels),
        cmocka_unit_test(test_race_write_write), cmocka_unit_test(test_send_still_reads),
        cmocka_unit_test(test_gap_written),      cmocka_unit_test(test_names_and_printing),
        cmocka_unit_test(test_bad_arguments),    cmocka_unit_test(test_mutations),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
