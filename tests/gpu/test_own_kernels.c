/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_own_kernels.c: kernels of the program that reach peers (gyre/device.cuh), by ranks of one
 * process on one device and on several: pointers, signals, waits, barriers, graphs; an abort ends their
 * waits; invalid calls of gyre_comm_peers_cuda are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <gyre/gyre.h>

#include "tests/gpu/own_kernels.h"
#include "tests/gpu/gpu.h"

enum { MOST = 5, WORDS = API_BLOCKS * API_THREADS };

static struct {
    int n;
    gyre_comm_t *comms[MOST];
    gyre_cuda_registration_t *registrations[MOST];
    gyre_cuda_peers_t peers[MOST];
    cudaStream_t streams[MOST];
    uint32_t *memory[MOST], *seen[MOST];
} job;

#define assert_gyre(call) assert_int_equal((call), GYRE_OK)

static gyre_status_t view(int r)
{
    job.peers[r] = (gyre_cuda_peers_t){0};
    return gyre_comm_peers_cuda(job.comms[r], job.registrations[r], &job.peers[r]);
}

/* several: devices. */
static void open_job(int n, int several)
{
    int devices, here[MOST];
    assert_cuda(cudaGetDeviceCount(&devices));
    job.n = n;
    for (int r = 0; r < n; r++)
        here[r] = several ? r % devices : 0;
    assert_gyre(gyre_cuda_comms_create(n, here, job.comms));
    for (int r = 0; r < n; r++) {
        const size_t bytes = MOST * WORDS * sizeof(uint32_t);
        assert_cuda(cudaSetDevice(here[r]));
        assert_cuda(cudaStreamCreateWithFlags(&job.streams[r], cudaStreamNonBlocking));
        assert_cuda(cudaMalloc((void **)&job.memory[r], bytes));
        assert_cuda(cudaMalloc((void **)&job.seen[r], WORDS * sizeof(uint32_t)));
        assert_cuda(cudaMemset(job.memory[r], 0x5a, bytes));
        assert_cuda(cudaMemset(job.seen[r], 0, WORDS * sizeof(uint32_t)));
        if (r == n - 1 && n > 1) { /* the last has not registered yet */
            assert_int_equal(view(0), GYRE_ERR_INVALID);
            assert_non_null(strstr(gyre_last_error(), "has not registered"));
            assert_null(job.peers[0].over);
        }
        assert_gyre(gyre_comm_register_cuda(job.comms[r], job.memory[r], bytes, &job.registrations[r]));
    }
    for (int r = 0; r < n; r++) {
        assert_gyre(view(r));
        assert_int_equal(job.peers[r].rank, r);
        assert_int_equal(job.peers[r].n, n);
        assert_ptr_equal(job.peers[r].memory[r], job.memory[r]);
    }
}

static void close_job(gyre_status_t state)
{
    for (int r = 0; r < job.n; r++)
        if (state == GYRE_OK)
            assert_gyre(gyre_comm_deregister_cuda(job.comms[r], job.registrations[r]));
    for (int r = 0; r < job.n; r++)
        (void)gyre_comm_destroy(job.comms[r]);
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaFree(job.memory[r]));
        assert_cuda(cudaFree(job.seen[r]));
        assert_cuda(cudaStreamDestroy(job.streams[r]));
    }
}

static void wait_all(void)
{
    for (int r = 0; r < job.n; r++)
        assert_cuda(cudaStreamSynchronize(job.streams[r]));
}

static void exchanged(uint32_t times)
{
    uint32_t seen[WORDS];
    wait_all();
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaMemcpy(seen, job.seen[r], sizeof seen, cudaMemcpyDeviceToHost));
        for (uint32_t i = 0; i < WORDS; i++) {
            const uint32_t own = 100 * (i / API_THREADS) + i % API_THREADS, n = (uint32_t)job.n;
            assert_int_equal(seen[i], times * (n * own + 1000 * n * (n - 1) / 2));
        }
    }
}

static void token(uint32_t first)
{
    for (int r = 0; r < job.n; r++)
        assert_cuda(api_token(&job.peers[r], first, job.streams[r]));
    wait_all();
    for (int r = 0; r < job.n; r++) {
        uint32_t word;
        assert_cuda(cudaMemcpy(&word, job.memory[r], sizeof word, cudaMemcpyDeviceToHost));
        assert_int_equal(word, first + (uint32_t)r);
    }
}

static void graph(void)
{
    cudaGraph_t graphs[MOST];
    cudaGraphExec_t ready[MOST];
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaStreamBeginCapture(job.streams[r], cudaStreamCaptureModeThreadLocal));
        assert_cuda(api_exchange(&job.peers[r], job.seen[r], job.streams[r]));
        assert_cuda(cudaStreamEndCapture(job.streams[r], &graphs[r]));
        assert_cuda(cudaGraphInstantiate(&ready[r], graphs[r], 0));
    }
    for (int times = 0; times < 3; times++)
        for (int r = 0; r < job.n; r++)
            assert_cuda(cudaGraphLaunch(ready[r], job.streams[r]));
    wait_all();
    for (int r = 0; r < job.n; r++) {
        assert_cuda(cudaGraphExecDestroy(ready[r]));
        assert_cuda(cudaGraphDestroy(graphs[r]));
    }
}

static void test_kernels(void **state)
{
    (void)state;
    for (int several = 0; several < 2; several++)
        for (int n = 1; n <= MOST; n++) {
            open_job(n, several);
            for (int times = 0; times < 4; times++)
                for (int r = n - 1; r >= 0; r--)
                    assert_cuda(api_exchange(&job.peers[r], job.seen[r], job.streams[r]));
            exchanged(4);
            token(70);
            token(900);
            graph();
            exchanged(7);
            close_job(GYRE_OK);
        }
}

static void begin_wait(int r, int barrier)
{
    const uint32_t none = 7;
    assert_cuda(cudaMemcpy(job.seen[r], &none, sizeof none, cudaMemcpyHostToDevice));
    assert_cuda(api_wait(&job.peers[r], 1, barrier, job.seen[r], job.streams[r]));
}

static void is_over(int r)
{
    uint32_t got;
    assert_cuda(cudaStreamSynchronize(job.streams[r]));
    assert_cuda(cudaMemcpy(&got, job.seen[r], sizeof got, cudaMemcpyDeviceToHost));
    assert_int_equal(got, 0);
}

/* A wait, and a barrier, for ranks that never come, which hears of the abort by the device's word alone or
 * by the host's; and again when the signals are there. */
static void test_abort(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const int barrier = i % 2, by_host = i / 2;
        open_job(3, barrier);
        uint32_t *zero = job.seen[0] + 1;
        if (by_host)
            job.peers[0].over = zero;
        else
            job.peers[0].abort = zero;
        begin_wait(0, barrier);
        assert_int_equal(cudaStreamQuery(job.streams[0]), cudaErrorNotReady);
        assert_gyre(gyre_comm_abort(job.comms[2], "no more"));
        is_over(0);
        for (int r = 1; r < 3; r++) {
            begin_wait(r, 1); /* signals to rank 0, too */
            is_over(r);
        }
        begin_wait(0, barrier);
        is_over(0);
        assert_int_equal(gyre_comm_error(job.comms[0]), GYRE_ERR_ABORTED);
        assert_int_equal(view(0), GYRE_ERR_ABORTED);
        close_job(GYRE_ERR_ABORTED);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    gyre_cuda_peers_t peers = {0};
    open_job(2, 0);
    assert_int_equal(gyre_comm_peers_cuda(job.comms[0], job.registrations[0], NULL), GYRE_ERR_INVALID);
    assert_int_equal(gyre_comm_peers_cuda(job.comms[0], job.registrations[1], &peers), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "not a registration"));
    assert_int_equal(gyre_comm_peers_cuda(job.comms[0], NULL, &peers), GYRE_ERR_INVALID);
    assert_int_equal(gyre_comm_peers_cuda(NULL, job.registrations[0], &peers), GYRE_ERR_INVALID);
    assert_null(peers.over);
    /* a rank that has given up its memory */
    assert_gyre(gyre_comm_deregister_cuda(job.comms[1], job.registrations[1]));
    assert_int_equal(view(0), GYRE_ERR_INVALID);
    assert_non_null(strstr(gyre_last_error(), "rank 1 has not registered"));
    assert_gyre(gyre_comm_register_cuda(job.comms[1], job.memory[1], 64, &job.registrations[1]));
    assert_gyre(view(0));
    close_job(GYRE_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels), cmocka_unit_test(test_abort),
                                       cmocka_unit_test(test_refusals)};
    if (!gpu_here())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
