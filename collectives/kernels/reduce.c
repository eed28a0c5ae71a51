/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/kernels/reduce.c: chooses the instruction set and puts reductions over any number of sources
 * together from the straight-line kernels over 2, 3, 4 and 8. */
#include "collectives/kernels/kernels.h"

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/checked.h"
#include "base/machine/copy.h"
#include "base/defined.h"
#include "base/thread/cacheline.h"
#include "base/log.h"
#include "base/settings/settings.h"
#include "collectives/kernels/float16.h"
#include "collectives/kernels/isa.h"

/* ---- which instruction set ---- */
#if defined(__x86_64__)
static int has_avx2(void)
{
    unsigned a, b, c, d; /* not every compiler's __builtin_cpu_supports has a name for F16C */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

static int has_baseline(void)
{
    return 1;
}

/* Best first. */
static const struct {
    const kernel_table_t *table;
    int (*here)(void);
} available[] = {
#if defined(__x86_64__)
    {&coll_kernels_avx512, has_avx512},
    {&coll_kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {&coll_kernels_neon, has_baseline},
#endif
    {&coll_kernels_scalar, has_baseline},
};

/* What is in use; NULL until first asked. Threads that race to choose store the same pointer. */
static _Atomic(const kernel_table_t *) selected;

static const kernel_table_t *find(const char *isa)
{
    if (isa == NULL)
        isa = "auto";
    int any = strcmp(isa, "auto") == 0;
    for (size_t i = 0; i < sizeof available / sizeof *available; i++) {
        if ((any || strcmp(isa, available[i].table->name) == 0) && available[i].here())
            return available[i].table;
    }
    return NULL;
}

int coll_kernel_select(const char *isa)
{
    const kernel_table_t *table = find(isa);
    if (!table)
        return 0;
    atomic_store_explicit(&selected, table, memory_order_release);
    return 1;
}

static __attribute__((noinline)) const kernel_table_t *choose(void)
{
    const char *wanted = base_setting_string(SET_KERNELS);
    const kernel_table_t *table = find(wanted);
    if (!table) {
        table = find(NULL);
        log_warning("GYRE_KERNELS=%s: this machine cannot run these; using %s", wanted, table->name);
    }
    atomic_store_explicit(&selected, table, memory_order_release);
    return table;
}

const kernel_table_t *coll_kernel_table(void)
{
    const kernel_table_t *table = atomic_load_explicit(&selected, memory_order_acquire);
    return __builtin_expect(table != NULL, 1) ? table : choose();
}

const char *coll_kernel_isa(void)
{
    return coll_kernel_table()->name;
}

/* The table in use, or the only one that has the type. */
static const kernel_table_t *kernels_of(gyre_type_t type)
{
    switch (type) {
    case GYRE_FLOAT8_E4M3:
    case GYRE_FLOAT8_E5M2:
    case GYRE_FLOAT32_INT32:
    case GYRE_FLOAT64_INT32:
    case GYRE_INT32_INT32:
    case GYRE_INT64_INT32:
    case GYRE_INT16_INT32:
        return &coll_kernels_scalar;
    default:
        return coll_kernel_table();
    }
}

/* The scalar kernels have all that others have. */
int coll_kernel_has(gyre_redop_kind_t op, gyre_type_t type)
{
    return (unsigned)op < GYRE_REDOP_COUNT && (unsigned)type < GYRE_TYPE_COUNT &&
           coll_kernels_scalar.reduce[op][type][KERNEL_OF_2] != NULL;
}

/* ---- reductions over any number of sources ----
 *
 * Sources are taken from left to right in groups of 8, then of 4, 3, 2 or 1: the sizes of the canonical
 * tree's left parts. Each group is reduced into one row of a small stack. Two neighbouring rows of equal
 * weight (a power of two) are merged at once, as a binary counter carries. The rows that remain at the end
 * are the left parts of the tree's right spine, from large to small. They are combined from the right. All of
 * this is done for one block at a time: the rows stay in the first-level cache, so memory is read once per
 * source and written once. */
enum {
    BLOCK_BYTES = 1024,
    STACK_ROWS = 32 /* 2^31 sources in groups of 8, plus the rows of the last groups */
};

typedef struct {
    const void *data; /* in `room`, or a source itself for a group of one */
    int weight;       /* sources in it */
} row_t;

static void reduce_block(const kernel_reduce_fn *fn, unsigned char (*room)[BLOCK_BYTES], void *dst,
                         const void *const *srcs, int k, size_t offset, size_t count)
{
    row_t rows[STACK_ROWS];
    int depth = 0;
    for (int at = 0; at < k;) {
        int left = k - at;
        int take = left >= 8 ? 8 : left >= 4 ? 4 : left;
        const void *group[8];
        for (int j = 0; j < take; j++)
            group[j] = (const unsigned char *)srcs[at + j] + offset;
        if (take == 1) {
            rows[depth].data = group[0];
        } else {
            kernel_arity_t arity = take == 8   ? KERNEL_OF_8
                                   : take == 4 ? KERNEL_OF_4
                                   : take == 3 ? KERNEL_OF_3
                                               : KERNEL_OF_2;
            fn[arity](room[depth], group, count);
            rows[depth].data = room[depth];
        }
        rows[depth++].weight = take;
        at += take;
        while (depth > 1 && rows[depth - 1].weight == rows[depth - 2].weight && at < k) {
            const void *pair[2] = {rows[depth - 2].data, rows[depth - 1].data};
            depth--;
            fn[KERNEL_OF_2](room[depth - 1], pair, count);
            rows[depth - 1].data = room[depth - 1];
            rows[depth - 1].weight *= 2;
        }
    }
    while (depth > 1) { /* from the right; the last combination goes to dst, after every source was read */
        const void *pair[2] = {rows[depth - 2].data, rows[depth - 1].data};
        depth--;
        void *to = depth == 1 ? (void *)((unsigned char *)dst + offset) : room[depth - 1];
        fn[KERNEL_OF_2](to, pair, count);
        rows[depth - 1].data = to;
    }
}

static void reduce_many(const kernel_reduce_fn *fn, void *dst, const void *const *srcs, int k, size_t count,
                        size_t elem)
{
    _Alignas(64) unsigned char room[STACK_ROWS][BLOCK_BYTES];
    const size_t block = BLOCK_BYTES / elem;
    for (size_t i = 0; i < count; i += block)
        reduce_block(fn, room, dst, srcs, k, i * elem, count - i < block ? count - i : block);
}

/* With one kernel call per block, so that the lines of the next block can be claimed meanwhile. */
static void reduce_straight(kernel_reduce_fn fn, void *dst, const void *const *srcs, int k, size_t count,
                            size_t elem)
{
    const size_t block = BLOCK_BYTES / elem;
    unsigned char *to = dst;
    const void *at[8];
    if (count <= block) {
        base_claim(to, count * elem);
        fn(to, srcs, count);
        return;
    }
    for (int j = 0; j < k; j++)
        at[j] = srcs[j];
    base_claim(to, BLOCK_BYTES);
    while (count > block) {
        base_claim(to + BLOCK_BYTES, base_min_size(count - block, block) * elem);
        fn(to, at, block);
        to += BLOCK_BYTES;
        for (int j = 0; j < k; j++)
            at[j] = (const unsigned char *)at[j] + BLOCK_BYTES;
        count -= block;
    }
    fn(to, at, count);
}

/* Of one source the result is the source, but for results that not every value can be: truth is 0 or 1, and
 * padding is 0. Those x are what "x or x" or "the first of x and x" gives. */
static void reduce_one(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *src, size_t count)
{
    const void *const twice[2] = {src, src};
    if (op == GYRE_LAND || op == GYRE_LOR || op == GYRE_LXOR)
        kernels_of(type)->reduce[GYRE_LOR][type][KERNEL_OF_2](dst, twice, count);
    else if (op == GYRE_MINLOC || op == GYRE_MAXLOC)
        kernels_of(type)->reduce[op][type][KERNEL_OF_2](dst, twice, count);
    else
        coll_kernel_copy(dst, src, count * gyre_type_size(type));
}

void coll_kernel_reduce(gyre_redop_kind_t op, gyre_type_t type, void *dst, const void *const *srcs, int k,
                        size_t count)
{
    if (count == 0)
        return;
    const kernel_reduce_fn *fn = kernels_of(type)->reduce[op][type];
    const size_t elem = base_type_size(type);
    /* NOLINTBEGIN(clang-analyzer-core.NullDereference): the caller knows that the type has this */
    switch (k) {
    case 1:
        reduce_one(op, type, dst, srcs[0], count);
        return;
    case 2:
        reduce_straight(fn[KERNEL_OF_2], dst, srcs, k, count, elem);
        return;
    case 3:
        reduce_straight(fn[KERNEL_OF_3], dst, srcs, k, count, elem);
        return;
    case 4:
        reduce_straight(fn[KERNEL_OF_4], dst, srcs, k, count, elem);
        return;
    case 8:
        reduce_straight(fn[KERNEL_OF_8], dst, srcs, k, count, elem);
        return;
    default:
        reduce_many(fn, dst, srcs, k, count, elem);
    }
    /* NOLINTEND(clang-analyzer-core.NullDereference) */
}

/* ---- the rest ---- */

uint64_t coll_kernel_whole(double factor)
{
    if (isnan(factor))
        return 0;
    if (factor >= 0x1p64)
        return UINT64_MAX;
    if (factor >= 0x1p63)
        return (uint64_t)factor;
    if (factor < -0x1p63)
        return (uint64_t)INT64_MIN;
    return (uint64_t)(int64_t)factor;
}

void coll_kernel_scale(gyre_type_t type, void *dst, const void *src, size_t count, double factor)
{
    if (count > 0)
        kernels_of(type)->scale[type](dst, src, count, factor, coll_kernel_whole(factor));
}

void coll_kernel_divide(gyre_type_t type, void *buf, size_t count, int n)
{
    if (count > 0)
        kernels_of(type)->divide[type](buf, count, n);
}

void coll_kernel_copy(void *dst, const void *src, size_t bytes)
{
    if (bytes > 0 && dst != src)
        base_copy(dst, src, bytes);
}

float coll_half_to_float(unsigned short h)
{
    return kernel_from_half(h);
}

unsigned short coll_float_to_half(float f)
{
    return kernel_to_half(f);
}

float coll_bfloat_to_float(unsigned short h)
{
    return kernel_from_bfloat(h);
}

unsigned short coll_float_to_bfloat(float f)
{
    return kernel_to_bfloat(f);
}
