/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/avx2.c: the kernels compiled for AVX2. */
#include "model/kernels/instances.h"

#if MODEL_HAVE_X86_TARGETS
#pragma GCC target("avx2,fma")
#define MODEL_TABLE model_table_f32_avx2
#include "model/kernels/instance.inc"
#endif
