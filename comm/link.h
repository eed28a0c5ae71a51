/* comm/link.h: what groups and links are made of. For the files of comm/ only; others read comm/transport.h. */
#ifndef COMM_LINK_H
#define COMM_LINK_H

#include "comm/lend.h"
#include "comm/memory/segment.h"
#include "comm/transport.h"

/* A transport is these calls. Their contracts are those of the public functions of comm/transport.h. */
typedef struct {
    const char *name;
    gyre_status_t (*send)(comm_link_t *link, const void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
    gyre_status_t (*recv)(comm_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
    gyre_status_t (*recv_view)(comm_link_t *link, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                               const void **view);
    void (*release)(comm_link_t *link, comm_msg_t *msg);
    int (*their_call)(comm_link_t *link, comm_call_t *call);
    int (*linger)(comm_link_t *link); /* NULL: nothing better than to relax and to move the group */
    void (*close)(comm_link_t *link); /* frees the link */
} comm_link_ops_t;

struct comm_link {
    const comm_link_ops_t *ops;
    comm_group_t *group; /* borrowed */
    int peer;            /* rank in the group */
    int lane;
    size_t bytes; /* heap memory of this link, for the statistics */
};

typedef enum { COMM_AUTO = 0, COMM_FORCE_SHM = 1, COMM_FORCE_UCX = 2, COMM_FORCE_VERBS = 3 } comm_transport_t;

/* 1: ranks of one host are to reach each other as ranks of different hosts do. */
static inline int comm_shuns_memory(comm_transport_t transport)
{
    return transport == COMM_FORCE_UCX || transport == COMM_FORCE_VERBS;
}

enum { COMM_CORE_WORDS = 16 };

/* What every rank tells every other when a group is made. Fixed size; same build on all ranks. */
typedef struct {
    uint32_t magic;            /* differs between incompatible builds */
    int32_t status;            /* GYRE_OK, or why this rank cannot go on */
    unsigned char address[32]; /* of its watcher */
    uint64_t hint; /* equal for ranks that are probably on one host; only saves attempts, decides nothing */
    uint64_t probe_address, probe_value; /* a word of its memory and what is in it: for trying CMA */
    int32_t pid;
    int32_t transport; /* GYRE_TRANSPORT: must be the same everywhere; comm_transport_t */
    uint32_t reaches; /* 1: its settings let it read and write peers' memory, by process_vm_* where need be */
    uint32_t verbs;   /* 1: this build has the verbs transport and the host an RDMA device */
    uint32_t links;   /* that this rank's UCX would stripe TCP over; 0: UCX is ruled out */
    uint32_t piece;   /* comm_ucx_piece(), or 0 */
    uint64_t cores[COMM_CORE_WORDS]; /* affinity mask, 1024 cores */
} comm_card_t;

typedef struct comm_ucx_group comm_ucx_group_t;
typedef struct comm_verbs_group comm_verbs_group_t;

struct comm_group {
    comm_world_t *world; /* borrowed */
    uint64_t id;
    int n, rank;
    int *world_ranks; /* [n] */
    int *host_of;     /* [n] */
    int hosts;
    int *cell_of; /* [n] who is near whom; all 0 if hosts > 1 */
    int cells;
    int *local_of;       /* [n] number in the segment, -1: on another host */
    comm_card_t *cards;  /* [n]; NULL in a group of one */
    comm_link_t **links; /* [n * COMM_LANES], NULL: not connected */
    int cores;           /* that the ranks of this host may use together; at least 1 */
    int oversubscribed;
    comm_transport_t transport;
    base_time_t spin_ns;    /* GYRE_SPIN; 0: chosen by comm/wait.c */
    comm_segment_t seg;     /* seg.base NULL: no peers on this host */
    comm_outbox_t exchange; /* base NULL: none */
    comm_bell_t own_bell;   /* used when there is no segment */
    comm_bell_t *bell;      /* this rank's: in the segment or own_bell */
    comm_board_t own_board;
    comm_board_t *board;
    uint64_t probe;        /* the word that peers read to try CMA */
    uint32_t trouble_seen; /* the watcher's counter when it was last found to be none of our business */
    uint32_t waits;        /* that took more than a turn */
    int lateness;       /* how often peers kept this rank waiting beyond patience lately; see comm/wait.c */
    int no_yields;      /* waits for which yielding is not worth it; see comm/wait.c */
    long switches;      /* involuntary ones of the waiting thread, at the last look */
    _Atomic int failed; /* 1: a wait in it ended by a death or an abort; other threads may ask */
    int on_trouble;     /* 1: registered with the watcher */
    struct comm_reach *reach;     /* comm/peer_memory.c; NULL: nothing was reached yet */
    comm_ucx_group_t *ucx;        /* NULL: no rank needs UCX */
    comm_verbs_group_t *verbs;    /* NULL: not used */
    _Atomic size_t private_bytes; /* another thread's UCX callback may make an inbox for this group */
    uint64_t connections;
};

/* Finds out who shares this host and makes the segment (comm/locate.c). Collective. */
gyre_status_t comm_group_locate(comm_group_t *group, comm_all_gather_fn exchange, void *user,
                                base_time_t deadline);

/* comm/cells.c. divide: the leader, with a segment for all `n` of the group, before it offers it; take: everyone, located. */
void comm_cells_divide(comm_group_t *group);
void comm_cells_take(comm_group_t *group);

gyre_status_t comm_self_connect(comm_group_t *group, int lane, comm_link_t **out);
gyre_status_t comm_shm_connect(comm_group_t *group, int peer, int lane, comm_link_t **out);

/* How messages of a shm link went; see comm/shm/link.c. */
typedef enum { COMM_SHM_EAGER, COMM_SHM_WINDOW, COMM_SHM_CMA, COMM_SHM_BULK, COMM_SHM_WAYS } comm_shm_way_t;
uint64_t comm_shm_sent(const comm_link_t *link, comm_shm_way_t way);

/* comm/ucx/worker.c. Bytes of the longest piece that this process's UCX sends, and takes, over TCP; 0: it has not started. Must be the same on all
 * ranks: UCX does not check. */
uint32_t comm_ucx_piece(void);
int comm_ucx_links(void); /* that it would stripe TCP over; 1 to 4 */
/* Collective: exchanges the workers' addresses. group->cards are there. */
gyre_status_t comm_ucx_prepare(comm_group_t *group, comm_all_gather_fn exchange, void *user);
gyre_status_t comm_ucx_connect(comm_group_t *group, int peer, int lane, comm_link_t **out);
void comm_ucx_progress(comm_group_t *group);
/* Sleeps until something arrives for UCX, at most `ms` milliseconds. */
void comm_ucx_sleep(comm_group_t *group, int ms);
void comm_ucx_leave(comm_group_t *group); /* after its links were closed */
/* comm_group_lend and comm_group_reclaim for either transport; called before its links are closed. */
gyre_status_t comm_ucx_lend(comm_group_t *group, void *base, size_t bytes, comm_direct_t *out);
void comm_ucx_reclaim(comm_group_t *group);
gyre_status_t comm_verbs_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                              comm_direct_t *out);
void comm_verbs_reclaim(comm_group_t *group);

/* comm/verbs/group.c and its neighbours; only in builds with GYRE_VERBS. prepare is collective: all ranks tell each other whether they
 * can and how they are reached. quiet: UNSUPPORTED on all ranks, without an error told, if some rank cannot. */
int comm_verbs_there(void);
/* For gyre-doctor: text is what rail `rail` would be and why, or why there is none (INVALID: that are all). */
gyre_status_t comm_verbs_describe(int rail, char *text, size_t bytes);
gyre_status_t comm_verbs_prepare(comm_group_t *group, int quiet, comm_all_gather_fn exchange, void *user,
                                 base_time_t deadline);
gyre_status_t comm_verbs_connect(comm_group_t *group, int peer, int lane, comm_link_t **out);
void comm_verbs_progress(comm_group_t *group);
/* How many links still wait for their peers to answer, and in text what about the first; text is left alone if none. */
int comm_verbs_unanswered(const comm_group_t *group, char *text, size_t bytes);
/* The two steps into sleep (comm/wait.h): arm, look once more, sleep until something arrives, at most `ms` milliseconds. */
void comm_verbs_arm(comm_group_t *group);
void comm_verbs_sleep(comm_group_t *group, int ms);
/* Ends what adapters do with the program's buffers for this group, here and as seen from peers (comm_group_let_go). */
void comm_verbs_let_go(comm_group_t *group);
void comm_verbs_leave(comm_group_t *group); /* after its links were closed */

void comm_reach_free(comm_group_t *group);

/* 1: a death or an abort has ended the group. Leaves the last error alone. */
int comm_group_failed(const comm_group_t *group);
/* Quiet: what comm_group_lost says, else TRANSPORT with `why` and the peer's rank. */
gyre_status_t comm_link_broken(const comm_link_t *link, const char *why);

#endif
