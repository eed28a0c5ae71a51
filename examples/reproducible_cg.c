/* SPDX-License-Identifier: Apache-2.0 */
/* examples/reproducible_cg.c: conjugate gradients whose residuals are the same text on any number of ranks.
 *
 *     ucx-run -n 3 build/examples/reproducible_cg exact|fast [side [iterations]]
 *
 * Solves the 5-point Laplacian on a square grid, split in bands of rows over the ranks (Hestenes and Stiefel
 * 1952; Shewchuk 1994, section B2). A product with the matrix takes the same operations in any split; only
 * the dot products depend on it. `exact`: gyre_exact_add_dot and gyre_exact_all_reduce, rounded once.
 * `fast`: a loop on each rank, then gyre_all_reduce with GYRE_ORDER_FAST. Rank 0 prints the history on
 * standard output, and what the dot products took on standard error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gyre/gyre.h>

/* Gyre has logged why. */
#define TRY(call)                                                      \
    do {                                                               \
        if ((call) != GYRE_OK) {                                       \
            fprintf(stderr, "reproducible_cg: failed in %s\n", #call); \
            return 1;                                                  \
        }                                                              \
    } while (0)

static gyre_comm_t *comm;
static gyre_exact_t *sum; /* NULL: fast */
static int rank, n;
static size_t side, rows; /* of the grid, and of this rank's band */
static double seconds;    /* in dot products */

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* x, y: [rows * side] */
static int dot(const double *x, const double *y, double *out)
{
    const double start = now();
    if (sum) {
        TRY(gyre_exact_reset(sum));
        TRY(gyre_exact_add_dot(sum, x, y, rows * side, GYRE_FLOAT64));
        TRY(gyre_exact_all_reduce(sum, comm));
        TRY(gyre_exact_value(sum, out));
    } else {
        double mine = 0;
        for (size_t i = 0; i < rows * side; i++)
            mine += x[i] * y[i];
        TRY(gyre_all_reduce(&mine, out, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), comm));
    }
    seconds += now() - start;
    return 0;
}

/* y = A p. p: [(rows + 2) * side], the band with the neighbours' rows above and below; y: [rows * side]. */
static int multiply(double *p, double *y)
{
    double *first = p + side, *last = p + rows * side;
    TRY(gyre_group_start());
    if (rank > 0) {
        TRY(gyre_send(first, side, GYRE_FLOAT64, rank - 1, comm));
        TRY(gyre_recv(p, side, GYRE_FLOAT64, rank - 1, comm));
    }
    if (rank < n - 1) {
        TRY(gyre_send(last, side, GYRE_FLOAT64, rank + 1, comm));
        TRY(gyre_recv(last + side, side, GYRE_FLOAT64, rank + 1, comm));
    }
    TRY(gyre_group_end());
    for (size_t r = 1; r <= rows; r++)
        for (size_t c = 0; c < side; c++) {
            const double *at = p + r * side + c;
            const double left = c ? at[-1] : 0, right = c + 1 < side ? at[1] : 0;
            y[(r - 1) * side + c] = 4 * *at - ((at[-(long)side] + at[side]) + (left + right));
        }
    return 0;
}

/* x, r, y: this rank's rows; p: with a row of each neighbour around them; x and p are zero. */
static int iterate(double *x, double *r, double *y, double *p, int iterations)
{
    const size_t mine = rows * side;
    double old, product, new;
    for (size_t i = 0; i < mine; i++) { /* the right-hand side, by the place in the whole grid */
        const size_t row = side * (size_t)rank / (size_t)n + i / side, column = i % side;
        r[i] = 1.0 / (1.0 + (double)((row * 37 + column * 11) % 101));
    }
    memcpy(p + side, r, mine * sizeof *p);
    if (dot(r, r, &old))
        return 1;
    for (int k = 0; k < iterations; k++) {
        if (multiply(p, y) || dot(p + side, y, &product))
            return 1;
        const double alpha = old / product;
        for (size_t i = 0; i < mine; i++) {
            x[i] += alpha * p[side + i];
            r[i] -= alpha * y[i];
        }
        if (dot(r, r, &new))
            return 1;
        for (size_t i = 0; i < mine; i++)
            p[side + i] = r[i] + new / old *p[side + i];
        old = new;
        if (rank == 0)
            printf("%4d %a\n", k + 1, sqrt(new));
    }
    return 0;
}

static int solve(int iterations)
{
    const size_t mine = rows * side;
    double *x = calloc(mine + 1, sizeof *x), *r = calloc(mine + 1, sizeof *r),
           *y = calloc(mine + 1, sizeof *y), *p = calloc((rows + 2) * side, sizeof *p);
    const int failed = !x || !r || !y || !p || iterate(x, r, y, p, iterations);
    free(x), free(r), free(y), free(p);
    return failed;
}

int main(int argc, char **argv)
{
    const int exact = argc > 1 && strcmp(argv[1], "exact") == 0;
    const int iterations = argc > 3 ? atoi(argv[3]) : 100;
    side = argc > 2 ? (size_t)strtoul(argv[2], NULL, 10) : 96;
    if (argc < 2 || (!exact && strcmp(argv[1], "fast") != 0) || side < 1 || iterations < 1) {
        fprintf(stderr, "usage: reproducible_cg exact|fast [side [iterations]]\n");
        return 2;
    }
    gyre_options_t options = GYRE_OPTIONS_INITIALIZER;
    options.order = GYRE_ORDER_FAST;
    TRY(gyre_init(NULL, &comm));
    TRY(gyre_comm_set(comm, &options));
    if (exact)
        TRY(gyre_exact_create(&sum));
    rank = gyre_comm_rank(comm);
    n = gyre_comm_size(comm);
    if (side < (size_t)n) {
        fprintf(stderr, "reproducible_cg: a grid of %zu rows is too small for %d ranks\n", side, n);
        return 2;
    }
    rows = side * (size_t)(rank + 1) / (size_t)n - side * (size_t)rank / (size_t)n;
    const int failed = solve(iterations);
    if (rank == 0 && !failed)
        fprintf(stderr, "# %d dot products: %.1f us each\n", 2 * iterations + 1,
                seconds * 1e6 / (2 * iterations + 1));
    TRY(gyre_exact_destroy(sum));
    TRY(gyre_finalize(comm));
    return failed;
}
