/* comm/ucx/ucx.h: what comm/ucx/worker.c (the process's one worker and its groups), arrivals.c (what has come), peers.c (connections) and
 * link.c (links over them) share.
 *
 * Everything here is protected by the worker's lock: several communicators may be used by several threads. */
#ifndef COMM_UCX_UCX_H
#define COMM_UCX_UCX_H

#include <netinet/tcp.h>
#include <ucp/api/ucp.h>

#include "comm/link.h"

enum { UCX_AM_ID = 17 };       /* of our one kind of active message */
enum { UCX_ADDRESS_SEED = 3 }; /* of the hashes of workers' addresses */
/* TCP's keepalive, in seconds: an idle connection's death shows within about 4 s. */
enum { UCX_KEEP_IDLE = 1, UCX_KEEP_INTERVAL = 1, UCX_KEEP_COUNT = 3 };
/* In place of a message's number, where there is none: only `taken` counts; ... */
#define UCX_NO_NUMBER UINT64_MAX
/* ... the sender's group has failed: its rendezvous that were not begun are to be given back. */
#define UCX_WITHDRAWN (UINT64_MAX - 1)

/* Travels in front of every message.
 *
 * Flow control, per lane and direction: what is sent before the receiver asked for it lies in the receiver's memory, so it is
 * counted. `cost` is what this message counts, 0 if it goes by rendezvous and waits at the sender; `taken` is how much of what
 * came the other way has been received by now. A receiver that has nothing to send says so in a message of its own, without
 * a number. See send_start in link.c. */
typedef struct {
    uint64_t group;
    uint64_t number; /* of the message on its lane, from 0, or one of the words above */
    uint64_t bytes;
    uint64_t taken;
    comm_tag_t tag;
    comm_call_t call; /* what the sender was doing */
    int32_t source, dest;
    uint32_t lane, cost;
} ucx_header_t;

/* A connection to another process's worker, shared by all groups that meet it there. One that has failed stays listed, for the
 * groups that it has failed for: they may have lost messages with it. Groups that are made later get another one. */
typedef struct ucx_peer {
    struct ucx_peer *next;
    uint64_t address_hash;
    ucp_ep_h ep;
    int tcp;             /* 1: it goes over TCP */
    ucs_status_t failed; /* UCS_OK while it works */
    base_time_t failed_at;
} ucx_peer_t;

/* A message that has arrived and was not received yet. */
typedef struct ucx_arrival {
    struct ucx_arrival *next;
    ucx_header_t header;
    void *data; /* UCX's; NULL: no payload */
    int rndv;   /* data is a descriptor of payload that is still at the sender */
} ucx_arrival_t;

/* Arrivals of one lane from one rank, in order of their numbers. */
typedef struct {
    ucx_arrival_t *head, *tail;
    uint64_t next;  /* number of the message that is received next */
    uint64_t taken; /* cost of what was received */
    uint64_t told;  /* ... and how much of that the sender has been told */
    uint64_t acked; /* how much of what we sent the other way the peer has received, as far as it told */
} ucx_inbox_t;

typedef struct comm_ucx_group comm_ucx_group_t;
struct comm_ucx_group {
    comm_ucx_group_t *next;
    comm_group_t *group;
    unsigned char *addresses; /* [n * record_bytes]; see write_record */
    size_t record_bytes;
    ucx_inbox_t **inboxes;    /* [n * COMM_LANES]; NULL: nothing came and no link was made */
    unsigned char *withdrawn; /* [n] 1: this rank's group has failed, nobody takes its rendezvous any more */
    base_time_t made_at;      /* connections that failed until then are none of its, ... */
    uint64_t *failed;         /* ... [nfailed] the hashed addresses of those whose they are */
    uint32_t nfailed;
    unsigned char *lent; /* [lent_bytes] device memory that it may use (comm/lend.h); NULL: none */
    size_t lent_bytes;
    int slept; /* 1: a wait in it has come so far */
    base_time_t leave_begun;
    base_time_t leave_by; /* 0: not leaving; else how long unfinished messages may still take */
};

/* The group's part of UCX; NULL before it was prepared. */
static inline comm_ucx_group_t *ucx_of(const comm_group_t *group)
{
    return group->network_state;
}

/* comm/ucx/config.c. piece: bytes of the longest piece that this process's UCX sends, and takes, over TCP;
 * the same on all ranks: UCX does not check. */
void ucx_configure(ucp_config_t *config, uint32_t piece);
int ucx_links(void); /* that it would stripe TCP over; 1 to 4 */

/* comm/ucx/worker.c: what the table of comm/transports.c asks of a group's transport (comm/link.h). */
extern const comm_transport_ops_t comm_ucx;
void ucx_introduce(uint32_t word[COMM_SAID_WORDS]);
gyre_status_t ucx_prepare(comm_group_t *group, int quiet, comm_all_gather_fn all_gather, void *user,
                          base_time_t deadline);
void ucx_leave(comm_group_t *group);
void ucx_progress(comm_group_t *group);
void ucx_sleep(comm_group_t *group, int ms);
gyre_status_t ucx_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes, comm_lent_t *out);
void ucx_reclaim(comm_group_t *group);
int ucx_try_device(base_device_t device, char *text, size_t bytes);

void ucx_lock(void);
void ucx_unlock(void);
void ucx_breathe(void); /* lets other threads have the lock for a moment; for waits that may take long */
/* All under the lock. */
ucp_worker_h ucx_worker(void);
void ucx_poll(void);
/* Twice a second, where there is TCP: ends connections that lead nowhere. For whoever waits and has time. */
void ucx_look_at_sockets(void);
/* 1: a group that has not failed and is not about to end meets the process of this group's `rank`, too. */
int ucx_needed_elsewhere(const comm_ucx_group_t *ug, int rank);
comm_ucx_group_t *ucx_group_of(const ucx_header_t *header); /* NULL: it is gone */

/* comm/ucx/arrivals.c, under the lock. */
/* UCX's callback for every message. */
ucs_status_t ucx_on_message(void *arg, const void *head, size_t head_bytes, void *data, size_t bytes,
                            const ucp_am_recv_param_t *param);
int ucx_lost(void); /* 1: a message could not be kept for want of memory */
/* Lets go of what has arrived and was not received; of rank `source` only what is still at it. -1: all of everybody. */
void ucx_give_back(comm_ucx_group_t *ug, int source);
ucx_inbox_t *ucx_inbox(comm_ucx_group_t *ug, int source, int lane);
void ucx_arrival_free(ucx_arrival_t *arrival);
void ucx_arrivals_end(void); /* with the worker: frees the memory of all arrivals */

/* comm/ucx/peers.c, under the lock. */
gyre_status_t ucx_peer_get(comm_ucx_group_t *ug, int rank, ucx_peer_t **out);
void ucx_peer_fail(ucx_peer_t *peer, ucs_status_t status);
void ucx_peer_cut(ucx_peer_t *peer); /* ends what is still under way on it; breathes */
int ucx_peers_over_tcp(void);        /* 1: some are */
/* Sends whatever UCX still holds back, so that no peer waits for it while this rank does something else. */
void ucx_peers_flush(void);
/* When the last group is gone: it does not breathe, so that none begins meanwhile. force: a peer may never answer. */
void ucx_peers_close(int force);
/* Lists the connections that have failed. This is the moment that divides them: what fails later is the new group's, too, and
 * ends it, whether or not the other end notices. */
gyre_status_t ucx_peers_list_failed(comm_ucx_group_t *ug);
/* Every rank has told, from failed_at of its record on, the addresses of those with whom its connections have failed; mine: the hash of
 * ours. After that no end of one is used any more. */
gyre_status_t ucx_peers_agree(comm_ucx_group_t *ug, uint64_t mine, size_t failed_at, uint32_t most_failed);

/* comm/ucx/link.c, under the lock: frees links that are closed and of which UCX needs nothing more; the worker is gone: all. */
void ucx_links_reap(void);
void ucx_links_drop(void);

/* comm/ucx/sockets.c: before and after the worker is made: its listening sockets get their keepalive. */
typedef struct {
    int *fds;
    int n, cap;
    int partial; /* 1: no memory for all of them */
} ucx_sockets_t;
void ucx_sockets_before(ucx_sockets_t *listening);
void ucx_sockets_after(ucx_sockets_t *listening); /* frees what it holds */
/* Connections that get no answers, from look to look. Zeroed before first use. */
enum { UCX_SILENCES = 64 };
typedef struct {
    int fd;
    uint32_t seen;     /* the look that saw it last */
    base_time_t since; /* 0: this place is free */
} ucx_silence_t;
typedef struct {
    uint32_t look;
    ucx_silence_t of[UCX_SILENCES];
} ucx_silences_t;
/* Ends those of the worker's connections, found below its event descriptor, that have led nowhere for GYRE_HEARTBEAT: UCX reports
 * them as failed soon. A warning names both ends. How many it found (connections, whatever their state). Under the lock. */
int ucx_sockets_look(ucx_silences_t *silences, int event_fd);
/* For how long nobody has answered on fd, by the kernel's account of it at looks up to now; 0: somebody does. No system call. */
unsigned ucx_socket_silent_ms(ucx_silences_t *silences, int fd, const struct tcp_info *info, base_time_t now);

#endif
