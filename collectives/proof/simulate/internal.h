/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/proof/simulate/internal.h: what the parts of the simulator share: program.c turns schedules
 * into programs, views.c finds what need not be copied on one host, run.c runs programs, machine.c says
 * what their steps cost. */
#ifndef COLLECTIVES_PROOF_SIMULATE_INTERNAL_H
#define COLLECTIVES_PROOF_SIMULATE_INTERNAL_H

#include "base/arena.h"
#include "collectives/proof/simulate/simulate.h"
#include "comm/transport.h"

#define SIM_NONE UINT32_MAX

/* A step, without what only the executor needs. */
typedef struct {
    uint64_t bytes;
    /* SEND: index into the program's `out`; RECV: into `in`; REDUCE, COPY, JOINT: number of sources */
    uint32_t arg;
    uint32_t dep;  /* first of ndep entries in the program's deps */
    uint32_t slot; /* where the time of its completion is kept, or SIM_NONE: nobody waits for it by name */
    uint16_t ndep;
    uint8_t kind;  /* coll_step_kind_t */
    uint8_t buf;   /* coll_buf_t of a SEND's source */
    uint8_t stage; /* 1: COLL_STAGE, left out where memory is a window */
} sim_step_t;

/* On one host: which receives are views, and who reads them. Parallel to the steps. */
typedef struct {
    uint32_t view;            /* RECV: number of its view, or SIM_NONE: must be copied */
    uint32_t sent_on;         /* 1: what this step writes is read by a peer later, where it lies */
    uint32_t first;           /* REDUCE, COPY: entries of the program's views: */
    uint16_t nread, nrelease; /* so many are read, of which the first nrelease are given back afterwards */
} sim_local_t;

/* Whom messages go to or come from: rank (own + ahead) mod n. */
typedef struct {
    int32_t ahead, channel;
} sim_peer_t;

/* What one rank does. Ranks whose steps are alike but for their own number share one. */
typedef struct sim_program sim_program_t;
struct sim_program {
    sim_program_t *next; /* in its hash chain */
    uint64_t hash;
    uint32_t nsteps, ndeps, nout, nin, nslots, nviews, nviewed;
    uint32_t first[COLL_MAX_CHANNELS + 1]; /* steps of channel c: first[c] .. first[c + 1] */
    uint32_t sends;
    sim_step_t *steps;
    uint32_t *deps;       /* slots */
    sim_peer_t *out, *in; /* out: sorted */
    sim_local_t *local;   /* [nsteps]; NULL on a network */
    uint32_t *viewed;     /* [nviewed] numbers of views, see sim_local_t */
};

enum { SIM_CHAINS = 4096 };
/* A lane is the stream of messages from one rank to another on one channel. Those that rank r sends on are
 * numbered first_lane[r] + index in `out`. */
typedef struct {
    int n;
    sim_program_t **of;   /* [n] */
    uint32_t *first_lane; /* [n] */
    uint32_t **in;        /* [n][nin]: lanes that messages come on */
    uint32_t nlanes;
    uint64_t messages;
    sim_program_t *chain[SIM_CHAINS];
    base_arena_t arena;
} sim_programs_t;

/* Builds the schedules of all ranks and keeps what the run needs. local: for one host, with views. */
gyre_status_t sim_programs_build(const coll_args_t *args, coll_algo_t algo, size_t esize, int local,
                                 sim_programs_t *out);
void sim_programs_free(sim_programs_t *programs);

/* views.c: fills local [nsteps], indexed by the schedule's steps, and *viewed (entries counted in
 * *nviewed, from arena), and returns the number of views; SIM_NONE if there is no memory. eager: SENDs of
 * up to so many elements are copied, not read where they lie. */
uint32_t sim_find_views(const coll_schedule_t *schedule, size_t eager, base_arena_t *arena,
                        sim_local_t *local, uint32_t **viewed, uint32_t *nviewed);

/* ---- the run ---- */

/* A message that was sent and not yet received. */
typedef struct {
    double time; /* when it is there */
    uint64_t bytes;
    uint32_t next, depth; /* depth: messages in the longest chain that it ends */
    uint32_t slot;        /* of the SEND at its sender, or SIM_NONE */
    uint8_t way;          /* sim_way_t */
    uint8_t fresh;        /* written by its sender since the receiver read it in the call before */
} sim_message_t;

/* How a message travels on one host, see comm/shm/link.c. */
typedef enum { SIM_WAY_EAGER = 0, SIM_WAY_WINDOW, SIM_WAY_CMA, SIM_WAY_BULK } sim_way_t;

typedef struct {
    uint32_t head, tail; /* messages under way, SIM_NONE: none */
    int32_t sender, receiver;
} sim_lane_t;

/* A receive whose data is read where it lies: whom to tell when that is done. */
typedef struct {
    int32_t sender;
    uint32_t slot;
    uint8_t open, fresh;
} sim_view_t;

typedef struct {
    const sim_program_t *program;
    double *slot; /* [nslots] when complete; INFINITY: not yet known */
    sim_view_t *view;
    double now;      /* its own clock */
    double wake;     /* key of its valid entry in the queue; INFINITY: none */
    double drained;  /* what it has stored until now is there for others */
    double finished; /* when the last of its sends was complete */
    uint32_t at[COLL_MAX_CHANNELS];
    uint32_t depth, open; /* open: sends that the receiver has not released yet */
    int32_t next_in_line; /* for the core */
    uint8_t in_line, waiting;
    int call; /* of those that it makes one after the other */
} sim_rank_t;

typedef struct {
    double free;      /* from here on nothing is planned */
    double hole, end; /* the last gap before that */
    double bytes;
} sim_server_t;

typedef struct {
    int holder, last, first_waiter, last_waiter; /* ranks, -1 none */
    double free;
} sim_core_t;

typedef struct {
    double time;
    int32_t rank;
} sim_event_t;

typedef struct {
    int n, channels;
    size_t esize;
    const topo_network_t *network; /* NULL: one host */
    const coll_cost_t *cost;
    coll_memory_t memory;
    size_t ring_most; /* bytes of a message in memory that peers cannot map that goes through a ring */
    int crowded;      /* more ranks than cores */
    int calls;        /* each rank makes so many, one after the other */
    double first_end; /* when the last rank had made its first */
    int fresh_input;  /* IN is what the call before made */
    double in_cache;  /* part of the data that caches hold, 0 to 1 */
    double lookahead; /* ns by which ranks may be out of order */
    sim_programs_t programs;
    sim_rank_t *ranks;
    sim_lane_t *lanes;
    sim_message_t *messages;
    uint32_t nmessages, message_capacity, free_message;
    sim_server_t *links; /* [nlinks], or 1: the memory of the host */
    uint32_t *route;
    sim_core_t *cores;
    sim_event_t *queue; /* 4-ary heap */
    size_t nqueue, queue_capacity;
    coll_simulation_t result;
    int failed; /* memory ran out */
    int wrong;  /* a rank that was sent what it does not expect, or -1 */
    base_arena_t arena;
} sim_t;

static inline double sim_later(double a, double b)
{
    return a > b ? a : b;
}
static inline double sim_sooner(double a, double b)
{
    return a < b ? a : b;
}

/* When a server that is asked at `when` for `length` ns of its time begins. */
double sim_serve(sim_server_t *server, double when, double length);

/* machine.c: a step of a rank at its clock, which moves on. A SEND fills in time and way of its message and
 * returns when it is complete; INFINITY: the receiver will tell (sim_complete). */
double sim_send(sim_t *s, int rank, const sim_step_t *step, int peer, sim_message_t *m);
void sim_recv(sim_t *s, int rank, const sim_step_t *step, const sim_message_t *m, int peer);
void sim_compute(sim_t *s, int rank, const sim_step_t *step);
/* The part of a rank's data that its cache holds, and a run with that part given. calls > 1: as many calls
 * without a pause, and out->ns is the time per call once they follow each other. */
double sim_cached_part(const coll_cost_t *cost, const coll_args_t *args, size_t esize);
gyre_status_t sim_run_host(const coll_cost_t *cost, const coll_args_t *args, coll_algo_t algo, size_t esize,
                           coll_memory_t memory, double in_cache, int calls, coll_simulation_t *out);
/* run.c: a SEND of `rank` is complete at `when`. */
void sim_complete(sim_t *s, int rank, uint32_t slot, double when);

#endif
