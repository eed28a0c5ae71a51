/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/test_blame.c: which rank keeps a job waiting: the chain of waits is followed through the ranks'
 * watchers. */
/* takes: 5 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "comm/boot/tree.h"
#include "tests/support/boot_job.h"

#define SOON base_deadline(10.0)
enum { RANKS = 8, MANY = 20, ABOUT = 77, WATCHER_STOPPED = -2, FAILED = 100 };

/* The rank that each rank waits for (FAILED +: and has just failed), -1: it is in no call. Rank 0 asks, from
 * rank `from` on. */
typedef struct {
    int waits[MANY];
    int from, culprit, circle, silent;
    int chain[COMM_BLAME_CHAIN], chain_n;
    int back;  /* -1: no circle */
    int ranks; /* 0: RANKS */
    int unheard;
    double seconds; /* to find out; 0: COMM_BLAME_SECONDS */
} blame_case_t;

static const blame_case_t cases[] = {
    /* a ring: every rank waits for its left neighbour, rank 5 is elsewhere */
    {{1, 2, 3, 4, 5, -1, 5, 6}, 1, 5, 0, 0, {1, 2, 3, 4, 5}, 5, .back = -1},
    {{5, -1, -1, -1, -1, -1, -1, -1}, 5, 5, 0, 0, {5}, 1, .back = -1},
    /* those on the way have given up at the same moment */
    {{1, FAILED + 2, FAILED + 5, -1, -1, -1, -1, -1}, 1, 5, 0, 0, {1, 2, 5}, 3, .back = -1},
    {{1, 2, 3, 0, -1, -1, -1, -1}, 1, 3, 1, 0, {1, 2, 3}, 3, .back = 0},
    {{1, 4, -1, -1, 6, -1, 4, -1}, 1, 6, 1, 0, {1, 4, 6}, 3, .back = 4},
    /* no rank answers for rank 7; then rank 6, through which alone rank 7 can be asked */
    {{1, 7, -1, -1, -1, -1, -1, WATCHER_STOPPED}, 1, 7, 0, 1, {1, 7}, 2, .back = -1},
    {{1, 7, -1, -1, -1, -1, WATCHER_STOPPED, -1}, 1, 6, 0, 1, {1, 7}, 2, .back = -1},
    /* a rank that had no time to answer is not reported as silent, nor is any rank on the way to it */
    {{1, 7, -1, -1, -1, -1, WATCHER_STOPPED, -1},
     1,
     7,
     0,
     0,
     {1, 7},
     2,
     .back = -1,
     .unheard = 1,
     .seconds = 0.35},
    /* a circle after a chain that is longer than the part that is kept */
    {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 17},
     1,
     19,
     1,
     0,
     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
     19,
     .back = 17,
     .ranks = MANY},
};

static int ask_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const blame_case_t *c = arg;
    static comm_recorder_slot_t slot; /* of this process */
    int rank = comm_boot_rank(boot), waits = c->waits[rank];
    comm_call_t call = {.seq = 20,
                        .op = 1,
                        .count = 1000u + (unsigned)rank,
                        .root = -1,
                        .sig = 5,
                        .comm = ABOUT,
                        .user_tag = UINT32_MAX - (unsigned)rank};
    for (uint32_t k = 17; k <= 20; k++) {
        call.seq = k;
        comm_recorder_begin(&slot, &call, base_now());
    }
    if (waits >= FAILED)
        comm_recorder_fail(&slot, "it took too long");
    else if (waits < 0)
        comm_recorder_end(&slot);
    comm_recorder_wait(&slot, waits >= FAILED ? waits - FAILED : waits);
    comm_boot_record(boot, &slot);
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (waits == WATCHER_STOPPED) { /* stopped for as long as rank 0 asks */
        pthread_mutex_lock(&boot->lock);
        nap(1500);
        pthread_mutex_unlock(&boot->lock);
    }
    if (rank == 0) {
        comm_blame_t blame;
        nap(100);
        base_time_t began = base_now();
        RANK_CHECK(comm_boot_blame(boot, c->from, ABOUT,
                                   base_deadline(c->seconds > 0 ? c->seconds : COMM_BLAME_SECONDS),
                                   &blame) == GYRE_OK);
        RANK_CHECK(base_now() - began < (base_time_t)1500000000);
        RANK_CHECK(blame.rank == c->culprit && blame.circle == c->circle && blame.silent == c->silent);
        RANK_CHECK(blame.chain_n == c->chain_n && blame.unheard == c->unheard && blame.died[0] == '\0');
        RANK_CHECK(blame.back == c->back);
        RANK_CHECK(memcmp(blame.chain, c->chain, sizeof(blame.chain)) == 0);
        if (!blame.silent && !blame.unheard) {
            const comm_doing_t *doing = &blame.doing.calls;
            RANK_CHECK(blame.doing.at == COMM_AT_CALLS && doing->calls_n == COMM_DOING_CALLS);
            RANK_CHECK(doing->calls[0].seq == 20 && doing->calls[2].seq == 18 && doing->calls[0].sig == 5);
            RANK_CHECK(doing->calls[1].count == 1000u + (unsigned)blame.rank && doing->calls[1].root == -1);
            RANK_CHECK(doing->calls[1].user_tag == UINT32_MAX - (unsigned)blame.rank);
            RANK_CHECK(doing->seconds >= 0 && doing->seconds < 20);
        }
        /* another rank has found out */
        comm_watch_abort(watch, ABOUT, GYRE_ERR_TIMEOUT, "it is rank 5");
        began = base_now();
        RANK_CHECK(comm_boot_blame(boot, c->from, ABOUT, SOON, &blame) == GYRE_ERR_ABORTED);
    }
    /* until then all are in the program, or in that call */
    for (int turn = 0; turn < 1000 && comm_watch_aborted(watch, ABOUT, NULL, 0) == GYRE_OK; turn++)
        nap(10);
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static void chains(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        blame_case_t c = cases[i];
        int wrong = 1; /* where other tests take the cores for 0.4 s, a rank is silent that should not be */
        for (int try = 0; try < 3 && wrong; try++)
            wrong = boot_job_processes(c.ranks > 0 ? c.ranks : RANKS, 1, ask_body, &c, NULL, 20.0) != 0;
        if (wrong)
            fail_msg("case %zu", i);
    }
}

/* A rank whose death is known is reported as dead, and so is one without whom the rank in question cannot be
 * asked. A rank that this rank cannot ask for a reason of its own is not reported as silent. */
static void the_dead_and_the_unheard(void **state)
{
    (void)state;
    comm_identity_t who = {.rank = 0, .size = 8, .have_secret = 1, .root_fd = -1, .job = "test"};
    comm_boot_t *boot = boot_new(&who); /* no edge is open */
    comm_blame_t blame;
    assert_non_null(boot);
    base_log_set_level(BASE_LOG_NONE);
    base_time_t began = base_now();
    assert_int_equal(comm_boot_blame(boot, 7, ABOUT, SOON, &blame), GYRE_OK);
    assert_true(blame.rank == 7 && blame.unheard && !blame.silent && blame.died[0] == '\0');
    pthread_mutex_lock(&boot->lock);
    boot_note_death(boot, 4, "its connection closed", 0);
    pthread_mutex_unlock(&boot->lock);
    for (int rank = 4; rank < 8; rank += 3) {
        assert_int_equal(comm_boot_blame(boot, rank, ABOUT, SOON, &blame), GYRE_OK);
        assert_true(blame.rank == 4 && !blame.unheard && !blame.silent);
        assert_string_equal(blame.died, "died: its connection closed");
    }
    assert_int_equal(comm_boot_blame(boot, 0, ABOUT, SOON, &blame), GYRE_OK);
    assert_true(blame.circle && blame.back == 0 && blame.chain_n == 0);
    assert_true(base_now() - began < (base_time_t)5000000000); /* nothing is waited for */
    base_log_set_level(BASE_LOG_WARNING);
    comm_boot_leave(boot, 1);
}

/* A failure of long ago, on another communicator, is no wait. */
static void old_failures_say_nothing(void **state)
{
    (void)state;
    static comm_recorder_slot_t slot;
    unsigned char ask[BOOT_ASK_BYTES] = {0}, tell[BOOT_TELL_MAX];
    comm_identity_t who = {.rank = 2, .size = 8, .have_secret = 1, .root_fd = -1, .job = "test"};
    comm_boot_t *boot = boot_new(&who);
    comm_boot_doing_t doing;
    comm_call_t call = {.seq = 3, .op = 1, .comm = 5};
    assert_non_null(boot);
    comm_recorder_begin(&slot, &call, 1);
    comm_recorder_wait(&slot, 7);
    comm_recorder_fail(&slot, "");
    comm_boot_record(boot, &slot);
    boot_put32(ask + 12, 5);
    size_t bytes = boot_tell_pack(boot, ask, tell);
    assert_int_equal(boot_tell_unpack(boot, tell, bytes, &doing), 1);
    assert_int_equal(doing.waits_for, 7);
    boot_put32(ask + 12, 6);
    bytes = boot_tell_pack(boot, ask, tell);
    assert_int_equal(boot_tell_unpack(boot, tell, bytes, &doing), 1);
    assert_int_equal(doing.waits_for, -1);
    for (size_t less = 0; less < 16 + 8; less++) /* nothing shorter is taken */
        assert_int_equal(boot_tell_unpack(boot, tell, less, &doing), 0);
    boot_put32(tell + 12, 8); /* no rank of the job */
    assert_int_equal(boot_tell_unpack(boot, tell, bytes, &doing), 0);
    comm_boot_leave(boot, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains),
        cmocka_unit_test(the_dead_and_the_unheard),
        cmocka_unit_test(old_failures_say_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
