/* model/gpu/graphs.h: work on a stream that comes again and again, launched as CUDA graphs.
 *
 * A launch costs the host some microseconds, a graph of many kernels little more than one. Work is named by a key: everything that its
 * launches depend on (pointers, shapes, scalars that are arguments of kernels). The first time it is enqueued kernel by kernel, by
 * which kernels are loaded, attributes set and workspaces made; the second time it is captured, and from then on its graph is launched.
 * What changes from one time to the next without being part of the key lies in device memory. Bits are the same: the kernels are.
 *
 * Graphs are bounded by their nodes in all, since each node costs memory. Those that were not used for a long time make room; while there
 * are none, what comes new is enqueued kernel by kernel for good, so that more work than there is room for does not drive itself out
 * in turns. A graph is captured anew for another key, never updated: an update compares and sets all nodes, where several graphs of
 * the same work, one per buffer that it gets, cost nothing but their memory.
 *
 * One thread, one stream, which is not the legacy default stream. */
#ifndef MODEL_GPU_GRAPHS_H
#define MODEL_GPU_GRAPHS_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

struct CUstream_st; /* cudaStream_t is a pointer to it */

typedef struct model_cuda_graphs model_cuda_graphs_t;

typedef struct {
    const void *key; /* [key_bytes], padding included */
    /* Kernels, copies and fills of device memory, and collectives that can be captured, on the stream. May be called twice: what else it
     * changes is the same the second time, or in the note. */
    gyre_status_t (*enqueue)(void *user);
    void *user;
    void *
        note; /* [note_bytes], NULL if 0: what `enqueue` leaves on the host; from the capture where that is launched */
    /* 1: other ranks do the same with this key, and `enqueue` makes calls that they count: a capture that fails is an error. Else the
     * work is enqueued kernel by kernel from then on, which is told once. */
    int together;
} model_cuda_work_t;

typedef struct {
    uint64_t captured, launched, plain,
        dropped;  /* graphs made; launches of graphs; work without one; graphs that made room */
    size_t nodes; /* of all graphs that are held */
} model_cuda_graphs_count_t;

/* most: nodes in all. NO_MEMORY. */
gyre_status_t model_cuda_graphs_create(struct CUstream_st *stream, size_t key_bytes, size_t note_bytes,
                                       size_t most, model_cuda_graphs_t **out);
/* What was launched still runs to its end. NULL is allowed. */
void model_cuda_graphs_destroy(model_cuda_graphs_t *graphs);

/* The first error of `enqueue`; SYSTEM of a launch, or of a capture with `together`. */
gyre_status_t model_cuda_graphs_run(model_cuda_graphs_t *graphs, const model_cuda_work_t *work);

void model_cuda_graphs_count(const model_cuda_graphs_t *graphs, model_cuda_graphs_count_t *out);

#endif
