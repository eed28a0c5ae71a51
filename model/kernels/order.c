/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/order.c: finds the order of a product's sums, and follows it for some rows. */
#include "model/kernels/order.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/kernels/kernels.h"

struct model_order {
    const model_kernels_t_f32 *k;
    size_t M, N, K;
    int trans, more, known;
    int fused;          /* of each sum */
    size_t split, step; /* pieces of K: at most `split` terms, or a half of twice that, a multiple of step */
    float *a, *b, *c;   /* [M,K], [N,K] (trans), [M,N]: of the whole product, if the order is not known */
};

/* ---- rows ---------------------------------------------------------------------------------------------- */

/* Terms of the next piece, when `left` are left. */
static size_t piece(const model_order_t *o, size_t left)
{
    if (left >= 2 * o->split)
        return o->split;
    return left > o->split ? (left / 2 + o->step - 1) / o->step * o->step : left;
}

static void follow(const model_order_t *o, size_t n, size_t columns, size_t terms, const float *x, size_t ldx,
                   const float *b, size_t ldb, float *y, size_t ldy)
{
    int more = o->more;
    for (size_t k = 0, count; k < terms; k += count) {
        count = piece(o, o->K - k);
        o->k->chain(y, ldy, x + k, ldx, b + k * ldb, ldb, n, columns, base_min_size(count, terms - k),
                    o->fused, more);
        more = 1;
    }
}

/* Rows stand where they are in the whole product, among rows that do not matter. */
static void make_whole(const model_order_t *o, size_t n, const size_t *at, size_t columns, size_t terms,
                       const float *x, size_t ldx, const float *b, size_t ldb, float *y, size_t ldy)
{
    for (size_t i = 0; i < n; i++) {
        memcpy(o->a + at[i] * o->K, x + i * ldx, terms * sizeof *x);
        memset(o->a + at[i] * o->K + terms, 0, (o->K - terms) * sizeof *x);
        if (o->more)
            memcpy(o->c + at[i] * o->N, y + i * ldy, columns * sizeof *y);
    }
    model_matmul_f32(0, o->trans, o->M, o->N, o->K, 1, o->a, o->K, b, ldb, o->more ? 1 : 0, o->c, o->N);
    for (size_t i = 0; i < n; i++)
        memcpy(y + i * ldy, o->c + at[i] * o->N, columns * sizeof *y);
}

void model_order_rows(const model_order_t *o, size_t n, const size_t *at, size_t columns, size_t terms,
                      const float *x, size_t ldx, const float *b, size_t ldb, float *y, size_t ldy)
{
    if (o->known) {
        follow(o, n, columns, terms, x, ldx, b, ldb, y, ldy);
        return;
    }
    if (o->trans) {
        o->k->transpose(o->b, b, o->K, o->N, ldb);
        b = o->b;
        ldb = o->K;
    }
    for (size_t i = 0, count; i < n; i += count) { /* those of one sequence fit into one product */
        for (count = 1; i + count < n && at[i + count] > at[i + count - 1]; count++)
            ;
        make_whole(o, count, at + i, columns, terms, x + i * ldx, ldx, b, ldb, y + i * ldy, ldy);
    }
}

/* ---- finding it ---------------------------------------------------------------------------------------- */

/* Numbers in [-1, 1) with 24 bits: sums of them round at every step. */
static void fill(float *x, size_t n, uint64_t state)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((int32_t)(state >> 40) - (1 << 23)) * 0x1p-23f;
    }
}

typedef struct {
    float *a, *b, *turned, *c, *start, *rows; /* [M,K], [K,N], [N,K], [M,N], [N], [TOGETHER,N] */
} probe_t;

enum { TOGETHER = 8 };

/* Of n <= TOGETHER rows from m on. */
static int rows_agree(const model_order_t *o, const probe_t *p, size_t m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        memcpy(p->rows + i * o->N, p->start, o->N * sizeof *p->rows);
    follow(o, n, o->N, o->K, p->a + m * o->K, o->K, p->b, o->N, p->rows, o->N);
    return memcmp(p->rows, p->c + m * o->N, n * o->N * sizeof *p->rows) == 0;
}

/* All rows of the whole product; two of them first, which most orders fail. */
static int agrees(const model_order_t *o, const probe_t *p)
{
    if (!rows_agree(o, p, o->M / 2, 1) || !rows_agree(o, p, o->M - 1, 1))
        return 0;
    for (size_t m = 0; m < o->M; m += TOGETHER)
        if (!rows_agree(o, p, m, base_min_size(TOGETHER, o->M - m)))
            return 0;
    return 1;
}

static int all_agree(const model_order_t *o, const probe_t *p, size_t probes)
{
    for (size_t i = 0; i < probes; i++)
        if (!agrees(o, &p[i]))
            return 0;
    return 1;
}

static int search(model_order_t *o, const probe_t *p, size_t probes)
{
    static const size_t splits[] = {SIZE_MAX / 2, 128, 192, 224, 240, 256, 288, 320,
                                    336,          352, 384, 448, 512, 640, 768, 1024};
    static const size_t steps[] = {4, 8, 16, 32};
    for (o->fused = 1; o->fused >= 0; o->fused--)
        for (size_t s = 0; s < sizeof splits / sizeof *splits; s++)
            for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                o->split = splits[s];
                o->step = steps[i];
                if (s > 0 && o->split >= o->K)
                    break; /* as without a split */
                if (all_agree(o, p, probes))
                    return 1;
                if (s == 0)
                    break;
            }
    return 0;
}

static float *take(int *ok, size_t a, size_t b)
{
    size_t count;
    float *p = base_mul(a, b, &count) ? calloc(count + 1, sizeof *p) : NULL;
    *ok &= p != NULL;
    return p;
}

static void probe_free(probe_t *p)
{
    free(p->a);
    free(p->b);
    free(p->turned);
    free(p->c);
    free(p->start);
    free(p->rows);
}

/* A whole product of the numbers of `seed`. 0: no memory. */
static int probe_make(const model_order_t *o, uint64_t seed, probe_t *p)
{
    int ok = 1;
    *p = (probe_t){.a = take(&ok, o->M, o->K),
                   .b = take(&ok, o->K, o->N),
                   .turned = take(&ok, o->N, o->trans ? o->K : 1),
                   .c = take(&ok, o->M, o->N),
                   .start = take(&ok, o->N, 1),
                   .rows = take(&ok, o->N, TOGETHER)};
    if (!ok)
        return 0;
    fill(p->a, o->M * o->K, 3 * seed);
    fill(p->b, o->K * o->N, 3 * seed + 1);
    fill(p->start, o->N, 3 * seed + 2);
    if (o->trans)
        o->k->transpose(p->turned, p->b, o->K, o->N, o->N);
    for (size_t m = 0; m < o->M; m++)
        memcpy(p->c + m * o->N, p->start, o->N * sizeof *p->c);
    model_matmul_f32(0, o->trans, o->M, o->N, o->K, 1, p->a, o->K, o->trans ? p->turned : p->b,
                     o->trans ? o->K : o->N, o->more ? 1 : 0, p->c, o->N);
    return 1;
}

/* Different orders may agree on a few short sums: small products are tried more often. */
static int find(model_order_t *o)
{
    enum { MOST = 64, ENOUGH = 1 << 20 };
    const size_t wanted = base_max_size(1, base_min_size(MOST, ENOUGH / (o->M * o->N * o->K)));
    probe_t p[MOST];
    size_t made = 0;
    int ok = 1;
    for (; ok && made < wanted; made++)
        ok = probe_make(o, made + 1, &p[made]);
    o->known = ok && search(o, p, made);
    while (made > 0)
        probe_free(&p[--made]);
    return ok;
}

gyre_status_t model_order_create(int trans, size_t M, size_t N, size_t K, int more, int fast,
                                 model_order_t **out)
{
    model_order_t *o = calloc(1, sizeof *o);
    int ok = o != NULL;
    if (o) {
        *o = (model_order_t){.k = model_kernels_f32(MODEL_ISA_BEST),
                             .M = M,
                             .N = N,
                             .K = K,
                             .trans = trans,
                             .more = more,
                             .known = fast,
                             .fused = 1,
                             .split = SIZE_MAX / 2,
                             .step = 1};
        model_matmul_init();
        ok = fast || find(o);
    }
    if (ok && !o->known) {
        o->a = take(&ok, M, K);
        o->b = take(&ok, N, trans ? K : 1);
        o->c = take(&ok, M, N);
    }
    if (!ok) {
        model_order_destroy(o);
        return gyre_fail(GYRE_ERR_NO_MEMORY,
                         "no memory to find the order of sums of a product of %zu rows (positions), %zu "
                         "columns and %zu terms: take fewer positions (--seq), or --order fast",
                         M, N, K);
    }
    *out = o;
    return GYRE_OK;
}

void model_order_destroy(model_order_t *o)
{
    if (!o)
        return;
    free(o->a);
    free(o->b);
    free(o->c);
    free(o);
}

int model_order_known(const model_order_t *o)
{
    return o->known;
}
