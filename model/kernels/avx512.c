/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/avx512.c: the kernels compiled for AVX-512. */
#include "model/kernels/instances.h"

#if MODEL_HAVE_X86_TARGETS
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")
#define MODEL_TABLE model_table_f32_avx512
#include "model/kernels/instance.inc"
#endif
