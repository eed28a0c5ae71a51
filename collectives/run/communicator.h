/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/run/communicator.h: the inside of gyre_comm_t and gyre_request_t, shared by the files of this
 * room that start and drive operations.
 *
 * The lock is `driving`: the thread that holds it may read and change the queues and run operations. The
 * thread that took `driving` first takes it with a plain store. A wait loop never waits for `driving`:
 * another thread is driving then. Taking it needs no system call.
 *
 * A communicator with non-blocking operations under way is in the process's registry
 * (collectives/run/progress.c). So a wait for one communicator also moves the others, and the progress thread
 * finds its work. */
#ifndef COLLECTIVES_RUN_COMMUNICATOR_H
#define COLLECTIVES_RUN_COMMUNICATOR_H

#include <stdatomic.h>

#include <gyre/plan.h>

#include "base/thread/bias.h"
#include "base/clock.h"
#include "collectives/run/device_ops.h"
#include "collectives/run/oneshot.h"
#include "collectives/run/plan.h"
#include "collectives/run/team.h"
#include "collectives/choose/tune.h"
#include "comm/event.h"
#include "comm/transport.h"
#include "comm/wait.h"

/* COLL_REQ_DEVICE: on device memory (collectives/gpu/gpu.h), enqueued already. COLL_REQ_MESSAGES: several
 * messages that are waited for as one, its parts. COLL_REQ_TASK: made by a thread of its own
 * (task.c), in no queue. */
typedef enum {
    COLL_REQ_COLLECTIVE = 0,
    COLL_REQ_SEND,
    COLL_REQ_RECV,
    COLL_REQ_DEVICE,
    COLL_REQ_MESSAGES,
    COLL_REQ_TASK
} coll_req_kind_t;

/* COLL_COLLECTED_FREE: in the free list, and not the caller's. */
enum { COLL_COLLECTED_ASYNC = 1, COLL_COLLECTED_BLOCKING = 2, COLL_COLLECTED_FREE = 3 };

/* Called once, by the driving thread, when the request is finished. */
typedef void (*coll_finished_fn)(void *user, gyre_status_t status);

struct gyre_request {
    gyre_comm_t *comm;
    gyre_request_t *next;       /* in the communicator's queue, or in its free list */
    gyre_request_t *prev;       /* a message's: in that queue */
    gyre_request_t *lane_next;  /* a message's: in its lane */
    gyre_request_t *group_next; /* blocking requests of an ending group */
    coll_req_kind_t kind;
    int collected;         /* COLL_COLLECTED_*: waits for gyre_group_end, or is free */
    _Atomic uint32_t done; /* 1: finished, status is valid. Release/acquire: pairs with the waiter's load */
    gyre_status_t status;
    comm_call_t call;
    comm_tag_t tag;
    base_time_t started, deadline;
    coll_finished_fn finished;
    void *user;
    _Atomic uint32_t *under_way; /* of a persistent operation: 1 until this request is freed; or NULL */
    /* collectives */
    coll_plan_t *plan;
    coll_run_t run;
    /* point to point */
    void *buffer;
    size_t bytes;
    int peer;
    comm_link_t *link;
    comm_msg_t msg;
    gyre_request_t *whole; /* it is a part of that one, and nobody waits for itself; or NULL */
    uint32_t parts;        /* of COLL_REQ_MESSAGES: parts that have not finished, and 1 until it is started */
    /* on a device */
    gyre_request_t *device_next; /* in the communicator's queue of those */
    void *event;                 /* cudaEvent_t after it; from and back to the communicator's spare ones */
    struct coll_task *task;      /* of COLL_REQ_TASK */
};

/* Messages under way to or from one peer, in call order. */
typedef struct coll_p2p_lane {
    gyre_request_t *head, *tail;
    struct coll_p2p_lane *next; /* the next one with messages */
} coll_p2p_lane_t;

/* Point-to-point traffic with one peer. */
typedef struct {
    uint32_t sent, received; /* messages started so far: the tags' sequence numbers */
    coll_p2p_lane_t sends, recvs;
    comm_link_t *link; /* NULL: not used by a message alone so far */
} coll_p2p_peer_t;

struct gyre_comm {
    comm_world_t *world;
    comm_group_t *group; /* NULL: its ranks are threads' or one thread's in this process, a team */
    coll_team_t *team;   /* NULL: its ranks are processes, a group */
    comm_board_t *board; /* this rank's calls, where the others see them; the group's or the team's */
    const _Atomic uint32_t *troubles; /* changes with every death or abort that is noted */
    int rank, n, local_rank, local_size, hosts;
    int is_world;
    int is_part;           /* 1: another communicator keeps it, waits for its requests and ends it */
    int *world_ranks;      /* [n] */
    const int *host_of;    /* [n] */
    const int *part_of;    /* [n] what hierarchical works on: hosts, or the cells of one (comm_group_cells) */
    int parts, even_parts; /* even: all of one size */
    const int *order;      /* coll_args_t.order */
    size_t part_places;    /* coll_places_by_parts */
    const coll_tune_t *tune; /* the job's; borrowed from the process */
    coll_tune_line_t pin;    /* coll_comm_pin; op 0: nothing is pinned */
    uint64_t id;
    uint32_t seq;      /* collectives called so far */
    uint32_t fault_at; /* call at which GYRE_FAULT strikes; 0: never */
    int fault;
    uint32_t open;    /* requests that somebody still has to wait for */
    uint32_t splits;  /* splits called so far; part of the children's ids */
    uint32_t isplits; /* the same of those that do not block */
    double timeout_s;
    base_time_t timeout_ns; /* the same */
    base_time_t made_in;    /* what making it took, for gyre-perf init */
    coll_options_t options; /* gyre_comm_set; the same on all ranks */
    int *leaves;            /* coll_args_t.leaves; NULL: one each */
    /* gyre_status_t that killed this communicator. GYRE_ERR_INVALID: it has ended (handles.c). It and its
     * text are written once, by the thread that has claimed them; a reader that sees the status (acquire)
     * sees the text. */
    _Atomic int error, claimed;
    char error_text[1700];
    gyre_failure_fn on_failure; /* not called so far; guarded by failure.c */
    void *on_failure_user;
    comm_watch_sleeper_t sleeper; /* for that */
    int hears_failure;            /* 1: registered with the watcher for it */

    gyre_request_t *head, *tail;               /* collectives, in call order; only the head runs */
    gyre_request_t *p2p_head, *p2p_tail;       /* messages, in call order */
    coll_p2p_lane_t *p2p_lanes;                /* the same by lanes: those that have some */
    struct coll_cuda *cuda;                    /* collectives/gpu/gpu.h; NULL: not used on a device so far */
    const coll_device_ops_t *device_ops;       /* of collectives/gpu; NULL as long as cuda is */
    struct coll_bounce *bounces;               /* spare ones: collectives/run/bounce.h */
    gyre_request_t *device_head, *device_tail; /* requests on device memory, in call order */
    coll_p2p_peer_t *p2p;                      /* [n], made by the first send or recv */
    /* [n] zeros but this rank's entry: counts of gatherv and scatterv away from the root */
    size_t *own_count;
    gyre_request_t *free_requests;
    coll_plan_cache_t plans;
    gyre_plan_t *held; /* its persistent operations (collectives/api/persistent.c) */
    size_t held_bytes; /* of their schedules */
    coll_scratch_t scratch;
    int unmapped; /* in the last sum with a fine_cut a rank had memory that peers cannot map */
    coll_recent_t recent;
    uint32_t exchange_chain;    /* hash of all exchanges so far */
    coll_oneshot_run_t oneshot; /* of the head, if its plan is one; or of a blocking call without request */

    comm_event_t *event; /* gyre_comm_fd; NULL: not asked for so far */
    /* 1: there is one; what finishes rings; something has finished since gyre_comm_arm was called last */
    _Atomic int has_event, event_armed, event_news;
    base_bias_t driving; /* see above */
    /* pass of coll_registry_advance that took it up last; guarded by the registry's mutex */
    uint64_t visited;
    _Atomic int registered; /* in the registry; changes under the registry's mutex */
    _Atomic int kept;       /* stays there without an operation: coll_registry_keep */
    gyre_comm_t *next_registered;
    gyre_comm_t *next_handle, *last_handle; /* handles.c */
    _Atomic uint32_t trouble;               /* the watcher's counter when it was last looked at */
    /* For coll_note_idle; only the driving thread changes it. */
    uint32_t idle_turns;
    int noted;              /* for whom it waits stands in the flight recorder */
    base_time_t idle_since; /* 0: not yet looked at */
    /* For coll_speak_up: what has moved so far, and since when no more has moved than `still_moves`; then how
     * often that was logged. */
    uint64_t moves, still_moves;
    base_time_t still_since; /* 0: not yet looked at */
    unsigned spoken;
    uint64_t operations, sleeps, allocations;
    base_time_t waited;
    coll_traffic_t traffic;
};

/* coll_plan_find; first of all the plan of the operation's last call, if that one and this have no arrays and
 * a type that all programs have. */
static inline gyre_status_t coll_plan_get(gyre_comm_t *comm, const coll_shape_t *shape, coll_plan_t **out)
{
    coll_plan_t *last = comm->plans.last[shape->op];
    if (!last || !coll_shape_alike(&last->shape, shape) || last->given || coll_shape_has_arrays(shape) ||
        shape->type >= GYRE_TYPE_USER)
        return coll_plan_find(comm, shape, out);
    last->used = ++comm->plans.uses;
    *out = last;
    return GYRE_OK;
}

/* --- comm.c --- */
/* The communicator of the job's present members; collective over them. */
gyre_status_t coll_world_make(comm_world_t *world, base_time_t deadline, gyre_comm_t **out);
/* After the job has grown: the newcomers get what the others are tuned by. Collective over the members. */
gyre_status_t coll_world_retune(comm_world_t *world, base_time_t deadline);
void coll_comm_free(gyre_comm_t *comm);
/* The same; `why` is the text with which later calls are refused. */
void coll_comm_end(gyre_comm_t *comm, const char *why);
/* Rank `rank` of a team; nothing of it is on a device yet. */
gyre_status_t coll_comm_make_member(coll_team_t *team, int rank, gyre_comm_t **out);
/* INVALID while a group is open or requests of `comm` were not waited for. */
gyre_status_t coll_check_unused(const char *name, gyre_comm_t *comm);
/* As users type it: "canonical", ...; DEFAULT: "default". */
const char *coll_order_name(gyre_order_t order);
/* What a new communicator begins with: the settings. */
coll_options_t coll_options_default(void);
/* What one made from `comm` takes over. */
void coll_options_inherit(gyre_comm_t *made, const gyre_comm_t *comm);
/* Drops all plans, which were made for other choices. The caller is driving; INVALID (no text), and nothing
 * changes, while operations are under way. */
gyre_status_t coll_comm_forget_plans(gyre_comm_t *comm);

/* Fixes the choice for the operation line->op of this communicator, before all choose lines; what the line
 * does not say is chosen by the rules. NULL: no longer. For programs that compare algorithms in one process;
 * conditions and errors as above. */
gyre_status_t coll_comm_pin(gyre_comm_t *comm, const coll_tune_line_t *line);

/* --- event.c --- */
void coll_event_ring(gyre_comm_t *comm);
/* An operation has finished, or the communicator has failed: an event loop must look. Any thread. */
static inline void coll_event_note(gyre_comm_t *comm)
{
    if (atomic_load_explicit(&comm->has_event, memory_order_acquire))
        coll_event_ring(comm);
}

/* --- handles.c --- */
/* Zeroed but for its world. NULL: no memory (reported). */
gyre_comm_t *coll_handle_new(comm_world_t *world);
/* `comm` is no communicator any more: every call on it is INVALID, with the text `why`. */
void coll_handle_end(gyre_comm_t *comm, const char *why);
/* The communicator of `world` that has `index` older ones; NULL: there is none. */
gyre_comm_t *coll_handle_find(const comm_world_t *world, int index);
/* INVALID: comm is NULL, or it has ended. Public calls that do not begin with coll_check_comm begin with
 * this. */
gyre_status_t coll_check_live(const char *name, const gyre_comm_t *comm);

/* --- request.c --- */
gyre_request_t *coll_request_new(gyre_comm_t *comm);         /* NULL: no memory (reported) */
gyre_request_t *coll_request_new_driving(gyre_comm_t *comm); /* the caller is driving */
/* The next coll_request_new allocates nothing. 0: no memory (reported). The caller is driving. */
int coll_request_reserve(gyre_comm_t *comm);
/* Puts a filled request in its queue and starts it, or collects it if a group is open. Blocking callers pass
 * request == NULL: then this waits (or leaves the waiting to gyre_group_end). */
gyre_status_t coll_request_start(gyre_request_t *r, gyre_request_t **request);
gyre_status_t coll_request_wait(gyre_request_t *r); /* wait.c; and frees */
/* Appends to the communicator's queue. now: base_now(), or 0 for a call that is waited for at once: most of
 * these are done before it is time to read the clock. */
void coll_request_enqueue(gyre_request_t *r, base_time_t now);
/* Back to the communicator's spare ones. The caller is driving. */
void coll_request_free_driving(gyre_request_t *r);
/* r belongs to a persistent operation until it is freed: *under_way is 1 meanwhile. NULL: it does not. */
static inline void coll_request_of(gyre_request_t *r, _Atomic uint32_t *under_way)
{
    r->under_way = under_way;
    if (under_way)
        atomic_store_explicit(under_way, 1, memory_order_relaxed);
}
/* Moves all operations of `comm` a step. The caller is driving. > 0: something moved. Errors end up in the
 * requests; a death or an abort is noticed here, too. */
int coll_comm_advance_driving(gyre_comm_t *comm);
/* The same for a caller that is not driving. 0, too: another thread is driving. */
int coll_comm_advance(gyre_comm_t *comm);
int coll_comm_idle(const gyre_comm_t *comm); /* no operation under way */
/* The deadline of r counts from `now`. */
void coll_request_begin_at(gyre_request_t *r, base_time_t now);
/* The first rank that r waits for goes into the flight recorder. The caller is driving. */
void coll_note_blocker(const gyre_request_t *r);
/* For callers that poll and never sleep, after each look that moved nothing. The caller is driving. After 10
 * ms of such looks, writes the rank for which the first operation waits to the flight recorder, for ranks
 * that wait for us. */
void coll_note_idle(gyre_comm_t *comm);
/* r has finished; of COLL_REQ_MESSAGES: a part, or its start. It may be gone when this returns: a part is
 * freed, and a request belongs to its waiter. The caller is driving. */
void coll_request_finish(gyre_request_t *r, gyre_status_t status);

/* --- task.c --- */
/* A call of many steps as a request: a thread of its own makes the call, and ends with it. The thread may
 * run as long as the call may block, so it has a deadline of its own: nothing here ends it. */
typedef struct {
    gyre_status_t (*run)(void *user); /* on the thread */
    /* Once, on the thread of the program that ends the request: hands over what `run` has made, and frees
     * `user`. */
    void (*end)(void *user, gyre_status_t status);
} coll_task_ops_t;

/* comm: of which it is a request; NULL: of none. SYSTEM: no thread; NO_MEMORY. After an error `end` is not
 * called. */
gyre_status_t coll_task_start(const char *name, gyre_comm_t *comm, const coll_task_ops_t *ops, void *user,
                              gyre_request_t **request);
/* r is done: its status, and r is free. */
gyre_status_t coll_task_finish(gyre_request_t *r);
/* 1: r is a task whose thread is not in this process, a child of fork. r is done then, with INVALID. */
int coll_task_orphaned(gyre_request_t *r);
/* 1: r is of the parent, in a child of fork, where nobody may touch what its ranks share. r is done then,
 * with INVALID. */
int coll_request_orphaned(gyre_request_t *r);

/* How many have ended in this process. */
uint32_t coll_tasks_ended(void);
/* Sleeps as long as no more than `ended` have, at most until `until`. */
void coll_tasks_sleep(uint32_t ended, base_time_t until);

/* --- failure.c --- */
/* Ends all operations of `comm` with its error. r: the operation that failed, or NULL. detail: the whole
 * story where it is known from elsewhere (and others know it, too), or NULL. The caller is driving. */
void coll_comm_fail(gyre_comm_t *comm, gyre_request_t *r, gyre_status_t status, const char *detail);
/* Ends all operations of `comm` with ABORTED here, and on all its ranks; an earlier error stays. The
 * caller is driving. */
void coll_comm_abort(gyre_comm_t *comm, const char *text);
/* The communicator has failed from here on, if it had not before, and its other ranks hear it. Operations
 * under way end here when a thread next drives them. Any thread, driving or not. */
void coll_comm_claim_abort(gyre_comm_t *comm, const char *text);
/* The error of `comm`, or what the watcher knows of it and no call has met yet; then gyre_last_error has the
 * text. Any thread, driving or not; in a signal handler that came in the middle of a look at the watcher's
 * news it knows only what calls have met. */
gyre_status_t coll_comm_ask(const gyre_comm_t *comm);
/* 1: this rank of the communicator has died, and did not merely leave, as far as this process knows: whatever
 * ended the communicator first. */
int coll_comm_has_died(const gyre_comm_t *comm, int rank);
/* gyre_comm_on_failure is not called any more after this has returned: the communicator ends. */
void coll_comm_off_failure(gyre_comm_t *comm);
/* Takes note of the death of a member, of an abort by one, or of gyre_comm_abort on another thread: two loads
 * while there is no trouble. The caller is driving. */
void coll_comm_notice(gyre_comm_t *comm);

/* --- blame.c --- */
/* "all_reduce #12 (count 4, float, sum)" */
void coll_call_text(const comm_call_t *call, char *text, size_t bytes);
/* A call stands where the other ranks can see it; of a rank, the newest one with that number. The caller
 * of post is driving. */
static inline void coll_post_call(gyre_comm_t *comm, const comm_call_t *call)
{
    comm_board_post(comm->board, call);
}
int coll_find_call(const gyre_comm_t *comm, int rank, uint32_t seq, comm_call_t *call);
/* A rank of the communicator that r waits for; -1: none that is known. The caller is driving. */
int coll_first_blocker(const gyre_request_t *r);
/* The operation that errors about r name: r, or the first of its parts that has not finished; NULL: there is
 * none. The caller is driving. */
const gyre_request_t *coll_request_named(const gyre_request_t *r);
/* A rank of this host whose call of r's number, or of a number shortly before, differs from this rank's call.
 * -1: none. Only calls that are still on both boards are compared. Ranks that disagree may wait for each
 * other in different places (one for a post, one at a link), so only this comparison finds the
 * disagreement. */
int coll_disagreeing(const gyre_request_t *r, comm_call_t *call);
/* Logs who keeps r waiting if nothing has moved for GYRE_PATIENCE, unless another rank has just done so.
 * Reads the clock, and asks other ranks if it is time. The caller is driving, or waits for r. */
void coll_speak_up(gyre_request_t *r, int driving);
/* The story of r's failure, for gyre_last_error. why: what is known. For TIMEOUT others are asked, which
 * takes COMM_BLAME_SECONDS at most; ABORTED then (quiet), and no text: the communicator has been aborted
 * meanwhile. The caller is driving. */
gyre_status_t coll_failure_text(const gyre_comm_t *comm, const gyre_request_t *r, gyre_status_t status,
                                const char *why, char *text, size_t bytes);

/* --- group.c --- */
/* The first of several errors, with its text. */
typedef struct {
    gyre_status_t status;
    char text[1700];
} coll_first_t;
/* Field by field: its text is long. */
static inline void coll_first_begin(coll_first_t *first)
{
    first->status = GYRE_OK;
}
/* status: of a call that this thread has just made. */
void coll_first_note(coll_first_t *first, gyre_status_t status);
/* Its status; the text is this thread's last error again. */
gyre_status_t coll_first_end(const coll_first_t *first);
/* 1 while this thread is between gyre_group_start and gyre_group_end. */
int coll_group_open_here(void);
/* The same. Calls ask it often, and finding a thread's variable in a shared library takes a call: so first
 * how many threads are there. A thread sees its own change; the others' do not matter. */
extern _Atomic uint32_t coll_groups;
static inline int coll_group_open(void)
{
    return atomic_load_explicit(&coll_groups, memory_order_relaxed) > 0 && coll_group_open_here();
}
/* The open group starts r at its end; request: as for coll_request_start. */
void coll_group_collect(gyre_request_t *r, gyre_request_t **request);
/* An open group of this thread will end with this error. */
void coll_group_note_error(gyre_status_t status);

/* --- calls.c --- */
/* The checks that every call begins with. A dead communicator answers with the error that killed it. */
gyre_status_t coll_check_comm_whole(const char *name, gyre_comm_t *comm);
gyre_status_t coll_check_type_whole(const char *name, gyre_type_t type);
/* Non-blocking calls need a place for their request. */
gyre_status_t coll_check_request(const char *name, gyre_request_t **request);
/* Passes `status` on, and lets an open group end with it. */
static inline gyre_status_t coll_refuse(gyre_status_t status)
{
    coll_group_note_error(status);
    return status;
}
/* Parts of other calls of the program, whose names errors say. */
gyre_status_t coll_inside_barrier(gyre_comm_t *comm, coll_inside_t inside);
gyre_status_t coll_inside_all_reduce(void *data, size_t count, gyre_type_t type, gyre_redop_t op,
                                     gyre_comm_t *comm, coll_inside_t inside,
                                     gyre_request_t **request /* NULL: blocking */);
gyre_status_t coll_inside_all_gather(const void *send, void *recv, size_t bytes, gyre_comm_t *comm,
                                     coll_inside_t inside);
/* In place, with a callback when finished; for buckets. */
gyre_status_t coll_start_all_reduce(void *data, size_t count, gyre_type_t type, gyre_redop_t op,
                                    gyre_comm_t *comm, coll_finished_fn finished, void *user,
                                    gyre_request_t **request);
gyre_status_t coll_start_reduce_scatterv(const void *send, void *recv, const size_t *counts, gyre_type_t type,
                                         gyre_redop_t op, gyre_comm_t *comm, coll_finished_fn finished,
                                         void *user, gyre_request_t **request);

/* --- fault.c --- */
/* Reads GYRE_FAULT; INVALID if it is malformed. */
gyre_status_t coll_fault_arm(gyre_comm_t *comm);
/* The mishap happens; it may make another call of the one that is about to be made, and may not return. */
void coll_fault_strike(gyre_comm_t *comm, coll_shape_t *shape, const void **send, void **recv);

/* --- p2p.c --- */
/* A message whose arguments are right, on a communicator that has not failed (coll_check_comm), wherever its
 * buffer lies; request: NULL: blocking. */
gyre_status_t coll_p2p_start(coll_req_kind_t kind, void *buffer, size_t count, gyre_type_t type, int peer,
                             gyre_comm_t *comm, gyre_request_t **request);
/* The same with a buffer on a device, which goes through memory of the host. */
gyre_status_t coll_p2p_begin(coll_req_kind_t kind, void *buffer, int on_device, size_t count,
                             gyre_type_t type, int peer, gyre_comm_t *comm, gyre_request_t **request);
/* UNSUPPORTED: ranks of a team send on streams only. */
gyre_status_t coll_p2p_check(const char *name, const gyre_comm_t *comm);
int coll_p2p_advance(gyre_comm_t *comm);
/* A message is the last of the queue now; the caller is driving. */
void coll_p2p_queued(gyre_request_t *r);
/* The queue was emptied. */
void coll_p2p_forget(gyre_comm_t *comm);

/* --- progress.c --- */
void coll_registry_add(gyre_comm_t *comm);
void coll_registry_remove(gyre_comm_t *comm);
/* In a child of fork: it has none. */
void coll_registry_forget(void);
/* on: other hosts work in memory of this rank, so the progress thread, if there is one, moves the network
 * also while no operation is under way; else no longer. As often off as on. */
void coll_registry_keep(gyre_comm_t *comm, int on);
/* The caller is driving: if nothing of it is under way, other calls need not move it any more. */
void coll_registry_leave(gyre_comm_t *comm);
/* Moves all registered communicators but `except`; > 0 something moved. *others: how many there are. */
int coll_registry_advance(gyre_comm_t *except, int *others);
/* 1: another communicator than `comm`, which may be NULL, is registered, so a thread that waits must move it.
 * Costs two loads, and so does coll_registry_advance where there is none. */
int coll_registry_others(const gyre_comm_t *comm);
/* 1 if a buffer of a non-blocking operation under way begins in [base, base + bytes): its call. */
int coll_registry_uses(const void *base, size_t bytes, comm_call_t *call);
/* The same among the operations that this thread's open group has collected. */
int coll_group_uses(const void *base, size_t bytes, comm_call_t *call);
/* The same in a list of requests. */
int coll_requests_use(const gyre_request_t *list, const void *base, size_t bytes, comm_call_t *call);
/* Starts or stops using the process's progress thread. */
gyre_status_t coll_progress_thread_start(void);
void coll_progress_thread_stop(void);

/* 1: something has died or was aborted since the last look; coll_comm_notice finds whether it concerns
 * comm. */
static inline int coll_comm_troubled(const gyre_comm_t *comm)
{
    return comm->n > 1 && atomic_load_explicit(comm->troubles, memory_order_relaxed) !=
                              atomic_load_explicit(&comm->trouble, memory_order_acquire);
}

/* What every call begins with: the usual case here, the others and the text in start.c. */
static inline gyre_status_t coll_check_comm(const char *name, gyre_comm_t *comm)
{
    if (comm && !coll_comm_troubled(comm) &&
        atomic_load_explicit(&comm->error, memory_order_acquire) == GYRE_OK)
        return GYRE_OK;
    return coll_check_comm_whole(name, comm);
}
static inline gyre_status_t coll_check_type(const char *name, gyre_type_t type)
{
    return (unsigned)type < GYRE_TYPE_COUNT ? GYRE_OK : coll_check_type_whole(name, type);
}

static inline int coll_try_drive(gyre_comm_t *comm)
{
    return base_bias_try(&comm->driving);
}
void coll_drive_wait(gyre_comm_t *comm);
/* Waits for its turn. */
static inline void coll_drive(gyre_comm_t *comm)
{
    if (!base_bias_enter(&comm->driving))
        coll_drive_wait(comm);
}
static inline void coll_stop_driving(gyre_comm_t *comm)
{
    base_bias_leave(&comm->driving);
}

#endif
