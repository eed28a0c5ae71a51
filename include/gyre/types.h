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
    GYRE_INT16_INT32 = 21,
    /* From here on: types of gyre_type_create. */
    GYRE_TYPE_USER = 128,
    GYRE_TYPE_NONE = 255 /* never a type */
} gyre_type_t;
#define GYRE_TYPE_COUNT 22 /* below GYRE_TYPE_USER */

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

/* Reductions that each type supports:
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
    GYRE_MAXLOC = 12,
    /* From here on: operations of gyre_op_create. */
    GYRE_REDOP_USER = 128,
    GYRE_REDOP_NONE = 255 /* never a reduction */
} gyre_redop_kind_t;
#define GYRE_REDOP_COUNT 13 /* below GYRE_REDOP_USER */

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

/* An operation of the program's own: right[i] = left[i] op right[i] for count elements of `type`. The arrays
 * do not overlap; `left` must not be written, it may be another rank's memory. GYRE_OK, or an error: then the
 * call fails on this rank, with a text that has the status, and on all others with this text; the
 * communicator is dead. The function is called on any thread that waits for or advances a collective, for any
 * number of pieces of the vectors. It must be associative (up to rounding), and may call nothing of Gyre but
 * gyre_reduce_local, the functions of this header and gyre_last_error. A C++ exception that leaves it counts
 * as an error. A longjmp that leaves it is undefined behaviour. */
typedef gyre_status_t (*gyre_op_function_t)(const void *left, void *right, size_t count, gyre_type_t type,
                                            void *user);
/* flags of gyre_op_create: left op right and right op left are the same. Without it the order of the operands
 * is that of the ranks in every algorithm, with GYRE_ORDER=fast, too. */
#define GYRE_OP_COMMUTATIVE 1u

/* *op: an operation for any type, those of gyre_type_create included, in every collective that reduces. It
 * follows the canonical tree (docs/contract.md). `user` is passed to the function, and must be valid until
 * gyre_op_free. Ranks identify operations by number, so all ranks that share a communicator must create and
 * free their operations in the same order. At most 127 at a time, else NO_MEMORY. INVALID: an argument is
 * NULL, or a flag is unknown. Any thread. */
#ifndef __cplusplus
GYRE_API gyre_status_t gyre_op_create(gyre_op_function_t function, void *user, unsigned flags,
                                      gyre_redop_t *op);
#endif
/* The same; `function` is called by `guard`, which returns what it returns, or GYRE_OP_THREW. For C++ and
 * other languages in which a function may end otherwise than by a return. */
#define GYRE_OP_THREW ((gyre_status_t)511) /* of no other meaning */
typedef gyre_status_t (*gyre_op_guard_t)(gyre_op_function_t function, const void *left, void *right,
                                         size_t count, gyre_type_t type, void *user);
GYRE_API gyre_status_t gyre_op_create_guarded(gyre_op_guard_t guard, gyre_op_function_t function, void *user,
                                              unsigned flags, gyre_redop_t *op);
#ifdef __cplusplus
static inline gyre_status_t gyre_op_guard(gyre_op_function_t function, const void *left, void *right,
                                          size_t count, gyre_type_t type, void *user)
{
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS)
    try {
        return function(left, right, count, type, user);
    } catch (...) {
        return GYRE_OP_THREW;
    }
#else
    return function(left, right, count, type, user);
#endif
}
static inline gyre_status_t gyre_op_create(gyre_op_function_t function, void *user, unsigned flags,
                                           gyre_redop_t *op)
{
    return gyre_op_create_guarded(gyre_op_guard, function, user, flags, op);
}
#endif
/* *op becomes GYRE_REDOP_NONE; its number may serve another operation. INVALID, and nothing changes: it is
 * not one of gyre_op_create, a call that uses it has not finished, or a plan or buckets with it were not
 * freed. NULL, or GYRE_REDOP_NONE: nothing to do. */
GYRE_API gyre_status_t gyre_op_free(gyre_redop_t *op);

enum { GYRE_TYPE_BYTES_MOST = 4096 };
/* *type: elements of `bytes` bytes (1 to GYRE_TYPE_BYTES_MOST), for calls that move and for operations of
 * gyre_op_create. The rules of order and number of gyre_op_create apply. INVALID; NO_MEMORY. */
GYRE_API gyre_status_t gyre_type_create(size_t bytes, gyre_type_t *type);
/* *type becomes GYRE_TYPE_NONE. No call may be under way that uses the type; a call on a stream is under way
 * until the stream has passed it. INVALID, and nothing changes: it is not one of gyre_type_create, or a plan
 * or buckets with it were not freed. NULL, or GYRE_TYPE_NONE: nothing to do. */
GYRE_API gyre_status_t gyre_type_free(gyre_type_t *type);

/* left, right, result: [count] in host memory. result[i] = left[i] op right[i], as one combination of a
 * collective: GYRE_AVG adds and does not divide. result may be left or right; no other overlap (OVERLAP).
 * TYPE: not a reduction of this type, or a scaled one, which scales inputs. INVALID: a buffer is NULL.
 * OVERFLOW. An error of the program's own operation is returned; `result` is undefined then. Any thread;
 * before gyre_init, too. */
GYRE_API gyre_status_t gyre_reduce_local(const void *left, const void *right, void *result, size_t count,
                                         gyre_type_t type, gyre_redop_t op);

/* Bytes of one element; 0 for an unknown type. */
GYRE_API size_t gyre_type_size(gyre_type_t type);
/* The names of nccl-tests: int8 uint8 ... half bfloat16 float double; sum prod min max avg. What nccl-tests
 * does not have is named likewise: complex64, float32_int32; band, minloc. usertype0, userop0, ...: those of
 * gyre_type_create and gyre_op_create. "unknown" for any other value. Static storage. */
GYRE_API const char *gyre_type_name(gyre_type_t type);
GYRE_API const char *gyre_redop_name(gyre_redop_kind_t kind);

#ifdef __cplusplus
}
#endif
#endif
