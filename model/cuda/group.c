/* model/cuda/group.c: a stage's collectives by way of pinned host memory: copied there, which is waited for, done by the host's
 * collective, whose bits are the contract's, and copied back in the order of the stream. */
#ifdef GYRE_CUDA
#include <cuda_runtime.h>
#include <stdlib.h>

#include "base/error.h"
#include "model/cuda/group.h"

struct model_cuda_group {
    gyre_comm_t *comm;
    struct CUstream_st *stream;
    char *pinned;
    size_t bytes;
    cudaEvent_t back; /* the last result has left `pinned` */
};

static gyre_status_t failed(const model_cuda_group_t *g, cudaError_t rc, const char *what)
{
    return gyre_fail(GYRE_ERR_SYSTEM, "rank %d of a tensor-parallel group, %s: %s", gyre_comm_rank(g->comm),
                     what, cudaGetErrorString(rc));
}

gyre_status_t model_cuda_group_create(gyre_comm_t *comm, size_t bytes, struct CUstream_st *stream,
                                      model_cuda_group_t **out)
{
    model_cuda_group_t *g = calloc(1, sizeof *g);
    if (!g)
        return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory for a tensor-parallel group");
    *g = (model_cuda_group_t){.comm = comm, .stream = stream, .bytes = bytes};
    cudaError_t rc = cudaHostAlloc((void **)&g->pinned, bytes, cudaHostAllocDefault);
    if (rc == cudaSuccess)
        rc = cudaEventCreateWithFlags(&g->back, cudaEventDisableTiming);
    if (rc != cudaSuccess) {
        gyre_status_t status = failed(g, rc, "taking pinned memory");
        model_cuda_group_destroy(g);
        return status;
    }
    *out = g;
    return GYRE_OK;
}

void model_cuda_group_destroy(model_cuda_group_t *g)
{
    if (!g)
        return;
    if (g->pinned)
        cudaFreeHost(g->pinned);
    if (g->back)
        cudaEventDestroy(g->back);
    free(g);
}

/* `bytes` of x to `pinned`, complete; `all` are needed there in the end. */
static gyre_status_t bring(model_cuda_group_t *g, const void *x, size_t bytes, size_t all)
{
    if (all > g->bytes)
        return gyre_fail(GYRE_ERR_INTERNAL, "%zu bytes for a group that was made for %zu", all, g->bytes);
    cudaError_t rc = cudaEventSynchronize(g->back);
    if (rc == cudaSuccess)
        rc = cudaMemcpyAsync(g->pinned, x, bytes, cudaMemcpyDeviceToHost, g->stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(g->stream);
    return rc == cudaSuccess ? GYRE_OK : failed(g, rc, "copying from the device");
}

static gyre_status_t give_back(model_cuda_group_t *g, void *x, const void *from, size_t bytes)
{
    cudaError_t rc = cudaMemcpyAsync(x, from, bytes, cudaMemcpyHostToDevice, g->stream);
    if (rc == cudaSuccess)
        rc = cudaEventRecord(g->back, g->stream);
    return rc == cudaSuccess ? GYRE_OK : failed(g, rc, "copying to the device");
}

gyre_status_t model_cuda_all_reduce(model_cuda_group_t *g, void *x, size_t count, gyre_type_t type,
                                    gyre_redop_t op)
{
    size_t bytes = count * gyre_type_size(type);
    gyre_status_t status = bring(g, x, bytes, bytes);
    if (status == GYRE_OK)
        status = gyre_all_reduce(g->pinned, g->pinned, count, type, op, g->comm);
    return status == GYRE_OK ? give_back(g, x, g->pinned, bytes) : status;
}

gyre_status_t model_cuda_reduce_scatter(model_cuda_group_t *g, const void *send, void *recv, size_t count,
                                        gyre_type_t type, gyre_redop_t op)
{
    size_t bytes = count * gyre_type_size(type), all = bytes * (size_t)gyre_comm_size(g->comm);
    gyre_status_t status = bring(g, send, all, all + bytes);
    if (status == GYRE_OK)
        status = gyre_reduce_scatter(g->pinned, g->pinned + all, count, type, op, g->comm);
    return status == GYRE_OK ? give_back(g, recv, g->pinned + all, bytes) : status;
}

gyre_status_t model_cuda_all_gather(model_cuda_group_t *g, const void *send, void *recv, size_t count,
                                    gyre_type_t type)
{
    size_t bytes = count * gyre_type_size(type), all = bytes * (size_t)gyre_comm_size(g->comm);
    gyre_status_t status = bring(g, send, bytes, bytes + all);
    if (status == GYRE_OK)
        status = gyre_all_gather(g->pinned, g->pinned + bytes, count, type, g->comm);
    return status == GYRE_OK ? give_back(g, recv, g->pinned + bytes, all) : status;
}
#else
#include "model/cuda/group.h" /* a build without CUDA has nothing of it */
#endif
