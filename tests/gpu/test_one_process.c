/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_one_process.c: collectives of ranks in one process (gyre_cuda_comms_create). Every
 * collective has the bits of the host's arithmetic in the canonical order: on one device and on
 * several; called by one thread, in a group, by a thread per rank, and from graphs; by LL kernels,
 * shots, schedules and copy engines. Messages arrive as they were sent. Streams:
 * test_one_process_streams.c; errors: test_one_process_failures.c. */
#include "tests/gpu/one_process.h"

/* Operations until LL kernels count from 0 again, emulated: collectives/gpu/ll/lines.h. */
enum { PERIOD = 64 };

static const coll_op_t operations[] = {COLL_ALL_REDUCE,     COLL_REDUCE,     COLL_BROADCAST,
                                       COLL_REDUCE_SCATTER, COLL_ALL_GATHER, COLL_GATHER,
                                       COLL_SCATTER,        COLL_ALL_TO_ALL, COLL_BARRIER};
enum { OPERATIONS = sizeof operations / sizeof *operations };

/* Every operation in both places and forms, in all manners by turns. */
static void every_operation(void)
{
    static const size_t sizes[] = {0, 1, 5, 333, 2003};
    static const gyre_type_t types[] = {GYRE_FLOAT32, GYRE_UINT8, GYRE_FLOAT16, GYRE_INT64};
    int turn = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int op = 0; op < OPERATIONS; op++)
            for (int form = 0; form < 4; form++, turn++) {
                collective_t a = {.op = operations[op],
                                  .type = types[turn % 4],
                                  .count = sizes[i],
                                  .root = turn % team.n,
                                  .in_place = form & 1,
                                  .uneven = form >> 1};
                a.shift = turn % 5 == 1 ? gyre_type_size(a.type) : 0;
                if (a.uneven && (a.op == COLL_ALL_REDUCE || a.op == COLL_REDUCE || a.op == COLL_BROADCAST ||
                                 a.op == COLL_BARRIER))
                    continue;
                check_collective(&a, (manner_t)((turn + turn / 4) % MANNERS));
            }
}

/* Every type with every reduction. */
static void every_arithmetic(void)
{
    for (int type = 0; type < DEVICE_TYPES; type++)
        for (int op = 0; op <= DEVICE_REDOPS; op++) {
            const collective_t a = {.op = COLL_ALL_REDUCE,
                                    .type = (gyre_type_t)type,
                                    .redop = op,
                                    .count = 503,
                                    .in_place = op % 2};
            check_collective(&a, BY_ONE_THREAD);
        }
}

static void every_collective_on_one_device(void **state)
{
    static const int devices[MOST] = {0};
    (void)state;
    for (int n = 1; n <= MOST; n += n < 3 ? 1 : n < 4 ? 2 : 3) {
        open_team(n, devices);
        every_operation();
        if (n == 5)
            every_arithmetic();
        close_team();
    }
}

static void every_collective_on_several_devices(void **state)
{
    (void)state;
    open_team(6, NULL);
    every_operation();
    close_team();
}

/* ---- LL kernels (collectives/gpu/ll) ---- */

/* A rank's share of a pretend device's four multiprocessors is the blocks that it has. */
static void ll_kernels(void **state)
{
    static const struct {
        int n;
        size_t most;
    } teams[] = {{2, 16 << 10}, {5, 8 << 10}};
    (void)state;
    set(SET_CUDA_LL, NULL);
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
        open_team(teams[i].n, NULL);
        assert_algorithm(COLL_ALL_REDUCE, teams[i].most, "ll");
        assert_algorithm(COLL_ALL_REDUCE, teams[i].most + 1, teams[i].n > 2 ? "two_shot" : "one_shot");
        assert_algorithm(COLL_BARRIER, 0, "direct");
        every_operation();
        if (teams[i].n > 3)
            every_arithmetic();
        close_team();
    }
    set(SET_CUDA_LL, "0");
    open_team(2, NULL);
    assert_algorithm(COLL_ALL_REDUCE, 4, "one_shot");
    close_team();
    set(SET_CUDA_LL, "16385");
    assert_refused(gyre_cuda_comms_create(2, NULL, team.comms), GYRE_ERR_INVALID,
                   "GYRE_CUDA_LL=16385 is not in 0..16384 bytes");
    set(SET_CUDA_LL, "1K");
}

/* More ranks than a thread looks at together, in four groups. */
static void ll_kernels_of_many_ranks(void **state)
{
    enum { N = 27, COUNT = 301 };
    gyre_comm_t *comms[N];
    cudaStream_t streams[N];
    float *there[N], host[N][COUNT], want[COUNT], got[COUNT];
    const void *from[N];
    (void)state;
    set(SET_CUDA_LL, NULL);
    assert_gyre(gyre_cuda_comms_create(N, NULL, comms));
    for (int r = 0; r < N; r++) {
        values_fill((char *)host[r], COUNT, GYRE_FLOAT32, &team.seed);
        from[r] = host[r];
        assert_cuda(cudaSetDevice(r % 4));
        assert_cuda(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&there[r], sizeof got));
        assert_cuda(cudaMemcpy(there[r], host[r], sizeof got, cudaMemcpyHostToDevice));
        assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    }
    team.comms[0] = comms[0];
    assert_algorithm(COLL_ALL_REDUCE, COUNT * sizeof(float), "ll");
    assert_algorithm(COLL_ALL_REDUCE, (4 << 10) + 1, "two_shot");
    for (int r = 0; r < N; r++)
        assert_gyre(gyre_all_reduce_stream(there[r], there[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                           comms[r], streams[r]));
    coll_kernel_reduce(GYRE_SUM, GYRE_FLOAT32, want, from, N, COUNT);
    for (int r = 0; r < N; r++) {
        assert_cuda(cudaStreamSynchronize(streams[r]));
        assert_cuda(cudaMemcpy(got, there[r], sizeof got, cudaMemcpyDeviceToHost));
        assert_memory_equal(got, want, sizeof got);
    }
    for (int r = 0; r < N; r++) {
        assert_gyre(gyre_comm_destroy(comms[r]));
        assert_cuda(cudaSetDevice(r % 4));
        assert_cuda(cudaStreamDestroy(streams[r]));
        assert_cuda(cudaFree(there[r]));
    }
    team.comms[0] = NULL;
    assert_cuda(cudaSetDevice(0));
    set(SET_CUDA_LL, "1K");
}

/* Many short ones that nobody waits for, of other lengths and kinds each time and with others in between:
 * through all numbers that operations have, twice and more. The last rank is late now and then. */
static void ll_kernels_back_to_back(void **state)
{
    enum { ROUNDS = PERIOD * 5 / 2, MOST_EACH = 60, LONG = 1000, FIRST = 3 };
    static int host[ROUNDS][MOST_EACH], want[LONG];
    (void)state;
    set(SET_CUDA_LL, NULL);
    open_team(3, NULL);
    assert_algorithm(COLL_ALL_REDUCE, LONG * sizeof(int), "ll");
    for (int r = 0; r < team.n; r++) {
        int *values = (int *)team.host_in[r];
        for (int i = 0; i < 2 * LONG; i++)
            values[i] = (r + 1) * (i + 1);
        assert_cuda(cudaMemcpy(team.in[r], values, 2 * LONG * sizeof(int), cudaMemcpyHostToDevice));
        assert_cuda(cudaMemset(team.out[r], POISON, ROOM));
    }
    assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
    for (int k = 0; k < ROUNDS; k++) /* every rank's result k is at the place of its number */
        for (int r = 0; r < team.n; r++) {
            gyre_comm_t *comm = team.comms[r];
            int *in = (int *)team.in[r] + k % 7, *out = (int *)team.out[r] + LONG + k * MOST_EACH;
            const size_t count = (size_t)(k * 13 % MOST_EACH + 1);
            cudaStream_t stream = team.streams[r];
            if (k % 11 == 5)
                assert_gyre(gyre_barrier_stream(comm, stream));
            if (r == team.n - 1 && k % 29 == 3)
                usleep(3000);
            if (k == FIRST || k == FIRST + PERIOD) {
                /* the same number, and lines that only these two have: new ones, which come late */
                if (k > FIRST && r == team.n - 1)
                    usleep(30000);
                assert_gyre(gyre_all_reduce_stream((int *)team.in[r] + (k > FIRST ? LONG : 0), team.out[r],
                                                   LONG, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, stream));
            } else if (k % 3 == 0) {
                assert_gyre(gyre_broadcast_stream(r == k % team.n ? in : NULL, out, count, GYRE_INT32,
                                                  k % team.n, comm, stream));
            } else {
                assert_gyre(
                    gyre_all_reduce_stream(in, out, count, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, stream));
            }
        }
    wait_for_streams();
    for (int r = 0; r < team.n; r++) {
        assert_cuda(cudaMemcpy(host, (int *)team.out[r] + LONG, sizeof host, cudaMemcpyDeviceToHost));
        assert_cuda(cudaMemcpy(want, team.out[r], sizeof want, cudaMemcpyDeviceToHost));
        for (int i = 0; i < LONG; i++)
            assert_int_equal(want[i], 6 * (LONG + i + 1));
        for (int k = 0; k < ROUNDS; k++)
            for (int i = 0; i <= k * 13 % MOST_EACH && k != FIRST && k != FIRST + PERIOD; i++)
                if (host[k][i] != (k % 3 == 0 ? k % team.n + 1 : 6) * (k % 7 + i + 1))
                    fail_msg("rank %d, operation %d, element %d: %d", r, k, i, host[k][i]);
    }
    set(SET_CUDA_LL, "1K");
    close_team();
}

/* Long ones by copy engines, in several rounds. */
static void copy_engines(void **state)
{
    (void)state;
    set(SET_CUDA_ENGINES, "300");
    open_team(3, NULL);
    for (int manner = 0; manner < MANNERS; manner++) {
        const collective_t gather = {.op = COLL_ALL_GATHER, .type = GYRE_FLOAT32, .count = 20011},
                           cast = {.op = COLL_BROADCAST, .type = GYRE_UINT8, .count = 100003, .root = 1};
        check_collective(&gather, (manner_t)manner);
        check_collective(&cast, (manner_t)manner);
    }
    close_team();
    set(SET_CUDA_ENGINES, NULL);
}

/* Messages around the ring by one thread, of lengths around a piece and beyond all that can be on its way:
 * those go in a group. */
static void messages(void **state)
{
    static const size_t sizes[] = {0, 1, 5, 1000, 5000, ROOM / 4 - 8};
    (void)state;
    for (int several = 0; several < 2; several++) {
        static const int devices[MOST] = {0};
        open_team(3, several ? NULL : devices);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const size_t bytes = sizes[i] * sizeof(float);
            for (int r = 0; r < team.n; r++) {
                values_fill(team.host_in[r], sizes[i], GYRE_FLOAT32, &team.seed);
                assert_cuda(cudaMemset(team.out[r], POISON, ROOM));
                assert_cuda(cudaMemcpy(team.in[r], team.host_in[r], bytes, cudaMemcpyHostToDevice));
                assert_cuda(cudaStreamSynchronize(cudaStreamLegacy));
            }
            const int grouped = sizes[i] > 1000 || i % 2;
            if (grouped)
                assert_gyre(gyre_group_start());
            for (int r = 0; r < team.n; r++) {
                const int next = (r + 1) % team.n, before = (r + team.n - 1) % team.n;
                if (i % 3 == 0) {
                    assert_gyre(gyre_neighbor_exchange_stream(team.in[r], &sizes[i], NULL, 1, &next,
                                                              team.out[r], &sizes[i], NULL, 1, &before,
                                                              GYRE_FLOAT32, team.comms[r], team.streams[r]));
                    continue;
                }
                assert_gyre(gyre_send_stream(team.in[r], sizes[i], GYRE_FLOAT32, next, team.comms[r],
                                             team.streams[r]));
                assert_gyre(gyre_recv_stream(team.out[r], sizes[i], GYRE_FLOAT32, before, team.comms[r],
                                             team.streams[r]));
            }
            if (grouped)
                assert_gyre(gyre_group_end());
            wait_for_streams();
            for (int r = 0; r < team.n; r++) {
                assert_cuda(cudaMemcpy(team.want[r], team.out[r], bytes, cudaMemcpyDeviceToHost));
                assert_memory_equal(team.want[r], team.host_in[(r + team.n - 1) % team.n], bytes);
                assert_gyre(gyre_comm_error(team.comms[r]));
            }
        }
        const collective_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 1000};
        check_collective(&a, BY_THREADS);
        close_team();
    }
}

/* Two teams of the same devices, with operations of both under way; the second works on when the first has
 * gone. */
static void two_teams_at_once(void **state)
{
    enum { N = 2, COUNT = 3000 };
    static const int devices[N] = {0, 0};
    static float ones[COUNT], got[COUNT];
    gyre_comm_t *other[N];
    cudaStream_t streams[N];
    (void)state;
    open_team(N, devices);
    assert_gyre(gyre_cuda_comms_create(N, devices, other));
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    for (int r = 0; r < N; r++) {
        assert_cuda(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMemcpy(team.in[r], ones, sizeof ones, cudaMemcpyHostToDevice));
        assert_cuda(cudaMemcpy(team.out[r], ones, sizeof ones, cudaMemcpyHostToDevice));
    }
    for (int i = 0; i < 3; i++)
        for (int r = 0; r < N; r++) {
            assert_gyre(gyre_all_reduce_stream(team.in[r], team.in[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                               team.comms[r], team.streams[r]));
            assert_gyre(gyre_all_reduce_stream(team.out[r], team.out[r], COUNT, GYRE_FLOAT32,
                                               GYRE_OP(GYRE_SUM), other[N - 1 - r], streams[r]));
        }
    wait_for_streams();
    close_comms();
    for (int r = 0; r < N; r++)
        assert_gyre(gyre_all_reduce_stream(team.out[r], team.out[r], COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                           other[N - 1 - r], streams[r]));
    for (int r = 0; r < N; r++) {
        assert_cuda(cudaStreamSynchronize(streams[r]));
        assert_cuda(cudaMemcpy(got, team.in[r], sizeof got, cudaMemcpyDeviceToHost));
        assert_true(got[0] == 8 && got[COUNT - 1] == 8);
        assert_cuda(cudaMemcpy(got, team.out[r], sizeof got, cudaMemcpyDeviceToHost));
        assert_true(got[0] == 16 && got[COUNT - 1] == 16);
    }
    for (int r = 0; r < N; r++) {
        assert_gyre(gyre_comm_destroy(other[r]));
        assert_cuda(cudaStreamDestroy(streams[r]));
    }
    close_team();
}

/* A process of a job may have a team, too, and the team outlives the job. */
static void team_outlives_a_job(void **state)
{
    gyre_comm_t *world;
    (void)state;
    assert_gyre(gyre_init(NULL, &world));
    open_team(2, NULL);
    assert_gyre(gyre_all_reduce(team.in[0], team.in[0], 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), world));
    assert_gyre(gyre_finalize(world));
    every_operation();
    close_team();
}

/* Whether an all_reduce of `count` floats runs a ring on this rank. */
static int runs_ring(int rank, size_t count)
{
    coll_cuda_explanation_t x;
    const coll_shape_t shape = {
        .op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .redop = GYRE_SUM, .uniform = 1, .count = count};
    assert_gyre(coll_cuda_explain(team.comms[rank], &shape, 0, &x));
    return strcmp(x.algorithm, "ring") == 0;
}

/* Schedules have room for some shapes, and a call takes no memory for others: those run as shots, on all
 * ranks, in any order of calls, and works in place. */
static void schedules_and_shots(void **state)
{
    size_t count = 2000;
    (void)state;
    set(SET_ALGO, "ring");
    open_team(3, NULL);
    for (int full = 0; full < 2; full++) {
        for (size_t i = 0; i < 18; i++) {
            const coll_op_t op = i % 3 == 1   ? COLL_ALL_GATHER
                                 : i % 3 == 2 ? COLL_REDUCE_SCATTER
                                              : COLL_ALL_REDUCE;
            collective_t a = {.op = op,
                              .type = GYRE_FLOAT32,
                              .count = (full ? 9000 : 3001) + 100 * i,
                              .in_place = i % 5 == 1,
                              .uneven = op != COLL_ALL_REDUCE && i % 4 == 0};
            check_collective(&a, i % 2 ? BY_THREADS : BY_GRAPH);
            check_collective(&a, BY_ONE_THREAD);
            a.in_place = !a.in_place;
            check_collective(&a, BY_ONE_THREAD);
        }
        /* one rank comes first, and what it takes is taken for all */
        while (!full && runs_ring(0, count) && count < 100000)
            count += 2;
        assert_true(count > 2010 && count < 100000);
        assert_true(runs_ring(1, count - 2) && !runs_ring(1, count) && runs_ring(2, count - 2) &&
                    !runs_ring(2, count));
        for (int i = -4; i <= 4; i += 2) {
            const collective_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = count + (size_t)i};
            check_collective(&a, i % 4 ? BY_THREADS : BY_ONE_THREAD);
        }
    }
    close_team();
    set(SET_ALGO, NULL);
}

int main(void)
{
    if (!one_process_begin())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_on_one_device),
        cmocka_unit_test(every_collective_on_several_devices),
        cmocka_unit_test(ll_kernels),
        cmocka_unit_test(ll_kernels_of_many_ranks),
        cmocka_unit_test(ll_kernels_back_to_back),
        cmocka_unit_test(copy_engines),
        cmocka_unit_test(messages),
        cmocka_unit_test(two_teams_at_once),
        cmocka_unit_test(team_outlives_a_job),
        cmocka_unit_test(schedules_and_shots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
