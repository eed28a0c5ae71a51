/* SPDX-License-Identifier: Apache-2.0 */
/* collectives/gpu/call/arenas.c: the pool of arenas, device memory that peers map.
 *
 * An arena outlives its communicator: a peer's last kernel may still read in it when this rank is done, and
 * CUDA forbids to free memory that others have mapped. So an arena goes to a pool and is used again once all
 * peers have sent their goodbye. It is freed when all ranks of the job have ended their work on devices, and
 * met. After a failure of the job they do not meet, and a rank whose stream is held sends no goodbye: then it
 * stays until the process ends. */
#include "collectives/gpu/state.h"

#ifdef GYRE_CUDA

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

typedef struct arena arena_t;
struct arena {
    arena_t *next;
    char *base;
    size_t bytes;
    int device, rank, n; /* of the communicator that had it last */
    int used;
};
static struct {
    pthread_mutex_t lock;
    arena_t *list;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Not on the legacy stream, which waits for streams of the program, and those perhaps for a rank that waits
 * for this one. */
gyre_status_t coll_cuda_clear(char *at, size_t bytes, cudaStream_t stream)
{
    cudaError_t rc = cudaMemsetAsync(at, 0, bytes, stream);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(stream);
    return rc == cudaSuccess ? GYRE_OK
                             : coll_cuda_failed(rc, "cudaMemsetAsync(%p, 0, %zu)", (void *)at, bytes);
}

/* 1: all peers of the last communicator have sent their goodbye. Under the pool's lock. */
static int is_free(const arena_t *a, cudaStream_t stream)
{
    static uint32_t goodbye[COLL_CUDA_RANKS]; /* a copy that cannot be waited for may still come */
    if (a->used)
        return 0;
    if (a->n < 2)
        return 1;
    if (cudaMemcpyAsync(goodbye, a->base + offsetof(coll_cuda_head_t, goodbye), sizeof goodbye,
                        cudaMemcpyDeviceToHost, stream) != cudaSuccess ||
        cudaStreamSynchronize(stream) != cudaSuccess)
        return 0;
    for (int r = 0; r < a->n; r++)
        if (r != a->rank && !goodbye[r])
            return 0;
    return 1;
}

enum {
    GRAIN = 2 << 20
}; /* smaller memory shares the driver's own with strangers, and peers would map theirs, too */

gyre_status_t coll_cuda_take_memory(const coll_cuda_t *c, size_t least, char **base)
{
    const int device = c->device;
    const size_t bytes = base_round_up(least, GRAIN);
    arena_t *a = NULL;
    pthread_mutex_lock(&pool.lock);
    for (a = pool.list; a; a = a->next)
        if (a->device == device && a->bytes == bytes && is_free(a, c->stream))
            break;
    if (a)
        a->used = 1;
    pthread_mutex_unlock(&pool.lock);
    cudaError_t rc = cudaSuccess;
    if (!a) {
        a = calloc(1, sizeof *a);
        if (!a)
            return gyre_fail(GYRE_ERR_NO_MEMORY, "no memory to note an arena");
        *a = (arena_t){.bytes = bytes, .device = device, .used = 1};
        rc = cudaMalloc((void **)&a->base, bytes);
        if (rc != cudaSuccess) {
            free(a);
            return coll_cuda_failed(rc, "cudaMalloc(%zu) on device %d for GYRE_CUDA_STAGING", bytes, device);
        }
        pthread_mutex_lock(&pool.lock);
        a->next = pool.list;
        pool.list = a;
        pthread_mutex_unlock(&pool.lock);
    }
    *base = a->base;
    return coll_cuda_clear(a->base, COLL_CUDA_HEAD, c->stream);
}

void coll_cuda_give_arena(const char *base, int rank, int n, int shared)
{
    pthread_mutex_lock(&pool.lock);
    for (arena_t *a = pool.list; a; a = a->next)
        if (a->base == base) {
            a->rank = rank;
            a->n = shared ? n : 0;
            a->used = 0;
        }
    pthread_mutex_unlock(&pool.lock);
}

void coll_cuda_give_memory(const char *base)
{
    coll_cuda_give_arena(base, 0, 0, 0);
}

/* Frees it, unless a peer that has not sent its goodbye still has it mapped: what it enqueued there does not
 * end. 1: it is freed. */
static int free_arena(const arena_t *a)
{
    const base_device_t on = {BASE_CUDA, a->device};
    cudaStream_t stream;
    int before, is = 0;
    if (base_device_enter(on, &before) != GYRE_OK)
        return 0;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess) {
        is = is_free(a, stream);
        (void)cudaStreamDestroy(stream);
    }
    if (is && cudaFree(a->base) != cudaSuccess)
        log_info("an arena of %zu bytes on CUDA device %d could not be freed", a->bytes, a->device);
    (void)cudaGetLastError();
    base_device_leave(on, before);
    return is;
}

void coll_cuda_leave(int all_ended)
{
    /* a stream that does not end uses it: freeing anything on the device would wait for that */
    int stuck = coll_cuda_guard_any_stuck();
    pthread_mutex_lock(&pool.lock);
    for (const arena_t *a = pool.list; a; a = a->next)
        stuck |= a->used;
    for (arena_t **at = &pool.list, *a; all_ended && !stuck && (a = *at);) {
        if (!free_arena(a)) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
    }
    pthread_mutex_unlock(&pool.lock);
}

#endif
