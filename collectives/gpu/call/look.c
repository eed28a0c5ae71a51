/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/look.c: looks at a communicator's streams by any thread that waits, whatever its
 * device is, and whatever streams the program captures meanwhile: in the mode of most threads CUDA refuses a
 * look while a stream is captured in global mode, and breaks the capture. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

coll_cuda_look_t coll_cuda_begin_look(const coll_cuda_t *c)
{
    coll_cuda_look_t look = {.mode = cudaStreamCaptureModeRelaxed};
    int now = c->device;
    if (cudaGetDevice(&now) == cudaSuccess && now != c->device)
        look.entered = coll_cuda_enter(c, &look.before) == GYRE_OK;
    look.relaxed = cudaThreadExchangeStreamCaptureMode(&look.mode) == cudaSuccess;
    return look;
}

void coll_cuda_end_look(const coll_cuda_t *c, coll_cuda_look_t *look)
{
    if (look->relaxed)
        (void)cudaThreadExchangeStreamCaptureMode(&look->mode);
    if (look->entered)
        coll_cuda_exit(c, look->before);
}

cudaError_t coll_cuda_query(const coll_cuda_t *c, cudaEvent_t event)
{
    coll_cuda_look_t look = coll_cuda_begin_look(c);
    const cudaError_t rc = cudaEventQuery(event);
    if (rc == cudaErrorNotReady)
        (void)cudaGetLastError();
    coll_cuda_end_look(c, &look);
    return rc;
}

#endif
