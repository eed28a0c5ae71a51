/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/ranks/mp_gpu.h: what programs of several ranks on devices begin with. */
#ifndef TESTS_GPU_MP_GPU_H
#define TESTS_GPU_MP_GPU_H

#include "tests/gpu/gpu.h"
#include "tests/support/mp.h"

#define CUDA(call)                                                                          \
    do {                                                                                    \
        cudaError_t mp_error_ = (call);                                                     \
        MP_CHECK(mp_error_ == cudaSuccess, "%s: %s", #call, cudaGetErrorString(mp_error_)); \
    } while (0)

#endif
