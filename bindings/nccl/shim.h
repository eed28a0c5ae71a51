/* SPDX-License-Identifier: Apache-2.0 */
/* bindings/nccl/shim.h: what the files of libgyre-nccl share. */
#ifndef GYRE_NCCL_SHIM_H
#define GYRE_NCCL_SHIM_H

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

#include <stdatomic.h>

#include <gyre/gyre.h>

/* A function of NCCL's interface has a second name, for profilers that replace the first one. */
#define SHIM_API(name) extern __typeof__(name) p##name __attribute__((alias(#name), visibility("default")))

/* One rank's job of Gyre. ids.c says when it ends. */
typedef struct shim_job {
    gyre_comm_t *world;
    int several;        /* some process has several ranks of it */
    struct shim_id *of; /* the id that made it, with its other ranks in this process */
    struct shim_job *next;
} shim_job_t;

/* The ranks of one process that gyre_cuda_comms_create made together. */
enum { SHIM_TEAM = 64 /* at most, as Gyre's */ };
typedef struct {
    int n;
    atomic_int users;
} shim_team_t;

/* A sum whose inputs are multiplied first. */
typedef struct {
    int used;
    ncclDataType_t type;
    const void *device; /* where the factor is read at each call; NULL: it is `factor` */
    double factor;
} shim_scale_t;

struct ncclComm {
    atomic_uint magic; /* SHIM_MAGIC as long as it lives */
    gyre_comm_t *gyre;
    shim_job_t *job;   /* NULL: of a team */
    shim_team_t *team; /* NULL: of a job */
    int rank, size, device;
    int finalized;
    int revoked;     /* by a call of this rank */
    int blocking;    /* as its config says: a group has communicators of one kind */
    atomic_int busy; /* threads in calls of it; who frees it waits for them */
    size_t turns;    /* of the group that runs: its collectives counted so far */
    shim_scale_t *scales;
    int nscales;
    int registered;  /* windows that are registrations of Gyre */
    int warned_full; /* that further windows have no effect */
    ncclComm_t real; /* of the library of GYRE_NCCL_FALLBACK; NULL: none */
};
#define SHIM_MAGIC 0x6779726eu

typedef enum {
    SHIM_INIT,
    SHIM_SPLIT,
    SHIM_SHRINK,
    SHIM_ALL_REDUCE,
    SHIM_REDUCE,
    SHIM_REDUCE_SCATTER,
    SHIM_BROADCAST,
    SHIM_ALL_GATHER,
    SHIM_ALL_TO_ALL,
    SHIM_GATHER,
    SHIM_SCATTER,
    SHIM_SEND,
    SHIM_RECV
} shim_kind_t;

/* A call, as it waits for the end of its group. */
typedef struct shim_call {
    shim_kind_t kind;
    const char *name;
    ncclComm_t comm; /* NULL: SHIM_INIT */
    int done;
    size_t turn; /* collectives of its communicator before it, in this group */
    int lane;    /* of a call that makes a communicator of a job: the thread that does */
    /* what makes a communicator */
    ncclComm_t *out;
    int device, rank, nranks; /* SHIM_SHRINK: nranks of the new one */
    int blocking;             /* of the new one's config */
    int color, key;
    int *members; /* SHIM_SHRINK: [nranks], old ranks; freed with the call */
    int abort;
    ncclUniqueId id;
    /* what moves data */
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;     /* as the program gave it */
    gyre_redop_t redop; /* shim_op: what it stands for, */
    const void *factor; /* and where its factor is read when the stream gets there; NULL: it is in redop */
    int peer;           /* or root */
    cudaStream_t stream;
    /* the other end of a message of a rank to itself, which goes with this one and is `done` */
    const struct shim_call *other;
} shim_call_t;

/* errors.c. Both write the text of ncclGetLastError and return the result; shim_status does so for a status
 * of Gyre that is not OK, with Gyre's text. */
ncclResult_t shim_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
ncclResult_t shim_status(const char *name, gyre_status_t status);
ncclResult_t shim_cuda(const char *name, const char *call, cudaError_t error);
enum { SHIM_TEXT = 1024 };
/* Logs a warning, unless GYRE_LOG is none or error. */
void shim_warn(const char *text);
/* An error of another thread, which has been logged. */
ncclResult_t shim_repeat(ncclResult_t result, const char text[SHIM_TEXT]);
/* No memory for a communicator. */
ncclResult_t shim_no_memory(const char *name);
/* With NCCL_DEBUG set, one line in a process: the program has found this library. */
void shim_announce(void);
/* An error unless `comm` is a communicator that may be used. */
ncclResult_t shim_check(const char *name, ncclComm_t comm);

/* group.c. Runs the call, or keeps it for the end of the thread's group. */
ncclResult_t shim_submit(const shim_call_t *call);
/* Whether the thread's open group has a call on `comm`. */
int shim_queued(ncclComm_t comm);
/* A call of this thread was refused: if a group is open, nothing of the group will run. Returns result. */
ncclResult_t shim_refused(ncclResult_t result);

/* ids.c. Makes the job of call->rank of call->id; shim_leave gives it back, once for this call and for each
 * shim_hold. The last one for an id waits for the other ranks of the job; aborted: for half a second. */
ncclResult_t shim_join(const shim_call_t *call, shim_job_t **job);
void shim_hold(shim_job_t *job);
void shim_leave(shim_job_t *job, int aborted);

/* make.c. Makes the communicators of these calls, of all kinds that make some. */
ncclResult_t shim_make(shim_call_t *calls, size_t n);
/* Makes a team of n ranks, at most SHIM_TEAM, rank r on devices[r], into *out[r]. blocking: as the ranks'
 * configs say. */
ncclResult_t shim_make_team(const char *name, int n, const int *devices, int blocking,
                            ncclComm_t *const *out);
/* One of its communicators has ended. */
void shim_leave_team(shim_team_t *team);

/* collectives.c. Pairs a message to itself with one of `all`, [n], the group's calls. */
ncclResult_t shim_pair(shim_call_t *call, shim_call_t *all, size_t n);
/* Of a message to itself that is sent and received on two streams: before its group is enqueued the receive's
 * stream waits for the send's, and after that the send's for the message. */
ncclResult_t shim_meet(const shim_call_t *call, int enqueued);
/* Enqueues one call, after all of its group were paired. */
ncclResult_t shim_enqueue(const shim_call_t *call);
gyre_type_t shim_type(ncclDataType_t type);

/* scale.c. shim_op finds out at the call what its operation stands for, since the program may destroy the
 * operation before the group ends. shim_factor reads a factor that is in device memory, before
 * anything of the group is enqueued. */
ncclResult_t shim_op(shim_call_t *call);
ncclResult_t shim_factor(shim_call_t *call);

/* memory.c. Between these two the thread may make and free memory and communicators while streams are
 * captured, by any thread in any mode. */
typedef struct {
    int relaxed;
    enum cudaStreamCaptureMode mode; /* of the thread before */
} shim_relaxed_t;
shim_relaxed_t shim_relax(void);
void shim_relax_end(shim_relaxed_t *relaxed);
/* Windows of Gyre. */
ncclResult_t shim_window_register(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                  int flags);
ncclResult_t shim_window_deregister(ncclComm_t comm, ncclWindow_t window);
ncclResult_t shim_window_buffer(ncclComm_t comm, ncclWindow_t window, void **buffer);

/* fallback.c. Makes the other library's communicator for these n, which are all ranks of one communicator in
 * this process; nothing without GYRE_NCCL_FALLBACK. */
ncclResult_t shim_fallback_open(ncclComm_t *comms, int n);
/* Once. Ends the other library's communicator; aborted: also its calls that other threads are in. */
void shim_fallback_close(ncclComm_t comm, int aborted);

#endif
