/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/joiners.c: the gate of a rank while the job joins.
 *
 * The gate serves the guests that admit.c has admitted, all in one poll loop. There are three kinds of
 * guests: ranks that send their address and get their parent, children of this rank, and ranks that ask who
 * is missing. */
#include "comm/boot/joiners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

enum { STRANGERS_MAX = 256, RECEIVE_LIMIT = BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC };
#define HANDSHAKE_SECONDS 10.0 /* a rank on a crowded machine needs a while */
#define LINGER_SECONDS    0.5  /* rank 0, having given up, still answers who is missing */

static void guest_drop(boot_gate_t *gate, boot_guest_t *guest)
{
    if ((guest->state == GUEST_WAITING) && gate->places != NULL) {
        gate->places[guest->hello.rank].sa.sa_family = 0; /* it may come again */
        gate->missing++;
        log_warning("bootstrap: rank %d at %s went away while it joined", guest->hello.rank,
                    guest->conn.where);
    }
    boot_count_messages(gate->boot, &guest->conn);
    boot_conn_close(&guest->conn);
    guest->state = GUEST_GONE;
    gate->admit.rest = 0; /* there is a descriptor */
}

static void guest_refuse(boot_gate_t *gate, boot_guest_t *guest, boot_refused_t kind, const char *why)
{
    boot_refuse(&gate->admit.refused, kind, "bootstrap", guest->conn.where, why);
    guest_drop(gate, guest);
}

/* An authenticated rank that cannot be let in hears why. */
static void guest_reject(boot_gate_t *gate, boot_guest_t *guest, const char *text)
{
    log_warning("bootstrap: rank %d at %s is not let in: %s", guest->hello.rank, guest->conn.where, text);
    if (boot_conn_send(&guest->conn, BOOT_REJECT, text, strlen(text)) != GYRE_OK) {
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    guest->state = GUEST_LEAVING;
    guest->deadline = base_deadline(1.0);
}

/* Sends a guest the address of its parent. A parent on rank 0's own host may know only a loopback address of
 * itself (the host's name means 127.0.1.1 there). A guest from another host then gets the address at which it
 * reached this host. */
static void guest_tell(boot_gate_t *gate, boot_guest_t *guest, int parent)
{
    unsigned char frame[4 + BOOT_ADDR_BYTES] = {0};
    boot_put32(frame, (uint32_t)parent);
    if (parent > 0) {
        boot_addr_t addr = gate->places[parent];
        boot_addr_t here;
        if (boot_addr_is_loopback(&addr) && boot_addr_of(guest->conn.fd, 0, &here) &&
            !boot_addr_is_loopback(&here)) {
            boot_addr_set_port(&here, boot_addr_port(&addr));
            addr = here;
        }
        boot_addr_pack(&addr, frame + 4);
    }
    if (boot_conn_send(&guest->conn, BOOT_PARENT, frame, sizeof(frame)) != GYRE_OK) {
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    if (parent == 0) {
        boot_edge_adopt(boot_edge_of(gate->boot, guest->hello.rank), &guest->conn);
        guest->state = GUEST_GONE;
    } else {
        guest->state = GUEST_LEAVING;
        guest->deadline = base_deadline(HANDSHAKE_SECONDS);
    }
}

/* A rank that waits for its parent, or cannot reach it, asks who is missing. */
static void guest_answer(boot_gate_t *gate, boot_guest_t *guest, const boot_message_t *m)
{
    unsigned char answer[BOOT_TELL_MAX];
    if (m->type != BOOT_ASK || m->bytes != BOOT_ASK_BYTES) {
        guest_refuse(gate, guest, BOOT_REFUSED_GARBLED, "it sent more than it was asked for");
        return;
    }
    size_t bytes = boot_tell_pack(gate->boot, m->data, answer);
    if (boot_conn_send(&guest->conn, BOOT_TELL, answer, bytes) != GYRE_OK)
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
    else if (guest->state == GUEST_ASKS)
        guest->state = GUEST_LEAVING;
}

/* A rank that waits for its parent hears why it does so in vain. */
static void guest_give_up(boot_gate_t *gate, boot_guest_t *guest, gyre_status_t status, const char *text)
{
    unsigned char frame[12 + BOOT_TEXT];
    size_t bytes = base_min_size(strlen(text), BOOT_TEXT - 1);
    boot_put64(frame, BOOT_ABORT_JOB);
    boot_put32(frame + 8, (uint32_t)status);
    memcpy(frame + 12, text, bytes);
    if (boot_conn_send(&guest->conn, BOOT_ABORT, frame, 12 + bytes) != GYRE_OK) {
        guest_refuse(gate, guest, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    guest->state = GUEST_LEAVING;
    guest->deadline = base_deadline(1.0);
}

/* Rank 0: a rank says where it listens. */
static void guest_register(boot_gate_t *gate, boot_guest_t *guest, const boot_message_t *m)
{
    boot_addr_t addr;
    int rank = guest->hello.rank;
    if (m->type != BOOT_JOIN || m->bytes != BOOT_ADDR_BYTES || !boot_addr_unpack(m->data, &addr)) {
        guest_refuse(gate, guest, BOOT_REFUSED_GARBLED, "its address is malformed");
        return;
    }
    gate->places[rank] = addr;
    gate->missing--;
    gate->unseen -= !gate->seen[rank];
    gate->seen[rank] = 1;
    log_debug("bootstrap: rank %d joined from %s", rank, guest->conn.where);
    int parent = boot_tree_parent(rank);
    guest->state = GUEST_WAITING;
    guest->deadline = BASE_TIME_NEVER;
    if (parent == 0 || gate->places[parent].sa.sa_family != 0)
        guest_tell(gate, guest, parent);
    for (int i = 0; i < gate->guests_n; i++) {
        boot_guest_t *other = &gate->guests[i];
        if (other->state == GUEST_WAITING && boot_tree_parent(other->hello.rank) == rank)
            guest_tell(gate, other, rank);
    }
}

/* ---- what a peer that has proved the secret may be ---------------------------------------------- */

/* NULL: memory. */
static boot_guest_t *guest_new(boot_gate_t *gate, boot_stranger_t *peer)
{
    if (gate->guests_n == gate->guests_cap) {
        int cap = gate->guests_cap < 8 ? 16 : gate->guests_cap * 2;
        boot_guest_t *more = realloc(gate->guests, (size_t)cap * sizeof(*more));
        if (more == NULL) {
            boot_refuse(&gate->admit.refused, BOOT_REFUSED_MEMORY, "bootstrap", peer->conn.where,
                        "no memory");
            return NULL;
        }
        gate->guests = more;
        gate->guests_cap = cap;
    }
    boot_guest_t *guest = &gate->guests[gate->guests_n++];
    *guest = (boot_guest_t){.hello = peer->hello, .deadline = peer->deadline, .state = GUEST_LEAVING};
    boot_conn_move(&guest->conn, &peer->conn);
    return guest;
}

static void reject(boot_gate_t *gate, boot_stranger_t *peer, const char *text)
{
    boot_guest_t *guest = guest_new(gate, peer);
    if (guest != NULL)
        guest_reject(gate, guest, text);
}

/* 1: it and this rank agree on the job's size and on who this rank is; else it hears why not. */
static int is_sane(boot_gate_t *gate, boot_stranger_t *peer)
{
    const comm_boot_t *boot = gate->boot;
    const boot_hello_t *h = &peer->hello;
    char text[BOOT_TEXT];
    if (h->size != boot->size)
        snprintf(text, sizeof(text), "it says that the job has %d ranks, but rank %d says %d", h->size,
                 boot->rank, boot->size);
    else if (h->wanted != boot->rank || h->rank <= 0 || h->rank >= boot->size)
        snprintf(text, sizeof(text), "rank %d has no place at rank %d of %d", h->rank, boot->rank,
                 boot->size);
    else
        return 1;
    reject(gate, peer, text);
    return 0;
}

static void no_place(void *user, boot_stranger_t *peer)
{
    boot_gate_t *gate = user;
    char text[BOOT_TEXT];
    snprintf(text, sizeof(text), "rank %d has no place at rank %d of %d", peer->hello.rank, gate->boot->rank,
             gate->boot->size);
    reject(gate, peer, text);
}

static void joined_twice(boot_gate_t *gate, boot_stranger_t *peer)
{
    char text[BOOT_TEXT];
    snprintf(text, sizeof(text), "rank %d joined twice: each rank number may be given to one process only",
             peer->hello.rank);
    reject(gate, peer, text);
}

/* At rank 0: next it says where it listens. */
static void admit_joiner(void *user, boot_stranger_t *peer)
{
    boot_gate_t *gate = user;
    if (!is_sane(gate, peer))
        return;
    if (gate->boot->rank != 0) {
        no_place(gate, peer);
    } else if (gate->places[peer->hello.rank].sa.sa_family != 0) {
        joined_twice(gate, peer);
    } else {
        boot_guest_t *guest = guest_new(gate, peer);
        if (guest != NULL)
            guest->state = GUEST_ADDRESS;
    }
}

static void admit_child(void *user, boot_stranger_t *peer)
{
    boot_gate_t *gate = user;
    if (!is_sane(gate, peer))
        return;
    boot_edge_t *edge = boot_edge_of(gate->boot, peer->hello.rank);
    if (gate->boot->rank == 0 || edge == NULL || peer->hello.rank < gate->boot->rank)
        no_place(gate, peer);
    else if (edge->open)
        joined_twice(gate, peer);
    else
        boot_edge_adopt(edge, &peer->conn);
}

/* At rank 0, by a rank that has let go of its first connection. */
static void admit_question(void *user, boot_stranger_t *peer)
{
    boot_gate_t *gate = user;
    if (gate->boot->rank != 0) {
        no_place(gate, peer);
    } else if (peer->hello.size != gate->boot->size) {
        (void)is_sane(gate, peer);
    } else {
        boot_guest_t *guest = guest_new(gate, peer);
        if (guest != NULL)
            guest->state = GUEST_ASKS;
    }
}

static const boot_admit_rules_t rules = {
    .most = STRANGERS_MAX,
    .may = {{BOOT_ROLE_JOIN, admit_joiner}, {BOOT_ROLE_CHILD, admit_child}, {BOOT_ROLE_ASK, admit_question}},
    .others = no_place};

void boot_gate_open(boot_gate_t *gate, comm_boot_t *boot, int fd)
{
    gate->boot = boot;
    boot_admit_open(&gate->admit, boot, &rules, gate, fd);
}

/* ---- the guests ---------------------------------------------------------------------------------------- */

/* Takes one message of a guest; 0: more bytes are needed. */
static int guest_step(boot_gate_t *gate, boot_guest_t *guest)
{
    boot_message_t m;
    const char *why;
    int got = boot_conn_next(&guest->conn, &m, &why);
    if (got < 0)
        guest_refuse(gate, guest, BOOT_REFUSED_GARBLED, why);
    else if (got == 1 && guest->state == GUEST_ADDRESS)
        guest_register(gate, guest, &m);
    else if (got == 1 && (guest->state != GUEST_LEAVING || m.type == BOOT_ASK))
        guest_answer(gate, guest, &m); /* the question may have crossed what makes it leave */
    return got == 1;                   /* what else a leaving guest says matters no more */
}

static void guest_handle(boot_gate_t *gate, boot_guest_t *guest, short revents)
{
    if (revents & POLLOUT)
        boot_conn_flush(&guest->conn);
    if (!(revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)))
        return;
    boot_read_t got = boot_conn_read(&guest->conn, RECEIVE_LIMIT);
    while (guest->state != GUEST_GONE && guest_step(gate, guest))
        ;
    if (guest->state == GUEST_GONE || got == BOOT_READ_SOME || got == BOOT_READ_AGAIN)
        return;
    if (guest->state == GUEST_LEAVING)
        guest_drop(gate, guest);
    else
        guest_refuse(gate, guest, BOOT_REFUSED_CLOSED, "it closed during the handshake");
}

/* Nobody can be accepted: is that for a while, as guests or strangers will go soon? */
static gyre_status_t no_accept(const boot_gate_t *gate, int err)
{
    int passing = boot_admit_count(&gate->admit) - 1;
    for (int i = 0; i < gate->guests_n; i++)
        passing += gate->guests[i].state == GUEST_LEAVING;
    if (err == ENOMEM)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    if (err != EMFILE && err != ENFILE)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, err, "accept");
    if (passing > 0)
        return GYRE_OK;
    return gyre_fail_errno(
        GYRE_ERR_NO_MEMORY, err,
        "rank %d ran out of descriptors while %d ranks joined: raise the limit (ulimit -n)", gate->boot->rank,
        gate->guests_n);
}

/* Forgets guests that are gone and closes those whose time is over; returns the nearest deadline. */
static base_time_t gate_tidy(boot_gate_t *gate, base_time_t deadline)
{
    base_time_t now = base_now(), strangers = boot_admit_tick(&gate->admit, now);
    int kept = 0;
    if (strangers < deadline)
        deadline = strangers;
    for (int i = 0; i < gate->guests_n; i++) {
        boot_guest_t *guest = &gate->guests[i];
        if (guest->state == GUEST_LEAVING && guest->deadline <= now)
            guest_drop(gate, guest);
        else if (guest->state != GUEST_GONE && guest->deadline <= now)
            guest_refuse(gate, guest, BOOT_REFUSED_SLOW, "it took too long to say where it listens");
        if (guest->state == GUEST_GONE)
            continue;
        if (guest->deadline < deadline)
            deadline = guest->deadline;
        if (kept != i)
            gate->guests[kept] = *guest;
        kept++;
    }
    gate->guests_n = kept;
    return deadline;
}

/* One turn of the poll loop over the socket, strangers, guests and the edges that exist already. */
static gyre_status_t gate_turn(boot_gate_t *gate, base_time_t deadline)
{
    comm_boot_t *boot = gate->boot;
    boot_edge_t *edges[BOOT_EDGES_MAX];
    base_time_t until = gate_tidy(gate, deadline);
    int guests_n = gate->guests_n, admit_room = boot_admit_count(&gate->admit), err = 0;
    struct pollfd *polls = calloc((size_t)(guests_n + admit_room) + BOOT_EDGES_MAX, sizeof(*polls));
    if (polls == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    for (int i = 0; i < guests_n; i++) {
        polls[i].fd = gate->guests[i].conn.fd;
        polls[i].events = (short)(boot_conn_unsent(&gate->guests[i].conn) ? POLLIN | POLLOUT : POLLIN);
    }
    struct pollfd *admits = polls + guests_n;
    int admits_n = boot_admit_polls(&gate->admit, admits, admit_room);
    pthread_mutex_lock(&boot->lock);
    int edges_n = boot_polls(boot, admits + admits_n, edges);
    pthread_mutex_unlock(&boot->lock);
    int n = poll(polls, (nfds_t)(guests_n + admits_n + edges_n), base_poll_ms(until));
    gyre_status_t st = n < 0 && errno != EINTR ? gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "poll") : GYRE_OK;
    pthread_mutex_lock(&boot->lock);
    for (int i = 0; i < edges_n && n > 0; i++)
        boot_handle(boot, edges[i], admits[admits_n + i].revents);
    for (int i = 0; i < guests_n && n > 0; i++)
        if (polls[i].revents != 0 && gate->guests[i].state != GUEST_GONE)
            guest_handle(gate, &gate->guests[i], polls[i].revents);
    for (int i = 0; i < admits_n && n > 0 && err == 0; i++)
        err = boot_admit_handle(&gate->admit, &admits[i]);
    pthread_mutex_unlock(&boot->lock);
    free(polls);
    return st == GYRE_OK && err != 0 ? no_accept(gate, err) : st;
}

/* Those that gave up because others are missing are not to blame. */
static int is_missing(const boot_gate_t *gate, int rank)
{
    if (rank >= gate->boot->size)
        return 0;
    if (gate->places != NULL)
        return rank > 0 && (gate->unseen > 0 ? !gate->seen[rank] : gate->places[rank].sa.sa_family == 0);
    const boot_edge_t *edge = rank > gate->boot->rank ? boot_edge_of(gate->boot, rank) : NULL;
    return edge != NULL && !edge->open;
}

void boot_gate_missing(const boot_gate_t *gate, char *text, size_t bytes)
{
    static const char more[] = ", ...";
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < gate->boot->size; r++) {
        char part[32];
        int first = r;
        if (!is_missing(gate, r))
            continue;
        while (is_missing(gate, r + 1))
            r++;
        int n = snprintf(part, sizeof(part), first == r ? "%s%d" : "%s%d-%d", used > 0 ? ", " : "", first, r);
        if (used + (size_t)n + sizeof(more) > bytes) {
            snprintf(text + used, bytes - used, "%s", more);
            return;
        }
        memcpy(text + used, part, (size_t)n + 1);
        used += (size_t)n;
    }
}

/* Why letting ranks in goes on in vain, or OK. */
static gyre_status_t gate_hopeless(const comm_boot_t *boot)
{
    const boot_abort_t *abort = boot_abort_of(boot, BOOT_ABORT_JOB);
    if (abort != NULL)
        return gyre_fail(abort->status, "%s", abort->text);
    const boot_death_t *death = boot_first_death(boot, NULL, 0);
    if (death != NULL)
        return gyre_fail(GYRE_ERR_PEER_DEAD, "rank %d died while the job was joining: %s", death->rank,
                         death->left ? "it left after an error" : death->how);
    for (int i = 0; i < boot->edges_n; i++)
        if (boot->edges[i].left)
            return gyre_fail(GYRE_ERR_BOOTSTRAP, "rank %d left while the job was joining",
                             boot->edges[i].rank);
    return GYRE_OK;
}

/* The gate's deadline has passed. */
static gyre_status_t waited_in_vain(const boot_gate_t *gate)
{
    comm_boot_t *boot = gate->boot;
    char mine[160], all[160];
    boot_gate_missing(gate, mine, sizeof(mine));
    if (gate->places != NULL)
        return gyre_fail(
            GYRE_ERR_TIMEOUT,
            "rank 0 waited in vain for rank(s) %s to join (%d of %d are here): were they started, and "
            "with the same GYRE_ROOT?",
            mine, boot->size - gate->missing, boot->size);
    pthread_mutex_lock(&boot->lock);
    gyre_status_t asked = boot_ask_missing(boot, base_deadline(COMM_BLAME_SECONDS), all, sizeof(all));
    pthread_mutex_unlock(&boot->lock);
    if (asked != GYRE_OK)
        return gate_hopeless(boot); /* somebody else knew meanwhile */
    if (all[0] != '\0')
        return gyre_fail(GYRE_ERR_TIMEOUT, "rank %d waited in vain" BOOT_MISSING, boot->rank, all);
    return gyre_fail(GYRE_ERR_TIMEOUT, "rank %d waited in vain for its child rank(s) %s to connect",
                     boot->rank, mine);
}

static int gate_done(const boot_gate_t *gate)
{
    const comm_boot_t *boot = gate->boot;
    for (int i = 0; i < boot->edges_n; i++)
        if (!boot->edges[i].open)
            return 0;
    if (gate->missing > 0)
        return 0;
    for (int i = 0; i < gate->guests_n; i++)
        if (gate->guests[i].state == GUEST_LEAVING && boot_conn_unsent(&gate->guests[i].conn))
            return 0;
    return 1;
}

gyre_status_t boot_gate_keep(boot_gate_t *gate, base_time_t deadline)
{
    gyre_status_t st = GYRE_OK;
    gate->boot->gate = gate;
    while (st == GYRE_OK && !gate_done(gate)) {
        st = gate_turn(gate, deadline);
        if (st == GYRE_OK)
            st = gate_hopeless(gate->boot);
        if (st == GYRE_OK && !gate_done(gate) && base_poll_ms(deadline) == 0)
            st = waited_in_vain(gate);
    }
    gate->boot->gate = NULL;
    return st;
}

void boot_gate_close(boot_gate_t *gate, gyre_status_t st)
{
    for (int i = 0; i < gate->guests_n; i++) {
        if (st != GYRE_OK && gate->guests[i].state == GUEST_WAITING)
            guest_give_up(gate, &gate->guests[i], st, gyre_last_error());
        boot_count_messages(gate->boot, &gate->guests[i].conn);
        boot_conn_close(&gate->guests[i].conn);
    }
    boot_admit_close(&gate->admit);
    free(gate->guests);
    free(gate->places);
    free(gate->seen);
    if (gate->admit.fd >= 0 && !gate->inherited)
        close(gate->admit.fd);
}

void boot_gate_linger(boot_gate_t *gate, gyre_status_t st)
{
    char text[BOOT_TEXT], why[BOOT_TEXT + 32];
    base_time_t until = base_deadline(LINGER_SECONDS);
    snprintf(text, sizeof(text), "%s", gyre_last_error());
    snprintf(why, sizeof(why), "rank %d could not join: %.400s", gate->boot->rank, text);
    pthread_mutex_lock(&gate->boot->lock);
    boot_note_abort(gate->boot, BOOT_ABORT_JOB, st, why, NULL);
    for (int i = 0; i < gate->guests_n; i++)
        if (gate->guests[i].state == GUEST_WAITING)
            guest_give_up(gate, &gate->guests[i], st, text);
    pthread_mutex_unlock(&gate->boot->lock);
    gate->boot->gate = gate;
    while (base_poll_ms(until) != 0 && gate_turn(gate, until) == GYRE_OK)
        ;
    gate->boot->gate = NULL;
    (void)gyre_fail_quiet(st, "%s", text);
}
