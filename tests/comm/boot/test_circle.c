/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_circle.c: some members of a job agree and exchange (comm/boot/members): circles of all
 * sizes, members that differ, members that die. What programs see of it:
 * tests/collectives/comms/mp_create.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot/members/circle.h"
#include "comm/boot/members/letters.h"
#include "tests/support/boot_job.h"

enum { COMM = 5, MOST = 40 };

typedef struct {
    int first, step, n; /* the members are the ranks first, first + step, ... */
} members_t;

/* This rank's place among them, or -1. */
static int list(const members_t *m, int self, int *ranks)
{
    int place = -1;
    for (int i = 0; i < m->n; i++) {
        ranks[i] = m->first + i * m->step;
        place = ranks[i] == self ? i : place;
    }
    return place;
}

static int gather_all(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const members_t *m = arg;
    int ranks[MOST], mine[3], all[MOST][3];
    const int self = comm_boot_rank(boot), place = list(m, self, ranks);
    comm_circle_t *circle;
    (void)watch;
    for (uint32_t turn = 0; turn < 3 && place >= 0; turn++) {
        RANK_CHECK(comm_circle_open(boot, "test", COMM, 1, ranks, ranks, m->n, place, base_deadline(20),
                                    &circle) == GYRE_OK);
        for (int round = 0; round < 3; round++) {
            mine[0] = mine[1] = self;
            mine[2] = round;
            RANK_CHECK(comm_circle_gather(circle, mine, sizeof(mine), all) == GYRE_OK);
            for (int i = 0; i < m->n; i++)
                RANK_CHECK(all[i][0] == ranks[i] && all[i][1] == ranks[i] && all[i][2] == round);
        }
        RANK_CHECK(comm_circle_close(circle, GYRE_OK) == GYRE_OK);
    }
    return comm_boot_barrier(boot, base_deadline(20)) == GYRE_OK ? 0 : __LINE__;
}

static void sizes(void **state)
{
    (void)state;
    members_t all[] = {{0, 1, 1}, {2, 1, 1}, {0, 1, 5}, {4, -1, 5}, {1, 2, 2}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        assert_int_equal(boot_job_threads(5, 1, gather_all, &all[i]), 0);
    members_t many = {MOST - 1, -1, MOST - 2}; /* more than say HERE to all others */
    assert_int_equal(boot_job_threads(MOST, 1, gather_all, &many), 0);
}

/* One member of a large circle has another list, and all members fail with that story. */
static int one_differs(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const members_t *m = arg;
    int ranks[MOST];
    const int self = comm_boot_rank(boot), place = list(m, self, ranks);
    char byte = 0, all[MOST];
    comm_circle_t *circle;
    (void)watch;
    if (place == m->n - 1) {
        ranks[0] = m->first + 1;
        ranks[1] = m->first;
    }
    RANK_CHECK(comm_circle_open(boot, "test", COMM, 1, ranks, ranks, m->n, place, base_deadline(20),
                                &circle) == GYRE_OK);
    gyre_status_t st = comm_circle_gather(circle, &byte, 1, all);
    RANK_CHECK(st == GYRE_ERR_MISMATCH);
    RANK_CHECK(strstr(gyre_last_error(), "ranks 0, 1, 2,") && strstr(gyre_last_error(), "ranks 1, 0, 2,"));
    RANK_CHECK(comm_circle_close(circle, st) == GYRE_ERR_MISMATCH);
    return comm_boot_barrier(boot, base_deadline(20)) == GYRE_OK ? 0 : __LINE__;
}

static void differences(void **state)
{
    (void)state;
    members_t many = {0, 1, MOST}, few = {0, 1, 6};
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(boot_job_threads(few.n, 1, one_differs, &few), 0);
    assert_int_equal(boot_job_threads(many.n, 1, one_differs, &many), 0);
}

/* A member that could not make its part: the others hear why. */
static int one_gives_up(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const members_t *m = arg;
    int ranks[MOST];
    const int self = comm_boot_rank(boot), place = list(m, self, ranks);
    comm_circle_t *circle;
    (void)watch;
    RANK_CHECK(comm_circle_open(boot, "test", COMM, 1, ranks, ranks, m->n, place, base_deadline(20),
                                &circle) == GYRE_OK);
    gyre_status_t mine = place == 1 ? gyre_fail(GYRE_ERR_NO_MEMORY, "nothing left") : GYRE_OK;
    gyre_status_t st = comm_circle_close(circle, mine);
    RANK_CHECK(st == (place == 1 ? GYRE_ERR_NO_MEMORY : GYRE_ERR_ABORTED));
    RANK_CHECK(strstr(gyre_last_error(), "nothing left"));
    RANK_CHECK(comm_circle_open(boot, "test", COMM, 1, ranks, ranks, m->n, place, base_deadline(20),
                                &circle) == GYRE_ERR_INVALID);
    return comm_boot_barrier(boot, base_deadline(20)) == GYRE_OK ? 0 : __LINE__;
}

static void giving_up(void **state)
{
    (void)state;
    members_t few = {0, 1, 5}, many = {0, 1, MOST};
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(boot_job_threads(few.n, 1, one_gives_up, &few), 0);
    assert_int_equal(boot_job_threads(many.n, 1, one_gives_up, &many), 0);
}

/* A member fails in the next circle of the same tag and list while the others are still in this one, which is
 * none of its business. */
static int one_is_ahead(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const members_t *m = arg;
    int ranks[MOST];
    const int self = comm_boot_rank(boot), place = list(m, self, ranks);
    comm_circle_t *circle;
    (void)watch;
    for (uint64_t tag = 1; tag <= 50; tag++) {
        RANK_CHECK(comm_circle_open(boot, "test", COMM, tag, ranks, ranks, m->n, place, base_deadline(20),
                                    &circle) == GYRE_OK);
        RANK_CHECK(comm_circle_close(circle, GYRE_OK) == GYRE_OK);
        RANK_CHECK(comm_circle_open(boot, "test", COMM, tag, ranks, ranks, m->n, place, base_deadline(20),
                                    &circle) == GYRE_OK);
        gyre_status_t mine = place == 0 ? gyre_fail(GYRE_ERR_NO_MEMORY, "nothing left") : GYRE_OK;
        RANK_CHECK(comm_circle_close(circle, mine) == (place == 0 ? GYRE_ERR_NO_MEMORY : GYRE_ERR_ABORTED));
        RANK_CHECK(strstr(gyre_last_error(), "nothing left"));
    }
    return comm_boot_barrier(boot, base_deadline(20)) == GYRE_OK ? 0 : __LINE__;
}

static void being_ahead(void **state)
{
    (void)state;
    members_t few = {0, 1, 4};
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(boot_job_threads(few.n, 1, one_is_ahead, &few), 0);
}

/* Rank 2 dies before it comes: it is a member, or only on the way from rank 0 to member 3. There its watcher
 * may pass letters on to the last. */
static int one_dies(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    const members_t *m = arg;
    int ranks[MOST];
    const int self = comm_boot_rank(boot), place = list(m, self, ranks);
    const int dead = 2;
    char byte = 0, all[MOST];
    comm_circle_t *circle;
    if (self == dead)
        _exit(3);
    if (place < 0)
        return 0;
    while (m->n == 2 && comm_watch_dead(watch, &dead, 1, NULL, 0) < 0)
        nap(5);
    RANK_CHECK(comm_circle_open(boot, "test", COMM, 1, ranks, ranks, m->n, place, base_deadline(20),
                                &circle) == GYRE_OK);
    gyre_status_t st = comm_circle_gather(circle, &byte, 1, all);
    RANK_CHECK(st == GYRE_ERR_PEER_DEAD);
    RANK_CHECK(strstr(gyre_last_error(), "rank 2"));
    RANK_CHECK(comm_circle_close(circle, st) == GYRE_ERR_PEER_DEAD);
    return 0;
}

static void deaths(void **state)
{
    (void)state;
    members_t member = {0, 1, 4}, on_way = {0, 3, 2};
    int codes[4];
    base_log_set_level(BASE_LOG_NONE);
    assert_int_equal(boot_job_processes(4, 1, one_dies, &member, codes, 20), 1);
    assert_int_equal(boot_job_processes(4, 1, one_dies, &on_way, codes, 20), 1);
}

/* Circles of this rank alone. */
static gyre_status_t alone(comm_boot_t *boot, uint64_t comm, uint64_t tag, gyre_status_t mine)
{
    const int self = comm_boot_rank(boot);
    comm_circle_t *circle;
    gyre_status_t st =
        comm_circle_open(boot, "test", comm, tag, &self, &self, 1, 0, base_deadline(20), &circle);
    return st == GYRE_OK ? comm_circle_close(circle, mine) : st;
}

/* Another tag for each circle: each has its own story, none is looked for among all of them, whichever bits
 * the tags differ in, and nothing is kept of a communicator that is gone. */
static int one_tag_each(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    enum { TAGS = 4000, FAILED = 7 };
    const int self = comm_boot_rank(boot);
    comm_circle_t *circle;
    (void)arg;
    for (int shift = 0; shift <= 40; shift += 40) {
        const uint64_t comm = COMM + (uint64_t)shift;
        size_t longest = 0;
        for (uint64_t tag = 0; tag < TAGS; tag++)
            RANK_CHECK(alone(boot, comm, tag << shift, GYRE_OK) == GYRE_OK);
        for (uint64_t tag = 0; tag < TAGS; tag++) {
            size_t length = 0;
            for (const boot_turns_t *t = *boot_turns_with(boot, comm, tag << shift, 0); t; t = t->next)
                length++;
            longest = length > longest ? length : longest;
        }
        RANK_CHECK(longest >= TAGS / BOOT_TAG_LISTS && longest <= 4 * TAGS / BOOT_TAG_LISTS);
    }
    RANK_CHECK(alone(boot, COMM, FAILED, GYRE_ERR_NO_MEMORY) == GYRE_ERR_NO_MEMORY);
    for (uint64_t tag = 0; tag < TAGS; tag++)
        RANK_CHECK(alone(boot, COMM, tag, GYRE_OK) == (tag == FAILED ? GYRE_ERR_INVALID : GYRE_OK));
    RANK_CHECK(alone(boot, COMM + 1, FAILED, GYRE_OK) == GYRE_OK);
    comm_circle_forget(boot, COMM, FAILED);
    RANK_CHECK(alone(boot, COMM, FAILED, GYRE_OK) == GYRE_OK);
    RANK_CHECK(comm_circle_open(boot, "test", COMM, 1, &self, &self, 1, 0, base_deadline(20), &circle) ==
               GYRE_OK);
    comm_watch_forget(watch, COMM); /* all but what is open */
    RANK_CHECK(alone(boot, COMM, 1, GYRE_OK) == GYRE_ERR_INVALID);
    RANK_CHECK(comm_circle_close(circle, GYRE_OK) == GYRE_OK);
    comm_watch_forget(watch, COMM);
    RANK_CHECK(!boot_turns_with(boot, COMM, 1, 0) && boot_turns_with(boot, COMM + 1, 1, 0));
    return comm_boot_barrier(boot, base_deadline(20)) == GYRE_OK ? 0 : __LINE__;
}

static void many_tags(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(2, 1, one_tag_each, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes),     cmocka_unit_test(differences),
                                       cmocka_unit_test(giving_up), cmocka_unit_test(being_ahead),
                                       cmocka_unit_test(deaths),    cmocka_unit_test(many_tags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
