/* tests/comm/test_reach.c: working in peers' memory: mapped or through the kernel, and not after they have closed it. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "../support/ranks.h"
#include "base/settings.h"
#include "comm/mem.h"
#include "comm/reach.h"

enum { BYTES = 300000 };

static void set(base_setting_t id, const char *value)
{
    assert_int_equal(base_settings_set(id, value, "test"), GYRE_OK);
}

/* Every rank writes its part of every other's buffer; the buffers of odd ranks are of malloc. */
static int everywhere(ranks_t *self)
{
    const size_t part = BYTES / (size_t)self->n;
    unsigned char *buf = NULL, *bounce = malloc(part);
    comm_place_t mine, all[RANKS_MAX];
    int mapped = 0;

    if (self->rank % 2 == 0)
        RANKS_CHECK(self, comm_mem_alloc(BYTES, (void **)&buf) == GYRE_OK);
    else
        buf = malloc(BYTES);
    RANKS_CHECK(self, buf && bounce && comm_reach_all(self->group));
    memset(buf, 0, BYTES);
    mine = comm_reach_place(buf, BYTES);
    RANKS_CHECK(self, ranks_exchange(self, &mine, sizeof mine, all) == GYRE_OK);
    RANKS_CHECK(self, comm_reach_enter(self->group));
    ranks_fill(bounce, part, (unsigned)self->rank);
    for (int r = 0; r < self->n; r++) {
        void *at = r == self->rank ? buf : NULL;
        gyre_status_t status = GYRE_IN_PROGRESS;
        while (r != self->rank && status == GYRE_IN_PROGRESS)
            status = comm_reach_map(self->group, r, &all[r], BYTES, &at);
        mapped += r != self->rank && status == GYRE_OK;
        if (at)
            memcpy((unsigned char *)at + (size_t)self->rank * part, bounce, part);
        else
            RANKS_CHECK(self, comm_reach_write(self->group, r, &all[r], (size_t)self->rank * part, bounce,
                                               part) == GYRE_OK);
    }
    comm_reach_leave(self->group);
    ranks_barrier(self);
    int windows = strcmp(base_setting_string(SET_SHM_COPY), "cma") != 0;
    RANKS_CHECK(self, mapped == (windows ? (self->n + 1) / 2 - (self->rank % 2 == 0) : 0));
    for (int r = 0; r < self->n; r++)
        RANKS_CHECK(self, ranks_wrong(buf + (size_t)r * part, part, (unsigned)r) == -1);
    RANKS_CHECK(self,
                comm_reach_read(self->group, (self->rank + 1) % self->n, &all[(self->rank + 1) % self->n],
                                (size_t)self->rank * part, bounce, part) == GYRE_OK);
    RANKS_CHECK(self, ranks_wrong(bounce, part, (unsigned)self->rank) == -1);
    ranks_barrier(self);
    if (self->rank % 2 == 0)
        RANKS_CHECK(self, comm_mem_free(buf) == GYRE_OK);
    else
        free(buf);
    free(bounce);
    return 0;
}

static void test_everywhere(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(2, 30, everywhere, NULL), 0);
    assert_int_equal(ranks_fork(5, 30, everywhere, NULL), 0);
    set(SET_SHM_COPY, "cma");
    assert_int_equal(ranks_fork(3, 30, everywhere, NULL), 0);
    set(SET_SHM_COPY, "auto");
}

/* One rank's setting decides for all of them, alike. */
static void no_windows_at_one(int rank)
{
    if (rank == 1)
        set(SET_SHM_COPY, "copy");
}

static int out_of_reach(ranks_t *self)
{
    RANKS_CHECK(self, !comm_reach_all(self->group));
    return 0;
}

static void test_agreed(void **state)
{
    (void)state;
    ranks_before_join = no_windows_at_one;
    assert_int_equal(ranks_fork(3, 30, out_of_reach, NULL), 0);
    ranks_before_join = NULL;
}

/* Rank 0 closes while rank 1 is inside: it waits for that, and nobody enters any more. */
static int closing(ranks_t *self)
{
    base_time_t start;

    if (self->rank == 1)
        RANKS_CHECK(self, comm_reach_enter(self->group));
    ranks_barrier(self);
    if (self->rank == 1) {
        usleep(100000);
        comm_reach_leave(self->group);
    }
    if (self->rank == 0) {
        start = base_now();
        comm_reach_close(self->group);
        RANKS_CHECK(self, base_now() - start > 50000000 && base_now() - start < 900000000);
    }
    ranks_barrier(self);
    RANKS_CHECK(self, !comm_reach_enter(self->group));
    return 0;
}

/* The one inside dies: nobody waits for it longer than it takes to hear of that. */
static int death_inside(ranks_t *self)
{
    base_time_t start;

    if (self->rank == 1)
        RANKS_CHECK(self, comm_reach_enter(self->group));
    ranks_barrier(self);
    if (self->rank == 1)
        raise(SIGKILL);
    start = base_now();
    comm_reach_close(self->group);
    RANKS_CHECK(self, base_now() - start < 900000000);
    comm_group_destroy(self->group);
    fflush(NULL);
    _exit(0);
}

static void test_close(void **state)
{
    (void)state;
    assert_int_equal(ranks_fork(3, 30, closing, NULL), 0);
    assert_int_equal(ranks_fork(2, 30, death_inside, NULL), 1); /* the killed one */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_everywhere), cmocka_unit_test(test_agreed),
                                       cmocka_unit_test(test_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
