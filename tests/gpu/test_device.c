/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/test_device.c: base/device/device.h on a device: streams in order, events, pinned memory, totals,
 * errors with the call and its arguments, capture. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <cuda.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/device/peer.h"
#include "tests/base/capture.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/language.h"

static const base_device_t cuda = {BASE_CUDA, 0};
enum { N = 1 << 20 };

static atomic_int gate;

static void wait_for_gate(void *user)
{
    (void)user;
    while (!atomic_load(&gate))
        usleep(1000);
}

/* One stream waits for another one's event, which cannot come before the host opens a gate. */
static void events_order_streams(void **state)
{
    (void)state;
    base_stream_t *first, *second;
    base_event_t *event, *end;
    unsigned char *device, *pinned;
    int done = 1;
    assert_int_equal(base_stream_create(cuda, &first), GYRE_OK);
    assert_int_equal(base_stream_create_urgent(cuda, &second), GYRE_OK);
    assert_int_equal(base_event_create(cuda, 0, &event), GYRE_OK);
    assert_int_equal(base_event_create(cuda, 0, &end), GYRE_OK);
    assert_int_equal(base_device_alloc(cuda, N, (void **)&device), GYRE_OK);
    assert_int_equal(base_pinned_alloc(cuda, N, (void **)&pinned), GYRE_OK);
    memset(pinned, 7, N);
    atomic_store(&gate, 0);
    assert_int_equal(base_stream_wait_event(second, event), GYRE_OK); /* never recorded: nothing */
    assert_cuda(cudaLaunchHostFunc(base_stream_native(first), wait_for_gate, NULL));
    assert_int_equal(base_stream_copy(first, device, pinned, N), GYRE_OK);
    assert_int_equal(base_event_record(event, first), GYRE_OK);
    assert_int_equal(base_stream_wait_event(second, event), GYRE_OK);
    assert_int_equal(base_stream_zero(second, device, N / 2), GYRE_OK);
    assert_int_equal(base_event_record(end, second), GYRE_OK);
    usleep(20000);
    assert_int_equal(base_event_done(end, &done), GYRE_OK);
    assert_int_equal(done, 0);
    assert_int_equal(cudaGetLastError(), cudaSuccess); /* the program finds no error that is not its own */
    atomic_store(&gate, 1);
    assert_int_equal(base_event_wait(end), GYRE_OK);
    assert_int_equal(base_event_done(event, &done), GYRE_OK);
    assert_int_equal(done, 1);
    assert_int_equal(base_stream_copy(second, pinned, device, N), GYRE_OK);
    assert_int_equal(base_stream_wait(second), GYRE_OK);
    for (int i = 0; i < N; i++)
        assert_int_equal(pinned[i], i < N / 2 ? 0 : 7);
    assert_int_equal(base_pinned_free(cuda, pinned), GYRE_OK);
    assert_int_equal(base_device_free(cuda, device), GYRE_OK);
    assert_int_equal(base_event_destroy(event), GYRE_OK);
    assert_int_equal(base_event_destroy(end), GYRE_OK);
    assert_int_equal(base_stream_destroy(first), GYRE_OK);
    assert_int_equal(base_stream_destroy(second), GYRE_OK);
}

static void time_between_events(void **state)
{
    (void)state;
    base_stream_t *stream;
    base_event_t *from, *to, *untimed;
    double ms = -1;
    char text[512];
    assert_int_equal(base_stream_create(cuda, &stream), GYRE_OK);
    assert_int_equal(base_event_create(cuda, 1, &from), GYRE_OK);
    assert_int_equal(base_event_create(cuda, 1, &to), GYRE_OK);
    assert_int_equal(base_event_create(cuda, 0, &untimed), GYRE_OK);
    assert_int_equal(base_event_record(from, stream), GYRE_OK);
    assert_int_equal(base_event_record(to, stream), GYRE_OK);
    assert_int_equal(base_event_record(untimed, stream), GYRE_OK);
    assert_int_equal(base_event_wait(untimed), GYRE_OK);
    assert_int_equal(base_event_elapsed_ms(from, to, &ms), GYRE_OK);
    assert_true(ms >= 0);
    capture_t capture = capture_begin();
    gyre_status_t status = base_event_elapsed_ms(from, untimed, &ms);
    capture_end(capture, text, sizeof(text));
    assert_int_equal(status, GYRE_ERR_INVALID);
    assert_non_null(strstr(text, "without time"));
    atomic_store(&gate, 0);
    assert_cuda(cudaLaunchHostFunc(base_stream_native(stream), wait_for_gate, NULL));
    assert_int_equal(base_event_record(to, stream), GYRE_OK);
    capture = capture_begin();
    status = base_event_elapsed_ms(from, to, &ms);
    capture_end(capture, text, sizeof(text));
    assert_int_equal(status, GYRE_ERR_INVALID);
    assert_non_null(strstr(text, "has not reached them yet"));
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    atomic_store(&gate, 1);
    base_event_destroy(from);
    base_event_destroy(to);
    base_event_destroy(untimed);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
}

static void a_stream_of_the_caller(void **state)
{
    (void)state;
    cudaStream_t mine;
    base_stream_t *stream;
    int value = 42, back = 0, *device;
    assert_cuda(cudaStreamCreateWithFlags(&mine, cudaStreamNonBlocking));
    assert_int_equal(base_stream_wrap(cuda, mine, &stream), GYRE_OK);
    assert_ptr_equal(base_stream_native(stream), mine);
    assert_int_equal(base_device_alloc(cuda, sizeof(int), (void **)&device), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, device, &value, sizeof(int)), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, &back, device, sizeof(int)), GYRE_OK);
    assert_int_equal(base_stream_wait(stream), GYRE_OK);
    assert_int_equal(back, 42);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
    assert_cuda(cudaStreamSynchronize(mine)); /* it is still there */
    assert_cuda(cudaStreamDestroy(mine));
    assert_int_equal(base_device_free(cuda, device), GYRE_OK);
}

static void sizes_and_kinds(void **state)
{
    (void)state;
    size_t before = 0, after = 0, total = 0;
    void *device, *pinned;
    assert_int_equal(base_device_memory(cuda, &before, &total), GYRE_OK);
    assert_true(before <= total && total > 0);
    assert_int_equal(base_device_alloc(cuda, 64 << 20, &device), GYRE_OK);
    assert_int_equal(base_device_memory(cuda, &after, NULL), GYRE_OK);
    assert_true(after < before);
    assert_int_equal(base_pinned_alloc(cuda, 4096, &pinned), GYRE_OK);
    assert_int_equal(base_device_of(device).kind, BASE_CUDA);
    assert_int_equal(base_device_of((char *)device + (64 << 20) - 1).kind, BASE_CUDA);
    assert_int_equal(base_device_of(pinned).kind, BASE_HOST);
    assert_int_equal(base_device_of(&before).kind, BASE_HOST);
    assert_int_equal(base_device_free(cuda, device), GYRE_OK);
    assert_int_equal(base_pinned_free(cuda, pinned), GYRE_OK);
}

/* The text of what `call` says on the way. */
#define SAYS(call, status, ...)                                                \
    do {                                                                       \
        static const char *const words[] = {__VA_ARGS__};                      \
        capture_t capture = capture_begin();                                   \
        gyre_status_t got = (call);                                            \
        capture_end(capture, text, sizeof(text));                              \
        assert_int_equal(got, status);                                         \
        for (size_t word = 0; word < sizeof(words) / sizeof(words[0]); word++) \
            assert_non_null(strstr(text, words[word]));                        \
    } while (0)

/* The same of what is recorded, and not logged. */
#define RECORDS(call, status, word)                       \
    do {                                                  \
        capture_t capture = capture_begin();              \
        gyre_status_t got = (call);                       \
        capture_end(capture, text, sizeof(text));         \
        assert_int_equal(got, status);                    \
        assert_string_equal(text, "");                    \
        assert_non_null(strstr(gyre_last_error(), word)); \
    } while (0)

static void errors_name_the_call(void **state)
{
    (void)state;
    char text[4096];
    void *memory = NULL, *function = NULL;
    base_device_handle_t handle;
    SAYS(base_device_alloc(cuda, (size_t)1 << 50, &memory), GYRE_ERR_NO_MEMORY, "CUDA device 0",
         "cudaMalloc(1125899906842624 bytes)", "out of memory");
    assert_null(memory);
    assert_int_equal(base_device_alloc(cuda, 64, &memory), GYRE_OK);
    assert_int_equal(base_device_free(cuda, memory), GYRE_OK);
    SAYS(base_device_free(cuda, memory), GYRE_ERR_INVALID, "cudaFree(", "invalid argument");
    SAYS(base_device_alloc((base_device_t){BASE_CUDA, 99}, 8, &memory), GYRE_ERR_NOT_FOUND, "99");
    RECORDS(base_device_export(&memory, &handle), GYRE_ERR_INVALID, "it is not memory of a CUDA device");
    assert_int_equal(base_device_driver("cuNoSuchFunction", &function), GYRE_ERR_UNSUPPORTED);
    assert_int_equal(base_device_driver("cuStreamWaitValue32", &function), GYRE_OK);
    assert_non_null(function);
}

/* In one process an export is the pointer, and unimport of it nothing. */
static void exports_at_home(void **state)
{
    (void)state;
    char *memory;
    void *again = NULL;
    base_device_handle_t handle;
    assert_int_equal(base_device_alloc(cuda, 10000, (void **)&memory), GYRE_OK);
    assert_int_equal(base_device_export(memory + 1234, &handle), GYRE_OK);
    assert_true(handle.offset == 1234 && handle.bytes >= 10000 - 1234);
    assert_int_equal(base_device_import(cuda, &handle, &again), GYRE_OK);
    assert_ptr_equal(again, memory + 1234);
    assert_int_equal(base_device_imports(), 0);
    assert_int_equal(base_device_unimport(again), GYRE_OK);
    handle.host ^= 2;
    char text[512];
    RECORDS(base_device_import(cuda, &handle, &again), GYRE_ERR_UNSUPPORTED, "another host");
    assert_int_equal(base_device_free(cuda, memory), GYRE_OK);
}

/* Work on another device than the thread's opens no context on that one: first, as nothing has yet. */
static void no_context_elsewhere(void **state)
{
    (void)state;
    const int last = base_device_count(BASE_CUDA) - 1;
    const base_device_t other = {BASE_CUDA, last};
    int (*asked)(int device, unsigned *flags, int *active); /* cuDevicePrimaryCtxGetState */
    void *function, *memory;
    base_stream_t *stream;
    base_event_t *event;
    base_device_handle_t handle;
    unsigned flags;
    int active = -1, current = -1, done;
    if (last < 1)
        skip();
    assert_int_equal(base_device_driver("cuDevicePrimaryCtxGetState", &function), GYRE_OK);
    memcpy(&asked, &function, sizeof(asked));
    assert_int_equal(base_device_alloc(other, N, &memory), GYRE_OK);
    assert_int_equal(base_stream_create(other, &stream), GYRE_OK);
    assert_int_equal(base_stream_zero(stream, memory, N), GYRE_OK);
    assert_int_equal(base_event_create(other, 0, &event), GYRE_OK);
    assert_int_equal(base_event_record(event, stream), GYRE_OK);
    assert_int_equal(base_event_done(event, &done), GYRE_OK);
    assert_int_equal(base_event_wait(event), GYRE_OK);
    assert_int_equal(base_event_destroy(event), GYRE_OK);
    assert_int_equal(base_stream_wait(stream), GYRE_OK);
    assert_int_equal(base_device_export(memory, &handle), GYRE_OK);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
    assert_int_equal(base_device_free(other, memory), GYRE_OK);
    assert_cuda(cudaGetDevice(&current));
    assert_int_equal(current, 0);
    assert_int_equal(asked(last, &flags, &active), 0);
    assert_int_equal(active, 1);
    assert_int_equal(asked(0, &flags, &active), 0);
    assert_int_equal(active, 0);
}

/* A thread that works in a context of its own on the device is in the primary one meanwhile. */
static void another_context(void **state)
{
    (void)state;
    const CUcontext primary = (CUcontext)(intptr_t)1, own = (CUcontext)(intptr_t)0x101; /* the emulator's */
    CUresult (*push)(CUcontext), (*pop)(CUcontext *), (*asked)(CUcontext *);
    CUcontext now = NULL;
    void *function;
    int before;
    if (!gpu_is_emulated())
        skip();
    assert_int_equal(base_device_driver("cuCtxPushCurrent", &function), GYRE_OK);
    memcpy(&push, &function, sizeof push);
    assert_int_equal(base_device_driver("cuCtxPopCurrent", &function), GYRE_OK);
    memcpy(&pop, &function, sizeof pop);
    assert_int_equal(base_device_driver("cuCtxGetCurrent", &function), GYRE_OK);
    memcpy(&asked, &function, sizeof asked);
    assert_int_equal(push(own), CUDA_SUCCESS);
    assert_int_equal(base_device_enter(cuda, &before), GYRE_OK);
    assert_int_equal(asked(&now), CUDA_SUCCESS);
    assert_ptr_equal(now, primary);
    base_device_leave(cuda, before);
    assert_int_equal(pop(&now), CUDA_SUCCESS);
    assert_ptr_equal(now, own);
}

/* Another device of the process reaches the memory by the pointer itself. */
static void two_devices(void **state)
{
    (void)state;
    const base_device_t other = {BASE_CUDA, 1};
    float x[100], y[100], *here, *there;
    void *again = NULL;
    base_device_handle_t handle;
    base_stream_t *stream;
    int can = 0;
    if (base_device_count(BASE_CUDA) < 2 || cudaDeviceCanAccessPeer(&can, 1, 0) != cudaSuccess || !can)
        skip();
    for (int i = 0; i < 100; i++) {
        x[i] = (float)i;
        y[i] = 1000.0f;
    }
    assert_int_equal(base_device_alloc(cuda, sizeof(x), (void **)&here), GYRE_OK);
    assert_int_equal(base_device_alloc(other, sizeof(x), (void **)&there), GYRE_OK);
    assert_int_equal(base_device_of(here).index, 0);
    assert_int_equal(base_device_of(there).index, 1);
    assert_int_equal(base_device_export(here, &handle), GYRE_OK);
    assert_int_equal(base_device_import(other, &handle, &again), GYRE_OK);
    assert_int_equal(base_device_import(other, &handle, &again), GYRE_OK); /* access was given before */
    assert_ptr_equal(again, here);
    assert_int_equal(base_stream_create(other, &stream), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, here, x, sizeof(x)), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, there, y, sizeof(y)), GYRE_OK);
    assert_int_equal(base_device_use(other), GYRE_OK);
    assert_cuda(language_axpy(100, 3.0f, again, there, base_stream_native(stream)));
    assert_int_equal(base_device_use(cuda), GYRE_OK);
    assert_int_equal(base_stream_copy(stream, y, there, sizeof(y)), GYRE_OK);
    assert_int_equal(base_stream_wait(stream), GYRE_OK);
    for (int i = 0; i < 100; i++)
        assert_true(y[i] == 1000.0f + 3.0f * x[i]);
    base_event_t *event;
    char text[512];
    assert_int_equal(base_event_create(cuda, 0, &event), GYRE_OK);
    SAYS(base_event_record(event, stream), GYRE_ERR_INVALID, "CUDA device 0", "CUDA device 1");
    assert_int_equal(base_event_destroy(event), GYRE_OK);
    assert_int_equal(base_device_unimport(again), GYRE_OK);
    assert_int_equal(base_stream_destroy(stream), GYRE_OK);
    assert_int_equal(base_device_free(cuda, here), GYRE_OK);
    assert_int_equal(base_device_free(other, there), GYRE_OK);
}

/* Two streams, joined by events, captured and replayed: y += 2 x, then a copy of y. */
static void a_graph_is_replayed(void **state)
{
    (void)state;
    enum { COUNT = 1000, TIMES = 3 };
    cudaStream_t one, two;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float x[COUNT], copy[COUNT], *dx, *dy, *dz;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)i;
    assert_cuda(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    assert_cuda(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
    assert_cuda(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    assert_cuda(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    assert_cuda(cudaMalloc((void **)&dx, sizeof(x)));
    assert_cuda(cudaMalloc((void **)&dy, sizeof(x)));
    assert_cuda(cudaMalloc((void **)&dz, sizeof(x)));
    assert_cuda(cudaMemcpy(dx, x, sizeof(x), cudaMemcpyHostToDevice));
    assert_cuda(cudaMemset(dy, 0, sizeof(x)));
    assert_cuda(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    assert_cuda(language_axpy(COUNT, 2.0f, dx, dy, one));
    assert_cuda(cudaEventRecord(fork, one));
    assert_cuda(cudaStreamWaitEvent(two, fork, 0));
    assert_cuda(cudaMemcpyAsync(dz, dy, sizeof(x), cudaMemcpyDeviceToDevice, two));
    assert_cuda(cudaEventRecord(join, two));
    assert_cuda(cudaStreamWaitEvent(one, join, 0));
    assert_cuda(cudaStreamEndCapture(one, &graph));
    assert_cuda(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < TIMES; i++)
        assert_cuda(cudaGraphLaunch(exec, one));
    assert_cuda(cudaStreamSynchronize(one));
    assert_cuda(cudaMemcpy(copy, dz, sizeof(copy), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        assert_true(copy[i] == 2.0f * TIMES * x[i]);
    assert_cuda(cudaGraphExecDestroy(exec));
    assert_cuda(cudaGraphDestroy(graph));
    /* A branch that does not come back. */
    assert_cuda(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    assert_cuda(cudaEventRecord(fork, one));
    assert_cuda(cudaStreamWaitEvent(two, fork, 0));
    assert_cuda(cudaMemsetAsync(dz, 0, 16, two));
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureUnjoined);
    cudaGetLastError();
    assert_cuda(cudaFree(dx));
    assert_cuda(cudaFree(dy));
    assert_cuda(cudaFree(dz));
    assert_cuda(cudaEventDestroy(fork));
    assert_cuda(cudaEventDestroy(join));
    assert_cuda(cudaStreamDestroy(one));
    assert_cuda(cudaStreamDestroy(two));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_context_elsewhere),
        cmocka_unit_test(another_context),
        cmocka_unit_test(events_order_streams),
        cmocka_unit_test(time_between_events),
        cmocka_unit_test(a_stream_of_the_caller),
        cmocka_unit_test(sizes_and_kinds),
        cmocka_unit_test(errors_name_the_call),
        cmocka_unit_test(exports_at_home),
        cmocka_unit_test(two_devices),
        cmocka_unit_test(a_graph_is_replayed),
    };
    setenv("EMULATED_DEVICES", "2", 0); /* the emulator's; a GPU's are what they are */
    return gpu_here() ? cmocka_run_group_tests(tests, NULL, NULL) : 77;
}
