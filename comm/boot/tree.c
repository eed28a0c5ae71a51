/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/tree.c: the edges of the binomial tree: polling, reading and dispatching frames, and waiting for
 * them. See tree.h. */
#include "comm/boot/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

/* How many of the locks this thread holds, or is about to take. */
static _Thread_local volatile sig_atomic_t locking;

void boot_lock(comm_boot_t *boot)
{
    locking++;
    atomic_signal_fence(memory_order_seq_cst);
    pthread_mutex_lock(&boot->lock);
    base_log_hurry(1);
}

void boot_unlock(comm_boot_t *boot)
{
    base_log_hurry(-1);
    pthread_mutex_unlock(&boot->lock);
    atomic_signal_fence(memory_order_seq_cst);
    locking--;
}

int boot_locking(void)
{
    return locking != 0;
}

int boot_tree_parent(int place)
{
    return place == 0 ? -1 : place & (place - 1);
}

int boot_tree_end(int place, int n)
{
    if (place == 0)
        return n;
    int low = place & -place;
    return n - place < low ? n : place + low;
}

int boot_tree_children(int place, int n, int *children)
{
    int found = 0;
    int low = place == 0 ? n : place & -place;
    for (int k = 1; k < low && k < n - place && found < 31; k *= 2)
        children[found++] = place + k;
    return found;
}

int boot_member(const comm_boot_t *boot, int place)
{
    return boot->members != NULL ? boot->members[place] : place;
}

int boot_place(const comm_boot_t *boot, int rank)
{
    int low = 0, high = boot->members_n;
    if (rank < 0 || rank >= boot->size)
        return -1;
    if (boot->members == NULL)
        return rank;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (boot->members[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < boot->members_n && boot->members[low] == rank ? low : -1;
}

boot_edge_t *boot_edge_of(comm_boot_t *boot, int rank)
{
    for (int i = 0; i < boot->edges_n; i++)
        if (boot->edges[i].rank == rank)
            return &boot->edges[i];
    return NULL;
}

boot_edge_t *boot_edges_new(const comm_boot_t *boot, int *n)
{
    int children[31];
    int has_parent = boot->place > 0;
    int count = boot_tree_children(boot->place, boot->members_n, children);
    boot_edge_t *edges = calloc((size_t)(count + has_parent) + 1, sizeof(*edges)); /* + 1: never of size 0 */
    if (edges == NULL)
        return NULL;
    *n = count + has_parent;
    for (int i = 0; i < *n; i++) {
        edges[i].conn.fd = -1;
        edges[i].place = i < has_parent ? boot_tree_parent(boot->place) : children[i - has_parent];
        edges[i].rank = boot_member(boot, edges[i].place);
    }
    return edges;
}

void boot_edge_adopt(boot_edge_t *edge, boot_conn_t *conn)
{
    boot_conn_move(&edge->conn, conn);
    edge->open = 1;
}

static void edge_close(boot_edge_t *edge)
{
    boot_conn_close(&edge->conn);
    edge->open = 0;
}

int boot_polls(comm_boot_t *boot, struct pollfd *polls, boot_edge_t **edges)
{
    int n = 0;
    for (int i = 0; i < boot->edges_n; i++) {
        boot_edge_t *edge = &boot->edges[i];
        if (!edge->open)
            continue;
        polls[n].fd = edge->conn.fd;
        polls[n].events = (short)(boot_conn_unsent(&edge->conn) ? POLLIN | POLLOUT : POLLIN);
        polls[n].revents = 0;
        edges[n++] = edge;
    }
    return n;
}

gyre_status_t boot_edge_send(comm_boot_t *boot, boot_edge_t *edge, boot_type_t type, const void *data,
                             size_t bytes)
{
    if (!edge->open)
        return GYRE_OK; /* its end was noted when it was closed */
    gyre_status_t st = boot_conn_send(&edge->conn, type, data, bytes);
    if (boot->watched && boot_conn_unsent(&edge->conn))
        boot->poke(boot->poke_user);
    return st;
}

int boot_step_keep(boot_buf_t *steps, const boot_message_t *m)
{
    unsigned char length[8];
    boot_put64(length, m->bytes);
    if (boot_buf_len(steps) > BOOT_MESSAGE_MAX || !boot_buf_reserve(steps, sizeof(length) + m->bytes))
        return 0;
    boot_buf_add(steps, length, sizeof(length)); /* both fit: room was made */
    boot_buf_add(steps, m->data, m->bytes);
    return 1;
}

int boot_step_front(const boot_edge_t *edge, const unsigned char **data, size_t *bytes)
{
    if (boot_buf_len(&edge->steps) == 0)
        return 0;
    *data = edge->steps.data + edge->steps.from + 8;
    *bytes = (size_t)boot_get64(edge->steps.data + edge->steps.from);
    return 1;
}

void boot_step_pop(boot_edge_t *edge)
{
    const unsigned char *data;
    size_t bytes;
    if (boot_step_front(edge, &data, &bytes))
        edge->steps.from += 8 + bytes;
    if (boot_buf_len(&edge->steps) == 0)
        boot_buf_free(&edge->steps);
}

static void dispatch(comm_boot_t *boot, boot_edge_t *edge, const boot_message_t *m)
{
    int is_parent = edge->rank < boot->rank;
    switch (m->type) {
    case BOOT_UP:
    case BOOT_DOWN:
        if ((m->type == BOOT_DOWN) == is_parent) {
            if (!boot_step_keep(&edge->steps, m))
                boot_note_unheard(boot, edge->rank);
            return;
        }
        break;
    case BOOT_GOODBYE:
        edge->left = 1;
        log_debug("bootstrap: rank %d left", edge->rank);
        return;
    case BOOT_LEFT:
        boot_take_left(boot, edge, m);
        return;
    case BOOT_DEAD:
        boot_take_dead(boot, edge, m);
        return;
    case BOOT_ABORT:
        boot_take_abort(boot, edge, m);
        return;
    case BOOT_ASK:
        boot_take_ask(boot, m);
        return;
    case BOOT_TELL:
        boot_take_tell(boot, m);
        return;
    case BOOT_LETTER:
        boot_take_letter(boot, m);
        return;
    case BOOT_SPEAKS:
        boot_take_speaks(boot, edge);
        return;
    case BOOT_BEAT:
        edge->traced = m->bytes == 1 && m->data[0] == 1;
        return;
    case BOOT_EXPELLED:
        boot_take_expelled(boot, edge, m);
        return;
    case BOOT_REJECT:
        if (is_parent) {
            char text[BOOT_TEXT];
            snprintf(text, sizeof(text), "rank %d refuses rank %d: %.*s", edge->rank, boot->rank,
                     (int)base_min_size(m->bytes, BOOT_TEXT), (const char *)m->data);
            boot_note_abort(boot, BOOT_ABORT_JOB, GYRE_ERR_BOOTSTRAP, text, edge);
            return;
        }
        break;
    case BOOT_JOIN:
    case BOOT_PARENT:
    case BOOT_RALLY:
    case BOOT_VIEW:
    case BOOT_WELCOME:
        break;
    }
    log_warning("bootstrap: rank %d sent an unexpected message of type %d", edge->rank, (int)m->type);
}

void boot_edge_lost(comm_boot_t *boot, boot_edge_t *edge, const char *how, int silent)
{
    char text[BOOT_TEXT];
    int left = edge->left;
    snprintf(text, sizeof(text), "%s", how);
    edge_close(edge);
    if (!left)
        boot_note_death(boot, edge->rank, text, silent);
}

void boot_handle(comm_boot_t *boot, boot_edge_t *edge, short revents)
{
    char how[BOOT_TEXT];
    if (!edge->open || revents == 0)
        return;
    if (revents & POLLOUT)
        boot_conn_flush(&edge->conn);
    if (revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) {
        boot_read_t got = boot_conn_read(&edge->conn, BOOT_FRAME_HEAD + BOOT_FRAME_PAYLOAD + BOOT_FRAME_MAC);
        int err = errno;
        if (got == BOOT_READ_SOME)
            edge->ear = (boot_ear_t){.heard = base_now()};
        if (got == BOOT_READ_ERROR)
            snprintf(how, sizeof(how), "the connection to it failed: %s", strerror(err));
        boot_message_t m;
        const char *why = "";
        int next;
        while ((next = boot_conn_next(&edge->conn, &m, &why)) == 1)
            dispatch(boot, edge, &m);
        if (next == -2 || (got == BOOT_READ_ERROR && err == ENOMEM)) {
            boot_unheard_text(boot, how, sizeof(how));
            boot_edge_lost(boot, edge, how, 0);
        } else if (next < 0) {
            snprintf(how, sizeof(how), "its bootstrap connection is garbled: %s", why);
            boot_edge_lost(boot, edge, how, 0);
        } else if (got == BOOT_READ_EOF) {
            boot_edge_lost(boot, edge, "its connection closed", 0);
        } else if (got == BOOT_READ_ERROR) {
            boot_edge_lost(boot, edge, how, err == ETIMEDOUT || err == EHOSTUNREACH);
        } else if (edge->left) {
            edge_close(edge);
        }
    }
    pthread_cond_broadcast(&boot->moved);
}

/* Sleeps until the watcher's thread has handled something. */
static gyre_status_t wait_watched(comm_boot_t *boot, base_time_t deadline)
{
    int ms = base_poll_ms(deadline);
    if (ms < 0) {
        pthread_cond_wait(&boot->moved, &boot->lock);
        return GYRE_OK;
    }
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += (long)(ms % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    if (ms == 0 || pthread_cond_timedwait(&boot->moved, &boot->lock, &at) == ETIMEDOUT)
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the deadline passed");
    return GYRE_OK;
}

gyre_status_t boot_wait(comm_boot_t *boot, base_time_t deadline)
{
    if (boot->watched)
        return wait_watched(boot, deadline);
    struct pollfd polls[BOOT_EDGES_MAX];
    boot_edge_t *edges[BOOT_EDGES_MAX];
    int n = boot_polls(boot, polls, edges);
    boot_unlock(boot);
    int got = poll(polls, (nfds_t)n, base_poll_ms(deadline));
    int err = errno;
    boot_lock(boot);
    if (got < 0 && err != EINTR)
        return gyre_fail_errno(GYRE_ERR_SYSTEM, err, "poll");
    if (got == 0)
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the deadline passed");
    for (int i = 0; i < n && got > 0; i++)
        boot_handle(boot, edges[i], polls[i].revents);
    return GYRE_OK;
}
