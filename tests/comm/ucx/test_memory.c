/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/test_memory.c: messages over UCX in a process that has no memory left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/ucx/ucx.h"
#include "tests/comm/ucx/pair.h"

/* Leaves this process without memory until `refill`. */
typedef struct hoard {
    struct hoard *next;
} hoard_t;

static hoard_t *hoard_all(struct rlimit *before)
{
    hoard_t *all = NULL;
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (file == NULL || fscanf(file, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, before) != 0)
        return NULL;
    fclose(file);
    struct rlimit now = {pages * (rlim_t)sysconf(_SC_PAGESIZE), before->rlim_max};
    if (setrlimit(RLIMIT_AS, &now) != 0)
        return NULL;
    for (size_t bytes = 1 << 20; bytes >= sizeof(hoard_t); bytes /= 2)
        for (hoard_t *piece; (piece = malloc(bytes)) != NULL; all = piece)
            piece->next = all;
    return all;
}

static void refill(hoard_t *all, const struct rlimit *before)
{
    while (all) {
        hoard_t *next = all->next;
        free(all);
        all = next;
    }
    setrlimit(RLIMIT_AS, before);
}

/* A message is lost for want of memory: its communicator has failed, and one that is made later works. */
static int lost_for_one(ranks_t *self)
{
    const ucx_header_t header = {.group = self->group->id, .source = 1 - self->rank, .dest = self->rank};
    const ucp_am_recv_param_t eager = {0}, rendezvous = {.recv_attr = UCP_AM_RECV_ATTR_FLAG_RNDV};
    ucs_status_t status, refused;
    struct rlimit before;
    unsigned char byte = 0;
    comm_group_t *first = self->group;

    RANKS_CHECK(self, ranks_link(self, 1 - self->rank, 0));
    hoard_t *all = hoard_all(&before);
    ucx_lock();
    status = ucx_on_message(NULL, &header, sizeof header, NULL, 0, &eager);
    refused = ucx_on_message(NULL, &header, sizeof header, NULL, 0, &rendezvous);
    ucx_unlock();
    refill(all, &before);
    /* UCX asserts that there is no error for an eager message. */
    RANKS_CHECK(self, all && status == UCS_OK && refused == UCS_ERR_NO_MEMORY);
    RANKS_CHECK(self,
                ranks_recv(self, 1 - self->rank, 0, &byte, 1, (comm_tag_t){0, 9}) == GYRE_ERR_NO_MEMORY);
    ranks_barrier(self);
    RANKS_CHECK(self, comm_group_create(&self->world, first->id + 1, (const int[]){0, 1}, 2, self->rank,
                                        ranks_all_gather, self, base_deadline(20), &self->group) == GYRE_OK);
    int wrong = echo(self);
    comm_group_destroy(self->group);
    self->group = first;
    return wrong;
}

static void test_lost_for_one(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* a sanitizer's own memory has no limit that leaves it alive */
#endif
    assert_int_equal(ranks_fork(2, 60, lost_for_one, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lost_for_one)};
    return choose_ucx() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
