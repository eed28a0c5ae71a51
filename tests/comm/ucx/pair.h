/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/ucx/pair.h: what the tests of UCX share. */
#ifndef TESTS_COMM_UCX_H
#define TESTS_COMM_UCX_H

#include <stdlib.h>
#include <string.h>

#include "base/settings/settings.h"
#include "comm/link.h"
#include "tests/support/ranks.h"

/* All sizes on one lane; on another, without TEST_LONG=1, those up to 64 KiB. */
static inline int echo(ranks_t *self)
{
    const size_t most = getenv("TEST_LONG") ? SIZE_MAX : 65537;
    comm_link_t *link = ranks_link(self, 1 - self->rank, 0);
    unsigned char *buf = malloc(RANKS_ECHO_BYTES);

    RANKS_CHECK(self, link && strcmp(comm_link_transport(link), "ucx") == 0);
    RANKS_CHECK(self, buf && ranks_echo(self, 0, buf, SIZE_MAX) == 0);
    RANKS_CHECK(self, ranks_echo(self, 2, buf, most) == 0);
    free(buf);
    return 0;
}

static inline void over_tcp(int rank)
{
    (void)rank;
    setenv("UCX_TLS", "tcp,self", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    base_settings_reload(); /* it remembers the environment as it was */
}

/* Two ranks, over TCP whatever else the host has. */
static inline int fork_over_tcp(double seconds, ranks_body_t body, void *arg)
{
    int failed;

    ranks_before_join = over_tcp;
    failed = ranks_fork(2, seconds, body, arg);
    ranks_before_join = NULL;
    return failed;
}

/* Ranks on hosts of their own; without the transport's name they would use verbs where there is an RDMA
 * device. 0: done. */
static inline int choose_ucx(void)
{
    if (base_settings_set(SET_HOST_RANKS, "1", "test") != GYRE_OK ||
        base_settings_set(SET_TRANSPORT, "ucx", "test") != GYRE_OK)
        return 1;
    if (!getenv("UCX_TLS")) /* other interfaces may come and go meanwhile, and take connections with them */
        setenv("UCX_NET_DEVICES", "lo", 0);
    return 0;
}

#endif
