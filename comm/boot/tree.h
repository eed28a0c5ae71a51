/* SPDX-License-Identifier: Apache-2.0 */
/* comm/boot/tree.h: the inside of comm_boot_t: this rank's edges of the binomial tree and what flows along
 * them.
 *
 * The tree is over the places 0..n-1 of the job's members: a place is a member's index in ascending order of
 * ranks. Until the first rank is lost or added, a rank's place is its rank. The parent of place p is p with
 * its lowest set bit cleared. The children of p are p + 2^k for every 2^k below that bit (place 0: every 2^k
 * below n). The subtree of p is the places [p, boot_tree_end(p)).
 *
 *          0            n = 8: at most log2 n hops from any rank to rank 0, at most log2 n children.
 *        / | \
 *       1  2  4
 *          |  | \
 *          3  5  6
 *                |
 *                7
 *
 * Everything is under `lock`. One thread at a time reads frames. Before a watcher is attached, that is the
 * caller that waits (boot_wait). Afterwards it is the watcher's thread, and callers sleep on `moved`. Only
 * the reading thread closes edges. Any thread may send: queueing never blocks. */
#ifndef COMM_BOOT_TREE_H
#define COMM_BOOT_TREE_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "comm/boot/admit.h"
#include "comm/boot/wire.h"
#include "comm/boot/bootstrap.h"

enum {
    BOOT_EDGES_MAX = 33, /* parent and at most 31 children */
    BOOT_TEXT = 640, /* bytes of a text that travels: who called what at two ranks, and why that is wrong */
    BOOT_HOST_BYTES = 32,      /* of a host's name, cut to that */
    BOOT_ABORTS_MAX = 4096,    /* remembered aborts: the oldest are forgotten beyond that */
    BOOT_ASKED_MAX = 64,       /* questions under way at once in one process */
    BOOT_LOST_MAX = 8,         /* lost letters that are known */
    BOOT_NEWCOMERS_MAX = 4096, /* of one comm_boot_grow */
    BOOT_HANDSHAKE_MESSAGES = 3
};
#define BOOT_ABORT_JOB UINT64_MAX /* abort id of the job itself: a rank could not join, or was expelled */

typedef struct {
    base_time_t heard; /* when something last came from the other side */
    int excused;       /* it was silent for too long, and for a reason that was logged */
} boot_ear_t;

typedef struct {
    int rank, place;
    int open;
    int traced; /* its last beat said that a debugger traces it */
    int left;   /* it said goodbye: its closing is no death */
    boot_ear_t ear;
    base_time_t spoke; /* when a beat last went to it */
    boot_conn_t conn;
    boot_buf_t steps; /* its BOOT_UP or BOOT_DOWN messages that wait to be taken, each after a u64 length */
} boot_edge_t;

typedef struct {
    int rank;
    int left;   /* 1: it said that it leaves after an error; 0: it died */
    int silent; /* 1: died, as far as one can tell who only hears nothing; 0: its end was seen */
    /* not silent: its host has refused a connection since. A connection that closes proves less: the other
     * side may have taken this rank for dead, and its word for that may be lost in a cut network. */
    int proved;
    char how[BOOT_TEXT];
} boot_death_t;

typedef struct {
    uint64_t id;
    gyre_status_t status;
    char text[BOOT_TEXT];
} boot_abort_t;

/* For which circle a letter was that is not there, and whose. */
typedef struct {
    uint64_t comm, tag, list;
    uint32_t turn;
    int from; /* rank of the job */
} boot_lost_t;

typedef struct {
    uint32_t id; /* 0: free */
    int answered, found;
    boot_buf_t value;
} boot_asked_t;

/* Where a rank can be reached for as long as it lives. */
typedef struct {
    unsigned char addr[BOOT_ADDR_BYTES]; /* loopback: on rank 0's host */
    char host[BOOT_HOST_BYTES];
    unsigned char machine[4]; /* of base_machine: whose processes it sees; 0: not known */
    unsigned char pid[4];
} boot_place_t;

typedef struct boot_letter boot_letter_t;
typedef struct boot_circles boot_circles_t;

struct comm_boot {
    int rank, size; /* size: rank numbers given out so far, to the dead ones, too */
    int place;      /* of this rank among the members */
    int members_n;
    int *members;   /* [members_n] ranks, ascending; NULL: all of 0..size-1 */
    uint32_t epoch; /* number of changes of the members */
    char job[COMM_JOB_BYTES];
    unsigned char secret[32];
    unsigned char auth_key[32];

    pthread_mutex_t lock;
    pthread_cond_t moved; /* some frame was handled */
    int watched;          /* a watcher's thread reads the edges */
    void (*poke)(void *); /* makes that thread look at the edges again (it must poll for POLLOUT) */
    void *poke_user;
    /* What this rank answers to ranks that wait for it; see query.c. */
    comm_recorder_slot_t *recorder;     /* NULL: not yet */
    const struct boot_joiners *joiners; /* while it lets ranks in */
    const char *call;                   /* of the program that steps are part of, for texts; or NULL */
    int waits_for;                      /* in a collective of the bootstrap: for that rank; -1: not in one */
    _Atomic int stream_waits_for;       /* rank that work on a device waits for; -1: none for long */

    base_time_t silence;   /* a neighbour that says nothing for so long is dead; 0: heartbeats are off */
    base_time_t next_beat; /* when boot_beat has something to do again */

    /* reconnect.c, shrink.c */
    boot_admit_t listener; /* the listening socket, for the job's whole life, and who knocks there */
    struct boot_contact *contacts;
    boot_place_t *places;  /* [places_n]; NULL: comm_boot_meet was not called */
    int places_n;          /* less than `size` of a membership that grew without this rank */
    char root_text[256];   /* as in comm_identity_t */
    boot_addr_t own_addr;  /* by which this rank reached rank 0; with the listener's port once that is open */
    boot_addr_t root_addr; /* at which it reached rank 0 */
    /* the newest membership that was agreed on, as it travelled; empty: that of the beginning */
    boot_buf_t view;
    uint32_t view_epoch;     /* its number; ahead of `epoch` until it is taken up */
    char refusal[BOOT_TEXT]; /* why there can be no new membership; "": nothing */

    /* Until then another rank's line about a long wait is enough; 0: none has spoken. */
    base_time_t quiet_until;

    uint32_t wiring;    /* changes whenever `edges` becomes another array */
    boot_edge_t *edges; /* [edges_n]: the parent first (unless rank 0), then the children in rank order */
    int edges_n;
    uint32_t step;          /* number of the newest collective */
    uint64_t past_messages; /* of handshakes and of connections closed since: for comm_boot_stats */

    boot_letter_t *letters; /* circle.c: oldest first; owned */
    boot_circles_t *circles;
    boot_lost_t lost[BOOT_LOST_MAX]; /* letters for which there was no memory, the newest */
    uint32_t lost_n;                 /* of them all; number i is at i % BOOT_LOST_MAX */

    boot_asked_t asked[BOOT_ASKED_MAX];
    uint32_t asked_last;

    boot_death_t *deaths; /* and leavings after an error, in the order in which they were noted */
    int deaths_n;
    boot_abort_t *aborts;
    int aborts_n;
    _Atomic uint32_t trouble; /* deaths and aborts noted so far; read without the lock */
};

/* The lock. While a thread holds it, what it logs is dropped rather than waited for (base_log_hurry): news of
 * a death must not wait for somebody to read stderr. */
void boot_lock(comm_boot_t *boot);
void boot_unlock(comm_boot_t *boot);
/* 1: this thread holds such a lock, or is about to take or to give it back. For signal handlers. */
int boot_locking(void);

int boot_tree_parent(int place);                         /* -1 for place 0 */
int boot_tree_end(int place, int n);                     /* one past the last place of the subtree */
int boot_tree_children(int place, int n, int *children); /* [31]; how many */
int boot_member(const comm_boot_t *boot, int place);     /* its rank */
int boot_place(const comm_boot_t *boot, int rank);       /* -1: not a member */

boot_edge_t *boot_edge_of(comm_boot_t *boot, int rank);     /* NULL: not a neighbour */
void boot_edge_adopt(boot_edge_t *edge, boot_conn_t *conn); /* moves the connection in */

/* Watch entries of the open edges, at most BOOT_EDGES_MAX; edges[i] belongs to polls[i]. Returns how many. */
int boot_polls(comm_boot_t *boot, struct pollfd *polls, boot_edge_t **edges);
/* Acts on what poll(2) said about one edge: sends, reads, dispatches, notes deaths. */
void boot_handle(comm_boot_t *boot, boot_edge_t *edge, short revents);

/* Closes an edge whose neighbour is gone. how: how the neighbour ended. Reports the end to all ranks,
 * unless the neighbour said goodbye. */
void boot_edge_lost(comm_boot_t *boot, boot_edge_t *edge, const char *how, int silent);

/* For the watcher's thread, under the lock: sends the heartbeats that are due and ends edges that have been
 * silent for too long. Returns when to call again. boot_beat_begin: the neighbours' time counts from now
 * on. */
void boot_beat_begin(comm_boot_t *boot);
base_time_t boot_beat(comm_boot_t *boot);
/* 1: a rank has been silent for too long, and counts as dead. traced: its last beat said that it is. */
int boot_silent(const comm_boot_t *boot, int rank, const boot_conn_t *conn, int traced, boot_ear_t *ear,
                base_time_t now);

/* Waits under the lock until something moved. TIMEOUT (quiet). */
gyre_status_t boot_wait(comm_boot_t *boot, base_time_t deadline);
/* The oldest waiting step of an edge: 1 and *data, *bytes (borrowed until boot_step_pop or boot_wait), or
 * 0. */
int boot_step_front(const boot_edge_t *edge, const unsigned char **data, size_t *bytes);
/* Adds a step. 0: no memory. Steps wait in order: a neighbour that gave up on one sends the next before we
 * have come to its first. */
int boot_step_keep(boot_buf_t *steps, const boot_message_t *m);
void boot_step_pop(boot_edge_t *edge);
gyre_status_t boot_edge_send(comm_boot_t *boot, boot_edge_t *edge, boot_type_t type, const void *data,
                             size_t bytes);

/* failures.c: each floods what is new to all edges but `from` (NULL: it is our own finding). */
void boot_note_death(comm_boot_t *boot, int rank, const char *how, int silent); /* own finding */
/* Of a rank that is noted as dead: its end is proved, or (silent) it may live. Without effect on others. */
void boot_settle_death(comm_boot_t *boot, int rank, int silent);
/* The same: this rank has no memory for what `rank` sends, and cannot go on with it. The text says whose
 * memory it is, to those that hear of the death. */
void boot_note_unheard(comm_boot_t *boot, int rank);
void boot_unheard_text(const comm_boot_t *boot, char *text, size_t bytes);
void boot_note_abort(comm_boot_t *boot, uint64_t id, gyre_status_t status, const char *text,
                     const boot_edge_t *from);
/* `from` says that this rank is no longer one of the job: ends everything here, sends nothing to others. */
void boot_take_expelled(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m);
/* Copies a text that came over the wire: bounded, ended, and printable. */
void boot_copy_text(char out[BOOT_TEXT], const unsigned char *text, size_t bytes);
const boot_death_t *boot_death_of(const comm_boot_t *boot, int rank);
/* The abort of communicator `id`, or of the whole job. */
const boot_abort_t *boot_abort_of(const comm_boot_t *boot, uint64_t id);
/* Forgets the deaths of ranks whose numbers have not been given out: they may be given to others now. */
void boot_forget_unborn(comm_boot_t *boot);
/* The first cause among ranks[0..n) (NULL: all that have a number): the death that was noted first; without a
 * death, the first leaving after an error. NULL: neither. */
const boot_death_t *boot_first_death(const comm_boot_t *boot, const int *ranks, int n);
void boot_death_text(const boot_death_t *death, char *text, size_t bytes); /* "died: ..." or "left ..." */
/* BOOT_DEAD or BOOT_LEFT about `death`, as a message. Returns its bytes. */
enum { BOOT_DEATH_BYTES = 8 + BOOT_TEXT };
size_t boot_death_pack(const boot_death_t *death, unsigned char out[BOOT_DEATH_BYTES]);
/* from: NULL: a contact */
void boot_take_dead(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m);
void boot_take_left(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m);
void boot_take_abort(comm_boot_t *boot, boot_edge_t *from, const boot_message_t *m);
void boot_take_speaks(comm_boot_t *boot, const boot_edge_t *from);

/* A set of edges for this rank's place in the tree: all closed. NULL: no memory. */
boot_edge_t *boot_edges_new(const comm_boot_t *boot, int *n);

/* circle.c */
void boot_take_letter(comm_boot_t *boot, const boot_message_t *m);
void boot_circles_free(comm_boot_t *boot);
/* Communicator `comm` is gone; tag: or only its circles with this one are. */
void boot_circles_forget(comm_boot_t *boot, uint64_t comm, const uint64_t *tag);

/* query.c */
/* The edge towards `rank`; NULL: it is no member, or this rank itself. */
boot_edge_t *boot_edge_towards(comm_boot_t *boot, int rank);
/* Sends `m` on to `rank`, as far as that is possible. */
void boot_pass_on(comm_boot_t *boot, int rank, const boot_message_t *m);
/* The end of a rank that lies on the tree's way from this rank to `rank`, or of that rank; NULL: none
 * known. */
const boot_death_t *boot_death_on_way(const comm_boot_t *boot, int rank);
enum { BOOT_ASK_BYTES = 16, BOOT_TELL_MAX = 640 };
void boot_take_ask(comm_boot_t *boot, const boot_message_t *m);
void boot_take_tell(comm_boot_t *boot, const boot_message_t *m);
/* What this rank says to the question `ask`: a BOOT_TELL. Returns its bytes. */
size_t boot_tell_pack(const comm_boot_t *boot, const unsigned char ask[BOOT_ASK_BYTES],
                      unsigned char out[BOOT_TELL_MAX]);
/* The other way round. 0: it is malformed. */
int boot_tell_unpack(const comm_boot_t *boot, const unsigned char *data, size_t bytes,
                     comm_boot_doing_t *doing);
/* comm_boot_blame, under the lock. */
gyre_status_t boot_blame(comm_boot_t *boot, int from, uint64_t about, base_time_t deadline,
                         comm_blame_t *out);

/* Under the lock: what rank 0 says of the ranks that have not joined; "": none, or no answer. ABORTED as
 * boot_blame. */
gyre_status_t boot_ask_missing(comm_boot_t *boot, base_time_t deadline, char *text, size_t bytes);
#define BOOT_MISSING \
    " for rank(s) %s to join, says rank 0: were they started, and with the same GYRE_ROOT?" /* that text */

/* joiners.c: the ranks that are waited for, such as "2, 5-7"; "": none. */
void boot_joiners_missing(const struct boot_joiners *joiners, char *text, size_t bytes);

/* bootstrap.c: not connected to anybody yet. NULL: memory. */
comm_boot_t *boot_new(const comm_identity_t *who);

/* join.c: the connected tree, or an error after which boot's edges are still to be freed. */
gyre_status_t boot_join_tree(comm_boot_t *boot, const comm_identity_t *who, base_time_t deadline);

#endif
