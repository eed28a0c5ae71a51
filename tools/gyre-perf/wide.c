/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/wide.c: inputs and expected results of reductions of complex numbers and of pairs; data.c
 * says how they are chosen. */
#include <math.h>

#include "tools/gyre-perf/data.h"

enum { FACTORS = 10 }; /* ranks with a factor of 2 + i: 5^5 is exact in fp32 */

/* Two words of an element as one or both of them: parts of 4 bytes share the first. */
static uint64_t word_of(size_t elem, int word, uint64_t first, uint64_t second)
{
    if (elem == 16)
        return word ? second : first;
    return (first & UINT32_MAX) | second << 32;
}

/* ---- complex numbers ---- */
typedef struct {
    int64_t re, im;
} whole_t;

static whole_t times(whole_t a, whole_t b)
{
    return (whole_t){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* A rank's factor. */
static whole_t factor(const perf_case_t *c, uint64_t key, size_t i, int rank)
{
    static const whole_t units[] = {{1, 0}, {0, 1}, {-1, 0}, {0, -1}};
    const size_t stride = ((size_t)perf_all_inputs(c) + FACTORS - 1) / FACTORS;
    const whole_t unit = units[perf_rank_bits(key, rank) & 3], prime = {2, 1};
    const int has_prime = ((size_t)rank + i) % stride == 0 || (coll_op_scans(c->coll->op) && rank == 0);
    return has_prime ? times(unit, prime) : unit;
}

static gyre_type_t part_of(gyre_type_t type)
{
    return type == GYRE_COMPLEX64 ? GYRE_FLOAT32 : GYRE_FLOAT64;
}

/* rank < 0: the result. */
static uint64_t complex_word(const perf_case_t *c, uint64_t key, size_t i, int rank, int word)
{
    const gyre_type_t type = part_of(c->type);
    double parts[2];
    if (c->op == PERF_PROD) {
        whole_t z = factor(c, key, i, rank < 0 ? 0 : rank);
        for (int r = 1; rank < 0 && r < perf_inputs(c); r++)
            z = times(z, factor(c, key, i, r));
        parts[0] = (double)z.re;
        parts[1] = (double)z.im;
    } else {
        for (int k = 0; k < 2; k++) {
            const uint64_t own = k ? ~key : key;
            parts[k] = rank < 0 ? perf_reduced_number(c, type, own, i) : perf_number(c, type, own, i, rank);
        }
    }
    return word_of(c->elem, word, perf_encode(type, parts[0]), perf_encode(type, parts[1]));
}

/* ---- pairs ---- */
typedef struct {
    double value;
    int32_t index;
} pair_t;

static int has_floats(gyre_type_t type)
{
    return type == GYRE_FLOAT32_INT32 || type == GYRE_FLOAT64_INT32;
}

static pair_t pair_of(const perf_case_t *c, uint64_t key, int rank)
{
    const uint64_t bits = perf_rank_bits(key, rank);
    const double value = (double)(bits >> 8 & 3) - 1.0;
    const pair_t p = {value == 0.0 && (bits & 1) && has_floats(c->type) ? -0.0 : value,
                      (int32_t)(bits >> 16 & 7) - 3};
    return p;
}

/* 1 if b comes before a. */
static int comes_before(const perf_case_t *c, pair_t a, pair_t b)
{
    const int sign_a = signbit(a.value) != 0, sign_b = signbit(b.value) != 0;
    if (b.value != a.value)
        return c->op == PERF_MAXLOC ? b.value > a.value : b.value < a.value;
    if (sign_a != sign_b)
        return c->op == PERF_MAXLOC ? sign_a : sign_b;
    return b.index < a.index;
}

static uint64_t pair_word(const perf_case_t *c, pair_t p, int word)
{
    const uint64_t value = c->type == GYRE_FLOAT32_INT32   ? perf_encode(GYRE_FLOAT32, p.value)
                           : c->type == GYRE_FLOAT64_INT32 ? perf_encode(GYRE_FLOAT64, p.value)
                           : c->type == GYRE_INT16_INT32   ? (uint16_t)(int16_t)p.value
                                                           : (uint64_t)(int64_t)p.value;
    return word_of(c->elem, word, value, (uint32_t)p.index);
}

uint64_t perf_wide_input(const perf_case_t *c, uint64_t key, size_t i, int rank, int word)
{
    if (c->type == GYRE_COMPLEX64 || c->type == GYRE_COMPLEX128)
        return complex_word(c, key, i, rank, word);
    return pair_word(c, pair_of(c, key, rank), word);
}

uint64_t perf_wide_reduced(const perf_case_t *c, uint64_t key, size_t i, int word)
{
    if (c->type == GYRE_COMPLEX64 || c->type == GYRE_COMPLEX128)
        return complex_word(c, key, i, -1, word);
    pair_t best = pair_of(c, key, 0);
    for (int r = 1; r < perf_inputs(c); r++) {
        const pair_t p = pair_of(c, key, r);
        best = comes_before(c, best, p) ? p : best;
    }
    return pair_word(c, best, word);
}
