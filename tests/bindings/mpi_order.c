/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/mpi_order.c: for mpi_order.sh: sums that depend on the order of additions, of 1e16, 1 and
 * -1e16 on ranks 0 to 2. On MPI_COMM_WORLD, and with the argument `made` on communicators of every origin, by
 * calls that do not block alone; `passed`, `first`: what goes to MPI. */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <string.h>

static int rank, n;
static double input(void)
{
    const double parts[] = {1e16, 1, -1e16};
    return rank < 3 ? parts[rank] : 0;
}
/* The only call on this communicator. */
static void sum(const char *name, MPI_Comm comm)
{
    double x = input(), y = -1;
    MPI_Request request;
    MPI_Iallreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 0)
        printf("%s %g\n", name, y);
    MPI_Comm_free(&comm);
}
static void made(void)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    const int dims[] = {1, n}, wraps[] = {0, 1}, remain[] = {0, 1};
    int index[8], edges[8], next = (rank + 1) % n, before = (rank + n - 1) % n, one = 1;
    MPI_Comm comm, grid, half;
    MPI_Group group;
    for (int r = 0; r < n; r++) {
        index[r] = r + 1;
        edges[r] = (r + 1) % n;
    }
    MPI_Comm_group(world, &group);
    sum("dup", (MPI_Comm_dup(world, &comm), comm));
    sum("dup_with_info", (MPI_Comm_dup_with_info(world, MPI_INFO_NULL, &comm), comm));
    sum("split", (MPI_Comm_split(world, 0, rank, &comm), comm));
    sum("split_type", (MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comm), comm));
    sum("create", (MPI_Comm_create(world, group, &comm), comm));
    sum("create_group", (MPI_Comm_create_group(world, group, 3, &comm), comm));
    MPI_Cart_create(world, 2, dims, wraps, 0, &grid);
    sum("cart_sub", (MPI_Cart_sub(grid, remain, &comm), comm));
    sum("cart_create", grid);
    sum("graph_create", (MPI_Graph_create(world, n, index, edges, 0, &comm), comm));
    sum("dist_graph_create",
        (MPI_Dist_graph_create(world, 1, &rank, &one, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm), comm));
    sum("dist_graph_create_adjacent",
        (MPI_Dist_graph_create_adjacent(world, 1, &before, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED,
                                        MPI_INFO_NULL, 0, &comm),
         comm));
    MPI_Comm_split(world, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, world, rank == 0 ? 1 : 0, 1, &grid);
    sum("intercomm_merge", (MPI_Intercomm_merge(grid, rank != 0, &comm), comm));
    MPI_Comm_free(&grid);
    MPI_Comm_free(&half);
    MPI_Comm_split(world, rank == 0 ? MPI_UNDEFINED : 0, rank, &comm); /* rank 0 gets none */
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Group_free(&group);
}

static void add(void *in, void *inout, int *length, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *length; i++)
        ((double *)inout)[i] += ((double *)in)[i];
}
static void persistent(MPI_Comm comm)
{
    double x = input(), y = -1;
    MPI_Request request = MPI_REQUEST_NULL;
#if MPI_VERSION >= 4
    MPI_Allreduce_init(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
    MPIX_Allreduce_init(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
#endif
    if (request != MPI_REQUEST_NULL) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
}
/* The first call on a communicator is persistent. */
static void first(void)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    MPI_Comm comm, half, inter;
    MPI_Request request;
    MPI_Comm_idup(world, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    persistent(comm);
    MPI_Comm_free(&comm);
    MPI_Comm_split(world, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, world, rank == 0 ? 1 : 0, 1, &inter);
    persistent(inter);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}
static void passed(void)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    double x = input(), y = -1;
    long double lx = x, ly = -1;
    int i = rank, j = -1;
    MPI_Op own;
    MPI_Request request;
    MPI_Comm comm, half, inter;
    MPI_Op_create(add, 1, &own);
    for (int twice = 0; twice < 2; twice++) { /* one line for both */
        MPI_Allreduce(&lx, &ly, 1, MPI_LONG_DOUBLE, MPI_SUM, world);
        MPI_Reduce(&x, &y, 1, MPI_DOUBLE, own, 0, world);
        MPI_Iscan(&x, &y, 1, MPI_DOUBLE, MPI_PROD, world, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Allreduce(&lx, &ly, 1, MPI_LONG_DOUBLE, MPI_MAX, world); /* no order matters */
    MPI_Comm_idup(world, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iallreduce(&i, &j, 1, MPI_INT, MPI_SUM, comm, &request); /* nor here */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 0)
        fprintf(stderr, "integers are added\n");
    for (int twice = 0; twice < 2; twice++) {
        MPI_Iallreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(comm);
    sum("idup, after a barrier", comm);
    MPI_Comm_split(world, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, world, rank == 0 ? 1 : 0, 1, &inter);
    MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, inter);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
#if MPI_VERSION >= 4
    MPI_Exscan_c(&x, &y, 1, MPI_DOUBLE, MPI_SUM, world);
#endif
    persistent(world);
    MPI_Op_free(&own);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (argc > 1 && strcmp(argv[1], "made") == 0)
        made();
    else if (argc > 1 && strcmp(argv[1], "passed") == 0)
        passed();
    else if (argc > 1 && strcmp(argv[1], "first") == 0)
        first();
    double x = input(), y = -1;
    MPI_Allreduce(&x, &y, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("world %g\n", y);
    MPI_Finalize();
    return 0;
}
