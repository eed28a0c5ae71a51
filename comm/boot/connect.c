/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/connect.c: the client's way to rank 0: resolve, connect, prove; again until the deadline while
 * rank 0, its network or its name is not up yet (a pod's DNS name may come late). */
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot/wire.h"

#define ATTEMPT_SECONDS   3.0  /* for one address that does not answer at all */
#define HANDSHAKE_SECONDS 10.0 /* for one that took the connection: rank 0 may have many to answer */
enum { PAUSE_MS = 5, PAUSE_MAX_MS = 250 };

static base_time_t sooner(base_time_t a, base_time_t b)
{
    return a < b ? a : b;
}

/* The handshake with what answers at one address of `root`. Other than OK: NOT_FOUND (quiet): nobody is
 * there, or it closed the connection; else as boot_hand_shake. */
static gyre_status_t try_address(const struct addrinfo *at, const char *root, const unsigned char key[32],
                                 const boot_hello_t *hello, base_time_t deadline, boot_patience_t *patience,
                                 boot_conn_t *conn)
{
    boot_addr_t addr;
    char from[BOOT_WHO], to[BOOT_WHO];
    int err = 0;
    if (at->ai_addrlen > sizeof(addr) || (at->ai_family != AF_INET && at->ai_family != AF_INET6))
        return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "no usable address");
    memset(&addr, 0, sizeof(addr));
    memcpy(&addr, at->ai_addr, at->ai_addrlen);
    int fd = boot_dial(&addr, sooner(deadline, base_deadline(ATTEMPT_SECONDS)), &err);
    if (fd < 0)
        return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "%s", strerror(err));
    boot_conn_open(conn, fd);
    conn->patience = patience;
    gyre_status_t st = boot_hand_shake(conn, key, hello, deadline);
    conn->patience = NULL;
    if (st == GYRE_OK)
        return st;
    boot_conn_close(conn);
    if (st == GYRE_ERR_TIMEOUT)
        return gyre_fail_quiet(st, "%s: %s at %s took the connection but did not answer in time",
                               boot_hello_from(hello, from), boot_hello_to(hello, to), root);
    return st == GYRE_ERR_TRANSPORT ? gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "it closed the connection") : st;
}

/* Tries all addresses of `root` once. Other than OK: what the last one met; NOT_FOUND (quiet): nobody is
 * there, *why says why. One of several may be another's: what that says is the reason if rank 0 is at none.
 * AUTH: it is a job's rank 0, and nobody else answers: as with one address, that is not tried again. Where
 * the time is over during the look-up, what an earlier attempt has met stays the reason. INVALID (logged):
 * root is not host:port. */
static gyre_status_t try_root(const char *root, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline, boot_patience_t *patience, boot_conn_t *conn, char *why,
                              size_t why_bytes)
{
    char host[256], other[256] = "";
    struct addrinfo *all = NULL;
    gyre_status_t st = GYRE_ERR_NOT_FOUND, met = GYRE_OK; /* met: by the last that answered, with `other` */
    int port;
    if (!boot_root_split(root, host, &port))
        return gyre_fail(GYRE_ERR_INVALID, "the root \"%s\" is not host:port", root);
    int rc = boot_resolve(host, port, deadline, &all);
    if (rc != 0) {
        if (*why == '\0' || base_poll_ms(deadline) != 0)
            snprintf(why, why_bytes, "its name cannot be resolved: %s", gai_strerror(rc));
        return gyre_fail_quiet(GYRE_ERR_NOT_FOUND, "%s", why);
    }
    for (const struct addrinfo *at = all; at != NULL; at = at->ai_next) {
        base_time_t until =
            at->ai_next == NULL ? deadline : sooner(deadline, base_deadline(HANDSHAKE_SECONDS));
        st = try_address(at, root, key, hello, until, patience, conn);
        if (st == GYRE_OK)
            break;
        snprintf(why, why_bytes, "%s", gyre_last_error());
        if (st != GYRE_ERR_NOT_FOUND) {
            met = st;
            snprintf(other, sizeof(other), "%s", why);
        }
    }
    freeaddrinfo(all);
    if (st == GYRE_ERR_NOT_FOUND && met != GYRE_OK)
        snprintf(why, why_bytes, "%s", other);
    return st == GYRE_ERR_NOT_FOUND && met == GYRE_ERR_AUTH ? gyre_fail_quiet(met, "%s", other) : st;
}

gyre_status_t boot_reach_root(const char *root, const unsigned char key[32], const boot_hello_t *hello,
                              base_time_t deadline, boot_conn_t *conn)
{
    char why[256] = "", waited[24], from_text[BOOT_WHO], to_text[BOOT_WHO];
    const char *from = boot_hello_from(hello, from_text), *to = boot_hello_to(hello, to_text);
    /* Of the ranks that wait for rank 0, one says so. */
    boot_patience_t patience = boot_patience_begin(), *speaks = hello->rank <= 1 ? &patience : NULL;
    for (int pause = PAUSE_MS, tries = 0; tries == 0 || base_poll_ms(deadline) != 0; tries++) {
        char one[256];
        for (const char *rest = root; rest != NULL;) {
            rest = boot_root_item(rest, one);
            base_time_t until = rest == NULL ? deadline : sooner(deadline, base_deadline(ATTEMPT_SECONDS));
            gyre_status_t st = try_root(one, key, hello, until, speaks, conn, why, sizeof(why));
            if (st == GYRE_OK)
                return st;
            if (st != GYRE_ERR_NOT_FOUND && rest == NULL) /* else the next may be rank 0's */
                return boot_hand_shake_failed(st);
        }
        if (speaks != NULL && boot_patience_over(speaks))
            log_warning("%s has waited for %s for %s at %s, which cannot be reached yet: %s", from,
                        boot_patience_text(speaks, waited), to, root, why);
        if (tries == 0)
            log_info("bootstrap: %s at %s cannot be reached yet (%s); trying on", to, root, why);
        int left = base_poll_ms(deadline);
        poll(NULL, 0, left >= 0 && left < pause ? left : pause);
        pause = pause * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause * 2;
    }
    return gyre_fail(GYRE_ERR_BOOTSTRAP,
                     "%s could not reach %s at %s before the deadline: %s. Is %s running, is the "
                     "address right for this host, and does no firewall close the port?",
                     from, to, root, why, to);
}
