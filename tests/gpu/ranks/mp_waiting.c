/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 */
/* tests/gpu/ranks/mp_waiting.c: any thread may wait for calls on device memory: while another thread captures
 * a stream in global mode, where CUDA refuses looks at events, and on a device that is not its own, where a
 * look would open a context. Between ranks that map each other's memory, and staged. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings/settings.h"
#include "tests/gpu/ranks/mp_gpu.h"

enum { COUNT = 5000 };

static int device, rank;
static gyre_comm_t *world, *comm;
static float *a, *b;
static gyre_request_t *request;
static int captures, ended;

static void *wait_for_it(void *unused)
{
    (void)unused;
    return gyre_wait(&request) == GYRE_OK ? &request : NULL;
}

/* The device of the thread that waits is the first one, as it has never chosen another. */
static void on_no_device(void)
{
    int (*asked)(int device, unsigned *flags, int *active); /* cuDevicePrimaryCtxGetState */
    void *function, *waited = NULL;
    pthread_t thread;
    unsigned flags;
    int active = -1;
    MP_OK(base_device_driver("cuDevicePrimaryCtxGetState", &function));
    memcpy(&asked, &function, sizeof asked);
    MP_OK(gyre_iall_reduce(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm, &request));
    MP_CHECK(pthread_create(&thread, NULL, wait_for_it, NULL) == 0, "no thread");
    MP_CHECK(pthread_join(thread, &waited) == 0 && waited, "rank %d: waited for %s", rank, gyre_last_error());
    MP_CHECK(asked(0, &flags, &active) == 0 && active == (device == 0), "device 0 has a context");
}

static void *capture(void *unused)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    (void)unused;
    CUDA(cudaSetDevice(device));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    __atomic_store_n(&captures, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
        usleep(100);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaStreamDestroy(stream));
    return NULL;
}

static void while_captured(void)
{
    pthread_t thread;
    captures = ended = 0;
    MP_CHECK(pthread_create(&thread, NULL, capture, NULL) == 0, "no thread");
    while (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE))
        usleep(100);
    for (int i = 0; i < 3; i++)
        MP_OK(gyre_all_reduce(a, b, COUNT, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    __atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
    MP_CHECK(pthread_join(thread, NULL) == 0, "no end");
}

int main(void)
{
    static const char *const paths[] = {"direct", "staged"};
    setenv("EMULATED_DEVICES", "2", 0); /* the emulator's; GPUs are what they are */
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    rank = gyre_comm_rank(world);
    device = base_device_count(BASE_CUDA) - 1;
    MP_OK(base_settings_set(SET_CUDA_BLOCKS, "2", "test"));
    CUDA(cudaSetDevice(device));
    CUDA(cudaMalloc((void **)&a, COUNT * sizeof *a));
    CUDA(cudaMalloc((void **)&b, COUNT * sizeof *b));
    CUDA(cudaMemset(a, 0, COUNT * sizeof *a));
    for (int i = 0; i < 2; i++) {
        MP_OK(base_settings_set(SET_CUDA_PATH, paths[i], "test"));
        MP_OK(gyre_comm_split(world, 0, rank, &comm));
        on_no_device();
        while_captured();
        MP_OK(gyre_comm_destroy(comm));
    }
    CUDA(cudaFree(a));
    CUDA(cudaFree(b));
    MP_OK(gyre_finalize(world));
    return 0;
}
