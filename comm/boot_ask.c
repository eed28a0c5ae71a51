/* comm/boot_ask.c: what is another rank doing, and whom does it wait for? The question goes along the tree to it, its watcher's
 * thread answers, however busy the rank is, and the answer goes back. Ranks without a watcher yet answer while they are in a
 * call of the bootstrap.
 *
 * Whoever waits in vain asks the rank it waits for whom that waits for, and so on (boot_blame): at most one question per rank
 * of the chain, nothing before something is late. When a whole job is late at once its ranks ask at the same time; the neighbour of
 * the culprit has its answer first, aborts the communicator, and that ends the others' search.
 *
 * BOOT_ASK is u32 id, u32 origin, u32 rank, u32 about: low bits of the communicator whose operation is late.
 * BOOT_TELL is u32 id, u32 origin, u32 at (comm_boot_at_t), u32 waits_for, then at COMM_AT_GATE the text `missing`, at COMM_AT_CALLS
 * u32 state, u32 milliseconds (~0: not known), and the newest calls: u32 seq, u8 op, type, redop, flags, u32 root, sig, u64 count,
 * u32 comm. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/boot_tree.h"

enum { TELL_HEAD = 16, CALLS_HEAD = 8, CALL_BYTES = 28 };
#define ANSWER_SECONDS 0.4 /* for one rank to answer */
#define RELAY_SECONDS  0.1 /* for one between here and a rank that does not */

/* The place on the way from place `at` to place `to`, another one. */
static int next_place(const comm_boot_t *boot, int at, int to)
{
    int children[31], n = boot_tree_children(at, boot->members_n, children);
    for (int i = 0; i < n; i++)
        if (to >= children[i] && to < boot_tree_end(children[i], boot->members_n))
            return children[i];
    return boot_tree_parent(at);
}

/* The edge towards `rank`; NULL: it is no member, or this rank itself. */
static boot_edge_t *towards(comm_boot_t *boot, int rank)
{
    int place = boot_place(boot, rank);
    if (place < 0 || place == boot->place)
        return NULL;
    return boot_edge_of(boot, boot_member(boot, next_place(boot, boot->place, place)));
}

static void pass_on(comm_boot_t *boot, int rank, const boot_message_t *m)
{
    boot_edge_t *edge = towards(boot, rank);
    if (edge != NULL && boot_edge_send(boot, edge, m->type, m->data, m->bytes) != GYRE_OK)
        log_warning("bootstrap: no memory to pass a question on to rank %d", rank);
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

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
                                                       .comm = boot_get32(at + 24)};
    }
}

size_t boot_tell_pack(const comm_boot_t *boot, const unsigned char ask[BOOT_ASK_BYTES],
                      unsigned char out[BOOT_TELL_MAX])
{
    comm_boot_doing_t doing = {.waits_for = boot->waits_for};
    size_t bytes = TELL_HEAD;
    if (boot->gate != NULL) {
        doing.at = COMM_AT_GATE;
        boot_gate_missing(boot->gate, doing.missing, sizeof(doing.missing));
        memcpy(out + bytes, doing.missing, strlen(doing.missing));
        bytes += strlen(doing.missing);
    } else if (boot->waits_for >= 0) {
        doing.at = COMM_AT_BOOT;
    } else {
        if (boot->recorder != NULL) {
            comm_recorder_doing(boot->recorder, &doing.calls);
            /* 3: it has failed; if in what the asker waits for, it has given up a moment sooner, and waited until then */
            int same = doing.calls.calls_n > 0 && doing.calls.calls[0].comm == boot_get32(ask + 12);
            if (doing.calls.state == 2 || (doing.calls.state == 3 && same))
                doing.waits_for = doing.calls.waiting_for;
        }
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
    if (at > COMM_AT_GATE || waits_for < -1 || waits_for >= boot->size)
        return 0;
    *doing = (comm_boot_doing_t){.at = (comm_boot_at_t)at, .waits_for = waits_for, .calls = {.seconds = -1}};
    if (at == COMM_AT_GATE) {
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
        pass_on(boot, rank, m);
        return;
    }
    size_t bytes = boot_tell_pack(boot, m->data, answer);
    boot_message_t tell = {.type = BOOT_TELL, .data = answer, .bytes = bytes};
    pass_on(boot, origin, &tell);
}

void boot_take_tell(comm_boot_t *boot, const boot_message_t *m)
{
    if (m->bytes < 8)
        return;
    int origin = (int)boot_get32(m->data + 4);
    if (origin != boot->rank) {
        pass_on(boot, origin, m);
        return;
    }
    for (int i = 0; i < BOOT_GETS_MAX; i++) {
        boot_asked_t *a = &boot->asked[i];
        if (a->id == boot_get32(m->data) && !a->answered) {
            a->found = boot_buf_add(&a->value, m->data, m->bytes);
            a->answered = 1;
        }
    }
}

/* ---- questions ---------------------------------------------------------------------------------------------------- */

/* TIMEOUT: no answer, or none that can be read. ABORTED: see comm_boot_blame. Both quiet. */
static gyre_status_t ask(comm_boot_t *boot, int rank, uint64_t about, base_time_t deadline,
                         comm_boot_doing_t *doing)
{
    unsigned char frame[BOOT_ASK_BYTES];
    boot_edge_t *edge = towards(boot, rank);
    if (boot_abort_of(boot, about) != NULL) /* before all else: who has aborted may have left since */
        return gyre_fail_quiet(GYRE_ERR_ABORTED, "aborted meanwhile");
    boot_asked_t *a =
        edge != NULL && edge->open && boot_death_of(boot, rank) == NULL ? boot_asked_new(boot) : NULL;
    if (a == NULL)
        return gyre_fail_quiet(GYRE_ERR_TIMEOUT, "rank %d cannot be asked", rank);
    boot_put32(frame, a->id);
    boot_put32(frame + 4, (uint32_t)boot->rank);
    boot_put32(frame + 8, (uint32_t)rank);
    boot_put32(frame + 12, (uint32_t)about);
    gyre_status_t st = boot_edge_send(boot, edge, BOOT_ASK, frame, sizeof(frame));
    while (st == GYRE_OK && !a->answered) {
        if (boot_abort_of(boot, about) != NULL)
            st = gyre_fail_quiet(GYRE_ERR_ABORTED, "aborted meanwhile");
        else
            st = boot_wait(boot, deadline);
    }
    if (st == GYRE_OK &&
        (!a->found || !boot_tell_unpack(boot, a->value.data + a->value.from, boot_buf_len(&a->value), doing)))
        st = gyre_fail_quiet(GYRE_ERR_TIMEOUT, "the answer of rank %d is malformed", rank);
    boot_buf_free(&a->value);
    memset(a, 0, sizeof(*a));
    return st;
}

static base_time_t within(double seconds, base_time_t deadline)
{
    base_time_t then = base_deadline(seconds);
    return then < deadline ? then : deadline;
}

/* No answer came from `rank`: the first rank on the way to it that does not answer, either. */
static gyre_status_t find_silent(comm_boot_t *boot, uint64_t about, base_time_t deadline, int *rank)
{
    comm_boot_doing_t doing;
    int to = boot_place(boot, *rank);
    if (to < 0)
        return GYRE_OK;
    for (int at = next_place(boot, boot->place, to); at != to; at = next_place(boot, at, to)) {
        gyre_status_t st = ask(boot, boot_member(boot, at), about, within(RELAY_SECONDS, deadline), &doing);
        if (st == GYRE_ERR_ABORTED)
            return st;
        if (st != GYRE_OK) {
            *rank = boot_member(boot, at);
            return GYRE_OK;
        }
    }
    return GYRE_OK;
}

static int walked(const comm_boot_t *boot, const comm_blame_t *blame, int rank)
{
    for (int i = 0; i < blame->chain_n && i < COMM_BLAME_CHAIN; i++)
        if (blame->chain[i] == rank)
            return 1;
    return rank == boot->rank ||
           blame->chain_n > boot->members_n; /* this one waits, too: that is why it asks */
}

gyre_status_t boot_blame(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline, comm_blame_t *out)
{
    gyre_status_t st = GYRE_OK;
    *out = (comm_blame_t){.rank = from};
    for (int next = from; next >= 0 && !out->silent;) {
        out->circle = walked(boot, out, next);
        if (out->circle)
            break;
        out->rank = next;
        if (out->chain_n < COMM_BLAME_CHAIN)
            out->chain[out->chain_n] = next;
        out->chain_n++;
        st = ask(boot, next, about, within(ANSWER_SECONDS, deadline), &out->doing);
        if (st == GYRE_ERR_ABORTED)
            return st;
        if (st != GYRE_OK) {
            out->doing = (comm_boot_doing_t){.waits_for = -1, .calls = {.seconds = -1}};
            out->silent = 1;
            st = find_silent(boot, about, deadline, &out->rank);
            if (st != GYRE_OK)
                return st;
        }
        next = out->doing.waits_for;
    }
    if (boot->places != NULL && out->rank >= 0 && out->rank < boot->places_n)
        snprintf(out->host, sizeof(out->host), "%.*s", COMM_BLAME_HOST - 1, boot->places[out->rank].host);
    return GYRE_OK;
}

gyre_status_t boot_ask_missing(comm_boot_t *boot, base_time_t deadline, char *text, size_t bytes)
{
    comm_boot_doing_t doing;
    gyre_status_t st = ask(boot, 0, BOOT_ABORT_JOB, deadline, &doing);
    text[0] = '\0';
    if (st == GYRE_OK && doing.at == COMM_AT_GATE)
        snprintf(text, bytes, "%s", doing.missing);
    return st == GYRE_ERR_ABORTED ? st : GYRE_OK;
}

gyre_status_t comm_boot_blame(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline,
                              comm_blame_t *out)
{
    pthread_mutex_lock(&boot->lock);
    gyre_status_t st = boot_blame(boot, from, about, deadline, out);
    pthread_mutex_unlock(&boot->lock);
    return st;
}
