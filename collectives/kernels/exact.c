/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/exact.c: sums and averages that are rounded once.
 *
 * A block of elements takes the first of three ways that is proved exact for it.
 *
 * 1. Floats of 32 and 16 bits are added in double, and doubles as sums and errors: s + e, where the errors of
 *    s's additions (two-sum) are added up in e. The processor's "inexact" flag, clear afterwards, proves that
 *    no addition (of e's) was rounded: a whole block costs one look at it. Then s (s + e) is the exact sum.
 * 2. Otherwise s + e with the error of each addition to e looked at, element by element.
 * 3. Elements where that was not exact, either, or not finite: a sum in fixed point (wide.h).
 *
 * Rounding s + e to double is one addition. A shorter format gets s + e rounded to odd first (S. Boldo, G.
 * Melquiond, "Emulation of FMA and correctly rounded sums", IEEE TC 57, 2008): what is not a double becomes
 * a neighbour with an odd significand, which cannot lie on a tie of the shorter format or change sides of
 * one, so the second rounding is right. So it is with a quotient of it by k in between: a tie times k has
 * fewer bits than a double, so it is even. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/checked.h"
#include "base/thread/cacheline.h"
#include "collectives/kernels/fpmode.h"
#include "collectives/kernels/isa.h"
#include "collectives/kernels/kernels.h"
#include "collectives/kernels/wide.h"

enum { MOST_AT_ONCE = 8, MAX_DIVISOR = 1 << 15 /* of the loops; larger ones go the third way */ };

/* One call. */
typedef struct {
    const kernel_exact_t *loops;
    gyre_type_t type;
    size_t elem;
    unsigned char *dst;
    const void *const *srcs;
    int k;
    int divisor; /* k of an average, else 1 */
    int flags_tell;
} job_t;

/* Scratch for one block. */
typedef struct {
    _Alignas(64) double s[EXACT_BLOCK];
    double e[EXACT_ROW], x[EXACT_ROW];
    uint64_t bad[EXACT_ROW];
    double rows[MOST_AT_ONCE][EXACT_ROW];
} room_t;

static int is_power_of_two(int k)
{
    return (k & (k - 1)) == 0;
}

/* ---- one element, in fixed point ---- */
static double load(gyre_type_t type, const void *at)
{
    uint16_t h;
    float f;
    double d;
    switch (type) {
    case GYRE_FLOAT16:
        memcpy(&h, at, sizeof h);
        return (double)coll_half_to_float(h);
    case GYRE_BFLOAT16:
        memcpy(&h, at, sizeof h);
        return (double)coll_bfloat_to_float(h);
    case GYRE_FLOAT32:
        memcpy(&f, at, sizeof f);
        return (double)f;
    default:
        memcpy(&d, at, sizeof d);
        return d;
    }
}

static const coll_format_t *format_of(gyre_type_t type)
{
    switch (type) {
    case GYRE_FLOAT16:
        return &coll_format_half;
    case GYRE_BFLOAT16:
        return &coll_format_bfloat;
    case GYRE_FLOAT32:
        return &coll_format_float;
    default:
        return &coll_format_double;
    }
}

static double slow_value(const job_t *job, size_t i)
{
    double special = 0; /* the sum of what is not finite: an infinity, or NaN */
    int all_minus_zero = 1;
    coll_wide_t wide;
    coll_wide_clear(&wide);
    for (int j = 0; j < job->k; j++) {
        double x = load(job->type, (const unsigned char *)job->srcs[j] + i * job->elem);
        if (x != 0 || !signbit(x))
            all_minus_zero = 0;
        if (isfinite(x))
            coll_wide_add(&wide, x);
        else
            special += x;
    }
    if (isnan(special))
        return (double)NAN;
    if (special != 0)
        return special;
    if (all_minus_zero)
        return -0.0;
    return coll_wide_round_few(&wide, (uint32_t)job->divisor, format_of(job->type));
}

/* ---- the ways of a block ---- */

/* How many of `left` sources are taken at once: 8, 4, 2 or 1; *arity is its place in the tables. */
static int take_sources(int left, int *arity)
{
    *arity = left >= 8 ? 3 : left >= 4 ? 2 : left >= 2 ? 1 : 0;
    return 1 << *arity;
}

/* Of `take` sources from number `at` on, the place of element `from`. */
static void point(const job_t *job, const void **to, int at, int take, size_t from)
{
    for (int j = 0; j < take; j++)
        to[j] = (const unsigned char *)job->srcs[at + j] + from * job->elem;
}

/* Halves become floats in `rows`, where `to` points then. */
static void widen(const job_t *job, const void **to, int take, double (*rows)[EXACT_ROW], size_t count)
{
    for (int j = 0; j < take; j++) {
        job->loops->widen_f16((float *)(void *)rows[j], to[j], count);
        to[j] = rows[j];
    }
}

/* s = the sums of short floats. 0: not proved exact. */
static int sum_short(const job_t *job, room_t *room, size_t from, size_t count)
{
    const int kind = job->type == GYRE_BFLOAT16;
    if (!job->flags_tell)
        return 0;
    fpmode_clear();
    for (int at = 0, take, arity; at < job->k; at += take) {
        const void *x[MOST_AT_ONCE];
        take = take_sources(job->k - at, &arity);
        point(job, x, at, take, from);
        if (job->type == GYRE_FLOAT16)
            widen(job, x, take, room->rows, count);
        (at == 0 ? job->loops->sum : job->loops->sum_more)[kind][arity](room->s, x, count);
    }
    return !fpmode_raised(FPMODE_INEXACT);
}

/* s + e = the sums of doubles. 0: not proved exact. */
static int sum_long(const job_t *job, room_t *room, size_t from, size_t count)
{
    const kernel_exact_t *loops = job->loops;
    const void *errors[MOST_AT_ONCE];
    if (!job->flags_tell)
        return 0;
    for (int j = 0; j < MOST_AT_ONCE; j++)
        errors[j] = room->rows[j];
    memset(room->e, 0, count * sizeof *room->e);
    for (int at = 0, take, arity; at < job->k; at += take) {
        const void *x[MOST_AT_ONCE];
        take = take_sources(job->k - at, &arity);
        point(job, x, at, take, from);
        (at == 0 ? loops->split : loops->split_more)[arity](room->s, room->rows[0], x, count);
        if (at == 0 && take == 1)
            continue;
        fpmode_clear();
        (at == 0 ? loops->errors : loops->errors_more)[arity](room->e, errors, count);
        if (fpmode_raised(FPMODE_INEXACT))
            return 0;
    }
    return 1;
}

/* s + e = the sums, at most EXACT_ROW of them; `bad` says where not. */
static void sum_carefully(const job_t *job, room_t *room, double *s, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        s[i] = -0.0, room->e[i] = 0;
    memset(room->bad, 0, count * sizeof *room->bad);
    for (int j = 0; j < job->k; j++) {
        const void *x;
        point(job, &x, j, 1, from);
        if (job->type == GYRE_FLOAT64) {
            memcpy(room->x, x, count * sizeof *room->x);
        } else {
            if (job->type == GYRE_FLOAT16)
                widen(job, &x, 1, room->rows, count);
            job->loops->sum[job->type == GYRE_BFLOAT16][0](room->x, &x, count);
        }
        job->loops->pair(s, room->e, room->bad, room->x, count);
    }
}

/* Whether all elements go the third way. */
static int too_large(const job_t *job)
{
    return job->divisor > MAX_DIVISOR;
}

static void mend(const job_t *job, room_t *room, double *s, size_t from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (room->bad[i])
            s[i] = slow_value(job, from + i);
    }
}

static void reduce_short(const job_t *job, room_t *room, size_t from, size_t count)
{
    const int whole = is_power_of_two(job->divisor);
    double scale = whole ? 1.0 / job->divisor : 1.0;
    if (!too_large(job) && sum_short(job, room, from, count)) {
        if (!whole)
            job->loops->divide(room->s, count, job->divisor);
    } else {
        for (size_t done = 0, row; done < count; done += row) {
            double *s = room->s + done;
            row = base_min_size(count - done, EXACT_ROW);
            sum_carefully(job, room, s, from + done, row);
            if (too_large(job))
                memset(room->bad, 1, row * sizeof *room->bad);
            job->loops->join(s, room->e, row);
            job->loops->divide(s, row, job->divisor);
            mend(job, room, s, from + done, row);
        }
        scale = 1.0;
    }
    job->loops->to[job->type - GYRE_FLOAT16](job->dst + from * job->elem, room->s, count, scale);
}

static void reduce_long(const job_t *job, room_t *room, size_t from, size_t count)
{
    uint64_t any;
    if (sum_long(job, room, from, count))
        memset(room->bad, 0, count * sizeof *room->bad);
    else
        sum_carefully(job, room, room->s, from, count);
    if (too_large(job))
        memset(room->bad, 1, count * sizeof *room->bad);
    if (job->divisor == 1)
        any = job->loops->finish_sum(room->s, room->e, room->bad, count);
    else
        any = job->loops->finish_average(room->s, room->e, room->bad, count, job->divisor);
    if (any)
        mend(job, room, room->s, from, count);
    memcpy(job->dst + from * job->elem, room->s, count * sizeof *room->s);
}

void coll_kernel_reduce_exact(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *const *srcs,
                              int k, size_t count)
{
    if (count == 0)
        return;
    if (type == GYRE_COMPLEX64 || type == GYRE_COMPLEX128) {
        type = type == GYRE_COMPLEX64 ? GYRE_FLOAT32 : GYRE_FLOAT64;
        count *= 2;
    }
    const kernel_exact_t *loops = coll_kernel_table()->exact;
    const fpmode_t before = fpmode_enter();
    if (op == GYRE_SUM && k == 2) {
        loops->add[type - GYRE_FLOAT16](dst, srcs, count);
        fpmode_leave(before);
        return;
    }

    const job_t job = {.loops = loops,
                       .type = type,
                       .elem = gyre_type_size(type),
                       .dst = dst,
                       .srcs = srcs,
                       .k = k,
                       .divisor = op == GYRE_AVG ? k : 1,
                       .flags_tell = fpmode_tells()};
    room_t room;
    const int rows = type == GYRE_FLOAT64 || type == GYRE_FLOAT16;
    for (size_t from = 0, block; from < count; from += block) {
        block = base_min_size(count - from, rows ? EXACT_ROW : EXACT_BLOCK);
        base_claim(job.dst + from * job.elem, block * job.elem);
        (type == GYRE_FLOAT64 ? reduce_long : reduce_short)(&job, &room, from, block);
    }
    fpmode_leave(before);
}
