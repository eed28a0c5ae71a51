/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/accumulate.c: exact sums over long arrays.
 *
 * Vectors add a block to lanes of doubles and keep the errors of these additions (two-sum). The errors are
 * added to other lanes, and a clear "inexact" flag proves that no bit was lost there; where it is raised,
 * their errors are kept, too, in a third row of lanes. What a third row cannot take exactly, and blocks
 * with numbers that are not finite, with products that lose bits to underflow, or with sums that overflow,
 * go into a sum in fixed point (wide.h), number by number. Nothing is ever rounded, so the value does not
 * depend on the way that it took.
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
    FEW = 16      /* so many numbers go into the fixed-point sum at once */
};

/* One block: numbers or products, what the products lack, and errors of two levels. */
typedef struct {
    _Alignas(64) double p[BLOCK];
    double low[BLOCK], error[BLOCK], error_of_error[BLOCK], error_of_low[BLOCK];
} room_t;

/* ---- the total ---- */
static void set_lanes(double *lanes, double value)
{
    for (int i = 0; i < COLL_LANES; i++)
        lanes[i] = value;
}

void coll_accumulator_clear(coll_accumulator_t *a)
{
    memset(&a->total, 0, sizeof a->total);
    set_lanes(a->s, -0.0); /* stays -0 while only -0 is added */
    set_lanes(a->e, 0.0);
    set_lanes(a->f, 0.0);
}

static void add_lanes(coll_total_t *total, const double *lanes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (lanes[i] != 0)
            coll_wide_add(&total->wide, lanes[i]);
    }
}

static int is_minus_zero(double x)
{
    return x == 0 && signbit(x);
}

static void add_all_lanes(coll_total_t *total, const coll_accumulator_t *a)
{
    for (int i = 0; i < COLL_LANES; i++)
        total->seen[COLL_SEEN_OTHER] |= !is_minus_zero(a->s[i]);
    add_lanes(total, a->s, COLL_LANES);
    add_lanes(total, a->e, COLL_LANES);
    add_lanes(total, a->f, COLL_LANES);
}

void coll_accumulator_settle(coll_accumulator_t *a)
{
    add_all_lanes(&a->total, a);
    set_lanes(a->s, -0.0);
    set_lanes(a->e, 0.0);
    set_lanes(a->f, 0.0);
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
    return coll_wide_round(&total.wide, 1, &coll_format_double);
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

/* lanes f += errors of errors; what they do not hold exactly goes into the total. */
static void add_last_errors(coll_accumulator_t *a, const kernel_accumulate_t *loops, const room_t *room,
                            int have_low, size_t rows)
{
    for (int fresh = 0; fresh < 2; fresh++) {
        double f[COLL_LANES];
        memcpy(f, a->f, sizeof f);
        fpmode_clear();
        loops->flat(f, room->error_of_error, rows);
        if (have_low)
            loops->flat(f, room->error_of_low, rows);
        if (!fpmode_raised(FPMODE_INEXACT)) {
            memcpy(a->f, f, sizeof f);
            return;
        }
        add_lanes(&a->total, a->f, COLL_LANES);
        set_lanes(a->f, 0.0);
    }
    add_lanes(&a->total, room->error_of_error, rows * COLL_LANES);
    if (have_low)
        add_lanes(&a->total, room->error_of_low, rows * COLL_LANES);
}

/* a += p (+ room->low): rows of lanes, padded with -0 (+0). The flags are those of making them. 0: nothing
 * was added, as something is not finite or lost bits. */
static int add_rows(coll_accumulator_t *a, const kernel_accumulate_t *loops, room_t *room, const void *p,
                    int have_low, size_t rows)
{
    double s[COLL_LANES], e[COLL_LANES];
    memcpy(s, a->s, sizeof s);
    loops->level(s, room->error, p, rows);
    if (fpmode_raised(FPMODE_RANGE) || !all_finite(s))
        return 0;
    memcpy(e, a->e, sizeof e);
    if (!have_low) {
        fpmode_clear();
        loops->flat(e, room->error, rows);
        if (!fpmode_raised(FPMODE_INEXACT)) {
            memcpy(a->s, s, sizeof s);
            memcpy(a->e, e, sizeof e);
            return 1;
        }
        memcpy(e, a->e, sizeof e);
    }
    loops->level(e, room->error_of_error, room->error, rows);
    if (have_low)
        loops->level(e, room->error_of_low, room->low, rows);
    memcpy(a->s, s, sizeof s);
    memcpy(a->e, e, sizeof e);
    add_last_errors(a, loops, room, have_low, rows);
    return 1;
}

static void add_block(coll_accumulator_t *a, room_t *room, const void *x, const void *y, size_t count,
                      gyre_type_t type)
{
    const kernel_table_t *table = coll_kernel_table();
    const kernel_accumulate_t *loops = table->accumulate;
    const size_t whole = base_round_up(count, UNIT);
    const int have_low = y && type == GYRE_FLOAT64;
    const void *p = room->p;
    fpmode_clear();
    if (have_low)
        loops->products_f64(room->p, room->low, x, y, count);
    else if (y)
        loops->products_f32(room->p, x, y, count);
    else if (type == GYRE_FLOAT32)
        table->exact->sum[0][0](room->p, &x, count);
    else if (count == whole)
        p = x;
    else
        memcpy(room->p, x, count * sizeof(double));
    for (size_t i = count; i < whole; i++) {
        room->p[i] = -0.0;
        room->low[i] = 0.0;
    }
    /* What comes next travels while the processor computes. A prefetch never faults. */
    for (size_t ahead = 0; ahead < AHEAD; ahead += BASE_LINE) {
        __builtin_prefetch((const char *)x + count * gyre_type_size(type) + ahead);
        if (y && y != x)
            __builtin_prefetch((const char *)y + count * gyre_type_size(type) + ahead);
    }
    if (add_rows(a, loops, room, p, have_low, whole / COLL_LANES))
        return;
    coll_accumulator_settle(a); /* lanes near the largest double would overflow again and again */
    add_each(&a->total, x, y, count, type);
}

static void add(coll_accumulator_t *a, const void *x, const void *y, size_t count, gyre_type_t type)
{
    const size_t size = gyre_type_size(type);
    room_t room;
    if (count == 0)
        return;
    const fpmode_t before = fpmode_enter();
    const size_t by_each = count <= FEW || !fpmode_tells() ? count : 0;
    a->total.seen[COLL_SEEN_ANY] = 1;
    add_each(&a->total, x, y, by_each, type);
    for (size_t at = by_each, block; at < count; at += block) {
        block = base_min_size(count - at, BLOCK);
        add_block(a, &room, (const unsigned char *)x + at * size,
                  y ? (const unsigned char *)y + at * size : NULL, block, type);
    }
    fpmode_leave(before);
}

void coll_accumulator_add(coll_accumulator_t *a, const void *x, size_t count, gyre_type_t type)
{
    add(a, x, NULL, count, type);
}

void coll_accumulator_add_dot(coll_accumulator_t *a, const void *x, const void *y, size_t count,
                              gyre_type_t type)
{
    add(a, x, y, count, type);
}
