/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/bootstrap.c: joining, leaving, and the collectives of the bootstrap: one pass up the binomial
 * tree, one down. See bootstrap.h.
 *
 * Every pass has a number. So a rank that runs ahead, or that gave up on an earlier pass, is recognized. A
 * rank that fails sends its status and text instead of its data, up and down, so that all ranks fail with the
 * same text. */
#include "comm/boot/bootstrap.h"

#include <errno.h>
#include <linux/sockios.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "comm/boot/reconnect.h"

/* Head of BOOT_UP and BOOT_DOWN: u32 step, u32 kind, u32 status, u32 zero, u64 bytes per rank. Then the data,
 * or with a status other than OK the text. */
enum { STEP_HEAD = 24 };
typedef enum { STEP_BARRIER = 1, STEP_GATHER = 2, STEP_SHARE = 3 } step_kind_t;
static const char *const titles[] = {"bootstrap", "bootstrap barrier", "bootstrap all-gather",
                                     "bootstrap share"};

typedef struct {
    step_kind_t kind;
    size_t bytes;         /* per rank */
    boot_buf_t data;      /* grows to the subtree's contribution, then becomes everybody's */
    gyre_status_t status; /* what is passed on instead of data */
    char text[BOOT_TEXT];
} step_t;

static const char *kind_name(uint32_t kind)
{
    return kind > 0 && kind <= STEP_SHARE ? titles[kind] + sizeof "bootstrap" : "?";
}

/* What this rank does, for texts: the call of the program that the step is a part of, if it has one. */
static const char *title(const comm_boot_t *boot, step_kind_t kind)
{
    return boot->call ? boot->call : titles[kind];
}

static gyre_status_t step_send(comm_boot_t *boot, boot_edge_t *edge, boot_type_t type, const step_t *step)
{
    boot_buf_t frame = {0};
    unsigned char head[STEP_HEAD] = {0};
    boot_put32(head, boot->step);
    boot_put32(head + 4, (uint32_t)step->kind);
    boot_put32(head + 8, (uint32_t)step->status);
    boot_put64(head + 16, step->bytes);
    int ok = boot_buf_add(&frame, head, sizeof(head)) &&
             (step->status == GYRE_OK ? boot_buf_add(&frame, step->data.data, step->data.to)
                                      : boot_buf_add(&frame, step->text, strlen(step->text)));
    gyre_status_t st = ok ? boot_edge_send(boot, edge, type, frame.data, frame.to)
                          : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a bootstrap message");
    boot_buf_free(&frame);
    return st;
}

/* With what the job has been aborted, or OK. */
static gyre_status_t job_aborted(const comm_boot_t *boot, const char *what)
{
    const boot_abort_t *abort = boot_abort_of(boot, BOOT_ABORT_JOB);
    return abort == NULL ? GYRE_OK : gyre_fail(abort->status, "%s: %s", what, abort->text);
}

/* Why waiting for `edge` is in vain, or OK. */
static gyre_status_t hopeless(const comm_boot_t *boot, const boot_edge_t *edge, const char *what)
{
    gyre_status_t aborted = job_aborted(boot, what);
    if (aborted != GYRE_OK)
        return aborted;
    const boot_death_t *death = boot_first_death(boot, boot->members, boot->members_n);
    if (death != NULL) {
        char how[BOOT_TEXT + 16];
        boot_death_text(death, how, sizeof(how));
        return gyre_fail(GYRE_ERR_PEER_DEAD, "%s: rank %d %s", what, death->rank, how);
    }
    if (!edge->open)
        return gyre_fail(GYRE_ERR_PEER_DEAD, "%s: rank %d has left the job", what, edge->rank);
    return GYRE_OK;
}

/* Who keeps this rank waiting, as far as can be found out: ": rank 3 does not answer". Other than OK: waiting
 * is in vain. */
static gyre_status_t find_culprit(comm_boot_t *boot, const boot_edge_t *edge, const char *what,
                                  comm_blame_t *blame, char *culprit, size_t bytes)
{
    base_time_t until = base_deadline(COMM_BLAME_SECONDS);
    char missing[sizeof(blame->doing.missing)];
    if (boot_blame(boot, edge->rank, BOOT_ABORT_JOB, until, blame) != GYRE_OK) {
        gyre_status_t st = hopeless(boot, edge, what);
        if (st != GYRE_OK)
            return st; /* a rank got or knew the cause meanwhile */
        snprintf(culprit, bytes, ": rank %d has not come to it", edge->rank);
    } else if (blame->died[0] != '\0') {
        snprintf(culprit, bytes, ": rank %d %s", blame->rank, blame->died);
    } else if (blame->silent) {
        snprintf(culprit, bytes, ": rank %d does not answer", blame->rank);
    } else if (blame->unheard) {
        snprintf(culprit, bytes, ": rank %d has not come to it, or waits for another", blame->rank);
    } else if (blame->doing.at == COMM_AT_JOINING && blame->doing.missing[0] != '\0') {
        if (boot_ask_missing(boot, until, missing, sizeof(missing)) != GYRE_OK)
            return hopeless(boot, edge, what);
        if (missing[0] != '\0')
            snprintf(culprit, bytes, BOOT_MISSING, missing);
        else
            snprintf(culprit, bytes, ": rank %d waits for its child rank(s) %s to connect", blame->rank,
                     blame->doing.missing);
    } else if (blame->circle) {
        snprintf(culprit, bytes, ": rank %d and others wait for each other", blame->back);
    } else {
        snprintf(culprit, bytes, ": rank %d has not come to it", blame->rank);
    }
    return GYRE_OK;
}

/* The deadline has passed. */
static gyre_status_t waited_in_vain(comm_boot_t *boot, const boot_edge_t *edge, const step_t *step)
{
    const char *what = title(boot, step->kind);
    comm_blame_t blame;
    char culprit[BOOT_TEXT] = "";
    gyre_status_t st = find_culprit(boot, edge, what, &blame, culprit, sizeof(culprit));
    if (st != GYRE_OK || step->status != GYRE_OK) /* it has reported an error of its own, which counts */
        return st != GYRE_OK ? st : step->status;
    return gyre_fail(GYRE_ERR_TIMEOUT, "%s: rank %d waited in vain%s", what, boot->rank, culprit);
}

/* It lasts. Place 0 says for whom; place 1 only if it is place 0. */
static gyre_status_t waits_long(comm_boot_t *boot, const boot_edge_t *edge, const char *what,
                                const boot_patience_t *patience)
{
    comm_blame_t blame = {.rank = -1};
    char culprit[BOOT_TEXT] = "", waited[24];
    gyre_status_t st = find_culprit(boot, edge, what, &blame, culprit, sizeof(culprit));
    if (st == GYRE_OK && (boot->place == 0 || blame.rank == boot_member(boot, 0)))
        log_warning("%s: rank %d has waited for %s%s", what, boot->rank, boot_patience_text(patience, waited),
                    culprit);
    return st;
}

/* Waits for the edge's message of the present step; checks that both sides mean the same. */
static gyre_status_t step_receive(comm_boot_t *boot, boot_edge_t *edge, const step_t *step,
                                  const unsigned char **data, size_t *bytes, base_time_t deadline)
{
    const char *what = title(boot, step->kind);
    const unsigned char *head;
    boot_patience_t patience = boot_patience_begin();
    if (boot->place > 1)
        patience.at = BASE_TIME_NEVER;
    for (;;) {
        while (boot_step_front(edge, &head, bytes) && (*bytes < STEP_HEAD || boot_get32(head) < boot->step))
            boot_step_pop(edge); /* of a pass that was given up */
        if (boot_step_front(edge, &head, bytes))
            break;
        gyre_status_t st = hopeless(boot, edge, what);
        if (st != GYRE_OK)
            return st; /* perhaps another rank's TIMEOUT: its text, not ours */
        boot->waits_for = edge->rank;
        st = boot_wait(boot, patience.at < deadline ? patience.at : deadline);
        if ((st == GYRE_OK || st == GYRE_ERR_TIMEOUT) && boot_patience_over(&patience))
            st = waits_long(boot, edge, what, &patience);
        else if (st == GYRE_ERR_TIMEOUT && base_poll_ms(deadline) != 0)
            st = GYRE_OK;
        else if (st == GYRE_ERR_TIMEOUT)
            st = waited_in_vain(boot, edge, step);
        boot->waits_for = -1;
        if (st != GYRE_OK)
            return st;
    }
    uint32_t status = boot_get32(head + 8);
    *data = head + STEP_HEAD;
    *bytes -= STEP_HEAD;
    if (boot_get32(head) != boot->step)
        return gyre_fail(GYRE_ERR_MISMATCH, "%s: rank %d is at step %u, rank %d at step %u", what, edge->rank,
                         boot_get32(head), boot->rank, boot->step);
    if (status != GYRE_OK)
        return gyre_fail((gyre_status_t)status, "%.*s", (int)base_min_size(*bytes, BOOT_TEXT - 1),
                         (const char *)*data);
    if (boot_get32(head + 4) != (uint32_t)step->kind || boot_get64(head + 16) != step->bytes)
        return gyre_fail(GYRE_ERR_MISMATCH,
                         "bootstrap: rank %d called %s of %zu bytes, rank %d %s of %zu bytes", boot->rank,
                         kind_name(step->kind), step->bytes, edge->rank, kind_name(boot_get32(head + 4)),
                         (size_t)boot_get64(head + 16));
    return GYRE_OK;
}

/* The edge's message of the present step, if there is one, has been used. */
static void step_done(const comm_boot_t *boot, boot_edge_t *edge)
{
    const unsigned char *head;
    size_t bytes;
    if (boot_step_front(edge, &head, &bytes) && (bytes < STEP_HEAD || boot_get32(head) <= boot->step))
        boot_step_pop(edge);
}

/* Adds what a child's subtree contributed. */
static gyre_status_t step_merge(comm_boot_t *boot, const boot_edge_t *edge, step_t *step,
                                const unsigned char *data, size_t bytes)
{
    size_t expected = 0;
    if (step->kind == STEP_GATHER)
        expected = (size_t)(boot_tree_end(edge->place, boot->members_n) - edge->place) * step->bytes;
    if (bytes != expected)
        return gyre_fail(GYRE_ERR_FORMAT, "bootstrap %s: rank %d sent %zu bytes instead of %zu",
                         kind_name(step->kind), edge->rank, bytes, expected);
    if (!boot_buf_add(&step->data, data, bytes))
        return gyre_fail(GYRE_ERR_NO_MEMORY, "bootstrap %s: rank %d has no memory for %zu bytes",
                         kind_name(step->kind), boot->rank, bytes);
    return GYRE_OK;
}

/* The way up: collect from the children, pass to the parent. */
static gyre_status_t step_up(comm_boot_t *boot, step_t *step, base_time_t deadline)
{
    const unsigned char *data;
    size_t bytes;
    gyre_status_t st = GYRE_OK;
    for (int i = boot->place > 0; i < boot->edges_n && st == GYRE_OK; i++) {
        boot_edge_t *edge = &boot->edges[i];
        st = step_receive(boot, edge, step, &data, &bytes, deadline);
        if (st == GYRE_OK)
            st = step_merge(boot, edge, step, data, bytes);
        step_done(boot, edge);
    }
    return st;
}

static void step_failed(step_t *step, gyre_status_t status)
{
    step->status = status;
    snprintf(step->text, sizeof(step->text), "%s", gyre_last_error());
}

/* Runs a step under the lock. After OK step->data holds what rank 0 sent down. */
static gyre_status_t step_run(comm_boot_t *boot, step_t *step, base_time_t deadline)
{
    const unsigned char *data;
    size_t bytes;
    boot->step++;
    /* Of an aborted job no step is OK, not even for a rank that comes when all the others' messages are
     * there. */
    gyre_status_t st = job_aborted(boot, title(boot, step->kind));
    if (st == GYRE_OK)
        st = step_up(boot, step, deadline);
    if (st != GYRE_OK && step->status == GYRE_OK)
        step_failed(step, st);
    if (boot->place > 0) {
        boot_edge_t *parent = &boot->edges[0];
        gyre_status_t sent = step_send(boot, parent, BOOT_UP, step);
        if (st == GYRE_OK)
            st = sent;
        if (st == GYRE_OK)
            st = step_receive(boot, parent, step, &data, &bytes, deadline);
        if (st == GYRE_OK) {
            step->data.from = step->data.to = 0;
            if (!boot_buf_add(&step->data, data, bytes))
                st = gyre_fail(GYRE_ERR_NO_MEMORY, "rank %d has no memory for a bootstrap message",
                               boot->rank);
        }
        if (st != GYRE_OK && step->status == GYRE_OK)
            step_failed(step, st);
        step_done(boot, parent);
    }
    for (int i = boot->edges_n - 1; i >= (boot->place > 0); i--) { /* the largest subtree first */
        gyre_status_t sent = step_send(boot, &boot->edges[i], BOOT_DOWN, step);
        if (st == GYRE_OK)
            st = sent;
    }
    /* Without a watcher nobody else would send what did not go at once. */
    while (st == GYRE_OK && !boot->watched) {
        int unsent = 0;
        for (int i = 0; i < boot->edges_n; i++)
            unsent |= boot->edges[i].open && boot_conn_unsent(&boot->edges[i].conn);
        if (!unsent)
            break;
        st = boot_wait(boot, deadline);
        if (st == GYRE_ERR_TIMEOUT)
            st = gyre_fail(st, "bootstrap %s: the ranks below rank %d do not read", kind_name(step->kind),
                           boot->rank);
    }
    return st;
}

gyre_status_t comm_boot_all_gather(comm_boot_t *boot, const void *mine, size_t bytes, void *all,
                                   base_time_t deadline)
{
    size_t total;
    if (!base_mul((size_t)boot->members_n, bytes, &total) || total > BOOT_MESSAGE_MAX - STEP_HEAD)
        return gyre_fail(GYRE_ERR_INVALID,
                         "bootstrap all-gather of %zu bytes from each of %d ranks is too large", bytes,
                         boot->members_n);
    step_t step = {.kind = STEP_GATHER, .bytes = bytes};
    boot_lock(boot);
    gyre_status_t st = boot_buf_add(&step.data, mine, bytes)
                           ? step_run(boot, &step, deadline)
                           : gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a bootstrap all-gather");
    boot_unlock(boot);
    if (st == GYRE_OK && step.data.to != total)
        st = gyre_fail(GYRE_ERR_FORMAT, "bootstrap all-gather: %zu bytes came instead of %zu", step.data.to,
                       total);
    if (st == GYRE_OK && total > 0)
        memcpy(all, step.data.data, total);
    boot_buf_free(&step.data);
    return st;
}

gyre_status_t comm_boot_barrier(comm_boot_t *boot, base_time_t deadline)
{
    step_t step = {.kind = STEP_BARRIER};
    boot_lock(boot);
    gyre_status_t st = step_run(boot, &step, deadline);
    boot_unlock(boot);
    boot_buf_free(&step.data);
    return st;
}

gyre_status_t comm_boot_share(comm_boot_t *boot, gyre_status_t status, void *data, size_t room, size_t *bytes,
                              base_time_t deadline)
{
    step_t step = {.kind = STEP_SHARE};
    char why[1024] = "";
    gyre_status_t st = boot->place == 0 ? status : GYRE_OK;
    boot_lock(boot);
    if (boot->place == 0 && st == GYRE_OK && !boot_buf_add(&step.data, data, *bytes))
        st = gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to share %zu bytes by the bootstrap", *bytes);
    if (st != GYRE_OK) { /* the others get this text instead of the data */
        snprintf(why, sizeof(why), "%s", gyre_last_error());
        step_failed(&step, st);
        snprintf(step.text, sizeof(step.text), "rank %d: %.600s", boot->rank, why);
    }
    gyre_status_t ran = step_run(boot, &step, deadline);
    boot_unlock(boot);
    if (st != GYRE_OK)
        st = gyre_fail_quiet(st, "%s", why); /* reported before; this error ends the job */
    else
        st = ran;
    if (st == GYRE_OK && step.data.to > room)
        st =
            gyre_fail(GYRE_ERR_INVALID,
                      "rank 0 shares %zu bytes and rank %d has room for %zu; use the same build on all ranks",
                      step.data.to, boot->rank, room);
    if (st == GYRE_OK && boot->place > 0) {
        if (step.data.to > 0)
            memcpy(data, step.data.data, step.data.to);
        *bytes = step.data.to;
    }
    boot_buf_free(&step.data);
    return st;
}

gyre_status_t comm_boot_meet(comm_boot_t *boot, base_time_t deadline)
{
    boot_place_t mine;
    boot_place_t *places = malloc((size_t)boot->size * sizeof(*places));
    if (places == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", boot->size);
    boot_lock(boot);
    gyre_status_t st = boot_listener_open(boot, &mine);
    boot_unlock(boot);
    if (st == GYRE_OK && boot->size == 1)
        places[0] = mine;
    else if (st == GYRE_OK)
        st = comm_boot_all_gather(boot, &mine, sizeof(mine), places, deadline);
    if (st != GYRE_OK) {
        free(places);
        return st;
    }
    for (int r = 0; r < boot->size; r++)
        places[r].host[BOOT_HOST_BYTES - 1] = '\0';
    boot_lock(boot);
    boot->places = places;
    boot->places_n = boot->size;
    if (boot->watched)
        boot->poke(boot->poke_user); /* to watch the listening socket */
    boot_unlock(boot);
    return GYRE_OK;
}

int comm_boot_rank(const comm_boot_t *boot)
{
    return boot->rank;
}

int comm_boot_size(const comm_boot_t *boot)
{
    return boot->size;
}

int comm_boot_members(const comm_boot_t *boot, int *ranks, int *place)
{
    comm_boot_t *b = (comm_boot_t *)boot; /* only to lock */
    boot_lock(b);
    int n = b->members_n;
    for (int p = 0; ranks != NULL && p < n; p++)
        ranks[p] = boot_member(b, p);
    if (place != NULL)
        *place = b->place;
    boot_unlock(b);
    return n;
}

uint32_t comm_boot_epoch(const comm_boot_t *boot)
{
    comm_boot_t *b = (comm_boot_t *)boot; /* only to lock */
    boot_lock(b);
    uint32_t epoch = b->epoch;
    boot_unlock(b);
    return epoch;
}

void comm_boot_key(const comm_boot_t *boot, const char *purpose, unsigned char key[32])
{
    static const char label[] = "gyre key 1";
    crypto_generichash_state state;
    crypto_generichash_init(&state, boot->secret, sizeof(boot->secret), 32);
    crypto_generichash_update(&state, (const unsigned char *)label,
                              sizeof(label)); /* each with its NUL: no two */
    crypto_generichash_update(&state, (const unsigned char *)purpose,
                              strlen(purpose) + 1); /* inputs run together */
    crypto_generichash_update(&state, (const unsigned char *)boot->job, strlen(boot->job) + 1);
    crypto_generichash_final(&state, key, 32);
    sodium_memzero(&state, sizeof(state));
}

int comm_boot_connections(const comm_boot_t *boot)
{
    comm_boot_t *b = (comm_boot_t *)boot; /* only to lock */
    int n = 0;
    boot_lock(b);
    for (int i = 0; i < b->edges_n; i++)
        n += b->edges[i].open;
    boot_unlock(b);
    return n;
}

comm_boot_t *boot_new(const comm_identity_t *who)
{
    comm_boot_t *boot = calloc(1, sizeof(*boot));
    if (boot == NULL)
        return NULL;
    boot->rank = boot->place = who->rank;
    boot->size = boot->members_n = who->size;
    boot->waits_for = -1;
    atomic_init(&boot->stream_waits_for, -1);
    boot_listener_init(boot);
    boot->edges = boot_edges_new(boot, &boot->edges_n);
    pthread_condattr_t attr;
    if (boot->edges == NULL || pthread_condattr_init(&attr) != 0) {
        free(boot->edges);
        free(boot);
        return NULL;
    }
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&boot->moved, &attr);
    pthread_condattr_destroy(&attr);
    if (bad != 0 || pthread_mutex_init(&boot->lock, NULL) != 0) {
        free(boot->edges);
        free(boot);
        return NULL;
    }
    boot->silence = (base_time_t)(base_setting_seconds(SET_HEARTBEAT) * 1e9);
    snprintf(boot->root_text, sizeof(boot->root_text), "%s", who->root);
    snprintf(boot->job, sizeof(boot->job), "%s", who->job);
    memcpy(boot->secret, who->secret, sizeof(boot->secret));
    comm_boot_key(boot, "auth", boot->auth_key);
    return boot;
}

gyre_status_t comm_boot_join(const comm_identity_t *who, base_time_t deadline, comm_boot_t **out)
{
    if (sodium_init() < 0)
        return gyre_fail(GYRE_ERR_SYSTEM, "libsodium cannot start: no source of random numbers?");
    if (who->size < 1 || who->rank < 0 || who->rank >= who->size)
        return gyre_fail(GYRE_ERR_INVALID, "rank %d of %d is not a rank of the job", who->rank, who->size);
    if (who->size > 1 && !who->have_secret)
        return gyre_fail(GYRE_ERR_AUTH, "a job of %d ranks needs a secret", who->size);
    comm_boot_t *boot = boot_new(who);
    if (boot == NULL)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for the bootstrap");
    if (!who->have_secret)
        randombytes_buf(boot->secret, sizeof(boot->secret));
    gyre_status_t st = boot->size > 1 ? boot_join_tree(boot, who, deadline) : GYRE_OK;
    /* All or none: a rank that could not join sends its error to the others. */
    if (st == GYRE_OK && boot->size > 1)
        st = comm_boot_barrier(boot, deadline);
    if (st != GYRE_OK) {
        char text[BOOT_TEXT];
        snprintf(text, sizeof(text), "rank %d could not join: %.400s", boot->rank, gyre_last_error());
        boot_lock(boot);
        boot_note_abort(boot, BOOT_ABORT_JOB, st, text, NULL);
        boot_unlock(boot);
        comm_boot_leave(boot, 1);
        return st;
    }
    log_debug("bootstrap: joined job \"%s\" as rank %d of %d", boot->job, boot->rank, boot->size);
    *out = boot;
    return GYRE_OK;
}

void comm_boot_record(comm_boot_t *boot, comm_recorder_slot_t *recorder)
{
    boot_lock(boot);
    boot->recorder = recorder;
    boot_unlock(boot);
}

void comm_boot_ending(comm_boot_t *boot, const char *how)
{
    struct timespec at;
    unsigned char frame[BOOT_DEATH_BYTES];
    boot_death_t death = {.rank = boot->rank};
    snprintf(death.how, sizeof(death.how), "%s", how);
    size_t bytes = boot_death_pack(&death, frame);
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += 100 * 1000 * 1000;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    if (pthread_mutex_timedlock(&boot->lock, &at) != 0)
        return; /* exit was called in the middle of something: they will see the connections close */
    for (int i = 0; i < boot->edges_n; i++)
        if (boot->edges[i].open)
            (void)boot_conn_send(&boot->edges[i].conn, BOOT_DEAD, frame, bytes); /* else they see it close */
    pthread_mutex_unlock(&boot->lock);
}

/* Gets what was queued on its way and waits until the peer's kernel has it: closing with unread input would
 * reset the connection and destroy it. At most until `deadline`. */
static void edge_linger(boot_edge_t *edge, base_time_t deadline)
{
    unsigned char waste[4096];
    int shut = 0;
    for (;;) {
        int unsent = 0;
        boot_conn_flush(&edge->conn);
        if (!boot_conn_unsent(&edge->conn) && !shut) {
            shutdown(edge->conn.fd, SHUT_WR);
            shut = 1;
        }
        if (edge->conn.write_failed ||
            (shut && (ioctl(edge->conn.fd, SIOCOUTQ, &unsent) != 0 || unsent == 0)))
            return;
        ssize_t got = recv(edge->conn.fd, waste, sizeof(waste), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR) || base_poll_ms(deadline) == 0)
            return;
        struct pollfd p = {.fd = edge->conn.fd, .events = shut ? 0 : POLLOUT, .revents = 0};
        poll(&p, 1, 1); /* an acknowledgement is no event: look again every millisecond */
    }
}

void comm_boot_leave(comm_boot_t *boot, int graceful)
{
    if (boot == NULL)
        return;
    base_time_t deadline = base_deadline(1.0);
    unsigned char me[4];
    boot_put32(me, (uint32_t)boot->rank);
    for (int i = 0; i < boot->edges_n; i++)
        if (boot->edges[i].open && boot_conn_send(&boot->edges[i].conn, graceful ? BOOT_GOODBYE : BOOT_LEFT,
                                                  me, graceful ? 0 : sizeof(me)) != GYRE_OK)
            log_warning("bootstrap: rank %d will take our leaving for a death", boot->edges[i].rank);
    for (int i = 0; i < boot->edges_n; i++) {
        if (boot->edges[i].open)
            edge_linger(&boot->edges[i], deadline);
        boot_conn_close(&boot->edges[i].conn);
        boot_buf_free(&boot->edges[i].steps);
    }
    boot_listener_close(boot);
    for (int i = 0; i < BOOT_ASKED_MAX; i++)
        boot_buf_free(&boot->asked[i].value);
    boot_buf_free(&boot->view);
    boot_circles_free(boot);
    free(boot->members);
    free(boot->places);
    free(boot->edges);
    free(boot->deaths);
    free(boot->aborts);
    pthread_cond_destroy(&boot->moved);
    pthread_mutex_destroy(&boot->lock);
    sodium_memzero(boot, sizeof(*boot));
    free(boot);
}
