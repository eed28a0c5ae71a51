/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_one_process_failures.c: errors of ranks in one process (gyre_cuda_comms_create). Invalid
 * calls are refused with their reason, and no other rank waits for them. An error of one rank is
 * reported on all. Nothing waits forever, and no memory or event is left. */
#include "tests/gpu/one_process.h"

#include <signal.h>

#include <cuda.h>

#include "base/clock.h"

static size_t free_memory(void)
{
    size_t bytes = 0, all;
    assert_gyre(base_device_memory((base_device_t){BASE_CUDA, 0}, &bytes, &all));
    return bytes;
}

/* Creating and destroying a team leaves no device memory. */
static void memory_is_given_back(void **state)
{
    (void)state;
    open_comms(4, NULL);
    close_comms();
    const size_t before_all = free_memory();
    for (int i = 0; i < 3; i++) {
        open_comms(4, NULL);
        if (gpu_is_emulated()) /* others may use a real one */
            assert_true(free_memory() < before_all);
        close_comms();
    }
    if (gpu_is_emulated())
        assert_int_equal(free_memory(), before_all);
}

/* The reason of every refusal; other ranks do not wait for a call that was refused. */
static void invalid_calls(void **state)
{
    static const int devices[2] = {0, 0}, far[2] = {0, 99};
    float host[8] = {0};
    gyre_comm_t *none[2] = {NULL}, *split;
    gyre_request_t *request;
    char text[128];
    (void)state;
    assert_refused(gyre_cuda_comms_create(2, devices, NULL), GYRE_ERR_INVALID, "comms is NULL");
    assert_refused(gyre_cuda_comms_create(0, devices, none), GYRE_ERR_INVALID, "0 ranks");
    assert_refused(gyre_cuda_comms_create(65, NULL, none), GYRE_ERR_INVALID, "65 ranks");
    assert_refused(gyre_cuda_comms_create(2, far, none), GYRE_ERR_INVALID, "devices[1] is 99");
    set(SET_CUDA_STAGING, "1");
    assert_refused(gyre_cuda_comms_create(2, devices, none), GYRE_ERR_INVALID, "is too little");
    set(SET_CUDA_STAGING, "64K");
    set(SET_CUDA_PATH, "staged");
    assert_refused(gyre_cuda_comms_create(2, devices, none), GYRE_ERR_UNSUPPORTED, "GYRE_CUDA_PATH=staged");
    set(SET_CUDA_PATH, NULL);
    assert_gyre(gyre_group_start());
    assert_refused(gyre_cuda_comms_create(2, devices, none), GYRE_ERR_INVALID, "part of a group");
    assert_gyre(gyre_group_end());
    assert_null(none[0]);

    open_team(2, devices);
    gyre_comm_t *comm = team.comms[0];
    const gyre_redop_t sum = GYRE_OP(GYRE_SUM);
    assert_refused(gyre_all_reduce(host, host, 4, GYRE_FLOAT32, sum, comm), GYRE_ERR_UNSUPPORTED,
                   "process per rank");
    assert_refused(gyre_all_reduce(team.in[0], host, 4, GYRE_FLOAT32, sum, comm), GYRE_ERR_INVALID,
                   "one kind");
    assert_refused(gyre_all_reduce_stream(team.in[0], host, 4, GYRE_FLOAT32, sum, comm, team.streams[0]),
                   GYRE_ERR_INVALID, "one kind");
    assert_refused(gyre_send(team.in[0], 4, GYRE_FLOAT32, 1, comm), GYRE_ERR_UNSUPPORTED, "gyre_send_stream");
    assert_refused(gyre_irecv(team.in[0], 4, GYRE_FLOAT32, 1, comm, &request), GYRE_ERR_UNSUPPORTED,
                   "gyre_recv_stream");
    assert_refused(
        gyre_neighbor_exchange(NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, GYRE_FLOAT32, comm),
        GYRE_ERR_UNSUPPORTED, "gyre_neighbor_exchange_stream");
    assert_refused(gyre_send_stream(team.in[0], 4, GYRE_FLOAT32, 1, comm, NULL), GYRE_ERR_INVALID,
                   "default stream");
    assert_refused(gyre_send_stream(host, 4, GYRE_FLOAT32, 1, comm, team.streams[0]), GYRE_ERR_UNSUPPORTED,
                   "host memory");
    assert_refused(gyre_send_stream(team.in[0], 4, GYRE_FLOAT32, 0, comm, team.streams[0]), GYRE_ERR_INVALID,
                   "to oneself");
    assert_refused(gyre_comm_split(comm, 0, 0, &split), GYRE_ERR_UNSUPPORTED, "gyre_cuda_comms_create");
    assert_refused(gyre_comm_address(comm, text, sizeof text), GYRE_ERR_UNSUPPORTED,
                   "no other process can join");
    assert_refused(gyre_comm_shrink(comm, &split), GYRE_ERR_INVALID, "gyre_comm_shrink");
    assert_refused(gyre_comm_grow(comm, 1, &split), GYRE_ERR_INVALID, "gyre_comm_grow");
    assert_refused(gyre_finalize(comm), GYRE_ERR_INVALID, "gyre_comm_destroy");
    assert_refused(gyre_all_reduce_stream(team.in[0], team.out[0], 4, GYRE_FLOAT32, sum, comm, NULL),
                   GYRE_ERR_INVALID, "default stream");
    assert_gyre(gyre_all_reduce_stream(team.in[0], team.out[0], 4, GYRE_FLOAT32, sum, comm, team.streams[0]));
    assert_refused(
        gyre_all_reduce_stream(team.in[1], team.out[1], 4, GYRE_FLOAT32, sum, team.comms[1], team.streams[0]),
        GYRE_ERR_INVALID, "the same stream");
    assert_gyre(gyre_all_reduce_stream(team.in[1], team.out[1], 4, GYRE_FLOAT32, sum, team.comms[1],
                                       team.streams[1]));
    wait_for_streams();
    gyre_comm_stats_t stats = {.size = sizeof stats};
    assert_gyre(gyre_comm_stats(comm, &stats));
    assert_gyre(gyre_comm_prepare_cuda(comm));
    assert_gyre(gyre_comm_error(comm));
    /* and none of that was a call that others must make, too */
    const collective_t a = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 100};
    check_collective(&a, BY_THREADS);
    close_team();
}

/* A context of the program is current on the device: a team is refused, and later made without it. */
static void foreign_context_is_refused(void **state)
{
    (void)state;
    static const int devices[2] = {0};
    gyre_comm_t *comms[2] = {NULL};
    CUresult (*push)(CUcontext), (*pop)(CUcontext *);
    void *function = NULL;
    CUcontext popped;
    if (!gpu_is_emulated()) {
        print_message("skipped: contexts are those of the emulator\n");
        skip();
    }
    assert_int_equal(base_device_driver("cuCtxPushCurrent", &function), GYRE_OK);
    memcpy(&push, &function, sizeof push);
    assert_int_equal(base_device_driver("cuCtxPopCurrent", &function), GYRE_OK);
    memcpy(&pop, &function, sizeof pop);
    assert_int_equal(push((CUcontext)(intptr_t)0x101), CUDA_SUCCESS);
    assert_refused(gyre_cuda_comms_create(2, devices, comms), GYRE_ERR_UNSUPPORTED,
                   "a context of its own on CUDA device 0");
    assert_int_equal(pop(&popped), CUDA_SUCCESS);
    assert_ptr_equal(popped, (CUcontext)(intptr_t)0x101);
    assert_int_equal(gyre_cuda_comms_create(2, devices, comms), GYRE_OK);
    assert_int_equal(gyre_comm_destroy(comms[0]), GYRE_OK);
    assert_int_equal(gyre_comm_destroy(comms[1]), GYRE_OK);
}

static gyre_comm_t *asked;
static volatile sig_atomic_t answer;

static void ask(int number)
{
    (void)number;
    answer = (sig_atomic_t)gyre_comm_error(asked);
}

/* A signal comes while this thread holds the lock of the team: its handler does not wait for this thread. */
static void asked_by_a_handler(void **state)
{
    (void)state;
    open_comms(2, NULL);
    asked = team.comms[0];
    assert_gyre(gyre_comm_abort(team.comms[1], "enough of it"));
    assert_true(signal(SIGUSR1, ask) != SIG_ERR);
    answer = -1;
    coll_team_lock(asked->team);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(answer, GYRE_OK);
    coll_team_unlock(asked->team);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(answer, GYRE_ERR_ABORTED);
    signal(SIGUSR1, SIG_DFL);
    close_comms();
}

/* Registration has the checks that it has where each rank is a process, which exports the memory. */
static void registered_memory(void **state)
{
    static const int devices[2] = {0, 0};
    gyre_cuda_registration_t *one[2] = {NULL};
    float host[4];
    (void)state;
    for (int several = 0; several < 2; several++) {
        open_team(2, several ? NULL : devices);
        gyre_comm_t *comm = team.comms[0];
        const size_t all = ROOM + 2 * GUARD;
        assert_refused(gyre_comm_register_cuda(comm, team.in[0], all + 1, &one[0]), GYRE_ERR_INVALID,
                       "more than the allocation's");
        assert_refused(gyre_comm_register_cuda(comm, team.in[0] + 16, all - 15, &one[0]), GYRE_ERR_INVALID,
                       "more than the allocation's");
        assert_refused(gyre_comm_register_cuda(comm, host, sizeof host, &one[0]), GYRE_ERR_INVALID,
                       "not in the memory");
        for (int r = 0; r < 2; r++)
            assert_gyre(gyre_comm_register_cuda(team.comms[r], team.in[r] + 16, all - 16, &one[r]));
        for (int r = 0; r < 2; r++)
            assert_gyre(gyre_comm_deregister_cuda(team.comms[r], one[r]));
        close_team();
    }
}

/* All ranks have failed with `wanted`, and each rank's error has these words. */
static void all_failed(gyre_status_t wanted, const char *words)
{
    const base_time_t until = base_deadline(20);
    wait_for_streams();
    for (int r = 0; r < team.n; r++) {
        while (gyre_comm_error(team.comms[r]) == GYRE_OK && base_now() < until)
            usleep(1000);
        assert_int_equal(gyre_comm_error(team.comms[r]), wanted);
        assert_refused(call(r, 1), wanted, words);
    }
}

typedef enum {
    DISAGREE,
    NEVER_CALLED,
    ABORTED,
    DESTROYED,
    BLOCKING_CALL,
    NOT_SENT,
    OTHER_LENGTH,
    CASES
} case_t;
enum { LL_CASES = DESTROYED }; /* the cases before that run once more with LL kernels */

/* One of three ranks makes an error, and all report it. */
static void make_error(case_t which)
{
    switch (which) {
    case DISAGREE:
        for (int r = 0; r < 3; r++) {
            team.collective.redop = r == 1 ? GYRE_MAX : GYRE_SUM;
            (void)call(r, 1); /* the last ranks may have the error already */
        }
        all_failed(GYRE_ERR_MISMATCH, "all_reduce #1");
        break;
    case NEVER_CALLED:
        assert_gyre(call(0, 1));
        assert_gyre(call(1, 1));
        all_failed(GYRE_ERR_TIMEOUT, "rank 2 has called nothing yet");
        break;
    case ABORTED:
        assert_gyre(call(0, 1));
        assert_gyre(call(1, 1));
        assert_gyre(gyre_comm_abort(team.comms[2], "no more"));
        all_failed(GYRE_ERR_ABORTED, "no more");
        break;
    case DESTROYED:
        assert_gyre(gyre_comm_destroy(team.comms[2]));
        team.comms[2] = NULL;
        team.n = 2;
        assert_gyre(call(1, 1));
        assert_refused(call(0, 0), GYRE_ERR_TIMEOUT, "rank 2 has destroyed its communicator");
        all_failed(GYRE_ERR_TIMEOUT, "rank 2 has destroyed its communicator");
        team.n = 3;
        break;
    case BLOCKING_CALL: /* for one rank, by the thread that would call for the others */
        assert_refused(call(1, 0), GYRE_ERR_TIMEOUT, "rank 0 has called nothing yet");
        all_failed(GYRE_ERR_TIMEOUT, "rank 0 has called nothing yet");
        break;
    case NOT_SENT:
        assert_gyre(gyre_recv_stream(team.out[0], 100, GYRE_FLOAT32, 2, team.comms[0], team.streams[0]));
        all_failed(GYRE_ERR_TIMEOUT, "rank 2 has not made the other end's call");
        break;
    default: /* OTHER_LENGTH: the sender's is not the receiver's */
        assert_gyre(gyre_send_stream(team.in[2], 99, GYRE_FLOAT32, 0, team.comms[2], team.streams[2]));
        assert_gyre(gyre_recv_stream(team.out[0], 100, GYRE_FLOAT32, 2, team.comms[0], team.streams[0]));
        all_failed(GYRE_ERR_MISMATCH, "has 396 bytes");
    }
}

static void errors_are_reported_on_all(void **state)
{
    const collective_t large = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 50000},
                       small = {
                           .op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 201}; /* for LL kernels */
    (void)state;
    set(SET_TIMEOUT, "1s");
    const unsigned long long events = gpu_is_emulated() ? emulated_events() : 0;
    for (int which = 0; which < CASES + LL_CASES; which++) {
        open_team(3, NULL);
        team.collective = which < CASES ? large : small;
        for (int r = 0; r < 3; r++)
            find_lengths(r);
        make_error((case_t)(which % CASES));
        close_team();
        if (gpu_is_emulated()) /* those of requests, too */
            assert_int_equal(emulated_events(), events);
    }
    set(SET_TIMEOUT, NULL);
}

/* Work of the program that does not end, before a collective: once the communicators have failed they can be
 * destroyed, and what was enqueued does no harm when the stream gets to it. A job can end meanwhile. */
static void failed_before_the_stream_arrives(void **state)
{
    static int let_go;
    const collective_t sum = {.op = COLL_ALL_REDUCE, .type = GYRE_FLOAT32, .count = 5000};
    gyre_comm_t *world, *part;
    (void)state;
    set(SET_TIMEOUT, "1s");
    assert_gyre(gyre_init(NULL, &world));
    assert_gyre(gyre_comm_split(world, 0, 0, &part));
    assert_gyre(gyre_comm_prepare_cuda(part));
    assert_gyre(gyre_comm_destroy(part));
    open_team(2, NULL);
    team.collective = sum;
    for (int r = 0; r < 2; r++)
        find_lengths(r);
    assert_cuda(cudaLaunchHostFunc(team.streams[0], gpu_hold, &let_go));
    for (int r = 0; r < 2; r++)
        assert_gyre(call(r, 1));
    for (int r = 0; r < 2; r++) {
        const base_time_t until = base_deadline(20);
        while (gyre_comm_error(team.comms[r]) == GYRE_OK && base_now() < until)
            usleep(1000);
        assert_int_equal(gyre_comm_error(team.comms[r]), GYRE_ERR_TIMEOUT);
    }
    close_comms();
    assert_gyre(gyre_finalize(world));
    assert_int_equal(cudaStreamQuery(team.streams[0]), cudaErrorNotReady);
    __atomic_store_n(&let_go, 1, __ATOMIC_RELEASE);
    close_team();
    set(SET_TIMEOUT, NULL);
}

int main(void)
{
    if (!one_process_begin())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_given_back),
        cmocka_unit_test(invalid_calls),
        cmocka_unit_test(foreign_context_is_refused),
        cmocka_unit_test(registered_memory),
        cmocka_unit_test(asked_by_a_handler),
        cmocka_unit_test(errors_are_reported_on_all),
        cmocka_unit_test(failed_before_the_stream_arrives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
