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

/* The job that an id made. It ends with the last communicator that was made of it. */
typedef struct {
    gyre_comm_t *world;
    atomic_int users;
} shim_job_t;

/* The ranks of one process that gyre_cuda_comms_create made together. */
typedef struct {
    int n;
    atomic_int users;
    int devices[64];
} shim_team_t;

/* A sum whose inputs are multiplied first. */
typedef struct {
    int used;
    ncclDataType_t type;
    const void *device; /* where the factor is read at each call; NULL: it is `factor` */
    double factor;
} shim_scale_t;

struct ncclComm {
    unsigned magic; /* SHIM_MAGIC as long as it lives */
    gyre_comm_t *gyre;
    shim_job_t *job;   /* NULL: of a team */
    shim_team_t *team; /* NULL: of a job */
    int rank, size, device;
    int finalized;
    atomic_int busy; /* threads in calls of it; who frees it waits for them */
    size_t turns;    /* of run_calls: its calls counted so far */
    shim_scale_t *scales;
    int nscales;
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
typedef struct {
    shim_kind_t kind;
    const char *name;
    ncclComm_t comm; /* NULL: SHIM_INIT */
    int done;
    size_t turn; /* calls of its communicator before it, in this group */
    /* what makes a communicator */
    ncclComm_t *out;
    int device, rank, nranks; /* SHIM_SHRINK: nranks of the new one */
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
} shim_call_t;

/* errors.c. Both write the text of ncclGetLastError and return the result; shim_status does so for a status
 * of Gyre that is not OK, with Gyre's text. shim_result is the mapping alone. */
ncclResult_t shim_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));
ncclResult_t shim_status(const char *name, gyre_status_t status);
ncclResult_t shim_cuda(const char *name, const char *call, cudaError_t error);
ncclResult_t shim_result(gyre_status_t status);
/* No memory for a communicator. */
ncclResult_t shim_no_memory(const char *name);
/* An error unless `comm` is a communicator that may be used. */
ncclResult_t shim_check(const char *name, ncclComm_t comm);

/* group.c. Runs the call, or keeps it for the end of the thread's group. */
ncclResult_t shim_submit(const shim_call_t *call);
/* Whether the thread's open group has a call on `comm`. */
int shim_queued(ncclComm_t comm);
/* A call of this thread was refused: if a group is open, nothing of the group will run. Returns result. */
ncclResult_t shim_refused(ncclResult_t result);

/* ids.c. *world: the job of the ranks that have call->id. */
ncclResult_t shim_create_by_id(const shim_call_t *call, gyre_comm_t **world);

/* comms.c. Makes the communicators of these calls, of all kinds that make some. */
ncclResult_t shim_make(shim_call_t *calls, size_t n);
/* Nothing of `comm` runs in another thread any more. */
void shim_quiet(ncclComm_t comm);

/* collectives.c. Enqueues one call. */
ncclResult_t shim_enqueue(shim_call_t *call, shim_call_t *all, size_t n);
gyre_type_t shim_type(ncclDataType_t type);

/* scale.c. shim_op finds out at the call what its operation stands for, since the program may destroy the
 * operation before the group ends. shim_factor reads a factor that is in device memory. */
ncclResult_t shim_op(shim_call_t *call);
ncclResult_t shim_factor(shim_call_t *call);

/* memory.c. Windows of Gyre. */
ncclResult_t shim_window_register(ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window,
                                  int flags);
ncclResult_t shim_window_deregister(ncclComm_t comm, ncclWindow_t window);

/* fallback.c. Makes the other library's communicator for these n, which are all ranks of one communicator in
 * this process; nothing without GYRE_NCCL_FALLBACK. */
ncclResult_t shim_fallback_open(ncclComm_t *comms, int n);
void shim_fallback_close(ncclComm_t comm, int aborted);

#endif
