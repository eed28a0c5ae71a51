/* SPDX-License-Identifier: Apache-2.0 */
/* examples/heat.c: the heat equation on a square plate, split in bands of rows over the ranks. No MPI.
 *
 *     ucx-run -n 4 build/examples/heat [rows [columns [steps]]]
 *
 * Shows the three things that such a code needs: halo exchange with the neighbours (grouped send and recv), a
 * norm over all ranks (all_reduce), and bringing a result together (gatherv). Rank 0 then computes the same
 * on its own and compares every bit.
 *
 * Explicit Euler on u_t = u_xx + u_yy (FTCS; LeVeque, Finite Difference Methods, 2007, section 9.1) with
 * dt / h^2 = 0.2 < 1/4, so it is stable. The boundary is held at 0 but for a hot upper edge at 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gyre/gyre.h>

/* Gyre has logged why. */
#define TRY(call)                                           \
    do {                                                    \
        if ((call) != GYRE_OK) {                            \
            fprintf(stderr, "heat: failed in %s\n", #call); \
            return 1;                                       \
        }                                                   \
    } while (0)

/* A band of rows with one more row above and below: u[rows + 2][columns]. */
typedef struct {
    size_t first, rows, columns; /* rows first .. first + rows - 1 of the plate */
    double *now, *next;
} band_t;

/* Rows of rank r of n: as even as can be. */
static size_t first_row(size_t rows, size_t r, size_t n)
{
    return rows / n * r + (r < rows % n ? r : rows % n);
}

static int band_create(band_t *band, size_t first, size_t rows, size_t columns)
{
    void *now = NULL, *next = NULL;
    size_t bytes = (rows + 2) * columns * sizeof(double);
    *band = (band_t){.first = first, .rows = rows, .columns = columns};
    TRY(gyre_mem_alloc(bytes, &now)); /* malloc would do: this memory saves neighbours on one host a copy */
    TRY(gyre_mem_alloc(bytes, &next));
    band->now = now; /* zeroed */
    band->next = next;
    /* The plate's first row is hot; the other edges stay cold. */
    for (size_t i = 0; first == 0 && i < columns; i++)
        band->now[columns + i] = band->next[columns + i] = 1.0;
    return 0;
}

static void band_free(band_t *band)
{
    gyre_mem_free(band->now);
    gyre_mem_free(band->next);
}

/* One step. Returns the sum of squared changes of the band's rows. */
static double band_step(band_t *band, size_t plate)
{
    size_t w = band->columns;
    double change = 0;
    for (size_t r = 1; r <= band->rows; r++) {
        size_t row = band->first + r - 1;
        const double *u = band->now + r * w;
        double *v = band->next + r * w;
        if (row == 0 || row == plate - 1)
            continue; /* the edges are held */
        for (size_t c = 1; c + 1 < w; c++) {
            v[c] = u[c] + 0.2 * (u[c - 1] + u[c + 1] + u[c - w] + u[c + w] - 4 * u[c]);
            change += (v[c] - u[c]) * (v[c] - u[c]);
        }
    }
    double *swap = band->now;
    band->now = band->next;
    band->next = swap;
    return change;
}

/* Rows of the neighbours to above and below ours. All four messages are started together, so no order of
 * sends and receives can block. */
static int exchange(band_t *band, int up, int down, gyre_comm_t *comm)
{
    size_t w = band->columns;
    TRY(gyre_group_start());
    if (up >= 0) {
        TRY(gyre_send(band->now + w, w, GYRE_FLOAT64, up, comm));
        TRY(gyre_recv(band->now, w, GYRE_FLOAT64, up, comm));
    }
    if (down >= 0) {
        TRY(gyre_send(band->now + band->rows * w, w, GYRE_FLOAT64, down, comm));
        TRY(gyre_recv(band->now + (band->rows + 1) * w, w, GYRE_FLOAT64, down, comm));
    }
    TRY(gyre_group_end());
    return 0;
}

/* Rank 0: the same plate in one piece; 0 if `field` [plate, columns] has the same bits. */
static int verify(const double *field, size_t plate, size_t columns, size_t steps, double last)
{
    band_t whole;
    double change = 0;
    if (band_create(&whole, 0, plate, columns))
        return 1;
    for (size_t s = 0; s < steps; s++)
        change = band_step(&whole, plate);
    int same = memcmp(field, whole.now + columns, plate * columns * sizeof(double)) == 0;
    double off = change > 0 ? (last - change) / change : last; /* the sums run in another order */
    band_free(&whole);
    printf("against one process: field %s, norm off by %.1e\n",
           same ? "identical to the last bit" : "DIFFERS", off);
    return !same || off > 1e-12 || off < -1e-12;
}

/* Rank 0 gets all bands in field [plate, columns], and compares; counts: [ranks]. */
static int collect(const band_t *band, size_t columns, size_t plate, size_t steps, double change,
                   double *field, size_t *counts, gyre_comm_t *world)
{
    size_t rank = (size_t)gyre_comm_rank(world), n = (size_t)gyre_comm_size(world);
    for (size_t r = 0; r < n; r++)
        counts[r] = (first_row(plate, r + 1, n) - first_row(plate, r, n)) * columns;
    TRY(gyre_gatherv(band->now + columns, counts[rank], field, counts, NULL, GYRE_FLOAT64, 0, world));
    int wrong = rank == 0 ? verify(field, plate, columns, steps, change) : 0;
    TRY(gyre_broadcast(&wrong, &wrong, 1, GYRE_INT32, 0, world));
    return wrong;
}

static int simulate(gyre_comm_t *world, size_t plate, size_t columns, size_t steps)
{
    size_t rank = (size_t)gyre_comm_rank(world), n = (size_t)gyre_comm_size(world);
    size_t first = first_row(plate, rank, n), rows = first_row(plate, rank + 1, n) - first;
    int up = rank > 0 ? (int)rank - 1 : -1, down = rank + 1 < n ? (int)rank + 1 : -1;
    band_t band;
    double change = 0;
    if (band_create(&band, first, rows, columns))
        return 1;
    for (size_t s = 0; s < steps; s++) {
        if (exchange(&band, up, down, world))
            return 1;
        double mine = band_step(&band, plate);
        TRY(gyre_all_reduce(&mine, &change, 1, GYRE_FLOAT64, GYRE_OP(GYRE_SUM), world));
        if (rank == 0 && (s + 1) % (steps > 4 ? steps / 4 : 1) == 0)
            printf("step %zu: sum of squared changes %.6e\n", s + 1, change);
    }

    size_t *counts = calloc(n, sizeof *counts);
    double *field = rank == 0 ? calloc(plate * columns, sizeof *field) : NULL;
    int wrong = 1;
    if (!counts || (rank == 0 && !field))
        fprintf(stderr, "heat: out of memory\n");
    else
        wrong = collect(&band, columns, plate, steps, change, field, counts, world);
    free(field);
    free(counts);
    band_free(&band);
    return wrong;
}

static size_t argument(int argc, char **argv, int i, size_t otherwise)
{
    char *end;
    if (i >= argc)
        return otherwise;
    unsigned long value = strtoul(argv[i], &end, 10);
    return *end || value > 100000 ? 0 : value;
}

int main(int argc, char **argv)
{
    size_t plate = argument(argc, argv, 1, 256), columns = argument(argc, argv, 2, 256);
    size_t steps = argument(argc, argv, 3, 400);
    gyre_comm_t *world = NULL;
    TRY(gyre_init(NULL, &world));
    if (plate < (size_t)gyre_comm_size(world) || columns < 3 || steps < 1) {
        fprintf(stderr,
                "usage: heat [rows [columns [steps]]], at least one row per rank and three columns\n");
        return 2;
    }
    int wrong = simulate(world, plate, columns, steps);
    if (!wrong)
        TRY(gyre_finalize(world));
    return wrong;
}
