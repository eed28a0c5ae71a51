/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/cuda.h: collectives on the memory of CUDA devices, in stream order.
 *
 * Each gyre_x_stream(..., stream) enqueues on `stream` what gyre_x does, and returns. Inputs are read when
 * the stream gets there; work that is enqueued later on the stream sees the results. The arguments are
 * those of gyre_x (gyre/collectives.h), with buffers in the memory of the communicator's device. Results
 * have the same bits as on the host (docs/contract.md). Arrays of counts and displacements are host memory
 * and may be changed or freed after the call.
 *
 * The ordinary calls accept device memory, too: gyre_all_reduce has finished when it returns, and a
 * request is done when the result is there. They do not wait for streams: work that fills the buffers must
 * have finished before (cudaStreamSynchronize). All buffers of a call are of one kind, host or device, on
 * all ranks. A rank that has nothing to send or receive still passes a pointer of that kind, or uses the
 * stream form.
 *
 * A communicator works on one device: the one current at gyre_comm_prepare_cuda, else that of the first
 * call's buffers (a barrier: the thread's current device). Its calls on device memory run in the order
 * in which they were made, on whatever streams. Different communicators do not wait for each other as long
 * as their blocks and hardware queues suffice (docs/gpu.md).
 *
 * Errors in arguments are returned at once, and nothing is enqueued. Later errors (a rank died, a deadline
 * passed, ranks disagree) kill the communicator: its operations on streams end without a result, no stream
 * waits forever, and gyre_comm_error returns the error. The deadline of an operation on a stream
 * (GYRE_TIMEOUT) starts when the device begins the operation.
 *
 * Between gyre_group_start and gyre_group_end, collectives on device memory are enqueued at once. Messages
 * are collected and start together when the group ends. Messages in both directions that are longer than
 * the room for messages under way must be in a group.
 *
 * A stream that is being captured into a CUDA graph may be passed, on all ranks or on none, after
 * gyre_comm_prepare_cuda, if the ranks reach each other's memory (docs/gpu.md); otherwise UNSUPPORTED.
 *
 * A build without CUDA, and a machine without a driver, return UNSUPPORTED. No header of CUDA is needed:
 * gyre_cuda_stream_t is the type of cudaStream_t and CUstream. */
#ifndef GYRE_CUDA_H
#define GYRE_CUDA_H

#include <gyre/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
typedef struct CUstream_st *gyre_cuda_stream_t;

/* Collective over `comm`. Maps flags and staging memory of the ranks into each other, on the thread's
 * current device. The first collective on device memory does the same. Call it before messages
 * (gyre_send_stream) that come before any collective, and before a capture. A second call does nothing. It
 * allocates memory, which may wait for the device: if operations of other communicators are under way,
 * prepare all communicators first. */
GYRE_API gyre_status_t gyre_comm_prepare_cuda(gyre_comm_t *comm);

/* Makes communicators for several devices of one process, without gyre_init. comms: [n], n in 1..64;
 * comms[r] is rank r and works on devices[r]. devices: [n], or NULL for 0, 1, ... round robin over the
 * devices that exist. A device may come several times; its ranks share it. Free each with
 * gyre_comm_destroy; the shared memory goes with the last.
 *
 * The ranks reach each other's device memory by plain pointers. All collectives on device memory work,
 * with the same bits as elsewhere:
 *  - on streams, by one thread for all ranks in any order (a launch does not block), or by a thread per
 *    rank;
 *  - in CUDA graphs;
 *  - as ordinary blocking calls, by a thread per rank, or by one thread between gyre_group_start and
 *    gyre_group_end.
 *
 * Messages go on streams (gyre_send_stream, gyre_recv_stream). UNSUPPORTED: buffers in host memory,
 * gyre_send, gyre_recv, gyre_neighbor_exchange, gyre_comm_split, gyre_comm_address. INVALID:
 * gyre_comm_shrink, gyre_comm_grow.
 *
 * Kernels of the ranks wait for each other. Therefore:
 *  - Each rank of a device needs a stream of its own, made with cudaStreamNonBlocking. The default stream
 *    and a stream that collectives of two ranks share are INVALID; captured calls and messages are not
 *    checked.
 *  - The streams need hardware queues of their own: set CUDA_DEVICE_MAX_CONNECTIONS=32 (default 8) before
 *    CUDA starts. A number below the ranks of a device is UNSUPPORTED.
 *  - Between the first and the last rank's call of an operation, the program does nothing that waits for
 *    a device: no cudaMalloc, cudaFree, cudaDeviceSynchronize, gyre_comm_destroy, and no first launch of
 *    a kernel unless CUDA_MODULE_LOADING=EAGER.
 *  - A stream takes about a thousand launches ahead. Most operations are one or two launches, those with
 *    copy engines up to some 200. One thread goes on to the next rank after a few long operations, or
 *    some hundred short ones.
 *
 * An operation that a rank never calls, or that cannot run for such a reason, ends after GYRE_TIMEOUT on
 * all ranks. A failure or gyre_comm_abort of one rank ends the operations of the others.
 *
 * Errors, after which there are no communicators: INVALID; UNSUPPORTED: no device, no peer access between
 * two devices, or too many ranks on one device for their kernels to run at once; NO_MEMORY. */
GYRE_API gyre_status_t gyre_cuda_comms_create(int n, const int *devices, gyre_comm_t **comms);

/* A registered buffer: peers read [buffer, buffer + bytes) directly. Then all_reduce (not scaled),
 * reduce_scatter, all_gather, broadcast and all_to_all (not in place, equal blocks) of more than
 * GYRE_CUDA_ONE_SHOT bytes do not copy it. Results have the same bits. */
typedef struct gyre_cuda_registration gyre_cuda_registration_t;
/* Collective over `comm`, in the same order on all ranks. Each rank passes its own memory from cudaMalloc
 * on the communicator's device, of any length. Later calls use registered memory on all ranks or on none,
 * at any place in it: both buffers of an all_reduce, the root's send and the others' recv of a broadcast,
 * else send. Ranks that disagree get MISMATCH. Not while this thread captures a stream. It may wait for
 * the device: nothing may be under way there that waits for a later call of a rank. A rank of
 * gyre_cuda_comms_create registers by itself, and every operation must have been called by all ranks
 * before.
 *
 * Free *registration with gyre_comm_deregister_cuda. Errors, with nothing changed: INVALID; UNSUPPORTED on
 * all ranks: the ranks do not map each other's memory (docs/gpu.md; logged once for a communicator), or the
 * memory cannot be shared; NO_MEMORY: more than 256 registrations at once. */
GYRE_API gyre_status_t gyre_comm_register_cuda(gyre_comm_t *comm, void *buffer, size_t bytes,
                                               gyre_cuda_registration_t **registration);
/* Collective, in the same order on all ranks; ranks of gyre_cuda_comms_create call it by themselves. INVALID
 * on all, with nothing changed: they give up different registrations. An allocator that frees in an order
 * of its own on each rank keeps its memory until all ranks come to give it up.
 * Waits for the communicator's operations. Graphs that use the buffer must have ended and must
 * not be launched again. After it returns no peer reads the memory, and it may be freed. The registration
 * is gone also after another error; after an error of the communicator a peer may still read the memory, and
 * only kernels of the program (gyre_comm_peers_cuda) write it. Memory still registered when a communicator is
 * destroyed must stay allocated until all ranks have destroyed it. */
GYRE_API gyre_status_t gyre_comm_deregister_cuda(gyre_comm_t *comm, gyre_cuda_registration_t *registration);

/* What kernels of the program need to reach the other ranks: passed to them by value, used with
 * gyre/device.cuh. Set by gyre_comm_peers_cuda.
 * Kernels are built with this layout, with that of the counters and with what signals and waits do with them
 * (gyre/device.cuh): all are fixed as long as the soname. */
enum {
    GYRE_PEERS_MOST = 64, /* ranks of a communicator */
    GYRE_PEERS_SLOTS = 32 /* signals and barriers that do not know of each other */
};
typedef struct {
    size_t bytes; /* of this rank's registered memory */
    int rank, n;
    void *memory[GYRE_PEERS_MOST]; /* [n]: the registered memory of each rank, in addresses of this one */
    uint32_t *counters[GYRE_PEERS_MOST]; /* [n]: those of each rank, for gyre/device.cuh only */
    uint32_t *over;                      /* set when the communicator has failed; of the device, */
    const uint32_t *abort;               /* and of the host */
} gyre_cuda_peers_t;
/* Not collective; after gyre_comm_register_cuda, and for a communicator of gyre_cuda_comms_create after all
 * ranks have registered. Not while this thread captures a stream; it may wait for the device. The pointers
 * are valid until the registration ends; all views of a communicator share the counters of its slots. The
 * caller makes sure that
 *  - kernels that use *peers have ended on all ranks before gyre_comm_deregister_cuda, gyre_comm_destroy or
 *    gyre_finalize: the library does not know of them;
 *  - those of all ranks can run at once. Ranks of one process have the duties of gyre_cuda_comms_create;
 *  - where such ranks register anew, all have done so before: a peer that still holds its previous
 *    registration passes the check, and *peers has that memory.
 *
 * GYRE_TIMEOUT does not end a wait in such a kernel. A failure of the communicator and gyre_comm_abort of any
 * rank do. Errors, with *peers unchanged: INVALID: peers is NULL, not a registration of `comm`, a rank that
 * has not registered; UNSUPPORTED: built without CUDA; SYSTEM or NO_MEMORY: the device or a copy from it
 * failed; the communicator's own error. */
GYRE_API gyre_status_t gyre_comm_peers_cuda(gyre_comm_t *comm, const gyre_cuda_registration_t *registration,
                                            gyre_cuda_peers_t *peers);

GYRE_API gyre_status_t gyre_all_reduce_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                              gyre_redop_t op, gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_reduce_scatter_stream(const void *send, void *recv, size_t count,
                                                  gyre_type_t type, gyre_redop_t op, gyre_comm_t *comm,
                                                  gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_reduce_scatterv_stream(const void *send, void *recv, const size_t *counts,
                                                   gyre_type_t type, gyre_redop_t op, gyre_comm_t *comm,
                                                   gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_all_gather_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                              gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_all_gatherv_stream(const void *send, void *recv, const size_t *counts,
                                               const size_t *displs, gyre_type_t type, gyre_comm_t *comm,
                                               gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_broadcast_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                             int root, gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_reduce_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                          gyre_redop_t op, int root, gyre_comm_t *comm,
                                          gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_gather_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                          int root, gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_gatherv_stream(const void *send, size_t send_count, void *recv,
                                           const size_t *counts, const size_t *displs, gyre_type_t type,
                                           int root, gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_scatter_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                           int root, gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_scatterv_stream(const void *send, const size_t *counts, const size_t *displs,
                                            void *recv, size_t recv_count, gyre_type_t type, int root,
                                            gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_all_to_all_stream(const void *send, void *recv, size_t count, gyre_type_t type,
                                              gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_all_to_allv_stream(const void *send, const size_t *send_counts,
                                               const size_t *send_displs, void *recv,
                                               const size_t *recv_counts, const size_t *recv_displs,
                                               gyre_type_t type, gyre_comm_t *comm,
                                               gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_barrier_stream(gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* Messages, matched in the order of the calls per peer and direction. A send ends on its stream when the
 * message was copied out of `buffer`, as long as there is room for the messages under way
 * (GYRE_CUDA_STAGING). Two ranks may then both send first and receive afterwards on one stream. Messages
 * and collectives of one communicator run in the order of the calls. gyre_recv_stream receives what
 * gyre_send_stream sends; gyre_recv does not. INVALID: peer is this rank itself. */
GYRE_API gyre_status_t gyre_send_stream(const void *buffer, size_t count, gyre_type_t type, int peer,
                                        gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_recv_stream(void *buffer, size_t count, gyre_type_t type, int peer,
                                        gyre_comm_t *comm, gyre_cuda_stream_t stream);

/* gyre_neighbor_exchange (gyre/collectives.h) on a stream: a group of those two calls. Blocks to the calling
 * rank are copied: the first of them is the first from it, and so on; INVALID if they differ in number or
 * counts. */
GYRE_API gyre_status_t gyre_neighbor_exchange_stream(const void *send, const size_t *send_counts,
                                                     const size_t *send_displs, int nto, const int *to,
                                                     void *recv, const size_t *recv_counts,
                                                     const size_t *recv_displs, int nfrom, const int *from,
                                                     gyre_type_t type, gyre_comm_t *comm,
                                                     gyre_cuda_stream_t stream);

#ifdef __cplusplus
}
#endif
#endif
