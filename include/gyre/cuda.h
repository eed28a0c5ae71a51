/* gyre/cuda.h: collectives on the memory of CUDA devices, in stream order.
 *
 * Each gyre_x_stream(..., stream) enqueues on `stream` what gyre_x does, and returns: inputs are read when the
 * stream gets there, and what comes behind it on the stream sees the results. The arguments are those of gyre_x
 * (gyre/collectives.h), with buffers in the memory of the communicator's device; results have the same bits as on
 * the host (docs/contract.md). Arrays of counts and displacements are host memory, and free again after the call.
 *
 * The ordinary calls accept device memory, too: gyre_all_reduce(device pointers) has finished when it returns, and
 * gyre_iall_reduce's request is done when the result is there. Like any blocking call they take the buffers as they
 * are: what fills them on a stream must have finished (cudaStreamSynchronize) before. All buffers of a call are of
 * one kind, host or device, on all ranks; whoever has nothing to give or get still passes a pointer of that kind, or
 * uses the stream form, which always works on the device.
 *
 * A communicator works on one device: that of its first call's stream form or buffers (the thread's current device for
 * a barrier), or the one current at gyre_comm_prepare_cuda. Its calls on device memory are executed in the order in
 * which they were made, on whatever streams. Different communicators do not wait for each other as long as their blocks
 * and hardware queues suffice (docs/gpu.md).
 *
 * Errors of arguments are returned at once, and nothing is enqueued. What goes wrong later (a rank died, a deadline
 * passed, ranks disagree) kills the communicator: its operations on streams end without a result, so that no stream
 * waits for ever, and gyre_comm_error tells. The deadline of an operation on a stream (GYRE_TIMEOUT) counts from when
 * the device has begun it.
 *
 * Between gyre_group_start and gyre_group_end collectives on device memory are not collected: they are enqueued at once. Messages
 * are, and go together when the group ends, as sends and receives in both directions that are longer than the room for messages on
 * their way must. A stream that
 * is being captured into a CUDA graph may be passed, on all ranks or on none, once the communicator is prepared and where its ranks
 * reach each other's memory (docs/gpu.md); otherwise the call is refused: UNSUPPORTED.
 *
 * A build without CUDA, and a machine without a driver, answer UNSUPPORTED. No header of CUDA is needed:
 * cudaStream_t and CUstream are the pointers that gyre_cuda_stream_t names. */
#ifndef GYRE_CUDA_H
#define GYRE_CUDA_H

#include <gyre/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
typedef struct CUstream_st *gyre_cuda_stream_t;

/* Collective over `comm`: maps flags and staging memory of its ranks into each other, on this thread's current device.
 * The first collective on device memory does it by itself; to be called before messages (gyre_send_stream) that come
 * before any collective, and before a capture. Does nothing the second time. It takes memory, which may wait for the device: where
 * operations of other communicators are under way, prepare them all first. */
GYRE_API gyre_status_t gyre_comm_prepare_cuda(gyre_comm_t *comm);

/* Communicators for several devices of one process, which need no gyre_init: comms: [n], comms[r] is rank r of n (1..64) and works on
 * devices[r]; devices: [n], a device may come several times, and its ranks share it then; NULL: 0, 1, ... as many as there are,
 * again and again. All are destroyed with gyre_comm_destroy; the memory that they share goes with the last.
 *
 * Their ranks reach each other's device memory by plain pointers. They have all collectives on it, with the same bits as anywhere else: on
 * streams, by one thread for all ranks, in any order (a launch waits for nobody), or by a thread per rank; in CUDA graphs; and as
 * ordinary calls with device pointers, which block: by a thread per rank, or by one thread between gyre_group_start and
 * gyre_group_end. Messages go on streams (gyre_send_stream, gyre_recv_stream). UNSUPPORTED: buffers in host memory, gyre_send and
 * gyre_recv, gyre_comm_split and what else takes a job.
 *
 * Kernels of the ranks wait for each other. So all ranks of a device need streams of their own (cudaStreamNonBlocking; the
 * default stream and one that collectives of two ranks share are refused, INVALID; captured calls and messages are not looked
 * at), in queues of their own (set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts: 8 is its default), and between the first rank's and the last rank's call of an operation the program does
 * nothing that waits for a device: no cudaMalloc, cudaFree, cudaDeviceSynchronize, gyre_comm_destroy, and no first launch
 * of a kernel unless CUDA_MODULE_LOADING=EAGER. A stream takes about a thousand launches ahead, and an operation
 * is up to some 200 of them (rounds by copy engines; most are one or two): one thread goes on to the next rank after a few long
 * operations, or some hundred short ones. An operation that some rank never calls, or that cannot run for such a reason,
 * ends after GYRE_TIMEOUT on all of them; a failure or gyre_comm_abort on one rank ends the others'.
 *
 * Errors: INVALID; UNSUPPORTED: no device, no peer access between two of them, or too many ranks on one for their kernels to run
 * at once; NO_MEMORY. Then there are no communicators. */
GYRE_API gyre_status_t gyre_cuda_comms_create(int n, const int *devices, gyre_comm_t **comms);

/* Registered buffers: peers read [buffer, + bytes) where it lies, and all_reduce (not scaled), reduce_scatter, all_gather, broadcast
 * and all_to_all (not in place, equal blocks) of more than GYRE_CUDA_ONE_SHOT bytes make no copies of it; results have the same bits.
 *
 * Collective over `comm`, in the same order on all ranks; each passes its own memory of the communicator's device, from cudaMalloc, of
 * any length. What a call passes must then lie in registered memory, the same or another, at the same place or another, on
 * all ranks or on none: of an all_reduce both buffers, of a broadcast the root's send and the others' recv, else send. Ranks that
 * disagree are told so: MISMATCH. May be called at any time but while this thread captures a stream; it may
 * wait for the device, so nothing may be under way there that waits for what a rank calls only after this.
 * Ranks of gyre_cuda_comms_create register each for itself, and at once; no operation may lack some ranks' calls then.
 * UNSUPPORTED on all ranks, and nothing is changed: ranks that do not map each other's memory (docs/gpu.md), or memory that
 * cannot be shared. NO_MEMORY: more than 256 at once. */
typedef struct gyre_cuda_registration gyre_cuda_registration_t;
GYRE_API gyre_status_t gyre_comm_register_cuda(gyre_comm_t *comm, void *buffer, size_t bytes,
                                               gyre_cuda_registration_t **registration);
/* Collective. Waits for the communicator's operations; graphs that use the buffer must have ended, and are not launched again. When it
 * has returned, no peer reads there, and the memory may be freed. The registration is gone whatever is returned; after an error of
 * the communicator a peer may still read, and never writes. What is still registered when a communicator is destroyed
 * must stay until all ranks have done that. */
GYRE_API gyre_status_t gyre_comm_deregister_cuda(gyre_comm_t *comm, gyre_cuda_registration_t *registration);

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

/* Messages, matched in the order of their calls per peer and direction. A send is over for its stream once the message
 * was copied out of `buffer`, as long as there is room for what was sent before (GYRE_CUDA_STAGING): then two ranks may
 * both send first and receive afterwards on one stream. Calls on one communicator run in the order in which they were
 * made, messages and collectives alike. What one of these sends, gyre_recv_stream receives, not gyre_recv. Not to oneself: INVALID. */
GYRE_API gyre_status_t gyre_send_stream(const void *buffer, size_t count, gyre_type_t type, int peer,
                                        gyre_comm_t *comm, gyre_cuda_stream_t stream);
GYRE_API gyre_status_t gyre_recv_stream(void *buffer, size_t count, gyre_type_t type, int peer,
                                        gyre_comm_t *comm, gyre_cuda_stream_t stream);

#ifdef __cplusplus
}
#endif
#endif
