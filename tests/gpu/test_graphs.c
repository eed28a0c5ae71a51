/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_graphs.c: the table of CUDA graphs: work runs plainly, is captured, and comes back as a
 * graph with the same results; keys; room and which graphs make it; captures that are refused. Also what the
 * emulator refuses while a stream is captured, as CUDA does. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "model/gpu/graphs.h"
#include "tests/base/capture.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/language.h"

#include <gyre/status.h>

enum { COUNT = 100, KERNELS = 3 };

typedef enum { GOOD, ALLOCATES, FAILS } how_t;

static struct {
    cudaStream_t stream;
    float *x, *y; /* device */
    model_cuda_graphs_t *graphs;
    how_t how;
    size_t enqueued; /* calls of enqueue */
} t;

/* y += KERNELS a x; the note is 10 a. */
typedef struct {
    float a, note;
} scaled_t;

static gyre_status_t enqueue(void *user)
{
    scaled_t *scaled = user;
    void *memory = NULL;
    t.enqueued++;
    for (int i = 0; i < KERNELS; i++)
        if (language_axpy(COUNT, scaled->a, t.x, t.y, t.stream) != cudaSuccess)
            return GYRE_ERR_SYSTEM;
    if (t.how == ALLOCATES && cudaMalloc(&memory, 16) == cudaSuccess)
        cudaFree(memory);
    scaled->note = 10 * scaled->a;
    return t.how == FAILS ? GYRE_ERR_NO_MEMORY : GYRE_OK;
}

static gyre_status_t run(float a, int together)
{
    scaled_t scaled = {.a = a};
    const gyre_status_t status = model_cuda_graphs_run(t.graphs, &(model_cuda_work_t){.key = &scaled.a,
                                                                                      .enqueue = enqueue,
                                                                                      .user = &scaled,
                                                                                      .note = &scaled.note,
                                                                                      .together = together});
    if (status == GYRE_OK)
        assert_true(scaled.note == 10 * a);
    return status;
}

static model_cuda_graphs_count_t count_of(void)
{
    model_cuda_graphs_count_t count;
    model_cuda_graphs_count(t.graphs, &count);
    return count;
}

/* x = 1, y = 0. */
static void begin(size_t most)
{
    float ones[COUNT];
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    memset(&t, 0, sizeof t);
    assert_cuda(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
    assert_cuda(cudaMalloc((void **)&t.x, sizeof ones));
    assert_cuda(cudaMalloc((void **)&t.y, sizeof ones));
    assert_cuda(cudaMemcpy(t.x, ones, sizeof ones, cudaMemcpyHostToDevice));
    assert_cuda(cudaMemset(t.y, 0, sizeof ones));
    assert_int_equal(model_cuda_graphs_create(t.stream, sizeof(float), sizeof(float), most, &t.graphs),
                     GYRE_OK);
}

/* y is `want`. */
static void end(float want)
{
    float y[COUNT];
    model_cuda_graphs_destroy(t.graphs); /* what was launched goes on */
    assert_cuda(cudaStreamSynchronize(t.stream));
    assert_cuda(cudaMemcpy(y, t.y, sizeof y, cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        assert_true(y[i] == want);
    assert_cuda(cudaFree(t.x));
    assert_cuda(cudaFree(t.y));
    assert_cuda(cudaStreamDestroy(t.stream));
}

static void work_comes_again(void **state)
{
    (void)state;
    begin(100);
    for (int round = 0; round < 5; round++)
        for (int a = 1; a <= 4; a++)
            assert_int_equal(run((float)a, 0), GYRE_OK);
    const model_cuda_graphs_count_t count = count_of();
    assert_int_equal(count.plain, 4);
    assert_int_equal(count.captured, 4);
    assert_int_equal(count.launched, 16);
    assert_int_equal(count.nodes, 4 * KERNELS);
    assert_int_equal(t.enqueued, 8);
    if (emulated_given) { /* one launch instead of each kernel's */
        const unsigned long long before = emulated_given();
        assert_int_equal(run(1, 0), GYRE_OK);
        assert_int_equal(emulated_given() - before, 1);
        assert_int_equal(run(-1, 0), GYRE_OK);
        assert_int_equal(emulated_given() - before, 1 + KERNELS);
    }
    end(5.0f * (1 + 2 + 3 + 4) * KERNELS);
}

/* More work in turns than there is room for: what came first keeps its graphs, and nothing is captured in
 * vain. What is not used any more makes room. */
static void room_is_kept_and_made(void **state)
{
    (void)state;
    float sum = 0;
    begin(4 * KERNELS);
    for (int round = 0; round < 6; round++)
        for (int a = 1; a <= 10; a++, sum += (float)(a - 1))
            assert_int_equal(run((float)a, 0), GYRE_OK);
    model_cuda_graphs_count_t count = count_of();
    assert_int_equal(count.captured, 4);
    assert_int_equal(count.dropped, 0);
    assert_int_equal(count.launched, 5 * 4);
    assert_int_equal(count.plain, 6 * 10 - 5 * 4);
    for (int round = 0; round < 100; round++, sum += 20)
        assert_int_equal(run(20, 0), GYRE_OK);
    count = count_of();
    assert_int_equal(count.captured, 5);
    assert_true(count.dropped >= 1);
    assert_int_equal(count.nodes, (5 - count.dropped) * KERNELS);
    for (int round = 0; round < 3; round++, sum += 1) /* forgotten, it begins anew */
        assert_int_equal(run(1, 0), GYRE_OK);
    assert_int_equal(count_of().captured, 6);
    end(sum * KERNELS);
}

static void what_cannot_be_captured_runs_plainly(void **state)
{
    (void)state;
    char text[512];
    begin(100);
    for (int i = 0; i < 2; i++)
        assert_int_equal(run(1, 0), GYRE_OK);
    t.how = ALLOCATES;
    capture_t capture = capture_begin();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run(2, 0), GYRE_OK);
        assert_int_equal(run(3, 0), GYRE_OK);
    }
    capture_end(capture, text, sizeof text);
    const char *told = strstr(text, "CUDA graphs, capturing: ");
    assert_non_null(told);
    assert_null(strstr(told + 1, "CUDA graphs"));
    t.how = GOOD;
    assert_int_equal(run(1, 0), GYRE_OK); /* work with a graph keeps it */
    const model_cuda_graphs_count_t count = count_of();
    assert_int_equal(count.captured, 1);
    assert_int_equal(count.launched, 2);
    assert_int_equal(count.plain, 1 + 6);
    end((3 * 1 + 3 * 2 + 3 * 3) * KERNELS);
}

static void with_others_it_is_an_error(void **state)
{
    (void)state;
    begin(100);
    t.how = ALLOCATES;
    assert_int_equal(run(1, 1), GYRE_OK);
    assert_int_equal(run(1, 1), GYRE_ERR_SYSTEM);
    assert_non_null(strstr(gyre_last_error(), "capturing"));
    t.how = FAILS;
    assert_int_equal(run(2, 1), GYRE_ERR_NO_MEMORY);
    assert_int_equal(run(2, 1), GYRE_ERR_NO_MEMORY);
    assert_int_equal(count_of().captured, 0);
    end((1 + 2) * KERNELS);
}

/* ---- the emulator's refusals --------------------------------------------------------------------------- */

static cudaEvent_t event, before; /* recorded in the capture; before it */
static cudaStream_t other;

static cudaError_t allocates(void)
{
    void *memory;
    return cudaMalloc(&memory, 16);
}

static cudaError_t frees(void)
{
    return cudaFree(t.x);
}

static cudaError_t pins(void)
{
    void *memory;
    return cudaMallocHost(&memory, 16);
}

static cudaError_t waits_for_the_stream(void)
{
    return cudaStreamSynchronize(t.stream);
}

static cudaError_t asks_the_stream(void)
{
    return cudaStreamQuery(t.stream);
}

static cudaError_t waits_for_another(void)
{
    return cudaStreamSynchronize(other);
}

static cudaError_t waits_for_the_device(void)
{
    return cudaDeviceSynchronize();
}

static cudaError_t asks_an_event(void)
{
    return cudaEventQuery(before);
}

static cudaError_t waits_for_an_event(void)
{
    return cudaEventSynchronize(before);
}

static cudaError_t waits_on_the_stream_for_one_outside(void)
{
    return cudaStreamWaitEvent(t.stream, before, 0);
}

static cudaError_t copies_at_once(void)
{
    float one = 1;
    return cudaMemcpy(t.x, &one, sizeof one, cudaMemcpyHostToDevice);
}

static cudaError_t copies_ordinary_memory(void)
{
    static float one = 1;
    return cudaMemcpyAsync(t.x, &one, sizeof one, cudaMemcpyHostToDevice, t.stream);
}

static void *end_elsewhere(void *rc)
{
    cudaGraph_t graph;
    *(cudaError_t *)rc = cudaStreamEndCapture(t.stream, &graph);
    return NULL;
}

static cudaError_t ends_in_another_thread(void)
{
    cudaError_t rc = cudaSuccess;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, &rc), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return rc;
}

static const struct {
    const char *name;
    cudaError_t (*call)(void);
    cudaError_t want;
    int lasts; /* the capture is broken */
} refused[] = {
    {"cudaMalloc", allocates, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaFree", frees, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaMallocHost", pins, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaStreamSynchronize", waits_for_the_stream, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaStreamQuery", asks_the_stream, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaStreamSynchronize of another", waits_for_another, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaDeviceSynchronize", waits_for_the_device, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaEventQuery", asks_an_event, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaEventSynchronize", waits_for_an_event, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaStreamWaitEvent", waits_on_the_stream_for_one_outside, cudaErrorStreamCaptureIsolation, 1},
    {"cudaMemcpy", copies_at_once, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaMemcpyAsync of ordinary memory", copies_ordinary_memory, cudaErrorStreamCaptureUnsupported, 1},
    {"cudaStreamEndCapture elsewhere", ends_in_another_thread, cudaErrorStreamCaptureWrongThread, 0},
};

static void the_emulator_refuses_what_cuda_does(void **state)
{
    (void)state;
    cudaGraph_t graph;
    if (!gpu_is_emulated())
        skip();
    begin(100);
    assert_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventCreateWithFlags(&before, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(before, other));
    assert_cuda(cudaStreamSynchronize(other));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_cuda(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeThreadLocal));
        assert_cuda(language_axpy(COUNT, 1, t.x, t.y, t.stream));
        const cudaError_t rc = refused[i].call();
        if (rc != refused[i].want)
            fail_msg("%s: %s", refused[i].name, cudaGetErrorName(rc));
        assert_int_equal(cudaStreamEndCapture(t.stream, &graph),
                         refused[i].lasts ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
        if (graph)
            assert_cuda(cudaGraphDestroy(graph));
        cudaGetLastError();
    }
    /* an event that a capture holds: also when that is over */
    assert_cuda(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaEventRecord(event, t.stream));
    assert_cuda(cudaStreamEndCapture(t.stream, &graph));
    assert_int_equal(cudaEventQuery(event), cudaErrorCapturedEvent);
    assert_int_equal(cudaEventSynchronize(event), cudaErrorCapturedEvent);
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaEventDestroy(event));
    assert_cuda(cudaEventDestroy(before));
    assert_cuda(cudaStreamDestroy(other));
    cudaGetLastError();
    end(0);
}

int main(void)
{
    if (!gpu_here())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_comes_again), cmocka_unit_test(room_is_kept_and_made),
        cmocka_unit_test(what_cannot_be_captured_runs_plainly), cmocka_unit_test(with_others_it_is_an_error),
        cmocka_unit_test(the_emulator_refuses_what_cuda_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
