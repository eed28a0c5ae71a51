/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/graphs.h: launches repeated work on a stream as CUDA graphs.
 *
 * A launch costs the host some microseconds; a graph of many kernels costs little more than one launch. A key
 * identifies work: everything that its launches depend on (pointers, shapes, scalars that are arguments of
 * kernels). 1. The first time, the work is enqueued kernel by kernel. That loads kernels, sets attributes and
 * makes workspaces. 2. The second time, it is captured. 3. From then on its graph is launched. What changes
 * from one time to the next and is not in the key lies in device memory. The bits are the same, since the
 * kernels are.
 *
 * The nodes of all graphs together are bounded, since each node costs memory. Graphs that were not used for a
 * long time make room. If there are none, new work is enqueued kernel by kernel for good: work that needs
 * more than the room does not evict itself in turns. A graph is captured anew for another key, never updated.
 * An update compares and sets all nodes, but several graphs of the same work, one per buffer, cost only their
 * memory.
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
    /* Enqueues kernels, copies and fills of device memory, and collectives that can be captured, on the
     * stream. May be called twice: its other effects are the same the second time, or in the note. */
    gyre_status_t (*enqueue)(void *user);
    void *user;
    /* [note_bytes], NULL if 0: the results of `enqueue` on the host; those of the capture if the graph is
     * launched */
    void *note;
    /* 1: other ranks do the same with this key, and `enqueue` makes calls that they count: a capture that
     * fails is an error. Otherwise the work is then enqueued kernel by kernel from there on, which is logged
     * once. */
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
/* Graphs that were launched still run to their end. NULL is allowed. */
void model_cuda_graphs_destroy(model_cuda_graphs_t *graphs);

/* Returns the first error of `enqueue`; SYSTEM of a launch, or of a capture with `together`. */
gyre_status_t model_cuda_graphs_run(model_cuda_graphs_t *graphs, const model_cuda_work_t *work);

void model_cuda_graphs_count(const model_cuda_graphs_t *graphs, model_cuda_graphs_count_t *out);

#endif
