/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/gpu.h: collectives whose buffers lie in the memory of CUDA devices (include/gyre/cuda.h),
 * as the rest of collectives/ sees them. In a build without CUDA none.c answers. README.md lists the
 * files. */
#ifndef COLLECTIVES_GPU_GPU_H
#define COLLECTIVES_GPU_GPU_H

#include <stdatomic.h>

#include <gyre/cuda.h>

#include "base/device/device.h"
#include "collectives/run/call.h"
#include "collectives/run/communicator.h"

enum { COLL_CUDA_BUS = 24 }; /* bytes of a PCI address, as text */

/* 1 if `a` or `b` (may be NULL) lies in the memory of a CUDA device. */
static inline int coll_cuda_holds_any(const void *a, const void *b)
{
    if (atomic_load_explicit(&base_device_cuda_memory, memory_order_relaxed) < 0)
        return 0;
    return (a && base_device_of(a).kind == BASE_CUDA) || (b && base_device_of(b).kind == BASE_CUDA);
}
static inline int coll_cuda_holds(const void *buffer)
{
    return coll_cuda_holds_any(buffer, NULL);
}

gyre_status_t coll_cuda_start(const coll_call_t *call);
/* On a stream. kind: COLL_REQ_SEND or COLL_REQ_RECV. */
gyre_status_t coll_cuda_message(const char *name, coll_req_kind_t kind, void *buffer, size_t count,
                                gyre_type_t type, int peer, gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* A message to oneself: a copy on the stream, in order with the communicator's calls. */
gyre_status_t coll_cuda_copy(const char *name, const void *from, void *to, size_t count, gyre_type_t type,
                             gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* Whether operations of `comm` on streams can be captured into CUDA graphs, the same on all its ranks. *why:
 * the reason if not, or not freely. */
typedef enum {
    COLL_CUDA_CAPTURE_LATER, /* not known before its first operation */
    COLL_CUDA_CAPTURE_NEVER,
    COLL_CUDA_CAPTURE_WAITS, /* but its kernels then wait themselves, on a device that ranks share */
    COLL_CUDA_CAPTURE_FREELY
} coll_cuda_capture_t;
coll_cuda_capture_t coll_cuda_captures(const gyre_comm_t *comm, const char **why);
/* Called when a graph with captured operations of `comm` was launched on `stream`: other operations, and the
 * communicator's end, are ordered after it. */
gyre_status_t coll_cuda_replayed(gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* The CUDA device on which `rank` works, as its process counts, and its PCI address; -1 and "": on none so
 * far. The caller is driving. */
int coll_cuda_where(const gyre_comm_t *comm, int rank, char bus[COLL_CUDA_BUS]);

/* The communicator's options have changed: those that its calls on a device are made of get them, too. Staged
 * ones get the deadline alone: their thread works later, and ranks must not change algorithm or chunk at
 * different calls. Does nothing for one that has no part on a device. */
void coll_cuda_set(gyre_comm_t *comm);

/* Does nothing for a communicator that has no part on a device. See stop in collectives/run/device_ops.h. */
int coll_cuda_stop(gyre_comm_t *comm);
/* Waits for the work on streams, which the communicator's failure ends, and closes the peers' memory: nothing
 * of this rank reads or writes there any more. No operation follows. */
void coll_cuda_end(gyre_comm_t *comm);
/* Called with the communicator's end, when only its guard and its proxy can still find it; does coll_cuda_end
 * if that was not done. The caller is not driving. */
void coll_cuda_free(gyre_comm_t *comm);
/* all_ended: all ranks of the job have ended all their work on devices (coll_cuda_end): memory that was kept
 * for peers is freed. Else it stays until the process ends, as a peer may still write there. */
void coll_cuda_leave(int all_ended);
/* How a call on device memory would run, in words, for gyre-perf --explain: algorithm, path and why.
 * COLL_SENDRECV: the path of large messages. registered: its buffers are registered on all ranks. */
typedef struct {
    char algorithm[24], path[16], why[960];
    int blocks;
    uint32_t rounds;
} coll_cuda_explanation_t;
gyre_status_t coll_cuda_explain(gyre_comm_t *comm, const coll_shape_t *shape, int registered,
                                coll_cuda_explanation_t *out);

#endif
