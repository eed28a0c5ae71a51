/* SPDX-License-Identifier: Apache-2.0 */
/* guard: 0, since UCX reads and writes the pretend device's memory as a network card would */
/* ranks: 2 3 */
/* tests/gpu/ranks/mp_direct.c: messages between hosts (each rank passes for one) from device memory to device
 * memory. They have the same bytes as through the host, in all lengths around the limits, both ways at once.
 * Also: the path of each rank where UCX knows no CUDA memory, where one rank's does not, and with each value
 * of GYRE_CUDA_RDMA. A stand-in passes for a UCX that knows CUDA memory (pretend_ucx.h). */
#include <string.h>

#include "base/settings/settings.h"
#include "collectives/gpu/gpu.h"
#include "tests/gpu/ranks/mp_gpu.h"
#include "tests/gpu/ranks/pretend_ucx.h"

enum {
    MOST = 3 << 20,
    /* With 8 MiB of staging a message is cut into pieces of 465,984 bytes, of which those above 64 KiB go
     * directly: 1 of 65,537, of 100,001 and of 524,288 bytes, 3 of 1,048,577 and 6 of 2,500,001. */
    DIRECT = 1 + 1 + 1 + 3 + 6
};

static int n;
static gyre_comm_t *world, *comm;
static char *host, *back, *there;
static cudaStream_t stream;

/* ---- messages ------------------------------------------------------------------------------------------ */

static void fill(size_t bytes, int from)
{
    uint64_t seed = (uint64_t)from * 77 + bytes;
    for (size_t i = 0; i < bytes; i++)
        host[i] = (char)(random_next(&seed) >> 56);
}

/* A ring: every rank sends to the next and receives from the one before, all on one stream. */
static void around(size_t bytes)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    fill(bytes, rank);
    CUDA(cudaMemcpy(there, host, bytes, cudaMemcpyHostToDevice));
    CUDA(cudaMemset(there + MOST, 0x5a, MOST));
    CUDA(cudaDeviceSynchronize());
    MP_OK(gyre_send_stream(there, bytes, GYRE_UINT8, next, comm, stream));
    MP_OK(gyre_recv_stream(there + MOST, bytes, GYRE_UINT8, before, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    fill(bytes, before);
    CUDA(cudaMemcpy(back, there + MOST, bytes + 1, cudaMemcpyDeviceToHost));
    MP_CHECK(memcmp(back, host, bytes) == 0, "rank %d: %zu bytes came wrong", rank, bytes);
    MP_CHECK(back[bytes] == 0x5a, "rank %d: a byte more than %zu came", rank, bytes);
}

static void open_comm(const char *rdma)
{
    MP_OK(base_settings_set(SET_CUDA_RDMA, rdma, "test"));
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    sent = received = 0;
}

/* words: in the text on the path of messages. */
static void all_lengths(const char *rdma, int sends, int receives, const char *words)
{
    static const size_t lengths[] = {0, 1, 4096, 65536, 65537, 100001, 524288, 1048577, 2500001};
    const coll_shape_t shape = {.op = COLL_SENDRECV, .type = GYRE_UINT8, .count = MOST};
    coll_cuda_explanation_t told;
    open_comm(rdma);
    MP_OK(gyre_comm_prepare_cuda(comm));
    MP_OK(coll_cuda_explain(comm, &shape, 0, &told));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        around(lengths[i]);
    float *sum = (float *)(void *)there; /* collectives are as ever */
    const float one = 1;
    float got = 0;
    CUDA(cudaMemcpy(sum, &one, sizeof one, cudaMemcpyHostToDevice));
    MP_OK(gyre_all_reduce(sum, sum, 1, GYRE_FLOAT32, GYRE_OP(GYRE_SUM), comm));
    CUDA(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost));
    MP_CHECK((double)got == n, "the sum of %d ones is %g", n, (double)got);
    if (pretend) {
        MP_CHECK(sent == (sends ? DIRECT : 0) && received == (receives ? DIRECT : 0),
                 "rank %d: %lu messages went and %lu came in device memory (%s)", rank, sent, received,
                 told.why);
        MP_CHECK(strstr(told.why, words), "rank %d reads \"%s\" without \"%s\"", rank, told.why, words);
    }
    MP_OK(gyre_comm_destroy(comm));
}

/* Rank 0's UCX knows no CUDA memory: with it all goes through the host, and between the others as ever. */
static void one_without(void)
{
    const char *words = rank == 0 ? "through pinned host memory: this UCX"
                        : n == 2  ? "rank 0 cannot otherwise: this UCX"
                                  : "with rank 0 through pinned host memory: this UCX";
    all_lengths("auto", rank != 0 && rank + 1 < n, rank > 1, words);
}

/* Rank 1 aborts while rank 0 waits to receive from it, or what rank 0 has sent lies with it untaken: streams
 * end, and the memory on the device serves the next communicator as if nothing had been. */
static void aborted(int receives)
{
    open_comm("auto");
    MP_OK(gyre_comm_prepare_cuda(comm));
    if (rank == 0 && receives)
        MP_OK(gyre_recv_stream(there, MOST, GYRE_UINT8, 1, comm, stream));
    if (rank == 0 && !receives)
        MP_OK(gyre_send_stream(there, MOST / 2, GYRE_UINT8, 1, comm, stream));
    MP_OK(gyre_barrier(world));
    if (rank == 1)
        MP_OK(gyre_comm_abort(comm, "enough"));
    CUDA(cudaStreamSynchronize(stream));
    MP_CHECK(gyre_barrier(comm) != GYRE_OK, "rank %d: an aborted communicator works", rank);
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* A way that there is not: an error on all ranks, and nothing else is broken. */
static void refused(const char *rdma)
{
    open_comm(rdma);
    const gyre_status_t status = gyre_comm_prepare_cuda(comm);
    MP_CHECK(status == GYRE_ERR_UNSUPPORTED || !pretend, "GYRE_CUDA_RDMA=%s was taken", rdma);
    MP_CHECK(status == GYRE_OK ||
                 (strstr(gyre_last_error(), rdma) && strstr(gyre_last_error(), "is not possible")),
             "%s", gyre_last_error());
    MP_OK(gyre_barrier(comm));
    MP_OK(gyre_comm_destroy(comm));
}

static void over_ucx(void)
{
    says_cuda = 1;
    all_lengths("auto", 1, 1, "between hosts from device memory: UCX ");
    aborted(1);
    aborted(0);
    all_lengths("auto", 1, 1, "between hosts from device memory: UCX ");
    all_lengths("off", 0, 0, "through pinned host memory: GYRE_CUDA_RDMA=off");
    refused("peermem");
    says_cuda = 0;
    all_lengths("auto", 0, 0, "through pinned host memory: this UCX ");
    says_cuda = rank != 0;
    one_without();
}

/* The emulator has no dma-buf, and addresses that any adapter registers; UCX sees none of it. */
static void over_verbs(void)
{
    all_lengths("auto", 0, 0, "between hosts from device memory: GPUDirect RDMA by nvidia-peermem (cuMemGet");
    aborted(1);
    aborted(0);
    all_lengths("peermem", 0, 0, "between hosts from device memory: GPUDirect RDMA by nvidia-peermem, over ");
    all_lengths("off", 0, 0, "through pinned host memory: GYRE_CUDA_RDMA=off");
    refused("dmabuf");
}

int main(void)
{
    if (!gpu_here())
        return 77;
    pretend_ucx();
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    MP_OK(base_settings_set(SET_CUDA_STAGING, "8M", "test"));
    MP_OK(base_settings_set(SET_HOST_RANKS, "1", "test")); /* UCX starts and ends with each communicator */
    host = malloc(MOST);
    back = malloc(MOST);
    MP_CHECK(host && back, "no memory");
    CUDA(cudaMalloc((void **)&there, 2 * MOST));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (strcmp(base_setting_string(SET_TRANSPORT), "verbs") == 0)
        over_verbs();
    else
        over_ucx();
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(there));
    free(host);
    free(back);
    MP_OK(gyre_finalize(world));
    return 0;
}
