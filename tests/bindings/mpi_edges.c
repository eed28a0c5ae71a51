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

static int handled, handler_calls;
static MPI_Comm handled_on;
static void handler(MPI_Comm *comm, int *code, ...)
{
    handled_on = *comm;
    handler_calls++;
    MPI_Error_class(*code, &handled);
}

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

enum { PIECES = 4, STEP = 2 };

/* A datatype of PIECES integers with gaps, and a buffer of it, full on rank 0. */
static MPI_Datatype with_gaps(int *data)
{
    MPI_Datatype gaps;
    MPI_Type_vector(PIECES, 1, STEP, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    for (int i = 0; i < PIECES * STEP; i++)
        data[i] = rank == 0 ? i : -1;
    return gaps;
}

/* The root of a broadcast reads its buffer, and does not write there. */
static void read_only(void)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    int *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MPI_Datatype gaps = with_gaps(data);
    MPI_Request request;
    if (rank == 0)
        mprotect(data, bytes, PROT_READ);
    for (int form = 0; form < 2; form++) {
        if (form == 0) {
            MPI_Bcast(data, 1, gaps, 0, world);
        } else {
            MPI_Ibcast(data, 1, gaps, 0, world, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (int i = 0; i < PIECES * STEP; i++)
            CHECK(data[i] == (rank == 0 || i % STEP == 0 ? i : -1));
        memset(data, rank == 0 ? 0 : 0xff, rank == 0 ? 0 : PIECES * STEP * sizeof(int));
    }
    MPI_Type_free(&gaps);
    munmap(data, bytes);
}

/* A message and a collective of one list fail. */
static void both_fail(void)
{
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(world, own);
    for (int form = 0; form < 4; form++) {
        const int next = (rank + 1) % n, before = (rank + n - 1) % n;
        MPI_Comm comm;
        MPI_Request requests[2];
        MPI_Status statuses[2];
        int got = 0, many[4] = {0}, buffer[4] = {0}, flag = 0, rc, class[2];
        int ended = 2, indices[2] = {0, 1};
        MPI_Comm_dup(world, &comm);
        MPI_Comm_set_errhandler(comm, own);
        MPI_Barrier(comm);
        MPI_Irecv(&got, 1, MPI_INT, before, 9, world, &requests[0]);
        MPI_Iallreduce(MPI_IN_PLACE, buffer, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, comm, &requests[1]);
        /* Both have ended before the call that ends them. */
        for (flag = 0; !flag;)
            MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE);
        MPI_Send(many, 4, MPI_INT, next, 9, world);
        for (flag = 0; !flag;)
            MPI_Request_get_status(requests[0], &flag, MPI_STATUS_IGNORE);
        handler_calls = 0;
        handled = MPI_SUCCESS;
        statuses[0].MPI_ERROR = statuses[1].MPI_ERROR = MPI_ERR_OTHER;
        rc = form == 0   ? MPI_Waitall(2, requests, statuses)
             : form == 1 ? MPI_Testall(2, requests, &flag, statuses)
             : form == 2 ? MPI_Waitsome(2, requests, &ended, indices, statuses)
                         : MPI_Testsome(2, requests, &ended, indices, statuses);
        MPI_Error_class(rc, &rc);
        CHECK(rc == MPI_ERR_IN_STATUS && ended == 2);
        for (int i = 0; i < ended && i < 2; i++) {
            MPI_Error_class(statuses[i].MPI_ERROR, &class[i]);
            CHECK(class[i] == MPI_ERR_TRUNCATE);
        }
        CHECK(handler_calls >= 1 && handled == MPI_ERR_TRUNCATE && handled_on == comm);
    }
}

/* A callback in MPI_Finalize, of an attribute of MPI_COMM_SELF: requests end
 * there, and sums have their order. */
static MPI_Request open_request;
static MPI_Comm last_comm;
static double open_sum;
static int at_the_end(MPI_Comm comm, int key, void *value, void *extra)
{
    const double parts[] = {1e16, 1, -1e16};
    double x = parts[rank % 3], sum = -1;
    int one = 1, all = 0;
    MPI_Wait(&open_request, MPI_STATUS_IGNORE);
    MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, world);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    MPI_Comm_free(&last_comm);
    if (rank == 0)
        printf("%g %g %d\n", open_sum, sum, all);
    (void)comm, (void)key, (void)value, (void)extra;
    return MPI_SUCCESS;
}
static void finalize_callback(void)
{
    static double one = 1;
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_the_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    MPI_Barrier(MPI_COMM_SELF);
    MPI_Comm_dup(world, &last_comm);
    MPI_Iallreduce(&one, &open_sum, 1, MPI_DOUBLE, MPI_SUM, last_comm, &open_request);
}

/* A datatype that one rank has not committed: MPI's error, on the communicator.
 * That rank ends the job. */
static void uncommitted(int who)
{
    MPI_Comm comm;
    MPI_Errhandler own;
    MPI_Datatype gaps;
    int data[4] = {0}, class;
    MPI_Comm_dup(world, &comm);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    MPI_Type_vector(2, 1, 2, MPI_INT, &gaps);
    if (rank != who)
        MPI_Type_commit(&gaps);
    MPI_Error_class(MPI_Bcast(data, 1, gaps, 0, comm), &class);
    if (rank == who) {
        CHECK(class == MPI_ERR_TYPE && handled == class && handled_on == comm);
        MPI_Abort(world, errors == 0 ? 5 : 6);
    }
    MPI_Recv(data, 1, MPI_INT, who, 0, world, MPI_STATUS_IGNORE); /* until the job has ended */
}

/* Memory of the stack and of the heap in one datatype, and elements that go
 * backwards. */
static void wide_types(void)
{
    enum { COUNT = 3 };
    static int global;
    int local = rank, *heap = malloc(sizeof(int)), back[COUNT];
    MPI_Aint at[COUNT];
    MPI_Datatype all, backwards;
    MPI_Request request;
    MPI_Get_address(&global, &at[0]);
    MPI_Get_address(&local, &at[1]);
    MPI_Get_address(heap, &at[2]);
    MPI_Type_create_hindexed_block(COUNT, 1, at, MPI_INT, &all);
    MPI_Type_commit(&all);
    for (int form = 0; form < 2; form++) {
        const int from = 10 * form;
        global = rank == 0 ? from + 1 : -1;
        local = rank == 0 ? from + 2 : -1;
        *heap = rank == 0 ? from + 3 : -1;
        if (form == 0) {
            MPI_Bcast(MPI_BOTTOM, 1, all, 0, world);
        } else {
            MPI_Ibcast(MPI_BOTTOM, 1, all, 0, world, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        CHECK(global == from + 1 && local == from + 2 && *heap == from + 3);
    }
    MPI_Type_create_resized(MPI_INT, 0, -(MPI_Aint)sizeof(int), &backwards);
    MPI_Type_commit(&backwards);
    for (int i = 0; i < COUNT; i++)
        back[i] = rank == 0 ? i : -1;
    MPI_Bcast(&back[COUNT - 1], COUNT, backwards, 0, world);
    for (int i = 0; i < COUNT; i++)
        CHECK(back[i] == i);
    MPI_Type_free(&backwards);
    MPI_Type_free(&all);
    free(heap);
}

/* What was freed ends in blocking collectives that come after it. */
static void freed_requests(void)
{
    static int data[PIECES * STEP], block[8];
    MPI_Datatype gaps = with_gaps(data);
    MPI_Request request;
    MPI_Ibcast(data, 1, gaps, 0, world, &request);
    MPI_Request_free(&request);
    for (int r = 0; r < n; r++)
        block[r] = r + 1;
    MPI_Ireduce_scatter_block(MPI_IN_PLACE, block, 1, MPI_INT, MPI_SUM, world, &request);
    MPI_Request_free(&request);
    for (int i = 0; i < 3; i++)
        MPI_Barrier(world);
    for (int i = 0; i < PIECES * STEP; i += STEP)
        CHECK(data[i] == i);
    CHECK(block[0] == n * (rank + 1));
    MPI_Type_free(&gaps);
}

/* Prefixes of one operand, with logical operations. */
static void logical_prefixes(void)
{
    int x = rank + 5, y = 0;
    unsigned char c = (unsigned char)(rank + 5), d = 0;
    MPI_Scan(&x, &y, 1, MPI_INT, MPI_LOR, world);
    CHECK(y != 0);
    MPI_Exscan(&x, &y, 1, MPI_INT, MPI_LAND, world);
    CHECK(y != 0);
    MPI_Scan(&c, &d, 1, MPI_UNSIGNED_CHAR, MPI_LXOR, world);
    CHECK((d != 0) == (rank % 2 == 0));
}

/* On rank 0 MPI_Exscan has no result; and nothing is moved. */
static void null_buffers(void)
{
    int x = rank + 1, y = 0, none[8] = {0};
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    CHECK(MPI_Exscan(&x, rank == 0 ? NULL : &y, 1, MPI_INT, MPI_SUM, world) == MPI_SUCCESS);
    CHECK(y == rank * (rank + 1) / 2);
    CHECK(MPI_Alltoallv(NULL, none, none, MPI_INT, NULL, none, none, MPI_INT, world) == MPI_SUCCESS);
}
/* MPI refuses a datatype that Gyre does not look at, as it has no elements:
 * MPICH in MPI_Alltoallv. */
static void refused_by_mpi(void)
{
    int none[8] = {0}, x = 0, y = 0;
    MPI_Datatype type = rank == 0 ? MPI_DATATYPE_NULL : MPI_INT;
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Alltoallv(&x, none, none, type, &y, none, none, type, world);
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
    PART("both_fail", both_fail());
    PART("finalize_callback", finalize_callback());
    PART("uncommitted_root", uncommitted(0));
    PART("uncommitted", uncommitted(1));
    PART("wide_types", wide_types());
    PART("freed_requests", freed_requests());
    PART("logical_prefixes", logical_prefixes());
    PART("null_buffers", null_buffers());
    PART("refused_by_mpi", refused_by_mpi());
    MPI_Finalize();
    return errors != 0;
}
