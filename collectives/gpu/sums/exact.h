/* collectives/gpu/sums/exact.h: the kernels that round sums of one element type once (GYRE_ORDER_EXACT),
 * with the bits of collectives/kernels/exact.c; for .cu files of one line each (exact_NAME.cu).
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread adds the elements of one vector of 16 bytes as sums and errors in double (exact_steps.h). An
 * element whose errors do not fit, or that is not finite, is added again in fixed point, digit by digit:
 * rare, slow, and without room for more than the digits. */
#ifndef COLLECTIVES_GPU_SUMS_EXACT_H
#define COLLECTIVES_GPU_SUMS_EXACT_H

#include "collectives/gpu/sums/add.h"
#include "collectives/gpu/sums/kernels.h"
#include "collectives/gpu/shots/rounds.h"
#include "collectives/gpu/sums/sums.h"
#include "collectives/kernels/digits.h"
#include "collectives/kernels/exact_steps.h"

/* A type: `format`, as in digits.h; load, to double; sum_of(s + e, bad), rounded to odd for those that are
 * shorter than double; average_of likewise; store, which rounds to the type. */
template <int BITS, int LEAST, int LIMIT> struct exact_short {
    enum { bits = BITS, least = LEAST, limit = LIMIT };
    static __device__ __forceinline__ double sum_of(double s, double e, uint64_t *)
    {
        return exact_join_step(s, e);
    }
    static __device__ __forceinline__ double average_of(double s, double e, uint64_t *, int n)
    {
        return exact_divide_step(exact_join_step(s, e), (double)n);
    }
    static __device__ __forceinline__ float to_float(double s)
    {
        return (float)exact_double(exact_shorten(exact_bits(s)));
    }
};
template <typename T> struct exact_of;
template <> struct exact_of<coll_f16> : exact_short<11, -24, 16> {
    static __device__ __forceinline__ double load(uint16_t x) { return (double)coll_half_format::load(x); }
    static __device__ __forceinline__ uint16_t store(double s)
    {
        const float f = to_float(s);
        return f == f ? coll_half_format::store(f) : (uint16_t)0x7e00u;
    }
};
template <> struct exact_of<coll_bf16> : exact_short<8, -133, 128> {
    static __device__ __forceinline__ double load(uint16_t x) { return (double)coll_bfloat_format::load(x); }
    static __device__ __forceinline__ uint16_t store(double s) { return exact_bfloat(to_float(s)); }
};
template <> struct exact_of<coll_f32> : exact_short<24, -149, 128> {
    static __device__ __forceinline__ double load(uint32_t x) { return (double)coll_f32::load(x); }
    static __device__ __forceinline__ uint32_t store(double s) { return kernel_bits(exact_quiet((float)s)); }
};
template <> struct exact_of<coll_f64> {
    enum { bits = 53, least = -1074, limit = 1024 };
    static __device__ __forceinline__ double load(uint64_t x) { return coll_f64::load(x); }
    static __device__ __forceinline__ double sum_of(double s, double e, uint64_t *bad)
    {
        return exact_sum_step(s, e, bad);
    }
    static __device__ __forceinline__ double average_of(double s, double e, uint64_t *bad, int n)
    {
        return exact_average_step(s, e, bad, (double)n);
    }
    static __device__ __forceinline__ uint64_t store(double s)
    {
        return s == s ? exact_bits(s) : (uint64_t)EXACT_NAN;
    }
};

/* The sum of what is not finite: an infinity or NaN; 0: all are finite. *zeros: all are -0. */
template <typename T>
static __device__ __forceinline__ double exact_special(const coll_cuda_op_t &op, char *const *sources,
                                                       size_t at, int *zeros)
{
    double special = 0;
    *zeros = 1;
    for (int r = 0; r < op.n; r++) {
        const double x = exact_of<T>::load(load_any<typename T::value>(sources[r] + at));
        *zeros &= exact_bits(x) == EXACT_SIGN;
        if (!EXACT_FINITE(exact_bits(x)))
            special += x;
    }
    return special;
}

/* Bits [from, from + 32) of |x|, in units of 2^least; x is finite. */
static __device__ __forceinline__ int64_t exact_digit(double x, int from, int least)
{
    const uint64_t u = exact_bits(x), fraction = u & 0xfffffffffffffu;
    const int field = (int)(u >> 52 & 0x7ffu);
    const uint64_t m = field ? fraction | (uint64_t)1 << 52 : fraction;
    const int down = from - (-1074 + (field ? field - 1 : 0) - least); /* m is shifted so far */
    if (down >= 64 || down <= -DIGIT_BITS)
        return 0;
    return (int64_t)((down >= 0 ? m >> down : m << -down) & 0xffffffffu);
}

/* The sum or average of the elements at sources[rank] + at, in fixed point: one digit after the other, as n
 * terms below 2^32 and a carry. Digit 0 lies below what the type can hold, and two are above. */
template <typename T>
static __device__ APART double exact_slow(const coll_cuda_op_t &op, char *const *sources, size_t at)
{
    typedef exact_of<T> X;
    enum { ABOVE = 2, COUNT = (X::limit - X::least + DIGIT_BITS - 1) / DIGIT_BITS + 1 + ABOVE };
    const coll_format_t format = {X::bits, X::least, X::limit};
    uint32_t digit[COUNT + 2];
    int zeros;
    const double special = exact_special<T>(op, sources, at, &zeros);
    if (special != 0) /* also of NaN */
        return special;
    if (zeros)
        return -0.0;
    int64_t carry = 0;
    for (int i = 0; i < COUNT; i++) {
        for (int r = 0; r < op.n; r++) {
            const double x = X::load(load_any<typename T::value>(sources[r] + at));
            const int64_t d = exact_digit(x, (i - 1) * DIGIT_BITS, X::least);
            carry += exact_bits(x) & EXACT_SIGN ? -d : d;
        }
        digit[i] = (uint32_t)((uint64_t)carry & 0xffffffffu);
        carry >>= DIGIT_BITS; /* rounds down, also below zero */
    }
    digit[COUNT] = digit[COUNT + 1] = 0;
    const int negative = digits_magnitude(digit, COUNT);
    return digits_round(digit, COUNT, DIGIT_BITS - X::least, negative, op.average ? op.divisor : 1u, &format);
}

/* As add_range (add.h). */
template <typename T>
static __device__ APART void exact_range(const coll_cuda_op_t &op, char *const *sources, char *to, size_t at,
                                         size_t bytes)
{
    typedef exact_of<T> X;
    /* AT_ONCE: vectors that are loaded before the first is used, as far as registers go */
    enum { EACH = 16 / sizeof(typename T::value), AT_ONCE = EACH > 4 ? IN_FLIGHT / 2 : IN_FLIGHT };
    const size_t vectors = (bytes + 15) / 16;
    for (size_t i = threadIdx.x; i < vectors; i += blockDim.x) {
        double s[EACH], e[EACH];
        unsigned bad = 0; /* bit j: element j */
        coll_vector<T> result;
#pragma unroll
        for (int j = 0; j < EACH; j++)
            s[j] = -0.0, e[j] = 0;
#pragma unroll 1
        for (int first = 0; first < op.n; first += AT_ONCE) {
            coll_vector<T> v[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k < op.n)
                    v[k].whole = gyre_load16(sources[first + k] + at + 16 * i);
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++)
                if (first + k < op.n)
#pragma unroll
                    for (int j = 0; j < EACH; j++) {
                        uint64_t lost = 0;
                        exact_pair_step(&s[j], &e[j], &lost, X::load(v[k].each[j]));
                        bad |= (unsigned)(lost != 0) << j;
                    }
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const size_t where = 16 * i + (size_t)j * sizeof(typename T::value);
            uint64_t failed = bad >> j & 1;
            double value =
                op.average ? X::average_of(s[j], e[j], &failed, op.divisor) : X::sum_of(s[j], e[j], &failed);
            if (failed && where < bytes)
                value = exact_slow<T>(op, sources, at + where);
            result.each[j] = X::store(value);
        }
        store_vector<T>(to, i, bytes, result);
    }
}

template <typename T> struct coll_exact {
    enum { adds = 1 };
    static __device__ __forceinline__ void scale(const coll_cuda_op_t &op, char *to, const char *from,
                                                 size_t bytes)
    {
        scale_range<T>(to, from, bytes, op.scale, op.whole);
    }
    static __device__ __forceinline__ void add_up(const coll_cuda_op_t &op, char *const *sources, char *to,
                                                  size_t at, size_t bytes)
    {
        exact_range<T>(op, sources, to, at, bytes);
    }
};

template <typename T> static cudaError_t load_exact(void)
{
    const cudaError_t rc = gyre_load(rounds_kernel<coll_exact<T>>);
    return rc == cudaSuccess ? gyre_load(add_kernel<coll_exact<T>>) : rc;
}

/* Inputs are scaled by the kernel of sum_NAME.cu. */
#define COLL_CUDA_EXACT(name)                                                                   \
    const coll_cuda_kernels_t coll_cuda_exact_##name = {load_exact<coll_##name>,                \
                                                        held_rounds<coll_exact<coll_##name>>,   \
                                                        launch_rounds<coll_exact<coll_##name>>, \
                                                        launch_add<coll_exact<coll_##name>>,    \
                                                        NULL,                                   \
                                                        NULL};

#endif
