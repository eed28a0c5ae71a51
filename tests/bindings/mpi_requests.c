/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/mpi_requests.c: for mpi.sh: what requests of collectives must bear, and the collectives of
 * neighbours. Each result is compared with what it must be. `mpi_requests PART`: all, threads, fails (the
 * ranks do not agree), open (MPI_Finalize with an open request), or random CALLS: so many calls. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int errors;
static int checks;
static int rank, n;
static void check(int line, int good)
{
    checks++;
    if (!good && errors++ < 10)
        fprintf(stderr, "mpi_requests.c:%d: rank %d: wrong result\n", line, rank);
}
#define CHECK(good) check(__LINE__, good)
static const MPI_Comm world = MPI_COMM_WORLD;

/* The program waits for a message of a rank that waits for the collective first. The second collective has
 * many steps, for which all ranks are needed. */
static void waits_elsewhere(void)
{
    enum { LARGE = 1 << 18 };
    static double in[LARGE], out[LARGE];
    for (int large = 0; large < 2; large++) {
        const int count = large ? LARGE : 1;
        MPI_Request request;
        int token = 0;
        for (int i = 0; i < count; i++)
            in[i] = rank + i;
        MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, world, &request);
        if (rank == 0)
            MPI_Recv(&token, 1, MPI_INT, n - 1, 0, world, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == n - 1 && rank != 0) {
            token = 7;
            MPI_Send(&token, 1, MPI_INT, 0, 0, world);
        }
        CHECK(rank != 0 || token == 7);
        for (int i = 0; i < count; i++)
            CHECK(out[i] == n * (n - 1) / 2 + n * i);
    }
    /* The first collective of a communicator: it must not wait for a rank that waits for a message. */
    MPI_Comm comm;
    MPI_Request request;
    int token = 0;
    MPI_Comm_idup(world, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == n - 1)
        MPI_Send(&token, 1, MPI_INT, 0, 1, world);
    MPI_Ibarrier(comm, &request);
    if (rank == 0)
        MPI_Recv(&token, 1, MPI_INT, n - 1, 1, world, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
}

/* Many at once, with blocking ones and messages between them, and ended in reverse. */
static void many_at_once(void)
{
    enum { MANY = 40 };
    int in[MANY], out[MANY], came = -1, sum = 0, blocking = 1;
    MPI_Request requests[MANY + 2];
    MPI_Irecv(&came, 1, MPI_INT, (rank + n - 1) % n, 2, world, &requests[MANY]);
    for (int i = 0; i < MANY; i++) {
        in[i] = rank * i;
        MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, i % 3 == 0 ? MPI_MAX : MPI_SUM, world, &requests[i]);
        if (i == MANY / 2) {
            MPI_Allreduce(&blocking, &sum, 1, MPI_INT, MPI_SUM, world);
            CHECK(sum == n);
        }
    }
    MPI_Isend(&rank, 1, MPI_INT, (rank + 1) % n, 2, world, &requests[MANY + 1]);
    for (int i = MANY - 1; i >= MANY / 2; i--)
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    MPI_Status statuses[MANY + 2];
    MPI_Waitall(MANY + 2, requests, statuses);
    CHECK(came == (rank + n - 1) % n && statuses[MANY].MPI_SOURCE == came && statuses[MANY].MPI_TAG == 2);
    for (int i = 0; i < MANY; i++)
        CHECK(out[i] == (i % 3 == 0 ? (n - 1) * i : n * (n - 1) / 2 * i));
}

/* Persistent requests, which stay with MPI, in one list with a request of Gyre: all can be started again. */
static void persistent(void)
{
    int out = 0, in = 0, sum = 0;
    MPI_Request requests[] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Send_init(&out, 1, MPI_INT, (rank + 1) % n, 3, world, &requests[0]);
    MPI_Recv_init(&in, 1, MPI_INT, (rank + n - 1) % n, 3, world, &requests[1]);
#if MPI_VERSION >= 4
    MPI_Allreduce_init(&out, &sum, 1, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &requests[3]);
#endif
    for (int round = 0; round < 20; round++) {
        MPI_Status statuses[4];
        int all = 0;
        out = rank + round;
        MPI_Iallreduce(&out, &all, 1, MPI_INT, MPI_SUM, world, &requests[2]);
        MPI_Startall(2, requests);
        if (requests[3] != MPI_REQUEST_NULL)
            MPI_Start(&requests[3]);
        MPI_Waitall(4, requests, statuses);
        CHECK(in == (rank + n - 1) % n + round && statuses[1].MPI_SOURCE == (rank + n - 1) % n);
        CHECK(all == n * (n - 1) / 2 + n * round);
        CHECK(requests[3] == MPI_REQUEST_NULL || sum == all);
        CHECK(requests[2] == MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
    }
    for (int i = 0; i < 4; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&requests[i]);
}

/* Datatypes, arrays of the call and the communicator end before the request does; two of three ints. MPI
 * itself may read the arrays until then, Gyre does not. */
static void freed_early(void)
{
    MPI_Comm comm;
    MPI_Datatype pair, wide;
    MPI_Request requests[2];
    int *in = calloc((size_t)n * 3, sizeof(int)), *out = calloc((size_t)n * 3, sizeof(int));
    int *counts = calloc((size_t)n, sizeof(int)), *displs = calloc((size_t)n, sizeof(int));
    MPI_Datatype *types = calloc((size_t)n, sizeof(*types));
    MPI_Comm_dup(world, &comm);
    MPI_Barrier(comm);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 3 * sizeof(int), &wide);
    MPI_Type_commit(&wide);
    for (int r = 0; r < n; r++) {
        counts[r] = 1;
        displs[r] = 3 * r * (int)sizeof(int);
        types[r] = wide;
        in[3 * r] = rank;
        in[3 * r + 1] = r;
        out[3 * r + 2] = -1;
    }
    MPI_Ialltoallw(in, counts, displs, types, out, counts, displs, types, comm, &requests[0]);
    MPI_Ibarrier(comm, &requests[1]);
    MPI_Type_free(&wide);
    MPI_Type_free(&pair);
    memset(counts, 0xff, (size_t)n * sizeof(int));
    memset(displs, 0xff, (size_t)n * sizeof(int));
    memset(types, 0xff, (size_t)n * sizeof(*types));
    MPI_Comm_free(&comm);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int r = 0; r < n; r++)
        CHECK(out[3 * r] == r && out[3 * r + 1] == rank && out[3 * r + 2] == -1);
    free(in);
    free(out);
    free(counts);
    free(displs);
    free(types);
    /* The next communicator of these ranks. */
    int one = 1, sum = 0;
    MPI_Comm_dup(world, &comm);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    CHECK(sum == n);
    MPI_Comm_free(&comm);
}

/* All collectives of neighbours on `comm`, which has in and out neighbours in these lists, MPI_PROC_NULL
 * among them. place[i]: the block of the sender that comes from in[i]. */
static void neighbors(MPI_Comm comm, int nin, const int *in, const int *place, int nout)
{
    enum { MOST = 8, COUNT = 5 };
    int send[MOST * COUNT], recv[MOST * COUNT], counts[MOST], displs[MOST], rcounts[MOST], rdispls[MOST], me;
    MPI_Aint bytes[MOST], rbytes[MOST];
    MPI_Datatype types[MOST];
    MPI_Request request;
    MPI_Comm_rank(comm, &me);
    for (int i = 0; i < MOST; i++) {
        displs[i] = (MOST - 1 - i) * COUNT;
        rdispls[i] = i * COUNT;
        bytes[i] = displs[i] * (MPI_Aint)sizeof(int);
        rbytes[i] = rdispls[i] * (MPI_Aint)sizeof(int);
        types[i] = MPI_INT;
        counts[i] = rcounts[i] = COUNT;
    }
#define TWICE(name, lower, ...)                                                                 \
    for (int form = 0; form < 2; form++) {                                                      \
        memset(recv, 0x55, sizeof(recv));                                                       \
        if (form == 0) {                                                                        \
            MPI_Neighbor_##name(__VA_ARGS__, comm);                                             \
        } else {                                                                                \
            MPI_Ineighbor_##lower(__VA_ARGS__, comm, &request);                                 \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                              \
        }                                                                                       \
        for (int i = 0; i < nin; i++)                                                           \
            for (int k = 0; k < COUNT; k++)                                                     \
                CHECK(recv[i * COUNT + k] == (in[i] == MPI_PROC_NULL ? 0x55555555 : EXPECTED)); \
        CHECK(recv[nin * COUNT] == 0x55555555);                                                 \
    }
#define EXPECTED in[i] * 100 + k
    for (int k = 0; k < COUNT; k++)
        send[k] = me * 100 + k;
    TWICE(allgather, allgather, send, COUNT, MPI_INT, recv, COUNT, MPI_INT)
    TWICE(allgatherv, allgatherv, send, COUNT, MPI_INT, recv, rcounts, rdispls, MPI_INT)
#undef EXPECTED
#define EXPECTED in[i] * 100 + place[i] * 10 + k
    for (int i = 0; i < nout; i++)
        for (int k = 0; k < COUNT; k++)
            send[i * COUNT + k] = me * 100 + i * 10 + k;
    TWICE(alltoall, alltoall, send, COUNT, MPI_INT, recv, COUNT, MPI_INT)
    for (int i = 0; i < nout; i++)
        for (int k = 0; k < COUNT; k++)
            send[displs[i] + k] = me * 100 + i * 10 + k;
    TWICE(alltoallv, alltoallv, send, counts, displs, MPI_INT, recv, rcounts, rdispls, MPI_INT)
    TWICE(alltoallw, alltoallw, send, counts, bytes, types, recv, rcounts, rbytes, types)
}
static void all_neighbors(void)
{
    MPI_Comm comm;
    for (int wrap = 0; wrap < 2; wrap++) {
        int dims[2] = {n, 1}, wraps[2] = {wrap, wrap}, in[4];
        const int place[4] = {1, 0, 3, 2};
        MPI_Cart_create(world, 2, dims, wraps, 0, &comm);
        MPI_Barrier(comm);
        MPI_Cart_shift(comm, 0, 1, &in[0], &in[1]);
        MPI_Cart_shift(comm, 1, 1, &in[2], &in[3]);
        neighbors(comm, 4, in, place, 4);
        MPI_Comm_free(&comm);
    }
    /* Edges to the next rank and the one after it, twice to the next one. */
    int out[3] = {(rank + 1) % n, (rank + 2) % n, (rank + 1) % n};
    int in[3] = {(rank + n - 1) % n, (rank + 2 * n - 2) % n, (rank + n - 1) % n};
    const int place[3] = {0, 1, 2};
    if (n > 2) {
        MPI_Dist_graph_create_adjacent(world, 3, in, MPI_UNWEIGHTED, 3, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                       &comm);
        MPI_Barrier(comm);
        neighbors(comm, 3, in, place, 3);
        MPI_Comm_free(&comm);
    }
    /* A ring, and nobody has a neighbour. */
    int index[8], edges[8];
    for (int r = 0; r < n; r++) {
        index[r] = r + 1;
        edges[r] = r ^ 1;
    }
    if (n % 2 == 0) {
        const int first[1] = {0};
        MPI_Graph_create(world, n, index, edges, 0, &comm);
        MPI_Barrier(comm);
        neighbors(comm, 1, &edges[rank], first, 1);
        MPI_Comm_free(&comm);
    }
    MPI_Dist_graph_create_adjacent(world, 0, in, MPI_UNWEIGHTED, 0, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                   &comm);
    MPI_Barrier(comm);
    neighbors(comm, 0, in, place, 0);
    MPI_Comm_free(&comm);
}

/* One that is cancelled or freed goes on; what was freed has ended after a second barrier. */
static void odd_ends(void)
{
    MPI_Request request, freed;
    int one = 1, sum = 0, flag = 0, size = -1;
    MPI_Status status;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world, &request);
    MPI_Wait(&request, &status);
    CHECK(request == MPI_REQUEST_NULL && sum == n);
    MPI_Test_cancelled(&status, &flag);
    MPI_Get_count(&status, MPI_INT, &size);
    CHECK(!flag && size == 0);
    MPI_Errhandler before;
    MPI_Comm_get_errhandler(world, &before);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, world, &request);
    MPI_Error_class(MPI_Cancel(&request), &flag);
    CHECK(flag != MPI_SUCCESS);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_set_errhandler(world, before);
    MPI_Errhandler_free(&before);
    static int late;
    MPI_Iallreduce(&one, &late, 1, MPI_INT, MPI_SUM, world, &freed);
    MPI_Request_free(&freed);
    CHECK(freed == MPI_REQUEST_NULL);
    for (int i = 0; i < 2; i++) {
        MPI_Ibarrier(world, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    CHECK(late == n);
}

/* Calls of many kinds on several communicators, up to WINDOW of them open at once, together with messages.
 * Each rank ends them in an order of its own. */
enum { WINDOW = 20, COMMS = 3, LONGEST = 3000 };
typedef struct {
    int kind, count, root;
    MPI_Comm comm;
    int in[8 * LONGEST], out[8 * LONGEST];
} call_t;
static unsigned draw(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}
static void start_call(call_t *c, MPI_Request *request)
{
    const int count = c->count;
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    for (int i = 0; i < n * count; i++) {
        c->in[i] = rank * 10 + i;
        c->out[i] = -1;
    }
    switch (c->kind) {
    case 0:
        MPI_Iallreduce(c->in, c->out, count, MPI_INT, MPI_SUM, c->comm, request);
        break;
    case 1:
        MPI_Ibcast(rank == c->root ? c->in : c->out, count, MPI_INT, c->root, c->comm, request);
        break;
    case 2:
        MPI_Igather(c->in, count, MPI_INT, c->out, count, MPI_INT, c->root, c->comm, request);
        break;
    case 3:
        MPI_Ialltoall(c->in, count, MPI_INT, c->out, count, MPI_INT, c->comm, request);
        break;
    case 4:
        MPI_Iscan(c->in, c->out, count, MPI_INT, MPI_MAX, c->comm, request);
        break;
    case 5: /* blocks */
        MPI_Allgather(c->in, count, MPI_INT, c->out, count, MPI_INT, c->comm);
        *request = MPI_REQUEST_NULL;
        break;
    case 6:
        MPI_Ireduce_scatter_block(c->in, c->out, count, MPI_INT, MPI_SUM, c->comm, request);
        break;
    default: /* a message, whose other side is sent at once */
        MPI_Irecv(c->out, count, MPI_INT, before, 0, c->comm, request);
        MPI_Send(c->in, count, MPI_INT, next, 0, c->comm);
    }
}
static void check_call(const call_t *c)
{
    const int count = c->count, sum = 10 * n * (n - 1) / 2;
    for (int i = 0; i < count; i++) {
        switch (c->kind) {
        case 0:
            CHECK(c->out[i] == sum + n * i);
            break;
        case 1:
            CHECK(rank == c->root || c->out[i] == c->root * 10 + i);
            break;
        case 2:
        case 5:
            for (int r = 0; (rank == c->root || c->kind == 5) && r < n; r++)
                CHECK(c->out[r * count + i] == r * 10 + i);
            break;
        case 3:
            for (int r = 0; r < n; r++)
                CHECK(c->out[r * count + i] == r * 10 + rank * count + i);
            break;
        case 4:
            CHECK(c->out[i] == rank * 10 + i);
            break;
        case 6:
            CHECK(c->out[i] == sum + n * (rank * count + i));
            break;
        default:
            CHECK(c->out[i] == (rank + n - 1) % n * 10 + i);
        }
    }
}
static void random_calls(int calls)
{
    static call_t open[WINDOW];
    MPI_Request requests[WINDOW];
    MPI_Comm comms[COMMS] = {world};
    unsigned ours = 17, mine = 4711u + (unsigned)rank; /* the same on all ranks; of this one */
    for (int i = 1; i < COMMS; i++) {
        if (i == 1) {
            MPI_Comm_dup(world, &comms[i]);
        } else { /* it has no communicator in Gyre at first */
            MPI_Comm_idup(world, &comms[i], &requests[0]);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        }
    }
    for (int i = 0; i < WINDOW; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int done = 0, live = 0; done < calls || live > 0;) {
        int ended[WINDOW], some = 0, flag = 0;
        /* A rank may start a call as soon as it has a free place: the others must not depend on it. */
        if (done < calls && live < WINDOW) {
            int k = 0;
            while (open[k].count != 0)
                k++;
            open[k].kind = (int)draw(&ours, 8);
            open[k].count = draw(&ours, 10) == 0 ? LONGEST : 1 + (int)draw(&ours, 20);
            open[k].root = (int)draw(&ours, (unsigned)n);
            open[k].comm = comms[draw(&ours, COMMS)];
            start_call(&open[k], &requests[k]);
            done++;
            live++;
            if (open[k].kind == 5) {
                check_call(&open[k]);
                open[k].count = 0;
                live--;
            }
        }
        switch (draw(&mine, live == WINDOW || done == calls ? 6 : 12)) {
        case 0:
            MPI_Testsome(WINDOW, requests, &some, ended, MPI_STATUSES_IGNORE);
            break;
        case 1:
            MPI_Testany(WINDOW, requests, ended, &flag, MPI_STATUS_IGNORE);
            some = flag;
            break;
        case 2:
            MPI_Waitsome(WINDOW, requests, &some, ended, MPI_STATUSES_IGNORE);
            break;
        case 3:
            MPI_Waitany(WINDOW, requests, ended, MPI_STATUS_IGNORE);
            some = 1;
            break;
        case 4:
            ended[0] = (int)draw(&mine, WINDOW);
            if (requests[ended[0]] != MPI_REQUEST_NULL) {
                MPI_Wait(&requests[ended[0]], MPI_STATUS_IGNORE);
                some = 1;
            }
            break;
        case 5:
            MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
            for (int k = 0; k < WINDOW; k++)
                if (open[k].count != 0)
                    ended[some++] = k;
            break;
        default:
            break;
        }
        for (int i = 0; i < some && ended[i] != MPI_UNDEFINED && some != MPI_UNDEFINED; i++) {
            check_call(&open[ended[i]]);
            open[ended[i]].count = 0;
            live--;
        }
    }
    for (int i = 1; i < COMMS; i++)
        MPI_Comm_free(&comms[i]);
}

/* Threads wait for requests of one communicator while another one makes its calls. */
enum { CALLS = 50 };
static MPI_Request thread_requests[CALLS];
static int ready; /* requests that may be waited for */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *waits(void *unused)
{
    (void)unused;
    for (int i = 0; i < CALLS; i++) {
        int there;
        do {
            pthread_mutex_lock(&lock);
            there = ready > i;
            pthread_mutex_unlock(&lock);
        } while (!there);
        MPI_Wait(&thread_requests[i], MPI_STATUS_IGNORE);
    }
    return NULL;
}
static void threads(void)
{
    static int out[CALLS];
    pthread_t waiter;
    int sum;
    pthread_create(&waiter, NULL, waits, NULL);
    for (int i = 0; i < CALLS; i++) {
        MPI_Iallreduce(&rank, &out[i], 1, MPI_INT, MPI_SUM, world, &thread_requests[i]);
        pthread_mutex_lock(&lock);
        ready++;
        pthread_mutex_unlock(&lock);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_MAX, world);
        CHECK(sum == n - 1);
    }
    pthread_join(waiter, NULL);
    for (int i = 0; i < CALLS; i++)
        CHECK(out[i] == n * (n - 1) / 2);
}

/* The ranks do not agree about the count: the error handler of the communicator is called by the wait. */
static int handled;
static MPI_Comm handled_on;
static void handler(MPI_Comm *comm, int *code, ...)
{
    handled_on = *comm;
    MPI_Error_class(*code, &handled);
}
static void fails(void)
{
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handler, &own);
    for (int several = 0; several < 2; several++) {
        MPI_Comm comm;
        MPI_Request requests[2];
        MPI_Status statuses[2];
        int buffer[2] = {0, 0}, rc;
        MPI_Comm_dup(world, &comm);
        MPI_Comm_set_errhandler(comm, own);
        MPI_Barrier(comm);
        handled = MPI_SUCCESS;
        rc = MPI_Iallreduce(MPI_IN_PLACE, buffer, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, comm, &requests[1]);
        MPI_Ibarrier(world, &requests[0]);
        if (rc == MPI_SUCCESS && several) {
            rc = MPI_Waitall(2, requests, statuses);
            CHECK(rc == MPI_ERR_IN_STATUS && statuses[0].MPI_ERROR == MPI_SUCCESS &&
                  statuses[1].MPI_ERROR == MPI_ERR_TRUNCATE);
        } else {
            if (rc == MPI_SUCCESS)
                rc = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
            CHECK(rc == MPI_ERR_TRUNCATE);
            MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        }
        CHECK(handled == MPI_ERR_TRUNCATE && handled_on == comm);
    }
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "all";
    int provided = 0;
    if (strcmp(part, "threads") == 0)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &n);
    if (strcmp(part, "all") == 0) {
        waits_elsewhere();
        many_at_once();
        persistent();
        freed_early();
        all_neighbors();
        odd_ends();
    } else if (strcmp(part, "random") == 0) {
        random_calls(argc > 2 ? atoi(argv[2]) : 100);
    } else if (strcmp(part, "threads") == 0) {
        threads();
    } else if (strcmp(part, "fails") == 0) {
        fails();
    } else if (strcmp(part, "open") == 0) {
        MPI_Request request;
        if (rank == 0)
            MPI_Ibarrier(world, &request);
        MPI_Finalize();
        return 0;
    }
    int mine[2] = {checks, errors}, sums[2] = {0, 0};
    MPI_Reduce(mine, sums, 2, MPI_INT, MPI_SUM, 0, world);
    if (rank == 0)
        printf("%d ranks: %d checks, %d failed\n", n, sums[0], sums[1]);
    MPI_Finalize();
    return errors != 0;
}
