/* SPDX-License-Identifier: Apache-2.0 */
/* tests/optim/test_muon.c: Muon's step of each kind of row against doubles, with plain loops over the
 * matrices as files have them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/kernels/kernels.h"
#include "model/random.h"
#include "optim/muon.h"

static const model_config_t dense = {
    .vocab = 17, .seq = 6, .layers = 1, .hidden = 16, .heads = 4, .leaves = 4};
static const model_config_t mixed = {.vocab = 17,
                                     .seq = 6,
                                     .layers = 1,
                                     .hidden = 16,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .ffn = 24,
                                     .leaves = 4,
                                     .gated = 1,
                                     .experts = 4,
                                     .top_k = 2,
                                     .untied = 1};
static const model_config_t gated = {
    .vocab = 17, .seq = 6, .layers = 1, .hidden = 16, .heads = 4, .ffn = 40, .leaves = 2, .gated = 1};

static double *doubles(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* x [rows, columns] becomes 0.2 sqrt(max) times its fifth iterate, by X X^T whatever its shape: that of the
 * transposed one is the transposed. */
static void newton_schulz(double *x, size_t rows, size_t columns)
{
    double *a = doubles(rows * rows), *b = doubles(rows * rows), *y = doubles(rows * columns), squares = 0;
    for (size_t i = 0; i < rows * columns; i++)
        squares += x[i] * x[i];
    for (size_t i = 0; i < rows * columns; i++)
        x[i] /= sqrt(squares) + 1e-7;
    for (int step = 0; step < 5; step++) {
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                a[i * rows + j] = 0;
                for (size_t k = 0; k < columns; k++)
                    a[i * rows + j] += x[i * columns + k] * x[j * columns + k];
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < rows; j++) {
                b[i * rows + j] = -4.7750 * a[i * rows + j];
                for (size_t k = 0; k < rows; k++)
                    b[i * rows + j] += 2.0315 * a[i * rows + k] * a[k * rows + j];
            }
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < columns; j++) {
                y[i * columns + j] = 3.4445 * x[i * columns + j];
                for (size_t k = 0; k < rows; k++)
                    y[i * columns + j] += b[i * rows + k] * x[k * columns + j];
            }
        memcpy(x, y, rows * columns * sizeof *x);
    }
    for (size_t i = 0; i < rows * columns; i++)
        x[i] *= 0.2 * sqrt((double)(rows > columns ? rows : columns));
    free(a);
    free(b);
    free(y);
}

/* Columns [from, from + columns) and rows [top, top + rows) of file [.., width]. */
static void step_block(double *file, size_t width, size_t top, size_t rows, size_t from, size_t columns)
{
    double *x = doubles(rows * columns);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            x[i * columns + j] = file[(top + i) * width + from + j];
    newton_schulz(x, rows, columns);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            file[(top + i) * width + from + j] = x[i * columns + j];
    free(x);
}

/* Which matrices a row has, by hand. */
static void step_row(const model_config_t *c, const model_param_t *row, double *file)
{
    const size_t height = row->shape[0], width = row->shape[1], head = c->head_dim;
    const size_t q = c->heads * head, kv = c->kv_heads * head;
    if (row->kind == MODEL_ATTN_QKV_W) {
        step_block(file, width, 0, height, 0, q);
        step_block(file, width, 0, height, q, kv);
        step_block(file, width, 0, height, q + kv, kv);
    } else if (row->kind == MODEL_MLP_FC_W && c->gated) {
        step_block(file, width, 0, height, 0, c->ffn);
        step_block(file, width, 0, height, c->ffn, c->ffn);
    } else if (row->kind == MODEL_EXPERT_FC_W) {
        for (size_t e = 0; e < c->experts; e++)
            for (size_t half = 0; half < 2; half++)
                step_block(file, width, e * c->hidden, c->hidden, half * c->ffn, c->ffn);
    } else if (row->kind == MODEL_EXPERT_PROJ_W) {
        for (size_t e = 0; e < c->experts; e++)
            step_block(file, width, e * c->ffn, c->ffn, 0, width);
    } else {
        step_block(file, width, 0, height, 0, width);
    }
}

/* Three steps of a row: momentum, direction, weights. */
static double try_row(const model_config_t *c, const model_param_t *row)
{
    const size_t n = row->leaves * row->leaf_count;
    float *w = calloc(n, sizeof *w), *m = calloc(n, sizeof *m), *g = calloc(n, sizeof *g),
          *u = calloc(n, sizeof *u);
    float *file = calloc(n, sizeof *file), *work = NULL;
    double *W = doubles(n), *M = doubles(n), *U = doubles(n), worst = 0;
    assert_true(w && m && g && u && file);
    assert_int_equal(optim_muon_work(c, row) % 16, 0);
    assert_int_equal(posix_memalign((void **)&work, 64, optim_muon_work(c, row) * sizeof *work), 0);
    for (size_t i = 0; i < n; i++)
        w[i] = (float)model_random_normal(5, MODEL_RANDOM_DATA, 1, i);
    model_param_to_file(row, w, file);
    for (size_t i = 0; i < n; i++)
        W[i] = (double)file[i];
    for (uint32_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < n; i++)
            g[i] = (float)model_random_normal(5, MODEL_RANDOM_DATA, 2 + t, i);
        optim_muon_momentum(0.9f, 0.5f, m, g, n);
        optim_muon_look_ahead(0.9f, 0.5f, m, g, u, n);
        optim_muon_direction(c, row, u, work);
        optim_muon_apply(0.99f, 0.02f, w, u, n);
        model_param_to_file(row, g, file);
        for (size_t i = 0; i < n; i++) {
            M[i] = 0.9 * M[i] + 0.1 * 0.5 * (double)file[i];
            U[i] = 0.9 * M[i] + 0.1 * 0.5 * (double)file[i];
        }
        step_row(c, row, U);
        for (size_t i = 0; i < n; i++)
            W[i] = W[i] * 0.99 - 0.02 * U[i];
    }
    model_param_to_file(row, w, file);
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)file[i] - W[i]) / fmax(1.0, fabs(W[i])));
    free(w);
    free(m);
    free(g);
    free(u);
    free(file);
    free(work);
    free(W);
    free(M);
    free(U);
    return worst;
}

static void against_reference(void **state)
{
    (void)state;
    const model_config_t *const shape[] = {&dense, &mixed, &gated};
    const size_t matrices[] = {4, 5, 4};
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++) {
        model_params_t *params = NULL;
        size_t taken = 0;
        assert_int_equal(model_params_create(shape[k], &params), GYRE_OK);
        for (size_t r = 0; r < params->rows; r++) {
            const model_param_t *row = &params->row[r];
            const int inside = row->layer >= 0 && (size_t)row->layer < params->config.layers;
            assert_int_equal(optim_muon_takes(row), inside && row->shape[1] > 1);
            if (!optim_muon_takes(row))
                continue;
            taken++;
            const double worst = try_row(&params->config, row);
            print_message("%s [%zu, %zu]: %.1e\n", row->name, row->shape[0], row->shape[1], worst);
            assert_true(worst < 1e-5);
            params->row[r].frozen = 1;
            assert_false(optim_muon_takes(row));
        }
        assert_int_equal(taken, matrices[k]);
        model_params_destroy(params);
    }
}

/* Rows or columns, whichever are fewer, have about the same length, and are at right angles. */
static void is_orthogonal(void **state)
{
    (void)state;
    model_params_t *params = NULL;
    assert_int_equal(model_params_create(&dense, &params), GYRE_OK);
    const model_param_t *row = &params->row[model_params_find(params, MODEL_ATTN_PROJ_W, 0)];
    const size_t side = row->shape[0], n = side * side;
    float u[256], *work = NULL;
    assert_true(n == sizeof u / sizeof *u && row->shape[1] == side);
    assert_int_equal(posix_memalign((void **)&work, 64, optim_muon_work(&params->config, row) * sizeof *work),
                     0);
    for (size_t i = 0; i < n; i++) /* far from singular: its least singular value is a third of the largest */
        u[i] = (i % (side + 1) == 0 ? 1.0f : 0.0f) +
               0.05f * (float)model_random_normal(5, MODEL_RANDOM_DATA, 9, i);
    optim_muon_direction(&params->config, row, u, work);
    for (size_t i = 0; i < side; i++)
        for (size_t j = 0; j < side; j++) {
            double dot = 0;
            for (size_t k = 0; k < side; k++)
                dot += (double)u[i * side + k] * (double)u[j * side + k] / (0.04 * (double)side);
            assert_true(i == j ? dot > 0.4 && dot < 1.5 : fabs(dot) < 0.25);
        }
    memset(u, 0, sizeof u); /* no gradient: no step */
    optim_muon_direction(&params->config, row, u, work);
    for (size_t i = 0; i < n; i++)
        assert_true(u[i] == 0.0f);
    free(work);
    model_params_destroy(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_reference),
        cmocka_unit_test(is_orthogonal),
    };
    model_matmul_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
