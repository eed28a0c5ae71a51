/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/shots/over.h: how a thread of a kernel that waits for a peer learns that it waits in vain;
 * for .cu files. */
#ifndef COLLECTIVES_GPU_SHOTS_OVER_H
#define COLLECTIVES_GPU_SHOTS_OVER_H

#include "base/device/kernel.h"

enum {
    LOOKS_PER_ABORT = 64,
#ifdef GYRE_EMULATED
    LOOKS_PER_HOST = 1 << 30, /* so that tests depend on the copy */
#else
    LOOKS_PER_HOST = 1 << 12,
#endif
    LOOKS_BEFORE_LATE = 1 << 10
};

/* What a thread that waits asks after each look in vain; 1: the operation is over. The word that says so lies
 * in this device's memory, where the host copies it (coll_cuda_release). The host's own word, where a look
 * goes over PCIe and takes a microsecond, is for a device whose copies do not come through: some
 * milliseconds later, by an estimate. The kernels after this one, which look at the device's word only, must
 * not begin then: what they would send on was never made. */
static __device__ __forceinline__ int is_over(uint32_t *over, const uint32_t *abort, uint32_t looks)
{
    if (looks % LOOKS_PER_ABORT != 0)
        return 0;
    if (looks % LOOKS_PER_HOST == 0 && *(const volatile uint32_t *)abort != 0)
        *(volatile uint32_t *)over = 1;
    return *(const volatile uint32_t *)over != 0;
}

#endif
