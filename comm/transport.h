/* SPDX-License-Identifier: Apache-2.0 */
/* comm/transport.h: one channel, several transports; read this and you know them all.
 *
 * A *group* is the set of ranks of one communicator as comm/ sees it. A *link* joins this rank to one peer of
 * the group on one lane. A lane is an independent, reliable, ordered stream in each direction: messages of a
 * lane arrive in the order in which they were sent, and each must be received with the length and tag with
 * which it was sent. Lanes exist so that independent channels of a schedule cannot block one another.
 *
 * Nothing here blocks and nothing here allocates once a link is connected. A call that could not finish
 * returns GYRE_IN_PROGRESS. The caller (the executor) repeats the call and waits with comm/wait.h in between.
 * There is one exception: the first receive from a window of the peer may wait up to 2 ms in a call for the
 * peer's watcher, and makes a few allocations for the new mapping. */
#ifndef COMM_TRANSPORT_H
#define COMM_TRANSPORT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <gyre/comm.h>

#include "base/device/device.h"
#include "comm/memory/backing.h"
#include "comm/memory/message.h"
#include "comm/memory/outbox.h"
#include "comm/recorder/recorder.h"
#include "comm/watch/watch.h"

/* How long messages go between ranks of one host unless GYRE_SHM_COPY says otherwise (comm/shm/link.c);
 * the simulator's, too. */
enum {
    COMM_SHM_EAGER_MOST = 4096 /* bytes; beyond it one copy from a window beats two through the ring */
};

typedef struct comm_group comm_group_t;
typedef struct comm_link comm_link_t;

/* State of a message under way; owned by the caller, zeroed before first use, opaque outside the
 * transport but for `gives`. */
typedef struct {
    uint64_t ticket;
    uint64_t done; /* bytes already handed over */
    void *handle;
    uint32_t phase;
    uint32_t pad;
    /* Of a send, set by the caller before the first call: the receiver alone reads the buffer before it
     * is written anew, and may overwrite it after that (base/thread/cacheline.h). */
    uint32_t gives;
} comm_msg_t;

/* Starts (phase 0) or continues sending. OK: the buffer may be overwritten. IN_PROGRESS: call again with the
 * same arguments. A later message of this lane may start once comm_send_accepted returns 1. */
gyre_status_t comm_send(comm_link_t *link, const void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
/* True once the message has its place in the lane's order, so that the next one may be started before this
 * one is finished (at most COMM_SENDS_OPEN unfinished ones per lane; comm_send of a further one stays at
 * phase 0). */
static inline int comm_send_accepted(const comm_msg_t *msg)
{
    return msg->phase != 0;
}
enum { COMM_SENDS_OPEN = 64 };

/* Starts or continues receiving the lane's next message into buf. OK: all bytes are there. IN_PROGRESS: call
 * again. MISMATCH: the message that came has another tag or length (nothing is consumed;
 * comm_link_their_call). One receive at a time per lane direction: the next is started after this one is
 * finished or viewed. */
gyre_status_t comm_recv(comm_link_t *link, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
/* The same without copying: OK: *view points at the payload where it lies, to be read until comm_release.
 * UNSUPPORTED (quiet; at phase 0 only): this message must be copied, call comm_recv. Several views may be
 * open. */
gyre_status_t comm_recv_view(comm_link_t *link, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                             const void **view);
void comm_release(comm_link_t *link, comm_msg_t *msg);
/* To be asked after a view was read. 1: the peer has failed, and may have changed the payload: what was made
 * of it is not to be used. The peer's failure will be reported (comm_group_trouble). */
int comm_view_lost(const comm_link_t *link);

/* For a caller that has nothing to do but to wait for this link. Moves the group and watches for about a
 * quarter of a microsecond, less if something comes. Returns how many looks of comm_send or comm_recv that
 * was worth. */
int comm_linger(comm_link_t *link);
/* After MISMATCH: the call that the peer's message belongs to, as far as known; 0 if unknown. */
int comm_link_their_call(comm_link_t *link, comm_call_t *call);
/* The name of its transport. */
const char *comm_link_transport(const comm_link_t *link);

/* Passes `bytes` from every member to every member, in group-rank order, over the parent communicator or the
 * bootstrap. Collective over the group. */
typedef gyre_status_t (*comm_all_gather_fn)(void *user, const void *mine, size_t bytes, void *all);

enum { COMM_TRANSPORTS = 6, COMM_KEPT_WORDS = 2 }; /* rows of the table in comm/transports.c, at most */

/* The process's place in the job; made once by gyre_init. Borrowed by its groups. */
typedef struct {
    comm_boot_t *boot;
    comm_watch_t *watch;
    comm_recorder_slot_t *recorder;
    char job[COMM_JOB_BYTES]; /* its id for gyre-doctor */
    int rank;
    int size;
    double timeout_s; /* the deadline of every operation; <= 0: none */
    /* Set by comm_group_create once a group of this process was found to have more ranks on the host than
     * cores; later groups of the process then wait politely too. Starts as 0. */
    _Atomic int crowded;
    /* ns of a call of the kernel that reads a peer's memory; measured by the first group that has a peer on
     * this host. 0: not yet. */
    _Atomic double cma_call_ns;
    /* A random word, which ranks of this host read to try whether the kernel lets them, and whether this
     * process is still there. 0: not yet drawn. */
    _Atomic uint64_t probe;
    /* Of base_machine, which reads files; 0: not yet asked. */
    _Atomic uint64_t host_hint;
    /* Where the segments of its later groups lie; left by the first that has a peer on this host and must
     * make a file. Set once; NULL: none. The world's owner closes it after the last group. */
    _Atomic(comm_backing_t *) backing;
    /* What each transport remembers from group to group, by its number in the table; its own. Starts as
     * 0s. */
    struct {
        uint64_t word[COMM_KEPT_WORDS];
    } kept[COMM_TRANSPORTS];
} comm_world_t;

/* Collective. world_ranks: [n], copied. id: the same on all ranks and unique in the job. Decides which ranks
 * share this host (by fetching each other's memory, not by names), makes the shared segment, connects
 * nothing yet. */
gyre_status_t comm_group_create(comm_world_t *world, uint64_t id, const int *world_ranks, int n, int rank,
                                comm_all_gather_fn all_gather, void *user, base_time_t deadline,
                                comm_group_t **out);
void comm_group_destroy(comm_group_t *group);

/* A group of ranks of another one, its parent, all of whose ranks share this host: what the parent's ranks
 * know of each other, the group's take over. So one exchange of what follows is enough, among the group's
 * ranks at least, and then an agreement on whether all have made it. */
typedef struct {
    uint64_t backing; /* name of this rank's backing file; 0: it cannot make a group so */
    uint64_t room;    /* that it has reserved there, should it be a group's first rank (rooms.h) */
    uint64_t budget;  /* its GYRE_SHM_BUDGET */
    double cma_call_ns;
} comm_offer_t;
/* 1: offers of the parent's ranks may serve. The same on all of them. */
int comm_group_derives(const comm_group_t *parent);
comm_offer_t comm_group_offer(const comm_group_t *parent);
/* All ranks know that no group is made in this rank's room. A rank that cannot know, as after an error, does
 * not call it: that costs addresses in a file. */
void comm_group_withdraw(const comm_group_t *parent, const comm_offer_t *offer);
/* 1: groups can be made by ranks with these [n] offers. *cma_call_ns: what these say of it together. */
int comm_offers_serve(const comm_offer_t *offers, int n, double *cma_call_ns);
/* members: [n] ranks of the parent in the order of the new group, of which this rank is number `rank`.
 * first: the offer of the first of them; cma_call_ns: the same on all. Exchanges nothing. Nothing may be said
 * in the group before all its ranks have made it. */
gyre_status_t comm_group_derive(const comm_group_t *parent, uint64_t id, const int *members, int n, int rank,
                                const comm_offer_t *first, double cma_call_ns, comm_group_t **out);
/* A group that has failed lets go of the program's buffers. By the thread that drives the group. When this
 * returns, no peer and no adapter writes to the buffers of the group's operations any more, and no rank uses
 * what it still reads there. So their owner may get the failure. Bounded: a second or so where something does
 * not answer, and GYRE_HEARTBEAT for a peer that was stopped at work in the buffers. Nothing can be sent or
 * received in the group afterwards; other groups are not touched. UCX cannot take back what it has begun
 * without cutting connections that other groups share: there the buffers are free once the group is shut or
 * destroyed. */
void comm_group_let_go(comm_group_t *group);
/* Ends what is under way and closes the links, of a group that has failed; all that is left to do with it
 * is to destroy it. */
void comm_group_shut(comm_group_t *group);

/* The link is made on first use; that waits for nobody: connections and windows are completed by use.
 * peer == own rank gives the self link. */
gyre_status_t comm_group_link(comm_group_t *group, int peer, int lane, comm_link_t **out);
/* Moves what the group's network has to move; cheap when nothing does. By the thread that drives the
 * group. */
void comm_group_progress(comm_group_t *group);
/* How many links still wait for their peers' first answer, for the error text of an operation that is late.
 * text: the state of one of these links; unchanged if there is none. */
int comm_group_unanswered(const comm_group_t *group, char *text, size_t bytes);

/* ns of a call of the kernel that reads the memory of another rank of this host, as its ranks have measured
 * it and agreed on. 0: not known. */
double comm_group_cma_call(const comm_group_t *group);

/* What was measured of rings. best: bytes up to which a message in memory that peers cannot map costs
 * less through a ring than by a call of the kernel; takes: receivers take the lines of what they have
 * read (shm/ring.h). Until it is set: COMM_SHM_EAGER_MOST, 0. Before the first link is made. */
void comm_group_set_ring(comm_group_t *group, size_t best, int takes);
/* The longest such message that goes through a ring of that lane: the ring must hold it, so that its sender
 * does not wait for the receiver. */
size_t comm_group_ring_most(const comm_group_t *group, int lane);

/* The outbox of a group whose members all share this host, or NULL. */
comm_outbox_t *comm_group_outbox(comm_group_t *group);
/* Has the pages mapped that this rank's posts of up to `bytes` use (stream: see comm_outbox_begin), before
 * the first of them. So they lie on its NUMA node. Those of the others are there before it reads them. A
 * communicator costs the memory of what it is used for. Cheap when they are mapped. */
void comm_group_outbox_populate(comm_group_t *group, size_t bytes, int stream);
/* Rings the ranks of the group that sleep. Call after a post, and after the end of an operation: a rank that
 * is ahead may wait for that end. */
void comm_group_ring(comm_group_t *group);

uint64_t comm_group_id(const comm_group_t *group);
int comm_group_world_rank(const comm_group_t *group, int rank);
/* host_of: [n], host numbers 0.. in order of their lowest rank. Borrowed. */
const int *comm_group_hosts(const comm_group_t *group, int *hosts);
/* node_of: [n], the NUMA node that each rank's thread was bound to when it made the group, by its system's
 * number; -1: several, or not known. Borrowed. */
const int *comm_group_nodes(const comm_group_t *group);
/* order: [n], the ranks in an order in which those that share a switch, a host, a package, a NUMA node or a
 * cache follow each other (topo_seat_order); the same on all ranks. Borrowed. NULL: the order by rank is
 * one. */
const int *comm_group_order(const comm_group_t *group);
/* cell_of: [n], cell numbers 0.. in order of their lowest rank, the same on all ranks: ranks of a cell are
 * bound to one last-level cache or NUMA node (topo_cells). Borrowed. There is one cell if there are several
 * hosts, if the ranks are not bound, or for COMM_FLAT_RANKS ranks and fewer. */
enum { COMM_FLAT_RANKS = 32 };
const int *comm_group_cells(const comm_group_t *group, int *cells);
int comm_group_oversubscribed(const comm_group_t *group); /* local ranks outnumber the cores they may use */
int comm_group_cores(const comm_group_t *group);          /* the cores that they may use together */
/* OK, or a quiet PEER_DEAD that names the member whose end came first: others often leave because of it. */
gyre_status_t comm_group_lost(const comm_group_t *group);
/* OK, or with what another rank has aborted the group, else PEER_DEAD as above; text: the story. */
gyre_status_t comm_group_trouble(const comm_group_t *group, char *text, size_t bytes);

/* This rank's call board, for comm_board_post (comm/memory/segment.h): its last calls, readable by its local
 * peers. */
struct comm_board *comm_group_board(const comm_group_t *group);
/* 1 and *call: what `peer` is doing or did last; 0: not visible from here. */
int comm_group_peer_call(const comm_group_t *group, int peer, comm_call_t *call);
/* One of the last few calls of `rank` (own or local peer): the collective number `seq`, or with p2p the
 * message number `seq` with rank `partner`. 0: forgotten, or not visible from here. */
int comm_group_find_call(const comm_group_t *group, int rank, uint32_t seq, int p2p, int partner,
                         comm_call_t *call);

/* The transports that there are, for tools, by their numbers in the table. */
int comm_transport_find(const char *name); /* -1: unknown name */
int comm_transport_is_network(int number); /* 1: it joins hosts */
/* text: what its part `part`, from 0, would be here and why, such as a port of an adapter; or why it cannot
 * be used. INVALID, quiet: it has no such part. */
gyre_status_t comm_transport_describe(int number, int part, char *text, size_t bytes);
/* What it would make of memory of `device`, tried. 1: sends from it and receives into it; 0: does not; text
 * says how or why not. -1: it has nothing to do with devices. */
int comm_transport_try_device(int number, base_device_t device, char *text, size_t bytes);

typedef struct {
    size_t shared_bytes, private_bytes;
    uint64_t connections;
    uint64_t fences; /* each interrupts every rank of the host that computes */
    uint64_t yields; /* of waits, and the nanoseconds that these and sleeps took */
    base_time_t yield_ns, sleep_ns;
} comm_group_stats_t;
void comm_group_stats(const comm_group_t *group, comm_group_stats_t *out);

#endif
