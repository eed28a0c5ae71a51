/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/connect.c: the client's way to rank 0: resolve, connect, prove; again until the deadline while
 * rank 0, its network or its name is not up yet (a pod's DNS name may come late). */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot/wire.h"

#define ATTEMPT_SECONDS 3.0 /* for one address that does not answer at all */
enum { PAUSE_MS = 5, PAUSE_MAX_MS = 250 };

static base_time_t sooner(base_time_t a, base_time_t b)
{
    return a < b ? a : b;
}

/* Tries all addresses of the host once; returns the socket or -1 and why. Where the time is over during the
 * look-up, what an earlier attempt has met stays the reason. */
static int dial_host(const char *host, int port, base_time_t deadline, char *why, size_t why_bytes)
{
    struct addrinfo *all = NULL;
    int fd = -1;
    int rc = boot_resolve(host, port, deadline, &all);
    if (rc != 0) {
        if (*why == '\0' || base_poll_ms(deadline) != 0)
            snprintf(why, why_bytes, "its name cannot be resolved: %s", gai_strerror(rc));
        return -1;
    }
    for (struct addrinfo *a = all; a != NULL && fd < 0; a = a->ai_next) {
        boot_addr_t addr;
        int err = 0;
        if (a->ai_addrlen > sizeof(addr) || (a->ai_family != AF_INET && a->ai_family != AF_INET6))
            continue;
        memset(&addr, 0, sizeof(addr));
        memcpy(&addr, a->ai_addr, a->ai_addrlen);
        fd = boot_dial(&addr, sooner(deadline, base_deadline(ATTEMPT_SECONDS)), &err);
        if (fd < 0)
            snprintf(why, why_bytes, "%s", strerror(err));
    }
    freeaddrinfo(all);
    if (fd < 0 && *why == '\0')
        snprintf(why, why_bytes, "no usable address");
    return fd;
}

/* The handshake with what answers at `root`. Other than OK: NOT_FOUND (quiet): nobody there, *why says
 * why. */
static gyre_status_t try_root(const char *root, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline, boot_patience_t *patience, boot_conn_t *conn, char *why,
                              size_t why_bytes)
{
    char host[256];
    int port;
    if (!boot_root_split(root, host, &port))
        return gyre_fail(GYRE_ERR_INVALID, "the root \"%s\" is not host:port", root);
    int fd = dial_host(host, port, deadline, why, why_bytes);
    if (fd < 0)
        return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "%s", why);
    boot_conn_open(conn, fd);
    conn->patience = patience;
    gyre_status_t st = boot_hand_shake(conn, key, hello, deadline);
    conn->patience = NULL;
    if (st == GYRE_OK)
        return st;
    boot_conn_close(conn);
    if (st == GYRE_ERR_TIMEOUT)
        return gyre_fail(st, "rank %d: rank 0 at %s took the connection but did not answer in time",
                         hello->rank, root);
    if (st != GYRE_ERR_TRANSPORT)
        return st;
    snprintf(why, why_bytes, "it closed the connection");
    return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "%s", why);
}

gyre_status_t boot_reach_root(const char *root, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline, boot_conn_t *conn)
{
    char why[160] = "", waited[24];
    /* Of the ranks that wait for rank 0, one says so. */
    boot_patience_t patience = boot_patience_begin(), *speaks = hello->rank <= 1 ? &patience : NULL;
    for (int pause = PAUSE_MS, tries = 0; tries == 0 || base_poll_ms(deadline) != 0; tries++) {
        char one[256];
        for (const char *rest = root; rest != NULL;) {
            rest = boot_root_item(rest, one);
            base_time_t until = rest == NULL ? deadline : sooner(deadline, base_deadline(ATTEMPT_SECONDS));
            gyre_status_t st = try_root(one, key, hello, until, speaks, conn, why, sizeof(why));
            if (st == GYRE_OK || (st != GYRE_ERR_NOT_FOUND && rest == NULL))
                return st; /* of several addresses one may be another's on this network: try the next */
        }
        if (speaks != NULL && boot_patience_over(speaks))
            log_warning("rank %d has waited for %s for rank 0 at %s, which cannot be reached yet: %s",
                        hello->rank, boot_patience_text(speaks, waited), root, why);
        if (tries == 0)
            log_info("bootstrap: rank 0 at %s cannot be reached yet (%s); trying on", root, why);
        int left = base_poll_ms(deadline);
        poll(NULL, 0, left >= 0 && left < pause ? left : pause);
        pause = pause * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause * 2;
    }
    return gyre_fail(
        GYRE_ERR_BOOTSTRAP,
        "rank %d could not reach rank 0 at %s before the deadline: %s. Is rank 0 running, is the "
        "address right for this host, and does no firewall close the port?",
        hello->rank, root, why);
}
