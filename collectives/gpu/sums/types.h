/* collectives/gpu/sums/types.h: the element types that device code has kernels for, a row for each.
 * Reductions have theirs in base/redops.def.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Switches are made of these rows and have no default: a type or reduction without a row is a warning
 * (-Wswitch), and for any other value the host launches nothing (launch.c). */
#ifndef COLLECTIVES_GPU_SUMS_TYPES_H
#define COLLECTIVES_GPU_SUMS_TYPES_H

#include <gyre/types.h>

/* X(TYPE, NAME): NAME is that of coll_NAME in arithmetic.h and of sum_NAME.cu. Signed and unsigned
 * integers share kernels. */
#define COLL_CUDA_TYPES(X) \
    X(GYRE_INT8, u8)       \
    X(GYRE_UINT8, u8)      \
    X(GYRE_INT16, u16)     \
    X(GYRE_UINT16, u16)    \
    X(GYRE_INT32, u32)     \
    X(GYRE_UINT32, u32)    \
    X(GYRE_INT64, u64)     \
    X(GYRE_UINT64, u64)    \
    X(GYRE_FLOAT16, f16)   \
    X(GYRE_BFLOAT16, bf16) \
    X(GYRE_FLOAT32, f32)   \
    X(GYRE_FLOAT64, f64)

/* X(TYPE): those that only move on devices. Their reductions are staged through the host or refused. */
#define COLL_CUDA_HOST_TYPES(X) \
    X(GYRE_BOOL)                \
    X(GYRE_COMPLEX64)           \
    X(GYRE_COMPLEX128)          \
    X(GYRE_FLOAT8_E4M3)         \
    X(GYRE_FLOAT8_E5M2)         \
    X(GYRE_FLOAT32_INT32)       \
    X(GYRE_FLOAT64_INT32)       \
    X(GYRE_INT32_INT32)         \
    X(GYRE_INT64_INT32)         \
    X(GYRE_INT16_INT32)

#endif
