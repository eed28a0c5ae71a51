/* SPDX-License-Identifier: Apache-2.0 */
/* tests/mpi/start.c: a program of collectives alone, for what gyre-mpi costs and gains. `start N [BYTES]`: N
 * (10) all-reduces of BYTES (8). Rank 0 prints a sum, and on stderr how long its longest call took. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const int n = argc > 1 ? atoi(argv[1]) : 10, bytes = argc > 2 ? atoi(argv[2]) : 8;
    const int count = bytes / (int)sizeof(double);
    double *ones = malloc((size_t)bytes), *sums = calloc(1, (size_t)bytes);
    double longest = 0;
    int rank;
    if (!ones || !sums || count < 1)
        return 1;
    for (int i = 0; i < count; i++)
        ones[i] = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < n; i++) {
        const double begun = MPI_Wtime();
        MPI_Allreduce(ones, sums, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        const double took = MPI_Wtime() - begun;
        longest = took > longest ? took : longest;
    }
    if (rank == 0) {
        printf("%g\n", sums[count - 1]);
        fprintf(stderr, "%.2f ms\n", longest * 1e3);
    }
    return MPI_Finalize();
}
