/* SPDX-License-Identifier: Apache-2.0 */
/* comm/link.h: what groups and links are made of. For the files of comm/ only; others read
 * comm/transport.h. */
#ifndef COMM_LINK_H
#define COMM_LINK_H

#include "comm/lend.h"
#include "comm/memory/segment.h"
#include "comm/remote.h"
#include "comm/transport.h"
#include "comm/wait.h"
#include "comm/yields.h"
#include "topo/topo.h"

/* Which pairs of ranks a transport joins. */
typedef enum { COMM_TO_ITSELF, COMM_ON_HOST, COMM_BETWEEN_HOSTS } comm_scope_t;

enum { COMM_SAID_WORDS = 2 }; /* of each transport in a card */

/* A transport is these calls, for its links and for groups. Everything outside its folder knows it by its row
 * in the table of comm/transports.c alone. The contracts of a link's calls are those of the public functions
 * of comm/transport.h. */
typedef struct {
    const char *name; /* as GYRE_TRANSPORT has it */
    comm_scope_t scope;
    const char *missing; /* NULL: this build has it; else there are no calls, and this says what to do */

    /* ---- a link */
    gyre_status_t (*send)(comm_link_t *link, const void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
    gyre_status_t (*recv)(comm_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
    gyre_status_t (*recv_view)(comm_link_t *link, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                               const void **view);
    void (*release)(comm_link_t *link, comm_msg_t *msg);
    int (*gave_up)(const comm_link_t *link); /* NULL: views are copies of what was sent */
    int (*their_call)(comm_link_t *link, comm_call_t *call);
    int (*linger)(comm_link_t *link); /* NULL: nothing better than to relax and to move the group */
    gyre_status_t (*connect)(comm_group_t *group, int peer, int lane, comm_link_t **out);
    void (*close)(comm_link_t *link); /* frees the link */

    /* ---- a group: transports between hosts. A group has at most one of them (comm_group_t.network). It
     * keeps what it needs in network_state; while that is NULL, only introduce and prepare are called. */

    /* Writes what this rank sends to the others before they choose. word[0] stays 0 if this rank cannot use
     * the transport. */
    void (*introduce)(uint32_t word[COMM_SAID_WORDS]);
    /* Collective; all cards are there. quiet: UNSUPPORTED on all ranks, without an error logged, if some rank
     * cannot; network_state is NULL then. After another error leave is called. */
    gyre_status_t (*prepare)(comm_group_t *group, int quiet, comm_all_gather_fn all_gather, void *user,
                             base_time_t deadline);
    void (*leave)(comm_group_t *group); /* after its links were closed; network_state becomes NULL */
    void (*progress)(comm_group_t *group);
    /* The steps into sleep (comm/wait.h), both by the driving thread: arm, look once more, sleep_on. What
     * arrives after arm makes sleep_on return 0: look again. Else sleep_on returns how many of `polls`, at
     * most COMM_SLEEP_POLLS, it has set: what arrives later makes one of them ready, and the thread may sleep
     * on them without driving. arm may be NULL. */
    void (*arm)(comm_group_t *group);
    int (*sleep_on)(comm_group_t *group, struct pollfd *polls);
    /* As comm_group_let_go and comm_group_unanswered; NULL: nothing to do, none. */
    void (*let_go)(comm_group_t *group);
    int (*unanswered)(const comm_group_t *group, char *text, size_t bytes);
    /* As comm_group_lend. reclaim ends that: after the links were closed, before leave; nothing may be
     * lent. */
    gyre_status_t (*lend)(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                          comm_lent_t *out);
    void (*reclaim)(comm_group_t *group);

    /* As comm_remote_expose and its siblings (comm/remote.h); NULL: it cannot. All that is exposed ends with
     * leave. */
    gyre_status_t (*expose)(comm_group_t *group, void *base, size_t bytes, comm_remote_key_t *key,
                            comm_remote_t **out);
    gyre_status_t (*know)(comm_group_t *group, comm_remote_t *remote, const comm_remote_key_t *keys);
    void (*conceal)(comm_group_t *group, comm_remote_t *remote);
    gyre_status_t (*move)(comm_group_t *group, comm_remote_t *remote, int peer, int writes, size_t offset,
                          void *local, size_t bytes);
    gyre_status_t (*flush)(comm_group_t *group, int peer);
    /* 1: taken, to be freed when it stops; 0: it does not run. */
    int (*retire)(comm_retired_t *retired);

    /* ---- for gyre-doctor: as comm_transport_describe and comm_transport_try_device; NULL: nothing to
     * say. */
    gyre_status_t (*describe)(int part, char *text, size_t bytes);
    int (*try_device)(base_device_t device, char *text, size_t bytes);
} comm_transport_ops_t;

/* comm/transports.c: in the order of preference, then NULLs. */
extern const comm_transport_ops_t *const comm_transports[COMM_TRANSPORTS];
/* The place of a row in the table; a card and a world have a place for each. */
int comm_transport_number(const comm_transport_ops_t *ops);

struct comm_link {
    const comm_transport_ops_t *ops;
    comm_group_t *group; /* borrowed */
    int peer;            /* rank in the group */
    int lane;
    size_t bytes; /* heap memory of this link, for the statistics */
};

enum { COMM_CORE_WORDS = 16 };

/* What every rank sends to every other when a group is made. Fixed size; same build on all ranks. */
typedef struct {
    uint32_t magic;            /* differs between incompatible builds */
    int32_t status;            /* GYRE_OK, or why this rank cannot go on */
    unsigned char address[32]; /* of its watcher */
    uint64_t hint; /* equal for ranks that are probably on one host; only saves attempts, decides nothing */
    uint64_t probe_address, probe_value; /* comm_world_t.probe: where it is, and what */
    uint64_t backing;                    /* name of its backing file; 0: it has none to offer */
    int32_t pid;
    int32_t transport; /* GYRE_TRANSPORT: must be the same everywhere; number in the table, -1: auto */
    uint32_t reaches; /* 1: its settings let it read and write peers' memory, by process_vm_* where need be */
    /* By each transport's introduce; 0s: GYRE_TRANSPORT rules it out. */
    uint32_t said[COMM_TRANSPORTS][COMM_SAID_WORDS];
    uint64_t cores[COMM_CORE_WORDS]; /* affinity mask, 1024 cores */
    topo_seat_t seat;                /* the cores' packages, caches, ...; its host is not known yet */
    int32_t place;                   /* this rank's in its backing file */
} comm_card_t;

struct comm_group {
    comm_world_t *world; /* borrowed */
    uint64_t id;
    int n, rank;
    int *world_ranks; /* [n] */
    int *host_of;     /* [n] */
    int hosts;
    int *node_of; /* [n] NUMA node, -1: several, or not known */
    int *order;   /* [n] comm_group_order, or NULL */
    int *cell_of; /* [n] who is near whom; all 0 if hosts > 1 */
    int cells;
    int *local_of;       /* [n] number in the segment, -1: on another host */
    comm_card_t *cards;  /* [n]; NULL in a group of one */
    comm_link_t **links; /* [n * COMM_LANES], NULL: not connected */
    int cores;           /* that the ranks of this host may use together; at least 1 */
    int oversubscribed;
    const comm_transport_ops_t *forced; /* by GYRE_TRANSPORT; NULL: auto */
    base_time_t spin_ns;                /* GYRE_SPIN; 0: chosen by comm/wait.c */
    comm_segment_t seg;                 /* seg.base NULL: no peers on this host */
    double cma_call_ns;                 /* comm_group_cma_call */
    size_t ring_best;                   /* comm_group_set_ring */
    int ring_takes;
    comm_outbox_t outbox; /* base NULL: none */
    comm_pool_t pool;     /* count 0: none */
    size_t populated;     /* bytes at the beginning of its own outbox whose pages are mapped */
    comm_bell_t own_bell; /* used when there is no segment */
    comm_bell_t *bell;    /* this rank's: in the segment or own_bell */
    int bell_fd;          /* readable once it is rung in a sleep on descriptors; -1: there is none */
    uint64_t fences;      /* announcements of sleeps; counted by the thread that waits */
    int all_promised;     /* 1: no ringer needs a fence; seen by the thread that drives */
    comm_board_t own_board;
    comm_board_t *board;
    uint32_t trouble_seen; /* the watcher's counter when it was last found to be none of our business */
    uint32_t waits;        /* that took more than a turn */
    int lateness; /* how often peers kept this rank waiting beyond patience lately; see comm/wait.c */
    comm_yields_t yields;
    long switches;                /* involuntary ones of the waiting thread, at the last look */
    _Atomic int failed;           /* 1: a wait in it ended by a death or an abort; other threads may ask */
    comm_watch_sleeper_t sleeper; /* its wake is NULL: not registered with the watcher */
    struct comm_peer_memory **peer_memory; /* [n] comm/peer_memory.h; NULLs until used */
    const comm_transport_ops_t *network;   /* joins ranks that share no memory; NULL: no rank needs it */
    void *network_state;                   /* its own */
    _Atomic size_t private_bytes; /* a network's callback in another thread may allocate for this group */
    uint64_t connections;
};

/* 1: ranks of one host are to reach each other as ranks of different hosts do. */
static inline int comm_group_shuns_memory(const comm_group_t *group)
{
    return group->forced && group->forced->scope == COMM_BETWEEN_HOSTS;
}

/* Up to so many ranks of a host a sleeper has the kernel put a fence into all of them, and messages need none
 * (comm/memory/bell.h). Beyond, a rank that computes would be interrupted by each of the many that wait for
 * it, some 2 us each time. Then each message has a fence, some 20 ns. */
enum { COMM_FENCE_RANKS = 16 };

/* comm/seats.c. own: where the calling thread may run, and the switches above this host; host 0. order: once
 * hosts are known; the same on all ranks. NO_MEMORY. */
topo_seat_t comm_own_seat(void);
gyre_status_t comm_seats_order(comm_group_t *group);
/* Finds the ranks that share this host and makes the segment (comm/locate.c). Collective. */
gyre_status_t comm_group_locate(comm_group_t *group, comm_all_gather_fn all_gather, void *user,
                                base_time_t deadline);

/* group.c, for those who make groups. new: nothing is known of the others yet; move_in: the segment is there;
 * begin: news of failures reaches it. destroy undoes any part. */
gyre_status_t comm_group_new(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                             comm_group_t **out);
void comm_group_move_in(comm_group_t *group);
void comm_group_begin(comm_group_t *group);
/* locate.c: the file in which a new group may lie; NULL: none. After a death each group has a file of its
 * own: in a common one a segment that a dead rank never left would take its memory until the job ends. */
comm_backing_t *comm_world_backing(comm_world_t *world);
/* locate.c: 1: what this rank's card says of its settings and of where it may run is still so. */
int comm_card_holds(const comm_group_t *group);
/* The cores that the ranks of this host may use together, and whether the ranks outnumber them. */
void comm_group_count_crowd(comm_group_t *group);

/* comm/cells.c. divide: the leader, with a segment for all `n` of the group, before it offers it; take:
 * everyone, located. */
int comm_cells_one(const comm_group_t *group); /* 1: any ranks of the group are near each other */
void comm_cells_divide(comm_group_t *group);
void comm_cells_take(comm_group_t *group);

void comm_peer_memory_free(comm_group_t *group);

/* 1: a death or an abort has ended the group. Leaves the last error alone. */
int comm_group_failed(const comm_group_t *group);
/* Quiet: what comm_group_lost says, else TRANSPORT with `why` and the peer's rank. */
gyre_status_t comm_link_broken(const comm_link_t *link, const char *why);

#endif
