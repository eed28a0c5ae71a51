/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/state.h: a communicator's part on a CUDA device, shared by the files of gpu/; in a
 * build with CUDA only. */
#ifndef COLLECTIVES_GPU_STATE_H
#define COLLECTIVES_GPU_STATE_H

#include "collectives/gpu/gpu.h"

#ifdef GYRE_CUDA

#include <cuda_runtime_api.h>

#include "collectives/gpu/ll/lines.h"
#include "collectives/gpu/shots/peers.h"

typedef enum {
    COLL_CUDA_PEERS = 1, /* ranks map each other's memory */
    COLL_CUDA_STAGED     /* through pinned host memory and the host's collectives */
} coll_cuda_path_t;

enum { COLL_CUDA_CAPTURES = 8 /* that may take turns on a communicator */ };

typedef struct coll_cuda_proxy coll_cuda_proxy_t; /* collectives/gpu/through/proxy.h */
typedef struct coll_cuda_mail coll_cuda_mail_t;   /* collectives/gpu/mail/peer.c */
typedef struct coll_cuda_wire coll_cuda_wire_t;   /* collectives/gpu/through/wire.c */

/* CUresult cuStreamWaitValue32(CUstream, CUdeviceptr, cuuint32_t, unsigned): of the driver, found at run
 * time. */
typedef int (*coll_cuda_wait_fn)(cudaStream_t stream, unsigned long long address, uint32_t value,
                                 unsigned flags);

typedef struct coll_cuda_plan coll_cuda_plan_t; /* collectives/gpu/plans/cut.h */

/* Where a rank works: its CUDA ordinal, in its process, and the device's PCI address. */
typedef struct {
    int32_t device;
    char bus[COLL_CUDA_BUS];
} coll_cuda_place_t;

typedef struct coll_cuda coll_cuda_t;
struct coll_cuda {
    gyre_comm_t *comm;
    gyre_comm_t *shadow; /* the same ranks, for the proxy thread's work on the host; owned */
    coll_cuda_t *next;   /* in the guard's list */
    int device;
    coll_cuda_place_t *places; /* [n]; NULL: of a team, which knows its devices */
    coll_cuda_path_t path;
    char why[400];       /* this path */
    cudaStream_t stream; /* of ordinary calls */
    cudaEvent_t newest;  /* after the newest operation, */
    cudaStream_t on;     /* which is on that stream, */
    _Atomic int any;     /* if there is one; the guard looks, too */
    struct {
        unsigned long long id;
        cudaEvent_t newest;         /* after the newest operation in it */
    } captures[COLL_CUDA_CAPTURES]; /* the last that have had operations */
    unsigned begun;                 /* captures that have had a place there */
    int ended;                      /* coll_cuda_end */
    int stuck;                      /* a stream will not end: what it may still use is never freed */
    cudaEvent_t *events;            /* of requests, to be used again: [spare_events] */
    int spare_events;
    size_t events_room;
    coll_cuda_board_t *board; /* pinned, owned */
    _Atomic int stopped;      /* the abort word is set: the communicator has failed, */
    base_time_t stop_until;   /* and for so long its requests wait for its streams */
    /* the guard's */
    uint32_t seen, seen_turn;
    base_time_t since;
    int told_late; /* the other ranks can learn whom this one waits for */
    int failed;    /* as the communicator, and its requests have ended */
    /* ranks that map each other's memory */
    char *arena[COLL_CUDA_RANKS]; /* [rank] is owned, by the pool of arenas */
    size_t region;
    int blocks;
    /* most of these blocks for a kernel that waits: those of all ranks of a device find room on it at once */
    int resident;
    size_t engine_half; /* bytes of each of the two halves that copy engines work through */
    uint32_t engines;   /* rounds by copy engines enqueued so far */
    size_t ll_most;     /* bytes of the longest part that LL kernels move; 0: they cannot */
    int uneven_links;   /* not every two devices are joined alike, by NVLink */
    int several;        /* some process has several of the ranks, which one thread may call for */
    int stream_waits;   /* streams wait for peers, not kernels */
    uint32_t phase;     /* phases enqueued so far */
    /* pinned [2 * COLL_CUDA_RANKS + 1]: to and from the phases of the own arena; what its `over` becomes */
    uint32_t *pages;
    cudaStream_t rescue;    /* for those copies: never waits for a peer */
    coll_cuda_wait_fn wait; /* cuStreamWaitValue32; NULL: kernels wait, for peers and for the host */
    coll_cuda_mail_t *mail; /* messages between them */
    size_t mail_at;         /* offset of its part of an arena */
    gyre_cuda_registration_t *registered; /* the program's buffers, newest first; owned */
    uint64_t read_directly;               /* operations so far that worked in them */
    int logged_staged;                    /* that it registers none, since operations are staged */
    /* staging; NULL if ranks map each other's memory */
    coll_cuda_proxy_t *proxy;
    struct coll_cuda_plans *plans; /* schedules for kernels; NULL: not needed yet */
    /* messages from device memory */
    unsigned char *direct; /* [n] 1: with that rank; NULL: with no rank */
    char *
        /* on the device, of messages, then collectives/gpu/through/wire.c's; owned, by the pool of arenas */
        slots;
    int flush;              /* the device must be notified of data that arrived */
    char messages[960];     /* the path of large ones, and why */
    coll_cuda_wire_t *wire; /* of collectives; NULL: they use another path */
    /* this rank's host, and the ranks of its place on all hosts (collectives/gpu/through/hosts.c); owned;
     * NULL: collectives are not made of them */
    gyre_comm_t *_Atomic within, *_Atomic between;
    /* the communicator that this is `within` or `between` of: it fails with this one, and ends its streams */
    coll_cuda_t *_Atomic whole;
    /* of averages, if it is not the number of ranks: of the whole, in its `between` */
    int divisor;
    char collectives[500]; /* the path of long ones between hosts, and why */
};

/* ---- setup.c ---- */
/* Collective over `comm`; comm->cuda is set afterwards. */
gyre_status_t coll_cuda_prepare(gyre_comm_t *comm, int device);
/* Makes what every path needs: a stream, an event, the board; loads the kernels. On the current device. */
gyre_status_t coll_cuda_make_parts(coll_cuda_t *c);
/* Makes what ends waits on the device: a stream that never waits, and what it copies. */
gyre_status_t coll_cuda_make_rescue(coll_cuda_t *c);
/* An error of CUDA in words: the call with its arguments, and CUDA's text. The driver's have the same
 * numbers. */
gyre_status_t coll_cuda_failed(cudaError_t rc, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Collective: every rank's status of a step that each did by itself. Returns the first rank's error, if any,
 * on all of them. */
gyre_status_t coll_cuda_agree(const coll_cuda_t *c, gyre_status_t mine);
/* Blocks that each of so many ranks on one device may have, such that those of all are resident at once: one
 * per multiprocessor if there are enough, so that other kernels find room, too. held: coll_cuda_blocks_held.
 * 0: not even one. */
static inline int coll_cuda_room(int processors, int held, int beside)
{
    const int each = processors / beside;
    return each > 0 ? each : processors * held >= beside;
}
/* Makes the communicator's device current; *before is for exit. */
gyre_status_t coll_cuda_enter(const coll_cuda_t *c, int *before);
void coll_cuda_exit(const coll_cuda_t *c, int before);

/* ---- look.c ---- */
/* Between these two any thread may look at the communicator's streams: no context is opened on the thread's
 * own device, and streams that are captured, by any thread in any mode, are not disturbed and refuse
 * nothing. */
typedef struct {
    int entered, before, relaxed;
    enum cudaStreamCaptureMode mode;
} coll_cuda_look_t;
coll_cuda_look_t coll_cuda_begin_look(const coll_cuda_t *c);
void coll_cuda_end_look(const coll_cuda_t *c, coll_cuda_look_t *look);
/* cudaEventQuery on any thread. An event that has not happened leaves no error of the runtime's. */
cudaError_t coll_cuda_query(const coll_cuda_t *c, cudaEvent_t event);

/* ---- blocks.c ---- */
/* GYRE_CUDA_BLOCKS, or the device's by its facts. INVALID: the setting. */
gyre_status_t coll_cuda_wanted_blocks(int device, int *blocks);
/* Collective: sets c->blocks, to the least that any rank wants. */
gyre_status_t coll_cuda_agree_on_blocks(coll_cuda_t *c);
/* Of the device, which is current; held: coll_cuda_blocks_held. */
gyre_status_t coll_cuda_ask_processors(int device, int *processors, int *held);

/* ---- arenas.c ---- */
/* Memory of the pool of arenas, at least COLL_CUDA_HEAD, on the current device; its head is zeroed. It is not
 * freed before the job ends. */
gyre_status_t coll_cuda_take_memory(const coll_cuda_t *c, size_t bytes, char **base);
/* Returns when it is zeroed. */
gyre_status_t coll_cuda_clear(char *at, size_t bytes, cudaStream_t stream);
void coll_cuda_give_memory(const char *base);
/* Returns an arena to the pool: only the peers of its communicator still read there. shared 0: the peers do
 * not, and none of them sends a goodbye. */
void coll_cuda_give_arena(const char *base, int rank, int n, int shared);

/* ---- team.c ---- */
/* 1 if a message of a team may go on that stream: ranks that share a device wait for each other's kernels. */
gyre_status_t coll_cuda_team_default(const char *name, const gyre_comm_t *comm, cudaStream_t stream);
/* The same for a collective, for which no two ranks may use one stream. Notes the stream. */
gyre_status_t coll_cuda_team_stream(const char *name, gyre_comm_t *comm, cudaStream_t stream);
/* What the environment does to kernels and streams of one process that wait for each other; so many of its
 * ranks share the device. UNSUPPORTED: they cannot. name: of the call. */
gyre_status_t coll_cuda_check_environment(const char *name, int device, int sharing);
/* The arenas outlive the team: a stream of one of the ranks will not end. */
void coll_cuda_keep_arenas(coll_team_t *team);

/* ---- collectives/gpu/through/lent.c ---- */
/* Collective. bytes: of the slots. */
gyre_status_t coll_cuda_lent_start(coll_cuda_t *c, size_t bytes);
/* Called after the shadow's end: nothing reads or writes the slots any more. */
void coll_cuda_lent_stop(coll_cuda_t *c);

/* ---- collectives/gpu/shots/registered.c ---- */
/* The places of a call's buffers in registered memory, as flags (peers.h); 0: not all are registered. */
typedef struct {
    uint64_t in, out;
} coll_cuda_places_t;
/* 1: the call works on registered buffers: its kind can, and this rank's buffers are in registered memory, as
 * all ranks' must be. */
int coll_cuda_in_registered(const coll_cuda_t *c, const coll_call_t *call, coll_algo_t algo,
                            coll_cuda_places_t *places);
/* 1: operations of this shape gain from it. */
int coll_cuda_may_be_registered(const coll_cuda_t *c, const coll_shape_t *shape, coll_algo_t algo);
void coll_cuda_describe_registered(const coll_cuda_t *c, const coll_shape_t *shape, int capturing,
                                   coll_cuda_op_t *op, int *blocks);
/* Closes the peers' registered buffers; nothing of this rank reads there any more. */
void coll_cuda_unmap_registered(coll_cuda_t *c);

/* ---- guard.c ---- */
gyre_status_t coll_cuda_guard_add(coll_cuda_t *c);
void coll_cuda_guard_remove(coll_cuda_t *c);
/* Returns 1 when the newest operation has ended; without graphs that the program launched. 0: a communicator
 * of this process has failed, and a stream has work of the program that does not end: c->stuck is set. */
int coll_cuda_wait_for_streams(coll_cuda_t *c);
/* After coll_cuda_guard_remove; c and its event stay as long as the process. */
void coll_cuda_guard_note_stuck(coll_cuda_t *c);
/* 1: one of those still runs, so that freeing memory of a device would wait for its stream. */
int coll_cuda_guard_any_stuck(void);
/* 1: the guard's thread calls. It waits for no communicator while others wait for the guard. */
int coll_cuda_is_guard(void);
/* 1: the newest operation has not ended. */
int coll_cuda_still_runs(const coll_cuda_t *c);
#define COLL_CUDA_LONG_NS ((base_time_t)300 * 1000 * 1000) /* a wait after which one looks for the reason */
/* This rank's streams have waited for `rank` for long (-1: no more): answers ranks that wait for this one. */
void coll_cuda_tell_late(const coll_cuda_t *c, int rank);

/* ---- collectives/gpu/shots/describe.c ---- */
/* That an operation puts on a stream at most, of some 1000 that it holds, where a thread calls for several
 * ranks: it must come to the next one before the queue of a stream is full that waits for that rank. */
enum { COLL_CUDA_TEAM_LAUNCHES = 200 };
/* Of each round. */
int coll_cuda_phases(const coll_cuda_op_t *op);
/* 1: streams wait, not kernels. A graph knows no numbers of phases, only the kernel finds the rounds of
 * uneven operations, and many rounds fill a stream's queue. */
int coll_cuda_in_phases(const coll_cuda_t *c, const coll_cuda_op_t *op, int capturing);
/* The operation of a call in detail; *blocks: the grid. `op` need not be zeroed. */
void coll_cuda_describe(const coll_cuda_t *c, const coll_shape_t *shape, int capturing, coll_cuda_op_t *op,
                        int *blocks);
/* The longest part that any rank publishes, as far as this rank knows. */
size_t coll_cuda_longest_part(const coll_cuda_op_t *op, const coll_shape_t *shape, size_t esize);
/* Sets what does not depend on buffers and parts; the rest of `op` is zeroed. */
void coll_cuda_describe_arithmetic(const coll_cuda_t *c, const coll_shape_t *shape, coll_cuda_op_t *op);
/* Shard r of `bytes` in n, as multiples of 16 bytes but for the end. */
void coll_cuda_shard(size_t bytes, int n, int r, size_t *at, size_t *length);
/* What the ranks of a call must agree on. */
uint32_t coll_cuda_sig(const coll_cuda_t *c, const coll_shape_t *shape, coll_algo_t algo);
/* Block r of an array of counts of a shape, and its place: equal blocks and packed ones spelled out. */
size_t coll_cuda_count(const coll_shape_t *shape, int r);

/* ---- collectives/gpu/ll/describe.c ---- */
/* GYRE_CUDA_LL; INVALID: it is more than COLL_LL_MOST. */
gyre_status_t coll_cuda_ll_setting(size_t *bytes);
/* c->ll_most, once c->resident is known. The same on all ranks. */
void coll_cuda_ll_limit(coll_cuda_t *c);
/* 1: calls of that shape run the LL kernel, unless a schedule is asked for or the buffers are registered. */
int coll_cuda_in_ll(const coll_cuda_t *c, const coll_shape_t *shape, coll_algo_t algo, int capturing);
/* The call's bytes of a part, and the blocks of its kernel. */
void coll_cuda_ll_shape(const coll_shape_t *shape, size_t *bytes, int *blocks);
gyre_status_t coll_cuda_enqueue_ll(const coll_cuda_t *c, const coll_call_t *call, const comm_call_t *as,
                                   cudaStream_t stream);

/* ---- collectives/gpu/shots/peers.c ---- */
/* 1: in a graph it runs in another way than at once, so either all ranks capture it or none. */
int coll_cuda_differs_captured(const coll_cuda_t *c, const coll_shape_t *shape, int registered);
/* places: of the call's registered buffers; NULL: they are not registered. */
gyre_status_t coll_cuda_enqueue_peers(coll_cuda_t *c, const coll_call_t *call, const comm_call_t *as,
                                      coll_algo_t algo, const coll_cuda_places_t *places, cudaStream_t stream,
                                      int capturing);
/* Makes the stream wait until *word, which lies on the device or is pinned, has come to `value` on the circle
 * of numbers. */
gyre_status_t coll_cuda_stream_wait(const coll_cuda_t *c, const void *word, uint32_t value, const char *name,
                                    cudaStream_t stream);
/* 1: the copies on the rescue stream are complete; 0: the device does not get to them. */
int coll_cuda_rescued(const coll_cuda_t *c);
/* Ends the waits of kernels and streams of a communicator that has failed. Called again and again: peers that
 * do not know of the failure may still write. */
void coll_cuda_release(coll_cuda_t *c);

/* ---- enqueue.c ---- */
/* Orders the next work on `stream` after the communicator's newest operation, on any stream; capturing: after
 * the newest one in that capture. */
gyre_status_t coll_cuda_follow(coll_cuda_t *c, cudaStream_t stream, int capturing);
/* The communicator's newest operation is now on `stream`, also after a call that may have failed halfway
 * (status, which is returned then): its enqueued work waits until it is released, and uses memory that is
 * freed with the communicator. */
gyre_status_t coll_cuda_note_call(coll_cuda_t *c, cudaStream_t stream, int capturing, gyre_status_t status);
void coll_cuda_drop_events(coll_cuda_t *c);
/* A numbered call cannot be taken back: the others have made it, too. Returns the status. */
gyre_status_t coll_cuda_fail_numbered(gyre_comm_t *comm, gyre_status_t status);

/* ---- collectives/gpu/through/proxy.c ---- */
gyre_status_t coll_cuda_proxy_start(coll_cuda_t *c);
/* Ends the waits of streams for the proxy; part of coll_cuda_release. */
void coll_cuda_proxy_release(coll_cuda_t *c);
void coll_cuda_proxy_stop(coll_cuda_t *c);
void coll_cuda_proxy_free(coll_cuda_t *c); /* after the shadow's end */

/* ---- choose.c ---- */
/* The schedule that serves a call in a kernel of its own, and why (NULL: not asked for); AUTO: the shots of
 * collectives/gpu/shots/peers.c. A function of what all ranks know. Errors: NOT_FOUND, UNSUPPORTED: GYRE_ALGO
 * names something else. */
gyre_status_t coll_cuda_choose(const coll_cuda_t *c, const coll_shape_t *shape, coll_algo_t *algo,
                               const char **why);
/* One rank's part of c->uneven_links: devices[r] is the number, here, of rank r's device; < 0: unknown. */
int coll_cuda_uneven_links(int device, const int *devices, int n);
/* 1: device code can do it; 0: a reduction that only the host has. */
int coll_cuda_adds(const coll_shape_t *shape);
/* Elements of the vector or of the longest block; 0: no elements, or not every rank knows. */
size_t coll_cuda_longest(const coll_cuda_t *c, const coll_shape_t *shape);

/* ---- collectives/gpu/plans/schedule.c ---- */
enum {
    /* bytes of the arena, after the copy engines', for this rank's plans, before more memory is taken */
    COLL_CUDA_PLANS = 1 << 20
};
/* Bytes of an arena up to these plans, up to the lines of LL kernels, and up to the part of messages. */
static inline size_t coll_cuda_plans_at(size_t region, int blocks, size_t engine_half)
{
    return COLL_CUDA_HEAD + region * (size_t)blocks + 2 * engine_half;
}
static inline size_t coll_cuda_ll_at(size_t region, int blocks, size_t engine_half)
{
    return coll_cuda_plans_at(region, blocks, engine_half) + COLL_CUDA_PLANS;
}
static inline size_t coll_cuda_arena_bytes(size_t region, int blocks, size_t engine_half)
{
    return coll_cuda_ll_at(region, blocks, engine_half) + COLL_LL_AREA;
}
/* The plan for a call that a schedule serves, made at the first call of a shape; *out NULL: no kernel can run
 * it (too many neighbours, sums of more than two). capturing: it lasts as long as the communicator. */
gyre_status_t coll_cuda_find_plan(coll_cuda_t *c, const coll_shape_t *shape, coll_algo_t algo, int capturing,
                                  coll_cuda_plan_t **out);
/* The reason that no kernel can run it, after coll_cuda_find_plan has found that so; valid until the next
 * call of it. */
const char *coll_cuda_plan_refused(const coll_cuda_t *c, const coll_shape_t *shape, coll_algo_t algo);
/* The grid, and the segments of one block. */
void coll_cuda_plan_shape(const coll_cuda_plan_t *plan, int *blocks, uint32_t *rounds);
gyre_status_t coll_cuda_enqueue_plan(coll_cuda_plan_t *plan, const coll_cuda_op_t *op, const char *name,
                                     cudaStream_t stream);
/* Frees them; nothing of the communicator runs any more. */
void coll_cuda_plans_free(coll_cuda_t *c);
void coll_cuda_team_plans_free(coll_team_t *team); /* the team's decisions on them */

/* ---- collectives/gpu/through/staged.c ---- */
/* INVALID: slots are too short for one element of each block. */
gyre_status_t coll_cuda_check_staged(const coll_cuda_t *c, const char *name, const coll_shape_t *shape);
gyre_status_t coll_cuda_enqueue_staged(coll_cuda_t *c, const coll_call_t *call, cudaStream_t stream);

/* ---- collectives/gpu/through/wire.c ---- */
/* Bytes of device memory that it needs; 0: not possible with any network. */
size_t coll_cuda_wire_bytes(const coll_cuda_t *c);
/* base: that many bytes, lent to the shadow's group. Each rank calls it by itself. */
gyre_status_t coll_cuda_wire_start(coll_cuda_t *c, char *base);
void coll_cuda_wire_stop(coll_cuda_t *c); /* after the shadow's end, or before its use */
/* The rank of which an exchange has waited for a part for long; -1: none. Any thread. */
int coll_cuda_wire_late(const coll_cuda_t *c);
/* 1: a collective of that shape uses it; the same on all ranks. */
int coll_cuda_wire_takes(const coll_cuda_t *c, const coll_shape_t *shape);
/* The number of its exchanges. */
uint32_t coll_cuda_wire_rounds(const coll_cuda_t *c, const coll_shape_t *shape);
gyre_status_t coll_cuda_enqueue_wire(coll_cuda_t *c, const coll_call_t *call, uint32_t sig,
                                     cudaStream_t stream);

/* ---- collectives/gpu/through/hosts.c ---- */
/* Collective; the result is the same on all ranks: see c->collectives. */
gyre_status_t coll_cuda_hosts_start(coll_cuda_t *c);
void coll_cuda_hosts_end(const coll_cuda_t *c); /* as coll_cuda_end */
void coll_cuda_hosts_stop(coll_cuda_t *c);
/* 1: a collective of that shape uses it. */
int coll_cuda_hosts_take(const coll_cuda_t *c, const coll_shape_t *shape);
gyre_status_t coll_cuda_enqueue_hosts(const coll_cuda_t *c, const coll_call_t *call, cudaStream_t stream);
/* A failure of one of its parts, quiet, with its text; and the other way round. */
gyre_status_t coll_cuda_hosts_trouble(const coll_cuda_t *c);
void coll_cuda_hosts_abort(const coll_cuda_t *c, const char *text);
/* coll_cuda_release of its parts. */
void coll_cuda_hosts_release(const coll_cuda_t *c);
/* c is a part that has failed: the whole fails, too, now, and ends c's streams. The caller is not driving. */
void coll_cuda_hosts_fail(const coll_cuda_t *c);
/* 1: c is a part, and kernels of this host's ranks have met a rank with another call: the data on its stream
 * must not be sent. The guard is about to report the error. */
int coll_cuda_hosts_hold(const coll_cuda_t *c);

/* ---- what collectives/run asks for (collectives/run/device_ops.h describes each) ---- */
int coll_cuda_late(const gyre_comm_t *comm);            /* collectives/gpu/call/guard.c */
gyre_status_t coll_cuda_group_end(gyre_status_t error); /* collectives/gpu/mail/messages.c */
/* Sets the communicator's part on a device; NULL: no part any more. */
void coll_cuda_attach(gyre_comm_t *comm, coll_cuda_t *part);

/* ---- collectives/gpu/mail/messages.c ---- */
typedef struct {
    coll_cuda_t *c;
    coll_req_kind_t kind;
    char *buffer;
    size_t bytes;
    comm_call_t as;
    cudaStream_t stream;
    size_t order, done; /* in its group: place among the calls; pieces that are enqueued */
} coll_cuda_message_t;
size_t coll_cuda_proxy_slots(const coll_cuda_t *c); /* bytes of those of messages */
/* Enqueues it now, or when the open group ends. */
gyre_status_t coll_cuda_enqueue_message(coll_cuda_message_t *m);

/* ---- collectives/gpu/mail/peer.c ---- */
size_t coll_cuda_mail_bytes(size_t staging,
                            int n); /* of an arena, for messages; staging: of the blocks' part of it */
/* That part of the own arena, before any peer maps it. */
gyre_status_t coll_cuda_mail_clear(char *mail, cudaStream_t stream);
gyre_status_t coll_cuda_mail_start(coll_cuda_t *c);
void coll_cuda_mail_free(coll_cuda_t *c);
/* Messages go in pieces of at most so many bytes, cut alike on both sides. */
size_t coll_cuda_mail_piece(const coll_cuda_t *c);
/* What moves a message: "message": the host; "engines": copy engines; "kernel": one block of a kernel. */
const char *coll_cuda_mail_mover(const coll_cuda_t *c, size_t bytes);
/* Piece k of a message: `bytes` from `at` on. */
gyre_status_t coll_cuda_mail_enqueue(const coll_cuda_message_t *message, uint32_t k, size_t at, size_t bytes);
/* 1: a message waits on its stream, or moves; the turn and the call are the last one's in either case. */
int coll_cuda_mail_waits(const coll_cuda_t *c, uint32_t *turn, comm_call_t *call);
/* 1: another message came than this rank called; the error is noted (quiet). */
int coll_cuda_mail_wrong(const coll_cuda_t *c);
/* Ends the waits of streams for messages; part of coll_cuda_release. */
void coll_cuda_mail_release(const coll_cuda_t *c);

/* A word of pinned memory that the device writes. */
static inline uint32_t coll_cuda_read(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

#endif
#endif
