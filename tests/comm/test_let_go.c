/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_let_go.c: a rank whose operation has failed gets its buffer back: comm_peer_memory_enter,
 * _leave, _take and _close of comm/peer_memory.c themselves, in every interleaving, between ranks of several
 * processes and of one. Once close has returned, no peer writes to the buffer any more, and no rank was ended
 * for that; a rank that has read what the program wrote since learns that it must not use it. Then with a
 * mistake at a time, which must be found. */
/* one thread: TSan has nothing to see */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread/cacheline.h"
#include "comm/link.h"
#include "comm/peer_memory.h"
#include "tests/support/explore.h"

enum { RANKS = 3, MINE = 100, THEIRS = 7 };

typedef enum {
    RIGHT,
    ENTERS_WITHOUT_FENCE,
    ENTERS_CLOSED_MEMORY,
    LEAVES_EARLY, /* before its last store */
    CLOSES_WITHOUT_FENCE,
    CLOSES_WITHOUT_WAITING,
    ASKS_BEFORE_READING,
    TAKES_WITHOUT_ASKING /* the lines of a message that it has read */
} mistake_t;

static mistake_t mistake;
static int closing[RANKS];

/* Everything that the threads share. */
static struct {
    comm_board_t board[RANKS];
    uint32_t buffer[RANKS]; /* of each rank, in which others work */
    uint32_t misread;       /* 1: a rank uses what it must not have read */
} shared;

static void model_fence(void)
{
    if (mistake != (closing[explore_thread()] ? CLOSES_WITHOUT_FENCE : ENTERS_WITHOUT_FENCE))
        explore_fence();
}

static int others_have_left(int rank)
{
    int inside = 0;

    for (int r = 0; r < RANKS; r++)
        inside |= r != rank && *(volatile uint32_t *)&shared.board[r].inside;
    return !inside;
}

static int left_0(void)
{
    return others_have_left(0);
}

static int left_1(void)
{
    return others_have_left(1);
}

/* Looking again and again, in one step. */
static void wait_for_others(void)
{
    explore_until(explore_thread() == 0 ? left_0 : left_1);
}

static int killed; /* 1: close has ended a rank, as if it stood still at work */

static inline long kill_rank(void)
{
    killed = 1;
    return -1;
}

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(at, order)         explore_load(at)
#define atomic_store_explicit(at, value, order) explore_store(at, value)
#define atomic_thread_fence(order)              ((void)0) /* an acquire: x86 needs none */
#define base_fence()                            model_fence()
#define base_now()                              0
#define base_take_within(at, bytes)             ((void)(bytes), explore_store((uint32_t *)(at), THEIRS))
#define sched_yield()                           wait_for_others()
#define comm_segment_board(seg, local)          ((void)(seg), &shared.board[local])
#define comm_watch_dead(watch, ranks, n, text, bytes) \
    ((void)(watch), (void)(ranks), (void)(text), (void)(bytes), -1)

#define syscall(...) kill_rank()
#define kill(...)    kill_rank()

#include "comm/peer_memory.c"

/* ---- ranks --------------------------------------------------------------------------------------------- */

static comm_world_t world;
static comm_card_t cards[RANKS];
static int numbers[RANKS] = {0, 1, 2};
static comm_group_t groups[RANKS];
static int closers; /* the first so many ranks fail */

static int enter(int rank)
{
    if (mistake != ENTERS_CLOSED_MEMORY)
        return comm_peer_memory_enter(&groups[rank]);
    explore_store(&shared.board[rank].inside, 1);
    explore_fence();
    return 1;
}

/* One operation: it works in the buffer of `peer`. */
static void operate(int rank, int peer)
{
    if (!enter(rank))
        return;
    if (mistake == LEAVES_EARLY)
        comm_peer_memory_leave(&groups[rank]);
    explore_store(&shared.buffer[peer], THEIRS);
    if (mistake != LEAVES_EARLY)
        comm_peer_memory_leave(&groups[rank]);
}

/* Its operation has failed; its program uses the buffer. */
static void fails(int rank)
{
    closing[rank] = 1;
    if (mistake == CLOSES_WITHOUT_WAITING) {
        comm_peer_memory_leave(&groups[rank]);
        explore_store(&shared.board[rank].closed, 1);
        explore_fence();
    } else {
        comm_peer_memory_close(&groups[rank]);
    }
    explore_store(&shared.buffer[rank], MINE);
}

static void first_fails(void)
{
    fails(0);
}

static void first_fails_inside(void)
{
    if (enter(0))
        explore_store(&shared.buffer[1], THEIRS);
    fails(0);
}

static void second_fails_inside(void)
{
    if (enter(1))
        explore_store(&shared.buffer[0], THEIRS);
    fails(1);
}

static void second_works(void)
{
    operate(1, 0);
}

static void second_works_twice(void)
{
    operate(1, 0);
    operate(1, 0);
}

static void third_works(void)
{
    operate(2, 0);
}

/* It receives a message from the first one's buffer. */
static void second_reads(void)
{
    const comm_peer_memory_t memory = {.group = &groups[1], .peer = 0};
    int closed = mistake == ASKS_BEFORE_READING && comm_peer_memory_closed(&memory);
    uint32_t got = explore_load(&shared.buffer[0]);

    if (mistake != ASKS_BEFORE_READING)
        closed = comm_peer_memory_closed(&memory);
    if (!closed && got == MINE)
        explore_store(&shared.misread, 1);
}

/* The same, and takes its lines. */
static void second_takes(void)
{
    comm_peer_memory_t memory = {.group = &groups[1], .peer = 0};

    if (mistake == TAKES_WITHOUT_ASKING)
        explore_store(&shared.buffer[0], THEIRS);
    else
        comm_peer_memory_take(&memory, &shared.buffer[0], sizeof shared.buffer[0]);
}

/* ---- what is explored ---------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    int closers, threads;
    void (*body[EXPLORE_THREADS])(void);
    int hosts;
} scene_t;

static int process; /* that all ranks are in; -1: none of them is in this one */
static int hosts;   /* the last rank is on the second one */
static int at[RANKS];

static void begin_scene(void)
{
    memset(&shared, 0, sizeof shared);
    memset(closing, 0, sizeof closing);
    killed = 0;
    for (int r = 0; r < RANKS; r++) {
        at[r] = hosts > 1 && r == RANKS - 1 ? -1 : r;
        cards[r].pid = process;
        groups[r] = (comm_group_t){.world = &world,
                                   .n = RANKS,
                                   .rank = r,
                                   .hosts = hosts,
                                   .cards = cards,
                                   .world_ranks = numbers,
                                   .local_of = at,
                                   .seg.base = (unsigned char *)&shared,
                                   .board = &shared.board[r]};
    }
}

static int all_is_right(void)
{
    for (int r = 0; r < closers; r++)
        if (shared.buffer[r] != MINE)
            return 0;
    return !killed && !shared.misread;
}

static explore_result_t play(const scene_t *scene, mistake_t with, int in_one_process)
{
    explore_t what = {.threads = scene->threads,
                      .reset = begin_scene,
                      .right = all_is_right,
                      .memory = &shared,
                      .bytes = sizeof shared};

    memcpy(what.body, scene->body, sizeof what.body);
    process = in_one_process ? (int)getpid() : -1;
    hosts = scene->hosts;
    closers = scene->closers;
    mistake = with;
    return explore(&what);
}

static const scene_t scenes[] = {{"one works", 1, 2, {first_fails, second_works}, 1},
                                 {"one works twice", 1, 2, {first_fails, second_works_twice}, 1},
                                 {"two work", 1, 3, {first_fails, second_works, third_works}, 1},
                                 {"two fail at work", 2, 2, {first_fails_inside, second_fails_inside}, 1},
                                 {"one takes lines, and another host", 1, 2, {first_fails, second_takes}, 2},
                                 {"one takes lines", 1, 2, {first_fails, second_takes}, 1},
                                 {"one reads", 1, 2, {first_fails, second_reads}, 1}};
enum { SCENES = sizeof scenes / sizeof scenes[0], WRITERS = 3 /* the first ones */ };

static void test_nobody_writes_after_close(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * SCENES; i++) {
        const scene_t *scene = &scenes[i / 2];
        explore_result_t got = play(scene, RIGHT, i % 2);
        printf("%s%s: %zu states\n", scene->name, i % 2 ? ", in one process" : "", got.states);
        if (got.stuck || got.wrong)
            fail_msg("%s%s: %s\n%s", scene->name, i % 2 ? ", in one process" : "",
                     got.stuck ? "stuck"
                     : killed  ? "a rank that does not stand still is ended"
                               : "a foreign store",
                     got.text);
        assert_true(got.states > 10);
    }
}

static void test_mistakes_are_found(void **state)
{
    (void)state;
    for (mistake_t with = RIGHT + 1; with <= CLOSES_WITHOUT_WAITING; with++)
        for (int i = 0; i < WRITERS; i++)
            if (!play(&scenes[i], with, 0).wrong)
                fail_msg("mistake %d is not found by \"%s\"", (int)with, scenes[i].name);
    assert_true(play(&scenes[SCENES - 2], TAKES_WITHOUT_ASKING, 0).wrong);
    assert_true(play(&scenes[SCENES - 1], ASKS_BEFORE_READING, 0).wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_writes_after_close),
        cmocka_unit_test(test_mistakes_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
