/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 1 2 3 5, over UCX: 2 */
/* tests/collectives/mp_ops.c: reductions beyond sums and extremes, and types beyond integers and floats: what
 * every collective that reduces makes of them, against the canonical tree by recursion over plain C; that
 * calls that only move take every type; and which pairs of type and reduction are refused. */
#include "tests/support/mp.h"

#include <stdint.h>
#include <string.h>

#include "collectives/kernels/float8.h"

enum { MOST_N = 5, MOST = 2000, WIDE = 16 };

static int n, rank;
static gyre_comm_t *world;
static unsigned char in[MOST_N * MOST * WIDE], out[MOST_N * MOST * WIDE + 1], want[MOST_N * MOST * WIDE];

typedef union {
    unsigned char bytes[WIDE];
    uint64_t bits;
    float f[2];
    double d[2];
    gyre_float32_int32_t f32;
    gyre_float64_int32_t f64;
    gyre_int32_int32_t i32;
    gyre_int64_int32_t i64;
    gyre_int16_int32_t i16;
} element_t;

static element_t input(gyre_type_t type, int r, size_t i)
{
    element_t e = {{0}};
    uint64_t state = (uint64_t)r * 1000003u + i;
    const uint64_t a = random_next(&state), b = random_next(&state);
    const double real = (double)(int64_t)a * 1e-19, imaginary = (double)(int64_t)b * 1e-19;
    switch (type) {
    case GYRE_BOOL:
        e.bits = a & 1;
        break;
    case GYRE_COMPLEX64:
        e.f[0] = (float)real;
        e.f[1] = (float)imaginary;
        break;
    case GYRE_COMPLEX128:
        e.d[0] = real;
        e.d[1] = imaginary;
        break;
    case GYRE_FLOAT8_E4M3: /* exponents from -6 on, with a sign */
        e.bits = (a & 0x87) | (1 + b % 9) << 3;
        break;
    case GYRE_FLOAT8_E5M2:
        e.bits = (a & 0x83) | (10 + b % 9) << 2;
        break;
    case GYRE_FLOAT32_INT32:
        e.f32.value = (float)(a & 3);
        e.f32.index = (int32_t)(b & 15);
        break;
    case GYRE_FLOAT64_INT32:
        e.f64.value = (double)(a & 3);
        e.f64.index = (int32_t)(b & 15);
        break;
    case GYRE_INT32_INT32:
        e.i32.value = (int32_t)(a & 3);
        e.i32.index = (int32_t)(b & 15);
        break;
    case GYRE_INT64_INT32:
        e.i64.value = (int64_t)(a & 3);
        e.i64.index = (int32_t)(b & 15);
        break;
    case GYRE_INT16_INT32:
        e.i16.value = (int16_t)(a & 3);
        e.i16.index = (int32_t)(b & 15);
        break;
    default: /* an integer that is often 0 */
        e.bits = a & 1 ? b : 0;
        e.bits &= UINT64_MAX >> (64 - 8 * gyre_type_size(type));
    }
    return e;
}

static uint64_t integer(gyre_redop_kind_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case GYRE_BAND:
        return a & b;
    case GYRE_BOR:
        return a | b;
    case GYRE_BXOR:
        return a ^ b;
    case GYRE_LAND:
        return a && b;
    case GYRE_LOR:
        return a || b;
    default:
        return !a != !b;
    }
}

static float short_float(gyre_redop_kind_t op, float a, float b)
{
    if (op == GYRE_MIN || op == GYRE_MAX)
        return (op == GYRE_MIN) == (b < a) ? b : a;
    return op == GYRE_PROD ? a * b : a + b;
}

#define BETTER(f) (op == GYRE_MINLOC ? b.f.value < a.f.value : b.f.value > a.f.value)
#define PAIR(f)   (BETTER(f) || (b.f.value == a.f.value && b.f.index < a.f.index) ? b : a)

static element_t combine(gyre_type_t type, gyre_redop_kind_t op, element_t a, element_t b)
{
    element_t r = {{0}};
    switch (type) {
    case GYRE_COMPLEX64:
        r.f[0] = op == GYRE_PROD ? a.f[0] * b.f[0] - a.f[1] * b.f[1] : a.f[0] + b.f[0];
        r.f[1] = op == GYRE_PROD ? a.f[0] * b.f[1] + a.f[1] * b.f[0] : a.f[1] + b.f[1];
        return r;
    case GYRE_COMPLEX128:
        r.d[0] = op == GYRE_PROD ? a.d[0] * b.d[0] - a.d[1] * b.d[1] : a.d[0] + b.d[0];
        r.d[1] = op == GYRE_PROD ? a.d[0] * b.d[1] + a.d[1] * b.d[0] : a.d[1] + b.d[1];
        return r;
    case GYRE_FLOAT8_E4M3:
        r.bits = kernel_to_e4m3(short_float(op, kernel_from_e4m3(a.bytes[0]), kernel_from_e4m3(b.bytes[0])));
        return r;
    case GYRE_FLOAT8_E5M2:
        r.bits = kernel_to_e5m2(short_float(op, kernel_from_e5m2(a.bytes[0]), kernel_from_e5m2(b.bytes[0])));
        return r;
    case GYRE_FLOAT32_INT32:
        return PAIR(f32);
    case GYRE_FLOAT64_INT32:
        return PAIR(f64);
    case GYRE_INT32_INT32:
        return PAIR(i32);
    case GYRE_INT64_INT32:
        return PAIR(i64);
    case GYRE_INT16_INT32:
        return PAIR(i16);
    default:
        r.bits = integer(op, a.bits, b.bits);
        return r;
    }
}

static element_t tree(gyre_type_t type, gyre_redop_kind_t op, int first, int k, size_t i)
{
    int left = 1;
    if (k == 1)
        return input(type, first, i);
    while (left * 2 < k)
        left *= 2;
    return combine(type, op, tree(type, op, first, left, i), tree(type, op, first + left, k - left, i));
}

static element_t result(gyre_type_t type, gyre_redop_kind_t op, size_t i)
{
    element_t e = tree(type, op, 0, n, i);
    if (op >= GYRE_LAND && op <= GYRE_LXOR)
        e.bits = e.bits != 0; /* of one rank, too */
    if (op == GYRE_AVG) {
        e.d[0] /= n;
        e.d[1] /= n;
    }
    return e;
}

static void expect(const char *call, gyre_type_t type, gyre_redop_kind_t op, const void *got, size_t from,
                   size_t count)
{
    const size_t size = gyre_type_size(type);
    for (size_t i = 0; i < count; i++)
        MP_CHECK(memcmp((const char *)got + i * size, want + (from + i) * size, size) == 0,
                 "rank %d of %d: %s of %zu %s, %s: element %zu is wrong", rank, n, call, count,
                 gyre_type_name(type), gyre_redop_name(op), i);
}

static void reduces(gyre_type_t type, gyre_redop_kind_t kind, size_t count)
{
    const size_t size = gyre_type_size(type), all = count * (size_t)n, mine = count * (size_t)rank;
    const gyre_redop_t op = GYRE_OP(kind);
    size_t counts[MOST_N], at = 0, before = 0;
    gyre_request_t *requests[2];
    for (size_t i = 0; i < all; i++) {
        const element_t e = input(type, rank, i), r = result(type, kind, i);
        memcpy(in + i * size, e.bytes, size);
        memcpy(want + i * size, r.bytes, size);
    }
    out[count * size] = 0xa5;
    MP_OK(gyre_all_reduce(in, out, count, type, op, world));
    expect("all_reduce", type, kind, out, 0, count);
    MP_CHECK(out[count * size] == 0xa5, "the byte after the result was changed");
    memcpy(out, in, count * size);
    MP_OK(gyre_all_reduce(out, out, count, type, op, world));
    expect("all_reduce in place", type, kind, out, 0, count);
    MP_OK(gyre_reduce_scatter(in, out, count, type, op, world));
    expect("reduce_scatter", type, kind, out, mine, count);
    memcpy(out, in, all * size);
    MP_OK(gyre_reduce_scatter(out, out + mine * size, count, type, op, world));
    expect("reduce_scatter in place", type, kind, out + mine * size, mine, count);
    for (int r = 0; r < n; r++) {
        counts[r] = count * (size_t)r / (size_t)n;
        before += r < rank ? counts[r] : 0;
        at += counts[r];
    }
    MP_OK(gyre_reduce_scatterv(in, out, counts, type, op, world));
    expect("reduce_scatterv", type, kind, out, before, counts[rank]);
    MP_OK(gyre_reduce(in, out, count, type, op, n - 1, world));
    if (rank == n - 1)
        expect("reduce", type, kind, out, 0, count);
    MP_OK(gyre_group_start());
    MP_OK(gyre_iall_reduce(in, out, count, type, op, world, &requests[0]));
    MP_OK(gyre_ireduce_scatter(in, out + count * size, count, type, op, world, &requests[1]));
    MP_OK(gyre_group_end());
    MP_OK(gyre_wait_all(2, requests));
    expect("all_reduce in a group", type, kind, out, 0, count);
    expect("reduce_scatter in a group", type, kind, out + count * size, mine, count);
}

/* Of every call that only moves, one form. */
static void moves(gyre_type_t type, size_t count)
{
    const size_t size = gyre_type_size(type);
    for (size_t i = 0; i < count; i++) {
        const element_t e = input(type, rank, i);
        memcpy(in + i * size, e.bytes, size);
    }
    memset(out, 0, sizeof out);
    MP_OK(gyre_all_gather(in, out, count, type, world));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < count; i++) {
            const element_t e = input(type, r, i);
            memcpy(want + ((size_t)r * count + i) * size, e.bytes, size);
        }
    expect("all_gather", type, GYRE_SUM, out, 0, count * (size_t)n);
    MP_OK(gyre_broadcast(in, out, count, type, n / 2, world));
    expect("broadcast", type, GYRE_SUM, out, (size_t)(n / 2) * count, count);
}

static void scaled(void)
{
    double z[2] = {1 + rank, -2};
    float got8 = 0;
    MP_OK(gyre_all_reduce(z, z, 1, GYRE_COMPLEX128, GYRE_SCALED_SUM(rank + 0.5), world));
    double re = 0, im = 0;
    for (int r = 0; r < n; r++) {
        re += (1 + r) * (r + 0.5); /* exact */
        im += -2 * (r + 0.5);
    }
    MP_CHECK(z[0] == re && z[1] == im, "the scaled sum is %g%+gi, not %g%+gi", z[0], z[1], re, im);
    unsigned char x = kernel_to_e4m3(3), y;
    MP_OK(gyre_all_reduce(&x, &y, 1, GYRE_FLOAT8_E4M3, GYRE_SCALED_SUM(2.0), world));
    got8 = kernel_from_e4m3(y);
    MP_CHECK(got8 == kernel_from_e4m3(kernel_to_e4m3((float)(6 * n))), "%d times 6 is %g", n, (double)got8);
    x = kernel_to_e4m3(400); /* overflow is seen: NaN, and infinity where the format has one */
    MP_OK(gyre_all_reduce(&x, &y, 1, GYRE_FLOAT8_E4M3, GYRE_OP(GYRE_SUM), world));
    MP_CHECK(n == 1 ? y == x : (y & 0x7f) == 0x7f, "%d times 384 is %#x", n, y);
    x = kernel_to_e5m2(50000);
    MP_OK(gyre_all_reduce(&x, &y, 1, GYRE_FLOAT8_E5M2, GYRE_OP(GYRE_SUM), world));
    MP_CHECK(n == 1 ? y == x : y == 0x7c, "%d times 49152 is %#x", n, y);
}

static void refused(gyre_type_t type, gyre_redop_t op, const char *word)
{
    const gyre_status_t status = gyre_all_reduce(in, out, 1, type, op, world);
    const char *text = gyre_last_error();
    MP_CHECK(status == GYRE_ERR_TYPE, "%s of %s: %s", gyre_redop_name(op.kind), gyre_type_name(type),
             gyre_status_string(status));
    MP_CHECK(strstr(text, gyre_redop_name(op.kind)) && strstr(text, gyre_type_name(type)) &&
                 strstr(text, word),
             "\"%s\" does not say what is wrong, or \"%s\"", text, word);
    MP_CHECK(gyre_comm_error(world) == GYRE_OK, "the communicator is dead");
}

static void refusals(void)
{
    refused(GYRE_FLOAT32, GYRE_OP(GYRE_BAND), "which has sum prod min max avg");
    refused(GYRE_FLOAT64, GYRE_OP(GYRE_LOR), "types that have lor: int8 uint8");
    refused(GYRE_BOOL, GYRE_OP(GYRE_SUM), "which has band bor bxor land lor lxor");
    refused(GYRE_COMPLEX64, GYRE_OP(GYRE_MAX), "which has sum prod avg");
    refused(GYRE_INT32_INT32, GYRE_OP(GYRE_MIN), "which has minloc maxloc");
    refused(GYRE_INT32, GYRE_OP(GYRE_MINLOC), "float32_int32");
    refused(GYRE_BOOL, GYRE_SCALED_SUM(2.0), "bool");
}

int main(void)
{
    static const gyre_type_t integers[] = {GYRE_INT8,   GYRE_UINT8, GYRE_INT16,  GYRE_UINT16, GYRE_INT32,
                                           GYRE_UINT32, GYRE_INT64, GYRE_UINT64, GYRE_BOOL};
    static const gyre_redop_kind_t sums[] = {GYRE_SUM, GYRE_PROD, GYRE_MIN, GYRE_MAX};
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    n = gyre_comm_size(world);
    for (size_t t = 0; t < sizeof integers / sizeof *integers; t++)
        for (int op = GYRE_BAND; op <= GYRE_LXOR; op++)
            reduces(integers[t], (gyre_redop_kind_t)op, 1 + (t * 13 + (size_t)op) * (op % 2 ? 1 : 17));
    for (size_t count = 1; count <= MOST; count = count * 11 + 1) {
        for (int op = 0; op < 4; op++) {
            if (op < 2) {
                reduces(GYRE_COMPLEX64, sums[op], count);
                reduces(GYRE_COMPLEX128, sums[op], count);
            }
            reduces(GYRE_FLOAT8_E4M3, sums[op], count);
            reduces(GYRE_FLOAT8_E5M2, sums[op], count);
        }
        reduces(GYRE_COMPLEX128, GYRE_AVG, count);
        for (int type = GYRE_FLOAT32_INT32; type <= GYRE_INT16_INT32; type++) {
            reduces((gyre_type_t)type, GYRE_MINLOC, count);
            reduces((gyre_type_t)type, GYRE_MAXLOC, count);
        }
        for (int type = GYRE_BOOL; type < GYRE_TYPE_COUNT; type++)
            moves((gyre_type_t)type, count);
    }
    scaled();
    refusals();
    MP_OK(gyre_finalize(world));
    return 0;
}
