/* SPDX-License-Identifier: Apache-2.0 */
/* comm/verbs/verbs.h: what the files of the verbs transport share. The transport uses reliable connections of
 * libibverbs (InfiniBand and RoCE).
 *
 *     choose.c   pure choices: ports, GID, patience; errors in words
 *     device.c   the process's rails: opened ports with their protection domains, shared by groups
 *     memory.c   registration of memory, and the cache of registered windows
 *     gpu.c      registration of a GPU's memory
 *     group.c    a group's completion queues: polling, sleeping; life of the group
 *     planes.c   pure: which ranks try to reach which, and which rails make planes
 *     probe.c    the try, when a group is made: do its ranks reach each other over RDMA, and over which
 *                rails?
 *     hello.c    how two ranks find each other's queue pairs, over datagrams
 *     link.c     links: making and closing, sending
 *     receive.c  receiving, and reading a peer's buffer by RDMA
 *     post.c     work requests of a link and their completions
 *     quiesce.c  taking the program's buffers back from adapters when a group has failed
 *     ring.h     credits
 *
 * A link has queue pairs of its own: lanes cannot hold up one another, not even in an adapter, and closing a
 * communicator ends all access of adapters to its buffers. A link has `stripes` queue pairs: rails x
 * GYRE_VERBS_QPS. The first carries all messages; large messages are read by RDMA over all of them.
 *
 * A group's objects belong to the thread that drives the group at the time (one at a time, comm/transport.h),
 * so nothing of a group is locked. The rails and the registered windows belong to the process and have locks.
 * No message takes these locks once its window is known. */
#ifndef COMM_VERBS_VERBS_H
#define COMM_VERBS_VERBS_H

#include <infiniband/verbs.h>
#include <stdatomic.h>

#include "base/device/device.h"
#include "comm/link.h"
#include "comm/verbs/choose.h"
#include "comm/verbs/planes.h"
#include "comm/verbs/ring.h"

enum {
    VERBS_STRIPES = 8, /* queue pairs of a link, at most */
    VERBS_INLINE = 128,
    VERBS_SQ = 128,    /* work requests that a queue pair takes */
    VERBS_SIGNAL = 32, /* every so many of them have a completion */
    VERBS_REPOST = 16, /* receives are posted in batches of so many */
    VERBS_WATCH = 32,  /* messages taken without a sleep before a ring is watched */
    /* messages, ends of rendezvous; credits, farewell, beginnings and ends of watching; those not posted
     * yet */
    VERBS_RQ = 2 * VERBS_WINDOW + 16 + VERBS_REPOST,
    VERBS_SRQ_PEERS = 16, /* groups with more peers share their receives */
    VERBS_SRQ = 4096,
    VERBS_BOUNCES = 4,
    VERBS_BOUNCE_BYTES = 64 << 10,
    VERBS_STRIPE_LEAST = 64 << 10, /* least bytes of a rendezvous per stripe */
};

typedef struct comm_verbs_group comm_verbs_group_t;

/* --- rails --- */

/* The address of a port; travels. */
typedef struct {
    uint8_t gid[16];
    uint16_t lid;
    uint8_t mtu;       /* enum ibv_mtu */
    uint8_t roce;      /* 0: InfiniBand */
    uint8_t rd_atomic; /* reads that may be under way towards it, per queue pair */
    uint8_t pad[3];
} verbs_address_t;

typedef struct {
    struct ibv_context *context;
    struct ibv_pd *pd;
    char name[64];
    int number; /* among the process's rails */
    int port;
    int gid_index;
    int demands_grh;
    uint8_t reads_out; /* reads that a queue pair may have under way */
    uint32_t message_most;
    int cqe_most, srq_most;
    verbs_address_t address;
    atomic_int fatal; /* 1: the adapter reported that it cannot continue */
    char text[896];   /* what was chosen and why, in one line */
} verbs_rail_t;

/* Opens the process's rails, or counts one more user. *rails: [*count], until verbs_rails_close. UNSUPPORTED
 * reports what is missing; quiet: only in gyre_last_error. */
gyre_status_t verbs_rails_open(int quiet, verbs_rail_t **rails, int *count);
void verbs_rails_close(void);
/* "ACTIVE" or the present state of its port. */
const char *verbs_rail_state(const verbs_rail_t *rail);
/* Takes the adapter's asynchronous events, if any, and notes each in the object that it concerns:
 * verbs_rail_t.fatal, verbs_link_t.event and comm_verbs_group_t.event, which another thread may own. Does not
 * wait. */
void verbs_rail_events(verbs_rail_t *rail);

/* --- memory --- */

/* Registered memory in the form that a link needs: keys by the group's rails. */
typedef struct {
    uint64_t window; /* 0: empty */
    int usable;      /* 0: could not be registered */
    uint32_t near;   /* mask of the rails that it should go over */
    uint32_t lkey[VERBS_RAILS], rkey[VERBS_RAILS];
} verbs_keys_t;

/* The range of a device's memory that the group may use (comm/lend.h). */
typedef struct {
    unsigned char *base; /* NULL: not lent */
    size_t bytes;
    verbs_keys_t keys;
    struct ibv_mr *mr[VERBS_RAILS];
} verbs_lent_t;
/* Finds the keys of the lent memory or of the window that contains a buffer; a window is registered on first
 * use. 0: neither contains the buffer, or the registration failed. */
int verbs_window_keys(comm_verbs_group_t *vg, const void *ptr, size_t bytes, verbs_keys_t *keys);
void verbs_windows_drop(void); /* deregisters all; called when the last rail is closed */

/* Gyre's own memory for adapters, registered with `rails` rails. It is shared memory: a fork does not copy
 * its pages on write. */
typedef struct {
    unsigned char *base;
    size_t bytes;
    struct ibv_mr *mr[VERBS_RAILS];
} verbs_region_t;
/* access: IBV_ACCESS_REMOTE_WRITE or 0. */
gyre_status_t verbs_region_create(verbs_rail_t *const *rail, int rails, size_t bytes, unsigned access,
                                  verbs_region_t *region);
void verbs_region_free(verbs_region_t *region);

/* --- links --- */

/* The header of every packet: 40 bytes, so that a payload of 24 fits into one unit. */
typedef struct {
    uint64_t bytes; /* of the whole message */
    comm_tag_t tag;
    uint8_t op, type, redop, flags; /* of the sender's call, for errors; op 0: unknown */
    int32_t root;
    uint64_t count;
    uint32_t user_tag;
    uint32_t part; /* verbs_kind_t << 24 | bytes of payload that follow */
} verbs_header_t;

typedef enum {
    VERBS_EAGER = 1, /* the whole message */
    VERBS_BULK = 2,  /* the first part of one */
    VERBS_FRAG = 3,  /* a further part */
    VERBS_RNDV = 4,  /* its address and key: verbs_offer_t */
    VERBS_SHORT = 5, /* the whole message, by a plain write: verbs_short_t */
} verbs_kind_t;

/* The unit that a plain write fills. It is complete when its first byte, its kind and its mark are there:
 * adapters write the mark last, software that copies (Soft-RoCE) may begin at either end. So header.bytes
 * holds one more than the bytes, until the message is taken. */
enum { VERBS_SHORT_MOST = VERBS_UNIT - sizeof(verbs_header_t) - sizeof(uint32_t) };
typedef struct {
    verbs_header_t header;
    unsigned char payload[VERBS_SHORT_MOST];
    _Atomic uint32_t mark; /* as immediate data, with VERBS_IMM_MARK; 0: not complete */
} verbs_short_t;
_Static_assert(sizeof(verbs_short_t) == VERBS_UNIT, "a short message is one unit");

typedef struct {
    uint64_t address;
    uint32_t rkey[VERBS_RAILS];
} verbs_offer_t;

typedef struct {
    struct ibv_qp *qp;
    int rail;
    uint32_t psn, theirs, their_psn; /* theirs: number of the peer's queue pair */
    uint32_t inline_most;
    uint64_t posted, completed; /* work requests of the send queue */
    uint64_t signaled;          /* the last one that will have a completion */
} verbs_qp_t;

/* The message that is being read from the peer. */
typedef struct {
    verbs_offer_t offer;
    unsigned char *to;
    size_t bytes, asked, finished; /* finished: all of it read; with bounces: copied out */
    size_t piece;
    int open;   /* reads under way */
    int stripe; /* of the next one */
    int direct; /* 1: into the caller's buffer; 0: through the bounce buffers */
    verbs_keys_t keys;
    uint8_t bounced[VERBS_BOUNCES]; /* 0 free, 1 being read, 2 read */
} verbs_pull_t;

typedef enum { VERBS_CONNECTING, VERBS_READY } verbs_state_t;

typedef struct verbs_link {
    comm_link_t base;
    comm_verbs_group_t *vg;
    verbs_state_t state;

    verbs_tx_t tx;
    verbs_rx_t rx;
    unsigned char *ring, *mirror;
    verbs_region_t memory; /* ring, then mirror */
    uint64_t their_ring;
    uint32_t their_rkey;
    int their_rails;
    size_t eager_most, packet_most;
    /* ended: by the peer's reports; read: of the peer's, by this rank */
    uint32_t rndv_sent, rndv_ended, rndv_read;
    uint32_t receives_owed;
    int bulk_open;
    /* credits or ends of rendezvous must be reported without a message to carry them */
    int control_due;
    /* 1: this rank watches its ring, and the peer knows or will know with the next message; valid if naps is
     * vg->naps */
    int watching;
    int told_watching, they_watch;
    uint32_t prompt, naps; /* messages taken since the group slept; naps: the value of vg->naps then */
    comm_tag_t described;
    comm_call_t call; /* the call that messages tagged `described` belong to; op 0: unknown */

    verbs_pull_t pull;
    verbs_region_t bounce; /* base NULL: not needed so far */

    verbs_short_t brief; /* composed here: it travels inline */
    struct ibv_sge brief_piece;
    struct ibv_send_wr brief_wr;

    int stripes;
    verbs_qp_t qps[VERBS_STRIPES];

    /* connecting and leaving: hello.c */
    struct ibv_ah *ah;
    /* 1: the peer's hello came and this link's queue pairs are ready to receive */
    int know_them;
    base_time_t next_hello, hello_since;
    base_time_t hello_pause;
    uint32_t hellos; /* hellos sent */
    int complained;  /* 1: it was logged that the peer does not answer */
    int bye_sent, bye_done, bye_came;

    int know_their_call;
    comm_call_t their_call;

    /* enum ibv_event_type + 1 of an event on a queue pair; set by any thread, 0: no event */
    atomic_int event;
    int failed; /* 1: the first error is described by the following */
    base_time_t failed_at;
    char why[400];
} verbs_link_t;

/* --- groups --- */

/* The card of another rank. */
typedef struct {
    int32_t status;
    uint32_t qpn, qkey; /* of the group's datagram queue pair, on the first rail */
    uint32_t pad;
    uint64_t token; /* a rank that knows it belongs to this job */
    verbs_address_t address;
} verbs_card_t;

/* The record that every rank sends to the others when a group is made. */
typedef struct {
    verbs_card_t card;
    uint64_t tried; /* identifies the try whose result this rank uses; 0: no try so far */
    uint32_t try_qkey;
    int32_t rails; /* of its process */
    struct {
        uint32_t qpn; /* for the try; 0: no queue pair */
        char name[16];
        verbs_address_t address;
    } rail[VERBS_RAILS];
} verbs_intro_t;

typedef struct {
    verbs_link_t *link; /* NULL: it is closed */
    uint32_t qpn;       /* 0: no entry */
    uint16_t rail, stripe;
} verbs_place_t;

struct comm_verbs_group {
    comm_group_t *group;
    verbs_rail_t *rail[VERBS_RAILS]; /* its planes */
    int rails;
    verbs_rail_t *all; /* [all_rails] of the process */
    int all_rails;
    struct ibv_comp_channel *channel[VERBS_RAILS];
    struct ibv_cq *cq[VERBS_RAILS];
    int cq_used[VERBS_RAILS]; /* completions that its queue pairs may have open */
    struct ibv_srq *srq;      /* of the first rail; NULL: every link has its own receives */
    uint32_t srq_owed;
    verbs_place_t *places; /* [place_room], by number of queue pair and rail */
    size_t place_room, place_count;
    verbs_keys_t known[16]; /* windows, by number modulo 16 */
    verbs_lent_t lent;
    verbs_card_t *cards; /* [n] */
    verbs_patience_t patience;
    uint32_t ring_units;
    int stripes_wanted; /* per rail */
    int connecting;     /* links that are not ready */
    int control_due;
    uint32_t turns; /* of verbs_progress */
    int leaving;
    int let_go;    /* 1: its queue pairs were put out of use (quiesce.c) */
    int watched;   /* links whose peers know that this rank watches */
    uint32_t naps; /* times that this rank was about to sleep */
    int polled;    /* 0: not polled since events were asked for */
    /* enum ibv_event_type + 1 of its own queues or, as a hint to look, of a link; set by any thread */
    atomic_int event;
    char why[300]; /* "" or the reason that ended all its links */

    /* datagrams */
    struct ibv_qp *ud;
    verbs_region_t ud_memory;
    uint32_t ud_sent, ud_completed;
    uint32_t ud_qkey;
    int ud_down;             /* 1: a hello or a receive failed: the queue pair may have stopped */
    base_time_t ud_next_try; /* not brought up again before */
    base_time_t next_hello;  /* no link needs one earlier */
};

/* The group's part of verbs; NULL before it was prepared. */
static inline comm_verbs_group_t *verbs_of(const comm_group_t *group)
{
    return group->network_state;
}

/* What the table of comm/transports.c asks of a group's transport (comm/link.h); the row is in link.c. */
extern const comm_transport_ops_t comm_verbs;
void verbs_introduce(uint32_t word[COMM_SAID_WORDS]);
gyre_status_t verbs_prepare(comm_group_t *group, int quiet, comm_all_gather_fn all_gather, void *user,
                            base_time_t deadline);
void verbs_leave(comm_group_t *group);
void verbs_progress(comm_group_t *group);
void verbs_arm(comm_group_t *group);
int verbs_sleep_on(comm_group_t *group, struct pollfd *polls);
void verbs_let_go(comm_group_t *group);
int verbs_unanswered(const comm_group_t *group, char *text, size_t bytes);
gyre_status_t verbs_lend(comm_group_t *group, base_device_t device, void *base, size_t bytes,
                         comm_lent_t *out);
void verbs_reclaim(comm_group_t *group);
gyre_status_t verbs_describe(int number, char *text, size_t bytes);
int verbs_try_device(base_device_t device, char *text, size_t bytes);

/* group.c */
/* Returns how many completions there were. */
int verbs_poll(comm_verbs_group_t *vg);
/* The same until there is a completion, but not for long. Returns how many calls of verbs_poll it counts
 * as. */
int verbs_poll_often(comm_verbs_group_t *vg);
/* Fails all present and future links of the group; the first text stays. */
void verbs_group_fail(comm_verbs_group_t *vg, const char *format, ...) __attribute__((format(printf, 2, 3)));
gyre_status_t verbs_place_add(comm_verbs_group_t *vg, verbs_link_t *link, int stripe);
void verbs_place_remove(comm_verbs_group_t *vg, const verbs_link_t *link);
gyre_status_t verbs_cq_reserve(comm_verbs_group_t *vg, int rail, int entries);

/* probe.c */
typedef struct verbs_try verbs_try_t;
/* Prepares for a try over all rails, and describes it in *mine. */
gyre_status_t verbs_try_open(verbs_rail_t *rails, int count, int n, verbs_try_t **out, verbs_intro_t *mine);
/* Finds the rails that the group's ranks use from now on, and keeps them in its world. Collective; intros:
 * [n]. *change: 1 if some rank does not use all rails in their order. If some ranks do not reach each other
 * over any rail: UNSUPPORTED with `quiet` (rank 0 has warned), else TRANSPORT. */
gyre_status_t verbs_try_agree(verbs_try_t *try, comm_group_t *group, int quiet, const verbs_intro_t *intros,
                              comm_all_gather_fn all_gather, void *user, base_time_t deadline, int *change);
void verbs_try_close(verbs_try_t *try);
/* The result that this rank uses. 1: its name and the rails of the planes; *rails: their number, 0 without
 * planes. 0: nothing was tried. */
int verbs_try_known(const comm_world_t *world, uint64_t *name, int *rails, uint8_t rail[VERBS_RAILS]);
void verbs_try_forget(comm_world_t *world);
/* Keeps such a result instead of an earlier one. Threads may make communicators of one world at once: each of
 * the three calls is atomic. name: not 0. */
void verbs_try_keep(comm_world_t *world, uint64_t name, int rails, const uint8_t rail[VERBS_RAILS]);

/* hello.c */
/* The path from one of this process's ports to one of a peer's. */
struct ibv_ah_attr verbs_way_to(const verbs_rail_t *rail, const verbs_address_t *theirs);
/* Takes a queue pair from RESET to sending and receiving. Returns 0 or errno. */
int verbs_datagrams_up(struct ibv_qp *qp, int port, uint32_t qkey);
gyre_status_t verbs_hello_open(comm_verbs_group_t *vg, verbs_card_t *mine);
void verbs_hello_close(comm_verbs_group_t *vg);
/* Sends hello to the peers of links that are not connected, when it is time. */
void verbs_hello_progress(comm_verbs_group_t *vg);
void verbs_hello_completion(comm_verbs_group_t *vg, const struct ibv_wc *wc);
void verbs_hello_begin(verbs_link_t *link);
/* Brings up the datagram queue pair again if an error stopped it; not too often. */
void verbs_hello_mend(comm_verbs_group_t *vg);
/* Notes that the peer is ready, since a message came on the connection. */
void verbs_link_ready(verbs_link_t *link);

/* post.c */
enum { VERBS_WR_SEND = 1, VERBS_WR_READ = 2, VERBS_WR_RECV = 3, VERBS_WR_UD = 4, VERBS_WR_BYE = 5 };
int verbs_qp_room(verbs_link_t *link, verbs_qp_t *qp);
/* Sends the `bytes` at `unit` of the mirror; the place was reserved. */
void verbs_post_packet(verbs_link_t *link, uint32_t unit, size_t bytes);
/* Sends link->brief, complete but for its mark, to `unit`; the place was reserved. */
void verbs_post_brief(verbs_link_t *link, uint32_t unit);
/* Called once the address of the peer's ring is known. */
void verbs_brief_prepare(verbs_link_t *link);
/* Takes the messages that came by plain writes. Returns how many. */
int verbs_marks(verbs_link_t *link);
/* Reports credits and ends of rendezvous, if there is room now; otherwise verbs_poll does it later. */
void verbs_post_control(verbs_link_t *link);
void verbs_post_bye(verbs_link_t *link);
/* Reads `bytes` at `offset` of the peer's offer. */
void verbs_post_read(verbs_link_t *link, verbs_qp_t *qp, uint64_t from, uint32_t rkey, void *to,
                     uint32_t lkey, size_t bytes, int bounce);
gyre_status_t verbs_post_receives(verbs_link_t *link, uint32_t count);
/* Returns 0 or errno, not logged. */
int verbs_post_shared_receives(comm_verbs_group_t *vg, uint32_t count);
void verbs_completion(comm_verbs_group_t *vg, verbs_place_t place, const struct ibv_wc *wc);
void verbs_link_fail(verbs_link_t *link, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* link.c */
/* Makes a link; also called when a peer sends the first hello. */
gyre_status_t verbs_link_of(comm_verbs_group_t *vg, int peer, int lane, verbs_link_t **out);
/* The link at index `i` of the group's table of links; NULL: no link, or not a verbs link. */
verbs_link_t *verbs_link_at(const comm_verbs_group_t *vg, size_t i);
/* Sets the fields that depend on the size of the peer's ring. */
void verbs_link_shape(verbs_link_t *link, uint32_t units);
/* The connection is broken. The watcher reports a death, which may take a moment longer than the adapter:
 * IN_PROGRESS until then. */
gyre_status_t verbs_link_broken(verbs_link_t *link);

/* receive.c: of the transport's row in link.c */
gyre_status_t verbs_recv(comm_link_t *base, void *buf, size_t bytes, comm_tag_t tag, comm_msg_t *msg);
gyre_status_t verbs_recv_view(comm_link_t *base, size_t bytes, comm_tag_t tag, comm_msg_t *msg,
                              const void **view);
void verbs_release(comm_link_t *link, comm_msg_t *msg);
int verbs_their_call(comm_link_t *base, comm_call_t *call);
int verbs_linger(comm_link_t *base);

#endif
