/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gyre-perf/data.c: inputs whose exact result is known without the library's arithmetic.
 *
 * Collectives that only move data get random bits. For reductions:
 *
 * integers    random bits (products: odd numbers, so that a missing factor always shows); arithmetic modulo
 *             2^bits in uint64. Logical: every second number is 0. bool: 0 or 1.
 * float sums  whole numbers, small enough that the sum of all ranks stays below the type's last exact integer
 *             `cap` (2^3 for E5M2, 2^4 for E4M3, 2^8 for bfloat16, 2^11 for half, 2^24, 2^53): |v| <= cap /
 *             n. Every partial sum in any order is then exact. If n > cap, only every m-th rank (a different
 *             set per element) has a number other than 0.
 * mulsum      the same with factors 1 and 2 by rank, and room for them.
 * averages    v = h + d, where h is the same on all ranks and the ds of ranks 2j and 2j + 1 cancel: the sum
 *             is n h, the average is h, with no rounding.
 * products    +-1, and on at most 10 ranks per element (E4M3: 6) also 2 or 1/2: exponents stay in range.
 * min, max    whole numbers up to cap, and zeros of both signs (-0 is less than +0).
 * complex     two such numbers; products are of powers of i, and on 1 to 10 ranks of 2 + i: neither part of
 *             the result is 0, whose sign would depend on the order. Of a scan, rank 0 has such a factor:
 *             each prefix of two ranks or more has one.
 * pairs       few values, so that many are equal, zeros of both signs, and few indices.
 *
 * All are compared as bits. Inputs repeat after PERF_PERIOD elements: a check need not compute them all. */
#include "tools/gyre-perf/perf.h"

#include "base/hash.h"
#include "tools/gyre-perf/data.h"

#include <math.h>
#include <string.h>

/* What all ranks share about element i of run rep. */
static uint64_t element_key(int rep, size_t i)
{
    return base_mix64((uint64_t)i + ((uint64_t)rep << 48) + 0x9e3779b97f4a7c15u);
}

uint64_t perf_rank_bits(uint64_t key, int rank)
{
    uint64_t x = key * (2u * (uint64_t)rank + 0x9e3779b97f4a7c15u);
    return x ^ x >> 32;
}

double perf_scale(int rank)
{
    return 1.0 + rank % 2;
}

static int is_integer(gyre_type_t type)
{
    return type < GYRE_FLOAT16 || type == GYRE_BOOL;
}

static int64_t exact_limit(gyre_type_t type)
{
    switch (type) {
    case GYRE_FLOAT8_E5M2:
        return 1 << 3;
    case GYRE_FLOAT8_E4M3:
        return 1 << 4;
    case GYRE_BFLOAT16:
        return 1 << 8;
    case GYRE_FLOAT16:
        return 1 << 11;
    case GYRE_FLOAT32:
        return 1 << 24;
    default:
        return INT64_C(1) << 53;
    }
}

/* A whole number in [-limit, limit]; limit < 2^62. */
static int64_t whole(uint64_t bits, int64_t limit)
{
    return (int64_t)(bits % (2 * (uint64_t)limit + 1)) - limit;
}

double perf_number(const perf_case_t *c, gyre_type_t type, uint64_t key, size_t i, int rank)
{
    const uint64_t bits = perf_rank_bits(key, rank);
    const int64_t cap = exact_limit(type), n = perf_all_inputs(c);
    switch (c->op) {
    case PERF_SUM:
    case PERF_MULSUM: {
        int64_t parts = n * (c->op == PERF_MULSUM ? 2 : 1);
        if (parts > cap) {
            size_t stride = (size_t)((parts + cap - 1) / cap);
            return (size_t)rank % stride == i % stride ? (double)whole(bits, 1) : 0.0;
        }
        return (double)whole(bits, cap / parts);
    }
    case PERF_AVG: {
        int64_t room = cap / n;
        double h = (double)whole(key, room - room / 2);
        int64_t apart = room / 2 > 0 ? room / 2 : room == 0;
        double d = (double)whole(perf_rank_bits(key, rank / 2), apart);
        if (rank % 2 == 0 && rank + 1 == n) /* has no partner */
            return h;
        return rank % 2 ? h - d : h + d;
    }
    case PERF_PROD: {
        const size_t factors = type == GYRE_FLOAT8_E4M3 ? 6 : 10,
                     stride = ((size_t)n + factors - 1) / factors;
        double v = bits & 1 ? -1.0 : 1.0;
        if (((size_t)rank + i) % stride == 0)
            v *= (bits >> 1) % 3 == 0 ? 0.5 : (bits >> 1) % 3 == 1 ? 2.0 : 1.0;
        return v;
    }
    case PERF_MIN:
    case PERF_MAX: { /* one value in eight is a zero of either sign */
        int64_t v = bits & 7 ? whole(bits >> 4, cap) : 0;
        return v == 0 ? (bits & 8 ? -0.0 : 0.0) : (double)v;
    }
    default: /* not of floats */
        break;
    }
    return 0.0;
}

uint64_t perf_encode(gyre_type_t type, double v)
{
    uint64_t bits = 0;
    if (type == GYRE_FLOAT64) {
        memcpy(&bits, &v, 8);
        return bits;
    }
    float f = (float)v;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (type == GYRE_FLOAT32)
        return u;
    if (type == GYRE_BFLOAT16)
        return u >> 16;
    const int e4m3 = type == GYRE_FLOAT8_E4M3, half = type == GYRE_FLOAT16;
    const unsigned mantissa = half ? 10 : e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15;
    const uint32_t sign = u >> 31 << (half ? 15 : 7);
    return v == 0.0 ? sign : sign | ((u & 0x7fffffffu) - ((127u - bias) << 23)) >> (23 - mantissa);
}

static uint64_t low_bits(uint64_t x, size_t bytes)
{
    return bytes == 8 ? x : x & ((UINT64_C(1) << 8 * bytes) - 1);
}

/* An element of an integer reduction. */
static uint64_t integer_input(const perf_case_t *c, uint64_t bits)
{
    if (c->type == GYRE_BOOL)
        return bits & 1;
    if (c->op == PERF_LAND || c->op == PERF_LOR || c->op == PERF_LXOR)
        bits = bits >> 40 & 1 ? bits | 1 : 0;
    return low_bits(bits | (c->op == PERF_PROD), c->elem);
}

uint64_t perf_input_word(const perf_case_t *c, int rank, int rep, size_t i, int word)
{
    i %= PERF_PERIOD;
    const uint64_t key = element_key(rep, i), bits = perf_rank_bits(key, rank);
    if (!c->coll->reduces)
        return word ? base_mix64(bits) : low_bits(bits, c->elem < 8 ? c->elem : 8);
    if (is_integer(c->type))
        return integer_input(c, bits);
    if (perf_is_wide(c->type))
        return perf_wide_input(c, key, i, rank, word);
    return perf_encode(c->type, perf_number(c, c->type, key, i, rank));
}

/* ---- what must come out ---- */

/* An integer's bits as a number that orders as the integer does. */
static int64_t ordered(gyre_type_t type, uint64_t x, size_t bytes)
{
    if (type == GYRE_UINT64)
        return (int64_t)(x ^ (UINT64_C(1) << 63));
    if (type == GYRE_UINT8 || type == GYRE_UINT16 || type == GYRE_UINT32)
        return (int64_t)x;
    unsigned shift = (unsigned)(64 - 8 * bytes);
    return (int64_t)(x << shift) >> shift;
}

static uint64_t reduced_integer(const perf_case_t *c, int rep, size_t i)
{
    uint64_t acc = perf_input(c, 0, rep, i);
    if (c->op == PERF_MULSUM)
        acc *= (uint64_t)perf_scale(0);
    for (int r = 1; r < perf_inputs(c); r++) {
        const uint64_t x = perf_input(c, r, rep, i);
        const int64_t order = ordered(c->type, x, c->elem);
        switch (c->op) {
        case PERF_PROD:
            acc *= x;
            break;
        case PERF_MIN:
            acc = order < ordered(c->type, acc, c->elem) ? x : acc;
            break;
        case PERF_MAX:
            acc = order > ordered(c->type, acc, c->elem) ? x : acc;
            break;
        case PERF_MULSUM:
            acc += x * (uint64_t)perf_scale(r);
            break;
        case PERF_SUM:
        case PERF_AVG:
            acc += x;
            break;
        case PERF_BAND:
            acc &= x;
            break;
        case PERF_BOR:
            acc |= x;
            break;
        case PERF_BXOR:
            acc ^= x;
            break;
        case PERF_LAND:
            acc = acc && x;
            break;
        case PERF_LOR:
            acc = acc || x;
            break;
        case PERF_LXOR:
            acc = !acc != !x;
            break;
        case PERF_MINLOC: /* of pairs */
        case PERF_MAXLOC:
        case PERF_OPS:
            break;
        }
    }
    if (c->op == PERF_LAND || c->op == PERF_LOR || c->op == PERF_LXOR)
        return acc != 0; /* of one rank, too */
    acc = low_bits(acc, c->elem);
    if (c->op != PERF_AVG)
        return acc;
    if (c->type == GYRE_UINT64)
        return acc / (uint64_t)perf_inputs(c);
    return low_bits((uint64_t)(ordered(c->type, acc, c->elem) / perf_inputs(c)), c->elem);
}

double perf_reduced_number(const perf_case_t *c, gyre_type_t type, uint64_t key, size_t i)
{
    double acc = perf_number(c, type, key, i, 0) * (c->op == PERF_MULSUM ? perf_scale(0) : 1.0);
    for (int r = 1; r < perf_inputs(c); r++) {
        const double x = perf_number(c, type, key, i, r);
        switch (c->op) {
        case PERF_PROD:
            acc *= x;
            break;
        case PERF_MIN:
            acc = x < acc || (x == acc && signbit(x)) ? x : acc;
            break;
        case PERF_MAX:
            acc = x > acc || (x == acc && !signbit(x)) ? x : acc;
            break;
        case PERF_MULSUM:
            acc += x * perf_scale(r);
            break;
        case PERF_SUM:
        case PERF_AVG:
            acc += x;
            break;
        default: /* not of floats */
            break;
        }
    }
    return c->op == PERF_AVG ? acc / perf_inputs(c) : acc;
}

static uint64_t reduced(const perf_case_t *c, int rep, size_t i, int word)
{
    if (is_integer(c->type))
        return reduced_integer(c, rep, i);
    i %= PERF_PERIOD;
    const uint64_t key = element_key(rep, i);
    if (perf_is_wide(c->type))
        return perf_wide_reduced(c, key, i, word);
    return perf_encode(c->type, perf_reduced_number(c, c->type, key, i));
}

/* The block that element i lies in: the last that starts at or before it (empty ones start where the next
 * does). */
static int block_of(const size_t *displs, int n, size_t i)
{
    int low = 0, high = n;
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        *(displs[mid] <= i ? &low : &high) = mid;
    }
    return low;
}

int perf_expected_word(const perf_case_t *c, int rep, size_t i, int word, uint64_t *bits)
{
    if (i >= c->recv_count)
        return 0;
    int from;
    switch (c->coll->op) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
    case COLL_SCAN:
    case COLL_EXSCAN:
        *bits = reduced(c, rep, i, word);
        return 1;
    case COLL_REDUCE_SCATTER:
        *bits = reduced(c, rep, c->displs[c->rank] + i, word);
        return 1;
    case COLL_BROADCAST:
        *bits = perf_input_word(c, c->root, rep, i, word);
        return 1;
    case COLL_SCATTER:
        *bits = perf_input_word(c, c->root, rep, c->displs[c->rank] + i, word);
        return 1;
    case COLL_SENDRECV:
        *bits = perf_input_word(c, perf_neighbors(c).from[!c->coll->neighbors || i >= c->counts[0]], rep, i,
                                word); /* blocks lie in the same places on both sides */
        return 1;
    case COLL_ALL_GATHER:
    case COLL_GATHER:
        from = block_of(c->displs, c->n, i);
        *bits = perf_input_word(c, from, rep, i - c->displs[from], word);
        return 1;
    case COLL_ALL_TO_ALL: {
        from = block_of(c->rdispls, c->n, i);
        /* where `from` keeps its block for this rank: its blocks go by distance, like this rank's */
        size_t start = 0, n = (size_t)c->n;
        for (size_t p = 0; p < (size_t)c->rank; p++) {
            size_t distance = (p + n - (size_t)from) % n;
            start += c->counts[((size_t)c->rank + distance) % n];
        }
        *bits = perf_input_word(c, from, rep, start + i - c->rdispls[from], word);
        return 1;
    }
    case COLL_BARRIER:
        break;
    }
    return 0;
}

size_t perf_expected_run(const perf_case_t *c, size_t i)
{
    const size_t *counts, *displs;
    switch (c->coll->op) {
    case COLL_ALL_GATHER:
    case COLL_GATHER:
        counts = c->counts, displs = c->displs;
        break;
    case COLL_ALL_TO_ALL:
        counts = c->rcounts, displs = c->rdispls;
        break;
    default:
        return (c->coll->neighbors && i < c->counts[0] ? c->counts[0] : c->recv_count) - i;
    }
    int from = block_of(displs, c->n, i);
    return displs[from] + counts[from] - i;
}
