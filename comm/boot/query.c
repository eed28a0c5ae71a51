/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/query.c: asks another rank what it does and for which rank it waits.
 *
 * The question goes along the tree to the rank. The rank's watcher thread answers, even if the rank is busy,
 * and the answer goes back. A rank that has no watcher yet answers while it is in a call of the bootstrap.
 *
 * A rank whose wait is too long asks the rank that it waits for, then the rank that this one waits for, and
 * so on (boot_blame). Each rank of the chain gets at most one question. Nothing is asked before something is
 * late. When a whole job is late at once, its ranks ask at the same time. The neighbour of the culprit gets
 * its answer first and aborts the communicator, which ends the others' search.
 *
 * BOOT_ASK is u32 id, u32 origin, u32 rank, u32 about: low bits of the communicator whose operation is late.
 * BOOT_TELL is u32 id, u32 origin, u32 at (comm_boot_at_t), u32 waits_for, then at COMM_AT_JOINING the text
 * `missing`, at COMM_AT_CALLS u32 state, u32 milliseconds (~0: not known), and the newest calls: u32 seq, u8
 * op, type, redop, flags, u32 root, sig, u64 count, u32 comm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot/tree.h"

enum { TELL_HEAD = 16, CALLS_HEAD = 8, CALL_BYTES = 32 };
#define ANSWER_NS ((base_time_t)400000000) /* for a rank to answer, or to pass a question on */
#define SLOW_NS   (ANSWER_NS / 2)          /* without an answer: time to ask those on the way, too */

/* The place on the way from place `at` to place `to`, another one. */
static int next_place(const comm_boot_t *boot, int at, int to)
{
    int children[31], n = boot_tree_children(at, boot->members_n, children);
    for (int i = 0; i < n; i++)
        if (to >= children[i] && to < boot_tree_end(children[i], boot->members_n))
            return children[i];
    return boot_tree_parent(at);
}

boot_edge_t *boot_edge_towards(comm_boot_t *boot, int rank)
{
    int place = boot_place(boot, rank);
    if (place < 0 || place == boot->place)
        return NULL;
    return boot_edge_of(boot, boot_member(boot, next_place(boot, boot->place, place)));
}

void boot_pass_on(comm_boot_t *boot, int rank, const boot_message_t *m)
{
    boot_edge_t *edge = boot_edge_towards(boot, rank);
    if (edge != NULL && boot_edge_send(boot, edge, m->type, m->data, m->bytes) != GYRE_OK)
        log_warning("bootstrap: no memory to pass a message on to rank %d", rank);
}

const boot_death_t *boot_death_on_way(const comm_boot_t *boot, int rank)
{
    const boot_death_t *death = NULL;
    const int to = boot_place(boot, rank);
    for (int at = boot->place; to >= 0 && at != to && death == NULL;) {
        at = next_place(boot, at, to);
        death = boot_death_of(boot, boot_member(boot, at));
    }
    return death;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static size_t pack_calls(const comm_doing_t *doing, unsigned char *out)
{
    boot_put32(out, doing->state);
    boot_put32(out + 4,
               doing->seconds < 0 || doing->seconds > 4e6 ? UINT32_MAX : (uint32_t)(doing->seconds * 1e3));
    unsigned char *at = out + CALLS_HEAD;
    for (int i = 0; i < doing->calls_n; i++, at += CALL_BYTES) {
        const comm_call_t *c = &doing->calls[i];
        boot_put32(at, c->seq);
        at[4] = c->op;
        at[5] = c->type;
        at[6] = c->redop;
        at[7] = c->flags;
        boot_put32(at + 8, (uint32_t)c->root);
        boot_put32(at + 12, c->sig);
        boot_put64(at + 16, c->count);
        boot_put32(at + 24, c->comm);
        boot_put32(at + 28, c->user_tag);
    }
    return (size_t)(at - out);
}

static void unpack_calls(const unsigned char *data, size_t bytes, comm_doing_t *doing)
{
    uint32_t ms = boot_get32(data + 4);
    doing->state = boot_get32(data);
    doing->seconds = ms == UINT32_MAX ? -1 : (double)ms * 1e-3;
    for (size_t from = CALLS_HEAD; bytes - from >= CALL_BYTES && doing->calls_n < COMM_DOING_CALLS;
         from += CALL_BYTES) {
        const unsigned char *at = data + from;
        doing->calls[doing->calls_n++] = (comm_call_t){.seq = boot_get32(at),
                                                       .op = at[4],
                                                       .type = at[5],
                                                       .redop = at[6],
                                                       .flags = at[7],
                                                       .root = (int32_t)boot_get32(at + 8),
                                                       .sig = boot_get32(at + 12),
                                                       .count = boot_get64(at + 16),
                                                       .comm = boot_get32(at + 24),
                                                       .user_tag = boot_get32(at + 28)};
    }
}

void comm_boot_stream_waits(comm_boot_t *boot, int rank)
{
    atomic_store(&boot->stream_waits_for, rank);
}

size_t boot_tell_pack(const comm_boot_t *boot, const unsigned char ask[BOOT_ASK_BYTES],
                      unsigned char out[BOOT_TELL_MAX])
{
    comm_boot_doing_t doing = {.waits_for = boot->waits_for};
    size_t bytes = TELL_HEAD;
    if (boot->joiners != NULL) {
        doing.at = COMM_AT_JOINING;
        boot_joiners_missing(boot->joiners, doing.missing, sizeof(doing.missing));
        memcpy(out + bytes, doing.missing, strlen(doing.missing));
        bytes += strlen(doing.missing);
    } else if (boot->waits_for >= 0) {
        doing.at = COMM_AT_BOOT;
    } else {
        if (boot->recorder != NULL) {
            comm_recorder_doing(boot->recorder, &doing.calls);
            /* 3: it has failed; if in what the asker waits for, it has given up a moment sooner, and
             * waited until then */
            int same = doing.calls.calls_n > 0 && doing.calls.calls[0].comm == boot_get32(ask + 12);
            if (doing.calls.state == 2 || (doing.calls.state == 3 && same))
                doing.waits_for = doing.calls.waiting_for;
        }
        if (doing.waits_for < 0)
            doing.waits_for = atomic_load(&boot->stream_waits_for);
        bytes += pack_calls(&doing.calls, out + bytes);
    }
    memcpy(out, ask, 8);
    boot_put32(out + 8, (uint32_t)doing.at);
    boot_put32(out + 12, (uint32_t)doing.waits_for);
    return bytes;
}

int boot_tell_unpack(const comm_boot_t *boot, const unsigned char *data, size_t bytes,
                     comm_boot_doing_t *doing)
{
    char text[BOOT_TEXT];
    if (bytes < TELL_HEAD)
        return 0;
    uint32_t at = boot_get32(data + 8);
    int waits_for = (int)boot_get32(data + 12);
    if (at > COMM_AT_JOINING || waits_for < -1 || waits_for >= boot->size)
        return 0;
    *doing = (comm_boot_doing_t){.at = (comm_boot_at_t)at, .waits_for = waits_for, .calls = {.seconds = -1}};
    if (at == COMM_AT_JOINING) {
        boot_copy_text(text, data + TELL_HEAD, bytes - TELL_HEAD);
        snprintf(doing->missing, sizeof(doing->missing), "%.*s", (int)sizeof(doing->missing) - 1, text);
    } else if (at == COMM_AT_CALLS) {
        if (bytes < TELL_HEAD + CALLS_HEAD)
            return 0;
        unpack_calls(data + TELL_HEAD, bytes - TELL_HEAD, &doing->calls);
    }
    return 1;
}

void boot_take_ask(comm_boot_t *boot, const boot_message_t *m)
{
    unsigned char answer[BOOT_TELL_MAX];
    if (m->bytes != BOOT_ASK_BYTES)
        return;
    int origin = (int)boot_get32(m->data + 4), rank = (int)boot_get32(m->data + 8);
    if (rank != boot->rank) {
        boot_pass_on(boot, rank, m);
        return;
    }
    size_t bytes = boot_tell_pack(boot, m->data, answer);
    boot_message_t tell = {.type = BOOT_TELL, .data = answer, .bytes = bytes};
    boot_pass_on(boot, origin, &tell);
}

void boot_take_tell(comm_boot_t *boot, const boot_message_t *m)
{
    if (m->bytes < 8)
        return;
    int origin = (int)boot_get32(m->data + 4);
    if (origin != boot->rank) {
        boot_pass_on(boot, origin, m);
        return;
    }
    for (int i = 0; i < BOOT_ASKED_MAX; i++) {
        boot_asked_t *a = &boot->asked[i];
        if (a->id == boot_get32(m->data) && !a->answered) {
            a->found = boot_buf_add(&a->value, m->data, m->bytes);
            a->answered = 1;
        }
    }
}

/* ---- questions ----------------------------------------------------------------------------------------- */

typedef struct {
    int rank;
    uint32_t epoch;
    base_time_t since;
    boot_asked_t *slot; /* NULL: it could not be asked */
} question_t;

typedef enum {
    VERDICT_ANSWERED,
    VERDICT_DEAD,   /* and we know it */
    VERDICT_SILENT, /* it had its full time */
    /* nothing can be said of it: no time, no means here, another tree meanwhile, a malformed answer */
    VERDICT_UNHEARD
} verdict_t;

/* A question under way, with a number; drop frees it. NULL: too many. */
static boot_asked_t *asked_new(comm_boot_t *boot)
{
    for (int i = 0; i < BOOT_ASKED_MAX; i++) {
        boot_asked_t *a = &boot->asked[i];
        if (a->id != 0)
            continue;
        if (++boot->asked_last == 0)
            boot->asked_last = 1; /* 0 marks a free place */
        a->id = boot->asked_last;
        return a;
    }
    return NULL;
}

static void drop(question_t *q)
{
    if (q->slot == NULL)
        return;
    boot_buf_free(&q->slot->value);
    memset(q->slot, 0, sizeof(*q->slot));
    q->slot = NULL;
}

static question_t put_question(comm_boot_t *boot, int rank, uint64_t about)
{
    question_t q = {.rank = rank, .epoch = boot->epoch, .since = base_now()};
    unsigned char frame[BOOT_ASK_BYTES];
    boot_edge_t *edge = boot_edge_towards(boot, rank);
    if (edge == NULL || !edge->open || boot_death_of(boot, rank) != NULL)
        return q;
    q.slot = asked_new(boot);
    if (q.slot == NULL)
        return q;
    boot_put32(frame, q.slot->id);
    boot_put32(frame + 4, (uint32_t)boot->rank);
    boot_put32(frame + 8, (uint32_t)rank);
    boot_put32(frame + 12, (uint32_t)about);
    if (boot_edge_send(boot, edge, BOOT_ASK, frame, sizeof(frame)) != GYRE_OK)
        drop(&q);
    return q;
}

/* 1: no more is to be expected of it. */
static int is_settled(const comm_boot_t *boot, const question_t *q)
{
    return q->slot == NULL || q->slot->answered || q->epoch != boot->epoch ||
           boot_death_of(boot, q->rank) != NULL;
}

static verdict_t judge(const comm_boot_t *boot, const question_t *q, comm_boot_doing_t *doing)
{
    if (q->slot != NULL && q->slot->answered)
        return q->slot->found && boot_tell_unpack(boot, q->slot->value.data + q->slot->value.from,
                                                  boot_buf_len(&q->slot->value), doing)
                   ? VERDICT_ANSWERED
                   : VERDICT_UNHEARD;
    if (boot_death_of(boot, q->rank) != NULL)
        return VERDICT_DEAD;
    if (q->slot == NULL || q->epoch != boot->epoch || base_now() - q->since < ANSWER_NS)
        return VERDICT_UNHEARD;
    return VERDICT_SILENT;
}

/* Waits until all are settled, at most until `until`. ABORTED (quiet): see comm_boot_blame. */
static gyre_status_t wait_answers(comm_boot_t *boot, uint64_t about, const question_t *q, int n,
                                  base_time_t until)
{
    for (int timely = 1;;) {
        int open = 0;
        if (boot_abort_of(boot, about) != NULL)
            return gyre_fail_quiet(GYRE_ERR_ABORTED, "aborted meanwhile");
        for (int i = 0; i < n; i++)
            open += !is_settled(boot, &q[i]);
        if (open == 0 || !timely)
            return GYRE_OK;
        timely = boot_wait(boot, until) == GYRE_OK;
    }
}

static base_time_t sooner(base_time_t a, base_time_t b)
{
    return a < b ? a : b;
}

enum { RELAYS_MAX = 62 }; /* up the tree and down again */

/* Asks all that a question to `rank` passes, nearest first. Returns how many. */
static int ask_relays(comm_boot_t *boot, int rank, uint64_t about, question_t q[RELAYS_MAX])
{
    int n = 0, to = boot_place(boot, rank);
    if (to < 0 || to == boot->place)
        return 0;
    for (int at = next_place(boot, boot->place, to); at != to && n < RELAYS_MAX;
         at = next_place(boot, at, to))
        q[n++] = put_question(boot, boot_member(boot, at), about);
    return n;
}

/* Asks `*rank`. If it is slow to answer those on the way are asked, too, all at once, and the first that does
 * not answer takes its place. ABORTED as wait_answers. */
static gyre_status_t ask(comm_boot_t *boot, int *rank, uint64_t about, base_time_t deadline,
                         comm_boot_doing_t *doing, verdict_t *verdict)
{
    question_t q = put_question(boot, *rank, about), relay[RELAYS_MAX];
    int relays = 0;
    gyre_status_t st = wait_answers(boot, about, &q, 1, sooner(q.since + SLOW_NS, deadline));
    *verdict = judge(boot, &q, doing);
    if (st == GYRE_OK && *verdict != VERDICT_ANSWERED && *verdict != VERDICT_DEAD) {
        relays = ask_relays(boot, *rank, about, relay);
        st = wait_answers(boot, about, &q, 1, sooner(q.since + ANSWER_NS, deadline));
        *verdict = judge(boot, &q, doing);
    }
    if (st == GYRE_OK && relays > 0 && *verdict != VERDICT_ANSWERED && *verdict != VERDICT_DEAD) {
        st = wait_answers(boot, about, relay, relays, sooner(relay[0].since + ANSWER_NS, deadline));
        *verdict = judge(boot, &q, doing);
        verdict_t on_the_way = *verdict == VERDICT_ANSWERED ? VERDICT_UNHEARD : VERDICT_ANSWERED;
        for (int i = 0; i < relays && on_the_way == VERDICT_ANSWERED; i++) {
            comm_boot_doing_t other;
            on_the_way = judge(boot, &relay[i], &other);
            if (on_the_way == VERDICT_DEAD || on_the_way == VERDICT_SILENT) {
                *rank = relay[i].rank;
                *verdict = on_the_way;
            }
        }
    }
    for (int i = 0; i < relays; i++)
        drop(&relay[i]);
    drop(&q);
    return st;
}

static void tell_end(const comm_boot_t *boot, comm_blame_t *out, verdict_t verdict)
{
    out->doing = (comm_boot_doing_t){.waits_for = -1, .calls = {.seconds = -1}};
    out->silent = verdict == VERDICT_SILENT;
    out->unheard = verdict == VERDICT_UNHEARD;
    if (verdict == VERDICT_DEAD) {
        char text[BOOT_TEXT + 16];
        boot_death_text(boot_death_of(boot, out->rank), text, sizeof(text));
        snprintf(out->died, sizeof(out->died), "%.*s", (int)sizeof(out->died) - 1, text);
    }
}

/* seen: [size] ranks, as bits. */
static gyre_status_t walk(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline,
                          unsigned char *seen, int size, comm_blame_t *out)
{
    seen[boot->rank / 8] |= (unsigned char)(1u << (boot->rank % 8)); /* it waits, too: that is why it asks */
    for (int next = from; next >= 0; next = out->doing.waits_for) {
        verdict_t verdict;
        if (next >= size) { /* it came in meanwhile */
            tell_end(boot, out, VERDICT_UNHEARD);
            return GYRE_OK;
        }
        if (seen[next / 8] >> (next % 8) & 1) {
            out->circle = 1;
            out->back = next;
            return GYRE_OK;
        }
        seen[next / 8] |= (unsigned char)(1u << (next % 8));
        out->rank = next;
        if (out->chain_n < COMM_BLAME_CHAIN)
            out->chain[out->chain_n] = next;
        out->chain_n++;
        gyre_status_t st = ask(boot, &out->rank, about, deadline, &out->doing, &verdict);
        if (st != GYRE_OK)
            return st;
        if (verdict != VERDICT_ANSWERED)
            tell_end(boot, out, verdict);
    }
    return GYRE_OK;
}

gyre_status_t boot_blame(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline, comm_blame_t *out)
{
    const int size = boot->size; /* it may grow while this rank waits for answers */
    unsigned char *seen = calloc((size_t)size / 8 + 1, 1);
    *out = (comm_blame_t){.rank = from, .back = -1};
    if (boot_abort_of(boot, about) != NULL) { /* before all else: who has aborted may have left since */
        free(seen);
        return gyre_fail_quiet(GYRE_ERR_ABORTED, "aborted meanwhile");
    }
    if (seen == NULL) {
        out->chain[out->chain_n++] = from;
        tell_end(boot, out, VERDICT_UNHEARD);
        return GYRE_OK;
    }
    gyre_status_t st = walk(boot, from, about, deadline, seen, size, out);
    free(seen);
    if (st != GYRE_OK)
        return st;
    if (boot->places != NULL && out->rank >= 0 && out->rank < boot->places_n)
        snprintf(out->host, sizeof(out->host), "%.*s", COMM_BLAME_HOST - 1, boot->places[out->rank].host);
    return GYRE_OK;
}

gyre_status_t boot_ask_missing(comm_boot_t *boot, base_time_t deadline, char *text, size_t bytes)
{
    comm_boot_doing_t doing;
    int root = 0;
    verdict_t verdict;
    gyre_status_t st = ask(boot, &root, BOOT_ABORT_JOB, deadline, &doing, &verdict);
    text[0] = '\0';
    if (st == GYRE_OK && verdict == VERDICT_ANSWERED && doing.at == COMM_AT_JOINING)
        snprintf(text, bytes, "%s", doing.missing);
    return st;
}

gyre_status_t comm_boot_blame(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline,
                              comm_blame_t *out)
{
    boot_lock(boot);
    gyre_status_t st = boot_blame(boot, from, about, deadline, out);
    boot_unlock(boot);
    return st;
}
