/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/failures.c: deaths, leavings after an error, and aborts: noted once, flooded along the tree.
 *
 * A flood on a tree reaches every rank once for each rank that starts it; what is known already goes no
 * further. The neighbours of a dead rank all start one, so that every part of the cut tree learns of it. What
 * is logged comes after the flood. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/tree.h"

/* Of the ranks that wait, the lowest speaks first, and the others hear it before their time comes. */
#define STAGGER_LEAST 0.06 /* seconds between one rank's time and the next one's, */
enum { STAGGER_MOST = 50 /* up to this rank */ };

static void flood(comm_boot_t *boot, boot_type_t type, const unsigned char *head, size_t head_bytes,
                  const char *text, const boot_edge_t *from)
{
    unsigned char frame[16 + BOOT_TEXT];
    size_t text_bytes = strlen(text);
    if (head_bytes > 0)
        memcpy(frame, head, head_bytes);
    memcpy(frame + head_bytes, text, text_bytes);
    for (int i = 0; i < boot->edges_n; i++)
        if (&boot->edges[i] != from && boot->edges[i].open &&
            boot_edge_send(boot, &boot->edges[i], type, frame, head_bytes + text_bytes) != GYRE_OK)
            log_error("bootstrap: rank %d could not be sent the news", boot->edges[i].rank);
}

/* Copies a text that came over the wire: bounded, ended, and printable. */
void boot_copy_text(char out[BOOT_TEXT], const unsigned char *text, size_t bytes)
{
    size_t n = bytes < BOOT_TEXT - 1 ? bytes : BOOT_TEXT - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = text[i] < 32 || text[i] == 127 ? ' ' : (char)text[i];
    out[n] = '\0';
}

static void trouble(comm_boot_t *boot)
{
    atomic_fetch_add_explicit(&boot->trouble, 1, memory_order_release);
    pthread_cond_broadcast(&boot->moved);
}

const boot_death_t *boot_death_of(const comm_boot_t *boot, int rank)
{
    for (int i = 0; i < boot->deaths_n; i++)
        if (boot->deaths[i].rank == rank)
            return &boot->deaths[i];
    return NULL;
}

static int is_among(int rank, const int *ranks, int n)
{
    for (int i = 0; ranks != NULL && i < n; i++)
        if (ranks[i] == rank)
            return 1;
    return ranks == NULL;
}

const boot_death_t *boot_first_death(const comm_boot_t *boot, const int *ranks, int n)
{
    const boot_death_t *left = NULL;
    for (int i = 0; i < boot->deaths_n; i++) {
        const boot_death_t *death = &boot->deaths[i];
        if (death->rank >= boot->size || !is_among(death->rank, ranks, n))
            continue;
        if (!death->left)
            return death;
        if (left == NULL)
            left = death;
    }
    return left;
}

void boot_death_text(const boot_death_t *death, char *text, size_t bytes)
{
    if (death->left)
        snprintf(text, bytes, "left after an error");
    else
        snprintf(text, bytes, "died: %s", death->how);
}

const boot_abort_t *boot_abort_of(const comm_boot_t *boot, uint64_t id)
{
    for (int i = 0; i < boot->aborts_n; i++)
        if (boot->aborts[i].id == id || boot->aborts[i].id == BOOT_ABORT_JOB)
            return &boot->aborts[i];
    return NULL;
}

/* A new entry for `rank`; NULL: it has one, or there is no memory. A newcomer's death may be known here
 * before the membership with the newcomer is: it counts once that is taken up. */
static boot_death_t *note(comm_boot_t *boot, int rank)
{
    if (rank < 0 || rank - boot->size >= BOOT_NEWCOMERS_MAX || rank == boot->rank ||
        boot_death_of(boot, rank) != NULL)
        return NULL;
    boot_death_t *deaths = realloc(boot->deaths, (size_t)(boot->deaths_n + 1) * sizeof(*deaths));
    if (deaths == NULL) {
        log_error("bootstrap: no memory to note the end of rank %d", rank);
        return NULL;
    }
    boot->deaths = deaths;
    boot_death_t *death = &deaths[boot->deaths_n++];
    *death = (boot_death_t){.rank = rank};
    return death;
}

static void boot_note_left(comm_boot_t *boot, int rank, const boot_edge_t *from)
{
    boot_death_t *death = note(boot, rank);
    if (death == NULL)
        return;
    death->left = 1;
    trouble(boot);
    unsigned char head[4];
    boot_put32(head, (uint32_t)rank);
    flood(boot, BOOT_LEFT, head, sizeof(head), "", from);
    log_info("rank %d left after an error", rank);
}

void boot_forget_unborn(comm_boot_t *boot)
{
    int n = 0;
    for (int i = 0; i < boot->deaths_n; i++)
        if (boot->deaths[i].rank < boot->size)
            boot->deaths[n++] = boot->deaths[i];
    boot->deaths_n = n;
}

size_t boot_death_pack(const boot_death_t *death, unsigned char out[BOOT_DEATH_BYTES])
{
    size_t bytes = strlen(death->how);
    boot_put32(out, (uint32_t)death->rank);
    if (death->left)
        return 4;
    boot_put32(out + 4, (uint32_t)death->silent);
    memcpy(out + 8, death->how, bytes);
    return 8 + bytes;
}

static void note_death(comm_boot_t *boot, int rank, const char *how, int silent, const boot_edge_t *from)
{
    boot_death_t *death = note(boot, rank);
    if (death == NULL)
        return;
    snprintf(death->how, sizeof(death->how), "%s", how);
    death->silent = silent;
    trouble(boot);
    unsigned char head[8];
    boot_put32(head, (uint32_t)rank);
    boot_put32(head + 4, (uint32_t)silent);
    flood(boot, BOOT_DEAD, head, sizeof(head), death->how, from);
    if (from == NULL)
        log_warning("rank %d died: %s", rank, how);
    else
        log_info("rank %d died: %s (reported by rank %d)", rank, how, from->rank);
}

void boot_note_death(comm_boot_t *boot, int rank, const char *how, int silent)
{
    char text[BOOT_TEXT + BOOT_HOST_BYTES];
    if (boot->places != NULL && rank >= 0 && rank < boot->places_n && boot->places[rank].host[0] != '\0')
        snprintf(text, sizeof(text), "%.200s (host %.39s)", how, boot->places[rank].host);
    else
        snprintf(text, sizeof(text), "%.200s", how);
    note_death(boot, rank, text, silent, NULL);
}

void boot_settle_death(comm_boot_t *boot, int rank, int silent)
{
    for (int i = 0; i < boot->deaths_n; i++) {
        boot_death_t *death = &boot->deaths[i];
        if (death->rank != rank || death->left)
            continue;
        death->silent = death->silent || silent;
        death->proved = !death->silent;
        pthread_cond_broadcast(&boot->moved);
    }
}

void boot_unheard_text(const comm_boot_t *boot, char *text, size_t bytes)
{
    snprintf(text, bytes, "rank %d has no memory for its messages", boot->rank);
}

void boot_note_unheard(comm_boot_t *boot, int rank)
{
    char how[64];
    boot_unheard_text(boot, how, sizeof(how));
    boot_note_death(boot, rank, how, 0);
}

/* A new entry; 0: there is one, or no memory. */
static int note_abort(comm_boot_t *boot, uint64_t id, gyre_status_t status, const char *text)
{
    if (boot_abort_of(boot, id) != NULL)
        return 0; /* the first one counts */
    if (boot->aborts_n == BOOT_ABORTS_MAX)
        memmove(boot->aborts, boot->aborts + 1, (size_t)--boot->aborts_n * sizeof(*boot->aborts));
    boot_abort_t *aborts = realloc(boot->aborts, (size_t)(boot->aborts_n + 1) * sizeof(*aborts));
    if (aborts == NULL) {
        log_error("bootstrap: no memory to note that communicator %llx was aborted", (unsigned long long)id);
        return 0;
    }
    boot->aborts = aborts;
    boot_abort_t *entry = &aborts[boot->aborts_n++];
    entry->id = id;
    entry->status = status;
    snprintf(entry->text, sizeof(entry->text), "%s", text);
    trouble(boot);
    return 1;
}

void boot_note_abort(comm_boot_t *boot, uint64_t id, gyre_status_t status, const char *text,
                     const boot_edge_t *from)
{
    char copy[BOOT_TEXT];
    unsigned char head[12];
    snprintf(copy, sizeof(copy), "%s", text);
    if (!note_abort(boot, id, status, copy))
        return;
    boot_put64(head, id);
    boot_put32(head + 8, (uint32_t)status);
    flood(boot, BOOT_ABORT, head, sizeof(head), copy, from);
    log_info("communicator %llx was aborted: %s", (unsigned long long)id, copy);
}

void boot_take_expelled(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m)
{
    char text[BOOT_TEXT], why[2 * BOOT_TEXT];
    boot_copy_text(text, m->data, m->bytes);
    snprintf(why, sizeof(why), "rank %d is no longer one of the job: %s", boot->rank, text);
    why[BOOT_TEXT - 1] = '\0';
    if (from != NULL)
        from->left = 1; /* its closing says nothing of it */
    note_abort(boot, BOOT_ABORT_JOB, GYRE_ERR_ABORTED, why);
    log_warning("%s", why);
}

void boot_take_dead(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m)
{
    char how[BOOT_TEXT];
    if (m->bytes < 8)
        return;
    boot_copy_text(how, m->data + 8, m->bytes - 8);
    note_death(boot, (int)boot_get32(m->data), how, boot_get32(m->data + 4) == 1, from);
}

void boot_take_left(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m)
{
    if (m->bytes != 4)
        return;
    int rank = (int)boot_get32(m->data);
    if (from != NULL && rank == from->rank)
        from->left = 1; /* its closing says nothing new */
    boot_note_left(boot, rank, from);
}

void boot_take_abort(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m)
{
    char text[BOOT_TEXT];
    if (m->bytes < 12)
        return;
    uint32_t status = boot_get32(m->data + 8);
    boot_copy_text(text, m->data + 12, m->bytes - 12);
    boot_note_abort(boot, boot_get64(m->data),
                    status > 1 && status < 1000 ? (gyre_status_t)status : GYRE_ERR_ABORTED, text, from);
}

/* ---- long waits ---------------------------------------------------------------------------------------- */

base_time_t comm_boot_patience(const comm_boot_t *boot, base_time_t began, unsigned spoken)
{
    const double patience = base_setting_seconds(SET_PATIENCE);
    const double step = patience / 100 > STAGGER_LEAST ? patience / 100 : STAGGER_LEAST;
    double after = patience;
    if (patience <= 0)
        return BASE_TIME_NEVER;
    while (spoken-- > 0)
        after *= 3;
    after += step * (boot->rank < STAGGER_MOST ? boot->rank : STAGGER_MOST);
    return began + (base_time_t)(after * 1e9);
}

boot_patience_t boot_patience_begin(void)
{
    const double patience = base_setting_seconds(SET_PATIENCE);
    return (boot_patience_t){base_now(), patience > 0 ? base_deadline(patience) : BASE_TIME_NEVER};
}

int boot_patience_over(boot_patience_t *patience)
{
    if (base_now() < patience->at)
        return 0;
    patience->at += 2 * (patience->at - patience->began);
    return 1;
}

const char *boot_patience_text(const boot_patience_t *patience, char text[24])
{
    const double seconds = (double)(base_now() - patience->began) * 1e-9;
    snprintf(text, 24, "%.*f s", seconds < 10, seconds);
    return text;
}

static void be_quiet(comm_boot_t *boot)
{
    boot->quiet_until = base_now() + (base_time_t)(1.8 * base_setting_seconds(SET_PATIENCE) * 1e9);
}

/* comm_boot_may_speak, under the lock. */
static int may_speak(comm_boot_t *boot)
{
    if (base_now() < boot->quiet_until)
        return 0;
    be_quiet(boot);
    flood(boot, BOOT_SPEAKS, NULL, 0, "", NULL);
    return 1;
}

int comm_boot_may_speak(comm_boot_t *boot)
{
    boot_lock(boot);
    int may = may_speak(boot);
    boot_unlock(boot);
    return may;
}

void boot_take_speaks(comm_boot_t *boot, const boot_edge_t *from)
{
    be_quiet(boot);
    flood(boot, BOOT_SPEAKS, NULL, 0, "", from);
}
