/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/instances.h: the instances of the kernels, one table per instruction set (private to model/).
 *
 * GCC compiles a file's functions for another target after a pragma; other compilers and processors build the
 * base instance only. */
#ifndef MODEL_KERNELS_INSTANCES_H
#define MODEL_KERNELS_INSTANCES_H

#include <math.h>
#include <string.h>

#include "model/kernels/kernels.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MODEL_HAVE_X86_TARGETS 1
#include <immintrin.h> /* before a pragma names a target */
#else
#define MODEL_HAVE_X86_TARGETS 0
#endif

extern const model_kernels_t_f32 model_table_f32_base;
#if MODEL_HAVE_X86_TARGETS
extern const model_kernels_t_f32 model_table_f32_avx2, model_table_f32_avx512;
#endif

#endif
