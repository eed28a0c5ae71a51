/* SPDX-License-Identifier: Apache-2.0 */
/* tests/mpi/fftw.c: transforms of FFTW over the ranks: complex in three dimensions, there and back, with a
 * transpose; real in two. Prints norms and some coefficients. */
#include <fftw3-mpi.h>
#include <math.h>
#include <stdio.h>

static void complex_3d(int rank)
{
    const ptrdiff_t n[3] = {24, 20, 18};
    ptrdiff_t rows, first;
    const ptrdiff_t size = fftw_mpi_local_size_3d(n[0], n[1], n[2], MPI_COMM_WORLD, &rows, &first);
    fftw_complex *data = fftw_alloc_complex((size_t)size);
    fftw_plan there =
        fftw_mpi_plan_dft_3d(n[0], n[1], n[2], data, data, MPI_COMM_WORLD, FFTW_FORWARD, FFTW_ESTIMATE);
    fftw_plan back =
        fftw_mpi_plan_dft_3d(n[0], n[1], n[2], data, data, MPI_COMM_WORLD, FFTW_BACKWARD, FFTW_ESTIMATE);
    const ptrdiff_t plane = n[1] * n[2];
    for (ptrdiff_t i = 0; i < rows * plane; i++) {
        data[i][0] = sin((double)(first * plane + i) * 0.37);
        data[i][1] = cos((double)(first * plane + i) * 0.11);
    }
    for (int turn = 0; turn < 20; turn++) {
        double sums[3] = {0, 0, 0};
        double all[3];
        fftw_execute(there);
        for (ptrdiff_t i = 0; i < rows * plane; i++) {
            sums[0] += data[i][0] * data[i][0] + data[i][1] * data[i][1];
            sums[1] += data[i][0];
            sums[2] += data[i][1];
        }
        fftw_execute(back);
        for (ptrdiff_t i = 0; i < rows * plane; i++) {
            data[i][0] /= (double)(n[0] * plane);
            data[i][1] /= (double)(n[0] * plane);
        }
        MPI_Allreduce(sums, all, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            printf("complex, turn %d: %.10g %.10g %.10g\n", turn, all[0], all[1], all[2]);
    }
    fftw_destroy_plan(there);
    fftw_destroy_plan(back);
    fftw_free(data);
}

static void real_2d(int rank)
{
    const ptrdiff_t n[2] = {64, 48};
    const ptrdiff_t columns = n[1] / 2 + 1;
    ptrdiff_t rows, first;
    const ptrdiff_t size = fftw_mpi_local_size_2d(n[0], columns, MPI_COMM_WORLD, &rows, &first);
    double *in = fftw_alloc_real((size_t)(2 * size));
    fftw_complex *out = fftw_alloc_complex((size_t)size);
    fftw_plan plan = fftw_mpi_plan_dft_r2c_2d(n[0], n[1], in, out, MPI_COMM_WORLD, FFTW_ESTIMATE);
    for (ptrdiff_t i = 0; i < rows; i++)
        for (ptrdiff_t j = 0; j < n[1]; j++)
            in[i * 2 * columns + j] = (double)((first + i) * (j + 1) % 17);
    fftw_execute(plan);
    double mine = 0;
    double all = 0;
    for (ptrdiff_t i = 0; i < rows * columns; i++)
        mine += fabs(out[i][0]) + fabs(out[i][1]);
    MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("real: %.10g, first %.10g\n", all, out[0][0]);
    fftw_destroy_plan(plan);
    fftw_free(in);
    fftw_free(out);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    fftw_mpi_init();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    complex_3d(rank);
    real_2d(rank);
    fftw_mpi_cleanup();
    MPI_Finalize();
    return 0;
}
