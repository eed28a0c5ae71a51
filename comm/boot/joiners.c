/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/joiners.c: lets the ranks below this one in while the job joins.
 *
 * This serves the joiners that admit.c has admitted, all in one poll loop. There are three kinds of
 * joiners: ranks that send their address and get their parent, children of this rank, and ranks that ask who
 * is missing. */
#include "comm/boot/joiners.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/grow.h"
#include "base/log.h"
#include "comm/net/held.h"

enum { STRANGERS_MAX = 256, RECEIVE_LIMIT = BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC };
#define HANDSHAKE_SECONDS 10.0 /* a rank on a crowded machine needs a while */
#define LINGER_SECONDS    0.5  /* rank 0, having given up, still answers who is missing */

static void joiner_drop(boot_joiners_t *joiners, boot_joiner_t *joiner)
{
    if ((joiner->state == JOINER_WAITING) && joiners->places != NULL) {
        joiners->places[joiner->hello.rank].sa.sa_family = 0; /* it may come again */
        joiners->missing++;
        log_warning("bootstrap: rank %d at %s went away while it joined", joiner->hello.rank,
                    joiner->conn.where);
    }
    boot_count_messages(joiners->boot, &joiner->conn);
    boot_conn_close(&joiner->conn);
    joiner->state = JOINER_GONE;
    joiners->admit.rest = 0; /* there is a descriptor */
}

static void joiner_refuse(boot_joiners_t *joiners, boot_joiner_t *joiner, boot_refused_t kind,
                          const char *why)
{
    boot_refuse(&joiners->admit.refused, kind, "bootstrap", joiner->conn.where, why);
    joiner_drop(joiners, joiner);
}

/* An authenticated rank that cannot be let in hears why. */
static void joiner_reject(boot_joiners_t *joiners, boot_joiner_t *joiner, const char *text)
{
    log_warning("bootstrap: rank %d at %s is not let in: %s", joiner->hello.rank, joiner->conn.where, text);
    if (boot_conn_send(&joiner->conn, BOOT_REJECT, text, strlen(text)) != GYRE_OK) {
        joiner_refuse(joiners, joiner, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    joiner->state = JOINER_LEAVING;
    joiner->deadline = base_deadline(1.0);
}

static void twin_text(int rank, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d joined twice: each rank number may be given to one process only", rank);
}

static void reject_twin(boot_joiners_t *joiners, boot_joiner_t *joiner)
{
    char text[BOOT_TEXT];
    twin_text(joiner->hello.rank, text, sizeof(text));
    joiner_reject(joiners, joiner, text);
}

/* Sends a joiner the address of its parent. A parent on rank 0's own host may know only a loopback address of
 * itself (the host's name means 127.0.1.1 there). A joiner from another host then gets the address at which
 * it reached this host. */
static void joiner_tell(boot_joiners_t *joiners, boot_joiner_t *joiner, int parent)
{
    unsigned char frame[4 + BOOT_ADDR_BYTES] = {0};
    boot_put32(frame, (uint32_t)parent);
    if (parent > 0) {
        boot_addr_t addr = joiners->places[parent];
        boot_addr_t here;
        if (boot_addr_is_loopback(&addr) && boot_addr_of(joiner->conn.fd, 0, &here) &&
            !boot_addr_is_loopback(&here)) {
            boot_addr_set_port(&here, boot_addr_port(&addr));
            addr = here;
        }
        boot_addr_pack(&addr, frame + 4);
    }
    if (boot_conn_send(&joiner->conn, BOOT_PARENT, frame, sizeof(frame)) != GYRE_OK) {
        joiner_refuse(joiners, joiner, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    if (parent == 0) {
        boot_edge_adopt(boot_edge_of(joiners->boot, joiner->hello.rank), &joiner->conn);
        joiner->state = JOINER_GONE;
    } else {
        joiner->state = JOINER_LEAVING;
        joiner->deadline = base_deadline(HANDSHAKE_SECONDS);
    }
}

/* A rank that waits for its parent, or cannot reach it, asks who is missing. */
static void joiner_answer(boot_joiners_t *joiners, boot_joiner_t *joiner, const boot_message_t *m)
{
    unsigned char answer[BOOT_TELL_MAX];
    if (m->type != BOOT_ASK || m->bytes != BOOT_ASK_BYTES) {
        joiner_refuse(joiners, joiner, BOOT_REFUSED_GARBLED, "it sent more than it was asked for");
        return;
    }
    size_t bytes = boot_tell_pack(joiners->boot, m->data, answer);
    if (boot_conn_send(&joiner->conn, BOOT_TELL, answer, bytes) != GYRE_OK)
        joiner_refuse(joiners, joiner, BOOT_REFUSED_MEMORY, "no memory");
    else if (joiner->state == JOINER_ASKS)
        joiner->state = JOINER_LEAVING;
}

/* A rank that waits for its parent hears why it does so in vain. */
static void joiner_give_up(boot_joiners_t *joiners, boot_joiner_t *joiner, gyre_status_t status,
                           const char *text)
{
    unsigned char frame[12 + BOOT_TEXT];
    size_t bytes = base_min_size(strlen(text), BOOT_TEXT - 1);
    boot_put64(frame, BOOT_ABORT_JOB);
    boot_put32(frame + 8, (uint32_t)status);
    memcpy(frame + 12, text, bytes);
    if (boot_conn_send(&joiner->conn, BOOT_ABORT, frame, 12 + bytes) != GYRE_OK) {
        joiner_refuse(joiners, joiner, BOOT_REFUSED_MEMORY, "no memory");
        return;
    }
    joiner->state = JOINER_LEAVING;
    joiner->deadline = base_deadline(1.0);
}

/* Rank 0: a rank says where it listens, or that it cannot join: then the job ends. */
static void joiner_register(boot_joiners_t *joiners, boot_joiner_t *joiner, const boot_message_t *m)
{
    boot_addr_t addr;
    int rank = joiner->hello.rank;
    if (m->type == BOOT_ABORT) {
        boot_take_abort(joiners->boot, NULL, m);
        joiner_drop(joiners, joiner);
        return;
    }
    if (m->type != BOOT_JOIN || m->bytes != BOOT_ADDR_BYTES || !boot_addr_unpack(m->data, &addr)) {
        joiner_refuse(joiners, joiner, BOOT_REFUSED_GARBLED, "its address is malformed");
        return;
    }
    if (joiners->places[rank].sa.sa_family != 0) { /* another was let in with this rank, and was faster */
        reject_twin(joiners, joiner);
        return;
    }
    joiners->places[rank] = addr;
    joiners->missing--;
    joiners->unseen -= !joiners->seen[rank];
    joiners->seen[rank] = 1;
    log_debug("bootstrap: rank %d joined from %s", rank, joiner->conn.where);
    int parent = boot_tree_parent(rank);
    joiner->state = JOINER_WAITING;
    joiner->deadline = BASE_TIME_NEVER;
    if (parent == 0 || joiners->places[parent].sa.sa_family != 0)
        joiner_tell(joiners, joiner, parent);
    for (int i = 0; i < joiners->peers_n; i++) {
        boot_joiner_t *other = &joiners->peers[i];
        if (other->state == JOINER_WAITING && boot_tree_parent(other->hello.rank) == rank)
            joiner_tell(joiners, other, rank);
    }
}

/* ---- what a peer that has proved the secret may be ---------------------------------------------- */

/* NULL: memory. */
static boot_joiner_t *joiner_new(boot_joiners_t *joiners, boot_stranger_t *peer)
{
    if (!base_grow(&joiners->peers, &joiners->peers_cap, (size_t)joiners->peers_n, 1,
                   sizeof(*joiners->peers))) {
        boot_refuse(&joiners->admit.refused, BOOT_REFUSED_MEMORY, "bootstrap", peer->conn.where, "no memory");
        return NULL;
    }
    boot_joiner_t *joiner = &joiners->peers[joiners->peers_n++];
    *joiner = (boot_joiner_t){.hello = peer->hello, .deadline = peer->deadline, .state = JOINER_LEAVING};
    boot_conn_move(&joiner->conn, &peer->conn);
    return joiner;
}

static void reject(boot_joiners_t *joiners, boot_stranger_t *peer, const char *text)
{
    boot_joiner_t *joiner = joiner_new(joiners, peer);
    if (joiner != NULL)
        joiner_reject(joiners, joiner, text);
}

/* 1: it and this rank agree on the job's size and on who this rank is; else it hears why not. */
static int is_sane(boot_joiners_t *joiners, boot_stranger_t *peer)
{
    const comm_boot_t *boot = joiners->boot;
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
    reject(joiners, peer, text);
    return 0;
}

static void no_place(void *user, boot_stranger_t *peer)
{
    boot_joiners_t *joiners = user;
    char text[BOOT_TEXT];
    snprintf(text, sizeof(text), "rank %d has no place at rank %d of %d", peer->hello.rank,
             joiners->boot->rank, joiners->boot->size);
    reject(joiners, peer, text);
}

static void joined_twice(boot_joiners_t *joiners, boot_stranger_t *peer)
{
    char text[BOOT_TEXT];
    twin_text(peer->hello.rank, text, sizeof(text));
    reject(joiners, peer, text);
}

/* At rank 0: next it says where it listens. */
static void admit_joiner(void *user, boot_stranger_t *peer)
{
    boot_joiners_t *joiners = user;
    if (!is_sane(joiners, peer))
        return;
    if (joiners->boot->rank != 0) {
        no_place(joiners, peer);
    } else if (joiners->places[peer->hello.rank].sa.sa_family != 0) {
        joined_twice(joiners, peer);
    } else {
        boot_joiner_t *joiner = joiner_new(joiners, peer);
        if (joiner != NULL)
            joiner->state = JOINER_ADDRESS;
    }
}

static void admit_child(void *user, boot_stranger_t *peer)
{
    boot_joiners_t *joiners = user;
    if (!is_sane(joiners, peer))
        return;
    boot_edge_t *edge = boot_edge_of(joiners->boot, peer->hello.rank);
    if (joiners->boot->rank == 0 || edge == NULL || peer->hello.rank < joiners->boot->rank)
        no_place(joiners, peer);
    else if (edge->open)
        joined_twice(joiners, peer);
    else
        boot_edge_adopt(edge, &peer->conn);
}

/* At rank 0, by a rank that has let go of its first connection. */
static void admit_question(void *user, boot_stranger_t *peer)
{
    boot_joiners_t *joiners = user;
    if (joiners->boot->rank != 0) {
        no_place(joiners, peer);
    } else if (peer->hello.size != joiners->boot->size) {
        (void)is_sane(joiners, peer);
    } else {
        boot_joiner_t *joiner = joiner_new(joiners, peer);
        if (joiner != NULL)
            joiner->state = JOINER_ASKS;
    }
}

static const boot_admit_rules_t rules = {
    .most = STRANGERS_MAX,
    .may = {{BOOT_ROLE_JOIN, admit_joiner}, {BOOT_ROLE_CHILD, admit_child}, {BOOT_ROLE_ASK, admit_question}},
    .others = no_place};

void boot_joiners_open(boot_joiners_t *joiners, comm_boot_t *boot, int fd)
{
    joiners->boot = boot;
    boot_hold(fd);
    boot_admit_open(&joiners->admit, boot, &rules, joiners, fd);
}

/* ---- joiners ---------------------------------------------------------------------------------------- */

/* Takes one message of a joiner; 0: more bytes are needed. */
static int joiner_step(boot_joiners_t *joiners, boot_joiner_t *joiner)
{
    boot_message_t m;
    const char *why;
    int got = boot_conn_next(&joiner->conn, &m, &why);
    if (got < 0)
        joiner_refuse(joiners, joiner, got == -2 ? BOOT_REFUSED_MEMORY : BOOT_REFUSED_GARBLED, why);
    else if (got == 1 && joiner->state == JOINER_ADDRESS)
        joiner_register(joiners, joiner, &m);
    else if (got == 1 && (joiner->state != JOINER_LEAVING || m.type == BOOT_ASK))
        joiner_answer(joiners, joiner, &m); /* the question may have crossed what makes it leave */
    return got == 1;                        /* what else a leaving joiner says matters no more */
}

static void joiner_handle(boot_joiners_t *joiners, boot_joiner_t *joiner, short revents)
{
    if (revents & POLLOUT)
        boot_conn_flush(&joiner->conn);
    if (!(revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)))
        return;
    boot_read_t got = boot_conn_read(&joiner->conn, RECEIVE_LIMIT);
    const int no_memory = got == BOOT_READ_ERROR && errno == ENOMEM;
    while (joiner->state != JOINER_GONE && joiner_step(joiners, joiner))
        ;
    if (joiner->state == JOINER_GONE || got == BOOT_READ_SOME || got == BOOT_READ_AGAIN)
        return;
    if (joiner->state == JOINER_LEAVING)
        joiner_drop(joiners, joiner);
    else if (no_memory)
        joiner_refuse(joiners, joiner, BOOT_REFUSED_MEMORY, "no memory");
    else
        joiner_refuse(joiners, joiner, BOOT_REFUSED_CLOSED, "it closed during the handshake");
}

/* Nobody can be accepted: is that for a while, as joiners or strangers will go soon? */
static gyre_status_t no_accept(const boot_joiners_t *joiners, int err)
{
    int passing = boot_admit_count(&joiners->admit) - 1;
    for (int i = 0; i < joiners->peers_n; i++)
        passing += joiners->peers[i].state == JOINER_LEAVING;
    if (err == ENOMEM)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    if (err != EMFILE && err != ENFILE)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, err, "accept");
    if (passing > 0)
        return GYRE_OK;
    return gyre_fail_errno(
        GYRE_ERR_NO_MEMORY, err,
        "rank %d ran out of descriptors while %d ranks joined: raise the limit (ulimit -n)",
        joiners->boot->rank, joiners->peers_n);
}

/* Forgets joiners that are gone and closes those whose time is over; returns the nearest deadline. */
static base_time_t joiners_tidy(boot_joiners_t *joiners, base_time_t deadline)
{
    base_time_t now = base_now(), strangers = boot_admit_tick(&joiners->admit, now);
    int kept = 0;
    if (strangers < deadline)
        deadline = strangers;
    for (int i = 0; i < joiners->peers_n; i++) {
        boot_joiner_t *joiner = &joiners->peers[i];
        if (joiner->state == JOINER_LEAVING && joiner->deadline <= now)
            joiner_drop(joiners, joiner);
        else if (joiner->state != JOINER_GONE && joiner->deadline <= now)
            joiner_refuse(joiners, joiner, BOOT_REFUSED_SLOW, "it took too long to say where it listens");
        if (joiner->state == JOINER_GONE)
            continue;
        if (joiner->deadline < deadline)
            deadline = joiner->deadline;
        if (kept != i)
            joiners->peers[kept] = *joiner;
        kept++;
    }
    joiners->peers_n = kept;
    return deadline;
}

/* One turn of the poll loop over the socket, strangers, joiners and the edges that exist already. */
static gyre_status_t joiners_turn(boot_joiners_t *joiners, base_time_t deadline)
{
    comm_boot_t *boot = joiners->boot;
    boot_edge_t *edges[BOOT_EDGES_MAX];
    base_time_t until = joiners_tidy(joiners, deadline);
    int peers_n = joiners->peers_n, admit_room = boot_admit_count(&joiners->admit), err = 0;
    struct pollfd *polls = calloc((size_t)(peers_n + admit_room) + BOOT_EDGES_MAX, sizeof(*polls));
    if (polls == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for joining ranks");
    for (int i = 0; i < peers_n; i++) {
        polls[i].fd = joiners->peers[i].conn.fd;
        polls[i].events = (short)(boot_conn_unsent(&joiners->peers[i].conn) ? POLLIN | POLLOUT : POLLIN);
    }
    struct pollfd *admits = polls + peers_n;
    int admits_n = boot_admit_polls(&joiners->admit, admits, admit_room);
    boot_lock(boot);
    int edges_n = boot_polls(boot, admits + admits_n, edges);
    boot_unlock(boot);
    int n = poll(polls, (nfds_t)(peers_n + admits_n + edges_n), base_poll_ms(until));
    gyre_status_t st = n < 0 && errno != EINTR ? gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "poll") : GYRE_OK;
    boot_lock(boot);
    for (int i = 0; i < edges_n && n > 0; i++)
        boot_handle(boot, edges[i], admits[admits_n + i].revents);
    for (int i = 0; i < peers_n && n > 0; i++)
        if (polls[i].revents != 0 && joiners->peers[i].state != JOINER_GONE)
            joiner_handle(joiners, &joiners->peers[i], polls[i].revents);
    for (int i = 0; i < admits_n && n > 0 && err == 0; i++)
        err = boot_admit_handle(&joiners->admit, &admits[i]);
    boot_unlock(boot);
    free(polls);
    return st == GYRE_OK && err != 0 ? no_accept(joiners, err) : st;
}

/* Those that gave up because others are missing are not to blame. */
static int is_missing(const boot_joiners_t *joiners, int rank)
{
    if (rank >= joiners->boot->size)
        return 0;
    if (joiners->places != NULL)
        return rank > 0 &&
               (joiners->unseen > 0 ? !joiners->seen[rank] : joiners->places[rank].sa.sa_family == 0);
    const boot_edge_t *edge = rank > joiners->boot->rank ? boot_edge_of(joiners->boot, rank) : NULL;
    return edge != NULL && !edge->open;
}

void boot_joiners_missing(const boot_joiners_t *joiners, char *text, size_t bytes)
{
    static const char more[] = ", ...";
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < joiners->boot->size; r++) {
        char part[32];
        int first = r;
        if (!is_missing(joiners, r))
            continue;
        while (is_missing(joiners, r + 1))
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
static gyre_status_t joiners_hopeless(const comm_boot_t *boot)
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

/* The deadline has passed. */
static gyre_status_t waited_in_vain(const boot_joiners_t *joiners)
{
    comm_boot_t *boot = joiners->boot;
    char mine[160], all[160], refused[256];
    boot_joiners_missing(joiners, mine, sizeof(mine));
    boot_refusals_text(&joiners->admit.refused, refused, sizeof(refused));
    if (joiners->places != NULL)
        return gyre_fail(
            GYRE_ERR_TIMEOUT,
            "rank 0 waited in vain for rank(s) %s to join (%d of %d are here): were they started, and "
            "with the same GYRE_ROOT?%s%s",
            mine, boot->size - joiners->missing, boot->size,
            *refused ? " Connections that were refused: " : "", refused);
    boot_lock(boot);
    gyre_status_t asked = boot_ask_missing(boot, base_deadline(COMM_BLAME_SECONDS), all, sizeof(all));
    boot_unlock(boot);
    if (asked != GYRE_OK)
        return joiners_hopeless(boot); /* somebody else knew meanwhile */
    if (all[0] != '\0')
        return gyre_fail(GYRE_ERR_TIMEOUT, "rank %d waited in vain" BOOT_MISSING, boot->rank, all);
    return gyre_fail(GYRE_ERR_TIMEOUT, "rank %d waited in vain for its child rank(s) %s to connect",
                     boot->rank, mine);
}

/* Rank 0 alone knows who is missing. */
static void log_missing(const boot_joiners_t *joiners, const boot_patience_t *patience)
{
    char missing[160], waited[24];
    if (joiners->missing == 0)
        return;
    boot_joiners_missing(joiners, missing, sizeof(missing));
    log_warning("rank 0 has waited for %s for rank(s) %s to join (%d of %d are here)",
                boot_patience_text(patience, waited), missing, joiners->boot->size - joiners->missing,
                joiners->boot->size);
}

static int joiners_done(const boot_joiners_t *joiners)
{
    const comm_boot_t *boot = joiners->boot;
    for (int i = 0; i < boot->edges_n; i++)
        if (!boot->edges[i].open)
            return 0;
    if (joiners->missing > 0)
        return 0;
    for (int i = 0; i < joiners->peers_n; i++)
        if (joiners->peers[i].state == JOINER_LEAVING && boot_conn_unsent(&joiners->peers[i].conn))
            return 0;
    return 1;
}

gyre_status_t boot_joiners_keep(boot_joiners_t *joiners, base_time_t deadline)
{
    gyre_status_t st = GYRE_OK;
    boot_patience_t patience = boot_patience_begin();
    joiners->boot->joiners = joiners;
    while (st == GYRE_OK && !joiners_done(joiners)) {
        st = joiners_turn(joiners, patience.at < deadline ? patience.at : deadline);
        if (st == GYRE_OK && boot_patience_over(&patience))
            log_missing(joiners, &patience);
        if (st == GYRE_OK)
            st = joiners_hopeless(joiners->boot);
        if (st == GYRE_OK && !joiners_done(joiners) && base_poll_ms(deadline) == 0)
            st = waited_in_vain(joiners);
    }
    joiners->boot->joiners = NULL;
    return st;
}

void boot_joiners_close(boot_joiners_t *joiners, gyre_status_t st)
{
    for (int i = 0; i < joiners->peers_n; i++) {
        if (st != GYRE_OK && joiners->peers[i].state == JOINER_WAITING)
            joiner_give_up(joiners, &joiners->peers[i], st, gyre_last_error());
        boot_count_messages(joiners->boot, &joiners->peers[i].conn);
        boot_conn_close(&joiners->peers[i].conn);
    }
    boot_admit_close(&joiners->admit);
    free(joiners->peers);
    free(joiners->places);
    free(joiners->seen);
    if (joiners->inherited)
        boot_keep(joiners->admit.fd);
    else if (joiners->admit.fd >= 0)
        boot_let_go(joiners->admit.fd);
}

void boot_joiners_linger(boot_joiners_t *joiners, gyre_status_t st)
{
    char text[BOOT_TEXT], why[BOOT_TEXT + 32];
    base_time_t until = base_deadline(LINGER_SECONDS);
    snprintf(text, sizeof(text), "%s", gyre_last_error());
    snprintf(why, sizeof(why), "rank %d could not join: %.400s", joiners->boot->rank, text);
    boot_lock(joiners->boot);
    boot_note_abort(joiners->boot, BOOT_ABORT_JOB, st, why, NULL);
    for (int i = 0; i < joiners->peers_n; i++)
        if (joiners->peers[i].state == JOINER_WAITING)
            joiner_give_up(joiners, &joiners->peers[i], st, text);
    boot_unlock(joiners->boot);
    joiners->boot->joiners = joiners;
    while (base_poll_ms(until) != 0 && joiners_turn(joiners, until) == GYRE_OK)
        ;
    joiners->boot->joiners = NULL;
    (void)gyre_fail_quiet(st, "%s", text);
}
