/* SPDX-License-Identifier: Apache-2.0 */
/* optim/muon.c: momentum, and its matrices made orthogonal (optim/muon.h). */
#include <math.h>

#include "base/checked.h"
#include "model/kernels/kernels.h"
#include "optim/muon.h"

#define STEPS 5
static const float newton_a = 3.4445f, newton_b = -4.7750f, newton_c = 2.0315f;

/* A matrix in a row as it lies in files: rows [row, row + rows) and columns [column, column + columns). */
typedef struct {
    size_t row, rows, column, columns;
} block_t;

int optim_muon_takes(const model_param_t *row)
{
    return row->dims == 2 && !row->frozen && row->kind < MODEL_KINDS && model_kind_of_layers(row->kind);
}

void optim_muon_momentum(float momentum, float scale, float *restrict m, const float *restrict grad, size_t n)
{
    const float other = 1.0f - momentum;
    for (size_t i = 0; i < n; i++)
        m[i] = momentum * m[i] + other * (grad[i] * scale);
}

void optim_muon_look_ahead(float momentum, float scale, const float *restrict m, const float *restrict grad,
                           float *restrict u, size_t n)
{
    const float other = 1.0f - momentum;
    for (size_t i = 0; i < n; i++)
        u[i] = momentum * m[i] + other * (grad[i] * scale);
}

void optim_muon_apply(float keep, float rate, float *restrict w, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        w[i] = w[i] * keep - rate * x[i];
}

/* How many matrices lie below each other: experts; and side by side: q, k, v, or gate and up, or latents. */
static void count_blocks(const model_config_t *config, const model_param_t *row, size_t *down, size_t *across)
{
    const int experts = row->kind == MODEL_EXPERT_PROJ_W || row->kind == MODEL_EXPERT_FC_W;
    *down = experts ? config->experts : 1;
    *across = row->kind == MODEL_EXPERT_FC_W && config->gated ? 2
              : row->cut == 1 || row->kind == MODEL_LATENT_W  ? row->parts
                                                              : 1;
}

static block_t block_of(const model_param_t *row, size_t down, size_t across, size_t i)
{
    const size_t part = i % across;
    block_t b = {.rows = row->shape[0] / down, .columns = row->shape[1] / across};
    b.row = i / across * b.rows;
    b.column = part * b.columns;
    if (row->kind != MODEL_EXPERT_FC_W && across == row->parts) { /* k and v may be narrower than q */
        b.column = 0;
        for (size_t p = 0; p < part; p++)
            b.column += row->part[p];
        b.columns = across > 1 ? row->part[part] : row->shape[1];
    }
    return b;
}

static size_t aligned(size_t n)
{
    return (n + 15) / 16 * 16;
}

size_t optim_muon_work(const model_config_t *config, const model_param_t *row)
{
    size_t down, across, most = 0;
    count_blocks(config, row, &down, &across);
    for (size_t i = 0; i < across; i++) { /* experts are alike */
        const block_t b = block_of(row, down, across, i);
        const size_t side = base_min_size(b.rows, b.columns);
        most = base_max_size(most, 2 * aligned(b.rows * b.columns) + 2 * aligned(side * side));
    }
    return most;
}

/* Between the canonical row and the block in x, whose rows are the block's columns if it is higher than wide.
 * out: from the row; else times `factor` into it. */
static void move_block(const model_param_t *row, const block_t *b, float *canonical, float *x, int out,
                       float factor)
{
    const size_t width = row->shape[1], total = row->leaves * row->leaf_count;
    const int turned = b->rows > b->columns;
    for (size_t i = 0, n; i < total; i += n) {
        const size_t at = model_param_place(row, i), r = at / width, c = at % width;
        n = base_min_size(model_param_run(row, i), width - c);
        const size_t from = base_max_size(c, b->column), to = base_min_size(c + n, b->column + b->columns);
        if (r < b->row || r >= b->row + b->rows)
            continue;
        for (size_t j = from; j < to; j++) {
            float *here = canonical + i + (j - c),
                  *there = x + (turned ? (j - b->column) * b->rows + (r - b->row)
                                       : (r - b->row) * b->columns + (j - b->column));
            if (out)
                *there = *here;
            else
                *here = factor * *there;
        }
    }
}

static void scale_by(float factor, const float *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = factor * from[i];
}

/* x [m, n], m <= n, becomes orthogonal; y [m, n], a and b [m, m]. Returns where it lies, x or y. */
static float *orthogonal(float *x, float *y, float *a, float *b, size_t m, size_t n)
{
    double squares = 0.0;
    for (size_t i = 0; i < m * n; i++)
        squares += (double)x[i] * (double)x[i];
    scale_by((float)(1.0 / (sqrt(squares) + 1e-7)), x, x, m * n);
    for (int k = 0; k < STEPS; k++) {
        model_matmul_f32(0, 1, m, m, n, 1.0f, x, n, x, n, 0.0f, a, m);
        scale_by(newton_b, a, b, m * m);
        model_matmul_f32(0, 0, m, m, m, newton_c, a, m, a, m, 1.0f, b, m);
        scale_by(newton_a, x, y, m * n);
        model_matmul_f32(0, 0, m, n, m, 1.0f, b, m, x, n, 1.0f, y, n);
        float *other = x;
        x = y;
        y = other;
    }
    return x;
}

void optim_muon_direction(const model_config_t *config, const model_param_t *row, float *u, float *work)
{
    size_t down, across;
    count_blocks(config, row, &down, &across);
    for (size_t i = 0; i < down * across; i++) {
        const block_t b = block_of(row, down, across, i);
        const size_t m = base_min_size(b.rows, b.columns), n = base_max_size(b.rows, b.columns);
        float *x = work, *y = x + aligned(m * n), *gram = y + aligned(m * n);
        move_block(row, &b, u, x, 1, 1.0f);
        x = orthogonal(x, y, gram, gram + aligned(m * m), m, n);
        move_block(row, &b, u, x, 0, (float)(0.2 * sqrt((double)n)));
    }
}
