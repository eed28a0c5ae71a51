/* SPDX-License-Identifier: Apache-2.0 */
/* tests/launch/beside_mpi.c: MPI and Gyre in one program. Its argument is the order of what it does: m
 * MPI_Init, M MPI_Finalize, g gyre_init, G gyre_finalize. After each init and before each finalize an
 * all-reduce of rank + 1; its sum is printed. */
#include <gyre/gyre.h>
#include <mpi.h>
#include <stdio.h>

static gyre_comm_t *world;

static int by_gyre(void)
{
    float mine = (float)(gyre_comm_rank(world) + 1), sum = 0;
    if (gyre_all_reduce(&mine, &sum, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world) != GYRE_OK)
        return 1;
    printf("%g\n", (double)sum);
    return 0;
}

static int by_mpi(void)
{
    int rank = 0, mine, sum = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d\n", sum);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (const char *step = argc > 1 ? argv[1] : ""; *step != '\0' && !failed; step++)
        switch (*step) {
        case 'm':
            failed = MPI_Init(NULL, NULL) != MPI_SUCCESS || by_mpi();
            break;
        case 'M':
            failed = by_mpi() || MPI_Finalize() != MPI_SUCCESS;
            break;
        case 'g':
            failed = gyre_init(NULL, &world) != GYRE_OK || by_gyre();
            break;
        case 'G':
            failed = by_gyre() || gyre_finalize(world) != GYRE_OK;
            break;
        default:
            failed = 1;
        }
    return failed;
}
