/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/ranks/mp_device.c: each rank's device memory, written by its neighbour's kernels and copies
 * through a mapping. ranks: 2 3 */
#include <stdlib.h>

#include <gyre/gyre.h>

#include "base/device/peer.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/language.h"
#include "tests/support/mp.h"

enum { N = 5000, BEFORE = 300 };

int main(void)
{
    const base_device_t device = {BASE_CUDA, 0};
    gyre_comm_t *comm;
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &comm));
    int n = gyre_comm_size(comm), rank = gyre_comm_rank(comm);
    float *mine, *theirs, *again, got[N], ones[N];
    base_stream_t *stream;
    base_device_handle_t card, *cards = malloc((size_t)n * sizeof(*cards));
    for (int i = 0; i < N; i++)
        ones[i] = (float)(rank + 1);
    MP_OK(base_stream_create(device, &stream));
    MP_OK(base_device_alloc(device, (BEFORE + N) * sizeof(float), (void **)&mine));
    MP_OK(base_stream_zero(stream, mine, (BEFORE + N) * sizeof(float)));
    MP_OK(base_stream_wait(stream));
    MP_OK(base_device_export(mine + BEFORE, &card));
    MP_OK(gyre_all_gather(&card, cards, sizeof(card), GYRE_UINT8, comm));
    const base_device_handle_t *next = &cards[(rank + 1) % n];
    MP_CHECK(next->bytes >= N * sizeof(float) && next->offset == BEFORE * sizeof(float), "rank %d", rank);
    MP_OK(base_device_import(device, next, (void **)&theirs));
    MP_OK(base_device_import(device, next, (void **)&again));
    MP_CHECK(again == theirs && base_device_imports() == 1, "rank %d", rank);
    MP_CHECK(base_device_of(theirs).kind == BASE_CUDA, "rank %d", rank);
    /* into the neighbour's memory: 1 + rank by a copy, then twice as much on top by a kernel */
    float *scratch;
    MP_OK(base_device_alloc(device, sizeof(ones), (void **)&scratch));
    MP_OK(base_stream_copy(stream, scratch, ones, sizeof(ones)));
    MP_OK(base_stream_copy(stream, theirs, scratch, sizeof(ones)));
    MP_CHECK(language_axpy(N, 2.0f, scratch, theirs, base_stream_native(stream)) == cudaSuccess, "rank %d",
             rank);
    MP_OK(base_stream_wait(stream));
    MP_OK(gyre_barrier(comm));
    MP_OK(base_stream_copy(stream, got, mine + BEFORE, sizeof(got)));
    MP_OK(base_stream_wait(stream));
    for (int i = 0; i < N; i++)
        MP_CHECK(got[i] == 3.0f * (float)((rank + n - 1) % n + 1), "rank %d", rank);
    MP_CHECK(base_device_unimport(again) == GYRE_OK && base_device_imports() == 1, "rank %d", rank);
    MP_CHECK(base_device_unimport(theirs) == GYRE_OK && base_device_imports() == 0, "rank %d", rank);
    MP_OK(gyre_barrier(comm)); /* no rank maps it any more */
    MP_OK(base_device_free(device, mine));
    MP_OK(base_device_free(device, scratch));
    MP_OK(base_stream_destroy(stream));
    free(cards);
    MP_OK(gyre_finalize(comm));
    return 0;
}
