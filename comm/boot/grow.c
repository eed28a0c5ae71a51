/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/grow.c: newcomers to a running job.
 *
 *     newcomer                                       the member with the lowest rank
 *     dials it, proves the secret         ---->     lets it in, beats; until comm_boot_grow is called
 *     "I listen at A"                      ---->
 *                                          <----     BOOT_WELCOME: your rank is r; where all others listen
 *                                          <----     BOOT_VIEW: the new membership
 *
 * The members get the new membership and the newcomers' addresses by a pass down their tree. From there on
 * all do as after comm_boot_shrink (shrink.c): the tree over the new members, and a barrier.
 *
 * BOOT_WELCOME is u32 rank, u32 size, size x where a rank listens. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/shrink.h"

enum { LOOK_MS = 50, WELCOME_HEAD = 8 };
#define BEAT_SECONDS   0.5 /* between two beats of a newcomer that waits */
#define MARGIN_SECONDS 2.0 /* in which the news that nobody came reaches everybody */

/* ---- a membership as it travels ----------------------------------------------------------------------- */

int boot_shrink_is_sane(const unsigned char *data, size_t bytes)
{
    if (bytes < BOOT_VIEW_HEAD)
        return 0;
    uint32_t size = boot_get32(data + 4), n = boot_get32(data + 8);
    if (n < 1 || n > size || size > INT32_MAX || bytes - BOOT_VIEW_HEAD != 4 * (size_t)n)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t rank = boot_get32(data + BOOT_VIEW_HEAD + 4 * i);
        if (rank >= size || (i > 0 && rank <= boot_get32(data + BOOT_VIEW_HEAD + 4 * (i - 1))))
            return 0;
    }
    return 1;
}

int boot_shrink_keep(comm_boot_t *boot, const unsigned char *data, size_t bytes)
{
    boot_buf_t view = {0};
    if (!boot_buf_add(&view, data, bytes))
        return 0;
    boot_buf_free(&boot->view);
    boot->view = view;
    boot->view_epoch = boot_get32(data);
    pthread_cond_broadcast(&boot->moved);
    return 1;
}

int boot_shrink_keep_sane(comm_boot_t *boot, const unsigned char *data, size_t bytes)
{
    return !boot_shrink_is_sane(data, bytes) ? 0 : boot_shrink_keep(boot, data, bytes) ? 1 : -1;
}

/* ---- members ------------------------------------------------------------------------------------------- */

gyre_status_t comm_boot_where(comm_boot_t *boot, char *text, size_t bytes)
{
    boot_addr_t addr;
    char host[256], where[sizeof(host) + 8] = "";
    int port;
    gyre_status_t st = boot->places == NULL ? comm_boot_meet(boot, base_deadline(10)) : GYRE_OK;
    if (st != GYRE_OK)
        return st;
    boot_lock(boot);
    int rank = boot_member(boot, 0);
    int local = boot_root_split(boot->root_text, host, &port) && boot_host_is_loopback(host);
    if (!boot_where(boot, rank, &addr))
        st = gyre_fail(GYRE_ERR_SYSTEM, "gyre_comm_address: rank %d did not say where it listens", rank);
    /* This very host, known to itself by a loopback address only: others know its name, all of it. */
    else if (!boot_addr_is_loopback(&addr) || local)
        boot_addr_text(&addr, where);
    else if (gethostname(host, sizeof(host)) == 0)
        snprintf(where, sizeof(where), "%s:%d", host, boot_addr_port(&addr));
    else
        st = gyre_fail_errno(GYRE_ERR_SYSTEM, errno, "gyre_comm_address: cannot read the name of this host");
    boot_unlock(boot);
    if (st != GYRE_OK)
        return st;
    if (strlen(where) >= bytes)
        return gyre_fail(GYRE_ERR_INVALID, "gyre_comm_address: the job's address does not fit into %zu bytes",
                         bytes);
    memcpy(text, where, strlen(where) + 1);
    return GYRE_OK;
}

/* The next of those that wait, the one that came first; NULL: none. */
static boot_contact_t *first_newcomer(comm_boot_t *boot, base_time_t after)
{
    boot_contact_t *first = NULL;
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next)
        if (v->state == CONTACT_OPEN && v->hello.role == BOOT_ROLE_NEW && v->rallied && v->since > after &&
            (first == NULL || v->since < first->since))
            first = v;
    return first;
}

static int newcomers(comm_boot_t *boot)
{
    int n = 0;
    base_time_t after = 0;
    for (boot_contact_t *v; (v = first_newcomer(boot, after)) != NULL; after = v->since)
        n++;
    return n;
}

static gyre_status_t few_have_come(comm_boot_t *boot, int wanted)
{
    char refused[256];
    boot_refusals_text(&boot->listener.refused, refused, sizeof(refused));
    return gyre_fail(
        GYRE_ERR_TIMEOUT, "gyre_comm_grow: %d of %d newcomers have come; nothing has changed%s%s%s",
        newcomers(boot), wanted, *refused ? " (refused connections: " : "", refused, *refused ? ")" : "");
}

/* The leader: waits for them; news: the membership, then where each newcomer listens. */
static gyre_status_t await(comm_boot_t *boot, int wanted, boot_buf_t *news, base_time_t deadline)
{
    boot_patience_t patience = boot_patience_begin();
    unsigned char word[4];
    char waited[24];
    int ok = 1, n = boot->members_n + wanted;
    /* An attempt that failed may have numbered more of them than this one lets in. */
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next)
        if (v->hello.role == BOOT_ROLE_NEW)
            v->rank = -1;
    while (newcomers(boot) < wanted) {
        base_time_t look = base_now() + LOOK_MS * BASE_MS;
        if (base_now() >= deadline)
            return few_have_come(boot, wanted);
        if (boot_patience_over(&patience))
            log_warning("gyre_comm_grow: rank %d has waited for %s: %d of %d newcomers have come", boot->rank,
                        boot_patience_text(&patience, waited), newcomers(boot), wanted);
        gyre_status_t st = boot_wait(boot, look < deadline ? look : deadline);
        if (st != GYRE_OK && st != GYRE_ERR_TIMEOUT)
            return st;
    }
    const uint32_t head[3] = {boot->epoch + 1, (uint32_t)(boot->size + wanted), (uint32_t)n};
    for (int i = 0; i < 3; i++) {
        boot_put32(word, head[i]);
        ok = ok && boot_buf_add(news, word, sizeof(word));
    }
    for (int p = 0; p < n; p++) {
        boot_put32(word,
                   (uint32_t)(p < boot->members_n ? boot_member(boot, p) : boot->size + p - boot->members_n));
        ok = ok && boot_buf_add(news, word, sizeof(word));
    }
    base_time_t after = 0;
    for (int i = 0; i < wanted; i++) {
        boot_contact_t *v = first_newcomer(boot, after);
        boot_addr_t addr, mine;
        after = v->since;
        v->rank = boot->size + i;
        /* On this host it is where this rank is. */
        if (boot_addr_unpack(v->place.addr, &addr) && boot_addr_is_loopback(&addr) &&
            boot_addr_unpack(boot->places[boot->rank].addr, &mine) && !boot_addr_is_loopback(&mine)) {
            boot_addr_set_port(&mine, boot_addr_port(&addr));
            boot_addr_pack(&mine, v->place.addr);
        }
        ok = ok && boot_buf_add(news, &v->place, sizeof(v->place));
    }
    return ok ? GYRE_OK : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a larger membership");
}

/* The leader: sends the newcomers their membership. */
static void welcome(comm_boot_t *boot)
{
    boot_buf_t all = {0};
    unsigned char word[4];
    int ok = boot_buf_add(&all, "\0\0\0\0", 4);
    boot_put32(word, (uint32_t)boot->size);
    ok = ok && boot_buf_add(&all, word, sizeof(word));
    for (int r = 0; r < boot->size; r++) {
        boot_place_t place = boot->places[r];
        boot_addr_t addr, mine;
        /* What means "on rank 0's host" here means nothing to them, unless that is this host, where they
         * have come. */
        if (boot_addr_unpack(boot->places[boot->rank].addr, &mine) && !boot_addr_is_loopback(&mine) &&
            boot_where(boot, r, &addr))
            boot_addr_pack(&addr, place.addr);
        ok = ok && boot_buf_add(&all, &place, sizeof(place));
    }
    for (boot_contact_t *v = boot->contacts; v != NULL; v = v->next) {
        if (v->state != CONTACT_OPEN || v->hello.role != BOOT_ROLE_NEW || v->rank < 0)
            continue;
        if (ok)
            boot_put32(all.data + all.from, (uint32_t)v->rank);
        if (!ok ||
            boot_conn_send(&v->conn, BOOT_WELCOME, all.data + all.from, boot_buf_len(&all)) != GYRE_OK ||
            boot_conn_send(&v->conn, BOOT_VIEW, boot->view.data + boot->view.from,
                           boot_buf_len(&boot->view)) != GYRE_OK)
            log_error("bootstrap: no memory to welcome rank %d", v->rank);
        boot_contact_dismiss(boot, v, BOOT_GOODBYE, "");
    }
    boot_buf_free(&all);
}

/* Takes the news up; under the lock. */
static gyre_status_t take_news(comm_boot_t *boot, const unsigned char *news, size_t bytes, int wanted)
{
    size_t view = bytes - (size_t)wanted * sizeof(boot_place_t);
    boot_place_t *places = realloc(boot->places, ((size_t)boot->size + (size_t)wanted) * sizeof(*places));
    if (places != NULL)
        boot->places = places; /* the old ones are gone, whatever comes now */
    if (places == NULL || !boot_shrink_keep(boot, news, view))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a larger membership");
    memcpy(places + boot->size, news + view, (size_t)wanted * sizeof(*places));
    for (int i = 0; i < wanted; i++)
        places[boot->size + i].host[BOOT_HOST_BYTES - 1] = '\0';
    boot->places_n = boot->size + wanted;
    return GYRE_OK;
}

/* Ranks that ask for other numbers of newcomers learn so before any is waited for. */
static gyre_status_t compare(comm_boot_t *boot, int wanted, base_time_t deadline)
{
    const int32_t mine = wanted;
    int32_t *all = malloc((size_t)boot->members_n * sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a larger membership");
    gyre_status_t st = comm_boot_all_gather(boot, &mine, sizeof(mine), all, deadline);
    for (int p = 1; p < boot->members_n && st == GYRE_OK; p++)
        if (all[p] != all[0])
            st = gyre_fail(GYRE_ERR_MISMATCH,
                           "gyre_comm_grow: rank %d passed %d newcomers, rank %d %d: pass the same number on "
                           "all ranks",
                           boot_member(boot, p), all[p], boot_member(boot, 0), all[0]);
    free(all);
    return st;
}

static gyre_status_t grow(comm_boot_t *boot, int wanted, base_time_t deadline)
{
    boot_buf_t news = {0};
    const base_time_t later =
        deadline == BASE_TIME_NEVER ? deadline : deadline + (base_time_t)(MARGIN_SECONDS * 1e9);
    gyre_status_t st = boot->places == NULL ? comm_boot_meet(boot, deadline) : GYRE_OK;
    if (st == GYRE_OK)
        st = compare(boot, wanted, later);
    if (st == GYRE_OK && (wanted < 1 || wanted > BOOT_NEWCOMERS_MAX)) /* on all ranks alike */
        st = gyre_fail(GYRE_ERR_INVALID, "gyre_comm_grow: %d newcomers are not 1 to %d", wanted,
                       BOOT_NEWCOMERS_MAX);
    if (st != GYRE_OK)
        return st;
    size_t room = 12 + 4 * ((size_t)boot->members_n + (size_t)wanted) + (size_t)wanted * sizeof(boot_place_t);
    size_t bytes = room;
    unsigned char *data = malloc(room);
    if (data == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a larger membership");
    if (boot->place == 0) {
        boot_lock(boot);
        st = await(boot, wanted, &news, deadline);
        boot_unlock(boot);
        if (st == GYRE_OK)
            memcpy(data, news.data + news.from, room);
        boot_buf_free(&news);
    }
    st = comm_boot_share(boot, st, data, room, &bytes, later);
    if (st == GYRE_OK) {
        boot_lock(boot);
        int leads = boot->place == 0;
        st = take_news(boot, data, bytes, wanted);
        if (st == GYRE_OK)
            st = boot_shrink_take_up(boot);
        if (st == GYRE_OK && leads)
            welcome(boot);
        if (st == GYRE_OK)
            st = boot_shrink_rewire(boot, later);
        boot_unlock(boot);
    }
    free(data);
    return st == GYRE_OK ? comm_boot_barrier(boot, later) : st;
}

gyre_status_t comm_boot_grow(comm_boot_t *boot, int wanted, base_time_t deadline)
{
    boot->call = "gyre_comm_grow";
    gyre_status_t st = grow(boot, wanted, deadline);
    boot->call = NULL;
    return st;
}

/* ---- newcomers ----------------------------------------------------------------------------------------- */

gyre_status_t boot_grow_take_welcome(comm_boot_t *boot, const boot_message_t *m)
{
    if (m->bytes < WELCOME_HEAD)
        return gyre_fail(GYRE_ERR_FORMAT, "the welcome of the job is malformed");
    uint32_t rank = boot_get32(m->data), size = boot_get32(m->data + 4);
    if (size > INT32_MAX || rank >= size || m->bytes - WELCOME_HEAD != (size_t)size * sizeof(boot_place_t))
        return gyre_fail(GYRE_ERR_FORMAT, "the welcome of the job is malformed");
    boot_place_t *places = malloc(m->bytes - WELCOME_HEAD);
    if (places == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the addresses of %u ranks", size);
    memcpy(places, m->data + WELCOME_HEAD, m->bytes - WELCOME_HEAD);
    for (uint32_t r = 0; r < size; r++)
        places[r].host[BOOT_HOST_BYTES - 1] = '\0';
    free(boot->places);
    boot->places = places;
    boot->places_n = (int)size;
    boot->rank = (int)rank;
    boot->size = (int)size;
    return GYRE_OK;
}

/* Beats until it is let in. */
static gyre_status_t wait_for_welcome(comm_boot_t *boot, boot_conn_t *conn, base_time_t deadline)
{
    int welcomed = 0;
    for (;;) {
        boot_message_t m;
        base_time_t beat = base_deadline(BEAT_SECONDS);
        gyre_status_t st = boot_conn_receive(conn, &m, beat < deadline ? beat : deadline);
        if (st == GYRE_ERR_TIMEOUT && base_poll_ms(deadline) == 0)
            return gyre_fail(st, "the job at %s did not call gyre_comm_grow in time", conn->where);
        if (st == GYRE_ERR_TIMEOUT)
            st = boot_conn_send(conn, BOOT_BEAT, NULL, 0);
        else if (st == GYRE_ERR_TRANSPORT)
            return gyre_fail(GYRE_ERR_BOOTSTRAP, "the job at %s has ended, or the rank there died",
                             conn->where);
        else if (st == GYRE_OK && m.type == BOOT_REJECT)
            return gyre_fail(GYRE_ERR_BOOTSTRAP, "the job at %s refuses newcomers there: %.*s", conn->where,
                             (int)(m.bytes < BOOT_TEXT ? m.bytes : BOOT_TEXT), (const char *)m.data);
        else if (st == GYRE_OK && m.type == BOOT_WELCOME) {
            st = boot_grow_take_welcome(boot, &m);
            welcomed = st == GYRE_OK;
        } else if (st == GYRE_OK && m.type == BOOT_VIEW && welcomed) {
            const int kept = boot_shrink_keep_sane(boot, m.data, m.bytes);
            if (kept < 0)
                return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the membership that came from %s",
                                 conn->where);
            return kept ? GYRE_OK
                        : gyre_fail(GYRE_ERR_FORMAT, "the membership that came from %s is malformed",
                                    conn->where);
        }
        if (st != GYRE_OK)
            return st;
    }
}

gyre_status_t comm_boot_dial_job(const comm_identity_t *who, base_time_t deadline, comm_boot_t **out)
{
    boot_conn_t conn = {.fd = -1};
    boot_hello_t hello = {BOOT_ROLE_NEW, -1, 0, -1, 0};
    boot_place_t mine;
    if (sodium_init() < 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "libsodium cannot start: no source of random numbers?");
    comm_boot_t *boot = boot_new(who);
    if (boot == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the bootstrap");
    gyre_status_t st = boot_reach_root(who->root, boot->auth_key, &hello, deadline, &conn);
    if (st == GYRE_OK &&
        (!boot_addr_of(conn.fd, 0, &boot->own_addr) || !boot_addr_of(conn.fd, 1, &boot->root_addr)))
        st = gyre_fail_errno(GYRE_ERR_BOOTSTRAP, errno, "the connection to the job at %s failed", who->root);
    if (st == GYRE_OK)
        st = boot_listener_open(boot, &mine);
    if (st == GYRE_OK)
        st = boot_conn_send(&conn, BOOT_JOIN, &mine, sizeof(mine));
    if (st == GYRE_OK)
        st = wait_for_welcome(boot, &conn, deadline);
    boot_conn_close(&conn);
    if (st != GYRE_OK) {
        comm_boot_leave(boot, 0);
        return st;
    }
    *out = boot;
    return GYRE_OK;
}

gyre_status_t comm_boot_enter(comm_boot_t *boot, base_time_t deadline)
{
    boot_lock(boot);
    gyre_status_t st = boot_shrink_take_up(boot);
    if (st == GYRE_OK)
        st = boot_shrink_rewire(boot, deadline);
    boot_unlock(boot);
    return st == GYRE_OK ? comm_boot_barrier(boot, deadline) : st;
}

gyre_status_t comm_boot_newcomer(comm_identity_t *who)
{
    const char *secret = base_setting_string(SET_SECRET), *job = base_setting_string(SET_JOB);
    const char *join = base_setting_string(SET_JOIN);
    char host[256];
    int port;
    size_t bytes = 0;
    *who = (comm_identity_t){.rank = 0, .size = 1, .root_fd = -1, .have_secret = 1};
    if (strlen(secret) != 64 ||
        sodium_hex2bin(who->secret, sizeof(who->secret), secret, 64, NULL, &bytes, NULL) != 0 || bytes != 32)
        return gyre_fail(GYRE_ERR_AUTH,
                         "GYRE_JOIN needs GYRE_SECRET (64 hex digits), the secret of the job to join");
    if (!boot_root_split(join, host, &port))
        return gyre_fail(GYRE_ERR_INVALID, "GYRE_JOIN=%s is not host:port, as gyre_comm_address gives it",
                         join);
    snprintf(who->root, sizeof(who->root), "%s", join);
    snprintf(who->job, sizeof(who->job), "%s", *job != '\0' ? job : "job");
    who->job_is_common = *job == '\0';
    snprintf(who->source, sizeof(who->source), "GYRE_JOIN");
    return GYRE_OK;
}
