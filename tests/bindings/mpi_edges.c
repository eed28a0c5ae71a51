/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/mpi_edges.c: for mpi_edges.sh: what few programs do, and MPI
 * allows all the same; and what MPI refuses. Each result is compared with what
 * it must be. `mpi_edges PART`: the functions below, by name. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int errors;
static int rank, n;
static void check(int line, int good)
{
    if (!good && errors++ < 10)
        fprintf(stderr, "mpi_edges.c:%d: rank %d: wrong result\n", line, rank);
}
#define CHECK(good) check(__LINE__, good)
static const MPI_Comm world = MPI_COMM_WORLD;

/* MPI_Pack of Debian's MPICH copies less than an element, and reports success,
 * for a datatype of one displaced block once some 771 of them are live. */
static void many_types(void)
{
    enum { MANY = 1000, ONE = 4 };
    static MPI_Datatype types[MANY];
    int in[ONE] = {0}, out[ONE];
    for (int i = 0; i < MANY; i++) {
        const MPI_Aint at = (i % 2 ? 2 : -1) * (MPI_Aint)sizeof(int);
        int *mine = in + 1, *got = out + 1;
        MPI_Type_create_hindexed_block(1, 1, &at, MPI_INT, &types[i]);
        MPI_Type_commit(&types[i]);
        memset(out, 0x55, sizeof(out));
        const int value = (i + 1) * -2000003; /* no byte is 0 for long */
        mine[i % 2 ? 2 : -1] = value;
        if (rank == 0)
            MPI_Bcast(mine, 1, types[i], 0, world);
        else
            MPI_Bcast(got, 1, i % 4 < 2 ? types[i] : MPI_INT, 0, world);
        CHECK(rank == 0 || got[i % 4 >= 2 ? 0 : i % 2 ? 2 : -1] == value);
    }
    for (int i = 0; i < MANY; i++)
        MPI_Type_free(&types[i]);
}

/* The root of a broadcast reads its buffer, and does not write there. */
static void read_only(void)
{
    enum { COUNT = 4, STEP = 2 };
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    int *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MPI_Datatype gaps;
    MPI_Request request;
    MPI_Type_vector(COUNT, 1, STEP, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < COUNT * STEP; i++)
        data[i] = rank == 0 ? i : -1;
    if (rank == 0)
        mprotect(data, bytes, PROT_READ);
    for (int form = 0; form < 2; form++) {
        if (form == 0) {
            MPI_Bcast(data, 1, gaps, 0, world);
        } else {
            MPI_Ibcast(data, 1, gaps, 0, world, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < COUNT * STEP; i++)
            CHECK(data[i] == (rank == 0 || i % STEP == 0 ? i : -1));
        memset(data, rank == 0 ? 0 : 0xff, rank == 0 ? 0 : COUNT * STEP * sizeof(int));
    }
    MPI_Type_free(&gaps);
    munmap(data, bytes);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &n);
#define PART(name, call)         \
    if (strcmp(part, name) == 0) \
    call
    PART("many_types", many_types());
    PART("read_only", read_only());
    MPI_Finalize();
    return errors != 0;
}
