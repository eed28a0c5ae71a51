/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_one_process_streams.c: streams and launches of ranks in one process. A rank's call is
 * refused on a stream where it would wait for itself; an operation puts few launches into a stream's
 * queue; creating communicators and launching kernels waits for no stream of the program. The ranks are
 * a team (gyre_cuda_comms_create) or two ranks of a job (gyre_comm_create_id). */
#include "tests/gpu/one_process.h"

#include "base/clock.h"

/* On a device a rank's call is not enqueued after another's that waits for it, through any number of calls
 * between and any stream that was used meanwhile. It may be enqueued after one that is done with it. */
static void shared_streams(void **state)
{
    static const int devices[2] = {0, 0};
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    cudaStream_t further;
    (void)state;
#define ADD_UP(r, stream) \
    gyre_all_reduce_stream(team.in[r], team.out[r], 4, GYRE_FLOAT32, sum, team.comms[r], stream)
    open_team(2, devices);
    assert_cuda(cudaStreamCreateWithFlags(&further, cudaStreamNonBlocking));
    assert_gyre(ADD_UP(0, team.streams[0]));
    assert_gyre(ADD_UP(0, team.streams[0]));
    assert_refused(ADD_UP(1, team.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(1, team.streams[1]));
    assert_refused(ADD_UP(1, team.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(1, team.streams[1]));
    assert_gyre(ADD_UP(1, team.streams[0])); /* after work that no longer waits for rank 1 */
    assert_refused(ADD_UP(0, team.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(0, team.streams[1]));
    wait_for_streams();
    /* another stream is this rank's newest, and that call still waits here */
    assert_gyre(ADD_UP(0, team.streams[0]));
    assert_gyre(ADD_UP(0, further));
    assert_refused(ADD_UP(1, team.streams[0]), GYRE_ERR_INVALID, "the same stream");
    assert_refused(ADD_UP(1, further), GYRE_ERR_INVALID, "the same stream");
    assert_gyre(ADD_UP(1, team.streams[1]));
    assert_gyre(ADD_UP(1, team.streams[1]));
    wait_for_streams();
    assert_cuda(cudaStreamSynchronize(further));
    assert_cuda(cudaStreamDestroy(further));
#undef ADD_UP
    const collective_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 100};
    check_collective(&a, BY_THREADS);
    close_team();
}

/* A launch that needs more stack than the device has set aside waits for the whole device. */
static void stack_is_reserved(void **state)
{
    (void)state;
    static const int devices[2] = {0};
    gyre_comm_t *comms[2] = {NULL};
    size_t stack = 0;
    assert_cuda(cudaDeviceSetLimit(cudaLimitStackSize, 16));
    assert_int_equal(gyre_cuda_comms_create(2, devices, comms), GYRE_OK);
    assert_cuda(cudaDeviceGetLimit(&stack, cudaLimitStackSize));
    assert_in_range(stack, 48, 1 << 20); /* the frame of the kernels that add */
    assert_int_equal(gyre_comm_destroy(comms[0]), GYRE_OK);
    assert_int_equal(gyre_comm_destroy(comms[1]), GYRE_OK);
}

/* An operation leaves room in a stream's queue for many more. */
static void launches_per_operation(void **state)
{
    (void)state;
    open_team(3, NULL);
    set(SET_CUDA_ENGINES, "300");
    /* 16 rounds of 5 launches, through 16 KiB each */
    assert_algorithm(COLL_ALL_GATHER, 256 << 10, "engines");
    assert_algorithm(COLL_ALL_GATHER, 1 << 20, "direct");
    assert_algorithm(COLL_BROADCAST, 1 << 20, "engines");
    assert_algorithm(COLL_BROADCAST, 4 << 20, "direct");
    set(SET_CUDA_ENGINES, NULL);
    close_team();
}

/* ---- two ranks of a job ---- */

/* Made by gyre_comm_create_id, each by a thread of its own. */
static struct {
    gyre_unique_id_t id;
    gyre_comm_t *comms[2];
} pair;

static void *create_one(void *argument)
{
    const int r = *(int *)argument;
    gyre_comm_t **comm = &pair.comms[r];
    if (cudaSetDevice(r % base_device_count(BASE_CUDA)) != cudaSuccess ||
        gyre_comm_create_id(&pair.id, r, 2, NULL, comm) != GYRE_OK ||
        gyre_comm_prepare_cuda(*comm) != GYRE_OK)
        *comm = NULL;
    return NULL;
}

static void *finalize_one(void *argument)
{
    return gyre_finalize(pair.comms[*(int *)argument]) == GYRE_OK ? argument : NULL;
}

/* Calls it for ranks 0 and 1 at once. */
static void in_two_threads(void *(*function)(void *))
{
    static int numbers[2] = {0, 1};
    pthread_t threads[2];
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_create(&threads[r], NULL, function, &numbers[r]), 0);
    for (int r = 0; r < 2; r++)
        assert_int_equal(pthread_join(threads[r], NULL), 0);
}

/* Two ranks of a job: one thread calls for both, and neither takes memory or a queue of launches. */
static void two_ranks_of_a_job(void **state)
{
    (void)state;
    assert_gyre(gyre_get_unique_id(&pair.id));
    in_two_threads(create_one);
    team.comms[0] = pair.comms[0];
    assert_non_null(pair.comms[0]);
    assert_non_null(pair.comms[1]);
    set(SET_CUDA_ENGINES, "300");
    assert_algorithm(COLL_ALL_GATHER, 256 << 10, "engines");
    assert_algorithm(COLL_ALL_GATHER, 1 << 20, "direct");
    set(SET_CUDA_ALGO, "schedule");
    assert_algorithm(COLL_BROADCAST, 4 << 20, "direct");
    set(SET_CUDA_ALGO, NULL);
    set(SET_CUDA_ENGINES, NULL);
    in_two_threads(finalize_one);
    team.comms[0] = NULL;
}

/* Two ranks whose streams wait, each with a stream and a buffer; one thread calls for both. */
typedef struct {
    int32_t *buffer[2];
    cudaStream_t streams[2];
} waiting_t;

static void begin_waiting(waiting_t *w, size_t bytes)
{
    set(SET_CUDA_WAIT, "stream");
    assert_gyre(gyre_get_unique_id(&pair.id));
    in_two_threads(create_one);
    for (int r = 0; r < 2; r++) {
        assert_non_null(pair.comms[r]);
        assert_cuda(cudaSetDevice(r % base_device_count(BASE_CUDA)));
        assert_cuda(cudaStreamCreateWithFlags(&w->streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&w->buffer[r], bytes));
    }
}

static void end_waiting(const waiting_t *w)
{
    in_two_threads(finalize_one);
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaStreamDestroy(w->streams[r]));
        assert_cuda(cudaFree(w->buffer[r]));
    }
    assert_cuda(cudaSetDevice(0));
    set(SET_CUDA_WAIT, NULL);
}

/* Streams wait, and one thread calls for both ranks: a long operation does not put all of its phases on the
 * first rank's stream. */
static void launches_of_waiting_streams(void **state)
{
    enum { MOST_BYTES = 4 << 20, LEAST = 1 << 20 };
    int32_t first[2], last;
    waiting_t w;
    (void)state;
    begin_waiting(&w, MOST_BYTES);
    for (int r = 0; r < 2; r++)
        assert_cuda(cudaMemset(w.buffer[r], 1, MOST_BYTES));
    for (size_t bytes = LEAST; bytes <= MOST_BYTES; bytes *= 4) {
        for (int r = 0; r < 2; r++) {
            const unsigned long long before = gpu_is_emulated() ? emulated_given() : 0;
            assert_gyre(gyre_all_reduce_stream(w.buffer[r], w.buffer[r], bytes / sizeof *w.buffer[r],
                                               GYRE_INT32, GYRE_OP(GYRE_SUM), pair.comms[r], w.streams[r]));
            if (gpu_is_emulated()) /* 35 rounds of two launches and a wait; or one kernel, and the event */
                assert_in_range(emulated_given() - before, bytes == LEAST ? 100 : 1,
                                bytes == LEAST ? 203 : 3);
        }
        for (int r = 0; r < 2; r++)
            assert_cuda(cudaStreamSynchronize(w.streams[r]));
    }
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaMemcpy(first, w.buffer[r], sizeof first, cudaMemcpyDeviceToHost));
        assert_cuda(cudaMemcpy(&last, (char *)w.buffer[r] + MOST_BYTES - sizeof last, sizeof last,
                               cudaMemcpyDeviceToHost));
        assert_int_equal(first[1], 4 * 0x01010101);
        assert_int_equal(last, 2 * 0x01010101);
    }
    end_waiting(&w);
}

/* Of an operation whose streams wait, a captured form is another: its kernel waits. They must not meet. */
static void captured_on_one_rank(void **state)
{
    enum { COUNT = 1 << 18 };
    waiting_t w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)state;
    set(SET_TIMEOUT, "10s");
    begin_waiting(&w, COUNT * sizeof *w.buffer[0]);
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaSetDevice(r % base_device_count(BASE_CUDA)));
        if (r == 0)
            assert_cuda(cudaStreamBeginCapture(w.streams[r], cudaStreamCaptureModeThreadLocal));
        assert_gyre(gyre_all_reduce_stream(w.buffer[r], w.buffer[r], COUNT, GYRE_INT32, GYRE_OP(GYRE_SUM),
                                           pair.comms[r], w.streams[r]));
        if (r > 0)
            continue;
        assert_cuda(cudaStreamEndCapture(w.streams[r], &graph));
        assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
        assert_cuda(cudaGraphLaunch(exec, w.streams[r]));
    }
    for (int r = 0; r < 2; r++) {
        const base_time_t until = base_deadline(20);
        while (gyre_comm_error(pair.comms[r]) == GYRE_OK && base_now() < until)
            usleep(1000);
        assert_int_equal(gyre_comm_error(pair.comms[r]), GYRE_ERR_MISMATCH);
        assert_cuda(cudaStreamSynchronize(w.streams[r]));
    }
    end_waiting(&w);
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_cuda(cudaGraphDestroy(graph));
    set(SET_TIMEOUT, NULL);
}

/* Begins a capture of two branches, and makes a call of rank 0 on the second one. */
static void capture_first(cudaStream_t stream, cudaStream_t branch)
{
    cudaEvent_t fork;
    assert_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaEventRecord(fork, stream));
    assert_cuda(cudaStreamWaitEvent(branch, fork, 0));
    assert_gyre(gyre_all_reduce_stream(team.in[0], team.out[0], 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                       team.comms[0], branch));
    assert_cuda(cudaEventDestroy(fork));
}

/* Its next call, on the first branch, with which the capture ends. */
static void capture_second(cudaStream_t stream)
{
    cudaGraph_t graph;
    assert_gyre(gyre_all_reduce_stream(team.in[0], team.out[0], 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM),
                                       team.comms[0], stream));
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphDestroy(graph));
}

/* Two branches of a graph, which the program does not join: the communicator's second call comes after its
 * first one. The next capture knows nothing of this one. */
static void captured_on_two_streams(void **state)
{
    static const int devices[2] = {0, 1};
    cudaStream_t branch;
    (void)state;
    open_team(2, devices);
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreateWithFlags(&branch, cudaStreamNonBlocking));
    for (int capture = 0; capture < 2; capture++) {
        capture_first(team.streams[0], branch);
        capture_second(team.streams[0]);
    }
    assert_cuda(cudaStreamDestroy(branch));
    close_team();
}

/* Captures that take turns on a communicator: each one's second call comes after its own first one. */
static void captures_in_turns(void **state)
{
    enum { CAPTURES = 3 };
    static const int devices[2] = {0, 1};
    cudaStream_t stream[CAPTURES], branch[CAPTURES];
    (void)state;
    open_team(2, devices);
    assert_cuda(cudaSetDevice(0));
    for (int i = 0; i < CAPTURES; i++) {
        assert_cuda(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
        assert_cuda(cudaStreamCreateWithFlags(&branch[i], cudaStreamNonBlocking));
        capture_first(stream[i], branch[i]);
    }
    for (int i = 0; i < CAPTURES; i++) {
        capture_second(stream[i]);
        assert_cuda(cudaStreamDestroy(stream[i]));
        assert_cuda(cudaStreamDestroy(branch[i]));
    }
    close_team();
}

/* Staged, and one thread calls for both ranks: some hundred calls of the first one wait for the second's. An
 * error ends more of them. */
static void staged_calls_ahead(void **state)
{
    enum { CALLS = 200, MORE = 2000 };
    int32_t got = 0;
    waiting_t w;
    gyre_status_t st = GYRE_OK;
    (void)state;
    set(SET_CUDA_PATH, "staged");
    begin_waiting(&w, 2 * sizeof got);
    for (int r = 0; r < 2; r++)
        assert_cuda(cudaMemset(w.buffer[r], 1, 2 * sizeof got));
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < CALLS; i++)
            assert_gyre(gyre_all_reduce_stream(w.buffer[r], w.buffer[r] + 1, 1, GYRE_INT32, GYRE_OP(GYRE_SUM),
                                               pair.comms[r], w.streams[r]));
    for (int r = 0; r < 2; r++) {
        assert_cuda(cudaStreamSynchronize(w.streams[r]));
        assert_cuda(cudaMemcpy(&got, w.buffer[r] + 1, sizeof got, cudaMemcpyDeviceToHost));
        assert_int_equal(got, 2 * 0x01010101);
    }
    if (gpu_is_emulated()) { /* a GPU's launches would wait, too */
        pair.comms[0]->timeout_ns = (base_time_t)1e9;
        for (int i = 0; i < MORE && st == GYRE_OK; i++)
            st = gyre_barrier_stream(pair.comms[0], w.streams[0]);
        assert_int_equal(st, GYRE_ERR_TIMEOUT);
        assert_non_null(strstr(gyre_last_error(), "calls for several ranks of this process"));
    }
    end_waiting(&w);
    set(SET_CUDA_PATH, NULL);
}

/* Communicators are created while the program has work on a stream that the legacy stream waits for. */
static void created_while_a_stream_works(void **state)
{
    static int let_go;
    cudaStream_t stream;
    (void)state;
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaStreamCreate(&stream));
    assert_cuda(cudaLaunchHostFunc(stream, gpu_hold, &let_go));
    open_comms(2, NULL);
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamDestroy(stream));
    close_comms();
}

/* `test_one_process_streams job`: two ranks of a job, for jobs.sh. */
static int create_pair(void)
{
    if (gyre_get_unique_id(&pair.id) != GYRE_OK)
        return 1;
    in_two_threads(create_one);
    return !pair.comms[0] || !pair.comms[1];
}

/* `test_one_process_streams queues [DEVICE...]`: ranks on these devices, or two on device 0, whose streams
 * have no queues of their own (base_device_prepare_process is not called), for jobs.sh. */
static int without_queues(int n, char **arguments)
{
    int devices[MOST] = {0};
    gyre_comm_t *comms[MOST] = {NULL};
    for (int r = 0; r < n; r++)
        devices[r] = atoi(arguments[r]);
    n = n > 0 ? n : 2;
    int failed = gyre_cuda_comms_create(n, devices, comms) != GYRE_OK;
    for (int r = 0; r < n && !failed; r++)
        failed = gyre_comm_destroy(comms[r]) != GYRE_OK;
    return failed;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "queues") == 0)
        return without_queues(argc - 2 < MOST ? argc - 2 : MOST, argv + 2);
    if (argc > 1 && strcmp(argv[1], "job") == 0)
        return create_pair();
    if (!one_process_begin())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_streams),
        cmocka_unit_test(stack_is_reserved),
        cmocka_unit_test(launches_per_operation),
        cmocka_unit_test(two_ranks_of_a_job),
        cmocka_unit_test(launches_of_waiting_streams),
        cmocka_unit_test(captured_on_one_rank),
        cmocka_unit_test(captured_on_two_streams),
        cmocka_unit_test(captures_in_turns),
        cmocka_unit_test(staged_calls_ahead),
        cmocka_unit_test(created_while_a_stream_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
