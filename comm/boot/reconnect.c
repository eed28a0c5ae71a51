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
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/identity.h"
#include "base/settings/settings.h"
#include "comm/boot/shrink.h"
#include "comm/net/held.h"

enum { STRANGERS_MAX = 32, RECEIVE_LIMIT = BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC };
#define RETRY_NS   (100 * BASE_MS)  /* between two attempts to dial */
#define RETIRED_NS (2000 * BASE_MS) /* for the last word to be read */

/* How long a rank may be silent before its word counts as given up: GYRE_HEARTBEAT, or the setting's
 * default. */
static base_time_t silence_limit(const comm_boot_t *boot)
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

static void own_host(char host[BOOT_HOST_BYTES])
{
    memset(host, 0, BOOT_HOST_BYTES);
    if (gethostname(host, BOOT_HOST_BYTES - 1) != 0 && errno != ENAMETOOLONG)
        log_info("gethostname: %s", strerror(errno));
}

void comm_boot_host(const comm_boot_t *boot, int rank, char *name, size_t bytes)
{
    comm_boot_t *b = (comm_boot_t *)boot; /* only to lock */
    char host[BOOT_HOST_BYTES] = "";
    if (b != NULL)
        boot_lock(b);
    if (b == NULL || (b->places == NULL && rank == b->rank))
        own_host(host);
    else if (b->places != NULL && rank >= 0 && rank < b->places_n)
        memcpy(host, b->places[rank].host, sizeof(host));
    if (b != NULL)
        boot_unlock(b);
    snprintf(name, bytes, "%s", host);
}

gyre_status_t boot_listener_open(comm_boot_t *boot, boot_place_t *place)
{
    boot_addr_t mine = boot->own_addr;
    memset(place, 0, sizeof(*place));
    own_host(place->host);
    if (boot->listener.fd < 0) {
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
        gyre_status_t st = boot_listen_child(boot->root_text, &mine, &boot->listener.fd);
        if (st != GYRE_OK)
            return st;
        boot->own_addr = mine;
    }
    boot_addr_pack(&boot->own_addr, place->addr);
    boot_put32(place->machine, (uint32_t)base_machine(BASE_MACHINE_NET | BASE_MACHINE_PID));
    boot_put32(place->pid, (uint32_t)getpid());
    return GYRE_OK;
}

static void contact_end(boot_contact_t *contact)
{
    boot_conn_close(&contact->conn);
    contact->state = CONTACT_GONE;
}

void boot_listener_close(comm_boot_t *boot)
{
    while (boot->contacts != NULL) {
        boot_contact_t *contact = boot->contacts;
        boot->contacts = contact->next;
        if (contact->state == CONTACT_OPEN)
            boot_contact_dismiss(boot, contact, BOOT_GOODBYE, "");
        boot_conn_close(&contact->conn);
        boot_buf_free(&contact->steps);
        free(contact);
    }
    boot_admit_close(&boot->listener);
    if (boot->listener.fd >= 0)
        boot_let_go(boot->listener.fd);
    boot->listener.fd = -1;
}

static boot_contact_t *contact_new(comm_boot_t *boot)
{
    boot_contact_t *contact = calloc(1, sizeof(*contact));
    if (contact == NULL) {
        gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a bootstrap connection");
        return NULL;
    }
    contact->conn.fd = -1;
    contact->rank = -1;
    contact->since = contact->ear.heard = base_now();
    contact->next = boot->contacts;
    boot->contacts = contact;
    return contact;
}

void boot_contact_dismiss(comm_boot_t *boot, boot_contact_t *contact, boot_type_t word, const char *text)
{
    (void)boot;
    if (contact->state != CONTACT_OPEN) {
        contact_end(contact);
        return;
    }
    if (boot_conn_send(&contact->conn, word, text, strlen(text)) != GYRE_OK)
        log_warning("bootstrap: cannot send rank %d an answer: %s", contact->rank, text);
    contact->state = CONTACT_RETIRED;
    contact->deadline = base_now() + RETIRED_NS;
}

void boot_contact_promote(comm_boot_t *boot, boot_contact_t *contact, boot_edge_t *edge)
{
    boot_edge_adopt(edge, &contact->conn);
    edge->ear.heard = base_now();
    edge->left = 0;
    edge->steps = contact->steps;
    memset(&contact->steps, 0, sizeof(contact->steps));
    contact->state = CONTACT_GONE;
    if (boot->watched)
        boot->poke(boot->poke_user); /* to poll it */
}

boot_contact_t *boot_contact_of_edge(comm_boot_t *boot, boot_edge_t *edge)
{
    boot_contact_t *contact = contact_new(boot);
    if (contact == NULL)
        return NULL;
    boot_conn_move(&contact->conn, &edge->conn);
    contact->rank = edge->rank;
    contact->hello.epoch = boot->epoch;
    contact->state = CONTACT_OPEN;
    contact->deadline = BASE_TIME_NEVER;
    edge->open = 0;
    return contact;
}

/* The other end has gone without a last word. */
static void contact_lost(comm_boot_t *boot, boot_contact_t *contact, const char *how, int silent)
{
    int rank = contact->rank, counts = contact->state == CONTACT_OPEN || contact->ours;
    counts = counts && contact->state != CONTACT_RETIRED;
    uint32_t epoch = contact->hello.epoch;
    contact_end(contact);
    if (!counts || rank < 0 || epoch != boot->epoch || boot_place(boot, rank) < 0)
        return;
    if (boot_death_of(boot, rank) == NULL)
        boot_note_death(boot, rank, how, silent);
    else if (silent)
        boot_settle_death(boot, rank, 1);
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

static void dial_again(comm_boot_t *boot, boot_contact_t *contact, int err)
{
    char how[BOOT_TEXT];
    if (err == ECONNREFUSED && refused_by_icmp(contact->conn.fd))
        err = EHOSTUNREACH; /* says nothing of the rank: it may live behind the firewall */
    boot_conn_close(&contact->conn);
    if (err == ECONNREFUSED) { /* its host answers for it */
        boot_settle_death(boot, contact->rank, 0);
        contact_lost(boot, contact, "nobody listens where it did", 0);
        return;
    }
    if (base_now() + RETRY_NS >= contact->deadline) {
        snprintf(how, sizeof(how), "silent for %.1f s (%s)", (double)(base_now() - contact->since) * 1e-9,
                 strerror(err));
        contact_lost(boot, contact, how, 1);
        return;
    }
    contact->state = CONTACT_DIALLING;
    contact->retry = base_now() + RETRY_NS;
}

static void dial(comm_boot_t *boot, boot_contact_t *contact)
{
    const boot_addr_t *addr = &contact->addr;
    int fd = boot_socket(addr->sa.sa_family, SOCK_STREAM);
    contact->retry = 0;
    if (fd < 0) {
        dial_again(boot, contact, errno);
        return;
    }
    boot_socket_tune(fd);
    keep_icmp(fd, addr->sa.sa_family, 1);
    boot_conn_open(&contact->conn, fd);
    boot_addr_text(addr, contact->conn.where);
    if (connect(fd, &addr->sa, boot_addr_len(addr)) != 0 && errno != EINPROGRESS && errno != EINTR)
        dial_again(boot, contact, errno);
}

boot_contact_t *boot_listener_dial(comm_boot_t *boot, int rank, boot_role_t role)
{
    boot_contact_t *contact = contact_new(boot);
    if (contact == NULL)
        return NULL;
    contact->state = CONTACT_DIALLING;
    contact->ours = 1;
    contact->rank = rank;
    contact->hello = (boot_hello_t){role, boot->rank, boot->size, rank, boot->epoch};
    contact->deadline = contact->since + silence_limit(boot);
    if (boot_where(boot, rank, &contact->addr))
        dial(boot, contact);
    else
        contact_lost(boot, contact, "it never said where it can be reached", 1);
    if (boot->watched)
        boot->poke(boot->poke_user);
    return contact;
}

/* connect(2) has come to an end. */
static void dialled(comm_boot_t *boot, boot_contact_t *contact)
{
    int err = 0;
    socklen_t bytes = sizeof(err);
    if (getsockopt(contact->conn.fd, SOL_SOCKET, SO_ERROR, &err, &bytes) != 0)
        err = errno;
    if (err != 0) {
        dial_again(boot, contact, err);
        return;
    }
    keep_icmp(contact->conn.fd, contact->addr.sa.sa_family, 0);
    boot_hello_make(&contact->hello, contact->hello_text);
    if (!boot_buf_add(&contact->conn.out, contact->hello_text, BOOT_HELLO_BYTES)) {
        dial_again(boot, contact, ENOMEM);
        return;
    }
    boot_conn_flush(&contact->conn);
    contact->state = CONTACT_ASKED;
}

static void contact_open(boot_contact_t *contact)
{
    contact->state = CONTACT_OPEN;
    contact->ear.heard = base_now();
    contact->deadline = BASE_TIME_NEVER;
}

/* The answer to our hello. */
static int dialled_step(comm_boot_t *boot, boot_contact_t *contact)
{
    boot_conn_t *conn = &contact->conn;
    unsigned char proof[BOOT_PROOF_BYTES];
    if (boot_buf_len(&conn->in) < BOOT_CHALLENGE_BYTES)
        return 0;
    if (!boot_challenge_answer(boot->auth_key, contact->hello_text, conn->in.data + conn->in.from, conn,
                               proof)) {
        contact_lost(boot, contact, "somebody else listens where it did", 0);
        return 1;
    }
    conn->in.from += BOOT_CHALLENGE_BYTES;
    if (!boot_buf_add(&conn->out, proof, sizeof(proof))) {
        dial_again(boot, contact, ENOMEM);
        return 1;
    }
    boot_conn_flush(conn);
    contact_open(contact);
    boot->past_messages += BOOT_HANDSHAKE_MESSAGES;
    boot_shrink_opened(boot, contact);
    return 1;
}

/* ---- what a peer that has proved the secret may be ---------------------------------------------- */

static void admit(comm_boot_t *boot, boot_stranger_t *peer, void (*meet)(comm_boot_t *, boot_contact_t *))
{
    boot_contact_t *contact = contact_new(boot);
    if (contact == NULL) {
        boot_refuse(&boot->listener.refused, BOOT_REFUSED_MEMORY, "bootstrap", peer->conn.where, "no memory");
        return;
    }
    boot_conn_move(&contact->conn, &peer->conn);
    contact->hello = peer->hello;
    contact->since = peer->since;
    contact_open(contact);
    meet(boot, contact);
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

void boot_listener_init(comm_boot_t *boot)
{
    boot_admit_open(&boot->listener, boot, &rules, boot, -1);
}

/* ---- receiving ----------------------------------------------------------------------------------------- */

/* There is no memory for what it says. Newcomers are counted: gyre_comm_grow then waits for one in vain. */
static void contact_unheard(comm_boot_t *boot, boot_contact_t *contact)
{
    char how[BOOT_TEXT];
    if (contact->hello.role == BOOT_ROLE_NEW)
        boot_refuse(&boot->listener.refused, BOOT_REFUSED_MEMORY, "bootstrap", contact->conn.where,
                    "no memory");
    boot_unheard_text(boot, how, sizeof(how));
    contact_lost(boot, contact, how, 0);
}

/* One message of a contact, of whatever state; 0: more bytes are needed. */
static int contact_step(comm_boot_t *boot, boot_contact_t *contact)
{
    boot_message_t m;
    const char *why = "";
    int next;
    switch (contact->state) {
    case CONTACT_ASKED:
        return dialled_step(boot, contact);
    case CONTACT_OPEN:
    case CONTACT_RETIRED:
        next = boot_conn_next(&contact->conn, &m, &why);
        if (next == -2) {
            contact_unheard(boot, contact);
        } else if (next < 0) {
            boot_refuse(&boot->listener.refused, BOOT_REFUSED_GARBLED, "bootstrap", contact->conn.where, why);
            contact_lost(boot, contact, "its bootstrap connection is garbled", 0);
        } else if (next == 1 && contact->state == CONTACT_OPEN) {
            boot_shrink_said(boot, contact, &m);
        } else if (next == 1 && m.type == BOOT_GOODBYE) {
            contact_end(contact); /* both have said their last word */
        }
        return next != 0;
    case CONTACT_DIALLING:
    case CONTACT_GONE:
        break;
    }
    return 0;
}

static void contact_closed(comm_boot_t *boot, boot_contact_t *contact, boot_read_t got, int err)
{
    char how[BOOT_TEXT];
    if (contact->state == CONTACT_ASKED) {
        dial_again(boot, contact, got == BOOT_READ_EOF ? ECONNRESET : err);
    } else if (contact->state == CONTACT_OPEN && got == BOOT_READ_EOF) {
        contact_lost(boot, contact, "its connection closed", 0);
    } else if (contact->state == CONTACT_OPEN && err == ENOMEM) {
        contact_unheard(boot, contact);
    } else if (contact->state == CONTACT_OPEN) {
        snprintf(how, sizeof(how), "the connection to it failed: %s", strerror(err));
        contact_lost(boot, contact, how, err == ETIMEDOUT || err == EHOSTUNREACH);
    } else if (contact->state == CONTACT_RETIRED) {
        contact_end(contact);
    }
}

void boot_listener_handle(comm_boot_t *boot, boot_contact_t *contact, const struct pollfd *poll)
{
    const short revents = poll->revents;
    if (revents == 0)
        return;
    if (contact == NULL) {
        int err = boot_admit_handle(&boot->listener, poll);
        if (err != 0)
            log_warning("bootstrap: a connection cannot be accepted: %s (ulimit -n)", strerror(err));
        pthread_cond_broadcast(&boot->moved);
        return;
    }
    if (contact->state == CONTACT_GONE || contact->conn.fd < 0)
        return;
    if (contact->state == CONTACT_DIALLING) {
        dialled(boot, contact);
        return;
    }
    if (revents & POLLOUT)
        boot_conn_flush(&contact->conn);
    if (revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) {
        size_t limit = contact->state == CONTACT_ASKED ? BOOT_CHALLENGE_BYTES : RECEIVE_LIMIT;
        boot_read_t got = boot_conn_read(&contact->conn, limit);
        int err = errno;
        if (got == BOOT_READ_SOME)
            contact->ear = (boot_ear_t){.heard = base_now()};
        while (contact->state != CONTACT_GONE && contact_step(boot, contact))
            ;
        if (contact->state != CONTACT_GONE && (got == BOOT_READ_EOF || got == BOOT_READ_ERROR))
            contact_closed(boot, contact, got, err);
    }
    pthread_cond_broadcast(&boot->moved);
}

/* ---- the watcher's loop -------------------------------------------------------------------------------- */

int boot_listener_count(const comm_boot_t *boot)
{
    int n = boot_admit_count(&boot->listener);
    for (const boot_contact_t *v = boot->contacts; v != NULL; v = v->next)
        n++;
    return n;
}

int boot_listener_polls(comm_boot_t *boot, struct pollfd *polls, boot_contact_t **contacts, int room)
{
    int n = boot_admit_polls(&boot->listener, polls, room);
    for (int i = 0; i < n; i++)
        contacts[i] = NULL;
    for (boot_contact_t *v = boot->contacts; v != NULL && n < room; v = v->next) {
        if (v->state == CONTACT_GONE || v->conn.fd < 0)
            continue;
        short events = v->state == CONTACT_DIALLING ? POLLOUT : POLLIN;
        polls[n] = (struct pollfd){.fd = v->conn.fd, .events = events};
        if (boot_conn_unsent(&v->conn))
            polls[n].events |= POLLOUT;
        contacts[n++] = v;
    }
    return n;
}

static void contact_overdue(comm_boot_t *boot, boot_contact_t *contact, base_time_t now)
{
    char how[BOOT_TEXT];
    if (contact->state == CONTACT_RETIRED) {
        contact_end(contact);
    } else {
        snprintf(how, sizeof(how), "silent for %.1f s", (double)(now - contact->since) * 1e-9);
        contact_lost(boot, contact, how, 1);
    }
}

/* Beats on an open visit and finds out whether the other side does; returns when to look again. */
static base_time_t contact_beat(comm_boot_t *boot, boot_contact_t *contact, base_time_t now)
{
    base_time_t every = boot->silence / 4;
    if (boot->silence == 0 || contact->state != CONTACT_OPEN)
        return BASE_TIME_NEVER;
    if (boot_silent(boot, contact->rank, &contact->conn, 0, &contact->ear, now)) {
        char how[BOOT_TEXT];
        snprintf(how, sizeof(how), "silent for %.1f s", (double)(now - contact->ear.heard) * 1e-9);
        if (boot_conn_send(&contact->conn, BOOT_EXPELLED, how, strlen(how)) != GYRE_OK)
            log_warning("bootstrap: rank %d cannot be sent the news that it counts as dead", contact->rank);
        contact_lost(boot, contact, how, 1);
        return BASE_TIME_NEVER;
    }
    if (now - contact->spoke >= every) {
        if (boot_conn_send(&contact->conn, BOOT_BEAT, NULL, 0) != GYRE_OK)
            log_warning("bootstrap: no memory for a heartbeat to rank %d", contact->rank);
        contact->spoke = now;
    }
    base_time_t limit = contact->ear.heard + boot->silence;
    return limit < contact->spoke + every ? limit : contact->spoke + every;
}

base_time_t boot_listener_tick(comm_boot_t *boot, base_time_t now)
{
    base_time_t next = boot_admit_tick(&boot->listener, now);
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next) {
        if (v->state == CONTACT_DIALLING && v->retry != 0 && v->retry <= now)
            dial(boot, v);
        if (v->state != CONTACT_GONE && v->deadline <= now)
            contact_overdue(boot, v, now);
        if (v->state == CONTACT_GONE)
            continue;
        base_time_t beat = contact_beat(boot, v, now);
        next = beat < next ? beat : next;
        next = v->deadline < next ? v->deadline : next;
        next = v->retry != 0 && v->retry < next ? v->retry : next;
    }
    for (boot_contact_t **at = &boot->contacts; *at != NULL;) {
        boot_contact_t *v = *at;
        if (v->state == CONTACT_GONE) {
            *at = v->next;
            boot_buf_free(&v->steps);
            free(v);
        } else {
            at = &v->next;
        }
    }
    return next;
}

void boot_listener_rested(comm_boot_t *boot, base_time_t now)
{
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next)
        v->ear.heard = now;
}

boot_contact_t *boot_listener_find(comm_boot_t *boot, int rank, boot_role_t role, int ours)
{
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next)
        if (v->rank == rank && v->ours == ours && (boot_role_t)v->hello.role == role &&
            v->hello.epoch == boot->epoch && v->state != CONTACT_GONE && v->state != CONTACT_RETIRED)
            return v;
    return NULL;
}
