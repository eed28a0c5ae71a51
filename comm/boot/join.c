/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/join.c: how a rank finds its place in the tree.
 *
 *     rank r                            rank 0                            parent of r
 *     connect, prove the secret  ---->  (any number of strangers may knock meanwhile)
 *     "I listen at A"            ---->  notes A; once r's parent has said where it listens:
 *                                <----  "your parent is p at B"
 *     closes (unless p is 0)
 *     connect, prove the secret  ------------------------------------->  r is my child: keeps the connection
 *
 * Ranks are admitted by joiners.c. A rank that cannot listen says why instead, and the job ends with that. A
 * rank whose wait runs out asks rank 0, which knows the ranks that have not joined. The question goes over
 * the rank's connection to rank 0, over the tree, or over a new connection. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "comm/boot/joiners.h"

enum { RETRY_MS = 20 }; /* before a rank whose handshake was cut off tries again */

static gyre_status_t join_as_root(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline)
{
    boot_joiners_t joiners = {.missing = boot->size - 1, .unseen = boot->size - 1};
    int fd = -1;
    joiners.places = calloc((size_t)boot->size, sizeof(*joiners.places));
    joiners.seen = calloc((size_t)boot->size, 1);
    gyre_status_t st = joiners.places != NULL && joiners.seen != NULL
                           ? GYRE_OK
                           : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    if (st == GYRE_OK)
        st = boot_listen_root(who->root, who->root_fd, deadline, &fd, &joiners.inherited);
    boot_joiners_open(&joiners, boot, fd);
    if (st == GYRE_OK)
        st = boot_joiners_keep(&joiners, deadline);
    if (st == GYRE_ERR_TIMEOUT && fd >= 0)
        boot_joiners_linger(&joiners, st);
    boot_joiners_close(&joiners, st);
    return st;
}

/* What rank 0 refuses us with: BOOT_REJECT, or BOOT_ABORT when it has given up. */
static gyre_status_t refused(const comm_boot_t *boot, const comm_identity_t *who, const boot_message_t *m)
{
    char text[BOOT_TEXT];
    if (m->type != BOOT_ABORT || m->bytes < 12) {
        boot_copy_text(text, m->data, m->bytes);
        return gyre_fail(GYRE_ERR_BOOTSTRAP, "rank 0 at %s refuses rank %d: %s", who->root, boot->rank, text);
    }
    uint32_t status = boot_get32(m->data + 8);
    boot_copy_text(text, m->data + 12, m->bytes - 12);
    return gyre_fail(status == GYRE_ERR_TIMEOUT ? GYRE_ERR_TIMEOUT : GYRE_ERR_BOOTSTRAP,
                     "rank %d could not join: %s", boot->rank, text);
}

/* Asks rank 0, at the other end of `conn`, who is missing. TIMEOUT with the answer, or what rank 0 refuses us
 * with, or OK: it misses nobody, or did not answer. */
static gyre_status_t ask_who(comm_boot_t *boot, const comm_identity_t *who, boot_conn_t *conn,
                             base_time_t until)
{
    unsigned char ask[BOOT_ASK_BYTES] = {0};
    comm_boot_doing_t doing;
    boot_message_t m = {0};
    boot_put32(ask + 4, (uint32_t)boot->rank);
    gyre_status_t st = boot_conn_send(conn, BOOT_ASK, ask, sizeof(ask));
    while (st == GYRE_OK && m.type != BOOT_TELL && m.type != BOOT_REJECT && m.type != BOOT_ABORT)
        st = boot_conn_receive(conn, &m, until);
    if (st != GYRE_OK)
        return GYRE_OK;
    if (m.type != BOOT_TELL)
        return refused(boot, who, &m);
    if (!boot_tell_unpack(boot, m.data, m.bytes, &doing) || doing.missing[0] == '\0')
        return GYRE_OK;
    return gyre_fail(GYRE_ERR_TIMEOUT, "rank %d waited in vain" BOOT_MISSING, boot->rank, doing.missing);
}

/* The same over a new connection: for a rank that has let go of the first one, and cannot reach its
 * parent. */
static gyre_status_t ask_who_anew(comm_boot_t *boot, const comm_identity_t *who)
{
    boot_hello_t hello = {BOOT_ROLE_ASK, boot->rank, boot->size, 0, 0};
    base_time_t until = base_deadline(COMM_BLAME_SECONDS);
    boot_conn_t conn;
    int err = 0;
    int fd = boot_dial(&boot->root_addr, until, &err);
    if (fd < 0)
        return GYRE_OK;
    boot_conn_open(&conn, fd);
    gyre_status_t st = boot_hand_shake(&conn, boot->auth_key, &hello, until);
    st = st == GYRE_OK ? ask_who(boot, who, &conn, until) : GYRE_OK;
    boot_count_messages(boot, &conn);
    boot_conn_close(&conn);
    return st;
}

/* This rank cannot join for a reason of its own, the last error: rank 0 need not wait for it. */
static void tell_root(comm_boot_t *boot, boot_conn_t *root, gyre_status_t st)
{
    unsigned char frame[12 + BOOT_TEXT];
    char why[1024];
    snprintf(why, sizeof(why), "%s", gyre_last_error());
    boot_put64(frame, BOOT_ABORT_JOB);
    boot_put32(frame + 8, (uint32_t)st);
    int bytes = snprintf((char *)frame + 12, BOOT_TEXT, "rank %d could not join: %.400s", boot->rank, why);
    if (boot_conn_send(root, BOOT_ABORT, frame, 12 + (size_t)bytes) != GYRE_OK)
        (void)gyre_fail_quiet(st, "%s", why);
}

static gyre_status_t closed_by_root(const comm_boot_t *boot, const comm_identity_t *who)
{
    return gyre_fail(GYRE_ERR_BOOTSTRAP,
                     "rank %d: rank 0 at %s closed the connection while the job was joining", boot->rank,
                     who->root);
}

/* Joins at rank 0: *root is the connection, *joiners_fd our listening socket (-1 if we have no children),
 * *parent and *addr what rank 0 said. */
static gyre_status_t ask_root(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline,
                              boot_conn_t *root, int *joiners_fd, int *parent, boot_addr_t *addr)
{
    unsigned char packed[BOOT_ADDR_BYTES];
    boot_addr_t mine;
    boot_message_t m = {0};
    boot_hello_t hello = {BOOT_ROLE_JOIN, boot->rank, boot->size, 0, 0};
    gyre_status_t st = boot_reach_root(who->root, boot->auth_key, &hello, deadline, root);
    if (st != GYRE_OK)
        return st;
    boot->past_messages += BOOT_HANDSHAKE_MESSAGES;
    if (!boot_addr_of(root->fd, 0, &mine) || !boot_addr_of(root->fd, 1, &boot->root_addr))
        return closed_by_root(boot, who);
    boot->own_addr = mine;
    st = boot_listen_child(who->root, &mine, joiners_fd);
    if (st != GYRE_OK) {
        tell_root(boot, root, st);
        return st;
    }
    boot_addr_pack(&mine, packed);
    st = boot_conn_send(root, BOOT_JOIN, packed, sizeof(packed));
    if (st == GYRE_OK)
        st = boot_conn_receive(root, &m, deadline);
    if (st == GYRE_ERR_TIMEOUT) {
        st = ask_who(boot, who, root, base_deadline(COMM_BLAME_SECONDS));
        return st != GYRE_OK ? st
                             : gyre_fail(GYRE_ERR_TIMEOUT,
                                         "rank %d: rank 0 at %s did not name our parent, rank %d, in time: "
                                         "has it been started?",
                                         boot->rank, who->root, boot_tree_parent(boot->rank));
    }
    if (st == GYRE_ERR_TRANSPORT)
        return closed_by_root(boot, who);
    if (st != GYRE_OK)
        return st;
    if (m.type == BOOT_REJECT || m.type == BOOT_ABORT)
        return refused(boot, who, &m);
    if (m.type != BOOT_PARENT || m.bytes != 4 + BOOT_ADDR_BYTES ||
        (int)boot_get32(m.data) != boot_tree_parent(boot->rank) ||
        (boot_get32(m.data) > 0 && !boot_addr_unpack(m.data + 4, addr)))
        return gyre_fail(GYRE_ERR_FORMAT, "rank 0 at %s sent a malformed answer", who->root);
    *parent = (int)boot_get32(m.data);
    return GYRE_OK;
}

/* Connects to a parent other than rank 0. Again if the handshake was cut off: a socket that strangers crowd
 * does that. What keeps a parent from answering may be that its own parent is missing: rank 0 knows. */
static gyre_status_t reach_parent(comm_boot_t *boot, const comm_identity_t *who, int parent,
                                  const boot_addr_t *addr, base_time_t deadline, boot_conn_t *conn)
{
    boot_hello_t hello = {BOOT_ROLE_CHILD, boot->rank, boot->size, parent, 0};
    char where[BOOT_ADDR_TEXT];
    gyre_status_t st;
    boot_addr_text(addr, where);
    for (;;) {
        int err = 0;
        int fd = boot_dial(addr, deadline, &err);
        if (fd < 0) {
            st = ask_who_anew(boot, who);
            return st != GYRE_OK
                       ? st
                       : gyre_fail_errno(err == ETIMEDOUT ? GYRE_ERR_TIMEOUT : GYRE_ERR_BOOTSTRAP, err,
                                         "rank %d cannot connect to its parent, rank %d at %s (is a firewall "
                                         "between them? "
                                         "GYRE_PORT_RANGE and GYRE_INTERFACE choose where ranks listen)",
                                         boot->rank, parent, where);
        }
        boot_conn_open(conn, fd);
        st = boot_hand_shake(conn, boot->auth_key, &hello, deadline);
        if (st != GYRE_ERR_TRANSPORT || base_poll_ms(deadline) == 0)
            break;
        boot_conn_close(conn);
        poll(NULL, 0, RETRY_MS);
    }
    if (st != GYRE_ERR_TIMEOUT && st != GYRE_ERR_TRANSPORT)
        return boot_hand_shake_failed(st);
    gyre_status_t known = ask_who_anew(boot, who);
    if (known != GYRE_OK)
        return known;
    return gyre_fail(st == GYRE_ERR_TIMEOUT ? st : GYRE_ERR_BOOTSTRAP,
                     "rank %d: its parent, rank %d at %s, %s the handshake", boot->rank, parent, where,
                     st == GYRE_ERR_TIMEOUT ? "did not finish" : "closed the connection during");
}

static gyre_status_t join_as_other(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline)
{
    boot_joiners_t joiners = {0};
    boot_conn_t conn = {.fd = -1};
    boot_addr_t addr;
    int parent = -1, fd = -1;
    gyre_status_t st = ask_root(boot, who, deadline, &conn, &fd, &parent, &addr);
    boot_joiners_open(&joiners, boot, fd);
    if (st == GYRE_OK && parent > 0) {
        boot_count_messages(boot, &conn);
        boot_conn_close(&conn);
        st = reach_parent(boot, who, parent, &addr, deadline, &conn);
        boot->past_messages += st == GYRE_OK ? BOOT_HANDSHAKE_MESSAGES : 0;
    }
    if (st == GYRE_OK) {
        boot_edge_adopt(&boot->edges[0], &conn);
        boot_lock(boot);
        boot_handle(boot, &boot->edges[0], POLLIN); /* what came together with the answer */
        boot_unlock(boot);
        st = boot_joiners_keep(&joiners, deadline);
    }
    boot_conn_close(&conn);
    boot_joiners_close(&joiners, st);
    return st;
}

gyre_status_t boot_join_tree(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline)
{
    return boot->rank == 0 ? join_as_root(boot, who, deadline) : join_as_other(boot, who, deadline);
}
