/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/mpi/shim.h: what the files of libgyre-mpi share: the MPI library's own functions, the
 * communicators of Gyre that belong to those of MPI, datatypes, and what is counted and compared.
 *
 * A call is taken or passed on by what all its ranks know alike: the communicator, and for reductions the
 * datatype and the operation. Calls that only move data are always taken, as bytes. */
#ifndef GYRE_MPI_SHIM_H
#define GYRE_MPI_SHIM_H

#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop
#include <gyre/gyre.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The collectives that may be taken, blocking (MPI_Allreduce) and non-blocking (MPI_Iallreduce). */
/* clang-format off */
#define SHIM_CALLS(X) \
    X(Allreduce, allreduce) X(Reduce, reduce) X(Reduce_scatter, reduce_scatter) \
    X(Reduce_scatter_block, reduce_scatter_block) X(Scan, scan) X(Exscan, exscan) X(Bcast, bcast) \
    X(Barrier, barrier) X(Gather, gather) X(Gatherv, gatherv) X(Scatter, scatter) X(Scatterv, scatterv) \
    X(Allgather, allgather) X(Allgatherv, allgatherv) X(Alltoall, alltoall) X(Alltoallv, alltoallv) \
    X(Alltoallw, alltoallw) X(Neighbor_allgather, neighbor_allgather) \
    X(Neighbor_allgatherv, neighbor_allgatherv) X(Neighbor_alltoall, neighbor_alltoall) \
    X(Neighbor_alltoallv, neighbor_alltoallv) X(Neighbor_alltoallw, neighbor_alltoallw)
/* What takes requests, and may be of Gyre. */
#define SHIM_WAITS(X) \
    X(Wait) X(Waitall) X(Waitany) X(Waitsome) X(Test) X(Testall) X(Testany) X(Testsome) \
    X(Request_get_status) X(Request_free)
/* What makes a communicator. */
#define SHIM_MAKERS(X) \
    X(Comm_dup) X(Comm_dup_with_info) X(Comm_split) X(Comm_split_type) X(Comm_create) X(Comm_create_group) \
    X(Cart_create) X(Cart_sub) X(Graph_create) X(Dist_graph_create) X(Dist_graph_create_adjacent) \
    X(Intercomm_merge) SHIM_MAKERS_OF_MPI_4(X)
#if MPI_VERSION >= 4
#define SHIM_MAKERS_OF_MPI_4(X) X(Comm_create_from_group)
#else
#define SHIM_MAKERS_OF_MPI_4(X)
#endif
/* What is used of libgyre. */
#define SHIM_GYRE(X) \
    X(comm_abort) X(comm_destroy) X(comm_error) X(comm_icreate_group) X(comm_icreate_id) \
    X(comm_hosts) X(finalize) X(get_unique_id) X(iall_gather) X(iall_gatherv) \
    X(iall_reduce) \
    X(iall_to_all) X(iall_to_allv) X(ibarrier) X(ibroadcast) X(iexscan) X(igather) X(igatherv) \
    X(ineighbor_exchange) X(ireduce) X(ireduce_scatter) X(ireduce_scatterv) X(iscan) X(iscatter) \
    X(iscatterv) X(progress) X(test) X(type_name) X(type_size)
/* clang-format on */
#define SHIM_ID(name, lower) CALL_##name,
/* The non-blocking form of a call has its number + CALL_COUNT. */
typedef enum { SHIM_CALLS(SHIM_ID) CALL_COUNT } shim_call_t;

/* The MPI library's own function. For what this library defines, also under its PMPI name (Open MPI). */
#define SHIM_REAL(name)         extern __typeof__(&PMPI_##name) shim_real_##name;
#define SHIM_REALS(name, lower) SHIM_REAL(name) SHIM_REAL(I##lower)
SHIM_CALLS(SHIM_REALS)
SHIM_WAITS(SHIM_REAL)
SHIM_MAKERS(SHIM_REAL)
#define REAL(name) shim_real_##name

/* libgyre's function. Set from the time on when the ranks were joined. */
#define SHIM_MEMBER(name) __typeof__(&gyre_##name) name;
typedef struct {
    SHIM_GYRE(SHIM_MEMBER)
} shim_gyre_t;
extern shim_gyre_t shim_gyre;
#define GYRE(name) shim_gyre.name

/* Why a call is passed on. WHY_TAKEN: it is not. */
typedef enum {
    WHY_TAKEN,
    WHY_NO_JOB,
    WHY_ALONE,
    WHY_INTER,
    WHY_FOREIGN,
    WHY_NEW,
    WHY_NOT_BLOCKING, /* due, but a call that does not block cannot make one */
    WHY_FAILED,
    WHY_TYPE,
    WHY_ARGUMENT,
    WHY_COUNT
} shim_why_t;

/* The neighbours in the topology of a communicator, without MPI_PROC_NULL, in the order in which messages
 * between two ranks match. */
typedef struct {
    int n;
    int *ranks; /* [n] */
    int *index; /* [n] the place of each in the program's buffers */
} shim_near_t;

/* What belongs to a communicator of MPI. */
typedef struct shim_comm {
    gyre_comm_t *gyre; /* NULL: calls on it are passed on */
    shim_why_t why;
    int rank;
    int size;
    int calls;    /* while it is new: collectives so far, the same number on all ranks */
    double work;  /* and what they were worth to this rank, in small collectives */
    int next_try; /* the number of them at which its ranks see next whether it can be made in Gyre */
    int root;     /* its rank that is rank 0 of MPI_COMM_WORLD, if that is a member */
    long long id; /* the same number on all ranks */
    int *members; /* [size], ranks in MPI_COMM_WORLD */
    struct shim_comm *next; /* in the list of those whose MPI communicator was freed */
    shim_near_t to;         /* of neighbourhood collectives; ranks NULL: not known so far */
    shim_near_t from;
    pthread_mutex_t lock; /* with MPI_THREAD_MULTIPLE: of its calls in Gyre and their tests */
    atomic_int requests;  /* those that are not freed; and 1 for the communicator of MPI */
    atomic_bool freed;    /* the communicator of MPI is */
    atomic_bool said;     /* shim_keeps_order */
    unsigned turn;        /* of drive() in which its first open collective had not ended */
} shim_comm_t;

/* job.c */
/* That of all ranks of MPI_COMM_WORLD. */
typedef struct {
    bool open; /* from MPI_Init to MPI_Finalize, if there are several ranks */
    int rank;
    int size;
    int begins;                  /* how many collectives of each communicator MPI makes first */
    int joins;                   /* the work of one of them after which the ranks are joined; 0: that many */
    _Atomic(gyre_comm_t *) gyre; /* NULL: not joined so far */
    atomic_bool failed;          /* the ranks cannot be joined */
} shim_job_t;
extern shim_job_t shim_job;
/* Joins the ranks; called by all of them, with the same result. root: the rank in `comm` of rank 0. */
bool shim_join(MPI_Comm comm, int root);
/* Whether `well` holds on all ranks of `comm`. */
bool shim_all_well(MPI_Comm comm, bool well);
/* Waits for a request that was started with `started`, and lets MPI's messages make progress. */
gyre_status_t shim_wait(gyre_status_t started, gyre_request_t **request);
/* A turn of a wait in which nothing has ended lets messages and other ranks go on; and the last one. turn: 1,
 * 2 and so on in each wait; 0: of no wait. */
void shim_rest(unsigned turn, bool ended);
void shim_yield(unsigned turn);
/* MPI's class of error for `status`. */
int shim_class(gyre_status_t status);
/* What MPI returns for `status`; for an error the error handler of `comm` was called. */
int shim_result(MPI_Comm comm, gyre_status_t status);
/* Ends the job: this rank cannot go on. */
_Noreturn void shim_no_memory(const char *what);
/* The same after a line on stderr. */
_Noreturn void shim_end_job(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* All ranks of `comm` know that Gyre cannot make its collectives: with GYRE_ORDER the job ends. */
void shim_need_order(MPI_Comm comm, int rank, const char *what);

/* comms.c */
void shim_comms_init(void);
/* The job is that of MPI_COMM_WORLD, too. */
void shim_comms_take_world(void);
void shim_comms_end(void);
/* That of `comm`, which its ranks make together in a blocking collective after the first GYRE_MPI_AFTER ones,
 * once the ranks are joined. Called once in each collective, of `count` elements of `type`, in each block if
 * there are several; waits: it is a blocking one. NULL: pass the call on, for the reason in *why. */
shim_comm_t *shim_comm_of(MPI_Comm comm, bool waits, int count, MPI_Datatype type, shim_why_t *why);
/* MPI has made `comm`: with GYRE_MPI_AFTER=0 it gets one of Gyre at once. */
void shim_comm_made(MPI_Comm comm);
/* That of `comm` if it had a collective; else NULL. */
shim_comm_t *shim_comm_known(MPI_Comm comm);
/* A request of it was freed. */
void shim_comm_leave(shim_comm_t *comm);

/* order.c */
/* Reads GYRE_ORDER: when the library is loaded, and in MPI_Init, before which the program may set it. */
void shim_order_init(void);
/* Its value; NULL: the program asks for none. */
const char *shim_order(void);
/* first: that of rank 0, or "". This rank gets it, or the job ends as it has another one. */
enum { SHIM_ORDER_MOST = 64 };
void shim_share_order(const char first[SHIM_ORDER_MOST], int rank);
/* MPI makes the reduction `call` on `comm`: a line says so if a program that asks for an order must know it;
 * one for each communicator, or kind of call and datatype. */
void shim_keeps_order(shim_call_t id, const char *call, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

/* types.c */
void shim_types_init(void);
void shim_types_end(void);
/* Whether another order of the operands may give another result. */
bool shim_depends_on_order(MPI_Datatype type, MPI_Op op);
/* The type and operation of Gyre with the same results. False: there are none. */
bool shim_reduction(MPI_Datatype type, MPI_Op op, gyre_type_t *gyre_type, gyre_redop_t *gyre_op);
/* An element as its bytes: plain: they lie in memory in the order of the signature, without gaps. */
typedef struct {
    bool plain;
    size_t size;
    MPI_Aint extent;
} shim_type_t;
void shim_type_of(MPI_Datatype type, shim_type_t *out);
/* Whether MPI takes elements of it: it is committed. */
bool shim_type_usable(MPI_Datatype type);
/* Copies `count` elements at `from` into size * count bytes, and back. MPI's error. */
int shim_pack(void *from, size_t count, MPI_Datatype type, size_t size, void *bytes);
int shim_unpack(void *bytes, size_t count, MPI_Datatype type, size_t size, void *to);

/* blocks.c */
/* The send or the receive buffer of a call that moves data: n blocks. Block i is the program's block
 * index[i], or i if index is NULL. The program's block i has counts[i] elements, or `count` if counts is
 * NULL. It begins displs[i] elements from `user`; displs NULL: the blocks lie back to back. types: those of
 * MPI_Alltoallw, whose displacements are in bytes; else NULL. */
typedef struct {
    void *user;
    int n;
    int count;
    const int *index;
    const int *counts;
    const int *displs;
    const MPI_Aint *places; /* displacements of MPI_Neighbor_alltoallw */
    MPI_Datatype type;
    const MPI_Datatype *types;
    /* Set by shim_open: what Gyre gets. Block i has bytes[i] bytes, offsets[i] from data. It is at[i] bytes
     * from `user`. */
    unsigned char *data;
    size_t *bytes;
    size_t *offsets;
    ptrdiff_t *at;
    size_t total;
    bool packed;
    bool kept; /* the datatypes are this library's own */
    void *memory;
    void *bounce;
    MPI_Datatype *own_types;
    size_t small[3];
    /* the memory of the program that the blocks lie in; equal: none */
    uintptr_t low;
    uintptr_t high;
} shim_side_t;

/* A collective that is taken, blocking or not. */
typedef struct shim_op {
    shim_call_t id;
    bool blocking;
    bool ordered; /* ends after what was called before it on its communicator */
    MPI_Comm comm;
    shim_comm_t *on;
    gyre_request_t *request;
    gyre_status_t status;
    bool sends; /* `send` is used, since this rank has something to send; and recv */
    bool recvs;
    /* Of reductions: the result is copied from `bounce` to `result` at the end. NULL: it is there. */
    void *result;
    void *bounce;
    size_t length; /* of the result in bytes */
    gyre_type_t type;
    bool logical; /* the operation */
    size_t bytes;
    double from;
    /* GYRE_MPI_CHECK: MPI's own call, and where the result of MPI begins. */
    MPI_Request other;
    unsigned char *shadow;
    size_t shadow_length;
    /* Of those that do not block. */
    MPI_Request handle;
    bool left; /* by MPI_Request_free */
    struct shim_op *next;
    /* Of calls that move data. Not initialized by shim_take. */
    shim_side_t send;
    shim_side_t recv;
} shim_op_t;

/* Finds what Gyre gets of the sides that are used, and packs data that is not plain. False: MPI reports what
 * is wrong. Each side has its flags: FILL: packed data holds what the program's buffer does, as for all that
 * is sent. ADJACENT: blocks that do not lie back to back are packed. PACK: all are. */
enum { SHIM_FILL = 1, SHIM_PACK = 2, SHIM_ADJACENT = 4 };
bool shim_open(shim_op_t *o, unsigned send_flags, unsigned recv_flags);
/* The program's buffer gets the result, or o->status the error. */
void shim_receive(shim_op_t *o);
/* Frees both sides. */
void shim_close(shim_op_t *o);
shim_side_t shim_flat(const void *user, int count, MPI_Datatype type);
shim_side_t shim_blocks(const void *user, int n, const int *counts, int count, const int *displs,
                        MPI_Datatype type);
/* Calls `each` with the bytes of each received block, in the program's buffer and in `shadow`, a copy of the
 * memory from recv->low, until `each` returns false; and fills such a copy. */
void shim_compare_blocks(shim_side_t *s, unsigned char *shadow,
                         bool (*each)(void *user, const void *mine, const void *other, size_t bytes),
                         void *user);
void shim_copy_blocks(shim_side_t *s, unsigned char *shadow);

/* requests.c */
/* The job has several hosts: what a collective has sent may lie in this process when it ends. */
void shim_requests_between_hosts(void);
/* Of the functions that make both forms of a call: the blocking one. */
extern MPI_Request shim_blocking;
#define BLOCKING (&shim_blocking)
/* The call goes to MPI. */
#define PASS(name, lower, ...) \
    (request == BLOCKING ? REAL(name)(__VA_ARGS__) : REAL(I##lower)(__VA_ARGS__, request))
/* The collective `id` on `comm` if it can be taken, in *own or, if it does not block, in memory of its own.
 * NULL: pass it on. root: 0 if it has none. count, type: of the vector, or of one block of it; only what the
 * call is worth depends on them. */
shim_op_t *shim_take(shim_op_t *own, shim_call_t id, int root, int count, MPI_Datatype type, MPI_Comm comm,
                     MPI_Request *request);
/* It is not taken after all. */
void shim_drop(shim_op_t *o, shim_why_t why);
/* Whether `buffer` is MPI_IN_PLACE on a rank other than the root: an error, which MPICH may not notice. */
bool shim_misplaced(shim_op_t *o, const void *buffer, int root);
/* Starts it in Gyre by `call`, whose last argument is &o->request, unless there was an error before. */
#define START(o, call)                \
    do {                              \
        if ((o)->status == GYRE_OK) { \
            shim_enter((o)->on);      \
            (o)->status = call;       \
            shim_exit((o)->on);       \
        }                             \
    } while (0)
void shim_enter(shim_comm_t *on);
void shim_exit(shim_comm_t *on);
/* Waits for it, or makes *request. What MPI returns. */
int shim_finish(shim_op_t *o, MPI_Request *request);
void shim_requests_init(void);
/* MPI_Finalize: requests that are open are reported and end. */
void shim_requests_end(int rank);
/* The thread that drives Gyre: not before all ranks have all that this one has sent. */
void shim_helper_end(void);

/* report.c */
extern bool shim_checking; /* GYRE_MPI_CHECK of rank 0 */
void shim_report_init(void);
void shim_passed_on(shim_call_t id, shim_why_t why);
/* GYRE_MPI_CHECK: where MPI's own call of `o` receives what the program receives at `user`, from which the
 * program's memory begins at `low` and has `length` bytes. user NULL: nothing, but MPI wants a buffer. */
void *shim_shadow(shim_op_t *o, const void *user, uintptr_t low, size_t length);
/* MPI's own call has returned rc. Other ranks would wait for one that has failed: the job ends. */
void shim_own_call(const shim_op_t *o, int rc);
/* Makes MPI's own call if results are compared: `call` receives at `shadow` and its request is &o->other. */
#define CHECK_REDUCED(o, user, length, call)                                \
    do {                                                                    \
        if (shim_checking) {                                                \
            void *shadow = shim_shadow(o, user, (uintptr_t)(user), length); \
            shim_own_call(o, call);                                         \
        }                                                                   \
    } while (0)
#define CHECK_MOVED(o, call)                                                                              \
    do {                                                                                                  \
        if (shim_checking) {                                                                              \
            void *shadow = shim_shadow(o, (o)->recv.user, (o)->recv.low, (o)->recv.high - (o)->recv.low); \
            shim_own_call(o, call);                                                                       \
        }                                                                                                 \
    } while (0)
void shim_begin(shim_op_t *o);
/* It has ended: counts it, and compares the results. */
void shim_end(shim_op_t *o);
void shim_report_print(int rank);
const char *shim_name(shim_call_t id);

/* Open MPI's Fortran calls the PMPI names. MPICH's calls the MPI names, and MPICH calls the others inside. */
#define SHIM_ALIAS(name) \
    extern __typeof__(MPI_##name) PMPI_##name __attribute__((alias("MPI_" #name), visibility("default")));
#ifdef OPEN_MPI
#define SHIM_FORTRAN(name, lower) SHIM_ALIAS(name) SHIM_ALIAS(I##lower)
#else
#define SHIM_FORTRAN(name, lower)
#endif

/* The two calls of the program that a function makes. parameters, arguments: in brackets. */
#define UNPACK(...) __VA_ARGS__
#define FORMS(name, lower, parameters, arguments)             \
    int MPI_##name(UNPACK parameters)                         \
    {                                                         \
        return lower(UNPACK arguments, BLOCKING);             \
    }                                                         \
    int MPI_I##lower(UNPACK parameters, MPI_Request *request) \
    {                                                         \
        return lower(UNPACK arguments, request);              \
    }                                                         \
    SHIM_FORTRAN(name, lower)
#define SEND  const void *send, int send_count, MPI_Datatype send_type
#define SENDS const void *send, const int *send_counts, const int *send_displs
#define RECV  void *recv, int recv_count, MPI_Datatype recv_type
#define RECVS void *recv, const int *recv_counts, const int *recv_displs

#endif
