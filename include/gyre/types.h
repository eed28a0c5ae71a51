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
    GYRE_FLOAT64 = 11,
    GYRE_BOOL = 12,        /* one byte, 0 or 1 */
    GYRE_COMPLEX64 = 13,   /* real and imaginary part, fp32 each */
    GYRE_COMPLEX128 = 14,  /* the same in fp64 */
    GYRE_FLOAT8_E4M3 = 15, /* OCP FP8: no infinities; the largest number is 448 */
    GYRE_FLOAT8_E5M2 = 16, /* OCP FP8: the upper half of a binary16 */
    /* A value and an index: the structs below, which are MPI's FLOAT_INT, DOUBLE_INT, 2INT, LONG_INT and
     * SHORT_INT. */
    GYRE_FLOAT32_INT32 = 17,
    GYRE_FLOAT64_INT32 = 18,
    GYRE_INT32_INT32 = 19,
    GYRE_INT64_INT32 = 20,
    GYRE_INT16_INT32 = 21
} gyre_type_t;
#define GYRE_TYPE_COUNT 22

typedef struct {
    float value;
    int32_t index;
} gyre_float32_int32_t;
typedef struct {
    double value;
    int32_t index;
} gyre_float64_int32_t;
typedef struct {
    int32_t value;
    int32_t index;
} gyre_int32_int32_t;
typedef struct {
    int64_t value;
    int32_t index;
} gyre_int64_int32_t;
typedef struct {
    int16_t value;
    int32_t index;
} gyre_int16_int32_t;

/* Which type has which:
 *   integers                sum prod min max avg, and the bitwise and logical ones
 *   floats of any width     sum prod min max avg
 *   complex                 sum prod avg
 *   bool                    the bitwise and logical ones
 *   pairs                   minloc maxloc
 * Integer sums and products wrap. 8-bit and 16-bit floats are combined in fp32 and rounded (to nearest even)
 * once per combination. min and max propagate NaN and order -0 before +0. avg is the sum divided by n
 * (integers: truncated towards zero). The logical ones take any value but 0 as true and give 0 or 1. minloc
 * and maxloc give the pair whose value min or max would give; of equal values the one with the lower index;
 * padding is zeroed. docs/contract.md has the details. */
typedef enum {
    GYRE_SUM = 0,
    GYRE_PROD = 1,
    GYRE_MIN = 2,
    GYRE_MAX = 3,
    GYRE_AVG = 4,
    GYRE_BAND = 5, /* bitwise */
    GYRE_BOR = 6,
    GYRE_BXOR = 7,
    GYRE_LAND = 8, /* logical */
    GYRE_LOR = 9,
    GYRE_LXOR = 10,
    GYRE_MINLOC = 11,
    GYRE_MAXLOC = 12
} gyre_redop_kind_t;
#define GYRE_REDOP_COUNT 13

/* A reduction: a kind, and for scaled sums a factor that multiplies this rank's input before it is added.
 * The ranks' factors may differ. Make one with the macros below. */
typedef struct {
    gyre_redop_kind_t kind;
    int scaled;   /* 0: `scale` is ignored. 1: GYRE_SUM only. */
    double scale; /* converted to the type's compute type: fp32 for 8-bit and 16-bit floats, a real factor for
                   * complex ones; integers: truncated */
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
/* The names of nccl-tests: int8 uint8 ... half bfloat16 float double; sum prod min max avg. What nccl-tests
 * does not have is named likewise: complex64, float32_int32; band, minloc. "unknown" for any other value.
 * Static storage. */
GYRE_API const char *gyre_type_name(gyre_type_t type);
GYRE_API const char *gyre_redop_name(gyre_redop_kind_t kind);

#ifdef __cplusplus
}
#endif
#endif
