/* SPDX-License-Identifier: Apache-2.0 */
/* model/kernels/attention/blocks.c: attention in blocks (api.inc). */
#include <string.h>

#include "base/checked.h"
#include "model/kernels/kernels.h"

#include "model/kernels/real.h"

/* Rows first .. of a document, and the whole blocks of columns that they see some of. */
static model_scores_t scores_of(const REAL(model_attention_t) * a, size_t first)
{
    const size_t rows = base_min_size(MODEL_ATTENTION_BLOCK, a->n - first);
    const size_t from = model_first_seen(first, a->window) / MODEL_ATTENTION_BLOCK * MODEL_ATTENTION_BLOCK;
    size_t end = first + rows;
    if (first < a->prefix)
        end = base_max_size(end, base_min_size(a->n, base_round_up(a->prefix, MODEL_ATTENTION_BLOCK)));
    return (model_scores_t){.first = first,
                            .rows = rows,
                            .from = from,
                            .columns = end - from,
                            .prefix = a->prefix,
                            .window = a->window};
}

/* The columns of a block of them, of which s has the first at s->from + at. */
static size_t width(const model_scores_t *s, size_t at)
{
    return base_min_size(MODEL_ATTENTION_BLOCK, s->columns - at);
}

static size_t ld_k(const REAL(model_attention_t) * a)
{
    return a->ld_k ? a->ld_k : a->ld;
}

static size_t value_dim(const REAL(model_attention_t) * a)
{
    return a->value_dim ? a->value_dim : a->head_dim;
}

/* C = op(A) op(B), plus C with `add`. */
static void product(const REAL(model_attention_t) * a, int trans_a, int trans_b, size_t M, size_t N, size_t K,
                    const real *A, size_t lda, const real *B, size_t ldb, int add, real *C, size_t ldc)
{
    if (a->bf16)
        REAL(model_matmul_bf16)(NULL, trans_a, trans_b, M, N, K, A, lda, B, ldb, add, C, ldc);
    else
        REAL(model_matmul)(trans_a, trans_b, M, N, K, 1, A, lda, B, ldb, add ? 1 : 0, C, ldc);
}

/* y [rows, columns] = x [rows,D] times columns of z [n,D], transposed. */
static void across(const REAL(model_attention_t) * a, const model_scores_t *s, real *y, const real *x,
                   size_t ldx, const real *z, size_t D)
{
    for (size_t c = 0; c < s->columns; c += MODEL_ATTENTION_BLOCK) {
        const real *right = z + (s->from + c - a->column) * ld_k(a);
        product(a, 0, 1, s->rows, width(s, c), D, x + (s->first - a->row) * ldx, ldx, right, ld_k(a), 0,
                y + c, s->columns);
    }
}

/* Rows of y [n,D] = w [rows, columns] times z [n,D]. */
static void gather(const REAL(model_attention_t) * a, const model_scores_t *s, real *y, size_t ldy,
                   const real *w, const real *z, size_t D)
{
    for (size_t c = 0; c < s->columns; c += MODEL_ATTENTION_BLOCK) {
        const real *right = z + (s->from + c - a->column) * ld_k(a);
        product(a, 0, 0, s->rows, D, width(s, c), w + c, s->columns, right, ld_k(a), c > 0,
                y + (s->first - a->row) * ldy, ldy);
    }
}

/* Columns of y [n,D], of the gradients of keys or values, += w [rows, columns], transposed, times rows of x
 * [n,D]. The first rows that see a column write it, unless `add`. */
static void scatter(const REAL(model_attention_t) * a, const model_scores_t *s, real *y, const real *w,
                    const real *x, size_t ldx, size_t D, int add)
{
    for (size_t c = 0; c < s->columns; c += MODEL_ATTENTION_BLOCK) {
        const size_t column = s->from + c, writer = column < a->prefix ? 0 : column;
        product(a, 1, 0, width(s, c), D, s->rows, w + c, s->columns, x + (s->first - a->row) * ldx, ldx,
                add || s->first > writer, y + (column - a->column) * ld_k(a), ld_k(a));
    }
}

static void store(const REAL(model_attention_t) * a, const model_scores_t *s, real *x)
{
    if (a->round)
        a->round(x, s->rows * s->columns);
}

/* y = dropout of weights, or of their gradients, x. */
static void drop(const REAL(model_attention_t) * a, const model_scores_t *s, real *y, const real *x)
{
    for (size_t i = 0; i < s->rows; i++)
        a->k->dropout(y + i * s->columns, x + i * s->columns, a->drop, a->below, a->kept,
                      a->first + (s->first + i) * a->n + s->from, s->columns);
    store(a, s, y);
}

/* a->p, and what dropout leaves of it; kept [2][rows] is made or, with `again`, read. */
static const real *weights_kept(const REAL(model_attention_t) * a, const model_scores_t *s, real *kept,
                                const real *again)
{
    const real scale = a->cap > 0 ? 1 : a->scale;
    across(a, s, a->p, a->query, a->ld, a->key, a->head_dim);
    if (a->cap > 0) {
        a->k->cap(a->p, s->rows * s->columns, a->scale, a->cap);
        memcpy(a->capped, a->p, s->rows * s->columns * sizeof(real));
    }
    if (again)
        a->k->softmax_again(a->p, s, scale, a->slope, a->sink, again);
    else
        a->k->softmax(a->p, s, scale, a->slope, a->sink, a->rest, kept);
    store(a, s, a->p);
    if (!a->drop)
        return a->p;
    drop(a, s, a->dropped, a->p);
    return a->dropped;
}

static const real *weights(const REAL(model_attention_t) * a, const model_scores_t *s)
{
    return weights_kept(a, s, NULL, NULL);
}

void REAL(model_attention_rows)(const REAL(model_attention_t) * a, size_t first, real *o)
{
    const model_scores_t s = scores_of(a, first);
    gather(a, &s, o, a->ld_o, weights(a, &s), a->value, value_dim(a));
}

void REAL(model_attention)(const REAL(model_attention_t) * a, real *o)
{
    for (size_t first = 0; first < a->n; first += MODEL_ATTENTION_BLOCK)
        REAL(model_attention_rows)(a, first, o);
}

/* a->d_p of scores, from a->p and the gradient of what dropout leaves of it; dots: those made (NULL: not
 * kept), or with `again` read. */
static void scores_backward(const REAL(model_attention_t) * a, const model_scores_t *s, const real *d_o,
                            real *dots, const real *again)
{
    const real scale = a->cap > 0 ? 1 : a->scale;
    across(a, s, a->d_p, d_o, a->ld_o, a->value, value_dim(a));
    if (a->drop)
        drop(a, s, a->d_p, a->d_p);
    if (again) {
        a->k->softmax_backward_again(a->d_p, a->p, s, scale, again);
    } else {
        real d_sink = a->k->softmax_backward(a->d_p, a->p, s, scale, a->sink ? a->rest : NULL, dots);
        if (a->sink)
            *a->d_sink = *a->d_sink + d_sink;
    }
    if (a->cap > 0)
        a->k->cap_backward(a->d_p, a->capped, s->rows * s->columns, a->scale, a->cap);
    store(a, s, a->d_p);
}

void REAL(model_attention_rows_backward)(const REAL(model_attention_t) * a, size_t first, const real *d_o,
                                         real *d_q, real *kept)
{
    const model_scores_t s = scores_of(a, first);
    (void)weights_kept(a, &s, kept, NULL);
    scores_backward(a, &s, d_o, kept + 2 * s.rows, NULL);
    gather(a, &s, d_q, a->ld, a->d_p, a->key, a->head_dim);
}

void REAL(model_attention_columns_backward)(const REAL(model_attention_t) * a, size_t first, size_t from,
                                            size_t end, const real *kept, const real *d_o, real *d_k,
                                            real *d_v, int add)
{
    model_scores_t s = scores_of(a, first);
    const size_t to = base_min_size(end, s.from + s.columns);
    s.from = base_max_size(from, s.from);
    if (s.from >= to)
        return;
    s.columns = to - s.from;
    scatter(a, &s, d_v, weights_kept(a, &s, NULL, kept), d_o, a->ld_o, value_dim(a), add);
    scores_backward(a, &s, d_o, NULL, kept + 2 * s.rows);
    scatter(a, &s, d_k, a->d_p, a->query, a->ld, a->head_dim, add);
}

/* dv = p^T do;  dp = do v^T;  ds by softmax;  dq = ds k;  dk = ds^T q */
void REAL(model_attention_backward)(const REAL(model_attention_t) * a, const real *d_o, real *d_q, real *d_k,
                                    real *d_v, int add)
{
    for (size_t first = 0; first < a->n; first += MODEL_ATTENTION_BLOCK) {
        const model_scores_t s = scores_of(a, first);
        scatter(a, &s, d_v, weights(a, &s), d_o, a->ld_o, value_dim(a), add);
        scores_backward(a, &s, d_o, NULL, NULL);
        gather(a, &s, d_q, a->ld, a->d_p, a->key, a->head_dim);
        scatter(a, &s, d_k, a->d_p, a->query, a->ld, a->head_dim, add);
    }
}
