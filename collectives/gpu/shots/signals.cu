/* collectives/gpu/shots/signals.cu: kernels of a few threads that write or await one word: of a peer that
 * this rank is done with, or of a thread of the host.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/device/kernel.h"
#include "collectives/gpu/shots/peers.h"

static __global__ void goodbye_kernel(const __grid_constant__ coll_cuda_op_t op)
{
    for (int peer = (int)threadIdx.x; peer < op.n; peer += (int)blockDim.x)
        if (peer != op.rank)
            gyre_store_release(&((coll_cuda_head_t *)op.arena[peer])->goodbye[op.rank], 1);
}

/* One thread each: the stream's word to a thread of the host, and the other way round. */
static __global__ void post_kernel(uint32_t *word, uint32_t value)
{
    gyre_store_release(word, value);
}

static __global__ void await_kernel(const uint32_t *word, uint32_t value, const uint32_t *abort)
{
    while ((int32_t)(gyre_load_acquire(word) - value) < 0 && gyre_load_acquire(abort) == 0)
        GYRE_SPIN();
}

extern "C" cudaError_t coll_cuda_load_signals(void)
{
    cudaError_t rc = gyre_load(goodbye_kernel);
    if (rc == cudaSuccess)
        rc = gyre_load(post_kernel);
    return rc == cudaSuccess ? gyre_load(await_kernel) : rc;
}

extern "C" cudaError_t coll_cuda_launch_goodbye(const coll_cuda_op_t *op, cudaStream_t stream)
{
    return GYRE_LAUNCH(goodbye_kernel, dim3(1), dim3(32), 0, stream, *op);
}

extern "C" cudaError_t coll_cuda_launch_post(uint32_t *word, uint32_t value, cudaStream_t stream)
{
    return GYRE_LAUNCH(post_kernel, dim3(1), dim3(1), 0, stream, word, value);
}

extern "C" cudaError_t coll_cuda_launch_await(const uint32_t *word, uint32_t value, const uint32_t *abort,
                                              cudaStream_t stream)
{
    return GYRE_LAUNCH(await_kernel, dim3(1), dim3(1), 0, stream, word, value, abort);
}
