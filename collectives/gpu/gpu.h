/* collectives/gpu/gpu.h: collectives whose buffers lie in the memory of CUDA devices (include/gyre/cuda.h), as the
 * rest of collectives/ sees them. In a build without CUDA none.c answers. README.md lists the files. */
#ifndef COLLECTIVES_GPU_GPU_H
#define COLLECTIVES_GPU_GPU_H

#include <gyre/cuda.h>

#include "base/device/device.h"
#include "collectives/run/communicator.h"

/* A call with its arguments checked. Extents in elements; 0: this rank does not use that buffer. */
typedef struct {
    const char *name;
    gyre_comm_t *comm;
    coll_shape_t shape;
    const void *send;
    void *recv;
    size_t send_count, recv_count;
    size_t shown; /* the count as the caller gave it */
    double scale;
    gyre_request_t **request; /* NULL: blocking, or streamed */
    coll_finished_fn finished;
    void *user;
    gyre_cuda_stream_t stream;
    int streamed; /* gyre_x_stream: on `stream` */
} coll_call_t;

/* 1 if `buffer` (may be NULL) lies in the memory of a CUDA device. */
static inline int coll_cuda_holds(const void *buffer)
{
    return buffer && base_device_of(buffer).kind == BASE_CUDA;
}

gyre_status_t coll_cuda_start(const coll_call_t *call);
/* On a stream. kind: COLL_REQ_SEND or COLL_REQ_RECV. */
gyre_status_t coll_cuda_message(const char *name, coll_req_kind_t kind, void *buffer, size_t count,
                                gyre_type_t type, int peer, gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* Whether operations of `comm` on streams can be captured into CUDA graphs, the same on all its ranks. *why: where not, or not freely. */
typedef enum {
    COLL_CUDA_CAPTURE_LATER, /* not known before its first operation */
    COLL_CUDA_CAPTURE_NEVER,
    COLL_CUDA_CAPTURE_WAITS, /* but its kernels then wait themselves, on a device that ranks share */
    COLL_CUDA_CAPTURE_FREELY
} coll_cuda_capture_t;
coll_cuda_capture_t coll_cuda_captures(const gyre_comm_t *comm, const char **why);
/* A graph with captured operations of `comm` was launched on `stream`: other operations, and the communicator's end, come behind it. */
gyre_status_t coll_cuda_replayed(gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* Messages on device memory of a group are enqueued together when it ends, before its requests are waited for; error: the group's
 * so far, with which nothing of it is enqueued. */
gyre_status_t coll_cuda_group_end(gyre_status_t error);

/* The communicator has failed: what is on streams ends soon, without a result, and nothing of it touches the program's
 * buffers any more when this returns. Does nothing for a communicator that has no part on a device. The caller is driving. */
void coll_cuda_stop(gyre_comm_t *comm);
/* Waits for what is on streams, which the communicator's failure ends, and lets go of the peers' memory: nothing of this rank reads
 * or writes there any more. No operation follows. */
void coll_cuda_end(gyre_comm_t *comm);
/* With the communicator, when nobody but its guard and its proxy can find it any more; does coll_cuda_end if that was not done. The
 * caller is not driving. */
void coll_cuda_free(gyre_comm_t *comm);
/* all_ended: all ranks of the job have ended all that they did on devices (coll_cuda_end): memory that was kept for peers' sake
 * goes. Else it stays until the process ends, as somebody may still write there. */
void coll_cuda_leave(int all_ended);
/* Requests whose operations have ended are finished; > 0: some were. The caller is driving. */
int coll_cuda_advance(gyre_comm_t *comm);

/* The rank that an operation on the device has been waiting for; -1: none that is known. */
int coll_cuda_late(const gyre_comm_t *comm);

/* How a call on device memory would run, in words, for gyre-perf --explain: algorithm, path and why. COLL_SENDRECV: how
 * large messages go. registered: its buffers are registered on all ranks. */
typedef struct {
    char algorithm[24], path[16], why[960];
    int blocks;
    uint32_t rounds;
} coll_cuda_explanation_t;
gyre_status_t coll_cuda_explain(gyre_comm_t *comm, const coll_shape_t *shape, int registered,
                                coll_cuda_explanation_t *out);

#endif
