/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/accumulate.c: exact sums over long arrays.
 *
 * Vectors add a block to lanes of doubles and keep the errors of these additions (two-sum). The errors are
 * added to other lanes, and a clear "inexact" flag proves that no bit was lost there. Where it is raised, and
 * for products of doubles, whose low halves are such errors, too, the errors have errors in more lanes: three
 * rows, or five while a block is added. What the last row cannot take exactly, and blocks with numbers that
 * are not finite, with products that lose bits to underflow, or with sums that overflow, go into a sum in
 * fixed point (wide.h), number by number. Nothing is ever rounded, so the value does not depend on the way
 * that it took.
 *
 * Compare R. M. Neal, "Fast exact summation using small and large superaccumulators", 2015 (the fixed-point
 * sum), and T. Ogita, S. M. Rump, S. Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26, 2005
 * (cascades of errors, products by fused multiply-add). */
#include "collectives/kernels/accumulate.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/thread/cacheline.h"
#include "collectives/kernels/fpmode.h"
#include "collectives/kernels/isa.h"

enum {
    BLOCK = 1024,
    UNIT = ACCUMULATE_ROWS * COLL_LANES, /* blocks are padded to multiples of it */
    AHEAD = 1024, /* bytes of the next block that are asked for before this one is added */
    AGAIN = 16,   /* after so many blocks the fastest way is tried again */
    FEW = 16      /* so many numbers go into the fixed-point sum at once */
};

/* One block: numbers, what they are multiplied by, and errors. */
typedef struct {
    _Alignas(64) double p[BLOCK];
    double q[BLOCK], error[BLOCK];
} room_t;

/* Ways to add a block, each for more kinds of numbers and slower than the one before. */
typedef int way_t;
enum { FLAT, LEVELS, DEEP };

/* ---- the total ---- */
static void clear_lanes(coll_accumulator_t *a)
{
    memset(a->lanes, 0, sizeof a->lanes);
    for (int i = 0; i < COLL_LANES; i++)
        a->lanes[0][i] = -0.0; /* stays -0 while only -0 is added */
}

void coll_accumulator_clear(coll_accumulator_t *a)
{
    memset(&a->total, 0, sizeof a->total);
    clear_lanes(a);
}

/* By its bits: a thread that flushes takes a subnormal number for zero. */
static int is_zero(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits << 1 == 0;
}

static void add_lanes(coll_total_t *total, const double *lanes)
{
    for (int i = 0; i < COLL_LANES; i++) {
        if (!is_zero(lanes[i]))
            coll_wide_add(&total->wide, lanes[i]);
    }
}

static int is_minus_zero(double x)
{
    return is_zero(x) && signbit(x);
}

static void add_all_lanes(coll_total_t *total, const coll_accumulator_t *a)
{
    for (int i = 0; i < COLL_LANES; i++)
        total->seen[COLL_SEEN_OTHER] |= !is_minus_zero(a->lanes[0][i]);
    for (int l = 0; l < COLL_LEVELS; l++)
        add_lanes(total, a->lanes[l]);
}

void coll_accumulator_settle(coll_accumulator_t *a)
{
    add_all_lanes(&a->total, a);
    clear_lanes(a);
    coll_wide_carry(&a->total.wide);
    for (int i = 0; i < COLL_SEEN_COUNT; i++)
        a->total.seen[i] = a->total.seen[i] != 0;
}

void coll_accumulator_merge(coll_accumulator_t *a, const coll_accumulator_t *b)
{
    coll_total_t other = b->total;
    add_all_lanes(&other, b);
    coll_wide_merge(&a->total.wide, &other.wide);
    for (int i = 0; i < COLL_SEEN_COUNT; i++)
        a->total.seen[i] |= other.seen[i];
}

double coll_accumulator_value(const coll_accumulator_t *a)
{
    coll_total_t total = a->total;
    add_all_lanes(&total, a);
    if (total.seen[COLL_SEEN_NAN] || (total.seen[COLL_SEEN_PLUS] && total.seen[COLL_SEEN_MINUS]))
        return (double)NAN;
    if (total.seen[COLL_SEEN_PLUS])
        return (double)INFINITY;
    if (total.seen[COLL_SEEN_MINUS])
        return -(double)INFINITY;
    if (total.seen[COLL_SEEN_ANY] && !total.seen[COLL_SEEN_OTHER])
        return -0.0;
    const fpmode_t before = fpmode_enter();
    const double value = coll_wide_round(&total.wide, 1, &coll_format_double);
    fpmode_leave(before);
    return value;
}

/* ---- number by number ---- */
static void add_one(coll_total_t *total, double x)
{
    if (is_minus_zero(x))
        return;
    total->seen[COLL_SEEN_OTHER] = 1;
    if (isfinite(x))
        coll_wide_add(&total->wide, x);
    else
        total->seen[isnan(x) ? COLL_SEEN_NAN : x > 0 ? COLL_SEEN_PLUS : COLL_SEEN_MINUS] = 1;
}

static void add_one_product(coll_total_t *total, double x, double y)
{
    if (!isfinite(x) || !isfinite(y) || x == 0 || y == 0) {
        add_one(total, x * y);
        return;
    }
    total->seen[COLL_SEEN_OTHER] = 1;
    coll_wide_add_product(&total->wide, x, y);
}

static double load(const void *x, size_t i, gyre_type_t type)
{
    double d;
    float f;
    if (type == GYRE_FLOAT32) {
        memcpy(&f, (const float *)x + i, sizeof f);
        return (double)f;
    }
    memcpy(&d, (const double *)x + i, sizeof d);
    return d;
}

static void add_each(coll_total_t *total, const void *x, const void *y, size_t count, gyre_type_t type)
{
    for (size_t i = 0; i < count; i++) {
        if (y)
            add_one_product(total, load(x, i, type), load(y, i, type));
        else
            add_one(total, load(x, i, type));
    }
}

/* ---- block by block ---- */
static int all_finite(const double *lanes)
{
    const uint64_t infinity = 0x7ff0000000000000u;
    uint64_t any = 0;
    for (int i = 0; i < COLL_LANES; i++) {
        uint64_t bits;
        memcpy(&bits, &lanes[i], sizeof bits);
        any |= (bits & infinity) == infinity;
    }
    return !any;
}

/* a += rows of lanes by one row of sums and one of their errors. 0: nothing was added, as an error lost bits,
 * or something is not finite. */
static int add_flat(coll_accumulator_t *a, const kernel_accumulate_t *loops, room_t *room, const void *x,
                    size_t rows)
{
    double lanes[2][COLL_LANES];
    memcpy(lanes, a->lanes, sizeof lanes);
    fpmode_clear();
    loops->level(lanes[0], room->error, x, rows);
    if (fpmode_raised(FPMODE_RANGE) || !all_finite(lanes[0]))
        return 0;
    fpmode_clear();
    loops->flat(lanes[1], room->error, rows);
    if (fpmode_raised(FPMODE_INEXACT))
        return 0;
    memcpy(a->lanes, lanes, sizeof lanes);
    return 1;
}

/* a += rows of lanes of x, or of the products x y (y NULL: x), with errors of errors; deep: and of those.
 * 0 as above. */
static int add_levels(coll_accumulator_t *a, const kernel_accumulate_t *loops, const void *x, const void *y,
                      size_t rows, int deep)
{
    double lanes[COLL_DEEP][COLL_LANES] = {{0}};
    memcpy(lanes, a->lanes, sizeof a->lanes);
    fpmode_clear();
    const uint64_t lost = (deep ? loops->deep : loops->levels)(lanes, x, y, rows);
    if (lost || fpmode_raised(FPMODE_RANGE) || !all_finite(lanes[0]))
        return 0;
    memcpy(a->lanes, lanes, sizeof a->lanes);
    for (int l = COLL_LEVELS; deep && l < COLL_DEEP; l++)
        add_lanes(&a->total, lanes[l]);
    return 1;
}

/* x, padded to whole rows with `pad`, perhaps in `room` */
static const void *padded(double *room, const void *x, size_t count, size_t whole, double pad)
{
    if (count == whole)
        return x;
    memmove(room, x, count * sizeof *room);
    for (size_t i = count; i < whole; i++)
        room[i] = pad;
    return room;
}

/* way: how the block before was added; tried first, and changed to what served. */
static void add_block(coll_accumulator_t *a, room_t *room, const void *x, const void *y, size_t count,
                      gyre_type_t type, way_t *way)
{
    const kernel_table_t *table = coll_kernel_table();
    const kernel_accumulate_t *loops = table->accumulate;
    const size_t whole = base_round_up(count, UNIT), rows = whole / COLL_LANES;
    const void *p = x, *q = type == GYRE_FLOAT64 ? y : NULL;
    if (type == GYRE_FLOAT32) {
        if (y)
            loops->products_f32(room->p, x, y, count);
        else
            table->exact->sum[0][0](room->p, &x, count);
        p = room->p;
    }
    p = padded(room->p, p, count, whole, -0.0);
    if (q)
        q = padded(room->q, q, count, whole, 1.0);
    /* What comes next travels while the processor computes. A prefetch never faults. */
    for (size_t ahead = 0; ahead < AHEAD; ahead += BASE_LINE) {
        __builtin_prefetch((const char *)x + count * gyre_type_size(type) + ahead);
        if (y && y != x)
            __builtin_prefetch((const char *)y + count * gyre_type_size(type) + ahead);
    }
    if (*way == FLAT && !q && add_flat(a, loops, room, p, rows))
        return;
    for (*way += *way == FLAT; *way <= DEEP; ++*way)
        if (add_levels(a, loops, p, q, rows, *way == DEEP))
            return;
    *way = DEEP;
    coll_accumulator_settle(a); /* lanes near the largest double would overflow again and again */
    add_each(&a->total, x, y, count, type);
}

void coll_accumulator_add_dot(coll_accumulator_t *a, const void *x, const void *y, size_t count,
                              gyre_type_t type)
{
    const size_t size = gyre_type_size(type);
    room_t room;
    way_t way = FLAT;
    if (count == 0)
        return;
    const fpmode_t before = fpmode_enter();
    const size_t to_line = (0 - (uintptr_t)x) % BASE_LINE / size; /* vectors that cross lines take longer */
    const size_t by_each = count <= FEW || !fpmode_tells() ? count : count > BLOCK ? to_line : 0;
    a->total.seen[COLL_SEEN_ANY] = 1;
    add_each(&a->total, x, y, by_each, type);
    for (size_t at = by_each, block; at < count; at += block) {
        block = base_min_size(count - at, BLOCK);
        if ((at - by_each) / BLOCK % AGAIN == 0)
            way = FLAT;
        add_block(a, &room, (const unsigned char *)x + at * size,
                  y ? (const unsigned char *)y + at * size : NULL, block, type, &way);
    }
    fpmode_leave(before);
}

void coll_accumulator_add(coll_accumulator_t *a, const void *x, size_t count, gyre_type_t type)
{
    coll_accumulator_add_dot(a, x, NULL, count, type);
}
