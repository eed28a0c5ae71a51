/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/heartbeat.c: heartbeats on the edges of the bootstrap's tree.
 *
 * A closed connection shows a dead process at once. A connection does not show a stopped process, whose
 * kernel goes on acknowledging. It does not show a host that is cut off while nothing is sent. So every rank
 * sends BOOT_BEAT to each neighbour a few times within the time after which silence counts as death. The
 * watcher's thread sends the beats: a rank that computes for an hour still beats.
 *
 * A rank that a debugger holds is silent, too, and lives: its beats say that it is traced, and a rank of the
 * same host sees it in /proc.
 *
 * Cost per rank and beat: one wake-up, a look at /proc, and a send and a receive for each tree connection
 * (two on average). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
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
        boot->edges[i].heard = now;
        boot->edges[i].spoke = 0;
    }
    boot->next_beat = now;
}

/* 1: a debugger traces this process. 0 also where /proc does not say. */
static int is_traced(int pid)
{
    char path[40], line[128];
    int tracer = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && tracer == 0 && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "TracerPid: %d", &tracer) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return tracer != 0;
}

static int same_host(const comm_boot_t *boot, int rank)
{
    return boot->places != NULL && rank < boot->places_n && boot->rank < boot->places_n &&
           boot->places[rank].host[0] != '\0' &&
           strcmp(boot->places[rank].host, boot->places[boot->rank].host) == 0;
}

/* 1: that it is silent is a debugger's doing. */
static int is_held(const comm_boot_t *boot, const boot_edge_t *edge)
{
    return edge->traced ||
           (same_host(boot, edge->rank) && is_traced((int)boot_get32(boot->places[edge->rank].pid)));
}

static void silent(comm_boot_t *boot, boot_edge_t *edge, base_time_t now)
{
    char text[BOOT_TEXT];
    snprintf(text, sizeof(text),
             "rank %d heard nothing from it for %.1f s: it was stopped or cut off (GYRE_HEARTBEAT)",
             boot->rank, (double)(now - edge->heard) * 1e-9);
    /* Should it wake up or be connected again, it learns why nobody wants to talk to it any more. */
    if (boot_conn_send(&edge->conn, BOOT_EXPELLED, text, strlen(text)) != GYRE_OK)
        log_warning("bootstrap: rank %d cannot be sent the news that it counts as dead", edge->rank);
    snprintf(text, sizeof(text), "silent for %.1f s, stopped or cut off (GYRE_HEARTBEAT sets the limit)",
             (double)(now - edge->heard) * 1e-9);
    boot_edge_lost(boot, edge, text, 1);
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
            boot->edges[i].heard = now;
        boot_listener_rested(boot, now);
    }
    next = now + every(boot);
    int traced = -1; /* not looked yet: the watcher calls this after each message, too */
    for (int i = 0; i < boot->edges_n; i++) {
        boot_edge_t *edge = &boot->edges[i];
        if (!edge->open || edge->left)
            continue;
        if (now - edge->heard >= boot->silence) {
            const int held = is_held(boot, edge);
            if (!held && !edge->held) {
                silent(boot, edge, now);
                continue;
            }
            if (!edge->held)
                log_warning("rank %d is silent, held by a debugger: the job waits for it, and operations end "
                            "at their deadline (GYRE_TIMEOUT)",
                            edge->rank);
            edge->held = held; /* let go of, it has the same time again to be heard of */
            edge->heard = now;
        }
        if (now - edge->spoke >= every(boot)) {
            traced = traced < 0 ? is_traced((int)getpid()) : traced;
            const unsigned char says = (unsigned char)traced;
            if (boot_conn_send(&edge->conn, BOOT_BEAT, &says, says) != GYRE_OK)
                log_warning("bootstrap: no memory for a heartbeat to rank %d", edge->rank);
            edge->spoke = now;
        }
        if (edge->heard + boot->silence < next)
            next = edge->heard + boot->silence;
        if (edge->spoke + every(boot) < next)
            next = edge->spoke + every(boot);
    }
    boot->next_beat = next;
    return next;
}
