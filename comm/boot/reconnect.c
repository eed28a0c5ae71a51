/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/reconnect.c: see reconnect.h. */
#include "comm/boot/reconnect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/shrink.h"

enum { STRANGERS_MAX = 32, RECEIVE_LIMIT = BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC };
#define MS         ((base_time_t)1000000)
#define RETRY_NS   (100 * MS)  /* between two attempts to dial */
#define RETIRED_NS (2000 * MS) /* for the last word to be read */

base_time_t boot_patience(const comm_boot_t *boot)
{
    return boot->silence > 0 ? boot->silence
                             : (base_time_t)(base_setting_standard_seconds(SET_HEARTBEAT) * 1e9);
}

int boot_where(const comm_boot_t *boot, int rank, boot_addr_t *addr)
{
    if (boot->places == NULL || rank < 0 || rank >= boot->places_n ||
        !boot_addr_unpack(boot->places[rank].addr, addr))
        return 0;
    if (boot_addr_is_loopback(addr) && boot->root_addr.sa.sa_family != 0) {
        int port = boot_addr_port(addr);
        *addr = boot->root_addr;
        boot_addr_set_port(addr, port);
    }
    return 1;
}

/* ---- opening and closing ------------------------------------------------------------------------------- */

gyre_status_t boot_door_open(comm_boot_t *boot, boot_place_t *place)
{
    boot_addr_t mine = boot->own_addr;
    memset(place, 0, sizeof(*place));
    if (gethostname(place->host, sizeof(place->host) - 1) != 0 && errno != ENAMETOOLONG)
        log_info("gethostname: %s", strerror(errno));
    if (boot->door.fd < 0) {
        if (mine.sa.sa_family == 0) { /* rank 0: the others know where its host is */
            boot_addr_t near;
            if (boot->edges_n > 0 && boot_addr_of(boot->edges[0].conn.fd, 0, &near) &&
                near.sa.sa_family == AF_INET6) {
                mine.v6.sin6_family = AF_INET6;
                mine.v6.sin6_addr = in6addr_loopback;
            } else {
                mine.v4.sin_family = AF_INET;
                mine.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            }
        }
        gyre_status_t st = boot_listen_child(boot->root_text, &mine, &boot->door.fd);
        if (st != GYRE_OK)
            return st;
        boot->own_addr = mine;
    }
    boot_addr_pack(&boot->own_addr, place->addr);
    return GYRE_OK;
}

static void visitor_end(boot_visitor_t *visitor)
{
    boot_conn_close(&visitor->conn);
    visitor->state = VISITOR_GONE;
}

void boot_door_close(comm_boot_t *boot)
{
    while (boot->visitors != NULL) {
        boot_visitor_t *visitor = boot->visitors;
        boot->visitors = visitor->next;
        if (visitor->state == VISITOR_OPEN)
            boot_visitor_dismiss(boot, visitor, BOOT_GOODBYE, "");
        boot_conn_close(&visitor->conn);
        boot_buf_free(&visitor->steps);
        free(visitor);
    }
    boot_admit_close(&boot->door);
    if (boot->door.fd >= 0)
        close(boot->door.fd);
    boot->door.fd = -1;
}

static boot_visitor_t *visitor_new(comm_boot_t *boot)
{
    boot_visitor_t *visitor = calloc(1, sizeof(*visitor));
    if (visitor == NULL) {
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a bootstrap connection");
        return NULL;
    }
    visitor->conn.fd = -1;
    visitor->rank = -1;
    visitor->since = visitor->heard = base_now();
    visitor->next = boot->visitors;
    boot->visitors = visitor;
    return visitor;
}

void boot_visitor_dismiss(comm_boot_t *boot, boot_visitor_t *visitor, boot_type_t word, const char *text)
{
    (void)boot;
    if (visitor->state != VISITOR_OPEN) {
        visitor_end(visitor);
        return;
    }
    if (boot_conn_send(&visitor->conn, word, text, strlen(text)) != GYRE_OK)
        log_warning("bootstrap: cannot send rank %d an answer: %s", visitor->rank, text);
    visitor->state = VISITOR_RETIRED;
    visitor->deadline = base_now() + RETIRED_NS;
}

void boot_visitor_promote(comm_boot_t *boot, boot_visitor_t *visitor, boot_edge_t *edge)
{
    boot_edge_adopt(edge, &visitor->conn);
    edge->heard = base_now();
    edge->left = 0;
    edge->steps = visitor->steps;
    memset(&visitor->steps, 0, sizeof(visitor->steps));
    visitor->state = VISITOR_GONE;
    if (boot->watched)
        boot->poke(boot->poke_user); /* to poll it */
}

boot_visitor_t *boot_visitor_of_edge(comm_boot_t *boot, boot_edge_t *edge)
{
    boot_visitor_t *visitor = visitor_new(boot);
    if (visitor == NULL)
        return NULL;
    boot_conn_move(&visitor->conn, &edge->conn);
    visitor->rank = edge->rank;
    visitor->hello.epoch = boot->epoch;
    visitor->state = VISITOR_OPEN;
    visitor->deadline = BASE_TIME_NEVER;
    edge->open = 0;
    return visitor;
}

/* The other end has gone without a last word. */
static void visitor_lost(comm_boot_t *boot, boot_visitor_t *visitor, const char *how, int silent)
{
    int rank = visitor->rank, counts = visitor->state == VISITOR_OPEN || visitor->ours;
    counts = counts && visitor->state != VISITOR_RETIRED;
    uint32_t epoch = visitor->hello.epoch;
    visitor_end(visitor);
    if (counts && rank >= 0 && epoch == boot->epoch && boot_place(boot, rank) >= 0)
        boot_note_death(boot, rank, how, silent);
}

/* ---- dialling ------------------------------------------------------------------------------------------ */

/* Whether the kernel keeps the ICMP message that ends a connect(2): one may look like a refusal (see
 * refused_by_icmp). Not once connected: then each such message, which anybody may forge, would end the
 * connection. */
static void keep_icmp(int fd, int family, int on)
{
    int rc = family == AF_INET6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof(on))
                                : setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
    if (rc != 0)
        log_warning("bootstrap: setsockopt(RECVERR): %s", strerror(errno));
}

/* Was it a "port unreachable" of somebody on the way, such as a firewall's REJECT, rather than the reset of a
 * host that has no such listener? Kernels before 5.9 keep nothing of TCP's: there it counts as the host's. */
static int refused_by_icmp(int fd)
{
    union {
        struct cmsghdr head;
        char room[256];
    } control;
    char payload[64];
    struct iovec to = {payload, sizeof(payload)};
    struct msghdr m = {.msg_iov = &to, .msg_iovlen = 1, .msg_control = &control};
    m.msg_controllen = sizeof(control);
    if (fd < 0 || recvmsg(fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
        return 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
        struct sock_extended_err e;
        if (!(c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_RECVERR) &&
            !(c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_RECVERR))
            continue;
        memcpy(&e, CMSG_DATA(c), sizeof(e));
        if (e.ee_origin == SO_EE_ORIGIN_ICMP || e.ee_origin == SO_EE_ORIGIN_ICMP6)
            return 1;
    }
    return 0;
}

static void dial_again(comm_boot_t *boot, boot_visitor_t *visitor, int err)
{
    char how[BOOT_TEXT];
    if (err == ECONNREFUSED && refused_by_icmp(visitor->conn.fd))
        err = EHOSTUNREACH; /* says nothing of the rank: it may live behind the firewall */
    boot_conn_close(&visitor->conn);
    if (err == ECONNREFUSED) { /* its host answers for it */
        visitor_lost(boot, visitor, "nobody listens where it did", 0);
        return;
    }
    if (base_now() + RETRY_NS >= visitor->deadline) {
        snprintf(how, sizeof(how), "silent for %.1f s (%s)", (double)(base_now() - visitor->since) * 1e-9,
                 strerror(err));
        visitor_lost(boot, visitor, how, 1);
        return;
    }
    visitor->state = VISITOR_DIALLING;
    visitor->retry = base_now() + RETRY_NS;
}

static void dial(comm_boot_t *boot, boot_visitor_t *visitor)
{
    const boot_addr_t *addr = &visitor->addr;
    int fd = socket(addr->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    visitor->retry = 0;
    if (fd < 0) {
        dial_again(boot, visitor, errno);
        return;
    }
    boot_socket_tune(fd);
    keep_icmp(fd, addr->sa.sa_family, 1);
    boot_conn_open(&visitor->conn, fd);
    boot_addr_text(addr, visitor->conn.where);
    if (connect(fd, &addr->sa, boot_addr_len(addr)) != 0 && errno != EINPROGRESS && errno != EINTR)
        dial_again(boot, visitor, errno);
}

boot_visitor_t *boot_door_dial(comm_boot_t *boot, int rank, boot_role_t role)
{
    boot_visitor_t *visitor = visitor_new(boot);
    if (visitor == NULL)
        return NULL;
    visitor->state = VISITOR_DIALLING;
    visitor->ours = 1;
    visitor->rank = rank;
    visitor->hello = (boot_hello_t){role, boot->rank, boot->size, rank, boot->epoch};
    visitor->deadline = visitor->since + boot_patience(boot);
    if (boot_where(boot, rank, &visitor->addr))
        dial(boot, visitor);
    else
        visitor_lost(boot, visitor, "it never said where it can be reached", 1);
    if (boot->watched)
        boot->poke(boot->poke_user);
    return visitor;
}

/* connect(2) has come to an end. */
static void dialled(comm_boot_t *boot, boot_visitor_t *visitor)
{
    int err = 0;
    socklen_t bytes = sizeof(err);
    if (getsockopt(visitor->conn.fd, SOL_SOCKET, SO_ERROR, &err, &bytes) != 0)
        err = errno;
    if (err != 0) {
        dial_again(boot, visitor, err);
        return;
    }
    keep_icmp(visitor->conn.fd, visitor->addr.sa.sa_family, 0);
    boot_hello_make(&visitor->hello, visitor->hello_text);
    if (!boot_buf_add(&visitor->conn.out, visitor->hello_text, BOOT_HELLO_BYTES)) {
        dial_again(boot, visitor, ENOMEM);
        return;
    }
    boot_conn_flush(&visitor->conn);
    visitor->state = VISITOR_ASKED;
}

static void visitor_open(boot_visitor_t *visitor)
{
    visitor->state = VISITOR_OPEN;
    visitor->heard = base_now();
    visitor->deadline = BASE_TIME_NEVER;
}

/* The answer to our hello. */
static int dialled_step(comm_boot_t *boot, boot_visitor_t *visitor)
{
    boot_conn_t *conn = &visitor->conn;
    unsigned char proof[BOOT_PROOF_BYTES];
    if (boot_buf_len(&conn->in) < BOOT_CHALLENGE_BYTES)
        return 0;
    if (!boot_challenge_answer(boot->auth_key, visitor->hello_text, conn->in.data + conn->in.from, conn,
                               proof)) {
        visitor_lost(boot, visitor, "somebody else listens where it did", 0);
        return 1;
    }
    conn->in.from += BOOT_CHALLENGE_BYTES;
    if (!boot_buf_add(&conn->out, proof, sizeof(proof))) {
        dial_again(boot, visitor, ENOMEM);
        return 1;
    }
    boot_conn_flush(conn);
    visitor_open(visitor);
    boot->past_messages += BOOT_HANDSHAKE_MESSAGES;
    boot_shrink_opened(boot, visitor);
    return 1;
}

/* ---- what a peer that has proved the secret may be ---------------------------------------------- */

static void admit(comm_boot_t *boot, boot_stranger_t *peer, void (*meet)(comm_boot_t *, boot_visitor_t *))
{
    boot_visitor_t *visitor = visitor_new(boot);
    if (visitor == NULL)
        return;
    boot_conn_move(&visitor->conn, &peer->conn);
    visitor->hello = peer->hello;
    visitor->since = peer->since;
    visitor_open(visitor);
    meet(boot, visitor);
}

static void admit_member(void *user, boot_stranger_t *peer)
{
    admit(user, peer, boot_shrink_member);
}

static void admit_newcomer(void *user, boot_stranger_t *peer)
{
    admit(user, peer, boot_shrink_newcomer);
}

static void no_place(void *user, boot_stranger_t *peer)
{
    admit(user, peer, boot_shrink_no_place);
}

static const boot_admit_rules_t rules = {.most = STRANGERS_MAX,
                                         .may = {{BOOT_ROLE_RALLY, admit_member},
                                                 {BOOT_ROLE_MEMBER, admit_member},
                                                 {BOOT_ROLE_NEW, admit_newcomer}},
                                         .others = no_place};

void boot_door_init(comm_boot_t *boot)
{
    boot_admit_open(&boot->door, boot, &rules, boot, -1);
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

/* One message of a visitor, of whatever state; 0: more bytes are needed. */
static int visitor_step(comm_boot_t *boot, boot_visitor_t *visitor)
{
    boot_message_t m;
    const char *why = "";
    int next;
    switch (visitor->state) {
    case VISITOR_ASKED:
        return dialled_step(boot, visitor);
    case VISITOR_OPEN:
    case VISITOR_RETIRED:
        next = boot_conn_next(&visitor->conn, &m, &why);
        if (next < 0) {
            boot_refuse(&boot->door.refused, BOOT_REFUSED_GARBLED, "bootstrap", visitor->conn.where, why);
            visitor_lost(boot, visitor, "its bootstrap connection is garbled", 0);
        } else if (next == 1 && visitor->state == VISITOR_OPEN) {
            boot_shrink_said(boot, visitor, &m);
        } else if (next == 1 && m.type == BOOT_GOODBYE) {
            visitor_end(visitor); /* both have said their last word */
        }
        return next != 0;
    case VISITOR_DIALLING:
    case VISITOR_GONE:
        break;
    }
    return 0;
}

static void visitor_closed(comm_boot_t *boot, boot_visitor_t *visitor, boot_read_t got, int err)
{
    char how[BOOT_TEXT];
    if (visitor->state == VISITOR_ASKED) {
        dial_again(boot, visitor, got == BOOT_READ_EOF ? ECONNRESET : err);
    } else if (visitor->state == VISITOR_OPEN && got == BOOT_READ_EOF) {
        visitor_lost(boot, visitor, "its connection closed", 0);
    } else if (visitor->state == VISITOR_OPEN) {
        snprintf(how, sizeof(how), "the connection to it failed: %s", strerror(err));
        visitor_lost(boot, visitor, how, err == ETIMEDOUT || err == EHOSTUNREACH);
    } else if (visitor->state == VISITOR_RETIRED) {
        visitor_end(visitor);
    }
}

void boot_door_handle(comm_boot_t *boot, boot_visitor_t *visitor, const struct pollfd *poll)
{
    const short revents = poll->revents;
    if (revents == 0)
        return;
    if (visitor == NULL) {
        int err = boot_admit_handle(&boot->door, poll);
        if (err != 0)
            log_warning("bootstrap: a connection cannot be accepted: %s (ulimit -n)", strerror(err));
        pthread_cond_broadcast(&boot->moved);
        return;
    }
    if (visitor->state == VISITOR_GONE || visitor->conn.fd < 0)
        return;
    if (visitor->state == VISITOR_DIALLING) {
        dialled(boot, visitor);
        return;
    }
    if (revents & POLLOUT)
        boot_conn_flush(&visitor->conn);
    if (revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) {
        size_t limit = visitor->state == VISITOR_ASKED ? BOOT_CHALLENGE_BYTES : RECEIVE_LIMIT;
        boot_read_t got = boot_conn_read(&visitor->conn, limit);
        int err = errno;
        if (got == BOOT_READ_SOME)
            visitor->heard = base_now();
        while (visitor->state != VISITOR_GONE && visitor_step(boot, visitor))
            ;
        if (visitor->state != VISITOR_GONE && (got == BOOT_READ_EOF || got == BOOT_READ_ERROR))
            visitor_closed(boot, visitor, got, err);
    }
    pthread_cond_broadcast(&boot->moved);
}

/* ---- the watcher's loop -------------------------------------------------------------------------------- */

int boot_door_count(const comm_boot_t *boot)
{
    int n = boot_admit_count(&boot->door);
    for (const boot_visitor_t *v = boot->visitors; v != NULL; v = v->next)
        n++;
    return n;
}

int boot_door_polls(comm_boot_t *boot, struct pollfd *polls, boot_visitor_t **visitors, int room)
{
    int n = boot_admit_polls(&boot->door, polls, room);
    for (int i = 0; i < n; i++)
        visitors[i] = NULL;
    for (boot_visitor_t *v = boot->visitors; v != NULL && n < room; v = v->next) {
        if (v->state == VISITOR_GONE || v->conn.fd < 0)
            continue;
        short events = v->state == VISITOR_DIALLING ? POLLOUT : POLLIN;
        polls[n] = (struct pollfd){.fd = v->conn.fd, .events = events};
        if (boot_conn_unsent(&v->conn))
            polls[n].events |= POLLOUT;
        visitors[n++] = v;
    }
    return n;
}

static void visitor_overdue(comm_boot_t *boot, boot_visitor_t *visitor, base_time_t now)
{
    char how[BOOT_TEXT];
    if (visitor->state == VISITOR_RETIRED) {
        visitor_end(visitor);
    } else {
        snprintf(how, sizeof(how), "silent for %.1f s", (double)(now - visitor->since) * 1e-9);
        visitor_lost(boot, visitor, how, 1);
    }
}

/* Beats on an open visit and finds out whether the other side does; returns when to look again. */
static base_time_t visitor_beat(comm_boot_t *boot, boot_visitor_t *visitor, base_time_t now)
{
    base_time_t every = boot->silence / 4;
    if (boot->silence == 0 || visitor->state != VISITOR_OPEN)
        return BASE_TIME_NEVER;
    if (now - visitor->heard >= boot->silence) {
        char how[BOOT_TEXT];
        snprintf(how, sizeof(how), "silent for %.1f s", (double)(now - visitor->heard) * 1e-9);
        if (boot_conn_send(&visitor->conn, BOOT_EXPELLED, how, strlen(how)) != GYRE_OK)
            log_warning("bootstrap: rank %d cannot be sent the news that it counts as dead", visitor->rank);
        visitor_lost(boot, visitor, how, 1);
        return BASE_TIME_NEVER;
    }
    if (now - visitor->spoke >= every) {
        if (boot_conn_send(&visitor->conn, BOOT_BEAT, NULL, 0) != GYRE_OK)
            log_warning("bootstrap: no memory for a heartbeat to rank %d", visitor->rank);
        visitor->spoke = now;
    }
    base_time_t limit = visitor->heard + boot->silence;
    return limit < visitor->spoke + every ? limit : visitor->spoke + every;
}

base_time_t boot_door_tick(comm_boot_t *boot, base_time_t now)
{
    base_time_t next = boot_admit_tick(&boot->door, now);
    for (boot_visitor_t *v = boot->visitors; v != NULL; v = v->next) {
        if (v->state == VISITOR_DIALLING && v->retry != 0 && v->retry <= now)
            dial(boot, v);
        if (v->state != VISITOR_GONE && v->deadline <= now)
            visitor_overdue(boot, v, now);
        if (v->state == VISITOR_GONE)
            continue;
        base_time_t beat = visitor_beat(boot, v, now);
        next = beat < next ? beat : next;
        next = v->deadline < next ? v->deadline : next;
        next = v->retry != 0 && v->retry < next ? v->retry : next;
    }
    for (boot_visitor_t **at = &boot->visitors; *at != NULL;) {
        boot_visitor_t *v = *at;
        if (v->state == VISITOR_GONE) {
            *at = v->next;
            boot_buf_free(&v->steps);
            free(v);
        } else {
            at = &v->next;
        }
    }
    return next;
}

void boot_door_rested(comm_boot_t *boot, base_time_t now)
{
    for (boot_visitor_t *v = boot->visitors; v != NULL; v = v->next)
        v->heard = now;
}

boot_visitor_t *boot_door_find(comm_boot_t *boot, int rank, boot_role_t role, int ours)
{
    for (boot_visitor_t *v = boot->visitors; v != NULL; v = v->next)
        if (v->rank == rank && v->ours == ours && (boot_role_t)v->hello.role == role &&
            v->hello.epoch == boot->epoch && v->state != VISITOR_GONE && v->state != VISITOR_RETIRED)
            return v;
    return NULL;
}
