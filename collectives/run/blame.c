/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/blame.c: explains an operation that failed: the ranks' calls, the chain of waits, and the
 * culprit.
 *
 * An operation that is late waits for a few ranks at most, the blockers. The blockers wait for other ranks.
 * At the end of such a chain is a rank that waits for no other: it is in no call, or it computes.
 * comm_boot_blame follows the chain through the ranks' watchers. Before a failure this costs one word: the
 * flight recorder's word for the rank that a sleeping rank waits for. */
#include "collectives/run/communicator.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "base/log.h"

void coll_call_text(const comm_call_t *call, char *text, size_t bytes)
{
    gyre_type_t type = (gyre_type_t)call->type;
    char number[16] = "", tag[20] = ""; /* no number before it is started */
    if (call->seq)
        snprintf(number, sizeof number, " #%u", call->seq);
    if (call->user_tag)
        snprintf(tag, sizeof tag, ", tag %u", call->user_tag);
    const char *where = call->flags & COMM_CALL_REGISTERED ? ", on registered device memory"
                        : call->flags & COMM_CALL_DEVICE   ? ", on device memory"
                                                           : "";
    if (call->op == COLL_SENDRECV) {
        snprintf(text, bytes, "%s rank %d%s (count %llu, %s%s%s)",
                 call->flags & COMM_CALL_RECV ? "recv from" : "send to", call->root, number,
                 (unsigned long long)call->count, gyre_type_name(type), where, tag);
        return;
    }
    const char *captured = call->flags & COMM_CALL_CAPTURED ? ", captured" : "";
    coll_op_t op = (coll_op_t)call->op;
    const int v = call->flags & COMM_CALL_V, inside = call->flags & COMM_CALL_INSIDE;
    int at =
        snprintf(text, bytes, "%s%s",
                 op > 0 && op < COLL_OP_END ? coll_call_name(op, v, inside ? call->redop : COLL_INSIDE_NONE)
                                            : "no call",
                 number);
    if (at < 0 || (size_t)at >= bytes || op <= 0 || op >= COLL_OP_END)
        return;
    if (op == COLL_BARRIER || inside) {
        if (tag[0])
            snprintf(text + at, bytes - (size_t)at, " (%s)", tag + 2);
        return;
    }
    int reduces = coll_op_reduces(op);
    int rooted = op == COLL_BROADCAST || op == COLL_REDUCE || op == COLL_GATHER || op == COLL_SCATTER;
    char root[24] = "";
    if (rooted)
        snprintf(root, sizeof root, ", root %d", call->root);
    snprintf(text + at, bytes - (size_t)at, " (count %llu, %s%s%s%s%s%s%s%s)",
             (unsigned long long)call->count, gyre_type_name(type), reduces ? ", " : "",
             reduces && (call->flags & COMM_CALL_SCALED) ? "scaled " : "",
             reduces ? gyre_redop_name((gyre_redop_kind_t)call->redop) : "", root, where, captured, tag);
}

int coll_find_call(const gyre_comm_t *comm, int rank, uint32_t seq, comm_call_t *call)
{
    return comm->team ? comm_board_find(&comm->team->rank[rank].board, seq, 0, -1, call)
                      : comm_group_find_call(comm->group, rank, seq, 0, -1, call);
}

/* ---- whom an operation waits for ----------------------------------------------------------------------- */

enum { BLOCKERS = 8 };
typedef struct {
    int peer;
    const char *how;
} blocker_t;

static void add_blocker(blocker_t *list, int *n, int peer, const char *how)
{
    for (int i = 0; i < *n; i++)
        if (list[i].peer == peer)
            return;
    if (*n < BLOCKERS && peer >= 0)
        list[(*n)++] = (blocker_t){peer, how};
}

const gyre_request_t *coll_request_named(const gyre_request_t *r)
{
    if (r->kind != COLL_REQ_MESSAGES)
        return r;
    const gyre_request_t *part = r->comm->p2p_head;
    while (part && part->whole != r)
        part = part->next;
    return part;
}

/* The ranks that r waits for, those first that have sent nothing. Returns how many. */
static int find_blockers(const gyre_request_t *r, blocker_t list[BLOCKERS])
{
    int n = 0;
    r = coll_request_named(r);
    if (!r)
        return 0;
    if (r->kind == COLL_REQ_DEVICE) {
        add_blocker(list, &n, r->comm->device_ops->late(r->comm), "nothing came from");
        return n;
    }
    if (r->kind != COLL_REQ_COLLECTIVE) {
        add_blocker(list, &n, r->peer, "waiting for");
        return n;
    }
    if (!r->run.started && r->comm->head) /* collectives run one after the other */
        r = r->comm->head;
    if (r->plan->oneshot && r->run.started) {
        add_blocker(list, &n, coll_oneshot_late(&r->comm->oneshot),
                    r->comm->oneshot.state == COLL_ONESHOT_POSTS ? "not yet done with an earlier call is"
                                                                 : "nothing came from");
        return n;
    }
    if (!r->run.started || r->run.segment >= r->run.cut->n)
        return n;
    const coll_segment_t *g = &r->plan->segments[r->run.cut->of[r->run.segment]];
    for (int sends = 0; sends < 2; sends++)
        for (int c = 0; c < COLL_MAX_CHANNELS; c++) {
            if (r->run.pc[c] >= g->last[c])
                continue;
            const coll_pstep_t *s = &g->steps[g->order[r->run.pc[c]]];
            if (s->kind == (sends ? COLL_STEP_SEND : COLL_STEP_RECV))
                add_blocker(list, &n, s->peer, sends ? "nothing is taken by" : "nothing came from");
        }
    for (uint32_t i = 0; i < r->run.nopen; i++)
        add_blocker(list, &n, g->steps[g->open_sends[i]].peer, "a message was not fetched by");
    return n;
}

int coll_first_blocker(const gyre_request_t *r)
{
    blocker_t list[BLOCKERS];
    return find_blockers(r, list) > 0 ? list[0].peer : -1;
}

static void log_open_steps(const gyre_request_t *r)
{
    char line[160];
    if (r->kind != COLL_REQ_COLLECTIVE || r->plan->oneshot || !r->run.started ||
        r->run.segment >= r->run.cut->n)
        return;
    const coll_segment_t *g = &r->plan->segments[r->run.cut->of[r->run.segment]];
    for (uint32_t i = 0; i < g->schedule.nsteps; i++)
        if (!g->steps[i].done) {
            coll_step_print(&g->schedule, i, line, sizeof line);
            log_info("open step %u: %s", i, line);
        }
}

/* ---- who keeps all waiting ----------------------------------------------------------------------------- */

typedef struct {
    char *at;
    size_t left;
} text_t;

__attribute__((format(printf, 2, 3))) static void add(text_t *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

static void add_rank(text_t *t, const gyre_comm_t *comm, int world_rank)
{
    for (int r = 0; r < comm->n; r++)
        if (comm->world_ranks[r] == world_rank) {
            add(t, r == world_rank ? "rank %d" : "rank %d (world rank %d)", r, world_rank);
            return;
        }
    add(t, "world rank %d (of another communicator)", world_rank);
}

/* Do they agree in all that is shown but the tag? */
static int same_call(const comm_call_t *a, const comm_call_t *b)
{
    return a->op == b->op && a->count == b->count && a->type == b->type && a->redop == b->redop &&
           ((a->flags ^ b->flags) & (COMM_CALL_SCALED | COMM_CALL_DEVICE | COMM_CALL_REGISTERED |
                                     COMM_CALL_CAPTURED | COMM_CALL_V | COMM_CALL_INSIDE)) == 0 &&
           (a->root == b->root || (a->flags & COMM_CALL_P2P));
}

/* "all_reduce #19 (count 2, float, sum), #18, broadcast #17 (...)": what is as before is not repeated. */
static void add_calls(text_t *t, const comm_doing_t *doing)
{
    for (int i = 0; i < doing->calls_n; i++) {
        const comm_call_t *c = &doing->calls[i], *before = i > 0 ? c - 1 : NULL;
        char what[160];
        coll_call_text(c, what, sizeof what);
        if (before && before->comm == c->comm && before->user_tag == c->user_tag && same_call(before, c) &&
            !(c->flags & COMM_CALL_P2P))
            add(t, ", #%u", c->seq);
        else
            add(t, "%s%s", i > 0 ? ", " : "", what);
    }
}

static void add_doing(text_t *t, const comm_blame_t *blame)
{
    const comm_doing_t *doing = &blame->doing.calls;
    if (blame->died[0]) {
        add(t, "it %s", blame->died);
    } else if (blame->unheard) {
        add(t, "it could not be asked, or had no time to answer");
    } else if (blame->silent) {
        add(t, "it does not answer (stopped, or its host is cut off)");
    } else if (blame->doing.at != COMM_AT_CALLS) {
        add(t, "it is in a call that changes or leaves the job");
    } else if (doing->calls_n == 0) {
        add(t, "it has called nothing yet");
    } else if (doing->state == 2) {
        add(t, "it does not go on in its newest call");
        if (doing->seconds >= 0)
            add(t, ", for %.1f s", doing->seconds);
        add(t, "; its last calls: ");
        add_calls(t, doing);
    } else {
        add(t, "it is in no call; its last calls: ");
        add_calls(t, doing);
    }
}

static void add_chain(text_t *t, const gyre_comm_t *comm, const comm_blame_t *blame)
{
    for (int i = 1; i < blame->chain_n; i++) {
        if (i >= COMM_BLAME_CHAIN - 1 && i < blame->chain_n - 1) {
            add(t, " ... and so on to");
            i = blame->chain_n - 1;
        } else {
            add(t, ", which waits for");
        }
        add(t, " ");
        add_rank(t, comm, i < COMM_BLAME_CHAIN ? blame->chain[i] : blame->rank);
    }
}

/* Follows the chain of each blocker to a culprit, or to a circle that stays. *first: the blocker whose chain
 * ends so. One of several blockers may wait for this rank, for a later operation. Ranks that move on slowly
 * while they are asked may seem to wait for each other. */
static gyre_status_t follow_blockers(const gyre_comm_t *comm, const blocker_t *list, int n, int *first,
                                     comm_blame_t *blame)
{
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    base_time_t until = base_deadline(COMM_BLAME_SECONDS);
    for (int i = 0;; i++) {
        comm_blame_t found;
        gyre_status_t st = comm_boot_blame(
            comm->world->boot, comm_group_world_rank(comm->group, list[i % n].peer), comm->id, until, &found);
        if (st != GYRE_OK)
            return st;
        if (found.unheard && i > 0) /* the time is over: the circle stands that was found before */
            return GYRE_OK;
        *blame = found;
        *first = i % n;
        if (!found.circle || found.chain_n == 0 || base_now() + 2 * pause.tv_nsec > until)
            return GYRE_OK;
        if (i % n == n - 1)
            nanosleep(&pause, NULL);
    }
}

/* Of a team all boards are at hand: who has not made the call, and what he made last. */
static void late_in_team(const gyre_comm_t *comm, const gyre_request_t *r, char *text, size_t bytes)
{
    text_t t = {text, bytes};
    text[0] = '\0';
    if (r->call.flags & COMM_CALL_P2P) {
        add(&t, "rank %d has not made the other end's call, or its stream does not get to it", r->call.root);
        return;
    }
    for (int p = 0; p < comm->n; p++) {
        coll_team_rank_t *rank = &comm->team->rank[p];
        comm_call_t last = {0};
        char what[160];
        if (p == comm->rank || (comm_board_read(&rank->board, &last) && last.seq >= r->call.seq))
            continue;
        coll_call_text(&last, what, sizeof what);
        add(&t, "%srank %d %s%s", text[0] ? "; " : "", p,
            atomic_load(&rank->left) ? "has destroyed its communicator"
            : last.op == 0           ? "has called nothing yet"
                                     : "has not called it; its last call: ",
            atomic_load(&rank->left) || last.op == 0 ? "" : what);
    }
    if (!text[0])
        add(&t, "all ranks have called it, but their kernels do not run at once: streams that wait for each "
                "other or share a "
                "queue of the device (CUDA_DEVICE_MAX_CONNECTIONS), or other work that keeps the device");
}

/* Each rank knows its own counts only, and empty blocks are not sent. So a rank may have left a call in which
 * another one waits for it. */
static int is_uneven(const comm_call_t *call)
{
    return call->flags & COMM_CALL_V &&
           (call->op == COLL_GATHER || call->op == COLL_SCATTER || call->op == COLL_ALL_TO_ALL);
}

/* What a circle of two calls of one communicator comes from, if one of them is such a call. */
static void add_uneven(text_t *t, const gyre_comm_t *comm, const comm_call_t *mine, int peer)
{
    comm_call_t theirs = {0};
    const int known = comm_group_peer_call(comm->group, peer, &theirs);
    const comm_call_t *call = is_uneven(mine) ? mine : known && is_uneven(&theirs) ? &theirs : NULL;
    if (call && (!known || theirs.seq != mine->seq))
        add(t, "; so it is if a count of %s is 0 on one rank and not on the other",
            coll_call_name((coll_op_t)call->op, 1, COLL_INSIDE_NONE));
}

/* The n blockers of an operation, whose call is `mine`, and who is at the end of their chain. ABORTED:
 * another rank has found out and has aborted. */
static gyre_status_t late_text(const gyre_comm_t *comm, const comm_call_t *mine, const blocker_t *list, int n,
                               char *text, size_t bytes)
{
    comm_blame_t blame = {.rank = -1};
    text_t t = {text, bytes};
    int first = 0;
    text[0] = '\0';
    if (n == 0)
        return GYRE_OK;
    gyre_status_t st = follow_blockers(comm, list, n, &first, &blame);
    if (st != GYRE_OK)
        return st;
    if (blame.circle && blame.chain_n == 0) {
        add(&t, "it waits for itself");
        return GYRE_OK;
    }
    if (blame.circle) {
        add(&t, "ranks wait for each other: rank %d for ", comm->rank);
        add_rank(&t, comm, blame.chain[0]);
        add_chain(&t, comm, &blame);
        add(&t, ", and so back to ");
        add_rank(&t, comm, blame.back);
        add(&t, "; ");
    } else {
        add_rank(&t, comm, blame.rank);
        if (blame.host[0])
            add(&t, " on host %s", blame.host);
        add(&t, " keeps it waiting%s: ", blame.unheard ? ", or whom that waits for" : "");
        add_doing(&t, &blame);
        if (blame.chain_n > 1) {
            add(&t, "; %s ", list[first].how);
            add_rank(&t, comm, comm->world_ranks[list[first].peer]);
            add_chain(&t, comm, &blame);
            return GYRE_OK;
        }
        add(&t, "; ");
    }
    for (int i = 0; i < n; i++) {
        add(&t, "%s%s ", i > 0 ? ", " : "", list[i].how);
        add_rank(&t, comm, comm->world_ranks[list[i].peer]);
    }
    if (blame.circle)
        add_uneven(&t, comm, mine, list[first].peer);
    return GYRE_OK;
}

/* Is it time? The caller is driving. */
static int is_long(gyre_comm_t *comm, base_time_t now)
{
    if (comm->still_since == 0 || comm->still_moves != comm->moves) {
        comm->still_moves = comm->moves;
        comm->still_since = now;
        comm->spoken = 0;
    }
    if (now < comm_boot_patience(comm->world->boot, comm->still_since, comm->spoken))
        return 0;
    comm->spoken++;
    return 1;
}

void coll_speak_up(gyre_request_t *r, int driving)
{
    gyre_comm_t *comm = r->comm;
    comm_boot_t *boot = comm->world->boot;
    blocker_t list[BLOCKERS];
    comm_call_t call = {0};
    char mine[160], late[900], end[64] = "there is no deadline (GYRE_TIMEOUT=0)";
    int n = 0;
    if (!boot || (!driving && !coll_try_drive(comm)))
        return;
    const base_time_t now = base_now();
    if (is_long(comm, now))
        n = find_blockers(r, list);
    const double waited = (double)(now - comm->still_since) * 1e-9;
    if (n > 0) {
        call = coll_request_named(r)->call;
        coll_call_text(&call, mine, sizeof mine);
    }
    if (!driving)
        coll_stop_driving(comm);
    if (n == 0 || !comm_boot_may_speak(boot) || late_text(comm, &call, list, n, late, sizeof late) != GYRE_OK)
        return;
    const char *job = comm->world->job;
    if (comm->timeout_s > 0)
        snprintf(end, sizeof end, "the deadline is %.9g s (GYRE_TIMEOUT)", comm->timeout_s);
    base_log_hurry(1); /* a deadline must not wait for somebody to read stderr */
    log_warning("%s on rank %d has waited for %.*f s: %s; gyre-doctor --job%s%s shows all ranks of a host; "
                "%s",
                mine, comm->rank, waited < 10, waited, late, job[0] ? " " : "", job, end);
    base_log_hurry(-1);
}

/* ---- ranks that disagree ------------------------------------------------------------------------------- */

int coll_disagreeing(const gyre_request_t *r, comm_call_t *call)
{
    const gyre_comm_t *comm = r->comm;
    comm_call_t own;
    for (uint32_t back = 0;
         (r->kind == COLL_REQ_COLLECTIVE || r->kind == COLL_REQ_DEVICE) && back < 8 && back < r->call.seq;
         back++) {
        uint32_t seq = r->call.seq - back;
        if (!coll_find_call(comm, comm->rank, seq, &own))
            continue;
        for (int p = 0; p < comm->n; p++)
            if (p != comm->rank && coll_find_call(comm, p, seq, call) && call->sig != own.sig)
                return p;
    }
    return -1;
}

/* The rank from which, or on whose board, is another call, and that call. */
static int foreign_call(const gyre_request_t *r, int *peer, comm_call_t *call)
{
    if (r->kind == COLL_REQ_SEND || r->kind == COLL_REQ_RECV) {
        *peer = r->peer;
        return r->link && comm_link_their_call(r->link, call);
    }
    int other = coll_disagreeing(r, call);
    if (other >= 0) {
        *peer = other;
        return 1;
    }
    if (r->kind == COLL_REQ_DEVICE) {
        *peer = r->peer;
        return 0;
    }
    if (r->plan->oneshot) {
        *peer = coll_oneshot_late(&r->comm->oneshot);
        return *peer >= 0 && comm_group_peer_call(r->comm->group, *peer, call);
    }
    const coll_segment_t *g = &r->plan->segments[r->run.cut->of[r->run.segment]];
    for (int c = 0; c < COLL_MAX_CHANNELS; c++) {
        if (r->run.pc[c] >= g->last[c])
            continue;
        const coll_pstep_t *s = &g->steps[g->order[r->run.pc[c]]];
        *peer = s->peer;
        if (s->kind == COLL_STEP_RECV && s->link && comm_link_their_call(s->link, call))
            return 1;
    }
    return 0;
}

static void mismatch_text(const gyre_request_t *r, const char *mine, char *text, size_t bytes)
{
    const gyre_comm_t *comm = r->comm;
    comm_call_t theirs, own = r->call;
    int peer = -1, p2p = r->kind == COLL_REQ_SEND || r->kind == COLL_REQ_RECV;
    char other[160], then[200] = "";
    if (!foreign_call(r, &peer, &theirs)) {
        snprintf(
            text, bytes,
            "rank %d called %s, but what rank %d sent belongs to another call: all ranks must make the same "
            "calls in the same order",
            comm->rank, mine, peer);
        return;
    }
    coll_call_text(&theirs, other, sizeof other);
    /* the message may be of a call that this rank has long left: then show what this rank made of it */
    if (!p2p && theirs.seq != own.seq && coll_find_call(comm, comm->rank, theirs.seq, &own)) {
        char call[160];
        coll_call_text(&own, call, sizeof call);
        snprintf(then, sizeof then, ", where rank %d called %s", comm->rank, call);
    }
    char why[420] = "all ranks must make the same calls with the same arguments in the same order";
    if (own.seq == theirs.seq && same_call(&own, &theirs))
        snprintf(why, sizeof why,
                 "the arguments agree as far as they are shown, so the ranks differ in uneven counts, in the "
                 "size of a type of gyre_type_create or in settings (GYRE_ALGO, GYRE_CHUNK, GYRE_SCRATCH, "
                 "GYRE_ORDER, %s must be the same everywhere)",
                 theirs.flags & COMM_CALL_DEVICE
                     ? "GYRE_CUDA_ALGO, GYRE_CUDA_LL, GYRE_CUDA_ONE_SHOT, GYRE_CUDA_ENGINES"
                     : "and what gyre_plan_set was given,");
    snprintf(text, bytes, "rank %d called %s, but rank %d %s %s%s: %s", comm->rank, mine, peer,
             then[0] ? "sent for" : "called", other, then, why);
}

/* ---- the story ----------------------------------------------------------------------------------------- */

gyre_status_t coll_failure_text(const gyre_comm_t *comm, const gyre_request_t *r, gyre_status_t status,
                                const char *why, char *text, size_t bytes)
{
    char mine[160], late[900], unanswered[400] = "";
    text_t t = {text, bytes};
    gyre_status_t st;
    coll_call_text(&r->call, mine, sizeof mine);
    switch (status) {
    case GYRE_ERR_MISMATCH:
        mismatch_text(r, mine, text, bytes);
        return GYRE_OK;
    case GYRE_ERR_TIMEOUT:
        if (comm->team) {
            late_in_team(comm, r, late, sizeof late);
        } else {
            blocker_t list[BLOCKERS];
            log_open_steps(r);
            st = late_text(comm, &r->call, list, find_blockers(r, list), late, sizeof late);
            if (st != GYRE_OK)
                return st;
            comm_group_unanswered(comm->group, unanswered, sizeof unanswered);
        }
        add(&t, "%s on ", mine);
        add_rank(&t, comm, comm->world_ranks[comm->rank]);
        add(&t, " did not finish within %.9g s: %s%s%s", comm->timeout_s, late[0] ? late : why,
            unanswered[0] ? "; " : "", unanswered);
        return GYRE_OK;
    default:
        snprintf(text, bytes, "%s on rank %d: %s", mine, comm->rank,
                 why[0] ? why : gyre_status_string(status));
        return GYRE_OK;
    }
}
