/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/shrink.c: agrees on the ranks that are left, and makes the tree over them. See shrink.h. */
#include "comm/boot/shrink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"

enum { LOOK_MS = 50, AT_ONCE = 64 };
#define GRACE_NS (100 * BASE_MS)  /* that others have to come by themselves before they are dialled */
#define SLOW_NS  (1000 * BASE_MS) /* for a leader to be connected */

typedef struct {
    int leader;           /* the present one; -1: none yet */
    base_time_t began;    /* when it became that, as far as this rank is concerned */
    base_time_t limit;    /* how long those that do not come are waited for, from then */
    base_time_t deadline; /* of everything */
} rally_t;

static int is_dead(const comm_boot_t *boot, int rank)
{
    return boot_death_of(boot, rank) != NULL;
}

/* ---- what contacts say (the watcher's thread) ---------------------------------------------------------- */

static void tell_view(comm_boot_t *boot, boot_contact_t *contact)
{
    if (boot_conn_send(&contact->conn, BOOT_VIEW, boot->view.data + boot->view.from,
                       boot_buf_len(&boot->view)) != GYRE_OK)
        log_warning("bootstrap: cannot send rank %d the new membership", contact->rank);
    boot_contact_dismiss(boot, contact, BOOT_GOODBYE, "");
}

static void expel(comm_boot_t *boot, boot_contact_t *contact)
{
    char text[2 * BOOT_TEXT];
    const boot_death_t *death = boot_death_of(boot, contact->rank);
    if (death != NULL && !death->left)
        snprintf(text, sizeof(text), "rank %d took it for dead: %s", boot->rank, death->how);
    else
        snprintf(text, sizeof(text), "the others went on without it");
    text[BOOT_TEXT - 1] = '\0';
    boot_contact_dismiss(boot, contact, BOOT_EXPELLED, text);
}

/* Sends the dead ranks that we know to another rank, each once, for its agreement or for ours. */
static void tell_deaths(comm_boot_t *boot, boot_contact_t *contact)
{
    unsigned char frame[BOOT_DEATH_BYTES];
    while (contact->deaths_told < boot->deaths_n) {
        const boot_death_t *death = &boot->deaths[contact->deaths_told++];
        if (boot_place(boot, death->rank) < 0)
            continue;
        size_t bytes = boot_death_pack(death, frame);
        if (boot_conn_send(&contact->conn, death->left ? BOOT_LEFT : BOOT_DEAD, frame, bytes) != GYRE_OK)
            log_warning("bootstrap: cannot send rank %d the news that rank %d is dead", contact->rank,
                        death->rank);
    }
}

void boot_shrink_opened(comm_boot_t *boot, boot_contact_t *contact)
{
    if (contact->hello.role != BOOT_ROLE_RALLY)
        return;
    tell_deaths(boot, contact);
    if (is_dead(boot, contact->rank)) { /* it lives: it counts for the other part, and must not come back */
        boot_settle_death(boot, contact->rank, 1);
        expel(boot, contact);
    }
}

void boot_shrink_no_place(comm_boot_t *boot, boot_contact_t *contact)
{
    boot_contact_dismiss(boot, contact, BOOT_REJECT,
                         "this rank has no place for it: newcomers are let in by the job's lowest rank "
                         "(gyre_comm_address)");
}

void boot_shrink_newcomer(comm_boot_t *boot, boot_contact_t *contact)
{
    if (boot->place != 0) /* else it waits for grow.c */
        boot_shrink_no_place(boot, contact);
}

void boot_shrink_member(comm_boot_t *boot, boot_contact_t *contact)
{
    const boot_hello_t *h = &contact->hello;
    int known =
        h->rank >= 0 && (h->rank < boot->size || h->epoch > boot->epoch); /* a newcomer ahead of us? */
    if (!known || h->rank == boot->rank || h->wanted != boot->rank) {
        boot_shrink_no_place(boot, contact);
        return;
    }
    contact->rank = h->rank;
    if (is_dead(boot, h->rank) || (h->epoch < boot->epoch && boot_place(boot, h->rank) < 0))
        expel(boot, contact);
    else if (h->epoch < boot->epoch)
        tell_view(boot, contact); /* it has missed that */
}

static void take_view(comm_boot_t *boot, const boot_contact_t *contact, const boot_message_t *m)
{
    if (!boot_shrink_is_sane(m->data, m->bytes)) {
        log_warning("bootstrap: rank %d sent a malformed membership", contact->rank);
        return;
    }
    if (boot_get32(m->data) > boot->epoch && boot_get32(m->data) > boot->view_epoch &&
        !boot_shrink_keep(boot, m->data, m->bytes))
        log_error("bootstrap: no memory for a new membership");
}

void boot_shrink_said(comm_boot_t *boot, boot_contact_t *contact, const boot_message_t *m)
{
    switch (m->type) {
    case BOOT_BEAT:
        return;
    case BOOT_RALLY:
        contact->rallied = 1;
        return;
    case BOOT_JOIN:
        if (contact->hello.role != BOOT_ROLE_NEW || m->bytes != sizeof(contact->place))
            break;
        memcpy(&contact->place, m->data, sizeof(contact->place));
        contact->rallied = 1;
        return;
    case BOOT_UP:
        if (contact->hello.role == BOOT_ROLE_MEMBER && !contact->ours) {
            if (!boot_step_keep(&contact->steps, m))
                boot_note_unheard(boot, contact->rank);
            return;
        }
        break;
    case BOOT_ABORT:
        boot_take_abort(boot, NULL, m);
        return;
    case BOOT_DEAD:
        boot_take_dead(boot, NULL, m);
        return;
    case BOOT_LEFT:
        boot_take_left(boot, NULL, m);
        return;
    case BOOT_VIEW:
        take_view(boot, contact, m);
        return;
    case BOOT_EXPELLED:
        boot_take_expelled(boot, NULL, m);
        boot_contact_dismiss(boot, contact, BOOT_GOODBYE, "");
        return;
    case BOOT_REJECT:
        boot_copy_text(boot->refusal, m->data, m->bytes);
        boot_contact_dismiss(boot, contact, BOOT_GOODBYE, "");
        return;
    case BOOT_GOODBYE:
        boot_contact_dismiss(boot, contact, BOOT_GOODBYE, "");
        return;
    default:
        break;
    }
    log_warning("bootstrap: rank %d sent an unexpected message of type %d over a connection outside the tree",
                contact->rank, (int)m->type);
}

/* ---- agreeing (the caller's thread) -------------------------------------------------------------------- */

static int candidate(const comm_boot_t *boot)
{
    int place = 0;
    while (boot_member(boot, place) != boot->rank && is_dead(boot, boot_member(boot, place)))
        place++;
    return boot_member(boot, place);
}

/* Makes sure that somebody finds out whether `rank` lives. */
static gyre_status_t dial_once(comm_boot_t *boot, int rank)
{
    if (boot_listener_find(boot, rank, BOOT_ROLE_RALLY, 1) != NULL ||
        boot_listener_find(boot, rank, BOOT_ROLE_RALLY, 0) != NULL)
        return GYRE_OK;
    return boot_listener_dial(boot, rank, BOOT_ROLE_RALLY) != NULL ? GYRE_OK : GYRE_ERR_NO_MEMORY;
}

/* It lives, and yet everybody else goes on without it. */
static void did_not_come(comm_boot_t *boot, int rank, const rally_t *rally)
{
    char how[BOOT_TEXT];
    snprintf(how, sizeof(how), "did not come to gyre_comm_shrink within %.3g s", (double)rally->limit * 1e-9);
    boot_note_death(boot, rank, how, 1);
    boot_settle_death(boot, rank, 1);
    for (int ours = 0; ours < 2; ours++) {
        boot_contact_t *contact = boot_listener_find(boot, rank, BOOT_ROLE_RALLY, ours);
        if (contact != NULL)
            expel(boot, contact);
    }
}

/* Waits for the decision of a lower rank. */
static gyre_status_t follow(comm_boot_t *boot, int leader, const rally_t *rally)
{
    boot_contact_t *contact = boot_listener_find(boot, leader, BOOT_ROLE_RALLY, 1);
    if (base_now() - rally->began >= rally->limit && (contact == NULL || !contact->rallied)) {
        did_not_come(boot, leader, rally);
        return GYRE_OK;
    }
    /* If it does not answer, others may not, either: all are dialled side by side, rather than one after
     * the other. */
    if (base_now() - rally->began > SLOW_NS && (contact == NULL || contact->state != CONTACT_OPEN))
        for (int p = 0; p < boot->members_n && p < AT_ONCE; p++) {
            int rank = boot_member(boot, p);
            if (rank != boot->rank && !is_dead(boot, rank) && dial_once(boot, rank) != GYRE_OK)
                return GYRE_ERR_NO_MEMORY;
        }
    if (contact == NULL)
        return boot_listener_dial(boot, leader, BOOT_ROLE_RALLY) != NULL ? GYRE_OK : GYRE_ERR_NO_MEMORY;
    if (contact->state == CONTACT_OPEN && !contact->told) {
        contact->told = 1;
        return boot_conn_send(&contact->conn, BOOT_RALLY, NULL, 0);
    }
    return GYRE_OK;
}

/* Which part of a job may go on if its parts are alive but do not hear each other? At most one: the larger
 * part, or of equal halves the half with the lowest rank. Ranks whose end was seen do not count.
 * GYRE_QUORUM=any: each part that asks may go on. */
static gyre_status_t check_quorum(comm_boot_t *boot, int left)
{
    int silent = 0, lowest = boot->size;
    char who[128] = "";
    size_t used = 0;
    for (int i = 0; i < boot->deaths_n; i++) {
        const boot_death_t *death = &boot->deaths[i];
        if (!death->silent || boot_place(boot, death->rank) < 0)
            continue;
        silent++;
        if (used < sizeof who)
            used += (size_t)snprintf(who + used, sizeof who - used, "%s%d", used ? ", " : "", death->rank);
        lowest = death->rank < lowest ? death->rank : lowest;
    }
    if (left > silent || (left == silent && boot->rank < lowest) ||
        strcmp(base_setting_string(SET_QUORUM), "any") == 0)
        return GYRE_OK;
    return gyre_fail(
        GYRE_ERR_PEER_DEAD,
        "rank %d and %d others are left, but rank(s) %s are only silent and could be alive behind a cut "
        "network and go on, too: the smaller part must not (GYRE_QUORUM=any if they are surely dead)",
        boot->rank, left - 1, who);
}

/* All ranks that are not dead have come: sends them the new membership. */
static gyre_status_t decide(comm_boot_t *boot)
{
    boot_buf_t view = {0};
    unsigned char word[4];
    int left = 0, ok = 1;
    for (int p = 0; p < boot->members_n; p++)
        left += !is_dead(boot, boot_member(boot, p));
    gyre_status_t st = check_quorum(boot, left);
    if (st != GYRE_OK) {
        snprintf(boot->refusal, sizeof(boot->refusal), "%.255s", gyre_last_error());
        for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next)
            if (v->state == CONTACT_OPEN && v->rallied && v->hello.epoch == boot->epoch)
                boot_contact_dismiss(boot, v, BOOT_REJECT, boot->refusal);
        return st;
    }
    uint32_t head[3] = {boot->epoch + 1, (uint32_t)boot->size, (uint32_t)left};
    for (int i = 0; i < 3; i++) {
        boot_put32(word, head[i]);
        ok = ok && boot_buf_add(&view, word, sizeof(word));
    }
    for (int p = 0; p < boot->members_n; p++) {
        boot_put32(word, (uint32_t)boot_member(boot, p));
        if (!is_dead(boot, boot_member(boot, p)))
            ok = ok && boot_buf_add(&view, word, sizeof(word));
    }
    ok = ok && boot_shrink_keep(boot, view.data + view.from, boot_buf_len(&view));
    boot_buf_free(&view);
    return ok ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a new membership");
}

/* What is known of a member. */
typedef struct {
    boot_contact_t *contact; /* it has come; NULL: it has not */
    int dead, dialled;
} seat_t;

/* seats: [members_n], zeroed. In one pass over all that have come: a leader looks whenever somebody comes. */
static void take_seats(comm_boot_t *boot, seat_t *seats)
{
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next) {
        int here = v->hello.role == BOOT_ROLE_RALLY && v->hello.epoch == boot->epoch &&
                   v->state != CONTACT_GONE && v->state != CONTACT_RETIRED;
        int place = here ? boot_place(boot, v->rank) : -1;
        if (place >= 0 && v->state == CONTACT_OPEN && !v->rallied) /* it may have been dialled before them */
            tell_deaths(boot, v);
        if (place >= 0 && v->ours)
            seats[place].dialled = 1;
        else if (place >= 0 && seats[place].contact == NULL)
            seats[place].contact = v;
    }
    for (int i = 0; i < boot->deaths_n; i++) {
        int place = boot_place(boot, boot->deaths[i].rank);
        if (place >= 0)
            seats[place].dead = 1;
    }
}

/* Its connection closed, and nothing has shown yet whether it is dead or has taken this rank for dead. */
static int is_doubtful(const comm_boot_t *boot, int rank)
{
    const boot_death_t *death = boot_death_of(boot, rank);
    return death && !death->left && !death->silent && !death->proved;
}

/* Looks after one member; *missing counts those that are neither here nor surely dead. */
static gyre_status_t look_after(comm_boot_t *boot, const rally_t *rally, base_time_t now, int rank,
                                const seat_t *seat, int *missing)
{
    boot_contact_t *contact = seat->contact;
    if (contact != NULL && contact->rallied && !contact->told) { /* it need not wonder who leads */
        contact->told = 1;
        if (boot_conn_send(&contact->conn, BOOT_RALLY, NULL, 0) != GYRE_OK)
            return GYRE_ERR_NO_MEMORY;
    }
    int doubtful = seat->dead && is_doubtful(boot, rank);
    if (rank == boot->rank || (seat->dead && !doubtful) || (contact != NULL && contact->rallied))
        return GYRE_OK;
    if (now - rally->began >= rally->limit) {
        did_not_come(boot, rank, rally);
        return GYRE_OK;
    }
    ++*missing;
    if ((doubtful || now - rally->began > GRACE_NS) && contact == NULL && !seat->dialled &&
        boot_listener_dial(boot, rank, BOOT_ROLE_RALLY) == NULL)
        return GYRE_ERR_NO_MEMORY;
    return GYRE_OK;
}

/* Collects the others; decides when all are accounted for. */
static gyre_status_t lead(comm_boot_t *boot, const rally_t *rally)
{
    base_time_t now = base_now();
    gyre_status_t st = GYRE_OK;
    int missing = 0;
    seat_t *seats = calloc((size_t)boot->members_n, sizeof(*seats));
    if (seats == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to agree on a new membership");
    take_seats(boot, seats);
    for (int p = 0; p < boot->members_n && st == GYRE_OK; p++)
        st = look_after(boot, rally, now, boot_member(boot, p), &seats[p], &missing);
    free(seats);
    return st != GYRE_OK || missing > 0 ? st : decide(boot);
}

/* Who is waited for, such as "2, 5". */
static void list_missing(comm_boot_t *boot, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int p = 0; p < boot->members_n && used + 16 < bytes; p++) {
        int rank = boot_member(boot, p);
        const boot_contact_t *contact = boot_listener_find(boot, rank, BOOT_ROLE_RALLY, 0);
        if (rank != boot->rank && !is_dead(boot, rank) && (contact == NULL || !contact->rallied))
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", rank);
    }
}

static gyre_status_t why_not(const comm_boot_t *boot)
{
    const boot_abort_t *abort = boot_abort_of(boot, BOOT_ABORT_JOB);
    if (abort != NULL)
        return gyre_fail(abort->status, "%s", abort->text);
    if (boot->refusal[0] != '\0')
        return gyre_fail(GYRE_ERR_PEER_DEAD, "%s", boot->refusal);
    return GYRE_OK;
}

static gyre_status_t agree(comm_boot_t *boot, rally_t *rally)
{
    boot_patience_t patience = boot_patience_begin();
    char who[200], waited[24];
    rally->leader = -1;
    while (boot->view_epoch <= boot->epoch) {
        int leader = candidate(boot);
        if (leader != rally->leader) {
            rally->leader = leader;
            rally->began = base_now();
        }
        gyre_status_t st = why_not(boot);
        if (st == GYRE_OK)
            st = leader == boot->rank ? lead(boot, rally) : follow(boot, leader, rally);
        if (st != GYRE_OK)
            return st;
        if (boot->view_epoch > boot->epoch)
            break;
        if (boot_patience_over(&patience) && leader == boot->rank) {
            list_missing(boot, who, sizeof(who));
            log_warning(
                "gyre_comm_shrink: rank %d has waited for %s for rank(s) %s to call it, which count as "
                "dead after %.3g s",
                boot->rank, boot_patience_text(&patience, waited), who, (double)rally->limit * 1e-9);
        }
        base_time_t look = base_now() + LOOK_MS * BASE_MS;
        if (base_now() >= rally->deadline) {
            list_missing(boot, who, sizeof(who));
            return gyre_fail(GYRE_ERR_TIMEOUT,
                             "gyre_comm_shrink: rank %d waited in vain for rank(s) %s, led by rank %d",
                             boot->rank, who, leader);
        }
        st = boot_wait(boot, look < rally->deadline ? look : rally->deadline);
        if (st != GYRE_OK && st != GYRE_ERR_TIMEOUT)
            return st;
    }
    return GYRE_OK;
}

/* ---- the new tree -------------------------------------------------------------------------------------- */

/* The old edges are no longer needed: they stay open until the other side has let go, too. */
static void retire_edges(comm_boot_t *boot)
{
    for (int i = 0; i < boot->edges_n; i++) {
        boot_edge_t *edge = &boot->edges[i];
        boot_buf_free(&edge->steps);
        boot_contact_t *contact = edge->open ? boot_contact_of_edge(boot, edge) : NULL;
        if (contact != NULL)
            boot_contact_dismiss(boot, contact, BOOT_GOODBYE, "");
        else
            boot_conn_close(&edge->conn);
    }
    free(boot->edges);
    boot->edges = NULL;
    boot->edges_n = 0;
    boot->wiring++;
}

/* Makes the membership that was agreed on the present one. */
gyre_status_t boot_shrink_take_up(comm_boot_t *boot)
{
    const unsigned char *data = boot->view.data + boot->view.from;
    int size = (int)boot_get32(data + 4), n = (int)boot_get32(data + 8), place = -1;
    /* The ranks above a gyre_comm_grow died before the newcomers' addresses came by; a membership has
     * none. */
    if (boot->places != NULL && size > boot->places_n)
        return gyre_fail(
            GYRE_ERR_ABORTED,
            "rank %d missed a gyre_comm_grow: the job has gone on with rank(s) %d to %d, and it does not "
            "know where they are; it must end, and may come back as a newcomer (GYRE_JOIN)",
            boot->rank, boot->places_n, size - 1);
    int *members = malloc((size_t)n * sizeof(*members));
    if (members == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a membership of %d ranks", n);
    for (int p = 0; p < n; p++) {
        members[p] = (int)boot_get32(data + BOOT_VIEW_HEAD + 4 * p);
        place = members[p] == boot->rank ? p : place;
    }
    if (place < 0) {
        free(members);
        return gyre_fail(GYRE_ERR_ABORTED,
                         "rank %d is no longer one of the job: the others went on without it", boot->rank);
    }
    retire_edges(boot);
    free(boot->members);
    boot->members = members;
    boot->members_n = n;
    boot->place = place;
    boot->size = size;
    boot_forget_unborn(boot);
    boot->epoch = boot->view_epoch;
    boot->step = 0;
    boot->edges = boot_edges_new(boot, &boot->edges_n);
    boot->wiring++;
    /* Who waits here for what has been decided meanwhile hears it. */
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next) {
        if (v->rank < 0 || v->hello.role == BOOT_ROLE_NEW || v->hello.epoch >= boot->epoch)
            continue;
        if (v->state != CONTACT_OPEN) {
            if (v->ours && v->state != CONTACT_RETIRED && v->state != CONTACT_GONE)
                boot_contact_dismiss(boot, v, BOOT_GOODBYE, "");
        } else if (boot_place(boot, v->rank) >= 0) {
            tell_view(boot, v);
        } else {
            expel(boot, v);
        }
    }
    log_info("epoch %u: %d members, this is rank %d", boot->epoch, n, boot->rank);
    return boot->edges != NULL ? GYRE_OK
                               : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the bootstrap's tree");
}

/* One look at an edge that is not there yet. */
static gyre_status_t connect_edge(comm_boot_t *boot, boot_edge_t *edge, base_time_t began)
{
    int up = edge->place < boot->place;
    boot_contact_t *contact = boot_listener_find(boot, edge->rank, BOOT_ROLE_MEMBER, up);
    if (contact != NULL && contact->state == CONTACT_OPEN)
        boot_contact_promote(boot, contact, edge);
    else if (up && contact == NULL)
        return boot_listener_dial(boot, edge->rank, BOOT_ROLE_MEMBER) != NULL ? GYRE_OK : GYRE_ERR_NO_MEMORY;
    else if (!up && base_now() - began > GRACE_NS)
        return dial_once(boot, edge->rank); /* does it live? */
    return GYRE_OK;
}

static gyre_status_t dead_member(const comm_boot_t *boot)
{
    const boot_death_t *death = boot_first_death(boot, boot->members, boot->members_n);
    char how[BOOT_TEXT + 16];
    if (death == NULL)
        return GYRE_OK;
    boot_death_text(death, how, sizeof(how));
    return gyre_fail_quiet(GYRE_ERR_PEER_DEAD, "rank %d %s", death->rank, how);
}

gyre_status_t boot_shrink_rewire(comm_boot_t *boot, base_time_t deadline)
{
    base_time_t began = base_now();
    for (;;) {
        int missing = 0;
        gyre_status_t st = dead_member(boot);
        if (st == GYRE_OK)
            st = why_not(boot);
        for (int i = 0; i < boot->edges_n && st == GYRE_OK; i++) {
            if (!boot->edges[i].open)
                st = connect_edge(boot, &boot->edges[i], began);
            missing += !boot->edges[i].open;
        }
        if (st != GYRE_OK || missing == 0)
            return st;
        /* somebody went ahead: what we are making is out of date */
        if (boot->view_epoch > boot->epoch)
            return gyre_fail_quiet(GYRE_ERR_PEER_DEAD, "the membership has changed again");
        base_time_t look = base_now() + LOOK_MS * BASE_MS;
        if (base_now() >= deadline)
            return gyre_fail(GYRE_ERR_TIMEOUT,
                             "rank %d waited in vain for its %d neighbours among those left", boot->rank,
                             missing);
        st = boot_wait(boot, look < deadline ? look : deadline);
        if (st != GYRE_OK && st != GYRE_ERR_TIMEOUT)
            return st;
    }
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

gyre_status_t comm_boot_shrink(comm_boot_t *boot, double patience_s, base_time_t deadline)
{
    gyre_status_t st;
    rally_t rally = {.limit = base_deadline(patience_s) - base_now(), .deadline = deadline};
    boot_lock(boot);
    boot->call = "gyre_comm_shrink";
    boot->refusal[0] = '\0';
    do {
        st = why_not(boot);
        if (st == GYRE_OK)
            st = agree(boot, &rally);
        if (st == GYRE_OK)
            st = boot_shrink_take_up(boot);
        if (st == GYRE_OK)
            st = boot_shrink_rewire(boot, deadline);
        if (st == GYRE_OK) {
            boot_unlock(boot);
            st = comm_boot_barrier(boot, deadline);
            boot_lock(boot);
        }
        /* Somebody died on the way: once more, for the rest. */
    } while (st == GYRE_ERR_PEER_DEAD && boot->refusal[0] == '\0' && base_now() < deadline &&
             (dead_member(boot) != GYRE_OK || boot->view_epoch > boot->epoch));
    boot->call = NULL;
    boot_unlock(boot);
    return st;
}
