/* SPDX-License-Identifier: Apache-2.0 */
/* ranks: 3, and in check-long: 2 4 */
/* tests/gpu/ranks/mp_messages.c: messages on streams between ranks of a host, from device memory to device
 * memory and staged: every length around the limits, ranks that send first all at once as far as there is
 * room, groups that go both ways between all, messages of which one end is a group and the other is not,
 * exchanges with neighbours, order with collectives; and what goes wrong. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/settings/settings.h"
#include "collectives/gpu/gpu.h"
#include "collectives/gpu/mail/ring.h"
#include "collectives/gpu/state.h"
#include "tests/gpu/ranks/mp_gpu.h"

enum { MOST = 1 << 20, SIDE = 4 };

static int n, rank;
static gyre_comm_t *world, *comm;
static char *host, *back, *there; /* [2 * MOST]; on the device: what goes, what comes */
static cudaStream_t stream;
static const char *how;

static void fill(char *to, size_t bytes, int from, int number)
{
    uint64_t seed = (uint64_t)from * 7919 + (uint64_t)number * 31 + bytes;
    for (size_t i = 0; i < bytes; i++)
        to[i] = (char)(random_next(&seed) >> 56);
}

static void give(size_t at, size_t bytes, int number)
{
    fill(host, bytes, rank, number);
    CUDA(cudaMemcpy(there + at, host, bytes, cudaMemcpyHostToDevice));
}

static void compare(size_t at, size_t bytes, int from, int number)
{
    CUDA(cudaMemcpy(back, there + MOST + at, bytes + 1, cudaMemcpyDeviceToHost));
    fill(host, bytes, from, number);
    MP_CHECK(memcmp(back, host, bytes) == 0, "%s: rank %d: %zu bytes of rank %d came wrong", how, rank, bytes,
             from);
    MP_CHECK(back[bytes] == 0x5a, "%s: rank %d: a byte more than %zu came", how, rank, bytes);
}

static void clear(void)
{
    CUDA(cudaMemset(there + MOST, 0x5a, MOST));
    CUDA(cudaDeviceSynchronize());
}

/* Every rank knows the device of every rank, which all have the same here. */
static void is_on(int device, const char *bus)
{
    for (int r = 0; r < n; r++) {
        gyre_place_t place = {.size = sizeof place};
        MP_OK(gyre_comm_place(comm, r, &place));
        MP_CHECK(place.device == device && strcmp(place.device_bus, bus) == 0, "%s: rank %d: %d (%s)", how, r,
                 place.device, place.device_bus);
    }
}

static void open_comm(const char *path, const char *staging, const char *wait)
{
    how = path;
    MP_OK(base_settings_set(SET_CUDA_PATH, path, "test"));
    MP_OK(base_settings_set(SET_CUDA_STAGING, staging, "test"));
    MP_OK(base_settings_set(SET_CUDA_WAIT, wait, "test"));
    MP_OK(gyre_comm_split(world, 0, rank, &comm));
    is_on(-1, "");
    MP_OK(gyre_comm_prepare_cuda(comm));
    char bus[24];
    int device;
    CUDA(cudaGetDevice(&device));
    CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, device));
    is_on(device, bus);
}

/* To the next rank, from the one before. Up to `room` bytes are sent before anything is received; longer
 * ones as a group. */
static void around(size_t bytes, size_t room, size_t odd)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    give(odd, bytes, 0);
    clear();
    if (bytes > room)
        MP_OK(gyre_group_start());
    MP_OK(gyre_send_stream(there + odd, bytes, GYRE_UINT8, next, comm, stream));
    MP_OK(gyre_recv_stream(there + MOST + odd, bytes, GYRE_UINT8, before, comm, stream));
    if (bytes > room)
        MP_OK(gyre_group_end());
    CUDA(cudaStreamSynchronize(stream));
    compare(odd, bytes, before, 0);
}

static size_t length_between(int from, int to, size_t most)
{
    return most / (size_t)(1 + (from * 3 + to) % 5) + (size_t)from;
}

/* All to all in one group, each pair with a length of its own, longer than all that can be on its way. */
static void between_all(size_t most)
{
    const size_t slot = MOST / SIDE;
    MP_CHECK(most + SIDE < slot && n <= SIDE, "no room for %zu bytes", most);
    clear();
    for (int r = 0; r < n; r++)
        if (r != rank)
            give((size_t)r * slot, length_between(rank, r, most), r);
    MP_OK(gyre_group_start());
    for (int r = n - 1; r >= 0; r--) { /* in another order than it goes */
        if (r == rank)
            continue;
        MP_OK(gyre_recv_stream(there + MOST + (size_t)r * slot, length_between(r, rank, most), GYRE_UINT8, r,
                               comm, stream));
        MP_OK(gyre_send_stream(there + (size_t)r * slot, length_between(rank, r, most), GYRE_UINT8, r, comm,
                               stream));
    }
    MP_OK(gyre_group_end());
    CUDA(cudaStreamSynchronize(stream));
    for (int r = 0; r < n; r++)
        if (r != rank)
            compare((size_t)r * slot, length_between(r, rank, most), r, rank);
}

/* Rank 0 sends three messages to each other rank in a group; they receive them one by one, followed by a
 * collective. */
static void half_a_group(size_t most)
{
    const size_t slot = MOST / SIDE;
    clear();
    for (int k = 0; k < 3; k++)
        give((size_t)k * slot, most >> k, k);
    if (rank == 0) {
        MP_OK(gyre_group_start());
        for (int k = 0; k < 3; k++)
            for (int r = 1; r < n; r++)
                MP_OK(gyre_send_stream(there + (size_t)k * slot, most >> k, GYRE_UINT8, r, comm, stream));
        MP_OK(gyre_group_end());
    } else {
        for (int k = 0; k < 3; k++)
            MP_OK(gyre_recv_stream(there + MOST + (size_t)k * slot, most >> k, GYRE_UINT8, 0, comm, stream));
    }
    MP_OK(gyre_all_reduce_stream(there, there, 4, GYRE_INT32, GYRE_OP(GYRE_MAX), comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int k = 0; k < 3 && rank != 0; k++)
        compare((size_t)k * slot, most >> k, 0, k);
}

enum { BLOCKS = 4 };

/* Blocks to the next rank, to this one itself, to the one before, and an empty one, in one call; grouped:
 * with a message in either direction in the same group. */
static void neighbours(size_t most, int grouped)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    const int to[BLOCKS] = {next, rank, before, next}, from[BLOCKS] = {before, rank, next, before};
    const size_t slot = MOST / 8, counts[BLOCKS] = {most, most / 2 + 1, most / 3 + 2, 0};
    const size_t displs[BLOCKS] = {0, slot, 2 * slot, 3 * slot};
    MP_CHECK(most < slot, "no room for %zu bytes", most);
    clear();
    for (int k = 0; k < BLOCKS; k++)
        give(displs[k], counts[k], k);
    give(4 * slot, 300, 4);
    if (grouped) {
        MP_OK(gyre_group_start());
        MP_OK(gyre_send_stream(there + 4 * slot, 300, GYRE_UINT8, next, comm, stream));
        MP_OK(gyre_recv_stream(there + MOST + 4 * slot, 300, GYRE_UINT8, before, comm, stream));
    }
    MP_OK(gyre_neighbor_exchange_stream(there, counts, displs, BLOCKS, to, there + MOST, counts, displs,
                                        BLOCKS, from, GYRE_UINT8, comm, stream));
    if (grouped)
        MP_OK(gyre_group_end());
    CUDA(cudaStreamSynchronize(stream));
    for (int k = 0; k < BLOCKS; k++)
        compare(displs[k], counts[k], from[k], k);
    if (grouped)
        compare(4 * slot, 300, before, 4);
}

/* A block to this rank itself is copied after the communicator's earlier calls, on whatever stream. */
static void own_block_follows(void)
{
    const int self = rank;
    const size_t count = 1000, bytes = count * sizeof(int32_t);
    cudaStream_t second;
    CUDA(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    for (size_t i = 0; i < count; i++)
        ((int32_t *)(void *)host)[i] = rank + (int32_t)i;
    CUDA(cudaMemcpy(there, host, bytes, cudaMemcpyHostToDevice));
    clear();
    MP_OK(gyre_all_reduce_stream(there, there, count, GYRE_INT32, GYRE_OP(GYRE_SUM), comm, stream));
    MP_OK(gyre_neighbor_exchange_stream(there, &count, NULL, 1, &self, there + MOST, &count, NULL, 1, &self,
                                        GYRE_INT32, comm, second));
    CUDA(cudaStreamSynchronize(second));
    CUDA(cudaMemcpy(back, there + MOST, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        MP_CHECK(((int32_t *)(void *)back)[i] == n * (n - 1) / 2 + n * (int32_t)i,
                 "%s: element %zu was copied before it was there", how, i);
    CUDA(cudaStreamDestroy(second));
}

static void refuses(gyre_status_t got, gyre_status_t wanted, const char *text)
{
    MP_CHECK(got == wanted && strstr(gyre_last_error(), text), "%s: %s: \"%s\" does not say \"%s\"", how,
             gyre_status_string(got), gyre_last_error(), text);
}

/* Nothing of a refused exchange is enqueued, so the others need not know of it. */
static void refused_neighbours(void)
{
    const int next = (rank + 1) % n, around[2] = {next, rank}, beyond = n;
    const size_t two[2] = {8, 8}, other[2] = {8, 9};
    cudaGraph_t graph;
#define EXCHANGE(send, counts, nto, to, recv, nfrom, from)                                               \
    gyre_neighbor_exchange_stream(send, two, NULL, nto, to, recv, counts, NULL, nfrom, from, GYRE_UINT8, \
                                  comm, stream)
    clear();
    refuses(EXCHANGE(there, two, 1, &beyond, there + MOST, 0, NULL), GYRE_ERR_INVALID, "to[0] is");
    refuses(EXCHANGE(there, other, 2, around, there + MOST, 2, around), GYRE_ERR_INVALID, "9");
    refuses(EXCHANGE(there, two, 2, around, there + MOST, 1, around), GYRE_ERR_INVALID, "itself");
    refuses(EXCHANGE(host, two, 1, around, there + MOST, 0, NULL), GYRE_ERR_INVALID, "host memory");
    refuses(EXCHANGE(there, two, 1, around, host, 1, around), GYRE_ERR_INVALID, "host memory");
    refuses(EXCHANGE(there, two, 2, around, host, 1, around + 1), GYRE_ERR_INVALID, "one kind");
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    refuses(EXCHANGE(there, two, 2, around, there + MOST, 2, around), GYRE_ERR_UNSUPPORTED, "no graph");
    refuses(EXCHANGE(there, two, 1, around + 1, there + MOST, 1, around + 1), GYRE_ERR_UNSUPPORTED,
            "no graph");
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
#undef EXCHANGE
    CUDA(cudaMemcpy(back, there + MOST, 16, cudaMemcpyDeviceToHost));
    MP_CHECK(back[0] == 0x5a && back[15] == 0x5a, "%s: a refused exchange copied", how);
    MP_OK(gyre_neighbor_exchange_stream(NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0, NULL, GYRE_UINT8,
                                        comm, stream));
}

/* Many on their way in both directions before any is received. */
static void many(int count)
{
    const int next = (rank + 1) % n, before = (rank + n - 1) % n;
    clear();
    for (int k = 0; k < count; k++)
        give((size_t)k * 64, (size_t)k, k);
    for (int k = 0; k < count; k++)
        MP_OK(gyre_send_stream(there + k * 64, (size_t)k, GYRE_UINT8, next, comm, stream));
    for (int k = 0; k < count; k++)
        MP_OK(gyre_recv_stream(there + MOST + k * 64, (size_t)k, GYRE_UINT8, before, comm, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int k = 0; k < count; k++)
        compare((size_t)k * 64, (size_t)k, before, k);
}

static void captured(void)
{
    cudaGraph_t graph;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    MP_CHECK(gyre_send_stream(there, 4, GYRE_UINT8, (rank + 1) % n, comm, stream) == GYRE_ERR_UNSUPPORTED,
             "%s: a message was captured", how);
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
}

static void explained(const char *path, size_t bytes, const char *algorithm)
{
    const coll_shape_t shape = {.op = COLL_SENDRECV, .type = GYRE_UINT8, .count = bytes};
    coll_cuda_explanation_t e;
    MP_OK(coll_cuda_explain(comm, &shape, 0, &e));
    MP_CHECK(strcmp(e.path, path) == 0 && strcmp(e.algorithm, algorithm) == 0,
             "%zu bytes are said to go by %s, %s", bytes, e.path, e.algorithm);
}

/* Bytes of a ring, where the blocks are two. */
static size_t ring_of(size_t staging)
{
    const size_t each = staging / (size_t)(n > 2 ? n - 1 : 2), least = 64 << 10;
    return (each > least ? each : least) & ~(size_t)255;
}

static void direct(const char *staging, size_t bytes, const char *wait)
{
    const size_t ring = ring_of(bytes), piece = ring / 4 & ~(size_t)255;
    open_comm("direct", staging, wait);
    const size_t sizes[] = {0,           1,         15,       16,          17,
                            300,         piece - 1, piece,    piece + 1,   2 * piece + 77,
                            ring - 1024, ring,      ring + 1, 3 * ring + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < MOST - 8)
            around(sizes[i], 3 * piece, i % 3);
    between_all(MOST / SIDE - 3000);
    half_a_group(MOST / SIDE - 1000);
    neighbours(bytes < MOST ? piece : 1000, 1);
    neighbours(MOST / 8 - 100, 0);
    own_block_follows();
    refused_neighbours();
    many(3 * piece / COLL_MAIL_ALIGN < 60 ? (int)(3 * piece / COLL_MAIL_ALIGN) : 60);
    captured();
    explained("peers", 100, "kernel");
    explained("peers", 1 << 20, "engines");
    around(100, piece, 0);
    MP_OK(gyre_comm_destroy(comm));
}

static void staged(void)
{
    open_comm("staged", "256K", "auto");
    around(100, 4096, 0);
    around(MOST / 3, 4096, 0);
    between_all(MOST / SIDE / 2);
    half_a_group(MOST / SIDE / 2);
    neighbours(100, 1);
    neighbours(MOST / 8 - 100, 0);
    own_block_follows();
    refused_neighbours();
    captured();
    explained("staged", 100, "message");
    MP_OK(gyre_comm_destroy(comm));
}

/* The program leaves the job while messages that the library itself has started are not waited for: so it is
 * for a moment after each staged message. They are no reason to refuse gyre_finalize. */
static void at_the_end(void)
{
    gyre_request_t *of_proxy[2];
    open_comm("staged", "256K", "auto");
    around(100, 4096, 0);
    MP_OK(gyre_isend(host, 1, GYRE_UINT8, (rank + 1) % n, comm->cuda->shadow, &of_proxy[0]));
    MP_OK(gyre_irecv(back, 1, GYRE_UINT8, (rank + n - 1) % n, comm->cuda->shadow, &of_proxy[1]));
}

/* The stream ends, and the communicator has failed with one of two errors. */
static void failed(gyre_status_t wanted, gyre_status_t or)
{
    const base_time_t from = base_now();
    CUDA(cudaStreamSynchronize(stream));
    gyre_status_t st = GYRE_OK;
    while (st == GYRE_OK && base_now() - from < (base_time_t)20e9) {
        st = gyre_comm_error(comm);
        usleep(1000);
    }
    MP_CHECK(st == wanted || st == or, "rank %d: it ended with %s: %s", rank, gyre_status_string(st),
             gyre_last_error());
    MP_CHECK(gyre_send_stream(there, 4, GYRE_UINT8, (rank + 1) % n, comm, stream) == st,
             "rank %d: a later message was taken", rank);
}

/* Rank 0 sends 100 bytes where 200 are expected, in one piece and in several. More messages, which match, are
 * later on the streams: the first is reported all the same. */
static void of_two_lengths(const char *wait, size_t sent, size_t expected)
{
    char count[40];
    snprintf(count, sizeof count, "#1 (count %zu,", expected);
    open_comm("direct", "64K", wait);
    const int many_more = gpu_is_emulated() ? 300 : 40; /* a GPU takes some thousand launches ahead */
    for (int who = 1; who >= 0; who--) {                /* all is received before the first is sent */
        for (int k = 0; k < many_more && who == rank; k++) {
            const size_t length = k > 0 ? 300 : rank == 0 ? sent : expected;
            if (rank == 0)
                (void)gyre_send_stream(there, length, GYRE_UINT8, 1, comm, stream);
            else
                (void)gyre_recv_stream(there, length, GYRE_UINT8, 0, comm, stream);
        }
        MP_OK(gyre_barrier(world));
    }
    failed(GYRE_ERR_MISMATCH, GYRE_ERR_MISMATCH);
    if (rank == 1)
        MP_CHECK(strstr(gyre_last_error(), "bytes: messages are matched") != NULL &&
                     strstr(gyre_last_error(), count) != NULL,
                 "the error does not name the lengths: %s", gyre_last_error());
    MP_OK(gyre_comm_destroy(comm));
    MP_OK(gyre_barrier(world));
}

/* Rank 1 receives more than its memory holds, so the device refuses the copy when the wait before it is on
 * the stream. No rank sends: only the communicator's failure ends that wait. The emulator refuses every such
 * copy. */
static void beyond_memory(const char *path, const char *staging, const char *wait)
{
    enum { HOLDS = 100 << 10 };
    char *small;
    if (!gpu_is_emulated())
        return;
    open_comm(path, staging, wait);
    CUDA(cudaMalloc((void **)&small, HOLDS));
    MP_OK(gyre_all_reduce_stream(there, there, 4, GYRE_INT32, GYRE_OP(GYRE_MAX), comm, stream));
    CUDA(cudaStreamSynchronize(stream)); /* what went before has ended */
    if (rank == 1) {
        MP_CHECK(gyre_recv_stream(small, 2 * HOLDS, GYRE_UINT8, 0, comm, stream) != GYRE_OK,
                 "%s: more was received than there is memory for", how);
        const base_time_t until = base_now() + (base_time_t)20e9;
        while (cudaStreamQuery(stream) == cudaErrorNotReady && base_now() < until)
            usleep(1000);
        MP_CHECK(cudaStreamQuery(stream) == cudaSuccess, "%s, %s: the stream waits forever", path, wait);
    }
    failed(GYRE_ERR_SYSTEM, GYRE_ERR_SYSTEM);
    MP_OK(gyre_comm_destroy(comm));
    CUDA(cudaFree(small));
    MP_OK(gyre_barrier(world));
}

/* A job of its own: the last rank dies, or never sends, while the others wait for what it sends, or for it to
 * fetch what is more than there is room for. */
static void without_the_last(int dies, const char *wait)
{
    open_comm("direct", "64K", wait);
    MP_OK(gyre_barrier(world));
    if (rank == n - 1 && dies) {
        usleep(50 * 1000); /* the others have left the barrier */
        _exit(0);
    }
    if (rank == 0)
        (void)gyre_send_stream(there, MOST, GYRE_UINT8, n - 1, comm, stream);
    else if (rank != n - 1)
        (void)gyre_recv_stream(there + MOST, 1000, GYRE_UINT8, n - 1, comm, stream);
    failed(dies ? GYRE_ERR_PEER_DEAD : GYRE_ERR_TIMEOUT, GYRE_ERR_ABORTED);
    MP_OK(gyre_comm_destroy(comm));
}

int main(int argc, char **argv)
{
    if (!gpu_here())
        return 77;
    MP_OK(gyre_init(NULL, &world));
    n = gyre_comm_size(world);
    rank = gyre_comm_rank(world);
    host = malloc(MOST + 1);
    back = malloc(MOST + 1);
    MP_CHECK(host && back, "no memory");
    MP_OK(base_settings_set(SET_CUDA_BLOCKS, "2", "test"));
    CUDA(cudaMalloc((void **)&there, 2 * MOST + 64));
    CUDA(cudaMemset(there, 0, 2 * MOST + 64));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (argc == 3) { /* tests/gpu/ranks/jobs.sh: jobs that do not end well */
        const int dies = strcmp(argv[1], "dying") == 0;
        without_the_last(dies, argv[2]);
        if (dies)
            return 0;
        MP_OK(gyre_finalize(world));
        return 0;
    }
    direct("64K", 64 << 10, "auto");
    direct("2M", 2 << 20, "auto");
    direct("64K", 64 << 10, "kernel");
    staged();
    of_two_lengths("auto", 100, 200);
    of_two_lengths("kernel", 200, 100);
    of_two_lengths("auto", 30000, 200);
    beyond_memory("direct", "2M", "auto");
    beyond_memory("direct", "2M", "kernel");
    beyond_memory("staged", "256K", "auto");
    at_the_end();
    MP_OK(gyre_finalize(world));
    return 0;
}
