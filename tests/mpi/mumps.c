/* SPDX-License-Identifier: Apache-2.0 */
/* tests/mpi/mumps.c: a Poisson problem in two dimensions, solved by MUMPS, with the matrix spread over the
 * ranks. Prints the residual and some of the solution. */
#include <dmumps_c.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 40, UNKNOWNS = SIDE * SIDE, WORLD = -987654 };

static void entry(DMUMPS_STRUC_C *m, int row, int column, double value)
{
    m->irn_loc[m->nnz_loc] = row + 1;
    m->jcn_loc[m->nnz_loc] = column + 1;
    m->a_loc[m->nnz_loc++] = value;
}
static double apply(const double *x, int row)
{
    const int i = row / SIDE;
    const int j = row % SIDE;
    return 4 * x[row] - (i > 0 ? x[row - SIDE] : 0) - (i < SIDE - 1 ? x[row + SIDE] : 0) -
           (j > 0 ? x[row - 1] : 0) - (j < SIDE - 1 ? x[row + 1] : 0);
}

int main(int argc, char **argv)
{
    DMUMPS_STRUC_C m = {0};
    int rank, n;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    m.par = 1;
    m.comm_fortran = WORLD;
    m.job = -1;
    dmumps_c(&m);
    for (int i = 0; i < 4; i++)
        m.icntl[i] = i < 3 ? -1 : 0; /* no messages */
    m.icntl[17] = 3;                 /* the matrix is spread */
    m.icntl[27] = 1;                 /* one rank orders it */
    m.n = UNKNOWNS;
    m.irn_loc = malloc(5 * UNKNOWNS * sizeof(*m.irn_loc));
    m.jcn_loc = malloc(5 * UNKNOWNS * sizeof(*m.jcn_loc));
    m.a_loc = malloc(5 * UNKNOWNS * sizeof(*m.a_loc));
    for (int row = rank; row < UNKNOWNS; row += n) {
        const int i = row / SIDE;
        const int j = row % SIDE;
        entry(&m, row, row, 4);
        if (i > 0)
            entry(&m, row, row - SIDE, -1);
        if (i < SIDE - 1)
            entry(&m, row, row + SIDE, -1);
        if (j > 0)
            entry(&m, row, row - 1, -1);
        if (j < SIDE - 1)
            entry(&m, row, row + 1, -1);
    }
    double *x = malloc(UNKNOWNS * sizeof(*x));
    for (int turn = 0; turn < 5; turn++) {
        for (int row = 0; row < UNKNOWNS; row++)
            x[row] = 1 + row % (7 + turn);
        m.rhs = x;
        m.job = 6; /* all phases */
        dmumps_c(&m);
        if (m.infog[0] != 0)
            printf("rank %d: MUMPS gave %d\n", rank, m.infog[0]);
        double worst = 0;
        for (int row = 0; rank == 0 && row < UNKNOWNS; row++)
            worst = fmax(worst, fabs(apply(x, row) - (1 + row % (7 + turn))));
        if (rank == 0)
            printf("turn %d: solved %d, x %.9g %.9g %.9g\n", turn, worst < 1e-9, x[0], x[UNKNOWNS / 2],
                   x[UNKNOWNS - 1]);
    }
    m.job = -2;
    dmumps_c(&m);
    MPI_Finalize();
    return 0;
}
