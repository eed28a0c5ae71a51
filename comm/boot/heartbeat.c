/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/heartbeat.c: heartbeats on the edges of the bootstrap's tree.
 *
 * A closed connection shows a dead process at once. A connection does not show a stopped process, whose
 * kernel goes on acknowledging. It does not show a host that is cut off while nothing is sent. So every rank
 * sends BOOT_BEAT to each neighbour a few times within the time after which silence counts as death. The
 * watcher's thread sends the beats: a rank that computes for an hour still beats.
 *
 * A rank that a debugger holds is silent, too, and lives: its beats say that it is traced, and a rank of the
 * same host sees it in /proc. So does a rank that gets no core where many processes want one: a rank of the
 * same host sees that it could run.
 *
 * Cost per rank and beat: one wake-up, a look at /proc, and a send and a receive for each tree connection
 * (two on average). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/machine/process.h"
#include "comm/boot/reconnect.h"

enum { BEATS = 4 }; /* in the time that may pass in silence: three may be late */

static base_time_t every(const comm_boot_t *boot)
{
    return boot->silence / BEATS;
}

void boot_beat_begin(comm_boot_t *boot)
{
    base_time_t now = base_now();
    for (int i = 0; i < boot->edges_n; i++) {
        boot->edges[i].ear.heard = now;
        boot->edges[i].spoke = 0;
    }
    boot->next_beat = now;
}

/* Its process can be looked at if both ranks are in the same PID namespace of the same machine; if they share
 * the network, too, nothing can be cut between them. 0: not so. */
static int process_of(const comm_boot_t *boot, int rank)
{
    if (boot->places == NULL || rank < 0 || rank >= boot->places_n || boot->rank >= boot->places_n)
        return 0;
    const boot_place_t *its = &boot->places[rank], *mine = &boot->places[boot->rank];
    if (boot_get32(mine->machine) == 0 || memcmp(its->machine, mine->machine, sizeof(mine->machine)) != 0)
        return 0;
    return (int)boot_get32(its->pid);
}

/* Why a rank lives that is silent; NULL: no reason is seen. */
static const char *excuse(const comm_boot_t *boot, int rank, int traced)
{
    static const char held[] = "held by a debugger";
    const int pid = process_of(boot, rank);
    if (traced)
        return held;
    if (pid == 0)
        return NULL;
    if (base_process_traced(pid))
        return held;
    return base_process_runs(pid) ? "but its process runs, or waits for a core" : NULL;
}

int boot_silent(const comm_boot_t *boot, int rank, const boot_conn_t *conn, int traced, boot_ear_t *ear,
                base_time_t now)
{
    if (now - ear->heard < boot->silence)
        return 0;
    const char *why = excuse(boot, rank, traced);
    struct pollfd unread = {.fd = conn->fd, .events = POLLIN, .revents = 0};
    if (why == NULL && !ear->excused && poll(&unread, 1, 0) <= 0)
        return 1;
    if (why != NULL && !ear->excused)
        log_warning("rank %d is silent, %s: the job waits for it, and operations end at their deadline "
                    "(GYRE_TIMEOUT)",
                    rank, why);
    ear->excused = why != NULL; /* after that, it has the same time again to be heard of */
    ear->heard = now;
    return 0;
}

static void lost(comm_boot_t *boot, boot_edge_t *edge, base_time_t now)
{
    char text[BOOT_TEXT];
    snprintf(text, sizeof(text),
             "rank %d heard nothing from it for %.1f s: it was stopped or cut off (GYRE_HEARTBEAT)",
             boot->rank, (double)(now - edge->ear.heard) * 1e-9);
    /* Should it wake up or be connected again, it learns why nobody wants to talk to it any more. */
    if (boot_conn_send(&edge->conn, BOOT_EXPELLED, text, strlen(text)) != GYRE_OK)
        log_warning("bootstrap: rank %d cannot be sent the news that it counts as dead", edge->rank);
    snprintf(text, sizeof(text), "silent for %.1f s, stopped or cut off (GYRE_HEARTBEAT sets the limit)",
             (double)(now - edge->ear.heard) * 1e-9);
    boot_edge_lost(boot, edge, text, 1);
}

/* A death cuts the tree, and then word of the next one may not come. Those of this host are seen all the
 * same, until the members are agreed on anew. */
static void look_for_ended(comm_boot_t *boot)
{
    if (boot_first_death(boot, boot->members, boot->members_n) == NULL)
        return;
    for (int place = 0; place < boot->members_n; place++) {
        const int rank = boot_member(boot, place), pid = process_of(boot, rank);
        if (pid > 0 && rank != boot->rank && boot_death_of(boot, rank) == NULL && kill(pid, 0) != 0 &&
            errno == ESRCH)
            boot_note_death(boot, rank, "its process has ended", 0);
    }
}

base_time_t boot_beat(comm_boot_t *boot)
{
    base_time_t now = base_now(), next;
    if (boot->silence == 0)
        return BASE_TIME_NEVER;
    /* After this process itself was stopped, or starved of its cores, what it has not heard says nothing
     * of the others. */
    if (now - boot->next_beat > every(boot)) {
        for (int i = 0; i < boot->edges_n; i++)
            boot->edges[i].ear.heard = now;
        boot_listener_rested(boot, now);
    }
    next = now + every(boot);
    int traced = -1; /* not looked yet: the watcher calls this after each message, too */
    for (int i = 0; i < boot->edges_n; i++) {
        boot_edge_t *edge = &boot->edges[i];
        if (!edge->open || edge->left)
            continue;
        if (boot_silent(boot, edge->rank, &edge->conn, edge->traced, &edge->ear, now)) {
            lost(boot, edge, now);
            continue;
        }
        if (now - edge->spoke >= every(boot)) {
            traced = traced < 0 ? base_process_traced((int)getpid()) : traced;
            const unsigned char says = (unsigned char)traced;
            if (boot_conn_send(&edge->conn, BOOT_BEAT, &says, says) != GYRE_OK)
                log_warning("bootstrap: no memory for a heartbeat to rank %d", edge->rank);
            edge->spoke = now;
        }
        if (edge->ear.heard + boot->silence < next)
            next = edge->ear.heard + boot->silence;
        if (edge->spoke + every(boot) < next)
            next = edge->spoke + every(boot);
    }
    look_for_ended(boot);
    boot->next_beat = next;
    return next;
}
