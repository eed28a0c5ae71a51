/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpu/stage/runtime.h: internal.h for the files that call CUDA's runtime. */
#ifndef MODEL_GPU_STAGE_RUNTIME_H
#define MODEL_GPU_STAGE_RUNTIME_H

#include <cuda_runtime.h>

#include "model/gpu/stage/internal.h"

/* Checks a call of the runtime; `what`: the call's purpose, for the error. steps.c */
void stage_call(stage_t *s, cudaError_t rc, const char *what);

#endif
