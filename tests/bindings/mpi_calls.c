/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bindings/mpi_calls.c: for mpi.sh: every collective of MPI that libgyre-mpi takes but those of
 * neighbours (mpi_requests.c), on communicators of several origins, with every root, several types, counts
 * with 0 among them, in place and with derived datatypes. Each result is compared with what it must be.
 * `mpi_calls PART`: calls, requests (the same calls without blocking), progress, threads, few, worth, late,
 * answer, last, fails, abort, killed or order.
 * Longer than 600 lines: one program, in which all parts share their checks and communicators. */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int errors;
static int checks;
static const char *where = "";
static void check(int line, int good)
{
    checks++;
    if (good)
        return;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (errors++ < 10)
        fprintf(stderr, "mpi_calls.c:%d: rank %d: wrong result, %s\n", line, rank, where);
}
#define CHECK(good) check(__LINE__, good)
enum { MOST = 3000 };
static const int counts[] = {0, 1, 7, MOST};
#define EACH_COUNT (int c = 0; c < 4; c++)

/* The part `requests`: each call is made by its form that does not block, and ended in all ways in turn. */
static int nonblocking;
static int ended(int rc, MPI_Request *request)
{
    static int way;
    MPI_Request list[2] = {MPI_REQUEST_NULL, *request};
    MPI_Status statuses[2];
    int flag = 0, index = 0, indices[2];
    switch (way++ % 9) {
    case 0:
        MPI_Wait(&list[1], &statuses[1]);
        break;
    case 1:
        MPI_Waitall(2, list, MPI_STATUSES_IGNORE);
        break;
    case 2:
        MPI_Waitany(2, list, &index, MPI_STATUS_IGNORE);
        CHECK(index == 1);
        break;
    case 3:
        MPI_Waitsome(2, list, &index, indices, statuses);
        CHECK(index == 1 && indices[0] == 1);
        break;
    case 4:
        while (!flag)
            MPI_Test(&list[1], &flag, MPI_STATUS_IGNORE);
        break;
    case 5:
        while (!flag)
            MPI_Testall(2, list, &flag, statuses);
        break;
    case 6:
        while (!flag)
            MPI_Testany(2, list, &index, &flag, statuses);
        CHECK(index == 1);
        break;
    case 7:
        while (index == 0)
            MPI_Testsome(2, list, &index, indices, MPI_STATUSES_IGNORE);
        CHECK(index == 1 && indices[0] == 1);
        break;
    default:
        while (!flag)
            MPI_Request_get_status(list[1], &flag, MPI_STATUS_IGNORE);
        CHECK(list[1] != MPI_REQUEST_NULL);
        MPI_Wait(&list[1], MPI_STATUS_IGNORE);
    }
    CHECK(list[1] == MPI_REQUEST_NULL);
    *request = list[1];
    return rc;
}
static MPI_Request pending;
#define EITHER(name, form, ...) \
    (nonblocking ? ended(MPI_I##form(__VA_ARGS__, &pending), &pending) : (MPI_##name)(__VA_ARGS__))
#define MPI_Allreduce(...)            EITHER(Allreduce, allreduce, __VA_ARGS__)
#define MPI_Reduce(...)               EITHER(Reduce, reduce, __VA_ARGS__)
#define MPI_Reduce_scatter(...)       EITHER(Reduce_scatter, reduce_scatter, __VA_ARGS__)
#define MPI_Reduce_scatter_block(...) EITHER(Reduce_scatter_block, reduce_scatter_block, __VA_ARGS__)
#define MPI_Scan(...)                 EITHER(Scan, scan, __VA_ARGS__)
#define MPI_Exscan(...)               EITHER(Exscan, exscan, __VA_ARGS__)
#define MPI_Bcast(...)                EITHER(Bcast, bcast, __VA_ARGS__)
#define MPI_Barrier(comm)             EITHER(Barrier, barrier, comm)
#define MPI_Gather(...)               EITHER(Gather, gather, __VA_ARGS__)
#define MPI_Gatherv(...)              EITHER(Gatherv, gatherv, __VA_ARGS__)
#define MPI_Scatter(...)              EITHER(Scatter, scatter, __VA_ARGS__)
#define MPI_Scatterv(...)             EITHER(Scatterv, scatterv, __VA_ARGS__)
#define MPI_Allgather(...)            EITHER(Allgather, allgather, __VA_ARGS__)
#define MPI_Allgatherv(...)           EITHER(Allgatherv, allgatherv, __VA_ARGS__)
#define MPI_Alltoall(...)             EITHER(Alltoall, alltoall, __VA_ARGS__)
#define MPI_Alltoallv(...)            EITHER(Alltoallv, alltoallv, __VA_ARGS__)
#define MPI_Alltoallw(...)            EITHER(Alltoallw, alltoallw, __VA_ARGS__)

/* What rank r of n has at i. */
static int value(int r, int i)
{
    return (r + 1) * 3 + i % 11;
}

static void reductions(MPI_Comm comm)
{
    int rank, n;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    static int in[8 * MOST], out[8 * MOST];
    static double din[MOST], dout[MOST];
    static struct {
        double value;
        int index;
    } pin[MOST], pout[MOST];
    for
        EACH_COUNT
        {
            int count = counts[c];
            int total[MOST + 1], before[MOST + 1];
            for (int i = 0; i < count; i++) {
                total[i] = before[i] = 0;
                for (int r = 0; r < n; r++)
                    total[i] += value(r, i);
                for (int r = 0; r < rank; r++)
                    before[i] += value(r, i);
                in[i] = value(rank, i);
                din[i] = value(rank, i);
                pin[i].value = value((rank + i) % n, 0);
                pin[i].index = rank;
            }
            for (int place = 0; place < 2; place++) {
                where = place ? "in place" : "";
#define INPUT (place ? MPI_IN_PLACE : (const void *)in)
#define FILL  memcpy(out, in, sizeof(int) * (size_t)count)
                FILL;
                MPI_Allreduce(INPUT, out, count, MPI_INT, MPI_SUM, comm);
                for (int i = 0; i < count; i++)
                    CHECK(out[i] == total[i]);
                memcpy(dout, din, sizeof(double) * (size_t)count);
                MPI_Allreduce(place ? MPI_IN_PLACE : (void *)din, dout, count, MPI_DOUBLE, MPI_MAX, comm);
                for (int i = 0; i < count; i++)
                    CHECK(dout[i] == value(n - 1, i));
                for (int root = 0; root < n; root++) {
#ifdef MPICH /* 4.0.2 by itself crashes in place at another root than 0 */
                    if (place && root != 0)
                        continue;
#endif
                    FILL;
                    MPI_Reduce(place && rank == root ? MPI_IN_PLACE : (void *)in, out, count, MPI_INT,
                               MPI_SUM, root, comm);
                    for (int i = 0; rank == root && i < count; i++)
                        CHECK(out[i] == total[i]);
                }
                FILL;
                MPI_Scan(INPUT, out, count, MPI_INT, MPI_SUM, comm);
                for (int i = 0; i < count; i++)
                    CHECK(out[i] == before[i] + in[i]);
                FILL;
                MPI_Exscan(INPUT, out, count, MPI_INT, MPI_SUM, comm);
                for (int i = 0; rank > 0 && i < count; i++)
                    CHECK(out[i] == before[i]);
                /* Blocks of `count` for each rank, of which element i of block b is value(rank, i) + b. */
                static int many[8 * MOST];
                for (int b = 0; b < n; b++)
                    for (int i = 0; i < count; i++)
                        many[b * count + i] = value(rank, i) + b;
                memcpy(out, many, sizeof(int) * (size_t)(n * count));
                MPI_Reduce_scatter_block(place ? MPI_IN_PLACE : (void *)many, out, count, MPI_INT, MPI_SUM,
                                         comm);
                for (int i = 0; i < count; i++)
                    CHECK(out[i] == total[i] + n * rank);
                int sizes[8], begin = 0;
                for (int b = 0; b < n; b++)
                    sizes[b] = b % 2 ? 0 : count;
                for (int b = 0; b < n; begin += sizes[b++])
                    for (int i = 0; i < sizes[b]; i++)
                        many[begin + i] = value(rank, i) + b;
                memcpy(out, many, sizeof(int) * (size_t)begin);
                MPI_Reduce_scatter(place ? MPI_IN_PLACE : (void *)many, out, sizes, MPI_INT, MPI_SUM, comm);
                for (int i = 0; i < sizes[rank]; i++)
                    CHECK(out[i] == total[i] + n * rank);
            }
            where = "pairs";
            MPI_Allreduce(pin, pout, count, MPI_DOUBLE_INT, MPI_MAXLOC, comm);
            for (int i = 0; i < count; i++)
                CHECK(pout[i].value == value(n - 1, 0) && pout[i].index == ((n - 1 - i) % n + n) % n);
            where = "long double";
            long double ld = rank, sum;
            MPI_Allreduce(&ld, &sum, 1, MPI_LONG_DOUBLE, MPI_SUM, comm);
            CHECK((int)sum == n * (n - 1) / 2);
            where = "logical";
            short odd = (short)(rank + 1), all;
            MPI_Allreduce(&odd, &all, 1, MPI_SHORT, MPI_LAND, comm);
            CHECK(all == 1);
            unsigned char bit = (unsigned char)(1 << rank), bits;
            MPI_Allreduce(&bit, &bits, 1, MPI_BYTE, MPI_BOR, comm);
            CHECK(bits == (1 << n) - 1);
            float _Complex z = (float)rank, zs;
            MPI_Allreduce(&z, &zs, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, comm);
            CHECK((int)(float)zs == n * (n - 1) / 2);
        }
}

/* type: two ints of every three, or plain; `step` ints per element. The others use MPI_INT. */
static void moves(MPI_Comm comm, int derived)
{
    int rank, n;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &n);
    MPI_Datatype pair, wide;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 3 * sizeof(int), &wide);
    MPI_Type_commit(&wide);
    MPI_Type_commit(&pair);
    /* Ranks use different datatypes for the same data. */
    int gaps = derived && rank % 2 == 0;
    MPI_Datatype type = !derived ? MPI_INT : gaps ? wide : pair;
    int step = gaps ? 3 : derived ? 2 : 1;
    int used = derived ? 2 : 1;
    static int in[8 * 3 * MOST], out[8 * 3 * MOST];
    where = derived ? "derived types" : "plain types";
#define SET(array, element, v)     \
    for (int k = 0; k < used; k++) \
    (array)[(element)*step + k] = (v) + k
#define IS(array, element, v)      \
    for (int k = 0; k < used; k++) \
    CHECK((array)[(element)*step + k] == (v) + k)
#define CLEAR memset(out, 0x55, sizeof(out))
    for
        EACH_COUNT
        {
            int count = counts[c] / (derived ? 3 : 1);
            for (int root = 0; root < n; root++) {
                CLEAR;
                for (int i = 0; rank == root && i < count; i++)
                    SET(out, i, value(root, i));
                MPI_Bcast(out, count, type, root, comm);
                for (int i = 0; i < count; i++)
                    IS(out, i, value(root, i));
                if (gaps && count > 0)
                    CHECK(out[2] == 0x55555555);
                for (int place = 0; place < 2; place++) {
                    CLEAR;
                    for (int i = 0; i < count; i++) {
                        SET(in, i, value(rank, i));
                        if (place && rank == root)
                            SET(out, rank * count + i, value(rank, i));
                    }
                    MPI_Gather(place && rank == root ? MPI_IN_PLACE : (void *)in, count, type, out, count,
                               type, root, comm);
                    for (int i = 0; rank == root && i < n * count; i++)
                        IS(out, i, value(i / count, i % count));
                    /* Block r has count elements if r is even, else 1, and lies in reverse. */
                    int sizes[8], displs[8];
                    for (int r = 0; r < n; r++) {
                        sizes[r] = r % 2 && count > 0 ? 1 : count;
                        displs[r] = (n - 1 - r) * count;
                    }
                    CLEAR;
                    for (int i = 0; place && rank == root && i < sizes[rank]; i++)
                        SET(out, displs[rank] + i, value(rank, i));
                    MPI_Gatherv(place && rank == root ? MPI_IN_PLACE : (void *)in, sizes[rank], type, out,
                                sizes, displs, type, root, comm);
                    for (int r = 0; rank == root && r < n; r++)
                        for (int i = 0; i < sizes[r]; i++)
                            IS(out, displs[r] + i, value(r, i));
                    for (int r = 0; rank == root && r < n; r++)
                        for (int i = 0; i < count; i++)
                            SET(in, r * count + i, value(r, i));
                    CLEAR;
                    MPI_Scatter(in, count, type, place && rank == root ? MPI_IN_PLACE : out, count, type,
                                root, comm);
                    for (int i = 0; !(place && rank == root) && i < count; i++)
                        IS(out, i, value(rank, i));
                    for (int r = 0; rank == root && r < n; r++)
                        for (int i = 0; i < sizes[r]; i++)
                            SET(in, displs[r] + i, value(r, i));
                    CLEAR;
                    MPI_Scatterv(in, sizes, displs, type, place && rank == root ? MPI_IN_PLACE : out,
                                 sizes[rank], type, root, comm);
                    for (int i = 0; !(place && rank == root) && i < sizes[rank]; i++)
                        IS(out, i, value(rank, i));
                }
            }
            for (int place = 0; place < 2; place++) {
                int sizes[8], displs[8], back[8];
                MPI_Datatype types[8];
                for (int r = 0; r < n; r++) {
                    sizes[r] = r % 2 && count > 0 ? 1 : count;
                    displs[r] = (rank % 2 ? n - 1 - r : r) * count; /* not the same on all ranks */
                    types[r] = type;
                }
                CLEAR;
                for (int i = 0; i < count; i++) {
                    SET(in, i, value(rank, i));
                    if (place)
                        SET(out, rank * count + i, value(rank, i));
                }
                MPI_Allgather(place ? MPI_IN_PLACE : (void *)in, count, type, out, count, type, comm);
                for (int i = 0; i < n * count; i++)
                    IS(out, i, value(i / count, i % count));
                CLEAR;
                for (int i = 0; place && i < sizes[rank]; i++)
                    SET(out, displs[rank] + i, value(rank, i));
                MPI_Allgatherv(place ? MPI_IN_PLACE : (void *)in, sizes[rank], type, out, sizes, displs, type,
                               comm);
                for (int r = 0; r < n; r++)
                    for (int i = 0; i < sizes[r]; i++)
                        IS(out, displs[r] + i, value(r, i));
                CLEAR;
                for (int i = 0; i < n * count; i++)
                    SET(place ? out : in, i, value(rank, i));
                MPI_Alltoall(place ? MPI_IN_PLACE : (void *)in, count, type, out, count, type, comm);
                for (int i = 0; i < n * count; i++)
                    IS(out, i, value(i / count, rank * count + i % count));
                /* From r to p: as many as the smaller of the two has; symmetric, as in place must be. */
                for (int r = 0; r < n; r++)
                    sizes[r] = (r + rank) % 2 && count > 0 ? 1 : count;
                for (int form = 0; form < 2; form++) {
                    CLEAR;
                    for (int r = 0; r < n; r++) {
                        back[r] = displs[r] * step * (int)sizeof(int);
                        for (int i = 0; i < sizes[r]; i++)
                            SET(place ? out : in, displs[r] + i, value(rank, i) + r);
                    }
                    if (form == 0)
                        MPI_Alltoallv(place ? MPI_IN_PLACE : (void *)in, sizes, displs, type, out, sizes,
                                      displs, type, comm);
                    else
                        MPI_Alltoallw(place ? MPI_IN_PLACE : (void *)in, sizes, back, types, out, sizes, back,
                                      types, comm);
                    for (int r = 0; r < n; r++)
                        for (int i = 0; i < sizes[r]; i++)
                            IS(out, displs[r] + i, value(r, i) + rank);
                }
            }
        }
    MPI_Barrier(comm);
    MPI_Type_free(&wide);
    MPI_Type_free(&pair);
}
static void all(MPI_Comm comm)
{
    reductions(comm);
    moves(comm, 0);
    moves(comm, 1);
}
static void calls(int rank, int n)
{
    MPI_Comm comm, part;
    all(MPI_COMM_WORLD);
    all(MPI_COMM_SELF);
    for (int i = 0; i < 40; i++) { /* the same ranks again and again */
        int one = 1, sum = 0;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == n);
        MPI_Comm_split(comm, rank % 2, -rank, &part);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part);
        CHECK(sum == (n + 1 - rank % 2) / 2);
        MPI_Comm_free(&part);
        MPI_Comm_free(&comm);
    }
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, -rank, &comm);
    all(comm);
    if (n > 2) { /* an inter-communicator is passed on */
        int sum = 0;
        MPI_Comm inter, both;
        MPI_Intercomm_create(comm, 0, MPI_COMM_WORLD, rank == 0 ? n - 1 : 0, 1, &inter);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, inter);
        CHECK(sum == (rank == 0 ? n * (n - 1) / 2 : 0));
        MPI_Intercomm_merge(inter, rank == 0, &both);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, both);
        CHECK(sum == n * (n - 1) / 2);
        MPI_Comm_free(&both);
        MPI_Comm_free(&inter);
    }
    MPI_Comm_free(&comm);
    int dims[2] = {n % 2 ? n : n / 2, n % 2 ? 1 : 2}, wrap[2] = {1, 1}, remain[2] = {1, 0};
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, wrap, 1, &comm);
    reductions(comm);
    for (int k = 0; k < 2; k++) { /* its columns, and its rows */
        remain[0] = 1 - k;
        remain[1] = k;
        MPI_Cart_sub(comm, remain, &part);
        reductions(part);
        MPI_Comm_free(&part);
    }
    MPI_Comm_free(&comm);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -rank, MPI_INFO_NULL, &comm);
    moves(comm, 1);
    MPI_Comm_free(&comm);
    MPI_Group group, few;
    int ranks[1] = {n - 1};
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Group_excl(group, n > 1 ? 1 : 0, ranks, &few);
    if (n == 1 || rank != n - 1) {
        MPI_Comm_create_group(MPI_COMM_WORLD, few, 5, &comm);
        moves(comm, 0);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&few);
    MPI_Group_free(&group);
}

/* A communicator of MPI_Comm_idup gets one of Gyre at its first collective that blocks; before, others are
 * MPI's. */
static void requests(void)
{
    MPI_Comm comm;
    nonblocking = 1;
    all(MPI_COMM_WORLD);
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &pending);
    MPI_Wait(&pending, MPI_STATUS_IGNORE);
    moves(comm, 0);
    nonblocking = 0;
    MPI_Barrier(comm);
    nonblocking = 1;
    reductions(comm);
    nonblocking = 0;
    MPI_Comm_free(&comm);
}

/* Rank 0 sends a large message and enters a collective, in which the receiver has been for long. */
static void progress(int rank, int n)
{
    enum { LARGE = 1 << 24 };
    char *data = calloc(LARGE, 1);
    for (int turn = 0; turn < 3; turn++) {
        MPI_Request request;
        if (rank == 0) {
            data[LARGE - 1] = 7;
            MPI_Isend(data, LARGE, MPI_CHAR, n - 1, 0, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else if (rank == n - 1) {
            MPI_Irecv(data, LARGE, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD); /* rank n - 1 waits here while rank 0 waits for the message to go */
        if (rank == n - 1) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(data[LARGE - 1] == 7);
        }
    }
    free(data);
}

/* Each thread has a communicator of its own, made at its first collective (with GYRE_MPI_AFTER=0: in
 * MPI_Comm_dup), at once with the others. That of the last one is MPI_COMM_WORLD, of which Gyre makes the
 * others meanwhile. */
enum { THREADS = 5 };
static MPI_Comm thread_comms[THREADS];
static void *thread(void *of)
{
    MPI_Comm comm = *(MPI_Comm *)of;
    int n;
    MPI_Comm_size(comm, &n);
    for (int i = 0; i < 200; i++) {
        int sum = 0;
        MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, comm);
        if (sum != n * i)
            errors++;
    }
    return NULL;
}
static void threads(void)
{
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS - 1; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &thread_comms[i]);
    thread_comms[THREADS - 1] = MPI_COMM_WORLD;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&ids[i], NULL, thread, &thread_comms[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    for (int i = 0; i < THREADS - 1; i++)
        MPI_Comm_free(&thread_comms[i]);
    CHECK(errors == 0);
}

/* With the usual GYRE_MPI_AFTER: MPI makes the few collectives, and libgyre is not loaded. */
static void few(int rank)
{
    char line[4096];
    int loaded = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    MPI_Barrier(MPI_COMM_WORLD);
    while (maps && fgets(line, sizeof line, maps))
        loaded |= strstr(line, "/libgyre.so") != NULL;
    if (maps)
        fclose(maps);
    if (rank == 0)
        printf("libgyre is %s\n", loaded ? "loaded" : "not loaded");
}
/* The usual rule: 1,000 small collectives are not worth a join, some large ones are. */
static void worth(int rank)
{
    enum { SMALL = 1000, LARGE = 1 << 21 };
    int *data = calloc(LARGE, sizeof *data), sum = 0;
    for (int i = 0; i < SMALL; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    few(rank);
    for (int i = 0; i < SMALL + 60; i++)
        MPI_Bcast(data, i < 40 ? LARGE : 1, MPI_INT, 0, MPI_COMM_WORLD);
    few(rank);
    free(data);
}
/* With GYRE_MPI_AFTER=8: two ranks need the job of all, which is joined in the 5th collective of all. */
static void late(int rank)
{
    MPI_Comm part;
    int sum = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &part);
    for (int i = 0; i < 20; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, part);
    for (int i = 0; i < 6; i++)
        MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 40; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, part);
        CHECK(sum == (rank < 2 ? 1 : rank));
    }
    MPI_Comm_free(&part);
}

/* Rank 0 is in MPI_Recv while its broadcast is still on the way to rank 1, which answers when it has it. */
static void answer(int rank)
{
    enum { LEAST = 64 << 10, MOST = 128 << 10, ROUNDS = 3 };
    char *data = calloc(1, MOST);
    for (int bytes = LEAST; bytes <= MOST; bytes *= 2)
        for (int i = 0; i < ROUNDS; i++) {
            int got = -1;
            if (rank == 1)
                usleep(3000); /* the socket fills meanwhile */
            MPI_Bcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
            if (rank == 1)
                MPI_Send(&i, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
            else
                MPI_Recv(&got, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(rank == 1 || got == i);
        }
    free(data);
}

/* The last call is a broadcast that is still on the way when rank 0 calls MPI_Finalize. */
static void last(int rank)
{
    enum { BYTES = 64 << 10, ROUNDS = 3 };
    char *data = calloc(1, BYTES);
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1)
            usleep(3000); /* the socket fills meanwhile */
        MPI_Bcast(data, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    exit(0);
}

/* The error handler of the communicator is called. */
static int handled;
static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    MPI_Error_class(*code, &handled);
}
static void fails(int rank)
{
    MPI_Comm comm;
    MPI_Errhandler own;
    int buffer[4] = {0};
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    MPI_Barrier(comm);
    if (rank == 1) {
        const int ones[] = {1, 1}, starts[] = {0, 1};
        CHECK(MPI_Gather(MPI_IN_PLACE, 0, MPI_INT, buffer, 1, MPI_INT, 0, comm) == MPI_ERR_ARG);
        CHECK(MPI_Gatherv(MPI_IN_PLACE, 0, MPI_INT, buffer, ones, starts, MPI_INT, 0, comm) == MPI_ERR_ARG);
        CHECK(MPI_Scatter(buffer, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, 0, comm) == MPI_ERR_ARG);
        CHECK(MPI_Scatterv(buffer, ones, starts, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, 0, comm) == MPI_ERR_ARG);
        CHECK(MPI_Reduce(MPI_IN_PLACE, buffer, 1, MPI_INT, MPI_SUM, 0, comm) == MPI_ERR_ARG);
    }
    /* An element of 4 GiB with gaps: more than MPI_Pack takes. Nothing is read. */
    MPI_Datatype gaps;
    MPI_Type_vector(1 << 30, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    CHECK(MPI_Bcast(buffer, 1, gaps, 0, comm) == MPI_ERR_COUNT && handled == MPI_ERR_COUNT);
    MPI_Type_free(&gaps);
    /* The ranks do not agree about the count. */
    int rc = MPI_Allreduce(MPI_IN_PLACE, buffer, rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, comm);
    CHECK(rc == handled && handled == MPI_ERR_TRUNCATE);
}

/* The sum depends on the order of the operands, unless it is exact; Gyre has no exact products. */
static void order(int rank)
{
    double x = rank == 0 ? 1e16 : rank == 1 ? 1 : -1e16;
    double factor = rank;
    double sum, product;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Allreduce(&factor, &product, 1, MPI_DOUBLE, MPI_PROD, comm);
    if (rank == 0)
        printf("sum %g, product %g\n", sum, product);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "calls";
    int rank, n, provided = 0;
    if (strcmp(part, "threads") == 0)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    if (strcmp(part, "progress") == 0)
        progress(rank, n);
    else if (strcmp(part, "threads") == 0)
        threads();
    else if (strcmp(part, "few") == 0)
        few(rank);
    else if (strcmp(part, "worth") == 0)
        worth(rank);
    else if (strcmp(part, "answer") == 0)
        answer(rank);
    else if (strcmp(part, "last") == 0)
        last(rank);
    else if (strcmp(part, "late") == 0)
        late(rank);
    else if (strcmp(part, "fails") == 0)
        fails(rank);
    else if (strcmp(part, "calls") == 0)
        calls(rank, n);
    else if (strcmp(part, "requests") == 0)
        requests();
    MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(part, "abort") == 0 || strcmp(part, "killed") == 0) {
        if (rank == n - 1) {
            if (part[0] == 'a')
                MPI_Abort(MPI_COMM_WORLD, 3);
            raise(SIGKILL);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (strcmp(part, "order") == 0) {
        order(rank);
        MPI_Finalize();
        return 0;
    }
    int mine[2] = {checks, errors}, sums[2] = {0, 0};
    MPI_Reduce(mine, sums, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks: %d checks, %d failed\n", n, sums[0], sums[1]);
    MPI_Finalize();
    return errors != 0;
}
