/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/boot/test_bootstrap.c: joining, the collectives on the tree and the key-value exchange. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/tree.h"
#include "tests/support/boot_job.h"

#define SOON base_deadline(10.0)

#ifdef __SANITIZE_THREAD__ /* each size with a watcher or without, in check-long with both */
#define BOTH (getenv("TEST_LONG") != NULL)
#else
#define BOTH 1
#endif

static const int sizes[] = {1, 2, 3, 5, 8, 16};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static int log2_up(int n)
{
    int k = 0;
    while (1 << k < n)
        k++;
    return k;
}

/* The tree's functions agree with each other for every size. */
static void tree_shape(void **state)
{
    (void)state;
    for (int n = 1; n <= 70; n++) {
        int edges = 0;
        for (int r = 0; r < n; r++) {
            int children[31];
            int k = boot_tree_children(r, n, children);
            int next = r + 1; /* subtrees follow one another without a gap */
            for (int i = 0; i < k; i++) {
                assert_int_equal(boot_tree_parent(children[i]), r);
                assert_int_equal(children[i], next);
                next = boot_tree_end(children[i], n);
            }
            assert_int_equal(next, boot_tree_end(r, n));
            assert_true(k <= log2_up(n));
            edges += k;
        }
        assert_int_equal(edges, n - 1);
    }
}

/* What rank r gives begins at r * PATTERN: no two ranks have the same bytes. */
enum { LONGEST = 70000, PATTERN = 31 };
static unsigned char pattern[LONGEST + 16 * PATTERN];

static int gather_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    int n = comm_boot_size(boot), rank = comm_boot_rank(boot);
    static const size_t lengths[] = {0, 1, 40, 1000, LONGEST};
    RANK_CHECK(comm_boot_connections(boot) <= 2 + log2_up(n));
    RANK_CHECK(n > 1 || comm_boot_connections(boot) == 0);
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        size_t bytes = lengths[l];
        unsigned char *all = malloc(bytes * (size_t)n + 1);
        gyre_status_t st = comm_boot_all_gather(boot, pattern + PATTERN * rank, bytes, all, SOON);
        int wrong = 0;
        for (int r = 0; r < n && st == GYRE_OK; r++)
            wrong += memcmp(all + (size_t)r * bytes, pattern + PATTERN * r, bytes) != 0;
        free(all);
        RANK_CHECK(st == GYRE_OK);
        RANK_CHECK(wrong == 0);
        RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    }
    return 0;
}

static void all_gather(void **state)
{
    (void)state;
    for (int i = 0; i < SIZES; i++)
        for (int watched = 0; watched < 2; watched++)
            if (BOTH || watched == i % 2)
                assert_int_equal(boot_job_threads(sizes[i], watched, gather_body, NULL), 0);
}

static void all_gather_processes(void **state)
{
    (void)state;
    assert_int_equal(boot_job_processes(8, 1, gather_body, NULL, NULL, 20.0), 0);
}

/* What rank 0 has reaches all; its failure, too, with its words; too little room is an error; the next
 * call works. */
static int share_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    static const size_t lengths[] = {0, 1, 1000, 70000};
    const int rank = comm_boot_rank(boot), n = comm_boot_size(boot);
    for (size_t l = 0; l < sizeof(lengths) / sizeof(lengths[0]); l++) {
        size_t bytes = rank ? 7 : lengths[l], wrong = 0;
        unsigned char *data = malloc(lengths[l] + 1);
        RANK_CHECK(data != NULL);
        for (size_t i = 0; i < lengths[l]; i++)
            data[i] = rank ? 0xee : (unsigned char)(i * 7 + l);
        gyre_status_t st = comm_boot_share(boot, GYRE_OK, data, lengths[l], &bytes, SOON);
        for (size_t i = 0; i < lengths[l]; i++)
            wrong += data[i] != (unsigned char)(i * 7 + l);
        free(data);
        RANK_CHECK(st == GYRE_OK && bytes == lengths[l] && wrong == 0);
    }
    char text[64] = "kept";
    size_t bytes = sizeof(text);
    gyre_status_t mine = rank ? GYRE_OK : gyre_fail_quiet(GYRE_ERR_FORMAT, "file:3: what a mess");
    RANK_CHECK(comm_boot_share(boot, mine, text, sizeof(text), &bytes, SOON) == GYRE_ERR_FORMAT);
    RANK_CHECK(strcmp(gyre_last_error(), rank ? "rank 0: file:3: what a mess" : "file:3: what a mess") == 0);
    RANK_CHECK(strcmp(text, "kept") == 0);
    bytes = 8;
    gyre_status_t st = comm_boot_share(boot, GYRE_OK, text, rank ? 4 : 64, &bytes, SOON);
    RANK_CHECK(st == (rank ? GYRE_ERR_INVALID : GYRE_OK));
    RANK_CHECK(n == 1 || comm_boot_barrier(boot, SOON) == GYRE_OK);
    return 0;
}

static void share(void **state)
{
    (void)state;
    base_log_set_level(BASE_LOG_NONE);
    for (int i = 0; i < SIZES; i++)
        for (int watched = 0; watched < 2; watched++)
            assert_int_equal(boot_job_threads(sizes[i], watched, share_body, NULL), 0);
    base_log_set_level(BASE_LOG_WARNING);
}

static int limits_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    char big[1] = "";
    RANK_CHECK(comm_boot_all_gather(boot, big, SIZE_MAX / 2, big, SOON) == GYRE_ERR_INVALID);
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static void limits(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(3, 1, limits_body, NULL), 0);
}

/* One rank calls something else: all ranks get the call of each, no rank hangs. */
static int mismatch_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    int odd = *(int *)arg;
    char mine[16] = {0}, all[5 * 16];
    gyre_status_t st = comm_boot_rank(boot) == odd ? comm_boot_barrier(boot, SOON)
                                                   : comm_boot_all_gather(boot, mine, 16, all, SOON);
    RANK_CHECK(st == GYRE_ERR_MISMATCH);
    RANK_CHECK(strstr(gyre_last_error(), "barrier") && strstr(gyre_last_error(), "all-gather"));
    /* and the next step works again */
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static void mismatch(void **state)
{
    (void)state;
    for (int odd = 0; odd < 5; odd++)
        assert_int_equal(boot_job_threads(5, 1, mismatch_body, &odd), 0);
}

/* A rank that does not come to the barrier: the others get TIMEOUT at their deadline, and the error names
 * it. */
static int absent_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    base_time_t start = base_now();
    if (comm_boot_rank(boot) != 3) {
        RANK_CHECK(comm_boot_barrier(boot, base_deadline(0.4)) == GYRE_ERR_TIMEOUT);
        RANK_CHECK(base_now() - start < 3000000000);
        if (comm_boot_rank(boot) == 2)
            RANK_CHECK(strstr(gyre_last_error(), "rank 3") != NULL);
    }
    /* All meet again at the next step; rank 3 skips the one that it missed through its own deadline. */
    if (comm_boot_rank(boot) == 3) {
        struct timespec pause = {0, 800000000};
        nanosleep(&pause, NULL);
        RANK_CHECK(comm_boot_barrier(boot, SOON) != GYRE_OK);
    }
    return comm_boot_barrier(boot, SOON) == GYRE_OK ? 0 : __LINE__;
}

static void absent(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(4, 1, absent_body, NULL), 0);
}

static int key_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    (void)arg;
    unsigned char a[32], b[32], all[3 * 32];
    comm_boot_key(boot, "fd", a);
    comm_boot_key(boot, "fe", b);
    RANK_CHECK(memcmp(a, b, 32) != 0);
    RANK_CHECK(comm_boot_all_gather(boot, a, 32, all, SOON) == GYRE_OK);
    for (int r = 0; r < 3; r++)
        RANK_CHECK(memcmp(all + 32 * r, a, 32) == 0);
    return 0;
}

static void keys_agree(void **state)
{
    (void)state;
    assert_int_equal(boot_job_threads(3, 0, key_body, NULL), 0);
}

/* A member of the job gone mad: well-authenticated nonsense of every type. The others must neither crash
 * nor hang. */
static int rogue_body(comm_boot_t *boot, comm_watch_t *watch, void *arg)
{
    (void)watch;
    uint32_t seed = *(uint32_t *)arg;
    static const boot_type_t types[] = {BOOT_JOIN, BOOT_PARENT, BOOT_REJECT, BOOT_UP,    BOOT_DOWN,
                                        BOOT_ASK,  BOOT_TELL,   BOOT_DEAD,   BOOT_ABORT, (boot_type_t)99};
    RANK_CHECK(comm_boot_barrier(boot, SOON) == GYRE_OK);
    if (comm_boot_rank(boot) == 2) {
        for (int i = 0; i < 1500; i++) {
            unsigned char data[300];
            seed = seed * 1664525u + 1013904223u;
            size_t bytes = (seed >> 8) % (i % 4 == 0 ? sizeof(data) : 40);
            for (size_t k = 0; k < bytes; k++) {
                seed = seed * 1664525u + 1013904223u;
                data[k] = k % 4 == 0 || i % 2 == 0 ? (unsigned char)((seed >> 20) % 8)
                                                   : 0; /* small numbers hit more */
            }
            pthread_mutex_lock(&boot->lock);
            boot_edge_t *edge = &boot->edges[(seed >> 9) % (uint32_t)boot->edges_n];
            gyre_status_t st = boot_edge_send(boot, edge, types[(seed >> 12) % 10], data, bytes);
            pthread_mutex_unlock(&boot->lock);
            RANK_CHECK(st == GYRE_OK);
        }
        return 0;
    }
    base_time_t start = base_now();
    for (int i = 0; i < 3; i++) {
        char all[4];
        gyre_status_t st = comm_boot_all_gather(boot, "x", 1, all, base_deadline(0.5));
        RANK_CHECK(st != GYRE_OK || all[0] == 'x');
    }
    RANK_CHECK(base_now() - start < 6000000000);
    return 0;
}

static void rogue_member(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++)
        assert_int_equal(boot_job_threads(4, 1, rogue_body, &seed), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_shape),   cmocka_unit_test(share),
        cmocka_unit_test(all_gather),   cmocka_unit_test(all_gather_processes),
        cmocka_unit_test(limits),       cmocka_unit_test(mismatch),
        cmocka_unit_test(absent),       cmocka_unit_test(keys_agree),
        cmocka_unit_test(rogue_member),
    };
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (unsigned char)(i * 7 + i / 256);
    base_settings_load();
    base_log_set_level(BASE_LOG_NONE); /* the failures are meant */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
