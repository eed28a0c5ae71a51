/* SPDX-License-Identifier: Apache-2.0 */
/* gyre/types.h: element types and reductions. */
#ifndef GYRE_TYPES_H
#define GYRE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <gyre/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    GYRE_INT8 = 0,
    GYRE_UINT8 = 1,
    GYRE_INT16 = 2,
    GYRE_UINT16 = 3,
    GYRE_INT32 = 4,
    GYRE_UINT32 = 5,
    GYRE_INT64 = 6,
    GYRE_UINT64 = 7,
    GYRE_FLOAT16 = 8,  /* IEEE binary16 */
    GYRE_BFLOAT16 = 9, /* the upper half of a binary32 */
    GYRE_FLOAT32 = 10,
    GYRE_FLOAT64 = 11
} gyre_type_t;
#define GYRE_TYPE_COUNT 12

/* Integer sums and products wrap. 16-bit floats are combined in fp32 and rounded (to nearest even) once per
 * combination. min and max propagate NaN and order -0 before +0. avg is the sum divided by n (integers:
 * truncated towards zero). */
typedef enum { GYRE_SUM = 0, GYRE_PROD = 1, GYRE_MIN = 2, GYRE_MAX = 3, GYRE_AVG = 4 } gyre_redop_kind_t;
#define GYRE_REDOP_COUNT 5

/* A reduction: a kind, and for scaled sums a factor that multiplies this rank's input before it is added.
 * The ranks' factors may differ. Make one with the macros below. */
typedef struct {
    gyre_redop_kind_t kind;
    int scaled;   /* 0: `scale` is ignored. 1: GYRE_SUM only. */
    double scale; /* converted to the type's compute type: fp32 for 16-bit floats; integers: truncated */
} gyre_redop_t;

#ifdef __cplusplus
#define GYRE_OP(kind)           (gyre_redop_t{(kind), 0, 1.0})
#define GYRE_SCALED_SUM(factor) (gyre_redop_t{GYRE_SUM, 1, (factor)})
#else
#define GYRE_OP(kind)           ((gyre_redop_t){(kind), 0, 1.0})
#define GYRE_SCALED_SUM(factor) ((gyre_redop_t){GYRE_SUM, 1, (factor)})
#endif

/* Bytes of one element; 0 for an unknown type. */
GYRE_API size_t gyre_type_size(gyre_type_t type);
/* The names of nccl-tests: int8 uint8 ... half bfloat16 float double; sum prod min max avg. "unknown" for
 * any other value. Static storage. */
GYRE_API const char *gyre_type_name(gyre_type_t type);
GYRE_API const char *gyre_redop_name(gyre_redop_kind_t kind);

#ifdef __cplusplus
}
#endif
#endif
