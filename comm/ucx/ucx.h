/* SPDX-License-Identifier: Apache-2.0 */
/* comm/ucx/ucx.h: what these files share: comm/ucx/load.c (UCX's functions), worker.c (the process's one
 * worker), groups.c (its groups), arrivals.c (messages that arrived), peers.c (connections), greet.c (how
 * they begin) and link.c (links over connections).
 *
 * The worker's lock protects everything here: several threads may use several communicators. */
#ifndef COMM_UCX_UCX_H
#define COMM_UCX_UCX_H

#include <netinet/tcp.h>
#include <ucp/api/ucp.h>

#include "comm/link.h"

enum { UCX_AM_ID = 17 };       /* of Gyre's one kind of active message */
enum { UCX_ADDRESS_SEED = 3 }; /* of the hashes of workers' addresses */
/* TCP's keepalive, in seconds: the death of an idle connection shows within about 4 s. */
enum { UCX_KEEP_IDLE = 1, UCX_KEEP_INTERVAL = 1, UCX_KEEP_COUNT = 3 };
/* Instead of a message's number, for a header without a message: only `taken` counts; ... */
#define UCX_NO_NUMBER UINT64_MAX
/* ... or the sender's group has failed, and the receiver gives back its rendezvous that have not begun. */
#define UCX_WITHDRAWN (UINT64_MAX - 1)

/* The header of every message.
 *
 * Flow control, per lane and direction: an eager message lies in the receiver's memory until it is received,
 * so it is counted. `cost` is what this message counts; 0 if it goes by rendezvous and waits at the sender.
 * `taken` is the cost of all that the sender of this header has received in the other direction. A receiver
 * that has nothing to send sends `taken` in a header without a number. See send_start in link.c. */
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

/* The header of a hello, which has no payload and belongs to no group; see greet.c. */
typedef struct {
    uint64_t address_hash; /* of the sender's worker */
    uint32_t wants_answer, unused;
} ucx_hello_t;

/* A connection to another process's worker, shared by all groups that have a rank there. A connection that
 * has failed stays listed, for the groups that it has failed for: they may have lost messages with it. Groups
 * that are made later get another one. */
typedef struct ucx_peer {
    struct ucx_peer *next;
    uint64_t address_hash;
    ucp_ep_h ep;
    int tcp;                  /* 1: it goes over TCP */
    int told, heard;          /* 1: hello was said, and one has come; see greet.c */
    int owes;                 /* 1: a hello has come that is not answered yet */
    int ready;                /* 1: messages may be sent */
    ucs_status_ptr_t opening; /* the message before that, while it is under way; or NULL */
    ucs_status_ptr_t late;    /* a flush that the peer keeps waiting, or NULL */
    base_time_t made_at;
    ucs_status_t failed; /* UCS_OK as long as it works */
    base_time_t failed_at;
} ucx_peer_t;

/* A message that has arrived and was not received yet. */
typedef struct ucx_arrival {
    struct ucx_arrival *next;
    ucx_header_t header;
    void *data; /* UCX's; NULL: no payload */
    int rndv;   /* data is a descriptor; the payload is still at the sender */
} ucx_arrival_t;

/* Arrivals of one lane from one rank, in order of their numbers. */
typedef struct {
    ucx_arrival_t *head, *tail;
    uint64_t next;  /* number of the message that is received next */
    uint64_t taken; /* cost of what was received */
    uint64_t told;  /* ... and how much of that was reported to the sender */
    uint64_t acked; /* how much of what this rank sent the peer has received, by the peer's last report */
} ucx_inbox_t;

typedef struct comm_ucx_group comm_ucx_group_t;
typedef struct ucx_traffic ucx_traffic_t;
struct ucx_link;
struct comm_ucx_group {
    comm_ucx_group_t *next;
    comm_group_t *group;
    unsigned char *addresses; /* [n * record_bytes]; see write_record */
    size_t record_bytes;
    ucx_inbox_t **inboxes;    /* [n * COMM_LANES]; NULL: nothing came and no link was made */
    unsigned char *withdrawn; /* [n] 1: this rank's group has failed and no longer takes rendezvous */
    base_time_t made_at;      /* connections that failed until then do not concern the group, ... */
    uint64_t *failed;         /* ... [nfailed] except those to the workers with these hashed addresses */
    uint32_t nfailed;
    unsigned char *lent; /* [lent_bytes] device memory that it may use (comm/lend.h); NULL: not lent */
    size_t lent_bytes;
    struct ucx_link *links; /* that are not closed */
    ucx_traffic_t *traffic; /* [n] comm/ucx/remote.c; NULL: nothing was exposed */
    comm_remote_t *exposed;
    int agreed; /* 1: the ranks know each other's addresses and failed connections */
    int slept;  /* 1: a thread has waited in it */
    int lost;   /* 1: a message for it was lost because there was no memory for it */
    base_time_t leave_begun;
    base_time_t leave_by; /* 0: not leaving; else the deadline of unfinished messages */
};

/* The group's part of UCX; NULL before it was prepared. */
static inline comm_ucx_group_t *ucx_of(const comm_group_t *group)
{
    return group->network_state;
}

/* comm/ucx/load.c: UCX's functions by their names; NULL until UCX is loaded. */
typedef struct {
#define UCX_CALL(name) __typeof__(name) *name;
#include "comm/ucx/calls.def"
#undef UCX_CALL
} ucx_calls_t;
extern ucx_calls_t ucx_lib;
/* Under the lock. Loads UCX for good, once. 0: it cannot be loaded; why: [room] the reason. */
int ucx_load(char *why, size_t room);
static inline int ucx_is_loaded(void)
{
    return ucx_lib.ucp_get_version != NULL;
}
/* text: [bytes] such as 1.13.1. UCX is loaded. */
void ucx_name_release(char *text, size_t bytes);
/* 1: it is older than the headers, of which UCX itself warns and goes on; text: [bytes] says so. UCX is
 * loaded. */
int ucx_is_older(char *text, size_t bytes);
gyre_status_t ucx_describe(int part, char *text, size_t bytes); /* for comm_ucx */

/* comm/ucx/config.c. piece: bytes of the longest piece that this process's UCX sends, and takes, over TCP;
 * the same on all ranks: UCX does not check. */
void ucx_configure(ucp_config_t *config, uint32_t piece);
/* That it would stripe TCP over; 1 to 4. Under the lock. */
int ucx_links(void);
struct ifaddrs;
/* Interfaces that TCP may be striped over; 1 if one of them is not a link, which UCX would take all the
 * same. */
int ucx_count_links(const struct ifaddrs *all);

/* comm/ucx/worker.c, groups.c: what the table of comm/transports.c asks of a group's transport
 * (comm/link.h). */
extern const comm_transport_ops_t comm_ucx;
void ucx_introduce(uint32_t word[COMM_SAID_WORDS]);
gyre_status_t ucx_prepare(comm_group_t *group, int quiet, comm_all_gather_fn all_gather, void *user,
                          base_time_t deadline);
void ucx_leave(comm_group_t *group);
void ucx_progress(comm_group_t *group);
int ucx_sleep_on(comm_group_t *group, struct pollfd *polls);
gyre_status_t ucx_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes, comm_lent_t *out);
void ucx_reclaim(comm_group_t *group);
int ucx_try_device(base_device_t device, char *text, size_t bytes);

void ucx_lock(void);
void ucx_unlock(void);
void ucx_breathe(void); /* lets other threads have the lock for a moment; for long waits */
/* comm/ucx/remote.c. leave: under the lock, before the group ends: waits for what is under way, a second or
 * two at most. */
gyre_status_t ucx_expose(comm_group_t *group, void *base, size_t bytes, comm_remote_key_t *key,
                         comm_remote_t **out);
gyre_status_t ucx_know(comm_group_t *group, comm_remote_t *remote, const comm_remote_key_t *keys);
void ucx_conceal(comm_group_t *group, comm_remote_t *remote);
int ucx_retire(comm_retired_t *retired);
/* What was retired, if the worker has stopped. Not under the lock. */
void ucx_free_retired(void);
gyre_status_t ucx_move(comm_group_t *group, comm_remote_t *remote, int peer, int writes, size_t offset,
                       void *local, size_t bytes);
gyre_status_t ucx_flush(comm_group_t *group, int peer);
void ucx_remote_leave(comm_ucx_group_t *ug);

/* All under the lock. Starts UCX and the worker with this piece (ucx_configure), unless they run with it. */
gyre_status_t ucx_start(uint32_t piece);
void ucx_stop(void);
uint32_t ucx_piece(void); /* 0: no worker */
const ucp_address_t *ucx_address(size_t *bytes);
int ucx_event_fd(void);
ucp_worker_h ucx_worker(void);
ucp_context_h ucx_context(void);
/* Takes what has come, for all groups, and wakes threads that sleep in another group than `mine`.
 * 1: something moved. */
int ucx_poll(const comm_group_t *mine);
uint64_t ucx_own_hash(void); /* of this process's worker's address */
/* 1: UCX can send small messages at once, or refuse them. 0: perhaps not, since it knows device memory. */
int ucx_sends_at_once(void);
/* Ends TCP connections that get no answers; looks at most twice a second. For waits that have time. */
void ucx_look_at_sockets(void);

/* comm/ucx/groups.c, under the lock. */
/* Rings those who sleep in another group than `mine`: what has moved is perhaps for them. */
void ucx_wake_others(const comm_group_t *mine);
/* Before connections are cut or the worker goes: ends all TCP connections if `ug`, which has failed, is the
 * only group. Otherwise nothing. */
void ucx_end_connections(const comm_ucx_group_t *ug);
/* 1: UCX still uses a buffer of another group's message on this connection. */
int ucx_busy_elsewhere(const comm_ucx_group_t *ug, const ucx_peer_t *peer);
/* 1: another group that has not failed and is not about to end has a rank in the process of this group's
 * `rank`, too. */
int ucx_needed_elsewhere(const comm_ucx_group_t *ug, int rank);
/* Of the worker's address of the group's rank: the same for a process in all its groups and jobs. */
uint64_t ucx_address_hash(const comm_ucx_group_t *ug, int rank);
/* A group that lives, whose ranks have agreed, and has a rank in the process with that worker, and the rank;
 * NULL: none. */
comm_ucx_group_t *ucx_group_with(uint64_t address_hash, int *rank);
comm_ucx_group_t *ucx_group_of(const ucx_header_t *header); /* NULL: the group has ended */

/* comm/ucx/arrivals.c, under the lock. */
/* UCX's callback for every message. */
ucs_status_t ucx_on_message(void *arg, const void *head, size_t head_bytes, void *data, size_t bytes,
                            const ucp_am_recv_param_t *param);
/* Frees messages that arrived and were not received; of rank `source` only those whose payload is still
 * there. -1: all messages of all ranks. */
void ucx_give_back(comm_ucx_group_t *ug, int source);
ucx_inbox_t *ucx_inbox(comm_ucx_group_t *ug, int source, int lane);
void ucx_arrival_free(ucx_arrival_t *arrival);
void ucx_arrivals_end(void); /* with the worker: frees the memory of all arrivals */

/* comm/ucx/peers.c, under the lock. */
gyre_status_t ucx_peer_get(comm_ucx_group_t *ug, int rank, ucx_peer_t **out);
ucx_peer_t *ucx_peers(void); /* all of them, the newest first */
/* The connection to the process with that worker; NULL: no group that works knows its address yet, or it
 * cannot be reached now. */
ucx_peer_t *ucx_peer_meet(uint64_t address_hash);
void ucx_peer_fail(ucx_peer_t *peer, ucs_status_t status);
/* ends what is still under way on it; lets other threads have the lock */
void ucx_peer_cut(ucx_peer_t *peer);
int ucx_peers_over_tcp(void); /* 1: some are */
/* Sends what UCX still holds back of the group's messages: no peer must wait for it while this rank does
 * something else. */
void ucx_peers_flush(const comm_ucx_group_t *ug);
/* For the end of the last group. Keeps the lock, so no other group begins meanwhile. force: a peer may never
 * answer. */
void ucx_peers_close(int force);
/* Lists the connections that have failed. A connection that fails later belongs to the new group, too, and
 * ends it, whether or not the other end notices. */
gyre_status_t ucx_peers_list_failed(comm_ucx_group_t *ug);
/* Every rank has reported, from failed_at of its record on, the addresses to which its connections have
 * failed; mine: the hash of this worker's address. After that no end of such a connection is used any
 * more. */
gyre_status_t ucx_peers_agree(comm_ucx_group_t *ug, uint64_t mine, size_t failed_at, uint32_t most_failed);

/* comm/ucx/greet.c, under the lock. A peer's `ready` is 0 until both ends have said hello. */
void ucx_greetings_begin(void); /* with a new connection, or a new group's addresses */
void ucx_greetings_end(void);   /* with the worker */
int ucx_greet(void);            /* goes on with all greetings that can; 1: a peer got ready, or has failed */
void ucx_on_hello(const ucx_hello_t *hello);
/* A connection is to be made for a peer that may wait for a hello. */
void ucx_greet_unknown(uint64_t address_hash);

/* comm/ucx/close.c, under the lock: frees links that are closed and that UCX does not use any more. Once the
 * worker is gone: all closed links. */
void ucx_links_reap(void);
void ucx_links_drop(void);
/* 1: UCX still uses a buffer of a message of one of the group's links over `peer`. */
int ucx_links_busy(const comm_ucx_group_t *ug, const ucx_peer_t *peer);

/* comm/ucx/sockets.c: called before and after the worker is made: sets the keepalive of its listening
 * sockets. */
typedef struct {
    int *fds;
    int n;
    size_t cap;
    int partial; /* 1: no memory for all of them */
} ucx_sockets_t;
void ucx_sockets_before(ucx_sockets_t *listening);
void ucx_sockets_after(ucx_sockets_t *listening); /* frees what it holds */
/* Connections that get no answers, kept between looks. Zeroed before first use. */
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
/* Ends those of the worker's connections that have got no answer for GYRE_HEARTBEAT; they are found below its
 * event descriptor. UCX reports them as failed soon. A warning names both ends. Returns how many connections
 * it found, whatever their state. Under the lock. */
int ucx_sockets_look(ucx_silences_t *silences, int event_fd);
/* Ends all of the worker's connections. */
void ucx_sockets_end(int event_fd);
/* How long the peer of fd has not answered, by the kernel's account at the looks so far; 0: it answers. No
 * system call. */
unsigned ucx_socket_silent_ms(ucx_silences_t *silences, int fd, const struct tcp_info *info, base_time_t now);

#endif
