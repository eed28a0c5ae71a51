/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_exchange.c: the outboxes of comm/memory/outbox.h. Every interleaving of small programs is
 * tried: no rank may read what is not meant for the operation, overwrite what another still reads, or wait
 * forever. Then threads do the same, for the thread sanitizer. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/hash.h"
#include "comm/memory/outbox.h"
#include "tests/support/states.h"

enum { RANKS = 3, OPS = 6, BOX = 64 + 4 * 64 + 4 * 64 + 2 * 128 };

/* An operation: the ranks that post and those that read, as sets, and how much. */
typedef struct {
    unsigned posts, reads;
    size_t bytes;
} op_t;

static const op_t ALL = {7, 7, 8}, ALL_LONG = {7, 7, 64}, ALL_LONGER = {7, 7, 128}, FROM_0 = {1, 6, 8},
                  FROM_1 = {2, 5, 64}, FROM_2 = {4, 3, 128}, TO_0 = {6, 1, 64}, TO_2 = {3, 4, 8},
                  NOTHING_READ = {7, 0, 64};

typedef enum { RESERVES, POSTS, LOOKS, ENDS, DONE } phase_t;

typedef struct {
    comm_outbox_t x;
    int op, phase, next;
    const unsigned char *seen[RANKS];
} rank_t;

/* All that there is: copied to go back to a state. */
typedef struct {
    rank_t rank[RANKS];
    unsigned char memory[RANKS * BOX] __attribute__((aligned(64)));
} world_t;

static world_t now;
static op_t program[OPS];
static int ranks, ops;

static unsigned char content(int rank, int op)
{
    return (unsigned char)(1 + rank * OPS + op);
}

static int filled(const unsigned char *at, size_t bytes, unsigned char with)
{
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != with)
            return 0;
    return 1;
}

static int takes_part(unsigned set, int rank)
{
    return set >> rank & 1;
}

static int is_stream(const op_t *op)
{
    return (op->posts & op->reads) == 0;
}

static void begin_next(rank_t *r)
{
    r->phase = r->op == ops ? DONE : RESERVES;
    r->next = 0;
    memset(r->seen, 0, sizeof r->seen);
    if (r->phase != DONE)
        comm_outbox_begin(&r->x, is_stream(&program[r->op]));
}

/* One step of `me`, as small as another rank could see. 0: it cannot move. */
static int step(int me)
{
    rank_t *r = &now.rank[me];
    const op_t *op = &program[r->op];
    comm_tag_t tag = {.seq = (uint32_t)r->op, .sig = 77u + (uint32_t)r->op};
    switch (r->phase) {
    case RESERVES:
        if (takes_part(op->posts, me)) {
            void *to = comm_outbox_reserve(&r->x, op->bytes);
            if (!to)
                return 0;
            memset(to, content(me, r->op), op->bytes);
        }
        r->phase = POSTS;
        return 1;
    case POSTS:
        if (takes_part(op->posts, me))
            comm_outbox_post(&r->x, op->bytes, tag);
        r->phase = LOOKS;
        return 1;
    case LOOKS:
        while (r->next < ranks &&
               (r->next == me || !takes_part(op->posts, r->next) || !takes_part(op->reads, me)))
            r->next++;
        if (r->next < ranks) {
            const void *payload;
            gyre_status_t st = comm_outbox_look(&r->x, r->next, op->bytes, tag, &payload);
            if (st == GYRE_IN_PROGRESS)
                return 0;
            assert_int_equal(st, GYRE_OK);
            r->seen[r->next++] = payload;
            return 1;
        }
        r->phase = ENDS;
        return 1;
    case ENDS: /* the last moment at which it may read */
        for (int p = 0; p < ranks; p++)
            if (r->seen[p])
                assert_true(filled(r->seen[p], op->bytes, content(p, r->op)));
        comm_outbox_finish(&r->x);
        r->op++;
        begin_next(r);
        return 1;
    default:
        return 0;
    }
}

static states_t met;

static int is_new(void)
{
    const int is = states_new(&met, base_hash64(&now, sizeof now, 7));
    assert_true(is >= 0);
    return is;
}

static void explore(void)
{
    world_t *here = malloc(sizeof *here);
    int moved = 0, done = 0;
    assert_non_null(here);
    *here = now;
    for (int r = 0; r < ranks; r++) {
        done += here->rank[r].phase == DONE;
        if (step(r)) {
            moved = 1;
            if (is_new())
                explore();
        }
        now = *here;
    }
    assert_true(moved || done == ranks); /* else the ranks wait for each other */
    free(here);
}

static size_t all_interleavings(int n, comm_outbox_shape_t shape, int count, const op_t *const *list)
{
    memset(&now, 0, sizeof now);
    states_clear(&met);
    ranks = n;
    ops = count;
    for (int i = 0; i < count; i++)
        program[i] = *list[i];
    assert_true(comm_outbox_bytes(&shape) <= BOX);
    for (int r = 0; r < n; r++) {
        comm_outbox_open(&now.rank[r].x, &shape, now.memory, comm_outbox_bytes(&shape), n, r);
        begin_next(&now.rank[r]);
    }
    explore();
    return met.met;
}

static int fits(comm_outbox_shape_t shape, const op_t *const *list, int count)
{
    for (int i = 0; i < count; i++)
        if (list[i]->bytes > comm_outbox_most(&shape))
            return 0;
    return 1;
}

static void every_interleaving(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__ /* one thread: TSan has nothing to see */
    skip();
#endif
    static const comm_outbox_shape_t shapes[] = {{1, {1}, {64}},
                                                 {2, {1}, {64}},
                                                 {2, {2, 1}, {64, 128}},
                                                 {4, {2, 1}, {64, 128}},
                                                 {4, {4, 2}, {64, 128}}};
    static const op_t *const programs[][OPS] = {
        {&ALL, &ALL, &ALL, &ALL},
        {&ALL_LONG, &ALL_LONG, &ALL_LONG, &ALL},
        {&FROM_0, &FROM_0, &FROM_0, &FROM_0},
        {&FROM_1, &FROM_0, &FROM_1, &FROM_1},
        {&TO_0, &TO_0, &FROM_0, &TO_2},
        {&TO_2, &FROM_1, &ALL_LONG, &TO_0},
        {&NOTHING_READ, &FROM_1, &NOTHING_READ, &ALL_LONG},
        {&ALL, &FROM_0, &FROM_1, &ALL_LONG},
        {&ALL_LONGER, &FROM_1, &ALL_LONGER, &FROM_2},
    };
    assert_true(states_open(&met, 1 << 22));
    size_t states = 0;
    for (int n = 2; n <= RANKS; n++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
            for (size_t p = 0; p < sizeof programs / sizeof programs[0]; p++)
                if (fits(shapes[s], programs[p], 4))
                    states += all_interleavings(n, shapes[s], 4, programs[p]);
    printf("%zu states\n", states);
    assert_true(states > 10000);
    states_close(&met);
}

static void another_call(void **state)
{
    (void)state;
    comm_outbox_shape_t shape = {2, {2}, {64}};
    const void *payload;
    memset(&now, 0, sizeof now);
    for (int r = 0; r < 2; r++) {
        comm_outbox_open(&now.rank[r].x, &shape, now.memory, comm_outbox_bytes(&shape), 2, r);
        comm_outbox_begin(&now.rank[r].x, 0);
    }
    assert_non_null(comm_outbox_reserve(&now.rank[0].x, 8));
    comm_outbox_post(&now.rank[0].x, 8, (comm_tag_t){.seq = 1, .sig = 5});
    assert_int_equal(comm_outbox_look(&now.rank[1].x, 0, 8, (comm_tag_t){.seq = 1, .sig = 6}, &payload),
                     GYRE_ERR_MISMATCH);
    assert_int_equal(comm_outbox_look(&now.rank[1].x, 0, 8, (comm_tag_t){.seq = 2, .sig = 5}, &payload),
                     GYRE_ERR_MISMATCH);
    assert_int_equal(comm_outbox_look(&now.rank[1].x, 0, 8, (comm_tag_t){.seq = 1, .sig = 5}, &payload),
                     GYRE_OK);
    assert_int_equal(comm_outbox_look(&now.rank[0].x, 1, 8, (comm_tag_t){.seq = 1, .sig = 5}, &payload),
                     GYRE_IN_PROGRESS);
}

/* ---- for real ------------------------------------------------------------------------------------------ */

enum { ROUNDS = 6000 };
typedef struct {
    int rank, wrong;
    pthread_t thread;
} worker_t;
static unsigned char shared[RANKS * BOX] __attribute__((aligned(64)));

static void *work(void *user)
{
    static const op_t *const kinds[] = {&ALL, &FROM_0, &ALL_LONG, &TO_0, &FROM_1, &NOTHING_READ, &TO_2};
    static const comm_outbox_shape_t shape = {4, {2, 2}, {64, 128}};
    worker_t *w = user;
    comm_outbox_t x;
    uint32_t random = 12345; /* the same on all ranks: they choose the same operations */
    comm_outbox_open(&x, &shape, shared, comm_outbox_bytes(&shape), RANKS, w->rank);
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        const op_t *op = kinds[(random >> 16) % (sizeof kinds / sizeof kinds[0])];
        comm_tag_t tag = {.seq = (uint32_t)i, .sig = random};
        comm_outbox_begin(&x, is_stream(op));
        if (takes_part(op->posts, w->rank)) {
            void *to;
            while (!(to = comm_outbox_reserve(&x, op->bytes)))
                sched_yield();
            memset(to, (i + w->rank) & 0xff, op->bytes);
            comm_outbox_post(&x, op->bytes, tag);
        }
        for (int p = 0; p < RANKS && takes_part(op->reads, w->rank); p++) {
            const void *payload;
            gyre_status_t st;
            if (p == w->rank || !takes_part(op->posts, p))
                continue;
            while ((st = comm_outbox_look(&x, p, op->bytes, tag, &payload)) == GYRE_IN_PROGRESS)
                sched_yield();
            w->wrong += st != GYRE_OK || !filled(payload, op->bytes, (unsigned char)((i + p) & 0xff));
        }
        comm_outbox_finish(&x);
    }
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    worker_t w[RANKS];
    memset(shared, 0, sizeof shared);
    for (int r = 0; r < RANKS; r++) {
        w[r] = (worker_t){.rank = r};
        assert_int_equal(pthread_create(&w[r].thread, NULL, work, &w[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(w[r].thread, NULL);
        assert_int_equal(w[r].wrong, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_interleaving),
        cmocka_unit_test(another_call),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
