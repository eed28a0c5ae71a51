/* SPDX-License-Identifier: Apache-2.0 */
/* one thread: TSan has nothing to see */
/* tests/tools/test_doctor.c: the rank that gyre-doctor --job blames, in made-up pictures of jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "collectives/schedules/schedule.h"
#include "tools/gyre-doctor/job.h"

enum { RANKS = 6 };

static comm_recorder_slot_t slots[RANKS];

/* A rank that has made the calls 1..seq on communicator 7 and is in the last of them, or after it. */
static void member(job_t *job, int r, uint32_t seq, int inside, int waits_for)
{
    member_t *m = &job->rank[r];
    *m = (member_t){.known = 1,
                    .life = LIFE_SLEEPING,
                    .pid = 1000 + r,
                    .cpu = 0,
                    .since = 3.0,
                    .host = "here",
                    .slot = &slots[r]};
    slots[r].rank = r;
    slots[r].state = inside ? 2 : 1;
    slots[r].waiting_for = waits_for;
    for (uint32_t k = 0; k < seq; k++)
        slots[r].calls[k % COMM_RECORDER_CALLS] =
            (comm_call_t){.seq = k + 1, .op = COLL_ALL_REDUCE, .count = 4, .sig = 11, .comm = 7, .root = -1};
    slots[r].head = seq;
    job->known++;
    job->alive++;
}

static void begin(job_t *job, member_t *members)
{
    memset(members, 0, sizeof(*members) * RANKS);
    memset(slots, 0, sizeof(slots));
    for (int r = 0; r < RANKS; r++) {
        members[r].slot = &job_no_slot;
        members[r].host = "";
    }
    *job = (job_t){.size = RANKS, .rank = members, .age = 1};
}

static void expect(const job_t *job, int culprit, const char *words)
{
    char text[JOB_BLAME_TEXT];
    int got = job_blame(job, text);
    if (got != culprit || strstr(text, words) == NULL)
        fail_msg("culprit %d: %s", got, text);
}

static void absence(void **state)
{
    (void)state;
    static member_t members[RANKS];
    job_t job;
    int list[RANKS];
    begin(&job, members);
    for (int r = 0; r < RANKS; r++)
        member(&job, r, r == 4 ? 30 : 31, r != 4, -1);
    assert_int_equal(job_waits_for(&job, 0, list), 1);
    assert_int_equal(list[0], 4);
    assert_int_equal(job_waits_for(&job, 4, list), 0);
    members[4].life = LIFE_STOPPED;
    expect(&job, 4, "rank 4 on here has not entered all_reduce #31 (count 4");
    expect(&job, 4, "in which 5 others wait for 3.0 s; its process 1004 is stopped");
    expect(&job, 4, "its last call was all_reduce #30");
    /* a chain: all wait for 1, which waits for 4, by what their recorders say */
    begin(&job, members);
    for (int r = 0; r < RANKS; r++)
        member(&job, r, 31, r != 4, r == 1 ? 4 : 1);
    expect(&job, 4, "5 others wait");
    /* the culprit is elsewhere */
    begin(&job, members);
    for (int r = 0; r < RANKS - 1; r++)
        member(&job, r, 31, 1, RANKS - 1);
    expect(&job, RANKS - 1, "it is on another host");
    /* ranks that have just begun wait for no rank */
    begin(&job, members);
    for (int r = 0; r < RANKS; r++)
        member(&job, r, r == 4 ? 30 : 31, r != 4, 4);
    for (int r = 0; r < RANKS; r++)
        members[r].moved = 1;
    expect(&job, -1, "the job moves");
}

static void circle(void **state)
{
    (void)state;
    static member_t members[RANKS];
    job_t job;
    begin(&job, members);
    for (int r = 0; r < RANKS; r++)
        member(&job, r, 31, r < 3, (r + 1) % 3);
    for (int r = 3; r < RANKS; r++)
        slots[r].state = 1;
    expect(&job, -1, "in a circle");
}

static void disagreement(void **state)
{
    (void)state;
    static member_t members[RANKS];
    job_t job;
    begin(&job, members);
    for (int r = 0; r < RANKS; r++)
        member(&job, r, 5, 1, (r + 1) % RANKS);
    slots[3].calls[4].sig = 12;
    slots[3].calls[4].count = 5;
    expect(&job, 3, "rank 3 called all_reduce #5 (count 5");
    expect(&job, 3, "where rank 0 and others called all_reduce #5 (count 4");
}

static void failures(void **state)
{
    (void)state;
    static member_t members[RANKS];
    job_t job;
    begin(&job, members);
    for (int r = 0; r < RANKS; r++)
        member(&job, r, 5, 1, -1);
    slots[2].state = 3; /* a victim says so; the killed one is the cause */
    strcpy(slots[2].error, "rank 5 died");
    slots[2].ended_ns = 10;
    slots[2].status = 1 << 8;
    slots[5].ended_ns = 20;
    slots[5].status = 11;
    members[5].life = LIFE_DEAD;
    expect(&job, 5, "it was killed by signal 11");
    slots[5].head = 0;
    slots[5].state = 1;
    expect(&job, 5, ", it has made no call yet");
    slots[5].head = 5;
    slots[5].state = 2;
    slots[5].status = 3 << 8;
    expect(&job, 5, "it exited with code 3");
    slots[5].ended_ns = 0;
    members[5].life = LIFE_SLEEPING;
    expect(&job, 2, "failed first: rank 5 died");
}

/* A rank was killed, and the others have gone on without it. */
static void gone_on(void **state)
{
    (void)state;
    static member_t members[RANKS];
    job_t job;
    begin(&job, members);
    for (int r = 0; r < RANKS; r++) {
        member(&job, r, r == 4 ? 30 : 31, r != 1 && r != 4, -1);
        members[r].called = 2000;
        members[r].ended = INT64_MAX;
        for (int k = 0; r != 1 && k < COMM_RECORDER_CALLS; k++)
            slots[r].calls[k].comm = 8;
    }
    members[1].life = LIFE_DEAD;
    members[1].ended = 1000;
    slots[1].ended_ns = 20;
    slots[1].status = 9;
    job.alive--;
    expect(&job, 4, "rank 4 on here has not entered all_reduce #31");
    /* not so before they have: one is in a call that began earlier, or has failed */
    members[0].called = 900;
    expect(&job, 1, "it was killed by signal 9");
    members[0].called = 2000;
    slots[0].state = 3;
    expect(&job, 1, "it was killed by signal 9");
    slots[0].state = 2;
    /* or waits for it, in a communicator that is too long ago in its records */
    slots[0].waiting_for = 1;
    expect(&job, 1, "it was killed by signal 9");
    slots[0].waiting_for = -1;
    /* nor without evidence: it has made no call, nothing recorded when it ended, the others have left */
    slots[1].head = 0;
    expect(&job, 1, "rank 1 on here: it was killed by signal 9");
    slots[1].head = 31;
    slots[1].ended_ns = 0;
    members[1].ended = INT64_MAX;
    expect(&job, 1, "its process 1001 is dead");
    slots[1].ended_ns = 20;
    members[1].ended = 1000;
    for (int r = 0; r < RANKS; r++)
        if (r != 1)
            slots[r].state = 4;
    expect(&job, 1, "it was killed by signal 9");
    job.gone = 1; /* what was seen first is not what happened */
    expect(&job, -1, "the job ended while we looked");
}

/* Slots full of nonsense (a file from elsewhere) confuse the verdict and nothing else. */
static void nonsense(void **state)
{
    (void)state;
    static member_t members[RANKS];
    job_t job;
    char text[JOB_BLAME_TEXT];
    srand(5);
    for (int i = 0; i < 2000; i++) {
        begin(&job, members);
        for (int r = 0; r < RANKS; r++) {
            member(&job, r, 1, 1, -1);
            for (size_t k = 0; k < sizeof(slots[r].calls); k++)
                ((unsigned char *)slots[r].calls)[k] = (unsigned char)(rand() % (i % 2 ? 256 : 3));
            slots[r].head = (uint32_t)rand() * (uint32_t)(i % 3);
            slots[r].state = (uint32_t)(rand() % 5);
            slots[r].waiting_for = rand() % 9 - 2;
            members[r].life = (life_t)(rand() % 7);
            slots[r].ended_ns = rand() % 3;
            slots[r].status = rand();
        }
        job_blame(&job, text);
        assert_true(strlen(text) < sizeof(text));
        FILE *out = fopen("/dev/null", "w");
        job_print(&job, out);
        fclose(out);
        json_decref(job_json(&job));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absence),  cmocka_unit_test(circle),  cmocka_unit_test(disagreement),
        cmocka_unit_test(failures), cmocka_unit_test(gone_on), cmocka_unit_test(nonsense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
