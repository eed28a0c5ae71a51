/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 2 3 */
/* tests/gpu/ranks/mp_unable.c: one rank cannot start the thread that watches streams, when all have mapped
 * each other's memory. All ranks get the error, and repeated tries take no more memory. A program of its own,
 * as pthread_create is the test's here. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/settings/settings.h"
#include "tests/gpu/ranks/mp_gpu.h"

static int no_guard;

/* The system's, but for what begins with all signals blocked, as the library's thread that guards streams
 * does. */
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*begin)(void *), void *user)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    sigset_t blocked;
    void *const found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&next, &found, sizeof next);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    return no_guard && sigismember(&blocked, SIGTERM) ? EAGAIN : next(thread, attr, begin, user);
}

int main(void)
{
    gyre_comm_t *world, *comm;
    float *a, *b;
    size_t before = 0, after = 0, all;
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    const int n = gyre_comm_size(world), rank = gyre_comm_rank(world);
    MP_OK(base_settings_set(SET_CUDA_BLOCKS, "2", "test"));
    MP_OK(base_settings_set(SET_CUDA_STAGING, "64K", "test"));
    CUDA(cudaMalloc((void **)&a, 4 * sizeof *a));
    CUDA(cudaMalloc((void **)&b, 4 * sizeof *b));
    CUDA(cudaMemset(a, 0, 4 * sizeof *a));
    MP_OK(base_settings_set(SET_CUDA_PATH, "direct", "test"));
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    for (int k = 0; k < 5; k++) {
        no_guard = rank == n - 1;
        MP_CHECK(gyre_comm_prepare_cuda(comm) == GYRE_ERR_SYSTEM, "rank %d: was prepared: %s", rank,
                 gyre_last_error());
        no_guard = 0;
        MP_CHECK(strstr(gyre_last_error(), "the thread that watches streams") != NULL, "rank %d: error: %s",
                 rank, gyre_last_error());
        MP_OK(gyre_barrier(world)); /* ranks may share the device */
        CUDA(cudaMemGetInfo(&after, &all));
        before = k == 0 ? after : before;
        MP_OK(gyre_barrier(world));
    }
    MP_CHECK(after >= before, "rank %d: failed calls keep %zu bytes", rank, before - after);
    MP_OK(gyre_comm_prepare_cuda(comm));
    MP_OK(gyre_all_reduce(a, b, 4, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_finalize(world));
    return 0;
}
