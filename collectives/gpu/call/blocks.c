/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/blocks.c: how many blocks a collective's kernel has: GYRE_CUDA_BLOCKS, or as many as
 * keep the device's memory busy, by what the driver says of it. setup.c and team.c see to it that those of
 * all ranks of a device find room on it. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include "base/error.h"
#include "base/settings/settings.h"

enum {
    UNKNOWN = 24, /* what an H100 needs, more or less */
    LEAST = 4,
    DRAWS = 64 /* bytes that a multiprocessor reads of the L2 cache in a clock: of all GPUs since sm_70 */
};

/* 0: unknown. */
static int blocks_by(int memory_khz, int bus_bits, int clock_khz)
{
    if (memory_khz <= 0 || bus_bits <= 0 || clock_khz <= 0)
        return UNKNOWN;
    const int64_t rate = 2 * (int64_t)memory_khz * (bus_bits / 8), each = (int64_t)DRAWS * clock_khz,
                  blocks = (rate + each - 1) / each;
    return blocks < LEAST ? LEAST : blocks > COLL_CUDA_BLOCKS ? COLL_CUDA_BLOCKS : (int)blocks;
}

/* A fact of the device; 0: the driver does not know. */
static int ask(enum cudaDeviceAttr fact, int device)
{
    int value = 0;
    if (cudaDeviceGetAttribute(&value, fact, device) == cudaSuccess)
        return value;
    (void)cudaGetLastError();
    return 0;
}

gyre_status_t coll_cuda_wanted_blocks(int device, int *blocks)
{
    const long long setting = base_setting_int(SET_CUDA_BLOCKS);
    if (setting < 0 || setting > COLL_CUDA_BLOCKS)
        return gyre_fail(GYRE_ERR_INVALID, "GYRE_CUDA_BLOCKS=%lld is not in 0..%d", setting,
                         (int)COLL_CUDA_BLOCKS);
    *blocks = setting > 0 ? (int)setting
                          : blocks_by(ask(cudaDevAttrMemoryClockRate, device),
                                      ask(cudaDevAttrGlobalMemoryBusWidth, device),
                                      ask(cudaDevAttrClockRate, device));
    return GYRE_OK;
}

gyre_status_t coll_cuda_agree_on_blocks(coll_cuda_t *c)
{
    int mine = 0;
    gyre_status_t st = coll_cuda_agree(c, coll_cuda_wanted_blocks(c->device, &mine));
    const int64_t wanted = mine;
    int64_t least = 0;
    if (st == GYRE_OK)
        st = gyre_all_reduce(&wanted, &least, 1, GYRE_INT64, GYRE_OP(GYRE_MIN), c->comm);
    c->blocks = (int)least;
    return st;
}

gyre_status_t coll_cuda_ask_processors(int device, int *processors, int *held)
{
    cudaError_t rc = cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, device);
    if (rc == cudaSuccess)
        rc = coll_cuda_blocks_held(held);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "asking for the multiprocessors of device %d", device);
}

#endif
